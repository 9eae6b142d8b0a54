//! Segments from packets that were made by hand.

use std::net::Ipv6Addr;

use super::*;

/// A packet with headers longer than they must be, or not.
fn packet(is_six: bool, options: bool, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    if is_six {
        bytes.extend([0x60, 0, 0, 0, 0, 0, TCP, 64]);
        for address in ["fe80::1", "::1"] {
            bytes.extend(address.parse::<Ipv6Addr>().unwrap().octets());
        }
    } else {
        bytes.extend([if options { 0x47 } else { 0x45 }, 0, 0, 0, 0, 0, 0x40, 0, 64, TCP, 0, 0]);
        bytes.extend([10, 0, 0, 9, 10, 0, 0, 1]);
        bytes.extend(vec![1; if options { 8 } else { 0 }]);
    }
    bytes.extend([0x9c, 0x40, 0x1f, 0x90]);
    bytes.extend(7_u32.to_be_bytes());
    bytes.extend(0xffff_fff0_u32.to_be_bytes());
    bytes.extend([if options { 0x80 } else { 0x50 }, 0x18, 0, 0, 0, 0, 0, 0]);
    bytes.extend(vec![1; if options { 12 } else { 0 }]);
    bytes.extend(payload);
    bytes
}

const GET: &[u8] = b"GET /a/b?c HTTP/1.1\r\nHost: x\r\n\r\n";

fn line(payload: &[u8]) -> Option<String> {
    match Segment::decode(&packet(false, false, payload), false)?.begins {
        Begins::Request(line) => Some(line),
        Begins::Answer => None,
    }
}

#[test]
fn a_request_is_from_its_client_and_an_answer_from_the_server() {
    for options in [false, true] {
        let request = Segment::decode(&packet(false, options, GET), false).unwrap();
        assert_eq!(
            (request.server.to_string(), request.client.to_string().as_str()),
            ("10.0.0.1:8080".to_owned(), "10.0.0.9:40000")
        );
        assert_eq!((request.sequence, request.wanted), (7, 0xffff_fff0));
        assert_eq!(request.begins, Begins::Request("GET /a/b?c".to_owned()));
        let answer = Segment::decode(&packet(true, options, b"HTTP/1.1 200 OK\r\n"), true).unwrap();
        assert_eq!(
            (answer.server.to_string(), answer.client.to_string().as_str()),
            ("[fe80::1]:40000".to_owned(), "[::1]:8080")
        );
        assert_eq!(answer.begins, Begins::Answer);
    }
}

#[test]
fn a_line_is_without_its_version_and_fit_to_be_printed() {
    assert_eq!(line(b"HEAD /x y HTTP/1.0\n").as_deref(), Some("HEAD /x y"));
    assert_eq!(line(b"GET /\x1b[2J\xff HTTP/1.1\r\n").as_deref(), Some("GET /\u{fffd}[2J\u{fffd}"));
    let long = [b"GET /".as_slice(), &[b'x'; 1000]].concat();
    assert_eq!(line(&long).map(|line| line.len()), Some(LINE_BYTES_MAX), "cut short, as the packet may be");
    for other in
        [&b"GET /a\r\n"[..], b"get / HTTP/1.1\r\n", b"GETTINGON /", b"GET", b"", b"\x16\x03\x01 HTTP/1.1"]
    {
        assert_eq!(line(other), None, "{other:?}");
    }
    let interim = packet(false, false, b"HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(Segment::decode(&interim, true), None);
}

#[test]
fn what_is_cut_short_or_makes_no_sense_is_no_segment() {
    for is_six in [false, true] {
        let whole = packet(is_six, true, GET);
        let head = whole.len() - GET.len();
        for length in 0..whole.len() {
            let decoded = Segment::decode(&whole[..length], false);
            assert_eq!(decoded.is_some(), length >= head + 4, "{length} of {}", whole.len());
        }
        // No byte of the headers makes it read beyond the end, whatever it says.
        for at in 0..head {
            for value in [0, 1, 0x0f, 0x40, 0x60, 0x7f, 0xf0, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                let _ = Segment::decode(&bytes, false);
                let _ = Segment::decode(&bytes[..head], true);
            }
        }
    }
    let mut udp = packet(false, false, GET);
    udp[9] = 17;
    assert_eq!(Segment::decode(&udp, false), None);
}
