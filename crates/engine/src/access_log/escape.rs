//! Texts of clients in lines of the log: no client can end a field or a line, or control a terminal. Called by [`access_log`](super).

use std::fmt::Write as _;
use std::net::SocketAddr;

use flash_http::client;

use crate::limits::LOG_FIELD_BYTES_MAX;
use crate::log_template::push_start;

pub(super) fn or_dash(text: &[u8]) -> &[u8] {
    if text.is_empty() { b"-" } else { text }
}

pub(super) fn push_address(out: &mut Vec<u8>, peer: &SocketAddr) {
    match peer {
        SocketAddr::V4(peer) if client::is_unix((*peer.ip()).into()) => {
            out.extend_from_slice(client::UNIX.as_bytes());
        }
        SocketAddr::V4(peer) => {
            let (mut text, mut length) = ([0; 16], 0);
            for octet in peer.ip().octets() {
                let (digits, count) = &OCTETS[usize::from(octet)];
                text[length..length + 4].copy_from_slice(digits);
                length += count;
            }
            // Without the last point.
            push_start(out, text, length - 1);
        }
        SocketAddr::V6(peer) => {
            let mut text = String::with_capacity(40);
            // Formatting into a String cannot fail.
            let _ = write!(text, "{}", peer.ip());
            out.extend_from_slice(text.as_bytes());
        }
    }
}

/// Each number of an address in decimal with a point behind it, and how long that is.
static OCTETS: [([u8; 4], usize); 256] = {
    let mut all = [([b'.'; 4], 2); 256];
    let mut number = 0;
    while number < 256 {
        let digits =
            [b'0' + (number / 100) as u8, b'0' + (number / 10 % 10) as u8, b'0' + (number % 10) as u8];
        all[number] = match number {
            0..10 => ([digits[2], b'.', 0, 0], 2),
            10..100 => ([digits[1], digits[2], b'.', 0], 3),
            _ => ([digits[0], digits[1], digits[2], b'.'], 4),
        };
        number += 1;
    }
    all
};

/// Ends a field that was cut at its bound.
const CUT: &[u8] = b"...";

/// Appends pieces until the field reaches its bound.
fn push_bounded<'p>(out: &mut Vec<u8>, pieces: impl Iterator<Item = LogPiece<'p>>) {
    let start = out.len();
    for piece in pieces {
        let piece = piece.as_bytes();
        if out.len() - start + piece.len() > LOG_FIELD_BYTES_MAX - CUT.len() {
            return out.extend_from_slice(CUT);
        }
        out.extend_from_slice(piece);
    }
}

/// One piece of an escaped field.
enum LogPiece<'p> {
    Plain(&'p [u8]),
    Escaped([u8; 6], usize),
}

impl LogPiece<'_> {
    fn as_bytes(&self) -> &[u8] {
        match self {
            LogPiece::Plain(bytes) => bytes,
            LogPiece::Escaped(bytes, length) => &bytes[..*length],
        }
    }

    fn escaped(bytes: &[u8]) -> Self {
        let mut all = [0; 6];
        all[..bytes.len()].copy_from_slice(bytes);
        LogPiece::Escaped(all, bytes.len())
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

fn hex(byte: u8) -> [u8; 2] {
    [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]
}

/// Escapes as Apache and nginx do, so that no client can end a field or a line.
pub(super) fn push_quotable(out: &mut Vec<u8>, text: &[u8]) {
    let is_plain = |byte: &u8| (0x20..=0x7e).contains(byte) && *byte != b'"' && *byte != b'\\';
    if text.iter().all(is_plain) && text.len() <= LOG_FIELD_BYTES_MAX - CUT.len() {
        return out.extend_from_slice(text);
    }
    let pieces = text.iter().map(|byte| match byte {
        b'"' | b'\\' => LogPiece::escaped(&[b'\\', *byte]),
        byte if is_plain(byte) => LogPiece::Plain(std::slice::from_ref(byte)),
        byte => {
            let [high, low] = hex(*byte);
            LogPiece::escaped(&[b'\\', b'x', high, low])
        }
    });
    push_bounded(out, pieces);
}

/// Escapes a field without quotes around it, in which a space would begin the next one.
pub(super) fn push_word(out: &mut Vec<u8>, text: &[u8]) {
    let start = out.len();
    push_quotable(out, text);
    if out[start..].contains(&b' ') {
        let spaceless = out.split_off(start);
        spaceless.split(|byte| *byte == b' ').enumerate().for_each(|(number, part)| {
            out.extend_from_slice(if number > 0 { b"\\x20" } else { b"" });
            out.extend_from_slice(part);
        });
    }
}

/// Escapes for a JSON string (RFC 8259, section 7). Bytes that are not UTF-8 become U+FFFD. DEL and the C1
/// controls are escaped too, so that a log shown in a terminal cannot control the terminal.
pub(super) fn push_json(out: &mut Vec<u8>, text: &[u8]) {
    let is_plain = |byte: &u8| (0x20..=0x7e).contains(byte) && *byte != b'"' && *byte != b'\\';
    if text.iter().all(is_plain) && text.len() <= LOG_FIELD_BYTES_MAX - CUT.len() {
        return out.extend_from_slice(text);
    }
    let pieces = text.utf8_chunks().flat_map(|chunk| {
        let broken = (!chunk.invalid().is_empty()).then(|| LogPiece::escaped("\u{fffd}".as_bytes()));
        chunk.valid().chars().map(json_piece).chain(broken)
    });
    push_bounded(out, pieces);
}

fn json_piece<'p>(character: char) -> LogPiece<'p> {
    match character {
        '"' | '\\' => LogPiece::escaped(&[b'\\', character as u8]),
        '\n' => LogPiece::escaped(b"\\n"),
        '\r' => LogPiece::escaped(b"\\r"),
        '\t' => LogPiece::escaped(b"\\t"),
        _ if character.is_control() => {
            // Control characters are below U+00A0, so two hex digits are enough.
            let [high, low] = hex(character as u8);
            LogPiece::escaped(&[b'\\', b'u', b'0', b'0', high, low])
        }
        _ => {
            let mut bytes = [0; 4];
            LogPiece::escaped(character.encode_utf8(&mut bytes).as_bytes())
        }
    }
}
