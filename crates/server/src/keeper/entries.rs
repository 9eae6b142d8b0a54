//! The entries of the table of blocks, as the keeper reads and writes them. Called by [`keeper`](super).

use flash_engine::limits::LOAD_BYTES;
use flash_keeper::{Entry, Extent};
use flash_prompt::names::FileState;
use flash_prompt::table::{self, BlockKey, TableWriter};

/// No file has this device: for entries of places that no worker must find.
const NO_DEVICE: u64 = u64::MAX;
/// Replaces the inode while a helper loads a block.
const LOADING: u64 = 1;
/// Replaces the inode while a block leaves.
const LEAVING: u64 = 2;

pub(super) fn get(table: &TableWriter, slot: u32) -> Entry<BlockKey> {
    match table.get(slot) {
        None => Entry::Empty,
        Some((key, at)) => match key.file {
            FileState { device: NO_DEVICE, inode: LOADING, .. } => Entry::Loading(extent(at)),
            FileState { device: NO_DEVICE, .. } => Entry::Leaving(extent(at)),
            _ => Entry::Ready(key, extent(at)),
        },
    }
}

pub(super) fn put(table: &mut TableWriter, slot: u32, entry: &Entry<BlockKey>) {
    let hidden = |inode| {
        first_block(FileState { device: NO_DEVICE, inode, size_bytes: slot.into(), ..FileState::default() })
    };
    match entry {
        Entry::Empty => table.remove(slot),
        Entry::Loading(at) => table.put(slot, &hidden(LOADING), table_extent(*at)),
        Entry::Ready(key, at) => table.put(slot, key, table_extent(*at)),
        Entry::Leaving(at) => table.put(slot, &hidden(LEAVING), table_extent(*at)),
    }
}

/// Whether a worker could look for this block: larger ones would only drive out others.
pub(super) fn is_block(key: &BlockKey, length_bytes: u32) -> bool {
    key.file.device != NO_DEVICE && (1..=LOAD_BYTES).contains(&length_bytes.into())
}

/// The key of the first block of a file.
pub(super) fn first_block(file: FileState) -> BlockKey {
    BlockKey { file, block: 0 }
}

fn extent(at: table::Extent) -> Extent {
    Extent { offset: at.offset, length_bytes: at.length }
}

/// An extent as the table has it.
pub(super) fn table_extent(at: Extent) -> table::Extent {
    table::Extent { offset: at.offset, length: at.length_bytes }
}
