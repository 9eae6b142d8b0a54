//! The store's memory file and table, and their keeper. The files belong to the supervisor, so the contents of the store outlive
//! the keeper, every worker and every configuration.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use flash_prompt::epoll::Epoll;
use flash_prompt::store_memory::StoreMemory;
use flash_prompt::table::{self, TableWriter};
use flash_prompt::{channel, clock};
use flash_waiting::guarded::Place;
use flash_waiting::{file, store_file};
use flash_worker::control::{Notice, Order, receive_notice};
use flash_worker::stats::Figures;
use flash_worker::store_protocol::STORE_MESSAGE_BYTES_MAX;

use super::child::Ending;
use super::crew::Role;
use super::outbox::{self, Outbox, Shared};
use super::restart::Restart;
use crate::config::Settings;
use crate::convert::{store_length_bytes, store_slots_max};
use crate::hot_list::LIST_BYTES_MAX;
use crate::sandbox::Role as Part;
use crate::stats::StoreStats;

/// Room for pending messages between the keeper and another process, in bytes.
const LINK_BYTES: usize = 16 * STORE_MESSAGE_BYTES_MAX;

/// Maximum time of the keeper for an answer: far beyond the time that it gives blocks to leave. A process that fills the
/// store then works without it.
const KEEPER_PATIENCE: Duration = Duration::from_secs(1);

/// Maximum time of the keeper to save the list of hot files.
const SAVING_MS: u64 = 5_000;

/// The store, as the generations share it.
pub(super) type SharedStore = Rc<RefCell<Store>>;

/// The store's files and its keeper.
#[derive(Debug)]
pub(super) struct Store {
    memory: Shared,
    memory_to_read: Shared,
    length_bytes: u64,
    table: Shared,
    table_to_read: Shared,
    /// The settings for the next keeper.
    settings_file: Shared,
    bytes_max: u64,
    keeper: Option<Role>,
    /// The restart of the keeper, which has ended.
    restart: Restart,
    /// Processes that may still fill the store for an earlier keeper; None once the keeper knows that there are none.
    awaited: Option<Vec<u32>>,
    /// The last figures of the keeper; its counts continue those of earlier keepers.
    pub(super) stats: Option<StoreStats>,
    /// The figures of the keepers that have ended.
    ended: StoreStats,
    /// The list of hot files: the first worker loads it, and the keeper saves it.
    hot_list: HotList,
    /// The deadline for saving the list, once the keeper was told to.
    saving_until_ms: Option<u64>,
}

/// The list of hot files.
#[derive(Debug, Default)]
pub(super) struct HotList {
    /// In memory, until a worker of the first configuration has it.
    to_load: Option<Shared>,
    /// The next version of the list, open for writing.
    to_save: Option<Shared>,
    /// The place of the list, until the next version is in use.
    place: Option<Place>,
}

impl Store {
    /// Creates an empty store of the configured size, and starts its keeper.
    ///
    /// Errors: those of creating its memory files, and of starting a process.
    pub(super) fn begin(
        settings: &Settings,
        settings_file: &Shared,
        hot_list: HotList,
        epoll: &Epoll,
        numbers: &mut u64,
    ) -> io::Result<Self> {
        let mut store = Self::new(settings, settings_file, hot_list)?;
        store.start(std::iter::empty(), epoll, numbers)?;
        Ok(store)
    }

    fn new(settings: &Settings, settings_file: &Shared, hot_list: HotList) -> io::Result<Self> {
        let cannot =
            |what: &'static str| move |e: io::Error| io::Error::new(e.kind(), format!("cannot {what}: {e}"));
        let bytes_max = settings.cache_memory.bytes_max();
        let length_bytes = store_length_bytes(bytes_max);
        let slots_max = store_slots_max(bytes_max);
        let memory =
            store_file::create(c"flash-store", length_bytes).map_err(cannot("create its memory file"))?;
        let table_bytes = table::file_bytes(slots_max).unwrap_or(0);
        let table = store_file::create(c"flash-table", table_bytes).map_err(cannot("create its table"))?;
        TableWriter::create(&table, slots_max).map_err(cannot("create its table"))?;
        let memory_to_read =
            Arc::new(store_file::read_only(&memory).map_err(cannot("create its memory file"))?);
        // Every worker maps it. Where RLIMIT_AS forbids that, one early message is better than one from each worker.
        drop(
            StoreMemory::map(memory_to_read.try_clone()?, length_bytes)
                .map_err(cannot("map its memory file"))?,
        );
        Ok(Self {
            memory_to_read,
            memory: Arc::new(memory),
            length_bytes,
            table_to_read: Arc::new(store_file::read_only(&table).map_err(cannot("create its table"))?),
            table: Arc::new(table),
            settings_file: Arc::clone(settings_file),
            bytes_max,
            keeper: None,
            restart: Restart::default(),
            awaited: None,
            stats: None,
            ended: StoreStats::default(),
            hot_list,
            saving_until_ms: None,
        })
    }

    /// Starts a keeper that takes over the contents of the store, with links to these workers, which may know them,
    /// and with this many links to each of them to fill the store.
    pub(super) fn start<'w>(
        &mut self,
        workers: impl Iterator<Item = (&'w mut Outbox, usize)>,
        epoll: &Epoll,
        numbers: &mut u64,
    ) -> io::Result<()> {
        *numbers += 1;
        let mut role = Role::start(Part::Keeper, &self.settings_file, *numbers)?;
        let file = Arc::clone(&self.memory);
        let mut told =
            role.orders.give_at_start(Order::StoreMemory { length_bytes: self.length_bytes, file });
        told = told.and_then(|()| role.orders.give_at_start(Order::StoreTable(Arc::clone(&self.table))));
        told = told.and_then(|()| role.orders.give_at_start(Order::BytesMax(self.bytes_max)));
        for (worker, fillers) in workers {
            told = told.and_then(|()| link(&mut role.orders, worker, Order::Keeper));
            for _ in 0..fillers {
                told = told.and_then(|()| link_filler(&mut role.orders, worker));
            }
        }
        if let Some(list) = &self.hot_list.to_save {
            told = told.and_then(|()| role.orders.give_at_start(Order::HotList(Arc::clone(list))));
        }
        told = told.and_then(|()| role.orders.give_at_start(Order::Begin));
        match told.and_then(|()| role.orders.watch(epoll)) {
            Ok(()) => self.keeper = Some(role),
            Err(e) => {
                role.child.kill();
                return Err(e);
            }
        }
        Ok(())
    }

    /// Gives a starting worker read access to the store, a link to the keeper, and `fillers` links to fill the store
    /// itself.
    pub(super) fn give_worker(&mut self, worker: &mut Outbox, fillers: usize) -> io::Result<()> {
        let length_bytes = self.length_bytes;
        let file = Arc::clone(&self.memory_to_read);
        worker.give_at_start(Order::StoreMemory { length_bytes, file })?;
        worker.give_at_start(Order::StoreTable(Arc::clone(&self.table_to_read)))?;
        if let Some(keeper) = &mut self.keeper {
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

    /// Gives a starting process everything that it needs to fill the store with `fillers` blocks at once.
    pub(super) fn give_filler(&mut self, filler: &mut Outbox, fillers: usize) -> io::Result<()> {
        let file = Arc::clone(&self.memory);
        filler.give_at_start(Order::StoreMemory { length_bytes: self.length_bytes, file })?;
        let Some(keeper) = &mut self.keeper else { return Ok(()) };
        if !keeper.orders.is_empty() {
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
        if let Some(keeper) = &mut self.keeper {
            // A keeper that does not read its orders is killed when they are sent again.
            let _ = keeper.orders.give(Order::BytesMax(self.bytes_max));
        }
    }

    /// Whether this is the keeper's number.
    pub(super) fn is_keeper(&self, number: u64) -> bool {
        self.keeper.as_ref().is_some_and(|keeper| keeper.number() == number)
    }

    /// The keeper's process.
    pub(super) fn pid(&self) -> Option<u32> {
        self.keeper.as_ref().map(Role::pid)
    }

    /// Handles a message of the keeper; returns a message for the operator.
    pub(super) fn hear(&mut self, epoll: &Epoll) -> Option<String> {
        let keeper = self.keeper.as_mut()?;
        match receive_notice(keeper.orders.channel()) {
            Ok(Notice::Ready(in_force)) => keeper.ready = Some(in_force),
            Ok(Notice::Pong) => keeper.pulse.hear(clock::monotonic_ms()),
            Ok(Notice::Report(text)) => return Some(format!("the store: {text}")),
            Ok(Notice::Stats(_, json)) => self.note_stats(&json),
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => keeper.orders.unwatch(epoll),
            Ok(_) | Err(_) => {}
        }
        None
    }

    fn note_stats(&mut self, json: &str) {
        let Ok(mut stats) = serde_json::from_str::<StoreStats>(json) else { return };
        stats.add(&self.ended);
        self.stats = Some(stats);
    }

    /// Continues sending orders; returns a message for the operator.
    pub(super) fn go_on(&mut self, now_ms: u64, epoll: &Epoll) -> Option<String> {
        let keeper = self.keeper.as_mut()?;
        if let Err(e) = keeper.orders.go_on().and_then(|()| keeper.orders.watch(epoll)) {
            keeper.child.kill();
            return Some(format!("killing the store's keeper: cannot send it orders: {e}"));
        }
        // While it saves the list, it waits for a disk, and has its own deadline.
        if self.saving_until_ms.is_none()
            && let Some(why) = keeper.give_up_silent(now_ms)
        {
            return Some(format!("killing the store's keeper: {why}"));
        }
        keeper.give_up_late(now_ms).then(|| "killing the store's keeper: it was not ready in time".to_owned())
    }

    /// Reaps a keeper that has ended. `fillers` are the processes that may still fill the store for it. Also returns its
    /// messages that were not read yet.
    pub(super) fn reap(&mut self, fillers: impl Iterator<Item = u32>) -> (Option<Ending>, Vec<String>) {
        let end = self.keeper.as_mut().and_then(|keeper| keeper.child.ending());
        let Some(keeper) = self.keeper.take_if(|_| end.is_some()) else { return (None, Vec::new()) };
        let (mut last_words, stats) = keeper.last_words();
        last_words.iter_mut().for_each(|text| text.insert_str(0, "the store: "));
        stats.iter().for_each(|json| self.note_stats(json));
        self.ended = self.stats.as_ref().map(Figures::ended).unwrap_or_default();
        self.restart.plan(&keeper);
        self.awaited.get_or_insert_default().extend(fillers);
        (end, last_words)
    }

    /// Uses the list of hot files that a keeper has saved, which has ended. Returns a message for the operator.
    pub(super) fn use_hot_list(&mut self, end: Ending) -> Option<String> {
        let is_saved = self.saving_until_ms.is_some() && end.is_success();
        let failed = if is_saved { self.hot_list.use_next().err() } else { None };
        failed.map(|e| format!("cannot replace the list of hot files: {e}"))
    }

    /// Starts no further keeper, because the server stops.
    pub(super) fn stop(&mut self) {
        self.restart.cancel();
    }

    /// Asks the keeper to save the list of hot files when all workers are gone. True when that is done or takes too
    /// long.
    pub(super) fn has_saved(&mut self, now_ms: u64) -> bool {
        let Some(keeper) = self.keeper.as_mut().filter(|_| self.hot_list.to_save.is_some()) else {
            return true;
        };
        let until_ms = *self.saving_until_ms.get_or_insert_with(|| {
            let _ = keeper.orders.give(Order::Drain);
            now_ms + SAVING_MS
        });
        now_ms >= until_ms
    }

    /// Whether a keeper must be started now. True once.
    pub(super) fn is_due(&mut self, now_ms: u64) -> bool {
        self.restart.take_due(now_ms)
    }

    /// Schedules another attempt after a keeper could not be started.
    pub(super) fn start_later(&mut self, now_ms: u64) {
        self.restart.plan_again(now_ms);
    }

    /// Tells the keeper when all processes that filled the store for an earlier one are gone.
    pub(super) fn note_gone(&mut self, is_there: impl Fn(u32) -> bool) {
        let Some(awaited) = &mut self.awaited else { return };
        awaited.retain(|pid| is_there(*pid));
        // Without a keeper now, the next one is told.
        if awaited.is_empty()
            && let Some(keeper) = &mut self.keeper
            && keeper.orders.give(Order::Settled).is_ok()
        {
            self.awaited = None;
        }
    }

    /// The next deadline.
    pub(super) fn next_ms(&self) -> Option<u64> {
        let keeper = self.keeper.as_ref().filter(|_| self.saving_until_ms.is_none());
        let of_keeper =
            keeper.into_iter().flat_map(|role| role.begin_ms().into_iter().chain(role.pulse.next_ms()));
        of_keeper.chain(self.restart.next_ms()).chain(self.saving_until_ms).min()
    }
}

impl HotList {
    /// The list named by the settings, if any.
    ///
    /// Errors: as of [`HotList::open`].
    pub(super) fn of(settings: &Settings) -> io::Result<Self> {
        settings.cache_list.as_deref().map_or(Ok(Self::default()), Self::open)
    }

    /// Reads the list, if it exists, and creates the next version beside it.
    ///
    /// Errors: one of both cannot be opened.
    fn open(path: &Path) -> io::Result<Self> {
        let cannot = |e: io::Error| {
            let advice =
                "choose a file in a folder of root, or of the user who starts Flash, or remove cache_list";
            io::Error::new(
                e.kind(),
                format!("cannot open the list of hot files {}: {e}; {advice}", path.display()),
            )
        };
        let place = Place::find(path).map_err(cannot)?;
        let mut text = Vec::new();
        if let Some(file) = place.read().map_err(cannot)? {
            File::from(file).take(LIST_BYTES_MAX).read_to_end(&mut text).map_err(cannot)?;
        }
        let to_load = Arc::new(file::memory_file(&text)?);
        let to_save = Arc::new(place.create_next().map_err(cannot)?);
        Ok(Self::from_parts(to_load, to_save, place))
    }

    /// A list from its current and its next version, and its place.
    pub(super) fn from_parts(to_load: Shared, to_save: Shared, place: Place) -> Self {
        Self { to_load: Some(to_load), to_save: Some(to_save), place: Some(place) }
    }

    /// The parts of a list, for another process.
    pub(super) fn into_parts(mut self) -> Option<(Shared, Shared, Place)> {
        Some((self.to_load.take()?, self.to_save.take()?, self.place.take()?))
    }

    /// Puts the next version in place of the list, which the keeper has written.
    fn use_next(&mut self) -> io::Result<()> {
        self.place.take().map_or(Ok(()), |place| place.use_next())
    }
}

impl Drop for HotList {
    fn drop(&mut self) {
        self.place.iter().for_each(Place::drop_next);
    }
}

/// Connects the keeper with a process that fills the store, which does not wait for a keeper that is late.
fn link_filler(keeper: &mut Outbox, filler: &mut Outbox) -> io::Result<()> {
    let (ours, theirs) = channel::pair(LINK_BYTES)?;
    channel::set_receive_timeout(&theirs, KEEPER_PATIENCE)?;
    keeper.give_at_start(Order::Filler(Arc::new(ours)))?;
    filler.give_at_start(Order::Filler(Arc::new(theirs)))
}

/// Connects the keeper with another process.
fn link(keeper: &mut Outbox, other: &mut Outbox, order: fn(Shared) -> Order<Shared>) -> io::Result<()> {
    outbox::link(keeper, other, order, LINK_BYTES)
}
