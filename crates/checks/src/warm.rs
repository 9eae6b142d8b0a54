//! The warm endpoint's parsers: questions and output do not depend on how the bytes were divided, every path is
//! resolved, and what a connection keeps and sends is bounded.

use flash_engine::backend::fastcgi::FastCgi;
use flash_engine::backend::http::Http;
use flash_engine::backend::warm::{
    FileRange, Next, PART_BYTES_MAX, WARM_PATH_BYTES_MAX, WarmRequest, WarmResult,
};

/// Checks `input`: a byte that chooses the protocol and the division, and the bytes of a connection.
pub fn warm(input: &[u8]) {
    let Some((first, bytes)) = input.split_first() else { return };
    let step = usize::from(first >> 1) + 1;
    let talk = if first & 1 == 0 { http } else { fastcgi };
    let whole = talk(bytes, bytes.len().max(1));
    let divided = talk(bytes, step);
    assert_eq!(comparable(&whole), comparable(&divided), "divided by {step}");
    for WarmRequest { path, part } in &whole.0 {
        assert!(path.starts_with(b"/") && path.len() <= WARM_PATH_BYTES_MAX && !path.contains(&0));
        let mut segments = path.split(|byte| *byte == b'/');
        assert!(segments.all(|segment| !matches!(segment, b"." | b"..")), "{}", path.escape_ascii());
        let (FileRange::From { length_bytes, .. } | FileRange::Last { length_bytes }) = part;
        assert!(*length_bytes <= PART_BYTES_MAX);
    }
}

/// The questions of a connection, its output, and whether it has ended. The answers take turns.
type Talk = (Vec<WarmRequest>, Vec<u8>, bool);

/// The part of a conversation that does not depend on how the bytes were divided. A wrong head that came in one piece
/// can be refused earlier, and for another of its faults, so the last answer of a connection that has ended is left out.
fn comparable((asks, out, has_ended): &Talk) -> (&[WarmRequest], &[u8]) {
    // The text of a refusal can name the version too, but not at the beginning of a line.
    let begins_answer =
        |at: &usize| out[*at..].starts_with(STATUS_LINE) && (*at == 0 || out[*at - 1] == b'\n');
    let last_answer = (0..out.len()).rev().find(begins_answer);
    (asks, &out[..last_answer.filter(|_| *has_ended).unwrap_or(out.len())])
}

/// The beginning of an HTTP answer.
const STATUS_LINE: &[u8] = b"HTTP/1.1 ";

fn answer(number: usize) -> WarmResult {
    [WarmResult::Done, WarmResult::Refused, WarmResult::Busy { retry_after_ms: 2000 }][number % 3]
}

fn http(bytes: &[u8], step: usize) -> Talk {
    let mut http = Http::default();
    let (mut asks, mut out) = (Vec::new(), Vec::new());
    for mut piece in bytes.chunks(step) {
        while !piece.is_empty() {
            let count = piece.len().min(http.room_bytes());
            http.handle_bytes(&piece[..count]);
            piece = &piece[count..];
            loop {
                match http.poll(&mut out) {
                    Next::Request(ask) => {
                        http.handle_answer(answer(asks.len()), &mut out);
                        asks.push(ask);
                    }
                    Next::Input => break,
                    Next::End => return (asks, out, true),
                }
            }
            assert!(http.room_bytes() > 0, "it waits for input and takes none");
        }
    }
    (asks, out, false)
}

fn fastcgi(bytes: &[u8], step: usize) -> Talk {
    let mut fastcgi = FastCgi::default();
    let (mut asks, mut out) = (Vec::new(), Vec::new());
    // A question waits until the whole piece was taken, so records behind it would be answered before it. One
    // byte at a time, each question is answered at its own record.
    let step = if step == bytes.len().max(1) { 1 } else { step.min(2) };
    for piece in bytes.chunks(step) {
        fastcgi.handle_bytes(piece, &mut out);
        match fastcgi.poll() {
            Next::Request(ask) => {
                fastcgi.handle_answer(answer(asks.len()), &mut out);
                asks.push(ask);
            }
            Next::Input => {}
            Next::End => return (asks, out, true),
        }
    }
    let ended = fastcgi.poll() == Next::End;
    assert!(out.len() <= 16 * bytes.len() + 256, "{} bytes of output", out.len());
    (asks, out, ended)
}
