//! Numbers that all workers share, in a memory file and found by the hash of a name: the buckets of rates, and the
//! [counts](crate::counts) of requests. Workers read and change them without any system call.
//!
//! A name has its place in a set of eight. If the set is full, the smallest number makes room: that of a bucket is the time at which it
//! will be full, so it has the most tokens. Two workers that take a place at the same moment can lose a token or give one
//! away, and nothing worse. The hash has a secret key, so that no client can choose names that share a set.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fd::AsFd;

use super::shared::{Access, SharedMemory};
use super::siphash::siphash;

/// Their length in the memory file.
pub const NUMBERS_BYTES: u64 = SET_BYTES * (1 + SETS);
/// How many there are.
pub const NUMBERS_MAX: u64 = SETS * PLACES as u64;

const SETS: u64 = 8 * 1024;
const PLACES: usize = 8;
const SET_BYTES: u64 = size_of::<Set>() as u64;
/// How often a worker tries to take a place that others take too.
const TRIES_MAX: usize = 4;

#[repr(C)]
struct Named {
    /// A part of the hash of its name; 0 if it is free.
    tag: AtomicU64,
    number: AtomicU64,
}

type Set = [Named; PLACES];

/// A key for new numbers, which begin with it.
#[must_use]
pub fn new_key() -> [u8; 16] {
    let word = || RandomState::new().build_hasher().finish();
    let mut key = [0; 16];
    key[..8].copy_from_slice(&word().to_ne_bytes());
    key[8..].copy_from_slice(&word().to_ne_bytes());
    key
}

/// The numbers, mapped.
#[derive(Debug)]
pub struct SharedNumbers {
    memory: SharedMemory,
    start_bytes: u64,
    key: [u64; 2],
}

impl SharedNumbers {
    /// Maps those that begin here in a memory file, at a multiple of 4 KiB.
    ///
    /// # Errors
    /// `InvalidInput` for a file that is too short or can become shorter; those of mmap(2).
    pub fn map(file: impl AsFd, start_bytes: u64) -> io::Result<Self> {
        let end_bytes = start_bytes + NUMBERS_BYTES;
        let memory = SharedMemory::map(file, end_bytes, Access::Write)?;
        if memory.backed_bytes() < end_bytes {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the file of numbers is too short"));
        }
        let mut numbers = Self { memory, start_bytes, key: [0; 2] };
        let head =
            numbers.set(0).map(|set| [&set[0].tag, &set[0].number].map(|word| word.load(Ordering::Relaxed)));
        numbers.key = head.unwrap_or_default();
        Ok(numbers)
    }

    /// The number with the name of these parts, 0 if it is new. None if other workers take all places that it could have.
    #[must_use]
    pub fn number(&self, name: &[&[u8]]) -> Option<&AtomicU64> {
        let (set, tag) = self.place(name)?;
        for _ in 0..TRIES_MAX {
            if let Some(found) = found(set, tag) {
                return Some(found);
            }
            let smallest = set.iter().min_by_key(|named| named.number.load(Ordering::Relaxed))?;
            let before = smallest.tag.load(Ordering::Relaxed);
            if smallest.tag.compare_exchange(before, tag, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                smallest.number.store(0, Ordering::Relaxed);
                return Some(&smallest.number);
            }
        }
        None
    }

    /// The number with this name, if there is one.
    #[must_use]
    pub fn find(&self, name: &[&[u8]]) -> Option<&AtomicU64> {
        let (set, tag) = self.place(name)?;
        found(set, tag)
    }

    /// Sets all those to 0 that are not to be kept.
    pub fn retain(&self, is_kept: impl Fn(u64) -> bool) {
        for named in (1..=SETS).filter_map(|place| self.set(place)).flatten() {
            let before = named.number.load(Ordering::Relaxed);
            if before != 0 && !is_kept(before) {
                // If it changes meanwhile, somebody uses it.
                let _ = named.number.compare_exchange(before, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    fn place(&self, name: &[&[u8]]) -> Option<(&Set, u64)> {
        let [place, tag] = siphash(&self.key, name);
        Some((self.set(1 + place % SETS)?, tag.max(1)))
    }

    fn set(&self, place: u64) -> Option<&Set> {
        let at = self.memory.at(self.start_bytes + place * SET_BYTES, SET_BYTES)?;
        // SAFETY: the file backs the set, which is aligned because its page is. All accesses to it are atomic.
        Some(unsafe { at.cast::<Set>().as_ref() })
    }
}

fn found(set: &Set, tag: u64) -> Option<&AtomicU64> {
    let named = set.iter().find(|named| named.tag.load(Ordering::Relaxed) == tag)?;
    Some(&named.number)
}

#[cfg(test)]
mod tests {
    use super::super::shared::sealed_file;
    use super::*;

    fn number(numbers: &SharedNumbers, name: u64) -> &AtomicU64 {
        numbers.number(&[&name.to_le_bytes()]).expect("a number")
    }

    #[test]
    fn workers_share_the_numbers_of_names() {
        let file = sealed_file(NUMBERS_BYTES);
        rustix::io::pwrite(&file, &new_key(), 0).expect("a key");
        let [one, other] = [0, 1].map(|_| SharedNumbers::map(&file, 0).expect("mapped"));
        assert_ne!(one.key, [0; 2]);
        assert_eq!(number(&one, 7).load(Ordering::Relaxed), 0);
        number(&one, 7).store(70, Ordering::Relaxed);
        number(&other, 8).store(80, Ordering::Relaxed);
        let found = [7, 8, 9].map(|name| number(&other, name).load(Ordering::Relaxed));
        assert_eq!(found, [70, 80, 0]);
    }

    #[test]
    fn the_smallest_number_makes_room() {
        let file = sealed_file(NUMBERS_BYTES);
        let numbers = SharedNumbers::map(&file, 0).expect("mapped");
        let names = 4 * NUMBERS_MAX;
        (0..names).for_each(|name| number(&numbers, name).store(1 + name, Ordering::Relaxed));
        // Nearly all of the largest numbers are still there: sets are filled unevenly.
        let kept = |names: std::ops::Range<u64>| {
            names.filter(|name| number(&numbers, *name).load(Ordering::Relaxed) == 1 + name).count() as u64
        };
        let last = kept(names - NUMBERS_MAX / 4..names);
        assert!(last > NUMBERS_MAX / 4 * 99 / 100, "{last}");
    }

    #[test]
    fn a_file_that_is_too_short_is_refused() {
        let refused = SharedNumbers::map(sealed_file(NUMBERS_BYTES - 1), 0).expect_err("refused");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
}
