//! Helpers as threads of their worker (`--helpers threads`): the same work, by the same code, over the same kind of channel.
//!
//! The worker's start calls it, which may wait. All threads start before the worker closes its sandbox, which forbids starting
//! any later, and each closes its own: Landlock and seccomp apply to the calling thread. The threads still share memory and
//! descriptors with the worker, so this protects against mistakes more than against intruders.
//!
//! A thread that hangs in the kernel cannot be ended. It keeps its place among the helpers until it returns, and its process
//! cannot end before that.

use std::io;
use std::sync::{Arc, mpsc};
use std::thread;

use flash_prompt::OwnedFd;
use flash_prompt::channel;
use flash_waiting::process;
use flash_waiting::sandbox::calls::CallList;
use flash_waiting::sandbox::memory;

use super::{DiskWork, close, serve};
use crate::config::Settings;
use flash_worker::protocol::MESSAGE_BYTES_MAX;

/// Starts all helpers that a worker may have, which share `work`. Returns the worker's ends of their channels once
/// each has closed its sandbox.
///
/// Errors: those of starting a thread, and of a required sandbox.
pub(crate) fn start(settings: &Settings, work: DiskWork) -> io::Result<Vec<OwnedFd>> {
    memory::separate_arenas(settings.helpers_max + 1);
    let (ready, all_ready) = mpsc::channel();
    let mut channels = Vec::with_capacity(settings.helpers_max);
    let work = Arc::new(work);
    for _ in 0..settings.helpers_max {
        let (ours, theirs) = channel::pair(2 * MESSAGE_BYTES_MAX)?;
        let (settings, work, ready) = (settings.clone(), Arc::clone(&work), ready.clone());
        let spawned = thread::Builder::new().name("helper".into()).spawn(move || {
            // If this fails, helpers still work.
            let _ = process::give_way();
            let closed = close(&work, &settings, CallList::HelperThread);
            let is_held = closed.is_ok();
            // The worker waits for it; otherwise it has ended.
            let _ = ready.send(closed);
            drop(ready);
            if is_held {
                // Its end tells the worker as much as the error would.
                let _ = serve(&work, &theirs, None);
            }
        });
        spawned.map_err(|e| io::Error::new(e.kind(), format!("cannot start a helper thread: {e}")))?;
        channels.push(ours);
    }
    drop(ready);
    all_ready.into_iter().collect::<io::Result<()>>()?;
    Ok(channels)
}
