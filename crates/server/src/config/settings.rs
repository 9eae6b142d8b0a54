//! The settings as every role works from them: complete, checked, and without a source.
//!
//! For: `config::resolve` makes them, the supervisor hands them to the processes it starts as TOML
//! text ([`Settings::to_toml`], [`Settings::from_toml`]), and `flash check --print` shows them. May
//! not know defaults or sources: every field is written, every field is required.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::error::{ConfigError, ConfigErrorKind, Problem};
use super::optimizations::Optimizations;
use super::values::Choice;

/// Everything that can be set, resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Addresses to listen on, at least one. Port 0 is any free port.
    pub listen: Vec<SocketAddr>,
    /// How the server waits for the disk.
    pub architecture: Architecture,
    /// Worker processes, at least one; not of `mp`.
    pub workers: usize,
    /// Worker processes of `mp`, at least one.
    pub processes: usize,
    /// Threads of each worker of `mt`, at least one.
    pub threads: usize,
    /// What a loop waits by.
    pub event_mechanism: EventMechanism,
    /// What helpers are.
    pub helpers: HelperKind,
    /// The most helpers of each worker, at least one.
    pub helpers_max: usize,
    /// How long an entry of a cache is served before its file is looked at again, in milliseconds.
    pub freshness_ms: u64,
    /// How much longer it is served while a helper checks it, in milliseconds.
    pub stale_ms: u64,
    /// Which times of a file its `ETag` holds.
    pub etag: EtagTime,
    /// Memory for the contents of small files, in bytes for each worker.
    pub cache_memory_bytes: u64,
    /// The most connections of each worker.
    pub connections_max: usize,
    /// Time for a client to send a whole request head, in milliseconds.
    pub head_timeout_ms: u64,
    /// Time for which a connection may be without a request, in milliseconds.
    pub idle_timeout_ms: u64,
    /// Time for a helper to finish a job, in milliseconds.
    pub job_deadline_ms: u64,
    /// Time for open requests to finish at a graceful stop, in milliseconds.
    pub shutdown_timeout_ms: u64,
    /// Time for open requests of the old configuration to finish after a reload, in milliseconds; 0: no limit.
    pub reload_timeout_ms: u64,
    /// How long a helper process waits for a job before it ends, in milliseconds.
    pub helper_idle_ms: u64,
    /// The least rate at which a client must take its answer, in bytes per second; 0: any rate.
    pub least_rate_bytes_per_s: u64,
    /// The most entries that a listing of a directory shows.
    pub listing_entries_max: usize,
    /// Whether the kernel is to hold each role to its part.
    pub sandbox: SandboxMode,
    /// Whether workers and helpers keep `CAP_FOWNER`.
    pub cap_fowner: bool,
    /// Who workers and helpers are; `None`: who starts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_as: Option<RunAs>,
    /// What is optimized.
    pub optimizations: Optimizations,
    /// The access log.
    pub log: LogSettings,
    /// Where the supervisor is asked.
    pub control: ControlSocket,
    /// Content types by file extension, lower case and without a dot, beside the built-in table.
    pub types: BTreeMap<String, String>,
    /// What is served, at least one. If `hosts` of the first is empty, it answers every host that
    /// no other site names; if not, such hosts have no site.
    pub sites: Vec<Site>,
}

/// The access log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogSettings {
    /// The form of a line.
    pub format: LogFormat,
    /// The absolute path of the file, or `None` for standard output.
    #[serde(with = "maybe_path", default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
}

/// Where the supervisor listens for those who ask it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ControlSocket {
    /// In a folder of the user's own, under the number of its process; nowhere if that cannot be.
    Default,
    /// Nowhere.
    Off,
    /// At this absolute path.
    At(#[serde(with = "path")] PathBuf),
}

/// The form of a line of the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// The combined log format of Apache and nginx.
    Combined,
    /// One JSON object a line.
    Json,
    /// No access log.
    Off,
}

impl LogFormat {
    /// The names in the file, on the command line and in the environment.
    pub(super) const WORDS: &'static [&'static str] = &["combined", "json", "off"];
}

impl Choice for LogFormat {
    const ALL: &'static [Self] = &[LogFormat::Combined, LogFormat::Json, LogFormat::Off];
}

/// How a server waits for the disk (flash-1999, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// Asymmetric multi-process event-driven: by helpers, while the loop of each worker goes on.
    Amped,
    /// Single-process event-driven: in the loop.
    Sped,
    /// Multi-process: in a process for each connection in service.
    Mp,
    /// Multi-threaded: in a thread for each connection in service.
    Mt,
}

impl Architecture {
    /// The names in the file, on the command line and in the environment.
    pub(super) const WORDS: &'static [&'static str] = &["amped", "sped", "mp", "mt"];
}

impl Choice for Architecture {
    const ALL: &'static [Self] =
        &[Architecture::Amped, Architecture::Sped, Architecture::Mp, Architecture::Mt];
}

/// What a loop waits by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventMechanism {
    /// epoll(7).
    Epoll,
    /// poll(2).
    Poll,
    /// select(2).
    Select,
}

impl EventMechanism {
    /// The names in the file, on the command line and in the environment.
    pub(super) const WORDS: &'static [&'static str] = &["epoll", "poll", "select"];
}

impl Choice for EventMechanism {
    const ALL: &'static [Self] = &[EventMechanism::Epoll, EventMechanism::Poll, EventMechanism::Select];
}

/// What helpers are (flash-1999, section 3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HelperKind {
    /// Processes, which come on demand and can be ended.
    Processes,
    /// Threads of the worker, all there from the start.
    Threads,
}

impl HelperKind {
    /// The names in the file, on the command line and in the environment.
    pub(super) const WORDS: &'static [&'static str] = &["processes", "threads"];
}

impl Choice for HelperKind {
    const ALL: &'static [Self] = &[HelperKind::Processes, HelperKind::Threads];

    fn hint(text: &str) -> Option<String> {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| {
            "how many there may be is set by --helpers-max (FLASH_HELPERS_MAX, `helpers_max`)".to_owned()
        })
    }
}

/// Whether the kernel is to hold each role to its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxMode {
    /// By all that Flash knows; where the kernel cannot, it does not start.
    Required,
    /// As far as this kernel can.
    Auto,
    /// Not by Landlock and seccomp.
    Off,
}

impl SandboxMode {
    /// The names in the file, on the command line and in the environment.
    pub(super) const WORDS: &'static [&'static str] = &["required", "auto", "off"];
}

impl Choice for SandboxMode {
    const ALL: &'static [Self] = &[SandboxMode::Required, SandboxMode::Auto, SandboxMode::Off];
}

/// A user that workers, helpers and the log writer become.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunAs {
    /// Its name, or its number where it has none.
    pub name: String,
    /// The number of the user.
    pub uid: u32,
    /// The number of its group.
    pub gid: u32,
    /// The numbers of all its groups.
    pub groups: Vec<u32>,
}

/// A directory tree, and the hosts it answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// Host names, lower case and without a port; `*.example.org` stands for every name that ends
    /// in `.example.org`. Empty only for the default site, which is the first.
    pub hosts: Vec<String>,
    /// The absolute path of the directory that is served.
    #[serde(with = "path")]
    pub root: PathBuf,
    /// Files served for a directory, the first that exists.
    pub index: Vec<String>,
    /// Whether a directory without an index file is listed.
    pub browse: bool,
    /// Whether `.br`, `.zst` and `.gz` siblings are served to clients that accept them.
    pub precompressed: bool,
    /// What `%2F` in a path is taken for.
    pub encoded_slash: EncodedSlash,
}

/// Which times of a file its `ETag` holds, beside its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EtagTime {
    /// The time of modification.
    Modified,
    /// That and the time of change.
    Changed,
}

impl EtagTime {
    /// The names in the file, on the command line and in the environment.
    pub(super) const WORDS: &'static [&'static str] = &["modified", "changed"];
}

impl Choice for EtagTime {
    const ALL: &'static [Self] = &[EtagTime::Modified, EtagTime::Changed];
}

/// What `%2F` in a path is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EncodedSlash {
    /// A slash.
    Decode,
    /// An error.
    Refuse,
}

impl EncodedSlash {
    /// The names in the file, on the command line and in the environment.
    pub(super) const WORDS: &'static [&'static str] = &["decode", "refuse"];
}

impl Choice for EncodedSlash {
    const ALL: &'static [Self] = &[EncodedSlash::Decode, EncodedSlash::Refuse];
}

impl Settings {
    /// The settings as TOML text, for [`Settings::from_toml`] in another process.
    #[must_use]
    pub fn to_toml(&self) -> String {
        // Every number is bounded far below 2^63, every path has a form (see `path`), and there
        // are no other values that TOML can't hold.
        let text = toml::to_string(self).expect("settings always have a TOML form");
        format!("{}\n", text.trim_end_matches('\n'))
    }

    /// Reads what [`Settings::to_toml`] wrote. It checks the shape only: the values were checked
    /// where they were resolved.
    ///
    /// # Errors
    ///
    /// The text is not TOML, or a field is missing, unknown or of the wrong type: it comes from
    /// another version of Flash.
    pub fn from_toml(text: &str) -> Result<Settings, ConfigError> {
        toml::from_str(text).map_err(|error| {
            let problem = Problem::plain("cannot read the settings that were handed over", error.message())
                .helped("they come from another version of Flash; restart it as a whole");
            ConfigError::new(ConfigErrorKind::Handover, vec![problem])
        })
    }
}

/// A path as TOML: a string, or the list of its bytes where it is not UTF-8.
mod path {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Form {
        Text(String),
        Bytes(Vec<u8>),
    }

    pub(super) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        let form = match path.to_str() {
            Some(text) => Form::Text(text.to_owned()),
            None => Form::Bytes(path.as_os_str().as_bytes().to_owned()),
        };
        form.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        Ok(match Form::deserialize(from)? {
            Form::Text(text) => PathBuf::from(text),
            Form::Bytes(bytes) => PathBuf::from(OsString::from_vec(bytes)),
        })
    }
}

/// A path that may be absent.
mod maybe_path {
    use std::path::PathBuf;

    use serde::{Deserializer, Serializer};

    use super::path;

    pub(super) fn serialize<S: Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
        match path {
            Some(path) => path::serialize(path, to),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
        path::deserialize(from).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn settings() -> Settings {
        Settings {
            listen: vec!["127.0.0.1:8080".parse().unwrap(), "[::1]:0".parse().unwrap()],
            architecture: Architecture::Mt,
            workers: 2,
            processes: 32,
            threads: 64,
            event_mechanism: EventMechanism::Select,
            helpers: HelperKind::Threads,
            helpers_max: 16,
            freshness_ms: 1_000,
            stale_ms: 10_000,
            etag: EtagTime::Changed,
            cache_memory_bytes: 64 << 20,
            connections_max: 16_384,
            head_timeout_ms: 10_000,
            idle_timeout_ms: 60_000,
            job_deadline_ms: 30_000,
            shutdown_timeout_ms: 30_000,
            reload_timeout_ms: 0,
            helper_idle_ms: 10_000,
            least_rate_bytes_per_s: 1_024,
            listing_entries_max: 10_000,
            sandbox: SandboxMode::Required,
            cap_fowner: true,
            run_as: Some(RunAs { name: "www-data".into(), uid: 33, gid: 33, groups: vec![33, 4] }),
            optimizations: Optimizations { send: super::super::SendBy::Mmap, ..Optimizations::default() },
            log: LogSettings { format: LogFormat::Json, file: Some("/var/log/flash.log".into()) },
            control: ControlSocket::At("/run/flash.sock".into()),
            types: BTreeMap::from([("mjs".to_owned(), "text/javascript".to_owned())]),
            sites: vec![Site {
                hosts: Vec::new(),
                root: "/srv/\"www\"\n".into(),
                index: vec!["index.html".to_owned()],
                browse: false,
                precompressed: true,
                encoded_slash: EncodedSlash::Refuse,
            }],
        }
    }

    #[test]
    fn settings_survive_the_way_to_another_process() {
        let mut settings = settings();
        assert_eq!(Settings::from_toml(&settings.to_toml()).unwrap(), settings);
        settings.log.file = None;
        settings.run_as = None;
        settings.control = ControlSocket::Default;
        settings.types.clear();
        settings.sites[0].root = OsString::from_vec(b"/srv/\xff\xfe".to_vec()).into();
        assert_eq!(Settings::from_toml(&settings.to_toml()).unwrap(), settings);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let text = settings().to_toml();
        for wrong in [
            String::new(),
            "x".to_owned(),
            text.replace("workers", "worker"),
            text.replace("workers = 2\n", ""),
            text.replace("workers = 2", "workers = -2"),
            format!("more = 1\n{text}"),
        ] {
            let error = Settings::from_toml(&wrong).unwrap_err();
            assert_eq!(error.kind(), ConfigErrorKind::Handover);
            assert!(error.to_string().contains("handed over"), "{error}");
        }
    }
}
