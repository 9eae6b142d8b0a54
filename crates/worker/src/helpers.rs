//! The helpers of a worker: which exist, which are idle, which jobs they do, and which were given up but have
//! not ended. Helper processes start on demand and end when idle. Helper threads all exist from the start,
//! and one that was given up takes jobs again once it has answered. Called by [`system`](crate::system) and
//! the worker's loop.

use std::collections::HashMap;
use std::io;

use flash_engine::{JobId, Outcome, Task};
use flash_prompt::epoll::Watch;
use flash_prompt::mechanism::Mechanism;
use flash_prompt::{BorrowedFd, OwnedFd};
use flash_prompt::{channel, net};

use super::site_file::SiteFile;
use crate::control::{Notice, send_notice};
use crate::protocol::{MESSAGE_BYTES_MAX, decode_outcome, send_task};
use crate::setup::{HelperKind, HelperRules};
use crate::stats::HelperCounts;

/// After a helper could not be started, the next request for one is delayed by this time.
const ASK_AGAIN_MS: u64 = 1_000;

struct Helper {
    channel: OwnedFd,
    job: Option<JobId>,
    idle_since_ms: u64,
}

/// An event on a helper's channel.
#[expect(clippy::large_enum_variant, reason = "each value is made once and consumed at once")]
pub(super) enum HelperEvent {
    /// No message, or no more.
    Nothing,
    /// A job is done.
    Done(JobId, Outcome<SiteFile>),
    /// The helper has ended, and its job (if it had one) is lost.
    Gone(Option<JobId>),
    /// The helper that was given up with this job has ended, or has answered after all.
    AbandonedGone(JobId),
}

/// The helpers of a worker.
pub(super) struct Helpers {
    helpers: HashMap<u64, Helper>,
    /// Helpers that were given up. A process closes its channel when it ends, which can be long after it was
    /// killed; a thread answers when it is done. The engine's shares bound their number.
    abandoned: HashMap<u64, (OwnedFd, JobId)>,
    /// Numbers of idle helpers. The last one gets the next job, so that the others become idle long enough to
    /// end.
    idle: Vec<u64>,
    kind: HelperKind,
    helpers_max: usize,
    idle_ms: u64,
    /// Helpers that were requested and have not come yet.
    wanted: usize,
    /// No helper is requested before this time.
    ask_again_ms: Option<u64>,
    supervisor: OwnedFd,
    buffer: Vec<u8>,
    now_ms: u64,
}

impl Helpers {
    pub(super) fn new(rules: HelperRules, supervisor: OwnedFd) -> Self {
        let HelperRules { kind, helpers_max, idle_ms } = rules;
        Self {
            kind,
            helpers: HashMap::new(),
            abandoned: HashMap::new(),
            idle: Vec::new(),
            helpers_max,
            idle_ms,
            wanted: 0,
            ask_again_ms: None,
            supervisor,
            buffer: vec![0; MESSAGE_BYTES_MAX],
            now_ms: 0,
        }
    }

    /// Adds a helper. Returns false if its channel cannot be watched; the helper is then dropped.
    pub(super) fn add(&mut self, events: &mut Mechanism, token: u64, number: u64, channel: OwnedFd) -> bool {
        self.wanted = self.wanted.saturating_sub(1);
        let watched =
            channel::set_nonblocking(&channel).and_then(|()| events.add(&channel, token, Watch::Input));
        if watched.is_err() {
            return false;
        }
        self.helpers.insert(number, Helper { channel, job: None, idle_since_ms: self.now_ms });
        self.idle.push(number);
        true
    }

    /// A requested helper could not be started. The next request waits for a pause, because otherwise worker
    /// and supervisor would do nothing else.
    pub(super) fn not_started(&mut self) {
        self.wanted = self.wanted.saturating_sub(1);
        self.ask_again_ms = Some(self.now_ms + ASK_AGAIN_MS);
    }

    /// Gives a job to an idle helper. If there is none, returns false and requests another helper, within the
    /// limit and at most one for each of the `startable` jobs. `aside` is the file of a job that closes one.
    pub(super) fn start(
        &mut self,
        id: JobId,
        task: &Task<SiteFile>,
        startable: usize,
        aside: Option<BorrowedFd<'_>>,
    ) -> bool {
        // A helper whose channel is full has not read its last message, so it cannot take a job now, although
        // it is idle. One that cannot be sent a file now can later.
        let mut full = Vec::new();
        let mut started = false;
        while let Some(number) = self.idle.pop() {
            let Some(helper) = self.helpers.get_mut(&number) else { continue };
            match send_task(&helper.channel, id, task, aside) {
                Ok(()) => {
                    helper.job = Some(id);
                    started = true;
                    break;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock || net::has_too_many_in_transit(&e) => {
                    full.push(number);
                }
                // The helper has died. Its channel reports that too, in this turn or the next.
                Err(_) => drop(self.helpers.remove(&number)),
            }
        }
        self.idle.extend(full);
        if !started {
            self.ask_for_more(startable);
        }
        started
    }

    /// Requests another helper, within the limit and while fewer than `wanted_max` requests are pending.
    fn ask_for_more(&mut self, wanted_max: usize) {
        if self.kind == HelperKind::Processes
            && self.ask_again_ms.is_none()
            && self.wanted < wanted_max
            && self.helpers.len() + self.wanted < self.helpers_max
            && send_notice(&self.supervisor, &Notice::WantHelper).is_ok()
        {
            self.wanted += 1;
        }
    }

    /// Receives a message from a helper.
    pub(super) fn receive(&mut self, number: u64) -> HelperEvent {
        let Some(helper) = self.helpers.get_mut(&number) else { return self.receive_abandoned(number) };
        let mut descriptors = Vec::new();
        match channel::recv(&helper.channel, &mut self.buffer, &mut descriptors) {
            Ok(length) if length > 0 => {
                let job = helper.job.take();
                helper.idle_since_ms = self.now_ms;
                self.idle.push(number);
                match (decode_outcome(&self.buffer[..length], descriptors), job) {
                    (Some((id, outcome)), Some(job)) if id == job => HelperEvent::Done(id, outcome),
                    // A descriptor was lost at the limit of descriptors, or there is a bug.
                    (_, Some(job)) => HelperEvent::Done(job, Outcome::Lost),
                    (_, None) => HelperEvent::Nothing,
                }
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => HelperEvent::Nothing,
            _ => HelperEvent::Gone(self.remove(number)),
        }
    }

    /// A late result of a helper that was given up is ignored. Only its end matters or, for a thread, that it
    /// is free again.
    fn receive_abandoned(&mut self, number: u64) -> HelperEvent {
        let Some((channel, job)) = self.abandoned.get(&number) else { return HelperEvent::Nothing };
        let job = *job;
        match channel::recv(channel, &mut self.buffer, &mut Vec::new()) {
            Ok(length) if length > 0 && self.kind == HelperKind::Threads => {
                if let Some((channel, _)) = self.abandoned.remove(&number) {
                    self.helpers.insert(number, Helper { channel, job: None, idle_since_ms: self.now_ms });
                    self.idle.push(number);
                }
                HelperEvent::AbandonedGone(job)
            }
            Ok(length) if length > 0 => HelperEvent::Nothing,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => HelperEvent::Nothing,
            _ => {
                self.abandoned.remove(&number);
                HelperEvent::AbandonedGone(job)
            }
        }
    }

    /// Gives up the helper that does job `id`. A process is replaced when the next job needs one.
    pub(super) fn abandon(&mut self, id: JobId) {
        let number =
            self.helpers.iter().find(|(_, helper)| helper.job == Some(id)).map(|(number, _)| *number);
        let Some(number) = number else { return };
        let Some(helper) = self.helpers.remove(&number) else { return };
        if self.kind == HelperKind::Processes {
            // If the notice is lost, the helper still ends with its channel, once the disk lets it continue.
            let _ = send_notice(&self.supervisor, &Notice::EndHelper(number));
            let _ = net::end_sending(&helper.channel);
        }
        self.abandoned.insert(number, (helper.channel, id));
    }

    /// Lets helper processes end that have been idle for long.
    pub(super) fn keep_house(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.ask_again_ms = self.ask_again_ms.filter(|ms| now_ms < *ms);
        if self.kind == HelperKind::Threads {
            return;
        }
        let due: Vec<u64> = self
            .idle
            .iter()
            .filter(|n| self.helpers.get(n).is_none_or(|h| now_ms >= h.idle_since_ms + self.idle_ms))
            .copied()
            .collect();
        for number in due {
            self.remove(number);
        }
    }

    /// The numbers of helpers.
    pub(super) fn counts(&self) -> HelperCounts {
        let busy = self.helpers.values().filter(|helper| helper.job.is_some()).count();
        HelperCounts { all: self.helpers.len(), busy }
    }

    /// Whether idle helpers will have to end, or a request for a helper is delayed.
    pub(super) fn needs_housekeeping(&self) -> bool {
        let may_let_go = self.kind == HelperKind::Processes && !self.idle.is_empty();
        may_let_go || self.ask_again_ms.is_some()
    }

    /// Whether this helper's channel is open.
    pub(super) fn has(&self, number: u64) -> bool {
        self.helpers.contains_key(&number) || self.abandoned.contains_key(&number)
    }

    fn remove(&mut self, number: u64) -> Option<JobId> {
        self.idle.retain(|n| *n != number);
        self.helpers.remove(&number)?.job
    }
}

#[cfg(test)]
#[path = "helpers_tests.rs"]
mod tests;
