//! A worker's start, before its event loop: here it may still wait, for the supervisor's orders and for threads.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use flash_engine::SiteId;
use flash_prompt::OwnedFd;
use flash_prompt::counts::SharedCounts;
use flash_prompt::names::NamesReader;
use flash_prompt::numbers::SharedNumbers;
use flash_prompt::store_memory::StoreMemory;
use flash_prompt::table::TableReader;
use flash_prompt::uplink_users::UplinkUsers;
use flash_tls::{Acceptor, Bundle, Carried, Connector, Tickets, Trust, protocol};
use flash_waiting::process;
use flash_waiting::sandbox::calls::{CallList, More};
use flash_waiting::sandbox::paths::Rights;
use flash_worker::control::{InForce, Notice, Order, receive_order, send_notice};
use flash_worker::names::SharedNames;
use flash_worker::{
    Accepts, Fills, Given, GivenStore, HelperKind, HelperRules, OwnJobs, Plan, Reach, Root, SendBy, Shares,
    Worker, keep_panics_quiet,
};

use zeroize::Zeroizing;

use crate::config::{SchedulePolicy, Settings, architecture};
use crate::control::unexpected;
use crate::convert;
use crate::handshakes;
use crate::helper::{self, DiskWork, Fill};
use crate::hot_list::{self, LIST_BYTES_MAX};
use crate::sandbox::{self, Role};
use crate::trust;

/// The resources that a worker received before it began.
pub(crate) struct Begun {
    control: OwnedFd,
    /// The roots that answered in time.
    roots: Vec<Option<Root>>,
    pub(crate) listeners: Vec<OwnedFd>,
    tls: BegunTls,
    log: Option<OwnedFd>,
    shares: Shares,
    store: BegunStore,
    gateway: Option<OwnedFd>,
    /// Its number among the workers.
    place: u64,
    /// How many slots the file for request bodies may have, and the file.
    spool: Option<(u32, OwnedFd)>,
}

#[derive(Default)]
struct BegunTls {
    listeners: Vec<OwnedFd>,
    certificates: Option<OwnedFd>,
    tickets: Option<OwnedFd>,
    trust: Option<OwnedFd>,
}

#[derive(Default)]
struct BegunStore {
    memory: Option<(u64, OwnedFd)>,
    table: Option<OwnedFd>,
    names: Option<OwnedFd>,
    keeper: Option<OwnedFd>,
    hot_list: Option<OwnedFd>,
    /// Channels to fill the store, and the memory file to write to.
    fillers: Vec<OwnedFd>,
    fill_memory: Option<OwnedFd>,
    fill: Option<Arc<Fill>>,
}

fn number(place: u64) -> usize {
    usize::try_from(place).unwrap_or(usize::MAX)
}

/// Reads the orders from `control` up to `Begin`.
pub(crate) fn begin(control: OwnedFd, settings: &Settings) -> io::Result<Begun> {
    let roots = settings.folders().map(|_| None).collect();
    let store = BegunStore::default();
    let mut begun = Begun {
        control,
        roots,
        listeners: Vec::new(),
        tls: BegunTls::default(),
        log: None,
        shares: Shares::default(),
        store,
        gateway: None,
        place: 0,
        spool: None,
    };
    loop {
        match receive_order(&begun.control)? {
            Order::Root { site, is_local, folder } => {
                if let Some(root) = begun.roots.get_mut(site) {
                    *root = Some(Root { folder: Arc::new(folder), is_local });
                }
            }
            Order::Listener(listener) => begun.listeners.push(listener),
            Order::TlsListener(listener) => begun.tls.listeners.push(listener),
            Order::Certificates(file) => begun.tls.certificates = Some(file),
            Order::Tickets(file) => begun.tls.tickets = Some(file),
            Order::Trust(file) => begun.tls.trust = Some(file),
            Order::Log(channel) => begun.log = Some(channel),
            Order::Gateway(channel) => begun.gateway = Some(channel),
            Order::Spool(slots, file) => begun.spool = Some((slots, file)),
            Order::Uplink(place, file) => begun.shares.uplink = Some(UplinkUsers::map(file, number(place))?),
            Order::Buckets(file) => begun.shares.buckets = Some(SharedNumbers::map(file, 0)?),
            Order::Counts(place, file) => {
                begun.shares.counts = Some(SharedCounts::map(file, number(place))?);
            }
            Order::StoreMemory { length_bytes, file } => {
                // The first file is for reading; if this process fills the store itself, a second one for writing
                // follows.
                if begun.store.memory.is_none() {
                    begun.store.memory = Some((length_bytes, file));
                } else {
                    begun.store.fill_memory = Some(file);
                }
            }
            Order::HotList(file) => begun.store.hot_list = Some(file),
            Order::StoreTable(file) => begun.store.table = Some(file),
            Order::NamesTable(file) => begun.store.names = Some(file),
            Order::Keeper(channel) => begun.store.keeper = Some(channel),
            Order::Filler(channel) => begun.store.fillers.push(channel),
            Order::Place(place) => begun.place = place,
            Order::Begin => return Ok(begun),
            other => return Err(unexpected(&other)),
        }
    }
}

impl Begun {
    /// The channel to the supervisor and the listeners, for a loop that uses nothing else.
    pub(crate) fn into_channels(self) -> (OwnedFd, Vec<OwnedFd>) {
        (self.control, self.listeners)
    }

    /// Gives the disk work the known roots, and the channels to fill the store.
    pub(crate) fn disk_work(&mut self, settings: &Settings) -> io::Result<DiskWork> {
        let mut work = DiskWork::new(settings);
        for (site, root) in self.roots.iter().enumerate() {
            if let Some(root) = root {
                work.set_root(site, Arc::clone(&root.folder));
            }
        }
        if let Some(memory) = self.store.fill_memory.take() {
            let fill = Arc::new(Fill::new(memory, std::mem::take(&mut self.store.fillers)));
            work.set_store(Arc::clone(&fill));
            self.store.fill = Some(fill);
            if let Some(names) = &self.store.names {
                work.set_names(names)?;
            }
        }
        Ok(work)
    }

    /// A worker that reaches files through `reach`, with helpers or, if `own` is given, with its own jobs.
    pub(crate) fn worker(
        mut self,
        settings: &Settings,
        descriptors_max: u64,
        reach: Reach,
        own: Option<OwnJobs>,
        accepts: Accepts,
    ) -> io::Result<Worker> {
        // None yet if helpers are processes; all if they are threads.
        let helpers = match settings.helpers {
            HelperKind::Processes => Vec::new(),
            HelperKind::Threads => helper::start_threads(settings, self.disk_work(settings)?)?,
        };
        let Begun { control, roots, listeners, mut tls, log, shares, store, gateway, place, spool } = self;
        let store = store.map(settings, &roots).or_else(|e| {
            let text = format!("serves without the store: cannot map it: {e}");
            send_notice(&control, &Notice::Report(text)).map(|()| None)
        })?;
        let mut rules = convert::rules(settings, descriptors_max);
        rules.has_store = store.is_some();
        rules.worker = number(place);
        let connector = tls.trust.take().map(connector).transpose()?.unwrap_or_default();
        let (tls_listeners, mut tls) = tls.acceptor(settings.http2)?;
        let leaves = architecture::leaves_handshakes(settings);
        let slow = tls.as_mut().filter(|acceptor| leaves && acceptor.has_slow_keys());
        let handshakes = slow.map(|acceptor| handshakes::start(settings, acceptor)).transpose()?;
        let given = Given {
            control,
            roots,
            listeners,
            tls_listeners,
            tls,
            handshakes,
            connector,
            log,
            store,
            gateway,
            shares,
            helpers,
        };
        let plan = Plan {
            rules,
            mechanism: settings.event_mechanism,
            send: settings.send,
            mapped_chunks_max: architecture::mapped_chunks_max(settings, descriptors_max),
            marks: convert::marks(settings),
            cap: convert::cap(settings),
            unsent_bytes_max: convert::unsent_bytes_max(settings),
            helpers: HelperRules {
                kind: settings.helpers,
                helpers_max: settings.helpers_max,
                idle_ms: settings.helper_idle_ms,
            },
            accept_wait_ms: convert::accept_wait_ms(settings),
            accepts,
        };
        let mut worker = Worker::new(given, plan, reach, own)?;
        if let Some((slots, file)) = spool {
            worker.set_spool(file, slots);
        }
        Ok(worker)
    }
}

impl BegunTls {
    /// The listeners, and what makes the record layers of their connections.
    fn acceptor(self, offers_http2: bool) -> io::Result<(Vec<OwnedFd>, Option<Acceptor>)> {
        let (Some(certificates), Some(tickets)) = (self.certificates, self.tickets) else {
            return Ok((self.listeners, None));
        };
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        process::hide_memory()?;
        let bundle = secret(certificates)?;
        let bundle = Bundle::from_bytes(&bundle).ok_or_else(|| invalid("no certificates"))?;
        let tickets = secret(tickets)?;
        let mut tickets = Tickets::from_bytes(&tickets).ok_or_else(|| invalid("no keys of tickets"))?;
        tickets.advance();
        let protocols = [protocol::HTTP2, protocol::HTTP1];
        let offered = if offers_http2 { &protocols[..] } else { &protocols[1..] };
        let acceptor = Acceptor::new(&bundle, tickets, offered).map_err(|e| invalid(&format!("TLS: {e}")))?;
        // The first connection must not find out that a random number needs another call of the kernel.
        drop(acceptor.layer());
        Ok((self.listeners, Some(acceptor)))
    }
}

/// Makes the record layers of connections to the servers in this memory file.
pub(crate) fn connector(trust: OwnedFd) -> io::Result<Connector> {
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let trust =
        Trust::from_bytes(&secret(trust)?).ok_or_else(|| invalid("no servers over TLS".to_owned()))?;
    Connector::new(&trust).map_err(|e| invalid(format!("TLS to servers of routes: {e}")))
}

/// The content of a memory file, which is overwritten when it is dropped.
pub(crate) fn secret(file: OwnedFd) -> io::Result<Zeroizing<Vec<u8>>> {
    let file = File::from(file);
    let mut bytes = Zeroizing::new(vec![0; usize::try_from(file.metadata()?.len()).unwrap_or(0)]);
    // By offset: all workers share the position of the file.
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

impl BegunStore {
    /// The mapped memory file and table, and the saved hot blocks.
    fn map(self, settings: &Settings, roots: &[Option<Root>]) -> io::Result<Option<GivenStore>> {
        let (Some((length_bytes, memory)), Some(table), Some(names)) = (self.memory, self.table, self.names)
        else {
            return Ok(None);
        };
        let rules = convert::sites(settings);
        let folders = roots.iter().map(|root| root.as_ref().map(|root| &*root.folder));
        let sites = rules.iter().zip(folders);
        let names = SharedNames::new(NamesReader::map(names)?, sites, &convert::types(settings));
        let memory = StoreMemory::map(memory, length_bytes)?;
        Ok(Some(GivenStore {
            memory,
            table: TableReader::map(table)?,
            names,
            keeper: self.keeper,
            warm: self.hot_list.map_or(Vec::new(), |list| warm(&File::from(list), settings)),
            fills: self.fill.map(|fill| fill as Arc<dyn Fills>),
        }))
    }
}

/// The blocks of a list of hot files, as far as it is readable.
fn warm(list: &File, settings: &Settings) -> Vec<(SiteId, Box<[u8]>, u64)> {
    let mut text = Vec::new();
    // The position of a memory file is behind its written data.
    let read = { list }.rewind().and_then(|()| list.take(LIST_BYTES_MAX).read_to_end(&mut text));
    if read.is_err() {
        return Vec::new();
    }
    let roots: Vec<_> = settings.folders().map(|root| &**root).collect();
    let blocks = hot_list::read(&text, &roots);
    blocks
        .filter_map(|(site, hot)| Some((SiteId(site.try_into().ok()?), hot.path.into(), hot.block.into())))
        .collect()
}

/// Confines the calling thread to a worker's sandbox. `work` is its disk work, if it also does a helper's work.
pub(crate) fn close(worker: &Worker, settings: &Settings, work: Option<&DiskWork>) -> io::Result<InForce> {
    keep_panics_quiet();
    let mut more = more(settings);
    more.has_threads |= worker.has_handshake_thread();
    match work {
        None => {
            let folders: Vec<_> = worker.sys.roots().map(|root| (root, Rights::Read)).collect();
            sandbox::close(Role::Worker, settings, &folders, CallList::Worker(more))
        }
        Some(work) => {
            let folders: Vec<_> = work.roots().map(|root| (root, Rights::ReadAndList)).collect();
            sandbox::close(Role::Worker, settings, &folders, CallList::WaitingWorker(more))
        }
    }
}

/// The additional system calls for its settings.
fn more(settings: &Settings) -> More {
    More {
        sendfile: settings.send == SendBy::Sendfile,
        map_files: settings.send != SendBy::Read && settings.residency_check,
        pread: !settings.residency_check,
        mechanism: settings.event_mechanism,
        has_threads: settings.helpers == HelperKind::Threads,
        wakes: !settings.tls_listen.is_empty() || trust::is_needed(settings),
        has_local_clients: false,
        priorities: settings.schedule == SchedulePolicy::Srpt,
        code_points: settings.srpt_dscp,
    }
}
