//! How many requests each worker is answering for rules that bound them: a memory file that all workers share. A worker writes its own
//! counts and reads those of the others, without any system call.
//!
//! The file begins with a word for each worker, its term, and a word that changes with them. The [numbers](crate::numbers) follow: the name
//! of a count has the place of its worker, and the count has the term of that. The supervisor ends the term of a worker that has ended, and
//! so its counts no longer hold, however it ended.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::{Ordering, fence};

use rustix::fd::AsFd;

use super::numbers::{NUMBERS_BYTES, SharedNumbers};
use super::shared::{Access, SharedMemory};
use super::uplink_users::{WORKERS_MAX, word_at};

/// Where the word is that changes with the terms.
pub const CHANGES_AT: u64 = word_at(WORKERS_MAX);
/// Where the numbers begin in the memory file.
pub const NUMBERS_AT: u64 = 12288;
/// The length of the memory file.
pub const COUNTS_FILE_BYTES: u64 = NUMBERS_AT + NUMBERS_BYTES;

/// The counts of all workers, as the worker at one place uses them.
#[derive(Debug)]
pub struct SharedCounts {
    /// The terms, and the word that changes with them.
    memory: SharedMemory,
    numbers: SharedNumbers,
    /// Its own place and term.
    own: (usize, u32),
    /// Those of the others, as they were with this word.
    others: Vec<(usize, u32)>,
    changes: Option<u32>,
}

impl SharedCounts {
    /// Maps the memory file for the worker at `place`, whose term has begun.
    ///
    /// # Errors
    /// `InvalidInput` for a place that the file does not have, or for a file that is too short or can become shorter; those of mmap(2).
    pub fn map(file: impl AsFd, place: usize) -> io::Result<Self> {
        let memory = SharedMemory::map(&file, NUMBERS_AT, Access::Write)?;
        let numbers = SharedNumbers::map(&file, NUMBERS_AT)?;
        let mut counts = Self { memory, numbers, own: (place, 0), others: Vec::new(), changes: None };
        let why = "the file of counts has no place for this worker";
        let term =
            counts.terms().nth(place).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        counts.own = (place, term);
        counts.forget_ended();
        Ok(counts)
    }

    /// Sets the count of this worker with this name. Returns the sum of those of the others.
    pub fn set(&mut self, name: &[u8], count: u32) -> u32 {
        let place_bytes = |place: usize| (place as u32).to_le_bytes();
        let (place, term) = self.own;
        if let Some(own) = self.numbers.number(&[name, &place_bytes(place)]) {
            own.store(u64::from(count) << 32 | u64::from(term), Ordering::SeqCst);
        }
        // Either this worker sees the counts of the others, or they see this one.
        fence(Ordering::SeqCst);
        self.look_for_others();
        let of_others = self.others.iter().filter_map(|(place, term)| {
            let found = self.numbers.find(&[name, &place_bytes(*place)])?.load(Ordering::SeqCst);
            (found as u32 == *term).then_some((found >> 32) as u32)
        });
        of_others.fold(0, u32::saturating_add)
    }

    /// Makes room of counts whose worker has ended: the smallest count makes room for others, and a large one that does not hold would stay.
    fn forget_ended(&self) {
        let terms: HashSet<u32> = self.terms().collect();
        let last = terms.iter().copied().max().unwrap_or_default();
        // A later term is that of a worker that has begun meanwhile.
        self.numbers.retain(|count| terms.contains(&(count as u32)) || count as u32 > last);
    }

    fn look_for_others(&mut self) {
        let changes = self.memory.word(CHANGES_AT).map(|word| word.load(Ordering::Acquire));
        if self.changes != changes {
            self.changes = changes;
            let own = self.own.0;
            let others = self.terms().enumerate().filter(|(place, term)| *term != 0 && *place != own);
            self.others = others.collect();
        }
    }

    /// The terms of all places; 0 where there is no worker.
    fn terms(&self) -> impl Iterator<Item = u32> {
        let words = (0..WORKERS_MAX).filter_map(|place| self.memory.word(word_at(place)));
        words.map(|word| word.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::super::numbers::new_key;
    use super::super::shared::sealed_file;
    use super::*;

    #[test]
    fn the_counts_of_a_worker_hold_for_its_term() {
        let file = sealed_file(COUNTS_FILE_BYTES);
        rustix::io::pwrite(&file, &new_key(), NUMBERS_AT).expect("a key");
        let changes = std::cell::Cell::new(0_u32);
        let set_term = |place: u64, term: u32| {
            rustix::io::pwrite(&file, &term.to_ne_bytes(), word_at(place as usize)).expect("a term");
            changes.set(changes.get() + 1);
            rustix::io::pwrite(&file, &changes.get().to_ne_bytes(), CHANGES_AT).expect("a change");
        };
        (0..3).for_each(|place| set_term(place, 7 + place as u32));
        let mut workers = [0, 1, 2].map(|place| SharedCounts::map(&file, place).expect("mapped"));
        assert_eq!(workers[0].set(b"a", 3), 0);
        assert_eq!((workers[1].set(b"a", 4), workers[1].set(b"b", 9)), (3, 0));
        assert_eq!(workers[2].set(b"a", 0), 7);
        assert_eq!(workers[0].set(b"a", 2), 4);
        // A worker that ended, and the next one at its place.
        set_term(1, 0);
        assert_eq!(workers[2].set(b"a", 1), 2);
        set_term(1, 20);
        assert_eq!(workers[2].set(b"a", 1), 2);
        let mut next = SharedCounts::map(&file, 1).expect("mapped");
        let of_ended = |counts: &SharedCounts| {
            let found = counts.numbers.find(&[b"b", &1_u32.to_le_bytes()]).expect("a number");
            found.load(Ordering::Relaxed)
        };
        assert_eq!(of_ended(&next), 0, "it makes room");
        assert_eq!((next.set(b"a", 5), workers[2].set(b"a", 1)), (3, 7));
    }

    #[test]
    fn a_place_that_there_is_not_is_refused() {
        let whole = sealed_file(COUNTS_FILE_BYTES);
        for (file, place) in [(&whole, WORKERS_MAX), (&sealed_file(NUMBERS_AT), 0), (&sealed_file(0), 0)] {
            assert_eq!(
                SharedCounts::map(file, place).expect_err("refused").kind(),
                io::ErrorKind::InvalidInput
            );
        }
    }
}
