//! A worker's helpers: which there are, which are idle, what each is doing, and which were given
//! up and hang still.

use std::collections::HashMap;
use std::io::{self, IoSlice};

use flash_engine::{JobId, Outcome, Task};
use flash_sys::prompt::epoll::{Epoll, Watch};
use flash_sys::prompt::{channel, net};
use flash_sys::{AsFd, OwnedFd};

use super::site_file::{SiteFile, any_aside, close_aside};
use crate::control::{Notice, send_notice};
use crate::protocol::{CLOSE, MESSAGE_BYTES_MAX, decode_outcome, encode_task};

/// After one could not be started, the next is asked for no sooner than this.
const ASK_AGAIN_MS: u64 = 1_000;

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
    Done(JobId, Outcome<SiteFile>),
    /// The helper is gone, and with it this job.
    Gone(Option<JobId>),
    /// The helper that was given up with this job is gone.
    AbandonedGone(JobId),
}

/// The helpers of a worker.
pub(super) struct Helpers {
    helpers: HashMap<u64, Helper>,
    /// Those given up: their channels end with their processes, also when it is long after they
    /// were killed. The engine's shares bound them.
    abandoned: HashMap<u64, (OwnedFd, JobId)>,
    /// Numbers of idle helpers; the last one gets the next job, so that the others may end.
    idle: Vec<u64>,
    helpers_max: usize,
    idle_ms: u64,
    /// Asked for and not yet come.
    wanted: usize,
    /// No helper is asked for before this moment.
    ask_again_ms: Option<u64>,
    supervisor: OwnedFd,
    buffer: Vec<u8>,
    now_ms: u64,
}

impl Helpers {
    pub(super) fn new(helpers_max: usize, idle_ms: u64, supervisor: OwnedFd) -> Self {
        Self {
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

    /// A helper that was wanted will not come. Jobs ask again after a pause: at once, they and the
    /// supervisor would do nothing else.
    pub(super) fn not_started(&mut self) {
        self.wanted = self.wanted.saturating_sub(1);
        self.ask_again_ms = Some(self.now_ms + ASK_AGAIN_MS);
    }

    /// Gives a job to an idle helper. False when there is none; one more is asked for then, up
    /// to the bound and to one for each of the `startable` jobs.
    pub(super) fn start(&mut self, id: JobId, task: &Task<SiteFile>, startable: usize) -> bool {
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
        self.ask_for_more(startable);
        false
    }

    /// Asks for one more, up to the bound and to `wanted_max` that were asked for and have not come.
    fn ask_for_more(&mut self, wanted_max: usize) {
        if self.ask_again_ms.is_none()
            && self.wanted < wanted_max
            && self.helpers.len() + self.wanted < self.helpers_max
            && send_notice(&self.supervisor, &Notice::WantHelper).is_ok()
        {
            self.wanted += 1;
        }
    }

    /// Has an idle helper close the deleted files that were put aside.
    pub(super) fn close_deleted(&mut self) {
        if !any_aside() {
            return;
        }
        // The one that gets the next job last.
        let Some(helper) = self.idle.first().and_then(|number| self.helpers.get(number)) else {
            return self.ask_for_more(1);
        };
        close_aside(|file| {
            // It is refused when the channel is full, or the helper has died: the next turn goes on.
            channel::send(&helper.channel, &[IoSlice::new(&[CLOSE])], &[file.as_fd()]).map_err(|_| file)
        });
    }

    /// Takes what a helper has sent.
    pub(super) fn receive(&mut self, number: u64) -> Heard {
        let Some(helper) = self.helpers.get_mut(&number) else { return self.receive_abandoned(number) };
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

    /// What a helper that was given up has done too late counts for nothing; only its end does.
    fn receive_abandoned(&mut self, number: u64) -> Heard {
        let Some((channel, job)) = self.abandoned.get(&number) else { return Heard::Nothing };
        let job = *job;
        match channel::recv(channel, &mut self.buffer, &mut Vec::new()) {
            Ok(length) if length > 0 => Heard::Nothing,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Heard::Nothing,
            _ => {
                self.abandoned.remove(&number);
                Heard::AbandonedGone(job)
            }
        }
    }

    /// Gives up the helper that does `id`: it is replaced when it is needed.
    pub(super) fn abandon(&mut self, id: JobId) {
        let number =
            self.helpers.iter().find(|(_, helper)| helper.job == Some(id)).map(|(number, _)| *number);
        let Some(number) = number else { return };
        let Some(helper) = self.helpers.remove(&number) else { return };
        // Were the notice lost, the helper would still end with its channel, once the disk lets it.
        let _ = send_notice(&self.supervisor, &Notice::EndHelper(number));
        let _ = net::end_sending(&helper.channel);
        self.abandoned.insert(number, (helper.channel, id));
    }

    /// Lets helpers go that have been idle for long.
    pub(super) fn keep_house(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.ask_again_ms = self.ask_again_ms.filter(|ms| now_ms < *ms);
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

    /// How many there are, and how many of them are at work.
    pub(super) fn counts(&self) -> (usize, usize) {
        let busy = self.helpers.values().filter(|helper| helper.job.is_some()).count();
        (self.helpers.len(), busy)
    }

    /// Whether there are helpers that will have to be let go, one is to be asked for again, or deleted
    /// files wait for one.
    pub(super) fn needs_housekeeping(&self) -> bool {
        !self.idle.is_empty() || self.ask_again_ms.is_some() || any_aside()
    }

    fn remove(&mut self, number: u64) -> Option<JobId> {
        self.idle.retain(|n| *n != number);
        self.helpers.remove(&number)?.job
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use flash_engine::SiteId;

    use super::*;
    use crate::control::{CHANNEL_BYTES, receive_notice};

    const TOKEN: u64 = 9;

    fn task() -> Task<SiteFile> {
        Task::Find { site: SiteId(0), path: (*b"/x").into() }
    }

    /// Helpers with one, number 7, and the other ends: the supervisor's and the helper's.
    fn with_one(epoll: &Epoll) -> (Helpers, OwnedFd, OwnedFd) {
        let (supervisor, ours) = channel::pair(CHANNEL_BYTES).expect("a pair");
        let (helper, channel) = channel::pair(CHANNEL_BYTES).expect("a pair");
        channel::set_nonblocking(&supervisor).expect("a flag set");
        let mut helpers = Helpers::new(2, 1_000, ours);
        assert!(helpers.add(epoll, TOKEN, 7, channel));
        (helpers, supervisor, helper)
    }

    #[track_caller]
    fn wait_for_event(epoll: &mut Epoll) {
        let started = Instant::now();
        while epoll.wait(Some(100)).expect("a wait").all(|ready| ready.token != TOKEN) {
            assert!(started.elapsed() < Duration::from_secs(15), "no event of the helper");
        }
    }

    #[test]
    fn the_end_of_one_that_was_given_up_is_told_with_its_job_when_it_is_gone() {
        let mut epoll = Epoll::new(8).expect("an epoll");
        let (mut helpers, supervisor, helper) = with_one(&epoll);
        let job = JobId::from_u64(5);
        assert!(helpers.start(job, &task(), 1));
        helpers.abandon(job);
        assert_eq!(receive_notice(&supervisor).expect("a notice"), Notice::EndHelper(7));
        assert!(matches!(helpers.receive(7), Heard::Nothing));
        // It hears that it was given up, should it not be killed.
        let (mut bytes, mut none) = (vec![0; MESSAGE_BYTES_MAX], Vec::new());
        assert!(channel::recv(&helper, &mut bytes, &mut none).expect("its task") > 0);
        assert_eq!(channel::recv(&helper, &mut bytes, &mut none).expect("the end"), 0);
        // What it says too late is no outcome.
        channel::send(&helper, &[IoSlice::new(b"late")], &[]).expect("sent");
        wait_for_event(&mut epoll);
        assert!(matches!(helpers.receive(7), Heard::Nothing));
        drop(helper);
        wait_for_event(&mut epoll);
        assert!(matches!(helpers.receive(7), Heard::AbandonedGone(id) if id == job));
        assert!(matches!(helpers.receive(7), Heard::Nothing), "once");
    }

    #[test]
    fn one_that_was_given_up_with_its_task_unread_is_told_too() {
        let mut epoll = Epoll::new(8).expect("an epoll");
        let (mut helpers, _supervisor, helper) = with_one(&epoll);
        let job = JobId::from_u64(5);
        assert!(helpers.start(job, &task(), 1));
        helpers.abandon(job);
        drop(helper);
        wait_for_event(&mut epoll);
        assert!(matches!(helpers.receive(7), Heard::AbandonedGone(id) if id == job));
    }

    #[test]
    fn one_that_was_given_up_leaves_room_for_another() {
        let epoll = Epoll::new(8).expect("an epoll");
        let (mut helpers, supervisor, _helper) = with_one(&epoll);
        let [first, second] = [5, 6].map(JobId::from_u64);
        assert!(helpers.start(first, &task(), 1));
        helpers.abandon(first);
        for _ in 0..3 {
            assert!(!helpers.start(second, &task(), 2));
        }
        let notices: Vec<Notice> = std::iter::from_fn(|| receive_notice(&supervisor).ok()).collect();
        assert_eq!(notices, [Notice::EndHelper(7), Notice::WantHelper, Notice::WantHelper]);
    }

    #[test]
    fn one_that_could_not_be_started_is_asked_for_again_after_a_pause() {
        let (supervisor, ours) = channel::pair(CHANNEL_BYTES).expect("a pair");
        channel::set_nonblocking(&supervisor).expect("a flag set");
        let mut helpers = Helpers::new(2, 1_000, ours);
        helpers.keep_house(5_000);
        let asks = |helpers: &mut Helpers| {
            assert!(!helpers.start(JobId::from_u64(5), &task(), 1));
            receive_notice(&supervisor).is_ok_and(|notice| notice == Notice::WantHelper)
        };
        assert!(asks(&mut helpers));
        helpers.not_started();
        assert!(!asks(&mut helpers) && helpers.needs_housekeeping());
        helpers.keep_house(5_000 + ASK_AGAIN_MS - 1);
        assert!(!asks(&mut helpers) && helpers.needs_housekeeping());
        helpers.keep_house(5_000 + ASK_AGAIN_MS);
        assert!(asks(&mut helpers) && !helpers.needs_housekeeping());
    }
}
