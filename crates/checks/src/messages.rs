//! Decodes and encodes the messages between the server's processes, for the checks. It must not do anything
//! that the server does not do.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use flash_engine::{JobId, Outcome, Task};
use flash_worker::{control, gateway_protocol, protocol, store_protocol};

/// An encoded message, and its number of descriptors.
pub type Encoded = (Vec<u8>, usize);

/// Longest message between a worker and a helper, in bytes.
pub const MESSAGE_BYTES_MAX: usize = protocol::MESSAGE_BYTES_MAX;

/// Encodes a task as a worker does.
#[must_use]
pub fn encode_task(id: JobId, task: &Task<OwnedFd>) -> Encoded {
    // A task that closes a file has a descriptor.
    let aside = matches!(task, Task::Close { .. }).then(|| File::open("/dev/null").expect("/dev/null opens"));
    counted(&protocol::encode_task(id, task, aside.as_ref().map(AsFd::as_fd)))
}

/// Decodes a task as a helper does.
#[must_use]
pub fn decode_task(bytes: &[u8], mut descriptors: Vec<OwnedFd>) -> Option<(JobId, Task<OwnedFd>)> {
    protocol::decode_task(bytes, &mut descriptors)
}

/// Encodes an outcome as a helper does.
#[must_use]
pub fn encode_outcome(id: JobId, outcome: &Outcome<OwnedFd>) -> Encoded {
    counted(&protocol::encode_outcome(id, outcome))
}

/// Decodes an outcome as a worker does.
#[must_use]
pub fn decode_outcome(bytes: &[u8], descriptors: Vec<OwnedFd>) -> Option<(JobId, Outcome<OwnedFd>)> {
    protocol::decode_outcome(bytes, descriptors)
}

/// Decodes an order of the supervisor and encodes it again.
#[must_use]
pub fn order_again(bytes: &[u8], descriptors: Vec<OwnedFd>) -> Option<Encoded> {
    let order = control::decode_order(bytes, descriptors).ok()?;
    let encoded = control::encode_order(&order);
    Some((encoded.bytes.to_vec(), usize::from(encoded.descriptor.is_some())))
}

/// Decodes a notice to the supervisor and encodes it again.
#[must_use]
pub fn notice_again(bytes: &[u8]) -> Option<Vec<u8>> {
    control::decode_notice(bytes).ok().map(|notice| control::encode_notice(&notice))
}

/// The messages of the store in one direction.
#[derive(Clone, Copy, Debug)]
pub struct StoreMessage {
    /// Decodes a message and encodes it again.
    pub again: fn(&[u8]) -> Option<Vec<u8>>,
    /// Whether a message cut to a length can be another complete message.
    pub ends: fn(&[u8], usize) -> bool,
}

/// Longest message of the store, in bytes.
pub const STORE_MESSAGE_BYTES_MAX: usize = store_protocol::STORE_MESSAGE_BYTES_MAX;

/// Every kind of message: from fillers to the keeper and back, from workers to the keeper and back.
pub const STORE_MESSAGES: [StoreMessage; 4] = [
    StoreMessage {
        again: |bytes| {
            store_protocol::decode_request(bytes).map(|request| store_protocol::encode_request(&request))
        },
        ends: |_, _| false,
    },
    StoreMessage {
        again: |bytes| {
            store_protocol::decode_answer(bytes).map(|answer| store_protocol::encode_answer(&answer))
        },
        ends: |_, _| false,
    },
    StoreMessage { again: from_worker_again, ends: from_worker_ends },
    StoreMessage {
        again: |bytes| {
            Some(match store_protocol::decode_to_worker(bytes)? {
                store_protocol::ToWorker::Known => store_protocol::encode_known().to_vec(),
                store_protocol::ToWorker::Leaving(slots) => store_protocol::encode_leaving(&slots),
            })
        },
        // Slots behind a tag.
        ends: |_, length| length % 4 == 1,
    },
];

fn from_worker_again(bytes: &[u8]) -> Option<Vec<u8>> {
    match store_protocol::decode_from_worker(bytes)? {
        store_protocol::FromWorker::Notices(notices) => Some(store_protocol::encode_notices(&notices)),
        store_protocol::FromWorker::Names(names) => {
            let mut message = Vec::new();
            for named in &names {
                assert!(store_protocol::push_named(&mut message, named), "decoded names fit in a message");
            }
            Some(message)
        }
    }
}

/// A message can end after a notice, or after a name.
fn from_worker_ends(message: &[u8], length: usize) -> bool {
    if message[0] != NAMES {
        return length % 8 == 1;
    }
    let mut end = 1;
    while end < length {
        let number = |at: usize| usize::from(u16::from_le_bytes([message[at], message[at + 1]]));
        end += 12 + number(end + 8) + number(end + 10);
    }
    end == length && length > 1
}

/// The tag of names.
const NAMES: u8 = 9;

/// Decodes a worker's request to the gateway and encodes it again.
#[must_use]
pub fn connect_again(bytes: &[u8]) -> Option<Vec<u8>> {
    gateway_protocol::decode_connect(bytes).map(|connect| gateway_protocol::encode_connect(&connect))
}

/// Decodes an answer of the gateway and encodes it again.
#[must_use]
pub fn gateway_answer_again(bytes: &[u8]) -> Option<Vec<u8>> {
    gateway_protocol::decode_answer(bytes).map(|answer| gateway_protocol::encode_answer(&answer))
}

fn counted(message: &protocol::Message<'_>) -> Encoded {
    (message.bytes.clone(), message.descriptors.len())
}
