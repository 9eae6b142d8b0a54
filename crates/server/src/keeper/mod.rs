//! The keeper process: it alone owns the store's space and policy ([`flash_keeper::Keeper`]) and writes the table. Workers
//! report the blocks that they use and release; helpers ask for space. It does no request work and reads no file, and no hit
//! waits for it.
//!
//! The supervisor keeps the memory file and the table open, so both outlive the keeper, and a new keeper takes over the blocks.

mod entries;
mod hot_paths;
mod links;
mod shared_names;
mod size;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use flash_engine::form_of_block;
use flash_keeper::{Action, Answer, Entry, HelperId, Keeper, WatcherId, WorkerId};
use flash_prompt::epoll::{Epoll, Watch};
use flash_prompt::names::FileState;
use flash_prompt::table::{BlockKey, TableWriter};
use flash_prompt::{OwnedFd, channel, clock};
use flash_waiting::pressure::PressureFiles;
use flash_waiting::sandbox::calls::CallList;
use flash_waiting::store_file;
use flash_worker::codec::{self, decode};
use flash_worker::control::{Notice as ToSupervisor, Order, receive_order};
use flash_worker::store_protocol::{
    self as protocol, FromWorker, Learned, Notice, Request, STORE_MESSAGE_BYTES_MAX,
};

use crate::config::{CacheMemory, Settings};
use crate::control::{Control, unexpected};
use crate::hot_list;
use crate::sandbox::{self, Role};
use crate::stats::StoreStats;
use entries::{first_block, is_block, table_extent};
use hot_paths::{HotPath, HotPaths};
use links::Link;
use shared_names::SharedNamesTable;

/// Messages taken from one link at the end: its channel holds fewer.
const LAST_MESSAGES_MAX: usize = 1 << 16;
/// Time after which a worker with a full channel is sent its messages again.
const RETRY_MS: u64 = 10;
struct Process {
    control: Control,
    epoll: Epoll,
    keeper: Keeper<BlockKey>,
    table: TableWriter,
    shared_names: SharedNamesTable,
    memory: OwnedFd,
    /// By their numbers, which are the epoll tokens.
    links: BTreeMap<u32, Link>,
    links_made: u32,
    /// The links of processes that broke the protocol.
    ignored: BTreeSet<u32>,
    /// The file for the list of hot files.
    hot_list: Option<File>,
    /// The paths of files for that list.
    hot_paths: HotPaths,
    /// The size that the settings want.
    most_bytes: u64,
    /// None if the size is fixed.
    pressure: Option<PressureFiles>,
    next_look_ms: u64,
    /// When the supervisor gets the next figures.
    next_stats_ms: u64,
    /// The last figures sent to the supervisor.
    reported: StoreStats,
    /// Shutdown: the keeper saves the list and ends.
    draining: bool,
    /// The system had no memory for a block, and the operator knows.
    reported_no_memory: bool,
}

/// Keeps the store until the supervisor is gone.
pub(crate) fn run(control: OwnedFd, settings: &Settings) -> io::Result<()> {
    let mut process = Process::begin(control, settings)?;
    let in_force = sandbox::close(Role::Keeper, settings, &[], CallList::Keeper)?;
    process.control.ready(in_force)?;
    loop {
        let now_ms = clock::monotonic_ms();
        process.keeper.settle(now_ms);
        process.act()?;
        if process.draining {
            return process.save();
        }
        process.look(now_ms);
        let again_ms = (!process.send_to_workers()).then_some(RETRY_MS);
        let settles_ms = process.keeper.next_ms().map(|ms| ms.saturating_sub(now_ms));
        let looks_ms = process.next_look_ms.saturating_sub(now_ms);
        let timeout_ms = again_ms.into_iter().chain(settles_ms).chain([looks_ms]).min();
        let ready: Vec<u64> = process.epoll.wait(timeout_ms)?.map(|ready| ready.token).collect();
        // Orders first: they name the links.
        if ready.contains(&Control::TOKEN) {
            process.receive_orders()?;
        }
        for token in ready {
            // One message, as most links have no second one: a look for it would cost as much as the message.
            if token != Control::TOKEN && !process.receive(token as u32, 1)? {
                process.lose(token as u32);
            }
        }
    }
}

impl Process {
    /// Reads the orders from `control` up to `Begin`.
    fn begin(control: OwnedFd, settings: &Settings) -> io::Result<Self> {
        let (mut memory, mut table, mut shared_names, mut links) = (None, None, None, Vec::new());
        let mut hot_list = None;
        let mut bytes_max = settings.cache_memory.bytes_max();
        loop {
            match receive_order(&control)? {
                Order::StoreMemory { length_bytes, file } => memory = Some((length_bytes, file)),
                Order::StoreTable(file) => table = Some(TableWriter::open(file)?),
                Order::NamesTable(file) => shared_names = Some(SharedNamesTable::open(file)?),
                Order::Keeper(channel) => links.push(Link::to_worker(channel)),
                Order::Filler(channel) => links.push(Link::Filler(channel)),
                Order::Watcher(channel) => links.push(Link::Watcher(channel)),
                Order::BytesMax(bytes) => bytes_max = bytes,
                Order::HotList(file) => hot_list = Some(File::from(file)),
                Order::Begin => break,
                other => return Err(unexpected(&other)),
            }
        }
        let (Some((length_bytes, memory)), Some(table), Some(shared_names)) = (memory, table, shared_names)
        else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a keeper without a store"));
        };
        let epoll = Epoll::new(64)?;
        let mut process = Self {
            control: Control::watch(control, &epoll)?,
            epoll,
            keeper: Keeper::new(length_bytes, table.slots_max(), bytes_max),
            table,
            shared_names,
            memory,
            links: BTreeMap::new(),
            links_made: 0,
            ignored: BTreeSet::new(),
            hot_list,
            hot_paths: HotPaths::new(),
            most_bytes: bytes_max,
            pressure: matches!(settings.cache_memory, CacheMemory::Auto { .. }).then(PressureFiles::open),
            next_look_ms: 0,
            next_stats_ms: 0,
            reported: StoreStats::default(),
            draining: false,
            reported_no_memory: false,
        };
        links.into_iter().try_for_each(|link| process.link(link))?;
        process.resume();
        Ok(process)
    }

    /// Takes over the contents of the table. Current workers may know them.
    fn resume(&mut self) {
        let is_worker =
            |(number, link): (&u32, &Link)| matches!(link, Link::Worker(..)).then_some(WorkerId(*number));
        let workers: Vec<_> = self.links.iter().filter_map(is_worker).collect();
        for slot in 0..self.table.slots_used() {
            let entry = entries::get(&self.table, slot);
            self.keeper.resume(slot, &entry, &workers);
        }
    }

    fn link(&mut self, link: Link) -> io::Result<()> {
        channel::set_nonblocking(link.channel())?;
        self.links_made += 1;
        self.epoll.add(link.channel(), self.links_made.into(), Watch::Input)?;
        if matches!(link, Link::Worker(..)) {
            self.keeper.handle_worker(WorkerId(self.links_made));
        }
        self.links.insert(self.links_made, link);
        Ok(())
    }

    fn receive_orders(&mut self) -> io::Result<()> {
        while let Some(order) = self.control.receive()? {
            let linked = match order {
                Order::Keeper(channel) => self.link(Link::to_worker(channel)),
                Order::Filler(channel) => self.link(Link::Filler(channel)),
                Order::Watcher(channel) => self.link(Link::Watcher(channel)),
                Order::BytesMax(bytes) => {
                    self.most_bytes = bytes;
                    self.keeper.handle_bytes_max(bytes);
                    Ok(())
                }
                Order::Settled => {
                    self.keeper.handle_writers_gone();
                    Ok(())
                }
                Order::Drain => {
                    self.receive_last();
                    self.draining = true;
                    Ok(())
                }
                _ => Ok(()),
            };
            if let Err(e) = linked {
                self.control.report(format!("a process runs without the store: {e}"));
            }
        }
        Ok(())
    }

    /// Reads up to `messages_max` messages of a worker or a filler; false if it is gone. After an invalid message its messages are
    /// ignored, but the end of its channel counts: until then it can use the places that it has.
    ///
    /// Errors: if its messages cannot be read. It could still use a place that is freed when it has gone, so this keeper
    /// ends, and the next one asks all processes anew.
    fn receive(&mut self, number: u32, messages_max: usize) -> io::Result<bool> {
        let mut bytes = [0; STORE_MESSAGE_BYTES_MAX];
        for _ in 0..messages_max {
            let Some(link) = self.links.get(&number) else { return Ok(true) };
            let message = match channel::recv(link.channel(), &mut bytes, &mut Vec::new()) {
                Ok(0) => return Ok(false),
                Ok(length) => &bytes[..length],
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(false),
                // Longer than any message.
                Err(e) if e.kind() == io::ErrorKind::InvalidData => &[],
                Err(e) => return Err(e),
            };
            if self.ignored.contains(&number) {
                continue;
            }
            let is_valid = match link {
                Link::Worker(..) => self.handle_worker(WorkerId(number), message),
                Link::Filler(_) => self.handle_filler(HelperId(number), message),
                Link::Watcher(_) => decode(message).is_some_and(|message| {
                    self.shared_names.handle_message(WatcherId(number), message, clock::monotonic_ms());
                    true
                }),
            };
            if !is_valid {
                self.ignore(number);
            }
        }
        Ok(true)
    }

    fn handle_worker(&mut self, worker: WorkerId, message: &[u8]) -> bool {
        let notices = match decode(message) {
            Some(FromWorker::Notices(notices)) => notices,
            Some(FromWorker::Wrong(names)) => {
                names.into_iter().for_each(|name| self.shared_names.forget(name));
                return true;
            }
            None => return false,
        };
        for notice in notices {
            match notice {
                Notice::Used(slot, uses) => self.keeper.handle_used(slot, uses),
                Notice::Released(slot) => self.keeper.handle_released(worker, slot),
            }
        }
        true
    }

    fn handle_filler(&mut self, helper: HelperId, message: &[u8]) -> bool {
        match decode(message) {
            Some(Request::Want(key, length_bytes)) if is_block(&key, length_bytes) => {
                self.keeper.handle_want(helper, key, length_bytes, clock::monotonic_ms());
            }
            Some(Request::Want(..)) | None => return false,
            Some(Request::Filled(learned)) => {
                self.keeper.handle_filled(helper, true);
                learned.into_iter().for_each(|learned| self.learn(&learned));
            }
            Some(Request::Failed) => self.keeper.handle_filled(helper, false),
            Some(Request::Learned(learned)) => self.learn(&learned),
            Some(Request::Named { file, root, path }) => {
                if self.hot_list.is_some() {
                    let is_stored = |file: &FileState| self.keeper.has(&first_block(*file));
                    self.hot_paths.insert(file, &root, &path, is_stored);
                }
            }
            Some(Request::NoMemory) => {
                self.keeper.handle_filled(helper, false);
                self.shrink();
            }
            Some(Request::GiveUp) => {
                self.keeper.handle_helper_gone(helper);
                self.answer(helper.0, &protocol::Answer::GivenUp);
            }
        }
        true
    }

    fn learn(&mut self, learned: &Learned) {
        let Learned { name, facts, found_ms, subtree } = learned;
        // A file without content needs no block.
        let is_stored = |state: &FileState| state.size_bytes == 0 || self.keeper.has(&first_block(*state));
        self.shared_names.learn(*name, facts, *found_ms, is_stored);
        if let Some(subtree) = subtree {
            self.shared_names.watch(*name, *subtree, facts, *found_ms);
        }
    }

    /// Periodically adapts the size to the memory, and reports figures to the supervisor.
    fn look(&mut self, now_ms: u64) {
        if now_ms < self.next_look_ms {
            return;
        }
        self.next_look_ms = now_ms + size::LOOK_MS;
        let totals = self.keeper.totals();
        if let Some(files) = &mut self.pressure {
            let pressure = files.look();
            let bytes = size::next_bytes(&pressure, totals.bytes_max, totals.held_bytes, self.most_bytes);
            self.keeper.handle_bytes_max(bytes);
            self.next_look_ms = now_ms + size::next_look_ms(&pressure);
        }
        if now_ms < self.next_stats_ms {
            return;
        }
        self.next_stats_ms = now_ms + size::LOOK_MS;
        let stats = StoreStats::of(&self.shared_names.count(totals));
        if stats != self.reported
            && let Ok(json) = serde_json::to_string(&stats)
        {
            // A lost report is sent again when the figures change.
            self.control.send(&ToSupervisor::Stats(0, json));
            self.reported = stats;
        }
    }

    /// Reads the last messages of workers that are gone.
    fn receive_last(&mut self) {
        let all: Vec<u32> = self.links.keys().copied().collect();
        for number in all {
            // The others still have theirs.
            let _ = self.receive(number, LAST_MESSAGES_MAX);
        }
    }

    /// Writes the list of the most valuable blocks, if a list is configured. The supervisor then puts it in place of the
    /// old list.
    fn save(&self) -> io::Result<()> {
        let Some(file) = &self.hot_list else { return Ok(()) };
        let mut all = 0;
        let mut blocks: Vec<(f64, u32, &HotPath)> = Vec::new();
        for slot in 0..self.table.slots_used() {
            let Entry::Ready(key, _) = entries::get(&self.table, slot) else { continue };
            // Compressed forms are made when they are asked for.
            if form_of_block(key.file.size_bytes, key.block.into()).is_some() {
                continue;
            }
            all += 1;
            let valued = self.keeper.value(slot).zip(self.hot_paths.get(&key.file));
            blocks.extend(valued.map(|(value, name)| (value, key.block, name)));
        }
        blocks.sort_by(|(a, ..), (b, ..)| b.total_cmp(a));
        let (text, lines) = hot_list::write(blocks.into_iter().map(|(_, block, name)| name.hot(block)));
        if lines < all {
            self.control.report(format!(
                "the list of hot files has {lines} of the {all} blocks in the store: the keeper was not told the paths of the \
                 others, or the list is full"
            ));
        }
        let saved = file.write_all_at(&text, 0).and_then(|()| file.set_len(text.len() as u64));
        saved.inspect_err(|e| self.control.report(format!("cannot save the list of hot files: {e}")))
    }

    /// The system has no memory for a larger store.
    fn shrink(&mut self) {
        // One failed write is no reason to do without the store.
        let held_bytes = self.keeper.totals().held_bytes.max(size::LEAST_BYTES).min(self.most_bytes);
        self.keeper.handle_bytes_max(held_bytes);
        self.most_bytes = held_bytes;
        if !std::mem::replace(&mut self.reported_no_memory, true) {
            self.control.report(format!(
                "the system has no memory for a store larger than {} MiB; it stays at this size",
                held_bytes >> 20
            ));
        }
    }

    /// Ignores the messages of a process, and ends its channel.
    fn ignore(&mut self, number: u32) {
        let Some(link) = self.links.get(&number) else { return };
        let who = match link {
            Link::Worker(_) => "worker",
            Link::Filler(_) => "helper",
            Link::Watcher(_) => "watcher",
        };
        let _ = channel::end_sending(link.channel());
        self.ignored.insert(number);
        self.control.report(format!(
            "a {who} sent its keeper an invalid message, which is a bug or an attack; the keeper ignores it from now on"
        ));
    }

    fn lose(&mut self, number: u32) {
        self.ignored.remove(&number);
        // The link is closed with it, and so no longer watched.
        match self.links.remove(&number) {
            Some(Link::Worker(..)) => self.keeper.handle_worker_gone(WorkerId(number)),
            Some(Link::Filler(_)) => self.keeper.handle_helper_gone(HelperId(number)),
            Some(Link::Watcher(_)) => self.shared_names.lose(WatcherId(number)),
            None => {}
        }
    }

    /// Carries out the keeper's outputs.
    fn act(&mut self) -> io::Result<()> {
        while let Some(action) = self.keeper.poll() {
            match action {
                Action::Note(slot, entry) => entries::put(&mut self.table, slot, &entry),
                Action::Forget(WorkerId(number), slot) => {
                    if let Some(Link::Worker(worker)) = self.links.get_mut(&number) {
                        worker.leaving.push(slot);
                    }
                }
                Action::GiveBack(offset, length_bytes) => {
                    store_file::give_back(&self.memory, offset, length_bytes)?;
                }
                Action::Answer(HelperId(number), answer) => {
                    let answer = match answer {
                        Answer::There => protocol::Answer::There,
                        Answer::Joined => protocol::Answer::Joined,
                        Answer::Fill(at) => protocol::Answer::Fill(table_extent(at)),
                        Answer::Refused => protocol::Answer::Refused,
                    };
                    self.answer(number, &answer);
                }
            }
        }
        Ok(())
    }

    fn answer(&mut self, number: u32, answer: &protocol::Answer) {
        let Some(link) = self.links.get(&number) else { return };
        if codec::send(link.channel(), answer, &[]).is_err() {
            // The helper does not read its answers: it is gone, or is not one of Flash's.
            self.lose(number);
        }
    }

    /// Sends new workers that they are known, and all workers which blocks leave; false if a channel has no room for
    /// all messages now.
    fn send_to_workers(&mut self) -> bool {
        let mut is_sent = true;
        for link in self.links.values_mut() {
            let Link::Worker(worker) = link else { continue };
            // The channel reports a worker that is gone.
            is_sent &= worker.send_waiting().err().is_none_or(|e| e.kind() != io::ErrorKind::WouldBlock);
        }
        is_sent
    }
}

#[cfg(test)]
#[path = "keeper_tests.rs"]
mod tests;
