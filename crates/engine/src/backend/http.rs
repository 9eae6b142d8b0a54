//! The warm endpoint as HTTP/1: a connection's bytes in, questions and answers out.
//!
//! For nginx (`auth_request`) and h2o (`http_request`), see `modules/endpoint`. `GET /NAME` asks for a file by
//! its absolute name, `GET /NAME?root=/DIRECTORY` for a name beneath a directory; both escaped. `HEAD` leaves
//! the content out. Heads are parsed by `flash_http`, which is strict; bodies are refused. One question at a
//! time: the bytes behind it wait. Pure; called by the sessions of [`backend`](crate::backend).

use flash_http::request::Method;
use flash_http::target::unescape;
use flash_http::{BadPath, Head, HeadLimits, Request, Status, Version, head_end, parse_head};

use super::warm::{FileRange, Next, WARM_PATH_BYTES_MAX, WarmRequest, WarmResult, resolve, retry_after_s};

/// The bytes of a connection that are kept, at most: a head of a path whose bytes are all escaped.
pub const HTTP_INPUT_BYTES_MAX: usize = 32 * 1024;

const LIMITS: HeadLimits =
    HeadLimits { head_bytes: HTTP_INPUT_BYTES_MAX, fields: 64, target_bytes: 4 * WARM_PATH_BYTES_MAX };

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HttpState {
    /// Between requests, or within a head of which this many bytes have been seen.
    Head { seen: usize },
    /// A question waits for its answer.
    Asked { keep_alive: bool },
    /// The connection ends.
    Ended,
}

/// A connection.
///
/// - Events: [`Http::handle_bytes`], [`Http::handle_answer`].
/// - Next steps: [`Http::poll`] after each of them; not while a question waits.
#[derive(Debug)]
pub struct Http {
    input: Vec<u8>,
    state: HttpState,
}

impl Default for Http {
    fn default() -> Self {
        Self { input: Vec::new(), state: HttpState::Head { seen: 0 } }
    }
}

impl Http {
    /// How many more bytes it takes now. With 0, receive nothing until its question is answered.
    pub fn room_bytes(&self) -> usize {
        match self.state {
            HttpState::Ended => 0,
            _ => HTTP_INPUT_BYTES_MAX.saturating_sub(self.input.len()),
        }
    }

    /// Takes received bytes, at most [`Http::room_bytes`].
    pub fn handle_bytes(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(&bytes[..bytes.len().min(self.room_bytes())]);
    }

    /// Continues as far as possible. Refusals are written to `out` at once.
    pub fn poll(&mut self, out: &mut Vec<u8>) -> Next {
        let HttpState::Head { seen } = self.state else {
            return if self.state == HttpState::Ended { Next::End } else { Next::Input };
        };
        if seen > 0 && self.input.len() < HTTP_INPUT_BYTES_MAX && head_end(&self.input, seen).is_none() {
            self.state = HttpState::Head { seen: self.input.len() };
            return Next::Input;
        }
        mask_socket_host(&mut self.input);
        let (head_len, keep_alive, question) = match parse_head(&self.input, &LIMITS) {
            Ok(Head::Partial) => {
                self.state = HttpState::Head { seen: self.input.len() };
                return Next::Input;
            }
            Ok(Head::Complete(request)) => (request.head_len, keeps(&request), question_of(&request)),
            Err(bad) => {
                self.refuse(out, bad.status(), bad.reason());
                return Next::End;
            }
        };
        self.input.drain(..head_len);
        match question {
            Ok(ask) => {
                self.state = HttpState::Asked { keep_alive };
                Next::Request(ask)
            }
            Err((status, reason)) => {
                self.refuse(out, status, reason);
                Next::End
            }
        }
    }

    /// Writes the answer to the question.
    pub fn handle_answer(&mut self, answer: WarmResult, out: &mut Vec<u8>) {
        let HttpState::Asked { keep_alive } = self.state else { return };
        self.state = if keep_alive { HttpState::Head { seen: 0 } } else { HttpState::Ended };
        match answer {
            // RFC 9110 section 8.6: no Content-Length with 204.
            WarmResult::Done => push_head(out, Status::NO_CONTENT, keep_alive, &[]),
            WarmResult::Refused => push_head(out, Status::FORBIDDEN, keep_alive, &[("Content-Length", 0)]),
            WarmResult::Busy { retry_after_ms } => {
                let fields = [("Retry-After", retry_after_s(retry_after_ms)), ("Content-Length", 0)];
                push_head(out, Status::UNAVAILABLE, keep_alive, &fields);
            }
        }
    }

    /// Refuses a request and ends the connection.
    fn refuse(&mut self, out: &mut Vec<u8>, status: Status, reason: &str) {
        self.state = HttpState::Ended;
        self.input = Vec::new();
        let text = format!("{reason}.\n");
        push_head(out, status, false, &[("Content-Length", text.len() as u32)]);
        out.extend_from_slice(text.as_bytes());
    }
}

/// Overwrites a host that is a socket's path, as h2o 2.2 sends it: `Host: [unix:/run/flash/warm.sock]`. No URI has
/// such a host (RFC 3986 section 3.2.2), so the parser would refuse the request.
fn mask_socket_host(input: &mut [u8]) {
    const FIELD: &[u8] = b"\r\nHost: ";
    const SOCKET: &[u8] = b"[unix:";
    let Some(at) = input.windows(FIELD.len()).position(|bytes| bytes.eq_ignore_ascii_case(FIELD)) else {
        return;
    };
    let value = &mut input[at + FIELD.len()..];
    // A value whose end has not come yet is left alone, and so is one with bytes that no field has.
    let Some(end) = value.iter().position(|byte| !byte.is_ascii_graphic()) else { return };
    if value[end] == b'\r' && value[..end].starts_with(SOCKET) && value[..end].ends_with(b"]") {
        value[..end].fill(b'x');
    }
}

fn keeps(request: &Request<'_>) -> bool {
    // An HTTP/1.0 client would need `Connection: keep-alive` in the answer.
    request.keep_alive && request.version == Version::Http11
}

/// The question of a request, or why it is refused.
fn question_of(request: &Request<'_>) -> Result<WarmRequest, (Status, &'static str)> {
    let part = match request.method {
        Method::Get => FileRange::of_range(request.range),
        Method::Head => FileRange::NOTHING,
        _ => return Err((Status::METHOD_NOT_ALLOWED, "Only GET and HEAD are answered here")),
    };
    if !request.body.is_empty() {
        return Err((Status::PAYLOAD_TOO_LARGE, "No request has a body here"));
    }
    let bad = |bad: BadPath| (bad.status(), bad.reason());
    let root = match request.query {
        None => Vec::new(),
        Some(query) => match query.strip_prefix(b"root=") {
            Some(root) => unescape(root).map_err(bad)?,
            None => return Err((Status::BAD_REQUEST, "The only parameter is root")),
        },
    };
    let path = resolve(&root, &unescape(request.path).map_err(bad)?).map_err(bad)?;
    if path.len() > WARM_PATH_BYTES_MAX {
        return Err((Status::URI_TOO_LONG, "The path is too long"));
    }
    Ok(WarmRequest { path, part })
}

fn push_head(out: &mut Vec<u8>, status: Status, keep_alive: bool, fields: &[(&str, u32)]) {
    let mut head = format!("HTTP/1.1 {} {}\r\n", status.0, status.reason());
    for (name, value) in fields {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !keep_alive {
        head.push_str("Connection: close\r\n");
    }
    head.push_str("\r\n");
    out.extend_from_slice(head.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The questions of some bytes, received `step` bytes at a time and all answered the same; the output; and
    /// whether the connection has ended.
    fn talk(bytes: &[u8], step: usize, answer: WarmResult) -> (Vec<WarmRequest>, String, bool) {
        let mut http = Http::default();
        let (mut asks, mut out, mut ended) = (Vec::new(), Vec::new(), false);
        for piece in bytes.chunks(step) {
            http.handle_bytes(piece);
            loop {
                match http.poll(&mut out) {
                    Next::Input => break,
                    Next::Request(ask) => {
                        assert_eq!(http.poll(&mut out), Next::Input, "one question at a time");
                        asks.push(ask);
                        http.handle_answer(answer, &mut out);
                    }
                    Next::End => {
                        ended = true;
                        break;
                    }
                }
            }
        }
        (asks, String::from_utf8(out).unwrap(), ended)
    }

    fn ask(path: &str, part: FileRange) -> WarmRequest {
        WarmRequest { path: path.as_bytes().to_vec(), part }
    }

    #[test]
    fn requests_of_the_servers() {
        // As nginx 1.22 and h2o 2.2 send them.
        let nginx = b"GET /srv/www/a%20b.txt HTTP/1.1\r\nRange: bytes=4-5\r\nHost: flash_warm\r\n\r\n";
        let h2o = b"GET /x/..%2F../%C3%A9?root=%2Fsrv%2Fwww HTTP/1.1\r\nConnection: close\r\n\
            Host: [unix:/run/flash/warm.sock]\r\n\r\n";
        let both = [&nginx[..], nginx, h2o, nginx].concat();
        for step in [1, 7, both.len()] {
            let (asks, out, ended) = talk(&both, step, WarmResult::Done);
            let first = ask("/srv/www/a b.txt", FileRange::From { offset: 4, length_bytes: 2 });
            assert_eq!(asks, [first.clone(), first, ask("/srv/www/\u{e9}", FileRange::FIRST)]);
            let done = "HTTP/1.1 204 No Content\r\n";
            assert_eq!(out, format!("{done}\r\n{done}\r\n{done}Connection: close\r\n\r\n"));
            assert!(ended);
        }
    }

    #[test]
    fn answers() {
        let request = b"HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n";
        for (answer, expected) in [
            (WarmResult::Done, "HTTP/1.1 204 No Content\r\n\r\n"),
            (WarmResult::Refused, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"),
            (
                WarmResult::Busy { retry_after_ms: 1001 },
                "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n",
            ),
            (
                WarmResult::Busy { retry_after_ms: 0 },
                "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n",
            ),
        ] {
            let (asks, out, ended) = talk(request, 9, answer);
            assert_eq!((asks, out.as_str(), ended), (vec![ask("/a", FileRange::NOTHING)], expected, false));
        }
    }

    #[test]
    fn refusals() {
        let long = format!("/{}", "a".repeat(5000));
        let larger = format!("/{}", "a".repeat(17_000));
        for (request, status) in [
            ("POST /a HTTP/1.1\r\nHost: x\r\n\r\n", 405),
            ("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 405),
            ("GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n", 413),
            ("GET /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", 413),
            ("GET /a%00 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
            ("GET /a% HTTP/1.1\r\nHost: x\r\n\r\n", 400),
            ("GET /a?root=srv HTTP/1.1\r\nHost: x\r\n\r\n", 400),
            ("GET /a?b HTTP/1.1\r\nHost: x\r\n\r\n", 400),
            ("GET /a HTTP/1.1\r\n\r\n", 400),
            ("GET /a HTTP/1.1\nHost: x\n\n", 400),
            ("\u{1}\u{2}\u{0}\u{0}\u{0}\u{0}\r\n", 400),
            ("GET /a HTTP/2.0\r\nHost: x\r\n\r\n", 505),
            (&format!("GET {long} HTTP/1.1\r\nHost: x\r\n\r\n"), 414),
            (&format!("GET {larger} HTTP/1.1\r\nHost: x\r\n\r\n"), 414),
            (&format!("GET /a HTTP/1.1\r\nHost: x\r\nX: {}", "y".repeat(40_000)), 431),
        ] {
            for step in [1, 100, request.len()] {
                let (asks, out, ended) = talk(request.as_bytes(), step, WarmResult::Done);
                assert!(asks.is_empty() && ended, "{request:.60}");
                assert!(out.starts_with(&format!("HTTP/1.1 {status} ")), "{request:.60}: {out}");
                assert!(out.contains("\r\nConnection: close\r\n"), "{out}");
            }
        }
    }

    #[test]
    fn input_is_bounded_while_a_question_waits() {
        let mut http = Http::default();
        http.handle_bytes(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(matches!(http.poll(&mut Vec::new()), Next::Request(_)));
        for _ in 0..10 {
            http.handle_bytes(&[b'x'; 10_000]);
        }
        assert_eq!((http.room_bytes(), http.input.len()), (0, HTTP_INPUT_BYTES_MAX));
    }

    #[test]
    fn http_1_0_is_answered_and_closed() {
        let request = b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
        let (asks, out, ended) = talk(request, 100, WarmResult::Done);
        assert_eq!((asks.len(), ended), (1, true));
        assert!(out.ends_with("Connection: close\r\n\r\n"));
    }
}
