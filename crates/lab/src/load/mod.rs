//! Driving a server: arrivals in an open loop, a pool of connections, and what came of them.
//!
//! The commands that generate load are built on it. An arrival never waits for a reply, and its
//! latency counts from when it was meant to start, so a server that stalls can't hide it by
//! slowing its own clients. One thread, system calls only through `flash_sys::prompt`.

pub(crate) mod connection;
pub(crate) mod generator;
pub(crate) mod pool;
pub(crate) mod response;
pub(crate) mod tally;

/// One request: which file, and when it was meant to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    /// The file's number in the set (see `fileset::layout`).
    pub(crate) path_id: u32,
    /// On the monotonic clock.
    pub(crate) intended_ns: u64,
}
