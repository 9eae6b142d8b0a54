//! Helpers as threads of their worker (`--helpers threads`): the same work by the same code, over the same
//! kind of channel.
//!
//! For the worker's start, which may wait. All are started before the worker closes its sandbox, since
//! nobody can start one afterwards, and each closes its own: Landlock and seccomp hold for the thread that
//! asks. They share memory and descriptors with the worker all the same, so that is a guard against
//! mistakes more than against intruders.
//!
//! A thread that hangs in the kernel cannot be ended by itself. It keeps its place among the helpers until
//! it comes back, and the process, told to end, ends when the kernel lets the thread go.

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

/// Starts all helpers that a worker may have, which share what `work` needs. Gives the worker's ends of their
/// channels once each is held to its part.
///
/// Errors: those of starting a thread, and of what the settings require of a sandbox.
pub(crate) fn start(settings: &Settings, work: DiskWork) -> io::Result<Vec<OwnedFd>> {
    memory::separate_arenas(settings.helpers_max + 1);
    let (ready, all_ready) = mpsc::channel();
    let mut channels = Vec::with_capacity(settings.helpers_max);
    let work = Arc::new(work);
    for _ in 0..settings.helpers_max {
        let (ours, theirs) = channel::pair(2 * MESSAGE_BYTES_MAX)?;
        let (settings, work, ready) = (settings.clone(), Arc::clone(&work), ready.clone());
        let spawned = thread::Builder::new().name("helper".into()).spawn(move || {
            // Where it may not, helpers work all the same.
            let _ = process::give_way();
            let closed = close(&work, &settings, CallList::HelperThread);
            let is_held = closed.is_ok();
            // The worker waits for it; if not, it has ended.
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
