//! Messages between a worker and its helpers: each has one form, so what decodes encodes to the same
//! bytes, and of every other message it is said that it is none.

use std::fs::File;
use std::os::fd::OwnedFd;

use crate::messages::{Encoded, MESSAGE_BYTES_MAX, decode_outcome, decode_task, encode_outcome, encode_task};
use flash_engine::limits::{HAND_OVER_BYTES_MAX, LOAD_BYTES};
use flash_engine::{Finding, Outcome, Task};

/// The most descriptors that a message of the protocol has: a file and its three siblings.
const DESCRIPTORS_MAX: usize = 4;

/// `input` is a byte, of which the number of descriptors follows, and a message of either side.
pub fn protocol(input: &[u8]) {
    let Some((first, message)) = input.split_first() else { return };
    let mut message = message.to_vec();
    message.truncate(MESSAGE_BYTES_MAX);
    // A job's id has seven bytes.
    if let Some(byte) = message.get_mut(8) {
        *byte = 0;
    }
    let given = usize::from(*first) % (DESCRIPTORS_MAX + 1);
    for again in [task_again, outcome_again] {
        let Some((bytes, needed)) = again(&message, given) else { continue };
        assert_eq!(bytes, message, "a message that has two forms");
        assert!(needed <= given);
        assert_eq!(again(&message, needed), Some((bytes, needed)), "with no descriptor too many");
        for fewer in 0..needed {
            assert_eq!(again(&message, fewer), None, "with {fewer} of {needed} descriptors");
        }
        // Cut short it is none, or another one that is as whole: a shorter path, fewer bytes.
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
        Task::Find { path, .. } | Task::List { path, .. } => assert!(path.len() < message.len()),
        Task::Close { .. } => {}
        Task::Load { length_bytes, .. } => assert!(*length_bytes <= LOAD_BYTES),
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
