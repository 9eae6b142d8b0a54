//! The header with which a proxy introduces the client of a connection, before any other byte: the PROXY protocol of HAProxy,
//! versions 1 and 2 ([proxy-protocol.txt](https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt)).
//!
//! Called by the engine for connections of proxies that the operator names. It must not trust any other.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::client;

/// The first bytes of version 2.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The first bytes of version 1.
const WORD: &[u8] = b"PROXY ";
/// Length of the shortest header, `PROXY UNKNOWN\r\n`.
const SHORTEST_BYTES: usize = 15;
/// Length of the longest header of version 1.
const LINE_BYTES_MAX: usize = 107;
/// Length of the fixed part of version 2: signature, version and command, family, and the length of the rest.
const FIXED_BYTES: usize = 16;
/// The longest rest of version 2 that is accepted.
const REST_BYTES_MAX: usize = 4096;
/// The type of the value about the client's encryption, and its flag for a client that uses some.
const TYPE_SSL: u8 = 0x20;
const CLIENT_SSL: u8 = 0x01;

/// The client of a connection, as its proxy introduces it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProxyHeader {
    /// The addresses of the client and of the server that it has reached. None for a connection of the proxy itself, or if the
    /// proxy does not know them.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
    /// Whether the connection between client and proxy is encrypted.
    pub is_encrypted: bool,
}

/// The result of reading the beginning of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The header has at least this many bytes more. A caller that takes no others leaves what follows in the socket.
    Needs(usize),
    /// The header is complete.
    Done(ProxyHeader),
    /// This is no such header.
    Bad,
}

/// Reads the bytes of a header so far.
pub fn read(header: &[u8]) -> Progress {
    let known = header.len().min(WORD.len());
    let may_be = |start: &[u8]| header[..known] == start[..known];
    if !may_be(WORD) && !may_be(SIGNATURE) {
        return Progress::Bad;
    }
    match SHORTEST_BYTES.checked_sub(header.len()) {
        Some(missing @ 1..) => Progress::Needs(missing),
        _ if header.starts_with(WORD) => read_line(header),
        _ if header.starts_with(SIGNATURE) => read_binary(header),
        _ => Progress::Bad,
    }
}

/// Reads version 1: a line of ASCII.
fn read_line(header: &[u8]) -> Progress {
    let Some(line) = header.strip_suffix(b"\r\n") else {
        // The line ends with two bytes.
        let is_ending = header.ends_with(b"\r");
        return match LINE_BYTES_MAX.checked_sub(header.len()) {
            Some(1) if is_ending => Progress::Needs(1),
            Some(2..) => Progress::Needs(if is_ending { 1 } else { 2 }),
            _ => Progress::Bad,
        };
    };
    if line.iter().any(|byte| !(b' '..=b'~').contains(byte)) {
        return Progress::Bad;
    }
    let Ok(text) = std::str::from_utf8(&line[WORD.len()..]) else { return Progress::Bad };
    let words: Vec<&str> = text.split(' ').collect();
    let address = |ip: &str, port: &str| Some(SocketAddr::new(ip.parse().ok()?, port.parse().ok()?));
    match words[..] {
        ["UNKNOWN", ..] => Progress::Done(ProxyHeader::default()),
        [family @ ("TCP4" | "TCP6"), from, to, from_port, to_port] => {
            let addresses = address(from, from_port).zip(address(to, to_port));
            let fits = |address: SocketAddr| address.is_ipv4() == (family == "TCP4");
            match addresses.filter(|(from, to)| fits(*from) && fits(*to)) {
                Some(_) => {
                    Progress::Done(ProxyHeader { addresses: of_client(addresses), is_encrypted: false })
                }
                None => Progress::Bad,
            }
        }
        _ => Progress::Bad,
    }
}

/// Reads version 2.
fn read_binary(header: &[u8]) -> Progress {
    let Some((fixed, rest)) = header.split_at_checked(FIXED_BYTES) else {
        return Progress::Needs(FIXED_BYTES - header.len());
    };
    let (version_and_command, family) = (fixed[12], fixed[13]);
    let rest_bytes = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    match rest_bytes.checked_sub(rest.len()) {
        _ if rest_bytes > REST_BYTES_MAX => return Progress::Bad,
        Some(missing @ 1..) => return Progress::Needs(missing),
        _ => {}
    }
    let ip4 = |at: usize| {
        let bytes: [u8; 4] = rest.get(at..at + 4)?.try_into().ok()?;
        Some(IpAddr::V4(Ipv4Addr::from(bytes)))
    };
    let ip6 = |at: usize| {
        let bytes: [u8; 16] = rest.get(at..at + 16)?.try_into().ok()?;
        Some(IpAddr::V6(Ipv6Addr::from(bytes)))
    };
    let port = |at: usize| Some(u16::from_be_bytes(rest.get(at..at + 2)?.try_into().ok()?));
    // The family, then the transport: 1 is a stream.
    let (from, to, address_bytes) = match (version_and_command, family) {
        (0x20, _) | (0x21, 0x00) => return Progress::Done(ProxyHeader::default()),
        (0x21, 0x11) => (ip4(0).zip(port(8)), ip4(4).zip(port(10)), 12),
        (0x21, 0x21) => (ip6(0).zip(port(32)), ip6(16).zip(port(34)), 36),
        _ => return Progress::Bad,
    };
    let Some((from, to)) = from.zip(to) else { return Progress::Bad };
    let addresses = of_client(Some((SocketAddr::from(from), SocketAddr::from(to))));
    Progress::Done(ProxyHeader { addresses, is_encrypted: is_encrypted(&rest[address_bytes..]) })
}

/// The addresses, if the first one can be that of a client.
fn of_client(addresses: Option<(SocketAddr, SocketAddr)>) -> Option<(SocketAddr, SocketAddr)> {
    addresses.filter(|(from, _)| !client::is_unix(from.ip()))
}

/// Whether the values behind the addresses tell that the client uses encryption.
fn is_encrypted(values: &[u8]) -> bool {
    let mut values = values;
    while let [kind, high, low, rest @ ..] = values {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let Some((value, others)) = rest.split_at_checked(length) else { return false };
        if *kind == TYPE_SSL {
            return value.first().is_some_and(|flags| flags & CLIENT_SSL != 0);
        }
        values = others;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads a header as a caller does that takes only the bytes that it must have; returns how many it took.
    fn read_all(bytes: &[u8]) -> (Progress, usize) {
        let mut taken = 0;
        loop {
            match read(&bytes[..taken]) {
                Progress::Needs(more) if taken + more <= bytes.len() => taken += more,
                progress => return (progress, taken),
            }
        }
    }

    fn introduced(bytes: &[u8]) -> Option<(Option<String>, bool)> {
        let (progress, taken) = read_all(&[bytes, b"GET / HTTP/1.1"].concat());
        let Progress::Done(header) = progress else { return None };
        assert_eq!(taken, bytes.len(), "no byte of what follows is taken");
        let text = header.addresses.map(|(from, to)| format!("{from} to {to}"));
        Some((text, header.is_encrypted))
    }

    /// A header of version 2.
    fn binary(version_and_command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        [SIGNATURE, &[version_and_command, family], &(rest.len() as u16).to_be_bytes(), rest].concat()
    }

    #[test]
    fn lines_are_read() {
        let some = |text: &str| Some((Some(text.to_owned()), false));
        assert_eq!(
            introduced(b"PROXY TCP4 192.0.2.1 198.51.100.2 4711 443\r\n"),
            some("192.0.2.1:4711 to 198.51.100.2:443")
        );
        assert_eq!(
            introduced(b"PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n"),
            some("[2001:db8::1]:1 to [2001:db8::2]:2")
        );
        assert_eq!(introduced(b"PROXY UNKNOWN\r\n"), Some((None, false)));
        assert_eq!(introduced(b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n"), Some((None, false)));
        let longest = format!("PROXY UNKNOWN {}\r\n", "x".repeat(LINE_BYTES_MAX - 16));
        assert_eq!(introduced(longest.as_bytes()), Some((None, false)));
    }

    #[test]
    fn binary_headers_are_read() {
        let four = [192, 0, 2, 1, 198, 51, 100, 2, 0x12, 0x67, 0x01, 0xbb];
        let text = Some("192.0.2.1:4711 to 198.51.100.2:443".to_owned());
        assert_eq!(introduced(&binary(0x21, 0x11, &four)), Some((text.clone(), false)));
        let with_values = [&four[..], &[4, 0, 1, 9, 0x20, 0, 5, 1, 0, 0, 0, 0]].concat();
        assert_eq!(introduced(&binary(0x21, 0x11, &with_values)), Some((text.clone(), true)));
        let plain = [&four[..], &[0x20, 0, 5, 0, 0, 0, 0, 0]].concat();
        assert_eq!(introduced(&binary(0x21, 0x11, &plain)), Some((text.clone(), false)));
        let cut = [&four[..], &[0x20, 0, 50, 1]].concat();
        assert_eq!(introduced(&binary(0x21, 0x11, &cut)), Some((text, false)));
        let mut six = [0; 36];
        (six[15], six[31], six[33], six[35]) = (1, 2, 7, 8);
        assert_eq!(introduced(&binary(0x21, 0x21, &six)), Some((Some("[::1]:7 to [::2]:8".into()), false)));
        assert_eq!(introduced(&binary(0x20, 0, &[])), Some((None, false)), "the proxy itself");
        assert_eq!(introduced(&binary(0x21, 0, &[1, 2, 3])), Some((None, false)), "an unknown family");
    }

    #[test]
    fn others_are_refused() {
        for bad in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 random",
            b"PROXY TCP4 192.0.2.1 198.51.100.2 4711\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.2 4711 443 1\r\n",
            b"PROXY TCP4 ::1 ::2 4711 443\r\n",
            b"PROXY TCP6 192.0.2.1 198.51.100.2 4711 443\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.2 4711 65536\r\n",
            b"PROXY UDP4 192.0.2.1 198.51.100.2 4711 443\r\n",
            b"PROXY UNKNOWN\n GET / \r\n",
            b"PROXY UNKNOWN \r \r\n",
            &[b"PROXY UNKNOWN ", &[b'x'; 200][..], b"\r\n"].concat(),
            &binary(0x11, 0x11, &[0; 12]),
            &binary(0x22, 0x11, &[0; 12]),
            &binary(0x21, 0x12, &[0; 12]),
            &binary(0x21, 0x11, &[0; 11]),
            &binary(0x21, 0x21, &[0; 35]),
            &binary(0x21, 0x11, &[0; REST_BYTES_MAX + 1]),
        ] {
            assert_eq!(read_all(bad).0, Progress::Bad, "{}", bad.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic_or_take_for_ever(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0..3_u8) {
            let start = [&b""[..], WORD, SIGNATURE][usize::from(kind)];
            let bytes = [start, &bytes].concat();
            let (progress, taken) = read_all(&bytes);
            prop_assert!(taken <= bytes.len());
            prop_assert!(!matches!(progress, Progress::Needs(0)));
        }
    }
}
