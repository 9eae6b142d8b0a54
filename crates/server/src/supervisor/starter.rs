//! Starts helpers from a thread of low priority, which they inherit from their first instruction: otherwise a burst of starting
//! processes would take its core from a worker.
//!
//! The thread ends when another program takes the place of this one, and helpers must not end with it: so they are the only role
//! that the kernel does not end with its parent. They end with their worker, which holds the other end of their channel.

use std::io;
use std::sync::mpsc;

use flash_prompt::OwnedFd;
use flash_waiting::process;
use flash_waiting::subprocess::Subprocess;

use super::outbox::Shared;
use crate::sandbox::Role;

/// The thread, with a channel to it and back.
#[derive(Debug)]
pub(super) struct Starter {
    wanted: mpsc::Sender<(Option<Shared>, OwnedFd)>,
    children: mpsc::Receiver<io::Result<Subprocess>>,
}

impl Starter {
    pub(super) fn new() -> io::Result<Self> {
        let (wanted, orders) = mpsc::channel::<(Option<Shared>, OwnedFd)>();
        let (started, children) = mpsc::channel();
        std::thread::Builder::new().name("starter".into()).spawn(move || {
            // If this fails, helpers still work.
            let _ = process::give_way();
            for (program, channel) in orders {
                let helper = Subprocess::start_role(program.as_deref(), Role::Helper.name(), channel);
                if started.send(helper).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { wanted, children })
    }

    /// Starts a helper of this program, or of an earlier one, that has `channel` as its standard input.
    pub(super) fn start(&self, program: Option<Shared>, channel: OwnedFd) -> io::Result<Subprocess> {
        let ended = || io::Error::other("the thread that starts helpers has ended");
        self.wanted.send((program, channel)).map_err(|_| ended())?;
        self.children.recv().map_err(|_| ended())?
    }
}
