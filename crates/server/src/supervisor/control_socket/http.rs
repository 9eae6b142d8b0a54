//! The requests and answers of the control socket in HTTP/1: for scrapers, health checks and browsers. Pure.

use crate::stats::{MetricsFormat, Request};

pub(super) const HEAD_BYTES_MAX: usize = 8 * 1024;
const PAGE: &str = include_str!("page.html");

/// The content of an answer that has to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Metrics(MetricsFormat),
    Stats,
    /// Whether new requests are served.
    Ready,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HttpRequest {
    pub(super) content: Content,
    /// HEAD: the answer has no body.
    pub(super) is_head: bool,
}

/// The request of a client that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// On a line; answered with a document on a line.
    Line(Request),
    /// On a line: the supervisor upgrades itself, and the next program answers.
    Upgrade,
    Http(HttpRequest),
}

impl Wanted {
    /// The request to the workers; None if no worker is needed.
    pub(super) fn request(self) -> Option<Request> {
        match self {
            Wanted::Line(request) => Some(request),
            Wanted::Upgrade | Wanted::Http(HttpRequest { content: Content::Ready, .. }) => None,
            Wanted::Http(_) => Some(Request::Stats),
        }
    }
}

/// The meaning of the bytes that a client has sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    Incomplete,
    Wanted(Wanted),
    /// The answer needs no content from the server.
    Answered(Vec<u8>),
}

/// Whether these bytes can be the beginning of a request of HTTP: a method of capitals, and a space.
pub(super) fn is_http(bytes: &[u8]) -> bool {
    let capitals = bytes.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    capitals > 0 && bytes.get(capitals).is_none_or(|byte| *byte == b' ')
}

/// Reads the request. A path is known or 404; its query is ignored.
pub(super) fn parse(bytes: &[u8]) -> Parsed {
    let refuse = |status: &str, text: &str| Parsed::Answered(refusal(status, text));
    let ends = [&b"\r\n\r\n"[..], b"\n\n"];
    let ends = ends.iter().filter_map(|end| bytes.windows(end.len()).position(|part| part == *end));
    let Some(end) = ends.min() else {
        if bytes.len() < HEAD_BYTES_MAX {
            return Parsed::Incomplete;
        }
        return refuse("431 Request Header Fields Too Large", "The request head is too long.\n");
    };
    let head = String::from_utf8_lossy(&bytes[..end]);
    let mut lines = head.lines();
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version] = words[..] else {
        return refuse("400 Bad Request", "This is no request of HTTP/1.\n");
    };
    if !version.starts_with("HTTP/1.") {
        return refuse("505 HTTP Version Not Supported", "Only HTTP/1 is spoken here.\n");
    }
    let is_head = method == "HEAD";
    if !is_head && method != "GET" {
        return refuse("405 Method Not Allowed", "Only GET and HEAD are answered here.\n");
    }
    let ready = |kind: &str, body: &[u8]| Parsed::Answered(answer("200 OK", kind, body, is_head));
    let content = match target.split('?').next().unwrap_or_default() {
        "/metrics" => Content::Metrics(format(lines)),
        "/stats.json" => Content::Stats,
        "/ready" => Content::Ready,
        "/health" => return ready("text/plain; charset=utf-8", b"alive\n"),
        "/" => return ready("text/html; charset=utf-8", PAGE.as_bytes()),
        _ => return refuse("404 Not Found", "There are /, /metrics, /stats.json, /health and /ready.\n"),
    };
    Parsed::Wanted(Wanted::Http(HttpRequest { content, is_head }))
}

/// The format that a scraper accepts.
fn format<'a>(mut fields: impl Iterator<Item = &'a str>) -> MetricsFormat {
    let accepts = |line: &str| {
        let Some((name, value)) = line.split_once(':') else { return false };
        name.eq_ignore_ascii_case("accept") && value.contains("application/openmetrics-text")
    };
    if fields.any(accepts) { MetricsFormat::OpenMetrics } else { MetricsFormat::Prometheus }
}

pub(super) fn refusal(status: &str, text: &str) -> Vec<u8> {
    answer(status, "text/plain; charset=utf-8", text.as_bytes(), false)
}

/// A whole answer, after which the connection is closed.
pub(super) fn answer(status: &str, content_type: &str, body: &[u8], is_head: bool) -> Vec<u8> {
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\n{allow}Connection: close\r\n\r\n",
        body.len()
    );
    let body = if is_head { &[][..] } else { body };
    [head.as_bytes(), body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(bytes: &[u8]) -> String {
        match parse(bytes) {
            Parsed::Answered(answer) => {
                String::from_utf8_lossy(&answer).split(' ').nth(1).map(str::to_owned).unwrap_or_default()
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn requests_are_told_apart() {
        let request = |content, is_head| Parsed::Wanted(Wanted::Http(HttpRequest { content, is_head }));
        let open = b"GET /metrics HTTP/1.1\r\nHost: x\r\nACCEPT: text/plain;q=0.5,application/openmetrics-text;version=1.0.0\r\n\r\n";
        assert_eq!(parse(open), request(Content::Metrics(MetricsFormat::OpenMetrics), false));
        assert_eq!(
            parse(b"GET /metrics?x HTTP/1.0\n\n"),
            request(Content::Metrics(MetricsFormat::Prometheus), false)
        );
        assert_eq!(parse(b"HEAD /ready HTTP/1.1\r\n\r\n"), request(Content::Ready, true));
        assert_eq!(parse(b"GET /stats.json HTTP/1.1\r\n\r\n"), request(Content::Stats, false));
        for (part, expected) in [
            (&b"GET /health HTTP/1.1\r\n\r\n"[..], "200"),
            (b"GET / HTTP/1.1\r\n\r\n", "200"),
            (b"GET /nothing HTTP/1.1\r\n\r\n", "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"GET /metrics HTTP/2.0\r\n\r\n", "505"),
            (b"GET /metrics\r\n\r\n", "400"),
            (b"\r\n\r\n", "400"),
            (&[b'G'; HEAD_BYTES_MAX], "431"),
        ] {
            assert_eq!(status(part), expected, "{}", part.escape_ascii());
        }
        assert_eq!(parse(b"GET /metrics HTTP/1.1\r\nHost: x\r\n"), Parsed::Incomplete);
    }

    #[test]
    fn an_answer_to_head_has_the_length_and_no_body() {
        let text = answer("200 OK", "text/plain", b"abc", true);
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("Content-Length: 3\r\n") && text.ends_with("\r\n\r\n"), "{text}");
    }
}
