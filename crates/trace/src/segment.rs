//! Packets of a network as begins of requests and answers: IPv4 and IPv6, TCP (RFC 9293), HTTP/1 (RFC 9112).
//!
//! `tap` calls it with what the kernel's filter let through. It trusts nothing of that: what makes no sense is no
//! segment. Pure.

use std::net::{IpAddr, SocketAddr};

/// The longest first line of a request that is kept, bytes.
pub(crate) const LINE_BYTES_MAX: usize = 256;
const TCP: u8 = 6;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) server: SocketAddr,
    pub(crate) client: SocketAddr,
    /// The number of its first byte.
    pub(crate) sequence: u32,
    /// The number of the byte that its sender wants next: what it has received ends before that.
    pub(crate) wanted: u32,
    pub(crate) begins: Begins,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Begins {
    /// A request with this first line, without the version, fit to be printed.
    Request(String),
    /// An answer that is no interim one.
    Answer,
}

impl Segment {
    /// From the header of IP on; of a packet that leaves the server, or one that it receives.
    pub(crate) fn decode(bytes: &[u8], is_outgoing: bool) -> Option<Self> {
        let (from, to, tcp) = addresses(bytes)?;
        let port = |at: usize| Some(u16::from_be_bytes(tcp.get(at..at + 2)?.try_into().ok()?));
        let number = |at: usize| Some(u32::from_be_bytes(tcp.get(at..at + 4)?.try_into().ok()?));
        let (from, to) = (SocketAddr::new(from, port(0)?), SocketAddr::new(to, port(2)?));
        let payload = tcp.get(usize::from(tcp.get(12)? >> 4) * 4..)?;
        let begins = if is_outgoing { answer(payload)? } else { request(payload)? };
        let (server, client) = if is_outgoing { (from, to) } else { (to, from) };
        Some(Self { server, client, sequence: number(4)?, wanted: number(8)?, begins })
    }
}

/// Source, destination and what follows the header of IP.
fn addresses(bytes: &[u8]) -> Option<(IpAddr, IpAddr, &[u8])> {
    match bytes.first()? >> 4 {
        4 if *bytes.get(9)? == TCP => {
            let address = |at| Some(IpAddr::from(<[u8; 4]>::try_from(bytes.get(at..at + 4)?).ok()?));
            Some((address(12)?, address(16)?, bytes.get(usize::from(bytes[0] & 15) * 4..)?))
        }
        6 if *bytes.get(6)? == TCP => {
            let address = |at| Some(IpAddr::from(<[u8; 16]>::try_from(bytes.get(at..at + 16)?).ok()?));
            Some((address(8)?, address(24)?, bytes.get(40..)?))
        }
        _ => None,
    }
}

/// 1xx says that the answer is still to come (RFC 9110, section 15.2).
fn answer(payload: &[u8]) -> Option<Begins> {
    let is_interim = payload.get(8..10) == Some(b" 1");
    (payload.starts_with(b"HTTP/") && !is_interim).then_some(Begins::Answer)
}

fn request(payload: &[u8]) -> Option<Begins> {
    let (line, version) = request_line(payload)?;
    let line = &line[..version.min(LINE_BYTES_MAX)];
    Some(Begins::Request(flash_kit::text::printable(line)))
}

/// The first line of a request, or the begin of it, and where its version stands: at its end if it is cut off before.
pub(crate) fn request_line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let line = bytes.split(|byte| matches!(byte, b'\r' | b'\n')).next()?;
    let is_whole = line.len() < bytes.len();
    let (method, rest) = line.split_at(line.iter().position(|byte| *byte == b' ')?);
    let version = rest.windows(6).rposition(|part| part == b" HTTP/");
    let is_method = (3..=8).contains(&method.len()) && method.iter().all(u8::is_ascii_uppercase);
    let is_request = is_method && (version.is_some() || !is_whole);
    is_request.then_some((line, method.len() + version.unwrap_or(rest.len())))
}

#[cfg(test)]
#[path = "segment_tests.rs"]
mod tests;
