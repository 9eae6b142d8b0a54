//! A response as a client sees it: where it ends, and whether it is one.
//!
//! A connection feeds it what it receives. Pure; strict, because a server that is measured is
//! also checked.

use std::mem::MaybeUninit;

use super::chunked::{Chunked, Garbage, HEAD_BYTES_MAX};

const FIELDS_MAX: usize = 100;
/// The most interim responses before the final one.
const INTERIM_MAX: u8 = 16;

#[derive(Debug, Default)]
pub(crate) struct Response {
    partial_head: Vec<u8>,
    interim: u8,
    head: Option<Head>,
    body: Body,
    body_bytes: u64,
    begun: bool,
    /// It answers a HEAD.
    is_head: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    /// Whether another request may follow on the connection.
    pub(crate) keep_alive: bool,
}

/// Where the body ends (RFC 9112 §6.3).
#[derive(Debug, Default)]
enum Body {
    Length {
        left_bytes: u64,
    },
    Chunked(Chunked),
    /// With the connection.
    #[default]
    UntilClose,
}

impl Response {
    /// Makes it ready for the next response, which answers a HEAD if `is_head`; keeps its buffer.
    pub(crate) fn clear(&mut self, is_head: bool) {
        self.is_head = is_head;
        self.partial_head.clear();
        self.interim = 0;
        self.head = None;
        self.body = Body::UntilClose;
        self.body_bytes = 0;
        self.begun = false;
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    /// The status code, if a whole head came, else 0.
    pub(crate) fn status(&self) -> u16 {
        self.head.map_or(0, |head| head.status)
    }

    pub(crate) fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// Takes `bytes` in. Calls `on_body` with the head, the offset and the bytes of each piece
    /// of the body. Gives the head when the response is complete.
    ///
    /// Errors: then nothing more can be read.
    pub(crate) fn feed(
        &mut self,
        bytes: &[u8],
        mut on_body: impl FnMut(&Head, u64, &[u8]),
    ) -> Result<Option<Head>, Garbage> {
        self.begun |= !bytes.is_empty();
        let mut rest = bytes;
        let head = match self.head {
            Some(head) => head,
            None => loop {
                let Some((head, body, used_bytes)) = self.take_head(rest)? else {
                    return Ok(None);
                };
                rest = &rest[used_bytes..];
                // RFC 9110 §15.2: a client skips interim responses. 101 answers a request that is never sent.
                if head.status >= 200 {
                    self.head = Some(head);
                    self.body = body;
                    break head;
                }
                self.interim += 1;
                if head.status == 101 || self.interim > INTERIM_MAX {
                    return Err(Garbage);
                }
            },
        };
        let body_bytes = &mut self.body_bytes;
        let mut piece = |bytes: &[u8]| {
            if !bytes.is_empty() {
                on_body(&head, *body_bytes, bytes);
                *body_bytes += bytes.len() as u64;
            }
        };
        let complete = match &mut self.body {
            Body::Length { left_bytes } => {
                *left_bytes = left_bytes.checked_sub(rest.len() as u64).ok_or(Garbage)?;
                piece(rest);
                *left_bytes == 0
            }
            Body::Chunked(chunked) => chunked.feed(rest, piece)?,
            Body::UntilClose => {
                piece(rest);
                false
            }
        };
        Ok(complete.then_some(head))
    }

    /// The connection has ended; gives the head if that was the end of the response too.
    pub(crate) fn end(&self) -> Option<Head> {
        self.head.filter(|_| matches!(self.body, Body::UntilClose))
    }

    /// Reads a head; gives how many of `bytes` belong to it.
    fn take_head(&mut self, bytes: &[u8]) -> Result<Option<(Head, Body, usize)>, Garbage> {
        let before = self.partial_head.len();
        if before == 0 {
            let parsed = parse_head(bytes, self.is_head)?;
            if parsed.is_none() {
                self.partial_head.extend_from_slice(bytes);
            }
            return Ok(parsed);
        }
        self.partial_head.extend_from_slice(bytes);
        // Parsed again only when whole: a server may send it byte by byte.
        let new = &self.partial_head[before.saturating_sub(3)..];
        let whole = new.windows(4).any(|four| four == b"\r\n\r\n");
        if !whole && self.partial_head.len() <= HEAD_BYTES_MAX {
            return Ok(None);
        }
        let (head, body, length) = parse_head(&self.partial_head, self.is_head)?.ok_or(Garbage)?;
        self.partial_head.clear();
        Ok(Some((head, body, length.checked_sub(before).ok_or(Garbage)?)))
    }
}

/// Parses a head at the start of `bytes`; gives it and its length in bytes, or nothing when it
/// is not complete.
fn parse_head(bytes: &[u8], is_head: bool) -> Result<Option<(Head, Body, usize)>, Garbage> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut parsed = httparse::Response::new(&mut []);
    let status = httparse::ParserConfig::default()
        .parse_response_with_uninit_headers(&mut parsed, bytes, &mut fields)
        .map_err(|_| Garbage)?;
    let httparse::Status::Complete(length) = status else {
        return if bytes.len() > HEAD_BYTES_MAX { Err(Garbage) } else { Ok(None) };
    };
    if length > HEAD_BYTES_MAX || has_bare_line_feed(&bytes[..length]) {
        return Err(Garbage);
    }
    let status = parsed.code.unwrap_or(0);
    let (mut keep_alive, mut closes) = (parsed.version == Some(1), false);
    let (mut length_bytes, mut chunked) = (None, false);
    for field in parsed.headers.iter() {
        if field.name.eq_ignore_ascii_case("content-length") {
            let length = digits(field.value).ok_or(Garbage)?;
            if length_bytes.replace(length).is_some_and(|before| before != length) {
                return Err(Garbage);
            }
        } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
            // Nobody offered to take another coding, or this one twice.
            if chunked || !field.value.eq_ignore_ascii_case(b"chunked") {
                return Err(Garbage);
            }
            chunked = true;
        } else if field.name.eq_ignore_ascii_case("connection") {
            for option in field.value.split(|&b| b == b',') {
                let option = option.trim_ascii();
                closes |= option.eq_ignore_ascii_case(b"close");
                keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            }
        }
    }
    let body = match (status, chunked, length_bytes) {
        // These have no body, whatever their fields say.
        (100..200 | 204 | 304, ..) => Body::Length { left_bytes: 0 },
        _ if is_head => Body::Length { left_bytes: 0 },
        (_, true, Some(_)) => return Err(Garbage),
        (_, true, None) => Body::Chunked(Chunked::default()),
        (_, false, Some(left_bytes)) => Body::Length { left_bytes },
        (_, false, None) => Body::UntilClose,
    };
    keep_alive &= !closes && !matches!(body, Body::UntilClose);
    Ok(Some((Head { status, keep_alive }, body, length)))
}

/// `httparse` takes a line feed alone for the end of a line; RFC 9112 §2.2 lets servers send none.
fn has_bare_line_feed(head: &[u8]) -> bool {
    // Looks at all of it, which compiles to less than stopping early would.
    let pairs = head.iter().zip(head.iter().skip(1));
    pairs.fold(head.first() == Some(&b'\n'), |bare, (&a, &b)| bare | ((b == b'\n') & (a != b'\r')))
}

/// A number of nothing but digits: `parse` alone would take a sign.
pub(crate) fn digits(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
#[path = "response_tests.rs"]
mod tests;
