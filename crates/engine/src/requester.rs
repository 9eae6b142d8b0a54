//! Who sends a request, and how: the address that rules and the log see, the scheme, and the version of TLS. The wires make it; the
//! gate and the access log use it.

use std::net::{IpAddr, SocketAddr};

use crate::machine::TlsVersion;
use crate::shares::Sharer;

/// Who sent a request, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requester {
    pub(crate) address: SocketAddr,
    /// The scheme of the request (RFC 9110, section 4.2).
    pub(crate) scheme: Scheme,
    /// The version that the connection itself uses; a proxy may have had another one with its client.
    pub(crate) tls: Option<TlsVersion>,
    pub(crate) sharer: Sharer,
    /// As [`RequestClient::is_local`].
    pub(crate) is_local: bool,
    /// As [`RequestClient::is_proxied`].
    pub(crate) is_proxied: bool,
}

impl Requester {
    /// The client, as the gate sees it.
    pub(crate) fn client(&self) -> RequestClient {
        RequestClient { address: self.address.ip(), is_local: self.is_local, is_proxied: self.is_proxied }
    }
}

/// The client of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestClient {
    pub(crate) address: IpAddr,
    /// Whether it is on this machine, and no known proxy of other clients.
    pub(crate) is_local: bool,
    /// Whether a trusted proxy has sent its request.
    pub(crate) is_proxied: bool,
}

/// The scheme of a connection's requests (RFC 9110, section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

impl Scheme {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }
}
