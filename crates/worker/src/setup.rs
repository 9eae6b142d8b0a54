//! All that a worker is given at its start: descriptors, and what it needs to know of the configuration.

use flash_engine::Rules;
use flash_prompt::OwnedFd;
use flash_prompt::mechanism::MechanismKind;

/// The descriptors of a worker.
#[derive(Debug)]
pub struct Given {
    /// The channel to the supervisor.
    pub control: OwnedFd,
    /// The roots of the sites, by number; None for one that did not answer in time.
    pub roots: Vec<Option<Root>>,
    /// The sockets to accept from.
    pub listeners: Vec<OwnedFd>,
    /// The channel to the log writer, if there is one.
    pub log: Option<OwnedFd>,
    /// The channels to helpers that are threads; helpers that are processes come later.
    pub helpers: Vec<OwnedFd>,
}

/// The root of a site.
#[derive(Debug)]
pub struct Root {
    /// The folder, for look-ups only.
    pub folder: OwnedFd,
    /// Whether its file system waits for nobody else.
    pub is_local: bool,
}

/// The part of the configuration that a worker acts on.
#[derive(Debug)]
pub struct Plan {
    /// For the engine.
    pub rules: Rules,
    /// How the loop waits for events.
    pub mechanism: MechanismKind,
    /// How parts of files are sent.
    pub send: SendBy,
    /// Helpers.
    pub helpers: HelperRules,
    /// Whose the listeners' connections are.
    pub accepts: Accepts,
}

/// How parts of files are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendBy {
    /// Read into a buffer, which is sent.
    Read,
    /// By sendfile(2).
    Sendfile,
    /// From mappings.
    Mmap {
        /// Parts of files that are mapped at once, at most.
        chunks_max: usize,
    },
}

/// The helpers of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelperRules {
    /// What they are.
    pub kind: HelperKind,
    /// How many there are, at most.
    pub helpers_max: usize,
    /// How long a process idles before it is let go, in milliseconds.
    pub idle_ms: u64,
}

/// What helpers are (flash-1999, section 3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelperKind {
    /// Processes, which come on demand and can be ended.
    Processes,
    /// Threads of the worker, all there from the start.
    Threads,
}

/// Whose a listener's connections are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepts {
    /// This worker's, as many as come.
    All,
    /// Those of several processes, each of which has one connection at a time.
    OneAtATime,
}
