//! Request heads: which are accepted, which are refused with which status, and that neither depends on how
//! the bytes arrive.

use flash_http::{BadHead, Body, Head, HeadLimits, Method, Request, Status, Version, head_end, parse_head};
use proptest::prelude::*;

const LIMITS: HeadLimits = HeadLimits { head_bytes: 32 * 1024, fields: 100, target_bytes: 8 * 1024 };

#[track_caller]
fn complete(head: &str) -> Request<'_> {
    match parse_head(head.as_bytes(), &LIMITS) {
        Ok(Head::Complete(request)) => request,
        other => panic!("{head:?}: {other:?}"),
    }
}

#[track_caller]
fn refused(head: &[u8]) -> BadHead {
    match parse_head(head, &LIMITS) {
        Err(bad) => bad,
        other => panic!("{:?}: {other:?}", String::from_utf8_lossy(head)),
    }
}

#[track_caller]
fn assert_status(head: &[u8], status: Status) {
    let bad = refused(head);
    assert_eq!(bad.status(), status, "{:?}: {bad}", String::from_utf8_lossy(head));
}

fn with_line(line: &str) -> String {
    format!("{line}\r\nHost: a\r\n\r\n")
}

/// A GET with these lines in addition to `Host`.
fn with_fields(lines: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n")
}

#[test]
fn a_usual_request() {
    let head = "GET /a%20b?c=d?e HTTP/1.1\r\nHost: Example.org:8080\r\nACCEPT: text/html\r\n\
        accept-encoding:gzip\r\nRange: \t bytes=0-1 \t\r\nUser-Agent: x\ty\r\nReferer:\r\n\
        If-None-Match: \"a\"\r\nX-Other: \u{e9}\r\n\r\n";
    let all = format!("{head}GET /next HTTP/1.1\r\n");
    let request = complete(&all);
    assert_eq!(request.head_len, head.len());
    assert_eq!((request.method, request.version), (Method::Get, Version::Http11));
    assert_eq!(request.line, b"GET /a%20b?c=d?e HTTP/1.1");
    assert_eq!(request.path, b"/a%20b");
    assert_eq!(request.query, Some(&b"c=d?e"[..]));
    assert_eq!(request.host, b"Example.org");
    assert!(request.keep_alive && !request.expect_continue);
    assert_eq!(request.body, Body::None);
    assert_eq!(request.accept.as_deref(), Some(&b"text/html"[..]));
    assert_eq!(request.accept_encoding.as_deref(), Some(&b"gzip"[..]));
    assert_eq!(request.range, Some(&b"bytes=0-1"[..]));
    assert_eq!(request.user_agent, Some(&b"x\ty"[..]));
    assert_eq!(request.referer, Some(&b""[..]));
    assert_eq!(request.if_none_match.as_deref(), Some(&b"\"a\""[..]));
    assert_eq!(request.if_match, None);
    assert_eq!(
        (request.if_range, request.if_modified_since, request.if_unmodified_since),
        (None, None, None)
    );
}

#[test]
fn methods() {
    for (name, method) in [
        ("GET", Method::Get),
        ("HEAD", Method::Head),
        ("OPTIONS", Method::Options),
        ("POST", Method::Known),
        ("PUT", Method::Known),
        ("DELETE", Method::Known),
        ("PATCH", Method::Known),
        ("TRACE", Method::Known),
        ("CONNECT", Method::Known),
        ("get", Method::Unknown),
        ("GETS", Method::Unknown),
        ("PROPFIND", Method::Unknown),
        ("!#$%&'*+-.^_`|~9aZ", Method::Unknown),
    ] {
        assert_eq!(complete(&with_line(&format!("{name} / HTTP/1.1"))).method, method, "{name}");
    }
}

#[test]
fn targets() {
    for (line, host, path, query) in [
        ("GET / HTTP/1.1", "a", "/", None),
        ("GET /? HTTP/1.1", "a", "/", Some("")),
        ("GET //b HTTP/1.1", "a", "//b", None),
        ("GET /a:b@c HTTP/1.1", "a", "/a:b@c", None),
        ("OPTIONS * HTTP/1.1", "a", "*", None),
        ("OPTIONS /x HTTP/1.1", "a", "/x", None),
        ("GET http://b.c/d?e HTTP/1.1", "b.c", "/d", Some("e")),
        ("GET HTTPS://b.c:443/d HTTP/1.1", "b.c", "/d", None),
        ("GET http://b HTTP/1.1", "b", "/", None),
        ("GET http://b?c/d HTTP/1.1", "b", "/", Some("c/d")),
        ("GET http://[::1]:80/d HTTP/1.1", "[::1]", "/d", None),
        ("CONNECT b.c:443 HTTP/1.1", "a", "/", None),
    ] {
        let head = with_line(line);
        let request = complete(&head);
        assert_eq!(request.host, host.as_bytes(), "{line}");
        assert_eq!(request.path, path.as_bytes(), "{line}");
        assert_eq!(request.query, query.map(str::as_bytes), "{line}");
    }
}

#[test]
fn bad_request_lines() {
    for line in [
        "GET",
        "GET ",
        "GET /",
        "GET / ",
        "/",
        " GET / HTTP/1.1",
        "GET  / HTTP/1.1",
        "GET /  HTTP/1.1",
        "GET / HTTP/1.1 ",
        "GET\t/ HTTP/1.1",
        "GET /\tHTTP/1.1",
        "GET HTTP/1.1",
        "GET  HTTP/1.1",
        "GET /a b HTTP/1.1",
        " / HTTP/1.1",
        "G(T / HTTP/1.1",
        "G\u{e9}T / HTTP/1.1",
        "G\0T / HTTP/1.1",
        "GET /#a HTTP/1.1",
        "GET /a\u{e9} HTTP/1.1",
        "GET /\u{7f} HTTP/1.1",
        "GET /\0 HTTP/1.1",
        "GET /\ra HTTP/1.1",
        "GET / HTTP/1.1\r",
        "GET * HTTP/1.1",
        "OPTIONS *a HTTP/1.1",
        "OPTIONS *?a HTTP/1.1",
        "GET a HTTP/1.1",
        "GET b.c:443 HTTP/1.1",
        "POST b.c:443 HTTP/1.1",
        "GET ftp://b/ HTTP/1.1",
        "GET http:/b HTTP/1.1",
        "GET http:///b HTTP/1.1",
        "GET http://:80/b HTTP/1.1",
        "GET http://u@b/ HTTP/1.1",
        "GET http://u:p@b/ HTTP/1.1",
        "GET http://b:x/ HTTP/1.1",
        "GET http://b\\c/ HTTP/1.1",
        "GET ?a HTTP/1.1",
        "GET / http/1.1",
        "GET / HTTP/1",
        "GET / HTTP/1.",
        "GET / HTTP/11",
        "GET / HTTP/1.10",
        "GET / HTTP/a.1",
        "GET / HTTP/1,1",
        "GET / HTTPS/1.1",
        "GET / HTTP/ 1.1",
        "GET /HTTP/1.1",
    ] {
        assert_status(with_line(line).as_bytes(), Status::BAD_REQUEST);
    }
}

#[test]
fn versions() {
    assert_eq!(complete("GET / HTTP/1.0\r\n\r\n").version, Version::Http10);
    assert_eq!(complete(&with_line("GET / HTTP/1.2")).version, Version::Http11);
    assert_eq!(complete(&with_line("GET / HTTP/1.9")).version, Version::Http11);
    for version in ["0.9", "2.0", "3.0", "9.9"] {
        assert_status(with_line(&format!("GET / HTTP/{version}")).as_bytes(), Status::VERSION_NOT_SUPPORTED);
    }
    assert_status(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Status::VERSION_NOT_SUPPORTED);
    // The answer does not wait for the rest.
    assert_status(b"PRI * HTTP/2.0\r\n", Status::VERSION_NOT_SUPPORTED);
}

#[test]
fn keep_alive() {
    for (version, connection, expected) in [
        ("1.1", "", true),
        ("1.1", "close", false),
        ("1.1", "CLOSE", false),
        ("1.1", "x, Close ,y", false),
        ("1.1", "closed", true),
        ("1.1", "keep-alive, close", false),
        ("1.1", "upgrade", true),
        ("1.0", "", false),
        ("1.0", "Keep-Alive", true),
        ("1.0", "x,keep-alive", true),
        ("1.0", "keep-alive, close", false),
    ] {
        let head = format!("GET / HTTP/{version}\r\nHost: a\r\nConnection: {connection}\r\n\r\n");
        assert_eq!(complete(&head).keep_alive, expected, "{version} {connection:?}");
    }
    assert!(!complete(&with_fields("Connection: x\r\nConnection: close\r\nConnection: y\r\n")).keep_alive);
}

#[test]
fn hosts() {
    for (value, host) in [
        ("a", "a"),
        ("a.b-c_d.", "a.b-c_d."),
        ("a:", "a"),
        ("a:80", "a"),
        ("a:65535", "a"),
        ("127.0.0.1:8080", "127.0.0.1"),
        ("[::1]", "[::1]"),
        ("[2001:DB8::1]:443", "[2001:DB8::1]"),
        ("a%2Db", "a%2Db"),
        ("\t a \t", "a"),
    ] {
        assert_eq!(
            complete(&format!("GET / HTTP/1.1\r\nHost: {value}\r\n\r\n")).host,
            host.as_bytes(),
            "{value}"
        );
    }
    for value in [
        "",
        ":80",
        "u@a",
        "u:p@a",
        "a/b",
        "a b",
        "a,b c",
        "a:x",
        "a:65536",
        "a:+80",
        "a:80:80",
        "a:99999999999999999999",
        "[::1",
        "[]",
        "[::1]x",
        "[::1]:x",
        "[1.2.3.4]",
        "[fe80::1%25eth0]",
        "[v1.x]",
        "::1",
        "a%",
        "a%2",
        "a%zz",
        "a?b",
        "a#b",
        "a\\b",
        "a<b",
        "\"a\"",
        "\u{e9}",
        "http://a",
    ] {
        assert_status(format!("GET / HTTP/1.1\r\nHost: {value}\r\n\r\n").as_bytes(), Status::BAD_REQUEST);
    }
    assert_status(b"GET / HTTP/1.1\r\n\r\n", Status::BAD_REQUEST);
    assert_status(b"GET http://a/ HTTP/1.1\r\n\r\n", Status::BAD_REQUEST);
    assert_status(b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", Status::BAD_REQUEST);
    assert_status(b"GET / HTTP/1.0\r\nHost: a\r\nhost: b\r\n\r\n", Status::BAD_REQUEST);
    assert_status(b"GET http://a/ HTTP/1.1\r\nHost: u@b\r\n\r\n", Status::BAD_REQUEST);
    assert_eq!(complete("GET / HTTP/1.0\r\n\r\n").host, b"");
    assert_eq!(complete("GET http://a/ HTTP/1.0\r\n\r\n").host, b"a");
    assert_eq!(complete("GET http://a/ HTTP/1.1\r\nHost:\r\n\r\n").host, b"a");
}

#[test]
fn bad_lines() {
    for head in [
        // A bare LF, at each place where `httparse` accepts one.
        "GET / HTTP/1.1\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: y\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX:\n\r\n",
        "GET / HTTP/1.1\r\nX: y\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nX:\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nX: \nHost: a\r\n\r\n",
        "GET / HTTP/1.0\r\n\n",
        "GET / HTTP/1.0\n\n",
        "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\r\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        // Bare CRs.
        "\rGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\rX",
        "GET / HTTP/1.1\r\nHost: a\rX: y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: \rb\r\n\r\n",
        // Folded lines.
        "GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n z\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX:\r\n\tz\r\n\r\n",
        "GET / HTTP/1.1\r\n Host: a\r\n\r\n",
        // Invalid names.
        "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX\t: y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n: y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX y: z\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX(: z\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX\u{e9}: z\r\n\r\n",
        // Empty lines.
        "\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        assert_status(head.as_bytes(), Status::BAD_REQUEST);
    }
    for lines in ["", "\r\n", "\r\n\r\n"] {
        let head = format!("{lines}{}", with_line("GET / HTTP/1.1"));
        assert_eq!(complete(&head).head_len, head.len());
    }
}

#[test]
fn every_byte_in_a_name_and_in_a_value() {
    // At several offsets, because values are examined in blocks of 8, 16 and 32 bytes.
    for byte in 0..=255u8 {
        for front in [0, 1, 7, 15, 31, 40] {
            let build = |name: &[u8], value: &[u8]| {
                let pad = vec![b'x'; front];
                [
                    b"GET / HTTP/1.1\r\nHost: a\r\n",
                    &pad[..],
                    b"n",
                    name,
                    b"n: ",
                    &pad,
                    b"v",
                    value,
                    b"v",
                    &pad,
                    b"\r\n\r\n",
                ]
                .concat()
            };
            let in_value = build(b"", &[byte]);
            let good = byte == b'\t' || (byte >= b' ' && byte != 0x7f);
            assert_eq!(parse_head(&in_value, &LIMITS).is_ok(), good, "{byte:#x} in a value after {front}");
            let in_name = build(&[byte], b"");
            let good = byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:".contains(&byte);
            assert_eq!(parse_head(&in_name, &LIMITS).is_ok(), good, "{byte:#x} in a name after {front}");
        }
    }
}

#[test]
fn bodies() {
    for (lines, body) in [
        ("", Body::None),
        ("Content-Length: 0\r\n", Body::Length(0)),
        ("Content-Length: 0042\r\n", Body::Length(42)),
        ("content-length:\t18446744073709551615 \r\n", Body::Length(u64::MAX)),
        ("Transfer-Encoding: chunked\r\n", Body::Chunked),
        ("transfer-encoding: CHUNKED\r\n", Body::Chunked),
    ] {
        assert_eq!(complete(&with_fields(lines)).body, body, "{lines:?}");
    }
    for lines in [
        "Content-Length: 1\r\nContent-Length: 1\r\n",
        "Content-Length: 1\r\nContent-Length: 2\r\n",
        "Content-Length: 1, 1\r\n",
        "Content-Length:\r\n",
        "Content-Length: +1\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 1 1\r\n",
        "Content-Length: 0x1\r\n",
        "Content-Length: 1.0\r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Content-Length: 99999999999999999999999999\r\n",
        "Content-Length: \u{0661}\r\n",
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding:\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
        "Transfer-Encoding: chunked,\r\n",
        "Transfer-Encoding: ,chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked;a=b\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
    ] {
        assert_status(with_fields(lines).as_bytes(), Status::BAD_REQUEST);
    }
    assert_status(with_fields("Transfer-Encoding: gzip, chunked\r\n").as_bytes(), Status::NOT_IMPLEMENTED);
    assert_status(b"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", Status::BAD_REQUEST);
}

#[test]
fn expectations() {
    let body = "Content-Length: 1\r\n";
    assert!(complete(&with_fields(&format!("{body}Expect: 100-continue\r\n"))).expect_continue);
    assert!(complete(&with_fields(&format!("{body}expect: 100-Continue\r\n"))).expect_continue);
    assert!(!complete(&with_fields(body)).expect_continue);
    assert!(!complete(&with_fields("Expect: 100-continue\r\n")).expect_continue);
    for other in ["x", "100-continue, x", "100-continued"] {
        assert_status(with_fields(&format!("Expect: {other}\r\n")).as_bytes(), Status::EXPECTATION_FAILED);
    }
    let old = complete("POST / HTTP/1.0\r\nContent-Length: 1\r\nExpect: 100-continue\r\nExpect: x\r\n\r\n");
    assert!(!old.expect_continue);
}

#[test]
fn repeated_fields() {
    let head = with_fields(
        "Accept: a\r\nAccept: b, c\r\nAccept-Encoding: x\r\naccept-encoding: y\r\nIf-Match: \"a\"\r\n\
         If-Match: \"b\"\r\nRange: bytes=0-1\r\nRange: bytes=0-1\r\nIf-Modified-Since: x\r\n\
         If-Modified-Since: x\r\nIf-Unmodified-Since: x\r\nIf-Unmodified-Since: x\r\nIf-Unmodified-Since: x\r\n\
         Referer: one\r\nReferer: two\r\nUser-Agent: one\r\nUser-Agent: two\r\n",
    );
    let request = complete(&head);
    assert_eq!(request.accept.as_deref(), Some(&b"a, b, c"[..]));
    assert_eq!(request.accept_encoding.as_deref(), Some(&b"x, y"[..]));
    assert_eq!(request.if_match.as_deref(), Some(&b"\"a\", \"b\""[..]));
    assert_eq!((request.range, request.if_modified_since, request.if_unmodified_since), (None, None, None));
    assert_eq!((request.referer, request.user_agent), (Some(&b"one"[..]), Some(&b"one"[..])));
    // A repeated `If-Range` makes `Range` absent too.
    let head = with_fields("Range: bytes=0-1\r\nIf-Range: \"a\"\r\nIf-Range: \"b\"\r\n");
    let request = complete(&head);
    assert_eq!((request.range, request.if_range), (None, None));
}

#[test]
fn limits() {
    let target = |len: usize| with_line(&format!("GET /{} HTTP/1.1", "a".repeat(len - 1)));
    complete(&target(8 * 1024));
    assert_status(target(8 * 1024 + 1).as_bytes(), Status::URI_TOO_LONG);
    // Before the line has ended, and if it is longer than the whole head can be.
    assert_status(&target(9_000).as_bytes()[..8_300], Status::URI_TOO_LONG);
    assert_status(target(40_000).as_bytes(), Status::URI_TOO_LONG);

    let fields = |count: usize| with_fields(&"X: y\r\n".repeat(count - 1));
    for count in [19, 20, 21, 100] {
        complete(&fields(count));
    }
    assert_status(fields(101).as_bytes(), Status::HEAD_TOO_LARGE);
    assert_eq!(refused(fields(101).as_bytes()), BadHead::TooManyFields);
    let few = HeadLimits { fields: 3, ..LIMITS };
    assert!(parse_head(fields(3).as_bytes(), &few).is_ok());
    assert_eq!(parse_head(fields(4).as_bytes(), &few).unwrap_err(), BadHead::TooManyFields);

    let sized =
        |len: usize| with_fields(&format!("X: {}\r\n", "y".repeat(len - with_fields("X: \r\n").len())));
    assert_eq!(complete(&sized(32 * 1024)).head_len, 32 * 1024);
    assert_eq!(refused(sized(32 * 1024 + 1).as_bytes()), BadHead::HeadTooLarge);
    assert_eq!(refused(&sized(40_000).as_bytes()[..32 * 1024]), BadHead::HeadTooLarge);
    assert!(matches!(parse_head(&sized(40_000).as_bytes()[..32 * 1024 - 1], &LIMITS), Ok(Head::Partial)));
    assert_eq!(refused(&[b'A'; 33_000]), BadHead::HeadTooLarge);
    // The bytes after the head do not count.
    complete(&format!("{}{}", with_line("GET / HTTP/1.1"), "x".repeat(50_000)));
}

#[test]
fn heads_that_can_never_become_valid_are_refused_early() {
    for start in [
        &b"\x16\x03\x01"[..], // TLS
        b" ",
        b"GET /\0",
        b"GET /a#",
        b"GET /\x80",
        b"G\rE",
        b"G,",
        b"GET / \x01",
        b"GET / HTTP/1.1\n",
        b"GET / HTTP/1.1\r\nHost: a\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: \0",
        b"GET / HTTP/1.1\r\nHost :",
        b"GET / HTTP/1.1\r\n ",
        b"GET / HTTP/1.1\r\nX:\n",
        b"\r\n\r\n\r",
        b"\r\r",
        b"GET / HTTP/7.0\r\n",
    ] {
        refused(start);
    }
}

#[test]
fn statuses_and_reasons() {
    for (bad, code) in [
        (BadHead::Malformed("x"), 400),
        (BadHead::TargetTooLong, 414),
        (BadHead::HeadTooLarge, 431),
        (BadHead::TooManyFields, 431),
        (BadHead::UnsupportedVersion, 505),
        (BadHead::UnsupportedTransferCoding, 501),
        (BadHead::ExpectationFailed, 417),
    ] {
        assert_eq!(bad.status(), Status(code));
        assert!(!bad.reason().is_empty());
        assert_eq!(bad.to_string(), bad.reason());
    }
}

#[test]
fn first_lines() {
    use flash_http::request::first_line;
    assert_eq!(first_line(b"\r\nGET /\x01\r\nHost", 100), b"GET /\x01");
    assert_eq!(first_line(b"GET / HTTP", 5), b"GET /");
    assert_eq!(first_line(b"\n\n", 5), b"");
}

/// Receives single bytes as the module's documentation describes. Returns the outcome and the total number of
/// bytes passed to `parse_head`.
fn byte_by_byte(bytes: &[u8], limits: &HeadLimits) -> (Result<usize, BadHead>, usize) {
    let (mut seen, mut parsed) = (0, 0);
    for len in 1..=bytes.len() {
        let buffer = &bytes[..len];
        if seen == 0 || len >= limits.head_bytes || head_end(buffer, seen).is_some() {
            parsed += len;
            match parse_head(buffer, limits) {
                Ok(Head::Partial) => {}
                Ok(Head::Complete(request)) => return (Ok(request.head_len), parsed),
                Err(bad) => return (Err(bad), parsed),
            }
        }
        seen = len;
    }
    (Ok(0), parsed)
}

#[test]
fn a_slow_client_costs_linear_work() {
    let head = format!("\r\n{}", with_fields(&"X: yyyyyyyyyyyyyyyyyyyyyyyy\r\n".repeat(90)));
    let (outcome, parsed) = byte_by_byte(head.as_bytes(), &LIMITS);
    assert_eq!(outcome, Ok(head.len()));
    assert!(parsed <= head.len() + 1, "{parsed} bytes parsed of {}", head.len());
    // A bare LF is noticed when it arrives, not at the limit.
    let (outcome, parsed) =
        byte_by_byte(b"GET / HTTP/1.1\r\nHost: a\nyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy", &LIMITS);
    assert_eq!(outcome.map_err(|bad| bad.status()), Err(Status::BAD_REQUEST));
    assert_eq!(parsed, 1 + 24);
}

#[test]
fn the_end_is_found_from_any_starting_point() {
    let head = b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nrest\r\n\r\n";
    let end = head.len() - 8;
    for from in 0..end {
        assert_eq!(head_end(head, from), Some(end), "from {from}");
        assert_eq!(head_end(&head[..from], 0), None, "{from} bytes");
    }
    assert_eq!(head_end(b"", 0), None);
    assert_eq!(head_end(b"abc", 10), None);
    assert_eq!(head_end(b"\r\n\r\n", 0), None);
    assert_eq!(head_end(b"\r\n\r\n\r\n", 0), Some(6));
}

/// Generates bytes with many of the characters that the parser treats specially.
fn tricky() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => prop::sample::select(vec![
            "GET / HTTP/1.1\r\n", "Host: a\r\n", "\r\n", "GET ", "/", " HTTP/1.1", " HTTP/1.0\r\n", "Host:", " ", "a",
            ": ", "\r", "\n", "Content-Length: 1\r\n", "Transfer-Encoding: chunked\r\n", "Range: bytes=0-\r\n",
            "OPTIONS *", "http://a", "X: y\r\n", "?", "\t",
        ]).prop_map(|text| text.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..3),
    ];
    (any::<bool>(), proptest::collection::vec(piece, 0..12)).prop_map(|(started, pieces)| {
        let start: &[u8] = if started { b"GET / HTTP/1.1\r\nHost: a\r\n" } else { b"" };
        [start, &pieces.concat()].concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80), from in 0usize..100) {
        let _ = parse_head(&bytes, &LIMITS);
        let _ = head_end(&bytes, from);
        let _ = flash_http::request::first_line(&bytes, from);
    }

    /// A head is accepted or refused no matter how its bytes arrive, and never accepted before its last byte.
    #[test]
    fn the_outcome_does_not_depend_on_how_bytes_arrive(bytes in tricky(), head_bytes in 20usize..200) {
        let limits = HeadLimits { head_bytes, fields: 5, target_bytes: 10 };
        let at_once = match parse_head(&bytes, &limits) {
            Ok(Head::Partial) => Ok(0),
            Ok(Head::Complete(request)) => Ok(request.head_len),
            Err(bad) => Err(bad),
        };
        match (at_once, byte_by_byte(&bytes, &limits).0) {
            (Ok(whole), Ok(single)) => prop_assert_eq!(whole, single),
            // If there are several faults, a different one may be reported first. Garbage without a line end
            // may wait for more when it arrives slowly.
            (Err(_), Err(_)) => {}
            (Err(_), Ok(0)) => {}
            other => prop_assert!(false, "{:?}", other),
        }
        for len in 0..bytes.len() {
            match (at_once, parse_head(&bytes[..len], &limits)) {
                (Ok(whole), Ok(Head::Partial)) => prop_assert!(whole == 0 || len < whole),
                (Ok(whole), Ok(Head::Complete(request))) => prop_assert_eq!(request.head_len, whole),
                (Ok(_), Err(bad)) => prop_assert!(false, "{} refused at {}", bad, len),
                (Err(_), Ok(Head::Complete(_))) => prop_assert!(false, "taken at {}", len),
                (Err(_), _) => {}
            }
        }
    }

    /// The rules that prevent request smuggling, checked on the bytes of accepted heads.
    #[test]
    fn accepted_heads_obey_the_rules(bytes in tricky()) {
        if let Ok(Head::Complete(request)) = parse_head(&bytes, &LIMITS) {
            let head = &bytes[..request.head_len];
            prop_assert!(head.ends_with(b"\r\n\r\n"));
            for (at, &byte) in head.iter().enumerate() {
                match byte {
                    b'\r' => prop_assert_eq!(head.get(at + 1), Some(&b'\n')),
                    b'\n' => prop_assert_eq!(head[at - 1], b'\r'),
                    b'\t' => {}
                    _ => prop_assert!(byte >= b' ' && byte != 0x7f),
                }
            }
            let text = String::from_utf8_lossy(head).to_ascii_lowercase();
            let count = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
            prop_assert!(count("host:") <= 1);
            prop_assert!(count("content-length:") + count("transfer-encoding:") <= 1);
            prop_assert!(request.line.iter().all(|byte| (b' '..=b'~').contains(byte)));
            prop_assert!(request.path.starts_with(b"/") || request.path == b"*");
            prop_assert!(!request.host.is_empty() || request.version == Version::Http10);
        }
    }
}
