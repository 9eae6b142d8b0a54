//! A part of a file, read from memory piece by piece. A piece that is not in memory is loaded by a helper; one that is
//! loaded and evicted again a few times over is handed over by the helper itself, so progress is certain.

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

use super::Pulled;
use crate::desk::Core;
use crate::handed_over::HandedOver;
use crate::jobs::{JobKey, Urgency, Wanted};
use crate::limits::{
    BLOCKS_AHEAD, HAND_OVER_BYTES_MAX, HANDED_OVER_BYTES_MAX, LOAD_BYTES, READ_BYTES_MAX, READ_BYTES_MIN,
    TRIES_MAX,
};
use crate::machine::{FilePart, FileStat, JobId, Machine, Resident, Task};
use crate::store::Version;

/// A part of a file that is being sent.
#[derive(Debug)]
pub(crate) struct FileBody<F> {
    version: Arc<Version>,
    file: Arc<F>,
    /// The file's state at the last look.
    seen: FileStat,
    /// The bytes that are still to be taken.
    range: Range<u64>,
    /// Bytes that a helper has handed over, shared with everybody who waited, and where they begin.
    handed_over: Option<(u64, HandedOver)>,
    /// Loads in vain of the block at the start of the range.
    loads: u8,
    /// Blocks being loaded ahead.
    pub(super) ahead: Vec<JobId>,
    /// Where the next block to be loaded ahead begins; 0 until the transfer has met the disk.
    ahead_to: u64,
    /// How much is read at once: follows what the client takes.
    read_bytes: usize,
}

impl<F> FileBody<F> {
    pub(super) fn new(version: Arc<Version>, file: Arc<F>, range: Range<u64>) -> Self {
        Self {
            seen: version.stat,
            version,
            file,
            range,
            handed_over: None,
            loads: 0,
            ahead: Vec::new(),
            ahead_to: 0,
            read_bytes: READ_BYTES_MAX,
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    pub(super) fn pull<'p, M: Machine<File = F>>(
        &'p mut self,
        machine: &mut M,
        core: &'p mut Core<F>,
    ) -> Pulled<'p, F> {
        if self.len() == 0 {
            return Pulled::End;
        }
        if self.was_handed_over() {
            return Pulled::Bytes(self.handed_over_bytes());
        }
        if core.rules.optimizations.send_file {
            self.part(machine, core.handed_over.bytes())
        } else {
            self.read(machine, core)
        }
    }

    /// Whether the next bytes are those that a helper has handed over.
    fn was_handed_over(&self) -> bool {
        let covers = |(from, bytes): &(u64, HandedOver)| {
            (*from..from + bytes.len() as u64).contains(&self.range.start)
        };
        self.handed_over.as_ref().is_some_and(covers)
    }

    fn handed_over_bytes(&self) -> &[u8] {
        let Some((from, bytes)) = &self.handed_over else { return &[] };
        let at = (self.range.start - from) as usize;
        let end = bytes.len().min(at + self.len() as usize);
        &bytes[at..end]
    }

    fn read<'p, M: Machine<File = F>>(&'p mut self, machine: &mut M, core: &'p mut Core<F>) -> Pulled<'p, F> {
        let length = self.part_bytes();
        let room = &mut core.file_buffer[..length];
        match machine.read_resident(&self.file, self.range.start, room) {
            Ok(Resident::Bytes(0)) => Pulled::Changed,
            // After the read: a change made while it went on shows in the state.
            Ok(Resident::Bytes(bytes)) => match machine.stat(&self.file) {
                Ok(stat) if self.note_seen(stat) => Pulled::Bytes(&core.file_buffer[..bytes]),
                _ => Pulled::Changed,
            },
            Ok(Resident::Absent) => {
                core.counters.loads_in_vain += u64::from(self.loads > 0 && self.loads < TRIES_MAX);
                Pulled::Wait(self.bring_absent(core.handed_over.bytes()))
            }
            Ok(Resident::Unknown) => Pulled::Wait(self.hand_over(core.handed_over.bytes())),
            Err(_) => Pulled::Failed,
        }
    }

    /// Whether the file is at most longer than at the last look, as a log is.
    fn note_seen(&mut self, stat: FileStat) -> bool {
        let continues = stat.continues(&self.seen);
        self.seen = stat;
        continues
    }

    /// The next part for the machine to send. The look at whether the file is still the same comes before, for what is
    /// sent cannot be taken back: a change in between is seen before the next part.
    fn part<M: Machine<File = F>>(&mut self, machine: &mut M, held_bytes: u64) -> Pulled<'_, F> {
        match machine.stat(&self.file) {
            Ok(stat) if self.note_seen(stat) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Pulled::Wait(self.hand_over(held_bytes)),
            _ => return Pulled::Changed,
        }
        let part = FilePart {
            version: self.version.id.0,
            size_bytes: self.version.stat.size_bytes,
            offset: self.range.start,
            length: self.part_bytes(),
        };
        Pulled::Part(&self.file, part)
    }

    /// How much is read or sent at once: within one block, and what the client takes.
    fn part_bytes(&self) -> usize {
        let left_in_block = LOAD_BYTES - self.range.start % LOAD_BYTES;
        self.len().min(left_in_block).min(self.read_bytes as u64) as usize
    }

    /// Loads in vain of the next part.
    pub(crate) fn loads(&self) -> u8 {
        self.loads
    }

    /// The job that brings the next part into memory, if it was not loaded in vain too often; else the one that hands
    /// it over. `held_bytes` are those that were handed over and are still held, by all.
    pub(crate) fn bring_absent(&mut self, held_bytes: u64) -> Box<Wanted<F, Arc<Version>>> {
        if self.loads >= TRIES_MAX {
            return self.hand_over(held_bytes);
        }
        self.loads += 1;
        let block = self.range.start - self.range.start % LOAD_BYTES;
        self.ahead_to = self.ahead_to.max(block + LOAD_BYTES);
        self.load(block, Urgency::UnderWay)
    }

    /// The job that hands the next part over: what the client takes, and little of it while much is held.
    pub(crate) fn hand_over(&self, held_bytes: u64) -> Box<Wanted<F, Arc<Version>>> {
        let at = self.range.start;
        let at_once = if held_bytes < HANDED_OVER_BYTES_MAX {
            self.read_bytes
        } else {
            self.read_bytes.min(READ_BYTES_MIN)
        };
        let left_in_block = HAND_OVER_BYTES_MAX - at % HAND_OVER_BYTES_MAX;
        let length_bytes = self.len().min(left_in_block).min(at_once as u64);
        Box::new(hand_over(&self.version, &self.file, at..at + length_bytes, Urgency::UnderWay))
    }

    fn load(&self, block: u64, urgency: Urgency) -> Box<Wanted<F, Arc<Version>>> {
        Box::new(load(&self.version, &self.file, block, urgency))
    }

    /// The next block to be loaded ahead. Once a transfer has met the disk, the blocks that follow are loaded while it
    /// goes on, so that it runs at the disk's speed.
    pub(crate) fn wanted_ahead(&mut self) -> Option<Box<Wanted<F, Arc<Version>>>> {
        if self.ahead_to == 0 {
            return None;
        }
        let block = self.range.start - self.range.start % LOAD_BYTES;
        let horizon = block + (1 + BLOCKS_AHEAD) * LOAD_BYTES;
        self.ahead_to = self.ahead_to.max(block);
        (self.ahead_to < self.range.end.min(horizon)).then(|| self.load(self.ahead_to, Urgency::Ahead))
    }

    /// The block that [`FileBody::wanted_ahead`] gave is being loaded.
    pub(crate) fn loads_ahead(&mut self, job: JobId) {
        self.ahead.push(job);
        self.ahead_to += LOAD_BYTES;
    }

    /// Bytes from `offset` on have come from a helper.
    pub(crate) fn take_bytes(&mut self, offset: u64, bytes: &HandedOver) {
        self.handed_over = Some((offset, bytes.clone()));
    }

    pub(super) fn advance(&mut self, bytes: usize) {
        self.range.start += bytes as u64;
        if bytes > 0 {
            self.loads = 0;
        }
        if self.handed_over.as_ref().is_some_and(|(from, all)| from + all.len() as u64 <= self.range.start) {
            self.handed_over = None;
        }
    }

    /// The client took `sent` of `offered` bytes at once: it is read as much for it as it takes.
    pub(crate) fn adapt(&mut self, offered: usize, sent: usize) {
        self.read_bytes = if sent < offered {
            sent.next_power_of_two().clamp(READ_BYTES_MIN, READ_BYTES_MAX)
        } else {
            (self.read_bytes * 2).min(READ_BYTES_MAX)
        };
    }
}

/// The job that brings the block of a file into memory that begins at `offset`.
pub(crate) fn load<F>(
    version: &Arc<Version>,
    file: &Arc<F>,
    offset: u64,
    urgency: Urgency,
) -> Wanted<F, Arc<Version>> {
    let length_bytes = (version.stat.size_bytes - offset).min(LOAD_BYTES);
    Wanted {
        key: JobKey::Load(version.site, version.id, offset),
        task: Task::Load { file: Arc::clone(file), offset, length_bytes },
        urgency,
        subject: Some(Arc::clone(version)),
    }
}

/// The job that hands bytes of a file over.
pub(crate) fn hand_over<F>(
    version: &Arc<Version>,
    file: &Arc<F>,
    bytes: Range<u64>,
    urgency: Urgency,
) -> Wanted<F, Arc<Version>> {
    let (offset, length_bytes) = (bytes.start, bytes.end - bytes.start);
    Wanted {
        key: JobKey::Read(version.site, version.id, offset, length_bytes),
        task: Task::Read { file: Arc::clone(file), offset, length_bytes },
        urgency,
        subject: Some(Arc::clone(version)),
    }
}
