//! One request on a stream of HTTP/2, and what came of its answer so far. Pure.

use flash_http::h2::Window;

use super::head::AnswerHead;
use crate::generator::request::{Expected, Request};
use crate::record::Outcome;
use crate::workload::Catalogue;

/// The window of each stream: that of Chrome.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 6 << 20;
/// The most interim answers before the final one.
const INTERIM_MAX: u8 = 16;

/// The bytes are no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

#[derive(Debug)]
pub(crate) struct Answer {
    /// The stream of requests of a generator that it belongs to.
    pub(crate) flow: u8,
    pub(crate) request: Request,
    expected: Expected,
    head: Option<AnswerHead>,
    interim: u8,
    content_wrong: bool,
    /// The bytes that the server may still send.
    window: Window,
    /// The bytes that it has sent since the window grew.
    taken_bytes: usize,
}

impl Answer {
    pub(crate) fn new(flow: u8, request: Request, expected: Expected) -> Self {
        let window = Window::new(STREAM_WINDOW_BYTES);
        Self { flow, request, expected, head: None, interim: 0, content_wrong: false, window, taken_bytes: 0 }
    }

    /// Takes a header block: a head, or trailers.
    ///
    /// Errors: the list is none.
    pub(crate) fn take_head(&mut self, head: Option<AnswerHead>, ends: bool) -> Result<(), Malformed> {
        if self.head.is_some() {
            // Trailers have no status, and end the stream.
            return if ends { Ok(()) } else { Err(Malformed) };
        }
        let head = head.ok_or(Malformed)?;
        if head.status < 200 {
            self.interim += 1;
            let is_allowed = head.status != 101 && !ends && self.interim <= INTERIM_MAX;
            return if is_allowed { Ok(()) } else { Err(Malformed) };
        }
        self.request.record.status = head.status;
        self.head = Some(head);
        Ok(())
    }

    /// Takes data, `flow_bytes` with its padding. Returns by how much the window is to grow, if it is.
    ///
    /// Errors: data before a head, or beyond the window.
    pub(crate) fn take_data(
        &mut self,
        data: &[u8],
        flow_bytes: usize,
        verified_by: Option<&Catalogue>,
    ) -> Result<Option<u32>, Malformed> {
        let head = self.head.ok_or(Malformed)?;
        self.window.take(flow_bytes).map_err(|_| Malformed)?;
        let record = &mut self.request.record;
        if let Some(catalogue) = verified_by.filter(|_| self.expected.is_file && head.status == 200) {
            self.content_wrong |= !catalogue.content_matches(record.path_id, record.body_bytes, data);
        }
        record.body_bytes += data.len() as u64;
        self.taken_bytes += flow_bytes;
        if self.taken_bytes < STREAM_WINDOW_BYTES as usize / 2 {
            return Ok(None);
        }
        let increment = std::mem::take(&mut self.taken_bytes);
        self.window.grow(increment as i64).map_err(|_| Malformed)?;
        Ok(Some(increment as u32))
    }

    /// The outcome of an answer whose stream has ended.
    pub(crate) fn outcome(&self, catalogue: &Catalogue) -> Outcome {
        let Some(head) = self.head else { return Outcome::Garbage };
        let record = &self.request.record;
        // RFC 9113 section 8.1.1: an answer that has no content may have the length of another.
        let has_content = !self.expected.is_head && !matches!(head.status, 204 | 304);
        let is_wrong = |bytes| if has_content { bytes != record.body_bytes } else { record.body_bytes > 0 };
        if head.length_bytes.is_some_and(is_wrong) {
            return Outcome::Garbage;
        }
        let length_wrong =
            || catalogue.file_bytes(record.path_id).is_some_and(|bytes| bytes != record.body_bytes);
        self.expected.judge(head.status, length_wrong, self.content_wrong)
    }
}
