//! The server that a command drives: its URL taken apart, and the rule that keeps load at home.
//!
//! The commands that generate load call it before anything else; it sends nothing itself.

use std::net::{SocketAddr, ToSocketAddrs};

use crate::error::{Error, Result};

/// A server to drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Where to connect.
    pub address: SocketAddr,
    /// The value of the `Host` field.
    pub host: String,
    /// What stands before each path: empty, or `/…` without a slash at its end.
    pub base: String,
}

impl Target {
    /// Takes `http://HOST[:PORT][/BASE]` apart and looks HOST up.
    ///
    /// Errors: usage, for another scheme or a host that is not this machine unless
    /// `allow_remote`; run, for a name that can't be resolved.
    pub fn parse(url: &str, allow_remote: bool) -> Result<Self> {
        let Some(rest) = url.strip_prefix("http://") else {
            return Err(Error::usage(format!("cannot drive '{url}': the URL must start with http://")));
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
        let with_port = if ends_in_port { host.to_owned() } else { format!("{host}:80") };
        let mut found = with_port
            .to_socket_addrs()
            .map_err(|why| Error::run(format!("cannot find the host of '{url}': {why}")))?;
        let Some(address) = found.next() else {
            return Err(Error::run(format!("cannot find the host of '{url}': it has no address")));
        };
        if !address.ip().is_loopback() && !allow_remote {
            return Err(Error::usage(format!(
                "will not load {address}: it is not this machine; give --allow-remote if it is yours to load"
            )));
        }
        Ok(Self { address, host: host.to_owned(), base: base.trim_end_matches('/').to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_urls_apart() {
        let plain = Target::parse("http://127.0.0.1:8080", false).unwrap();
        assert_eq!(plain.address, "127.0.0.1:8080".parse().unwrap());
        assert_eq!((plain.host.as_str(), plain.base.as_str()), ("127.0.0.1:8080", ""));
        let based = Target::parse("http://[::1]/set/", false).unwrap();
        assert_eq!(based.address, "[::1]:80".parse().unwrap());
        assert_eq!(based.base, "/set");
    }

    #[test]
    fn refuses_other_schemes_and_other_machines() {
        for url in ["https://127.0.0.1/", "127.0.0.1:80", "http://", "http:///x", "http://192.0.2.1:80/"] {
            assert_eq!(Target::parse(url, false).unwrap_err().exit_code(), 2, "{url}");
        }
        assert!(Target::parse("http://192.0.2.1:80/", true).is_ok());
    }
}
