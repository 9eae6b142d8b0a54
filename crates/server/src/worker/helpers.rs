//! A worker's helpers: which there are, which are idle, what each is doing.

use std::collections::HashMap;
use std::io::{self, IoSlice};

use flash_engine::{JobId, Outcome, Task};
use flash_sys::OwnedFd;
use flash_sys::prompt::channel;
use flash_sys::prompt::epoll::{Epoll, Watch};

use crate::control::{Notice, send_notice};
use crate::protocol::{MESSAGE_BYTES_MAX, decode_outcome, encode_task};

struct Helper {
    channel: OwnedFd,
    job: Option<JobId>,
    idle_since_ms: u64,
}

/// What a helper's channel had to say.
#[expect(clippy::large_enum_variant, reason = "each is made once and taken apart at once")]
pub(super) enum Heard {
    /// Nothing (more).
    Nothing,
    /// A job is done.
    Done(JobId, Outcome<OwnedFd>),
    /// The helper is gone, and with it this job.
    Gone(Option<JobId>),
}

/// The helpers of a worker.
pub(super) struct Helpers {
    helpers: HashMap<u64, Helper>,
    /// Numbers of idle helpers; the last one gets the next job, so that the others may end.
    idle: Vec<u64>,
    helpers_max: usize,
    idle_ms: u64,
    /// Asked for and not yet come.
    wanted: usize,
    supervisor: OwnedFd,
    buffer: Vec<u8>,
    now_ms: u64,
}

impl Helpers {
    pub(super) fn new(helpers_max: usize, idle_ms: u64, supervisor: OwnedFd) -> Self {
        Self {
            helpers: HashMap::new(),
            idle: Vec::new(),
            helpers_max,
            idle_ms,
            wanted: 0,
            supervisor,
            buffer: vec![0; MESSAGE_BYTES_MAX],
            now_ms: 0,
        }
    }

    /// A helper has come. False when it cannot be watched; it is let go then.
    pub(super) fn add(&mut self, epoll: &Epoll, token: u64, number: u64, channel: OwnedFd) -> bool {
        self.wanted = self.wanted.saturating_sub(1);
        let watched =
            channel::set_nonblocking(&channel).and_then(|()| epoll.add(&channel, token, Watch::Input));
        if watched.is_err() {
            return false;
        }
        self.helpers.insert(number, Helper { channel, job: None, idle_since_ms: self.now_ms });
        self.idle.push(number);
        true
    }

    /// A helper that was wanted will not come. The next job asks again.
    pub(super) fn not_started(&mut self) {
        self.wanted = self.wanted.saturating_sub(1);
    }

    /// Gives a job to an idle helper. False when there is none; one more is asked for then, up
    /// to the bound and to one for each of the `queued` jobs.
    pub(super) fn start(&mut self, id: JobId, task: &Task<OwnedFd>, queued: usize) -> bool {
        while let Some(number) = self.idle.pop() {
            let Some(helper) = self.helpers.get_mut(&number) else { continue };
            let message = encode_task(id, task);
            match channel::send(&helper.channel, &[IoSlice::new(&message.bytes)], &message.descriptors) {
                Ok(()) => {
                    helper.job = Some(id);
                    return true;
                }
                // It has died; its channel says so, too, in this turn or the next.
                Err(_) => drop(self.helpers.remove(&number)),
            }
        }
        if self.wanted < queued
            && self.helpers.len() + self.wanted < self.helpers_max
            && send_notice(&self.supervisor, &Notice::WantHelper).is_ok()
        {
            self.wanted += 1;
        }
        false
    }

    /// Takes what a helper has sent.
    pub(super) fn receive(&mut self, number: u64) -> Heard {
        let Some(helper) = self.helpers.get_mut(&number) else { return Heard::Nothing };
        let mut descriptors = Vec::new();
        match channel::recv(&helper.channel, &mut self.buffer, &mut descriptors) {
            Ok(length) if length > 0 => {
                let job = helper.job.take();
                helper.idle_since_ms = self.now_ms;
                self.idle.push(number);
                match (decode_outcome(&self.buffer[..length], descriptors), job) {
                    (Some((id, outcome)), Some(job)) if id == job => Heard::Done(id, outcome),
                    // A descriptor was lost at the limit of descriptors, or there is a bug.
                    (_, Some(job)) => Heard::Done(job, Outcome::Lost),
                    (_, None) => Heard::Nothing,
                }
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Heard::Nothing,
            _ => Heard::Gone(self.remove(number)),
        }
    }

    /// Gives up the helper that does `id`: it is replaced when it is needed.
    pub(super) fn abandon(&mut self, id: JobId) {
        let number =
            self.helpers.iter().find(|(_, helper)| helper.job == Some(id)).map(|(number, _)| *number);
        if let Some(number) = number {
            self.remove(number);
            // Were the notice lost, the helper would still end with its channel, once the disk
            // lets it.
            let _ = send_notice(&self.supervisor, &Notice::EndHelper(number));
        }
    }

    /// Lets helpers go that have been idle for long.
    pub(super) fn keep_house(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
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

    /// Whether there are helpers that will have to be let go.
    pub(super) fn any_idle(&self) -> bool {
        !self.idle.is_empty()
    }

    fn remove(&mut self, number: u64) -> Option<JobId> {
        self.idle.retain(|n| *n != number);
        self.helpers.remove(&number)?.job
    }
}
