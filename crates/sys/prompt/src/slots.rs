//! Tables in memory files (memfd with F_SEAL_SHRINK) that one process writes and others read without asking
//! it: [`super::table`] and [`super::names`]. This module knows their layout; those two know what the words
//! of a slot mean.
//!
//! ```text
//! page 0    magic, version, sizes, key of the hash, slots ever used
//! then      words that belong to the whole table, in whole pages
//! then      heads: for each bucket the number of its first slot plus one, 0 for none, in whole pages
//! then      slots: sequence number, next slot of the bucket, words
//! ```
//!
//! Slots that were never used are in holes of the file and cost no memory. The header tells the writer where
//! they begin, because reading one would fill its hole.
//!
//! **The sequence number of a slot is odd if the slot is full, and even if it is empty or being changed.**
//! The writer makes it even before it changes a word, and odd afterwards. If a reader finds it
//! odd and unchanged before and after reading the slot, it has read one consistent entry (a seqlock).
//! Anything else is a miss, and a miss is always a correct answer, because it only costs a question to
//! another process.
//!
//! **The writer can die between any two stores.** The sequence number alone says whether a slot is full, so a
//! half-written slot is empty. [`Writer::open`] repairs the chains by linking all full slots again.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use rustix::fd::AsFd;
use rustix::fs::{fstat, ftruncate};

use super::shared::{Access, SharedMemory};

/// Maximum number of slots in a table.
pub const SLOTS_MAX: u32 = 1 << 28;

/// How many slots a look-up visits before it gives up. Chains have one slot on average; a longer chain is an
/// attack on the hash, or a loop in a damaged file.
const STEPS_MAX: u32 = 64;

pub(crate) const PAGE_BYTES: u64 = 4096;

/// The content of a table's slots: `N` words.
pub(crate) trait Record<const N: usize> {
    /// The name of the table, for errors.
    const WHAT: &'static str;
    /// The number at its start.
    const MAGIC: u64;
    /// The version of the layout and of the hash. Processes of two versions of Flash share a table during an
    /// upgrade.
    const VERSION: u32;
    /// How many words belong to the whole table.
    const SHARED_WORDS: u64;

    /// The hash of the key in these words.
    fn hash(hash_key: &[u64; 2], words: &[u64; N]) -> u32;

    /// Whether two records have the same key.
    fn is_same(one: &[u64; N], other: &[u64; N]) -> bool;
}

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

const _: () = assert!(size_of::<Header>() as u64 <= PAGE_BYTES);

#[repr(C)]
#[derive(Debug)]
struct Slot<const N: usize> {
    sequence: AtomicU32,
    /// The number of the next slot of the bucket plus one; 0 at the end.
    next: AtomicU32,
    words: [AtomicU64; N],
}

/// The sizes of a table's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    slots_max: u32,
    buckets: u32,
    heads_offset: u64,
    slot_bytes: u64,
}

impl Layout {
    fn new(slots_max: u32, shared_words: u64, slot_bytes: u64) -> Option<Self> {
        (1..=SLOTS_MAX).contains(&slots_max).then(|| Self {
            slots_max,
            buckets: slots_max.next_power_of_two(),
            heads_offset: PAGE_BYTES + (shared_words * 8).next_multiple_of(PAGE_BYTES),
            slot_bytes,
        })
    }

    fn of<R: Record<N>, const N: usize>(slots_max: u32) -> Option<Self> {
        Self::new(slots_max, R::SHARED_WORDS, size_of::<Slot<N>>() as u64)
    }

    /// Heads take whole pages, so that slots are aligned to cache lines.
    fn slots_offset(self) -> u64 {
        self.heads_offset + (u64::from(self.buckets) * 4).next_multiple_of(PAGE_BYTES)
    }

    fn file_bytes(self) -> u64 {
        self.slots_offset() + u64::from(self.slots_max) * self.slot_bytes
    }
}

/// The length of the memory file of a table with `slots_max` slots; None for 0 slots and for more than
/// [`SLOTS_MAX`].
#[must_use]
pub(crate) fn file_bytes<R: Record<N>, const N: usize>(slots_max: u32) -> Option<u64> {
    Layout::of::<R, N>(slots_max).map(Layout::file_bytes)
}

/// A mapped table. Its sizes were checked when it was mapped: whatever the file contains later, no access
/// goes beyond them.
#[derive(Debug)]
pub(crate) struct Table<R, const N: usize> {
    memory: SharedMemory,
    layout: Layout,
    hash_key: [u64; 2],
    record: PhantomData<fn() -> R>,
}

impl<R: Record<N>, const N: usize> Table<R, N> {
    /// Maps a table and checks its header.
    ///
    /// Errors: `InvalidData` with the reason; any of `SharedMemory::map`.
    fn map(file: impl AsFd, access: Access) -> io::Result<Self> {
        let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}", R::WHAT));
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
        if magic != R::MAGIC {
            return Err(wrong(format!("it begins with {magic:#x}, not with {:#x}", R::MAGIC)));
        }
        let version = header.version.load(Ordering::Relaxed);
        if version != R::VERSION {
            return Err(wrong(format!("it has version {version}, but only version {} is known", R::VERSION)));
        }
        let slots_max = header.slots_max.load(Ordering::Relaxed);
        let layout = Layout::of::<R, N>(slots_max).ok_or_else(|| {
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
        Ok(Self { memory, layout, hash_key, record: PhantomData })
    }

    /// The random key of this table.
    pub(crate) fn hash_key(&self) -> &[u64; 2] {
        &self.hash_key
    }

    /// How many slots from the first on were ever used. Never None, because a mapped table has its header.
    fn slots_used(&self) -> Option<&AtomicU32> {
        Some(&header_in(&self.memory)?.slots_used)
    }

    /// The head of the bucket of a hash. Never None, because the layout fits in the mapping.
    #[inline]
    fn head(&self, hash: u32) -> Option<&AtomicU32> {
        let bucket = hash & (self.layout.buckets - 1);
        let at = self.memory.at(self.layout.heads_offset + u64::from(bucket) * 4, 4)?;
        // SAFETY: the file backs the word, which is aligned because its page is. All other accesses to it are
        // atomic too.
        Some(unsafe { at.cast().as_ref() })
    }

    /// The slot with this number; None if the table does not have it.
    #[inline]
    fn slot(&self, number: u32) -> Option<&Slot<N>> {
        if number >= self.layout.slots_max {
            return None;
        }
        let slot_bytes = self.layout.slot_bytes;
        let at = self.memory.at(self.layout.slots_offset() + u64::from(number) * slot_bytes, slot_bytes)?;
        // SAFETY: the file backs the slot, which is aligned to words because slots are; all of its fields are
        // atomic.
        Some(unsafe { at.cast().as_ref() })
    }

    #[inline]
    fn head_of(&self, words: &[u64; N]) -> Option<&AtomicU32> {
        self.head(R::hash(&self.hash_key, words))
    }

    /// The slot and the record with the same key as `wanted`. None if there is none, and sometimes while the
    /// writer changes its chain.
    #[inline]
    pub(crate) fn find(&self, wanted: &[u64; N]) -> Option<(u32, [u64; N])> {
        let mut link = self.head_of(wanted)?.load(Ordering::Relaxed);
        // Pairs with the release store of the head: the slot is at least as new as its link.
        fence(Ordering::Acquire);
        for _ in 0..STEPS_MAX {
            let number = link.checked_sub(1)?;
            // If a slot was removed and reused since its link was read, it can lead into the chain of another
            // bucket. Then the record is not found there, which is a miss like any other.
            let entry = self.slot(number)?.read()?;
            if R::is_same(&entry.words, wanted) {
                return Some((number, entry.words));
            }
            link = entry.next;
        }
        None
    }
}

fn header_in(memory: &SharedMemory) -> Option<&Header> {
    let at = memory.at(0, PAGE_BYTES)?;
    // SAFETY: the file backs this page, which has room for a header; all of its fields are atomic.
    Some(unsafe { at.cast().as_ref() })
}

/// A multiplication folded to 64 bits (as in wyhash).
#[inline]
pub(crate) fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// A consistent copy of an entry, and its link.
struct Entry<const N: usize> {
    words: [u64; N],
    next: u32,
}

impl<const N: usize> Slot<N> {
    /// Reads the slot. None if it is empty, or if it changes meanwhile.
    ///
    /// All loads are relaxed, with fences between them: stronger loads are not guaranteed to work in memory
    /// that is mapped read-only (`std::sync::atomic`, "Atomic accesses to read-only memory").
    #[inline]
    fn read(&self) -> Option<Entry<N>> {
        let before = self.sequence.load(Ordering::Relaxed);
        if before & 1 == 0 {
            return None;
        }
        // Pairs with the release store that made the number odd: the fields are at least as new as the
        // number.
        fence(Ordering::Acquire);
        let words = std::array::from_fn(|at| self.words[at].load(Ordering::Relaxed));
        let next = self.next.load(Ordering::Relaxed);
        // Pairs with the fence at the start of `put`: if any field above belongs to a later entry, the number
        // read now is later too. It could only be equal after 2^31 changes.
        fence(Ordering::Acquire);
        (self.sequence.load(Ordering::Relaxed) == before).then_some(Entry { words, next })
    }
}

/// A reader's view of a table. Several threads can use it.
pub(crate) fn map_to_read<R: Record<N>, const N: usize>(fd: impl AsFd) -> io::Result<Table<R, N>> {
    Table::map(fd, Access::Read)
}

/// The writer's view of a table. There must be only one writer at a time; a second one damages chains, but
/// not memory.
#[derive(Debug)]
pub(crate) struct Writer<R, const N: usize> {
    table: Table<R, N>,
    #[cfg(test)]
    pub(crate) stores_left: std::cell::Cell<u32>,
}

impl<R: Record<N>, const N: usize> Writer<R, N> {
    /// Makes a table of `slots_max` slots in a memory file that is empty, or that has the length of
    /// [`file_bytes`] and was never written.
    ///
    /// Errors: `InvalidInput` for an invalid number of slots, and for a file without F_SEAL_SHRINK;
    /// `AlreadyExists` if the file already has a table; any of ftruncate(2) and mmap(2).
    pub(crate) fn create(fd: impl AsFd, slots_max: u32) -> io::Result<Self> {
        let refused = |kind, what: String| io::Error::new(kind, format!("{}: {what}", R::WHAT));
        let layout = Layout::of::<R, N>(slots_max).ok_or_else(|| {
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
        header.version.store(R::VERSION, Ordering::Relaxed);
        header.slots_max.store(layout.slots_max, Ordering::Relaxed);
        header.buckets.store(layout.buckets, Ordering::Relaxed);
        for word in &header.hash_key {
            // Each instance has its own random key.
            word.store(RandomState::new().build_hasher().finish(), Ordering::Relaxed);
        }
        // A reader that sees the magic number sees a complete header.
        header.magic.store(R::MAGIC, Ordering::Release);
        drop(memory);
        Ok(Self::of(Table::map(fd, Access::Write)?))
    }

    /// Takes over the table of another writer, wherever that writer stopped. All chains are linked again;
    /// meanwhile readers miss entries. This takes the time of reading each slot that was ever used.
    ///
    /// Errors: as for [`map_to_read`].
    pub(crate) fn open(fd: impl AsFd) -> io::Result<Self> {
        let writer = Self::of(Table::map(fd, Access::Write)?);
        // The heads of an unused table are a hole, which reading them would fill.
        if writer.slots_used() > 0 {
            writer.link_all();
        }
        Ok(writer)
    }

    fn of(table: Table<R, N>) -> Self {
        Self {
            table,
            #[cfg(test)]
            stores_left: u32::MAX.into(),
        }
    }

    /// The table, to read it.
    pub(crate) fn table(&self) -> &Table<R, N> {
        &self.table
    }

    /// The number of slots.
    pub(crate) fn slots_max(&self) -> u32 {
        self.table.layout.slots_max
    }

    /// No slot from this number on was ever used, so a scan of all slots can stop there.
    pub(crate) fn slots_used(&self) -> u32 {
        let used = self.table.slots_used().map_or(0, |used| used.load(Ordering::Relaxed));
        used.min(self.slots_max())
    }

    /// The record in a slot; None if it is empty. Does not fill holes of the file.
    pub(crate) fn get(&self, slot: u32) -> Option<[u64; N]> {
        if slot >= self.slots_used() {
            return None;
        }
        Some(self.table.slot(slot)?.read()?.words)
    }

    /// Makes readers find this record from now on, instead of the slot's old one. No other slot may have its
    /// key, or readers can find either.
    ///
    /// Slots should be used from the lowest number on, because all slots below the highest used one cost
    /// memory.
    ///
    /// # Panics
    ///
    /// If the table does not have the slot.
    pub(crate) fn put(&mut self, slot: u32, words: &[u64; N]) {
        assert!(slot < self.slots_max(), "slot {slot} of a table of {}", self.slots_max());
        self.remove(slot);
        let table = &self.table;
        let (Some(target), Some(head), Some(used)) =
            (table.slot(slot), table.head_of(words), table.slots_used())
        else {
            return;
        };
        if slot >= self.slots_used() {
            self.set(used, slot + 1, Ordering::Relaxed);
        }
        // The number is even by now. A reader that sees one of the stores below also sees that, after its own
        // fence, and drops its result.
        fence(Ordering::Release);
        for (target, word) in target.words.iter().zip(words) {
            self.set_wide(target, *word);
        }
        self.set(&target.next, head.load(Ordering::Relaxed), Ordering::Relaxed);
        let sequence = target.sequence.load(Ordering::Relaxed);
        // Release: when the slot is full, all fields are written, even for a process that takes over from a
        // dead writer. So is everything else that was written before this call.
        self.set(&target.sequence, sequence.wrapping_add(1), Ordering::Release);
        // Release: the slot is full before readers are led to it; otherwise they would miss the rest of the
        // chain.
        self.set(head, slot + 1, Ordering::Release);
    }

    /// Empties a slot. Its record can no longer be found, except by a look-up under way. Has
    /// no effect on an empty slot, or one that the table does not have.
    pub(crate) fn remove(&mut self, slot: u32) {
        let Some(words) = self.get(slot) else { return };
        let (Some(target), Some(mut link)) = (self.table.slot(slot), self.table.head_of(&words)) else {
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
            let Some(head) = self.table.head_of(&entry.words) else { continue };
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
