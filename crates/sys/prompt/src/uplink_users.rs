//! Which workers use the uplink now: a memory file with a word for each worker, shared by all of them. A
//! worker writes its own word and reads the others, without any system call.
//!
//! The figures are a hint: a worker may read a word just before it changes. The supervisor
//! clears the word of a worker that has ended.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fd::AsFd;

use super::shared::{Access, SharedMemory};

/// The length of the memory file.
pub const UPLINK_FILE_BYTES: u64 = 8192;
/// Maximum number of workers, those that drain included.
pub const WORKERS_MAX: usize = UPLINK_FILE_BYTES as usize / WORD_BYTES as usize;

const WORD_BYTES: u64 = size_of::<AtomicU32>() as u64;

/// The offset of the word of the worker at this place.
#[must_use]
pub const fn word_at(place: usize) -> u64 {
    place as u64 * WORD_BYTES
}

/// The words of all workers, as the worker at one place uses them.
#[derive(Debug)]
pub struct UplinkUsers {
    memory: SharedMemory,
    place: usize,
}

impl UplinkUsers {
    /// Maps the memory file for the worker at `place`, which does not use the uplink yet.
    ///
    /// # Errors
    /// `InvalidInput` for a place that the file does not have, or for a file that can become shorter; those of mmap(2).
    pub fn map(file: impl AsFd, place: usize) -> io::Result<Self> {
        let memory = SharedMemory::map(file, UPLINK_FILE_BYTES, Access::Write)?;
        let users = Self { memory, place };
        let why = "the file of the uplink's workers has no place for this worker";
        let own = users
            .memory
            .word(word_at(place))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        own.store(0, Ordering::Relaxed);
        Ok(users)
    }

    /// Announces whether this worker uses the uplink. Returns how many others do.
    pub fn announce(&self, uses: bool) -> u32 {
        let Some(own) = self.memory.word(word_at(self.place)) else { return 0 };
        own.store(uses.into(), Ordering::Relaxed);
        let words = (0..WORKERS_MAX).filter_map(|place| self.memory.word(word_at(place)));
        let all: u32 = words.map(|word| word.load(Ordering::Relaxed).min(1)).sum();
        all.saturating_sub(uses.into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::shared::sealed_file;
    use super::*;

    #[test]
    fn each_worker_sees_the_others() {
        let file = sealed_file(UPLINK_FILE_BYTES);
        let workers = [0, 1, 2].map(|place| UplinkUsers::map(&file, place).expect("mapped"));
        assert_eq!(workers[0].announce(true), 0);
        assert_eq!((workers[1].announce(true), workers[2].announce(false)), (1, 2));
        assert_eq!((workers[0].announce(false), workers[1].announce(true)), (1, 0));
        // A worker that takes the place of another one does not use the uplink yet.
        drop(UplinkUsers::map(&file, 1).expect("mapped"));
        assert_eq!(workers[0].announce(false), 0);
    }

    #[test]
    fn a_place_that_there_is_not_is_refused() {
        let whole = sealed_file(UPLINK_FILE_BYTES);
        for (file, place) in [(&whole, WORKERS_MAX), (&sealed_file(0), 0)] {
            assert_eq!(
                UplinkUsers::map(file, place).expect_err("refused").kind(),
                io::ErrorKind::InvalidInput
            );
        }
    }
}
