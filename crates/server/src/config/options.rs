//! The table of the options of the server and its sites.
//!
//! Each row gives an option its key, bounds, default, help and field of the settings. The flag, the environment variable, the key in
//! the file, `flash check --print`, the man pages and the table in `docs/config.md` follow from the row. Called by the rest of
//! `config` and by the binary. It must not read anything, and has no rule about a value beyond its kind and bounds.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use flash_engine::LogFormat;
use flash_prompt::mechanism::MechanismKind;
use flash_prompt::net::InFlightCap;
use flash_worker::{HelperKind, SendBy};

use super::admission::Clients;
use super::choices::{
    Architecture, Choice, EncodedSlash, EtagTime, HttpsRedirect, ProxyField, SandboxMode, SchedulePolicy,
};
use super::file_path::FilePath;
use super::kind::{GIB, HOUR_MS, Kind, TextFormat, Unit, bounds, count, memory, millis, number};
use super::listen::{Listen, SocketMode};
use super::log_output::LogOutput;
use super::memory::CacheMemory;
use super::route_options::Route;
use super::rule_options::Rule;
use super::run_as::RunAs;
use super::schedule::Cutoffs;
use super::service::{ControlSocket, Service};
use super::table::{self, DefaultValue, Field, Show, Shown, Spec as Row, fields, held, one, put, rows, show};
use super::values::{Auto, ListItem, OFF, PathOrWord, UserName};

/// An option of the server or of its sites.
pub type Spec = Row<Overrides>;

/// Where an option is shown.
#[derive(Debug)]
pub struct HelpEntry {
    /// The heading in the help.
    pub group: Group,
    /// The name of the value in the help.
    pub value_name: &'static str,
}

const fn at(group: Group, value_name: &'static str) -> HelpEntry {
    HelpEntry { group, value_name }
}

/// The headings of the help, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// The served files.
    Files,
    /// The addresses.
    Network,
    /// The resources for serving.
    Resources,
    /// The architecture and disabled optimizations, for comparisons.
    Architecture,
    /// The schedule: which connection's bytes go first.
    Schedule,
    /// Sizes and times.
    Limits,
    /// The rights of the processes.
    Privileges,
    /// Logs and statistics.
    Logs,
}

impl Group {
    /// Whether only the long help shows it.
    #[must_use]
    pub fn is_rare(self) -> bool {
        matches!(self, Group::Architecture | Group::Schedule | Group::Limits)
    }

    /// The heading.
    #[must_use]
    pub fn heading(self) -> &'static str {
        match self {
            Group::Files => "Files",
            Group::Network => "Network",
            Group::Resources => "Processes and memory",
            Group::Architecture => "Architecture and optimizations",
            Group::Schedule => "Bandwidth",
            Group::Limits => "Limits and timeouts",
            Group::Privileges => "Privileges",
            Group::Logs => "Logs and statistics",
        }
    }
}

/// The field of the settings that an option reaches.
pub enum Target {
    /// A field of the server.
    Server(Field<Overrides, Settings>),
    /// A field of a site; at the top of the file, of the default site.
    Site(Field<Overrides, Site>),
    /// A field of a site. `config::resolve` sets that of the settings, which this function shows.
    Both(Show<Settings>, Field<Overrides, Site>),
    /// `config::resolve` sets it, and this function shows it.
    Other(Show<Settings>),
    /// No field.
    None,
}

macro_rules! target {
    ($key:ident: $type:ty, server.$field:ident $(as $held:ty)?) => {
        Target::Server(Field {
            put: |given, settings| put(given.$key.as_ref(), &mut settings.$field),
            show: |settings, kind| show::<$type>(&settings.$field, kind),
        })
    };
    ($key:ident: $type:ty, site.$field:ident $(as $held:ty)?) => {
        Target::Site(Field {
            put: |given, site| put(given.$key.as_ref(), &mut site.$field),
            show: |site, kind| show::<$type>(&site.$field, kind),
        })
    };
    ($key:ident: $type:ty, both $show:ident site.$field:ident) => {
        Target::Both(
            $show,
            Field {
                put: |given, site| put(given.$key.as_ref(), &mut site.$field),
                show: |site, kind| show::<$type>(&site.$field, kind),
            },
        )
    };
    ($key:ident: $type:ty, by $show:ident) => {
        Target::Other($show)
    };
    ($key:ident: $type:ty,) => {
        Target::None
    };
}

impl Spec {
    /// The flag without its dashes: `cache-memory`. The option `root` has none: it is the operand.
    #[must_use]
    pub fn flag(&self) -> String {
        self.key.replace('_', "-")
    }

    /// The environment variable: `FLASH_CACHE_MEMORY`.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("FLASH_{}", self.key.to_ascii_uppercase())
    }

    /// Whether it is the operand of the command line, without a flag.
    #[must_use]
    pub fn is_operand(&self) -> bool {
        self.key == "root"
    }

    /// Whether the config file may contain it: every option except the name of that file.
    #[must_use]
    pub fn is_in_file(&self) -> bool {
        self.key != "config"
    }

    /// Whether a `[[site]]` may set it.
    #[must_use]
    pub fn is_of_site(&self) -> bool {
        self.of_site().is_some()
    }

    /// The field of a site.
    pub(super) fn of_site(&self) -> Option<&Field<Overrides, Site>> {
        match &self.target {
            Target::Site(field) | Target::Both(_, field) => Some(field),
            Target::Server(_) | Target::Other(_) | Target::None => None,
        }
    }

    /// The texts of the option in these settings.
    pub(super) fn show(&self, settings: &Settings) -> Shown {
        match &self.target {
            Target::Server(field) => (field.show)(settings, self.kind),
            Target::Site(field) => {
                let by_default = settings.sites.first().filter(|site| site.hosts.is_empty());
                by_default.map_or(Ok(None), |site| (field.show)(site, self.kind))
            }
            Target::Both(show, _) | Target::Other(show) => show(settings, self.kind),
            Target::None => Ok(None),
        }
    }
}

/// The option with this key.
#[must_use]
pub fn find(key: &str) -> Option<&'static Spec> {
    table::find(key)
}

use DefaultValue::{Depends, Text};

rows! {
    /// The options of the server and of its sites.
    Overrides, HelpEntry, Target, OPTIONS,
    {

    root: PathBuf, at(Group::Files, "DIR"), Kind::Path, Depends("the current directory"), [site.root as FilePath],
        "Directory to serve";
    config: PathBuf, at(Group::Files, "FILE"), Kind::Path, DefaultValue::None, [],
        "Read settings from this TOML file";
    index: Vec<String>, at(Group::Files, "NAME"), Kind::Texts(TextFormat::FileName), Text("index.html"), [site.index],
        "File to serve for a directory; repeat to try several in order";
    browse: bool, at(Group::Files, "BOOL"), Kind::Switch, Text("false"), [site.browse],
        "List directories that have no index file";
    precompressed: bool, at(Group::Files, "BOOL"), Kind::Switch, Text("true"), [site.precompressed],
        "Serve FILE.br, FILE.zst or FILE.gz instead of FILE to clients that accept it";
    compress: bool, at(Group::Files, "BOOL"), Kind::Switch, Text("false"), [site.compress],
        "Compress texts from their second request on, and keep the result in the store, for clients that accept br, zstd or gzip";
    encoded_slash: EncodedSlash, at(Group::Files, "HOW"), Kind::OneOf(EncodedSlash::WORDS), Text("decode"), [site.encoded_slash],
        "Handle %2F in a path: decode it to a slash, or refuse the request with 400";
    charset: String, at(Group::Files, "NAME"), Kind::Text(TextFormat::Charset), Text("utf-8"), [server.charset as Option<String>],
        "Add this character set to the Content-Type of texts; off adds none";
    etag: EtagTime, at(Group::Files, "HOW"), Kind::OneOf(EtagTime::WORDS), Text("modified"), [server.etag],
        "Build ETags from length and mtime (modified), or from these and ctime (changed)";
    freshness: u64, at(Group::Files, "TIME"), millis(0, HOUR_MS), Text("1s"), [server.freshness_ms],
        "Serve a cached file for this long before checking whether it changed";
    watch: bool, at(Group::Files, "BOOL"), Kind::Switch, Text("true"), [server.watch],
        "Watch the roots for changes, so that names need no checks where the file system tells what changes";
    stale: u64, at(Group::Files, "TIME"), millis(0, 24 * HOUR_MS), Text("10s"), [server.stale_ms],
        "Serve an expired file for this much longer while its check waits for the disk";
    listen: Vec<Listen>, at(Group::Network, "ADDRESS"), Kind::Addresses, Text("127.0.0.1:8080"), [server.listen],
        "Listen on this ADDR:PORT, unix:PATH or systemd:NAME; repeat for several; port 0 takes any free port";
    listen_tls: Vec<Listen>, at(Group::Network, "ADDRESS"), Kind::Addresses, Depends("none"), [by tls_listen],
        "Listen on this address for HTTPS; repeat for several";
    listen_mode: SocketMode, at(Group::Network, "MODE"), Kind::Permissions, Text("0660"), [server.listen_mode],
        "Permissions of the Unix sockets of listen and listen_tls, which belong to user; who can write can connect";
    certificate: Vec<PathBuf>, at(Group::Network, "FILE"), Kind::Paths, Depends("none"), [site.certificates as Vec<FilePath>],
        "Certificate for HTTPS in PEM form, with those of its issuers; repeat for one with another kind of key";
    certificate_key: Vec<PathBuf>, at(Group::Network, "FILE"), Kind::Paths, Depends("none"), [site.certificate_keys as Vec<FilePath>],
        "Private key of the certificate in PEM form, readable only by its owner; repeat in the same order";
    ocsp: Vec<PathBuf>, at(Group::Network, "FILE"), Kind::Paths, Depends("none"), [site.ocsp as Vec<FilePath>],
        "Answer of the issuer that the certificate is not revoked (OCSP, in DER form), sent along with it";
    hsts: String, at(Group::Network, "VALUE"), Kind::Text(TextFormat::Hsts), Text("off"), [site.hsts as Option<String>],
        "Send this Strict-Transport-Security in answers over HTTPS, such as \"max-age=31536000\"; off sends none";
    https_redirect: HttpsRedirect, at(Group::Network, "STATUS"), Kind::OneOf(HttpsRedirect::WORDS), Text("off"), [site.https_redirect],
        "Redirect requests over plain HTTP to HTTPS with 301 or 308, except those for files of ACME; off answers them";
    connections: u64, at(Group::Network, "N"), count(1, 1_000_000), Text("16384"), [server.connections_max as usize],
        "Maximum connections per worker";
    client_connections: u64, at(Group::Network, "N"), count(0, 1_000_000), Depends("1/2 of `connections`"), [server.client_connections_max as usize],
        "Maximum connections per worker of one client address (IPv6: of one /64 network); 0 disables";
    client_exempt: Vec<Clients>, at(Group::Network, "NETWORK"), Kind::Networks, Text("loopback"), [server.client_exempt],
        "These clients, such as your proxies, have no share of connections, routes and the spool; repeat for several";
    trusted_proxies: Vec<Clients>, at(Group::Network, "NETWORK"), Kind::Networks, Depends("none"), [server.trusted_proxies],
        "Take the client's address and scheme from the requests of these proxies; repeat for several";
    proxy_field: ProxyField, at(Group::Network, "FIELD"), Kind::OneOf(ProxyField::WORDS), Text("x-forwarded-for"), [server.proxy_field],
        "Field in which trusted proxies name the client; x-forwarded-for also takes the scheme from X-Forwarded-Proto";
    proxy_protocol: Vec<Clients>, at(Group::Network, "NETWORK"), Kind::Networks, Depends("none"), [server.proxy_protocol],
        "Expect connections of these proxies to begin with the PROXY protocol, version 1 or 2; repeat for several";
    accept_wait: u64, at(Group::Network, "TIME"), millis(0, HOUR_MS), Text("1s"), [server.accept_wait_ms],
        "Refuse new connections (503) while the worker has not caught up with them for this long; 0s disables";
    http2: bool, at(Group::Network, "BOOL"), Kind::Switch, Text("true"), [server.http2],
        "Also speak HTTP/2 with clients that begin with it";
    server_field: bool, at(Group::Network, "BOOL"), Kind::Switch, Text("true"), [server.server_field],
        "Name the program in the field Server of all answers";
    workers: u64, at(Group::Resources, "N"), count(1, 256), Depends("one per usable core; 1 with mt"), [server.workers as usize],
        "Number of worker processes";
    helpers_max: u64, at(Group::Resources, "N"), count(1, 256), Text("16"), [server.helpers_max as usize],
        "Maximum helpers per worker; helpers do the work that may wait for the disk";
    helper_idle: u64, at(Group::Resources, "TIME"), millis(1, 24 * HOUR_MS), Text("10s"), [server.helper_idle_ms],
        "End a helper process after this time without work";
    cache_memory: Auto<u64>, at(Group::Resources, "SIZE"), Kind::AutoNumber(bounds(Unit::MemoryBytes, 0, 1024 * GIB)), Text("auto"), [by asked_memory],
        "Size of the store, the cache of file contents that all workers share; auto is 1/2 of the machine's memory or 7/8 of the cgroup's; 0 disables";
    cache_list: PathOrWord, at(Group::Resources, "FILE"), Kind::PathOr(OFF), Text("off"), [server.cache_list as Option<FilePath>],
        "Save the list of hot files here on shutdown, and load these files on startup; off disables";
    spool: PathOrWord, at(Group::Resources, "DIR"), Kind::PathOr(OFF), Text("/var/tmp"), [server.spool_folder as Option<FilePath>],
        "Directory for request bodies and answers that wait, longer than memory should hold; off disables";
    spool_max: u64, at(Group::Resources, "SIZE"), memory(0, 1024 * GIB), Text("1GiB"), [server.spool_bytes_max],
        "Maximum size of these files, of all workers together";
    architecture: Architecture, at(Group::Architecture, "NAME"), Kind::OneOf(Architecture::WORDS), Text("amped"), [server.architecture],
        "Who waits for the disk: helpers (amped), the event loop (sped), one process per connection (mp) or one thread per connection (mt)";
    processes: u64, at(Group::Architecture, "N"), count(1, 1024), Text("32"), [server.processes as usize],
        "Number of worker processes with mp; each serves one connection at a time";
    threads: u64, at(Group::Architecture, "N"), count(1, 1024), Text("64"), [server.threads as usize],
        "Threads per worker with mt; each serves one connection at a time";
    event_mechanism: MechanismKind, at(Group::Architecture, "NAME"), Kind::OneOf(MechanismKind::WORDS), Text("epoll"), [server.event_mechanism],
        "System call that waits for events with amped and sped: epoll, poll, or select (at most 1024 descriptors)";
    helpers: HelperKind, at(Group::Architecture, "KIND"), Kind::OneOf(HelperKind::WORDS), Text("processes"), [server.helpers],
        "With amped, start helper processes on demand, or helper threads at startup";
    name_cache: bool, at(Group::Architecture, "BOOL"), Kind::Switch, Text("true"), [server.name_cache],
        "Cache the file that each path leads to";
    head_cache: bool, at(Group::Architecture, "BOOL"), Kind::Switch, Text("true"), [server.head_cache],
        "Cache response heads";
    content_cache: bool, at(Group::Architecture, "BOOL"), Kind::Switch, Text("true"), [by content_cache],
        "Cache file contents in the store; off is the same as a cache-memory of 0";
    send: SendBy, at(Group::Architecture, "HOW"), Kind::OneOf(SendBy::WORDS), Text("read"), [server.send],
        "Send files that are not in the store with read (into a buffer), sendfile or mmap";
    align_heads: bool, at(Group::Architecture, "BOOL"), Kind::Switch, Text("false"), [server.align_heads],
        "Pad response heads to a multiple of 32 bytes";
    open_in_loop: bool, at(Group::Architecture, "BOOL"), Kind::Switch, Text("false"), [server.open_in_loop],
        "For experiments: look up files in the event loop, which blocks all its clients";
    residency_check: bool, at(Group::Architecture, "BOOL"), Kind::Switch, Text("true"), [server.residency_check],
        "Check that a part of a file is in memory before the event loop reads or sends it; turn off for experiments only";
    schedule: SchedulePolicy, at(Group::Schedule, "POLICY"), Kind::OneOf(SchedulePolicy::WORDS), Text("fair"), [server.schedule],
        "Share the link among all connections (fair), or give each connection a priority by the bytes that its response has left (srpt)";
    srpt_cutoffs: Cutoffs, at(Group::Schedule, "SIZE"), Kind::Numbers(bounds(Unit::Bytes, 1, 1024 * GIB)), Depends("learned from the answers"), [server.srpt_cutoffs as Vec<u64>],
        "With srpt, bytes left that separate the priorities, ascending; repeat for up to 4";
    srpt_dscp: bool, at(Group::Schedule, "BOOL"), Kind::Switch, Text("false"), [server.srpt_dscp],
        "With srpt, also mark packets with a code point (DSCP), for queues behind this machine";
    cwnd_cap: u64, at(Group::Schedule, "SIZE"), number(Unit::Bytes, 0, InFlightCap::BYTES_MAX as u64), Text("0"), [server.cwnd_cap_bytes],
        "Maximum bytes that one connection has in flight to its client; 0 lets the kernel decide";
    connection_rate: u64, at(Group::Schedule, "RATE"), number(Unit::BitsPerS, 0, 1_000_000_000_000), Text("0"), [server.connection_bits_per_s],
        "Send no faster than this to each connection; 0 lets the kernel decide";
    egress: u64, at(Group::Schedule, "RATE"), number(Unit::BitsPerS, 0, 1_000_000_000_000), Text("0"), [server.egress_bits_per_s],
        "Send no faster than this uplink, the responses with the fewest bytes left first; 0 lets the kernel decide";
    head_timeout: u64, at(Group::Limits, "TIME"), millis(1, HOUR_MS), Text("10s"), [server.head_timeout_ms],
        "Close a connection that takes longer than this to send a request head";
    idle_timeout: u64, at(Group::Limits, "TIME"), millis(1, 24 * HOUR_MS), Text("60s"), [server.idle_timeout_ms],
        "Close a connection after this time without a request";
    least_rate: u64, at(Group::Limits, "SIZE"), number(Unit::Bytes, 0, GIB), Text("1KiB"), [server.least_rate_bytes_per_s],
        "Close a connection whose client reads less than this per second, over 30 s; 0 disables";
    body_least_rate: u64, at(Group::Limits, "SIZE"), number(Unit::Bytes, 0, GIB), Text("500B"), [server.body_least_rate_bytes_per_s],
        "Answer 408 when a request body for a route comes more slowly than this per second; 0 disables";
    body_timeout: u64, at(Group::Limits, "TIME"), millis(0, 24 * HOUR_MS), Text("2h"), [server.body_timeout_ms],
        "Answer 408 when a request body for a route takes longer than this; 0s disables";
    job_deadline: u64, at(Group::Limits, "TIME"), millis(1, HOUR_MS), Text("30s"), [server.job_deadline_ms],
        "Answer 503 when a helper takes longer than this";
    queue_wait: u64, at(Group::Limits, "TIME"), millis(0, HOUR_MS), Text("5s"), [server.queue_wait_ms],
        "Refuse a request (503) that would wait longer than this for a helper; 0s disables";
    shutdown_timeout: u64, at(Group::Limits, "TIME"), millis(0, HOUR_MS), Text("30s"), [server.shutdown_timeout_ms],
        "Close the remaining connections this long after a stop signal";
    reload_timeout: u64, at(Group::Limits, "TIME"), millis(0, 24 * HOUR_MS), Text("0s"), [server.reload_timeout_ms],
        "Close the remaining connections of the old configuration this long after a reload; 0s disables";
    listing_entries: u64, at(Group::Limits, "N"), count(1, 1_000_000), Text("10000"), [server.listing_entries_max as usize],
        "Maximum entries in a directory listing";
    user: UserName, at(Group::Privileges, "USER[:GROUP]"), Kind::User, Depends("nobody when started by root, else the current user"), [by run_as],
        "Run workers and helpers as this user";
    cap_fowner: Auto<bool>, at(Group::Privileges, "HOW"), Kind::AutoSwitch, Text("auto"), [by cap_fowner],
        "Keep CAP_FOWNER, which lets workers check whether other users' files are in memory; auto keeps it only under seccomp";
    sandbox: SandboxMode, at(Group::Privileges, "MODE"), Kind::OneOf(SandboxMode::WORDS), Text("auto"), [server.sandbox],
        "Use Landlock and seccomp: auto (if the kernel supports them), required or off";
    log_format: LogFormat, at(Group::Logs, "FORMAT"), Kind::OneOf(LogFormat::WORDS), Depends("combined with a log file, else off"), [server.log_format],
        "Format of the access log: combined, combined_host, json, template or off";
    log_template: String, at(Group::Logs, "TEXT"), Kind::Text(TextFormat::LogTemplate), Text("off"), [server.log_template as Option<String>],
        "Form of the lines, with fields such as {client}, {status} and {first_ms}";
    log_file: PathOrWord, at(Group::Logs, "FILE"), Kind::PathOr("-"), Depends("standard output"), [both log_file site.log_output],
        "Write the access log to this file or syslog socket, or to standard output for -";
    log_sample: u64, at(Group::Logs, "N"), count(1, 1_000_000), Text("1"), [server.log_sample],
        "Write one in N lines of answers that are whole and no errors; all others are always written";
    log_rotate_size: u64, at(Group::Logs, "SIZE"), number(Unit::Bytes, 0, 1024 * GIB), Text("0"), [server.log_rotate_bytes],
        "Rename the log file and begin another one when it is this large; 0 disables";
    log_rotate_age: u64, at(Group::Logs, "TIME"), millis(0, 366 * 24 * HOUR_MS), Text("0s"), [server.log_rotate_ms],
        "The same when a period of this length ends, counted from 1970 in UTC: 1d is midnight; 0s disables";
    log_rotate_keep: u64, at(Group::Logs, "N"), count(1, 1_000), Text("7"), [server.log_rotate_keep as usize],
        "Keep this many renamed log files: FILE.1 is the last one";
    control: PathOrWord, at(Group::Logs, "PATH"), Kind::PathOr("none"), Depends("PID.sock in /run/flash for root, else in $XDG_RUNTIME_DIR/flash or /tmp/flash-UID"), [server.control as ControlSocket],
        "Create the control socket for `flash stats` here; none disables";
    admin: Vec<SocketAddr>, at(Group::Logs, "ADDR:PORT"), Kind::Addresses, Depends("none"), [by admin],
        "Answer /metrics, /health and /ready here, to everybody who can connect; repeat for several";
    }
    server: {
        /// All settings, resolved. [`Settings::default`] is only the start from which `config::resolve` fills them.
        #[derive(Default)]
        Settings {
            /// Numbers that this control group is too small for, as warnings.
            pub lowered: Vec<String>,
            /// Memory for file contents, shared by all workers.
            pub cache_memory: CacheMemory,
            /// Whether workers and helpers keep `CAP_FOWNER`.
            pub cap_fowner: bool,
            /// The user of workers and helpers; `None` for the current user.
            pub run_as: Option<RunAs>,
            /// The access log of requests without a site, and of sites without their own.
            pub log_output: LogOutput,
            /// Addresses to listen on for TLS.
            pub tls_listen: Vec<Listen>,
            /// Whether no source named `listen`: sockets of systemd take its place.
            pub listens_by_default: bool,
            /// Addresses of the pages for operators and their programs.
            pub admin: Vec<SocketAddr>,
            /// Content types by file extension, in lower case and without a dot, or by a slash and a whole name, in addition to the built-in table.
            pub types: BTreeMap<String, String>,
            /// The work of the server.
            pub service: Service,
            /// The sites, at least one when serving files. If `hosts` of the first is empty, it answers every host that no other
            /// site names; otherwise such hosts have no site.
            pub sites: Vec<Site>,
        }
    }
    site: {
        /// A directory tree, and the hosts that it answers.
        #[derive(Default)]
        Site {
            /// Host names, in lower case and without a port; `*.example.org` matches every name that ends in `.example.org`.
            /// Empty only for the default site, which is the first.
            pub hosts: Vec<String>,
            /// The requests that other servers answer; the first route that fits applies.
            pub routes: Vec<Route>,
            /// The rules for its paths, in their order.
            pub rules: Vec<Rule>,
            /// The access log of its requests.
            pub log_output: LogOutput,
        }
    }
}

fn asked_memory(settings: &Settings, kind: Kind) -> Shown {
    show::<Auto<u64>>(&settings.cache_memory.asked(), kind)
}

/// A store of size 0 is off.
fn content_cache(_: &Settings, _: Kind) -> Shown {
    one("true")
}

fn run_as(settings: &Settings, kind: Kind) -> Shown {
    settings.run_as.as_ref().map_or(Ok(None), |run_as| show::<UserName>(&run_as.setting(), kind))
}

fn log_file(settings: &Settings, kind: Kind) -> Shown {
    match (settings.log_format, &settings.log_output) {
        (LogFormat::Off, LogOutput::Off) => Ok(None),
        (_, output) => show::<PathOrWord>(output, kind),
    }
}

fn tls_listen(settings: &Settings, kind: Kind) -> Shown {
    addresses(&settings.tls_listen, kind)
}

fn admin(settings: &Settings, kind: Kind) -> Shown {
    addresses(&settings.admin, kind)
}

/// None are shown as a setting that is not given.
fn addresses<A: ListItem>(addresses: &Vec<A>, kind: Kind) -> Shown {
    if addresses.is_empty() { Ok(None) } else { show::<Vec<A>>(addresses, kind) }
}

fn cap_fowner(settings: &Settings, _: Kind) -> Shown {
    one(settings.cap_fowner.to_string())
}

impl Overrides {
    /// The defaults of the table.
    #[must_use]
    pub fn defaults() -> Overrides {
        table::defaults()
    }

    pub(super) fn put(&self, settings: &mut Settings) {
        for spec in OPTIONS {
            if let Target::Server(field) = &spec.target {
                (field.put)(self, settings);
            }
        }
    }

    pub(super) fn put_in_site(&self, site: &mut Site) {
        for spec in OPTIONS {
            if let Some(field) = spec.of_site() {
                (field.put)(self, site);
            }
        }
    }
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
