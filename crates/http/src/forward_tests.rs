//! Requests to upstreams: which fields they have, and that a client can change neither framing nor description.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::request::{Head, HeadLimits, Method, parse_head};

/// The facts about a request beside its head.
#[derive(Clone, Copy, Debug)]
struct Case {
    scheme: &'static str,
    body: Body,
    forwarding: Forwarding<'static>,
}

fn case(body: Body) -> Case {
    let peer = "192.0.2.1:4711".parse().unwrap();
    Case {
        scheme: "http",
        body,
        forwarding: Forwarding {
            peer,
            server: None,
            user: None,
            path: None,
            query: None,
            request_id: "new-1",
            about: None,
            upgrade: false,
        },
    }
}

#[track_caller]
fn parsed(head: &[u8]) -> Request<'_> {
    match parse_head(head, &HeadLimits::default()) {
        Ok(Head::Complete(request)) => request,
        other => panic!("{}: {other:?}", head.escape_ascii()),
    }
}

fn proxied(head: &[u8], case: &Case) -> Vec<u8> {
    let mut out = b"kept".to_vec();
    let request = parsed(head);
    write_proxy_head(&mut out, &Inbound::of_head(&request, head, case.scheme), &case.forwarding);
    end_proxy_head(&mut out, case.body);
    out.split_off(4)
}

#[track_caller]
fn assert_proxied(head: &str, case: &Case, expected: &str) {
    assert_eq!(String::from_utf8(proxied(head.as_bytes(), case)).unwrap(), expected, "{head:?}");
}

const TAIL: &str = "Via: 1.1 flash\r\nForwarded: for=192.0.2.1;host=a;proto=http\r\nX-Forwarded-For: 192.0.2.1\r\n\
    X-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\nX-Request-Id: new-1\r\n";

#[test]
fn a_usual_request() {
    let head = "\r\nPOST /a%20b?c=d?e HTTP/1.1\r\nUser-Agent: x\r\nHost: a\r\nContent-Length: 5\r\nCookie:  c \r\n\
        Content-Type: t\r\nConnection: keep-alive\r\nAuthorization: b\r\n\r\n";
    let expected = "POST /a%20b?c=d?e HTTP/1.1\r\nHost: a\r\nUser-Agent: x\r\nCookie: c\r\nContent-Type: t\r\n\
        Authorization: b\r\n";
    assert_proxied(head, &case(Body::None), &format!("{expected}{TAIL}\r\n"));
    let length = format!("{expected}{TAIL}Content-Length: 0\r\n\r\n");
    assert_proxied(head, &case(Body::Length(0)), &length);
    let chunked = format!("{expected}{TAIL}Transfer-Encoding: chunked\r\n\r\n");
    assert_proxied(head, &case(Body::Chunked), &chunked);
}

#[test]
fn targets_and_hosts() {
    for (line, field, expected, host) in [
        ("GET / HTTP/1.1", "Host: A.org:8080\r\n", "GET / HTTP/1.1", "A.org:8080"),
        ("GET /a? HTTP/1.9", "Host: [::1]:80\r\n", "GET /a? HTTP/1.1", "[::1]:80"),
        ("GET http://b:81 HTTP/1.1", "Host: a\r\n", "GET / HTTP/1.1", "b:81"),
        ("GET HTTPS://b:81/c?d HTTP/1.1", "Host: a\r\n", "GET /c?d HTTP/1.1", "b:81"),
        ("GET http://b?d HTTP/1.0", "", "GET /?d HTTP/1.1", "b"),
        ("OPTIONS * HTTP/1.1", "Host: a\r\n", "OPTIONS * HTTP/1.1", "a"),
        ("X-Y //a HTTP/1.1", "Host: a(,)\r\n", "X-Y //a HTTP/1.1", "a(,)"),
    ] {
        let head = format!("{line}\r\n{field}\r\n");
        let out = String::from_utf8(proxied(head.as_bytes(), &case(Body::None))).unwrap();
        assert!(out.starts_with(&format!("{expected}\r\nHost: {host}\r\n")), "{out}");
        assert!(out.contains(&format!("\r\nX-Forwarded-Host: {host}\r\n")), "{out}");
        let quoted = if host.contains([':', '(']) { format!("\"{host}\"") } else { host.to_owned() };
        assert!(out.contains(&format!("\r\nForwarded: for=192.0.2.1;host={quoted};proto=http\r\n")), "{out}");
    }
    for head in ["GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.0\r\nHost: :80\r\n\r\n"] {
        let without = "GET / HTTP/1.1\r\nHost: \r\nVia: 1.0 flash\r\nForwarded: for=192.0.2.1;proto=http\r\n\
            X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: http\r\nX-Request-Id: new-1\r\n\r\n";
        assert_proxied(head, &case(Body::None), without);
    }
}

#[test]
fn peers() {
    for (peer, plain, quoted) in [
        ("[2001:db8::1]:5", "2001:db8::1", "\"[2001:db8::1]\""),
        ("[::ffff:192.0.2.7]:5", "192.0.2.7", "192.0.2.7"),
        ("0.0.0.0:0", "unix:", "unknown"),
    ] {
        let mut case = Case { scheme: "https", ..case(Body::None) };
        case.forwarding.peer = peer.parse().unwrap();
        let out = proxied(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &case);
        let out = String::from_utf8(out).unwrap();
        assert!(out.contains(&format!("\r\nForwarded: for={quoted};host=a;proto=https\r\n")), "{out}");
        assert!(
            out.contains(&format!("\r\nX-Forwarded-For: {plain}\r\nX-Forwarded-Proto: https\r\n")),
            "{out}"
        );
    }
}

#[test]
fn fields_that_are_left_out() {
    // Flash writes its own Host and Content-Length although the client's are named.
    let lines = "Connection: close, X-A ,host,content-length, x-request-id\r\nX-A: 1\r\nx-a: 2\r\nKeep-Alive: 3\r\n\
        Proxy-Connection: 4\r\nProxy-Authorization: 5\r\nTE: trailers\r\nTrailer: 6\r\nUpgrade: 7\r\n\
        Expect: 100-continue\r\nForwarded: for=8\r\nX-Forwarded-For: 9\r\nX-Forwarded-Host: 10\r\n\
        X-Forwarded-Proto: 11\r\nX-Forwarded-Port: 12\r\nX-Forwarded-Server: 13\r\nX-Forwarded-Prefix: 14\r\n\
        X-Real-IP: 15\r\nx_real_ip: 16\r\nX_FORWARDED.FOR: 17\r\nContent_Length: 18\r\nX-Request_Id: 19\r\n\
        X-Accel-Mapping: 20\r\nX-Sendfile-Type: 21\r\nX-Forwarded-Very-Long-Name-Indeed: 22\r\n";
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n{lines}X-B: kept\r\n\r\n");
    let expected = format!("POST / HTTP/1.1\r\nHost: a\r\nX-B: kept\r\n{TAIL}Content-Length: 5\r\n\r\n");
    assert_proxied(&head, &case(Body::Length(5)), &expected);
    let variables = variables(&head, &case(Body::Length(5)), &SCRIPT);
    let of_fields: Vec<&str> =
        variables.keys().map(String::as_str).filter(|name| name.starts_with("HTTP_")).collect();
    let ours =
        ["HTTP_HOST", "HTTP_X_B", "HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_HOST", "HTTP_X_FORWARDED_PROTO"];
    assert_eq!(of_fields, [&ours[..], &["HTTP_X_REQUEST_ID"]].concat());
    assert_eq!(variables["HTTP_X_FORWARDED_FOR"], "192.0.2.1");
}

#[test]
fn request_identifiers() {
    let long = "x".repeat(129);
    for (lines, expected) in [
        ("X-Request-Id: aZ_0.:-\r\n", "aZ_0.:-"),
        ("x-request-id: a b\r\nX-REQUEST-ID: c\r\nX-Request-Id: d\r\n", "c"),
        ("X-Request-Id:\r\n", "new-1"),
        (&format!("X-Request-Id: {long}\r\n"), "new-1"),
        (&format!("X-Request-Id: {}\r\n", &long[1..]), &long[1..]),
        ("", "new-1"),
    ] {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        let out = String::from_utf8(proxied(head.as_bytes(), &case(Body::None))).unwrap();
        assert!(out.contains(&format!("\r\nX-Request-Id: {expected}\r\n")), "{lines:?}: {out}");
    }
}

#[test]
fn hops() {
    let out = |head: &str| String::from_utf8(proxied(head.as_bytes(), &case(Body::None))).unwrap();
    let text = out("GET / HTTP/1.1\r\nHost: a\r\nVia: 1.0 x\r\nMax-Forwards: 3\r\n\r\n");
    let (theirs, ours) = (text.find("Via: 1.0 x\r\n"), text.find("Via: 1.1 flash\r\n"));
    assert!(theirs.is_some() && theirs < ours && text.contains("Max-Forwards: 3\r\n"), "{text}");
    for (value, expected, passed_on) in
        [("3", Some(3), "2"), ("0", Some(0), "0"), ("x", None, "x"), ("", None, "")]
    {
        let head = format!("OPTIONS / HTTP/1.1\r\nHost: a\r\nmax-forwards: {value}\r\n\r\n");
        let request = parsed(head.as_bytes());
        assert_eq!(Inbound::of_head(&request, head.as_bytes(), "http").max_forwards(), expected);
        let text = out(&head);
        assert!(text.contains(&format!("\r\nmax-forwards: {passed_on}\r\n")), "{text}");
    }
}

#[test]
fn upgrades() {
    let head = "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nUpgrade: b\r\nConnection: Upgrade\r\n\r\n";
    let mut upgrading = case(Body::None);
    upgrading.forwarding.upgrade = true;
    let end = "X-Request-Id: new-1\r\nConnection: upgrade\r\nUpgrade: websocket, b\r\n\r\n";
    let out = String::from_utf8(proxied(head.as_bytes(), &upgrading)).unwrap();
    assert!(out.ends_with(end), "{out}");
    let without = format!("GET / HTTP/1.1\r\nHost: a\r\n{TAIL}\r\n");
    assert_proxied(head, &case(Body::None), &without);
    assert_proxied("GET / HTTP/1.1\r\nHost: a\r\n\r\n", &upgrading, &without);
}

#[test]
fn bytes_without_a_head_have_no_fields() {
    for bytes in ["", "\r\n", "GET / HTTP/1.1", "GET / HTTP/1.1\r\n", "GET\nA: b\r\n", "GET\nA : b\r\n\r\n"] {
        assert_eq!(fields(bytes.as_bytes()), [], "{bytes:?}");
    }
}

const SCRIPT: Script<'_> = Script { document_root: b"/srv", script_name: b"/a b.php", path_info: b"" };

fn variables(head: &str, case: &Case, script: &Script<'_>) -> BTreeMap<String, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut all = BTreeMap::new();
    let request = parsed(head.as_bytes());
    let inbound = Inbound::of_head(&request, head.as_bytes(), case.scheme);
    let mut param = |name: &[u8], value: &[u8]| {
        assert_eq!(all.insert(text(name), text(value)), None, "{} twice", text(name));
    };
    each_cgi_variable(&inbound, &case.forwarding, script, &mut param);
    cgi_length(case.body, param);
    all
}

#[test]
fn variables_of_a_usual_request() {
    let head = "POST /a%20b.php/c?d=e HTTP/1.0\r\nhost: A.org:8080\r\nContent-Type: t\r\nContent-Type: u\r\n\
        Cookie: a=b\r\nAccept: x\r\nCOOKIE: c=d\r\naccept: y\r\nAuthorization: z\r\nProxy: evil\r\nA_B: evil\r\n\
        A.C: evil\r\nA-B: 1\r\nX-Request-Id: id\r\nContent-Length: 9\r\n\r\n";
    let script = Script { document_root: b"/srv/", path_info: b"/c", ..SCRIPT };
    let mut case = case(Body::Length(5));
    case.forwarding.server = Some("[::ffff:198.51.100.1]:80".parse().unwrap());
    let found = variables(head, &case, &script);
    let expected = [
        ("CONTENT_LENGTH", "5"),
        ("CONTENT_TYPE", "t"),
        ("DOCUMENT_ROOT", "/srv/"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("HTTP_ACCEPT", "x, y"),
        ("HTTP_AUTHORIZATION", "z"),
        ("HTTP_A_B", "1"),
        ("HTTP_COOKIE", "a=b; c=d"),
        ("HTTP_HOST", "A.org:8080"),
        ("HTTP_X_FORWARDED_FOR", "192.0.2.1"),
        ("HTTP_X_FORWARDED_HOST", "A.org:8080"),
        ("HTTP_X_FORWARDED_PROTO", "http"),
        ("HTTP_X_REQUEST_ID", "id"),
        ("PATH_INFO", "/c"),
        ("PATH_TRANSLATED", "/srv/c"),
        ("QUERY_STRING", "d=e"),
        ("REDIRECT_STATUS", "200"),
        ("REMOTE_ADDR", "192.0.2.1"),
        ("REMOTE_PORT", "4711"),
        ("REQUEST_METHOD", "POST"),
        ("REQUEST_SCHEME", "http"),
        ("REQUEST_URI", "/a%20b.php/c?d=e"),
        ("SCRIPT_FILENAME", "/srv/a b.php"),
        ("SCRIPT_NAME", "/a b.php"),
        ("SERVER_ADDR", "198.51.100.1"),
        ("SERVER_NAME", "A.org"),
        ("SERVER_PORT", "80"),
        ("SERVER_PROTOCOL", "HTTP/1.0"),
        ("SERVER_SOFTWARE", "flash"),
    ];
    let found: Vec<(&str, &str)> =
        found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(found, expected);
}

#[test]
fn variables_of_a_client_of_a_unix_socket() {
    let mut case = case(Body::None);
    case.forwarding.peer = "0.0.0.0:0".parse().unwrap();
    let found = variables("GET / HTTP/1.1\r\nHost: a\r\n\r\n", &case, &SCRIPT);
    assert_eq!((found["REMOTE_ADDR"].as_str(), found["HTTP_X_FORWARDED_FOR"].as_str()), ("unix:", "unix:"));
    assert!(!found.contains_key("REMOTE_PORT") && !found.contains_key("SERVER_ADDR"));
}

#[test]
fn variables_that_depend() {
    let found = |head: &str, body| variables(head, &case(body), &SCRIPT);
    let bare = found("GET / HTTP/1.0\r\nContent-Type: t\r\n\r\n", Body::None);
    for name in ["CONTENT_LENGTH", "CONTENT_TYPE", "PATH_INFO", "PATH_TRANSLATED", "HTTP_HOST", "SERVER_ADDR"]
    {
        assert_eq!(bare.get(name), None, "{name}");
    }
    assert_eq!((bare["QUERY_STRING"].as_str(), bare["SERVER_NAME"].as_str()), ("", "localhost"));
    let chunked = found(
        "POST / HTTP/1.1\r\nHost: a:\r\nContent-Type: t\r\nTransfer-Encoding: chunked\r\n\r\n",
        Body::Chunked,
    );
    assert_eq!((chunked.get("CONTENT_LENGTH"), chunked["CONTENT_TYPE"].as_str()), (None, "t"));
    assert_eq!((chunked["SERVER_PROTOCOL"].as_str(), chunked["SERVER_PORT"].as_str()), ("HTTP/1.1", "80"));
    let absolute = found("GET http://[::1]:081/x?y HTTP/1.1\r\nHost: a:9\r\n\r\n", Body::None);
    for (name, value) in [
        ("REQUEST_URI", "/x?y"),
        ("SERVER_NAME", "[::1]"),
        ("SERVER_PORT", "80"),
        ("HTTP_HOST", "[::1]:081"),
        ("HTTP_X_FORWARDED_HOST", "[::1]:081"),
    ] {
        assert_eq!(absolute[name], value, "{name}");
    }
    let mut without_host = Case { scheme: "https", ..case(Body::None) };
    without_host.forwarding.server = Some("[2001:db8::5]:443".parse().unwrap());
    let found = variables("GET / HTTP/1.0\r\n\r\n", &without_host, &SCRIPT);
    for (name, value) in
        [("SERVER_NAME", "[2001:db8::5]"), ("SERVER_ADDR", "2001:db8::5"), ("SERVER_PORT", "443")]
    {
        assert_eq!(found[name], value, "{name}");
    }
}

/// Generates request heads, most of them valid, that try to describe themselves.
fn request_heads() -> impl Strategy<Value = Vec<u8>> {
    let line = prop::sample::select(vec![
        "GET / HTTP/1.1",
        "POST /a%20b?c HTTP/1.1",
        "HEAD http://b:81/x? HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "X-Y //a HTTP/1.0",
        "GET https://[::1]?q HTTP/1.0",
        "CONNECT a:1 HTTP/1.1",
    ]);
    let field = prop_oneof![
        8 => prop::sample::select(vec![
            "Host: a\r\n", "Host: b:82\r\n", "Forwarded: for=evil\r\n", "X-Forwarded-For: evil\r\n",
            "x_forwarded_host: evil\r\n", "X-Real-Ip: evil\r\n", "X-Request-Id: evil!\r\n", "X-Request-Id: fine\r\n",
            "Connection: host, content-length, x-kept\r\n", "Connection: close\r\n", "X-Kept: v\r\n",
            "Content-Length: 7\r\n", "Transfer-Encoding: chunked\r\n", "Transfer_Encoding: evil\r\n",
            "Expect: 100-continue\r\n", "Upgrade: x\r\n", "Proxy-Authorization: evil\r\n", "Proxy: sly\r\n",
        ]).prop_map(|text| text.as_bytes().to_vec()),
        1 => (proptest::collection::vec(prop::sample::select(b"aZ-_.!0".to_vec()), 1..6),
              proptest::collection::vec(any::<u8>(), 0..4)).prop_map(|(name, value)| {
            [&name[..], b":", &value, b"\r\n"].concat()
        }),
    ];
    (line, any::<bool>(), proptest::collection::vec(field, 0..9)).prop_map(|(line, has_host, fields)| {
        let host: &[u8] = if has_host { b"Host: a\r\n" } else { b"" };
        [line.as_bytes(), b"\r\n", host, &fields.concat(), b"\r\n"].concat()
    })
}

fn any_case() -> impl Strategy<Value = Case> {
    let body = prop::sample::select(vec![Body::None, Body::Length(0), Body::Length(u64::MAX), Body::Chunked]);
    let peer = prop::sample::select(vec!["192.0.2.1:4711", "[2001:db8::1]:5"]);
    (body, peer, any::<bool>()).prop_map(|(body, peer, upgrade)| {
        let mut case = case(body);
        (case.forwarding.peer, case.forwarding.upgrade) = (peer.parse().unwrap(), upgrade);
        case
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        // A head that does not belong to the request.
        let request = parsed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let inbound = Inbound::of_head(&request, &bytes, "http");
        let forwarding = case(Body::None).forwarding;
        write_proxy_head(&mut Vec::new(), &inbound, &forwarding);
        each_cgi_variable(&inbound, &forwarding, &SCRIPT, |_, _| {});
        inbound.asks_upgrade();
    }

    /// Flash would read the request that it writes as the one that it got, framed as it was told.
    #[test]
    fn a_written_head_is_read_as_the_same_request(head in request_heads(), case in any_case()) {
        if let Ok(Head::Complete(request)) = parse_head(&head, &HeadLimits::default()) {
            let mut out = proxied(&head, &case);
            if request.host.is_empty() {
                // Flash refuses the empty Host that RFC 9112 section 3.2 demands here.
                let at = out.windows(8).position(|bytes| bytes == b"Host: \r\n").unwrap();
                out.splice(at..at + 8, *b"Host: x\r\n");
            }
            let written = parsed(&out);
            prop_assert_eq!(written.head_len, out.len());
            prop_assert_eq!((written.method, written.path, written.query), (request.method, request.path, request.query));
            prop_assert_eq!((written.body, written.version), (case.body, Version::Http11));
            prop_assert!(request.host.is_empty() || written.host == request.host);
            prop_assert!(written.keep_alive && !written.expect_continue);
            prop_assert!(request.method == Method::Unknown || request.line.starts_with(out.split(|b| *b == b' ').next().unwrap()));
            prop_assert!(!out.windows(4).any(|bytes| bytes == b"evil"), "{}", out.escape_ascii());
        }
    }

    #[test]
    fn variables_are_unique_and_have_no_claims(head in request_heads(), case in any_case()) {
        if let Ok(Head::Complete(request)) = parse_head(&head, &HeadLimits::default()) {
            let mut names = Vec::new();
            let inbound = Inbound::of_head(&request, &head, case.scheme);
            each_cgi_variable(&inbound, &case.forwarding, &SCRIPT, |name, value| {
                names.push(name.to_vec());
                assert!(!value.windows(4).any(|bytes| bytes == b"evil" || bytes == b"sly"));
                assert!(!value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t'));
                assert!(name.iter().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_'));
            });
            let count = names.len();
            names.sort();
            names.dedup();
            prop_assert_eq!(names.len(), count);
        }
    }
}
