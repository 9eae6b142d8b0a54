//! The buckets of rates, of requests or of bytes: a memory file of numbers that all workers share, found by the hash of a name. Workers read and
//! change it without any system call.
//!
//! A name has its place in a set of eight. If the set is full, the bucket with the smallest number makes room: its number is the time
//! at which it will be full, so it has the most tokens. Two workers that take a place at the same moment can lose a token or give one
//! away, and nothing worse. The hash has a secret key, so that no client can choose names that share a set.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fd::AsFd;

use super::shared::{Access, SharedMemory};
use super::siphash::siphash;

/// The length of the memory file.
pub const BUCKETS_FILE_BYTES: u64 = SET_BYTES * (1 + SETS);
/// How many buckets there are.
pub const BUCKETS_MAX: u64 = SETS * PLACES as u64;

const SETS: u64 = 8 * 1024;
const PLACES: usize = 8;
const SET_BYTES: u64 = size_of::<Set>() as u64;
/// How often a worker tries to take a place that others take too.
const TRIES_MAX: usize = 4;

#[repr(C)]
struct Bucket {
    /// A part of the hash of its name; 0 if it is free.
    tag: AtomicU64,
    number: AtomicU64,
}

type Set = [Bucket; PLACES];

/// A key for a new file, which begins with it.
#[must_use]
pub fn new_key() -> [u8; 16] {
    let word = || RandomState::new().build_hasher().finish();
    let mut key = [0; 16];
    key[..8].copy_from_slice(&word().to_ne_bytes());
    key[8..].copy_from_slice(&word().to_ne_bytes());
    key
}

/// The buckets, mapped.
#[derive(Debug)]
pub struct SharedBuckets {
    memory: SharedMemory,
    key: [u64; 2],
}

impl SharedBuckets {
    /// Maps the memory file.
    ///
    /// # Errors
    /// `InvalidInput` for a file that is too short or can become shorter; those of mmap(2).
    pub fn map(file: impl AsFd) -> io::Result<Self> {
        let memory = SharedMemory::map(file, BUCKETS_FILE_BYTES, Access::Write)?;
        if memory.backed_bytes() < BUCKETS_FILE_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the file of buckets is too short"));
        }
        let mut buckets = Self { memory, key: [0; 2] };
        let head =
            buckets.set(0).map(|set| [&set[0].tag, &set[0].number].map(|word| word.load(Ordering::Relaxed)));
        buckets.key = head.unwrap_or_default();
        Ok(buckets)
    }

    /// The number of the bucket with this name, 0 if it is new. None if other workers take all places that it could have.
    #[must_use]
    pub fn bucket(&self, name: &[u8]) -> Option<&AtomicU64> {
        let [place, tag] = siphash(&self.key, &[name]);
        let tag = tag.max(1);
        let set = self.set(1 + place % SETS)?;
        for _ in 0..TRIES_MAX {
            if let Some(bucket) = set.iter().find(|bucket| bucket.tag.load(Ordering::Relaxed) == tag) {
                return Some(&bucket.number);
            }
            let fullest = set.iter().min_by_key(|bucket| bucket.number.load(Ordering::Relaxed))?;
            let before = fullest.tag.load(Ordering::Relaxed);
            if fullest.tag.compare_exchange(before, tag, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                fullest.number.store(0, Ordering::Relaxed);
                return Some(&fullest.number);
            }
        }
        None
    }

    fn set(&self, place: u64) -> Option<&Set> {
        let at = self.memory.at(place * SET_BYTES, SET_BYTES)?;
        // SAFETY: the file backs the set, which is aligned because its page is. All accesses to it are atomic.
        Some(unsafe { at.cast::<Set>().as_ref() })
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

    use super::*;

    fn file(bytes: u64) -> crate::OwnedFd {
        let file = memfd_create(c"buckets", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a file");
        ftruncate(&file, bytes).expect("a length");
        fcntl_add_seals(&file, SealFlags::SHRINK).expect("a seal");
        file
    }

    fn number(buckets: &SharedBuckets, name: u64) -> &AtomicU64 {
        buckets.bucket(&name.to_le_bytes()).expect("a bucket")
    }

    #[test]
    fn workers_share_the_numbers_of_names() {
        let file = file(BUCKETS_FILE_BYTES);
        rustix::io::pwrite(&file, &new_key(), 0).expect("a key");
        let [one, other] = [0, 1].map(|_| SharedBuckets::map(&file).expect("mapped"));
        assert_ne!(one.key, [0; 2]);
        assert_eq!(number(&one, 7).load(Ordering::Relaxed), 0);
        number(&one, 7).store(70, Ordering::Relaxed);
        number(&other, 8).store(80, Ordering::Relaxed);
        let found = [7, 8, 9].map(|name| number(&other, name).load(Ordering::Relaxed));
        assert_eq!(found, [70, 80, 0]);
    }

    #[test]
    fn the_smallest_number_makes_room() {
        let file = file(BUCKETS_FILE_BYTES);
        let buckets = SharedBuckets::map(&file).expect("mapped");
        let names = 4 * BUCKETS_MAX;
        (0..names).for_each(|name| number(&buckets, name).store(1 + name, Ordering::Relaxed));
        // Nearly all of the largest numbers are still there: sets are filled unevenly.
        let kept = |names: std::ops::Range<u64>| {
            names.filter(|name| number(&buckets, *name).load(Ordering::Relaxed) == 1 + name).count() as u64
        };
        let last = kept(names - BUCKETS_MAX / 4..names);
        assert!(last > BUCKETS_MAX / 4 * 99 / 100, "{last}");
    }

    #[test]
    fn a_file_that_is_too_short_is_refused() {
        let refused = SharedBuckets::map(file(BUCKETS_FILE_BYTES - 1)).expect_err("refused");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
}
