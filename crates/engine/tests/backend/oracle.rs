//! The rules of docs/backend-protocol.md as a model: what each message and each reply means, and which reply is
//! right. Everything here fails a run that breaks a property.

use std::ops::ControlFlow;

use flash_engine::FileKind;
use flash_engine::backend::protocol::{Reply, Request, Status};
use flash_engine::backend::{CONNECTIONS_MAX, ClientFile, HELD_MAX, HELD_MS};
use flash_engine::backend::{REQUESTS_MAX, REQUESTS_PER_CONNECTION_MAX, UNCLOSED_MAX};

use crate::client::{Ask, Stage};
use crate::disk::{Ending, Handle, Subject, Topic};
use crate::run::{Group, Run};

const EINVAL: u32 = 22;
pub(crate) const ETIMEDOUT: u32 = 110;
/// This many queued jobs have room, whatever the number of shares and clients.
const SURELY_QUEUED: usize = 64;

/// The effect that a message must have.
#[derive(Debug)]
pub(crate) enum Effect {
    /// The connection ends without a reply.
    Ended,
    /// A HELLO is answered.
    Greeted(Status),
    /// A question. It gets BUSY at once if it must, and can get it at once if it may.
    Asked { id: u32, ask: Ask, must_be_refused: bool, may_be_refused: bool },
    /// A question that is answered at once.
    Invalid { id: u32 },
    /// A question is withdrawn.
    Withdrawn { id: u32 },
    /// A file is held until it is closed.
    Held { file: u64 },
}

impl Effect {
    pub(crate) fn standing(&self) -> ControlFlow<()> {
        match self {
            Effect::Ended => ControlFlow::Break(()),
            Effect::Greeted(status) if *status != Status::Welcome => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

impl Run {
    /// The effect that a message must have.
    pub(crate) fn effect_of(
        &mut self,
        number: usize,
        request: Request<'_>,
        file: Option<&ClientFile<Handle>>,
    ) -> Effect {
        let is_welcome = self.clients[number].stage == Stage::Welcome;
        if let (Request::WarmName { path, .. }, true) = (request, is_welcome) {
            self.share_of(self.plan.device_of(self.clients[number].root, path));
        }
        let client = &self.clients[number];
        match (request, file) {
            (Request::OtherVersion, _) if !is_welcome => Effect::Greeted(Status::OtherVersion),
            (Request::Hello { .. }, Some(root)) if !is_welcome && root.kind == FileKind::Directory => {
                let is_full =
                    self.clients.iter().filter(|c| c.stage == Stage::Welcome).count() >= CONNECTIONS_MAX;
                Effect::Greeted(match (client.is_allowed, is_full) {
                    (false, _) => Status::WrongUser,
                    (true, true) => Status::NoRoom,
                    (true, false) => Status::Welcome,
                })
            }
            (Request::WarmName { id, .. } | Request::WarmRange { id, .. }, _)
                if !is_welcome || client.asks.contains_key(&id) =>
            {
                Effect::Ended
            }
            (Request::WarmName { id, deadline_ms, path }, None) => {
                let topic = Topic::Name { root: client.root, path: path.to_vec() };
                self.asked(number, (id, deadline_ms), topic, false)
            }
            (Request::WarmRange { id, deadline_ms, range }, Some(file)) => {
                let end = range.offset.checked_add(range.length_bytes);
                if file.kind != FileKind::Regular || end.is_none_or(|end| end > i64::MAX as u64) {
                    return Effect::Invalid { id };
                }
                let (offset, length_bytes) = (range.offset, range.length_bytes);
                let topic = Topic::Range { file: file.id, offset, length_bytes };
                let share = self.share_of(file.id.device);
                let is_jammed = self.unclosed(share) >= UNCLOSED_MAX;
                self.tally.jammed += u64::from(is_jammed);
                self.asked(number, (id, deadline_ms), topic, is_jammed)
            }
            (Request::Close, Some(file)) if is_welcome => Effect::Held { file: file.file.number },
            (Request::Cancel { id }, None) if is_welcome => Effect::Withdrawn { id },
            _ => Effect::Ended,
        }
    }

    /// The effect of a question.
    pub(crate) fn asked(
        &mut self,
        number: usize,
        (id, deadline_ms): (u32, u32),
        topic: Topic,
        is_jammed: bool,
    ) -> Effect {
        let client = &self.clients[number];
        let limit_ms = if deadline_ms == 0 { u64::MAX } else { deadline_ms.into() }.min(self.plan.job_ms);
        let subject = Subject { user: client.user, topic };
        let ask = Ask { subject, at: self.at, since_ms: self.now_ms, limit_ms };
        let is_at_quota =
            self.groups.get(&client.group).is_some_and(|group| group.max > 0 && group.waiters >= group.max);
        let all: usize = self.clients.iter().map(|client| client.asks.len()).sum();
        let is_at_bound = client.asks.len() >= REQUESTS_PER_CONNECTION_MAX || all >= REQUESTS_MAX;
        let must_be_refused = is_jammed || is_at_quota || is_at_bound;
        let queued = self.backend.counters().jobs_queued;
        let may_be_refused = queued >= SURELY_QUEUED || (self.plan.queue_wait_ms > 0 && queued > 0);
        Effect::Asked { id, ask, must_be_refused, may_be_refused }
    }

    /// Notes the effect of a message before its replies are looked at.
    pub(crate) fn apply(&mut self, number: usize, effect: &Effect, waiters_max: u32) {
        match effect {
            Effect::Ended => {}
            Effect::Greeted(status) => {
                self.clients[number].greeting = Some(*status);
                if *status == Status::Welcome {
                    let client = &mut self.clients[number];
                    client.stage = Stage::Welcome;
                    let group = self.groups.entry(client.group.clone()).or_default();
                    group.connections += 1;
                    group.max = waiters_max as usize;
                }
            }
            Effect::Asked { id, ask, .. } => {
                self.clients[number].asks.insert(*id, ask.clone());
                if let Some(group) = self.groups.get_mut(&self.clients[number].group) {
                    group.waiters += 1;
                }
                let waiting = self.waiting.entry(ask.subject.clone()).or_default();
                if waiting.asks == 0 {
                    waiting.since_ms = self.now_ms;
                }
                self.tally.joined += u64::from(waiting.asks > 0);
                waiting.asks += 1;
            }
            Effect::Invalid { id } => self.invalid = Some((number, *id)),
            Effect::Withdrawn { id } => {
                if self.take_ask(number, *id).is_some() && !self.ended.is_empty() {
                    self.withdrawn = Some((number, *id));
                }
            }
            Effect::Held { file } => {
                self.held.push_back((*file, self.now_ms));
            }
        }
    }

    /// Removes a question from the model.
    pub(crate) fn take_ask(&mut self, number: usize, id: u32) -> Option<Ask> {
        let client = &mut self.clients[number];
        let ask = client.asks.remove(&id)?;
        if let Some(group) = self.groups.get_mut(&client.group) {
            group.waiters -= 1;
        }
        if let Some(waiting) = self.waiting.get_mut(&ask.subject) {
            waiting.asks -= 1;
        }
        Some(ask)
    }

    /// Judges the replies that a message has caused: they were taken right after it.
    pub(crate) fn check_refusal(&self, number: usize, effect: &Effect) {
        let client = &self.clients[number];
        self.require(client.greeting.is_none(), "answers", || format!("client {number} was not greeted"));
        self.require(self.invalid.is_none(), "answers", || {
            format!("client {number} can ask for no such range")
        });
        let Effect::Asked { id, must_be_refused: true, .. } = effect else { return };
        self.require(!client.asks.contains_key(id), "quota", || {
            format!("client {number} has {} questions, and its limit allowed no other", client.asks.len())
        });
    }

    /// Judges a reply. `fresh` is the message that was handled just now.
    pub(crate) fn judge(&mut self, number: usize, reply: Reply, fresh: Option<(usize, &Effect)>) {
        let fresh = fresh.filter(|(client, _)| *client == number).map(|(_, effect)| effect);
        match reply {
            Reply::Hello(status) => {
                let expected = self.clients[number].greeting.take();
                self.require(expected == Some(status), "answers", || {
                    format!("client {number} is greeted with {status:?} and not {expected:?}")
                });
            }
            Reply::Errno { id, number: EINVAL } if self.invalid == Some((number, id)) => self.invalid = None,
            Reply::Busy { id, .. } => {
                let is_right = matches!(fresh, Some(Effect::Asked { id: asked, must_be_refused, may_be_refused, .. })
                    if *asked == id && (*must_be_refused || *may_be_refused));
                self.require(is_right, "busy", || format!("client {number} has room for its question {id}"));
                let ask = self.take_ask(number, id);
                self.require(ask.is_some(), "answers", || format!("client {number} did not ask {id}"));
                self.tally.busy += 1;
            }
            Reply::Ready { id } | Reply::Errno { id, .. } => {
                if self.withdrawn == Some((number, id)) {
                    // The reply was under way when the question was withdrawn.
                    self.withdrawn = None;
                    return;
                }
                let ask = self.take_ask(number, id);
                self.require(ask.is_some(), "answers", || {
                    format!("client {number} did not ask {id}: {reply:?}")
                });
                if let Some(ask) = ask {
                    self.judge_answer((number, id), &ask, reply);
                }
            }
        }
    }

    fn judge_answer(&mut self, (number, id): (usize, u32), ask: &Ask, reply: Reply) {
        let (ending, property) = match reply {
            Reply::Errno { number: ETIMEDOUT, .. } => {
                let is_late = self.now_ms >= ask.since_ms + ask.limit_ms || self.has_overdue_job(ask);
                self.require(is_late, "answers", || {
                    format!("question {id} of client {number} ended before its deadline")
                });
                self.tally.late += 1;
                return;
            }
            Reply::Errno { number, .. } => (Ending::Errno(number), "joins"),
            _ => (Ending::Loaded, "in memory"),
        };
        // Every reply is held back for the delay, and the job must have ended before.
        let by_ms = self.now_ms - self.plan.delay_ms;
        let has_ended = self.memory.has_ended(&ask.subject, ending, (ask.at, by_ms));
        self.require(has_ended, property, || {
            format!("no job of user {} has ended so for question {id} of client {number}", ask.subject.user)
        });
        *if ending == Ending::Loaded { &mut self.tally.ready } else { &mut self.tally.errors } += 1;
    }

    /// Properties at the end of a turn. `rests` if the loop would now wait for events.
    pub(crate) fn check_turn(&mut self, rests: bool) {
        let counters = self.backend.counters();
        let asks: usize = self.clients.iter().map(|client| client.asks.len()).sum();
        self.require(counters.pending == asks, "answers", || {
            format!("the backend has {} questions and its clients {asks}", counters.pending)
        });
        let jobs = (counters.jobs_running, counters.jobs_given_up);
        let expected = (self.running.len(), self.given_up.len());
        self.require(jobs == expected, "jobs", || format!("{jobs:?} running and given up, not {expected:?}"));
        self.require(jobs.0 <= self.plan.helpers_max, "bounds", || format!("{} jobs at helpers", jobs.0));
        let subjects = self.waiting.values().filter(|waiting| waiting.asks > 0).count();
        self.require(counters.jobs_queued <= subjects, "jobs", || {
            format!("{} jobs wait for a helper, for {subjects} questions", counters.jobs_queued)
        });
        let connected = self.clients.iter().filter(|client| client.stage != Stage::Gone).count();
        self.require(counters.connections == connected, "bounds", || {
            format!("{} connections instead of {connected}", counters.connections)
        });
        for (number, client) in self.clients.iter().enumerate() {
            if let Stage::Stranger { by_ms } = client.stage {
                self.require(by_ms > self.now_ms, "bounds", || format!("client {number} has not said HELLO"));
            }
            let oldest = client
                .asks
                .iter()
                .find(|(_, ask)| rests && self.now_ms >= ask.since_ms + ask.limit_ms + self.plan.delay_ms);
            self.require(oldest.is_none(), "progress", || format!("client {number} waits for {oldest:?}"));
        }
        self.check_files(counters.jobs_queued + counters.jobs_running);
    }

    /// Files are held as long as needed, and no longer.
    fn check_files(&mut self, jobs: usize) {
        while let Some((file, since_ms)) = self.held.front().copied() {
            let is_open = self.ledger.is_open(file);
            let is_due = self.now_ms >= since_ms + HELD_MS;
            let is_crowded = self.held.len() > HELD_MAX;
            self.require(is_open || is_due || is_crowded, "files", || {
                format!("file {file} was closed {} ms after its CLOSE", self.now_ms - since_ms)
            });
            self.require(!(is_open && (is_due || is_crowded)), "files", || {
                format!("file {file} is still held")
            });
            if is_open {
                break;
            }
            self.held.pop_front();
        }
        let roots = self.clients.iter().filter(|client| client.stage == Stage::Welcome).count();
        let (open, most) = (self.ledger.open_len(), roots + jobs + self.held.len());
        self.require(open <= most, "files", || {
            format!("{open} files are open, and at most {most} are in use")
        });
    }

    /// Properties of a backend without clients.
    pub(crate) fn check_rest(&mut self) {
        let counters = self.backend.counters();
        let left = (counters.pending, counters.connections, counters.clients.len());
        self.require(left == (0, 0, 0), "leaks", || format!("requests, connections, groups: {left:?}"));
        let jobs = (counters.jobs_queued, counters.jobs_running, counters.jobs_given_up);
        self.require(jobs == (0, 0, 0), "leaks", || format!("jobs queued, running, given up: {jobs:?}"));
        let next_ms = self.backend.poll_next_ms();
        self.require(next_ms.is_none(), "leaks", || format!("a timer is left at {next_ms:?}"));
        let open = self.ledger.open_len();
        self.require(open == 0, "leaks", || format!("{open} files are open"));
        let groups: Vec<&Group> = self.groups.values().filter(|group| group.waiters > 0).collect();
        assert!(groups.is_empty(), "the model has lost count: {groups:?}");
    }
}
