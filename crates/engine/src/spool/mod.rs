//! Bodies that wait: request bodies until they are complete, so that a slow client keeps no server busy, and answers that
//! their client takes more slowly than the server sends them, for the same reason. A little of each is in memory, the
//! rest in slots of a file that helpers write and read. The room of slots that are free for long goes back to the file
//! system. Called by [`relay`](crate::exchange::relay), and by [`exchange`](crate::exchange) with the
//! results of jobs.

mod body;
mod idle;
mod slots;

use std::collections::HashMap;
use std::sync::Arc;

use crate::handed_over::HandedOver;
use crate::jobs::{JobKey, Jobs, Urgency, Waiter, Wanted};
use crate::limits::{
    HAND_OVER_BYTES_MAX, HANDED_OVER_BYTES_MAX, READ_BYTES_MIN, RECEIVE_BYTES, SPOOL_ANSWER_MEMORY_BYTES_MAX,
    SPOOL_MEMORY_BYTES_MAX, SPOOL_MEMORY_BYTES_PER_CLIENT_MAX, SPOOL_PIECE_BYTES_MAX, TRIES_MAX,
};
use crate::machine::{JobId, Outcome, Task};
use crate::shares::{ClientShares, Sharer};
use crate::slab::{ExchangeKey, SiteId, SpooledKey};
use body::{Freed, SpoolRead, SpooledBody};
use slots::{Back, GivenBack, Slots};

/// A number of a slot in the file.
pub(crate) type Slot = u32;

/// The bodies that a worker holds.
#[derive(Debug)]
pub(crate) struct Spool<F> {
    /// The file, and the root whose helpers serve it; None without one.
    file: Option<(Arc<F>, SiteId)>,
    slots: Slots,
    /// How long room is idle before it is given back.
    idle_ms: u64,
    bodies: HashMap<SpooledKey, SpooledBody>,
    memory_bytes: usize,
    /// Bytes in memory of each client.
    memory_of_clients: ClientShares,
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
    pub(crate) fn new(idle_ms: u64) -> Self {
        Self {
            file: None,
            slots: Slots::new(0, idle_ms),
            idle_ms,
            bodies: HashMap::new(),
            memory_bytes: 0,
            memory_of_clients: ClientShares::default(),
        }
    }

    /// Sets the file: the helpers of `root` use its first `slots` slots.
    pub(crate) fn set_file(&mut self, file: F, root: SiteId, slots: u32) {
        self.file = Some((Arc::new(file), root));
        self.slots = Slots::new(slots, self.idle_ms);
    }

    pub(crate) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Begins a body.
    pub(crate) fn begin(&mut self, key: SpooledKey, sharer: Sharer) {
        self.bodies.insert(key, SpooledBody::new(sharer));
    }

    /// Whether a body can take what is received at once.
    pub(crate) fn has_room(&self, key: SpooledKey) -> bool {
        let most = match key {
            SpooledKey::Request(_) => SPOOL_PIECE_BYTES_MAX,
            SpooledKey::Answer(_) => SPOOL_ANSWER_MEMORY_BYTES_MAX,
        };
        self.bodies
            .get(&key)
            .is_some_and(|body| body.memory_bytes + RECEIVE_BYTES <= most && self.has_memory(body.sharer))
    }

    /// Whether a new body of a client finds memory for what is received at once.
    pub(crate) fn has_memory(&self, sharer: Sharer) -> bool {
        let theirs = self.memory_of_clients.held(sharer.client) + RECEIVE_BYTES;
        self.memory_bytes + RECEIVE_BYTES <= SPOOL_MEMORY_BYTES_MAX
            && (sharer.is_exempt || theirs <= SPOOL_MEMORY_BYTES_PER_CLIENT_MAX)
    }

    /// Whether the next piece of a body belongs into the file. For an answer this holds before its memory is full, so
    /// that a helper writes while the server sends, and only what lies behind the first piece: the client needs that soon.
    pub(crate) fn wants_write(&self, key: SpooledKey) -> bool {
        let kept = match key {
            SpooledKey::Request(_) => SPOOL_PIECE_BYTES_MAX,
            SpooledKey::Answer(_) => 2 * SPOOL_PIECE_BYTES_MAX,
        };
        self.bodies.get(&key).is_some_and(|body| {
            let is_long = body.memory_bytes + RECEIVE_BYTES > kept;
            body.writing.is_none() && (is_long || !self.has_memory(body.sharer))
        })
    }

    /// Whether a helper works for a body.
    pub(crate) fn is_busy(&self, key: SpooledKey) -> bool {
        self.bodies.get(&key).is_some_and(|body| body.writing.is_some() || body.reading.is_some())
    }

    /// Whether a helper reads a part of a body.
    pub(crate) fn is_reading(&self, key: SpooledKey) -> bool {
        self.bodies.get(&key).is_some_and(|body| body.reading.is_some())
    }

    /// Appends bytes to a body that has room.
    pub(crate) fn add(&mut self, key: SpooledKey, bytes: &[u8]) {
        let Some(body) = self.bodies.get_mut(&key) else { return };
        body.add(bytes);
        self.memory_bytes += bytes.len();
        self.memory_of_clients.take(body.sharer.client, bytes.len());
    }

    /// The length of a body, in bytes.
    pub(crate) fn length_bytes(&self, key: SpooledKey) -> u64 {
        self.bodies.get(&key).map_or(0, |body| body.length_bytes)
    }

    /// Submits a job that writes a piece of a body.
    ///
    /// # Errors
    /// There is no room for it in the file or in the queue of jobs, or it is too little to be worth that.
    pub(crate) fn write<S>(
        &mut self,
        key: SpooledKey,
        jobs: &mut Jobs<F, S>,
        now_ms: u64,
    ) -> Result<(), SpoolFull> {
        let (file, root) = self.file.as_ref().ok_or(SpoolFull)?;
        let body = self.bodies.get_mut(&key).filter(|body| !body.is_kept_in_memory).ok_or(SpoolFull)?;
        let piece = body.longest_in_memory().ok_or(SpoolFull)?;
        let slot = self.slots.take(body.sharer, key).ok_or(SpoolFull)?;
        let urgency = if body.is_filed() { Urgency::UnderWay } else { Urgency::Bounded };
        let (bytes, freed_bytes) = body.begin_writing(piece, slot);
        let task = Task::Write { file: Arc::clone(file), offset: offset(slot), bytes };
        let job = JobKey::SpoolWrite(*root, key, slot);
        let wanted = Wanted { key: job, task, urgency, subject: None, remaining_bytes: 0 };
        let waiter = Waiter { exchange: key.exchange(), client: body.sharer.client };
        let sharer = body.sharer;
        let submitted = jobs.submit(wanted, Some(waiter), now_ms);
        match submitted {
            Ok(job) => body.writing = Some(job),
            Err(_) => {
                body.end_writing(slot, false);
                self.slots.leave(sharer.client);
                self.slots.free(slot);
            }
        }
        self.forget_memory(sharer, freed_bytes);
        submitted.map(drop).map_err(|_| SpoolFull)
    }

    /// The part of a body from `at` on.
    pub(crate) fn part(&self, key: SpooledKey, at: u64) -> Supply<'_> {
        let Some(body) = self.bodies.get(&key) else { return Supply::Bytes(&[]) };
        body.part(at).map_or(Supply::InFile, Supply::Bytes)
    }

    /// Submits a job that reads the part of a body from `at` on, which is in the file, unless one reads already. Less at once
    /// while much was handed over and not sent: `handed_over_bytes`.
    ///
    /// # Errors
    /// There is no such part.
    pub(crate) fn read<S>(
        &mut self,
        key: SpooledKey,
        at: u64,
        jobs: &mut Jobs<F, S>,
        (handed_over_bytes, now_ms): (u64, u64),
    ) -> Result<(), SpoolFull> {
        let (file, root) = self.file.as_ref().ok_or(SpoolFull)?;
        let body = self.bodies.get_mut(&key).ok_or(SpoolFull)?;
        if body.reading.is_some() {
            return Ok(());
        }
        let (slot, from, left_bytes) = body.filed(at).ok_or(SpoolFull)?;
        let is_much = handed_over_bytes > HANDED_OVER_BYTES_MAX;
        let length_bytes = left_bytes.min(if is_much { READ_BYTES_MIN as u64 } else { HAND_OVER_BYTES_MAX });
        let task = Task::Read { file: Arc::clone(file), offset: offset(slot) + from, length_bytes };
        let wanted = Wanted {
            key: JobKey::SpoolRead(*root, key, at),
            task,
            urgency: Urgency::UnderWay,
            subject: None,
            remaining_bytes: length_bytes,
        };
        let waiter = Waiter { exchange: key.exchange(), client: body.sharer.client };
        let job = jobs.submit(wanted, Some(waiter), now_ms).map_err(|_| SpoolFull)?;
        body.reading = Some(SpoolRead { job, at, length_bytes });
        Ok(())
    }

    /// Takes the end of a job that wrote to a slot. `late` is the job if its helper may still write.
    pub(crate) fn wrote(&mut self, key: SpooledKey, slot: Slot, is_written: bool, late: Option<JobId>) {
        let is_written = is_written && late.is_none();
        let body = self.bodies.get_mut(&key);
        let ended = body.and_then(|body| Some((body.end_writing(slot, is_written)?, body)));
        if let Some((length_bytes, body)) = ended {
            let sharer = body.sharer;
            if is_written {
                return self.forget_memory(sharer, length_bytes);
            }
            body.is_kept_in_memory = true;
            self.slots.leave(sharer.client);
        }
        match late {
            Some(job) => self.slots.hold_for(slot, job),
            None => self.slots.free(slot),
        }
    }

    /// Takes the result of a job that read a part of a body: its bytes, if there are any. Returns whether the body can
    /// continue: a part can be read again a few times.
    pub(crate) fn took(&mut self, key: SpooledKey, job: JobId, bytes: Option<HandedOver>) -> bool {
        let Some(body) = self.bodies.get_mut(&key) else { return true };
        let Some(reading) = body.reading.take_if(|reading| reading.job == job) else { return true };
        match bytes.filter(|bytes| bytes.len() as u64 == reading.length_bytes) {
            Some(bytes) => {
                body.take_read(reading.at, bytes);
                true
            }
            None => {
                body.failed_reads += 1;
                body.failed_reads < TRIES_MAX
            }
        }
    }

    /// Submits a job that gives room of the file back, if some is idle for long.
    pub(crate) fn give_back<S>(&mut self, jobs: &mut Jobs<F, S>, now_ms: u64) {
        let Some((file, root)) = &self.file else { return };
        let Some(back) = self.slots.give_back(now_ms) else { return };
        let (at, length_bytes) = match back {
            Back::Hole(slots) => (slots.start, Some(slots.len() as u64 * SPOOL_PIECE_BYTES_MAX as u64)),
            Back::From(slot) => (slot, None),
        };
        let wanted = Wanted {
            key: JobKey::SpoolGiveBack(*root),
            task: Task::GiveBack { file: Arc::clone(file), offset: offset(at), length_bytes },
            urgency: Urgency::Ahead,
            subject: None,
            remaining_bytes: 0,
        };
        if jobs.submit(wanted, None, now_ms).is_err() {
            self.slots.given_back(GivenBack::NotDone, None);
        }
    }

    /// Takes the end of a job that gave room back. `late` is the job if its helper may still be at it.
    pub(crate) fn gave_back(&mut self, outcome: &Outcome<F>, late: Option<JobId>) {
        let result = match outcome {
            Outcome::Written => GivenBack::Done,
            Outcome::Unsupported | Outcome::Failed(_) => GivenBack::Unsupported,
            _ => GivenBack::NotDone,
        };
        self.slots.given_back(result, late);
    }

    /// When room of the file may have to be given back, in milliseconds of the monotonic clock.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.slots.next_ms()
    }

    /// Frees the slots for which the helper of this job had to end first.
    pub(crate) fn helper_gone(&mut self, job: JobId) {
        self.slots.helper_gone(job);
    }

    /// Forgets the part of a body before `to`.
    pub(crate) fn forget<S>(&mut self, key: SpooledKey, to: u64, jobs: &mut Jobs<F, S>) {
        let Some(body) = self.bodies.get_mut(&key) else { return };
        let sharer = body.sharer;
        let (mut freed_bytes, mut slots) = (0, Vec::new());
        while let Some(freed) = body.pop_used(to) {
            match freed {
                Freed::Memory(bytes) => freed_bytes += bytes,
                Freed::Slot(slot) => slots.push(slot),
                Freed::Writing(bytes, slot) => {
                    freed_bytes += bytes;
                    // A job that runs frees the slot at its end.
                    let job = body.writing.take();
                    let is_running = job.is_some_and(|job| jobs.is_running(job));
                    job.into_iter().for_each(|job| jobs.leave(job, key.exchange()));
                    if is_running {
                        self.slots.leave(sharer.client);
                    } else {
                        slots.push(slot);
                    }
                }
            }
        }
        for slot in slots {
            self.slots.leave(sharer.client);
            self.slots.free(slot);
        }
        self.forget_memory(sharer, freed_bytes);
    }

    /// Ends a body, if it exists.
    pub(crate) fn end<S>(&mut self, key: SpooledKey, jobs: &mut Jobs<F, S>) {
        self.forget(key, u64::MAX, jobs);
        if let Some(body) = self.bodies.remove(&key)
            && let Some(reading) = body.reading
        {
            jobs.leave(reading.job, key.exchange());
        }
    }

    /// Ends the bodies of an exchange.
    pub(crate) fn end_all<S>(&mut self, exchange: ExchangeKey, jobs: &mut Jobs<F, S>) {
        self.end(SpooledKey::Request(exchange), jobs);
        self.end(SpooledKey::Answer(exchange), jobs);
    }

    fn forget_memory(&mut self, sharer: Sharer, bytes: usize) {
        self.memory_bytes -= bytes;
        self.memory_of_clients.give_back(sharer.client, bytes);
    }

    /// Bytes of bodies in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    pub(crate) fn bodies_len(&self) -> usize {
        self.bodies.len()
    }

    /// Slots that bodies have, and those that a helper may still write to.
    pub(crate) fn slots_used(&self) -> usize {
        self.slots.used()
    }
}

/// Where a slot begins in the file.
fn offset(slot: Slot) -> u64 {
    u64::from(slot) * SPOOL_PIECE_BYTES_MAX as u64
}
