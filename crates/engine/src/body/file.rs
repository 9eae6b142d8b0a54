//! Sends a range of a file piece by piece: from the store if the block is there, otherwise from the page
//! cache. A helper loads a piece that is in neither. If a loaded piece is evicted [`TRIES_MAX`] times before
//! it is sent, the helper hands the bytes over in a message, so a transfer always progresses. Called by
//! [`body`](crate::body).

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

use super::seen::Since;
use super::{Pulled, Seen};
use crate::caches::Version;
use crate::context::Core;
use crate::handed_over::HandedOver;
use crate::jobs::{JobKey, Urgency, Wanted};
use crate::limits::{
    BLOCKS_AHEAD, FILLS_MAX, HAND_OVER_BYTES_MAX, HANDED_OVER_BYTES_MAX, LOAD_BYTES, READ_BYTES_MAX,
    READ_BYTES_MIN, SAMPLE_BYTES_MAX, TRIES_MAX,
};
use crate::machine::{Block, FilePart, FileStat, JobId, Machine, NameOfFile, Resident, Task};

/// Whether a file still has the bytes that were seen before.
enum Checked {
    /// It has; this is its state now.
    Same(FileStat),
    /// The sample is not in memory.
    Absent,
    /// Only a helper can ask for its state.
    OnlyByHelper,
    Changed,
}

/// A range of a file that is being sent.
#[derive(Debug)]
pub(crate) struct FileBody<F> {
    version: Arc<Version>,
    file: Arc<F>,
    /// Its name, until a job has it that brings a block into the store.
    name: Option<NameOfFile>,
    /// The file's state when it was last checked, with a sample of its bytes.
    seen: Seen,
    /// The bytes that are not sent yet.
    range: Range<u64>,
    /// Bytes handed over by a helper and their offset in the file. All exchanges that waited for the job
    /// share them.
    handed_over: Option<(u64, HandedOver)>,
    /// The state that came with these bytes, if the file has grown: they are sent once a helper has also handed over
    /// the bytes of the sample and these have not changed.
    unproven: Option<FileStat>,
    /// The stored block whose bytes the last pull returned, held until they are sent.
    block: Option<Block>,
    /// How often the first block of `range` was loaded and evicted before it was sent.
    loads: u8,
    /// Jobs that load later blocks ahead of time.
    pub(super) ahead: Vec<JobId>,
    /// The offset of the next block to load ahead; 0 until the transfer has had to wait for the disk.
    ahead_to: u64,
    /// How many bytes to read at once; follows how much the client accepts.
    read_bytes: usize,
}

impl<F> FileBody<F> {
    pub(super) fn new(version: Arc<Version>, file: Arc<F>, name: NameOfFile, range: Range<u64>) -> Self {
        Self {
            seen: Seen::new(version.stat),
            version,
            file,
            name: Some(name),
            range,
            handed_over: None,
            unproven: None,
            block: None,
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
            if self.unproven.is_some() {
                let (at, sample) = self.seen.sample();
                return Pulled::Wait(self.read_range_by_helper(at..at + sample.len() as u64));
            }
            return Pulled::Bytes(self.handed_over_bytes());
        }
        if core.rules.optimizations.send_file {
            self.part(machine, core.handed_over.bytes())
        } else if self.find_block(machine, core) {
            self.note_block();
            Pulled::Bytes(self.block_bytes())
        } else {
            self.read(machine, core)
        }
    }

    /// Whether the next bytes to send were handed over by a helper.
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

    /// Looks for the block of the next bytes in the store. This is repeated at each pull, so that no block is
    /// held while a slow client reads.
    fn find_block<M: Machine<File = F>>(&mut self, machine: &mut M, core: &mut Core<F>) -> bool {
        self.block = None;
        if self.is_storable(core) {
            self.block = machine.block(&self.version.stat, self.range.start / LOAD_BYTES);
            let count = if self.block.is_some() {
                &mut core.counters.block_hits
            } else {
                &mut core.counters.block_misses
            };
            *count += 1;
        }
        if let Some(block) = &self.block
            && self.range.start.is_multiple_of(LOAD_BYTES)
        {
            block.note_use();
        }
        self.block.is_some()
    }

    /// Whether the last pull returned bytes of a stored block.
    pub(crate) fn sends_block(&self) -> bool {
        self.block.is_some()
    }

    fn block_bytes(&self) -> &[u8] {
        let Some(block) = &self.block else { return &[] };
        let at = (self.range.start % LOAD_BYTES) as usize;
        // The machine must not return a block that is shorter than the file. If it does, the answer is cut
        // here.
        let bytes = block.bytes().get(at..).unwrap_or_default();
        &bytes[..bytes.len().min(self.part_bytes())]
    }

    /// Records the first bytes of the block that are sent next.
    fn note_block(&mut self) {
        let Some(block) = &self.block else { return };
        let at = (self.range.start % LOAD_BYTES) as usize;
        self.seen.note(self.version.stat, self.range.start, block.bytes().get(at..).unwrap_or_default());
    }

    /// Whether the store can have blocks of this file. If the file has grown since, its stored blocks belong
    /// to another state.
    fn is_storable(&self, core: &Core<F>) -> bool {
        core.rules.has_store && self.version.is_storable() && *self.seen.stat() == self.version.stat
    }

    fn read<'p, M: Machine<File = F>>(&'p mut self, machine: &mut M, core: &'p mut Core<F>) -> Pulled<'p, F> {
        let length = self.part_bytes();
        let room = &mut core.file_buffer[..length];
        match machine.read_resident(&self.file, self.range.start, room) {
            Ok(Resident::Bytes(0)) => Pulled::Changed,
            // The file is checked after the read, so that a change during the read is noticed.
            Ok(Resident::Bytes(bytes)) => match self.check(machine) {
                Checked::Same(stat) => {
                    self.seen.note(stat, self.range.start, &core.file_buffer[..bytes]);
                    if self.is_storable(core) {
                        let block = self.range.start / LOAD_BYTES;
                        queue_fill(core, &self.version, &self.file, block, self.name.take());
                    }
                    Pulled::Bytes(&core.file_buffer[..bytes])
                }
                Checked::Absent => self.bring_sample(),
                Checked::OnlyByHelper | Checked::Changed => Pulled::Changed,
            },
            Ok(found @ (Resident::Absent | Resident::Unknown)) => {
                let is_absent = found == Resident::Absent;
                core.counters.loads_in_vain +=
                    u64::from(is_absent && self.loads > 0 && self.loads < TRIES_MAX);
                if self.is_storable(core) && self.loads < FILLS_MAX {
                    return Pulled::Wait(self.bring_block());
                }
                let held_bytes = core.handed_over.bytes();
                Pulled::Wait(if is_absent {
                    self.bring_absent(held_bytes)
                } else {
                    self.read_by_helper(held_bytes)
                })
            }
            Err(_) => Pulled::Failed,
        }
    }

    /// Asks whether the bytes seen before are unchanged: the file is the same, or it has only grown, as a log does,
    /// and still has the bytes of the sample.
    fn check<M: Machine<File = F>>(&self, machine: &mut M) -> Checked {
        let stat = match machine.stat(&self.file) {
            Ok(stat) => stat,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Checked::OnlyByHelper,
            Err(_) => return Checked::Changed,
        };
        match self.seen.since(&stat) {
            Since::Unchanged => return Checked::Same(stat),
            Since::Changed => return Checked::Changed,
            Since::Grown => {}
        }
        let (at, sample) = self.seen.sample();
        let mut now = [0; SAMPLE_BYTES_MAX];
        let now = &mut now[..sample.len()];
        match machine.read_resident(&self.file, at, now) {
            Ok(Resident::Bytes(bytes)) if now[..bytes] != sample[..bytes] => Checked::Changed,
            Ok(Resident::Bytes(bytes)) if bytes == sample.len() => Checked::Same(stat),
            Ok(_) => Checked::Absent,
            Err(_) => Checked::Changed,
        }
    }

    /// Loads the sample into the page cache, where [`FileBody::check`] looks for it.
    fn bring_sample<'p>(&mut self) -> Pulled<'p, F> {
        if self.loads >= TRIES_MAX {
            return Pulled::Changed;
        }
        self.loads += 1;
        let (at, _) = self.seen.sample();
        Pulled::Wait(self.load(at - at % LOAD_BYTES, Urgency::UnderWay))
    }

    /// The next part for the machine to send. The file is checked first, because sent bytes cannot be taken
    /// back; a later change is noticed before the next part.
    fn part<M: Machine<File = F>>(&mut self, machine: &mut M, held_bytes: u64) -> Pulled<'_, F> {
        let mut sample = [0; SAMPLE_BYTES_MAX];
        let sample = &mut sample[..self.part_bytes().min(SAMPLE_BYTES_MAX)];
        let read = machine.read_resident(&self.file, self.range.start, sample);
        match self.check(machine) {
            Checked::Same(stat) => {
                if let Ok(Resident::Bytes(bytes)) = read {
                    self.seen.note(stat, self.range.start, &sample[..bytes]);
                }
            }
            Checked::Absent => return self.bring_sample(),
            Checked::OnlyByHelper => return Pulled::Wait(self.read_by_helper(held_bytes)),
            Checked::Changed => return Pulled::Changed,
        }
        let part = FilePart {
            version: self.version.id.0,
            size_bytes: self.version.stat.size_bytes,
            offset: self.range.start,
            length: self.part_bytes(),
        };
        Pulled::Part(&self.file, part)
    }

    /// How many bytes to read or send at once: never past the end of a block, and no more than the client
    /// accepts.
    fn part_bytes(&self) -> usize {
        let left_in_block = LOAD_BYTES - self.range.start % LOAD_BYTES;
        self.len().min(left_in_block).min(self.read_bytes as u64) as usize
    }

    /// The job that brings the block of the next bytes into the store.
    fn bring_block(&mut self) -> Box<Wanted<F, Arc<Version>>> {
        self.loads += 1;
        let block = self.range.start / LOAD_BYTES;
        self.ahead_to = self.ahead_to.max((block + 1) * LOAD_BYTES);
        self.fill(block, Urgency::UnderWay)
    }

    /// How often the next part was loaded and evicted before it was sent.
    pub(crate) fn loads(&self) -> u8 {
        self.loads
    }

    /// The job that loads the next part into memory or, after too many loads in vain, hands it over.
    /// `held_bytes` is the total that all transfers hold of handed-over bytes.
    pub(crate) fn bring_absent(&mut self, held_bytes: u64) -> Box<Wanted<F, Arc<Version>>> {
        if self.loads >= TRIES_MAX {
            return self.read_by_helper(held_bytes);
        }
        self.loads += 1;
        let block = self.range.start - self.range.start % LOAD_BYTES;
        self.ahead_to = self.ahead_to.max(block + LOAD_BYTES);
        self.load(block, Urgency::UnderWay)
    }

    /// The job that hands over the next part: as much as the client accepts, or little while `held_bytes` is
    /// high.
    pub(crate) fn read_by_helper(&self, held_bytes: u64) -> Box<Wanted<F, Arc<Version>>> {
        let at = self.range.start;
        let at_once = if held_bytes < HANDED_OVER_BYTES_MAX {
            self.read_bytes
        } else {
            self.read_bytes.min(READ_BYTES_MIN)
        };
        let left_in_block = HAND_OVER_BYTES_MAX - at % HAND_OVER_BYTES_MAX;
        let length_bytes = self.len().min(left_in_block).min(at_once as u64);
        self.read_range_by_helper(at..at + length_bytes)
    }

    fn read_range_by_helper(&self, part: Range<u64>) -> Box<Wanted<F, Arc<Version>>> {
        let mut wanted = read_by_helper(&self.version, &self.file, part, Urgency::UnderWay);
        wanted.remaining_bytes = self.len();
        Box::new(wanted)
    }

    fn load(&self, block: u64, urgency: Urgency) -> Box<Wanted<F, Arc<Version>>> {
        let mut wanted = load(&self.version, &self.file, block, urgency);
        wanted.remaining_bytes = self.len();
        Box::new(wanted)
    }

    fn fill(&mut self, block: u64, urgency: Urgency) -> Box<Wanted<F, Arc<Version>>> {
        let mut wanted = with_name(fill(&self.version, &self.file, block, urgency), self.name.take());
        wanted.remaining_bytes = self.len();
        Box::new(wanted)
    }

    /// The next block to load ahead. Once a transfer has waited for the disk, the following blocks are loaded
    /// while it sends, so that it runs at the speed of the disk.
    pub(crate) fn wanted_ahead(&mut self, core: &Core<F>) -> Option<Box<Wanted<F, Arc<Version>>>> {
        if self.ahead_to == 0 {
            return None;
        }
        let block = self.range.start - self.range.start % LOAD_BYTES;
        let horizon = block + (1 + BLOCKS_AHEAD) * LOAD_BYTES;
        self.ahead_to = self.ahead_to.max(block);
        if self.ahead_to >= self.range.end.min(horizon) {
            return None;
        }
        Some(if self.is_storable(core) && !core.rules.optimizations.send_file {
            self.fill(self.ahead_to / LOAD_BYTES, Urgency::Ahead)
        } else {
            self.load(self.ahead_to, Urgency::Ahead)
        })
    }

    /// Records that `job` loads the block returned by [`FileBody::wanted_ahead`].
    pub(crate) fn loads_ahead(&mut self, job: JobId) {
        self.ahead.push(job);
        self.ahead_to += LOAD_BYTES;
    }

    /// Takes bytes, starting at `offset`, that a helper has handed over, and the file's state after it read them.
    /// Returns false if the file is no longer the one that was sent so far.
    pub(crate) fn take_bytes(&mut self, offset: u64, bytes: &HandedOver, stat: FileStat) -> bool {
        if let Some(unproven) = self.unproven.take() {
            let is_same = (offset, &**bytes) == self.seen.sample();
            if is_same {
                self.note_handed_over(unproven);
            }
            return is_same;
        }
        self.handed_over = Some((offset, bytes.clone()));
        match self.seen.since(&stat) {
            Since::Unchanged => self.note_handed_over(stat),
            Since::Grown => self.unproven = Some(stat),
            Since::Changed => return false,
        }
        true
    }

    /// Records the state of the file to which the handed-over bytes belong.
    fn note_handed_over(&mut self, stat: FileStat) {
        if let Some((from, bytes)) = &self.handed_over {
            self.seen.note(stat, *from, bytes);
        }
    }

    /// Takes over the last known state of the file.
    pub(super) fn continue_from(&mut self, before: &FileBody<F>) {
        self.seen = before.seen.clone();
    }

    pub(super) fn advance(&mut self, bytes: usize) {
        self.block = None;
        self.range.start += bytes as u64;
        if bytes > 0 {
            self.loads = 0;
        }
        if self.handed_over.as_ref().is_some_and(|(from, all)| from + all.len() as u64 <= self.range.start) {
            self.handed_over = None;
        }
    }

    /// Bounds how much is read at once, because no more than `bytes` can be sent now.
    pub(super) fn offer_at_most(&mut self, bytes: usize) {
        self.read_bytes = self.read_bytes.min(bytes.max(READ_BYTES_MIN));
    }

    /// Adapts how much is read at once to a client that accepted `sent` of `offered` bytes.
    pub(crate) fn adapt(&mut self, offered: usize, sent: usize) {
        self.read_bytes = if sent < offered {
            sent.next_power_of_two().clamp(READ_BYTES_MIN, READ_BYTES_MAX)
        } else {
            (self.read_bytes * 2).min(READ_BYTES_MAX)
        };
    }
}

/// Queues a job that copies a block from the page cache into the store, unless one was queued recently. No
/// request waits for it.
pub(crate) fn queue_fill<F>(
    core: &mut Core<F>,
    version: &Arc<Version>,
    file: &Arc<F>,
    block: u64,
    name: Option<NameOfFile>,
) {
    let now_ms = core.clock.ms();
    if version.is_storable() && version.needs_fill(now_ms) {
        // If the queue is full, a later read tries again.
        let wanted = with_name(fill(version, file, block, Urgency::Ahead), name);
        let _ = core.jobs.submit(wanted, None, now_ms);
    }
}

/// The job that brings a block of a file into the store.
pub(crate) fn fill<F>(
    version: &Arc<Version>,
    file: &Arc<F>,
    block: u64,
    urgency: Urgency,
) -> Wanted<F, Arc<Version>> {
    Wanted {
        key: JobKey::Fill(version.site, version.id, block),
        task: Task::Fill { file: Arc::clone(file), block, name: None },
        urgency,
        subject: Some(Arc::clone(version)),
        remaining_bytes: version.stat.size_bytes.saturating_sub(block * LOAD_BYTES),
    }
}

/// The same job for a file that a request knows by this name.
pub(crate) fn with_name<F>(
    mut wanted: Wanted<F, Arc<Version>>,
    known: Option<NameOfFile>,
) -> Wanted<F, Arc<Version>> {
    if let Task::Fill { name, .. } = &mut wanted.task {
        *name = known;
    }
    wanted
}

/// The job that loads the block at `offset` into the page cache.
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
        remaining_bytes: version.stat.size_bytes - offset,
    }
}

/// The job that hands over bytes of a file.
pub(crate) fn read_by_helper<F>(
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
        remaining_bytes: length_bytes,
    }
}
