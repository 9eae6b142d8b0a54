//! The table of all options.
//!
//! Each row gives an option its key, bounds, default and help. The flag and the environment variable follow from the key. The
//! command line, the environment, the file and the defaults all fill the same [`Overrides`], and a test compares
//! `docs/config.md` with the table. Called by the rest of `config` and by the binary. It must not read anything, and has no
//! rule about a value beyond its kind and bounds (`config::values` applies those).

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use flash_prompt::net::InFlightCap;

use super::admission::Clients;
use super::choices::{
    Architecture, Choice, EncodedSlash, EtagTime, EventMechanism, HelperKind, LogFormat, SandboxMode,
    SchedulePolicy, SendBy,
};
use super::schedule::Cutoffs;
use super::values::{AutoSize, AutoSwitch, FromItems, Kind, PathOrOff, Refusal, UserName};

/// One option.
#[derive(Debug)]
pub struct Spec {
    /// The key in the file, which also determines the flag and the variable.
    pub key: &'static str,
    /// The heading in the help.
    pub group: Group,
    /// The kind of the value, with bounds.
    pub kind: Kind,
    /// The name of the value in the help.
    pub value_name: &'static str,
    /// The default.
    pub default: DefaultValue,
    /// The help text, one sentence.
    pub help: &'static str,
    store: Store,
}

/// Parses the values and stores them in their field.
type Store = fn(&mut Overrides, &[&OsStr], Kind, Origin) -> Result<(), Vec<Refusal>>;

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

/// The value without any source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultValue {
    /// A value, written as in the environment.
    Text(&'static str),
    /// A value that depends on something else, as this text says.
    Depends(&'static str),
    /// No value.
    None,
}

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The command line.
    Flag,
    /// The environment.
    Environment,
    /// The config file, at these bytes.
    File(Range<usize>),
    /// No source: the default.
    Default,
}

/// A value and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given<T> {
    /// The value.
    pub value: T,
    /// Its source.
    pub origin: Origin,
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
        matches!(self.key, "root" | "index" | "browse" | "precompressed" | "encoded_slash")
    }

    /// Parses all values that a source gave, and stores them in `into`.
    ///
    /// # Errors
    ///
    /// Gives the reason for each wrong value; nothing is stored then.
    pub fn set(&self, into: &mut Overrides, items: &[&OsStr], origin: Origin) -> Result<(), Vec<Refusal>> {
        (self.store)(into, items, self.kind, origin)
    }
}

/// The option with this key.
#[must_use]
pub fn find(key: &str) -> Option<&'static Spec> {
    OPTIONS.iter().find(|spec| spec.key == key)
}

/// Makes [`Overrides`] and [`OPTIONS`] from the rows.
macro_rules! options {
    ($($key:ident: $type:ty, $group:ident, $kind:expr, $value_name:literal, $default:expr, $help:literal;)*) => {
        /// The options of one source, or of several merged: one field per option.
        #[derive(Clone, Debug, PartialEq, Eq, Default)]
        pub struct Overrides {
            $(#[doc = $help] pub $key: Option<Given<$type>>,)*
        }

        /// Every option, in the order of the help.
        pub static OPTIONS: &[Spec] = &[$(Spec {
            key: stringify!($key),
            group: Group::$group,
            kind: $kind,
            value_name: $value_name,
            default: $default,
            help: $help,
            store: |overrides, items, kind, origin| {
                let value = <$type as FromItems>::from_items(items, kind)?;
                overrides.$key = Some(Given { value, origin });
                Ok(())
            },
        },)*];

        impl Overrides {
            /// These options, completed by those of the weaker source `below`.
            #[must_use]
            pub fn or(self, below: Overrides) -> Overrides {
                Overrides { $($key: self.$key.or(below.$key),)* }
            }
        }
    };
}

const fn count(least: u64, most: u64) -> Kind {
    Kind::Count { least, most }
}

const fn millis(least_ms: u64, most_ms: u64) -> Kind {
    Kind::Duration { least_ms, most_ms }
}

const fn size(least_bytes: u64, most_bytes: u64) -> Kind {
    Kind::Size { least_bytes, most_bytes }
}

const HOUR_MS: u64 = 3_600_000;
const GIB: u64 = 1 << 30;

use DefaultValue::{Depends, Text};
use Kind::{Addresses, FileNames, Networks, Path as PathKind, Switch};

// A row: key: type, heading, kind with bounds, name of the value, default, help.
options! {
    root: PathBuf, Files, PathKind, "DIR", Depends("the current directory"),
        "Directory to serve";
    config: PathBuf, Files, PathKind, "FILE", DefaultValue::None,
        "Read settings from this TOML file";
    index: Vec<String>, Files, FileNames, "NAME", Text("index.html"),
        "File to serve for a directory; repeat to try several in order";
    browse: bool, Files, Switch, "BOOL", Text("false"),
        "List directories that have no index file";
    precompressed: bool, Files, Switch, "BOOL", Text("true"),
        "Serve FILE.br, FILE.zst or FILE.gz instead of FILE to clients that accept it";
    encoded_slash: EncodedSlash, Files, Kind::OneOf(EncodedSlash::WORDS), "HOW", Text("decode"),
        "Handle %2F in a path: decode it to a slash, or refuse the request with 400";
    etag: EtagTime, Files, Kind::OneOf(EtagTime::WORDS), "HOW", Text("modified"),
        "Build ETags from length and mtime (modified), or from these and ctime (changed)";
    freshness: u64, Files, millis(0, HOUR_MS), "TIME", Text("1s"),
        "Serve a cached file for this long before checking whether it changed";
    stale: u64, Files, millis(0, 24 * HOUR_MS), "TIME", Text("10s"),
        "Serve an expired file for this much longer while its check waits for the disk";
    listen: Vec<SocketAddr>, Network, Addresses, "ADDR:PORT", Text("127.0.0.1:8080"),
        "Listen on this address; repeat for several; port 0 takes any free port";
    connections: u64, Network, count(1, 1_000_000), "N", Text("16384"),
        "Maximum connections per worker";
    client_connections: u64, Network, count(0, 1_000_000), "N", Depends("1/2 of `connections`"),
        "Maximum connections per worker of one client address (IPv6: of one /64 network); 0 disables";
    client_exempt: Vec<Clients>, Network, Networks, "NETWORK", Text("loopback"),
        "These clients, such as your proxies, have no share of connections, routes and the spool; repeat for several";
    accept_wait: u64, Network, millis(0, HOUR_MS), "TIME", Text("1s"),
        "Refuse new connections (503) while the worker has not caught up with them for this long; 0s disables";
    workers: u64, Resources, count(1, 256), "N", Depends("one per usable core; 1 with mt"),
        "Number of worker processes";
    helpers_max: u64, Resources, count(1, 256), "N", Text("16"),
        "Maximum helpers per worker; helpers do the work that may wait for the disk";
    helper_idle: u64, Resources, millis(1, 24 * HOUR_MS), "TIME", Text("10s"),
        "End a helper process after this time without work";
    cache_memory: AutoSize, Resources, Kind::AutoSize { least_bytes: 0, most_bytes: 1024 * GIB }, "SIZE", Text("auto"),
        "Size of the store, the cache of file contents that all workers share; auto is 1/2 of the machine's memory or 3/4 of the cgroup's; 0 disables";
    cache_list: PathOrOff, Resources, PathKind, "FILE", Text("off"),
        "Save the list of hot files here on shutdown, and load these files on startup; off disables";
    spool: PathOrOff, Resources, PathKind, "DIR", Text("/var/tmp"),
        "Directory for request bodies and answers that wait, longer than memory should hold; off disables";
    spool_max: u64, Resources, Kind::MemorySize { least_bytes: 0, most_bytes: 1024 * GIB }, "SIZE", Text("1GiB"),
        "Maximum size of these files, of all workers together";
    architecture: Architecture, Architecture, Kind::OneOf(Architecture::WORDS), "NAME", Text("amped"),
        "Who waits for the disk: helpers (amped), the event loop (sped), one process per connection (mp) or one thread per connection (mt)";
    processes: u64, Architecture, count(1, 1024), "N", Text("32"),
        "Number of worker processes with mp; each serves one connection at a time";
    threads: u64, Architecture, count(1, 1024), "N", Text("64"),
        "Threads per worker with mt; each serves one connection at a time";
    event_mechanism: EventMechanism, Architecture, Kind::OneOf(EventMechanism::WORDS), "NAME", Text("epoll"),
        "System call that waits for events with amped and sped: epoll, poll, or select (at most 1024 descriptors)";
    helpers: HelperKind, Architecture, Kind::OneOf(HelperKind::WORDS), "KIND", Text("processes"),
        "With amped, start helper processes on demand, or helper threads at startup";
    name_cache: bool, Architecture, Switch, "BOOL", Text("true"),
        "Cache the file that each path leads to";
    head_cache: bool, Architecture, Switch, "BOOL", Text("true"),
        "Cache response heads";
    content_cache: bool, Architecture, Switch, "BOOL", Text("true"),
        "Cache file contents in the store; off is the same as a cache-memory of 0";
    send: SendBy, Architecture, Kind::OneOf(SendBy::WORDS), "HOW", Text("read"),
        "Send files that are not in the store with read (into a buffer), sendfile or mmap";
    align_heads: bool, Architecture, Switch, "BOOL", Text("false"),
        "Pad response heads to a multiple of 32 bytes";
    open_in_loop: bool, Architecture, Switch, "BOOL", Text("false"),
        "For experiments: look up files in the event loop, which blocks all its clients";
    residency_check: bool, Architecture, Switch, "BOOL", Text("true"),
        "Check that a part of a file is in memory before the event loop reads or sends it; turn off for experiments only";
    schedule: SchedulePolicy, Schedule, Kind::OneOf(SchedulePolicy::WORDS), "POLICY", Text("fair"),
        "Share the link among all connections (fair), or give each connection a priority by the bytes that its response has left (srpt)";
    srpt_cutoffs: Cutoffs, Schedule, Kind::Sizes { least_bytes: 1, most_bytes: 1024 * GIB }, "SIZE", Depends("learned from the answers"),
        "With srpt, bytes left that separate the priorities, ascending; repeat for up to 4";
    srpt_dscp: bool, Schedule, Switch, "BOOL", Text("false"),
        "With srpt, also mark packets with a code point (DSCP), for queues behind this machine";
    cwnd_cap: u64, Schedule, size(0, InFlightCap::BYTES_MAX as u64), "SIZE", Text("0"),
        "Maximum bytes that one connection has in flight to its client; 0 lets the kernel decide";
    egress: u64, Schedule, Kind::Rate { least_bits_per_s: 0, most_bits_per_s: 1_000_000_000_000 }, "RATE", Text("0"),
        "Send no faster than this uplink, the responses with the fewest bytes left first; 0 lets the kernel decide";
    head_timeout: u64, Limits, millis(1, HOUR_MS), "TIME", Text("10s"),
        "Close a connection that takes longer than this to send a request head";
    idle_timeout: u64, Limits, millis(1, 24 * HOUR_MS), "TIME", Text("60s"),
        "Close a connection after this time without a request";
    least_rate: u64, Limits, size(0, GIB), "SIZE", Text("1KiB"),
        "Close a connection whose client reads less than this per second; 0 disables";
    body_least_rate: u64, Limits, size(0, GIB), "SIZE", Text("500B"),
        "Answer 408 when a request body for a route comes more slowly than this per second; 0 disables";
    body_timeout: u64, Limits, millis(0, 24 * HOUR_MS), "TIME", Text("2h"),
        "Answer 408 when a request body for a route takes longer than this; 0s disables";
    job_deadline: u64, Limits, millis(1, HOUR_MS), "TIME", Text("30s"),
        "Answer 503 when a helper takes longer than this";
    queue_wait: u64, Limits, millis(0, HOUR_MS), "TIME", Text("5s"),
        "Refuse a request (503) that would wait longer than this for a helper; 0s disables";
    shutdown_timeout: u64, Limits, millis(0, HOUR_MS), "TIME", Text("30s"),
        "Close the remaining connections this long after a stop signal";
    reload_timeout: u64, Limits, millis(0, 24 * HOUR_MS), "TIME", Text("0s"),
        "Close the remaining connections of the old configuration this long after a reload; 0s disables";
    listing_entries: u64, Limits, count(1, 1_000_000), "N", Text("10000"),
        "Maximum entries in a directory listing";
    user: UserName, Privileges, Kind::User, "USER[:GROUP]", Depends("nobody when started by root, else the current user"),
        "Run workers and helpers as this user";
    cap_fowner: AutoSwitch, Privileges, Kind::AutoSwitch, "HOW", Text("auto"),
        "Keep CAP_FOWNER, which lets workers check whether other users' files are in memory; auto keeps it only under seccomp";
    sandbox: SandboxMode, Privileges, Kind::OneOf(SandboxMode::WORDS), "MODE", Text("auto"),
        "Use Landlock and seccomp: auto (if the kernel supports them), required or off";
    log_format: LogFormat, Logs, Kind::OneOf(LogFormat::WORDS), "FORMAT", Depends("combined with a log file, else off"),
        "Format of the access log: combined, combined_host, json or off";
    log_file: PathBuf, Logs, PathKind, "FILE", Depends("standard output"),
        "Write the access log to this file, or to standard output for -";
    control: PathBuf, Logs, PathKind, "PATH",
        Depends("PID.sock in /run/flash for root, else in $XDG_RUNTIME_DIR/flash or /tmp/flash-UID"),
        "Create the control socket for `flash stats` here; none disables";
}

impl Overrides {
    /// The defaults of the table.
    #[must_use]
    pub fn defaults() -> Overrides {
        let mut defaults = Overrides::default();
        for spec in OPTIONS {
            if let DefaultValue::Text(text) = spec.default {
                let set = spec.set(&mut defaults, &[OsStr::new(text)], Origin::Default);
                debug_assert_eq!(set, Ok(()), "the default of {}", spec.key);
            }
        }
        defaults
    }

    /// Makes relative paths absolute, from `folder`, which must be absolute.
    pub(super) fn rebase(&mut self, folder: &Path) {
        for given in [&mut self.root, &mut self.config].into_iter().flatten() {
            given.value = absolute(folder, &given.value);
        }
        if let Some(given) = self.log_file.as_mut().filter(|given| given.value != Path::new(STANDARD_OUTPUT))
        {
            given.value = absolute(folder, &given.value);
        }
        for given in [&mut self.cache_list, &mut self.spool] {
            if let Some(Given { value: PathOrOff::At(path), .. }) = given {
                *path = absolute(folder, path);
            }
        }
        if let Some(given) = self.control.as_mut().filter(|given| given.value != Path::new(NO_SOCKET)) {
            given.value = absolute(folder, &given.value);
        }
    }
}

/// The name of the log file for standard output.
pub(super) const STANDARD_OUTPUT: &str = "-";
/// The path of the control socket that turns it off.
pub(super) const NO_SOCKET: &str = "none";

/// `path` from `folder`, without `.` parts. A `..` stays: only the system knows its target.
fn absolute(folder: &Path, path: &Path) -> PathBuf {
    folder.join(path).components().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_from_the_key() {
        let spec = find("cache_memory").unwrap();
        assert_eq!(spec.flag(), "cache-memory");
        assert_eq!(spec.variable(), "FLASH_CACHE_MEMORY");
        assert!(find("cache-memory").is_none());
    }

    #[test]
    fn every_default_is_a_value_of_its_option() {
        for spec in OPTIONS {
            if let DefaultValue::Text(text) = spec.default {
                let mut into = Overrides::default();
                assert_eq!(spec.set(&mut into, &[OsStr::new(text)], Origin::Default), Ok(()), "{}", spec.key);
                assert_ne!(into, Overrides::default(), "{}", spec.key);
            }
        }
        assert_eq!(Overrides::defaults().helper_idle.unwrap().value, 10_000);
    }

    #[test]
    fn the_upper_source_wins() {
        let given = |value| Some(Given { value, origin: Origin::Flag });
        let upper = Overrides { workers: given(1), ..Overrides::defaults() };
        let below = Overrides { workers: given(2), helpers_max: given(3), ..Overrides::defaults() };
        let merged = Overrides { helpers_max: None, ..upper }.or(below);
        assert_eq!(merged.workers.unwrap().value, 1);
        assert_eq!(merged.helpers_max.unwrap().value, 3);
    }

    #[test]
    fn paths_start_where_they_were_named() {
        let mut overrides = Overrides::defaults();
        for (key, text) in [("root", "./www/."), ("config", "/etc/flash.toml"), ("log_file", "-")] {
            find(key).unwrap().set(&mut overrides, &[OsStr::new(text)], Origin::Flag).unwrap();
        }
        overrides.rebase(Path::new("/home/me"));
        assert_eq!(overrides.root.unwrap().value, Path::new("/home/me/www"));
        assert_eq!(overrides.config.unwrap().value, Path::new("/etc/flash.toml"));
        assert_eq!(overrides.log_file.unwrap().value, Path::new("-"));
    }
}
