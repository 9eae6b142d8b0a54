//! The complete, checked settings that every role works with.
//!
//! `config::resolve` makes them, the supervisor passes them to the processes that it starts as TOML text
//! ([`Settings::to_toml`], [`Settings::from_toml`]), and `flash check --print` prints them. They must not contain defaults or
//! sources: every field is written, every field is required.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::admission::Admission;
use super::choices::{
    Architecture, EncodedSlash, EtagTime, EventMechanism, HelperKind, LogFormat, SandboxMode,
};
use super::endpoint::EndpointSettings;
use super::error::{ConfigError, ConfigErrorKind, Problem};
use super::memory::CacheMemory;
use super::optimizations::Optimizations;
use super::routes::Route;
use super::run_as::RunAs;
use super::schedule::Schedule;

/// All settings, resolved. [`Settings::default`] is only the start from which `config::resolve` fills them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Addresses to listen on, at least one. Port 0 is any free port.
    pub listen: Vec<SocketAddr>,
    /// Which part waits for the disk.
    pub architecture: Architecture,
    /// Worker processes, at least one; unused by `mp`.
    pub workers: usize,
    /// Worker processes of `mp`, at least one.
    pub processes: usize,
    /// Threads of each worker of `mt`, at least one.
    pub threads: usize,
    /// The system call that waits for events.
    pub event_mechanism: EventMechanism,
    /// The kind of helpers.
    pub helpers: HelperKind,
    /// Maximum helpers per worker, at least one.
    pub helpers_max: usize,
    /// Numbers that this control group is too small for, as warnings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lowered: Vec<String>,
    /// Time for which a cache entry is served before its file is checked again, in milliseconds.
    pub freshness_ms: u64,
    /// Additional time for which it is served while a helper checks it, in milliseconds.
    pub stale_ms: u64,
    /// The times of a file that its `ETag` holds.
    pub etag: EtagTime,
    /// Memory for file contents, shared by all workers.
    pub cache_memory: CacheMemory,
    /// The absolute path of the list of hot files, saved on shutdown and loaded on startup; `None` for no list.
    #[serde(with = "maybe_path", default, skip_serializing_if = "Option::is_none")]
    pub cache_list: Option<PathBuf>,
    /// Where request bodies for routes are held until they are complete.
    pub spool: Spool,
    /// Maximum connections per worker.
    pub connections_max: usize,
    /// Whether clients may speak HTTP/2.
    pub http2: bool,
    /// Time for a client to send a complete request head, in milliseconds.
    pub head_timeout_ms: u64,
    /// Maximum time of a connection without a request, in milliseconds.
    pub idle_timeout_ms: u64,
    /// Maximum time of a helper for a job, in milliseconds.
    pub job_deadline_ms: u64,
    /// Maximum wait for a helper, above which a request is refused, in milliseconds; 0 disables.
    pub queue_wait_ms: u64,
    /// Time for open requests to finish after a stop signal, in milliseconds.
    pub shutdown_timeout_ms: u64,
    /// Time for open requests of the old configuration to finish after a reload, in milliseconds; 0 for no limit.
    pub reload_timeout_ms: u64,
    /// Time without a job after which a helper process ends, in milliseconds.
    pub helper_idle_ms: u64,
    /// Minimum rate at which a client must receive its answer, in bytes per second; 0 for any rate.
    pub least_rate_bytes_per_s: u64,
    /// Minimum rate at which a client must send a request body for a route, in bytes per second; 0 for any rate.
    pub body_least_rate_bytes_per_s: u64,
    /// Maximum time for such a body, in milliseconds; 0 for no limit.
    pub body_timeout_ms: u64,
    /// Maximum entries in a directory listing.
    pub listing_entries_max: usize,
    /// Whether Landlock and seccomp confine each role.
    pub sandbox: SandboxMode,
    /// Whether workers and helpers keep `CAP_FOWNER`.
    pub cap_fowner: bool,
    /// The user of workers and helpers; `None` for the current user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_as: Option<RunAs>,
    /// The optimizations.
    pub optimizations: Optimizations,
    /// The schedule: which connection's bytes go first.
    pub schedule: Schedule,
    /// Who gets a connection when there is not room for all.
    pub admission: Admission,
    /// The access log.
    pub log: LogSettings,
    /// The control socket.
    pub control: ControlSocket,
    /// The character set of text types that do not name one; `None` if they name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charset: Option<String>,
    /// Content types by file extension, in lower case and without a dot, in addition to the built-in table.
    pub types: BTreeMap<String, String>,
    /// The work of the server.
    #[serde(default, skip_serializing_if = "Service::is_files")]
    pub service: Service,
    /// The sites, at least one when serving files. If `hosts` of the first is empty, it answers every host that no other site names;
    /// otherwise such hosts have no site.
    pub sites: Vec<Site>,
}

/// The access log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogSettings {
    /// The format of a line.
    pub format: LogFormat,
    /// The absolute path of the file, or `None` for standard output.
    #[serde(with = "maybe_path", default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
}

/// Where the supervisor listens for clients of its statistics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ControlSocket {
    /// In the user's private folder, under the process ID; nowhere if that fails.
    #[default]
    Default,
    /// Nowhere.
    Off,
    /// At this absolute path.
    At(#[serde(with = "path")] PathBuf),
}

/// Where request bodies are held that are too long for memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spool {
    /// The absolute path of the directory of the files, which have no names; `None` for no files.
    #[serde(with = "maybe_path", default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// Maximum bytes in the files of all workers.
    pub bytes_max: u64,
}

/// The work of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Service {
    /// It serves the files of its sites.
    #[default]
    Files,
    /// It brings files into memory for other servers (`flash backend`).
    Backend(BackendSettings),
}

impl Service {
    /// The directories of the warm endpoint.
    pub(crate) fn warm_roots(&self) -> impl Iterator<Item = &std::path::Path> {
        let endpoint = match self {
            Service::Files => None,
            Service::Backend(backend) => Some(&backend.endpoint),
        };
        endpoint.into_iter().flat_map(|endpoint| endpoint.roots.iter().map(|root| root.0.as_path()))
    }

    /// Whether it serves files.
    #[must_use]
    pub fn is_files(&self) -> bool {
        *self == Service::Files
    }
}

/// The settings that only a backend has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackendSettings {
    /// The absolute path of its socket.
    #[serde(with = "path")]
    pub socket: PathBuf,
    /// The users that can connect, in addition to root and its own user.
    pub users: Vec<u32>,
    /// How long each reply is held back, for tests, in milliseconds.
    pub delay_ms: u64,
    /// The warm endpoint. Its addresses are in [`Settings::listen`].
    pub endpoint: EndpointSettings,
    /// The directories whose names are looked up at the start.
    pub names: Vec<NamesRoot>,
}

/// A directory whose names are looked up at the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamesRoot(
    /// Its absolute path.
    #[serde(with = "path")]
    pub PathBuf,
);

/// A directory tree, and the hosts that it answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// Host names, in lower case and without a port; `*.example.org` matches every name that ends in `.example.org`.
    /// Empty only for the default site, which is the first.
    pub hosts: Vec<String>,
    /// The absolute path of the served directory.
    #[serde(with = "path")]
    pub root: PathBuf,
    /// Index files of a directory; the first that exists is served.
    pub index: Vec<String>,
    /// Whether a directory without an index file is listed.
    pub browse: bool,
    /// Whether `.br`, `.zst` and `.gz` siblings are served to clients that accept them.
    pub precompressed: bool,
    /// The meaning of `%2F` in a path.
    pub encoded_slash: EncodedSlash,
    /// The requests that other servers answer; the first route that fits applies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
}

impl Settings {
    /// The routes of all sites. The place of a route here is the number of its upstream.
    pub(crate) fn routes(&self) -> impl Iterator<Item = &Route> {
        self.sites.iter().flat_map(|site| &site.routes)
    }

    /// The settings as TOML text, for [`Settings::from_toml`] in another process.
    #[must_use]
    pub fn to_toml(&self) -> String {
        // Every number is far below 2^63, every path has a form (see `path`), and TOML can hold all other values.
        let text = toml::to_string(self).expect("settings always have a TOML form");
        format!("{}\n", text.trim_end_matches('\n'))
    }

    /// Reads the output of [`Settings::to_toml`]. It checks only the shape: the values were checked when they were
    /// resolved.
    ///
    /// # Errors
    ///
    /// The text is not TOML, or a field is missing, unknown or of the wrong type: it comes from another version of
    /// Flash.
    pub fn from_toml(text: &str) -> Result<Settings, ConfigError> {
        toml::from_str(text).map_err(|error| {
            let problem = Problem::plain("cannot read the settings from the supervisor", error.message())
                .helped("the supervisor runs another version of Flash; restart the server");
            ConfigError::new(ConfigErrorKind::Handover, vec![problem])
        })
    }
}

/// A path as TOML: a string, or the list of its bytes if it is not UTF-8.
pub(super) mod path {
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

    pub(in crate::config) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        let form = match path.to_str() {
            Some(text) => Form::Text(text.to_owned()),
            None => Form::Bytes(path.as_os_str().as_bytes().to_owned()),
        };
        form.serialize(to)
    }

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
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

    use super::super::admission::Clients;
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
            lowered: vec!["a warning".into()],
            freshness_ms: 1_000,
            stale_ms: 10_000,
            etag: EtagTime::Changed,
            cache_memory: CacheMemory::Fixed { bytes: 64 << 20, asked_bytes: 1 << 40 },
            cache_list: Some("/var/lib/flash/hot".into()),
            spool: Spool { folder: Some("/var/tmp".into()), bytes_max: 1 << 30 },
            connections_max: 16_384,
            http2: true,
            head_timeout_ms: 10_000,
            idle_timeout_ms: 60_000,
            job_deadline_ms: 30_000,
            queue_wait_ms: 5_000,
            shutdown_timeout_ms: 30_000,
            reload_timeout_ms: 0,
            helper_idle_ms: 10_000,
            least_rate_bytes_per_s: 1_024,
            body_least_rate_bytes_per_s: 500,
            body_timeout_ms: 7_200_000,
            listing_entries_max: 10_000,
            sandbox: SandboxMode::Required,
            cap_fowner: true,
            run_as: Some(RunAs { name: "www-data".into(), uid: 33, gid: 33, groups: vec![33, 4] }),
            optimizations: Optimizations { send: super::super::SendBy::Mmap, ..Optimizations::default() },
            schedule: Schedule {
                policy: super::super::SchedulePolicy::Srpt,
                cutoffs: vec![1_000, 50_000],
                dscp: true,
                cwnd_cap_bytes: 65_536,
                egress_bits_per_s: 10_000_000,
            },
            admission: Admission {
                client_connections_max: 100,
                client_exempt: vec![Clients::Loopback, Clients::Network("10.0.0.0/8".parse().unwrap())],
                accept_wait_ms: 1_000,
            },
            log: LogSettings { format: LogFormat::Json, file: Some("/var/log/flash.log".into()) },
            control: ControlSocket::At("/run/flash.sock".into()),
            charset: Some("utf-8".to_owned()),
            types: BTreeMap::from([("mjs".to_owned(), "text/javascript".to_owned())]),
            service: Service::Files,
            sites: vec![Site {
                hosts: Vec::new(),
                root: "/srv/\"www\"\n".into(),
                index: vec!["index.html".to_owned()],
                browse: false,
                precompressed: true,
                encoded_slash: EncodedSlash::Refuse,
                routes: Vec::new(),
            }],
        }
    }

    #[test]
    fn settings_survive_the_way_to_another_process() {
        let mut settings = settings();
        assert_eq!(Settings::from_toml(&settings.to_toml()).unwrap(), settings);
        settings.log.file = None;
        settings.run_as = None;
        settings.cache_memory = CacheMemory::Auto { bytes_max: 3 << 29 };
        settings.cache_list = None;
        settings.control = ControlSocket::Default;
        settings.types.clear();
        settings.charset = None;
        let socket = OsString::from_vec(b"/run/\xff".to_vec()).into();
        settings.service = Service::Backend(BackendSettings {
            socket,
            users: vec![33],
            delay_ms: 5,
            endpoint: EndpointSettings::sample(),
            names: vec![NamesRoot("/srv/www".into())],
        });
        settings.sites[0].root = OsString::from_vec(b"/srv/\xff\xfe".to_vec()).into();
        assert_eq!(Settings::from_toml(&settings.to_toml()).unwrap(), settings);
    }

    #[test]
    fn settings_of_another_shape_are_refused() {
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
            assert!(error.to_string().contains("settings from the supervisor"), "{error}");
        }
    }
}
