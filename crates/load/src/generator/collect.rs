//! The way of records from the generators to whoever wanted them.
//!
//! Generators put records into an [`Outbox`]; a thread of its own gathers them, so that generators
//! neither wait for a disk nor move a large table to where it has room.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use flash_prompt::clock;

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
    /// Requests whose records were passed on.
    pub(crate) requests_kept: AtomicU64,
    pub(crate) ending: AtomicBool,
    pub(crate) ended_early: Mutex<Option<String>>,
    pub(crate) local_limit: Mutex<Option<String>>,
    /// Records are wanted soon after their end.
    pub(crate) is_followed: bool,
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

    /// Counts the requests of a chunk, and ends the run when there are too many.
    fn count(&self, requests: usize) {
        if self.requests_kept.fetch_add(requests as u64, Ordering::Relaxed) >= RECORDS_MAX {
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
            shared.count(CHUNK);
        }
    }

    /// Passes on what is left.
    pub(crate) fn flush(&mut self, shared: &Shared) {
        for (stream, chunk) in self.chunks.iter_mut().enumerate().filter(|(_, chunk)| !chunk.is_empty()) {
            shared.count(chunk.len());
            let _ = self.sender.send((stream, std::mem::take(chunk)));
        }
    }
}

/// Gathers the records of each stream until all generators are gone.
pub(crate) fn collect(
    receiver: &mpsc::Receiver<Chunk>,
    streams: usize,
    keep: Option<&dyn Keep>,
    start_ns: u64,
) -> Vec<Vec<Record>> {
    let mut gathered = vec![Vec::new(); streams];
    let mut look_ns = keep.and_then(|keep| keep.next_look_ns(0));
    while let Some(received) = next_chunk(receiver, look_ns.map(|look_ns| start_ns + look_ns)) {
        if let Some((stream, chunk)) = received {
            if let Some(keep) = keep {
                keep.keep(stream, &chunk);
            }
            gathered[stream].extend_from_slice(&chunk);
        }
        if let (Some(keep), Some(due_ns)) = (keep, look_ns)
            && clock::monotonic_ns() >= start_ns + due_ns
        {
            keep.look(due_ns);
            look_ns = keep.next_look_ns(due_ns);
        }
    }
    gathered
}

/// The next chunk, or nothing if there is none at `until_ns`. None at the end.
fn next_chunk(receiver: &mpsc::Receiver<Chunk>, until_ns: Option<u64>) -> Option<Option<Chunk>> {
    let Some(until_ns) = until_ns else { return receiver.recv().ok().map(Some) };
    let patience = Duration::from_nanos(until_ns.saturating_sub(clock::monotonic_ns()));
    match receiver.recv_timeout(patience) {
        Ok(chunk) => Some(Some(chunk)),
        Err(mpsc::RecvTimeoutError::Timeout) => Some(None),
        Err(mpsc::RecvTimeoutError::Disconnected) => None,
    }
}
