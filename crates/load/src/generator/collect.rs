//! The way of records from the generators to whoever wanted them.
//!
//! Generators put records into an [`Outbox`]; a thread of its own gathers them, so that generators
//! neither wait for a disk nor move a large table to where it has room.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};

use super::{Keep, Phase, RECORDS_MAX, Stop};
use crate::record::Record;

const CHUNK: usize = 1024;

pub(crate) type Chunk = (usize, Vec<Record>);

/// The state that all threads of a run share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) start_ns: u64,
    pub(crate) phase: Phase,
    pub(crate) stop: Stop,
    /// Requests that were started, in steps of [`CHUNK`].
    pub(crate) requests_kept: AtomicU64,
    pub(crate) ending: AtomicBool,
    pub(crate) ended_early: Mutex<Option<String>>,
    pub(crate) local_limit: Mutex<Option<String>>,
}

impl Shared {
    /// Ends the run early; the first reason is kept.
    pub(crate) fn end_early(&self, why: impl FnOnce() -> String) {
        note(&self.ended_early, why);
        self.ending.store(true, Ordering::Relaxed);
    }

    /// Keeps the first reason.
    pub(crate) fn note_local_limit(&self, why: impl FnOnce() -> String) {
        note(&self.local_limit, why);
    }

    /// Counts a chunk of requests, and ends the run when there are too many.
    fn count_chunk(&self) {
        if self.requests_kept.fetch_add(CHUNK as u64, Ordering::Relaxed) >= RECORDS_MAX {
            self.end_early(|| {
                format!("{RECORDS_MAX} requests are the most that a run keeps: make it shorter or slower")
            });
        }
    }
}

fn note(place: &Mutex<Option<String>>, why: impl FnOnce() -> String) {
    place.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(why);
}

/// Where a generator puts records.
#[derive(Debug)]
pub(crate) struct Outbox {
    sender: mpsc::Sender<Chunk>,
    /// The chunk of each stream that is being filled.
    chunks: Vec<Vec<Record>>,
}

impl Outbox {
    pub(crate) fn new(sender: mpsc::Sender<Chunk>) -> Self {
        Self { sender, chunks: Vec::new() }
    }

    /// Passes a record on, sooner or later.
    #[inline]
    pub(crate) fn put(&mut self, stream: u8, record: Record, shared: &Shared) {
        let stream = usize::from(stream);
        if stream >= self.chunks.len() {
            self.chunks.resize_with(stream + 1, Vec::new);
        }
        let chunk = &mut self.chunks[stream];
        if chunk.capacity() == 0 {
            chunk.reserve_exact(CHUNK);
        }
        chunk.push(record);
        if chunk.len() >= CHUNK {
            // The collector goes only after the last generator.
            let _ = self.sender.send((stream, std::mem::take(chunk)));
            shared.count_chunk();
        }
    }

    /// Passes on what is left.
    pub(crate) fn flush(&mut self) {
        for (stream, chunk) in self.chunks.iter_mut().enumerate().filter(|(_, chunk)| !chunk.is_empty()) {
            let _ = self.sender.send((stream, std::mem::take(chunk)));
        }
    }
}

/// Gathers the records of each stream until all generators are gone.
pub(crate) fn collect(
    receiver: &mpsc::Receiver<Chunk>,
    streams: usize,
    keep: Option<&dyn Keep>,
) -> Vec<Vec<Record>> {
    let mut gathered = vec![Vec::new(); streams];
    for (stream, chunk) in receiver {
        if let Some(keep) = keep {
            keep.keep(stream, &chunk);
        }
        gathered[stream].extend_from_slice(&chunk);
    }
    gathered
}
