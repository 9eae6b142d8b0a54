//! Writes heads of HTTP/1 responses: status line, fields, and the fields of the connection. Called by
//! [`send`](super::send) and [`relay`](super::relay).

use flash_http::answer::{Answer, AnswerBody};
use flash_http::request::{Request, Version as HttpVersion};
use flash_http::response::{HeadWriter, Status};

use crate::caches::Persistence;
use crate::handler::About;

/// Whether the connection persists after the answer to this request (RFC 9112, section 9.3).
pub(super) fn persistence(request: &Request<'_>, draining: bool) -> Persistence {
    if !request.keep_alive || draining {
        Persistence::Closes
    } else if request.version == HttpVersion::Http10 {
        Persistence::SaidToPersist
    } else {
        Persistence::Persists
    }
}

/// Clears `out` and writes the head of a response into it, padded to a multiple of `align_bytes`.
pub(in crate::wire) fn write(
    out: &mut Vec<u8>,
    (date, align_bytes): (&[u8; 29], usize),
    (status, length): (Status, Option<u64>),
    about: &About,
    persistence: Persistence,
) {
    out.clear();
    let mut head = HeadWriter::start(out, status, date);
    about.each_leading_field(|name, value| head.field(name, value));
    if let Some(bytes) = length {
        head.length(bytes);
    }
    match about {
        About::File(version, _) => head.raw(&version.lines()),
        other => other.each_trailing_field(|name, value| head.field(name, value)),
    }
    if persistence == Persistence::SaidToPersist {
        // HTTP/1.0 connections do not persist by default (RFC 9112, section 9.3).
        head.field("Connection", b"keep-alive");
    }
    head.finish(persistence == Persistence::Closes, align_bytes);
}

/// Appends the head of an upstream's answer. The connection ends after it if `is_last`, or if the client wants that; then
/// returns true.
pub(super) fn write_relayed(
    out: &mut Vec<u8>,
    date: &[u8; 29],
    (request, is_last): (&Request<'_>, bool),
    answer: &Answer,
) -> bool {
    let persistence = persistence(request, is_last);
    let closes = persistence == Persistence::Closes;
    let has_no_end = matches!(answer.body, AnswerBody::Chunked | AnswerBody::UntilEnd);
    let mut head = HeadWriter::start(out, answer.status, date);
    if let Some(bytes) = answer.length_bytes.filter(|_| !has_no_end && answer.status.0 >= 200) {
        head.length(bytes);
    }
    if has_no_end && request.version == HttpVersion::Http11 {
        head.field("Transfer-Encoding", b"chunked");
    }
    head.raw(&answer.fields);
    if persistence == Persistence::SaidToPersist {
        head.field("Connection", b"keep-alive");
    }
    head.finish(closes && answer.body != AnswerBody::Upgraded, 1);
    closes
}
