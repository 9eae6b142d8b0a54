//! The messages between a worker and its helpers: one task or one outcome per message of a `SOCK_SEQPACKET`
//! channel, with descriptors attached. Called by both ends.
//!
//! Both ends are the same program, but neither trusts the other's bytes: a message that does not decode is an
//! error, never a panic. Every message has exactly one encoding, so a message that is cut short or has extra
//! bytes never decodes.

use std::sync::Arc;

use flash_engine::backend::protocol::{PATH_BYTES_MAX, RANGE_BYTES_MAX};
use flash_engine::limits::HAND_OVER_BYTES_MAX;
use flash_engine::{FileKind, FileStat, Finding, JobId, Opened, Outcome, Part, SiteId, Task};
use flash_prompt::{AsFd, BorrowedFd, OwnedFd};

/// Size of the longest message in bytes.
pub const MESSAGE_BYTES_MAX: usize = HAND_OVER_BYTES_MAX as usize + 16 * 1024;

/// An encoded message and its descriptors.
#[derive(Debug)]
pub struct Message<'f> {
    /// The message without its descriptors.
    pub bytes: Vec<u8>,
    /// The descriptors, sent with the bytes in this order.
    pub descriptors: Vec<BorrowedFd<'f>>,
}

mod tag {
    pub(super) const FIND: u8 = 1;
    pub(super) const LIST: u8 = 2;
    pub(super) const LOAD: u8 = 3;
    pub(super) const READ: u8 = 4;
    pub(super) const CLOSE: u8 = 5;
    pub(super) const FILL: u8 = 6;
    pub(super) const WARM: u8 = 7;
    pub(super) const TOUCH: u8 = 8;
    pub(super) const WARM_FILE: u8 = 9;
    pub(super) const WRITE: u8 = 22;
    pub(super) const PUNCH: u8 = 25;
    pub(super) const CUT: u8 = 26;

    pub(super) const FOUND_FILE: u8 = 10;
    pub(super) const REDIRECT: u8 = 11;
    pub(super) const LISTING: u8 = 12;
    pub(super) const MISSING: u8 = 13;
    pub(super) const DENIED: u8 = 14;
    pub(super) const LISTED: u8 = 15;
    pub(super) const LOADED: u8 = 16;
    pub(super) const BYTES: u8 = 17;
    pub(super) const FAILED: u8 = 18;
    pub(super) const EXHAUSTED: u8 = 19;
    pub(super) const LOST: u8 = 20;
    pub(super) const CLOSED: u8 = 21;
    pub(super) const WRITTEN: u8 = 23;
    pub(super) const SCRIPT: u8 = 24;
    pub(super) const UNSUPPORTED: u8 = 27;
}

/// Encodes a task for a helper. `aside` is the file of a [`Task::Close`].
pub fn encode_task<'f, F: AsFd>(id: JobId, task: &'f Task<F>, aside: Option<BorrowedFd<'f>>) -> Message<'f> {
    let mut bytes = Vec::with_capacity(64);
    let mut descriptors = Vec::new();
    let mut start = |tag: u8| {
        bytes.push(tag);
        bytes.extend_from_slice(&id.to_u64().to_le_bytes());
    };
    match task {
        Task::Find { site, path } => {
            start(tag::FIND);
            bytes.extend_from_slice(&site.0.to_le_bytes());
            bytes.extend_from_slice(path);
        }
        Task::List { site, path, json } => {
            start(tag::LIST);
            bytes.extend_from_slice(&site.0.to_le_bytes());
            bytes.push(u8::from(*json));
            bytes.extend_from_slice(path);
        }
        Task::Fill { file, block } => {
            start(tag::FILL);
            bytes.extend_from_slice(&block.to_le_bytes());
            descriptors.push(file.as_fd());
        }
        Task::Warm { site, path, block } => {
            start(tag::WARM);
            bytes.extend_from_slice(&site.0.to_le_bytes());
            bytes.extend_from_slice(&block.to_le_bytes());
            bytes.extend_from_slice(path);
        }
        Task::Load { file, offset, length_bytes } | Task::Read { file, offset, length_bytes } => {
            start(if matches!(task, Task::Load { .. }) { tag::LOAD } else { tag::READ });
            bytes.extend_from_slice(&offset.to_le_bytes());
            bytes.extend_from_slice(&length_bytes.to_le_bytes());
            descriptors.push(file.as_fd());
        }
        Task::Write { file, offset, bytes: data } => {
            start(tag::WRITE);
            bytes.extend_from_slice(&offset.to_le_bytes());
            bytes.extend_from_slice(data);
            descriptors.push(file.as_fd());
        }
        Task::GiveBack { file, offset, length_bytes } => {
            start(if length_bytes.is_some() { tag::PUNCH } else { tag::CUT });
            bytes.extend_from_slice(&offset.to_le_bytes());
            bytes.extend(length_bytes.iter().flat_map(|length_bytes| length_bytes.to_le_bytes()));
            descriptors.push(file.as_fd());
        }
        Task::Close { number } => {
            start(tag::CLOSE);
            bytes.extend_from_slice(&number.to_le_bytes());
            descriptors.extend(aside);
        }
        Task::Touch { root, path } => {
            start(tag::TOUCH);
            bytes.extend_from_slice(path);
            descriptors.push(root.as_fd());
        }
        Task::WarmFile { path, part } => {
            start(tag::WARM_FILE);
            push_part(&mut bytes, *part);
            bytes.extend_from_slice(path);
        }
    }
    Message { bytes, descriptors }
}

/// Decodes a task. None if the message is not a task, or if the task exceeds the bounds.
pub fn decode_task(bytes: &[u8], descriptors: &mut Vec<OwnedFd>) -> Option<(JobId, Task<OwnedFd>)> {
    let mut reader = Reader(bytes);
    let tag = reader.u8()?;
    let id = JobId::from_u64(reader.u64()?);
    let task = match tag {
        tag::FIND => Task::Find { site: SiteId(reader.u16()?), path: reader.rest().into() },
        tag::LIST => {
            Task::List { site: SiteId(reader.u16()?), json: reader.bool()?, path: reader.rest().into() }
        }
        tag::FILL => Task::Fill { block: reader.u64()?, file: Arc::new(descriptors.pop()?) },
        tag::WARM => {
            Task::Warm { site: SiteId(reader.u16()?), block: reader.u64()?, path: reader.rest().into() }
        }
        tag::LOAD | tag::READ => {
            let (offset, length_bytes) = (reader.u64()?, reader.u64()?);
            let length_bytes_max = if tag == tag::LOAD { RANGE_BYTES_MAX } else { HAND_OVER_BYTES_MAX };
            if length_bytes > length_bytes_max {
                return None;
            }
            let file = Arc::new(descriptors.pop()?);
            if tag == tag::LOAD {
                Task::Load { file, offset, length_bytes }
            } else {
                Task::Read { file, offset, length_bytes }
            }
        }
        tag::WRITE => {
            let offset = reader.u64()?;
            let bytes: Arc<[u8]> = reader.rest().into();
            if bytes.len() as u64 > HAND_OVER_BYTES_MAX {
                return None;
            }
            Task::Write { file: Arc::new(descriptors.pop()?), offset, bytes }
        }
        tag::PUNCH | tag::CUT => {
            let offset = reader.u64()?;
            let length_bytes = if tag == tag::PUNCH { Some(reader.u64()?) } else { None };
            Task::GiveBack { file: Arc::new(descriptors.pop()?), offset, length_bytes }
        }
        tag::TOUCH => {
            let path = reader.rest();
            if path.len() > PATH_BYTES_MAX {
                return None;
            }
            Task::Touch { root: Arc::new(descriptors.pop()?), path: path.into() }
        }
        tag::WARM_FILE => {
            let (is_last, offset, length_bytes) = (reader.u8()?, reader.u64()?, reader.u64()?);
            let part = match (is_last, offset) {
                (0, _) => Part::From { offset, length_bytes },
                (1, 0) => Part::Last { length_bytes },
                _ => return None,
            };
            let path = reader.rest();
            if path.len() > PATH_BYTES_MAX || length_bytes > RANGE_BYTES_MAX {
                return None;
            }
            Task::WarmFile { path: path.into(), part }
        }
        // The caller closes the file, along with all descriptors of the message.
        tag::CLOSE if !descriptors.is_empty() => Task::Close { number: reader.u64()? },
        _ => return None,
    };
    reader.is_at_end().then_some((id, task))
}

/// Encodes the outcome of a job.
pub fn encode_outcome(id: JobId, outcome: &Outcome<OwnedFd>) -> Message<'_> {
    let mut bytes = vec![0];
    let mut descriptors = Vec::new();
    bytes.extend_from_slice(&id.to_u64().to_le_bytes());
    bytes[0] = match outcome {
        Outcome::Found(Finding::File { plain, coded, path }) => {
            for place in std::iter::once(Some(plain)).chain(coded.iter().map(Option::as_ref)) {
                push_opened(&mut bytes, &mut descriptors, place);
            }
            bytes.extend_from_slice(path);
            tag::FOUND_FILE
        }
        Outcome::Found(Finding::Script) => tag::SCRIPT,
        Outcome::Found(Finding::Redirect) => tag::REDIRECT,
        Outcome::Found(Finding::Listing) => tag::LISTING,
        Outcome::Found(Finding::Missing) => tag::MISSING,
        Outcome::Found(Finding::Denied) => tag::DENIED,
        Outcome::Listed(file, stat) => {
            descriptors.push(file.as_fd());
            push_stat(&mut bytes, stat);
            tag::LISTED
        }
        Outcome::Loaded => tag::LOADED,
        Outcome::Written => tag::WRITTEN,
        Outcome::Unsupported => tag::UNSUPPORTED,
        Outcome::Closed => tag::CLOSED,
        Outcome::Bytes(data, stat) => {
            push_stat(&mut bytes, stat);
            bytes.extend_from_slice(data);
            tag::BYTES
        }
        Outcome::Failed(number) => {
            bytes.extend_from_slice(&number.to_le_bytes());
            tag::FAILED
        }
        Outcome::Exhausted => tag::EXHAUSTED,
        Outcome::Lost => tag::LOST,
    };
    Message { bytes, descriptors }
}

/// Decodes the outcome of a job. None if the message is not an outcome, or if a descriptor was lost at the
/// limit of descriptors.
pub fn decode_outcome<F: From<OwnedFd>>(
    bytes: &[u8],
    descriptors: Vec<OwnedFd>,
) -> Option<(JobId, Outcome<F>)> {
    let mut reader = Reader(bytes);
    let mut descriptors = descriptors.into_iter().map(F::from);
    let tag = reader.u8()?;
    let id = JobId::from_u64(reader.u64()?);
    let outcome = match tag {
        tag::FOUND_FILE => {
            let plain = reader.opened(&mut descriptors)?;
            let mut coded = [None, None, None];
            for place in &mut coded {
                *place = reader.opened(&mut descriptors)?;
            }
            Outcome::Found(Finding::File { plain: plain?, coded, path: reader.rest().to_vec() })
        }
        tag::SCRIPT => Outcome::Found(Finding::Script),
        tag::REDIRECT => Outcome::Found(Finding::Redirect),
        tag::LISTING => Outcome::Found(Finding::Listing),
        tag::MISSING => Outcome::Found(Finding::Missing),
        tag::DENIED => Outcome::Found(Finding::Denied),
        tag::LISTED => Outcome::Listed(descriptors.next()?, reader.stat()?),
        tag::LOADED => Outcome::Loaded,
        tag::WRITTEN => Outcome::Written,
        tag::UNSUPPORTED => Outcome::Unsupported,
        tag::CLOSED => Outcome::Closed,
        tag::BYTES => {
            let stat = reader.stat()?;
            Outcome::Bytes(reader.rest().to_vec(), stat)
        }
        tag::EXHAUSTED => Outcome::Exhausted,
        tag::LOST => Outcome::Lost,
        tag::FAILED => Outcome::Failed(reader.array().map(i32::from_le_bytes)?),
        _ => return None,
    };
    reader.is_at_end().then_some((id, outcome))
}

fn push_part(bytes: &mut Vec<u8>, part: Part) {
    let (is_last, offset, length_bytes) = match part {
        Part::From { offset, length_bytes } => (0, offset, length_bytes),
        Part::Last { length_bytes } => (1, 0, length_bytes),
    };
    bytes.push(is_last);
    bytes.extend_from_slice(&offset.to_le_bytes());
    bytes.extend_from_slice(&length_bytes.to_le_bytes());
}

const ABSENT: u8 = 0;
const CLOSED: u8 = 1;
const OPEN: u8 = 2;

fn push_opened<'f>(
    bytes: &mut Vec<u8>,
    descriptors: &mut Vec<BorrowedFd<'f>>,
    place: Option<&'f Opened<OwnedFd>>,
) {
    let Some(opened) = place else { return bytes.push(ABSENT) };
    match &opened.file {
        Some(file) => {
            bytes.push(OPEN);
            descriptors.push(file.as_fd());
        }
        None => bytes.push(CLOSED),
    }
    push_stat(bytes, &opened.stat);
}

fn push_stat(bytes: &mut Vec<u8>, stat: &FileStat) {
    bytes.push(match stat.kind {
        FileKind::Regular => 0,
        FileKind::Directory => 1,
        FileKind::Special => 2,
    });
    for number in [stat.device, stat.inode, stat.size_bytes] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    for number in [stat.modified_ns, stat.changed_ns] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
}

/// Takes fixed-width little-endian numbers from the front of a message.
struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*front)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    fn bool(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn i128(&mut self) -> Option<i128> {
        self.array().map(i128::from_le_bytes)
    }

    fn rest(&mut self) -> &'b [u8] {
        std::mem::take(&mut self.0)
    }

    fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    fn stat(&mut self) -> Option<FileStat> {
        Some(FileStat {
            kind: match self.u8()? {
                0 => FileKind::Regular,
                1 => FileKind::Directory,
                2 => FileKind::Special,
                _ => return None,
            },
            device: self.u64()?,
            inode: self.u64()?,
            size_bytes: self.u64()?,
            modified_ns: self.i128()?,
            changed_ns: self.i128()?,
        })
    }

    /// `Some(None)` for an absent sibling.
    #[allow(clippy::option_option)]
    fn opened<F>(&mut self, descriptors: &mut impl Iterator<Item = F>) -> Option<Option<Opened<F>>> {
        let file = match self.u8()? {
            ABSENT => return Some(None),
            CLOSED => None,
            OPEN => Some(descriptors.next()?),
            _ => return None,
        };
        Some(Some(Opened { stat: self.stat()?, file }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn through(outcome: &Outcome<OwnedFd>) -> Option<(JobId, Outcome<OwnedFd>)> {
        let message = encode_outcome(JobId::from_u64(7), outcome);
        let passed = message.descriptors.iter().map(|fd| fd.try_clone_to_owned().expect("dup")).collect();
        decode_outcome(&message.bytes, passed)
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
        assert_eq!((id.to_u64(), plain.stat, path), (7, stat(5), b"/a".to_vec()));
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
        let found = Outcome::Listed(file(), stat(1));
        let message = encode_outcome(JobId::from_u64(7), &found);
        assert!(decode_outcome::<OwnedFd>(&message.bytes, Vec::new()).is_none());
    }

    #[test]
    fn tasks_arrive() {
        let task = Task::<OwnedFd>::List { site: SiteId(3), path: (*b"/d/").into(), json: true };
        let message = encode_task(JobId::from_u64(9), &task, None);
        let Some((id, Task::List { site, path, json })) = decode_task(&message.bytes, &mut Vec::new()) else {
            panic!("not a listing")
        };
        assert_eq!((id.to_u64(), site, &*path, json), (9, SiteId(3), &b"/d/"[..], true));
        let task = Task::Read { file: Arc::new(file()), offset: 1, length_bytes: 2 };
        let message = encode_task(JobId::from_u64(9), &task, None);
        assert!(decode_task(&message.bytes, &mut Vec::new()).is_none(), "decoded without its descriptor");
        let read = decode_task(&message.bytes, &mut vec![file()]);
        assert!(matches!(read, Some((_, Task::Read { offset: 1, length_bytes: 2, .. }))));
    }

    #[test]
    fn every_message_has_one_encoding() {
        let id = JobId::from_u64(7);
        let list: Task<OwnedFd> = Task::List { site: SiteId(3), path: (*b"/d/").into(), json: true };
        let mut bytes = encode_task(id, &list, None).bytes;
        bytes[11] = 2;
        assert!(decode_task(&bytes, &mut Vec::new()).is_none(), "a boolean that is neither 0 nor 1");
        for outcome in [Outcome::Failed(5), Outcome::Loaded, Outcome::Listed(file(), stat(1))] {
            let mut bytes = encode_outcome(id, &outcome).bytes;
            for length in 0..bytes.len() {
                assert!(
                    decode_outcome::<OwnedFd>(&bytes[..length], vec![file()]).is_none(),
                    "{outcome:?} cut to {length}"
                );
            }
            bytes.push(0);
            assert!(
                decode_outcome::<OwnedFd>(&bytes, vec![file()]).is_none(),
                "{outcome:?} with an extra byte"
            );
        }
        let mut bytes = encode_outcome(id, &Outcome::Bytes(Vec::new(), stat(1))).bytes;
        bytes[9] = 3;
        assert!(decode_outcome::<OwnedFd>(&bytes, Vec::new()).is_none(), "an unknown kind of file");
    }

    #[test]
    fn a_task_beyond_the_bounds_is_refused() {
        let taken = |task: &Task<OwnedFd>| {
            let message = encode_task(JobId::from_u64(9), task, None);
            decode_task(&message.bytes, &mut vec![file()]).is_some()
        };
        for (over, expected) in [(0, true), (1, false)] {
            let file = Arc::new(file());
            let load =
                Task::Load { file: Arc::clone(&file), offset: 0, length_bytes: RANGE_BYTES_MAX + over };
            let read = Task::Read { file, offset: 0, length_bytes: HAND_OVER_BYTES_MAX + over };
            assert_eq!((taken(&load), taken(&read)), (expected, expected), "{over} over");
        }
    }

    #[test]
    fn decoding_never_panics() {
        for length in 0..80 {
            for first in 0..=20 {
                let mut bytes = vec![0xff; length];
                if let Some(byte) = bytes.first_mut() {
                    *byte = first;
                }
                let _ = decode_task(&bytes, &mut Vec::new());
                let _ = decode_outcome::<OwnedFd>(&bytes, Vec::new());
            }
        }
    }
}
