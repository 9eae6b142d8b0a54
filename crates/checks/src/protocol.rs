//! Messages between a worker and its helpers.

use flash_engine::backend::protocol::{PATH_BYTES_MAX, RANGE_BYTES_MAX};
use flash_engine::limits::{DEFLATE_BYTES_MAX, HAND_OVER_BYTES_MAX};
use flash_engine::{FileRange, Finding, Outcome, Task};
use flash_prompt::OwnedFd;
use flash_worker::codec::encode;
use flash_worker::protocol::{MESSAGE_BYTES_MAX, decode_outcome, decode_task};

use crate::messages::{descriptors, message};

/// Maximum number of descriptors in a message: a file and its three siblings.
const DESCRIPTORS_MAX: usize = 4;

/// A message, and the number of descriptors that it needs.
type Encoded = (Vec<u8>, usize);

/// Checks `input`: a byte from which the number of descriptors follows, and a message in either direction.
pub fn protocol(input: &[u8]) {
    let Some((first, bytes)) = input.split_first() else { return };
    let bytes = &bytes[..bytes.len().min(MESSAGE_BYTES_MAX)];
    let given = usize::from(*first) % (DESCRIPTORS_MAX + 1);
    for again in [task_again, outcome_again] {
        let Some((bytes, needed)) = again(bytes, given) else { continue };
        assert!(needed <= given);
        for fewer in 0..needed {
            assert_eq!(again(&bytes, fewer), None, "decoded with {fewer} of {needed} descriptors");
        }
        message(&bytes, |bytes| again(bytes, needed).map(|(bytes, _)| bytes));
    }
}

fn task_again(bytes: &[u8], given: usize) -> Option<Encoded> {
    let (id, task) = decode_task(bytes, &mut descriptors(given))?;
    match &task {
        Task::Find { path, .. } | Task::List { path, .. } | Task::Warm { path, .. } => {
            assert!(path.len() < bytes.len());
        }
        Task::Touch { path, .. } => assert!(path.len() < bytes.len() && path.len() <= PATH_BYTES_MAX),
        Task::WarmFile { path, part } => {
            assert!(path.len() < bytes.len() && path.len() <= PATH_BYTES_MAX);
            let (FileRange::From { length_bytes, .. } | FileRange::Last { length_bytes }) = part;
            assert!(*length_bytes <= RANGE_BYTES_MAX);
        }
        Task::Close { .. } | Task::Fill { .. } | Task::GiveBack { .. } => {}
        Task::Verify { stored, given } => assert!(stored.bytes().len() + given.bytes().len() < bytes.len()),
        Task::Deflate { plain } => assert!(plain.len() < bytes.len() && plain.len() <= DEFLATE_BYTES_MAX),
        Task::Load { length_bytes, .. } => assert!(*length_bytes <= RANGE_BYTES_MAX),
        Task::Write { bytes, .. } => assert!(bytes.len() as u64 <= HAND_OVER_BYTES_MAX),
        Task::Read { length_bytes, .. } => assert!(*length_bytes <= HAND_OVER_BYTES_MAX),
    }
    let needs_descriptor = task.file().is_some() || matches!(task, Task::Close { .. });
    Some((encode(&(id, &task)), needs_descriptor.into()))
}

fn outcome_again(bytes: &[u8], given: usize) -> Option<Encoded> {
    let (id, outcome) = decode_outcome::<OwnedFd>(bytes, descriptors(given))?;
    match &outcome {
        Outcome::Found(Finding::File { path, .. }) => assert!(path.capacity() < bytes.len()),
        Outcome::Bytes(content, _) | Outcome::Deflated(content) => assert!(content.capacity() < bytes.len()),
        _ => {}
    }
    Some((encode(&(id, &outcome)), outcome.files().count()))
}
