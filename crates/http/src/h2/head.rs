//! Requests of HTTP/2: from a list of fields to a [`Request`] (RFC 9113 section 8).
//!
//! A request that gets through here can be written as a request of HTTP/1.1 without a change of its meaning: no name or value has a byte
//! that could end a line, no field concerns a connection, and the framing is known from the frames alone.

use crate::forward::Inbound;
use crate::hop::Field;
use crate::proxies::NamedHost;
use crate::request::fields::Fields;
use crate::request::line::{RequestLine, is_token_byte, split_host};
use crate::request::{BadHead, Body, HeadLimits, Method, Request};

use super::{FieldList, Priority};

/// Buffers for the parts of a request that its list does not have as they are. They are kept from request to request.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    line: Vec<u8>,
    cookies: Vec<u8>,
}

/// The head of a request.
#[derive(Clone, Debug)]
pub struct RequestHead<'b> {
    /// The request. Its line is `METHOD PATH HTTP/2.0`. A body whose length the head does not say is
    /// [`Body::Chunked`], as it would be in HTTP/1.1.
    pub request: Request<'b>,
    /// The method.
    pub method: &'b [u8],
    /// The host with its port.
    pub authority: &'b [u8],
    /// The priority of the response.
    pub priority: Priority,
    /// All `cookie` fields as one, as HTTP/1.1 has them (RFC 9113 section 8.2.3); empty if there is none.
    cookies: &'b [u8],
    list: &'b FieldList,
}

/// Why a request is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRequest {
    /// It is malformed (RFC 9113 section 8.1.1): its stream ends with `PROTOCOL_ERROR`.
    Malformed(&'static str),
    /// It is answered with a page.
    Refused(BadHead),
}

impl From<BadHead> for BadRequest {
    fn from(bad: BadHead) -> Self {
        Self::Refused(bad)
    }
}

/// The pseudo-header fields of a request (RFC 9113 section 8.3.1).
#[derive(Default)]
struct Pseudo<'b> {
    method: Option<&'b [u8]>,
    scheme: Option<&'b [u8]>,
    authority: Option<&'b [u8]>,
    path: Option<&'b [u8]>,
}

const TWICE: BadRequest = BadRequest::Malformed("There is a pseudo-header field twice");
const UNKNOWN: BadRequest = BadRequest::Malformed("There is an unknown pseudo-header field");
const LATE: BadRequest = BadRequest::Malformed("A pseudo-header field follows another field");
const MISSING: BadRequest = BadRequest::Malformed("A pseudo-header field is missing");
const CONNECTION: BadRequest = BadRequest::Malformed("There is a field that concerns a connection");
const BAD_NAME: BadRequest = BadRequest::Malformed("The name of a field is malformed");
const BAD_VALUE: BadRequest = BadRequest::Malformed("The value of a field is malformed");
const BAD_PATH: BadRequest = BadRequest::Malformed("The path is malformed");
const BAD_METHOD: BadRequest = BadRequest::Malformed("The method is malformed");
const OTHER_HOST: BadRequest = BadRequest::Malformed("Host differs from the authority");
const SHORT: BadRequest = BadRequest::Malformed("The stream ends before its Content-Length");

/// Reads the head of a request whose stream ends with it (`ends_stream`), or has data behind it.
///
/// # Errors
/// [`BadRequest`].
pub fn read_head<'b>(
    list: &'b FieldList,
    ends_stream: bool,
    limits: &HeadLimits,
    scratch: &'b mut Scratch,
) -> Result<RequestHead<'b>, BadRequest> {
    let Scratch { line, cookies } = scratch;
    line.clear();
    cookies.clear();
    let (mut pseudo, mut fields) = (Pseudo::default(), Fields::framed(!ends_stream));
    let (mut priority, mut has_regular, mut host) = (Priority::default(), false, None);
    let mut refused = None;
    for (name, value) in list.iter() {
        check_value(value)?;
        if let Some(pseudo_name) = name.strip_prefix(b":") {
            if has_regular {
                return Err(LATE);
            }
            pseudo.take(pseudo_name, value)?;
            continue;
        }
        has_regular = true;
        check_field(name, value)?;
        match name {
            b"priority" => priority = Priority::parse(value),
            b"cookie" => push_cookie(cookies, value),
            b"host" if host.is_none() => host = Some(value),
            _ => {}
        }
        // Malformed fields behind it still count.
        refused = refused.or(fields.take(name, value).err());
    }
    if list.is_too_large() {
        return Err(BadHead::HeadTooLarge.into());
    }
    let Pseudo { method, scheme, authority, path } = pseudo;
    let method = method.filter(|method| !method.is_empty()).ok_or(MISSING)?;
    if !method.iter().all(|&byte| is_token_byte(byte)) {
        return Err(BAD_METHOD);
    }
    // RFC 9113 section 8.5: CONNECT has an authority and nothing else. It is refused later, as in HTTP/1.1.
    let path = match (method, scheme, path) {
        (b"CONNECT", None, None) if authority.is_some() => b"/",
        (b"CONNECT", ..) => return Err(MISSING),
        (_, Some(scheme), Some(path)) if !scheme.is_empty() => path,
        _ => return Err(MISSING),
    };
    if !(path.starts_with(b"/") || (path == b"*" && method == b"OPTIONS")) {
        return Err(BAD_PATH);
    }
    // RFC 9113 section 8.3.1: two names for one server are an attempt at something else.
    if let (Some(authority), Some(host)) = (authority, host)
        && !authority.eq_ignore_ascii_case(host)
    {
        return Err(OTHER_HOST);
    }
    let target_host = authority.map(split_host).transpose()?;
    if let Some(bad) = refused {
        return Err(bad.into());
    }
    for part in [method, b" ", path, b" HTTP/2.0"] {
        line.extend_from_slice(part);
    }
    let parsed = RequestLine::of_h2(line, method.len(), limits.target_bytes)?;
    let parsed = RequestLine { target_host: target_host.filter(|host| !host.is_empty()), ..parsed };
    let request = fields.into_request(&parsed, list.as_bytes().len())?;
    if ends_stream && matches!(request.body, Body::Length(1..)) {
        return Err(SHORT);
    }
    let authority = authority.or(host).unwrap_or_default();
    Ok(RequestHead { method: &line[..method.len()], request, authority, priority, cookies, list })
}

/// Checks the fields behind a body (RFC 9113 section 8.1). They have no meaning for Flash.
///
/// # Errors
/// They are malformed.
pub fn check_trailers(list: &FieldList) -> Result<(), BadRequest> {
    list.iter().try_for_each(|(name, value)| {
        check_value(value)?;
        if name.starts_with(b":") { Err(UNKNOWN) } else { check_field(name, value) }
    })
}

impl<'b> RequestHead<'b> {
    /// The request for an upstream. `scheme` is that of the client's connection.
    pub fn inbound<'a>(&'a self, scheme: &'a str) -> Inbound<'a> {
        let is_regular = |(name, _): &Field<'b>| !name.starts_with(b":") && *name != b"cookie";
        let mut fields: Vec<Field<'a>> = self.list.iter().filter(is_regular).collect();
        if !self.cookies.is_empty() {
            fields.push((b"cookie", self.cookies));
        }
        let named_host = NamedHost::default();
        let (request, method, authority) = (&self.request, self.method, self.authority);
        Inbound { request, method, scheme, authority, named_host, fields }
    }

    /// Whether the method is HEAD.
    pub fn is_head(&self) -> bool {
        self.request.method == Method::Head
    }
}

impl<'b> Pseudo<'b> {
    fn take(&mut self, name: &[u8], value: &'b [u8]) -> Result<(), BadRequest> {
        let place = match name {
            b"method" => &mut self.method,
            b"scheme" => &mut self.scheme,
            b"authority" => &mut self.authority,
            b"path" => &mut self.path,
            _ => return Err(UNKNOWN),
        };
        if place.replace(value).is_some() { Err(TWICE) } else { Ok(()) }
    }
}

/// RFC 9113 section 8.2.1: what a value must not have, and RFC 9110 section 5.5 the other control bytes.
fn check_value(value: &[u8]) -> Result<(), BadRequest> {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    // Without an early exit, so that the compiler can process many bytes at a time.
    let bad = value.iter().fold(false, |bad, &byte| bad | ((byte < b' ') & (byte != b'\t')) | (byte == 0x7f));
    if bad || is_blank(value.first()) || is_blank(value.last()) { Err(BAD_VALUE) } else { Ok(()) }
}

/// RFC 9113 sections 8.2.1 and 8.2.2: the name is a token in lower case, and the field does not concern a connection.
fn check_field(name: &[u8], value: &[u8]) -> Result<(), BadRequest> {
    if name.is_empty() || !name.iter().all(|&byte| is_token_byte(byte) && !byte.is_ascii_uppercase()) {
        return Err(BAD_NAME);
    }
    match name {
        b"connection" | b"proxy-connection" | b"keep-alive" | b"transfer-encoding" | b"upgrade" => {
            Err(CONNECTION)
        }
        b"te" if !value.eq_ignore_ascii_case(b"trailers") => Err(CONNECTION),
        _ => Ok(()),
    }
}

fn push_cookie(cookies: &mut Vec<u8>, value: &[u8]) {
    if !cookies.is_empty() {
        cookies.extend_from_slice(b"; ");
    }
    cookies.extend_from_slice(value);
}

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
