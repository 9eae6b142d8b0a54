//! The clients of a run: which messages they send, as bytes with their descriptors.

use std::collections::BTreeMap;

use flash_engine::backend::protocol::Status;
use flash_engine::{FileId, FileKind, Key};

use crate::disk::{Handle, Ledger, Subject};
use crate::plan::{Flood, OWN_ROOT, Plan};
use crate::rng::Rng;

/// The inode of the first file that clients send.
const FIRST_FILE: u64 = 100;

/// The type of the message that withdraws a question.
pub(crate) const CANCEL: u8 = 5;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It has not sent its HELLO, which must come by this time.
    Stranger { by_ms: u64 },
    /// It can ask.
    Welcome,
    /// It has ended.
    Gone,
}

/// Clients of the same user, number and name share a quota.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupName {
    pub(crate) user: u32,
    pub(crate) number: u64,
    pub(crate) name: Vec<u8>,
}

/// An unanswered question.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) subject: Subject,
    /// The event that it came with.
    pub(crate) at: u64,
    pub(crate) since_ms: u64,
    /// How long the backend may take.
    pub(crate) limit_ms: u64,
}

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) key: Key,
    pub(crate) user: u32,
    pub(crate) is_allowed: bool,
    pub(crate) stage: Stage,
    pub(crate) root: FileId,
    pub(crate) group: GroupName,
    pub(crate) asks: BTreeMap<u32, Ask>,
    pub(crate) next_id: u32,
    pub(crate) actions: u64,
    pub(crate) flood: Option<Flood>,
    /// Replies that it has not read; None if it reads them at once.
    pub(crate) unread: Option<usize>,
    /// The status that its HELLO must be answered with next.
    pub(crate) greeting: Option<Status>,
}

/// A message, with the kinds of its files.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) bytes: Vec<u8>,
    pub(crate) files: Vec<(Handle, FileKind)>,
}

impl Message {
    fn new(kind: u8, id: u32) -> Self {
        let [a, b, c, d] = id.to_le_bytes();
        Self { bytes: vec![kind, 0, 0, 0, a, b, c, d], files: Vec::new() }
    }

    fn u32(mut self, value: u32) -> Self {
        self.bytes.extend(value.to_le_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.bytes.extend(value.to_le_bytes());
        self
    }

    fn text(mut self, text: &[u8]) -> Self {
        self.bytes.extend(text);
        self
    }

    fn file(mut self, file: Handle, kind: FileKind) -> Self {
        self.files.push((file, kind));
        self
    }
}

/// A name as a message.
pub(crate) fn name(id: u32, deadline_ms: u32, path: &str) -> Message {
    Message::new(2, id).u32(deadline_ms).u32(0).text(path.as_bytes())
}

impl Client {
    pub(crate) fn new(key: Key, by_ms: u64, plan: &Plan, rng: &mut Rng) -> Self {
        let user = rng.pick(&[0, 33, 33, 1000]);
        let device = rng.between(1, plan.devices);
        // Its own root directory, the same seen from another mount namespace, or a chroot.
        let chroot = FileId { device, inode: rng.between(50, 51), mount: device };
        let root = rng.pick(&[OWN_ROOT, OWN_ROOT, FileId { mount: 9, ..OWN_ROOT }, chroot]);
        let group =
            GroupName { user, number: rng.between(1, 2), name: rng.pick(&[b"nginx", b"httpd"]).to_vec() };
        Self {
            key,
            user,
            is_allowed: rng.chance(95),
            stage: Stage::Stranger { by_ms },
            root,
            group,
            asks: BTreeMap::new(),
            next_id: 0,
            actions: plan.actions,
            flood: None,
            unread: rng.chance(5).then_some(0),
            greeting: None,
        }
    }

    pub(crate) fn hello(&self, waiters_max: u32, ledger: &Ledger) -> Message {
        let GroupName { number, name, .. } = &self.group;
        let file = ledger.open(self.root, self.user, false);
        let message = Message::new(1, 0).u32(1).u32(waiters_max).u64(*number).text(name);
        message.file(file, FileKind::Directory)
    }

    fn id(&mut self) -> u32 {
        self.next_id = self.next_id.wrapping_add(1);
        self.next_id
    }

    /// The next message of a client that is welcome.
    pub(crate) fn next_message(&mut self, (plan, rng): (&Plan, &mut Rng), ledger: &Ledger) -> Message {
        match rng.below(100) {
            0..45 => self.ask_name(plan, rng),
            45..80 => self.ask_range((plan, rng), ledger),
            80..90 => {
                let asked: Vec<u32> = self.asks.keys().copied().collect();
                let id = if asked.is_empty() { rng.below(3) as u32 } else { asked[rng.place(asked.len())] };
                Message::new(CANCEL, id)
            }
            90..96 => self.close((plan, rng), ledger),
            _ => self.garbage((plan, rng), ledger),
        }
    }

    fn deadline_ms(plan: &Plan, rng: &mut Rng) -> u32 {
        rng.pick(&[0, 0, 0, 1, 10, plan.job_ms as u32 / 2, plan.job_ms as u32 * 2, u32::MAX])
    }

    fn ask_name(&mut self, plan: &Plan, rng: &mut Rng) -> Message {
        let number = rng.below(plan.pool);
        let path = match rng.between(1, plan.devices) {
            1 => format!("/{number}"),
            device => format!("/m{device}/{number}"),
        };
        name(self.id(), Self::deadline_ms(plan, rng), &path)
    }

    fn ask_range(&mut self, (plan, rng): (&Plan, &mut Rng), ledger: &Ledger) -> Message {
        let device = rng.between(1, plan.devices);
        let id = FileId { device, inode: FIRST_FILE + rng.below(plan.pool.min(5)), mount: device };
        let offset = if rng.chance(2) { u64::MAX - 5 } else { rng.below(plan.pool) * 4096 };
        let length = rng.pick(&[1, 4096, 4096, 1 << 20]);
        let kind = rng.pick(&[FileKind::Regular; 12]);
        let kind = if rng.chance(3) { rng.pick(&[FileKind::Directory, FileKind::Special]) } else { kind };
        let file = ledger.open(id, self.user, rng.chance(90));
        let deadline_ms = Self::deadline_ms(plan, rng);
        let remaining = length + rng.pick(&[0, 1 << 20, 1 << 30]);
        Message::new(3, self.id())
            .u32(deadline_ms)
            .u32(0)
            .u64(offset)
            .u64(length)
            .u64(remaining)
            .file(file, kind)
    }

    fn close(&mut self, (plan, rng): (&Plan, &mut Rng), ledger: &Ledger) -> Message {
        let id = FileId { device: rng.between(1, plan.devices), inode: FIRST_FILE, mount: 1 };
        Message::new(4, 0).file(ledger.open(id, self.user, true), FileKind::Regular)
    }

    /// A message that ends the connection, or that only looks so.
    pub(crate) fn garbage(&mut self, (plan, rng): (&Plan, &mut Rng), ledger: &Ledger) -> Message {
        match rng.below(6) {
            0 => Message {
                bytes: (0..rng.between(1, 60)).map(|_| rng.next() as u8).collect(),
                files: Vec::new(),
            },
            // A number that is in use.
            1 if !self.asks.is_empty() => {
                let asked: Vec<u32> = self.asks.keys().copied().collect();
                name(asked[rng.place(asked.len())], 0, "/again")
            }
            2 => self.hello(1, ledger),
            3 => {
                let mut message = self.close((plan, rng), ledger);
                message.files.push((ledger.open(OWN_ROOT, self.user, true), FileKind::Directory));
                message
            }
            4 => Message { files: Vec::new(), ..self.ask_range((plan, rng), ledger) },
            _ => {
                let mut message = self.ask_range((plan, rng), ledger);
                let at = rng.place(message.bytes.len());
                message.bytes[at] ^= 1 << rng.below(8);
                message
            }
        }
    }

    /// The messages of a client that sends more than all others. `hung` is the file system that it strains.
    pub(crate) fn flood(&mut self, flood: Flood, hung: u64, ledger: &Ledger) -> Vec<Message> {
        let file = |inode| FileId { device: hung, inode, mount: hung };
        match flood {
            Flood::Names => (0..1_300).map(|n| name(self.id(), 0, &format!("/flood/{n}"))).collect(),
            Flood::Deaf => (0..5_300).map(|n| name(self.id(), 0, &format!("/flood/{n}"))).collect(),
            Flood::Files => {
                let range = |n: u64| {
                    let file = ledger.open(file(n), self.user, true);
                    let head = Message::new(3, n as u32 + 1_000_000).u32(0).u32(0);
                    head.u64(0).u64(4096).u64(4096).file(file, FileKind::Regular)
                };
                (0..700).map(range).collect()
            }
            Flood::Closes => {
                let close =
                    |n| Message::new(4, 0).file(ledger.open(file(n), self.user, true), FileKind::Regular);
                (0..1_100).map(close).collect()
            }
        }
    }
}
