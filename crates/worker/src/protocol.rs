//! The messages between a worker and its helpers: one task or one outcome per message of a `SOCK_SEQPACKET`
//! channel, with descriptors attached. Called by both ends.

use std::io;
use std::sync::Arc;

use flash_engine::backend::protocol::{PATH_BYTES_MAX, RANGE_BYTES_MAX};
use flash_engine::limits::{DEFLATE_BYTES_MAX, HAND_OVER_BYTES_MAX};
use flash_engine::{FileRange, JobId, Outcome, Task};
use flash_prompt::{AsFd, BorrowedFd, OwnedFd};

use crate::codec::{decode, send};

/// Size of the longest message in bytes.
pub const MESSAGE_BYTES_MAX: usize = HAND_OVER_BYTES_MAX as usize + 16 * 1024;

/// Sends a task to a helper. `aside` is the file of a [`Task::Close`]. Errors: any of [`flash_prompt::channel::send`].
pub fn send_task<F: AsFd>(
    channel: impl AsFd,
    id: JobId,
    task: &Task<F>,
    aside: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    send(channel, &(id, task), task.file().map(AsFd::as_fd).or(aside).as_slice())
}

/// Decodes a task. None if the message is not a task, or if the task exceeds the bounds.
pub fn decode_task(bytes: &[u8], descriptors: &mut Vec<OwnedFd>) -> Option<(JobId, Task<OwnedFd>)> {
    let (id, task): (JobId, Task<()>) = decode(bytes)?;
    let is_in_bounds = match &task {
        Task::Load { length_bytes, .. } => *length_bytes <= RANGE_BYTES_MAX,
        Task::Read { length_bytes, .. } => *length_bytes <= HAND_OVER_BYTES_MAX,
        Task::Write { bytes, .. } => bytes.len() as u64 <= HAND_OVER_BYTES_MAX,
        Task::Deflate { plain } => plain.len() <= DEFLATE_BYTES_MAX,
        Task::Touch { path, .. } => path.len() <= PATH_BYTES_MAX,
        Task::WarmFile {
            path,
            part: FileRange::From { length_bytes, .. } | FileRange::Last { length_bytes },
        } => path.len() <= PATH_BYTES_MAX && *length_bytes <= RANGE_BYTES_MAX,
        // The caller closes the file, along with all descriptors of the message.
        Task::Close { .. } => !descriptors.is_empty(),
        Task::Find { .. }
        | Task::List { .. }
        | Task::Fill { .. }
        | Task::Warm { .. }
        | Task::GiveBack { .. }
        | Task::Verify { .. } => true,
    };
    let task = task.with_file(|_| descriptors.pop().map(Arc::new).ok_or(())).ok()?;
    is_in_bounds.then_some((id, task))
}

/// Sends the outcome of a job. Errors: any of [`flash_prompt::channel::send`].
pub fn send_outcome(channel: impl AsFd, id: JobId, outcome: &Outcome<OwnedFd>) -> io::Result<()> {
    let descriptors: Vec<_> = outcome.files().map(AsFd::as_fd).collect();
    send(channel, &(id, outcome), &descriptors)
}

/// Decodes the outcome of a job. None if the message is not an outcome, or if a descriptor was lost at the
/// limit of descriptors.
pub fn decode_outcome<F: From<OwnedFd>>(
    bytes: &[u8],
    descriptors: Vec<OwnedFd>,
) -> Option<(JobId, Outcome<F>)> {
    let (id, outcome): (JobId, Outcome<()>) = decode(bytes)?;
    let mut descriptors = descriptors.into_iter().map(F::from);
    Some((id, outcome.with_files(|()| descriptors.next())?))
}

#[cfg(test)]
mod tests {
    use flash_engine::{FileKind, FileStat, Finding, ListingForm, ListingOrder, Opened, SiteId};
    use flash_http::negotiate::Coding;

    use super::*;
    use crate::codec::encode;

    const ID: u64 = 7;

    fn file() -> OwnedFd {
        std::fs::File::open("/dev/null").expect("/dev/null").into()
    }

    fn stat(size_bytes: u64) -> FileStat {
        FileStat {
            kind: FileKind::Regular,
            device: 1,
            inode: 2,
            size_bytes,
            modified_ns: -3,
            changed_ns: i128::from(u64::MAX),
        }
    }

    fn outcome_bytes(outcome: &Outcome<OwnedFd>) -> Vec<u8> {
        encode(&(JobId::from_u64(ID), outcome))
    }

    fn through(outcome: &Outcome<OwnedFd>) -> Option<(JobId, Outcome<OwnedFd>)> {
        let passed = outcome.files().map(|file| file.try_clone().expect("dup")).collect();
        decode_outcome(&outcome_bytes(outcome), passed)
    }

    #[test]
    fn a_found_file_arrives_with_its_siblings() {
        let found = Outcome::Found(Finding::File {
            plain: Opened { stat: stat(5), file: Some(file()) },
            coded: [None, Some(Opened { stat: stat(6), file: Some(file()) }), None],
            path: b"/a".to_vec(),
        });
        let Some((id, Outcome::Found(Finding::File { plain, coded, path }))) = through(&found) else {
            panic!("not a file")
        };
        assert_eq!((id.to_u64(), plain.stat, path), (ID, stat(5), b"/a".to_vec()));
        assert!(plain.file.is_some() && coded[0].is_none() && coded[2].is_none());
        let zstd = coded[1].as_ref().expect("the sibling");
        assert_eq!(zstd.stat, stat(6));
        assert!(zstd.file.is_some());
    }

    #[test]
    fn bytes_arrive_with_the_state_of_their_file() {
        let Some((_, Outcome::Bytes(bytes, found))) = through(&Outcome::Bytes(b"abc".to_vec(), stat(3)))
        else {
            panic!("not bytes")
        };
        assert_eq!((bytes, found), (b"abc".to_vec(), stat(3)));
    }

    #[test]
    fn a_lost_descriptor_is_not_a_file() {
        let bytes = outcome_bytes(&Outcome::Listed(file(), stat(1), u64::MAX));
        assert!(decode_outcome::<OwnedFd>(&bytes, vec![file()]).is_some());
        assert!(decode_outcome::<OwnedFd>(&bytes, Vec::new()).is_none());
    }

    #[test]
    fn tasks_arrive() {
        let id = JobId::from_u64(9);
        let order = ListingOrder::of_query(Some(b"sort=-time"));
        let form = ListingForm { json: true, order, coding: Some(Coding::Gzip) };
        let task = Task::<OwnedFd>::List { site: SiteId(3), path: (*b"/d/").into(), form, with_readme: true };
        let decoded = decode_task(&encode(&(id, &task)), &mut Vec::new());
        let Some((id, Task::List { site, path, form: decoded, with_readme: true })) = decoded else {
            panic!("not a listing")
        };
        assert_eq!((id.to_u64(), site, &*path, decoded), (9, SiteId(3), &b"/d/"[..], form));
        let bytes = encode(&(id, &Task::Read { file: Arc::new(file()), offset: 1, length_bytes: 2 }));
        assert!(decode_task(&bytes, &mut Vec::new()).is_none(), "decoded without its descriptor");
        let read = decode_task(&bytes, &mut vec![file()]);
        assert!(matches!(read, Some((_, Task::Read { offset: 1, length_bytes: 2, .. }))));
    }

    #[test]
    fn a_message_cut_short_or_with_extra_bytes_is_refused() {
        let found = Finding::File {
            plain: Opened { stat: stat(1), file: None },
            coded: [None, None, None],
            path: b"/".to_vec(),
        };
        for outcome in
            [Outcome::Failed(5), Outcome::Loaded, Outcome::Listed(file(), stat(1), 9), Outcome::Found(found)]
        {
            let mut bytes = outcome_bytes(&outcome);
            for length in 0..bytes.len() {
                let cut = decode_outcome::<OwnedFd>(&bytes[..length], vec![file()]);
                assert!(cut.is_none(), "{outcome:?} cut to {length}");
            }
            bytes.push(0);
            let longer = decode_outcome::<OwnedFd>(&bytes, vec![file()]);
            assert!(longer.is_none(), "{outcome:?} with an extra byte");
        }
    }

    #[test]
    fn a_task_beyond_the_bounds_is_refused() {
        let taken = |task: &Task<OwnedFd>| {
            decode_task(&encode(&(JobId::from_u64(9), task)), &mut vec![file()]).is_some()
        };
        for (over, expected) in [(0, true), (1, false)] {
            let part = FileRange::Last { length_bytes: RANGE_BYTES_MAX + over };
            let path: Arc<[u8]> = vec![b'x'; PATH_BYTES_MAX + over as usize].into();
            let bytes: Arc<[u8]> = vec![0; (HAND_OVER_BYTES_MAX + over) as usize].into();
            for task in [
                Task::Load { file: Arc::new(file()), offset: 0, length_bytes: RANGE_BYTES_MAX + over },
                Task::Read { file: Arc::new(file()), offset: 0, length_bytes: HAND_OVER_BYTES_MAX + over },
                Task::Write { file: Arc::new(file()), offset: 0, bytes },
                Task::Touch { root: Arc::new(file()), path: path.clone() },
                Task::WarmFile { path, part: FileRange::Last { length_bytes: 1 } },
                Task::WarmFile { path: (*b"/").into(), part },
            ] {
                assert_eq!(taken(&task), expected, "{over} over");
            }
        }
    }

    #[test]
    fn decoding_never_panics() {
        for length in 0..80 {
            for first in 0..=20 {
                let mut bytes = vec![0xff; length];
                bytes.splice(..length.min(3), [0, 0, first].into_iter().take(length));
                let _ = decode_task(&bytes, &mut Vec::new());
                let _ = decode_outcome::<OwnedFd>(&bytes, Vec::new());
            }
        }
    }
}
