//! Collects the header fields that matter to a file server into a [`Request`] (RFC 9110, and RFC 9112 section
//! 6 for the framing of bodies).
//!
//! Called only by `request`, once for each field in order, and by `answer` for [`parse_length`]. It must not
//! look at anything except field names and values.

use std::borrow::Cow;

use super::line::{RequestLine, split_host};
use super::{BadHead, Body, Request, Version};

/// The fields seen so far.
#[derive(Default)]
pub(crate) struct Fields<'b> {
    host: Option<&'b [u8]>,
    content_length: Option<u64>,
    /// The only `Transfer-Encoding` so far, not checked yet.
    transfer_encoding: Option<&'b [u8]>,
    connection_close: bool,
    connection_keep_alive: bool,
    expect_continue: bool,
    expect_other: bool,
    /// Whether a body follows whose end its framing shows, as in HTTP/2.
    is_framed: bool,
    accept: Option<Cow<'b, [u8]>>,
    accept_encoding: Option<Cow<'b, [u8]>>,
    if_match: Option<Cow<'b, [u8]>>,
    if_none_match: Option<Cow<'b, [u8]>>,
    range: Once<'b>,
    if_range: Once<'b>,
    if_modified_since: Once<'b>,
    if_unmodified_since: Once<'b>,
    origin: Once<'b>,
    authorization: Once<'b>,
    referer: Option<&'b [u8]>,
    user_agent: Option<&'b [u8]>,
}

const NO_HOST: BadHead = BadHead::Malformed("There is no Host");

/// A field that is valid only if it occurs once.
#[derive(Default, Clone, Copy)]
enum Once<'b> {
    #[default]
    Absent,
    Given(&'b [u8]),
    Repeated,
}

impl<'b> Once<'b> {
    fn take(&mut self, value: &'b [u8]) {
        *self = match self {
            Self::Absent => Self::Given(value),
            Self::Given(_) | Self::Repeated => Self::Repeated,
        };
    }

    fn value(self) -> Option<&'b [u8]> {
        match self {
            Self::Given(value) => Some(value),
            Self::Absent | Self::Repeated => None,
        }
    }
}

impl<'b> Fields<'b> {
    /// No fields yet, of a request whose version frames bodies itself: one follows if `has_body`.
    pub(crate) fn framed(has_body: bool) -> Self {
        Self { is_framed: has_body, ..Self::default() }
    }

    /// Adds one field. Unknown fields are ignored (RFC 9110 section 5.1).
    pub(crate) fn take(&mut self, name: &'b [u8], value: &'b [u8]) -> Result<(), BadHead> {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        // The length is compared first, because it alone distinguishes or dismisses most fields of a browser.
        match name.len() {
            4 if is(b"host") => return self.take_host(value),
            5 if is(b"range") => self.range.take(value),
            6 if is(b"accept") => join(&mut self.accept, value),
            6 if is(b"origin") => self.origin.take(value),
            6 if is(b"expect") => self.take_expect(value),
            7 if is(b"referer") => self.referer = self.referer.or(Some(value)),
            8 if is(b"if-match") => join(&mut self.if_match, value),
            8 if is(b"if-range") => self.if_range.take(value),
            10 if is(b"user-agent") => self.user_agent = self.user_agent.or(Some(value)),
            10 if is(b"connection") => self.take_connection(value),
            13 if is(b"authorization") => self.authorization.take(value),
            13 if is(b"if-none-match") => join(&mut self.if_none_match, value),
            14 if is(b"content-length") => return self.take_content_length(value),
            15 if is(b"accept-encoding") => join(&mut self.accept_encoding, value),
            17 if is(b"if-modified-since") => self.if_modified_since.take(value),
            17 if is(b"transfer-encoding") => return self.take_transfer_encoding(value),
            19 if is(b"if-unmodified-since") => self.if_unmodified_since.take(value),
            _ => {}
        }
        Ok(())
    }

    /// Completes the request, and checks the rules that depend on several fields.
    pub(crate) fn into_request(
        self,
        line: &RequestLine<'b>,
        head_len: usize,
    ) -> Result<Request<'b>, BadHead> {
        let is_old = line.version == Version::Http10;
        let body = self.body(line.version)?;
        if self.expect_other && !is_old {
            return Err(BadHead::ExpectationFailed);
        }
        let range = match self.if_range {
            Once::Repeated => None,
            Once::Absent | Once::Given(_) => self.range.value(),
        };
        Ok(Request {
            head_len,
            method: line.method,
            version: line.version,
            line: line.line,
            path: line.path,
            query: line.query,
            host: self.host(line)?,
            // RFC 9112 section 9.3, in its order.
            keep_alive: !self.connection_close && (!is_old || self.connection_keep_alive),
            body,
            expect_continue: self.expect_continue && !is_old && body != Body::None,
            accept: self.accept,
            accept_encoding: self.accept_encoding,
            if_match: self.if_match,
            if_none_match: self.if_none_match,
            range,
            if_range: self.if_range.value(),
            if_modified_since: self.if_modified_since.value(),
            if_unmodified_since: self.if_unmodified_since.value(),
            origin: self.origin.value(),
            authorization: self.authorization.value(),
            referer: self.referer,
            user_agent: self.user_agent,
        })
    }

    /// RFC 9112 section 3.2: an invalid or second `Host` is a 400.
    fn take_host(&mut self, value: &'b [u8]) -> Result<(), BadHead> {
        if self.host.is_some() {
            return Err(BadHead::Malformed("There is more than one Host"));
        }
        self.host = Some(split_host(value)?);
        Ok(())
    }

    fn host(&self, line: &RequestLine<'b>) -> Result<&'b [u8], BadHead> {
        let host = match (self.host, line.version) {
            (Some(host), _) => host,
            (None, Version::Http10) => b"",
            // HTTP/2 has it as `:authority`.
            (None, Version::Http2) => line.target_host.ok_or(NO_HOST)?,
            (None, Version::Http11) => return Err(NO_HOST),
        };
        match line.target_host {
            // RFC 9112 section 3.2.2: the host in the target wins, but HTTP/1.1 must still send `Host`.
            Some(target_host) => Ok(target_host),
            // RFC 9110 section 4.2.1: no http URI has an empty host, so no valid request has one.
            None if host.is_empty() && line.version != Version::Http10 => {
                Err(BadHead::Malformed("The Host is empty"))
            }
            None => Ok(host),
        }
    }

    /// RFC 9110 section 8.6 allows a list of equal lengths to count as one length. RFC 9112 section 6.3
    /// allows it to be refused, so that two parsers cannot disagree.
    fn take_content_length(&mut self, value: &[u8]) -> Result<(), BadHead> {
        if self.content_length.is_some() {
            return Err(BadHead::Malformed("There is more than one Content-Length"));
        }
        match parse_length(value) {
            Some(length) => self.content_length = Some(length),
            None => return Err(BadHead::Malformed("The Content-Length is malformed")),
        }
        Ok(())
    }

    fn take_transfer_encoding(&mut self, value: &'b [u8]) -> Result<(), BadHead> {
        if self.transfer_encoding.replace(value).is_some() {
            return Err(BadHead::Malformed("There is more than one Transfer-Encoding"));
        }
        Ok(())
    }

    /// The framing of the body by RFC 9112 sections 6.1 and 6.3.
    fn body(&self, version: Version) -> Result<Body, BadHead> {
        let Some(codings) = self.transfer_encoding else {
            let unknown = if self.is_framed { Body::Chunked } else { Body::None };
            return Ok(self.content_length.map_or(unknown, Body::Length));
        };
        // Section 6.1: a head with both could be an attempt at request smuggling. HTTP/1.0 has no transfer
        // codings, so such a message has faulty framing.
        if self.content_length.is_some() {
            return Err(BadHead::Malformed("There is both Content-Length and Transfer-Encoding"));
        }
        if version == Version::Http10 {
            return Err(BadHead::Malformed("HTTP/1.0 has no Transfer-Encoding"));
        }
        if codings.eq_ignore_ascii_case(b"chunked") {
            return Ok(Body::Chunked);
        }
        let mut inner = codings.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
        let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
        let last_is_chunked = inner.next_back().is_some_and(is_chunked);
        // Section 6.3: the length is unknown unless there is a single, final `chunked`, and the answer must
        // be 400. Section 6.1: an unknown coding before it is answered 501.
        if last_is_chunked && !inner.any(|coding| coding.is_empty() || is_chunked(coding)) {
            return Err(BadHead::UnsupportedTransferCoding);
        }
        Err(BadHead::Malformed("The Transfer-Encoding does not end in a single chunked"))
    }

    fn take_connection(&mut self, value: &[u8]) {
        for option in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            self.connection_close |= option.eq_ignore_ascii_case(b"close");
            self.connection_keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// RFC 9110 section 10.1.1.
    fn take_expect(&mut self, value: &[u8]) {
        for expectation in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            if expectation.eq_ignore_ascii_case(b"100-continue") {
                self.expect_continue = true;
            } else if !expectation.is_empty() {
                self.expect_other = true;
            }
        }
    }
}

/// The value of a `Content-Length`: digits only, and at most `u64::MAX`.
pub(crate) fn parse_length(value: &[u8]) -> Option<u64> {
    // A `u64` could also have a sign.
    let digits = Some(value).filter(|value| value.iter().all(u8::is_ascii_digit))?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// RFC 9110 section 5.3: the lines of a list field form one list.
fn join<'b>(field: &mut Option<Cow<'b, [u8]>>, value: &'b [u8]) {
    match field {
        None => *field = Some(Cow::Borrowed(value)),
        Some(list) => {
            let list = list.to_mut();
            list.extend_from_slice(b", ");
            list.extend_from_slice(value);
        }
    }
}
