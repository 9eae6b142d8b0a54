//! Response heads: status, fields, and the bytes of both (RFC 9112 section 4, RFC 9110 section 15).
//!
//! Called by the engine's "send header" step. It may not choose which fields an answer has; beyond
//! `Server`, `Date` and `Connection: close` they are the caller's.

/// A status code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Status(
    /// The three digits.
    pub u16,
);

macro_rules! statuses {
    ($($name:ident $code:literal $line:literal;)*) => {
        impl Status {
            $(
                #[doc = $line]
                pub const $name: Self = Self($code);
            )*

            /// The reason phrase; `Unknown` for a code that has no constant here.
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
    OK 200 "OK";
    NO_CONTENT 204 "No Content";
    PARTIAL_CONTENT 206 "Partial Content";
    MOVED_PERMANENTLY 301 "Moved Permanently";
    FOUND 302 "Found";
    NOT_MODIFIED 304 "Not Modified";
    TEMPORARY_REDIRECT 307 "Temporary Redirect";
    PERMANENT_REDIRECT 308 "Permanent Redirect";
    BAD_REQUEST 400 "Bad Request";
    FORBIDDEN 403 "Forbidden";
    NOT_FOUND 404 "Not Found";
    METHOD_NOT_ALLOWED 405 "Method Not Allowed";
    NOT_ACCEPTABLE 406 "Not Acceptable";
    REQUEST_TIMEOUT 408 "Request Timeout";
    GONE 410 "Gone";
    LENGTH_REQUIRED 411 "Length Required";
    PRECONDITION_FAILED 412 "Precondition Failed";
    PAYLOAD_TOO_LARGE 413 "Content Too Large";
    URI_TOO_LONG 414 "URI Too Long";
    RANGE_NOT_SATISFIABLE 416 "Range Not Satisfiable";
    EXPECTATION_FAILED 417 "Expectation Failed";
    MISDIRECTED 421 "Misdirected Request";
    TOO_MANY_REQUESTS 429 "Too Many Requests";
    HEAD_TOO_LARGE 431 "Request Header Fields Too Large";
    INTERNAL 500 "Internal Server Error";
    NOT_IMPLEMENTED 501 "Not Implemented";
    BAD_GATEWAY 502 "Bad Gateway";
    UNAVAILABLE 503 "Service Unavailable";
    GATEWAY_TIMEOUT 504 "Gateway Timeout";
    VERSION_NOT_SUPPORTED 505 "HTTP Version Not Supported";
}

/// Writes a response head to the end of a buffer. The version is always HTTP/1.1, also to an HTTP/1.0
/// client (RFC 9110 section 2.5).
#[derive(Debug)]
pub struct HeadWriter<'v> {
    out: &'v mut Vec<u8>,
    start: usize,
    server_end: usize,
    date_at: usize,
}

impl<'v> HeadWriter<'v> {
    /// Begins a head with the status line, `Server` and `Date`. `date` is from
    /// [`crate::date::http_date`].
    pub fn start(out: &'v mut Vec<u8>, status: Status, date: &[u8; 29]) -> Self {
        let start = out.len();
        out.extend_from_slice(b"HTTP/1.1 ");
        push_number(out, status.0.into());
        out.push(b' ');
        out.extend_from_slice(status.reason().as_bytes());
        out.extend_from_slice(b"\r\nServer: flash");
        let server_end = out.len();
        out.extend_from_slice(b"\r\nDate: ");
        let date_at = out.len();
        out.extend_from_slice(date);
        out.extend_from_slice(b"\r\n");
        Self { out, start, server_end, date_at }
    }

    /// Adds a field. A caller must not pass CR, LF or NUL; if it does, they become spaces (RFC 9110
    /// section 5.5), so that no value can end the line and begin another.
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

    /// Adds whole lines made earlier, each ending in CRLF. They are trusted.
    pub fn raw(&mut self, block: &[u8]) {
        debug_assert!(block.is_empty() || block.ends_with(b"\r\n"));
        self.out.extend_from_slice(block);
    }

    /// Ends the head, with `Connection: close` if the connection will be, padded to a multiple of
    /// `align_bytes`; 1 for no padding. Gives the offset of the date's 29 bytes in the buffer, so that
    /// a kept head can be brought up to date in place.
    pub fn finish(mut self, close: bool, align_bytes: usize) -> usize {
        if close {
            self.out.extend_from_slice(b"Connection: close\r\n");
        }
        self.out.extend_from_slice(b"\r\n");
        if align_bytes > 1 {
            self.pad(align_bytes);
        }
        self.date_at
    }

    /// Lengthens the value of `Server`, as the paper does (Flash 1999, section 5.5), by a comment: that
    /// is what its grammar allows (RFC 9110, section 10.2.4), and white space beyond one space is
    /// discouraged (section 5.6.3).
    fn pad(&mut self, align_bytes: usize) {
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
        self.out.splice(self.server_end..self.server_end, comment);
        self.date_at += missing;
    }
}

/// What ` ()` takes.
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
    // u64::MAX has 20 digits.
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::date::http_date;

    #[test]
    fn a_head_byte_for_byte() {
        let mut out = b"kept".to_vec();
        let mut head = HeadWriter::start(&mut out, Status::PARTIAL_CONTENT, &http_date(784_111_777));
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
    fn a_kept_connection_is_not_spoken_of() {
        let mut out = Vec::new();
        HeadWriter::start(&mut out, Status::OK, &http_date(0)).finish(false, 1);
        assert!(out.ends_with(b"GMT\r\n\r\n"));
        assert!(!out.windows(10).any(|window| window == b"Connection"));
    }

    #[test]
    fn a_padded_head_is_as_long_as_it_should_be_and_says_the_same() {
        for field_bytes in 0..70 {
            let heads = [1, 32].map(|align_bytes| {
                let mut out = b"kept".to_vec();
                let mut head = HeadWriter::start(&mut out, Status::OK, &http_date(784_111_777));
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
    fn a_value_can_not_begin_a_line() {
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
        assert_eq!(Status(299).reason(), "Unknown");
    }
}
