//! Fills the store: reads a block of a file past the page cache and writes it to the place that the keeper allocates. Without
//! a keeper, or without space, it fills nothing, and the caller serves the file another way.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::compress::compress;
use flash_engine::limits::{LOAD_BYTES, RACY_COARSE_NS};
use flash_engine::{FileKind, FileStat, form_of_block};
use flash_prompt::file::is_path_only;
use flash_prompt::table::{BlockKey, Extent};
use flash_prompt::{AsFd, OwnedFd, channel, clock};
use flash_waiting::past_cache::{Reader, Source};
use flash_waiting::{file, store_file};
use flash_worker::codec::{self, decode};
use flash_worker::store_protocol::{ANSWER_BYTES_MAX, Answer, Learned, Request};
use flash_worker::{Fills, convert, names};

/// The means to fill the store. Threads may share it.
#[derive(Debug)]
pub(crate) struct Fill {
    memory: OwnedFd,
    /// One channel for each block that can be filled at once; a thread takes one for a block.
    idle: Mutex<Vec<Filler>>,
    lost_keeper: AtomicBool,
}

#[derive(Debug)]
struct Filler {
    channel: OwnedFd,
    reader: Reader,
    /// Whether it gave up a request that the keeper has not answered.
    is_late: bool,
}

impl Fill {
    /// Fills `memory`, with these channels to the keeper.
    pub(crate) fn new(memory: OwnedFd, channels: Vec<OwnedFd>) -> Self {
        let lost_keeper = AtomicBool::new(channels.is_empty());
        Self { memory, idle: Mutex::new(channels.into_iter().map(Filler::new).collect()), lost_keeper }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Filler>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a newer process may have a keeper while this one has none.
    pub(super) fn has_lost_keeper(&self) -> bool {
        self.lost_keeper.load(Ordering::Relaxed)
    }

    /// Sends the keeper a finding ([`Request::Learned`]), if there is a keeper that listens.
    pub(super) fn notify_keeper(&self, found: &Request) {
        let filler = self.idle().pop();
        let Some(filler) = filler else { return };
        if filler.is_late {
            // A keeper that hangs must not fill its channel.
            return self.idle().push(filler);
        }
        match filler.send(found) {
            Ok(()) => self.idle().push(filler),
            Err(NoKeeper) => self.lost_keeper.store(true, Ordering::Relaxed),
        }
    }

    /// Brings a block of a file into the store, if there is a keeper and space for it. With it the keeper gets what the name of a
    /// request has led to, which is taken out of `learned` then.
    pub(super) fn fill(
        &self,
        source: &Source<impl AsFd>,
        block: u64,
        learned: &mut Option<Learned>,
    ) -> io::Result<()> {
        let filler = self.idle().pop();
        let Some(mut filler) = filler else { return Ok(()) };
        match filler.fill(&self.memory, source, block, learned) {
            Ok(read) => {
                self.idle().push(filler);
                read
            }
            Err(NoKeeper) => {
                self.lost_keeper.store(true, Ordering::Relaxed);
                Ok(())
            }
        }
    }
}

impl Fills for Fill {
    fn forget_keeper(&self) {
        self.idle().clear();
    }

    fn take_channel(&self, keeper: OwnedFd) {
        self.idle().push(Filler::new(keeper));
    }
}

/// How often a process waits for its channel's receive timeout, which the supervisor has set, while another process loads
/// the same block, before it reads the block itself.
const JOINED_WAITS_MAX: usize = 10;

/// The keeper is gone, or broke the protocol.
#[derive(Debug)]
struct NoKeeper;

impl Filler {
    fn new(channel: OwnedFd) -> Self {
        Self { channel, reader: Reader::new(LOAD_BYTES as usize), is_late: false }
    }

    fn fill(
        &mut self,
        memory: &OwnedFd,
        source: &Source<impl AsFd>,
        block: u64,
        learned: &mut Option<Learned>,
    ) -> Result<io::Result<()>, NoKeeper> {
        if !self.has_keeper_caught_up()? {
            return Ok(Ok(()));
        }
        let before = match file::stat(source) {
            Ok(stat) => stat,
            Err(e) => return Ok(Err(e)),
        };
        if is_racy(source, &convert::stat(&before)) {
            return Ok(Ok(()));
        }
        let form = match self.compress(source, &convert::stat(&before), block) {
            Ok(form) => form,
            Err(e) => return Ok(Err(e)),
        };
        let Some((key, length)) = identify(&convert::stat(&before), block, form.as_deref()) else {
            return Ok(Ok(()));
        };
        let Some(Answer::Fill(place)) = self.ask(&Request::Want(key, length))? else { return Ok(Ok(())) };
        if place.length != length {
            return Err(NoKeeper);
        }
        let written = match form {
            Some(form) => {
                store_file::write(memory, place.offset, &form).map(|()| true).map_err(|_| Wrong::NoMemory)
            }
            None => self.read(memory, source, block, place),
        };
        let (result, read) = match written {
            // After the read: a change during the read shows in the state.
            Ok(true) if file::stat(source).is_ok_and(|after| after == before) => {
                (Request::Filled(learned.take()), Ok(()))
            }
            Ok(_) => (Request::Failed, Ok(())),
            Err(Wrong::NoMemory) => (Request::NoMemory, Ok(())),
            Err(Wrong::Unreadable(e)) => (Request::Failed, Err(e)),
        };
        self.ask(&result)?;
        Ok(read)
    }

    /// The compressed form of a file, if the block is that of one.
    fn compress(
        &mut self,
        source: &Source<impl AsFd>,
        stat: &FileStat,
        block: u64,
    ) -> io::Result<Option<Vec<u8>>> {
        let Some(coding) = form_of_block(stat.size_bytes, block) else { return Ok(None) };
        let mut content = Vec::with_capacity(stat.size_bytes as usize);
        for start in (0..stat.size_bytes).step_by(LOAD_BYTES as usize) {
            let length = (stat.size_bytes - start).min(LOAD_BYTES) as usize;
            content.extend_from_slice(self.reader.read(source, start, length)?.bytes);
        }
        compress(&content, coding).map(Some)
    }

    /// Reads a block and writes it to its place. False if the file ends early.
    fn read(
        &mut self,
        memory: &OwnedFd,
        source: &Source<impl AsFd>,
        block: u64,
        place: Extent,
    ) -> Result<bool, Wrong> {
        let read = self.reader.read(source, block * LOAD_BYTES, place.length as usize);
        let bytes = read.map_err(Wrong::Unreadable)?.bytes;
        if bytes.len() != place.length as usize {
            return Ok(false);
        }
        store_file::write(memory, place.offset, bytes).map_err(|_| Wrong::NoMemory)?;
        Ok(true)
    }

    /// The keeper's answer. None if the keeper is late: then the request is given up, and the caller must not write to
    /// the store.
    fn ask(&mut self, request: &Request) -> Result<Option<Answer>, NoKeeper> {
        self.send(request)?;
        let mut waits_left = 0;
        loop {
            let mut bytes = [0; ANSWER_BYTES_MAX];
            match channel::recv(&self.channel, &mut bytes, &mut Vec::new()) {
                Ok(length) => match decode(&bytes[..length]).ok_or(NoKeeper)? {
                    Answer::Joined => waits_left = JOINED_WAITS_MAX,
                    answer => return Ok(Some(answer)),
                },
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && waits_left > 0 => waits_left -= 1,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.send(&Request::GiveUp)?;
                    self.is_late = true;
                    return Ok(None);
                }
                Err(_) => return Err(NoKeeper),
            }
        }
    }

    /// Whether the keeper has answered everything. It drops late answers and does not wait for them, so a keeper that
    /// hangs costs a process one wait.
    fn has_keeper_caught_up(&mut self) -> Result<bool, NoKeeper> {
        while self.is_late {
            let mut bytes = [0; ANSWER_BYTES_MAX];
            match channel::take(&self.channel, &mut bytes) {
                Ok(length) => {
                    self.is_late = decode::<Answer>(&bytes[..length]).ok_or(NoKeeper)? != Answer::GivenUp;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(_) => return Err(NoKeeper),
            }
        }
        Ok(true)
    }

    fn send(&self, request: &Request) -> Result<(), NoKeeper> {
        codec::send(&self.channel, request, &[]).map_err(|_| NoKeeper)
    }
}

/// The reason why a block was not filled.
enum Wrong {
    Unreadable(io::Error),
    NoMemory,
}

/// Whether a file changed so recently that another change could go unnoticed. The clock of another host may have
/// made the times of a place.
fn is_racy(source: impl AsFd, stat: &FileStat) -> bool {
    let wall_ns = clock::wall_ns();
    let is_place = is_path_only(source).unwrap_or(true);
    stat.is_racy(wall_ns) || (is_place && stat.changed_within(RACY_COARSE_NS, wall_ns))
}

/// The key and the length of a block, which can be a compressed form of the file. None for a block that is not stored: not of a
/// regular file, or beyond the end.
fn identify(stat: &FileStat, block: u64, form: Option<&[u8]>) -> Option<(BlockKey, u32)> {
    let left = match form {
        Some(form) => form.len() as u64,
        None => stat.size_bytes.checked_sub(block.checked_mul(LOAD_BYTES)?).filter(|left| *left > 0)?,
    };
    if stat.kind != FileKind::Regular {
        return None;
    }
    let key = BlockKey { file: names::state(stat)?, block: block.try_into().ok()? };
    Some((key, left.min(LOAD_BYTES).try_into().ok()?))
}

#[cfg(test)]
#[path = "fill_tests.rs"]
mod tests;
