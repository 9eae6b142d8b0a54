//! The store's memory file and table, and their keeper. The files belong to the supervisor, so the contents of the store outlive
//! the keeper, every worker and every configuration.

mod kept;

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use flash_prompt::names::{self, NamesReader, NamesWriter};
use flash_prompt::store_memory::StoreMemory;
use flash_prompt::table::{self, TableReader, TableWriter};
use flash_prompt::{OwnedFd, channel, clock};
use flash_waiting::store_file;
use flash_waiting::successor::Bequest;
use flash_waiting::systemd::KeptFile;
use flash_worker::control::{Notice, Order};
use flash_worker::stats::Figures;
use flash_worker::store_protocol::STORE_MESSAGE_BYTES_MAX;

use crate::config::Settings;
use crate::convert::{store_length_bytes, store_names_max, store_slots_max};
use crate::stats::StoreStats;
use crate::supervisor::Event;
use crate::supervisor::estate::Estate;
use crate::supervisor::hot_list_files::{HotList, LeftList};
use crate::supervisor::life::{Duty, State, not_started};
use crate::supervisor::outbox::{self, Outbox, Shared};
use crate::supervisor::poller::Poller;
use crate::supervisor::process::{LeftProcess, Process};
use crate::supervisor::processes::{Ended, Processes};

/// Room for pending messages between the keeper and another process, in bytes.
const LINK_BYTES: usize = 16 * STORE_MESSAGE_BYTES_MAX;

/// Maximum time of the keeper for an answer: far beyond the time that it gives blocks to leave. A process that fills the
/// store then works without it.
const KEEPER_PATIENCE: Duration = Duration::from_secs(1);

/// Maximum time of the keeper to save the list of hot files.
const SAVING_MS: u64 = 5_000;

/// Maximum time of the keeper of the last program to end.
const LAST_KEEPER_MS: u64 = 1_000;

#[derive(Debug)]
pub(super) struct Store {
    memory: StoreFile,
    length_bytes: u64,
    table: StoreFile,
    names: StoreFile,
    /// The settings for the next keeper.
    settings_file: Shared,
    bytes_max: u64,
    /// The keeper, unless it has ended.
    pub(super) processes: Processes,
    /// The tokens of processes that may still fill the store for an earlier keeper; None once the keeper knows that there are
    /// none.
    awaited: Option<Vec<u64>>,
    /// The last figures of the keeper; its counts continue those of earlier keepers.
    pub(super) stats: Option<StoreStats>,
    /// The figures of the keepers that have ended.
    ended: StoreStats,
    /// The list of hot files: the first worker loads it, and the keeper saves it.
    hot_list: HotList,
    /// Whether the server stops, so that no further keeper starts.
    is_stopping: bool,
    /// Whether systemd has kept it from an earlier server.
    is_kept: bool,
    /// Whether the keeper has no channels to the watchers yet that are there.
    lacks_watchers: bool,
}

/// The sizes of a store.
struct Sizes {
    bytes_max: u64,
    length_bytes: u64,
    slots_max: u32,
    names_max: u32,
}

impl Sizes {
    fn of(settings: &Settings) -> Self {
        let bytes_max = settings.cache_memory.bytes_max();
        Self {
            bytes_max,
            length_bytes: store_length_bytes(bytes_max),
            slots_max: store_slots_max(bytes_max),
            names_max: store_names_max(bytes_max),
        }
    }

    /// The lengths of the memory file, of the table and of the names.
    fn files(&self) -> [u64; 3] {
        let (table, names) = (table::file_bytes(self.slots_max), names::file_bytes(self.names_max));
        [self.length_bytes, table.unwrap_or(0), names.unwrap_or(0)]
    }
}

/// Creates the files of an empty store.
fn create(sizes: &Sizes) -> io::Result<[StoreFile; 3]> {
    let [memory, table, names] = sizes.files();
    Ok([
        StoreFile::create(c"flash-store", memory, "memory file", |_| Ok(()))?,
        StoreFile::create(c"flash-table", table, "table", |file| {
            TableWriter::create(file, sizes.slots_max).map(drop)
        })?,
        StoreFile::create(c"flash-names", names, "table of names", |file| {
            NamesWriter::create(file, sizes.names_max).map(drop)
        })?,
    ])
}

/// A file of the store: for those who write it, and for those who only read it.
#[derive(Debug)]
struct StoreFile {
    to_write: Shared,
    to_read: Shared,
}

impl StoreFile {
    /// A file that was created before.
    fn of(file: OwnedFd) -> io::Result<Self> {
        Ok(Self { to_read: Arc::new(store_file::read_only(&file)?), to_write: Arc::new(file) })
    }

    /// Creates a file of this length and fills it. `what` names it in errors.
    fn create(
        name: &CStr,
        bytes: u64,
        what: &str,
        fill: impl FnOnce(&OwnedFd) -> io::Result<()>,
    ) -> io::Result<Self> {
        let create = || {
            let file = store_file::create(name, bytes)?;
            fill(&file)?;
            Self::of(file)
        };
        create().map_err(|e: io::Error| io::Error::new(e.kind(), format!("cannot create its {what}: {e}")))
    }
}

/// A [`Store`] as the next program takes it over.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LeftStore {
    /// Each to write and to read.
    files: [(usize, usize); 3],
    length_bytes: u64,
    settings_file: usize,
    bytes_max: u64,
    stats: Option<StoreStats>,
    ended: StoreStats,
    keeper: Option<LeftProcess>,
    hot_list: Option<LeftList>,
}

impl Store {
    /// Creates an empty store of the configured size, or continues the one whose files systemd has kept, and starts its keeper.
    pub(super) fn start(
        settings: &Settings,
        settings_file: &Shared,
        (hot_list, kept): (HotList, Vec<KeptFile>),
        poller: &mut Poller,
    ) -> io::Result<Self> {
        let sizes = Sizes::of(settings);
        let kept = kept::take(kept, &sizes);
        let is_kept = kept.is_some();
        let [memory, table, names] = kept.map_or_else(|| create(&sizes), Ok)?;
        let Sizes { bytes_max, length_bytes, .. } = sizes;
        // Every worker maps it. Where RLIMIT_AS forbids that, one early message is better than one from each worker.
        StoreMemory::map(memory.to_read.try_clone()?, length_bytes)
            .map_err(|e| io::Error::new(e.kind(), format!("cannot map its memory file: {e}")))?;
        let mut store = Self {
            memory,
            length_bytes,
            table,
            names,
            settings_file: Arc::clone(settings_file),
            bytes_max,
            processes: Processes::default(),
            // Nobody fills it for an earlier keeper.
            awaited: is_kept.then(Vec::new),
            is_kept,
            stats: None,
            ended: StoreStats::default(),
            hot_list,
            is_stopping: false,
            lacks_watchers: false,
        };
        store.start_keeper(std::iter::empty(), poller)?;
        kept::leave([&store.memory, &store.table, &store.names]);
        Ok(store)
    }

    /// Whether it has the contents that it had before a restart of the server.
    pub(super) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Leaves it to the next program.
    pub(super) fn leave(&self, bequest: &mut Bequest) -> io::Result<LeftStore> {
        let mut leave =
            |file: &StoreFile| io::Result::Ok((bequest.add(&*file.to_write)?, bequest.add(&*file.to_read)?));
        let files = [leave(&self.memory)?, leave(&self.table)?, leave(&self.names)?];
        let keeper = self.processes.of(Duty::Keeper).map(|keeper| keeper.leave(bequest));
        Ok(LeftStore {
            files,
            length_bytes: self.length_bytes,
            settings_file: bequest.add(&*self.settings_file)?,
            bytes_max: self.bytes_max,
            stats: self.stats.clone(),
            ended: self.ended.clone(),
            keeper: keeper.transpose()?,
            hot_list: self.hot_list.leave(bequest)?,
        })
    }

    /// Takes over the store of an earlier program. Its keeper ends, and one of this program follows it.
    ///
    /// Errors: the store has another form.
    pub(super) fn adopt(left: LeftStore, estate: &mut Estate, poller: &mut Poller) -> io::Result<Self> {
        let mut processes = Processes::default();
        match left.keeper.map(|keeper| Process::adopt(keeper, estate, poller)).transpose()? {
            Some(mut keeper) => {
                keeper.drain(Some(clock::monotonic_ms() + LAST_KEEPER_MS));
                processes.insert(keeper, poller)?;
            }
            None => processes.start_now(Duty::Keeper),
        }
        let [memory, table, names] = left.files;
        let mut adopt = |(to_write, to_read)| {
            let (to_write, to_read) = (Arc::new(estate.take(to_write)?), Arc::new(estate.take(to_read)?));
            io::Result::Ok(StoreFile { to_write, to_read })
        };
        let (memory, table, names) = (adopt(memory)?, adopt(table)?, adopt(names)?);
        TableReader::map(table.to_read.try_clone()?)?;
        NamesReader::map(names.to_read.try_clone()?)?;
        Ok(Self {
            memory,
            length_bytes: left.length_bytes,
            table,
            names,
            settings_file: Arc::new(estate.take(left.settings_file)?),
            bytes_max: left.bytes_max,
            processes,
            // All that fill the store are added when the keeper has ended.
            awaited: Some(Vec::new()),
            stats: left.stats,
            ended: left.ended,
            hot_list: left.hot_list.map_or(Ok(HotList::default()), |list| HotList::adopt(list, estate))?,
            is_stopping: false,
            is_kept: false,
            lacks_watchers: false,
        })
    }

    /// Starts a keeper that takes over the contents of the store, with links to these workers, which may know them, and with
    /// this many links to each of them to fill the store.
    fn start_keeper<'w>(
        &mut self,
        workers: impl Iterator<Item = (&'w mut Outbox, usize)>,
        poller: &mut Poller,
    ) -> io::Result<()> {
        let mut keeper = Process::start(Duty::Keeper, &self.settings_file, poller)?;
        let orders = &mut keeper.orders;
        let file = Arc::clone(&self.memory.to_write);
        orders.give_at_start(Order::StoreMemory { length_bytes: self.length_bytes, file })?;
        orders.give_at_start(Order::StoreTable(Arc::clone(&self.table.to_write)))?;
        orders.give_at_start(Order::NamesTable(Arc::clone(&self.names.to_write)))?;
        orders.give_at_start(Order::BytesMax(self.bytes_max))?;
        for (worker, fillers) in workers {
            link(orders, worker, Order::Keeper)?;
            (0..fillers).try_for_each(|_| link_filler(orders, worker))?;
        }
        if let Some(list) = &self.hot_list.to_save {
            orders.give_at_start(Order::HotList(Arc::clone(list)))?;
        }
        orders.give_at_start(Order::Begin)?;
        self.processes.insert(keeper, poller)
    }

    /// Gives a starting worker read access to the store, a link to the keeper, and `fillers` links to fill the store
    /// itself.
    pub(super) fn give_worker(&mut self, worker: &mut Outbox, fillers: usize) -> io::Result<()> {
        let length_bytes = self.length_bytes;
        let file = Arc::clone(&self.memory.to_read);
        worker.give_at_start(Order::StoreMemory { length_bytes, file })?;
        worker.give_at_start(Order::StoreTable(Arc::clone(&self.table.to_read)))?;
        self.give_names(worker)?;
        if let Some(keeper) = self.processes.of_mut(Duty::Keeper) {
            link(&mut keeper.orders, worker, Order::Keeper)?;
        }
        // One worker loads the list: the others find its blocks.
        if let Some(list) = self.hot_list.to_load.take() {
            worker.give_at_start(Order::HotList(list))?;
        }
        if fillers > 0 {
            self.give_filler(worker, fillers)?;
        }
        Ok(())
    }

    /// Gives a starting process read access to the names that all workers share.
    pub(super) fn give_names(&self, process: &mut Outbox) -> io::Result<()> {
        process.give_at_start(Order::NamesTable(Arc::clone(&self.names.to_read)))
    }

    /// Gives a starting watcher the table of names, and connects it with the keeper, if there is one.
    pub(super) fn give_watcher(&mut self, watcher: &mut Outbox) -> io::Result<()> {
        self.give_names(watcher)?;
        match self.processes.of_mut(Duty::Keeper) {
            Some(keeper) => link_watcher(&mut keeper.orders, watcher),
            None => Ok(()),
        }
    }

    /// Connects a keeper that has followed another one with the watchers.
    pub(super) fn link_watchers<'w>(&mut self, watchers: impl Iterator<Item = &'w mut Outbox>) {
        let Some(keeper) = self.processes.of_mut(Duty::Keeper).filter(|_| self.lacks_watchers) else {
            return;
        };
        self.lacks_watchers = false;
        for watcher in watchers {
            // Without a channel, its names are checked.
            let _ = link_watcher(&mut keeper.orders, watcher);
        }
    }

    /// Gives a starting process everything that it needs to fill the store with `fillers` blocks at once.
    pub(super) fn give_filler(&mut self, filler: &mut Outbox, fillers: usize) -> io::Result<()> {
        let file = Arc::clone(&self.memory.to_write);
        filler.give_at_start(Order::StoreMemory { length_bytes: self.length_bytes, file })?;
        let Some(keeper) = self.processes.of_mut(Duty::Keeper) else { return Ok(()) };
        if !keeper.orders.is_sent() {
            // A keeper that does not read its orders collects no more descriptors: this process works without the store.
            return Ok(());
        }
        (0..fillers).try_for_each(|_| link_filler(&mut keeper.orders, filler))
    }

    /// Resizes the store for the configuration in force.
    pub(super) fn resize(&mut self, settings: &Settings, settings_file: &Shared) {
        // At most half of the addresses: otherwise free ones would be too scattered for large blocks.
        self.bytes_max = settings.cache_memory.bytes_max().min(self.length_bytes / 2);
        self.settings_file = Arc::clone(settings_file);
        if let Some(keeper) = self.processes.of_mut(Duty::Keeper) {
            // A keeper that does not read its orders is killed when they are sent again.
            let _ = keeper.orders.give(Order::BytesMax(self.bytes_max));
        }
    }

    /// Handles the event of `token`; false if it is not that of the keeper. `fillers` are the processes that may fill the store.
    pub(super) fn handle(
        &mut self,
        token: u64,
        fillers: impl Iterator<Item = u64>,
        poller: &Poller,
        events: &mut Vec<Event>,
    ) -> bool {
        let Some(keeper) = self.processes.get_mut(token) else { return false };
        match keeper.receive(poller) {
            Some(Notice::Report(text)) => events.push(Event::Message(format!("the store: {text}"))),
            Some(Notice::Stats(_, json)) => self.note_stats(&json),
            _ => {}
        }
        if let Some(ended) = self.processes.take_ended(token) {
            self.handle_end(ended, fillers, events);
        }
        true
    }

    fn note_stats(&mut self, json: &str) {
        let Ok(mut stats) = serde_json::from_str::<StoreStats>(json) else { return };
        stats.add(&self.ended);
        self.stats = Some(stats);
    }

    fn handle_end(&mut self, mut ended: Ended, fillers: impl Iterator<Item = u64>, events: &mut Vec<Event>) {
        let reports = ended.process.receive_last().into_iter();
        events.extend(reports.map(|text| Event::Message(format!("the store: {text}"))));
        ended.process.statistics.iter().for_each(|json| self.note_stats(json));
        self.ended = self.stats.as_ref().map(Figures::ended).unwrap_or_default();
        self.awaited.get_or_insert_default().extend(fillers);
        let has_drained = ended.process.state == State::Draining && ended.end.is_success();
        if !self.is_stopping && has_drained {
            // The keeper of the last program has handed the store over.
            self.processes.start_now(Duty::Keeper);
        } else if !self.is_stopping {
            self.processes.replace(&ended);
            let end = ended.end;
            events.push(Event::Message(format!(
                "the store's keeper ended ({end}); starting another; the store keeps its contents"
            )));
        } else if has_drained && let Err(e) = self.hot_list.use_next() {
            events.push(Event::Message(format!("cannot replace the list of hot files: {e}")));
        }
    }

    /// Starts no further keeper, because the server stops.
    pub(super) fn stop(&mut self) {
        self.is_stopping = true;
        self.processes.cancel_restarts(|_| true);
    }

    /// Asks the keeper to save the list of hot files when all workers are gone. True when that is done or takes too
    /// long.
    pub(super) fn has_saved(&mut self, now_ms: u64) -> bool {
        let keeper = self.processes.of_mut(Duty::Keeper).filter(|_| self.hot_list.to_save.is_some());
        let Some(keeper) = keeper else { return true };
        if !matches!(keeper.state, State::Draining | State::Killed) {
            keeper.drain(Some(now_ms + SAVING_MS));
        }
        keeper.state != State::Draining
    }

    /// Does everything that is due. `workers` are those that use the store, with the number of blocks that each fills at once.
    pub(super) fn advance<'w>(
        &mut self,
        now_ms: u64,
        workers: impl Iterator<Item = (&'w mut Outbox, usize)>,
        poller: &mut Poller,
        events: &mut Vec<Event>,
    ) {
        if let Some(duty) = self.processes.take_due(now_ms).pop() {
            self.lacks_watchers = true;
            if let Err(e) = self.start_keeper(workers, poller) {
                self.processes.start_later(duty, now_ms);
                events.push(Event::Message(not_started(duty, &e)));
            }
        }
        for kill in self.processes.advance(now_ms, poller) {
            events.push(Event::Message(format!("killing {}: {}", Duty::Keeper, kill.why)));
        }
    }

    /// Handles a keeper that was abandoned, and reports to the keeper when all processes that filled the store for an earlier
    /// one are gone. `fillers` are those that exist.
    pub(super) fn note_fillers(&mut self, fillers: &BTreeSet<u64>, events: &mut Vec<Event>) {
        for ended in self.processes.take_abandoned() {
            self.handle_end(ended, fillers.iter().copied(), events);
        }
        let Some(awaited) = &mut self.awaited else { return };
        awaited.retain(|token| fillers.contains(token));
        // Without a keeper now, the next one is told.
        if awaited.is_empty()
            && let Some(keeper) = self.processes.of_mut(Duty::Keeper)
            && keeper.orders.give(Order::Settled).is_ok()
        {
            self.awaited = None;
        }
    }
}

/// Connects the keeper with a process that fills the store, which does not wait for a keeper that is late.
fn link_filler(keeper: &mut Outbox, filler: &mut Outbox) -> io::Result<()> {
    let (ours, theirs) = channel::pair(LINK_BYTES)?;
    channel::set_receive_timeout(&theirs, KEEPER_PATIENCE)?;
    keeper.give_at_start(Order::Filler(Arc::new(ours)))?;
    filler.give_at_start(Order::Filler(Arc::new(theirs)))
}

/// Connects the keeper with a watcher, whose messages wait for room.
fn link_watcher(keeper: &mut Outbox, watcher: &mut Outbox) -> io::Result<()> {
    let (ours, theirs) = channel::pair(LINK_BYTES)?;
    keeper.give(Order::Watcher(Arc::new(ours)))?;
    watcher.give(Order::Keeper(Arc::new(theirs)))
}

/// Connects the keeper with another process.
fn link(keeper: &mut Outbox, other: &mut Outbox, order: fn(Shared) -> Order<Shared>) -> io::Result<()> {
    outbox::link(keeper, other, order, LINK_BYTES)
}
