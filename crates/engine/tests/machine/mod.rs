//! A machine in memory for the engine's tests: sockets, files, helpers and a clock, all controlled by the
//! test and deterministic.
//!
//! [`World`] joins an engine to a [`Machine`] and runs turns of the loop as a worker does: readiness is
//! edge-triggered, jobs finish when the test says so (or by themselves one turn after their start, with
//! [`World::auto`]), and time moves only by [`World::advance`]. The machine checks that the engine calls it
//! as [`flash_engine::Machine`] demands, and counts open sockets and files.

pub(crate) mod client;
pub(crate) mod files;
pub(crate) mod h2;
pub(crate) mod helpers;
pub(crate) mod records;
pub(crate) mod response;
pub(crate) mod store;
pub(crate) mod trace;
pub(crate) mod world;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use flash_engine::limits::{LOAD_BYTES, READ_BYTES_MAX};
use flash_engine::{
    Band, Block, BucketKey, FilePart, FileSent, FileStat, Gateway, JobId, Key, Log, LookUpError, Moment,
    NameMark, Net, Opened, RecordLayer, Resident, ServerId, SharedName, SiteId, Task, Want, form_of_block,
};

pub(crate) use client::Client;
use client::Socket;
pub(crate) use files::{Content, FileHandle, Files, KIB, MIB};
use helpers::Helpers;
use records::ToyRecords;
pub(crate) use store::StoreSize;
use store::WorkerStore;
use trace::{Trace, digest};
pub(crate) use world::{STORE, World, at_most, rules};

/// The start time of every test, without special properties.
pub(crate) const START_MS: u64 = 1_000_000;
/// 2027-01-15 08:00:00 UTC.
pub(crate) const START_WALL_NS: i128 = 1_800_000_000_000_000_000;

/// How often the engine made each kind of call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Calls {
    pub(crate) recvs: u64,
    pub(crate) sends: u64,
    /// Sends of which the socket accepted nothing.
    pub(crate) vain_sends: u64,
    pub(crate) look_ups: u64,
    /// Names sought among those that all workers share.
    pub(crate) names: u64,
    pub(crate) reads: u64,
    /// Parts of files that the system was asked to send.
    pub(crate) file_sends: u64,
    pub(crate) stats: u64,
    /// Look-ups of blocks in the store.
    pub(crate) blocks: u64,
    /// Changes of a socket's band.
    pub(crate) bands: u64,
    pub(crate) read_bytes: u64,
    pub(crate) sent_bytes: u64,
    /// Bytes of ciphertext that were sent; they do not count in `sent_bytes`.
    pub(crate) encrypted_bytes: u64,
}

/// A number that increases with each new item and decreases when one is dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Count(Rc<Cell<usize>>);

impl Count {
    pub(crate) fn get(&self) -> usize {
        self.0.get()
    }

    pub(crate) fn up(&self) -> Counted {
        self.0.set(self.0.get() + 1);
        Counted(Rc::clone(&self.0))
    }
}

/// An item of a [`Count`].
#[derive(Debug)]
pub(crate) struct Counted(Rc<Cell<usize>>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// A change of a file in place that is made between two calls of the engine.
#[derive(Debug)]
pub(crate) struct Meddling {
    /// The inode number of the file. The change follows the next read of it.
    pub(crate) inode: u64,
    pub(crate) content: Content,
    pub(crate) now_ns: i128,
}

/// The machine that a worker's engine calls.
pub(crate) struct Machine {
    pub(crate) now: Moment,
    pub(crate) files: Files,
    pub(crate) helpers: Helpers,
    pub(crate) sockets_open: Count,
    pub(crate) log: Vec<String>,
    pub(crate) reports: Vec<String>,
    pub(crate) calls: Calls,
    pub(crate) trace: Trace,
    pub(crate) meddling: Option<Meddling>,
    /// Its view of the store, if there is one.
    pub(crate) store: Option<WorkerStore>,
    /// Other workers that use the same uplink.
    pub(crate) others_at_uplink: u32,
    /// How many requests other workers are answering for each rule that bounds them.
    pub(crate) others_answering: u32,
    /// The counts that the worker has announced.
    pub(crate) answering: HashMap<BucketKey, u32>,
    /// The buckets of all workers.
    pub(crate) buckets: HashMap<BucketKey, AtomicU64>,
    /// The connections to servers that the engine has asked for, oldest first.
    pub(crate) asked: Vec<(Key, ServerId)>,
    /// The servers to which connections are encrypted.
    pub(crate) encrypted: BTreeSet<ServerId>,
    /// The inode number and size of the file that each version stands for.
    versions: BTreeMap<u64, (u64, u64)>,
}

impl Machine {
    pub(crate) fn new(helpers_idle: usize) -> Self {
        Self {
            now: Moment { monotonic_ns: START_MS * 1_000_000, wall_ns: START_WALL_NS },
            files: Files::new(),
            helpers: Helpers::new(helpers_idle),
            sockets_open: Count::default(),
            log: Vec::new(),
            reports: Vec::new(),
            calls: Calls::default(),
            trace: Trace::default(),
            meddling: None,
            store: None,
            others_at_uplink: 0,
            others_answering: 0,
            answering: HashMap::new(),
            buckets: HashMap::new(),
            asked: Vec::new(),
            encrypted: BTreeSet::new(),
            versions: BTreeMap::new(),
        }
    }

    /// Checks the bounds of a read.
    fn check_part(offset: u64, length: u64) {
        assert!(length > 0, "an empty read");
        assert!(length <= READ_BYTES_MAX as u64, "a read of {length} bytes");
        assert_eq!(offset / LOAD_BYTES, (offset + length - 1) / LOAD_BYTES, "a read across a block boundary");
    }

    fn meddle(&mut self, file: &FileHandle) {
        let inode = file.stat().inode;
        if let Some(change) = self.meddling.take_if(|change| change.inode == inode) {
            self.trace.note("a change after the read", &[inode]);
            file.inode.borrow_mut().update(change.content, change.now_ns);
        }
    }

    /// Sends, after checking that the engine's request is valid.
    fn sent(&mut self, socket: &Socket, pieces: &[&[u8]]) -> io::Result<usize> {
        let result = socket.wire.borrow_mut().send(pieces);
        let offered = pieces.iter().map(|piece| piece.len()).sum();
        let sent = result.as_ref().map_or(u64::MAX, |sent| *sent as u64);
        let [first, second] = [0, 1].map(|n| pieces.get(n).map_or(0, |piece| digest(piece)));
        self.trace.note("send", &[socket.number, first, second, sent]);
        assert!(offered > 0, "an empty send");
        if socket.is_link {
            return result;
        }
        self.calls.sends += 1;
        match &result {
            Ok(sent) => {
                assert!(*sent <= offered);
                self.calls.sent_bytes += *sent as u64;
                self.calls.vain_sends += u64::from(*sent == 0);
            }
            Err(e) => self.calls.vain_sends += u64::from(e.kind() == ErrorKind::WouldBlock),
        }
        result
    }
}

impl Calls {
    /// Whether the engine may have counted this many bytes as sent. Plaintext is counted when it is encrypted.
    pub(crate) fn agree_with(&self, counted: u64) -> bool {
        counted == self.sent_bytes || (self.encrypted_bytes > 0 && counted > self.sent_bytes)
    }
}

impl Net for Machine {
    type Socket = Socket;

    fn recv(&mut self, socket: &Socket, buffer: &mut [u8]) -> io::Result<usize> {
        assert!(!buffer.is_empty(), "a receive without room would look like the end of input");
        self.calls.recvs += 1;
        let result = socket.wire.borrow_mut().recv(buffer);
        let received = result.as_ref().map_or(u64::MAX, |received| *received as u64);
        self.trace.note("recv", &[socket.number, received]);
        result
    }

    fn send(&mut self, socket: &Socket, bytes: &[u8]) -> io::Result<usize> {
        self.sent(socket, &[bytes])
    }

    fn send_both(&mut self, socket: &Socket, first: &[u8], second: &[u8]) -> io::Result<usize> {
        self.sent(socket, &[first, second])
    }

    fn send_pieces(&mut self, socket: &Socket, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let pieces: Vec<&[u8]> = pieces.iter().map(|piece| &**piece).collect();
        let before = self.calls.sent_bytes;
        let sent = self.sent(socket, &pieces);
        self.calls.encrypted_bytes += std::mem::replace(&mut self.calls.sent_bytes, before) - before;
        sent
    }

    fn end_sending(&mut self, socket: &Socket) {
        self.trace.note("end sending", &[socket.number]);
        socket.wire.borrow_mut().server_ended = true;
    }

    fn reset(&mut self, socket: &Socket) {
        self.trace.note("reset", &[socket.number]);
        socket.wire.borrow_mut().was_reset = true;
    }

    fn local_address(&mut self, _: &Socket) -> Option<SocketAddr> {
        Some(([192, 0, 2, 80], 8080).into())
    }

    fn unacknowledged_bytes(&mut self, socket: &Socket) -> u64 {
        socket.wire.borrow().unacknowledged_bytes()
    }

    fn last_call_ns(&self) -> u64 {
        self.now.monotonic_ns
    }
}

impl flash_engine::Bands for Machine {
    fn set_band(&mut self, socket: &Socket, _: &SocketAddr, band: Band) {
        self.calls.bands += 1;
        self.trace.note("band", &[socket.number, band.number() as u64]);
        socket.wire.borrow_mut().set_band(band);
    }
}

impl flash_engine::UplinkShare for Machine {
    fn share_uplink(&mut self, _: bool) -> u32 {
        self.others_at_uplink
    }
}

impl flash_engine::Buckets for Machine {
    fn bucket(&mut self, key: &BucketKey) -> Option<&AtomicU64> {
        Some(self.buckets.entry(*key).or_default())
    }

    fn announce_requests(&mut self, key: &BucketKey, count: u32) -> u32 {
        self.answering.insert(*key, count);
        self.others_answering
    }
}

impl flash_engine::Files for Machine {
    type File = FileHandle;

    fn open_cached(
        &mut self,
        site: SiteId,
        path: &[u8],
        want: Want,
    ) -> Result<Opened<FileHandle>, LookUpError> {
        self.calls.look_ups += 1;
        assert!(!path.starts_with(b"/"), "a look-up is relative to the root: {}", path.escape_ascii());
        let result = self.files.open_cached(site, path, want);
        let inode = result.as_ref().map_or(u64::MAX, |opened| opened.stat.inode);
        self.trace.note("look up", &[u64::from(site.0), digest(path), inode]);
        result
    }

    fn read_resident(&mut self, file: &FileHandle, offset: u64, buffer: &mut [u8]) -> io::Result<Resident> {
        self.calls.reads += 1;
        let length = buffer.len() as u64;
        Self::check_part(offset, length);
        let result = file.read_resident(offset, buffer);
        let mut bytes = 0;
        if let Ok(Resident::Bytes(n)) = result {
            bytes = n as u64;
            self.calls.read_bytes += bytes;
            self.meddle(file);
        }
        self.trace.note("read", &[file.stat().inode, offset, length, bytes]);
        result
    }

    fn stat(&mut self, file: &FileHandle) -> io::Result<FileStat> {
        self.calls.stats += 1;
        self.trace.note("stat", &[file.stat().inode]);
        file.stat_cached()
    }
}

impl flash_engine::SharedNames for Machine {
    fn shared_name(&mut self, site: SiteId, path: &[u8]) -> Option<SharedName> {
        self.calls.names += 1;
        let known = self.store.as_ref()?.host().borrow().names.get(site, path);
        self.trace.note(
            "known name",
            &[u64::from(site.0), digest(path), known.map_or(0, |name| name.confirmed_ms)],
        );
        known
    }

    fn unchanged_ms(&self, mark: NameMark) -> Option<u64> {
        self.store.as_ref()?.host().borrow().names.unchanged_ms(mark)
    }

    fn are_changes_reported(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.host().borrow().names.are_changes_reported())
    }

    fn report_wrong_name(&mut self, site: SiteId, path: &[u8]) {
        self.trace.note("doubt", &[u64::from(site.0), digest(path)]);
        if let Some(store) = &self.store {
            store.host().borrow_mut().names.doubt(site, path);
        }
    }
}

impl flash_engine::Blocks for Machine {
    fn block(&mut self, stat: &FileStat, number: u64) -> Option<Block> {
        let is_form = form_of_block(stat.size_bytes, number).is_some();
        assert!(
            is_form || number * LOAD_BYTES < stat.size_bytes,
            "block {number} of {} bytes",
            stat.size_bytes
        );
        self.calls.blocks += 1;
        let found = self.store.as_mut().expect("the machine has a store").block(stat, number);
        self.trace.note("block", &[stat.inode, number, u64::from(found.is_some())]);
        found
    }
}

impl flash_engine::Helpers for Machine {
    fn start_job(&mut self, id: JobId, task: &Task<FileHandle>, _queued: usize) -> bool {
        let started = self.helpers.start(id, task);
        self.trace.note("start job", &[id.to_u64(), u64::from(started)]);
        started
    }

    fn abandon_job(&mut self, id: JobId) {
        self.trace.note("abandon job", &[id.to_u64()]);
        self.helpers.abandon(id);
    }
}

impl Gateway for Machine {
    fn connect(&mut self, link: Key, server: ServerId) {
        self.trace.note("connect", &[link.to_u64(), u64::from(server.server)]);
        self.asked.push((link, server));
    }

    fn record_layer(&mut self, server: ServerId) -> Option<Box<dyn RecordLayer>> {
        assert!(self.encrypted.contains(&server), "{server:?} is not reached over TLS");
        Some(Box::new(ToyRecords::of_client()))
    }
}

impl Log for Machine {
    fn log_access(&mut self, _: u16, line: &[u8]) {
        self.trace.note("log", &[digest(line)]);
        self.log.push(String::from_utf8_lossy(line).into_owned());
    }

    fn report(&mut self, message: &str) {
        self.reports.push(message.to_owned());
    }
}

impl flash_engine::Machine for Machine {
    fn send_file(
        &mut self,
        socket: &Socket,
        head: &[u8],
        file: &Arc<FileHandle>,
        part: FilePart,
    ) -> io::Result<FileSent> {
        self.calls.file_sends += 1;
        Self::check_part(part.offset, part.length as u64);
        let stat = file.stat();
        self.trace.note("send file", &[socket.number, stat.inode, part.offset, part.length as u64]);
        let known = self.versions.entry(part.version).or_insert((stat.inode, part.size_bytes));
        assert_eq!(*known, (stat.inode, part.size_bytes), "one version stands for two states");
        let mut bytes = vec![0; part.length];
        let resident = match file.read_resident(part.offset, &mut bytes) {
            Ok(Resident::Bytes(0)) => return Ok(FileSent::Changed),
            Ok(Resident::Bytes(n)) => n,
            Ok(Resident::Absent) => return Ok(FileSent::Absent),
            Ok(Resident::Unknown) => return Ok(FileSent::Unknown),
            Err(_) => return Ok(FileSent::Failed),
        };
        let offered = head.len() + resident;
        let result = self.sent(socket, &[head, &bytes[..resident]]);
        self.meddle(file);
        result.map(|sent| FileSent::Took { offered, sent })
    }
}
