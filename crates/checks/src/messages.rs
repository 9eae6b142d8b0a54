//! The messages between the server's processes, decoded and encoded for the checks. It may not do anything
//! that the server does not.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use flash_engine::{JobId, Outcome, Task};
use flash_worker::{control, protocol};

/// An encoded message, and how many descriptors go with it.
pub type Encoded = (Vec<u8>, usize);

/// The most bytes of a message between a worker and a helper.
pub const MESSAGE_BYTES_MAX: usize = protocol::MESSAGE_BYTES_MAX;

/// What a worker sends to a helper.
#[must_use]
pub fn encode_task(id: JobId, task: &Task<OwnedFd>) -> Encoded {
    // A task that closes a file has one beside it.
    let aside = matches!(task, Task::Close { .. }).then(|| File::open("/dev/null").expect("/dev/null opens"));
    counted(&protocol::encode_task(id, task, aside.as_ref().map(AsFd::as_fd)))
}

/// What a helper makes of it.
#[must_use]
pub fn decode_task(bytes: &[u8], mut descriptors: Vec<OwnedFd>) -> Option<(JobId, Task<OwnedFd>)> {
    protocol::decode_task(bytes, &mut descriptors)
}

/// What a helper sends to its worker.
#[must_use]
pub fn encode_outcome(id: JobId, outcome: &Outcome<OwnedFd>) -> Encoded {
    counted(&protocol::encode_outcome(id, outcome))
}

/// What the worker makes of it.
#[must_use]
pub fn decode_outcome(bytes: &[u8], descriptors: Vec<OwnedFd>) -> Option<(JobId, Outcome<OwnedFd>)> {
    protocol::decode_outcome(bytes, descriptors)
}

/// An order of the supervisor, decoded and encoded again.
#[must_use]
pub fn order_again(bytes: &[u8], descriptors: Vec<OwnedFd>) -> Option<Encoded> {
    let order = control::decode_order(bytes, descriptors).ok()?;
    let encoded = control::encode_order(&order);
    Some((encoded.bytes.to_vec(), usize::from(encoded.descriptor.is_some())))
}

/// A notice to the supervisor, decoded and encoded again.
#[must_use]
pub fn notice_again(bytes: &[u8]) -> Option<Vec<u8>> {
    control::decode_notice(bytes).ok().map(|notice| control::encode_notice(&notice))
}

fn counted(message: &protocol::Message<'_>) -> Encoded {
    (message.bytes.clone(), message.descriptors.len())
}
