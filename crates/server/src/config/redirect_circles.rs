//! Finds redirects that lead clients in a circle, within a site or through others of the same file.
//!
//! Called by `config::resolve`, and by `config::warnings` for circles through several sites: their addresses can be those of another server, with
//! another port. It must not read anything.

use std::collections::HashMap;

use flash_engine::{PathRules, SiteId};
use flash_http::EncodedSlash;
use flash_http::target::decode_path;

use super::error::Problem;
use super::file::RuleDraft;
use super::options::Site;
use super::path_rules::path_rules;
use super::rule_checks::SAMPLE;
use super::rule_options::Rule;

/// Redirects that a client can meet in a row before they count as a circle.
const HOPS_MAX: usize = 10;

/// Problems with the rules of sites, which come from these drafts: circles within a site.
pub(super) fn problems(sites: &[Site], drafts: &[Vec<RuleDraft>]) -> Vec<Problem> {
    let addresses = Addresses::of(sites);
    let all = sites.iter().zip(drafts).enumerate();
    let all = all.flat_map(|(number, (site, drafts))| {
        drafts.iter().zip(&site.rules).map(move |(draft, rule)| (number, draft, rule))
    });
    all.filter_map(|(site, draft, rule)| {
        let circle = addresses.circle(site, rule).filter(|circle| circle.is_of_one_site)?;
        let problem = Problem::at(draft.span.clone(), "redirects in a circle", circle.why());
        Some(problem.helped("make `path` of the rules exclude the paths that they lead to"))
    })
    .collect()
}

/// The first circle through several sites: the number of a site in it, and why.
pub(super) fn of_several(sites: &[Site]) -> Option<(usize, String)> {
    if sites.len() < 2 {
        return None;
    }
    let addresses = Addresses::of(sites);
    let mut all =
        sites.iter().enumerate().flat_map(|(number, site)| site.rules.iter().map(move |rule| (number, rule)));
    all.find_map(|(site, rule)| Some((site, addresses.circle(site, rule)?.why())))
}

/// Redirects without an end.
struct Circle {
    /// The path of a client at its beginning.
    first: Vec<u8>,
    is_of_one_site: bool,
}

impl Circle {
    fn why(&self) -> String {
        format!("a client at {} is redirected without an end", self.first.escape_ascii())
    }
}

/// The sites by the addresses that lead to them.
struct Addresses {
    rules: Vec<PathRules>,
    hosts: HashMap<String, usize>,
}

impl Addresses {
    fn of(sites: &[Site]) -> Self {
        let rules = sites.iter().map(|site| path_rules(&site.rules, SiteId(0))).collect();
        let hosts = sites.iter().enumerate();
        let hosts =
            hosts.flat_map(|(number, site)| site.hosts.iter().map(move |host| (host.clone(), number)));
        Self { rules, hosts: hosts.collect() }
    }

    /// The site of a host. The default site is not: an address that no site names can be that of another server.
    fn site(&self, host: &str) -> Option<usize> {
        let host = host.to_ascii_lowercase();
        let dots = host.match_indices('.').map(|(at, _)| format!("*{}", &host[at..]));
        [host.clone()].into_iter().chain(dots).find_map(|name| self.hosts.get(&name).copied())
    }

    /// The site and the path of a location, which is a path of this site or an address.
    fn follow<'l>(&self, site: usize, location: &'l str) -> Option<(usize, &'l str)> {
        let without_query = location.split(['?', '#']).next().unwrap_or_default();
        if without_query.starts_with('/') {
            return Some((site, without_query));
        }
        let (_, rest) = without_query.split_once("://")?;
        let (authority, _) = rest.split_once('/').unwrap_or((rest, ""));
        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
        let path = &rest[authority.len()..];
        Some((self.site(host)?, if path.is_empty() { "/" } else { path }))
    }

    /// The circle of a client to whom a rule of a site applies.
    fn circle(&self, first_site: usize, rule: &Rule) -> Option<Circle> {
        rule.redirect.as_ref()?;
        let mut path = rule.path.replace('*', SAMPLE).into_bytes();
        if !path.starts_with(b"/") {
            path.insert(0, b'/');
        }
        let (mut site, mut circle) = (first_site, Circle { first: path.clone(), is_of_one_site: true });
        for _ in 0..HOPS_MAX {
            let (redirect, parts) = self.rules[site].redirect(&path)?;
            let location = redirect.location(&parts, None);
            let (next, target) = self.follow(site, &location)?;
            site = next;
            circle.is_of_one_site &= site == first_site;
            path = decode_path(target.as_bytes(), EncodedSlash::Decode).ok()?.into_owned();
        }
        Some(circle)
    }
}
