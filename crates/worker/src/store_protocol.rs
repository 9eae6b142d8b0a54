//! The messages between the keeper of the store, the workers, and the processes that fill the store.

use flash_engine::NameFacts;
use flash_prompt::names::{FileState, NameHash};
use flash_prompt::table::{BlockKey, Extent};
use serde::{Deserialize, Serialize};

/// Size of the longest message in bytes.
pub const STORE_MESSAGE_BYTES_MAX: usize = 8 * 1024;
/// Size of the longest answer to a process that fills the store, in bytes: a tag and two numbers, of 64 and 32 bits.
pub const ANSWER_BYTES_MAX: usize = 1 + 10 + 5;
/// Maximum number of notices in one message.
pub const NOTICES_MAX: usize = LIST_BYTES_MAX / NOTICE_BYTES;
/// Maximum number of leaving slots in one message.
pub const LEAVING_MAX: usize = LIST_BYTES_MAX / 5;
/// Maximum number of wrong names in one message, each of two numbers.
pub const WRONG_MAX: usize = LIST_BYTES_MAX / 20;
/// Maximum bytes of a root and a path in one message, with a state, a tag and their lengths.
pub const ROOT_AND_PATH_BYTES_MAX: usize = STORE_MESSAGE_BYTES_MAX - 1 - 5 * 10 - 2 * 2;
/// A notice in a message: the slot, and its uses or 0 if it is released.
const NOTICE_BYTES: usize = 4 + 4;
/// Room for the list in a message, behind the tag and the length.
const LIST_BYTES_MAX: usize = STORE_MESSAGE_BYTES_MAX - 1 - 2;

/// A message from a process that fills the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// It wants this block, of this length in bytes.
    Want(BlockKey, u32),
    /// It has loaded the block to the place given by the last answer, for a request for this name.
    Filled(Option<Learned>),
    /// It could not load the block.
    Failed,
    /// It could not load the block, because the system has no memory for it.
    NoMemory,
    /// It has found what a name leads to. There is no answer.
    Learned(Learned),
    /// A path that leads to a file, for the list of hot files. There is no answer.
    Named {
        /// The state of the file.
        file: FileState,
        /// The root of its site.
        root: Vec<u8>,
        /// The decoded path below the root; it begins with a slash.
        path: Vec<u8>,
    },
    /// It no longer waits for an answer, and writes nothing. The last answer to it is [`Answer::GivenUp`].
    GiveUp,
}

/// The target of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Learned {
    /// The name.
    pub name: NameHash,
    /// Its target.
    pub facts: NameFacts,
    /// When the look-up began, in milliseconds of the monotonic clock.
    pub found_ms: u64,
    /// The subtree of its site, if every change of the name is reported by a watcher of that.
    pub subtree: Option<NameHash>,
}

/// The keeper's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The block is in the store.
    There,
    /// Another process loads the block. Another answer follows when it has.
    Joined,
    /// Load the block to this extent.
    Fill(Extent),
    /// The store has no room for the block.
    Refused,
    /// No answer to an earlier request follows.
    GivenUp,
}

/// A message from the watcher to the keeper, about names and subtrees of sites in the table of names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromWatcher {
    /// These names have changed.
    Changed(Vec<NameHash>),
    /// All of a subtree is watched since this time, in milliseconds of the monotonic clock.
    Begun {
        /// The subtree.
        subtree: NameHash,
        /// The time.
        since_ms: u64,
    },
    /// A directory, or a link to one, has appeared in a subtree.
    Appearing {
        /// The subtree.
        subtree: NameHash,
    },
    /// All directories that have appeared in a subtree are watched since this time.
    Appeared {
        /// The subtree.
        subtree: NameHash,
        /// The time.
        since_ms: u64,
    },
    /// Changes of a subtree may have been missed.
    Lost {
        /// The subtree.
        subtree: NameHash,
    },
    /// All changes up to this time were reported.
    Until(u64),
    /// Figures for `flash stats`.
    Figures(WatcherFigures),
}

/// The figures of a watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatcherFigures {
    /// Directories that are watched.
    pub directories: u64,
    /// Maximum number of directories that this user can watch.
    pub directories_max: u64,
    /// Sites whose files are watched, in whole or in part.
    pub sites: u64,
    /// Sites whose file systems do not report every change.
    pub sites_unreported: u64,
    /// Subtrees that cannot be watched.
    pub subtrees_unwatched: u64,
}

/// A message from the keeper to a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToWorker {
    /// The keeper knows the worker and asks it before it reuses a place. A worker must not look into the table before.
    Registered,
    /// The worker must forget the blocks in these slots, and release each when no transfer sends it.
    Leaving(Vec<u32>),
}

/// A message from a worker about one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice {
    /// The block in this slot was used this often since the last report.
    Used(u32, u32),
    /// The worker has forgotten the block in this slot and no longer sends from it.
    Released(u32),
}

/// A worker's message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromWorker {
    /// The blocks that it used or released.
    Notices(#[serde(with = "notices")] Vec<Notice>),
    /// The facts about these names are wrong.
    Wrong(Vec<NameHash>),
}

/// Numbers of fixed width: there can be thousands of notices, ten times each second.
mod notices {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::{NOTICE_BYTES, Notice};

    pub(super) fn serialize<S: Serializer>(notices: &[Notice], to: S) -> Result<S::Ok, S::Error> {
        let mut bytes = Vec::with_capacity(notices.len() * NOTICE_BYTES);
        for notice in notices {
            let (slot, uses) = match notice {
                Notice::Used(slot, uses) => (slot, *uses.max(&1)),
                Notice::Released(slot) => (slot, 0),
            };
            bytes.extend_from_slice(&slot.to_le_bytes());
            bytes.extend_from_slice(&uses.to_le_bytes());
        }
        to.serialize_bytes(&bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Notice>, D::Error> {
        let (notices, rest) = <&[u8]>::deserialize(from)?.as_chunks::<NOTICE_BYTES>();
        if !rest.is_empty() {
            return Err(D::Error::custom("a notice is cut short"));
        }
        let notice = |[a, b, c, d, e, f, g, h]: &[u8; NOTICE_BYTES]| {
            let (slot, uses) = (u32::from_le_bytes([*a, *b, *c, *d]), u32::from_le_bytes([*e, *f, *g, *h]));
            if uses == 0 { Notice::Released(slot) } else { Notice::Used(slot, uses) }
        };
        Ok(notices.iter().map(notice).collect())
    }
}

#[cfg(test)]
mod tests {
    use flash_engine::{FileKind, FileStat};

    use super::*;
    use crate::codec::{decode, encode};

    #[test]
    fn the_longest_messages_fit() {
        let file = FileState {
            device: u64::MAX,
            inode: u64::MAX,
            size_bytes: u64::MAX,
            modified_ns: i64::MIN,
            changed_ns: i64::MIN,
        };
        let key = BlockKey { file, block: u32::MAX };
        let want = encode(&Request::Want(key, u32::MAX));
        assert_eq!(decode(&want), Some(Request::Want(key, u32::MAX)));
        let fill = Answer::Fill(Extent { offset: u64::MAX, length: u32::MAX });
        assert_eq!(decode(&encode(&fill)), Some(fill));
        assert!(want.len() <= STORE_MESSAGE_BYTES_MAX && encode(&fill).len() <= ANSWER_BYTES_MAX);

        let fits = |bytes: Vec<u8>| {
            bytes.len() > STORE_MESSAGE_BYTES_MAX - 20 && bytes.len() <= STORE_MESSAGE_BYTES_MAX
        };
        let stat = FileStat {
            kind: FileKind::Regular,
            device: u64::MAX,
            inode: u64::MAX,
            size_bytes: u64::MAX,
            modified_ns: i128::MIN,
            changed_ns: i128::MIN,
        };
        let facts = NameFacts::File { plain: stat, coded: [Some(stat); 3], index: Some(u8::MAX) };
        let learned = Request::Filled(Some(Learned {
            name: NameHash([u64::MAX; 2]),
            facts,
            found_ms: u64::MAX,
            subtree: Some(NameHash([u64::MAX; 2])),
        }));
        assert_eq!(decode(&encode(&learned)), Some(learned.clone()));
        assert!(encode(&learned).len() <= STORE_MESSAGE_BYTES_MAX);

        let notices = FromWorker::Notices(vec![Notice::Used(u32::MAX, u32::MAX); NOTICES_MAX]);
        assert_eq!(decode(&encode(&notices)), Some(notices.clone()));
        assert!(fits(encode(&notices)) && fits(encode(&ToWorker::Leaving(vec![u32::MAX; LEAVING_MAX]))));
        assert!(fits(encode(&FromWatcher::Changed(vec![NameHash([u64::MAX; 2]); WRONG_MAX]))));
        assert!(fits(encode(&FromWorker::Wrong(vec![NameHash([u64::MAX; 2]); WRONG_MAX]))));
        let root = vec![b'x'; ROOT_AND_PATH_BYTES_MAX - 200];
        let named = Request::Named { file, root, path: vec![b'y'; 200] };
        assert_eq!(decode(&encode(&named)), Some(named.clone()));
        assert!(fits(encode(&named)));
    }

    #[test]
    fn a_list_that_is_not_there_gets_no_room() {
        let mut bytes = encode(&FromWorker::Notices(Vec::new()));
        assert_eq!(bytes.pop(), Some(0));
        // A length of 2^28.
        bytes.extend([0x80, 0x80, 0x80, 0x80, 0x01, 0, 0]);
        assert_eq!(decode::<FromWorker>(&bytes), None);
    }
}
