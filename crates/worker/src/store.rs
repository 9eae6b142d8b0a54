//! A worker's view of the store. Blocks are found in the keeper's table and sent from its memory file; a hit
//! needs no message to the keeper. The worker reports which blocks it used, and releases blocks when the
//! keeper evicts them. Called by [`system`](crate::system) and the worker's loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use flash_engine::limits::LOAD_BYTES;
use flash_engine::{Block, BlockBytes, FileStat, NameMark, SharedName, SiteId, form_of_block};
use flash_prompt::OwnedFd;
use flash_prompt::channel;
use flash_prompt::epoll::Watch;
use flash_prompt::mechanism::Mechanism;
use flash_prompt::names::NameHash;
use flash_prompt::store_memory::StoreMemory;
use flash_prompt::table::{BlockKey, Extent, TableReader};

use super::calls::{Call, note_call};
use crate::codec::{decode, send};
use crate::names::{self, SharedNames};
use crate::setup::{Fills, GivenStore};
use crate::store_protocol::{FromWorker, NOTICES_MAX, Notice, STORE_MESSAGE_BYTES_MAX, ToWorker, WRONG_MAX};

/// Slots checked for uses at each housekeeping.
const SLOTS_CHECKED_AT_ONCE: usize = 4096;

/// A block that this worker has found in the table.
#[derive(Debug)]
struct StoredBlock {
    memory: Arc<StoreMemory>,
    slot: u32,
    extent: Extent,
    /// Uses since the last report to the keeper.
    uses: AtomicU32,
}

impl BlockBytes for StoredBlock {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.memory.bytes(self.extent).unwrap_or_default()
    }

    fn number(&self) -> u64 {
        self.slot.into()
    }

    #[inline]
    fn note_use(&self) {
        self.uses.fetch_add(1, Ordering::Relaxed);
    }
}

/// An evicted block that a transfer still sends.
#[derive(Debug)]
struct Leaving {
    block: Arc<StoredBlock>,
    /// Whether the present keeper has asked for it. A block that only an earlier keeper asked for is released
    /// once the present keeper asks too. Releasing it twice would release the next block in the slot.
    is_asked: bool,
}

/// The store as one worker sees it.
#[derive(Debug)]
pub(super) struct Store {
    table: TableReader,
    memory: Arc<StoreMemory>,
    /// The channel to the keeper, if there is one.
    keeper: Option<OwnedFd>,
    /// Whether a keeper has said that it asks this worker before it reuses an extent. Before that, a block could be
    /// replaced while it is sent. Later keepers know the worker from their start.
    is_registered: bool,
    /// How many channels to keepers there have been.
    channels: u64,
    /// The blocks that were found, by slot.
    blocks: Vec<Option<Arc<StoredBlock>>>,
    /// The slot at which the next check for uses begins.
    check_from: usize,
    /// Evicted blocks that transfers still send.
    leaving: Vec<Leaving>,
    /// Messages for the keeper.
    notices: Vec<Notice>,
    /// The names that all workers share.
    shared_names: SharedNames,
    /// Those that this worker has found to be wrong, for the keeper.
    wrong: Vec<NameHash>,
    /// Blocks to load without a request, last one first.
    warm: Vec<(SiteId, Box<[u8]>, u64)>,
    /// Fills the store in this process, in architectures without helper processes.
    fills: Option<Arc<dyn Fills>>,
}

impl Store {
    /// Makes the view. Returns the channel to the keeper, for [`Store::connect`].
    pub(super) fn new(given: GivenStore) -> (Self, Option<OwnedFd>) {
        let GivenStore { memory, table, names, keeper, mut warm, fills } = given;
        warm.reverse();
        let store = Self {
            table,
            memory: Arc::new(memory),
            keeper: None,
            is_registered: false,
            channels: 0,
            blocks: Vec::new(),
            check_from: 0,
            leaving: Vec::new(),
            notices: Vec::new(),
            shared_names: names,
            wrong: Vec::new(),
            warm,
            fills,
        };
        (store, keeper)
    }

    /// Takes the channel to a keeper. Pending messages for an earlier keeper are dropped, because this one
    /// asks again. `token` makes an event token from the channel's number.
    pub(super) fn connect(&mut self, events: &mut Mechanism, token: fn(u64) -> u64, channel: OwnedFd) {
        self.notices.clear();
        self.leaving.iter_mut().for_each(|leaving| leaving.is_asked = false);
        self.channels += 1;
        let watched = channel::set_nonblocking(&channel)
            .and_then(|()| events.add(&channel, token(self.channels), Watch::Input));
        self.keeper = watched.is_ok().then_some(channel);
    }

    /// Another keeper takes over. If this process fills the store, new channels for that follow.
    pub(super) fn reconnect(&mut self, events: &mut Mechanism, token: fn(u64) -> u64, channel: OwnedFd) {
        if let Some(fills) = &self.fills {
            fills.forget_keeper();
        }
        self.connect(events, token, channel);
    }

    /// Takes a channel to the keeper for filling the store.
    pub(super) fn take_filler(&self, channel: OwnedFd) {
        if let Some(fills) = &self.fills {
            fills.take_channel(channel);
        }
    }

    /// Whether there is a keeper.
    fn has_keeper(&self) -> bool {
        self.keeper.is_some()
    }

    /// Whether the channel with this number is open.
    pub(super) fn is_open(&self, number: u64) -> bool {
        self.has_keeper() && number == self.channels
    }

    /// A block of a file in exactly this state.
    pub(super) fn block(&mut self, stat: &FileStat, number: u64) -> Option<Block> {
        if !self.is_registered {
            return None;
        }
        let (slot, extent) = self.table.find(&key(stat, number)?)?;
        let at = slot as usize;
        if let Some(Some(block)) = self.blocks.get(at) {
            return (block.extent == extent).then(|| Arc::clone(block) as Block);
        }
        // A shorter block is a bug of its filler; it would be sent as if it were complete.
        let is_whole = || u64::from(extent.length) == (stat.size_bytes - number * LOAD_BYTES).min(LOAD_BYTES);
        if form_of_block(stat.size_bytes, number).is_none() && !is_whole() {
            return None;
        }
        let block = StoredBlock { memory: Arc::clone(&self.memory), slot, extent, uses: AtomicU32::new(0) };
        self.memory.bytes(extent)?;
        if self.blocks.len() <= at {
            self.blocks.resize_with(at + 1, || None);
        }
        let block = Arc::new(block);
        self.blocks[at] = Some(Arc::clone(&block));
        Some(block)
    }

    /// The facts about a name.
    pub(super) fn shared_name(&self, site: SiteId, path: &[u8]) -> Option<SharedName> {
        self.shared_names.find(site, path)
    }

    /// As [`SharedNames::unchanged_ms`].
    pub(super) fn unchanged_ms(&self, mark: NameMark) -> Option<u64> {
        self.shared_names.unchanged_ms(mark)
    }

    /// Whether the changes of any names are reported.
    pub(super) fn are_changes_reported(&self) -> bool {
        self.shared_names.are_changes_reported()
    }

    /// Tells the keeper that the facts about a name are wrong. If it does not hear that, other workers find out
    /// themselves.
    pub(super) fn report_wrong_name(&mut self, site: SiteId, path: &[u8]) {
        if self.wrong.len() < WRONG_MAX {
            self.wrong.extend(self.shared_names.hash(site, path));
        }
    }

    /// Receives a message of the keeper and returns the slots whose blocks must leave. Each is released once
    /// [`Store::release`] finds that no transfer sends it.
    pub(super) fn receive(&mut self) -> Vec<u32> {
        let mut bytes = [0; STORE_MESSAGE_BYTES_MAX];
        let Some(keeper) = &self.keeper else { return Vec::new() };
        let received = channel::recv(keeper, &mut bytes, &mut Vec::new());
        note_call(Call::Message);
        let message = match received {
            Ok(length) => decode(&bytes[..length]),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return Vec::new(),
            Err(_) => None,
        };
        let slots = match message {
            Some(ToWorker::Leaving(slots)) => slots,
            Some(ToWorker::Registered) => {
                self.is_registered = true;
                return Vec::new();
            }
            None => {
                // The keeper has gone, and another one will come. Until then the known blocks stay valid.
                self.keeper = None;
                return Vec::new();
            }
        };
        for slot in &slots {
            let known = self.blocks.get_mut(*slot as usize).and_then(Option::take);
            let leaving = self.leaving.iter_mut().find(|leaving| leaving.block.slot == *slot);
            match (known, leaving) {
                (Some(block), _) => self.leaving.push(Leaving { block, is_asked: true }),
                // A new keeper asks for a block that is still being sent.
                (None, Some(leaving)) => leaving.is_asked = true,
                // This worker never found the block.
                (None, None) => self.notices.push(Notice::Released(*slot)),
            }
        }
        slots
    }

    /// Releases evicted blocks that no transfer sends any more. Must be called after every turn.
    #[inline]
    pub(super) fn release(&mut self) {
        if self.leaving.is_empty() && self.notices.is_empty() {
            return;
        }
        let notices = &mut self.notices;
        self.leaving.retain(|Leaving { block, is_asked }| {
            let is_held = Arc::strong_count(block) > 1;
            if !is_held && *is_asked {
                notices.push(Notice::Released(block.slot));
            }
            is_held
        });
        self.send();
    }

    /// Reports uses to the keeper, and drops unused blocks.
    pub(super) fn keep_house(&mut self) {
        if self.notices.len() < NOTICES_MAX {
            self.note_uses();
        }
        self.send();
    }

    fn note_uses(&mut self) {
        let end = self.blocks.len().min(self.check_from + SLOTS_CHECKED_AT_ONCE);
        for extent in &mut self.blocks[self.check_from.min(end)..end] {
            let Some(block) = extent else { continue };
            let uses = block.uses.swap(0, Ordering::Relaxed);
            if uses > 0 {
                self.notices.push(Notice::Used(block.slot, uses));
            } else if Arc::strong_count(block) == 1 {
                *extent = None;
            }
        }
        self.check_from = if end == self.blocks.len() { 0 } else { end };
    }

    /// The next block to load without a request.
    pub(super) fn next_warm(&mut self) -> Option<(SiteId, Box<[u8]>, u64)> {
        self.warm.pop()
    }

    /// Whether there are such blocks left.
    #[inline]
    pub(super) fn is_warming(&self) -> bool {
        !self.warm.is_empty()
    }

    /// Whether there is work that no event announces: blocks to load, or messages for which the keeper's
    /// channel had no room.
    pub(super) fn has_work(&self) -> bool {
        let has_words = !self.notices.is_empty() || !self.wrong.is_empty();
        self.is_warming() || (has_words && self.has_keeper())
    }

    /// Puts a block back that could not be queued.
    pub(super) fn put_warm_back(&mut self, block: (SiteId, Box<[u8]>, u64)) {
        self.warm.push(block);
    }

    fn send(&mut self) {
        let Some(keeper) = &self.keeper else {
            self.wrong.clear();
            return self.notices.clear();
        };
        if !self.wrong.is_empty() && send(keeper, &FromWorker::Wrong(self.wrong.clone()), &[]).is_ok() {
            self.wrong.clear();
        }
        while !self.notices.is_empty() {
            let batch = self.notices[..self.notices.len().min(NOTICES_MAX)].to_vec();
            let count = batch.len();
            let sent = send(keeper, &FromWorker::Notices(batch), &[]);
            note_call(Call::Message);
            match sent {
                Ok(()) => drop(self.notices.drain(..count)),
                // Try again later. If the keeper has gone, this never succeeds, and that does no harm.
                Err(_) => return,
            }
        }
    }
}

/// The key of a block; None if the table cannot represent it.
fn key(stat: &FileStat, number: u64) -> Option<BlockKey> {
    Some(BlockKey { file: names::state(stat)?, block: number.try_into().ok()? })
}
