//! `flash backend` without its sockets: which client may ask, which requests wait for which job, and when
//! each gets its reply (docs/backend-protocol.md).
//!
//! Sans-I/O like the engine. The worker's loop receives the messages, passes them to [`Backend`], and sends
//! the replies; helpers do the jobs. Requests are joined, ordered and bounded by `jobs`. In
//! place of the roots of sites, each file system has a share of the helpers and of the queue (`file_systems`).

mod clients;
mod counters;
pub mod fastcgi;
mod file_systems;
pub mod http;
mod messages;
pub mod protocol;
pub mod warm;
mod warm_requests;

use std::collections::{BTreeSet, VecDeque};

use crate::jobs::{JobKey, Jobs, NoRoom, Patience, Waiter, Wanted};
use crate::limits::OVERDUE_PER_TURN_MAX;
use crate::machine::{FileId, FileKind, JobId, Outcome, Task};
use crate::slab::SiteId;
use crate::slab::{ClientNumber, ExchangeKey, Key, Slab};
use clients::Clients;
pub use counters::{BackendCounters, ClientCounters};
use file_systems::FileSystems;
pub use file_systems::{Mount, SHARES_MAX};
use protocol::Reply;
use warm_requests::LoadedFiles;
pub use warm_requests::{Residency, answer_of};

/// Maximum number of welcome connections.
pub const CONNECTIONS_MAX: usize = 4096;
/// Maximum number of connections that have not sent their HELLO, in addition to the welcome ones.
pub const UNGREETED_MAX: usize = 64;
/// How long a connection may take to send its HELLO.
pub const HELLO_MS: u64 = 10_000;
/// Maximum number of unanswered requests of a connection.
pub const REQUESTS_PER_CONNECTION_MAX: usize = 1024;
/// Maximum number of unanswered requests of all connections.
pub const REQUESTS_MAX: usize = 8192;
/// Maximum number of files of one share that clients have sent and that could not be closed yet. With more, its
/// file system hangs, and requests for its ranges are refused.
pub const UNCLOSED_MAX: usize = 256;
/// How long a file that a client has sent with CLOSE is held, in milliseconds: the client closes its own
/// descriptor in this time.
pub const HELD_MS: u64 = 1000;
/// Maximum number of files held. With more, the oldest is closed early.
pub const HELD_MAX: usize = 1024;
/// Maximum number of deadlines of requests handled in one turn.
const DEADLINES_PER_TURN_MAX: usize = 256;

/// Error numbers of replies (errno(3)), the same on all machines that Flash runs on.
const EIO: u32 = 5;
const ENOMEM: u32 = 12;
const EINVAL: u32 = 22;
const ETIMEDOUT: u32 = 110;

/// The configuration of a backend.
#[derive(Debug)]
pub struct BackendRules {
    /// The deadline of a job, which also bounds the deadlines of requests, in milliseconds.
    pub job_ms: u64,
    /// The expected wait above which a request is refused, in milliseconds; 0 means no limit.
    pub queue_wait_ms: u64,
    /// Maximum number of helpers.
    pub helpers_max: usize,
    /// How long every reply to a name or a range is held back, for tests, in milliseconds.
    pub delay_ms: u64,
    /// The mounted file systems at the start, which decide the shares of names.
    pub mounts: Vec<Mount>,
    /// The root directory of the backend itself: the paths of `mounts` are valid beneath it.
    pub own_root: Option<FileId>,
}

/// The descriptor of a message.
#[derive(Debug)]
pub struct ClientFile<F> {
    /// The file.
    pub file: F,
    /// Its identity.
    pub id: FileId,
    /// Its kind.
    pub kind: FileKind,
}

/// An unanswered request.
#[derive(Debug)]
struct Pending {
    client: Key,
    id: u32,
    since_ms: u64,
    wait: Awaited,
    /// When the wait ends at the latest.
    due_ms: u64,
}

/// The event that a request waits for.
#[derive(Clone, Copy, Debug)]
enum Awaited {
    /// Nothing yet: it is being submitted.
    Begun,
    /// The end of this job.
    Job(JobId),
    /// The end of the delay for tests; then this reply is sent.
    Delay(Reply),
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// Its connection or the backend has too many unanswered requests.
    Bounds,
    /// Its client's own limit is reached.
    Quota,
    /// The queue is full, or its expected wait is too long.
    Queue(NoRoom),
}

/// The requests of all clients and their jobs.
///
/// - Events: [`Backend::handle_turn`] first in every turn, then the other `handle_*` methods.
/// - Next steps: [`Backend::poll_reply`] and [`Backend::poll_ended`] after any of them, at the end of a turn
///   [`Backend::start_jobs`] and [`Backend::poll_next_ms`].
#[derive(Debug)]
pub struct Backend<F> {
    clients: Clients<F>,
    requests: Slab<Pending>,
    /// When the waits of requests end at the latest.
    timers: BTreeSet<(u64, Key)>,
    jobs: Jobs<F, ()>,
    file_systems: FileSystems,
    replies: VecDeque<(Key, Reply)>,
    loaded: LoadedFiles,
    /// Files to be closed, with their times.
    held: VecDeque<(u64, F)>,
    counters: BackendCounters,
    job_ms: u64,
    delay_ms: u64,
    now_ms: u64,
}

impl<F> Backend<F> {
    /// A backend without clients.
    pub fn new(rules: BackendRules) -> Self {
        let patience = Patience { job_ms: rules.job_ms, queue_ms: rules.queue_wait_ms };
        Self {
            clients: Clients::new(),
            requests: Slab::new(),
            timers: BTreeSet::new(),
            jobs: Jobs::new(patience, rules.helpers_max, vec![0]),
            file_systems: FileSystems::new(rules.mounts, rules.own_root),
            replies: VecDeque::new(),
            loaded: LoadedFiles::default(),
            held: VecDeque::new(),
            counters: BackendCounters::default(),
            job_ms: rules.job_ms,
            delay_ms: rules.delay_ms,
            now_ms: 0,
        }
    }

    /// Begins a turn at this time of the monotonic clock.
    pub fn handle_turn(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// Takes a connection of this user. None at the limit of connections: send [`protocol::Status::NoRoom`] and close
    /// it.
    pub fn handle_accept(&mut self, user: u32, is_allowed: bool) -> Option<Key> {
        let key = self.clients.add(user, is_allowed, self.now_ms + HELLO_MS);
        *if key.is_some() { &mut self.counters.accepted } else { &mut self.counters.refused } += 1;
        key
    }

    /// The connection has ended: its requests leave their jobs.
    pub fn handle_gone(&mut self, client: Key) {
        for request in self.clients.remove(client) {
            self.withdraw(request);
        }
    }

    /// The share that files on this device belong to.
    pub fn share_of(&mut self, device: u64) -> SiteId {
        let jobs = &mut self.jobs;
        self.file_systems.share_of(device, || jobs.add_root())
    }

    /// Notes how many files of a share are not closed yet.
    pub fn handle_backlog(&mut self, share: SiteId, files: usize) {
        self.file_systems.set_jammed(share, files >= UNCLOSED_MAX);
    }

    /// Queues a job for a request, or joins one that does the same.
    fn submit(
        &mut self,
        client: Key,
        (id, deadline_ms): (u32, u32),
        wanted: Wanted<F, ()>,
    ) -> Result<(), Refusal> {
        if self.requests.len() >= REQUESTS_MAX {
            return Err(Refusal::Bounds);
        }
        let group = self.clients.room_of(client)?;
        let is_joined = self.jobs.has(&wanted.key);
        let limit_ms = if deadline_ms == 0 { self.job_ms } else { self.job_ms.min(deadline_ms.into()) };
        let due_ms = self.now_ms.saturating_add(limit_ms);
        let since_ms = self.now_ms;
        let request = self.requests.insert(Pending { client, id, since_ms, wait: Awaited::Begun, due_ms });
        let waiter = Waiter { exchange: ExchangeKey(request), client: ClientNumber(group.to_u64()) };
        match self.jobs.submit(wanted, Some(waiter), self.now_ms) {
            Ok(job) => {
                if let Some(pending) = self.requests.get_mut(request) {
                    pending.wait = Awaited::Job(job);
                }
                self.timers.insert((due_ms, request));
                self.clients.remember(client, id, request);
                self.counters.joined += u64::from(is_joined);
                Ok(())
            }
            Err(no_room) => {
                self.requests.remove(request);
                Err(Refusal::Queue(no_room))
            }
        }
    }

    /// Removes a request that its client no longer waits for.
    fn withdraw(&mut self, request: Key) {
        if let Some(pending) = self.remove(request)
            && let Awaited::Job(job) = pending.wait
        {
            self.jobs.leave(job, ExchangeKey(request));
        }
    }

    fn remove(&mut self, request: Key) -> Option<Pending> {
        let pending = self.requests.remove(request)?;
        self.timers.remove(&(pending.due_ms, request));
        Some(pending)
    }

    /// Handles the result of a job.
    pub fn handle_job(&mut self, job: JobId, outcome: &Outcome<F>) {
        if matches!(outcome, Outcome::Lost) {
            self.note_lost(job);
        }
        let error = match outcome {
            Outcome::Loaded => None,
            Outcome::Failed(number) => Some(u32::try_from(*number).unwrap_or(0)),
            Outcome::Exhausted => Some(ENOMEM),
            // A lost helper, or an answer of another task.
            _ => Some(EIO),
        };
        self.finish(job, error.map(|number| if number == 0 { EIO } else { number }));
    }

    /// A helper whose job was given up has ended.
    pub fn handle_helper_gone(&mut self, job: JobId) {
        self.jobs.helper_gone(job);
    }

    fn note_lost(&mut self, job: JobId) {
        if let Some(kind) = self.jobs.kind_of(job) {
            self.jobs.count(kind).lost += 1;
        }
    }

    fn finish(&mut self, job: JobId, error: Option<u32>) {
        let Some(job) = self.jobs.finish(job, self.now_ms) else { return };
        if let (JobKey::WarmFile(_, path, part), None) = (&job.key, error) {
            self.loaded.add(path, *part, self.now_ms);
        }
        for ExchangeKey(request) in job.waiters {
            let Some(Pending { id, .. }) = self.requests.get(request) else { continue };
            let reply = match error {
                None => Reply::Ready { id: *id },
                Some(number) => Reply::Errno { id: *id, number },
            };
            if self.delay_ms == 0 {
                self.answer(request, reply);
            } else {
                self.answer_later(request, reply);
            }
        }
    }

    fn answer_later(&mut self, request: Key, reply: Reply) {
        let Some(pending) = self.requests.get_mut(request) else { return };
        self.timers.remove(&(pending.due_ms, request));
        pending.wait = Awaited::Delay(reply);
        pending.due_ms = self.now_ms.saturating_add(self.delay_ms);
        self.timers.insert((pending.due_ms, request));
    }

    fn answer(&mut self, request: Key, reply: Reply) {
        let Some(pending) = self.remove(request) else { return };
        self.clients.forget(pending.client, pending.id);
        match reply {
            Reply::Ready { .. } => self.counters.ready += 1,
            Reply::Errno { number: ETIMEDOUT, .. } => self.counters.timed_out += 1,
            _ => self.counters.errors += 1,
        }
        self.counters.waits_ms.add(self.now_ms.saturating_sub(pending.since_ms));
        self.replies.push_back((pending.client, reply));
    }

    /// Gives up jobs and requests whose deadlines have passed. `abandon` is called with each job whose helper
    /// must end.
    pub fn handle_timeouts(&mut self, mut abandon: impl FnMut(JobId)) {
        // The loop has a dropped file closed where that delays no client.
        while self.held.front().is_some_and(|(due_ms, _)| *due_ms <= self.now_ms) {
            self.held.pop_front();
        }
        for _ in 0..OVERDUE_PER_TURN_MAX {
            let Some(job) = self.jobs.overdue(self.now_ms) else { break };
            if self.jobs.is_running(job) {
                abandon(job);
                self.jobs.give_up(job);
            }
            self.note_lost(job);
            self.finish(job, Some(ETIMEDOUT));
        }
        for _ in 0..DEADLINES_PER_TURN_MAX {
            let Some((due_ms, request)) = self.timers.first().copied() else { break };
            if due_ms > self.now_ms {
                break;
            }
            let Some(pending) = self.requests.get(request) else { break };
            let (id, wait) = (pending.id, pending.wait);
            let reply = match wait {
                Awaited::Delay(reply) => reply,
                Awaited::Begun | Awaited::Job(_) => Reply::Errno { id, number: ETIMEDOUT },
            };
            if let Awaited::Job(job) = wait {
                self.jobs.leave(job, ExchangeKey(request));
            }
            self.answer(request, reply);
        }
    }

    /// Starts queued jobs until `start` returns false, because no helper is idle. It gets the job, its task,
    /// and how many jobs could start now.
    pub fn start_jobs(&mut self, mut start: impl FnMut(JobId, &Task<F>, usize) -> bool) {
        while let Some((id, job)) = self.jobs.next_startable() {
            if !start(id, &job.task, self.jobs.startable_len()) {
                return;
            }
            self.jobs.started(id, self.now_ms);
        }
    }

    /// The next reply to send, with its connection.
    pub fn poll_reply(&mut self) -> Option<(Key, Reply)> {
        self.replies.pop_front()
    }

    /// A connection that must be closed because its HELLO did not come in time.
    pub fn poll_ended(&mut self) -> Option<Key> {
        self.clients.poll_late(self.now_ms)
    }

    /// Whether the connection has no unanswered request.
    pub fn is_idle(&self, client: Key) -> bool {
        self.clients.welcomed(client).is_none_or(|welcomed| welcomed.requests.is_empty())
    }

    /// When the backend needs its next turn if no event comes, in milliseconds of the monotonic clock: 0
    /// means at once, None means never.
    pub fn poll_next_ms(&self) -> Option<u64> {
        let timer = self.timers.first().map(|(due_ms, _)| *due_ms);
        let held = self.held.front().map(|(due_ms, _)| *due_ms);
        let next_ms =
            [timer, held, self.jobs.next_ms(), self.clients.next_ms()].into_iter().flatten().min()?;
        Some(if next_ms <= self.now_ms { 0 } else { next_ms })
    }

    /// The counters since the start, and the amounts now.
    pub fn counters(&self) -> BackendCounters {
        let mut counters = self.counters.clone();
        counters.busy_queue = self.jobs.counters.iter().map(|kind| kind.refused).sum();
        counters.busy_wait = self.jobs.counters.iter().map(|kind| kind.refused_wait).sum();
        counters.pending = self.requests.len();
        counters.jobs = self.jobs.counters;
        counters.queue_lengths = self.jobs.lengths;
        counters.jobs_queued = self.jobs.queued_len();
        counters.jobs_running = self.jobs.running_len();
        counters.jobs_given_up = self.jobs.given_up_len();
        self.clients.count(&mut counters);
        counters
    }
}

#[cfg(test)]
#[path = "backend_tests.rs"]
mod tests;
