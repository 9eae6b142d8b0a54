//! Parses response heads of upstream servers: from the bytes that an upstream sent to an [`ResponseHead`] (RFC 9112
//! sections 4 to 6 and 9.3, or RFC 3875 section 6 for CGI).
//!
//! Called by the engine. It decides how the body is framed and which fields are passed on. It must not decide
//! whether the client gets the answer. Like `request`, it lets `httparse` split names and values, and checks
//! the line ends itself. A head that two parsers could read differently is refused: the rest of the connection
//! could be taken for the answer to another client.
//!
//! Each call reads the head from its start, and reads at most `head_bytes_max` bytes.

use memchr::{memchr, memchr_iter};

use crate::hop::{Field, Named, elements, is_hop_by_hop};
use crate::refusal::refusals;
use crate::request::fields::parse_length;
use crate::request::{FIELDS_MAX, Version};
use crate::response::Status;
use crate::target::{EncodedSlash, decode_path};

/// The form of a response head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeadSyntax {
    /// HTTP/1.x: a status line, then fields.
    Http,
    /// CGI (RFC 3875 section 6): fields only. `Status` has the status. Lines can end in LF alone.
    Cgi,
}

/// The properties of a request that decide how its answer is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResponseTo {
    /// Whether the method is HEAD, so that the answer has no body.
    pub is_head: bool,
    /// Whether the request, as sent to the upstream, has `Upgrade`, so that 101 is a valid answer.
    pub upgrades: bool,
}

/// How the body after a head is framed (RFC 9112 section 6.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResponseBody {
    /// There is no body.
    None,
    /// This many bytes follow; can be 0.
    Length(u64),
    /// Chunks follow.
    Chunked,
    /// The body ends with the connection, or with the output of the script for CGI.
    UntilEnd,
    /// 101: another protocol follows, in both directions.
    Upgraded,
}

/// A request by the upstream that Flash sends a file instead of the body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HandBack {
    /// `X-Accel-Redirect`: a path that is percent-encoded, as in a request target, without its query.
    /// [`decode_path`] accepts it with [`EncodedSlash::Decode`].
    Path(Vec<u8>),
    /// `X-Sendfile`: the name of a file, as sent. It begins with `/`; nothing else is checked.
    File(Vec<u8>),
}

/// The head of a final answer, or of a 101.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResponseHead {
    /// Length of the head in bytes, including the final empty line.
    pub head_len: usize,
    /// The status, from 100 to 599.
    pub status: Status,
    /// The framing of the body.
    pub body: ResponseBody,
    /// The `Content-Length`, also if there is no body because of HEAD or 304. None for 204 and 101, which must
    /// not have one (RFC 9110 section 8.6).
    pub length_bytes: Option<u64>,
    /// Whether the upstream keeps the connection after the body (RFC 9112 section 9.3). Always true for CGI,
    /// where FastCGI decides.
    pub keep_alive: bool,
    /// Whether its parts are meant to reach the client as they come: `X-Accel-Buffering: no`, or events
    /// (`text/event-stream`).
    pub is_stream: bool,
    /// Set only if the status is from 200 to 299.
    pub hand_back: Option<HandBack>,
    /// The lines to pass on to the client, each ending in CRLF. Without fields that concern only the connection
    /// to the upstream, fields that Flash writes itself (`Content-Length`, `Server`, `Date`), and fields meant
    /// for Flash (`X-Accel-*`, `X-Sendfile`, and `Status` for CGI). For 101 with `Connection: upgrade`.
    pub fields: Vec<u8>,
}

/// The result of [`parse_response`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ParsedHead {
    /// No error so far, but the final empty line has not come yet.
    Partial,
    /// An interim answer (1xx except 101), which is to be skipped. Another head follows.
    Interim {
        /// Length of the head in bytes, including the final empty line.
        head_len: usize,
    },
    /// A complete head.
    Complete(Box<ResponseHead>),
}

refusals! {
    /// Why an answer was refused. The client gets 502, and the connection to the upstream must be closed.
    BadResponse {
        Version BAD_GATEWAY "The answer is not HTTP/1.x";
        StatusLine BAD_GATEWAY "The status line of the answer is malformed";
        Status BAD_GATEWAY "The status of the answer is not a number from 100 to 599";
        StatusTwice BAD_GATEWAY "The answer has more than one Status";
        StatusLineInCgi BAD_GATEWAY "The answer of the CGI program begins with a status line";
        InterimInCgi BAD_GATEWAY "The answer of the CGI program has an interim status";
        NoField BAD_GATEWAY "The answer of the CGI program has no field";
        LineEnd BAD_GATEWAY "A line of the answer's head does not end in CRLF";
        FieldName BAD_GATEWAY "A field of the answer has a malformed or folded name";
        FieldValue BAD_GATEWAY "A field of the answer has a control byte in its value";
        HeadTooLarge BAD_GATEWAY "The head of the answer is too large";
        TooManyFields BAD_GATEWAY "The answer has too many fields";
        LengthTwice BAD_GATEWAY "The answer has more than one Content-Length";
        Length BAD_GATEWAY "The Content-Length of the answer is malformed";
        LengthAndCoding BAD_GATEWAY "The answer has both Content-Length and Transfer-Encoding";
        TransferCoding BAD_GATEWAY "The transfer coding of the answer is not a single chunked";
        UnexpectedCoding BAD_GATEWAY "The answer has a Transfer-Encoding but is not HTTP/1.1";
        UnaskedUpgrade BAD_GATEWAY "The answer switches protocols but the request did not ask for that";
        NoUpgrade BAD_GATEWAY "The answer switches protocols but has no Upgrade";
        HandBack BAD_GATEWAY "The X-Accel-Redirect or X-Sendfile of the answer is malformed";
        HandBackTwice BAD_GATEWAY "The answer has more than one X-Accel-Redirect or X-Sendfile";
    }
}

/// Parses the head at the front of `bytes`. The bytes after the head do not matter. The request must not be
/// CONNECT, whose answers are framed by other rules.
///
/// # Errors
/// [`BadResponse`], also for an incomplete head that can no longer become valid.
pub fn parse_response(
    bytes: &[u8],
    syntax: HeadSyntax,
    asked: ResponseTo,
    head_bytes_max: usize,
) -> Result<ParsedHead, BadResponse> {
    let window = &bytes[..bytes.len().min(head_bytes_max)];
    let partial = || match window.len() >= head_bytes_max {
        true => Err(BadResponse::HeadTooLarge),
        false => Ok(ParsedHead::Partial),
    };
    let Some((line_len, line)) = start(window, syntax)? else {
        return partial();
    };
    let mut table = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let (fields_len, headers) = match httparse::parse_headers(&window[line_len..], &mut table) {
        Ok(httparse::Status::Complete(found)) => found,
        Ok(httparse::Status::Partial) => {
            check_line_ends(window, syntax)?;
            return partial();
        }
        Err(error) => return Err(bad_fields(error)),
    };
    let head_len = line_len + fields_len;
    check_line_ends(&window[..head_len], syntax)?;
    let fields: Vec<Field<'_>> =
        headers.iter().map(|header| (header.name.as_bytes(), header.value)).collect();
    let mut seen = Seen::default();
    for &(name, value) in &fields {
        seen.take(name, value, syntax)?;
    }
    seen.into_head(line, asked, head_len, &fields)
}

/// The version and status of a status line; None for CGI.
type StatusLine = Option<(Version, Status)>;

/// Parses the bytes before the fields. Returns their length, or None if they are incomplete.
fn start(window: &[u8], syntax: HeadSyntax) -> Result<Option<(usize, StatusLine)>, BadResponse> {
    const NAME: &[u8] = b"HTTP/1.";
    if syntax == HeadSyntax::Cgi {
        // `/` is in no field name, so no valid head begins like this.
        return if window.starts_with(b"HTTP/") {
            Err(BadResponse::StatusLineInCgi)
        } else {
            Ok(Some((0, None)))
        };
    }
    let known = window.len().min(NAME.len());
    if window[..known] != NAME[..known] {
        return Err(BadResponse::Version);
    }
    let Some(line_feed) = memchr(b'\n', window) else {
        return Ok(None);
    };
    let line = window[..line_feed].strip_suffix(b"\r").ok_or(BadResponse::LineEnd)?;
    let rest = line.strip_prefix(NAME).ok_or(BadResponse::Version)?;
    let (version, rest) = match rest {
        [b'0', rest @ ..] => (Version::Http10, rest),
        [b'1'..=b'9', rest @ ..] => (Version::Http11, rest),
        _ => return Err(BadResponse::Version),
    };
    let rest = rest.strip_prefix(b" ").ok_or(BadResponse::StatusLine)?;
    let status = parse_status(rest)?;
    Ok(Some((line_feed + 1, Some((version, status)))))
}

/// Parses a status and its reason phrase, which can be missing together with the space before it.
fn parse_status(text: &[u8]) -> Result<Status, BadResponse> {
    let Some((digits, reason)) = text.split_first_chunk::<3>() else {
        return Err(BadResponse::Status);
    };
    if !digits.iter().all(u8::is_ascii_digit) || reason.first().is_some_and(u8::is_ascii_digit) {
        return Err(BadResponse::Status);
    }
    let code = digits.iter().fold(0, |code, digit| code * 10 + u16::from(digit - b'0'));
    if !(100..=599).contains(&code) {
        return Err(BadResponse::Status);
    }
    let is_text = |byte: &u8| *byte == b'\t' || !byte.is_ascii_control();
    match reason {
        [] => Ok(Status(code)),
        [b' ', phrase @ ..] if phrase.iter().all(is_text) => Ok(Status(code)),
        _ => Err(BadResponse::StatusLine),
    }
}

/// Checks that each line ends in CRLF. `httparse` also accepts LF alone; only CGI allows that. It never accepts
/// a CR elsewhere.
fn check_line_ends(head: &[u8], syntax: HeadSyntax) -> Result<(), BadResponse> {
    let is_bare = |at: usize| !head[..at].ends_with(b"\r");
    match syntax == HeadSyntax::Http && memchr_iter(b'\n', head).any(is_bare) {
        true => Err(BadResponse::LineEnd),
        false => Ok(()),
    }
}

/// Translates an error of `httparse`.
fn bad_fields(error: httparse::Error) -> BadResponse {
    match error {
        httparse::Error::TooManyHeaders => BadResponse::TooManyFields,
        httparse::Error::HeaderName => BadResponse::FieldName,
        httparse::Error::HeaderValue => BadResponse::FieldValue,
        _ => BadResponse::LineEnd,
    }
}

/// The fields seen so far that decide something.
#[derive(Default)]
struct Seen<'b> {
    content_length: Option<u64>,
    is_chunked: bool,
    connection_close: bool,
    connection_keep_alive: bool,
    has_upgrade: bool,
    has_location: bool,
    is_stream: bool,
    /// CGI: the `Status`.
    status: Option<Status>,
    /// An `X-Accel-Redirect` (true) or `X-Sendfile` (false), not checked yet.
    hand_back: Option<(bool, &'b [u8])>,
    hand_back_twice: bool,
}

impl<'b> Seen<'b> {
    fn take(&mut self, name: &[u8], value: &'b [u8], syntax: HeadSyntax) -> Result<(), BadResponse> {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        if is(b"content-length") {
            if self.content_length.is_some() {
                return Err(BadResponse::LengthTwice);
            }
            self.content_length = Some(parse_length(value).ok_or(BadResponse::Length)?);
        } else if is(b"transfer-encoding") {
            if self.is_chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(BadResponse::TransferCoding);
            }
            self.is_chunked = true;
        } else if is(b"connection") {
            for option in elements(value) {
                self.connection_close |= option.eq_ignore_ascii_case(b"close");
                self.connection_keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            }
        } else if is(b"status") && syntax == HeadSyntax::Cgi {
            if self.status.replace(parse_status(value)?).is_some() {
                return Err(BadResponse::StatusTwice);
            }
        } else if is(b"x-accel-redirect") || is(b"x-sendfile") {
            self.hand_back_twice |= self.hand_back.replace((is(b"x-accel-redirect"), value)).is_some();
        }
        self.is_stream |= is(b"x-accel-buffering") && value.eq_ignore_ascii_case(b"no");
        self.is_stream |= is(b"content-type") && media_type(value).eq_ignore_ascii_case(b"text/event-stream");
        self.has_upgrade |= is(b"upgrade");
        self.has_location |= is(b"location");
        Ok(())
    }

    /// Checks the rules that depend on several fields, and completes the answer.
    fn into_head(
        self,
        line: StatusLine,
        asked: ResponseTo,
        head_len: usize,
        fields: &[Field<'_>],
    ) -> Result<ParsedHead, BadResponse> {
        if self.is_chunked && self.content_length.is_some() {
            return Err(BadResponse::LengthAndCoding);
        }
        if self.is_chunked && line.is_none_or(|(version, _)| version == Version::Http10) {
            return Err(BadResponse::UnexpectedCoding);
        }
        let status = match line {
            Some((_, status)) => status,
            None => self.cgi_status(fields)?,
        };
        match status.0 {
            101 if !asked.upgrades => return Err(BadResponse::UnaskedUpgrade),
            101 if !self.has_upgrade => return Err(BadResponse::NoUpgrade),
            101 | 200.. => {}
            _ => return Ok(ParsedHead::Interim { head_len }),
        }
        let body = self.body(status, asked);
        Ok(ParsedHead::Complete(Box::new(ResponseHead {
            head_len,
            status,
            body,
            length_bytes: self.content_length.filter(|_| !matches!(status.0, 101 | 204)),
            keep_alive: line.is_none_or(|(version, _)| self.keeps_alive(version, status, body)),
            is_stream: self.is_stream,
            hand_back: self.hand_back(status)?,
            fields: lines_to_pass_on(fields, status, line.is_none()),
        })))
    }

    /// RFC 3875 sections 6.2.1 to 6.2.4 and 6.3.3.
    fn cgi_status(&self, fields: &[Field<'_>]) -> Result<Status, BadResponse> {
        match self.status {
            _ if fields.is_empty() => Err(BadResponse::NoField),
            Some(Status(..200)) => Err(BadResponse::InterimInCgi),
            Some(status) => Ok(status),
            None if self.has_location => Ok(Status::FOUND),
            None => Ok(Status::OK),
        }
    }

    /// RFC 9112 section 6.3, in its order.
    fn body(&self, status: Status, asked: ResponseTo) -> ResponseBody {
        match status {
            Status::SWITCHING_PROTOCOLS => ResponseBody::Upgraded,
            Status::NO_CONTENT | Status::NOT_MODIFIED => ResponseBody::None,
            _ if asked.is_head => ResponseBody::None,
            _ if self.is_chunked => ResponseBody::Chunked,
            _ => self.content_length.map_or(ResponseBody::UntilEnd, ResponseBody::Length),
        }
    }

    /// RFC 9112 section 9.3, in its order.
    fn keeps_alive(&self, version: Version, status: Status, body: ResponseBody) -> bool {
        // An upstream that announces a body for 204, against RFC 9110 section 8.6, might send it too.
        let is_doubtful = status == Status::NO_CONTENT
            && (self.is_chunked || self.content_length.is_some_and(|length| length > 0));
        !matches!(body, ResponseBody::UntilEnd | ResponseBody::Upgraded)
            && !is_doubtful
            && !self.connection_close
            && (version == Version::Http11 || self.connection_keep_alive)
    }

    fn hand_back(&self, status: Status) -> Result<Option<HandBack>, BadResponse> {
        let Some((is_path, value)) = self.hand_back.filter(|_| (200..=299).contains(&status.0)) else {
            return Ok(None);
        };
        if self.hand_back_twice {
            return Err(BadResponse::HandBackTwice);
        }
        if !value.starts_with(b"/") {
            return Err(BadResponse::HandBack);
        }
        if !is_path {
            return Ok(Some(HandBack::File(value.to_vec())));
        }
        let path = &value[..memchr(b'?', value).unwrap_or(value.len())];
        match decode_path(path, EncodedSlash::Decode) {
            Ok(_) => Ok(Some(HandBack::Path(path.to_vec()))),
            Err(_) => Err(BadResponse::HandBack),
        }
    }
}

/// The media type in a `Content-Type`, without its parameters.
fn media_type(value: &[u8]) -> &[u8] {
    value[..memchr(b';', value).unwrap_or(value.len())].trim_ascii()
}

/// The value of [`ResponseHead::fields`].
fn lines_to_pass_on(fields: &[Field<'_>], status: Status, is_cgi: bool) -> Vec<u8> {
    let named = Named::new(fields);
    let is_upgrade = status == Status::SWITCHING_PROTOCOLS;
    let stays = |name: &[u8]| {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        if is_upgrade && is(b"upgrade") {
            return true;
        }
        let is_ours = is(b"content-length") || is(b"server") || is(b"date") || (is_cgi && is(b"status"));
        !is_ours && !is_for_flash(name) && !is_hop_by_hop(name) && !named.contains(name)
    };
    let mut lines = Vec::with_capacity(fields.iter().map(|(name, value)| name.len() + value.len() + 4).sum());
    for (name, value) in fields.iter().filter(|(name, _)| stays(name)) {
        lines.extend_from_slice(name);
        lines.extend_from_slice(b": ");
        lines.extend_from_slice(value);
        lines.extend_from_slice(b"\r\n");
    }
    if is_upgrade {
        lines.extend_from_slice(b"Connection: upgrade\r\n");
    }
    lines
}

/// Whether a field is a message from the upstream to Flash.
fn is_for_flash(name: &[u8]) -> bool {
    const PREFIX: &[u8] = b"x-accel-";
    let is_accel = name.len() >= PREFIX.len() && name[..PREFIX.len()].eq_ignore_ascii_case(PREFIX);
    is_accel || name.eq_ignore_ascii_case(b"x-sendfile")
}

#[cfg(test)]
#[path = "upstream_response_tests.rs"]
mod tests;
