//! Finds the site for a host. Called by the [gate](crate::handler).

use std::collections::HashMap;

use crate::rules::SiteRules;
use crate::slab::SiteId;

/// The sites by their hosts.
#[derive(Debug)]
pub(crate) struct Router {
    exact: HashMap<Vec<u8>, SiteId>,
    /// Suffixes with their leading dot, longest first.
    wild: Vec<(Vec<u8>, SiteId)>,
    default: Option<SiteId>,
}

impl Router {
    pub(crate) fn new(sites: &[SiteRules]) -> Self {
        let mut router = Self { exact: HashMap::new(), wild: Vec::new(), default: None };
        for (number, site) in sites.iter().enumerate() {
            let id = SiteId(number as u16);
            if site.alias_of.is_some() {
                continue;
            }
            if site.hosts.is_empty() && router.default.is_none() {
                router.default = Some(id);
            }
            for host in &site.hosts {
                match host.strip_prefix('*') {
                    Some(suffix) => router.wild.push((suffix.as_bytes().to_vec(), id)),
                    None => drop(router.exact.insert(host.as_bytes().to_vec(), id)),
                }
            }
        }
        router.wild.sort_by_key(|(suffix, _)| std::cmp::Reverse(suffix.len()));
        router
    }

    /// The site for `host`, if there is one.
    pub(crate) fn route(&self, host: &[u8]) -> Option<SiteId> {
        if self.exact.is_empty() && self.wild.is_empty() {
            return self.default;
        }
        let mut host = host.to_ascii_lowercase();
        // A name with its final (root) dot is the same name.
        if host.last() == Some(&b'.') {
            host.pop();
        }
        if let Some(id) = self.exact.get(&host) {
            return Some(*id);
        }
        let wild = self.wild.iter().find(|(suffix, _)| host.len() > suffix.len() && host.ends_with(suffix));
        wild.map(|(_, id)| *id).or(self.default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::tests::site;

    #[test]
    fn routes_exact_then_longest_wildcard_then_default() {
        let router =
            Router::new(&[site(&[]), site(&["a.example"]), site(&["*.example"]), site(&["*.b.example"])]);
        assert_eq!(router.route(b"A.Example"), Some(SiteId(1)));
        assert_eq!(router.route(b"a.example."), Some(SiteId(1)));
        assert_eq!(router.route(b"x.example"), Some(SiteId(2)));
        assert_eq!(router.route(b"x.b.example"), Some(SiteId(3)));
        assert_eq!(router.route(b".example"), Some(SiteId(0)));
        assert_eq!(router.route(b"elsewhere"), Some(SiteId(0)));
    }

    #[test]
    fn without_a_default_site_an_unknown_host_has_none() {
        let router = Router::new(&[site(&["a.example"])]);
        assert_eq!(router.route(b"b.example"), None);
    }
}
