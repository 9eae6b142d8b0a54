//! Tests of request heads: those that are read, those that are malformed, and those that are refused.

use super::super::{Decoder, Encoder, Indexing, ListLimits};
use super::*;
use crate::request::Version;
use crate::response::Status;

/// A list of these fields, through the encoder and the decoder.
fn list(fields: &[(&str, &str)]) -> FieldList {
    let (mut block, mut encoder) = (Vec::new(), Encoder::new());
    for (name, value) in fields {
        encoder.field(&mut block, name.as_bytes(), value.as_bytes(), Indexing::Own);
    }
    let mut list = FieldList::new();
    let limits = ListLimits { bytes: 32 * 1024, fields: 100 };
    Decoder::new().decode(&block, limits, &mut list).expect("a valid block");
    list
}

const USUAL: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "http"), (":path", "/a?b"), (":authority", "h:80")];

fn read(fields: &[(&str, &str)], ends_stream: bool) -> Result<(), BadRequest> {
    read_head(&list(fields), ends_stream, &HeadLimits::default(), &mut Scratch::default()).map(|_| ())
}

fn with(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    USUAL.iter().chain(more).copied().collect()
}

#[test]
fn a_request_is_read() {
    let fields = with(&[
        ("cookie", "a=1"),
        ("accept", "x"),
        ("cookie", "b=2"),
        ("user-agent", "u"),
        ("priority", "u=1, i"),
        ("te", "trailers"),
    ]);
    let (list, mut scratch) = (list(&fields), Scratch::default());
    let head = read_head(&list, true, &HeadLimits::default(), &mut scratch).expect("a valid head");
    let request = &head.request;
    assert_eq!(request.line, b"GET /a?b HTTP/2.0");
    assert_eq!((request.path, request.query, request.host), (&b"/a"[..], Some(&b"b"[..]), &b"h"[..]));
    assert_eq!((request.version, request.body, request.keep_alive), (Version::Http2, Body::None, true));
    assert_eq!((request.user_agent, request.accept.as_deref()), (Some(&b"u"[..]), Some(&b"x"[..])));
    assert_eq!(head.priority, Priority { urgency: 1, is_incremental: true });
    let inbound = head.inbound("http");
    assert_eq!((inbound.method, inbound.authority), (&b"GET"[..], &b"h:80"[..]));
    let names: Vec<_> = inbound.fields.iter().map(|(name, _)| String::from_utf8_lossy(name)).collect();
    assert_eq!(names, ["accept", "user-agent", "priority", "te", "cookie"]);
    assert_eq!(inbound.fields.last().map(|field| field.1), Some(&b"a=1; b=2"[..]));
    assert!(!inbound.asks_upgrade());
}

#[test]
fn the_body_is_framed_by_the_stream() {
    for (more, ends_stream, expected) in [
        (&[][..], true, Body::None),
        (&[], false, Body::Chunked),
        (&[("content-length", "0")], true, Body::Length(0)),
        (&[("content-length", "7")], false, Body::Length(7)),
    ] {
        let (list, mut scratch) = (list(&with(more)), Scratch::default());
        let head = read_head(&list, ends_stream, &HeadLimits::default(), &mut scratch).expect("a valid head");
        assert_eq!(head.request.body, expected, "{more:?} {ends_stream}");
    }
    assert!(matches!(read(&with(&[("content-length", "7")]), true), Err(BadRequest::Malformed(_))));
    let (list, mut scratch) = (list(&with(&[("expect", "100-continue")])), Scratch::default());
    let head = read_head(&list, false, &HeadLimits::default(), &mut scratch).expect("a valid head");
    assert!(head.request.expect_continue);
}

#[test]
fn malformed_requests_end_their_stream() {
    let without = |name: &str| USUAL.iter().filter(|field| field.0 != name).copied().collect::<Vec<_>>();
    let mut late = with(&[("accept", "x")]);
    late.swap(3, 4);
    for fields in [
        without(":method"),
        without(":scheme"),
        without(":path"),
        late,
        with(&[(":method", "GET")]),
        with(&[(":status", "200")]),
        with(&[(":protocol", "websocket")]),
        with(&[("connection", "close")]),
        with(&[("proxy-connection", "close")]),
        with(&[("keep-alive", "1")]),
        with(&[("transfer-encoding", "chunked")]),
        with(&[("upgrade", "h2c")]),
        with(&[("te", "gzip")]),
        with(&[("te", "trailers, chunked")]),
        with(&[("Accept", "x")]),
        with(&[("a b", "x")]),
        with(&[("a:b", "x")]),
        with(&[("a\r\nb", "x")]),
        with(&[("", "x")]),
        with(&[("a", "x\r\ny: z")]),
        with(&[("a", "x\ny")]),
        with(&[("a", "x\0")]),
        with(&[("a", " x")]),
        with(&[("a", "x\t")]),
        with(&[("a", "\u{7f}")]),
        with(&[("host", "other")]),
        vec![(":method", "GET /"), (":scheme", "http"), (":path", "/"), (":authority", "h")],
        vec![(":method", ""), (":scheme", "http"), (":path", "/"), (":authority", "h")],
        vec![(":method", "GET"), (":scheme", "http"), (":path", ""), (":authority", "h")],
        vec![(":method", "GET"), (":scheme", ""), (":path", "/"), (":authority", "h")],
        vec![(":method", "GET"), (":scheme", "http"), (":path", "*"), (":authority", "h")],
        vec![(":method", "GET"), (":scheme", "http"), (":path", "http://h/"), (":authority", "h")],
        vec![(":method", "GET"), (":scheme", "http"), (":path", "/ HTTP/1.1\r\nx: y"), (":authority", "h")],
        vec![(":method", "CONNECT"), (":scheme", "http"), (":path", "/"), (":authority", "h")],
        vec![(":method", "CONNECT")],
    ] {
        assert!(matches!(read(&fields, true), Err(BadRequest::Malformed(_))), "{fields:?}");
    }
}

#[test]
fn refused_requests_get_an_answer() {
    let status = |fields: &[(&str, &str)]| match read(fields, false) {
        Err(BadRequest::Refused(bad)) => bad.status(),
        other => panic!("{fields:?}: {other:?}"),
    };
    let with_path = |path| [(":method", "GET"), (":scheme", "http"), (":path", path), (":authority", "h")];
    assert_eq!(status(&with_path("/#a")), Status::BAD_REQUEST);
    assert_eq!(status(&with_path("/a b")), Status::BAD_REQUEST);
    assert_eq!(status(&with_path("/\u{e9}")), Status::BAD_REQUEST);
    assert_eq!(status(&with_path(&format!("/{}", "x".repeat(8 * 1024)))), Status::URI_TOO_LONG);
    assert_eq!(status(&USUAL[..3]), Status::BAD_REQUEST);
    let authority =
        |authority| [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", authority)];
    for bad in ["", "u@h", "h:x", "[::", "h/"] {
        assert_eq!(status(&authority(bad)), Status::BAD_REQUEST, "{bad}");
    }
    assert_eq!(status(&with(&[("content-length", "1"), ("content-length", "1")])), Status::BAD_REQUEST);
    assert_eq!(status(&with(&[("content-length", "+1")])), Status::BAD_REQUEST);
    assert_eq!(status(&with(&[("expect", "cake")])), Status::EXPECTATION_FAILED);
    let many: Vec<_> = USUAL.iter().copied().chain(std::iter::repeat_n(("a", "b"), 97)).collect();
    assert_eq!(status(&many), Status::HEAD_TOO_LARGE);
}

#[test]
fn the_host_can_stand_for_the_authority() {
    let fields = [(":method", "OPTIONS"), (":scheme", "http"), (":path", "*"), ("host", "x")];
    let (list, mut scratch) = (list(&fields), Scratch::default());
    let head = read_head(&list, true, &HeadLimits::default(), &mut scratch).expect("a valid head");
    assert_eq!((head.request.host, head.authority, head.request.path), (&b"x"[..], &b"x"[..], &b"*"[..]));
    assert_eq!(read(&with(&[("host", "H:80")]), true), Ok(()));
}

#[test]
fn trailers_have_fields_only() {
    for (fields, is_valid) in [
        (&[("a", "b")][..], true),
        (&[(":path", "/")], false),
        (&[("A", "b")], false),
        (&[("connection", "b")], false),
        (&[("a", "\n")], false),
    ] {
        assert_eq!(check_trailers(&list(fields)).is_ok(), is_valid, "{fields:?}");
    }
}
