//! Converts settings to the rules of a worker and its engine.

use std::path::Path;
use std::sync::Arc;

use flash_engine::limits::{BODY_GRACE_MS, NAMES_BYTES, SPOOL_IDLE_MS, SPOOL_PIECE_BYTES_MAX};
use flash_engine::{
    AdmissionRules, AliasOf, BodyRules, Cutoffs, EgressRules, HttpsRedirect, Optimizations, Policy,
    ProxyRules, Route, RoutePaths, Rules, ServerRules, SiteId, SiteRules, Timeouts, UpstreamId,
    UpstreamProtocol, UpstreamRules,
};
use flash_http::proxies::ProxyField as NamedIn;
use flash_http::response::{ServerField, Status};
use flash_http::types::TypeTable;
use flash_keeper::SLOT_BYTES;
use flash_prompt::names::ENTRY_BYTES;
use flash_prompt::net::{self, InFlightCap};
use flash_waiting::memory::usable_bytes;
use flash_worker::SendBy;

use crate::config::architecture::{self, connections_that_fit, open_files_max};
use crate::config::{self, Clients, FilePath, ProxyField, SchedulePolicy, Settings};

/// The fraction of the store's size that a worker's name cache may have: a file of a page and its name have 8 : 1.
const STORE_NAMES_SHARE: u64 = 8;
/// The fraction of the memory that all workers' name caches may have.
const NAMES_SHARE: u64 = 8;
/// Memory of a directory in the watcher: its handle, its path and its rights.
pub(crate) const DIRECTORY_BYTES: u64 = 256;
/// The fraction of the memory that the directories of the watcher may have.
const DIRECTORIES_SHARE: u64 = 32;
const DIRECTORIES_MIN: usize = 200_000;
const DIRECTORIES_MAX: usize = 4_000_000;
/// The rules of the engine, within `descriptors_max`.
pub(crate) fn rules(settings: &Settings, descriptors_max: u64) -> Rules {
    let connections_max = connections_that_fit(settings, descriptors_max);
    let connections_max = usize::try_from(connections_max).unwrap_or(usize::MAX).max(1);
    let open_files_max = open_files_max(descriptors_max) as usize;
    Rules {
        sites: sites(settings),
        upstreams: settings.routes().map(upstream_rules).collect(),
        worker: 0,
        server_field: if settings.server_field { ServerField::Sent } else { ServerField::Absent },
        types: types(settings),
        etag_of_change: settings.etag == config::EtagTime::Changed,
        freshness_ms: settings.freshness_ms,
        stale_ms: settings.stale_ms,
        has_store: settings.cache_memory.bytes_max() > 0,
        queue_wait_ms: settings.queue_wait_ms,
        optimizations: Optimizations {
            name_cache: settings.name_cache,
            head_cache: settings.head_cache,
            align_heads: settings.align_heads,
            send_file: settings.send != SendBy::Read,
        },
        admission: admission(settings, settings.connections_max.min(connections_max)),
        open_files_max: (open_files_max / architecture::cache_parts(settings)).max(1),
        names_bytes_max: names_bytes_max(settings, usable_bytes()),
        cache_parts: architecture::cache_parts(settings),
        helpers_max: architecture::jobs_at_once(settings),
        timeouts: Timeouts {
            head_ms: settings.head_timeout_ms,
            idle_ms: settings.idle_timeout_ms,
            job_ms: settings.job_deadline_ms,
        },
        least_rate_bytes_per_s: settings.least_rate_bytes_per_s,
        bodies: BodyRules {
            least_rate_bytes_per_s: settings.body_least_rate_bytes_per_s,
            grace_ms: BODY_GRACE_MS,
            total_ms: settings.body_timeout_ms,
        },
        spool_idle_ms: SPOOL_IDLE_MS,
        proxies: ProxyRules {
            networks: Clients::networks_of(&settings.trusted_proxies),
            sending_header: Clients::networks_of(&settings.proxy_protocol),
            field: match settings.proxy_field {
                ProxyField::XForwardedFor => NamedIn::XForwarded,
                ProxyField::Forwarded => NamedIn::Forwarded,
            },
        },
        http2: settings.http2,
        policy: match settings.schedule {
            SchedulePolicy::Fair => Policy::Fair,
            SchedulePolicy::Srpt => Policy::Srpt { fixed: Cutoffs::new(&settings.srpt_cutoffs) },
        },
        egress: egress(settings),
        log: settings.log_rules(),
    }
}

/// Size of a worker's name cache in bytes. It grows with the store: a file whose name is forgotten costs a look-up by a
/// helper, although its content is in the store. All workers' names have at most a part of the usable memory.
pub(crate) fn names_bytes_max(settings: &Settings, usable_bytes: Option<u64>) -> u64 {
    let wanted = (settings.cache_memory.bytes_max() / STORE_NAMES_SHARE).clamp(NAMES_BYTES, 4 * NAMES_BYTES);
    let part = usable_bytes.unwrap_or(u64::MAX) / NAMES_SHARE / architecture::processes(settings) as u64;
    // `mp` divides it again.
    wanted.min(part.saturating_mul(architecture::cache_parts(settings) as u64))
}

/// Maximum number of directories that the watcher can know: a part of the usable memory. Where little is usable, the kernel's
/// own limit for inotify is lower.
pub(crate) fn directories_max(usable_bytes: Option<u64>) -> usize {
    let fit = usable_bytes.unwrap_or(u64::MAX) / DIRECTORIES_SHARE / DIRECTORY_BYTES;
    usize::try_from(fit).unwrap_or(usize::MAX).clamp(DIRECTORIES_MIN, DIRECTORIES_MAX)
}

/// Who gets one of `connections_max` connections. If these are fewer than the settings have, a client has at most half of them,
/// unless it may have all.
fn admission(settings: &Settings, connections_max: usize) -> AdmissionRules {
    let has_all = architecture::has_connections_of_all(settings);
    let share = if has_all { settings.client_connections_max } else { 0 };
    let is_lowered = connections_max < settings.connections_max && share < settings.connections_max;
    AdmissionRules {
        connections_max,
        client_connections_max: if is_lowered { share.min((connections_max / 2).max(1)) } else { share },
        exempt: Clients::networks_of(&settings.client_exempt),
    }
}

/// How long new connections may wait to be accepted, in milliseconds. A connection of the other architectures waits for a
/// free process or thread.
pub(crate) fn accept_wait_ms(settings: &Settings) -> u64 {
    if architecture::has_connections_of_all(settings) { settings.accept_wait_ms } else { 0 }
}

fn egress(settings: &Settings) -> Option<EgressRules> {
    let bytes_per_s = settings.egress_bits_per_s / 8;
    let workers = architecture::processes(settings) as u32;
    (bytes_per_s > 0).then_some(EgressRules { bytes_per_s, workers })
}

/// Bytes that a connection may hold unsent, besides those in flight. With a known uplink, bytes that a slow client
/// leaves unsent take the turn of others; with bands, the band cannot count them, because it follows what the server
/// has not handed over.
pub(crate) fn unsent_bytes_max(settings: &Settings) -> u32 {
    let is_ordered = settings.egress_bits_per_s > 0 || settings.schedule == SchedulePolicy::Srpt;
    if is_ordered { 16 * 1024 } else { net::UNSENT_BYTES_MAX }
}

/// Whether packets carry the band of their response.
pub(crate) fn marks(settings: &Settings) -> flash_worker::Marks {
    if settings.srpt_dscp { flash_worker::Marks::Dscp } else { flash_worker::Marks::None }
}

/// How much one connection may have in flight.
pub(crate) fn cap(settings: &Settings) -> Option<InFlightCap> {
    let bytes = usize::try_from(settings.cwnd_cap_bytes).unwrap_or(usize::MAX);
    (bytes > 0).then(|| InFlightCap::new(bytes))
}

/// Maximum blocks in a store of this size.
pub(crate) fn store_slots_max(bytes_max: u64) -> u32 {
    /// Enough for tiny files in a small store, and a bound of the table.
    const SLOTS: std::ops::RangeInclusive<u64> = 1 << 16..=1 << 24;
    // More would not fit, because the keeper counts their memory.
    (bytes_max / SLOT_BYTES).clamp(*SLOTS.start(), *SLOTS.end()) as u32
}

/// Maximum names in a store of this size: their table takes at most an eighth of it.
pub(crate) fn store_names_max(bytes_max: u64) -> u32 {
    const PART: u64 = 8;
    /// Enough for a small store, and a bound of the table.
    const NAMES: std::ops::RangeInclusive<u64> = 1 << 14..=1 << 26;
    (bytes_max / PART / ENTRY_BYTES).clamp(*NAMES.start(), *NAMES.end()) as u32
}

/// How many slots the file for request bodies of each worker may have.
pub(crate) fn spool_slots(settings: &Settings) -> u32 {
    let of_worker = settings.spool_bytes_max / architecture::processes(settings) as u64;
    (of_worker / SPOOL_PIECE_BYTES_MAX as u64).try_into().unwrap_or(u32::MAX)
}

/// The length of the memory file for a store of this size: a multiple of its memory, so that free addresses are never
/// too scattered for a block.
pub(crate) fn store_length_bytes(bytes_max: u64) -> u64 {
    const LEAST_BYTES: u64 = 1 << 30;
    bytes_max.saturating_mul(4).max(LEAST_BYTES).next_multiple_of(4096)
}

/// The rules of the sites, and then of their aliases. Each route has an upstream, whose number is the place of the route among those
/// of all sites.
pub(crate) fn sites(settings: &Settings) -> Vec<SiteRules> {
    let mut upstreams = (0..).map(UpstreamId);
    let mut first_alias = settings.sites.len();
    let with_routes = |site: &config::Site| {
        let routes = site.routes.iter().zip(&mut upstreams);
        let routes = routes.map(|(route, upstream)| Route {
            paths: match &route.paths {
                config::RoutePaths::Prefix(prefix) => RoutePaths::Prefix(prefix.clone().into_bytes()),
                config::RoutePaths::Extension(name) => RoutePaths::Extension(name.clone().into_bytes()),
            },
            files_first: route.files_first,
            upstream,
            has_own_files: has_own_files(route, &site.root),
            body_bytes_max: route.body_bytes_max,
            streams_bodies: route.stream_bodies,
            compresses: route.compress,
            streams_answers: route.stream_answers,
        });
        let https_redirect = https_redirect(settings, site);
        let paths = config::path_rules(&site.rules, SiteId(first_alias as u16)).into();
        first_alias += site.aliases().count();
        SiteRules { https_redirect, routes: routes.collect(), paths, ..site_rules(site) }
    };
    let mut rules: Vec<_> = settings.sites.iter().map(with_routes).collect();
    for (number, site) in settings.sites.iter().enumerate() {
        let alias = |(path, folder): (&str, &FilePath)| {
            let prefix = path.trim_end_matches("/*").into();
            let alias_of = Some(AliasOf { site: SiteId(number as u16), prefix });
            SiteRules { root: folder.to_path_buf(), hosts: Vec::new(), alias_of, ..rules[number].clone() }
        };
        let aliases: Vec<_> = site.aliases().map(alias).collect();
        rules.extend(aliases);
    }
    rules
}

/// Whether the servers of a route answer from files other than those beneath `root`: HTTP servers do, and programs in
/// another directory.
fn has_own_files(route: &config::Route, root: &Path) -> bool {
    match (route.protocol, &route.program) {
        (UpstreamProtocol::Http, _) => true,
        (UpstreamProtocol::FastCgi, Some(config::Program { runs: config::Runs::Cgi(folder), .. })) => {
            folder != root
        }
        (UpstreamProtocol::FastCgi, _) => false,
    }
}

fn upstream_rules(route: &config::Route) -> UpstreamRules {
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let of_server = |number: u64| count(number.saturating_mul(route.processes_of_server()));
    UpstreamRules {
        protocol: route.protocol,
        servers: servers(route),
        connections_max: of_server(route.connections_max),
        idle_max: of_server(route.idle_max),
        queue_max: count(route.queue_max),
        connect_ms: route.connect_timeout_ms,
        answer_ms: route.answer_timeout_ms,
    }
}

fn servers(route: &config::Route) -> Vec<ServerRules> {
    let name = |server: &config::ServerAddress| match (server, &route.program) {
        (config::ServerAddress::Program, Some(program)) => program.name(),
        _ => server.to_string(),
    };
    let weights = route.weights.iter().map(|weight| u32::try_from(*weight).unwrap_or(u32::MAX));
    let weights = weights.chain(std::iter::repeat(1));
    route
        .servers
        .iter()
        .zip(weights)
        .map(|(server, weight)| ServerRules {
            name: name(server),
            weight,
            is_unix: matches!(server, config::ServerAddress::Unix(_) | config::ServerAddress::Program),
            is_encrypted: matches!(server, config::ServerAddress::Tls(_)),
        })
        .collect()
}

/// The rules of a site, without those for paths and its routes.
fn site_rules(site: &config::Site) -> SiteRules {
    SiteRules {
        root: site.root.to_path_buf(),
        hosts: site.hosts.clone(),
        index: site.index.clone(),
        browse: site.browse,
        precompressed: site.precompressed,
        compress: site.compress,
        encoded_slash: match site.encoded_slash {
            config::EncodedSlash::Decode => flash_http::EncodedSlash::Decode,
            config::EncodedSlash::Refuse => flash_http::EncodedSlash::Refuse,
        },
        hsts: site.hsts.as_deref().map(Arc::from),
        https_redirect: None,
        paths: Arc::default(),
        routes: Vec::new(),
        alias_of: None,
    }
}

fn https_redirect(settings: &Settings, site: &config::Site) -> Option<HttpsRedirect> {
    let status = match site.https_redirect {
        config::HttpsRedirect::Off => return None,
        config::HttpsRedirect::Moved => Status::MOVED_PERMANENTLY,
        config::HttpsRedirect::Permanent => Status::PERMANENT_REDIRECT,
    };
    config::https_port(&settings.tls_listen).map(|port| HttpsRedirect { status, port })
}

pub(crate) fn types(settings: &Settings) -> TypeTable {
    let types = settings.types.iter().map(|(extension, kind)| (extension.clone(), kind.clone()));
    TypeTable::with_charset(types, settings.charset.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_fewer_connections_than_asked_for_a_client_has_at_most_half() {
        for (share, of, fit, expected) in [
            (4, 1000, 100, 4),
            (500, 1000, 100, 50),
            (900, 1000, 1000, 900),
            (1000, 1000, 100, 1000),
            (0, 1000, 100, 0),
            (1, 1000, 1, 1),
        ] {
            let settings =
                Settings { client_connections_max: share, connections_max: of, ..Settings::default() };
            assert_eq!(
                admission(&settings, fit).client_connections_max,
                expected,
                "{share} of {of}, {fit} fit"
            );
        }
    }

    #[test]
    fn each_route_has_its_upstream() {
        let route = |prefix: &str, ports: &[u16]| config::Route {
            protocol: UpstreamProtocol::FastCgi,
            servers: ports
                .iter()
                .map(|port| config::ServerAddress::Tcp(([127, 0, 0, 1], *port).into()))
                .collect(),
            tls: None,
            body_bytes_max: 1,
            files_first: true,
            compress: true,
            stream_bodies: false,
            stream_answers: true,
            connect_timeout_ms: 2,
            answer_timeout_ms: 3,
            connections_max: 4,
            idle_max: 5,
            queue_max: 6,
            paths: config::RoutePaths::Prefix(prefix.to_owned()),
            weights: vec![7],
            probe: None,
            program: None,
        };
        let cwd = std::env::temp_dir();
        let sources = config::Sources { cli: config::Overrides::default(), env: Vec::new(), cwd };
        let mut settings = sources.load().expect("the defaults");
        let without = connections_that_fit(&settings, 4096);
        settings.sites[0].routes = vec![route("/a", &[1]), route("/b", &[2, 3])];
        let second = config::Site { routes: vec![route("/c", &[4])], ..settings.sites[0].clone() };
        settings.sites.extend([config::Site { routes: Vec::new(), ..second.clone() }, second]);
        let rules = rules(&settings, 4096);
        let routes: Vec<_> = rules.sites.iter().flat_map(|site| &site.routes).collect();
        for (number, prefix) in (0..).zip(["/a", "/b", "/c"]) {
            let expected = Route {
                paths: RoutePaths::Prefix(prefix.into()),
                files_first: true,
                upstream: UpstreamId(number),
                has_own_files: false,
                body_bytes_max: 1,
                streams_bodies: false,
                compresses: true,
                streams_answers: true,
            };
            assert_eq!(*routes[usize::from(number)], expected);
        }
        let servers: Vec<_> = rules.upstreams.iter().map(|upstream| upstream.servers.len()).collect();
        assert_eq!(servers, [1, 2, 1]);
        let UpstreamRules { connections_max, idle_max, queue_max, connect_ms, answer_ms, .. } =
            rules.upstreams[1];
        assert_eq!((connect_ms, answer_ms, connections_max, idle_max, queue_max), (2, 3, 4, 5, 6));
        let server = |port, weight| ServerRules {
            name: format!("127.0.0.1:{port}"),
            weight,
            is_unix: false,
            is_encrypted: false,
        };
        assert_eq!(rules.upstreams[1].servers, [server(2, 7), server(3, 1)]);
        // Each of the two more sites has its root open.
        let roots = 2;
        assert_eq!(connections_that_fit(&settings, 4096), without - 4 * 4 - roots);
        settings.sites[0].routes[0].connections_max = 4096;
        assert_eq!(
            connections_that_fit(&settings, 4096),
            without - 4096 / 4 - roots,
            "never more than a part"
        );
    }
}
