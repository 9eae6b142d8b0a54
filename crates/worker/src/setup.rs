//! Everything that a worker gets at its start: descriptors, and its part of the configuration. The server
//! makes these values.

use std::fmt::Debug;
use std::sync::Arc;

use flash_engine::{Rules, SiteId};
use flash_prompt::OwnedFd;
use flash_prompt::counts::SharedCounts;
use flash_prompt::mechanism::MechanismKind;
use flash_prompt::net::InFlightCap;
use flash_prompt::numbers::SharedNumbers;
use flash_prompt::store_memory::StoreMemory;
use flash_prompt::table::TableReader;
use flash_prompt::uplink_users::UplinkUsers;
use flash_tls::{Acceptor, Connector, Handshakes};
use serde::{Deserialize, Serialize};

use super::names::SharedNames;
use super::priority::Marks;

/// The descriptors of a worker.
#[derive(Debug)]
pub struct Given {
    /// The channel to the supervisor.
    pub control: OwnedFd,
    /// The roots of the sites, in order; None for a root that did not answer in time.
    pub roots: Vec<Option<Root>>,
    /// The sockets to accept from.
    pub listeners: Vec<OwnedFd>,
    /// The same for encrypted connections.
    pub tls_listeners: Vec<OwnedFd>,
    /// Makes their record layers; None without such listeners.
    pub tls: Option<Acceptor>,
    /// The channel to the thread that computes handshakes, and their queue, if there is one.
    pub handshakes: Option<(OwnedFd, Arc<Handshakes>)>,
    /// Makes the record layers of connections to servers of routes.
    pub connector: Connector,
    /// The channel to the log writer, if there is one.
    pub log: Option<OwnedFd>,
    /// The store, if there is one.
    pub store: Option<GivenStore>,
    /// The channel to the gateway; None without routes.
    pub gateway: Option<OwnedFd>,
    /// The files that all workers share, mapped.
    pub shares: Shares,
    /// The channels to helper threads. Helper processes come later.
    pub helpers: Vec<OwnedFd>,
}

/// The files that all workers share, mapped. None of those that no setting needs.
#[derive(Debug, Default)]
pub struct Shares {
    /// Which workers use the uplink.
    pub uplink: Option<UplinkUsers>,
    /// The buckets of rates.
    pub buckets: Option<SharedNumbers>,
    /// How many requests the workers are answering.
    pub counts: Option<SharedCounts>,
}

/// The store, as a worker gets it.
#[derive(Debug)]
pub struct GivenStore {
    /// Its memory file, mapped.
    pub memory: StoreMemory,
    /// Its table, mapped.
    pub table: TableReader,
    /// The names that all workers share.
    pub names: SharedNames,
    /// The channel to the keeper.
    pub keeper: Option<OwnedFd>,
    /// Blocks to load without a request, in order: site, path and block number.
    pub warm: Vec<(SiteId, Box<[u8]>, u64)>,
    /// Fills the store in this process, in architectures without helper processes.
    pub fills: Option<Arc<dyn Fills>>,
}

/// The part of a process that fills the store.
pub trait Fills: Debug + Send + Sync {
    /// The keeper has gone, so its channels are useless.
    fn forget_keeper(&self);

    /// Takes a channel to the keeper, which allows one more block to be filled at the same time.
    fn take_channel(&self, keeper: OwnedFd);
}

/// The root of a site.
#[derive(Debug)]
pub struct Root {
    /// The directory, usable for look-ups only. In architectures without helpers, the jobs of the process have it too.
    pub folder: Arc<OwnedFd>,
    /// Whether its file system is local, so that look-ups never wait for another process or host.
    pub is_local: bool,
}

/// The part of the configuration that a worker uses.
#[derive(Debug)]
pub struct Plan {
    /// The rules for the engine.
    pub rules: Rules,
    /// How the loop waits for events.
    pub mechanism: MechanismKind,
    /// How parts of files are sent.
    pub send: SendBy,
    /// Maximum number of mapped parts of files at once.
    pub mapped_chunks_max: usize,
    /// Whether packets carry the band of their response.
    pub marks: Marks,
    /// How much one connection may have in flight; None for as much as the kernel decides.
    pub cap: Option<InFlightCap>,
    /// Maximum number of bytes that a connection holds beyond those in flight.
    pub unsent_bytes_max: u32,
    /// Helpers.
    pub helpers: HelperRules,
    /// Maximum time that new connections wait to be accepted, in milliseconds; 0 for no bound.
    pub accept_wait_ms: u64,
    /// Which connections the worker accepts.
    pub accepts: Accepts,
}

/// How parts of files are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SendBy {
    /// By reading into a buffer and sending it.
    #[default]
    Read,
    /// By sendfile(2).
    Sendfile,
    /// From memory mappings.
    Mmap,
}

/// The helpers of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelperRules {
    /// Processes or threads.
    pub kind: HelperKind,
    /// Maximum number of helpers.
    pub helpers_max: usize,
    /// How long a process must be idle before it ends, in milliseconds.
    pub idle_ms: u64,
}

/// The kind of helpers (flash-1999, section 3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HelperKind {
    /// Processes, which start on demand and can be killed.
    #[default]
    Processes,
    /// Threads of the worker, all started at the beginning.
    Threads,
}

/// Which connections a worker accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepts {
    /// As many connections as come.
    All,
    /// One connection at a time: several processes share the listeners.
    OneAtATime,
}
