//! Writes response heads: status line and fields (RFC 9112 section 4, RFC 9110 section 15).
//!
//! Called by the engine. It must not choose the fields of an answer: except for `Server`, `Date` and
//! `Connection: close`, the caller chooses them.

/// A status code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Status(
    /// The three-digit code.
    pub u16,
);

macro_rules! statuses {
    ($($name:ident $code:literal $line:literal;)*) => {
        impl Status {
            $(
                #[doc = $line]
                pub const $name: Self = Self($code);
            )*

            /// The reason phrase; `Unknown` for a code without a constant here.
            pub fn reason(self) -> &'static str {
                match self.0 {
                    $($code => $line,)*
                    _ => "Unknown",
                }
            }
        }
    };
}

statuses! {
    CONTINUE 100 "Continue";
    SWITCHING_PROTOCOLS 101 "Switching Protocols";
    EARLY_HINTS 103 "Early Hints";
    OK 200 "OK";
    CREATED 201 "Created";
    ACCEPTED 202 "Accepted";
    NON_AUTHORITATIVE 203 "Non-Authoritative Information";
    NO_CONTENT 204 "No Content";
    RESET_CONTENT 205 "Reset Content";
    PARTIAL_CONTENT 206 "Partial Content";
    MULTI_STATUS 207 "Multi-Status";
    MULTIPLE_CHOICES 300 "Multiple Choices";
    MOVED_PERMANENTLY 301 "Moved Permanently";
    FOUND 302 "Found";
    SEE_OTHER 303 "See Other";
    NOT_MODIFIED 304 "Not Modified";
    TEMPORARY_REDIRECT 307 "Temporary Redirect";
    PERMANENT_REDIRECT 308 "Permanent Redirect";
    BAD_REQUEST 400 "Bad Request";
    UNAUTHORIZED 401 "Unauthorized";
    PAYMENT_REQUIRED 402 "Payment Required";
    FORBIDDEN 403 "Forbidden";
    NOT_FOUND 404 "Not Found";
    METHOD_NOT_ALLOWED 405 "Method Not Allowed";
    NOT_ACCEPTABLE 406 "Not Acceptable";
    PROXY_AUTHENTICATION_REQUIRED 407 "Proxy Authentication Required";
    REQUEST_TIMEOUT 408 "Request Timeout";
    CONFLICT 409 "Conflict";
    GONE 410 "Gone";
    LENGTH_REQUIRED 411 "Length Required";
    PRECONDITION_FAILED 412 "Precondition Failed";
    PAYLOAD_TOO_LARGE 413 "Content Too Large";
    URI_TOO_LONG 414 "URI Too Long";
    UNSUPPORTED_MEDIA_TYPE 415 "Unsupported Media Type";
    RANGE_NOT_SATISFIABLE 416 "Range Not Satisfiable";
    EXPECTATION_FAILED 417 "Expectation Failed";
    MISDIRECTED 421 "Misdirected Request";
    UNPROCESSABLE 422 "Unprocessable Content";
    LOCKED 423 "Locked";
    FAILED_DEPENDENCY 424 "Failed Dependency";
    TOO_EARLY 425 "Too Early";
    UPGRADE_REQUIRED 426 "Upgrade Required";
    PRECONDITION_REQUIRED 428 "Precondition Required";
    TOO_MANY_REQUESTS 429 "Too Many Requests";
    HEAD_TOO_LARGE 431 "Request Header Fields Too Large";
    UNAVAILABLE_FOR_LEGAL_REASONS 451 "Unavailable For Legal Reasons";
    INTERNAL 500 "Internal Server Error";
    NOT_IMPLEMENTED 501 "Not Implemented";
    BAD_GATEWAY 502 "Bad Gateway";
    UNAVAILABLE 503 "Service Unavailable";
    GATEWAY_TIMEOUT 504 "Gateway Timeout";
    VERSION_NOT_SUPPORTED 505 "HTTP Version Not Supported";
    INSUFFICIENT_STORAGE 507 "Insufficient Storage";
    NETWORK_AUTHENTICATION_REQUIRED 511 "Network Authentication Required";
}

/// Whether answers name the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerField {
    /// In the field `Server`.
    Sent,
    /// They do not have that field.
    Absent,
}

/// Appends a response head to a buffer. The version is always HTTP/1.1, even for an HTTP/1.0 client (RFC 9110
/// section 2.5).
#[derive(Debug)]
pub struct HeadWriter<'v> {
    out: &'v mut Vec<u8>,
    start: usize,
    /// Where the value of `Server` ends.
    server_end: Option<usize>,
    date_at: usize,
}

impl<'v> HeadWriter<'v> {
    /// Begins a head with the status line, `Server` if it is sent, and `Date`. `date` comes from [`crate::date::http_date`].
    pub fn start(out: &'v mut Vec<u8>, status: Status, server: ServerField, date: &[u8; 29]) -> Self {
        let start = out.len();
        out.extend_from_slice(b"HTTP/1.1 ");
        push_number(out, status.0.into());
        out.push(b' ');
        out.extend_from_slice(status.reason().as_bytes());
        let server_end = (server == ServerField::Sent).then(|| {
            out.extend_from_slice(b"\r\nServer: flash");
            out.len()
        });
        out.extend_from_slice(b"\r\nDate: ");
        let date_at = out.len();
        out.extend_from_slice(date);
        out.extend_from_slice(b"\r\n");
        Self { out, start, server_end, date_at }
    }

    /// Adds a field. The value must not contain CR, LF or NUL; if it does, they become spaces (RFC 9110
    /// section 5.5), so that a value can never begin a new line.
    pub fn field(&mut self, name: &str, value: &[u8]) {
        debug_assert!(name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':'));
        debug_assert!(!value.iter().any(|&byte| ends_line(byte)), "line end in the value of {name}");
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b": ");
        push_value(self.out, value);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Adds `Content-Length`.
    pub fn length(&mut self, bytes: u64) {
        self.out.extend_from_slice(b"Content-Length: ");
        push_number(self.out, bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Adds complete lines, each ending in CRLF. They are not checked.
    pub fn raw(&mut self, block: &[u8]) {
        debug_assert!(block.is_empty() || block.ends_with(b"\r\n"));
        self.out.extend_from_slice(block);
    }

    /// Ends the head: adds `Connection: close` if `close` is set, and pads it to a multiple of `align_bytes`
    /// (1 for no padding), unless `Server` is absent. Returns the offset of the date in the buffer, so that the date of a cached head
    /// can be updated in place.
    pub fn finish(mut self, close: bool, align_bytes: usize) -> usize {
        if close {
            self.out.extend_from_slice(b"Connection: close\r\n");
        }
        self.out.extend_from_slice(b"\r\n");
        if align_bytes > 1
            && let Some(server_end) = self.server_end
        {
            self.pad(server_end, align_bytes);
        }
        self.date_at
    }

    /// Lengthens the value of `Server`, as the paper does (Flash 1999, section 5.5). It uses a comment,
    /// because the grammar allows that (RFC 9110, section 10.2.4) and discourages more than one space
    /// (section 5.6.3).
    fn pad(&mut self, server_end: usize, align_bytes: usize) {
        let length = self.out.len() - self.start;
        let mut missing = length.next_multiple_of(align_bytes) - length;
        if missing == 0 {
            return;
        }
        while missing < EMPTY_COMMENT_BYTES {
            missing += align_bytes;
        }
        let dots = std::iter::repeat_n(b'.', missing - EMPTY_COMMENT_BYTES);
        let comment = b" (".iter().copied().chain(dots).chain([b')']);
        self.out.splice(server_end..server_end, comment);
        self.date_at += missing;
    }
}

/// Length of ` ()`.
const EMPTY_COMMENT_BYTES: usize = 3;

fn ends_line(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n' | 0)
}

fn push_value(out: &mut Vec<u8>, value: &[u8]) {
    let start = out.len();
    out.extend_from_slice(value);
    for byte in out[start..].iter_mut().filter(|byte| ends_line(**byte)) {
        *byte = b' ';
    }
}

/// Appends a number in decimal.
pub fn push_number(out: &mut Vec<u8>, number: u64) {
    match number {
        0..=9 => out.push(b'0' + number as u8),
        _ => out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::date::http_date;

    #[test]
    fn a_head_is_encoded_byte_for_byte() {
        let mut out = b"kept".to_vec();
        let mut head =
            HeadWriter::start(&mut out, Status::PARTIAL_CONTENT, ServerField::Sent, &http_date(784_111_777));
        head.field("Content-Type", b"text/html");
        head.length(1_234_567);
        head.raw(b"X-A: 1\r\nX-B: 2\r\n");
        let date_at = head.finish(true, 1);
        let expected = "keptHTTP/1.1 206 Partial Content\r\nServer: flash\r\n\
            Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Type: text/html\r\n\
            Content-Length: 1234567\r\nX-A: 1\r\nX-B: 2\r\nConnection: close\r\n\r\n";
        assert_eq!(String::from_utf8(out.clone()).unwrap(), expected);
        assert_eq!(&out[date_at..date_at + 29], b"Sun, 06 Nov 1994 08:49:37 GMT");
    }

    #[test]
    fn a_persistent_connection_has_no_connection_field() {
        let mut out = Vec::new();
        HeadWriter::start(&mut out, Status::OK, ServerField::Sent, &http_date(0)).finish(false, 1);
        assert!(out.ends_with(b"GMT\r\n\r\n"));
        assert!(!out.windows(10).any(|window| window == b"Connection"));
    }

    #[test]
    fn a_padded_head_has_the_right_length_and_the_same_fields() {
        for field_bytes in 0..70 {
            let heads = [1, 32].map(|align_bytes| {
                let mut out = b"kept".to_vec();
                let mut head =
                    HeadWriter::start(&mut out, Status::OK, ServerField::Sent, &http_date(784_111_777));
                head.field("X", "x".repeat(field_bytes).as_bytes());
                let date_at = head.finish(field_bytes % 2 == 0, align_bytes);
                assert_eq!(&out[date_at..date_at + 29], b"Sun, 06 Nov 1994 08:49:37 GMT");
                String::from_utf8(out.split_off(4)).unwrap()
            });
            let [plain, padded] = heads;
            assert_eq!(padded.len() % 32, 0, "{padded}");
            assert!(padded.len() < plain.len() + 32 + EMPTY_COMMENT_BYTES, "{padded}");
            let (before, rest) = padded.split_once("Server: flash").unwrap();
            let (padding, after) = rest.split_once("\r\n").unwrap();
            assert_eq!(format!("{before}Server: flash\r\n{after}"), plain);
            let dots = padding.strip_prefix(" (").and_then(|p| p.strip_suffix(')'));
            assert!(padding.is_empty() || dots.is_some_and(|d| d.bytes().all(|b| b == b'.')), "{padding:?}");
        }
    }

    #[test]
    fn a_value_cannot_begin_a_line() {
        let mut out = b"\r\n".to_vec();
        push_value(&mut out, b"a\r\nSet-Cookie: x\0\xff");
        assert_eq!(out, b"\r\na  Set-Cookie: x \xff");
    }

    #[test]
    fn numbers() {
        for number in [0, 9, 10, 99, 100, 12_345, u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            push_number(&mut out, number);
            assert_eq!(out, number.to_string().into_bytes());
        }
    }

    #[test]
    fn reasons() {
        assert_eq!(Status::HEAD_TOO_LARGE, Status(431));
        assert_eq!(Status::HEAD_TOO_LARGE.reason(), "Request Header Fields Too Large");
        assert_eq!(Status::NETWORK_AUTHENTICATION_REQUIRED.reason(), "Network Authentication Required");
        assert_eq!(Status(299).reason(), "Unknown");
    }
}
