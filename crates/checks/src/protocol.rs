//! Messages between a worker and its helpers: each has exactly one encoding, so a message that decodes
//! encodes to the same bytes, and every other message is refused.

use std::fs::File;
use std::os::fd::OwnedFd;

use crate::messages::{Encoded, MESSAGE_BYTES_MAX, decode_outcome, decode_task, encode_outcome, encode_task};
use flash_engine::backend::protocol::RANGE_BYTES_MAX;
use flash_engine::limits::HAND_OVER_BYTES_MAX;
use flash_engine::{Finding, Outcome, Part, Task};

/// Maximum number of descriptors in a message: a file and its three siblings.
const DESCRIPTORS_MAX: usize = 4;

/// Checks `input`: a byte from which the number of descriptors follows, and a message in either direction.
pub fn protocol(input: &[u8]) {
    let Some((first, message)) = input.split_first() else { return };
    let mut message = message.to_vec();
    message.truncate(MESSAGE_BYTES_MAX);
    // The id of a job has only seven bytes.
    if let Some(byte) = message.get_mut(8) {
        *byte = 0;
    }
    let given = usize::from(*first) % (DESCRIPTORS_MAX + 1);
    for again in [task_again, outcome_again] {
        let Some((bytes, needed)) = again(&message, given) else { continue };
        assert_eq!(bytes, message, "a message has two encodings");
        assert!(needed <= given);
        assert_eq!(again(&message, needed), Some((bytes, needed)), "the needed descriptors are enough");
        for fewer in 0..needed {
            assert_eq!(again(&message, fewer), None, "decoded with {fewer} of {needed} descriptors");
        }
        // A message that is cut short must not decode, unless the rest is complete too: a shorter path, fewer
        // bytes.
        for length in (0..message.len()).step_by(message.len() / 64 + 1) {
            if let Some((bytes, _)) = again(&message[..length], needed) {
                assert_eq!(bytes, message[..length], "cut to {length}");
            }
        }
    }
}

fn descriptors(count: usize) -> Vec<OwnedFd> {
    (0..count).map(|_| File::open("/dev/null").expect("/dev/null opens").into()).collect()
}

fn task_again(message: &[u8], given: usize) -> Option<Encoded> {
    let (id, task) = decode_task(message, descriptors(given))?;
    match &task {
        Task::Find { path, .. }
        | Task::List { path, .. }
        | Task::Warm { path, .. }
        | Task::Touch { path, .. } => {
            assert!(path.len() < message.len());
        }
        Task::WarmFile { path, part } => {
            assert!(path.len() < message.len());
            let (Part::From { length_bytes, .. } | Part::Last { length_bytes }) = part;
            assert!(*length_bytes <= RANGE_BYTES_MAX);
        }
        Task::Close { .. } | Task::Fill { .. } | Task::GiveBack { .. } => {}
        Task::Load { length_bytes, .. } => assert!(*length_bytes <= RANGE_BYTES_MAX),
        Task::Write { bytes, .. } => assert!(bytes.len() as u64 <= HAND_OVER_BYTES_MAX),
        Task::Read { length_bytes, .. } => assert!(*length_bytes <= HAND_OVER_BYTES_MAX),
    }
    Some(encode_task(id, &task))
}

fn outcome_again(message: &[u8], given: usize) -> Option<Encoded> {
    let (id, outcome) = decode_outcome(message, descriptors(given))?;
    match &outcome {
        Outcome::Found(Finding::File { path, .. }) => assert!(path.capacity() < message.len()),
        Outcome::Bytes(bytes, _) => assert!(bytes.capacity() < message.len()),
        _ => {}
    }
    Some(encode_outcome(id, &outcome))
}
