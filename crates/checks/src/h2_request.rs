//! Requests of HTTP/2: whatever `flash_http::h2::read_head` accepts can be written for a server of HTTP/1.1, which
//! reads the same request and nothing else.

use flash_http::h2::{
    BadRequest, Decoder, Encoder, FieldList, Indexing, ListLimits, Scratch, check_trailers, read_head,
};
use flash_http::{
    Body, Forwarding, Head, HeadLimits, Inbound, Request, Version, end_proxy_head, parse_head,
    write_proxy_head,
};

use crate::text::is_token;

/// Checks `input`: `e` if the stream ends with the head, then fields, each behind a byte 0x1f and with `=` between name and
/// value.
pub fn h2_request(input: &[u8]) {
    let mut parts = input.split(|&byte| byte == 0x1f);
    let ends_stream = parts.next() == Some(b"e");
    let (mut block, mut encoder, mut list) = (Vec::new(), Encoder::new(), FieldList::new());
    for part in parts {
        let at = part.iter().position(|&byte| byte == b'=').unwrap_or(part.len());
        encoder.field(&mut block, &part[..at], part.get(at + 1..).unwrap_or_default(), Indexing::Own);
    }
    let limits = ListLimits { bytes: 32 * 1024, fields: 100 };
    Decoder::new().decode(&block, limits, &mut list).expect("an encoded block is valid");
    check_trailers_of(&list);
    let mut scratch = Scratch::default();
    let read = read_head(&list, ends_stream, &HeadLimits::default(), &mut scratch);
    let fields: Vec<_> = list.iter().collect();
    let bad = fields.iter().any(|(name, value)| is_forbidden(name, value));
    let head = match read {
        Ok(head) => head,
        Err(BadRequest::Malformed(_)) => return,
        Err(BadRequest::Refused(_)) => {
            return assert!(!bad || list.is_too_large(), "a malformed request gets a page");
        }
    };
    assert!(!bad, "a forbidden field was accepted");
    check_request(&head.request, ends_stream);
    check_forwarded(&head.inbound("https"));
}

/// Whether RFC 9113 sections 8.2 and 8.3 forbid the field.
fn is_forbidden(name: &[u8], value: &[u8]) -> bool {
    const OF_CONNECTION: [&[u8]; 5] =
        [b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"];
    let plain = name.strip_prefix(b":").unwrap_or(name);
    !is_token(plain)
        || name.iter().any(u8::is_ascii_uppercase)
        || OF_CONNECTION.contains(&name)
        || (name == b"te" && !value.eq_ignore_ascii_case(b"trailers"))
        || value.iter().any(|&byte| byte != b'\t' && byte.is_ascii_control())
        || [value.first(), value.last()].iter().flatten().any(|byte| b" \t".contains(byte))
}

fn check_trailers_of(list: &FieldList) {
    if check_trailers(list).is_ok() {
        assert!(!list.iter().any(|(name, value)| name.starts_with(b":") || is_forbidden(name, value)));
    }
}

fn check_request(request: &Request<'_>, ends_stream: bool) {
    assert_eq!(request.version, Version::Http2);
    assert!(request.keep_alive);
    assert!(!request.host.is_empty());
    assert!(
        request.line.ends_with(b" HTTP/2.0") && request.line.iter().all(|byte| (b' '..=b'~').contains(byte))
    );
    match request.body {
        Body::None => assert!(ends_stream),
        Body::Length(bytes) => assert!(!ends_stream || bytes == 0),
        Body::Chunked => assert!(!ends_stream),
    }
}

/// A server of HTTP/1.1 gets one request with the same target, host and fields.
fn check_forwarded(inbound: &Inbound<'_>) {
    let peer = "192.0.2.1:5".parse().expect("an address");
    let forwarding = Forwarding {
        peer,
        server: None,
        user: None,
        path: None,
        query: None,
        request_id: "id",
        about: None,
        upgrade: false,
    };
    let mut out = Vec::new();
    write_proxy_head(&mut out, inbound, &forwarding);
    end_proxy_head(&mut out, inbound.request.body);
    // A list of 32 KiB grows by the fields that Flash adds.
    let limits = HeadLimits { head_bytes: 64 * 1024, ..HeadLimits::default() };
    let request = match parse_head(&out, &limits) {
        Ok(Head::Complete(request)) => request,
        // With the fields that Flash adds, there can be more than any server takes.
        Err(flash_http::BadHead::TooManyFields) => return,
        other => panic!("{other:?} of {:?}", out.escape_ascii().to_string()),
    };
    assert_eq!(request.head_len, out.len(), "a part of the head is another request");
    assert_eq!(request.body, inbound.request.body);
    assert_eq!((request.path, request.query), (inbound.request.path, inbound.request.query));
    assert_eq!(request.host, inbound.request.host);
    assert!(request.line.starts_with(inbound.method) && request.line.ends_with(b" HTTP/1.1"));
    assert_eq!(request.user_agent, inbound.request.user_agent);
    let lines = out.split(|&byte| byte == b'\n').count();
    assert!(lines <= inbound.fields.len() + 11, "a field became two lines");
}
