//! The client that proxies name in a request: `X-Forwarded-For` and `X-Forwarded-Proto`, or `Forwarded` (RFC 7239).
//!
//! Called by the engine for requests of proxies that the operator trusts. It must not trust any other: a client can send these
//! fields too.

use std::net::{IpAddr, SocketAddr};

use crate::client;
use crate::hop::{Field, elements};
use crate::request::line::split_host;

/// The fields in which proxies name the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyField {
    /// `X-Forwarded-For` and `X-Forwarded-Proto`.
    #[default]
    XForwarded,
    /// `Forwarded`.
    Forwarded,
}

/// The client that proxies name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamedClient {
    /// Its address; the port is 0 if no proxy tells it.
    pub address: Option<SocketAddr>,
    /// Whether its request came over HTTPS.
    pub is_https: Option<bool>,
}

/// The client of a request that a trusted proxy has sent with these fields.
///
/// Each proxy appends the address that it got the request from. So the last address that is not that of a trusted proxy is the
/// client's; what is before it, anyone can have written.
pub fn named_client(
    fields: &[Field<'_>],
    by: ProxyField,
    is_trusted: impl Fn(IpAddr) -> bool,
) -> NamedClient {
    let hops: Vec<Hop<'_>> = match by {
        ProxyField::XForwarded => list(fields, b"x-forwarded-for")
            .map(|node| Hop { node: Some(node), proto: None, host: None })
            .collect(),
        ProxyField::Forwarded => forwarded(fields),
    };
    let mut client = NamedClient::default();
    for hop in hops.iter().rev() {
        let Some(address) = hop.node.and_then(address) else { break };
        client = NamedClient {
            address: Some(address),
            is_https: hop.proto.and_then(is_https).or(client.is_https),
        };
        if !is_trusted(address.ip()) {
            break;
        }
    }
    if by == ProxyField::XForwarded {
        client.is_https = list(fields, b"x-forwarded-proto").last().and_then(is_https);
    }
    client
}

/// The host that proxies name as that of the client's request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamedHost<'b> {
    /// `host[:port]`; empty if no proxy names a valid one.
    pub authority: &'b [u8],
    /// The port, if a field of its own names it.
    port: Option<u16>,
}

impl<'b> NamedHost<'b> {
    /// The host without its port; None if none is named.
    pub(crate) fn host(&self) -> Option<&'b [u8]> {
        split_host(self.authority).ok().filter(|host| !host.is_empty())
    }

    /// The port that the client has reached, if it is named.
    pub(crate) fn port(&self) -> Option<u16> {
        let behind = &self.authority[self.host().map_or(0, <[u8]>::len)..];
        let of_host = behind.strip_prefix(b":").and_then(number);
        of_host.or(self.port)
    }
}

/// The host of a request that a trusted proxy has sent with these fields: `X-Forwarded-Host` and `X-Forwarded-Port`, or that of the
/// client's element of `Forwarded`.
pub fn named_host<'b>(
    fields: &[Field<'b>],
    by: ProxyField,
    is_trusted: impl Fn(IpAddr) -> bool,
) -> NamedHost<'b> {
    let (host, port) = match by {
        ProxyField::XForwarded => (
            list(fields, b"x-forwarded-host").last(),
            list(fields, b"x-forwarded-port").last().and_then(number),
        ),
        ProxyField::Forwarded => {
            let hops = forwarded(fields);
            let is_proxy =
                |hop: &&Hop<'_>| hop.node.and_then(address).is_some_and(|from| is_trusted(from.ip()));
            let proxies = hops.iter().rev().take_while(is_proxy).count();
            let client = hops.iter().rev().nth(proxies).or(hops.first());
            (client.and_then(|hop| hop.host), None)
        }
    };
    let is_valid = |host: &&[u8]| split_host(host).is_ok_and(|name| !name.is_empty());
    NamedHost { authority: host.filter(is_valid).unwrap_or_default(), port }
}

/// A port.
fn number(text: &[u8]) -> Option<u16> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The address, the scheme and the host from which and for which a proxy got a request.
struct Hop<'b> {
    node: Option<&'b [u8]>,
    proto: Option<&'b [u8]>,
    host: Option<&'b [u8]>,
}

/// The elements of `Forwarded`.
fn forwarded<'b>(fields: &[Field<'b>]) -> Vec<Hop<'b>> {
    let values = fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case(b"forwarded"));
    values.flat_map(|(_, value)| unquoted_parts(value, b',')).map(hop).collect()
}

/// The elements of all fields of a name.
fn list<'f, 'b: 'f>(fields: &'f [Field<'b>], wanted: &'static [u8]) -> impl Iterator<Item = &'b [u8]> + 'f {
    let is_wanted = move |field: &&Field<'b>| field.0.eq_ignore_ascii_case(wanted);
    fields.iter().filter(is_wanted).flat_map(|(_, value)| elements(value))
}

/// The parts of a value between marks outside of quotes. It is read from its end, which the last proxy has written: an open
/// quote before that changes nothing in it.
fn unquoted_parts(value: &[u8], mark: u8) -> Vec<&[u8]> {
    let (mut parts, mut end, mut is_quoted) = (Vec::new(), value.len(), false);
    for (at, byte) in value.iter().enumerate().rev() {
        // Only at quotes: no backslash is counted twice, however many there are.
        let escapes = || value[..at].iter().rev().take_while(|byte| **byte == b'\\').count();
        if *byte == b'"' && escapes() % 2 == 0 {
            is_quoted = !is_quoted;
        } else if *byte == mark && !is_quoted {
            parts.push(value[at + 1..end].trim_ascii());
            end = at;
        }
    }
    parts.push(value[..end].trim_ascii());
    parts.reverse();
    parts
}

/// An element of `Forwarded`. One that names the same twice names nothing: a proxy does not write that.
fn hop(element: &[u8]) -> Hop<'_> {
    let (mut nodes, mut protos, mut hosts) = (Vec::new(), Vec::new(), Vec::new());
    for pair in unquoted_parts(element, b';') {
        let Some(at) = pair.iter().position(|byte| *byte == b'=') else { continue };
        let (name, value) = (&pair[..at], &pair[at + 1..]);
        let value = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
        if name.eq_ignore_ascii_case(b"for") {
            nodes.push(value);
        } else if name.eq_ignore_ascii_case(b"proto") {
            protos.push(value);
        } else if name.eq_ignore_ascii_case(b"host") {
            hosts.push(value);
        }
    }
    let only = |values: &[_]| if let [value] = values { Some(*value) } else { None };
    Hop { node: only(&nodes), proto: only(&protos), host: only(&hosts) }
}

/// An address with or without a port; one of IPv6 can have brackets.
fn address(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let without_port = || inner.unwrap_or(text).parse().map(|ip| SocketAddr::new(ip, 0));
    let address = text.parse().or_else(|_| without_port()).ok();
    address.filter(|address: &SocketAddr| !client::is_unix(address.ip()))
}

fn is_https(scheme: &[u8]) -> Option<bool> {
    let is = |name: &[u8]| scheme.eq_ignore_ascii_case(name);
    if is(b"https") { Some(true) } else { is(b"http").then_some(false) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(fields: &[(&str, &str)], by: ProxyField) -> (Option<String>, Option<bool>) {
        let fields: Vec<Field<'_>> =
            fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
        let is_trusted = |ip: IpAddr| ip.to_string().starts_with("10.");
        let NamedClient { address, is_https } = named_client(&fields, by, is_trusted);
        (address.map(|address| address.to_string()), is_https)
    }

    #[test]
    fn the_last_address_that_is_no_proxy_is_the_client() {
        let of = |value| client(&[("X-Forwarded-For", value)], ProxyField::XForwarded).0;
        for (value, expected) in [
            ("192.0.2.1", Some("192.0.2.1:0")),
            ("1.1.1.1, 192.0.2.1", Some("192.0.2.1:0")),
            ("1.1.1.1, 192.0.2.1, 10.0.0.2", Some("192.0.2.1:0")),
            ("10.0.0.1, 10.0.0.2", Some("10.0.0.1:0")),
            ("192.0.2.1:4711, 10.0.0.2", Some("192.0.2.1:4711")),
            ("2001:db8::1", Some("[2001:db8::1]:0")),
            ("[2001:db8::1]", Some("[2001:db8::1]:0")),
            ("[2001:db8::1]:80", Some("[2001:db8::1]:80")),
            ("192.0.2.1, evil, 10.0.0.2", Some("10.0.0.2:0")),
            ("192.0.2.1, evil", None),
            ("192.0.2.1,", None),
            // No client has such an address, so that none passes for that of a Unix socket.
            ("192.0.2.1, 0.0.0.0", None),
            ("192.0.2.1, [::]:80, 10.0.0.2", Some("10.0.0.2:0")),
            ("192.0.2.1, ::ffff:0.0.0.0", None),
            ("unix:", None),
            ("", None),
        ] {
            assert_eq!(of(value).as_deref(), expected, "{value}");
        }
        let lines = [("x-forwarded-for", "1.1.1.1"), ("X-Forwarded-For", "192.0.2.1")];
        assert_eq!(client(&lines, ProxyField::XForwarded).0.as_deref(), Some("192.0.2.1:0"));
        assert_eq!(client(&lines, ProxyField::Forwarded), (None, None), "another field does not count");
    }

    #[test]
    fn the_scheme_is_that_of_the_last_proxy_that_tells_it() {
        let of = |value| client(&[("X-Forwarded-Proto", value)], ProxyField::XForwarded).1;
        assert_eq!(
            ["https", "HTTP", "http, https", "wss", ""].map(of),
            [Some(true), Some(false), Some(true), None, None]
        );
    }

    #[test]
    fn forwarded_names_both() {
        let of = |value: &str| client(&[("Forwarded", value)], ProxyField::Forwarded);
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(of("for=192.0.2.1;proto=https;by=10.0.0.9"), (some("192.0.2.1:0"), Some(true)));
        assert_eq!(of("For=\"[2001:db8::1]:80\"; Proto=http"), (some("[2001:db8::1]:80"), Some(false)));
        assert_eq!(
            of("for=1.1.1.1, for=192.0.2.1;proto=https, for=10.0.0.2"),
            (some("192.0.2.1:0"), Some(true))
        );
        assert_eq!(of("for=1.1.1.1, for=_hidden, for=10.0.0.2"), (some("10.0.0.2:0"), None));
        assert_eq!(of("for=unknown"), (None, None));
        assert_eq!(of("for=\"1.1.1.1,192.0.2.1\""), (None, None));
        let real = || (some("192.0.2.1:0"), None);
        for host in ["x;for=1.1.1.1;a=", "x,for=1.1.1.1;a=", "x;for=1.1.1.1", "x\\\";for=1.1.1.1;a="] {
            assert_eq!(of(&format!("for=192.0.2.1;host=\"{host}\"")), real(), "{host}");
        }
        for first in ["for=\"", "for=1.1.1.1;host=\"", "\\", "\"\\\""] {
            assert_eq!(of(&format!("{first}, for=192.0.2.1;host=\"a\"")), real(), "{first}");
        }
        assert_eq!(of("for=1.1.1.1;for=192.0.2.1"), (None, None));
        assert_eq!(of("proto=https"), (None, None));
    }
}
