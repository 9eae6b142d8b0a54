//! A helper: does one task at a time that may wait for the disk, for one worker.
//!
//! It has only the sites' roots, opened by the supervisor, and the store's memory file with a channel to its keeper. It ends when
//! its worker closes the channel, or after its task when the keeper is gone: the next helper has the new keeper. It is a process,
//! or a thread of its worker ([`threads`]), with the same work.

mod compress;
mod fill;
mod listing;
mod threads;
mod work;

use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use flash_engine::{JobId, Outcome, Task};
use flash_prompt::OwnedFd;
use flash_prompt::{channel, net};
use flash_waiting::process;
use flash_waiting::sandbox::calls::CallList;
use flash_waiting::sandbox::paths::Rights;

pub(crate) use fill::Fill;
pub(crate) use threads::start as start_threads;
pub(crate) use work::DiskWork;

use crate::config::Settings;
use crate::control::unexpected;
use crate::sandbox::{self, Role};
use flash_worker::control::{Order, receive_order};
use flash_worker::protocol::{MESSAGE_BYTES_MAX, decode_task, send_outcome};

/// Minimum age of a helper before it ends because it lacks a root: a root that hangs or fails must not start a
/// process for every request of its site.
const OUTDATED_MIN: Duration = Duration::from_secs(1);
/// How long a helper waits at most for descriptors in transit, and how often it looks.
const IN_TRANSIT_MAX: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(1);
/// No job has this number.
const NO_JOB: u64 = u64::MAX;

/// Serves tasks from `channel` until the worker is gone.
///
/// Errors: `StaleNetworkFileHandle` when it makes room for a helper with newer roots.
pub(crate) fn run(channel: &OwnedFd, settings: &Settings) -> io::Result<()> {
    let mut work = DiskWork::new(settings);
    let (mut memory, mut names, mut fillers) = (None, None, Vec::new());
    loop {
        match receive_order(channel)? {
            Order::Root { site, folder, .. } => work.set_root(site, Arc::new(folder)),
            Order::StoreMemory { file, .. } => memory = Some(file),
            Order::NamesTable(file) => names = Some(file),
            Order::Filler(channel) => fillers.push(channel),
            Order::Begin => break,
            other => return Err(unexpected(&other)),
        }
    }
    if let Some(memory) = memory {
        work.set_store(Arc::new(Fill::new(memory, fillers)));
        names.map_or(Ok(()), |names| work.set_names(names))?;
    }
    close(&work, settings, CallList::Helper)?;
    serve(&work, channel, Some(OUTDATED_MIN))
}

/// Confines the calling thread to a helper's sandbox.
fn close(work: &DiskWork, settings: &Settings, calls: CallList) -> io::Result<()> {
    let roots: Vec<_> = work.roots().map(|root| (root, Rights::ReadAndList)).collect();
    sandbox::close(Role::Helper, settings, &roots, calls).map(drop)
}

/// Does tasks until the worker is gone. A helper older than `room_after` ends after a task that needs a root that it
/// lacks or that is gone.
///
/// Errors: `StaleNetworkFileHandle` then, and those of the channel.
fn serve(work: &DiskWork, channel: &OwnedFd, room_after: Option<Duration>) -> io::Result<()> {
    let started = Instant::now();
    let mut bytes = vec![0; MESSAGE_BYTES_MAX];
    let mut descriptors = Vec::new();
    loop {
        let length = match channel::recv(channel, &mut bytes, &mut descriptors) {
            // The worker has ended without reading the last answer.
            Err(why) if why.kind() == ErrorKind::ConnectionReset => 0,
            received => received?,
        };
        if length == 0 {
            return Ok(());
        }
        let task = decode_task(&bytes[..length], &mut descriptors);
        // Closes the file of a task that asks for it, before the answer.
        descriptors.clear();
        let (id, outcome) = match task {
            Some((id, task)) => {
                let outcome = do_guarded(work, &task);
                // Closes its file, which can hang: a helper that has answered gets the next job.
                drop(task);
                (id, outcome)
            }
            // The descriptor was lost at the limit of descriptors, or there is a bug.
            None => (JobId::from_u64(NO_JOB), Outcome::Lost),
        };
        if work.is_outdated() && room_after.is_some_and(|age| started.elapsed() > age) {
            // Without an answer, which the worker takes as one: after an answer it might get a job while it ends.
            return Err(ErrorKind::StaleNetworkFileHandle.into());
        }
        if send_patiently(channel, id, &outcome).is_err() {
            // Too many descriptors are in transit, or the worker is gone.
            match send_outcome(channel, id, &Outcome::Lost) {
                // The worker ended while the task was done.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
                sent => sent?,
            }
        }
        if work.has_lost_keeper() && room_after.is_some() {
            // The next helper has a keeper. This one still does the tasks that are in transit to it; after them the
            // worker finds the channel closed.
            channel::end_receiving(channel)?;
        }
    }
}

/// Sends an outcome, and waits for a while if the user has too many descriptors in messages (unix(7), `ETOOMANYREFS`). These
/// can be those of other processes, such as the roots of a server that starts, and messages are soon received.
fn send_patiently(channel: &OwnedFd, id: JobId, outcome: &Outcome<OwnedFd>) -> io::Result<()> {
    let started = Instant::now();
    loop {
        match send_outcome(channel, id, outcome) {
            Err(e) if net::has_too_many_in_transit(&e) && started.elapsed() < IN_TRANSIT_MAX => {
                process::pause(AGAIN);
            }
            sent => return sent,
        }
    }
}

/// A panic costs only its task.
fn do_guarded(work: &DiskWork, task: &Task<OwnedFd>) -> Outcome<OwnedFd> {
    catch_unwind(AssertUnwindSafe(|| work.do_task(task))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        process::print_if_possible(&format!(
            "flash: a bug: panic in a helper ({text}); its requests were answered 503\n"
        ));
        Outcome::Lost
    })
}
