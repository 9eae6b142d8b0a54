//! The client that proxies name in a request: `X-Forwarded-For` and `X-Forwarded-Proto`, or `Forwarded` (RFC 7239).
//!
//! Called by the engine for requests of proxies that the operator trusts. It must not trust any other: a client can send these
//! fields too.

use std::net::{IpAddr, SocketAddr};

use crate::hop::{Field, elements};

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
        ProxyField::XForwarded => {
            list(fields, b"x-forwarded-for").map(|node| Hop { node: Some(node), proto: None }).collect()
        }
        ProxyField::Forwarded => list(fields, b"forwarded").map(hop).collect(),
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

/// The address and the scheme from which a proxy got a request.
struct Hop<'b> {
    node: Option<&'b [u8]>,
    proto: Option<&'b [u8]>,
}

/// The elements of all fields of a name.
fn list<'f, 'b: 'f>(fields: &'f [Field<'b>], wanted: &'static [u8]) -> impl Iterator<Item = &'b [u8]> + 'f {
    let is_wanted = move |field: &&Field<'b>| field.0.eq_ignore_ascii_case(wanted);
    fields.iter().filter(is_wanted).flat_map(|(_, value)| elements(value))
}

/// An element of `Forwarded`. A quoted comma, which no address has, would end it early, so that it names no client.
fn hop(element: &[u8]) -> Hop<'_> {
    let mut hop = Hop { node: None, proto: None };
    for pair in element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii) {
        let Some(at) = pair.iter().position(|byte| *byte == b'=') else { continue };
        let (name, value) = (&pair[..at], &pair[at + 1..]);
        let value = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
        if name.eq_ignore_ascii_case(b"for") {
            hop.node = Some(value);
        } else if name.eq_ignore_ascii_case(b"proto") {
            hop.proto = Some(value);
        }
    }
    hop
}

/// An address with or without a port; one of IPv6 can have brackets.
fn address(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    Some(SocketAddr::new(inner.unwrap_or(text).parse().ok()?, 0))
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
        let of = |value| client(&[("Forwarded", value)], ProxyField::Forwarded);
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
        assert_eq!(of("proto=https"), (None, None));
    }
}
