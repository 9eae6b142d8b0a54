//! Request bodies that are held until they are complete, so that a slow client keeps no server busy: up to a piece
//! of each in memory, the rest in slots of a file that helpers write and read. Called by the wires, and by
//! [`exchange`](crate::exchange) with the results of jobs.

mod slots;

use std::collections::HashMap;
use std::sync::Arc;

use crate::handed_over::HandedOver;
use crate::jobs::{JobKey, Jobs, Urgency, Wanted};
use crate::limits::{
    RECEIVE_BYTES, SPOOL_EARLY_BYTES, SPOOL_MEMORY_BYTES_MAX, SPOOL_MEMORY_BYTES_PER_CLIENT_MAX,
    SPOOL_PIECE_BYTES_MAX,
};
use crate::machine::{JobId, Task};
use crate::rules::SiteId;
use crate::slab::{ClientNumber, ExchangeKey};
use slots::Slots;

/// A number of a slot in the file.
pub(crate) type Slot = u32;

/// The request bodies that a worker holds.
#[derive(Debug)]
pub(crate) struct Spool<F> {
    /// The file, and the root whose helpers serve it; None without one.
    file: Option<(Arc<F>, SiteId)>,
    slots: Slots,
    bodies: HashMap<ExchangeKey, HeldBody>,
    memory_bytes: usize,
    memory_of_clients: HashMap<ClientNumber, usize>,
}

/// A request body.
#[derive(Debug)]
struct HeldBody {
    client: ClientNumber,
    /// The pieces in the file, in order.
    pieces: Vec<FiledPiece>,
    /// The bytes in the file.
    filed_bytes: u64,
    /// The bytes that follow them.
    memory: Vec<u8>,
    work: Work,
}

/// A part of a body that is in the file.
#[derive(Clone, Copy, Debug)]
struct FiledPiece {
    /// Its place in the body.
    start: u64,
    length_bytes: usize,
    slot: Slot,
}

/// The work of helpers on a body.
#[derive(Debug)]
enum Work {
    None,
    /// This job writes these bytes to this slot.
    Writing(JobId, Slot, usize),
    /// This job reads a piece.
    Reading(JobId),
    /// A piece that was read, and its place in the body.
    Read(u64, HandedOver),
}

/// The next bytes of a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Supply<'s> {
    Bytes(&'s [u8]),
    /// A helper has to read it first, or does.
    InFile,
}

/// There is no room for a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpoolFull;

impl<F> Spool<F> {
    /// Without a file.
    pub(crate) fn new() -> Self {
        Self {
            file: None,
            slots: Slots::new(0),
            bodies: HashMap::new(),
            memory_bytes: 0,
            memory_of_clients: HashMap::new(),
        }
    }

    /// Sets the file: the helpers of `root` use its first `slots` slots.
    pub(crate) fn set_file(&mut self, file: F, root: SiteId, slots: u32) {
        self.file = Some((Arc::new(file), root));
        self.slots = Slots::new(slots);
    }

    pub(crate) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Begins the body of an exchange.
    pub(crate) fn begin(&mut self, exchange: ExchangeKey, client: ClientNumber) {
        let body =
            HeldBody { client, pieces: Vec::new(), filed_bytes: 0, memory: Vec::new(), work: Work::None };
        self.bodies.insert(exchange, body);
    }

    /// Whether a body can take what is received at once. If not, [`Spool::write`] makes room.
    pub(crate) fn has_room(&self, exchange: ExchangeKey) -> bool {
        let Some(body) = self.bodies.get(&exchange) else { return false };
        let theirs = self.memory_of_clients.get(&body.client).copied().unwrap_or(0);
        body.memory.len() + RECEIVE_BYTES <= SPOOL_PIECE_BYTES_MAX
            && self.memory_bytes + RECEIVE_BYTES <= SPOOL_MEMORY_BYTES_MAX
            && theirs + RECEIVE_BYTES <= SPOOL_MEMORY_BYTES_PER_CLIENT_MAX
    }

    /// Whether a helper works for a body.
    pub(crate) fn is_busy(&self, exchange: ExchangeKey) -> bool {
        let work = self.bodies.get(&exchange).map(|body| &body.work);
        matches!(work, Some(Work::Writing(..) | Work::Reading(_)))
    }

    /// Appends bytes to a body that has room.
    pub(crate) fn add(&mut self, exchange: ExchangeKey, bytes: &[u8]) {
        let Some(body) = self.bodies.get_mut(&exchange) else { return };
        body.memory.extend_from_slice(bytes);
        self.memory_bytes += bytes.len();
        *self.memory_of_clients.entry(body.client).or_default() += bytes.len();
    }

    /// The length of a body, in bytes.
    pub(crate) fn length_bytes(&self, exchange: ExchangeKey) -> u64 {
        self.bodies.get(&exchange).map_or(0, |body| body.filed_bytes + body.memory.len() as u64)
    }

    /// The job that writes what a body has in memory.
    ///
    /// # Errors
    /// There is no slot for it, or it is too little to be worth one.
    pub(crate) fn write<S>(&mut self, exchange: ExchangeKey) -> Result<Wanted<F, S>, SpoolFull> {
        let (file, root) = self.file.as_ref().ok_or(SpoolFull)?;
        let body = self.bodies.get_mut(&exchange).ok_or(SpoolFull)?;
        if body.memory.len() < SPOOL_EARLY_BYTES {
            return Err(SpoolFull);
        }
        let slot = self.slots.take(body.client).ok_or(SpoolFull)?;
        let bytes: Arc<[u8]> = std::mem::take(&mut body.memory).into();
        body.pieces.push(FiledPiece { start: body.filed_bytes, length_bytes: bytes.len(), slot });
        body.filed_bytes += bytes.len() as u64;
        let urgency = if body.pieces.len() > 1 { Urgency::UnderWay } else { Urgency::Bounded };
        let task = Task::Write { file: Arc::clone(file), offset: offset(slot), bytes };
        let key = JobKey::SpoolWrite(*root, exchange, slot);
        Ok(Wanted { key, task, urgency, subject: None, remaining_bytes: 0 })
    }

    /// Notes that a body's last piece is being written by this job; None if there was no room for the job.
    pub(crate) fn writing(&mut self, exchange: ExchangeKey, job: Option<JobId>) {
        let Some(body) = self.bodies.get_mut(&exchange) else { return };
        let Some(piece) = body.pieces.last().copied() else { return };
        match job {
            Some(job) => body.work = Work::Writing(job, piece.slot, piece.length_bytes),
            None => {
                body.pieces.pop();
                let client = body.client;
                self.slots.leave(client);
                self.slots.free(piece.slot);
                self.forget_memory(client, piece.length_bytes);
            }
        }
    }

    /// The part of a body from `at` on.
    pub(crate) fn part(&self, exchange: ExchangeKey, at: u64) -> Supply<'_> {
        let Some(body) = self.bodies.get(&exchange) else { return Supply::Bytes(&[]) };
        if let Some(from) = at.checked_sub(body.filed_bytes) {
            let from = usize::try_from(from).unwrap_or(usize::MAX);
            return Supply::Bytes(body.memory.get(from..).unwrap_or_default());
        }
        match &body.work {
            Work::Read(start, bytes) if *start <= at && at - start < bytes.len() as u64 => {
                Supply::Bytes(&bytes[(at - start) as usize..])
            }
            _ => Supply::InFile,
        }
    }

    /// The job that reads the piece of a body that contains `at`.
    pub(crate) fn read<S>(&self, exchange: ExchangeKey, at: u64) -> Option<Wanted<F, S>> {
        let (file, root) = self.file.as_ref()?;
        let pieces = &self.bodies.get(&exchange)?.pieces;
        let piece = pieces.get(pieces.partition_point(|piece| piece.start <= at).checked_sub(1)?)?;
        let length_bytes = piece.length_bytes as u64;
        let task = Task::Read { file: Arc::clone(file), offset: offset(piece.slot), length_bytes };
        let key = JobKey::SpoolRead(*root, exchange, piece.start);
        Some(Wanted { key, task, urgency: Urgency::UnderWay, subject: None, remaining_bytes: length_bytes })
    }

    /// Notes that this job reads a piece of a body.
    pub(crate) fn reading(&mut self, exchange: ExchangeKey, job: JobId) {
        if let Some(body) = self.bodies.get_mut(&exchange) {
            body.work = Work::Reading(job);
        }
    }

    /// Takes the end of a job that wrote to a slot. `late` is the job if its helper may still write.
    pub(crate) fn wrote(&mut self, exchange: ExchangeKey, slot: Slot, late: Option<JobId>) {
        let body = self.bodies.get_mut(&exchange);
        let writes =
            |body: &&mut HeldBody| matches!(body.work, Work::Writing(_, written, _) if written == slot);
        let Some(body) = body.filter(writes) else {
            return match late {
                Some(job) => self.slots.hold_for(slot, job),
                None => self.slots.free(slot),
            };
        };
        let (client, bytes) = match std::mem::replace(&mut body.work, Work::None) {
            Work::Writing(_, _, bytes) => (body.client, bytes),
            _ => return,
        };
        if let Some(job) = late {
            body.pieces.retain(|piece| piece.slot != slot);
            self.slots.leave(client);
            self.slots.hold_for(slot, job);
        }
        self.forget_memory(client, bytes);
    }

    /// Takes a piece that was read, at its place in the body.
    pub(crate) fn took(&mut self, exchange: ExchangeKey, start: u64, bytes: HandedOver) {
        if let Some(body) = self.bodies.get_mut(&exchange) {
            body.work = Work::Read(start, bytes);
        }
    }

    /// Whether a piece that was read is as long as it was when it was written.
    pub(crate) fn is_whole(&self, exchange: ExchangeKey, start: u64, length_bytes: usize) -> bool {
        self.bodies.get(&exchange).is_none_or(|body| {
            body.pieces.iter().any(|piece| piece.start == start && piece.length_bytes == length_bytes)
        })
    }

    /// Frees the slot for which the helper of this job had to end first.
    pub(crate) fn helper_gone(&mut self, job: JobId) {
        self.slots.helper_gone(job);
    }

    /// Ends the body of an exchange, if it has one.
    pub(crate) fn end<S>(&mut self, exchange: ExchangeKey, jobs: &mut Jobs<F, S>) {
        let Some(body) = self.bodies.remove(&exchange) else { return };
        let mut memory_bytes = body.memory.len();
        let mut written = None;
        match body.work {
            Work::Writing(job, slot, bytes) => {
                memory_bytes += bytes;
                jobs.leave(job, exchange);
                // A job that runs frees the slot at its end.
                written = jobs.is_running(job).then_some(slot);
            }
            Work::Reading(job) => jobs.leave(job, exchange),
            Work::None | Work::Read(..) => {}
        }
        self.forget_memory(body.client, memory_bytes);
        for piece in &body.pieces {
            self.slots.leave(body.client);
            if written != Some(piece.slot) {
                self.slots.free(piece.slot);
            }
        }
    }

    fn forget_memory(&mut self, client: ClientNumber, bytes: usize) {
        self.memory_bytes -= bytes;
        if let Some(theirs) = self.memory_of_clients.get_mut(&client) {
            *theirs -= bytes;
            if *theirs == 0 {
                self.memory_of_clients.remove(&client);
            }
        }
    }

    /// Bytes of bodies in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// How many bodies there are.
    pub(crate) fn bodies_len(&self) -> usize {
        self.bodies.len()
    }

    /// Slots that cannot be taken now.
    pub(crate) fn slots_used(&self) -> usize {
        self.slots.used()
    }
}

/// Where a slot begins in the file.
fn offset(slot: Slot) -> u64 {
    u64::from(slot) * SPOOL_PIECE_BYTES_MAX as u64
}
