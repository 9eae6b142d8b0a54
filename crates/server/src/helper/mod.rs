//! A helper: does one task at a time that may wait for the disk, for one worker.
//!
//! It has the sites' roots, opened by the supervisor, and nothing else. It ends when its worker closes the channel.

mod listing;
mod work;

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use flash_engine::Outcome;
use flash_sys::OwnedFd;
use flash_sys::prompt::channel;
use flash_sys::sandbox::calls::Calls;
use flash_sys::sandbox::paths::Rights;

pub(crate) use work::DiskWork;

use crate::config::Settings;
use crate::control::{Order, receive_order};
use crate::protocol::{CLOSE, MESSAGE_BYTES_MAX, decode_task, encode_outcome};
use crate::sandbox::{self, Role};

/// How old a helper without some root is at least when it makes room for one with it: a root that
/// hangs or fails must not make every request of its site start a process.
const OUTDATED_MIN: Duration = Duration::from_secs(1);

/// Serves tasks from `channel` until the worker is gone.
///
/// Errors: `StaleNetworkFileHandle` when it makes room for a helper with newer roots.
pub(crate) fn run(channel: &OwnedFd, settings: &Settings) -> io::Result<()> {
    let mut work = DiskWork::new(settings);
    let started = Instant::now();
    loop {
        match receive_order(channel)? {
            Order::Root { site, folder, .. } => work.set_root(site, folder),
            Order::Begin => break,
            other => return Err(io::Error::new(ErrorKind::InvalidData, format!("unexpected {other:?}"))),
        }
    }
    let roots: Vec<_> = work.roots().map(|root| (root, Rights::ReadAndList)).collect();
    sandbox::close(Role::Helper, settings, &roots, Calls::Helper)?;
    let mut bytes = vec![0; MESSAGE_BYTES_MAX];
    let mut descriptors = Vec::new();
    loop {
        let length = channel::recv(channel, &mut bytes, &mut descriptors)?;
        if length == 0 {
            return Ok(());
        }
        if bytes[..length] == [CLOSE] {
            descriptors.clear();
            continue;
        }
        let Some((id, task)) = decode_task(&bytes[..length], &mut descriptors) else {
            return Err(io::Error::new(ErrorKind::InvalidData, "a message that is no task"));
        };
        descriptors.clear();
        let outcome: Outcome<OwnedFd> = work.do_task(&task);
        if work.is_outdated() && started.elapsed() > OUTDATED_MIN {
            // Without an answer, which is one, too: after another it might be given a job on its way out.
            return Err(ErrorKind::StaleNetworkFileHandle.into());
        }
        let message = encode_outcome(id, &outcome);
        channel::send(channel, &[io::IoSlice::new(&message.bytes)], &message.descriptors)?;
    }
}
