//! Response bodies: one type with one pull method, whatever the source of the bytes. Handlers make bodies;
//! wires pull them through their exchange. Nothing here blocks: if the next part is not in memory,
//! [`Body::pull`] returns the job that will bring it.

mod file;
mod multipart;
mod seen;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

pub(crate) use file::{FileBody, fill, load, queue_fill, read_by_helper, with_name};
pub(crate) use multipart::MultipartBody;
use seen::Seen;

use crate::caches::{Content, Version};
use crate::context::Core;
use crate::jobs::Wanted;
use crate::machine::{FilePart, JobId, Machine, NameOfFile};

/// The bytes of a response.
#[derive(Debug)]
pub(crate) enum Body<F> {
    /// No bytes.
    Empty,
    /// Bytes made for this response, and how many of them were sent.
    Page(Vec<u8>, usize),
    /// A range of a file's content in memory.
    Content(Arc<Content>, Range<usize>),
    /// A range of a file.
    File(Box<FileBody<F>>),
    /// Ranges of a file or content, with text between them.
    Multipart(Box<MultipartBody<F>>),
}

/// The result of a pull.
#[derive(Debug)]
pub(crate) enum Pulled<'p, F> {
    /// The next bytes.
    Bytes(&'p [u8]),
    /// The next bytes, as a range of a content in memory.
    Content(&'p Arc<Content>, Range<usize>),
    /// The next bytes; the machine must send them from the file.
    Part(&'p Arc<F>, FilePart),
    /// A helper must bring the next bytes first.
    Wait(Box<Wanted<F, Arc<Version>>>),
    /// The body has ended.
    End,
    /// The file is no longer the one that the response describes.
    Changed,
    /// Reading the file failed.
    Failed,
}

/// The source from which the ranges of a file's version are sent.
#[derive(Debug)]
pub(crate) enum Source<F> {
    Memory(Arc<Content>),
    /// A file and the name under which a request knows it.
    File(Arc<Version>, Arc<F>, NameOfFile),
}

impl<F> Clone for Source<F> {
    fn clone(&self) -> Self {
        match self {
            Source::Memory(content) => Source::Memory(Arc::clone(content)),
            Source::File(version, file, name) => {
                Source::File(Arc::clone(version), Arc::clone(file), name.clone())
            }
        }
    }
}

impl<F> Source<F> {
    /// The body that sends this range.
    pub(crate) fn part(self, range: Range<u64>) -> Body<F> {
        match self {
            Source::Memory(content) => Body::Content(content, range.start as usize..range.end as usize),
            Source::File(version, file, name) => {
                Body::File(Box::new(FileBody::new(version, file, name, range)))
            }
        }
    }
}

impl<F> Body<F> {
    /// Returns the next bytes, or why there are none now. [`Body::advance`] consumes them.
    pub(crate) fn pull<'p, M: Machine<File = F>>(
        &'p mut self,
        machine: &mut M,
        core: &'p mut Core<F>,
    ) -> Pulled<'p, F> {
        match self {
            Body::Empty => Pulled::End,
            Body::Page(bytes, at) if *at < bytes.len() => Pulled::Bytes(&bytes[*at..]),
            Body::Content(content, range) if range.start < range.end => {
                Pulled::Content(content, range.clone())
            }
            Body::Page(..) | Body::Content(..) => Pulled::End,
            Body::File(file) => file.pull(machine, core),
            Body::Multipart(parts) => parts.pull(machine, core),
        }
    }

    /// Consumes bytes of the last pull that the client has accepted.
    pub(crate) fn advance(&mut self, bytes: usize) {
        match self {
            Body::Empty => {}
            Body::Page(_, at) => *at += bytes,
            Body::Content(_, range) => range.start += bytes,
            Body::File(file) => file.advance(bytes),
            Body::Multipart(parts) => parts.advance(bytes),
        }
    }

    /// The file range that is being sent now, if any.
    pub(crate) fn file_mut(&mut self) -> Option<&mut FileBody<F>> {
        match self {
            Body::File(file) => Some(file),
            Body::Multipart(parts) => parts.part_mut().and_then(Body::file_mut),
            Body::Empty | Body::Page(..) | Body::Content(..) => None,
        }
    }

    /// Bounds how much is read at once, because no more than `bytes` can be sent now.
    pub(crate) fn offer_at_most(&mut self, bytes: usize) {
        if let Some(file) = self.file_mut() {
            file.offer_at_most(bytes);
        }
    }

    /// Takes over the file's last known state from the part of the same answer that was sent before.
    fn continue_from(&mut self, before: &mut Body<F>) {
        if let (Body::File(part), Body::File(before)) = (self, before) {
            part.continue_from(before);
        }
    }

    /// Removes and returns the jobs that load ahead for this body.
    pub(crate) fn take_jobs_ahead(&mut self) -> Vec<JobId> {
        match self {
            Body::File(file) => std::mem::take(&mut file.ahead),
            Body::Multipart(parts) => parts.take_jobs_ahead(),
            Body::Empty | Body::Page(..) | Body::Content(..) => Vec::new(),
        }
    }

    /// Forgets a finished job that loaded ahead.
    pub(crate) fn forget_ahead(&mut self, job: JobId) {
        match self {
            Body::File(file) => file.ahead.retain(|other| *other != job),
            Body::Multipart(parts) => parts.forget_ahead(job),
            Body::Empty | Body::Page(..) | Body::Content(..) => {}
        }
    }

    /// Bytes that remain to be sent.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Body::Empty => 0,
            Body::Page(bytes, at) => (bytes.len() - at) as u64,
            Body::Content(_, range) => range.len() as u64,
            Body::File(file) => file.len(),
            Body::Multipart(parts) => parts.len(),
        }
    }
}

/// A multipart body: the text before each range, the ranges, and the closing text.
pub(crate) fn multipart<F>(
    source: Source<F>,
    parts: VecDeque<(Vec<u8>, Range<u64>)>,
    end: Vec<u8>,
) -> Body<F> {
    Body::Multipart(Box::new(MultipartBody::new(source, parts, end)))
}
