//! Routes: the requests of a site that other servers answer, through a reverse proxy or by FastCGI.
//!
//! `config::file` reads them, `convert` passes them to the engine, and the gateway connects to their servers.

use std::ffi::OsStr;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::error::{NotUtf8, Refusal};
use super::file_path::FilePath;
use super::kind::Kind;
use super::listen::{SOCKET_PATH_BYTES_MAX, UNIX};
use super::values::{Item, ListItem, address_guess, utf8};

pub(super) const ROUTES_MAX: usize = 256;
/// Begins the address of a server that is reached over TLS, and the port without any other (RFC 9110, section 4.2.2).
const HTTPS: &str = "https://";
const HTTPS_PORT: u16 = 443;

/// The paths of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RoutePaths {
    /// Paths that begin with this text.
    Prefix(String),
    /// Paths to files with this extension.
    Extension(String),
}

impl RoutePaths {
    pub(super) fn prefix(&self) -> Option<&str> {
        if let RoutePaths::Prefix(prefix) = self { Some(prefix) } else { None }
    }

    pub(super) fn extension(&self) -> Option<&str> {
        if let RoutePaths::Extension(extension) = self { Some(extension) } else { None }
    }
}

impl Default for RoutePaths {
    /// All paths.
    fn default() -> Self {
        RoutePaths::Prefix("/".to_owned())
    }
}

pub(super) const WEIGHT_MAX: u64 = 1_000;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerAddress {
    /// An address and a port.
    Tcp(SocketAddr),
    /// The same, over TLS.
    Tls(SocketAddr),
    /// The absolute path of a Unix socket.
    Unix(FilePath),
    /// The socket that all processes of the route's program share.
    Program,
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerAddress::Tcp(address) => address.fmt(f),
            ServerAddress::Tls(address) => write!(f, "{HTTPS}{address}"),
            ServerAddress::Unix(path) => write!(f, "{UNIX}{}", path.display()),
            ServerAddress::Program => f.write_str("program"),
        }
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
        if let Some(rest) = text.strip_prefix(HTTPS) {
            return tls_address(rest).map(ServerAddress::Tls);
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.port() == 0 => Err(Refusal::new("the port must not be 0")),
            Ok(address) => Ok(ServerAddress::Tcp(address)),
            Err(_) => {
                let why = "must be an address and a port, such as 127.0.0.1:3000, [::1]:3000 or https://10.0.0.1:443, or unix:/run/app.sock";
                Err(Refusal::new(why).helped(address_help(text)))
            }
        }
    }
}

/// The address after `https://`, with or without a port.
fn tls_address(text: &str) -> Result<SocketAddr, Refusal> {
    let (place, path) = text.split_once('/').unwrap_or((text, ""));
    if !path.is_empty() {
        let why =
            "must end with the address and the port: the servers of a route get the paths of its requests";
        return Err(Refusal::new(why).helped(format!("write `{HTTPS}{place}`")));
    }
    let bare = place.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(place);
    let address = place
        .parse::<SocketAddr>()
        .or_else(|_| bare.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, HTTPS_PORT)));
    match address {
        Ok(address) if address.port() == 0 => Err(Refusal::new("the port must not be 0")),
        Ok(address) => Ok(address),
        Err(_) => {
            let (host, port) = place.rsplit_once(':').unwrap_or((place, "443"));
            let why = "must have an address, such as https://10.0.0.1 or https://[::1]:8443: Flash does not resolve names";
            let help = format!("write `{HTTPS}ADDRESS:{port}`, and `server_name = {host:?}` in the route");
            Err(Refusal::new(why).helped(help))
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

/// How the servers of a route that are reached over TLS are verified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteTls {
    /// Whether they are verified at all.
    pub verify: bool,
    /// The name in their certificates; `None` for the address of each.
    pub server_name: Option<String>,
    /// The file of the certificates of their issuers; `None` for that of the system.
    pub roots: Option<PathBuf>,
}

impl RouteTls {
    /// The name of a server in its certificate.
    pub(crate) fn name_of(&self, address: &SocketAddr) -> String {
        self.server_name.clone().unwrap_or_else(|| address.ip().to_string())
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
    const NONE_REFUSED: Option<&'static str> = Some("name at least one server");
}
