//! The thread of a worker that computes TLS handshakes ([`Handshakes`]), because its event loop would stand for half a millisecond at
//! each signature with an RSA key.
//!
//! The worker's start calls it, which may wait. The thread shares only memory with the worker: it closes its own copies of the
//! descriptors except its channel and standard error, and a sandbox of its own lets it do nothing but compute and use that.

use std::io::{self, IoSlice};
use std::sync::{Arc, OnceLock};

use flash_prompt::{OwnedFd, channel};
use flash_tls::{Acceptor, Handshakes, warm_up_thread};
use flash_waiting::process;
use flash_waiting::sandbox::calls::CallList;
use flash_waiting::sandbox::memory;
use flash_worker::HelperKind;

use crate::config::Settings;
use crate::sandbox::{self, Role};
use crate::threads::{self, Confined};

/// The room of the channel in each direction.
const CHANNEL_BYTES: usize = 64 << 10;
const STACK_BYTES: usize = 512 << 10;

/// Starts the thread, to which `acceptor` leaves its handshakes from now on. Returns the worker's end of its channel, and the queue.
pub(crate) fn start(settings: &Settings, acceptor: &mut Acceptor) -> io::Result<(OwnedFd, Arc<Handshakes>)> {
    let helpers = if settings.helpers == HelperKind::Threads { settings.helpers_max } else { 0 };
    memory::separate_arenas(helpers + 2);
    let (ours, theirs) = channel::pair(CHANNEL_BYTES)?;
    channel::set_nonblocking(&ours)?;
    let to_thread = ours.try_clone()?;
    let queue = Arc::new(Handshakes::new(move || {
        // It looks for all that wait, so a full channel wakes it too.
        let _ = channel::send(&to_thread, &[IoSlice::new(&[0])], &[]);
    }));
    let own_channel = Arc::new(OnceLock::new());
    let (theirs, own_queue) = (Arc::new(theirs), Arc::clone(&queue));
    let confine = {
        let settings = settings.clone();
        let (theirs, own_channel) = (Arc::clone(&theirs), Arc::clone(&own_channel));
        move || {
            warm_up_thread().map_err(io::Error::other)?;
            // If this fails, a hit can wait for a signature.
            let _ = process::go_last();
            process::keep_in_this_thread(&*theirs)?;
            let _ = own_channel.set(theirs.try_clone()?);
            sandbox::close(Role::Worker, &settings, &[], CallList::HandshakeThread).map(drop)
        }
    };
    let work = move || own_channel.get().map_or((), |channel| compute(channel, &own_queue));
    threads::start("handshake", Some(STACK_BYTES), [Confined { confine, work }])?;
    // Only the thread has this end now, so its end is the end of the channel.
    drop(theirs);
    acceptor.compute_by(Arc::clone(&queue));
    Ok((ours, queue))
}

/// Computes handshakes until the event loop has gone.
fn compute(channel: &OwnedFd, queue: &Handshakes) {
    loop {
        while let Some(connection) = queue.compute() {
            if channel::send(channel, &[IoSlice::new(&connection.to_ne_bytes())], &[]).is_err() {
                return;
            }
        }
        if !matches!(channel::recv(channel, &mut [0], &mut Vec::new()), Ok(1)) {
            return;
        }
    }
}
