//! Helpers as threads of their worker (`--helpers threads`): the same work, by the same code, over the same kind of channel.
//!
//! The worker's start calls it, which may wait. All threads start before the worker closes its sandbox, which forbids starting
//! any later, and each closes its own: Landlock and seccomp apply to the calling thread. The threads still share memory and
//! descriptors with the worker, so this protects against mistakes more than against intruders.
//!
//! A thread that hangs in the kernel cannot be ended. It keeps its place among the helpers until it returns, and its process
//! cannot end before that.

use std::io;
use std::sync::Arc;

use flash_prompt::OwnedFd;
use flash_prompt::channel;
use flash_waiting::process;
use flash_waiting::sandbox::calls::CallList;
use flash_waiting::sandbox::memory;

use super::{DiskWork, close, serve};
use crate::config::Settings;
use crate::threads::{self, Confined};
use flash_worker::protocol::MESSAGE_BYTES_MAX;

/// Starts all helpers that a worker may have, which share `work`. Returns the worker's ends of their channels once
/// each has closed its sandbox.
pub(crate) fn start(settings: &Settings, work: DiskWork) -> io::Result<Vec<OwnedFd>> {
    memory::separate_arenas(settings.helpers_max + 1);
    let mut channels = Vec::with_capacity(settings.helpers_max);
    let mut helpers = Vec::with_capacity(settings.helpers_max);
    let work = Arc::new(work);
    for _ in 0..settings.helpers_max {
        let (ours, theirs) = channel::pair(2 * MESSAGE_BYTES_MAX)?;
        let (settings, work, confined) = (settings.clone(), Arc::clone(&work), Arc::clone(&work));
        helpers.push(Confined {
            confine: move || {
                // If this fails, helpers still work.
                let _ = process::give_way();
                close(&confined, &settings, CallList::HelperThread)
            },
            // Its end reports to the worker as much as the error would.
            work: move || drop(serve(&work, &theirs, None)),
        });
        channels.push(ours);
    }
    threads::start("helper", None, helpers)?;
    Ok(channels)
}
