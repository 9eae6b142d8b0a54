//! The channels of the keeper to the processes that use the store, and the messages that wait for room in them.

use std::io;

use flash_prompt::OwnedFd;
use flash_worker::codec;
use flash_worker::store_protocol::{self as protocol, ToWorker};

/// The process at the other end of a link.
pub(super) enum Link {
    Worker(WorkerLink),
    /// A process that fills the store.
    Filler(OwnedFd),
    /// A process that tells which names change.
    Watcher(OwnedFd),
}

/// The channel to a worker, and the messages that it has no room for yet.
pub(super) struct WorkerLink {
    channel: OwnedFd,
    /// Whether the worker was sent that this keeper knows it.
    is_greeted: bool,
    /// The slots that it must forget.
    pub(super) leaving: Vec<u32>,
}

impl Link {
    pub(super) fn to_worker(channel: OwnedFd) -> Self {
        Link::Worker(WorkerLink { channel, is_greeted: false, leaving: Vec::new() })
    }

    pub(super) fn channel(&self) -> &OwnedFd {
        match self {
            Link::Worker(WorkerLink { channel, .. }) | Link::Filler(channel) | Link::Watcher(channel) => {
                channel
            }
        }
    }
}

impl WorkerLink {
    /// Sends the messages that wait.
    ///
    /// Errors: as of [`channel::send`](flash_prompt::channel::send).
    pub(super) fn send_waiting(&mut self) -> io::Result<()> {
        if !self.is_greeted {
            codec::send(&self.channel, &ToWorker::Registered, &[])?;
            self.is_greeted = true;
        }
        while !self.leaving.is_empty() {
            let batch = self.leaving[..self.leaving.len().min(protocol::LEAVING_MAX)].to_vec();
            let count = batch.len();
            codec::send(&self.channel, &ToWorker::Leaving(batch), &[])?;
            self.leaving.drain(..count);
        }
        Ok(())
    }
}
