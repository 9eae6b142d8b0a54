//! The names that Flash knows, shared by processes: what a path of a site leads to, so that a request is
//! answered without asking the kernel. One process, the keeper, writes the table; workers and helpers read it.
//! `slots` describes the memory file, and why a reader never sees half an entry.
//!
//! No path is stored: a name is found by a keyed hash of 128 bits (`siphash`) of the site and the
//! path, which nobody can find a second name for without the key. A precompressed form of a file is a further
//! entry with the same hash and another part.
//!
//! **An entry can be true without a check.** A process watches the files of a site and tells the keeper which names
//! change, which the keeper forgets. Then the keeper writes until when it knows all changes: the *watch* of a part of the
//! site, two words that belong to the whole table. An entry that was found under a watch has the number of it. As long as
//! that watch is in force, the entry was true at its time.
//!
//! **A reader that has a copy of an entry need not look for it again.** The keeper counts what it writes about names, and what it
//! forgets because it changed, in shards by their hashes. While the count of an entry's shard stays and its watch is in force,
//! the copy is true.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::fd::AsFd;
use serde::{Deserialize, Serialize};

use super::siphash::siphash;
use super::slots::{self, Record, Table, Writer};

/// The hash of a name, or of a site.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct NameHash(pub [u64; 2]);

/// The state of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct FileState {
    /// Device, as in [`Stat`](super::file::Stat).
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Time of the last change of the content, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// Time of the last change of content or metadata, in nanoseconds since 1970.
    pub changed_ns: i64,
}

impl FileState {
    /// The state as words of a table.
    #[inline]
    pub(crate) fn to_words(self) -> [u64; 5] {
        let Self { device, inode, size_bytes, modified_ns, changed_ns } = self;
        [device, inode, size_bytes, modified_ns.cast_unsigned(), changed_ns.cast_unsigned()]
    }

    /// The state in these words.
    #[inline]
    pub(crate) fn from_words([device, inode, size_bytes, modified_ns, changed_ns]: [u64; 5]) -> Self {
        let (modified_ns, changed_ns) = (modified_ns.cast_signed(), changed_ns.cast_signed());
        Self { device, inode, size_bytes, modified_ns, changed_ns }
    }
}

/// The facts about a name, or about a precompressed form of its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NameEntry {
    /// The hash of the name.
    pub hash: NameHash,
    /// 0 for the name itself, and for a form the number of its coding, counted from 1.
    pub part: u8,
    /// The kind of its target: a number of its finder, which this module does not interpret.
    pub kind: u8,
    /// Which forms the file has, one bit for each coding.
    pub forms: u8,
    /// The number of the index file that was found, counted from 1, or 0.
    pub index: u8,
    /// The state of the file.
    pub state: FileState,
    /// When this was last known to be true, in milliseconds of the monotonic clock. All parts of one finding
    /// have the same time.
    pub confirmed_ms: u64,
    /// The number of the watch under which this was found; 0 for none.
    pub watch: u32,
}

/// Places for watches: the remainder of a number by their count is its place.
pub const WATCH_PLACES: u16 = 8192;

/// The shared word that counts the watches in force.
const COUNT_AT: u64 = 2 * WATCH_PLACES as u64;
/// The shared words that count changes of names, by shard.
const CHANGES_AT: u64 = COUNT_AT + 1;
/// Their counts take 8 KiB, which stay in the caches of a core.
const SHARDS: u16 = 1024;

const WORDS: usize = 9;

#[derive(Debug)]
struct Name;

impl Record<WORDS> for Name {
    const WHAT: &'static str = "names table";
    /// "FlashNam".
    const MAGIC: u64 = u64::from_le_bytes(*b"FlashNam");
    const VERSION: u32 = 3;
    /// For each place of a watch the last number, with a bit for whether it is in force, and the time; how many are
    /// in force; and the changes of each shard of names.
    const SHARED_WORDS: u64 = CHANGES_AT + SHARDS as u64;

    /// The words of the hash are keyed already.
    #[inline]
    fn hash(_: &[u64; 2], words: &[u64; WORDS]) -> u32 {
        (words[0] ^ words[8] >> 8 & 0xff) as u32
    }

    #[inline]
    fn is_same(one: &[u64; WORDS], other: &[u64; WORDS]) -> bool {
        one[..2] == other[..2] && one[8] >> 8 & 0xff == other[8] >> 8 & 0xff
    }
}

fn to_words(entry: &NameEntry) -> [u64; WORDS] {
    let NameEntry { hash, part, kind, forms, index, state, confirmed_ms, watch } = *entry;
    let marks = u64::from(u32::from_le_bytes([kind, part, forms, index])) | u64::from(watch) << 32;
    let [device, inode, size_bytes, modified_ns, changed_ns] = state.to_words();
    [hash.0[0], hash.0[1], device, inode, size_bytes, modified_ns, changed_ns, confirmed_ms, marks]
}

fn from_words(words: &[u64; WORDS]) -> NameEntry {
    let [first, second, device, inode, size_bytes, modified_ns, changed_ns, confirmed_ms, marks] = *words;
    let [kind, part, forms, index] = (marks as u32).to_le_bytes();
    let state = FileState::from_words([device, inode, size_bytes, modified_ns, changed_ns]);
    let watch = (marks >> 32) as u32;
    NameEntry { hash: NameHash([first, second]), part, kind, forms, index, state, confirmed_ms, watch }
}

/// The words of a name that is looked for.
fn key(hash: NameHash, part: u8) -> [u64; WORDS] {
    let [first, second] = hash.0;
    [first, second, 0, 0, 0, 0, 0, 0, u64::from(part) << 8]
}

/// The length of the memory file of a table for `slots_max` entries; None for 0 and for more than
/// [`SLOTS_MAX`](super::table::SLOTS_MAX).
#[must_use]
pub fn file_bytes(slots_max: u32) -> Option<u64> {
    slots::file_bytes::<Name, WORDS>(slots_max)
}

/// Bytes of an entry in the table, with its share of the heads.
pub const ENTRY_BYTES: u64 = 8 + 8 * WORDS as u64 + 8;

/// The words of a watch: its number, with a bit for whether it is in force, and its time.
fn words_of(table: &Table<Name, WORDS>, watch: u32) -> Option<(&AtomicU64, &AtomicU64)> {
    let at = u64::from(watch % u32::from(WATCH_PLACES)) * 2;
    Some((table.shared(at)?, table.shared(at + 1)?))
}

/// The shard of a name.
fn shard(hash: NameHash) -> u16 {
    (hash.0[1] % u64::from(SHARDS)) as u16
}

fn in_force(watch: u32) -> u64 {
    u64::from(watch) << 1 | 1
}

/// The view of a process that looks names up. Several threads can use it.
#[derive(Debug)]
pub struct NamesReader {
    table: Table<Name, WORDS>,
}

impl NamesReader {
    /// Maps the table in `fd`, read-only.
    ///
    /// Errors: `InvalidData` with the reason if this version does not know the table; `InvalidInput` for a
    /// file without F_SEAL_SHRINK; any of fstat(2) and mmap(2).
    pub fn map(fd: impl AsFd) -> io::Result<Self> {
        Ok(Self { table: slots::map_to_read(fd)? })
    }

    /// The hash of a site, given everything that decides what its names lead to.
    #[must_use]
    pub fn site(&self, identity: &[u8]) -> NameHash {
        NameHash(siphash(self.table.hash_key(), &[b"site", identity]))
    }

    /// The hash of a path of a site.
    #[inline]
    #[must_use]
    pub fn name(&self, site: NameHash, path: &[u8]) -> NameHash {
        let [first, second] = site.0.map(u64::to_le_bytes);
        NameHash(siphash(self.table.hash_key(), &[&first, &second, path]))
    }

    /// The facts about a name or one of its parts.
    #[inline]
    #[must_use]
    pub fn find(&self, hash: NameHash, part: u8) -> Option<NameEntry> {
        self.table.find(&key(hash, part)).map(|(_, words)| from_words(&words))
    }

    /// The shard of a name, and the changes of its names so far. A copy of an entry that is found afterwards is true until that
    /// number changes.
    #[must_use]
    pub fn shard(&self, hash: NameHash) -> (u16, u64) {
        let shard = shard(hash);
        (shard, self.changes(shard))
    }

    /// The changes of the names of a shard so far.
    #[inline]
    #[must_use]
    pub fn changes(&self, shard: u16) -> u64 {
        // Acquire: what is read afterwards is at least as new.
        self.table.shared(CHANGES_AT + u64::from(shard)).map_or(0, |count| count.load(Ordering::Acquire))
    }

    /// Whether any watch is in force.
    #[must_use]
    pub fn has_watches(&self) -> bool {
        self.table.shared(COUNT_AT).is_some_and(|count| count.load(Ordering::Relaxed) > 0)
    }

    /// Until when all changes under a watch are known, in milliseconds of the monotonic clock; None if it is not in
    /// force.
    #[inline]
    #[must_use]
    pub fn watched_ms(&self, watch: u32) -> Option<u64> {
        if watch == 0 {
            return None;
        }
        let (number, until_ms) = words_of(&self.table, watch)?;
        let is_there = || number.load(Ordering::Relaxed) == in_force(watch);
        let is_before = is_there();
        // Pairs with the release stores of `extend_watch`: the names that changed before this time are not found.
        fence(Ordering::Acquire);
        let until_ms = until_ms.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        // Otherwise the time can be that of the next watch at this place.
        (is_before && is_there()).then_some(until_ms)
    }
}

/// The keeper's view of the table. There must be only one writer at a time.
#[derive(Debug)]
pub struct NamesWriter {
    writer: Writer<Name, WORDS>,
}

impl NamesWriter {
    /// Makes a table for `slots_max` entries. Errors: as for
    /// [`TableWriter::create`](super::table::TableWriter::create).
    pub fn create(fd: impl AsFd, slots_max: u32) -> io::Result<Self> {
        Ok(Self { writer: Writer::create(fd, slots_max)? })
    }

    /// Takes over the table of another writer, wherever that writer stopped.
    ///
    /// Errors: as for [`NamesReader::map`].
    pub fn open(fd: impl AsFd) -> io::Result<Self> {
        Ok(Self { writer: Writer::open(fd)? })
    }

    /// The number of slots.
    #[must_use]
    pub fn slots_max(&self) -> u32 {
        self.writer.slots_max()
    }

    /// No slot from this number on was ever used.
    #[must_use]
    pub fn slots_used(&self) -> u32 {
        self.writer.slots_used()
    }

    /// The entry in a slot; None if it is empty.
    #[must_use]
    pub fn get(&self, slot: u32) -> Option<NameEntry> {
        self.writer.get(slot).map(|words| from_words(&words))
    }

    /// The slot and the entry of a name or one of its parts.
    #[must_use]
    pub fn find(&self, hash: NameHash, part: u8) -> Option<(u32, NameEntry)> {
        self.writer.table().find(&key(hash, part)).map(|(slot, words)| (slot, from_words(&words)))
    }

    /// Makes readers find this entry from now on, instead of the slot's old one. No other slot may have its
    /// name and part.
    ///
    /// # Panics
    ///
    /// If the table does not have the slot.
    pub fn put(&mut self, slot: u32, entry: &NameEntry) {
        self.writer.put(slot, &to_words(entry));
    }

    /// Ends all watches of an earlier keeper. Returns a number for each place that no entry has.
    pub fn end_watches(&mut self) -> Vec<u32> {
        let places = u32::from(WATCH_PLACES);
        let next = |place| {
            let last = words_of(self.writer.table(), place).map_or(0, |(number, _)| {
                let last = (number.load(Ordering::Relaxed) >> 1) as u32;
                if last > 0 {
                    number.store(u64::from(last) << 1, Ordering::Release);
                }
                last
            });
            // 0 is no number.
            if last == 0 { place + places } else { last.checked_add(places).unwrap_or(place + places) }
        };
        let numbers = (0..places).map(next).collect();
        self.count(|_| 0);
        numbers
    }

    /// Counts a change of a name, after its entries have changed: no copy of them is true from now on.
    pub fn count_change(&mut self, hash: NameHash) {
        if let Some(count) = self.writer.table().shared(CHANGES_AT + u64::from(shard(hash))) {
            // Release: a reader of the new number finds the new entries.
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Release);
        }
    }

    /// All changes under a watch up to this time are known, and their names were forgotten.
    pub fn extend_watch(&mut self, watch: u32, until_ms: u64) {
        let Some((number, time)) = words_of(self.writer.table(), watch) else { return };
        // Release: a reader of either finds no name that was forgotten before.
        time.store(until_ms, Ordering::Release);
        if number.swap(in_force(watch), Ordering::Release) & 1 == 0 {
            self.count(|count| count + 1);
        }
    }

    /// Whether a watch is in force.
    #[must_use]
    pub fn is_watched(&self, watch: u32) -> bool {
        let is_its = |(number, _): (&AtomicU64, _)| number.load(Ordering::Relaxed) == in_force(watch);
        watch != 0 && words_of(self.writer.table(), watch).is_some_and(is_its)
    }

    /// Ends a watch: its entries need checks from now on.
    pub fn end_watch(&mut self, watch: u32) {
        let Some((number, _)) = words_of(self.writer.table(), watch) else { return };
        if number.swap(u64::from(watch) << 1, Ordering::Release) & 1 == 1 {
            self.count(|count| count.saturating_sub(1));
        }
    }

    /// Changes the number of watches in force. There is only one writer.
    fn count(&self, next: impl Fn(u64) -> u64) {
        if let Some(count) = self.writer.table().shared(COUNT_AT) {
            count.store(next(count.load(Ordering::Relaxed)), Ordering::Relaxed);
        }
    }

    /// Empties a slot.
    pub fn remove(&mut self, slot: u32) {
        self.writer.remove(slot);
    }
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;
