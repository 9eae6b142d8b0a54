//! Parses the request line and the host (RFC 9112 section 3, RFC 3986 section 3.2).
//!
//! Called by `request` and `fields`, and by `forward` for the authority of a target. It splits the path off but must not decide what it means.

use std::net::Ipv6Addr;

use memchr::{memchr, memchr2};

use super::{BadHead, Method, Version};

/// The parts of a request line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestLine<'b> {
    pub(crate) line: &'b [u8],
    pub(crate) method: Method,
    pub(crate) version: Version,
    pub(crate) path: &'b [u8],
    pub(crate) query: Option<&'b [u8]>,
    /// The host of an absolute-form target.
    pub(crate) target_host: Option<&'b [u8]>,
}

/// The parts of a request target: path, query, host.
type Target<'b> = (&'b [u8], Option<&'b [u8]>, Option<&'b [u8]>);

const BAD_METHOD: BadHead = BadHead::Malformed("The request method is malformed");
const BAD_TARGET: BadHead = BadHead::Malformed("The request target is malformed");
const BAD_TARGET_BYTE: BadHead =
    BadHead::Malformed("The request target has a byte that must be percent-encoded");
const BAD_HOST: BadHead = BadHead::Malformed("The host is malformed");
const BAD_VERSION: BadHead = BadHead::Malformed("The HTTP version is malformed");
/// The length of ` HTTP/1.1`.
const VERSION_BYTES: usize = 9;

impl<'b> RequestLine<'b> {
    /// Parses `line`, given without its LF but with its CR.
    pub(crate) fn parse(line: &'b [u8], target_bytes_max: usize) -> Result<Self, BadHead> {
        let Some(line) = line.strip_suffix(b"\r") else {
            return Err(BadHead::Malformed("The request line does not end in CRLF"));
        };
        let (method, rest) = match line.strip_prefix(b"GET ") {
            Some(rest) => (Method::Get, rest),
            None => split_method(line)?,
        };
        let Some((target, version)) = rest.split_last_chunk::<VERSION_BYTES>() else {
            return Err(BadHead::Malformed("The request line has no HTTP version"));
        };
        if target.len() > target_bytes_max {
            return Err(BadHead::TargetTooLong);
        }
        // Parsed before the target, so that the preface of HTTP/2 ("PRI * HTTP/2.0", RFC 9113 section 3.4)
        // gets an answer that names the real problem.
        let version = parse_version(version)?;
        check_target_bytes(target)?;
        let (path, query, target_host) = split_target(line, method, target)?;
        Ok(Self { line, method, version, path, query, target_host })
    }
}

impl<'b> RequestLine<'b> {
    /// Reads the line of a request of HTTP/2: a method of this length, a space, a path or `*`, and the version.
    pub(crate) fn of_h2(
        line: &'b [u8],
        method_bytes: usize,
        target_bytes_max: usize,
    ) -> Result<Self, BadHead> {
        let (method, rest) = split_method(line)?;
        let target = &rest[..rest.len() - VERSION_BYTES];
        debug_assert_eq!(line.len(), method_bytes + 1 + target.len() + VERSION_BYTES);
        if target.len() > target_bytes_max {
            return Err(BadHead::TargetTooLong);
        }
        check_target_bytes(target)?;
        let (path, query, _) = split_target(line, method, target)?;
        Ok(Self { line, method, version: Version::Http2, path, query, target_host: None })
    }
}

/// Checks a request line whose LF has not come yet.
pub(crate) fn check_partial(bytes: &[u8], target_bytes_max: usize) -> Result<(), BadHead> {
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    let Some(space) = memchr(b' ', bytes) else {
        return if bytes.iter().all(|&byte| is_token_byte(byte)) { Ok(()) } else { Err(BAD_METHOD) };
    };
    let (_, rest) = split_method(&bytes[..=space])?;
    debug_assert!(rest.is_empty());
    let rest = &bytes[space + 1..];
    let target = &rest[..memchr(b' ', rest).unwrap_or(rest.len())];
    if target.len() > target_bytes_max {
        return Err(BadHead::TargetTooLong);
    }
    check_target_bytes(target)?;
    // The bytes after the target are a version, which is checked once it is complete.
    if rest[target.len()..].iter().all(|byte| matches!(byte, b' '..=b'~')) {
        Ok(())
    } else {
        Err(BAD_VERSION)
    }
}

fn split_method(line: &[u8]) -> Result<(Method, &[u8]), BadHead> {
    let space = memchr(b' ', line).ok_or(BAD_METHOD)?;
    let (token, rest) = (&line[..space], &line[space + 1..]);
    let method = match token {
        b"GET" => Method::Get,
        b"HEAD" => Method::Head,
        b"OPTIONS" => Method::Options,
        b"POST" | b"PUT" | b"DELETE" | b"PATCH" | b"TRACE" | b"CONNECT" => Method::Known,
        [] => return Err(BAD_METHOD),
        _ if token.iter().all(|&byte| is_token_byte(byte)) => Method::Unknown,
        _ => return Err(BAD_METHOD),
    };
    Ok((method, rest))
}

/// `tchar` of RFC 9110 section 5.6.2.
pub(crate) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// RFC 9112 section 2.3: `HTTP/` in capitals, a digit, a dot, a digit.
fn parse_version(version: &[u8; VERSION_BYTES]) -> Result<Version, BadHead> {
    match version {
        b" HTTP/1.1" => Ok(Version::Http11),
        b" HTTP/1.0" => Ok(Version::Http10),
        [b' ', b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            match major {
                // RFC 9110 section 2.5: a higher minor version counts as the highest known one.
                b'1' => Ok(Version::Http11),
                _ => Err(BadHead::UnsupportedVersion),
            }
        }
        _ => Err(BAD_VERSION),
    }
}

/// Refuses bytes that RFC 3986 requires to be encoded (space, controls, non-ASCII), and fragments, which RFC
/// 9112 section 3.2 allows in no form of target.
fn check_target_bytes(target: &[u8]) -> Result<(), BadHead> {
    // Without an early exit, so that the compiler can process many bytes at a time.
    let bad = target.iter().fold(false, |bad, &byte| bad | !matches!(byte, b'!'..=b'~') | (byte == b'#'));
    if bad { Err(BAD_TARGET_BYTE) } else { Ok(()) }
}

/// Distinguishes the four forms of target (RFC 9112 section 3.2).
fn split_target<'b>(line: &[u8], method: Method, target: &'b [u8]) -> Result<Target<'b>, BadHead> {
    match target {
        [b'/', ..] => {
            let (path, query) = split_query(target);
            Ok((path, query, None))
        }
        [] => Err(BAD_TARGET),
        b"*" if method == Method::Options => Ok((target, None, None)),
        _ => match split_absolute(target) {
            Some(absolute) => absolute,
            // The authority-form of CONNECT. The request gets 405 whatever the target is; a 400 would hide
            // that.
            None if line.starts_with(b"CONNECT ") => Ok((b"/", None, None)),
            None => Err(BAD_TARGET),
        },
    }
}

fn split_query(path: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr(b'?', path) {
        Some(at) => (&path[..at], Some(&path[at + 1..])),
        None => (path, None),
    }
}

/// Splits an absolute-form target into its authority and the rest; None if it has another form.
pub(crate) fn split_authority(target: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = [b"http://".as_slice(), b"https://"].into_iter().find_map(|scheme| {
        let (front, rest) = target.split_at_checked(scheme.len())?;
        front.eq_ignore_ascii_case(scheme).then_some(rest)
    })?;
    Some(rest.split_at(memchr2(b'/', b'?', rest).unwrap_or(rest.len())))
}

/// Parses an absolute-form target; None if it has another form.
fn split_absolute(target: &[u8]) -> Option<Result<Target<'_>, BadHead>> {
    let (authority, after) = split_authority(target)?;
    let (path, query) = split_query(after);
    // RFC 9110 section 4.2.3: an empty path is `/`.
    let path = if path.is_empty() { b"/" } else { path };
    Some(match split_host(authority) {
        // RFC 9110 section 4.2.1: an http URI with an empty host must be rejected.
        Ok([]) => Err(BAD_HOST),
        Ok(host) => Ok((path, query, Some(host))),
        Err(bad) => Err(bad),
    })
}

/// The host of `host[:port]` (RFC 3986 section 3.2; userinfo is refused as RFC 9110 section 4.2.4 advises).
pub(crate) fn split_host(authority: &[u8]) -> Result<&[u8], BadHead> {
    let host_len = match authority {
        [b'[', ..] => {
            let end = memchr(b']', authority).ok_or(BAD_HOST)?;
            let literal = std::str::from_utf8(&authority[1..end]).map_err(|_| BAD_HOST)?;
            literal.parse::<Ipv6Addr>().map_err(|_| BAD_HOST)?;
            end + 1
        }
        _ => {
            let end = authority.iter().position(|&byte| !is_host_byte(byte)).unwrap_or(authority.len());
            if authority[..end].contains(&b'%') && !escapes_are_whole(&authority[..end]) {
                return Err(BAD_HOST);
            }
            end
        }
    };
    match &authority[host_len..] {
        [] => Ok(&authority[..host_len]),
        [b':', port @ ..] if is_port(port) => Ok(&authority[..host_len]),
        _ => Err(BAD_HOST),
    }
}

/// The bytes of a `reg-name` (RFC 3986 section 3.2.2): unreserved, sub-delims, and the percent sign of an
/// escape.
const HOST_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let extra = b"-._~!$&'()*+,;=%";
    let mut at = 0;
    while at < extra.len() {
        table[extra[at] as usize] = true;
        at += 1;
    }
    let mut byte = 0;
    while byte < 128 {
        if (byte as u8).is_ascii_alphanumeric() {
            table[byte] = true;
        }
        byte += 1;
    }
    table
};

fn is_host_byte(byte: u8) -> bool {
    HOST_BYTES[byte as usize]
}

fn escapes_are_whole(host: &[u8]) -> bool {
    memchr::memchr_iter(b'%', host).all(|at| {
        matches!(host.get(at + 1..at + 3), Some([a, b]) if a.is_ascii_hexdigit() && b.is_ascii_hexdigit())
    })
}

/// An empty port is allowed (RFC 3986 section 3.2.3).
fn is_port(port: &[u8]) -> bool {
    let mut value: u32 = 0;
    for &byte in port {
        if !byte.is_ascii_digit() {
            return false;
        }
        value = value.saturating_mul(10).saturating_add(u32::from(byte - b'0'));
    }
    value <= u32::from(u16::MAX)
}
