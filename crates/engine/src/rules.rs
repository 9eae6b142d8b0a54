//! The engine's configuration: sites, settings and content types. The server builds [`Rules`] from the
//! configuration file.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use flash_http::EncodedSlash;
use flash_http::negotiate::Coding;
use flash_http::proxies::ProxyField;
use flash_http::response::{ServerField, Status};
use flash_http::types::TypeTable;
use serde::{Deserialize, Serialize};

use crate::admission::{AdmissionRules, Network};
use crate::limits::{
    HEAD_ALIGN_BYTES, NAMES_BYTES_OF_CONTENT, NAMES_BYTES_OF_REPEATED, REPEATED_SHARE, VERSIONS_MAX,
};
use crate::log_template::LogRules;
use crate::path_rules::PathRules;
use crate::schedule::{EgressRules, Policy};
use crate::slab::SiteId;

/// An upstream, as an index into [`Rules::upstreams`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UpstreamId(pub u16);

/// A server of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ServerId {
    /// Its upstream.
    pub upstream: UpstreamId,
    /// Its place in [`UpstreamRules::servers`].
    pub server: u16,
}

/// The protocol that an upstream speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UpstreamProtocol {
    /// HTTP/1.1.
    #[default]
    Http,
    /// FastCGI 1.0, as a responder.
    FastCgi,
}

/// Servers that answer requests for Flash, all in the same way.
#[derive(Clone, Debug)]
pub struct UpstreamRules {
    /// Its protocol.
    pub protocol: UpstreamProtocol,
    /// Its servers.
    pub servers: Vec<ServerRules>,
    /// Maximum number of connections of this worker to each server; at least 1.
    pub connections_max: usize,
    /// Maximum number of idle connections of this worker that are kept for each server.
    pub idle_max: usize,
    /// Maximum number of requests of this worker that wait for a connection.
    pub queue_max: usize,
    /// Maximum time for a connection, in the queue and until it is made.
    pub connect_ms: u64,
    /// Maximum time between two bytes from the server, and until the first one.
    pub answer_ms: u64,
}

/// A server of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerRules {
    /// Its address, for messages.
    pub name: String,
    /// Its share of the requests, in proportion to those of the other servers; at least 1.
    pub weight: u32,
    /// Whether its connections are Unix sockets, which have no port that is kept after their end.
    pub is_unix: bool,
    /// Whether its connections are encrypted, by the record layers of [`Gateway::record_layer`](crate::Gateway::record_layer).
    pub is_encrypted: bool,
}

/// A route: the requests of a site that an upstream answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The paths.
    pub paths: RoutePaths,
    /// Whether files and listings answer where there are some, so that the upstream gets the other requests alone.
    pub files_first: bool,
    /// Who answers.
    pub upstream: UpstreamId,
    /// Whether its servers have a file tree of their own. Otherwise a script of an extension must be a file beneath
    /// the root of the site.
    pub has_own_files: bool,
    /// Maximum length of a request body in bytes.
    pub body_bytes_max: u64,
    /// Whether the servers get a body while the client sends it, or only once it is complete.
    pub streams_bodies: bool,
    /// Whether helpers compress texts in answers, except those that pass as they come.
    pub compresses: bool,
    /// Whether answers pass as they come, so that a slow reader slows its server down.
    pub streams_answers: bool,
}

/// The paths of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoutePaths {
    /// Decoded paths that begin with this, which begins with a slash.
    Prefix(Vec<u8>),
    /// Decoded paths of which one part ends with this extension, without its dot. The rest of the path is the
    /// `PATH_INFO` of RFC 3875.
    Extension(Vec<u8>),
}

/// The rules of one site.
#[derive(Clone, Debug)]
pub struct SiteRules {
    /// Its directory. The engine only compares roots: sites with the same root share one share of the
    /// helpers.
    pub root: PathBuf,
    /// Host names in lower case without port. A leading `*.` stands for one or more labels. Empty for the
    /// default site.
    pub hosts: Vec<String>,
    /// Names of index files, tried in order.
    pub index: Vec<String>,
    /// Whether a directory without an index is listed.
    pub browse: bool,
    /// Whether `.br`, `.zst` and `.gz` siblings are looked up.
    pub precompressed: bool,
    /// Whether helpers compress texts that have no such sibling. Needs a store.
    pub compress: bool,
    /// How `%2F` in a path is interpreted.
    pub encoded_slash: EncodedSlash,
    /// The value of `Strict-Transport-Security` in answers over HTTPS.
    pub hsts: Option<Arc<str>>,
    /// How requests over plain HTTP are sent to HTTPS; None if they are answered.
    pub https_redirect: Option<HttpsRedirect>,
    /// The rules for paths. An alias has those of its site.
    pub paths: Arc<PathRules>,
    /// The routes, tried in order. A path without a route leads to a file.
    pub routes: Vec<Route>,
    /// Its place in another site, if it is an alias: a folder with the files of some paths of that site.
    pub alias_of: Option<AliasOf>,
}

/// The place of an alias.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AliasOf {
    /// Its site.
    pub site: SiteId,
    /// The beginning of the decoded paths of its files there, without the last slash.
    pub prefix: Vec<u8>,
}

/// How requests over plain HTTP are sent to HTTPS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpsRedirect {
    /// The status: 301 or 308.
    pub status: Status,
    /// The port of HTTPS.
    pub port: u16,
}

impl SiteRules {
    /// Everything except the root that decides what the names of the site lead to: two sites for which this is equal
    /// find the same under the same root.
    pub fn identity(&self, types: &TypeTable) -> Vec<u8> {
        let Self {
            index,
            browse,
            precompressed,
            routes,
            root: _,
            hosts: _,
            compress: _,
            encoded_slash: _,
            hsts: _,
            https_redirect: _,
            paths: _,
            alias_of: _,
        } = self;
        let extension_of = |route: &Route| match &route.paths {
            RoutePaths::Extension(extension) => Some(extension.clone()),
            RoutePaths::Prefix(_) => None,
        };
        let scripts: Vec<_> = routes.iter().filter_map(extension_of).collect();
        format!("{index:?} {browse} {precompressed} {scripts:?} {:?}", types.own()).into_bytes()
    }

    /// The decoded path by which clients know this one.
    #[must_use]
    pub fn public_path<'p>(&self, path: &'p [u8]) -> Cow<'p, [u8]> {
        match &self.alias_of {
            Some(AliasOf { prefix, .. }) => Cow::Owned([prefix, path].concat()),
            None => Cow::Borrowed(path),
        }
    }

    /// Whether a file of this name or path belongs to a route by its extension. Its content is never sent, whoever answers.
    pub(crate) fn is_script(&self, name: &[u8]) -> bool {
        self.routes.iter().any(|route| route.is_script(name))
    }

    /// Whether a path names a precompressed form of a script, which has its source too.
    pub(crate) fn is_form_of_script(&self, path: &[u8]) -> bool {
        let codings = || Coding::ALL.into_iter().map(|coding| coding.extension().as_bytes());
        let mut path = path;
        while let Some(plain) = codings().find_map(|ending| without_ending(path, ending)) {
            if self.is_script(plain) {
                return true;
            }
            path = plain;
        }
        false
    }
}

impl Route {
    /// Whether files of this name or path belong to the route by their extension.
    pub(crate) fn is_script(&self, name: &[u8]) -> bool {
        matches!(&self.paths, RoutePaths::Extension(extension) if has_extension(name, extension))
    }
}

/// Whether a name has this extension in any case: a script is better run than sent.
pub(crate) fn has_extension(name: &[u8], extension: &[u8]) -> bool {
    without_ending(name, extension).is_some_and(|stem| stem.ends_with(b"."))
}

/// A name before this ending, which it has in any case.
fn without_ending<'n>(name: &'n [u8], ending: &[u8]) -> Option<&'n [u8]> {
    let (stem, end) = name.split_at(name.len().checked_sub(ending.len())?);
    end.eq_ignore_ascii_case(ending).then_some(stem)
}

/// Timeouts of the engine, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For a complete request head.
    pub head_ms: u64,
    /// For the next request of a connection.
    pub idle_ms: u64,
    /// For a job, in the queue and again at a helper.
    pub job_ms: u64,
}

/// How fast clients must send request bodies that upstreams get. Only the time in which Flash waits for the client counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BodyRules {
    /// The lowest rate; 0 for any rate.
    pub least_rate_bytes_per_s: u64,
    /// How long a body may fall short of it, in milliseconds.
    pub grace_ms: u64,
    /// Maximum time for a body, in milliseconds; 0 for no limit.
    pub total_ms: u64,
}

/// The optimizations of the paper. Each can be switched off alone to measure its effect; [`Rules::has_store`]
/// switches the content cache.
#[derive(Clone, Copy, Debug)]
pub struct Optimizations {
    /// Cache the files that paths lead to (Flash 1999, section 5.2).
    pub name_cache: bool,
    /// Cache response heads (section 5.3).
    pub head_cache: bool,
    /// Pad heads to a multiple of [`HEAD_ALIGN_BYTES`] (section 5.5).
    pub align_heads: bool,
    /// Send parts of files through [`Machine::send_file`](crate::Machine::send_file) instead of a read and a
    /// send.
    pub send_file: bool,
}

impl Default for Optimizations {
    fn default() -> Self {
        Self { name_cache: true, head_cache: true, align_heads: false, send_file: false }
    }
}

impl Optimizations {
    /// The multiple that head lengths are padded to.
    pub(crate) fn head_align_bytes(&self) -> usize {
        if self.align_heads { HEAD_ALIGN_BYTES } else { 1 }
    }
}

/// The proxies whose word about their clients counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyRules {
    /// Their networks.
    pub networks: Vec<Network>,
    /// The field in which they name a client.
    pub field: ProxyField,
    /// The networks of proxies that introduce the client of each connection (the PROXY protocol).
    pub sending_header: Vec<Network>,
}

impl ProxyRules {
    /// Whether an address is that of such a proxy.
    pub(crate) fn contain(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(address))
    }

    /// Whether connections from an address begin with an introduction.
    pub(crate) fn send_header(&self, address: IpAddr) -> bool {
        self.sending_header.iter().any(|network| network.contains(address))
    }
}

/// The configuration of an engine.
#[derive(Debug)]
pub struct Rules {
    /// The sites.
    pub sites: Vec<SiteRules>,
    /// The upstreams of the routes.
    pub upstreams: Vec<UpstreamRules>,
    /// The number of this worker. Each begins at another server, so that not all choose the same one.
    pub worker: usize,
    /// Whether answers name the program.
    pub server_field: ServerField,
    /// Content types by extension.
    pub types: TypeTable,
    /// Whether entity tags include the time of the last metadata change, besides the length and the
    /// modification time.
    pub etag_of_change: bool,
    /// How long an entry is used without a check, in milliseconds.
    pub freshness_ms: u64,
    /// How much longer a stale entry is served while a helper checks it, in milliseconds. After that,
    /// requests wait for the check.
    pub stale_ms: u64,
    /// Whether there is a store of file blocks.
    pub has_store: bool,
    /// A request whose expected wait for a helper is longer than this is refused at once, in milliseconds; 0
    /// means no limit.
    pub queue_wait_ms: u64,
    /// The optimizations in use.
    pub optimizations: Optimizations,
    /// The bounds of connections.
    pub admission: AdmissionRules,
    /// The proxies that are trusted.
    pub proxies: ProxyRules,
    /// Maximum number of files kept open for later requests; at most
    /// [`OPEN_FILES_MAX`](crate::limits::OPEN_FILES_MAX).
    pub open_files_max: usize,
    /// Size of the name cache, which holds found and missing names, in bytes.
    pub names_bytes_max: u64,
    /// Divides the bounds of the caches of names, versions and request heads; at least 1. In MP, each process
    /// that serves one connection at a time has such a part (flash-1999, section 6).
    pub cache_parts: usize,
    /// Maximum number of helpers.
    pub helpers_max: usize,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// The lowest rate at which a client must read; 0 disables the check.
    pub least_rate_bytes_per_s: u64,
    /// The pace of request bodies.
    pub bodies: BodyRules,
    /// How long room in the file for bodies is idle before the file system gets it back, in milliseconds.
    pub spool_idle_ms: u64,
    /// The schedule: which connection's bytes go first.
    pub policy: Policy,
    /// The uplink, if its rate is known; None for no bound.
    pub egress: Option<EgressRules>,
    /// Whether clients may speak HTTP/2.
    pub http2: bool,
    /// The format of access-log lines.
    pub log: LogRules,
}

impl Rules {
    /// Whether the worker uses the names that all workers share. They are part of the store.
    pub(crate) fn shares_names(&self) -> bool {
        self.has_store && self.optimizations.name_cache
    }

    #[inline]
    pub(crate) fn site(&self, site: SiteId) -> &SiteRules {
        &self.sites[usize::from(site.0)]
    }

    /// The site or the alias whose folder has the file of a decoded path of a site, and the path of the file there.
    #[inline]
    pub(crate) fn place<'p>(&self, site: SiteId, path: Cow<'p, [u8]>) -> (SiteId, Cow<'p, [u8]>) {
        let Some((alias, prefix_bytes)) = self.site(site).paths.alias(&path) else { return (site, path) };
        let path = match path {
            Cow::Borrowed(path) => Cow::Borrowed(&path[prefix_bytes..]),
            Cow::Owned(path) => Cow::Owned(path[prefix_bytes..].to_vec()),
        };
        (alias, path)
    }

    /// The site itself, or the alias of it, whose folder has a file with this absolute name, and the path of the file there.
    pub(crate) fn place_of_file<'f>(&self, site: SiteId, file: &'f [u8]) -> Option<(SiteId, &'f [u8])> {
        let beneath = |rules: &SiteRules| {
            let root = rules.root.as_os_str().as_encoded_bytes();
            let root = root.strip_suffix(b"/").unwrap_or(root);
            file.strip_prefix(root).filter(|rest| rest.starts_with(b"/"))
        };
        let places = (0..).map(SiteId).take(self.sites.len());
        let places = places.filter(|place| self.public_site(*place) == site);
        places
            .filter_map(|place| Some((place, beneath(self.site(place))?)))
            .min_by_key(|(_, beneath)| beneath.len())
    }

    /// The site that clients know: the site itself, or that of the alias.
    #[inline]
    pub(crate) fn public_site(&self, site: SiteId) -> SiteId {
        self.site(site).alias_of.as_ref().map_or(site, |alias| alias.site)
    }

    /// Maximum number of request heads known by their bytes, and their size together; 0 unless both names and heads are cached.
    pub(crate) fn repeated_requests_max(&self) -> (usize, usize) {
        let names_bytes = if self.optimizations.head_cache { self.name_cache_bytes_max() } else { 0 };
        ((names_bytes / NAMES_BYTES_OF_REPEATED) as usize, (names_bytes / REPEATED_SHARE) as usize)
    }

    /// Maximum number of contents kept with their heads.
    pub(crate) fn contents_max(&self) -> usize {
        (self.names_bytes_max / self.cache_parts as u64 / NAMES_BYTES_OF_CONTENT) as usize
    }

    /// Size of the name cache.
    pub(crate) fn name_cache_bytes_max(&self) -> u64 {
        if self.optimizations.name_cache { self.names_bytes_max / self.cache_parts as u64 } else { 0 }
    }

    /// Maximum number of versions found by their files; 0 if names are cached, because names lead to their
    /// versions.
    pub(crate) fn versions_max(&self) -> usize {
        if self.optimizations.name_cache { 0 } else { (VERSIONS_MAX / self.cache_parts).max(1) }
    }
}

/// The root number of each site, starting at 0. Sites with the same root have the same number.
pub(crate) fn root_numbers(sites: &[SiteRules]) -> Vec<usize> {
    let mut numbers = HashMap::new();
    let number_of = |site| {
        let next = numbers.len();
        *numbers.entry(site).or_insert(next)
    };
    sites.iter().map(|site| &site.root).map(number_of).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A site with these hosts, and nothing else.
    pub(crate) fn site(hosts: &[&str]) -> SiteRules {
        SiteRules {
            root: PathBuf::new(),
            hosts: hosts.iter().map(ToString::to_string).collect(),
            index: vec![],
            browse: false,
            precompressed: false,
            compress: false,
            encoded_slash: EncodedSlash::Decode,
            hsts: None,
            https_redirect: None,
            paths: Arc::default(),
            routes: vec![],
            alias_of: None,
        }
    }

    #[test]
    fn sites_with_one_root_have_one_number() {
        let sites = ["/a", "/b", "/a/", "/c"].map(|root| SiteRules { root: root.into(), ..site(&[]) });
        assert_eq!(root_numbers(&sites), [0, 1, 0, 2]);
    }
}
