//! The messages between the keeper of the store, the workers, and the processes that fill the store:
//! fixed-width little-endian numbers in messages of a `SOCK_SEQPACKET` channel. Called by all ends.
//!
//! Neither end trusts the other's bytes: a message that does not decode is an error, never a panic.

use flash_prompt::table::{BlockKey, Place};

/// Size of the longest message in bytes.
pub const STORE_MESSAGE_BYTES_MAX: usize = 8 * 1024;
/// Size of the longest answer to a process that fills the store, in bytes.
pub const ANSWER_BYTES_MAX: usize = 16;
/// Maximum number of notices in one message.
pub const NOTICES_MAX: usize = (STORE_MESSAGE_BYTES_MAX - 1) / NOTICE_BYTES;
/// Maximum number of leaving slots in one message.
pub const LEAVING_MAX: usize = (STORE_MESSAGE_BYTES_MAX - 1) / 4;

const NOTICE_BYTES: usize = 8;
const KEY_BYTES: usize = 5 * 8 + 4;
/// A name without its texts: slot, block, and the lengths of the texts.
const NAMED_BYTES: usize = 4 + 4 + 2 + 2;

/// A message from a process that fills the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// It wants this block, of this length in bytes.
    Want(BlockKey, u32),
    /// It has loaded the block to the place given by the last answer.
    Filled,
    /// It could not load the block.
    Failed,
    /// It could not load the block, because the system has no memory for it.
    NoMemory,
    /// It no longer waits for an answer, and writes nothing. The last answer to it is [`Answer::GivenUp`].
    GiveUp,
}

/// The keeper's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The block is in the store.
    There,
    /// Another process loads the block. Another answer follows when it has.
    Joined,
    /// Load the block to this place.
    Fill(Place),
    /// The store has no room for the block.
    Refused,
    /// No answer to an earlier request follows.
    GivenUp,
}

/// A message from the keeper to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToWorker {
    /// The keeper knows the worker and asks it before it reuses a place. A worker must not look into the table before.
    Known,
    /// The worker must forget the blocks in these slots, and release each when no transfer sends it.
    Leaving(Vec<u32>),
}

/// A message from a worker about one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The block in this slot was used this often since the last report.
    Used(u32, u32),
    /// The worker has forgotten the block in this slot and no longer sends from it.
    Released(u32),
}

/// A worker's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromWorker {
    /// The blocks that it used or released.
    Notices(Vec<Notice>),
    /// The names under which it knows blocks.
    Names(Vec<Named>),
}

/// A name of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The slot of the block.
    pub slot: u32,
    /// The number of the block in its file.
    pub block: u32,
    /// The root of its site.
    pub root: Vec<u8>,
    /// The decoded path below the root; it begins with a slash.
    pub path: Vec<u8>,
}

mod tag {
    pub(super) const WANT: u8 = 1;
    pub(super) const FILLED: u8 = 2;
    pub(super) const FAILED: u8 = 3;
    pub(super) const NO_MEMORY: u8 = 7;
    pub(super) const THERE: u8 = 4;
    pub(super) const FILL: u8 = 5;
    pub(super) const REFUSED: u8 = 6;
    pub(super) const NOTICES: u8 = 8;
    pub(super) const NAMES: u8 = 9;
    pub(super) const KNOWN: u8 = 10;
    pub(super) const LEAVING: u8 = 11;
    pub(super) const GIVE_UP: u8 = 12;
    pub(super) const JOINED: u8 = 13;
    pub(super) const GIVEN_UP: u8 = 14;
}

/// Encodes a request.
#[must_use]
pub fn encode_request(request: &Request) -> Vec<u8> {
    match request {
        Request::Want(key, length) => {
            let mut bytes = Vec::with_capacity(1 + KEY_BYTES + 4);
            bytes.push(tag::WANT);
            for number in [key.device, key.inode, key.size_bytes] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            for number in [key.modified_ns, key.changed_ns] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            bytes.extend_from_slice(&key.block.to_le_bytes());
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes
        }
        Request::Filled => vec![tag::FILLED],
        Request::Failed => vec![tag::FAILED],
        Request::NoMemory => vec![tag::NO_MEMORY],
        Request::GiveUp => vec![tag::GIVE_UP],
    }
}

/// Decodes a request; None if the message is not a request.
#[must_use]
pub fn decode_request(bytes: &[u8]) -> Option<Request> {
    let (tag, rest) = bytes.split_first()?;
    match *tag {
        tag::WANT => {
            let rest: &[u8; KEY_BYTES + 4] = rest.try_into().ok()?;
            let wide = |at: usize| rest[at..].first_chunk().copied();
            let key = BlockKey {
                device: u64::from_le_bytes(wide(0)?),
                inode: u64::from_le_bytes(wide(8)?),
                size_bytes: u64::from_le_bytes(wide(16)?),
                modified_ns: i64::from_le_bytes(wide(24)?),
                changed_ns: i64::from_le_bytes(wide(32)?),
                block: u32::from_le_bytes(rest[40..].first_chunk().copied()?),
            };
            Some(Request::Want(key, u32::from_le_bytes(rest[44..].first_chunk().copied()?)))
        }
        tag::FILLED if rest.is_empty() => Some(Request::Filled),
        tag::FAILED if rest.is_empty() => Some(Request::Failed),
        tag::NO_MEMORY if rest.is_empty() => Some(Request::NoMemory),
        tag::GIVE_UP if rest.is_empty() => Some(Request::GiveUp),
        _ => None,
    }
}

/// Encodes an answer.
#[must_use]
pub fn encode_answer(answer: &Answer) -> Vec<u8> {
    match answer {
        Answer::There => vec![tag::THERE],
        Answer::Fill(place) => {
            [&[tag::FILL], &place.offset.to_le_bytes()[..], &place.length.to_le_bytes()[..]].concat()
        }
        Answer::Joined => vec![tag::JOINED],
        Answer::Refused => vec![tag::REFUSED],
        Answer::GivenUp => vec![tag::GIVEN_UP],
    }
}

/// Decodes an answer; None if the message is not an answer.
#[must_use]
pub fn decode_answer(bytes: &[u8]) -> Option<Answer> {
    let (tag, rest) = bytes.split_first()?;
    match *tag {
        tag::THERE if rest.is_empty() => Some(Answer::There),
        tag::JOINED if rest.is_empty() => Some(Answer::Joined),
        tag::REFUSED if rest.is_empty() => Some(Answer::Refused),
        tag::GIVEN_UP if rest.is_empty() => Some(Answer::GivenUp),
        tag::FILL => {
            let (offset, length) = rest.split_first_chunk()?;
            let place = Place {
                offset: u64::from_le_bytes(*offset),
                length: u32::from_le_bytes(length.try_into().ok()?),
            };
            Some(Answer::Fill(place))
        }
        _ => None,
    }
}

/// Encodes notices. A used block was used at least once, so a count of 0 stands for a release.
#[must_use]
pub fn encode_notices(notices: &[Notice]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + notices.len() * NOTICE_BYTES);
    bytes.push(tag::NOTICES);
    for notice in notices {
        let (slot, uses) = match notice {
            Notice::Used(slot, uses) => (slot, *uses.max(&1)),
            Notice::Released(slot) => (slot, 0),
        };
        bytes.extend_from_slice(&slot.to_le_bytes());
        bytes.extend_from_slice(&uses.to_le_bytes());
    }
    bytes
}

/// Appends a name to a message, which it begins if that is empty. False, without a change, if the message has no room.
#[must_use]
pub fn push_named(message: &mut Vec<u8>, named: &Named) -> bool {
    let Named { slot, block, root, path } = named;
    let (Ok(root_bytes), Ok(path_bytes)) = (u16::try_from(root.len()), u16::try_from(path.len())) else {
        return false;
    };
    if message.len().max(1) + NAMED_BYTES + root.len() + path.len() > STORE_MESSAGE_BYTES_MAX {
        return false;
    }
    if message.is_empty() {
        message.push(tag::NAMES);
    }
    message.extend_from_slice(&slot.to_le_bytes());
    message.extend_from_slice(&block.to_le_bytes());
    message.extend_from_slice(&root_bytes.to_le_bytes());
    message.extend_from_slice(&path_bytes.to_le_bytes());
    message.extend_from_slice(root);
    message.extend_from_slice(path);
    true
}

/// Decodes a worker's message; None if it is invalid.
#[must_use]
pub fn decode_from_worker(bytes: &[u8]) -> Option<FromWorker> {
    let (tag, rest) = bytes.split_first()?;
    match *tag {
        tag::NOTICES => decode_notices(rest).map(FromWorker::Notices),
        tag::NAMES => decode_names(rest).map(FromWorker::Names),
        _ => None,
    }
}

fn decode_names(mut rest: &[u8]) -> Option<Vec<Named>> {
    let mut names = Vec::new();
    while !rest.is_empty() {
        let (slot, after) = rest.split_first_chunk()?;
        let (block, after) = after.split_first_chunk()?;
        let (root_bytes, after) = after.split_first_chunk()?;
        let (path_bytes, after) = after.split_first_chunk()?;
        let (root, after) = after.split_at_checked(u16::from_le_bytes(*root_bytes).into())?;
        let (path, after) = after.split_at_checked(u16::from_le_bytes(*path_bytes).into())?;
        names.push(Named {
            slot: u32::from_le_bytes(*slot),
            block: u32::from_le_bytes(*block),
            root: root.to_vec(),
            path: path.to_vec(),
        });
        rest = after;
    }
    (!names.is_empty()).then_some(names)
}

fn decode_notices(bytes: &[u8]) -> Option<Vec<Notice>> {
    let (notices, rest) = bytes.as_chunks::<NOTICE_BYTES>();
    let notice = |[a, b, c, d, e, f, g, h]: &[u8; NOTICE_BYTES]| {
        let (slot, uses) = (u32::from_le_bytes([*a, *b, *c, *d]), u32::from_le_bytes([*e, *f, *g, *h]));
        if uses == 0 { Notice::Released(slot) } else { Notice::Used(slot, uses) }
    };
    rest.is_empty().then(|| notices.iter().map(notice).collect())
}

/// Encodes [`ToWorker::Known`].
#[must_use]
pub fn encode_known() -> [u8; 1] {
    [tag::KNOWN]
}

/// Encodes [`ToWorker::Leaving`].
#[must_use]
pub fn encode_leaving(slots: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + slots.len() * 4);
    bytes.push(tag::LEAVING);
    bytes.extend(slots.iter().flat_map(|slot| slot.to_le_bytes()));
    bytes
}

/// Decodes a message of the keeper; None if it is invalid.
#[must_use]
pub fn decode_to_worker(bytes: &[u8]) -> Option<ToWorker> {
    let (tag, rest) = bytes.split_first()?;
    match *tag {
        tag::KNOWN if rest.is_empty() => Some(ToWorker::Known),
        tag::LEAVING => {
            let (slots, rest) = rest.as_chunks::<4>();
            let slots = slots.iter().map(|slot| u32::from_le_bytes(*slot));
            rest.is_empty().then(|| ToWorker::Leaving(slots.collect()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: BlockKey = BlockKey {
        device: 1,
        inode: u64::MAX,
        size_bytes: 3,
        modified_ns: i64::MIN,
        changed_ns: -5,
        block: u32::MAX,
    };

    #[test]
    fn every_message_arrives_and_has_one_encoding() {
        let reports = [Request::Filled, Request::Failed, Request::NoMemory, Request::GiveUp];
        for request in [Request::Want(KEY, 7)].into_iter().chain(reports) {
            let mut bytes = encode_request(&request);
            assert_eq!(decode_request(&bytes), Some(request));
            assert!((0..bytes.len()).all(|length| decode_request(&bytes[..length]).is_none()));
            bytes.push(0);
            assert_eq!(decode_request(&bytes), None);
        }
        let words = [Answer::There, Answer::Joined, Answer::Refused, Answer::GivenUp];
        for answer in words.into_iter().chain([Answer::Fill(Place { offset: 1 << 40, length: 9 })]) {
            let mut bytes = encode_answer(&answer);
            assert_eq!(decode_answer(&bytes), Some(answer));
            assert!((0..bytes.len()).all(|length| decode_answer(&bytes[..length]).is_none()));
            bytes.push(0);
            assert_eq!(decode_answer(&bytes), None);
        }
    }

    #[test]
    fn notices_and_slots_arrive() {
        let notices = [Notice::Used(5, 9), Notice::Released(6), Notice::Used(u32::MAX, u32::MAX)];
        let bytes = encode_notices(&notices);
        assert_eq!(decode_from_worker(&bytes), Some(FromWorker::Notices(notices.to_vec())));
        assert!(decode_from_worker(&bytes[..bytes.len() - 1]).is_none());
        let named = Named { slot: 1, block: 2, root: b"/r".to_vec(), path: b"/p".to_vec() };
        let other = Named { slot: 2, path: Vec::new(), ..named.clone() };
        let mut bytes = Vec::new();
        assert!(push_named(&mut bytes, &named) && push_named(&mut bytes, &other));
        assert_eq!(decode_from_worker(&bytes), Some(FromWorker::Names(vec![named.clone(), other])));
        let ends = (0..bytes.len()).filter(|length| decode_from_worker(&bytes[..*length]).is_some());
        assert_eq!(ends.collect::<Vec<_>>(), [17], "after the first name");
        let long =
            Named { path: vec![b'x'; STORE_MESSAGE_BYTES_MAX - bytes.len() - NAMED_BYTES - 2], ..named };
        assert!(push_named(&mut bytes, &long));
        assert_eq!(bytes.len(), STORE_MESSAGE_BYTES_MAX);
        assert!(!push_named(&mut bytes, &long) && bytes.len() == STORE_MESSAGE_BYTES_MAX);
        let bytes = encode_leaving(&[1, 2, u32::MAX]);
        assert_eq!(decode_to_worker(&bytes), Some(ToWorker::Leaving(vec![1, 2, u32::MAX])));
        assert_eq!(decode_to_worker(&bytes[..7]), None);
        assert_eq!(decode_to_worker(&encode_known()), Some(ToWorker::Known));
        assert_eq!((decode_to_worker(b"\x0a\0"), decode_to_worker(b"")), (None, None));
        assert!(encode_leaving(&[0; LEAVING_MAX]).len() <= STORE_MESSAGE_BYTES_MAX);
    }
}
