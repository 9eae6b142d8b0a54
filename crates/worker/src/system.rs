//! The engine's [`Machine`] on Linux. Nothing in it blocks by itself; the architecture decides how files are
//! reached ([`Reach`]).

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use flash_engine::{
    Band, Bands, BucketKey, Buckets, FilePart, FileSent, FileStat, Files, Gateway, JobId, Key, Log,
    LookUpError, Machine, NameMark, Net, Opened, RecordLayer, ReportLimit, Resident, ServerId, SharedName,
    SiteId, Task, UplinkShare, Want,
};
use flash_prompt::OwnedFd;
use flash_prompt::mechanism::Mechanism;
use flash_prompt::net::InFlightCap;
use flash_prompt::{clock, file, net};
use flash_tls::Connector;

use super::calls::{Call, last_call_ns, note_call, timed};
use super::gateway::GatewayChannel;
use super::helpers::Helpers;
use super::log::LogBuffer;
use super::priority::{self, Marks};
use super::reach::Reach;
use super::site_file::{Closing, SiteFile};
use super::socket::Socket;
use super::store::Store;
use crate::REPORT_MS;
use crate::comparisons::{OwnJobs, Sending};
use crate::convert;
use crate::setup::{Given, GivenStore, Plan, Root, Shares};
use crate::supervisor::Supervisor;
use crate::worker::{kind, token};

/// How long a drained worker waits for the log writer to accept its last lines.
const LAST_LINES_MS: u64 = 1_000;
/// Up to this total length, head and body are copied together and sent as one piece.
const JOINED_BYTES_MAX: usize = 2048;

/// The sockets, files, helpers and logs of one worker.
pub struct LinuxSystem {
    /// None for a site whose look-ups are jobs: its root is missing, or its file system may depend on another
    /// process or host.
    roots: Vec<Option<Arc<OwnedFd>>>,
    reach: Reach,
    sending: Sending,
    marks: Marks,
    cap: Option<InFlightCap>,
    shares: Shares,
    pub(super) helpers: Helpers,
    /// Jobs of the worker's own process, in architectures without helpers.
    pub own: Option<OwnJobs>,
    pub(super) log: LogBuffer,
    /// None if the store is disabled.
    pub(super) store: Option<Store>,
    pub(super) gateway: GatewayChannel,
    connector: Connector,
    pub(super) closing: Closing,
    pub(super) supervisor: Supervisor,
    said_unknown: bool,
    dropped_lines: ReportLimit,
    lost_helpers: ReportLimit,
    overdue: ReportLimit,
    failures: u64,
    finishing_since_ms: Option<u64>,
}

impl LinuxSystem {
    /// Takes the descriptors of a worker, except its listeners. Its channels are watched by `mechanism`.
    ///
    /// Errors: any of watching them.
    pub(super) fn new(
        given: Given,
        plan: &Plan,
        (reach, own): (Reach, Option<OwnJobs>),
        mechanism: &mut Mechanism,
    ) -> io::Result<Self> {
        let Given {
            control,
            roots,
            log: log_writer,
            store,
            gateway,
            connector,
            shares,
            helpers: threads,
            ..
        } = given;
        let mut helpers = Helpers::new(plan.helpers, control.try_clone()?);
        for (number, channel) in (0..).zip(threads) {
            if !helpers.add(mechanism, token(kind::HELPER, number), number, channel) {
                return Err(io::Error::other("a helper thread cannot be watched"));
            }
        }
        let mut log = LogBuffer::new();
        log_writer.into_iter().for_each(|channel| log.connect(channel));
        // Under the other roots, a look-up may wait for another process or host, so it is a job.
        let looks_up = |root: Root| (reach.under_all_roots || root.is_local).then_some(root.folder);
        Ok(Self {
            roots: roots.into_iter().map(|root| root.and_then(looks_up)).collect(),
            reach,
            sending: Sending::new(plan.send, plan.mapped_chunks_max, reach.send_file),
            marks: plan.marks,
            cap: plan.cap,
            shares,
            helpers,
            own,
            log,
            store: store.map(|given| connected_store(given, mechanism)),
            gateway: GatewayChannel::to(gateway, mechanism, |number| token(kind::GATEWAY, number)),
            connector,
            supervisor: Supervisor::new(control)?,
            closing: Closing::default(),
            said_unknown: false,
            dropped_lines: ReportLimit::default(),
            lost_helpers: ReportLimit::default(),
            overdue: ReportLimit::default(),
            failures: 0,
            finishing_since_ms: None,
        })
    }

    /// The roots under which the worker itself looks up files.
    pub fn roots(&self) -> impl Iterator<Item = &OwnedFd> {
        self.roots.iter().flatten().map(|root| &**root)
    }

    pub(super) fn needs_housekeeping(&self) -> bool {
        self.helpers.needs_housekeeping()
            || !self.closing.is_empty()
            || !self.log.is_empty()
            || self.supervisor.has_reports()
            || self.store.as_ref().is_some_and(Store::has_work)
    }

    /// Does periodic work that no event announces.
    pub(super) fn keep_house(&mut self, now_ms: u64) {
        self.helpers.keep_house(now_ms);
        if let Some(store) = &mut self.store {
            store.keep_house();
        }
        self.log.flush();
        if self.log.has_dropped() && self.dropped_lines.is_due(now_ms, REPORT_MS) {
            let dropped = self.log.take_dropped();
            self.report(&format!(
                "dropped {dropped} access-log lines: the log's disk is slower than the requests"
            ));
        }
        self.supervisor.send_reports();
    }

    /// Whether all log lines and messages were handed over, so that the worker can end. After a while, the
    /// remaining lines are dropped.
    pub(super) fn has_finished(&mut self, now_ms: u64) -> bool {
        self.log.flush();
        let since_ms = *self.finishing_since_ms.get_or_insert(now_ms);
        if self.log.has_lines() && now_ms < since_ms + LAST_LINES_MS {
            return false;
        }
        let dropped = self.log.give_up();
        if dropped > 0 {
            self.report(&format!("dropped {dropped} access-log lines"));
        }
        self.supervisor.send_reports();
        true
    }

    /// Reports failures of the file system: the first, then the 10th, 100th and so on.
    pub(super) fn report_failure(&mut self, number: i32) {
        self.failures += 1;
        if self.failures.ilog10() != (self.failures - 1).checked_ilog10().unwrap_or(u32::MAX) {
            let error = io::Error::from_raw_os_error(number);
            self.report(&format!("the file system failed ({error}); {} failures so far", self.failures));
        }
    }

    /// Reports that a helper died while it had a job.
    pub(super) fn report_loss(&mut self) {
        if self.lost_helpers.is_due(clock::monotonic_ms(), REPORT_MS) {
            self.report("a helper ended before its job was done; its requests were answered 503");
        }
    }

    /// How much a connection may have in flight. The bound is for the way to clients.
    #[inline]
    fn cap_of(&self, socket: &Socket) -> Option<InFlightCap> {
        self.cap.filter(|_| !matches!(socket, Socket::Link(..)))
    }
}

/// The view of the store, with its keeper.
fn connected_store(given: GivenStore, mechanism: &mut Mechanism) -> Store {
    let (mut store, keeper) = Store::new(given);
    if let Some(channel) = keeper {
        store.connect(mechanism, |number| token(kind::KEEPER, number), channel);
    }
    store
}

impl Net for LinuxSystem {
    type Socket = Socket;

    #[inline]
    fn recv(&mut self, socket: &Socket, buffer: &mut [u8]) -> io::Result<usize> {
        let received = net::recv(socket, buffer);
        note_call(Call::Receive);
        received
    }

    #[inline]
    fn send(&mut self, socket: &Socket, bytes: &[u8]) -> io::Result<usize> {
        let sent = match self.cap_of(socket) {
            None => net::send(socket, bytes),
            Some(cap) => net::send_capped(socket, cap, bytes, &[]),
        };
        note_call(Call::Send);
        sent
    }

    fn send_both(&mut self, socket: &Socket, first: &[u8], second: &[u8]) -> io::Result<usize> {
        if first.is_empty() {
            return self.send(socket, second);
        }
        // One piece costs the kernel less than two, and copying a short one is cheap.
        if first.len() + second.len() <= JOINED_BYTES_MAX {
            let mut joined = [0; JOINED_BYTES_MAX];
            joined[..first.len()].copy_from_slice(first);
            joined[first.len()..][..second.len()].copy_from_slice(second);
            return self.send(socket, &joined[..first.len() + second.len()]);
        }
        if let Some(cap) = self.cap_of(socket) {
            let sent = net::send_capped(socket, cap, first, second);
            note_call(Call::Send);
            return sent;
        }
        let sent = net::send_parts(socket, &[IoSlice::new(first), IoSlice::new(second)]);
        note_call(Call::Send);
        sent
    }

    fn send_pieces(&mut self, socket: &Socket, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let sent = match (self.cap_of(socket), pieces) {
            (None, [piece]) => net::send(socket, piece),
            (None, pieces) => net::send_parts(socket, pieces),
            (Some(cap), pieces) => {
                let joined: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
                net::send_capped(socket, cap, &joined, &[])
            }
        };
        note_call(Call::Send);
        sent
    }

    fn end_sending(&mut self, socket: &Socket) {
        // This fails only if the connection has gone.
        let _ = net::end_sending(socket);
        note_call(Call::Send);
    }

    fn reset(&mut self, socket: &Socket) {
        // This fails only if the connection has gone.
        let _ = net::reset(socket);
        note_call(Call::Send);
    }

    fn local_address(&mut self, socket: &Socket) -> Option<SocketAddr> {
        let address = net::local_address(socket).ok();
        note_call(Call::Receive);
        address
    }

    fn unacknowledged_bytes(&mut self, socket: &Socket) -> u64 {
        let bytes = net::unsent_bytes(socket).unwrap_or(0);
        note_call(Call::Send);
        bytes as u64
    }

    #[inline]
    fn last_call_ns(&self) -> u64 {
        last_call_ns()
    }
}

impl Bands for LinuxSystem {
    fn set_band(&mut self, socket: &Socket, peer: &SocketAddr, band: Band) {
        priority::set(socket, peer, band, self.marks);
    }
}

impl UplinkShare for LinuxSystem {
    fn share_uplink(&mut self, uses: bool) -> u32 {
        self.shares.uplink.as_ref().map_or(0, |users| users.announce(uses))
    }
}

impl Buckets for LinuxSystem {
    fn bucket(&mut self, key: &BucketKey) -> Option<&AtomicU64> {
        self.shares.buckets.as_ref()?.number(&[&key.to_bytes()])
    }

    fn announce_requests(&mut self, key: &BucketKey, count: u32) -> u32 {
        self.shares.counts.as_mut().map_or(0, |counts| counts.set(&key.to_bytes(), count))
    }
}

impl Files for LinuxSystem {
    type File = SiteFile;

    fn open_cached(
        &mut self,
        site: SiteId,
        path: &[u8],
        want: Want,
    ) -> Result<Opened<SiteFile>, LookUpError> {
        let root =
            self.roots.get(usize::from(site.0)).and_then(Option::as_ref).ok_or(LookUpError::WouldWait)?;
        let look_up = || (self.reach.look_up)(root, path, convert::sys_want(want));
        let found = timed(Call::LookUp, || Some((site, path)), look_up);
        let mut opened: Opened<SiteFile> = convert::look_up(found)?;
        if let Some(file) = &mut opened.file {
            file.found_at(site, path, self.closing.returned());
        }
        Ok(opened)
    }

    fn read_resident(&mut self, file: &SiteFile, offset: u64, buffer: &mut [u8]) -> io::Result<Resident> {
        let read = timed(Call::Read, || file.name(), || (self.reach.read)(file, offset, buffer));
        Ok(match read? {
            file::Resident::Bytes(bytes) => Resident::Bytes(bytes),
            file::Resident::Absent => Resident::Absent,
            file::Resident::Unknown => {
                if !file::is_path_only(file)?
                    && !std::mem::replace(&mut self.said_unknown, true)
                    && let Err(e) = file::reports_residency(file)
                {
                    let reads = if self.store.is_some() {
                        "helpers or threads load files that are not in the store"
                    } else {
                        "helpers or threads read every file"
                    };
                    self.report(&format!(
                        "the kernel does not report which files are in memory ({e}), so {reads}; for hits in the page cache, run flash as \
                         the files' owner, or with CAP_FOWNER, on Linux 6.5 or later"
                    ));
                }
                Resident::Unknown
            }
        })
    }

    fn stat(&mut self, file: &SiteFile) -> io::Result<FileStat> {
        Ok(convert::stat(&timed(Call::Stat, || file.name(), || (self.reach.stat)(file))?))
    }
}

impl flash_engine::SharedNames for LinuxSystem {
    fn shared_name(&mut self, site: SiteId, path: &[u8]) -> Option<SharedName> {
        self.store.as_ref()?.shared_name(site, path)
    }

    fn unchanged_ms(&self, mark: NameMark) -> Option<u64> {
        self.store.as_ref()?.unchanged_ms(mark)
    }

    fn are_changes_reported(&self) -> bool {
        self.store.as_ref().is_some_and(Store::are_changes_reported)
    }

    fn report_wrong_name(&mut self, site: SiteId, path: &[u8]) {
        if let Some(store) = &mut self.store {
            store.report_wrong_name(site, path);
        }
    }
}

impl flash_engine::Blocks for LinuxSystem {
    fn block(&mut self, stat: &FileStat, number: u64) -> Option<flash_engine::Block> {
        self.store.as_mut()?.block(stat, number)
    }
}

impl flash_engine::Helpers for LinuxSystem {
    fn start_job(&mut self, id: JobId, task: &Task<SiteFile>, startable: usize) -> bool {
        if let Some(own) = &mut self.own {
            return own.start(id, task);
        }
        let number = if let Task::Close { number } = task { Some(*number) } else { None };
        let aside = number.and_then(|number| self.closing.get(number));
        let started = self.helpers.start(id, task, startable, aside);
        note_call(Call::Message);
        if started && let Some(number) = number {
            // The helper, or the message to it, has the file too, so this is not its last close.
            drop(self.closing.take(number));
        }
        started
    }

    fn abandon_job(&mut self, id: JobId) {
        let message = match &mut self.own {
            Some(own) => {
                own.give_up(id);
                "a thread waited for the disk beyond its deadline; its requests were answered 503"
            }
            None => {
                self.helpers.abandon(id);
                note_call(Call::Message);
                "a helper passed its deadline and was given up; its requests were answered 503"
            }
        };
        if self.overdue.is_due(clock::monotonic_ms(), REPORT_MS) {
            self.report(message);
        }
    }
}

impl Gateway for LinuxSystem {
    fn connect(&mut self, link: Key, server: ServerId) {
        self.gateway.ask(link, server);
    }

    fn record_layer(&mut self, server: ServerId) -> Option<Box<dyn RecordLayer>> {
        self.connector.layer(server)
    }
}

impl Log for LinuxSystem {
    fn log_access(&mut self, log: u16, line: &[u8]) {
        self.log.push(log, line);
    }

    fn report(&mut self, message: &str) {
        self.supervisor.report(message);
    }
}

impl Machine for LinuxSystem {
    fn send_file(
        &mut self,
        socket: &Socket,
        head: &[u8],
        file: &Arc<SiteFile>,
        part: FilePart,
    ) -> io::Result<FileSent> {
        timed(Call::SendFile, || file.name(), || self.sending.send(socket, head, file, part))
    }
}
