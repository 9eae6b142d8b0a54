//! The options: one table of all that can be set, from which everything else about them follows.
//!
//! For: each row gives an option its key, bounds, default and help. The flag and the environment
//! variable follow from the key; the command line, the reader of the environment, the reader of the
//! file and the defaults all fill the same [`Overrides`], and the tests hold `docs/config.md` to it.
//! Called by the rest of `config` and by the binary. May not read anything, and holds no rule about
//! a value beyond its kind and bounds (`config::values` applies those).

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::optimizations::SendBy;
use super::settings::{
    Architecture, EncodedSlash, EtagTime, EventMechanism, HelperKind, LogFormat, SandboxMode,
};
use super::values::{FromItems, Kind, Refusal, UserName};

/// One option.
#[derive(Debug)]
pub struct Spec {
    /// The key in the file; the flag and the variable follow from it.
    pub key: &'static str,
    /// The heading it stands under in the help.
    pub group: Group,
    /// What its value is, with bounds.
    pub kind: Kind,
    /// The name of its value in the help.
    pub value_name: &'static str,
    /// What holds if no source says anything.
    pub default: DefaultValue,
    /// What it does, in a line.
    pub help: &'static str,
    store: Store,
}

/// Parses the values and puts them in their field.
type Store = fn(&mut Overrides, &[&OsStr], Kind, Origin) -> Result<(), Vec<Refusal>>;

/// The headings of the help, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// What is served.
    Files,
    /// Where it is served.
    Network,
    /// What it is served with.
    Resources,
    /// How it waits for the disk, and what of its design is switched off: for comparisons.
    Architecture,
    /// How much and how long.
    Limits,
    /// What its processes may do.
    Privileges,
    /// What is written down and told.
    Logs,
}

impl Group {
    /// The heading.
    #[must_use]
    pub fn heading(self) -> &'static str {
        match self {
            Group::Files => "Files",
            Group::Network => "Network",
            Group::Resources => "Processes and memory",
            Group::Architecture => "Architecture and optimizations",
            Group::Limits => "Limits and timeouts",
            Group::Privileges => "Privileges",
            Group::Logs => "Logs and statistics",
        }
    }
}

/// What holds if no source says anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultValue {
    /// A value, written as in the environment.
    Text(&'static str),
    /// A value that depends on something else; this says on what.
    Depends(&'static str),
    /// Nothing.
    None,
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The command line.
    Flag,
    /// The environment.
    Environment,
    /// The config file, at these bytes.
    File(Range<usize>),
    /// Nobody said anything.
    Default,
}

/// A value and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given<T> {
    /// The value.
    pub value: T,
    /// Where it came from.
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

    /// Whether it may stand in the config file: all but the name of that file itself.
    #[must_use]
    pub fn is_in_file(&self) -> bool {
        self.key != "config"
    }

    /// Whether a `[[site]]` may set it for itself.
    #[must_use]
    pub fn is_of_site(&self) -> bool {
        matches!(self.key, "root" | "index" | "browse" | "precompressed" | "encoded_slash")
    }

    /// Parses the values that a source gave, all at once, and stores them in `into`.
    ///
    /// # Errors
    ///
    /// Says of each value that is wrong why it is; nothing is stored then.
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
        /// What one source said, or several merged: a field for each option.
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
            /// These, and where they say nothing, those of the source `below`.
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
use Kind::{Addresses, FileNames, Path as PathKind, Switch};

// A row: key: type, heading, kind with bounds, name of the value, default, help.
options! {
    root: PathBuf, Files, PathKind, "DIR", Depends("the current directory"),
        "Directory to serve";
    config: PathBuf, Files, PathKind, "FILE", DefaultValue::None,
        "Read settings from a TOML file";
    index: Vec<String>, Files, FileNames, "NAME", Text("index.html"),
        "File served for a directory; repeat for more, the first found counts";
    browse: bool, Files, Switch, "BOOL", Text("false"),
        "List a directory that has no index file";
    precompressed: bool, Files, Switch, "BOOL", Text("true"),
        "Serve FILE.br, FILE.zst or FILE.gz for FILE to clients that accept it";
    encoded_slash: EncodedSlash, Files, Kind::OneOf(EncodedSlash::WORDS), "HOW", Text("decode"),
        "What %2F in a path is: decode (a slash, as for nginx) or refuse (an error, 400)";
    etag: EtagTime, Files, Kind::OneOf(EtagTime::WORDS), "TIME", Text("modified"),
        "What an ETag holds beside the length: modified (the same on every mirror), or changed (the time of change, too)";
    freshness: u64, Files, millis(0, HOUR_MS), "TIME", Text("1s"),
        "How long a cached file is served before it is looked at again";
    stale: u64, Files, millis(0, 24 * HOUR_MS), "TIME", Text("10s"),
        "How much longer it is served while a helper looks, when looking would wait for the disk; after that requests wait";
    listen: Vec<SocketAddr>, Network, Addresses, "ADDR:PORT", Text("127.0.0.1:8080"),
        "Address to listen on; repeat for more, port 0 is any free port";
    connections: u64, Network, count(1, 1_000_000), "N", Text("16384"),
        "Most connections of a worker";
    workers: u64, Resources, count(1, 256), "N", Depends("one for each usable core; of mt one"),
        "Worker processes";
    helpers_max: u64, Resources, count(1, 256), "N", Text("16"),
        "Most helpers of a worker, which wait for the disk in its place";
    helper_idle: u64, Resources, millis(1, 24 * HOUR_MS), "TIME", Text("10s"),
        "End a helper process after this time without work";
    cache_memory: u64, Resources, size(0, 1024 * GIB), "SIZE",
        Depends("64MiB, or less: 1/32 of the memory there is for all workers; of mp a worker's divided by the processes"),
        "Memory of a worker for the contents of small files";
    architecture: Architecture, Architecture, Kind::OneOf(Architecture::WORDS), "NAME", Text("amped"),
        "Who waits for the disk: amped (helpers), sped (the loop), mp (a process a connection), mt (a thread)";
    processes: u64, Architecture, count(1, 1024), "N", Text("32"),
        "Worker processes of mp, each with one connection at a time";
    threads: u64, Architecture, count(1, 1024), "N", Text("64"),
        "Threads of a worker of mt, each with one connection at a time";
    event_mechanism: EventMechanism, Architecture, Kind::OneOf(EventMechanism::WORDS), "NAME", Text("epoll"),
        "What the loop of amped and sped waits by: epoll, poll, or select (fewer than 1024 descriptors)";
    helpers: HelperKind, Architecture, Kind::OneOf(HelperKind::WORDS), "KIND", Text("processes"),
        "What the helpers of amped are: processes on demand, or threads from the start";
    name_cache: bool, Architecture, Switch, "BOOL", Text("true"),
        "Remember what paths lead to, instead of looking it up for each request";
    head_cache: bool, Architecture, Switch, "BOOL", Text("true"),
        "Keep response heads, instead of making one for each answer";
    content_cache: bool, Architecture, Switch, "BOOL", Text("true"),
        "Keep contents of small files; off is cache-memory 0";
    send: SendBy, Architecture, Kind::OneOf(SendBy::WORDS), "HOW", Text("read"),
        "How what is not in the content cache is sent: read (into a buffer), sendfile or mmap";
    align_heads: bool, Architecture, Switch, "BOOL", Text("false"),
        "Pad response heads to a multiple of 32 bytes";
    open_in_loop: bool, Architecture, Switch, "BOOL", Text("false"),
        "For experiments: look files up in the loop, where all clients wait for it";
    residency_check: bool, Architecture, Switch, "BOOL", Text("true"),
        "Ask what is in memory before a file is read or sent; off, for experiments: all clients wait for the disk";
    head_timeout: u64, Limits, millis(1, HOUR_MS), "TIME", Text("10s"),
        "Time for a client to send a request head";
    idle_timeout: u64, Limits, millis(1, 24 * HOUR_MS), "TIME", Text("60s"),
        "Close a connection after this time without a request";
    least_rate: u64, Limits, size(0, GIB), "SIZE", Text("1KiB"),
        "Close a connection that takes less than this a second; 0: never";
    job_deadline: u64, Limits, millis(1, HOUR_MS), "TIME", Text("30s"),
        "Answer 503 when a helper takes longer than this";
    shutdown_timeout: u64, Limits, millis(0, HOUR_MS), "TIME", Text("30s"),
        "Time for open requests to finish at a stop";
    reload_timeout: u64, Limits, millis(0, 24 * HOUR_MS), "TIME", Text("0s"),
        "Time for open requests of the old configuration to finish after a reload; 0s: no limit";
    listing_entries: u64, Limits, count(1, 1_000_000), "N", Text("10000"),
        "Most entries shown in a listing";
    user: UserName, Privileges, Kind::User, "USER[:GROUP]", Depends("nobody if started by root, else who starts it"),
        "User that workers and helpers become";
    cap_fowner: bool, Privileges, Switch, "BOOL", Text("false"),
        "Let workers keep CAP_FOWNER, to be told what is in memory of files of other owners";
    sandbox: SandboxMode, Privileges, Kind::OneOf(SandboxMode::WORDS), "MODE", Text("auto"),
        "Landlock and seccomp: required, auto (as far as the kernel has them) or off";
    log_format: LogFormat, Logs, Kind::OneOf(LogFormat::WORDS), "FORMAT", Depends("combined with a log file, else off"),
        "Form of the access log: combined, json or off";
    log_file: PathBuf, Logs, PathKind, "FILE", Depends("standard output"),
        "File for the access log, or - for standard output";
    control: PathBuf, Logs, PathKind, "PATH",
        Depends("PID.sock in /run/flash for root, else in $XDG_RUNTIME_DIR/flash or /tmp/flash-UID"),
        "Socket that `flash stats` asks, for this user alone, or none";
}

impl Overrides {
    /// The defaults that stand in the table.
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
        if let Some(given) = self.control.as_mut().filter(|given| given.value != Path::new(NO_SOCKET)) {
            given.value = absolute(folder, &given.value);
        }
    }
}

/// The name of the log file that means standard output.
pub(super) const STANDARD_OUTPUT: &str = "-";
/// The path of the control socket that means none.
pub(super) const NO_SOCKET: &str = "none";

/// `path` from `folder`, without the `.` in it. A `..` stays: only the system knows where it leads.
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
