//! Files as the backend holds them, the jobs of helpers, and what these brought into memory.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use flash_engine::{FileId, FileRange, Task};

/// An open file that a client has sent.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) id: FileId,
    /// The user who sent it.
    pub(crate) user: u32,
    /// Whether it was opened for reading, and not with `O_PATH`.
    pub(crate) is_readable: bool,
    pub(crate) number: u64,
    ledger: Ledger,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut pages = self.ledger.0.borrow_mut();
        pages.open.remove(&self.number);
        pages.dropped.push(self.id.device);
    }
}

/// The files that are open in the backend, and those that it has dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(Rc<RefCell<Pages>>);

#[derive(Debug, Default)]
struct Pages {
    ever: u64,
    open: BTreeMap<u64, FileId>,
    /// The devices of dropped files that the loop has not passed on yet.
    dropped: Vec<u64>,
}

impl Ledger {
    pub(crate) fn open(&self, id: FileId, user: u32, is_readable: bool) -> Handle {
        let mut pages = self.0.borrow_mut();
        pages.ever += 1;
        let number = pages.ever;
        pages.open.insert(number, id);
        Handle { id, user, is_readable, number, ledger: self.clone() }
    }

    pub(crate) fn is_open(&self, number: u64) -> bool {
        self.0.borrow().open.contains_key(&number)
    }

    pub(crate) fn open_len(&self) -> usize {
        self.0.borrow().open.len()
    }

    pub(crate) fn take_dropped(&self) -> Vec<u64> {
        std::mem::take(&mut self.0.borrow_mut().dropped)
    }
}

/// Something that a question is about. Questions with the same topic are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Topic {
    Name { root: FileId, path: Vec<u8> },
    Range { file: FileId, offset: u64, length_bytes: u64 },
    Warm { path: Vec<u8>, part: FileRange },
}

/// A topic, and the user whose root or descriptor the helper uses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Subject {
    pub(crate) user: u32,
    pub(crate) topic: Topic,
}

impl Subject {
    /// The subject of a task as a helper sees it, and whether it can be read at all.
    pub(crate) fn of(task: &Task<Handle>) -> (Self, bool) {
        match task {
            Task::Touch { root, path } => {
                let topic = Topic::Name { root: root.id, path: path.to_vec() };
                (Self { user: root.user, topic }, true)
            }
            Task::Load { file, offset, length_bytes } => {
                let topic = Topic::Range { file: file.id, offset: *offset, length_bytes: *length_bytes };
                (Self { user: file.user, topic }, file.is_readable)
            }
            Task::WarmFile { path, part } => {
                (Self { user: 0, topic: Topic::Warm { path: path.to_vec(), part: *part } }, true)
            }
            other => panic!("property: jobs: the backend never gives a helper the task {other:?}"),
        }
    }
}

/// The end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Its bytes or names are in memory.
    Loaded,
    /// The reply has this error number.
    Errno(u32),
}

/// A job that has ended.
#[derive(Clone, Debug)]
struct Ended {
    subject: Subject,
    ending: Ending,
    /// Its place among all events.
    at: u64,
    ms: u64,
}

/// The memory of the machine: which jobs brought something into it, and when.
#[derive(Debug, Default)]
pub(crate) struct Memory(Vec<Ended>);

impl Memory {
    pub(crate) fn note(&mut self, subject: &Subject, ending: Ending, (at, ms): (u64, u64)) {
        self.0.push(Ended { subject: subject.clone(), ending, at, ms });
    }

    /// Whether a job about this subject ended so after the event `since`, and at `by_ms` at the latest.
    pub(crate) fn has_ended(&self, subject: &Subject, ending: Ending, (since, by_ms): (u64, u64)) -> bool {
        let fits = |ended: &Ended| ended.subject == *subject && ended.ending == ending && ended.ms <= by_ms;
        self.0.iter().rev().take_while(|ended| ended.at > since).any(fits)
    }
}
