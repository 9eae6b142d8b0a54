//! Requests of HTTP/2 that would become other requests in HTTP/1.1, on their way to a server that records its bytes (request
//! smuggling by downgrade: RFC 9113, section 10.3). The client makes each field by hand, so no codec refuses it first.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use flash_http::h2::{Decoder, FieldList, Frame, ListLimits, PREFACE, next_frame};

use crate::harness::upstream::{Running, Upstream, config, proxy};
use crate::harness::{Folder, Launch, PATIENCE, Server, wait_until};

const HEADERS: u8 = 1;
const DATA: u8 = 0;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

type Field<'f> = (&'f [u8], &'f [u8]);

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A field as a literal that is never indexed, without Huffman's code (RFC 7541, section 6.2.3).
fn literal(block: &mut Vec<u8>, (name, value): Field<'_>) {
    block.push(0x10);
    for text in [name, value] {
        assert!(text.len() < 127, "a length of one byte");
        block.push(text.len() as u8);
        block.extend_from_slice(text);
    }
}

/// How a request ended.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Answered(u16),
    Reset,
    /// With its connection.
    Gone,
}

/// Sends a request with these fields and this body on a connection of its own.
fn ask(server: &Server, fields: &[Field<'_>], body: &[u8]) -> Ended {
    let mut stream = TcpStream::connect(server.addresses[0]).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut block = Vec::new();
    fields.iter().for_each(|field| literal(&mut block, *field));
    let ends = if body.is_empty() { END_STREAM } else { 0 };
    let mut bytes = [&PREFACE[..], &frame(SETTINGS, 0, 0, &[])].concat();
    bytes.extend(frame(HEADERS, END_HEADERS | ends, 1, &block));
    if !body.is_empty() {
        bytes.extend(frame(DATA, END_STREAM, 1, body));
    }
    // The server may end the connection first.
    let _ = stream.write_all(&bytes);
    let (mut decoder, mut input) = (Decoder::new(), Vec::new());
    let mut buffer = [0; 16 * 1024];
    loop {
        while let Some((found, taken)) = next_frame(&input).expect("valid frames") {
            match found {
                Frame::Headers { fragment, .. } => {
                    let mut list = FieldList::new();
                    let limits = ListLimits { bytes: 100_000, fields: 100 };
                    decoder.decode(fragment, limits, &mut list).expect("a valid block");
                    let status = list.iter().find(|(name, _)| *name == b":status").expect("a status").1;
                    return Ended::Answered(String::from_utf8_lossy(status).parse().unwrap());
                }
                Frame::Reset { stream: 1, .. } => return Ended::Reset,
                Frame::GoAway => return Ended::Gone,
                _ => {}
            }
            input.drain(..taken);
        }
        match stream.read(&mut buffer) {
            Ok(bytes @ 1..) => input.extend_from_slice(&buffer[..bytes]),
            Err(e) if e.kind() == ErrorKind::WouldBlock => panic!("nothing came"),
            Ok(0) | Err(_) => return Ended::Gone,
        }
    }
}

/// A server with a route to an upstream, and all bytes that the upstream gets.
fn recording(more: &str) -> (Folder, Server, Running, Arc<Mutex<Vec<u8>>>) {
    let folder = Folder::with_hello();
    let received: Arc<Mutex<Vec<u8>>> = Arc::default();
    let keep = received.clone();
    let upstream = Upstream::tcp().run(move |mut peer| {
        loop {
            let bytes = peer.some();
            if bytes.is_empty() {
                return;
            }
            let mut all = keep.lock().unwrap();
            all.extend_from_slice(&bytes);
            let text = String::from_utf8_lossy(&all).to_lowercase();
            let has_length = text.contains("content-length: ") && !text.contains("content-length: 0\r\n");
            let has_body = has_length || text.contains("\r\ntransfer-encoding: chunked\r\n");
            let is_whole =
                if has_body { text.contains("end-of-request") } else { text.ends_with("\r\n\r\n") };
            if is_whole {
                drop(all);
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            }
        }
    });
    let server =
        Launch::configured(&folder, &config(&folder, &proxy("/app/", &upstream.address, more))).start();
    (folder, server, upstream, received)
}

const METHOD: Field<'_> = (b":method", b"POST");
const SCHEME: Field<'_> = (b":scheme", b"http");
const PATH: Field<'_> = (b":path", b"/app/x");
const AUTHORITY: Field<'_> = (b":authority", b"a.test");
const USUAL: [Field<'_>; 4] = [METHOD, SCHEME, PATH, AUTHORITY];

#[test]
fn no_field_becomes_another_request() {
    let (_folder, server, upstream, received) = recording("");
    let smuggled = b"x\r\n\r\nGET /admin HTTP/1.1\r\nHost: a.test";
    let with = |field| [&USUAL[..], &[field]].concat();
    let instead = |place: usize, value| {
        let mut fields = USUAL.to_vec();
        fields[place].1 = value;
        fields
    };
    let mut cases: Vec<Vec<Field<'_>>> = vec![
        with((b"x", smuggled)),
        with((b"x", b"a\nb")),
        with((b"x", b"a\rb")),
        with((b"x", b"a\0b")),
        with((b"x\r\ny", b"a")),
        with((b"x: a\r\ny", b"b")),
        with((b"x:y", b"a")),
        with((b":x", b"a")),
        with((b"x ", b"a")),
        with((b" x", b"a")),
        with((b"", b"a")),
        with((b"X", b"a")),
        with((b"x\xff", b"a")),
        with((b"transfer-encoding", b"chunked")),
        with((b"transfer-encoding", b"identity")),
        with((b"connection", b"keep-alive")),
        with((b"connection", b"content-length")),
        with((b"keep-alive", b"timeout=9")),
        with((b"proxy-connection", b"keep-alive")),
        with((b"upgrade", b"websocket")),
        with((b"te", b"chunked")),
        with((b"host", b"b.test")),
        with((b":authority", b"b.test")),
        with((b":path", b"/app/y")),
        with((b":method", b"GET")),
        with((b":status", b"200")),
        with((b"content-length", b"5")),
        with((b"content-length", b"-1")),
        with((b"content-length", b"+0")),
        with((b"content-length", b"0, 0x1")),
    ];
    for value in
        [&smuggled[..], b"/app/x y", b"/app/x HTTP/1.1\r\nX: y", b"", b"app/x", b"*", b"http://b.test/app/x"]
    {
        cases.push(instead(2, value));
    }
    for value in [&b"GET /app/y HTTP/1.1\r\nX: y"[..], b"GE T", b"GET\r\n", b""] {
        cases.push(instead(0, value));
    }
    for value in [&b"a.test\r\nX: y"[..], b"a.test/app", b"u@a.test", b"a b", b"a.test:x"] {
        cases.push(instead(3, value));
    }
    for missing in 0..3 {
        let mut fields = USUAL.to_vec();
        fields.remove(missing);
        cases.push(fields);
    }
    cases.push(vec![METHOD, SCHEME, AUTHORITY, (b"x", b"y"), PATH]);
    cases.push(vec![(b":method", b"CONNECT"), (b":authority", b"a.test:443")]);
    cases.push(vec![(b":method", b"CONNECT"), SCHEME, PATH, AUTHORITY]);
    cases.push(vec![(b":method", b"CONNECT"), SCHEME, PATH, AUTHORITY, (b":protocol", b"websocket")]);
    for fields in &cases {
        let text: Vec<String> = fields
            .iter()
            .map(|(name, value)| format!("{}: {}", name.escape_ascii(), value.escape_ascii()))
            .collect();
        let ended = ask(&server, fields, b"");
        let is_refused = matches!(ended, Ended::Reset | Ended::Gone | Ended::Answered(400..=499 | 501));
        assert!(is_refused, "{text:?}: {ended:?}");
        let bytes = received.lock().unwrap();
        assert!(bytes.is_empty(), "{text:?} reached the server as {}", bytes.escape_ascii());
    }
    // Allowed fields arrive as one request, with the framing of HTTP/1.1.
    let fields = with((b"te", b"trailers"));
    let fields = [&fields[..], &[(b"cookie", b"a=1"), (b"cookie", b"b=2"), (b"x", b"chunked")]].concat();
    assert_eq!(ask(&server, &fields, b""), Ended::Answered(200));
    let bytes = received.lock().unwrap().clone();
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.starts_with("POST /app/x HTTP/1.1\r\n"), "{text}");
    assert_eq!(text.matches("\r\n\r\n").count(), 1, "{text}");
    assert_eq!(text.to_lowercase().matches("\r\nhost: a.test\r\n").count(), 1, "{text}");
    assert!(text.to_lowercase().contains("\r\ncookie: a=1; b=2\r\n"), "{text}");
    assert!(!text.to_lowercase().contains("transfer-encoding"), "{text}");
    assert_eq!(upstream.connections(), 1);
    assert_eq!(server.stderr(), "");
}

#[test]
fn a_body_is_as_long_as_its_length() {
    for more in ["", "stream_bodies = true"] {
        let (_folder, server, _upstream, received) = recording(more);
        let length = |text| [&USUAL[..], &[(b"content-length", text)]].concat();
        let whole = b"end-of-request";
        for (announced, body) in
            [(&b"13"[..], &whole[..]), (b"15", whole), (b"0", whole), (b"99999999999999999999", whole)]
        {
            let ended = ask(&server, &length(announced), body);
            assert!(matches!(ended, Ended::Reset | Ended::Answered(400..=499)), "{more} {ended:?}");
        }
        let two = [&length(b"14")[..], &[(b"content-length", b"3")]].concat();
        assert!(matches!(ask(&server, &two, whole), Ended::Reset | Ended::Answered(400)));
        // A request that a server had begun to get is cut, and its connection is not used again.
        wait_until("the end of what was cut", || {
            let bytes = received.lock().unwrap();
            !bytes.windows(whole.len()).any(|window| window == whole)
        });
        received.lock().unwrap().clear();
        assert_eq!(ask(&server, &length(b"14"), whole), Ended::Answered(200));
        let text = String::from_utf8(received.lock().unwrap().clone()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /app/x HTTP/1.1\r\n"), "{text}");
        assert!(head.to_lowercase().contains("\r\ncontent-length: 14"), "{text}");
        assert_eq!(body.as_bytes(), whole);
        // Without a length it is chunked in HTTP/1.1, or counted once it is complete.
        received.lock().unwrap().clear();
        let chunk = b"0\r\n\r\nGET /admin HTTP/1.1\r\n\r\nend-of-request";
        let _ = ask(&server, &USUAL, chunk);
        let text = String::from_utf8(received.lock().unwrap().clone()).unwrap();
        let counted = format!("\r\n\r\n{:x}\r\n0\r\n", chunk.len());
        let is_framed = text.to_lowercase().contains(&format!("content-length: {}\r\n", chunk.len()));
        assert!(is_framed || text.contains(&counted), "{text}");
        assert_eq!(server.stderr(), "");
    }
}
