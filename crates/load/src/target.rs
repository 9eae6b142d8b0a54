//! The server that a command drives: its URL taken apart, and the rule that keeps load at home.
//!
//! The commands that generate load call it before anything else. It connects only to find out which
//! address of a name answers, and sends nothing.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use flash_kit::{Error, Result};

/// How long one of several addresses may take to answer.
const CONNECT_PATIENCE: Duration = Duration::from_secs(1);
/// The most addresses of a name that are tried.
const ADDRESSES_MAX: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub address: SocketAddr,
    pub host: String,
    /// Whether it speaks TLS: the scheme is `https`.
    pub is_https: bool,
    /// The prefix of each path: empty, or `/…` without a slash at its end.
    pub base: String,
}

impl Target {
    /// Parses `http://HOST[:PORT][/BASE]`, or the same with `https`, and looks HOST up. If it has several addresses, the first
    /// that accepts a connection is used, else the first: `localhost` is often `::1` as well.
    ///
    /// Errors: usage, for another scheme or a host that is not this machine unless
    /// `allow_remote`; run, for a name that can't be resolved.
    pub fn parse(url: &str, allow_remote: bool) -> Result<Self> {
        let schemes = [("http://", false, 80), ("https://", true, 443)];
        let found = schemes
            .iter()
            .find_map(|(scheme, is_https, port)| Some((url.strip_prefix(scheme)?, *is_https, *port)));
        let Some((rest, is_https, port)) = found else {
            let why = "the URL must start with http:// or https://";
            return Err(Error::usage(format!("cannot drive '{url}': {why}")));
        };
        let (host, base) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if host.is_empty() {
            return Err(Error::usage(format!("cannot drive '{url}': it names no host")));
        }
        let ends_in_port = host.rsplit_once(':').is_some_and(|(name, port)| {
            !port.is_empty()
                && port.bytes().all(|b| b.is_ascii_digit())
                && (!name.contains(':') || name.ends_with(']'))
        });
        let with_port = if ends_in_port { host.to_owned() } else { format!("{host}:{port}") };
        let found = with_port.to_socket_addrs().map_err(|why| {
            let text = format!("cannot find the host of '{url}': {why}");
            if why.kind() == io::ErrorKind::InvalidInput { Error::usage(text) } else { Error::run(text) }
        })?;
        let found: Vec<SocketAddr> = found.take(ADDRESSES_MAX).collect();
        let Some(first) = found.first() else {
            return Err(Error::run(format!("cannot find the host of '{url}': it has no address")));
        };
        let may_be_loaded = |address: &SocketAddr| address.ip().is_loopback() || allow_remote;
        let loaded: Vec<SocketAddr> = found.iter().copied().filter(may_be_loaded).collect();
        let Some(address) = first_that_accepts(&loaded) else {
            return Err(Error::usage(format!(
                "will not load {first}: it is not this machine; give --allow-remote if it is yours to load"
            )));
        };
        Ok(Self { address, host: host.to_owned(), is_https, base: base.trim_end_matches('/').to_owned() })
    }
}

impl Target {
    /// Whether a scheme and an authority in lower case are this server's, which must have no base: URLs have their whole path.
    pub fn is_server(&self, server: &str) -> bool {
        let (scheme, port) = if self.is_https { ("https://", ":443") } else { ("http://", ":80") };
        let with_port = |authority: &str| match authority.rsplit_once(':') {
            Some((_, rest)) if !rest.contains(']') => authority.to_owned(),
            _ => authority.to_owned() + port,
        };
        let is_same = |authority: &str| with_port(authority) == with_port(&self.host.to_ascii_lowercase());
        self.base.is_empty() && server.strip_prefix(scheme).is_some_and(is_same)
    }
}

/// The first of several addresses that accepts a connection, or else the first.
fn first_that_accepts(addresses: &[SocketAddr]) -> Option<SocketAddr> {
    let accepts = |address: &&SocketAddr| TcpStream::connect_timeout(address, CONNECT_PATIENCE).is_ok();
    match addresses {
        [] | [_] => addresses.first().copied(),
        [first, ..] => addresses.iter().find(accepts).or(Some(first)).copied(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn of_several_addresses_it_takes_one_that_accepts() {
        let (open, closed) =
            (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let [open_at, closed_at] = [&open, &closed].map(|listener| listener.local_addr().unwrap());
        drop(closed);
        assert_eq!(first_that_accepts(&[closed_at, open_at]), Some(open_at));
        assert_eq!(first_that_accepts(&[closed_at]), Some(closed_at));
        drop(open);
        assert_eq!(first_that_accepts(&[closed_at, open_at]), Some(closed_at));
        assert_eq!(first_that_accepts(&[]), None);
    }

    #[test]
    fn takes_urls_apart() {
        let plain = Target::parse("http://127.0.0.1:8080", false).unwrap();
        assert_eq!(plain.address, "127.0.0.1:8080".parse().unwrap());
        assert_eq!((plain.host.as_str(), plain.base.as_str()), ("127.0.0.1:8080", ""));
        let based = Target::parse("http://[::1]/set/", false).unwrap();
        assert_eq!(based.address, "[::1]:80".parse().unwrap());
        assert_eq!(based.base, "/set");
        let secure = Target::parse("https://127.0.0.1/set", false).unwrap();
        assert_eq!((secure.address, secure.is_https), ("127.0.0.1:443".parse().unwrap(), true));
        assert!(!plain.is_https);
    }

    #[test]
    fn a_server_has_several_spellings() {
        let is_server = |url: &str, server: &str| Target::parse(url, false).unwrap().is_server(server);
        assert!(is_server("http://LOCALHOST", "http://localhost:80"));
        assert!(is_server("http://[::1]:80/", "http://[::1]"));
        assert!(is_server("https://127.0.0.1:443", "https://127.0.0.1"));
        for (url, server) in [
            ("http://127.0.0.1:81", "http://127.0.0.1"),
            ("http://127.0.0.1:443", "https://127.0.0.1"),
            ("http://127.0.0.1", "http://127.0.0.2"),
            ("http://127.0.0.1/base", "http://127.0.0.1"),
        ] {
            assert!(!is_server(url, server), "{url} {server}");
        }
    }

    #[test]
    fn refuses_other_schemes_and_other_machines() {
        for url in [
            "http://127.0.0.1:99999/",
            "ftp://127.0.0.1/",
            "https://192.0.2.1/",
            "127.0.0.1:80",
            "http://",
            "http:///x",
            "http://192.0.2.1:80/",
        ] {
            assert_eq!(Target::parse(url, false).unwrap_err().exit_code(), 2, "{url}");
        }
        assert!(Target::parse("http://192.0.2.1:80/", true).is_ok());
    }
}
