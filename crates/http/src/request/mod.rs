//! Parses request heads: from the bytes of a connection to a [`Request`] that borrows them (RFC 9112 sections
//! 2, 3, 5 and 6).
//!
//! Called by the engine. It decides only questions of framing and syntax; it must not look at files, sites or
//! limits of bodies. `line` parses the first line, `fields` the rest. `httparse` splits header names
//! and values, but it accepts line ends that Flash must refuse, so this module checks those itself.
//!
//! To keep the work linear when a client sends one byte at a time: call [`parse_head`] on the first bytes of
//! a head (most heads arrive whole). If it returns [`Head::Partial`], remember the number of bytes, and after
//! each further receive call [`head_end`] with that number. Call [`parse_head`] again only if that returns
//! `Some`, or if `head_bytes` bytes are buffered.

pub(crate) mod fields;
pub(crate) mod line;

use std::borrow::Cow;
use std::fmt;

use memchr::{memchr, memchr_iter};

use fields::Fields;
use line::RequestLine;

use crate::response::Status;

/// Maximum number of header fields in a head, whatever [`HeadLimits::fields`] says.
pub const FIELDS_MAX: usize = 100;

/// Fields for which there is room at the first attempt: more than browsers send, and few enough that clearing
/// their table costs little.
const FIELDS_USUAL: usize = 20;

/// Maximum number of empty lines before a request line. RFC 9112 section 2.2 asks for "at least one" to be
/// ignored; old clients were seen to send two.
const EMPTY_LINES_MAX: usize = 2;

/// The limits of a head. The engine takes them from its own limits.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// Maximum length in bytes, including the final empty line.
    pub head_bytes: usize,
    /// Maximum number of header fields; at most [`FIELDS_MAX`].
    pub fields: usize,
    /// Maximum number of bytes of the request target, as sent.
    pub target_bytes: usize,
}

impl Default for HeadLimits {
    /// 32 KiB of head, 100 fields, 8 KiB of target.
    fn default() -> Self {
        Self { head_bytes: 32 * 1024, fields: FIELDS_MAX, target_bytes: 8 * 1024 }
    }
}

/// The result of [`parse_head`].
#[derive(Clone, Debug)]
// The large variant is the usual one and lives on the stack for a short time; boxing it would cost an
// allocation per request.
#[allow(clippy::large_enum_variant)]
pub enum Head<'b> {
    /// No error so far, but the final empty line has not come yet.
    Partial,
    /// A complete head.
    Complete(Request<'b>),
}

/// The version of a request, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1, or a higher minor version, which counts as 1.1 (RFC 9110 section 2.5).
    Http11,
    /// HTTP/2; [`crate::h2`] reads its requests.
    Http2,
}

/// The method of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// `GET`.
    Get,
    /// `HEAD`.
    Head,
    /// `OPTIONS`.
    Options,
    /// A method of RFC 9110 or 5789 that does not apply to files (`POST`, `PUT`, `DELETE`, `PATCH`, `TRACE`,
    /// `CONNECT`): 405.
    Known,
    /// Any other token: 501. Methods are case-sensitive, so `get` is one of these.
    Unknown,
}

/// How the body after a head is framed (RFC 9112 section 6.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    /// There is no body; the next request follows at once.
    None,
    /// This many bytes follow; can be 0.
    Length(u64),
    /// Chunks follow; [`crate::body::Chunked`] parses them.
    Chunked,
}

impl Body {
    /// Whether no byte of a body follows the head.
    #[must_use]
    pub fn is_empty(self) -> bool {
        matches!(self, Body::None | Body::Length(0))
    }
}

/// A request head. All fields borrow the connection's bytes; only repeated list fields are copied.
#[derive(Clone, Debug)]
pub struct Request<'b> {
    /// Length of the head in bytes, including leading empty lines and the final empty line.
    pub head_len: usize,
    /// The method.
    pub method: Method,
    /// The version.
    pub version: Version,
    /// The request line as sent, without its CRLF: only printable ASCII and spaces. For logs.
    pub line: &'b [u8],
    /// The path, still percent-encoded, without the query. Begins with `/`, except `*` for `OPTIONS *`. It is
    /// `/` for `CONNECT`, whose target is not a path.
    pub path: &'b [u8],
    /// The text after the first `?`.
    pub query: Option<&'b [u8]>,
    /// The host as sent, without its port; in brackets if it is IPv6. Empty only if HTTP/1.0 sent none. The
    /// host in the target wins over `Host` (RFC 9112 section 3.2.2).
    pub host: &'b [u8],
    /// Whether the client wants to keep the connection (RFC 9112 section 9.3).
    pub keep_alive: bool,
    /// The framing of the body.
    pub body: Body,
    /// Whether the client waits for `100 Continue`. Never set if the head announces no body, nor for
    /// HTTP/1.0, where RFC 9110 section 10.1.1 demands that it is ignored.
    pub expect_continue: bool,
    /// `Accept`. Repeated lines are joined by `, ` (RFC 9110 section 5.3), here and in the next three fields.
    pub accept: Option<Cow<'b, [u8]>>,
    /// `Accept-Encoding`.
    pub accept_encoding: Option<Cow<'b, [u8]>>,
    /// `If-Match`.
    pub if_match: Option<Cow<'b, [u8]>>,
    /// `If-None-Match`.
    pub if_none_match: Option<Cow<'b, [u8]>>,
    /// `Range`. Applies only to GET (RFC 9110 section 14.2) and must be ignored for other methods. It is not
    /// a list field, so if it is repeated (which RFC 9110 section 5.3 forbids) it counts as absent, as do the
    /// three fields below. A repeated `If-Range` makes `Range` absent too: a range without its condition
    /// could combine parts of two files.
    pub range: Option<&'b [u8]>,
    /// `If-Range`; absent when repeated.
    pub if_range: Option<&'b [u8]>,
    /// `If-Modified-Since`; absent when repeated.
    pub if_modified_since: Option<&'b [u8]>,
    /// `If-Unmodified-Since`; absent when repeated.
    pub if_unmodified_since: Option<&'b [u8]>,
    /// `Origin`; absent when repeated.
    pub origin: Option<&'b [u8]>,
    /// `Authorization`; absent when repeated.
    pub authorization: Option<&'b [u8]>,
    /// The first `Referer`; for logs.
    pub referer: Option<&'b [u8]>,
    /// The first `User-Agent`; for logs.
    pub user_agent: Option<&'b [u8]>,
}

/// Why a head was refused. The connection must be closed, because the start of the next request is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadHead {
    /// Not HTTP, or ambiguous framing; the text says which: 400.
    Malformed(&'static str),
    /// The target exceeds [`HeadLimits::target_bytes`]: 414.
    TargetTooLong,
    /// The head exceeds [`HeadLimits::head_bytes`]: 431.
    HeadTooLarge,
    /// More fields than [`HeadLimits::fields`]: 431.
    TooManyFields,
    /// A major version other than 1: 505.
    UnsupportedVersion,
    /// A transfer coding besides `chunked`: 501.
    UnsupportedTransferCoding,
    /// An expectation other than `100-continue`: 417.
    ExpectationFailed,
}

impl BadHead {
    /// The status to answer with.
    pub fn status(&self) -> Status {
        match self {
            Self::Malformed(_) => Status::BAD_REQUEST,
            Self::TargetTooLong => Status::URI_TOO_LONG,
            Self::HeadTooLarge | Self::TooManyFields => Status::HEAD_TOO_LARGE,
            Self::UnsupportedVersion => Status::VERSION_NOT_SUPPORTED,
            Self::UnsupportedTransferCoding => Status::NOT_IMPLEMENTED,
            Self::ExpectationFailed => Status::EXPECTATION_FAILED,
        }
    }

    /// A short text for the client: a sentence without its full stop.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Malformed(reason) => reason,
            Self::TargetTooLong => "The request target is too long",
            Self::HeadTooLarge => "The request head is too large",
            Self::TooManyFields => "The request has too many header fields",
            Self::UnsupportedVersion => "Only HTTP/1.0 and HTTP/1.1 are served here",
            Self::UnsupportedTransferCoding => "The only transfer coding known here is chunked",
            Self::ExpectationFailed => "The only expectation known here is 100-continue",
        }
    }
}

impl fmt::Display for BadHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for BadHead {}

/// Parses the head at the front of `bytes`. The bytes after the head (a body, the next request) do not
/// matter.
///
/// # Errors
/// [`BadHead`], also for an incomplete head that can no longer become valid.
pub fn parse_head<'b>(bytes: &'b [u8], limits: &HeadLimits) -> Result<Head<'b>, BadHead> {
    // The limit bounds the work, and it makes "no end within the limit" and "larger than the limit" the same
    // case.
    let window = &bytes[..bytes.len().min(limits.head_bytes)];
    let skipped = skip_empty_lines(window)?;
    let rest = &window[skipped..];
    let Some(line_feed) = memchr(b'\n', rest) else {
        line::check_partial(rest, limits.target_bytes)?;
        return partial(window, limits);
    };
    let line = RequestLine::parse(&rest[..line_feed], limits.target_bytes)?;
    let field_bytes = &rest[line_feed + 1..];

    let mut usual = [httparse::EMPTY_HEADER; FIELDS_USUAL];
    match httparse::parse_headers(field_bytes, &mut usual) {
        Err(httparse::Error::TooManyHeaders) => {}
        parsed => return finish(window, field_bytes, &line, parsed, limits),
    }
    let mut most = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let parsed = httparse::parse_headers(field_bytes, &mut most);
    finish(window, field_bytes, &line, parsed, limits)
}

/// Returns how many of `bytes` [`parse_head`] needs to reach a decision: up to the end of the head, or just
/// past a line feed that is not allowed in a head. None if neither has come. `from` is the number of bytes
/// that an earlier call (of this function or of [`parse_head`]) has seen, so that each byte is examined only
/// once.
///
/// [`parse_head`] gets all the bytes and has the last word: if it returns `Partial`, continue with `from` set
/// to `bytes.len()`.
pub fn head_end(bytes: &[u8], from: usize) -> Option<usize> {
    // Leading empty lines look like the end of a head.
    let leading =
        bytes.iter().take(EMPTY_LINES_MAX * 2).take_while(|&&byte| byte == b'\r' || byte == b'\n').count();
    let start = from.max(leading);
    memchr_iter(b'\n', bytes.get(start..)?)
        .map(|at| start + at + 1)
        .find(|&end| !bytes[..end].ends_with(b"\r\n") || bytes[..end].ends_with(b"\r\n\r\n"))
}

/// The first line of `bytes`, as far as it has come and at most `bytes_max` long, for the log entry of a
/// refused head. It can contain any bytes except CR and LF, so it must be escaped.
pub fn first_line(bytes: &[u8], bytes_max: usize) -> &[u8] {
    let start = bytes.iter().take_while(|&&byte| byte == b'\r' || byte == b'\n').count();
    let rest = &bytes[start..];
    let rest = &rest[..rest.len().min(bytes_max)];
    let end = memchr::memchr2(b'\r', b'\n', rest).unwrap_or(rest.len());
    &rest[..end]
}

/// The length of the empty lines at the front.
fn skip_empty_lines(bytes: &[u8]) -> Result<usize, BadHead> {
    let mut skipped = 0;
    loop {
        match &bytes[skipped..] {
            [b'\r', b'\n', ..] if skipped < EMPTY_LINES_MAX * 2 => skipped += 2,
            [b'\r'] if skipped < EMPTY_LINES_MAX * 2 => return Ok(skipped),
            [b'\r' | b'\n', ..] => {
                return Err(BadHead::Malformed("There is an empty line where a request should be"));
            }
            _ => return Ok(skipped),
        }
    }
}

/// The result for a head without errors that has no end yet.
fn partial<'b>(window: &[u8], limits: &HeadLimits) -> Result<Head<'b>, BadHead> {
    if window.len() >= limits.head_bytes {
        return Err(BadHead::HeadTooLarge);
    }
    Ok(Head::Partial)
}

/// Turns the split fields into a request.
fn finish<'b>(
    window: &'b [u8],
    field_bytes: &'b [u8],
    line: &RequestLine<'b>,
    parsed: httparse::Result<(usize, &[httparse::Header<'b>])>,
    limits: &HeadLimits,
) -> Result<Head<'b>, BadHead> {
    let (fields_len, headers) = match parsed {
        Ok(httparse::Status::Complete(found)) => found,
        Ok(httparse::Status::Partial) => {
            let mut line_feeds = memchr_iter(b'\n', window);
            if line_feeds.any(|at| !window[..at].ends_with(b"\r")) {
                return Err(BARE_LF);
            }
            return partial(window, limits);
        }
        Err(error) => return Err(bad_fields(error)),
    };
    if headers.len() > limits.fields {
        return Err(BadHead::TooManyFields);
    }
    let fields_at = window.len() - field_bytes.len();
    let head_len = fields_at + fields_len;
    // `httparse` accepts a bare LF as a line end, but not within names and values. So every LF of the head is
    // found just before a name, or at the end.
    if !window[..head_len].ends_with(b"\r\n\r\n") {
        return Err(BARE_LF);
    }
    let mut fields = Fields::default();
    for header in headers {
        // The addresses are only compared, to find where the name begins in `window`.
        let name_at = header.name.as_ptr().addr().wrapping_sub(window.as_ptr().addr());
        if window.get(name_at.wrapping_sub(2)..name_at) != Some(b"\r\n") {
            return Err(BARE_LF);
        }
        fields.take(header.name.as_bytes(), header.value)?;
    }
    fields.into_request(line, head_len).map(Head::Complete)
}

const BARE_LF: BadHead = BadHead::Malformed("A line of the request head does not end in CRLF");

/// Translates an error of `httparse`.
fn bad_fields(error: httparse::Error) -> BadHead {
    match error {
        httparse::Error::TooManyHeaders => BadHead::TooManyFields,
        // Includes folded lines (RFC 9112 section 5.2) and a space before the colon (section 5.1). A server
        // must or may refuse both.
        httparse::Error::HeaderName => BadHead::Malformed("A header field has a malformed or folded name"),
        httparse::Error::HeaderValue => BadHead::Malformed("A header field has a control byte in its value"),
        _ => BadHead::Malformed("The request head is malformed"),
    }
}
