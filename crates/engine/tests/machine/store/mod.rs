//! The store in memory: a real [`Keeper`] with its table, its memory and its channels, which neither lose nor
//! reorder messages. Workers see it through [`WorkerStore`].
//!
//! Each write to the memory is checked: it must not touch a block that a worker has found and not released,
//! nor any place other than the one that the helper was given. So memory that is reused during a transfer
//! fails a test at once, even if the transfer would not have shown it.

mod memory;
mod names;
mod watched;
mod worker;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::rc::Rc;

use flash_engine::limits::LOAD_BYTES;
use flash_engine::{FileStat, NO_FORM, form_of_block};
use flash_http::negotiate::Coding;
use flash_keeper::space::PAGE_BYTES;
use flash_keeper::{Action, Answer, Entry, Extent, HelperId, Keeper, Totals, WorkerId};

use super::files::{Content, FileHandle, Inode};
use memory::{Memory, overlap, pages};
pub(crate) use names::Done;
use names::KnownNames;
pub(crate) use watched::Word;
pub(crate) use worker::WorkerStore;

/// A block of a file in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BlockKey {
    device: u64,
    inode: u64,
    size_bytes: u64,
    modified_ns: i128,
    changed_ns: i128,
    block: u64,
}

impl BlockKey {
    pub(crate) fn new(stat: &FileStat, block: u64) -> Self {
        let FileStat { device, inode, size_bytes, modified_ns, changed_ns, .. } = *stat;
        Self { device, inode, size_bytes, modified_ns, changed_ns, block }
    }

    /// Length of the block in bytes.
    fn length_bytes(&self) -> u64 {
        self.size_bytes.saturating_sub(self.block * LOAD_BYTES).min(LOAD_BYTES)
    }
}

/// Keys are hashed the same way in each run, so that a run can be repeated.
type StoreKeeper = Keeper<BlockKey, BuildHasherDefault<DefaultHasher>>;

/// The size of the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreSize {
    /// Addresses of its memory.
    pub(crate) length_bytes: u64,
    pub(crate) slots_max: u32,
    /// Maximum number of bytes of memory in use.
    pub(crate) bytes_max: u64,
}

/// A message from a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notice {
    Used(u32, u32),
    Released(u32),
}

/// The two directions of the channel between keeper and worker.
#[derive(Debug, Default)]
struct Link {
    /// The number of the keeper at its end.
    keeper: u64,
    /// Whether a keeper has told the worker that it knows it.
    is_known: bool,
    forget: VecDeque<u32>,
    notices: VecDeque<Notice>,
}

/// Events for the keeper besides notices, in order.
#[derive(Clone, Copy, Debug)]
enum News {
    Want(HelperId, BlockKey, u32),
    Filled(HelperId, bool),
    HelperGone(HelperId),
    WorkerComes(WorkerId),
    WorkerGone(WorkerId),
}

/// The progress of a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The helper waits for an answer.
    Asked,
    /// The helper writes to this place.
    Granted(Extent),
    /// The helper has reported success or failure and waits for an answer.
    Told,
    /// The fill is over.
    Over,
}

/// A block that a helper must load.
#[derive(Debug)]
struct Fill {
    key: BlockKey,
    inode: Rc<RefCell<Inode>>,
    /// The compressed form that it writes, if the block is one.
    form: Option<Vec<u8>>,
    stage: Stage,
    /// Whether the first half was read and written.
    is_begun: bool,
    /// The keeper that was asked.
    keeper: u64,
}

impl Fill {
    /// Length of the block in bytes.
    fn length_bytes(&self) -> u64 {
        self.form.as_ref().map_or(self.key.length_bytes(), |form| form.len() as u64)
    }
}

/// A file as these tests compress it. Those that begin with one of some bytes, such as `!`, cannot be compressed.
pub(crate) fn compress(content: &Content, coding: Coding) -> Vec<u8> {
    if content.slice(0, 1)[0] % 16 == b'!' % 16 {
        return NO_FORM.to_vec();
    }
    [coding.token().as_bytes(), b":", &content.slice(0, content.len() / 2)].concat()
}

/// Counts of events, for tests that must see them happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) given: u64,
    pub(crate) refused: u64,
    pub(crate) evicted: u64,
    pub(crate) keepers: u64,
}

/// The keeper process, and everything that outlives it.
#[derive(Debug)]
pub(crate) struct StoreHost {
    size: StoreSize,
    /// None while there is no keeper.
    keeper: Option<StoreKeeper>,
    /// The number of the latest keeper.
    keepers: u64,
    /// Whether the keeper has not been told yet that the helpers of previous keepers are done.
    unsettled: bool,
    table: Vec<Entry<BlockKey>>,
    /// The slots of the stored blocks.
    index: HashMap<BlockKey, u32>,
    /// The places of all slots by their offsets, and the number of users of each page.
    places: BTreeMap<u64, Extent>,
    pages: BTreeMap<u64, u32>,
    memory: Memory,
    links: BTreeMap<WorkerId, Link>,
    workers: u32,
    helpers: u32,
    fills: BTreeMap<HelperId, Fill>,
    news: VecDeque<News>,
    /// The names that all workers share.
    pub(crate) names: KnownNames,
    /// How many notices of each worker the keeper receives in one turn; the others are still under way.
    pub(crate) heard_at_once: usize,
    pub(crate) tally: Tally,
}

/// More actions than any turn has.
pub(crate) const ALL_ACTIONS: usize = usize::MAX;

impl StoreHost {
    pub(crate) fn new(size: StoreSize) -> Self {
        Self {
            keeper: Some(new_keeper(size)),
            size,
            keepers: 0,
            unsettled: false,
            table: Vec::new(),
            index: HashMap::new(),
            places: BTreeMap::new(),
            pages: BTreeMap::new(),
            memory: Memory::default(),
            links: BTreeMap::new(),
            workers: 0,
            helpers: 0,
            fills: BTreeMap::new(),
            news: VecDeque::new(),
            names: KnownNames::new(size.slots_max),
            heard_at_once: usize::MAX,
            tally: Tally::default(),
        }
    }

    /// Whether every block of a file in this state is in the store.
    pub(crate) fn has_all(&self, stat: &FileStat) -> bool {
        let blocks = stat.size_bytes.div_ceil(LOAD_BYTES);
        blocks > 0 && (0..blocks).all(|block| self.has_block(stat, block))
    }

    pub(crate) fn has_block(&self, stat: &FileStat, block: u64) -> bool {
        self.index.contains_key(&BlockKey::new(stat, block))
    }

    /// A place in use that overlaps these bytes.
    fn used(&self, start: u64, length_bytes: u64) -> Option<Extent> {
        let before = self.places.range(..start + length_bytes.max(1)).next_back().map(|(_, place)| *place);
        before.filter(|place| overlap(*place, start, length_bytes.max(1)))
    }

    /// Writes an entry to the table.
    fn note(&mut self, slot: u32, entry: Entry<BlockKey>) {
        let at = slot as usize;
        if self.table.len() <= at {
            assert!(slot < self.size.slots_max, "property: bounds: slot {slot}");
            self.table.resize_with(at + 1, || Entry::Empty);
        }
        self.tally.evicted += u64::from(matches!(entry, Entry::Leaving(_)));
        let old = std::mem::replace(&mut self.table[at], entry);
        if let Some(place) = extent_of(&old) {
            self.places.remove(&place.offset);
            for page in pages(place) {
                let users = self.pages.entry(page).or_default();
                *users -= 1;
                if *users == 0 {
                    self.pages.remove(&page);
                }
            }
        }
        if let Entry::Ready(key, _) = old {
            self.index.remove(&key);
        }
        if let Some(place) = extent_of(&entry) {
            let other = self.used(place.offset, place.length_bytes.into());
            assert!(other.is_none(), "property: memory: {place:?} was given although {other:?} is in use");
            self.places.insert(place.offset, place);
            pages(place).for_each(|page| *self.pages.entry(page).or_default() += 1);
        }
        if let Entry::Ready(key, _) = entry {
            let other = self.index.insert(key, slot);
            assert!(other.is_none(), "property: keeper: one block in two slots");
        }
    }

    /// The keeper's totals, if there is a keeper.
    pub(crate) fn totals(&self) -> Option<Totals> {
        self.keeper.as_ref().map(Keeper::totals)
    }

    // The keeper.

    pub(crate) fn has_keeper(&self) -> bool {
        self.keeper.is_some()
    }

    /// Whether the keeper has something to do now.
    pub(crate) fn is_busy(&self) -> bool {
        let is_unsettled = self.unsettled && !self.writes_for_earlier();
        let has_heard = !self.news.is_empty()
            || self.names.has_unheard()
            || self.links.values().any(|link| !link.notices.is_empty());
        self.keeper.is_some() && (is_unsettled || has_heard)
    }

    /// Whether a worker has unread messages.
    pub(crate) fn has_unheard(&self) -> bool {
        self.links.values().any(|link| !link.forget.is_empty())
    }

    /// When the keeper needs a turn without a message.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.keeper.as_ref()?.next_ms()
    }

    /// Runs a turn of the keeper, which dies after `actions_max` actions.
    pub(crate) fn turn(&mut self, now_ms: u64, actions_max: usize) {
        let Some(mut keeper) = self.keeper.take() else { return };
        for (worker, link) in &mut self.links {
            let heard = link.notices.len().min(self.heard_at_once);
            for notice in link.notices.drain(..heard) {
                match notice {
                    Notice::Used(slot, uses) => keeper.handle_used(slot, uses),
                    Notice::Released(slot) => keeper.handle_released(*worker, slot),
                }
            }
        }
        let index = &self.index;
        self.names.turn(now_ms, |stat| stat.size_bytes == 0 || index.contains_key(&BlockKey::new(stat, 0)));
        let mut known = Vec::new();
        for news in std::mem::take(&mut self.news) {
            match news {
                News::Want(helper, key, length_bytes) => {
                    keeper.handle_want(helper, key, length_bytes, now_ms);
                }
                News::Filled(helper, is_loaded) => keeper.handle_filled(helper, is_loaded),
                News::HelperGone(helper) => keeper.handle_helper_gone(helper),
                News::WorkerComes(worker) => {
                    keeper.handle_worker(worker);
                    known.push(worker);
                }
                News::WorkerGone(worker) => keeper.handle_worker_gone(worker),
            }
        }
        if self.unsettled && !self.writes_for_earlier() {
            self.unsettled = false;
            keeper.handle_writers_gone();
        }
        keeper.settle(now_ms);
        let mut done = 0;
        while let Some(action) = keeper.poll() {
            if done == actions_max {
                return self.lose_keeper();
            }
            done += 1;
            self.act(action, &keeper.totals());
        }
        for worker in known {
            self.links.entry(worker).and_modify(|link| link.is_known = true);
        }
        self.keeper = Some(keeper);
        if done > 0 {
            self.check();
        }
    }

    fn act(&mut self, action: Action<BlockKey>, totals: &Totals) {
        match action {
            Action::Note(slot, entry) => self.note(slot, entry),
            Action::Forget(worker, slot) => {
                if let Some(link) = self.links.get_mut(&worker) {
                    link.forget.push_back(slot);
                }
            }
            Action::Answer(helper, answer) => self.answer(helper, answer, totals),
            Action::GiveBack(start, length_bytes) => {
                // Every page except those of the block being freed, whose slot becomes empty with the next
                // action.
                let touched = self.places.range(..start + length_bytes).rev().map(|(_, place)| *place);
                let touched: Vec<_> =
                    touched.take_while(|place| overlap(*place, start, length_bytes)).collect();
                let is_there = self
                    .table
                    .iter()
                    .any(|entry| matches!(entry, Entry::Ready(_, place) if touched.contains(place)));
                assert!(
                    touched.len() <= 1 && !is_there,
                    "property: memory: {touched:?} is in use, but its page at {start} was returned"
                );
                self.memory.give_back(start, length_bytes);
            }
        }
    }

    fn answer(&mut self, helper: HelperId, answer: Answer, totals: &Totals) {
        self.tally.given += u64::from(matches!(answer, Answer::Fill(_)));
        self.tally.refused += u64::from(answer == Answer::Refused);
        let Some(fill) = self.fills.get_mut(&helper) else { return };
        fill.stage = match (answer, fill.stage) {
            (Answer::Fill(place), Stage::Asked) => Stage::Granted(place),
            (Answer::Joined, Stage::Asked) => Stage::Asked,
            (Answer::There | Answer::Refused, Stage::Asked | Stage::Told) => Stage::Over,
            (answer, stage) => panic!("property: keeper: {answer:?} for {stage:?}"),
        };
        if let Stage::Granted(place) = fill.stage {
            let held_bytes = totals.held_bytes;
            let most = self.size.bytes_max;
            assert!(
                held_bytes <= most,
                "property: bounds: a place was given with {held_bytes} bytes held of {most}"
            );
            let length_bytes = fill.length_bytes();
            assert_eq!(
                u64::from(place.length_bytes),
                length_bytes,
                "property: keeper: the place has another length"
            );
            let is_begun = self.write_half(helper, false);
            if let Some(fill) = self.fills.get_mut(&helper) {
                fill.is_begun = is_begun;
            }
        }
    }

    /// The keeper dies. Messages that it has not handled are lost.
    pub(crate) fn lose_keeper(&mut self) {
        self.keeper = None;
        self.news.clear();
        self.names.lose_keeper();
        for link in self.links.values_mut() {
            link.notices.clear();
            link.forget.clear();
        }
        // Helpers that wait for an answer notice that their channel has closed.
        for fill in self.fills.values_mut().filter(|fill| matches!(fill.stage, Stage::Asked | Stage::Told)) {
            fill.stage = Stage::Over;
        }
    }

    /// Another keeper takes over from the table.
    pub(crate) fn replace_keeper(&mut self) {
        self.lose_keeper();
        self.keepers += 1;
        self.tally.keepers += 1;
        let mut keeper = new_keeper(self.size);
        let workers: Vec<WorkerId> = self.links.keys().copied().collect();
        for (slot, entry) in self.table.iter().enumerate() {
            keeper.resume(slot as u32, entry, &workers);
        }
        for (worker, link) in &mut self.links {
            keeper.handle_worker(*worker);
            link.keeper = self.keepers;
            link.is_known = true;
        }
        self.unsettled = true;
        self.keeper = Some(keeper);
    }

    /// Changes the most bytes of memory in use.
    pub(crate) fn set_bytes_max(&mut self, bytes_max: u64) {
        self.size.bytes_max = bytes_max;
        if let Some(keeper) = &mut self.keeper {
            keeper.handle_bytes_max(bytes_max);
        }
    }

    // Helpers.

    /// A helper begins to load a block of a file as it is now. None if it does not use the store: there is no
    /// keeper, the block does not exist, or the file changed so recently that it could change again without a
    /// new time stamp.
    pub(crate) fn begin(&mut self, file: &FileHandle, block: u64, wall_ns: i128) -> Option<HelperId> {
        let stat = file.stat();
        let key = BlockKey::new(&stat, block);
        let form = form_of_block(stat.size_bytes, block)
            .map(|coding| compress(&file.inode.borrow().content, coding));
        if self.keeper.is_none() || (form.is_none() && key.length_bytes() == 0) || stat.is_racy(wall_ns) {
            return None;
        }
        self.helpers += 1;
        let helper = HelperId(self.helpers);
        let fill = Fill {
            key,
            inode: Rc::clone(&file.inode),
            form,
            stage: Stage::Asked,
            is_begun: false,
            keeper: self.keepers,
        };
        self.news.push_back(News::Want(helper, key, fill.length_bytes() as u32));
        self.fills.insert(helper, fill);
        Some(helper)
    }

    pub(crate) fn stage(&self, helper: HelperId) -> Stage {
        self.fills.get(&helper).map_or(Stage::Over, |fill| fill.stage)
    }

    /// Writes one half of the block, as the file is now.
    fn write_half(&mut self, helper: HelperId, is_second: bool) -> bool {
        let Some(fill) = self.fills.get(&helper) else { return false };
        let Stage::Granted(place) = fill.stage else { return false };
        let is_loading = self.table.contains(&Entry::Loading(place));
        assert!(is_loading, "property: memory: a helper writes to {place:?}, which is not its own");
        let length_bytes = u64::from(place.length_bytes);
        let (from, to) = if is_second { (length_bytes / 2, length_bytes) } else { (0, length_bytes / 2) };
        let inode = fill.inode.borrow();
        if let Some(form) = &fill.form {
            self.memory.write(place.offset + from, &form[from as usize..to as usize]);
            return !inode.fails;
        }
        let start = fill.key.block * LOAD_BYTES;
        if inode.fails || inode.stat.size_bytes < start + to {
            return false;
        }
        self.memory.write(place.offset + from, &inode.content.slice(start + from, start + to));
        true
    }

    /// A helper writes the rest, checks whether the file is unchanged, and reports.
    pub(crate) fn finish(&mut self, helper: HelperId) {
        let is_written = self.write_half(helper, true);
        let Some(fill) = self.fills.get_mut(&helper).filter(|fill| matches!(fill.stage, Stage::Granted(_)))
        else {
            return;
        };
        let is_same = BlockKey::new(&fill.inode.borrow().stat, fill.key.block) == fill.key;
        if fill.keeper == self.keepers && self.keeper.is_some() {
            fill.stage = Stage::Told;
            self.news.push_back(News::Filled(helper, fill.is_begun && is_written && is_same));
        } else {
            fill.stage = Stage::Over;
        }
    }

    /// A helper cannot read the file, and reports that.
    pub(crate) fn fail(&mut self, helper: HelperId) {
        if let Some(fill) = self.fills.get_mut(&helper)
            && matches!(fill.stage, Stage::Granted(_))
        {
            fill.stage = Stage::Over;
            if fill.keeper == self.keepers && self.keeper.is_some() {
                fill.stage = Stage::Told;
                self.news.push_back(News::Filled(helper, false));
            }
        }
    }

    /// Removes a fill whose stage is over.
    pub(crate) fn end(&mut self, helper: HelperId) {
        if let Some(fill) = self.fills.remove(&helper) {
            assert_eq!(fill.stage, Stage::Over, "the fill is not over");
        }
    }

    /// A helper has ended, in any stage of its fill.
    pub(crate) fn helper_gone(&mut self, helper: HelperId) {
        if let Some(fill) = self.fills.remove(&helper)
            && fill.keeper == self.keepers
            && self.keeper.is_some()
        {
            self.news.push_back(News::HelperGone(helper));
        }
    }

    /// Whether a helper could still write to a place that an earlier keeper gave it.
    fn writes_for_earlier(&self) -> bool {
        let may_write = |fill: &&Fill| fill.keeper != self.keepers && matches!(fill.stage, Stage::Granted(_));
        self.fills.values().find(may_write).is_some()
    }

    // Workers.

    fn attach(&mut self) -> WorkerId {
        self.workers += 1;
        let worker = WorkerId(self.workers);
        self.links.insert(worker, Link { keeper: self.keepers, ..Link::default() });
        if self.keeper.is_some() {
            self.news.push_back(News::WorkerComes(worker));
        }
        worker
    }

    fn detach(&mut self, worker: WorkerId) {
        self.links.remove(&worker);
        if self.keeper.is_some() {
            self.news.push_back(News::WorkerGone(worker));
        }
    }

    // Properties.

    /// After a turn of the keeper: its totals match the table, and no memory is held in vain.
    fn check(&self) {
        let Some(totals) = self.totals() else { return };
        let held_bytes = self.pages.len() as u64 * PAGE_BYTES;
        assert_eq!(
            totals.held_bytes, held_bytes,
            "property: totals: bytes held differ between keeper and table"
        );
        assert_eq!(
            totals.blocks,
            self.index.len() as u64,
            "property: totals: blocks differ between keeper and table"
        );
        assert_eq!(
            totals.bytes_max, self.size.bytes_max,
            "property: totals: the bound differs between keeper and store"
        );
        let forgotten = self.fills.values().find(|fill| {
            fill.stage == Stage::Asked && fill.keeper == self.keepers && self.index.contains_key(&fill.key)
        });
        assert!(forgotten.is_none(), "property: keeper: a helper waits for a stored block: {forgotten:?}");
        let lost = self.memory.pages().find(|page| !self.pages.contains_key(page));
        assert!(
            lost.is_none(),
            "property: leaks: page {lost:?} of the memory is unused and was not returned"
        );
    }

    /// At rest, no block is loading or leaving, and memory is within its bound.
    pub(crate) fn check_end(&self) {
        let odd = self.table.iter().find(|entry| matches!(entry, Entry::Loading(_) | Entry::Leaving(_)));
        assert!(odd.is_none(), "property: leaks: {odd:?} never becomes ready or empty");
        assert!(self.fills.is_empty(), "property: leaks: helpers wait forever: {:?}", self.fills);
        let Some(totals) = self.totals() else { return };
        assert_eq!(totals.pinned_bytes, 0, "property: leaks: pinned bytes although no transfer is left");
        let Totals { held_bytes, bytes_max, .. } = totals;
        assert!(held_bytes <= bytes_max, "property: bounds: {held_bytes} bytes held at rest, of {bytes_max}");
        self.check();
    }
}

fn new_keeper(size: StoreSize) -> StoreKeeper {
    Keeper::with_hasher(size.length_bytes, size.slots_max, size.bytes_max, BuildHasherDefault::default())
}

fn extent_of(entry: &Entry<BlockKey>) -> Option<Extent> {
    match entry {
        Entry::Empty => None,
        Entry::Loading(place) | Entry::Ready(_, place) | Entry::Leaving(place) => Some(*place),
    }
}
