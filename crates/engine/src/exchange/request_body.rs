//! Reads and discards the body of a request, within a bound. Called by [`exchange`](crate::exchange).

use flash_http::body::Chunked;
use flash_http::request::Body;

use crate::handler::{Refusal, TOO_LARGE};
use crate::limits::REQUEST_BODY_BYTES_MAX;

/// The rest of a request body.
#[derive(Debug)]
pub(crate) enum RequestBody {
    /// This many bytes remain.
    Length(u64),
    /// A chunked body, and how many of its bytes were read, framing included.
    Chunked(Chunked, u64),
}

impl RequestBody {
    pub(crate) const NONE: Self = RequestBody::Length(0);

    /// The body that a request head announces; None if it is too large.
    pub(super) fn new(body: Body) -> Option<Self> {
        match body {
            Body::None => Some(Self::NONE),
            Body::Length(bytes) => (bytes <= REQUEST_BODY_BYTES_MAX).then_some(RequestBody::Length(bytes)),
            Body::Chunked => Some(RequestBody::Chunked(Chunked::new(), 0)),
        }
    }

    /// Discards the bytes that belong to the body. At the end of the body, returns how many of `bytes`
    /// belonged to it; until then, None.
    pub(crate) fn skip(&mut self, bytes: &[u8]) -> Result<Option<usize>, Refusal> {
        match self {
            RequestBody::Length(left) => {
                let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                Ok((*left == 0).then_some(taken))
            }
            RequestBody::Chunked(chunks, all_bytes) => {
                let progress = chunks.skip(bytes).map_err(|bad| (bad.status(), bad.reason()))?;
                *all_bytes += progress.consumed as u64;
                if *all_bytes > REQUEST_BODY_BYTES_MAX {
                    return Err(TOO_LARGE);
                }
                Ok(progress.done.then_some(progress.consumed))
            }
        }
    }
}
