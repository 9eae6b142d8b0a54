//! Response heads of upstreams: which are accepted, how their bodies are framed, and which fields are passed on.

use proptest::prelude::*;

use super::*;

const HEAD_BYTES_MAX: usize = 32 * 1024;
const PLAIN: ResponseTo = ResponseTo { is_head: false, upgrades: false };
const HEAD: ResponseTo = ResponseTo { is_head: true, upgrades: false };
const UPGRADE: ResponseTo = ResponseTo { is_head: false, upgrades: true };

fn parse(bytes: &[u8], syntax: HeadSyntax, asked: ResponseTo) -> Result<ParsedHead, BadResponse> {
    parse_response(bytes, syntax, asked, HEAD_BYTES_MAX)
}

#[track_caller]
fn complete(head: &str, syntax: HeadSyntax, asked: ResponseTo) -> ResponseHead {
    match parse(format!("{head}more").as_bytes(), syntax, asked) {
        Ok(ParsedHead::Complete(answer)) => {
            assert_eq!(answer.head_len, head.len(), "{head:?}");
            *answer
        }
        other => panic!("{head:?}: {other:?}"),
    }
}

#[track_caller]
fn http(lines: &str) -> ResponseHead {
    complete(&format!("{lines}\r\n"), HeadSyntax::Http, PLAIN)
}

#[track_caller]
fn cgi(head: &str) -> ResponseHead {
    complete(head, HeadSyntax::Cgi, PLAIN)
}

#[track_caller]
fn refused(head: &[u8], syntax: HeadSyntax, asked: ResponseTo, expected: BadResponse) {
    assert_eq!(parse(head, syntax, asked), Err(expected), "{}", head.escape_ascii());
}

fn lines(answer: &ResponseHead) -> &str {
    std::str::from_utf8(&answer.fields).unwrap()
}

#[test]
fn a_usual_answer() {
    let answer = http(
        "HTTP/1.1 404 Not Found\r\nServer: x\r\nDate: y\r\nContent-Type:text/html \r\nCONTENT-LENGTH: 5\r\n\
        Set-Cookie: a\r\nSet-Cookie: b\r\nConnection: keep-alive\r\nX-Empty:\r\n",
    );
    assert_eq!(answer.status, Status::NOT_FOUND);
    assert_eq!((answer.body, answer.length_bytes), (ResponseBody::Length(5), Some(5)));
    assert!(answer.keep_alive && answer.hand_back.is_none());
    assert_eq!(lines(&answer), "Content-Type: text/html\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nX-Empty: \r\n");
}

#[test]
fn status_lines() {
    for (line, code) in [
        ("HTTP/1.1 200 OK", 200),
        ("HTTP/1.1 200 ", 200),
        ("HTTP/1.1 200", 200),
        ("HTTP/1.0 599 \u{e9}\t x", 599),
        ("HTTP/1.9 299 ", 299),
        ("HTTP/1.1 200  1", 200),
    ] {
        assert_eq!(http(&format!("{line}\r\n")).status, Status(code), "{line:?}");
    }
    for (line, expected) in [
        ("HTTP/2.0 200 OK\r", BadResponse::Version),
        ("HTTP/1.x 200 OK\r", BadResponse::Version),
        ("HTTP/1. 200 OK\r", BadResponse::Version),
        ("http/1.1 200 OK\r", BadResponse::Version),
        ("HTTP 200 OK\r", BadResponse::Version),
        ("ICY 200 OK\r", BadResponse::Version),
        (" HTTP/1.1 200 OK\r", BadResponse::Version),
        ("\r", BadResponse::Version),
        ("", BadResponse::Version),
        ("HTTP/1.1\r", BadResponse::StatusLine),
        ("HTTP/1.10 200 OK\r", BadResponse::StatusLine),
        ("HTTP/1.1\t200 OK\r", BadResponse::StatusLine),
        ("HTTP/1.1 200OK\r", BadResponse::StatusLine),
        ("HTTP/1.1 200\tOK\r", BadResponse::StatusLine),
        ("HTTP/1.1 200 O\0K\r", BadResponse::StatusLine),
        ("HTTP/1.1 200 O\rK\r", BadResponse::StatusLine),
        ("HTTP/1.1 200 O\x7fK\r", BadResponse::StatusLine),
        ("HTTP/1.1  200 OK\r", BadResponse::Status),
        ("HTTP/1.1 20 OK\r", BadResponse::Status),
        ("HTTP/1.1 2000 OK\r", BadResponse::Status),
        ("HTTP/1.1 +20 OK\r", BadResponse::Status),
        ("HTTP/1.1 099 OK\r", BadResponse::Status),
        ("HTTP/1.1 600 OK\r", BadResponse::Status),
        ("HTTP/1.1 \r", BadResponse::Status),
        ("HTTP/1.1 200 OK", BadResponse::LineEnd),
    ] {
        refused(format!("{line}\n\r\n").as_bytes(), HeadSyntax::Http, PLAIN, expected);
    }
}

#[test]
fn bad_fields_are_refused() {
    for (line, expected) in [
        ("A : b\r\n", BadResponse::FieldName),
        (": b\r\n", BadResponse::FieldName),
        ("no colon\r\n", BadResponse::FieldName),
        (" A: b\r\n", BadResponse::FieldName),
        ("A: b\r\n folded\r\n", BadResponse::FieldName),
        ("A: b\r\n\tfolded\r\n", BadResponse::FieldName),
        ("A: b\0\r\n", BadResponse::FieldValue),
        ("A: b\x1b\r\n", BadResponse::FieldValue),
        ("A: b\x7f\r\n", BadResponse::FieldValue),
        ("A: b\rc\r\n", BadResponse::FieldValue),
        ("\rA: b\r\n", BadResponse::LineEnd),
        ("Content-Length: 1\r\nContent-Length: 1\r\n", BadResponse::LengthTwice),
        ("Content-Length: 1, 1\r\n", BadResponse::Length),
        ("Content-Length:\r\n", BadResponse::Length),
        ("Content-Length: -1\r\n", BadResponse::Length),
        ("Content-Length: +1\r\n", BadResponse::Length),
        ("Content-Length: 0x1\r\n", BadResponse::Length),
        ("Content-Length: 18446744073709551616\r\n", BadResponse::Length),
        ("Transfer-Encoding:\r\n", BadResponse::TransferCoding),
        ("Transfer-Encoding: gzip\r\n", BadResponse::TransferCoding),
        ("Transfer-Encoding: gzip, chunked\r\n", BadResponse::TransferCoding),
        ("Transfer-Encoding: chunked, chunked\r\n", BadResponse::TransferCoding),
        ("Transfer-Encoding: chunked;a\r\n", BadResponse::TransferCoding),
        ("Transfer-Encoding: \x0bchunked\r\n", BadResponse::FieldValue),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", BadResponse::TransferCoding),
    ] {
        for start in ["HTTP/1.1 200 OK\r\n", "HTTP/1.1 100 Continue\r\n", "HTTP/1.1 204 \r\n"] {
            refused(format!("{start}{line}\r\n").as_bytes(), HeadSyntax::Http, PLAIN, expected);
        }
        refused(format!("X: y\r\n{line}\r\n").as_bytes(), HeadSyntax::Cgi, PLAIN, expected);
    }
    let both = "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
    refused(
        format!("HTTP/1.1 200 OK\r\n{both}").as_bytes(),
        HeadSyntax::Http,
        HEAD,
        BadResponse::LengthAndCoding,
    );
    refused(both.as_bytes(), HeadSyntax::Cgi, PLAIN, BadResponse::LengthAndCoding);
    let coded = "Transfer-Encoding: chunked\r\n\r\n";
    refused(
        format!("HTTP/1.0 200 OK\r\n{coded}").as_bytes(),
        HeadSyntax::Http,
        PLAIN,
        BadResponse::UnexpectedCoding,
    );
    refused(coded.as_bytes(), HeadSyntax::Cgi, PLAIN, BadResponse::UnexpectedCoding);
}

#[test]
fn bare_line_feeds() {
    for head in [
        "HTTP/1.1 200 OK\n",
        "HTTP/1.1 200 OK\r\nA: b\n",
        "HTTP/1.1 200 OK\r\nA:\nB: c\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n\n",
    ] {
        refused(head.as_bytes(), HeadSyntax::Http, PLAIN, BadResponse::LineEnd);
    }
    for head in ["A: b\n\n", "A: b\n\r\n", "A: b\r\n\n", "A: b\r\n\r\n"] {
        assert_eq!(lines(&cgi(head)), "A: b\r\n", "{head:?}");
    }
}

#[test]
fn bodies_and_connections() {
    use ResponseBody::{Chunked, Length, None, UntilEnd};
    for (head, asked, body, length_bytes, keep_alive) in [
        ("1.1 200\r\n", PLAIN, UntilEnd, Option::None, false),
        ("1.1 200\r\nConnection: keep-alive\r\n", PLAIN, UntilEnd, Option::None, false),
        ("1.1 200\r\nContent-Length: 0\r\n", PLAIN, Length(0), Some(0), true),
        ("1.1 200\r\nContent-Length: 0\r\nConnection: x, Close\r\n", PLAIN, Length(0), Some(0), false),
        (
            "1.1 200\r\nContent-Length: 18446744073709551615\r\n",
            PLAIN,
            Length(u64::MAX),
            Some(u64::MAX),
            true,
        ),
        ("1.1 200\r\nTransfer-Encoding: Chunked\r\n", PLAIN, Chunked, Option::None, true),
        ("1.0 200\r\nContent-Length: 3\r\n", PLAIN, Length(3), Some(3), false),
        ("1.0 200\r\nContent-Length: 3\r\nConnection: Keep-Alive\r\n", PLAIN, Length(3), Some(3), true),
        (
            "1.0 200\r\nContent-Length: 3\r\nConnection: close, keep-alive\r\n",
            PLAIN,
            Length(3),
            Some(3),
            false,
        ),
        ("1.1 200\r\n", HEAD, None, Option::None, true),
        ("1.1 200\r\nContent-Length: 3\r\n", HEAD, None, Some(3), true),
        ("1.1 200\r\nTransfer-Encoding: chunked\r\n", HEAD, None, Option::None, true),
        ("1.1 304\r\nContent-Length: 3\r\n", PLAIN, None, Some(3), true),
        ("1.1 204\r\n", PLAIN, None, Option::None, true),
        ("1.1 204\r\nContent-Length: 0\r\n", PLAIN, None, Option::None, true),
        ("1.1 204\r\nContent-Length: 3\r\n", PLAIN, None, Option::None, false),
        ("1.1 204\r\nTransfer-Encoding: chunked\r\n", PLAIN, None, Option::None, false),
        ("1.1 205\r\nContent-Length: 0\r\n", PLAIN, Length(0), Some(0), true),
    ] {
        let answer = complete(&format!("HTTP/{head}\r\n"), HeadSyntax::Http, asked);
        let found = (answer.body, answer.length_bytes, answer.keep_alive);
        assert_eq!(found, (body, length_bytes, keep_alive), "{head:?}");
    }
}

#[test]
fn interim_answers_and_upgrades() {
    for code in [100, 102, 103, 199] {
        let head = format!("HTTP/1.1 {code} x\r\nLink: a\r\n\r\n");
        let expected = Ok(ParsedHead::Interim { head_len: head.len() });
        assert_eq!(parse(format!("{head}HTTP/1.1 200").as_bytes(), HeadSyntax::Http, UPGRADE), expected);
    }
    let head = "HTTP/1.1 101 x\r\nupgrade: websocket\r\nConnection: Upgrade, x-a\r\nX-A: b\r\nX-B: c\r\n\r\n";
    let answer = complete(head, HeadSyntax::Http, UPGRADE);
    assert_eq!((answer.body, answer.keep_alive), (ResponseBody::Upgraded, false));
    assert_eq!(lines(&answer), "upgrade: websocket\r\nX-B: c\r\nConnection: upgrade\r\n");
    refused(head.as_bytes(), HeadSyntax::Http, PLAIN, BadResponse::UnaskedUpgrade);
    refused(b"HTTP/1.1 101 x\r\n\r\n", HeadSyntax::Http, UPGRADE, BadResponse::NoUpgrade);
    // The upgrade that was asked for can be declined.
    let declined = complete("HTTP/1.1 426 x\r\nUpgrade: a\r\n\r\n", HeadSyntax::Http, UPGRADE);
    assert_eq!((declined.body, lines(&declined)), (ResponseBody::UntilEnd, ""));
}

#[test]
fn cgi_heads() {
    for (head, code) in [
        ("Content-Type: a\n\n", 200),
        ("Status: 404 Not Found\n\n", 404),
        ("status:500\r\n\r\n", 500),
        ("Location: http://a/\n\n", 302),
        ("Location: /local\n\n", 302),
        ("Location: /local\nStatus: 201 Created\n\n", 201),
    ] {
        let answer = cgi(head);
        assert_eq!((answer.status, answer.body), (Status(code), ResponseBody::UntilEnd), "{head:?}");
        assert!(answer.keep_alive && !lines(&answer).to_ascii_lowercase().contains("status"));
    }
    assert_eq!(lines(&cgi("Location: /local?a\n\n")), "Location: /local?a\r\n");
    assert_eq!(cgi("Content-Length: 5\nConnection: close\n\n").body, ResponseBody::Length(5));
    assert_eq!(complete("Content-Length: 5\n\n", HeadSyntax::Cgi, HEAD).length_bytes, Some(5));
    assert_eq!(cgi("Status: 304\nA: b\n\n").body, ResponseBody::None);
    // In HTTP it is a field like any other.
    assert_eq!(lines(&http("HTTP/1.1 200 OK\r\nStatus: x\r\n")), "Status: x\r\n");
    for (head, expected) in [
        ("\n", BadResponse::NoField),
        ("\r\n", BadResponse::NoField),
        ("HTTP/1.1 200 OK\r\n", BadResponse::StatusLineInCgi),
        ("Status: 200\nStatus: 200\n\n", BadResponse::StatusTwice),
        ("Status: 100 Continue\n\n", BadResponse::InterimInCgi),
        ("Status: OK\n\n", BadResponse::Status),
        ("Status:\n\n", BadResponse::Status),
        ("Status: 600\n\n", BadResponse::Status),
        ("Status: 200OK\n\n", BadResponse::StatusLine),
        ("PHP Warning on line 5\n", BadResponse::FieldName),
    ] {
        refused(head.as_bytes(), HeadSyntax::Cgi, PLAIN, expected);
    }
    refused(b"Status: 101\nUpgrade: a\n\n", HeadSyntax::Cgi, UPGRADE, BadResponse::InterimInCgi);
}

#[test]
fn fields_that_stay_here() {
    let answer = http(
        "HTTP/1.1 200 OK\r\nConnection: close, X-A,content-type , set-cookie\r\nConnection: x-b\r\nX-A: 1\r\n\
        x-b: 2\r\nX-B: 3\r\nX-AB: 4\r\nContent-Type: 5\r\nSet-Cookie: 6\r\nKeep-Alive: 7\r\n\
        Proxy-Connection: 8\r\nProxy-Authenticate: 9\r\nTE: 10\r\nTrailer: 11\r\nUpgrade: 12\r\n\
        X-Accel-Buffering: no\r\nx-accel-: 13\r\nX-Accel: 14\r\nETag: 15\r\nContent-Length: 16\r\n",
    );
    assert_eq!(lines(&answer), "X-AB: 4\r\nProxy-Authenticate: 9\r\nX-Accel: 14\r\nETag: 15\r\n");
    assert_eq!(answer.body, ResponseBody::Length(16));
    let named = "HTTP/1.1 200 OK\r\nConnection: content-length, proxy-authenticate\r\nProxy-Authenticate: a\r\n\
        Content-Length: 3\r\n";
    let answer = http(named);
    // The framing counts even if `Connection` names its field.
    assert_eq!((answer.body, lines(&answer)), (ResponseBody::Length(3), ""));
}

#[test]
fn files_handed_back() {
    let path = |path: &str| Some(HandBack::Path(path.into()));
    for (line, expected) in [
        ("X-Accel-Redirect: /a%20b/c?d=e?f", path("/a%20b/c")),
        ("x-accel-redirect:/", path("/")),
        ("X-Accel-Redirect: /\u{e9} x", path("/\u{e9} x")),
        ("X-Sendfile: /srv/a%20b?c", Some(HandBack::File(b"/srv/a%20b?c".to_vec()))),
        ("X-Sendfile-Type: x", None),
    ] {
        let answer = http(&format!("HTTP/1.1 206 x\r\n{line}\r\n"));
        assert_eq!(answer.hand_back, expected, "{line}");
        assert_eq!(cgi(&format!("{line}\n\n")).hand_back, expected, "{line}");
        for code in [304, 404] {
            assert_eq!(http(&format!("HTTP/1.1 {code} x\r\n{line}\r\n")).hand_back, None);
        }
    }
    for (lines, expected) in [
        ("X-Accel-Redirect:", BadResponse::HandBack),
        ("X-Accel-Redirect: @name", BadResponse::HandBack),
        ("X-Accel-Redirect: http://a/", BadResponse::HandBack),
        ("X-Accel-Redirect: a", BadResponse::HandBack),
        ("X-Accel-Redirect: /../a", BadResponse::HandBack),
        ("X-Accel-Redirect: /a%00", BadResponse::HandBack),
        ("X-Accel-Redirect: /a%0", BadResponse::HandBack),
        ("X-Sendfile: a", BadResponse::HandBack),
        ("X-Sendfile: /a\r\nX-Sendfile: /a", BadResponse::HandBackTwice),
        ("X-Sendfile: /a\r\nX-Accel-Redirect: /a", BadResponse::HandBackTwice),
    ] {
        refused(format!("HTTP/1.1 200 x\r\n{lines}\r\n\r\n").as_bytes(), HeadSyntax::Http, PLAIN, expected);
        assert_eq!(http(&format!("HTTP/1.1 500 x\r\n{lines}\r\n")).fields, b"");
    }
}

#[test]
fn limits() {
    let head = "HTTP/1.1 200 OK\r\nA: b\r\n\r\n";
    let parse = |bytes: &str, most| parse_response(bytes.as_bytes(), HeadSyntax::Http, PLAIN, most);
    assert!(matches!(parse(head, head.len()), Ok(ParsedHead::Complete(_))));
    assert_eq!(parse(head, head.len() - 1), Err(BadResponse::HeadTooLarge));
    assert_eq!(parse(&head[..10], 10), Err(BadResponse::HeadTooLarge));
    assert_eq!(parse(&head[..10], 11), Ok(ParsedHead::Partial));
    assert_eq!(parse("", 0), Err(BadResponse::HeadTooLarge));
    let with_fields = |count| format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(count));
    assert!(matches!(parse(&with_fields(100), HEAD_BYTES_MAX), Ok(ParsedHead::Complete(_))));
    assert_eq!(parse(&with_fields(101), HEAD_BYTES_MAX), Err(BadResponse::TooManyFields));
}

#[test]
fn every_byte_is_awaited() {
    for (head, syntax) in [
        ("HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 1\r\n\r\n", HeadSyntax::Http),
        ("HTTP/1.1 100\r\n\r\n", HeadSyntax::Http),
        ("Status: 200\nA: b\n\r\n", HeadSyntax::Cgi),
    ] {
        for len in 0..head.len() {
            let parsed = parse(&head.as_bytes()[..len], syntax, PLAIN);
            assert_eq!(parsed, Ok(ParsedHead::Partial), "{len} bytes of {head:?}");
        }
    }
    // Garbage is refused at once.
    refused(b"SSH-", HeadSyntax::Http, PLAIN, BadResponse::Version);
    refused(b"HTTP/2", HeadSyntax::Http, PLAIN, BadResponse::Version);
}

#[test]
fn reasons_are_sentences_without_a_full_stop() {
    for bad in [BadResponse::Version, BadResponse::HandBackTwice, BadResponse::NoField] {
        assert!(bad.reason().starts_with("The ") && !bad.reason().ends_with('.'));
        assert_eq!((bad.to_string().as_str(), bad.status()), (bad.reason(), Status::BAD_GATEWAY));
    }
}

/// Generates bytes with many of the tokens that the parser treats specially.
fn tricky() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        6 => prop::sample::select(vec![
            "A: b\r\n", "A: b\n", "\r\n", "\n", "\r", "Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n",
            "Connection: close, a, set-cookie\r\n", "Set-Cookie: x\r\n", "Upgrade: x\r\n", "X-Accel-Redirect: /a\r\n",
            "X-Sendfile: /b\r\n", "Status: 101\r\n", "Location: /\n", "Date: x\r\n", "TE: x\r\n", " ", ":",
        ]).prop_map(|text| text.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..3),
    ];
    let start = prop::sample::select(vec![
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.0 204\r\n",
        "HTTP/1.1 101 x\r\n",
        "HTTP/1.1 103\r\n",
        "Status: 404 x\n",
        "",
    ]);
    (start, proptest::collection::vec(piece, 0..8), any::<bool>()).prop_map(|(start, pieces, ends)| {
        [start.as_bytes(), &pieces.concat(), if ends { b"\r\n" } else { b"" }].concat()
    })
}

fn any_request() -> impl Strategy<Value = (HeadSyntax, ResponseTo)> {
    (prop::sample::select(vec![HeadSyntax::Http, HeadSyntax::Cgi]), any::<bool>(), any::<bool>())
        .prop_map(|(syntax, is_head, upgrades)| (syntax, ResponseTo { is_head, upgrades }))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..80), (syntax, asked) in any_request(), most in 0usize..100,
    ) {
        let _ = parse_response(&bytes, syntax, asked, most);
    }

    /// Before its last byte a head is incomplete, and the bytes after it do not matter.
    #[test]
    fn prefixes_agree(bytes in tricky(), (syntax, asked) in any_request()) {
        let whole = parse(&bytes, syntax, asked);
        let head_len = match &whole {
            Ok(ParsedHead::Complete(answer)) => answer.head_len,
            Ok(ParsedHead::Interim { head_len }) => *head_len,
            Ok(ParsedHead::Partial) => usize::MAX,
            Err(_) => return Ok(()),
        };
        for len in 0..bytes.len() {
            let expected = if len < head_len { Ok(ParsedHead::Partial) } else { whole.clone() };
            prop_assert_eq!(parse(&bytes[..len], syntax, asked), expected, "{} bytes", len);
        }
    }

    #[test]
    fn lines_passed_on_are_whole_and_allowed(bytes in tricky(), (syntax, asked) in any_request()) {
        if let Ok(ParsedHead::Complete(answer)) = parse(&bytes, syntax, asked) {
            let text = String::from_utf8_lossy(&answer.fields).to_ascii_lowercase();
            prop_assert!(text.is_empty() || text.ends_with("\r\n"));
            for line in text.split_terminator("\r\n") {
                prop_assert!(!line.contains(['\r', '\n']));
                let (name, value) = line.split_once(": ").unwrap();
                let is_upgrade = answer.body == ResponseBody::Upgraded;
                match name {
                    "connection" => prop_assert!(is_upgrade && value == "upgrade"),
                    "upgrade" => prop_assert!(is_upgrade),
                    _ => prop_assert!(!["content-length", "transfer-encoding", "te", "date", "x-sendfile",
                        "x-accel-redirect"].contains(&name), "{}", name),
                }
            }
        }
    }
}
