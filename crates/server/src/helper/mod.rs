//! A helper: does one task at a time that may wait for the disk, for one worker.
//!
//! It has the sites' roots, opened by the supervisor, and nothing else. It ends when its worker closes the channel.
//! It is a process, or a thread of its worker ([`threads`]); what it does is the same.

mod listing;
mod threads;
mod work;

use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use flash_engine::{JobId, Outcome, Task};
use flash_prompt::OwnedFd;
use flash_prompt::channel;
use flash_waiting::process;
use flash_waiting::sandbox::calls::CallList;
use flash_waiting::sandbox::paths::Rights;

pub(crate) use threads::start as start_threads;
pub(crate) use work::DiskWork;

use crate::config::Settings;
use crate::sandbox::{self, Role};
use flash_worker::control::{Order, receive_order};
use flash_worker::protocol::{MESSAGE_BYTES_MAX, decode_task, encode_outcome};

/// How old a helper without some root is at least when it makes room for one with it: a root that
/// hangs or fails must not make every request of its site start a process.
const OUTDATED_MIN: Duration = Duration::from_secs(1);
/// No job has this number.
const NO_JOB: u64 = u64::MAX;

/// Serves tasks from `channel` until the worker is gone.
///
/// Errors: `StaleNetworkFileHandle` when it makes room for a helper with newer roots.
pub(crate) fn run(channel: &OwnedFd, settings: &Settings) -> io::Result<()> {
    let mut work = DiskWork::new(settings);
    loop {
        match receive_order(channel)? {
            Order::Root { site, folder, .. } => work.set_root(site, folder),
            Order::Begin => break,
            other => return Err(io::Error::new(ErrorKind::InvalidData, format!("unexpected {other:?}"))),
        }
    }
    close(&work, settings, CallList::Helper)?;
    serve(&work, channel, Some(OUTDATED_MIN))
}

/// Has the kernel hold the calling thread to a helper's part from now on.
fn close(work: &DiskWork, settings: &Settings, calls: CallList<'_>) -> io::Result<()> {
    let roots: Vec<_> = work.roots().map(|root| (root, Rights::ReadAndList)).collect();
    sandbox::close(Role::Helper, settings, &roots, calls).map(drop)
}

/// Does tasks until the worker is gone. One that is as old as `room_after` makes room when it met a root
/// that it lacks or that is gone.
///
/// Errors: `StaleNetworkFileHandle` then, and those of the channel.
fn serve(work: &DiskWork, channel: &OwnedFd, room_after: Option<Duration>) -> io::Result<()> {
    let started = Instant::now();
    let mut bytes = vec![0; MESSAGE_BYTES_MAX];
    let mut descriptors = Vec::new();
    loop {
        let length = channel::recv(channel, &mut bytes, &mut descriptors)?;
        if length == 0 {
            return Ok(());
        }
        let task = decode_task(&bytes[..length], &mut descriptors);
        // Closes the file of a task that says so, before it is answered.
        descriptors.clear();
        let (id, outcome) = match &task {
            Some((id, task)) => (*id, do_guarded(work, task)),
            // Its descriptor was lost at the limit of descriptors, or there is a bug.
            None => (JobId::from_u64(NO_JOB), Outcome::Lost),
        };
        if work.is_outdated() && room_after.is_some_and(|age| started.elapsed() > age) {
            // Without an answer, which is one, too: after another it might be given a job on its way out.
            return Err(ErrorKind::StaleNetworkFileHandle.into());
        }
        let message = encode_outcome(id, &outcome);
        let parts = [io::IoSlice::new(&message.bytes)];
        if channel::send(channel, &parts, &message.descriptors).is_err() {
            // Too many descriptors are under way (`ETOOMANYREFS`), or the worker is gone.
            let message = encode_outcome(id, &Outcome::Lost);
            channel::send(channel, &[io::IoSlice::new(&message.bytes)], &[])?;
        }
    }
}

/// A panic costs its task only.
fn do_guarded(work: &DiskWork, task: &Task<OwnedFd>) -> Outcome<OwnedFd> {
    catch_unwind(AssertUnwindSafe(|| work.do_task(task))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        process::say_if_heard(&format!(
            "flash: a bug: panic in a helper ({text}); its requests were answered 503\n"
        ));
        Outcome::Lost
    })
}
