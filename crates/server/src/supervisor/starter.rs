//! Starts helpers from a thread of low priority, which they inherit from their first instruction: otherwise a burst of starting
//! processes would take its core from a worker.
//!
//! The thread lives as long as the supervisor, because the kernel ends children with the thread that started them.

use std::io;
use std::sync::mpsc;

use flash_prompt::OwnedFd;
use flash_waiting::process;
use flash_waiting::subprocess::Subprocess;

use crate::sandbox::Role;

/// The thread, with a channel to it and back.
#[derive(Debug)]
pub(super) struct Starter {
    channels: mpsc::Sender<OwnedFd>,
    children: mpsc::Receiver<io::Result<Subprocess>>,
}

impl Starter {
    pub(super) fn new() -> io::Result<Self> {
        let (channels, wanted) = mpsc::channel();
        let (started, children) = mpsc::channel();
        std::thread::Builder::new().name("starter".into()).spawn(move || {
            // If this fails, helpers still work.
            let _ = process::give_way();
            for channel in wanted {
                if started.send(Subprocess::start_role(Role::Helper.name(), channel)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { channels, children })
    }

    /// Starts a helper that has `channel` as its standard input.
    pub(super) fn start(&self, channel: OwnedFd) -> io::Result<Subprocess> {
        let ended = || io::Error::other("the thread that starts helpers has ended");
        self.channels.send(channel).map_err(|_| ended())?;
        self.children.recv().map_err(|_| ended())?
    }
}
