//! Routes: the requests of a site that other servers answer, through a reverse proxy or by FastCGI.
//!
//! `config::file` reads them, `convert` passes them to the engine, and the gateway connects to their servers.

use std::ffi::OsStr;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::error::{NotUtf8, Refusal};
use super::kind::Kind;
use super::programs::Program;
use super::values::{Item, ListItem, address_guess, utf8};

/// Maximum routes of all sites.
pub(super) const ROUTES_MAX: usize = 256;
/// Maximum length of the path of a Unix socket in bytes (unix(7), without the final NUL).
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Begins the address of a Unix socket.
const UNIX: &str = "unix:";
/// The address of the route's program.
const PROGRAM: &str = "program";

/// The requests of a site that an upstream answers, and the upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The protocol of the servers.
    pub protocol: Protocol,
    /// The servers, at least one.
    pub servers: Vec<ServerAddress>,
    /// The weight of each server, from 1; none if all are equal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<u32>,
    /// Maximum length of a request body in bytes.
    pub body_bytes_max: u64,
    /// Whether the servers get a request body while it comes, or only once it is complete.
    #[serde(default)]
    pub stream_bodies: bool,
    /// Whether answers pass as they come, so that a slow reader keeps its server busy.
    #[serde(default)]
    pub stream_answers: bool,
    /// Maximum time to get a connection, in milliseconds.
    pub connect_timeout_ms: u64,
    /// Maximum time without a byte from a server that must answer, in milliseconds.
    pub answer_timeout_ms: u64,
    /// Maximum connections of a worker to each server, or to each process of the program; at least one.
    pub connections_max: u64,
    /// Maximum idle connections of a worker to each server, or to each process of the program.
    pub idle_max: u64,
    /// Maximum requests of a worker that wait for a connection.
    pub queue_max: u64,
    /// The paths of the requests.
    pub paths: RoutePaths,
    /// How its servers are probed, if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
    /// The program that Flash starts, if there is one; it is the only server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
}

/// Requests that the gateway makes to find out whether a server is in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// The target of the requests.
    pub target: String,
    /// The time between two of them to a server, in milliseconds.
    pub interval_ms: u64,
}

/// The protocol of the servers of a route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http,
    /// FastCGI.
    FastCgi,
}

/// The paths of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RoutePaths {
    /// Paths that begin with this text.
    Prefix(String),
    /// Paths to files with this extension.
    Extension(String),
}

impl Default for RoutePaths {
    /// All paths.
    fn default() -> Self {
        RoutePaths::Prefix("/".to_owned())
    }
}

/// The largest weight of a server.
pub(super) const WEIGHT_MAX: u64 = 1_000;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum ServerAddress {
    /// An address and a port.
    Tcp(SocketAddr),
    /// The absolute path of a Unix socket.
    Unix(PathBuf),
    /// The socket that all processes of the route's [`Program`] share.
    Program,
}

impl Route {
    /// The connections to its servers that a worker can have open, idle ones included.
    pub(crate) fn connections_of_worker(&self) -> u64 {
        let processes = self.servers.len() as u64 * self.processes_of_server();
        self.connections_max.saturating_mul(processes)
    }

    /// The processes that accept the connections to a server: a program is one server with all of its processes.
    pub(crate) fn processes_of_server(&self) -> u64 {
        self.program.as_ref().map_or(1, |program| program.processes)
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerAddress::Tcp(address) => address.fmt(f),
            ServerAddress::Unix(path) => write!(f, "{UNIX}{}", path.display()),
            ServerAddress::Program => f.write_str(PROGRAM),
        }
    }
}

impl From<ServerAddress> for String {
    fn from(address: ServerAddress) -> String {
        address.to_string()
    }
}

impl TryFrom<String> for ServerAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == PROGRAM {
            return Ok(ServerAddress::Program);
        }
        ServerAddress::parse(&text).map_err(|refusal| format!("`{text}`: {}", refusal.why))
    }
}

impl ServerAddress {
    fn parse(text: &str) -> Result<Self, Refusal> {
        if let Some(path) = text.strip_prefix(UNIX) {
            return match path {
                _ if !path.starts_with('/') => {
                    Err(Refusal::new("must be an absolute path after `unix:`, such as unix:/run/app.sock"))
                }
                _ if path.len() > SOCKET_PATH_BYTES_MAX || path.contains('\0') => {
                    let why = format!(
                        "must be a path of at most {SOCKET_PATH_BYTES_MAX} bytes, without a NUL byte"
                    );
                    Err(Refusal::new(why))
                }
                _ => Ok(ServerAddress::Unix(path.into())),
            };
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.port() == 0 => Err(Refusal::new("the port must not be 0")),
            Ok(address) => Ok(ServerAddress::Tcp(address)),
            Err(_) => {
                let why = "must be an address and a port, such as 127.0.0.1:3000 or [::1]:3000, or unix:/run/app.sock";
                Err(Refusal::new(why).helped(address_help(text)))
            }
        }
    }
}

/// The address that was meant instead of `text`.
fn address_help(text: &str) -> String {
    let url = text.strip_prefix("http://").or_else(|| text.strip_prefix("fcgi://"));
    let bare = url.map_or(text, |rest| rest.split('/').next().unwrap_or(rest));
    if text.starts_with('/') {
        format!("write `{UNIX}{text}`")
    } else if bare.parse::<std::net::IpAddr>().is_ok() {
        "add the port".to_owned()
    } else if let Some(guess) = bare.parse().ok().or_else(|| address_guess(bare)) {
        format!("did you mean `{guess}`?")
    } else {
        "write an address instead of a host name: Flash does not resolve names".to_owned()
    }
}

impl Item for ServerAddress {
    fn from_text(text: &OsStr, _: Kind) -> Result<Self, Refusal> {
        ServerAddress::parse(utf8(text)?)
    }

    fn to_text(&self, _: Kind) -> Result<String, NotUtf8> {
        Ok(self.to_string())
    }
}

impl ListItem for ServerAddress {
    const COUNT_MAX: usize = 64;
    const NONE_REFUSED: Option<&'static str> = Some("name at least one server");

    fn may_repeat(&self) -> bool {
        false
    }
}
