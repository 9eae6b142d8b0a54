//! The keeper's interface as data: links, extents in the memory file, its actions, and its counters.

/// The number of a worker's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u32);

/// The number of a helper's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HelperId(pub u32);

/// A range of the memory file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub length_bytes: u32,
}

/// An action for the process around the keeper. Actions must be carried out in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<K> {
    /// Answer a helper.
    Answer(HelperId, Answer),
    /// Write this entry to the table, from which a later keeper resumes.
    Note(u32, Entry<K>),
    /// Tell a worker to forget the block in this slot and to release it.
    Forget(WorkerId, u32),
    /// Return this range of the memory file (offset and length, whole pages) to the system.
    GiveBack(u64, u64),
}

/// The answer to a helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The block is in the store.
    There,
    /// Another helper loads the block. Another answer follows when it has.
    Joined,
    /// Load the block to this extent, and report when it is done.
    Fill(Extent),
    /// The store has no room for the block.
    Refused,
}

/// A slot's entry in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<K> {
    /// An empty slot.
    Empty,
    /// A helper is loading a block to this extent.
    Loading(Extent),
    /// All workers can find the block.
    Ready(K, Extent),
    /// The block can no longer be found, but workers may still send from it.
    Leaving(Extent),
}

/// Counters of the keeper, and the amounts that it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Blocks loaded.
    pub loads: u64,
    /// Requests for a block that was in the store or already being loaded.
    pub joined: u64,
    /// Requests that were refused for lack of room.
    pub refused: u64,
    /// Blocks evicted.
    pub evictions: u64,
    /// Blocks in the store.
    pub blocks: u64,
    /// Bytes of memory in use, in whole pages.
    pub held_bytes: u64,
    /// Bytes of evicted blocks from which transfers still send.
    pub pinned_bytes: u64,
    /// Maximum number of bytes of memory that can be in use.
    pub bytes_max: u64,
    /// Names that all workers share, each form of a file counted. The owner of their table counts them.
    pub names: u64,
    /// Names that made room for others.
    pub names_evicted: u64,
    /// Parts of sites of which all changes are reported.
    pub subtrees_watched: u64,
    /// Parts of sites that cannot be watched.
    pub subtrees_unwatched: u64,
    /// Directories that are watched for changes.
    pub directories_watched: u64,
    /// Maximum number of directories that can be watched.
    pub directories_max: u64,
    /// Sites of which directories are watched.
    pub sites_watched: u64,
    /// Sites whose file systems do not report every change.
    pub sites_unreported: u64,
}
