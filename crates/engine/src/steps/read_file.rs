//! Read file: bytes of a file from memory, or a job that brings them there.
//!
//! Nothing here waits. A part that is not in memory is loaded by a helper; one that is loaded
//! and evicted again a few times over is handed over by the helper itself, so that progress is
//! certain.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use crate::cache::{Content, Version, write_head};
use crate::engine::{Engine, HEAD_ROOM_BYTES};
use crate::exchange::{Exchange, Source};
use crate::jobs::{JobId, JobKey, Task, Urgency};
use crate::limits::{BLOCKS_AHEAD, HAND_OVER_BYTES_MAX, LOAD_BYTES, SMALL_FILE_BYTES_MAX, TRIES_MAX};
use crate::slab::Key;
use crate::system::{FilePart, FileSent, Resident, System};

/// What came of asking for a file's bytes.
pub(crate) enum Obtained<F> {
    /// The body can be pulled from here.
    Source(Source<F>),
    /// A helper loads the file.
    Wait(JobId),
    /// The file is no longer what its version says.
    Changed,
    /// The queue of jobs is full.
    Full,
    /// Reading failed.
    Failed,
}

/// What came of reading a part of a file.
pub(crate) enum Part {
    /// So many bytes are in the file buffer, behind the room for a head.
    Bytes(usize),
    /// The system has sent it: of so many bytes offered, the head among them, the socket took so many.
    Sent { offered: usize, result: io::Result<usize> },
    /// A helper loads it.
    Wait(JobId),
    /// The file is no longer what its version says.
    Changed,
    /// The queue of jobs is full.
    Full,
    /// Reading failed.
    Failed,
}

impl<S: System> Engine<S> {
    /// Makes a version's bytes available: a small file as content in memory, another as an
    /// open file.
    pub(crate) fn obtain(
        &mut self,
        sys: &mut S,
        key: Key,
        version: &Arc<Version>,
        file: &Arc<S::File>,
        tries: u8,
    ) -> Obtained<S::File> {
        let size_bytes = version.stat.size_bytes;
        if size_bytes > SMALL_FILE_BYTES_MAX || !self.contents.is_on() {
            let unchanged = match sys.stat(file) {
                Ok(stat) => stat.same_content(&version.stat),
                // Each part that a helper hands over comes with the file's state.
                Err(e) => e.kind() == ErrorKind::WouldBlock,
            };
            return if unchanged {
                Obtained::Source(Source::File(Arc::clone(version), Arc::clone(file)))
            } else {
                Obtained::Changed
            };
        }
        let mut filled = 0;
        while filled < size_bytes {
            let room =
                &mut self.file_buffer[HEAD_ROOM_BYTES + filled as usize..][..(size_bytes - filled) as usize];
            match sys.read_resident(file, filled, room) {
                Ok(Resident::Bytes(0)) => return Obtained::Changed,
                Ok(Resident::Bytes(n)) => filled += n as u64,
                Ok(Resident::Absent) if tries < TRIES_MAX => {
                    self.counters.loads_in_vain += u64::from(tries > 0);
                    return wait(self.submit_load(key, Urgency::Bounded, version, file, 0));
                }
                Ok(Resident::Absent | Resident::Unknown) => {
                    return wait(self.submit_read(key, Urgency::Bounded, version, file, 0, size_bytes));
                }
                Err(_) => return Obtained::Failed,
            }
        }
        // After the read: a change made while it went on shows in the times.
        if !sys.stat(file).is_ok_and(|stat| stat.same_content(&version.stat)) {
            return Obtained::Changed;
        }
        let body = &self.file_buffer[HEAD_ROOM_BYTES..][..size_bytes as usize];
        let content = self.content(version, body);
        self.keep_content(version, &content);
        Obtained::Source(Source::Memory(content))
    }

    /// A small file's content, behind its head where heads are kept.
    pub(crate) fn content(&self, version: &Version, body: &[u8]) -> Arc<Content> {
        let mut head = Vec::with_capacity(512);
        let mut date_at = 0;
        if self.rules.optimizations.head_cache {
            let align_bytes = self.rules.optimizations.head_align_bytes();
            date_at = write_head(&mut head, version, &self.date, align_bytes);
        }
        Arc::new(Content::new(&head, date_at, body, self.wall_s()))
    }

    /// Puts a content into the cache. Its file need not stay open.
    pub(crate) fn keep_content(&mut self, version: &Version, content: &Arc<Content>) {
        self.contents.insert(version.id, Arc::clone(content));
        if self.contents.get(version.id).is_some() {
            self.files.remove(version.id);
        }
    }

    /// Reads the next part of an exchange's file into the file buffer.
    pub(crate) fn read_part(
        &mut self,
        sys: &mut S,
        key: Key,
        exchange: &mut Exchange<S::File>,
        version: &Arc<Version>,
        file: &Arc<S::File>,
    ) -> Part {
        let (at, length) = (exchange.at, exchange.part_bytes());
        self.load_ahead(key, exchange, version, file);
        let room = &mut self.file_buffer[HEAD_ROOM_BYTES..][..length];
        match sys.read_resident(file, at, room) {
            Ok(Resident::Bytes(0)) => Part::Changed,
            Ok(Resident::Bytes(n)) => match sys.stat(file) {
                Ok(stat) if stat.same_content(&version.stat) => Part::Bytes(n),
                _ => Part::Changed,
            },
            Ok(Resident::Absent) => self.bring_part(key, exchange, version, file, true),
            Ok(Resident::Unknown) => self.bring_part(key, exchange, version, file, false),
            Err(_) => Part::Failed,
        }
    }

    /// Has the system send what is left of `out` and the next part of an exchange's file.
    ///
    /// The look at whether the file is still the same comes before, for what is sent cannot be taken
    /// back: a change in between is seen before the next part.
    pub(crate) fn send_part(
        &mut self,
        sys: &mut S,
        key: Key,
        exchange: &mut Exchange<S::File>,
        version: &Arc<Version>,
        file: &Arc<S::File>,
    ) -> Part {
        match sys.stat(file) {
            Ok(stat) if stat.same_content(&version.stat) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                return self.bring_part(key, exchange, version, file, false);
            }
            _ => return Part::Changed,
        }
        self.load_ahead(key, exchange, version, file);
        let part = FilePart {
            version: version.id.0,
            size_bytes: version.stat.size_bytes,
            offset: exchange.at,
            length: exchange.part_bytes(),
        };
        let Some(connection) = self.connections.get(key) else { return Part::Failed };
        let head = &exchange.out[exchange.out_at..];
        match sys.send_file(&connection.socket, head, file, part) {
            Ok(FileSent::Took { offered, sent }) => Part::Sent { offered, result: Ok(sent) },
            Ok(FileSent::Absent) => self.bring_part(key, exchange, version, file, true),
            Ok(FileSent::Unknown) => self.bring_part(key, exchange, version, file, false),
            Ok(FileSent::Changed) => Part::Changed,
            Ok(FileSent::Failed) => Part::Failed,
            Err(e) => Part::Sent { offered: head.len() + part.length, result: Err(e) },
        }
    }

    /// Has a helper bring the next part of an exchange's file into memory, if it is known to be absent
    /// and was not loaded in vain too often; else hand it over.
    fn bring_part(
        &mut self,
        key: Key,
        exchange: &mut Exchange<S::File>,
        version: &Arc<Version>,
        file: &Arc<S::File>,
        is_absent: bool,
    ) -> Part {
        let at = exchange.at;
        let job = if is_absent && exchange.loads < TRIES_MAX {
            self.counters.loads_in_vain += u64::from(exchange.loads > 0);
            exchange.loads += 1;
            let job = self.submit_load(key, Urgency::UnderWay, version, file, at);
            exchange.ahead_to = exchange.ahead_to.max(at - at % LOAD_BYTES + LOAD_BYTES);
            self.load_ahead(key, exchange, version, file);
            job
        } else {
            let left = HAND_OVER_BYTES_MAX - at % HAND_OVER_BYTES_MAX;
            self.submit_read(key, Urgency::UnderWay, version, file, at, (exchange.end - at).min(left))
        };
        job.map_or(Part::Full, Part::Wait)
    }

    /// Once a transfer has met the disk, the blocks that follow are loaded while it goes on, so
    /// that it runs at the disk's speed.
    fn load_ahead(
        &mut self,
        key: Key,
        exchange: &mut Exchange<S::File>,
        version: &Arc<Version>,
        file: &Arc<S::File>,
    ) {
        if exchange.ahead_to == 0 {
            return;
        }
        let block = exchange.at - exchange.at % LOAD_BYTES;
        let horizon = block + (1 + BLOCKS_AHEAD) * LOAD_BYTES;
        exchange.ahead_to = exchange.ahead_to.max(block);
        while exchange.ahead_to < exchange.end.min(horizon) {
            let next = self.submit_load(key, Urgency::Ahead, version, file, exchange.ahead_to);
            let Some(job) = next else { return };
            exchange.ahead.push(job);
            exchange.ahead_to += LOAD_BYTES;
        }
    }

    /// Has a helper bring the block that holds `at` into memory.
    fn submit_load(
        &mut self,
        waiter: Key,
        urgency: Urgency,
        version: &Arc<Version>,
        file: &Arc<S::File>,
        at: u64,
    ) -> Option<JobId> {
        let offset = at - at % LOAD_BYTES;
        let length_bytes = (version.stat.size_bytes - offset).min(LOAD_BYTES);
        let (job_key, now_ms) = (JobKey::Load(version.site, version.id, offset), self.now.monotonic_ms);
        let task = || Task::Load { file: Arc::clone(file), offset, length_bytes };
        self.jobs.submit(job_key, Some(waiter), urgency, now_ms, Some(version), task)
    }

    /// Has a helper hand bytes over.
    fn submit_read(
        &mut self,
        waiter: Key,
        urgency: Urgency,
        version: &Arc<Version>,
        file: &Arc<S::File>,
        offset: u64,
        length_bytes: u64,
    ) -> Option<JobId> {
        let now_ms = self.now.monotonic_ms;
        let task = || Task::Read { file: Arc::clone(file), offset, length_bytes };
        let job_key = JobKey::Read(version.site, version.id, offset, length_bytes);
        self.jobs.submit(job_key, Some(waiter), urgency, now_ms, Some(version), task)
    }
}

impl<F> Exchange<F> {
    /// How much of its file is read or sent at once: within one block, and what the client takes.
    fn part_bytes(&self) -> usize {
        let left_in_block = LOAD_BYTES - self.at % LOAD_BYTES;
        (self.end - self.at).min(left_in_block).min(self.read_bytes as u64) as usize
    }
}

fn wait<F>(job: Option<JobId>) -> Obtained<F> {
    job.map_or(Obtained::Full, Obtained::Wait)
}
