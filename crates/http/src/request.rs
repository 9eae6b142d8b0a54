//! Request heads: from the bytes of a connection to a [`Request`] that borrows them (RFC 9112
//! sections 2, 3, 5 and 6).
//!
//! Called by the engine's "read request" step. It decides only what framing and syntax decide;
//! it may not look at files, sites or limits of bodies. `request_line` reads the first line,
//! `fields` the rest; header names and values are tokenised by `httparse`, which is laxer than we
//! want about line ends, so this module checks those itself.
//!
//! How to call it so that a client sending one byte at a time costs linear work: call
//! [`parse_head`] on the first bytes of a head (most heads arrive whole). When it says
//! [`Head::Partial`], remember how many bytes there were, and after each further receive call
//! [`head_end`] with that number; call [`parse_head`] again only when it returns `Some` or when
//! `head_bytes` bytes are buffered.

use std::borrow::Cow;
use std::fmt;

use memchr::{memchr, memchr_iter};

use crate::fields::Fields;
use crate::request_line::{self, RequestLine};
use crate::response::Status;

/// The most header fields a head may have, whatever [`HeadLimits::fields`] says.
pub const FIELDS_MAX: usize = 100;

/// Fields tried first: more than browsers send, and few enough that clearing the table of them is
/// not felt.
const FIELDS_USUAL: usize = 20;

/// RFC 9112 section 2.2 asks for "at least one" empty line before the request line to be ignored;
/// two is what old clients were seen to send.
const EMPTY_LINES_MAX: usize = 2;

/// What a head may cost. The engine takes the figures from its own file of bounds.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// The most bytes from the first to the end of the empty line, both included.
    pub head_bytes: usize,
    /// The most header fields; [`FIELDS_MAX`] at most.
    pub fields: usize,
    /// The most bytes of the request target as sent.
    pub target_bytes: usize,
}

impl Default for HeadLimits {
    /// 32 KiB of head, 100 fields, 8 KiB of target.
    fn default() -> Self {
        Self { head_bytes: 32 * 1024, fields: FIELDS_MAX, target_bytes: 8 * 1024 }
    }
}

/// What [`parse_head`] found.
#[derive(Clone, Debug)]
// The large variant is the usual one, lives on the stack for the length of one step, and boxing it
// would cost an allocation a request.
#[allow(clippy::large_enum_variant)]
pub enum Head<'b> {
    /// Nothing wrong so far, but the empty line has not come yet.
    Partial,
    /// A whole head.
    Complete(Request<'b>),
}

/// The version of a request, as far as it changes what we do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1, or a higher minor version, which RFC 9110 section 2.5 has us read as our highest.
    Http11,
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
    /// A method of RFC 9110 or 5789 that files don't have (`POST`, `PUT`, `DELETE`, `PATCH`,
    /// `TRACE`, `CONNECT`): 405.
    Known,
    /// Any other token; methods are case-sensitive, so `get` is one of these: 501.
    Unknown,
}

/// How the body after a head is framed (RFC 9112 section 6.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    /// There is none; the next request follows at once.
    None,
    /// So many bytes follow (may be 0).
    Length(u64),
    /// Chunks follow; [`crate::body::Chunked`] reads them.
    Chunked,
}

/// A request head. Everything borrows the connection's bytes; only repeated list fields are copied.
#[derive(Clone, Debug)]
pub struct Request<'b> {
    /// Bytes this head takes, with leading empty lines and the final empty line.
    pub head_len: usize,
    /// The method.
    pub method: Method,
    /// The version.
    pub version: Version,
    /// The request line as sent, without its CRLF; printable ASCII and spaces only. For logs.
    pub line: &'b [u8],
    /// The path, still percent-encoded, without the query. Begins with `/`; is `*` for
    /// `OPTIONS *`, and `/` for `CONNECT`, whose target is no path.
    pub path: &'b [u8],
    /// What follows the first `?`, without it.
    pub query: Option<&'b [u8]>,
    /// The host as sent, without its port, in brackets if it is IPv6; empty only when HTTP/1.0 sent
    /// none. The target's authority wins over `Host` (RFC 9112 section 3.2.2).
    pub host: &'b [u8],
    /// Whether the client wants the connection kept (RFC 9112 section 9.3).
    pub keep_alive: bool,
    /// The framing of the body.
    pub body: Body,
    /// The client waits for `100 Continue`. Never set when the head announces no body, nor in
    /// HTTP/1.0, where RFC 9110 section 10.1.1 has it ignored.
    pub expect_continue: bool,
    /// `Accept`; repeated lines are joined by `, ` (RFC 9110 section 5.3), here and in the next three.
    pub accept: Option<Cow<'b, [u8]>>,
    /// `Accept-Encoding`.
    pub accept_encoding: Option<Cow<'b, [u8]>>,
    /// `If-Match`.
    pub if_match: Option<Cow<'b, [u8]>>,
    /// `If-None-Match`.
    pub if_none_match: Option<Cow<'b, [u8]>>,
    /// `Range`. Only GET has ranges (RFC 9110 section 14.2): ignore it for other methods. Not a
    /// list field, so when repeated (RFC 9110 section 5.3 forbids it) it is taken as absent, as are
    /// the three below. A repeated `If-Range` takes `Range` with it: honouring the range without
    /// its condition could join parts of two files.
    pub range: Option<&'b [u8]>,
    /// `If-Range`; absent when repeated.
    pub if_range: Option<&'b [u8]>,
    /// `If-Modified-Since`; absent when repeated.
    pub if_modified_since: Option<&'b [u8]>,
    /// `If-Unmodified-Since`; absent when repeated.
    pub if_unmodified_since: Option<&'b [u8]>,
    /// `Referer`, the first; for logs.
    pub referer: Option<&'b [u8]>,
    /// `User-Agent`, the first; for logs.
    pub user_agent: Option<&'b [u8]>,
}

/// Why a head was refused. After any of these the connection must be closed: where the next
/// request would begin is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadHead {
    /// Not HTTP, or ambiguous framing; the text says what: 400.
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

/// Reads the head at the front of `bytes`; what follows the head (a body, the next request) is not
/// looked at.
///
/// # Errors
/// [`BadHead`], also for a head that isn't whole yet but can't become a good one.
pub fn parse_head<'b>(bytes: &'b [u8], limits: &HeadLimits) -> Result<Head<'b>, BadHead> {
    // Cutting here bounds the work by the limit, and makes "no end within the limit" and "larger
    // than the limit" the same case.
    let window = &bytes[..bytes.len().min(limits.head_bytes)];
    let skipped = skip_empty_lines(window)?;
    let rest = &window[skipped..];
    let Some(line_feed) = memchr(b'\n', rest) else {
        request_line::check_partial(rest, limits.target_bytes)?;
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

/// Says how far `bytes` must be given to [`parse_head`] for it to decide something: the end of the
/// head, or just past a line feed that no head may contain. `None` when neither has come. `from` is
/// how many of the bytes an earlier call (of this, or of [`parse_head`]) has seen, so that each byte
/// is looked at once.
///
/// [`parse_head`] gets all the bytes, and has the last word: on `Partial`, go on with `from` at
/// `bytes.len()`.
pub fn head_end(bytes: &[u8], from: usize) -> Option<usize> {
    // Empty lines in front look like the end of a head.
    let leading =
        bytes.iter().take(EMPTY_LINES_MAX * 2).take_while(|&&byte| byte == b'\r' || byte == b'\n').count();
    let start = from.max(leading);
    memchr_iter(b'\n', bytes.get(start..)?)
        .map(|at| start + at + 1)
        .find(|&end| !bytes[..end].ends_with(b"\r\n") || bytes[..end].ends_with(b"\r\n\r\n"))
}

/// The first line of `bytes` as far as it came, at most `bytes_max` of it, for the log entry of a
/// head that [`parse_head`] refused. May hold any bytes but CR and LF: escape it.
pub fn first_line(bytes: &[u8], bytes_max: usize) -> &[u8] {
    let start = bytes.iter().take_while(|&&byte| byte == b'\r' || byte == b'\n').count();
    let rest = &bytes[start..];
    let rest = &rest[..rest.len().min(bytes_max)];
    let end = memchr::memchr2(b'\r', b'\n', rest).unwrap_or(rest.len());
    &rest[..end]
}

/// The bytes of empty lines at the front.
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

/// The verdict on a head in which nothing is wrong but that it has no end yet.
fn partial<'b>(window: &[u8], limits: &HeadLimits) -> Result<Head<'b>, BadHead> {
    if window.len() >= limits.head_bytes {
        return Err(BadHead::HeadTooLarge);
    }
    Ok(Head::Partial)
}

/// Turns tokenised fields into a request.
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
    // httparse takes a bare LF for a line end, but lets none into names and values. So every LF of
    // the head is seen by looking just before each name, and at the end.
    if !window[..head_len].ends_with(b"\r\n\r\n") {
        return Err(BARE_LF);
    }
    let mut fields = Fields::default();
    for header in headers {
        // Addresses are only compared, to learn where in `window` the name begins.
        let name_at = header.name.as_ptr().addr().wrapping_sub(window.as_ptr().addr());
        if window.get(name_at.wrapping_sub(2)..name_at) != Some(b"\r\n") {
            return Err(BARE_LF);
        }
        fields.take(header.name.as_bytes(), header.value)?;
    }
    fields.into_request(line, head_len).map(Head::Complete)
}

const BARE_LF: BadHead = BadHead::Malformed("A line of the request head does not end in CRLF");

/// Names what `httparse` found wrong.
fn bad_fields(error: httparse::Error) -> BadHead {
    match error {
        httparse::Error::TooManyHeaders => BadHead::TooManyFields,
        // Also a folded line (RFC 9112 section 5.2) and a space before the colon (section 5.1),
        // both of which a server must or may refuse.
        httparse::Error::HeaderName => BadHead::Malformed("A header field has a malformed or folded name"),
        httparse::Error::HeaderValue => BadHead::Malformed("A header field has a control byte in its value"),
        _ => BadHead::Malformed("The request head is malformed"),
    }
}
