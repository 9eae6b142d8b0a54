//! A reference parser of request heads, written line by line from RFC 9112 and the documentation of
//! `flash_http::request`. Called by `request`. It must not use a parser of Flash.

use std::net::Ipv6Addr;

use flash_http::{Body, HeadLimits, Method, Version};

use crate::text::{elements, field, is_token};

/// The content of a valid head.
pub(crate) struct Expected<'b> {
    pub(crate) head_len: usize,
    pub(crate) line: &'b [u8],
    pub(crate) method: Method,
    pub(crate) version: Version,
    pub(crate) path: &'b [u8],
    pub(crate) query: Option<&'b [u8]>,
    pub(crate) host: &'b [u8],
    pub(crate) keep_alive: bool,
    pub(crate) body: Body,
    pub(crate) expect_continue: bool,
    pub(crate) fields: FieldLines<'b>,
}

/// Names in lower case with their values, in order.
pub(crate) struct FieldLines<'b>(Vec<(Vec<u8>, &'b [u8])>);

impl<'b> FieldLines<'b> {
    /// The values of a field.
    pub(crate) fn all(&self, name: &str) -> Vec<&'b [u8]> {
        self.0.iter().filter(|(found, _)| found == name.as_bytes()).map(|(_, value)| *value).collect()
    }

    /// All values as one list (RFC 9110 section 5.3).
    pub(crate) fn joined(&self, name: &str) -> Option<Vec<u8>> {
        let all = self.all(name);
        (!all.is_empty()).then(|| all.join(&b", "[..]))
    }

    /// The value of a field that occurs exactly once.
    pub(crate) fn once(&self, name: &str) -> Option<&'b [u8]> {
        match self.all(name)[..] {
            [value] => Some(value),
            _ => None,
        }
    }

    fn at_most_once(&self, name: &str) -> Option<Option<&'b [u8]>> {
        (self.all(name).len() < 2).then(|| self.once(name))
    }
}

/// Parses the head at the front of `input`; None if it is incomplete or invalid.
pub(crate) fn expected<'b>(input: &'b [u8], limits: &HeadLimits) -> Option<Expected<'b>> {
    let mut rest = input;
    for _ in 0..2 {
        rest = rest.strip_prefix(b"\r\n").unwrap_or(rest);
    }
    let length = rest.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head_len = input.len() - rest.len() + length + 4;
    if head_len > limits.head_bytes {
        return None;
    }
    let mut lines = lines(&rest[..length])?.into_iter();
    let line = lines.next()?;
    let [method, target, version] = line.split(|&byte| byte == b' ').collect::<Vec<_>>()[..] else {
        return None;
    };
    let version = match version {
        b"HTTP/1.0" => Version::Http10,
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'1'..=b'9'] => Version::Http11,
        _ => return None,
    };
    if !is_token(method)
        || target.is_empty()
        || target.len() > limits.target_bytes
        || !target.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'#')
    {
        return None;
    }
    let (path, query, target_host) = split_target(method, target)?;
    let fields = FieldLines(lines.map(lower_field).collect::<Option<_>>()?);
    if fields.0.len() > limits.fields {
        return None;
    }
    let is_11 = version == Version::Http11;
    let host = match fields.at_most_once("host")? {
        Some(value) => Some(host(value)?),
        None if is_11 => return None,
        None => None,
    };
    let host = target_host.or(host).unwrap_or_default();
    if host.is_empty() && is_11 {
        return None;
    }
    let body = body(&fields, version)?;
    let expectations = fields.joined("expect").unwrap_or_default();
    let expects =
        |wanted: bool| elements(&expectations).any(|e| !e.is_empty() && is_word(e, "100-continue") == wanted);
    if is_11 && expects(false) {
        return None;
    }
    let connection = fields.joined("connection").unwrap_or_default();
    let says = |option| elements(&connection).any(|element| is_word(element, option));
    Some(Expected {
        head_len,
        line,
        method: method_of(method),
        version,
        path,
        query,
        host,
        keep_alive: !says("close") && (is_11 || says("keep-alive")),
        body,
        expect_continue: is_11 && expects(true) && body != Body::None,
        fields,
    })
}

fn is_word(text: &[u8], word: &str) -> bool {
    text.eq_ignore_ascii_case(word.as_bytes())
}

/// Splits at each CRLF; None if there is a lone CR or LF.
fn lines(text: &[u8]) -> Option<Vec<&[u8]>> {
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        lines.push(&rest[..end]);
        rest = &rest[end + 2..];
    }
    lines.push(rest);
    lines.iter().all(|line| !line.contains(&b'\r') && !line.contains(&b'\n')).then_some(lines)
}

fn lower_field(line: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    field(line).map(|(name, value)| (name.to_ascii_lowercase(), value))
}

fn method_of(token: &[u8]) -> Method {
    match token {
        b"GET" => Method::Get,
        b"HEAD" => Method::Head,
        b"OPTIONS" => Method::Options,
        b"POST" | b"PUT" | b"DELETE" | b"PATCH" | b"TRACE" | b"CONNECT" => Method::Known,
        _ => Method::Unknown,
    }
}

type Target<'b> = (&'b [u8], Option<&'b [u8]>, Option<&'b [u8]>);

/// The forms of RFC 9112 section 3.2: path, query, host.
fn split_target<'b>(method: &[u8], target: &'b [u8]) -> Option<Target<'b>> {
    let with_query = |text: &'b [u8]| match text.iter().position(|&byte| byte == b'?') {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    if target.starts_with(b"/") {
        let (path, query) = with_query(target);
        return Some((path, query, None));
    }
    if target == b"*" && method == b"OPTIONS" {
        return Some((target, None, None));
    }
    let lower = target.to_ascii_lowercase();
    let scheme = ["http://", "https://"].into_iter().find(|scheme| lower.starts_with(scheme.as_bytes()));
    let Some(scheme) = scheme else {
        return (method == b"CONNECT").then_some((b"/", None, None));
    };
    let rest = &target[scheme.len()..];
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    let (path, query) = with_query(&rest[end..]);
    let host = host(&rest[..end]).filter(|host| !host.is_empty())?;
    Some((if path.is_empty() { b"/" } else { path }, query, Some(host)))
}

/// The host of `uri-host [ ":" port ]` (RFC 9110 section 7.2).
fn host(authority: &[u8]) -> Option<&[u8]> {
    let text = std::str::from_utf8(authority).ok().filter(|text| text.is_ascii())?;
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (literal, after) = rest.split_once(']')?;
            literal.parse::<Ipv6Addr>().ok()?;
            (&text[..literal.len() + 2], if after.is_empty() { "" } else { after.strip_prefix(':')? })
        }
        None => text.split_once(':').unwrap_or((text, "")),
    };
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit())
        && (port.is_empty()
            || port.trim_start_matches('0').is_empty()
            || port.trim_start_matches('0').parse::<u16>().is_ok());
    (is_port && (host.starts_with('[') || is_reg_name(host))).then_some(host.as_bytes())
}

/// RFC 3986 section 3.2.2.
fn is_reg_name(name: &str) -> bool {
    let is_plain =
        |part: &str| part.chars().all(|c| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=".contains(c));
    let mut parts = name.split('%');
    is_plain(parts.next().unwrap_or_default())
        && parts.all(|part| {
            part.is_char_boundary(2)
                && part.len() >= 2
                && part[..2].chars().all(|c| c.is_ascii_hexdigit())
                && is_plain(&part[2..])
        })
}

/// The framing by RFC 9112 section 6.3; None if it is ambiguous.
fn body(fields: &FieldLines<'_>, version: Version) -> Option<Body> {
    let length = fields.at_most_once("content-length")?;
    match (fields.at_most_once("transfer-encoding")?, length) {
        (None, None) => Some(Body::None),
        (None, Some(digits)) => {
            let is_digits = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
            let text = std::str::from_utf8(digits).ok().filter(|_| is_digits)?;
            text.parse().ok().map(Body::Length)
        }
        (Some(coding), None) => {
            (version == Version::Http11 && is_word(coding, "chunked")).then_some(Body::Chunked)
        }
        (Some(_), Some(_)) => None,
    }
}
