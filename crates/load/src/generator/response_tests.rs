//! Responses in one piece, in many, and what is none.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::*;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const CHUNKED: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n\
    3;a=\"b\"\r\nhel\r\n0002 \r\nlo\r\n0\r\nDigest: x\r\nEtc: y\r\n\r\n";

/// Feeds the pieces; gives the head when they make a whole response, and the body.
fn feed<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Result<Option<Head>, Garbage>, Vec<u8>) {
    let (mut response, mut body) = (Response::default(), Vec::new());
    let mut end = Ok(None);
    for piece in pieces {
        assert_eq!(end, Ok(None), "bytes after the end");
        end = response.feed(piece, |_, offset, bytes| {
            assert_eq!(offset, body.len() as u64);
            assert!(!bytes.is_empty());
            body.extend_from_slice(bytes);
        });
        if end.is_err() {
            break;
        }
    }
    assert_eq!(response.body_bytes(), body.len() as u64);
    (end, body)
}

#[test]
fn reads_a_response_in_any_pieces() {
    for whole in [OK, CHUNKED] {
        for first in 1..whole.len() {
            for second in first..whole.len() {
                let (end, body) = feed([&whole[..first], &whole[first..second], &whole[second..]]);
                assert_eq!(end, Ok(Some(Head { status: 200, keep_alive: true })));
                assert_eq!(body, b"hello");
            }
        }
        assert_eq!(feed(whole.chunks(1)).1, b"hello");
    }
}

#[test]
fn knows_when_the_connection_ends() {
    let cases: [(&[u8], bool); 6] = [
        (b"HTTP/1.1 503 x\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n", false),
        (b"HTTP/1.1 503 x\r\nConnection: keep-alive, close\r\nContent-Length: 0\r\n\r\n", false),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", false),
        (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n", true),
        (b"HTTP/1.1 304 x\r\nContent-Length: 7\r\n\r\n", true),
        (b"HTTP/1.1 204 x\r\n\r\n", true),
    ];
    for (bytes, keep_alive) in cases {
        assert_eq!(feed([bytes]).0.unwrap().unwrap().keep_alive, keep_alive);
    }
}

#[test]
fn a_body_without_a_length_ends_with_the_connection() {
    let mut response = Response::default();
    assert_eq!(
        response.feed(b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\nabc", |_, _, _| ()),
        Ok(None)
    );
    assert_eq!(response.end(), Some(Head { status: 200, keep_alive: false }));
    assert_eq!(response.body_bytes(), 3);
    response.clear(false);
    assert_eq!(response.end(), None, "no head, no response");
    assert_eq!(response.feed(&OK[..OK.len() - 1], |_, _, _| ()), Ok(None));
    assert_eq!(response.end(), None, "a length was promised");
}

#[test]
fn refuses_what_is_no_response() {
    let cases: [&[u8]; 19] = [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 204 OK\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n00000000000000001\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;a\nx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\na: b\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nx",
    ];
    for bytes in cases {
        assert_eq!(feed([bytes]).0, Err(Garbage), "{}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn what_never_ends_is_ended() {
    let chunked: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1";
    let zero: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
    let cases: [(&[u8], &[u8]); 5] = [
        (b"HTTP/1.1 200 OK\r\n", b"x: aaaaaaaaaaaaaaaaaaaaaaaaaa\r\n"),
        (b"HTTP/1.1 200 OK\r\nx: ", b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (chunked, b";aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
        (zero, b"x: aaaaaaaaaaaaaaaaaaaaaaaaaa\r\n"),
    ];
    for (first, again) in cases {
        let mut response = Response::default();
        let _ = response.feed(first, |_, _, _| ());
        let ends = (0..2000).any(|_| response.feed(again, |_, _, _| ()).is_err());
        assert!(ends, "{}", String::from_utf8_lossy(again));
    }
}

#[test]
fn random_pieces_and_random_bytes_agree_and_never_panic() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(4);
    for _ in 0..20_000 {
        let mut bytes = if random.random() { OK.to_vec() } else { CHUNKED.to_vec() };
        for _ in 0..random.random_range(0..4) {
            let at = random.random_range(0..bytes.len());
            match random.random_range(0..3) {
                0 => bytes[at] = random.random(),
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"\r\n 0;:fF"[random.random_range(0..8)]),
            }
        }
        // Whether bytes follow on the end depends on the pieces, so the end stops both.
        let read = |pieces: &mut dyn Iterator<Item = &[u8]>| {
            let (mut response, mut body) = (Response::default(), Vec::new());
            for piece in pieces {
                match response.feed(piece, |_, _, bytes| body.extend_from_slice(bytes)) {
                    Ok(None) => {}
                    end => return (end, body),
                }
            }
            (Ok(None), body)
        };
        let by_bytes = read(&mut bytes.chunks(1));
        let size = random.random_range(2..bytes.len() + 2);
        let by_pieces = read(&mut bytes.chunks(size));
        // A wrong head may show early in a first piece, and bytes behind the end only in a piece.
        if let (Ok(Some(_)), Ok(Some(_))) = (&by_bytes.0, &by_pieces.0) {
            assert_eq!(by_bytes, by_pieces, "{}", String::from_utf8_lossy(&bytes));
        }
        if by_pieces.0.is_ok_and(|end| end.is_some()) {
            assert!(by_bytes.0.is_ok_and(|end| end.is_some()), "{}", String::from_utf8_lossy(&bytes));
        }
    }
}
