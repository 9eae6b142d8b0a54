//! The index of the store, shared by processes: which block of which file is in which extent of the memory
//! file of contents ([`super::store_memory`]). One process, the keeper, writes it; workers read it without
//! asking any process. `slots` describes the memory file, and why a reader never sees half an entry.
//!
//! [`TableWriter::remove`] prevents later look-ups from finding an extent, but does not end look-ups under way.
//! So the keeper first removes a block and then sends each reader a message to release it. A look-up that
//! found the block earlier is over when its reader receives the message.

use std::io;

use rustix::fd::AsFd;
use serde::{Deserialize, Serialize};

use super::names::FileState;
pub use super::slots::SLOTS_MAX;
use super::slots::{self, Record, Table, Writer, fold};

/// A block of a file in one state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct BlockKey {
    /// The state of the file.
    pub file: FileState,
    /// Number of the block in the file, starting at 0.
    pub block: u32,
}

/// A range of the memory file of contents.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Extent {
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
}

/// The words of a slot: the key, then the extent. With its links that is one cache line, so that a look-up without
/// collisions costs two of them: the head and the slot.
const WORDS: usize = 7;

#[derive(Debug)]
struct Block;

impl Record<WORDS> for Block {
    const WHAT: &'static str = "store table";
    /// "FlashTbl".
    const MAGIC: u64 = u64::from_le_bytes(*b"FlashTbl");
    const VERSION: u32 = 1;
    const SHARED_WORDS: u64 = 0;

    /// A folded multiplication for every two words. An attacker who does not know
    /// the key cannot choose files that share a bucket.
    #[inline]
    fn hash(hash_key: &[u64; 2], words: &[u64; WORDS]) -> u32 {
        let [start, other] = *hash_key;
        let [device, inode, size_bytes, modified_ns, changed_ns, _, last] = *words;
        let hash = fold(start ^ inode, other ^ device);
        let hash = fold(hash ^ size_bytes, other ^ modified_ns);
        let hash = fold(hash ^ u64::from(block_of(last)), other ^ changed_ns);
        (hash ^ hash >> 32) as u32
    }

    #[inline]
    fn is_same(one: &[u64; WORDS], other: &[u64; WORDS]) -> bool {
        one[..5] == other[..5] && block_of(one[6]) == block_of(other[6])
    }
}

/// The number of the block, in the word that it shares with the length of its extent.
#[inline]
fn block_of(word: u64) -> u32 {
    word as u32
}

#[inline]
fn to_words(key: &BlockKey, extent: Extent) -> [u64; WORDS] {
    let [device, inode, size_bytes, modified_ns, changed_ns] = key.file.to_words();
    let last = u64::from(key.block) | u64::from(extent.length) << 32;
    [device, inode, size_bytes, modified_ns, changed_ns, extent.offset, last]
}

#[inline]
fn from_words(words: &[u64; WORDS]) -> (BlockKey, Extent) {
    let [device, inode, size_bytes, modified_ns, changed_ns, offset, last] = *words;
    let file = FileState::from_words([device, inode, size_bytes, modified_ns, changed_ns]);
    (BlockKey { file, block: block_of(last) }, Extent { offset, length: (last >> 32) as u32 })
}

/// The length of the memory file of a table with `slots_max` slots; None for 0 slots and for more than
/// [`SLOTS_MAX`].
#[must_use]
pub fn file_bytes(slots_max: u32) -> Option<u64> {
    slots::file_bytes::<Block, WORDS>(slots_max)
}

/// A worker's view of a table. Several threads can use it.
#[derive(Debug)]
pub struct TableReader {
    table: Table<Block, WORDS>,
}

impl TableReader {
    /// Maps the table in `fd`, read-only.
    ///
    /// Errors: `InvalidData` with the reason if this version does not know the table; `InvalidInput` for a
    /// file without F_SEAL_SHRINK; any of fstat(2) and mmap(2).
    pub fn map(fd: impl AsFd) -> io::Result<Self> {
        Ok(Self { table: slots::map_to_read(fd)? })
    }

    /// The slot and the extent of a block. None if the store does not have it, and sometimes while the writer
    /// changes its chain.
    #[inline]
    #[must_use]
    pub fn find(&self, key: &BlockKey) -> Option<(u32, Extent)> {
        let (slot, words) = self.table.find(&to_words(key, NOWHERE))?;
        Some((slot, from_words(&words).1))
    }
}

/// Stands for the extent in the words of a key.
const NOWHERE: Extent = Extent { offset: 0, length: 0 };

/// The keeper's view of a table. There must be only one writer at a time; a second one damages chains, but
/// not memory.
#[derive(Debug)]
pub struct TableWriter {
    writer: Writer<Block, WORDS>,
}

impl TableWriter {
    /// Makes a table of `slots_max` slots in a memory file that is empty, or that has the length of
    /// [`file_bytes`] and was never written.
    ///
    /// Errors: `InvalidInput` for an invalid number of slots, and for a file without F_SEAL_SHRINK;
    /// `AlreadyExists` if the file already has a table; any of ftruncate(2) and mmap(2).
    pub fn create(fd: impl AsFd, slots_max: u32) -> io::Result<Self> {
        Ok(Self { writer: Writer::create(fd, slots_max)? })
    }

    /// Takes over the table of another writer, wherever that writer stopped. All chains are linked again;
    /// meanwhile readers miss blocks. This takes the time of reading each slot that was ever used.
    ///
    /// Errors: as for [`TableReader::map`].
    pub fn open(fd: impl AsFd) -> io::Result<Self> {
        Ok(Self { writer: Writer::open(fd)? })
    }

    /// The number of slots.
    #[must_use]
    pub fn slots_max(&self) -> u32 {
        self.writer.slots_max()
    }

    /// No slot from this number on was ever used, so a scan of all slots can stop there.
    #[must_use]
    pub fn slots_used(&self) -> u32 {
        self.writer.slots_used()
    }

    /// The entry in a slot; None if it is empty. Does not fill holes of the file.
    #[must_use]
    pub fn get(&self, slot: u32) -> Option<(BlockKey, Extent)> {
        self.writer.get(slot).map(|words| from_words(&words))
    }

    /// Makes readers find `key` at `extent` from now on, instead of the slot's old entry. The extent must be
    /// completely written before. No other slot may have the key, or readers can find either.
    ///
    /// Slots should be used from the lowest number on, because all slots below the highest used one cost
    /// memory.
    ///
    /// # Panics
    ///
    /// If the table does not have the slot.
    pub fn put(&mut self, slot: u32, key: &BlockKey, extent: Extent) {
        self.writer.put(slot, &to_words(key, extent));
    }

    /// Empties a slot. Its entry can no longer be found, except by a look-up under way (see the module). Has
    /// no effect on an empty slot, or one that the table does not have.
    pub fn remove(&mut self, slot: u32) {
        self.writer.remove(slot);
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
