//! The index of the store, shared by processes: which block of which file is at which place of the memory
//! file of contents ([`super::store_memory`]). One process, the keeper, writes it; workers read it without
//! asking any process.
//!
//! It is a memory file of its own (memfd with F_SEAL_SHRINK) with three parts:
//!
//! ```text
//! page 0    magic, version, sizes, key of the hash, slots ever used
//! page 1    heads: for each bucket the number of its first slot plus one, 0 for none
//! then      slots of 64 bytes: sequence number, next slot of the bucket, key, place
//! ```
//!
//! Slots that were never used are in holes of the file and cost no memory. The header tells the writer where
//! they begin, because reading one would fill its hole.
//!
//! **The sequence number of a slot is odd if the slot is full, and even if it is empty or being changed.**
//! The writer makes it even before it changes the key or the place, and odd afterwards. If a reader finds it
//! odd and unchanged before and after reading the slot, it has read one consistent entry (a seqlock).
//! Anything else is a miss, and a miss is always a correct answer, because a helper then asks the keeper.
//!
//! **The writer can die between any two stores.** The sequence number alone says whether a slot is full, so a
//! half-written slot is empty. [`TableWriter::open`] repairs the chains by linking all full slots again.
//!
//! [`TableWriter::remove`] prevents later look-ups from finding a place, but does not end look-ups under way.
//! So the keeper first removes a block and then sends each reader a message to release it. A look-up that
//! found the block earlier is over when its reader receives the message.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use rustix::fd::AsFd;
use rustix::fs::{fstat, ftruncate};
use serde::{Deserialize, Serialize};

use super::shared::{Access, SharedMemory};

/// A block of a file in one state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct BlockKey {
    /// Device, as in [`Stat`](super::file::Stat).
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Length of the whole file in bytes.
    pub size_bytes: u64,
    /// Time of the last change of the content, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// Time of the last change of content or metadata, in nanoseconds since 1970.
    pub changed_ns: i64,
    /// Number of the block in the file, starting at 0.
    pub block: u32,
}

/// A range of the memory file of contents.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Place {
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
}

/// Maximum number of slots in a table.
pub const SLOTS_MAX: u32 = 1 << 28;

/// How many slots a look-up visits before it gives up. Chains have one slot on average; a longer chain is an
/// attack on the hash, or a loop in a damaged file.
const STEPS_MAX: u32 = 64;

/// The number at the start of a table: "FlashTbl".
const MAGIC: u64 = u64::from_le_bytes(*b"FlashTbl");

/// The version of the layout and of the hash. Processes of two versions of Flash share a table during an
/// upgrade.
const VERSION: u32 = 1;

const PAGE_BYTES: u64 = 4096;

#[repr(C)]
#[derive(Debug)]
struct Header {
    /// Written last: without it the header is incomplete.
    magic: AtomicU64,
    version: AtomicU32,
    slots_max: AtomicU32,
    buckets: AtomicU32,
    /// No slot from this number on was ever used.
    slots_used: AtomicU32,
    hash_key: [AtomicU64; 2],
}

/// One cache line, so that a look-up without collisions costs two of them: the head and the slot.
#[repr(C)]
#[derive(Debug)]
struct Slot {
    sequence: AtomicU32,
    /// The number of the next slot of the bucket plus one; 0 at the end.
    next: AtomicU32,
    device: AtomicU64,
    inode: AtomicU64,
    size_bytes: AtomicU64,
    modified_ns: AtomicU64,
    changed_ns: AtomicU64,
    offset: AtomicU64,
    block: AtomicU32,
    length: AtomicU32,
}

const SLOT_BYTES: u64 = size_of::<Slot>() as u64;
const _: () = assert!(SLOT_BYTES == 64 && size_of::<Header>() as u64 <= PAGE_BYTES);

/// The sizes of a table's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    slots_max: u32,
    buckets: u32,
}

impl Layout {
    fn new(slots_max: u32) -> Option<Self> {
        (1..=SLOTS_MAX)
            .contains(&slots_max)
            .then(|| Self { slots_max, buckets: slots_max.next_power_of_two() })
    }

    /// Heads take whole pages, so that slots are aligned to cache lines.
    fn slots_offset(self) -> u64 {
        PAGE_BYTES + (u64::from(self.buckets) * 4).next_multiple_of(PAGE_BYTES)
    }

    fn file_bytes(self) -> u64 {
        self.slots_offset() + u64::from(self.slots_max) * SLOT_BYTES
    }
}

/// The length of the memory file of a table with `slots_max` slots; None for 0 slots and for more than
/// [`SLOTS_MAX`].
#[must_use]
pub fn file_bytes(slots_max: u32) -> Option<u64> {
    Layout::new(slots_max).map(Layout::file_bytes)
}

/// A mapped table. Its sizes were checked when it was mapped: whatever the file contains later, no access
/// goes beyond them.
#[derive(Debug)]
struct Table {
    memory: SharedMemory,
    layout: Layout,
    hash_key: [u64; 2],
}

impl Table {
    /// Maps a table and checks its header.
    ///
    /// Errors: `InvalidData` with the reason; any of `SharedMemory::map`.
    fn map(file: impl AsFd, access: Access) -> io::Result<Self> {
        let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, format!("store table: {what}"));
        let too_short = |bytes| wrong(format!("the file has {bytes} bytes, too few for a header"));
        let size_bytes = u64::try_from(fstat(&file)?.st_size).unwrap_or(0);
        if size_bytes < PAGE_BYTES {
            return Err(too_short(size_bytes));
        }
        let memory = SharedMemory::map(&file, size_bytes, access)?;
        // The file may have been cut before it was sealed; only this length is permanent.
        let size_bytes = memory.backed_bytes();
        let Some(header) = header_in(&memory) else { return Err(too_short(size_bytes)) };
        let magic = header.magic.load(Ordering::Relaxed);
        // Pairs with the release store of the magic number: the rest of the header is read after it.
        fence(Ordering::Acquire);
        if magic != MAGIC {
            return Err(wrong(format!("it begins with {magic:#x}, not with {MAGIC:#x}")));
        }
        let version = header.version.load(Ordering::Relaxed);
        if version != VERSION {
            return Err(wrong(format!("it has version {version}, but only version {VERSION} is known")));
        }
        let slots_max = header.slots_max.load(Ordering::Relaxed);
        let layout = Layout::new(slots_max).ok_or_else(|| {
            wrong(format!("its header says {slots_max} slots, but only 1 to {SLOTS_MAX} are possible"))
        })?;
        let buckets = header.buckets.load(Ordering::Relaxed);
        if buckets != layout.buckets {
            return Err(wrong(format!("its header says {buckets} buckets, not {}", layout.buckets)));
        }
        let expected = layout.file_bytes();
        if size_bytes < expected {
            return Err(wrong(format!(
                "the file has {size_bytes} bytes, but {slots_max} slots need {expected}"
            )));
        }
        let hash_key = [0, 1].map(|n: usize| header.hash_key[n].load(Ordering::Relaxed));
        Ok(Self { memory, layout, hash_key })
    }

    /// How many slots from the first on were ever used. Never None, because a mapped table has its header.
    fn slots_used(&self) -> Option<&AtomicU32> {
        Some(&header_in(&self.memory)?.slots_used)
    }

    /// The head of the bucket of a hash. Never None, because the layout fits in the mapping.
    #[inline]
    fn head(&self, hash: u32) -> Option<&AtomicU32> {
        let bucket = hash & (self.layout.buckets - 1);
        let at = self.memory.at(PAGE_BYTES + u64::from(bucket) * 4, 4)?;
        // SAFETY: the file backs the word, which is aligned because its page is. All other accesses to it are
        // atomic too.
        Some(unsafe { at.cast().as_ref() })
    }

    /// The slot with this number; None if the table does not have it.
    #[inline]
    fn slot(&self, number: u32) -> Option<&Slot> {
        if number >= self.layout.slots_max {
            return None;
        }
        let at = self.memory.at(self.layout.slots_offset() + u64::from(number) * SLOT_BYTES, SLOT_BYTES)?;
        // SAFETY: the file backs the slot, which is aligned to its size; all of its fields are atomic.
        Some(unsafe { at.cast().as_ref() })
    }

    /// A multiplication folded to 64 bits for every two words (as in wyhash). An attacker who does not know
    /// the key cannot choose files that share a bucket.
    #[inline]
    fn hash(&self, key: &BlockKey) -> u32 {
        let fold = |a: u64, b: u64| {
            let product = u128::from(a) * u128::from(b);
            product as u64 ^ (product >> 64) as u64
        };
        let [start, other] = self.hash_key;
        let hash = fold(start ^ key.inode, other ^ key.device);
        let hash = fold(hash ^ key.size_bytes, other ^ key.modified_ns.cast_unsigned());
        let hash = fold(hash ^ u64::from(key.block), other ^ key.changed_ns.cast_unsigned());
        (hash ^ hash >> 32) as u32
    }
}

fn header_in(memory: &SharedMemory) -> Option<&Header> {
    let at = memory.at(0, PAGE_BYTES)?;
    // SAFETY: the file backs this page, which has room for a header; all of its fields are atomic.
    Some(unsafe { at.cast().as_ref() })
}

/// A consistent copy of an entry, and its link.
struct Entry {
    key: BlockKey,
    place: Place,
    next: u32,
}

impl Slot {
    /// Reads the slot. None if it is empty, or if it changes meanwhile.
    ///
    /// All loads are relaxed, with fences between them: stronger loads are not guaranteed to work in memory
    /// that is mapped read-only (`std::sync::atomic`, "Atomic accesses to read-only memory").
    #[inline]
    fn read(&self) -> Option<Entry> {
        let before = self.sequence.load(Ordering::Relaxed);
        if before & 1 == 0 {
            return None;
        }
        // Pairs with the release store that made the number odd: the fields are at least as new as the
        // number.
        fence(Ordering::Acquire);
        let key = BlockKey {
            device: self.device.load(Ordering::Relaxed),
            inode: self.inode.load(Ordering::Relaxed),
            size_bytes: self.size_bytes.load(Ordering::Relaxed),
            modified_ns: self.modified_ns.load(Ordering::Relaxed).cast_signed(),
            changed_ns: self.changed_ns.load(Ordering::Relaxed).cast_signed(),
            block: self.block.load(Ordering::Relaxed),
        };
        let place = Place {
            offset: self.offset.load(Ordering::Relaxed),
            length: self.length.load(Ordering::Relaxed),
        };
        let next = self.next.load(Ordering::Relaxed);
        // Pairs with the fence at the start of `put`: if any field above belongs to a later entry, the number
        // read now is later too. It could only be equal after 2^31 changes.
        fence(Ordering::Acquire);
        (self.sequence.load(Ordering::Relaxed) == before).then_some(Entry { key, place, next })
    }
}

/// A worker's view of a table. Several threads can use it.
#[derive(Debug)]
pub struct TableReader {
    table: Table,
}

impl TableReader {
    /// Maps the table in `fd`, read-only.
    ///
    /// Errors: `InvalidData` with the reason if this version does not know the table; `InvalidInput` for a
    /// file without F_SEAL_SHRINK; any of fstat(2) and mmap(2).
    pub fn map(fd: impl AsFd) -> io::Result<Self> {
        Ok(Self { table: Table::map(fd, Access::Read)? })
    }

    /// The slot and the place of a block. None if the store does not have it, and sometimes while the writer
    /// changes its chain.
    #[inline]
    #[must_use]
    pub fn find(&self, key: &BlockKey) -> Option<(u32, Place)> {
        let mut link = self.table.head(self.table.hash(key))?.load(Ordering::Relaxed);
        // Pairs with the release store of the head: the slot is at least as new as its link.
        fence(Ordering::Acquire);
        for _ in 0..STEPS_MAX {
            let number = link.checked_sub(1)?;
            // If a slot was removed and reused since its link was read, it can lead into the chain of another
            // bucket. Then the block is not found there, which is a miss like any other.
            let entry = self.table.slot(number)?.read()?;
            if entry.key == *key {
                return Some((number, entry.place));
            }
            link = entry.next;
        }
        None
    }
}

/// The keeper's view of a table. There must be only one writer at a time; a second one damages chains, but
/// not memory.
#[derive(Debug)]
pub struct TableWriter {
    table: Table,
    #[cfg(test)]
    stores_left: std::cell::Cell<u32>,
}

impl TableWriter {
    /// Makes a table of `slots_max` slots in a memory file that is empty, or that has the length of
    /// [`file_bytes`] and was never written.
    ///
    /// Errors: `InvalidInput` for an invalid number of slots, and for a file without F_SEAL_SHRINK;
    /// `AlreadyExists` if the file already has a table; any of ftruncate(2) and mmap(2).
    pub fn create(fd: impl AsFd, slots_max: u32) -> io::Result<Self> {
        let refused = |kind, what: String| io::Error::new(kind, format!("store table: {what}"));
        let layout = Layout::new(slots_max).ok_or_else(|| {
            refused(
                io::ErrorKind::InvalidInput,
                format!("{slots_max} slots, but only 1 to {SLOTS_MAX} are possible"),
            )
        })?;
        if u64::try_from(fstat(&fd)?.st_size) != Ok(layout.file_bytes()) {
            ftruncate(&fd, layout.file_bytes())?;
        }
        let memory = SharedMemory::map(&fd, layout.file_bytes(), Access::Write)?;
        let header = header_in(&memory).ok_or(io::ErrorKind::UnexpectedEof)?;
        if header.magic.load(Ordering::Relaxed) != 0 {
            return Err(refused(io::ErrorKind::AlreadyExists, "the file already has a table".to_owned()));
        }
        header.version.store(VERSION, Ordering::Relaxed);
        header.slots_max.store(layout.slots_max, Ordering::Relaxed);
        header.buckets.store(layout.buckets, Ordering::Relaxed);
        for word in &header.hash_key {
            // Each instance has its own random key.
            word.store(RandomState::new().build_hasher().finish(), Ordering::Relaxed);
        }
        // A reader that sees the magic number sees a complete header.
        header.magic.store(MAGIC, Ordering::Release);
        drop(memory);
        Ok(Self::of(Table::map(fd, Access::Write)?))
    }

    /// Takes over the table of another writer, wherever that writer stopped. All chains are linked again;
    /// meanwhile readers miss blocks. This takes the time of reading each slot that was ever used.
    ///
    /// Errors: as for [`TableReader::map`].
    pub fn open(fd: impl AsFd) -> io::Result<Self> {
        let writer = Self::of(Table::map(fd, Access::Write)?);
        // The heads of an unused table are a hole, which reading them would fill.
        if writer.slots_used() > 0 {
            writer.link_all();
        }
        Ok(writer)
    }

    fn of(table: Table) -> Self {
        Self {
            table,
            #[cfg(test)]
            stores_left: u32::MAX.into(),
        }
    }

    /// The number of slots.
    #[must_use]
    pub fn slots_max(&self) -> u32 {
        self.table.layout.slots_max
    }

    /// No slot from this number on was ever used, so a scan of all slots can stop there.
    #[must_use]
    pub fn slots_used(&self) -> u32 {
        let used = self.table.slots_used().map_or(0, |used| used.load(Ordering::Relaxed));
        used.min(self.slots_max())
    }

    /// The entry in a slot; None if it is empty. Does not fill holes of the file.
    #[must_use]
    pub fn get(&self, slot: u32) -> Option<(BlockKey, Place)> {
        if slot >= self.slots_used() {
            return None;
        }
        let entry = self.table.slot(slot)?.read()?;
        Some((entry.key, entry.place))
    }

    /// Makes readers find `key` at `place` from now on, instead of the slot's old entry. The place must be
    /// completely written before. No other slot may have the key, or readers can find either.
    ///
    /// Slots should be used from the lowest number on, because all slots below the highest used one cost
    /// memory.
    ///
    /// # Panics
    ///
    /// If the table does not have the slot.
    pub fn put(&mut self, slot: u32, key: &BlockKey, place: Place) {
        assert!(slot < self.slots_max(), "slot {slot} of a table of {}", self.slots_max());
        self.remove(slot);
        let table = &self.table;
        let (Some(target), Some(head), Some(used)) =
            (table.slot(slot), table.head(table.hash(key)), table.slots_used())
        else {
            return;
        };
        if slot >= self.slots_used() {
            self.set(used, slot + 1, Ordering::Relaxed);
        }
        // The number is even by now. A reader that sees one of the stores below also sees that, after its own
        // fence, and drops its result.
        fence(Ordering::Release);
        self.set_wide(&target.device, key.device);
        self.set_wide(&target.inode, key.inode);
        self.set_wide(&target.size_bytes, key.size_bytes);
        self.set_wide(&target.modified_ns, key.modified_ns.cast_unsigned());
        self.set_wide(&target.changed_ns, key.changed_ns.cast_unsigned());
        self.set_wide(&target.offset, place.offset);
        self.set(&target.block, key.block, Ordering::Relaxed);
        self.set(&target.length, place.length, Ordering::Relaxed);
        self.set(&target.next, head.load(Ordering::Relaxed), Ordering::Relaxed);
        let sequence = target.sequence.load(Ordering::Relaxed);
        // Release: when the slot is full, all fields are written, even for a process that takes over from a
        // dead writer. So are the bytes of the place, because they were written before this call.
        self.set(&target.sequence, sequence.wrapping_add(1), Ordering::Release);
        // Release: the slot is full before readers are led to it; otherwise they would miss the rest of the
        // chain.
        self.set(head, slot + 1, Ordering::Release);
    }

    /// Empties a slot. Its entry can no longer be found, except by a look-up under way (see the module). Has
    /// no effect on an empty slot, or one that the table does not have.
    pub fn remove(&mut self, slot: u32) {
        let Some((key, _)) = self.get(slot) else { return };
        let (Some(target), Some(mut link)) = (self.table.slot(slot), self.table.head(self.table.hash(&key)))
        else {
            return;
        };
        // Bounded in case the file is damaged. The bound is the number of slots and not `STEPS_MAX`, because
        // every slot of the chain matters.
        for _ in 0..=self.slots_max() {
            let Some(number) = link.load(Ordering::Relaxed).checked_sub(1) else { break };
            if number == slot {
                // Release: a reader that follows the link sees the next slot as this slot's link did.
                self.set(link, target.next.load(Ordering::Relaxed), Ordering::Release);
                break;
            }
            let Some(other) = self.table.slot(number) else { break };
            link = &other.next;
        }
        let sequence = target.sequence.load(Ordering::Relaxed);
        // The slot leaves its chain first, so that readers on their way to other slots do not stop at an
        // empty one.
        self.set(&target.sequence, sequence.wrapping_add(1), Ordering::Release);
    }

    /// Links every full slot into its chain, and no other.
    fn link_all(&self) {
        for bucket in 0..self.table.layout.buckets {
            let Some(head) = self.table.head(bucket) else { return };
            if head.load(Ordering::Relaxed) != 0 {
                head.store(0, Ordering::Relaxed);
            }
        }
        for number in 0..self.slots_used() {
            let Some(slot) = self.table.slot(number) else { continue };
            let Some(entry) = slot.read() else { continue };
            let Some(head) = self.table.head(self.table.hash(&entry.key)) else { continue };
            // A reader at this slot continues in the new chain, which has only slots of its bucket.
            slot.next.store(head.load(Ordering::Relaxed), Ordering::Relaxed);
            head.store(number + 1, Ordering::Release);
        }
    }

    /// Every store of `put` and `remove` goes through this function or `set_wide`, so that tests can stop the
    /// writer before any of them.
    #[inline]
    fn set(&self, word: &AtomicU32, value: u32, order: Ordering) {
        if self.is_alive() {
            word.store(value, order);
        }
    }

    #[inline]
    fn set_wide(&self, word: &AtomicU64, value: u64) {
        if self.is_alive() {
            word.store(value, Ordering::Relaxed);
        }
    }

    #[cfg(not(test))]
    #[inline]
    fn is_alive(&self) -> bool {
        true
    }

    #[cfg(test)]
    fn is_alive(&self) -> bool {
        let left = self.stores_left.get();
        self.stores_left.set(left.saturating_sub(1));
        left > 0
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
