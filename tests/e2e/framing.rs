//! The end of a request is never ambiguous: Flash refuses bytes that two parsers could read differently, and closes the
//! connection.

use crate::harness::{Answer, Broken, Client, Folder, Launch, Page, Server};

/// A name, the bytes sent after `GET /hello.txt HTTP/1.1 CRLF Host: h CRLF`, and the expected outcome.
type Case = (&'static str, &'static str, Outcome);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The file is sent, and the next request is answered.
    Served,
    /// This status, then the end of the connection; later bytes are not taken for a request.
    Refused(u16),
}
use Outcome::{Refused, Served};

const START: &str = "GET /hello.txt HTTP/1.1\r\nHost: h\r\n";
/// The bytes after each request: an answer to them after a refusal would mean that they were smuggled in.
const NEXT: &str = "GET /next.txt HTTP/1.1\r\nHost: h\r\n\r\n";

fn site() -> Folder {
    let folder = Folder::with_hello();
    folder.www("next.txt", "next\n");
    folder
}

fn check_table(table: &[Case]) {
    let folder = site();
    let server = Launch::new(&folder).start();
    let wrong: Vec<String> = table
        .iter()
        .filter_map(|(name, rest, outcome)| {
            let bytes = [START, rest, NEXT].concat().into_bytes();
            check(&server, &bytes, *outcome).err().map(|why| format!("{name}: {why}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn check(server: &Server, bytes: &[u8], outcome: Outcome) -> Result<(), String> {
    let mut client = server.client();
    client.send(bytes);
    let first = receive(&mut client)?;
    let expected = match outcome {
        Served => 200,
        Refused(status) => status,
    };
    if first.status != expected {
        return Err(format!("{} instead of {outcome:?}: {}", first.status, first.text()));
    }
    if outcome == Served {
        if first.text() != "hello\n" {
            return Err(format!("another body: {:?}", first.text()));
        }
        let second = receive(&mut client)?;
        return match second.brief() {
            (200, text) if text == "next\n" => Ok(()),
            other => Err(format!("the next request was lost: {other:?}")),
        };
    }
    if !first.says_close() {
        return Err("does not say that it closes".to_owned());
    }
    match client.receive(Answer::Whole) {
        Err(Broken::Unanswered { reset: false }) => Ok(()),
        other => Err(format!("not closed after it: {other:?}")),
    }
}

fn receive(client: &mut Client) -> Result<Page, String> {
    client.receive(Answer::Whole).map_err(|broken| format!("{broken:?}"))
}

#[test]
fn content_length_is_digits_and_occurs_once() {
    check_table(&[
        ("plain", "Content-Length: 5\r\n\r\n12345", Served),
        ("none", "\r\n", Served),
        ("zero", "Content-Length: 0\r\n\r\n", Served),
        ("zeros in front", "Content-Length: 0005\r\n\r\n12345", Served),
        ("blanks around", "Content-Length:\t 5 \t\r\n\r\n12345", Served),
        (
            "a body like a request",
            "Content-Length: 39\r\n\r\nGET /next.txt HTTP/1.1\r\nHost: sneak\r\n\r\n",
            Served,
        ),
        ("twice the same", "Content-Length: 5\r\nContent-Length: 5\r\n\r\n12345", Refused(400)),
        ("twice different", "Content-Length: 5\r\nContent-Length: 6\r\n\r\n12345", Refused(400)),
        (
            "twice, with other fields between",
            "Content-Length: 5\r\nA: b\r\ncontent-length: 5\r\n\r\n12345",
            Refused(400),
        ),
        ("a list of the same", "Content-Length: 5, 5\r\n\r\n12345", Refused(400)),
        ("a plus", "Content-Length: +5\r\n\r\n12345", Refused(400)),
        ("a minus", "Content-Length: -5\r\n\r\n12345", Refused(400)),
        ("minus zero", "Content-Length: -0\r\n\r\n", Refused(400)),
        ("a space within", "Content-Length: 1 2\r\n\r\n12345", Refused(400)),
        ("empty", "Content-Length: \r\n\r\n", Refused(400)),
        ("hexadecimal", "Content-Length: 0x5\r\n\r\n12345", Refused(400)),
        ("a letter", "Content-Length: 5a\r\n\r\n12345", Refused(400)),
        ("a fraction", "Content-Length: 5.0\r\n\r\n12345", Refused(400)),
        ("an underscore", "Content-Length: 1_0\r\n\r\n12345", Refused(400)),
        ("an exponent", "Content-Length: 5e0\r\n\r\n12345", Refused(400)),
        ("2^64", "Content-Length: 18446744073709551616\r\n\r\n", Refused(400)),
        ("2^64 + 5", "Content-Length: 18446744073709551621\r\n\r\n12345", Refused(400)),
        ("far too many digits", "Content-Length: 99999999999999999999999999\r\n\r\n", Refused(400)),
        ("2^64 - 1", "Content-Length: 18446744073709551615\r\n\r\n", Refused(413)),
        ("digits that are not ASCII", "Content-Length: \u{0665}\r\n\r\n12345", Refused(400)),
        ("a vertical tab in front", "Content-Length: \x0b5\r\n\r\n12345", Refused(400)),
    ]);
}

#[test]
fn transfer_encoding_is_chunked_alone() {
    check_table(&[
        ("plain", "Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n\r\n", Served),
        ("in capitals", "Transfer-Encoding: CHUNKED\r\n\r\n5\r\n12345\r\n0\r\n\r\n", Served),
        ("with blanks", "Transfer-Encoding:   chunked\t\r\n\r\n0\r\n\r\n", Served),
        ("with a length", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", Refused(400)),
        ("after a length", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Refused(400)),
        (
            "after a length of zero",
            "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            Refused(400),
        ),
        ("twice", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Refused(400)),
        (
            "twice, of two",
            "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            Refused(400),
        ),
        ("chunked twice", "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", Refused(400)),
        ("not last", "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", Refused(400)),
        ("another alone", "Transfer-Encoding: gzip\r\n\r\n0\r\n\r\n", Refused(400)),
        ("another under it", "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", Refused(501)),
        ("identity", "Transfer-Encoding: identity\r\n\r\n", Refused(400)),
        ("empty", "Transfer-Encoding: \r\n\r\n", Refused(400)),
        ("a prefix", "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", Refused(400)),
        ("a suffix", "Transfer-Encoding: chunkedx\r\n\r\n0\r\n\r\n", Refused(400)),
        ("quoted", "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", Refused(400)),
        ("a parameter", "Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n", Refused(400)),
        ("a vertical tab in front", "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", Refused(400)),
        ("a space before its colon", "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", Refused(400)),
        ("on the next line", "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", Refused(400)),
    ]);
}

#[test]
fn chunks_are_parsed_strictly() {
    check_table(&[
        ("several", "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n", Served),
        (
            "both cases of digits",
            "Transfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n",
            Served,
        ),
        ("zeros in front", "Transfer-Encoding: chunked\r\n\r\n0005\r\n12345\r\n000\r\n\r\n", Served),
        ("extensions", "Transfer-Encoding: chunked\r\n\r\n5;a=b;c=\"d\"\r\n12345\r\n0;last\r\n\r\n", Served),
        ("trailers", "Transfer-Encoding: chunked\r\n\r\n0\r\nX-Sum: 1\r\nContent-Length: 7\r\n\r\n", Served),
        ("data like an end", "Transfer-Encoding: chunked\r\n\r\n5\r\n0\r\n\r\n\r\n0\r\n\r\n", Served),
        ("no size", "Transfer-Encoding: chunked\r\n\r\n\r\n12345\r\n0\r\n\r\n", Refused(400)),
        ("an extension without a size", "Transfer-Encoding: chunked\r\n\r\n;a=b\r\n0\r\n\r\n", Refused(400)),
        ("0x", "Transfer-Encoding: chunked\r\n\r\n0x5\r\n12345\r\n0\r\n\r\n", Refused(400)),
        ("a plus", "Transfer-Encoding: chunked\r\n\r\n+5\r\n12345\r\n0\r\n\r\n", Refused(400)),
        ("a minus", "Transfer-Encoding: chunked\r\n\r\n-1\r\n12345\r\n0\r\n\r\n", Refused(400)),
        ("a space in front", "Transfer-Encoding: chunked\r\n\r\n 5\r\n12345\r\n0\r\n\r\n", Refused(400)),
        ("a space behind", "Transfer-Encoding: chunked\r\n\r\n5 \r\n12345\r\n0\r\n\r\n", Refused(400)),
        ("a letter too many", "Transfer-Encoding: chunked\r\n\r\n5g\r\n12345\r\n0\r\n\r\n", Refused(400)),
        ("an underscore", "Transfer-Encoding: chunked\r\n\r\n0_5\r\n12345\r\n0\r\n\r\n", Refused(400)),
        ("2^64", "Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n12345\r\n0\r\n\r\n", Refused(400)),
        (
            "2^64 + 5",
            "Transfer-Encoding: chunked\r\n\r\n10000000000000005\r\n12345\r\n0\r\n\r\n",
            Refused(400),
        ),
        ("a bare LF after the size", "Transfer-Encoding: chunked\r\n\r\n5\n12345\r\n0\r\n\r\n", Refused(400)),
        ("a bare CR after the size", "Transfer-Encoding: chunked\r\n\r\n5\r12345\r\n0\r\n\r\n", Refused(400)),
        ("a bare LF after the data", "Transfer-Encoding: chunked\r\n\r\n5\r\n12345\n0\r\n\r\n", Refused(400)),
        ("a bare LF at the end", "Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\n\n", Refused(400)),
        ("data too long", "Transfer-Encoding: chunked\r\n\r\n5\r\n123456\r\n0\r\n\r\n", Refused(400)),
        ("data too short", "Transfer-Encoding: chunked\r\n\r\n5\r\n1234\r\n0\r\n\r\n", Refused(400)),
        (
            "LF in an extension",
            "Transfer-Encoding: chunked\r\n\r\n5;a\nb\r\n12345\r\n0\r\n\r\n",
            Refused(400),
        ),
        (
            "NUL in an extension",
            "Transfer-Encoding: chunked\r\n\r\n5;a\0b\r\n12345\r\n0\r\n\r\n",
            Refused(400),
        ),
        ("a folded trailer", "Transfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n c\r\n\r\n", Refused(400)),
        ("a trailer without a colon", "Transfer-Encoding: chunked\r\n\r\n0\r\nabc\r\n\r\n", Refused(400)),
        (
            "a trailer with a space before the colon",
            "Transfer-Encoding: chunked\r\n\r\n0\r\nA : b\r\n\r\n",
            Refused(400),
        ),
    ]);
}

#[test]
fn http10_has_no_chunks() {
    let folder = site();
    let server = Launch::new(&folder).start();
    let start = "GET /hello.txt HTTP/1.0\r\nConnection: keep-alive\r\n";
    for rest in ["Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "Transfer-Encoding: identity\r\n\r\n"] {
        let bytes = [start, rest, NEXT].concat();
        check(&server, bytes.as_bytes(), Refused(400)).unwrap();
    }
    let bytes = [start, "Content-Length: 3\r\n\r\n123", NEXT].concat();
    check(&server, bytes.as_bytes(), Served).unwrap();
}

#[test]
fn a_head_is_parsed_strictly() {
    check_table(&[
        ("an empty value", "A:\r\n\r\n", Served),
        ("no blank after the colon", "A:b\r\n\r\n", Served),
        ("a colon in a value", "A: b:c\r\n\r\n", Served),
        ("a tab in a value", "A: b\tc\r\n\r\n", Served),
        ("bytes above ASCII in a value", "A: \u{e9}\r\n\r\n", Served),
        ("all the characters of a token", "!#$%&'*+-.^_`|~09AZaz: x\r\n\r\n", Served),
        ("a bare LF after a field", "A: b\nC: d\r\n\r\n", Refused(400)),
        ("a bare LF as the empty line", "A: b\r\n\n", Refused(400)),
        ("only bare LFs", "A: b\n\n", Refused(400)),
        ("a bare CR in a value", "A: b\rC: d\r\n\r\n", Refused(400)),
        ("a bare CR as line end", "A: b\r\r\n\r\n", Refused(400)),
        ("a folded line", "A: b\r\n c\r\n\r\n", Refused(400)),
        ("a folded line with a tab", "A: b\r\n\tc\r\n\r\n", Refused(400)),
        ("a line folded to nothing", "A: b\r\n \r\n\r\n", Refused(400)),
        ("a space before the colon", "A : b\r\n\r\n", Refused(400)),
        ("a tab before the colon", "A\t: b\r\n\r\n", Refused(400)),
        ("a space in a name", "A B: c\r\n\r\n", Refused(400)),
        ("no name", ": b\r\n\r\n", Refused(400)),
        ("no colon", "abc\r\n\r\n", Refused(400)),
        ("NUL in a value", "A: b\0c\r\n\r\n", Refused(400)),
        ("NUL in a name", "A\0: b\r\n\r\n", Refused(400)),
        ("ESC in a value", "A: \x1b[2J\r\n\r\n", Refused(400)),
        ("DEL in a value", "A: b\x7f\r\n\r\n", Refused(400)),
        ("a form feed in a value", "A: b\x0cc\r\n\r\n", Refused(400)),
        ("a byte above ASCII in a name", "\u{e9}: b\r\n\r\n", Refused(400)),
        ("a parenthesis in a name", "A(b): c\r\n\r\n", Refused(400)),
    ]);
}

#[test]
fn bytes_before_a_request() {
    let folder = site();
    let server = Launch::new(&folder).start();
    let request = [START, "\r\n"].concat();
    let table = [
        ("\r\n", Served),
        ("\n", Refused(400)),
        ("\r\n\r\n\r\n\r\n\r\n\r\n", Refused(400)),
        (" ", Refused(400)),
        ("\0", Refused(400)),
        ("\u{feff}", Refused(400)),
        ("X\r\n", Refused(400)),
    ];
    for (before, outcome) in table {
        let bytes = [before, &request, NEXT].concat();
        check(&server, bytes.as_bytes(), outcome).unwrap_or_else(|why| panic!("{before:?}: {why}"));
    }
    // RFC 9112, section 2.2: an old client's extra line end after a body.
    let mut client = server.client();
    let bytes = [START, "Content-Length: 5\r\n\r\n12345\r\n", NEXT].concat();
    client.send(bytes);
    assert_eq!(client.page().text(), "hello\n");
    assert_eq!(client.page().text(), "next\n");
}

#[test]
fn bytes_that_are_not_http_are_refused() {
    let folder = site();
    let server = Launch::new(&folder).start();
    let strange: [&[u8]; 4] =
        [b"\x00\x00\x00\x00", b"\xff\xff\xff\xff\r\n\r\n", b"SSH-2.0-x y z\r\n", b"{\"a\": 1}\r\n\r\n"];
    for bytes in strange {
        check(&server, bytes, Refused(400)).unwrap_or_else(|why| panic!("{}: {why}", bytes.escape_ascii()));
    }
    // A client that speaks TLS would not understand an answer.
    let mut client = server.client();
    client.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03");
    client.assert_closed();
}

#[test]
fn every_byte_in_a_head_is_accepted_or_refused() {
    let folder = site();
    let server = Launch::new(&folder).start();
    for byte in 0..=255 {
        let value_ok = byte == b'\t' || (byte >= b' ' && byte != 0x7f);
        let name_ok = byte == b':' || byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        for (before, after, is_ok) in [("A: b", "c\r\n\r\n", value_ok), ("A", "B: c\r\n\r\n", name_ok)] {
            let bytes =
                [START.as_bytes(), before.as_bytes(), &[byte], after.as_bytes(), NEXT.as_bytes()].concat();
            let outcome = if is_ok { Served } else { Refused(400) };
            check(&server, &bytes, outcome).unwrap_or_else(|why| panic!("{byte:#x} after {before}: {why}"));
        }
    }
}

#[test]
fn bodies_are_discarded_and_bounded() {
    let folder = site();
    let server = Launch::new(&folder).start();
    let mut client = server.client();
    // Up to 1 MiB is read, so that the next request is found.
    let body = vec![b'x'; 1 << 20];
    for method in ["GET", "HEAD", "OPTIONS"] {
        client.send(Client::request_bytes(method, "/hello.txt", &["Content-Length: 1048576"]));
        client.send(&body);
        let answer = if method == "HEAD" { Answer::HeadOnly } else { Answer::Whole };
        assert!(client.expect(answer).status < 300, "{method}");
    }
    client.assert_kept();
    let mut bytes = Client::request_bytes("GET", "/hello.txt", &["Content-Length: 1048577"]);
    bytes.extend(NEXT.as_bytes());
    check(&server, &bytes, Refused(413)).unwrap();
    let mut client = server.client();
    client.send(Client::request_bytes("GET", "/hello.txt", &["Transfer-Encoding: chunked"]));
    let chunk = [b"10000\r\n".to_vec(), vec![b'x'; 0x10000], b"\r\n".to_vec()].concat();
    for _ in 0..17 {
        client.send(&chunk);
    }
    assert_eq!(client.page().status, 413);
    client.assert_gone();
}

#[test]
fn an_answer_to_a_request_whose_body_is_not_read_is_not_lost() {
    let folder = site();
    let server = Launch::new(&folder).start();
    for _ in 0..10 {
        let mut client = server.client();
        client.send(Client::request_bytes("POST", "/hello.txt", &["Content-Length: 200000"]));
        client.send(vec![b'x'; 200_000]);
        // A server that closed with unread bytes would reset the connection and lose the answer.
        assert_eq!(client.page().status, 405);
        client.assert_closed();
    }
}

#[test]
fn a_body_may_be_split_anywhere() {
    let folder = site();
    let server = Launch::new(&folder).start();
    let body = "5;x\r\n12345\r\n3\r\n\r\n\r\r\n0\r\nT: x\r\n\r\n";
    let mut client = server.client();
    for cut in 0..=body.len() {
        client.send([START, "Transfer-Encoding: chunked\r\n\r\n", &body[..cut]].concat());
        std::thread::sleep(std::time::Duration::from_millis(2));
        client.send([&body[cut..], NEXT].concat());
        assert_eq!(client.page().brief(), (200, "hello\n".into()), "cut at {cut}");
        assert_eq!(client.page().brief(), (200, "next\n".into()), "cut at {cut}");
    }
}
