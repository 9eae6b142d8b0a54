//! The answers of the simulation's applications: their bytes, cut into pieces at random times, and the mistakes that an
//! application makes in some of them.

use std::collections::VecDeque;

use flash_engine::UpstreamProtocol;

use super::framing::{END_REQUEST, STDERR, STDOUT, body_of, chunks, record};
use super::ledger::Attempt;
use crate::rng::Rng;

/// How an application behaves for a while.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manners {
    /// Percentage of answers with a mistake.
    pub(super) mistakes: u64,
    /// Percentage of connections on which it reads in small pieces, or nothing after the head.
    pub(super) stingy: u64,
    /// Percentage of answers that it begins before it has the whole request.
    pub(super) early: u64,
    /// Percentage of idle connections that it closes at each look.
    pub(super) closes_idle: u64,
    /// Percentage of used idle connections on which it sends an answer that nobody has asked for at each look.
    pub(super) strays: u64,
    /// The longest pause between two pieces of an answer.
    pub(super) pause_ms: u64,
}

impl Manners {
    pub(super) const GOOD: Self =
        Self { mistakes: 0, stingy: 0, early: 0, closes_idle: 0, strays: 0, pause_ms: 5 };

    pub(super) fn random(rng: &mut Rng, answer_ms: u64) -> Self {
        if rng.chance(35) {
            return Self { pause_ms: rng.pick(&[0, 5, answer_ms * 3 / 5]), ..Self::GOOD };
        }
        let mut often = |most: u64| if rng.chance(50) { rng.between(1, most) } else { 0 };
        Self {
            mistakes: often(60),
            stingy: often(40),
            early: often(40),
            closes_idle: often(30),
            strays: often(20),
            pause_ms: rng.pick(&[0, 5, 60, answer_ms * 3 / 5]),
        }
    }
}

/// A step of an answer.
#[derive(Debug)]
pub(super) enum Step {
    Send(Vec<u8>),
    /// Every byte of the answer was sent.
    Whole,
    /// A mistake begins.
    Mistake,
    End,
    /// The end, without its announcement.
    Cut,
    Reset,
}

/// The steps of an answer, each with the pause before it.
pub(super) type Script = VecDeque<(u64, Step)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    None,
    Length,
    Chunked,
    UntilEnd,
}

/// An answer as bytes.
struct Draft {
    bytes: Vec<u8>,
    head_bytes: usize,
    framing: Framing,
    /// The application closes the connection after it.
    closes: bool,
    /// The connection is encrypted.
    is_encrypted: bool,
}

/// Writes the answer of an attempt with this number. Sets its length and status.
pub(super) fn write(
    rng: &mut Rng,
    protocol: UpstreamProtocol,
    manners: Manners,
    (number, is_head, is_encrypted): (usize, bool, bool),
    attempt: &mut Attempt,
) -> Script {
    let mut draft = match protocol {
        UpstreamProtocol::Http => http(rng, number, is_head, attempt),
        UpstreamProtocol::FastCgi => fastcgi(rng, number, is_head, attempt),
    };
    draft.is_encrypted = is_encrypted;
    if rng.chance(manners.mistakes) {
        return spoil(rng, protocol, manners, draft, attempt);
    }
    let mut script = Script::new();
    cut(rng, manners, &draft.bytes, &mut script);
    script.push_back((0, Step::Whole));
    if draft.closes {
        script.push_back((0, Step::End));
    }
    script
}

fn length(rng: &mut Rng) -> usize {
    match rng.below(12) {
        0 => 0,
        1 if rng.chance(50) => rng.between(300_000, 900_000) as usize,
        1 | 2 => rng.between(100_000, 250_000) as usize,
        3..6 => rng.between(2_000, 40_000) as usize,
        _ => rng.between(1, 800) as usize,
    }
}

fn http(rng: &mut Rng, number: usize, is_head: bool, attempt: &mut Attempt) -> Draft {
    use std::fmt::Write as _;
    let mut head = String::new();
    for _ in 0..rng.below(8).saturating_sub(5) {
        head.push_str(
            rng.pick(&["HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"]),
        );
    }
    attempt.status = rng.pick(&[200, 200, 200, 201, 404, 500, 204]);
    let mut framing = rng.pick(&[Framing::Length, Framing::Length, Framing::Chunked, Framing::UntilEnd]);
    attempt.length = length(rng);
    if attempt.status == 204 {
        (framing, attempt.length) = (Framing::None, 0);
    }
    let is_old = framing != Framing::Chunked && rng.chance(15);
    let version = if is_old { "1.0" } else { "1.1" };
    let _ = write!(head, "HTTP/{version} {} Reason\r\nX-Attempt: {number}\r\n", attempt.status);
    match framing {
        Framing::Length => drop(write!(head, "Content-Length: {}\r\n", attempt.length)),
        Framing::Chunked => head.push_str("Transfer-Encoding: chunked\r\n"),
        Framing::None | Framing::UntilEnd => {}
    }
    attempt.is_stream = rng.chance(10);
    if attempt.is_stream {
        head.push_str(rng.pick(&["X-Accel-Buffering: no\r\n", "Content-Type: text/event-stream\r\n"]));
    }
    let says_close = !is_old && rng.chance(10);
    if says_close {
        head.push_str("Connection: close\r\n");
    }
    head.push_str("\r\n");
    if is_head {
        (framing, attempt.length) = (Framing::None, 0);
    }
    let body = body_of(number, attempt.length);
    let mut bytes = head.into_bytes();
    let head_bytes = bytes.len();
    match framing {
        Framing::None => {}
        Framing::Length | Framing::UntilEnd => bytes.extend_from_slice(&body),
        Framing::Chunked => {
            bytes.extend_from_slice(&chunks(&body, rng.pick(&[7, 500, 70_000]).max(body.len() / 500)));
            bytes.extend_from_slice(rng.pick(&[&b"0\r\n\r\n"[..], b"0\r\nT: 1\r\n\r\n"]));
        }
    }
    let closes = is_old || says_close || framing == Framing::UntilEnd;
    Draft { bytes, head_bytes, framing, closes, is_encrypted: false }
}

fn fastcgi(rng: &mut Rng, number: usize, is_head: bool, attempt: &mut Attempt) -> Draft {
    attempt.status = rng.pick(&[200, 200, 404]);
    attempt.length = if is_head { 0 } else { length(rng) };
    let line = if attempt.status == 200 { "" } else { "Status: 404 Not Found\r\n" };
    let mut head = format!("{line}Content-Type: text/x\r\nX-Attempt: {number}\r\n");
    let framing = rng.pick(&[Framing::Length, Framing::UntilEnd]);
    if framing == Framing::Length && !is_head {
        head.push_str(&format!("Content-Length: {}\r\n", attempt.length));
    }
    head.push_str("\r\n");
    let head_bytes = head.len();
    let mut output = head.into_bytes();
    output.extend(body_of(number, attempt.length));
    let mut bytes = Vec::new();
    let mut rest = &output[..];
    while !rest.is_empty() {
        if rng.chance(10) {
            bytes.extend(record(STDERR, b"a warning", 0));
        }
        let most = rng.pick(&[10, 1_000, 60_000]).max(output.len() as u64 / 100);
        let (content, left) = rest.split_at(rest.len().min(rng.between(1, most) as usize));
        bytes.extend(record(STDOUT, content, rng.pick(&[0, 0, 3])));
        rest = left;
    }
    if rng.chance(70) {
        bytes.extend(record(STDOUT, b"", 0));
    }
    bytes.extend(record(END_REQUEST, &[0; 8], rng.pick(&[0, 0, 8])));
    Draft { bytes, head_bytes, framing, closes: rng.chance(10), is_encrypted: false }
}

/// An answer that no request has asked for. No attempt has this number.
pub(super) const STRAY: &[u8] = b"HTTP/1.1 200 OK\r\nX-Attempt: 999999\r\nContent-Length: 6\r\n\r\npoison";

const GARBAGE: [&[u8]; 6] = [
    b"garbage\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    b"\x02\x06\0\x01\0\0\0\0",
];

/// Writes an answer with a mistake.
fn spoil(
    rng: &mut Rng,
    protocol: UpstreamProtocol,
    manners: Manners,
    mut draft: Draft,
    attempt: &mut Attempt,
) -> Script {
    let mut script = Script::new();
    let all = draft.bytes.len();
    let is_raw = draft.framing == Framing::UntilEnd && protocol == UpstreamProtocol::Http;
    let until = match rng.below(10) {
        // Before, within and after the head.
        0 => 0,
        1 => rng.between(1, draft.head_bytes as u64 - 1) as usize,
        2..5 => rng.between(draft.head_bytes as u64, all as u64) as usize,
        5 => {
            script.push_back((0, Step::Mistake));
            script.push_back((rng.below(20), Step::Send(rng.pick(&GARBAGE).to_vec())));
            script.push_back((0, if rng.chance(50) { Step::End } else { Step::Reset }));
            return script;
        }
        6 if !is_raw => {
            // The next answer comes with this one.
            draft.bytes.extend_from_slice(STRAY);
            cut(rng, manners, &draft.bytes[..draft.head_bytes.min(all - 1)], &mut script);
            script.push_back((0, Step::Mistake));
            script.push_back((0, Step::Whole));
            script.push_back((1, Step::Send(draft.bytes[draft.head_bytes.min(all - 1)..].to_vec())));
            return script;
        }
        7 if draft.framing == Framing::Chunked && draft.bytes.ends_with(b"0\r\n\r\n") => {
            cut(rng, manners, &draft.bytes[..all - 5], &mut script);
            script.push_back((0, Step::Mistake));
            script.push_back((0, Step::Send(b"zz\r\nx\r\n0\r\n\r\n".to_vec())));
            return script;
        }
        8 => {
            // The answer is in order, and the connection is closed.
            cut(rng, manners, &draft.bytes, &mut script);
            script.push_back((0, Step::Whole));
            script.push_back((0, if is_raw || rng.chance(50) { Step::End } else { Step::Reset }));
            return script;
        }
        _ => {
            // Silence.
            let until = rng.below(all as u64) as usize;
            cut(rng, manners, &draft.bytes[..until], &mut script);
            return script;
        }
    };
    cut(rng, manners, &draft.bytes[..until], &mut script);
    if is_raw && draft.is_encrypted && rng.chance(50) {
        // The end is not announced, which tells a cut answer from a whole one.
        script.push_back((0, Step::Mistake));
        script.push_back((0, Step::Cut));
        return script;
    }
    if is_raw && until >= draft.head_bytes && rng.chance(50) {
        // Nobody can tell that there should have been more.
        attempt.length = until - draft.head_bytes;
        script.push_back((0, Step::Whole));
        script.push_back((0, Step::End));
        return script;
    }
    if until == all && !is_raw {
        script.push_back((0, Step::Whole));
    }
    script.push_back((0, Step::Mistake));
    script.push_back((0, if is_raw || rng.chance(50) { Step::Reset } else { Step::End }));
    script
}

/// Cuts bytes into pieces.
fn cut(rng: &mut Rng, manners: Manners, bytes: &[u8], script: &mut Script) {
    let most = rng.pick(&[3, 200, 50_000, 50_000, 400_000]).max(bytes.len() as u64 / 12);
    let mut rest = bytes;
    while !rest.is_empty() {
        let (piece, left) = rest.split_at(rest.len().min(rng.between(1, most) as usize));
        let pause_ms = if rng.chance(60) { 0 } else { rng.between(0, manners.pause_ms) };
        script.push_back((pause_ms, Step::Send(piece.to_vec())));
        rest = left;
    }
}
