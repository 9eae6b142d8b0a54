//! The stream of gzip that an answer becomes (RFC 1951, RFC 1952): helpers deflate it piece by piece. A piece that no helper has
//! compressed is stored as it is, so no answer fails for lack of helpers. [`compress`](super::compress) moves the pieces.

use std::borrow::Cow;
use std::sync::Arc;

use crc32fast::Hasher;
use flash_http::negotiate::{Choice, Coding, accept_encoding};
use flash_http::request::Version;
use flash_http::response::Status;
use flash_http::upstream_response::{ResponseBody, ResponseHead};

use super::Relay;
use crate::limits::{COMPRESSED_FROM_BYTES, DEFLATE_BYTES_MAX};
use crate::machine::JobId;

/// Begins a stream: deflate, without a name or a time, from an unknown system (RFC 1952, section 2.3).
const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// The last block, which is empty (RFC 1951, section 3.2.4).
const LAST_BLOCK: [u8; 5] = [1, 0, 0, 0xff, 0xff];

/// The part of an answer that has not become a part of the stream, and the state of the stream.
#[derive(Debug, Default)]
pub(crate) struct Gzip {
    /// Bytes behind the piece.
    waiting: Vec<u8>,
    piece: NextPiece,
    /// How many pieces there were.
    pieces: u64,
    checksum: Hasher,
    /// The length of what the pieces hold; its last 32 bits are a part of the stream.
    plain_bytes: u64,
}

/// The next piece of the stream.
#[derive(Debug, Default)]
enum NextPiece {
    #[default]
    None,
    AtHelper(JobId, Arc<[u8]>),
    /// With the bytes that a helper has made of it, if one has.
    Done(Arc<[u8]>, Option<Arc<[u8]>>),
}

/// The next step of a stream.
pub(super) enum GzipStep {
    /// These bytes are the next ones of the stream.
    Bytes(Vec<u8>),
    /// These are the last ones.
    End(Vec<u8>),
    /// A helper can compress this piece.
    Deflate(Arc<[u8]>),
    /// Nothing can be done now.
    None,
}

impl Gzip {
    /// The next step, of a part of the answer that comes to a pause (`is_quiet`) or to its end (`is_complete`). The stream goes on only
    /// if its bytes `may_pass`.
    pub(super) fn step(&mut self, (is_quiet, is_complete, may_pass): (bool, bool, bool)) -> GzipStep {
        let is_due = is_quiet || is_complete || !self.has_room();
        match std::mem::take(&mut self.piece) {
            NextPiece::Done(plain, deflated) if may_pass => {
                GzipStep::Bytes(self.frame(&plain, deflated.as_deref()))
            }
            NextPiece::None if self.waiting.is_empty() && is_complete && may_pass => {
                GzipStep::End(self.end())
            }
            NextPiece::None if !self.waiting.is_empty() && is_due => {
                let bytes = self.waiting.len().min(DEFLATE_BYTES_MAX);
                self.pieces += 1;
                GzipStep::Deflate(self.waiting.drain(..bytes).collect())
            }
            piece => {
                self.piece = piece;
                GzipStep::None
            }
        }
    }

    /// The number of the latest piece.
    pub(super) fn number(&self) -> u64 {
        self.pieces
    }

    /// Notes the job that compresses a piece; without one it is stored.
    pub(super) fn wait(&mut self, piece: Arc<[u8]>, job: Option<JobId>) {
        self.piece = match job {
            Some(job) => NextPiece::AtHelper(job, piece),
            None => NextPiece::Done(piece, None),
        };
    }

    /// The job that compresses a piece.
    pub(crate) fn job(&self) -> Option<JobId> {
        if let NextPiece::AtHelper(job, _) = self.piece { Some(job) } else { None }
    }

    /// Takes what a helper has made of the piece; None if it has made nothing.
    pub(crate) fn finish(&mut self, deflated: Option<Arc<[u8]>>) {
        self.piece = match std::mem::take(&mut self.piece) {
            NextPiece::AtHelper(_, plain) => NextPiece::Done(plain, deflated),
            piece => piece,
        };
    }

    /// Whether it takes more of the answer.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < DEFLATE_BYTES_MAX
    }

    /// Takes a part of the answer.
    pub(super) fn take(&mut self, data: &[u8]) {
        self.waiting.extend_from_slice(data);
    }

    /// The bytes of the stream for a piece.
    fn frame(&mut self, plain: &[u8], deflated: Option<&[u8]>) -> Vec<u8> {
        let mut out = self.head();
        self.checksum.update(plain);
        self.plain_bytes += plain.len() as u64;
        match deflated.filter(|deflated| deflated.len() < plain.len()) {
            Some(deflated) => out.extend_from_slice(deflated),
            None => {
                // A stored block. It has at most 65,535 bytes, and a piece has fewer.
                let length = plain.len() as u16;
                out.push(0);
                [length, !length].iter().for_each(|part| out.extend_from_slice(&part.to_le_bytes()));
                out.extend_from_slice(plain);
            }
        }
        out
    }

    /// The end of the stream.
    fn end(&mut self) -> Vec<u8> {
        let mut out = self.head();
        out.extend_from_slice(&LAST_BLOCK);
        let length = self.plain_bytes as u32;
        [self.checksum.clone().finalize(), length]
            .iter()
            .for_each(|part| out.extend_from_slice(&part.to_le_bytes()));
        out
    }

    /// The bytes before the first piece.
    fn head(&self) -> Vec<u8> {
        if self.plain_bytes == 0 { HEAD.to_vec() } else { Vec::new() }
    }
}

/// The head of an answer as the client gets it, and the stream that its body becomes, if it becomes one.
pub(super) fn choose<'a>(
    relay: &Relay,
    answer: &'a ResponseHead,
) -> (Cow<'a, ResponseHead>, Option<Box<Gzip>>) {
    if !relay.current.compresses || relay.current.streams_answers {
        return (Cow::Borrowed(answer), None);
    }
    if answer.status == Status::NOT_MODIFIED {
        // It may be about an answer that was compressed.
        return (Cow::Owned(answer.weakened().varying()), None);
    }
    if !answer.can_be_coded(COMPRESSED_FROM_BYTES) {
        return (Cow::Borrowed(answer), None);
    }
    let request = relay.request.request();
    let accepted = accept_encoding(request.accept_encoding.as_deref());
    let is_gzip = accepted.choose(|coding| coding == Coding::Gzip) == Choice::Coded(Coding::Gzip);
    // An answer of HTTP/1.0 without a length could be cut unnoticed.
    if is_gzip && request.version != Version::Http10 {
        let has_body = answer.body != ResponseBody::None;
        (Cow::Owned(answer.coded(Coding::Gzip).varying()), has_body.then(Box::default))
    } else {
        (Cow::Owned(answer.varying()), None)
    }
}
