//! The engine's configuration: sites, settings and content types.

use std::collections::HashMap;
use std::path::PathBuf;

use flash_http::EncodedSlash;
use flash_http::types::TypeTable;

use crate::access_log::LogFormat;
use crate::limits::{HEAD_ALIGN_BYTES, KNOWN_REQUESTS_MAX, NAME_CACHE_BYTES_MAX, VERSIONS_MAX};

/// A site, by its place in [`Rules::sites`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SiteId(pub u16);

/// The rules of one site.
#[derive(Clone, Debug)]
pub struct SiteRules {
    /// Its directory. The engine only compares it: sites with the same root have one share of the
    /// helpers.
    pub root: PathBuf,
    /// Host names in lower case without port; `*.` in front stands for one or more labels.
    /// Empty for the default site.
    pub hosts: Vec<String>,
    /// File names tried, in order, for a directory.
    pub index: Vec<String>,
    /// Whether a directory without index is listed.
    pub browse: bool,
    /// Whether `.br`, `.zst` and `.gz` siblings are looked for.
    pub precompressed: bool,
    /// How `%2F` in a path is read.
    pub encoded_slash: EncodedSlash,
}

/// How long the engine waits, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For a whole request head.
    pub head_ms: u64,
    /// For the next request of a connection.
    pub idle_ms: u64,
    /// For a job, in the queue and again at a helper.
    pub job_ms: u64,
}

/// The optimizations of the paper. Each can be switched off alone, so that its worth can be measured;
/// that of contents by a bound of 0 in [`Rules::cache_memory_bytes`].
#[derive(Clone, Copy, Debug)]
pub struct Optimizations {
    /// The targets of paths are remembered between requests (Flash 1999, section 5.2).
    pub name_cache: bool,
    /// Response heads are kept (section 5.3).
    pub head_cache: bool,
    /// Heads are padded to a multiple of [`HEAD_ALIGN_BYTES`] (section 5.5).
    pub align_heads: bool,
    /// Parts of files are sent by [`Machine::send_file`](crate::Machine::send_file) instead of a
    /// read and a send.
    pub send_file: bool,
}

impl Default for Optimizations {
    fn default() -> Self {
        Self { name_cache: true, head_cache: true, align_heads: false, send_file: false }
    }
}

impl Optimizations {
    /// The number that the lengths of heads are a multiple of.
    pub(crate) fn head_align_bytes(&self) -> usize {
        if self.align_heads { HEAD_ALIGN_BYTES } else { 1 }
    }
}

/// All that an engine is told at its start.
#[derive(Debug)]
pub struct Rules {
    /// The sites.
    pub sites: Vec<SiteRules>,
    /// Content types by extension.
    pub types: TypeTable,
    /// Whether tags hold the time of change beside length and time of modification.
    pub etag_of_change: bool,
    /// How long an entry is believed, in milliseconds.
    pub freshness_ms: u64,
    /// How much longer it is served while a helper checks it, where checking without a helper would wait; after that the
    /// request waits for the check.
    pub stale_ms: u64,
    /// Bound of the content cache; 0 switches it off.
    pub cache_memory_bytes: u64,
    /// The optimizations in use.
    pub optimizations: Optimizations,
    /// Bound of connections.
    pub connections_max: usize,
    /// Bound of files kept open for later requests, at most
    /// [`OPEN_FILES_MAX`](crate::limits::OPEN_FILES_MAX).
    pub open_files_max: usize,
    /// Into how many parts the bounds of the caches of names, versions and request heads are divided, at least
    /// one: each process that serves one connection at a time has such a part (flash-1999, section 6).
    pub cache_parts: usize,
    /// Bound of helpers.
    pub helpers_max: usize,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// The least rate at which a client must read; 0 switches the check off.
    pub least_rate_bytes_per_s: u64,
    /// The form of access-log lines.
    pub log_format: LogFormat,
}

impl Rules {
    /// Request heads that are known by their bytes: that rests on names and heads that are kept.
    pub(crate) fn known_requests_max(&self) -> usize {
        let is_on = self.optimizations.name_cache && self.optimizations.head_cache;
        if is_on { (KNOWN_REQUESTS_MAX / self.cache_parts).max(1) } else { 0 }
    }

    /// Bound of the name cache.
    pub(crate) fn name_cache_bytes_max(&self) -> u64 {
        if self.optimizations.name_cache { NAME_CACHE_BYTES_MAX / self.cache_parts as u64 } else { 0 }
    }

    /// Versions that are found again by their files: all are, where names are kept, by these.
    pub(crate) fn versions_max(&self) -> usize {
        if self.optimizations.name_cache { 0 } else { (VERSIONS_MAX / self.cache_parts).max(1) }
    }
}

/// The number of each site's root, from 0: sites with the same root have the same number.
pub(crate) fn root_numbers(sites: &[SiteRules]) -> Vec<usize> {
    let mut numbers = HashMap::new();
    let number_of = |site| {
        let next = numbers.len();
        *numbers.entry(site).or_insert(next)
    };
    sites.iter().map(|site| &site.root).map(number_of).collect()
}

/// Finds the site of a host.
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

    /// The site that answers for `host`, if any does.
    pub(crate) fn route(&self, host: &[u8]) -> Option<SiteId> {
        if self.exact.is_empty() && self.wild.is_empty() {
            return self.default;
        }
        let mut host = host.to_ascii_lowercase();
        // A name with its root dot is the same name.
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

    fn site(hosts: &[&str]) -> SiteRules {
        SiteRules {
            root: PathBuf::new(),
            hosts: hosts.iter().map(ToString::to_string).collect(),
            index: vec![],
            browse: false,
            precompressed: false,
            encoded_slash: EncodedSlash::Decode,
        }
    }

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
    fn sites_with_one_root_have_one_number() {
        let sites = ["/a", "/b", "/a/", "/c"].map(|root| SiteRules { root: root.into(), ..site(&[]) });
        assert_eq!(root_numbers(&sites), [0, 1, 0, 2]);
    }

    #[test]
    fn without_a_default_site_an_unknown_host_has_none() {
        let router = Router::new(&[site(&["a.example"])]);
        assert_eq!(router.route(b"b.example"), None);
    }
}
