//! `multipart/byteranges` bodies: ranges of a source, with text before each and at the end (RFC 9110, section
//! 14.6). Called by [`body`](crate::body).

use std::collections::VecDeque;
use std::ops::Range;

use super::{Body, Pulled, Source};
use crate::context::Core;
use crate::machine::{JobId, Machine};

/// A body of several ranges.
#[derive(Debug)]
pub(crate) struct MultipartBody<F> {
    source: Source<F>,
    /// The text before the current part, or the closing text, and how much of it was sent.
    text: (Vec<u8>, usize),
    /// The part being sent.
    part: Option<Body<F>>,
    /// The parts that follow.
    parts: VecDeque<(Vec<u8>, Range<u64>)>,
    /// The closing text; None once it is being sent.
    end: Option<Vec<u8>>,
    /// Jobs that load ahead for parts that were already sent.
    ahead: Vec<JobId>,
}

impl<F> MultipartBody<F> {
    pub(super) fn new(source: Source<F>, parts: VecDeque<(Vec<u8>, Range<u64>)>, end: Vec<u8>) -> Self {
        Self { source, text: (Vec::new(), 0), part: None, parts, end: Some(end), ahead: Vec::new() }
    }

    pub(super) fn pull<'p, M: Machine<File = F>>(
        &'p mut self,
        machine: &mut M,
        core: &'p mut Core<F>,
    ) -> Pulled<'p, F> {
        while self.is_between_parts() {
            let mut before = self.part.take();
            if let Some(part) = &mut before {
                self.ahead.append(&mut part.take_jobs_ahead());
            }
            if let Some((text, range)) = self.parts.pop_front() {
                self.text = (text, 0);
                let mut part = self.source.clone().part(range);
                if let Some(before) = &mut before {
                    part.continue_from(before);
                }
                self.part = Some(part);
            } else if let Some(text) = self.end.take() {
                self.text = (text, 0);
            } else {
                return Pulled::End;
            }
        }
        let (text, at) = &self.text;
        if *at < text.len() {
            return Pulled::Bytes(&text[*at..]);
        }
        self.part.as_mut().map_or(Pulled::End, |part| part.pull(machine, core))
    }

    /// Whether the current part and its text were sent completely.
    fn is_between_parts(&self) -> bool {
        self.text.1 == self.text.0.len() && self.part.as_ref().is_none_or(|part| part.len() == 0)
    }

    pub(super) fn advance(&mut self, bytes: usize) {
        let (text, at) = &mut self.text;
        if *at < text.len() {
            *at += bytes;
        } else if let Some(part) = &mut self.part {
            part.advance(bytes);
        }
    }

    pub(super) fn take_jobs_ahead(&mut self) -> Vec<JobId> {
        let mut jobs = std::mem::take(&mut self.ahead);
        if let Some(part) = &mut self.part {
            jobs.append(&mut part.take_jobs_ahead());
        }
        jobs
    }

    pub(super) fn forget_ahead(&mut self, job: JobId) {
        self.ahead.retain(|other| *other != job);
        if let Some(part) = &mut self.part {
            part.forget_ahead(job);
        }
    }

    pub(super) fn part_mut(&mut self) -> Option<&mut Body<F>> {
        self.part.as_mut()
    }

    pub(super) fn len(&self) -> u64 {
        let text = self.text.0.len() - self.text.1 + self.end.as_ref().map_or(0, Vec::len);
        let parts = self.parts.iter().map(|(text, range)| text.len() as u64 + range.end - range.start);
        text as u64 + self.part.as_ref().map_or(0, Body::len) + parts.sum::<u64>()
    }
}
