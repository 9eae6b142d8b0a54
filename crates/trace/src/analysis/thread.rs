//! One thread: what it does now, and where its time went until now.
//!
//! The analysis tells it of each event of the thread. It knows of no other thread.

use std::collections::{HashMap, HashSet, VecDeque};

use super::pollers::Key;
use super::timeline::{Kind, Timeline};
use crate::calls::{self, Call};
use crate::model::{self, CallTotal, Reason, ReasonTotal, State, Target};

/// A thread with this many waits for events is an event loop.
const LOOP_WAITS_MIN: u64 = 2;
/// Calls that blocked in one batch, whose cost is followed, at most.
const BATCH_CALLS_MAX: usize = 64;

/// Blocked calls that are remembered.
const RECENT_MAX: usize = 256;
/// Descriptors that it is followed how a thread handles, at most.
const TURNED_MAX: usize = 4_096;
/// How often it is looked up what two of them are, at most.
const LOOKUPS_MAX: u32 = 64;

#[derive(Clone, Copy, Debug)]
pub(super) struct Blocked {
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) blocked_ns: u64,
    pub(super) works_for: Option<i32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// Not known: at the beginning, and after events were lost.
    #[default]
    Unknown,
    On,
    Waits,
    Runnable,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Open {
    pub(super) call: u64,
    pub(super) args: [u64; 6],
    pub(super) start_ns: u64,
    pub(super) on_cpu_ns: u64,
    pub(super) blocked_ns: u64,
    pub(super) runnable_ns: u64,
    pub(super) switches: u32,
    pub(super) is_wait: bool,
    /// It is a page fault or the like, and ends when the thread has a core again.
    pub(super) is_outside: bool,
    /// It began before the trace, which is where it is counted from.
    pub(super) began_before: bool,
    /// The longest wait, and where in the kernel.
    pub(super) longest_ns: u64,
    pub(super) stack: Option<u32>,
    /// The wait that goes on now.
    pub(super) stack_now: Option<u32>,
    pub(super) looked: Option<Looked>,
}

/// The end of a call: when, and its result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) at_ns: u64,
    pub(super) result: i64,
}

/// The target and the request of a call, found while it was still blocked, and when.
#[derive(Clone, Debug, Default)]
pub(super) struct Looked {
    pub(super) at_ns: u64,
    pub(super) target: Option<Target>,
    pub(super) path: Option<String>,
    pub(super) request: Option<String>,
}

impl Open {
    pub(super) fn new(call: u64, args: [u64; 6], start_ns: u64, is_wait: bool) -> Self {
        Self { call, args, start_ns, is_wait, ..Self::default() }
    }

    /// The argument that is the descriptor which the call is for.
    pub(super) fn argument_fd(&self) -> Option<u64> {
        calls::call(self.call).fd.map(|at| self.args[at])
    }

    pub(super) fn has_blocked(&self) -> bool {
        self.switches > 0 && !self.is_wait
    }
}

/// Bytes that were received, where they stand as long as the buffer is not used again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    pub(super) fd: i32,
    pub(super) address: u64,
    pub(super) length: usize,
}

/// The descriptors that one wait for events returned, and how far the loop has got with them.
#[derive(Debug, Default)]
pub(super) struct ReadyBatch {
    pub(super) ready: u32,
    pub(super) handled: HashSet<i32>,
    /// Descriptors that are newer than the wait: they were not ready in it, whatever had their numbers.
    pub(super) opened: HashSet<i32>,
    pub(super) blocked: Vec<u64>,
    /// The longest blocked call of the batch before: the descriptors of this wait had become ready during it.
    pub(super) carried: Option<u64>,
}

impl ReadyBatch {
    pub(super) fn add(&mut self, id: u64) -> bool {
        let fits = self.blocked.len() < BATCH_CALLS_MAX;
        if fits {
            self.blocked.push(id);
        }
        fits
    }
}

#[derive(Debug, Default)]
pub(super) struct Thread {
    /// The thread as the trace will have it, as far as it is known; held-up descriptors also if it is no event loop.
    pub(super) data: model::Thread,
    pub(super) core: u32,
    pub(super) mode: Mode,
    /// Until then its time is accounted for.
    pub(super) since_ns: u64,
    /// It is known whether it is in a call. It was started within the trace, or made a call.
    pub(super) is_known: bool,
    /// Its first event may be the end of a call that began before it was seen.
    pub(super) may_be_cut: bool,
    pub(super) open: Option<Open>,
    pub(super) last_call: Option<u64>,
    /// Where in the kernel it is about to leave its core.
    pub(super) stack: Option<u32>,
    /// The part of the blocked time spent on locks and conditions of the program: the thread can be idle there.
    futex_ns: u64,
    pub(super) sends: bool,
    pub(super) timeline: Option<Timeline>,
    pub(super) totals: HashMap<u64, CallTotal>,
    pub(super) batch: Option<ReadyBatch>,
    /// The bytes that it received last, since the last wait for events.
    pub(super) received: Option<Received>,
    /// The descriptor that it turned to last: whatever it does is for that one.
    pub(super) works_for: Option<i32>,
    /// When it last received from each descriptor: what it did before was for another request.
    received_at: HashMap<i32, u64>,
    /// The last calls that blocked, by their ends.
    recent: VecDeque<Blocked>,
    /// Where it waits for events, or did last.
    pub(super) polls_at: Option<Key>,
    /// For how long no thread had waited there when its last wait began.
    pub(super) unpolled_ns: u64,
    /// How often it turned to another descriptor, and when to each of them last.
    turns: u64,
    turned_at: HashMap<i32, u64>,
    /// How often it was looked up whether descriptors are connections.
    pub(super) lookups: u32,
    /// It turned from one connection to another and back.
    pub(super) has_alternated: bool,
    wait_rank: u8,
    watched_max: u64,
    pub(super) waits_by: HashMap<u64, u64>,
    pub(super) has_ended: bool,
}

impl Thread {
    pub(super) fn new(pid: u32, tid: u32, name: &str, may_be_cut: bool) -> Self {
        let data = model::Thread { pid, tid, name: name.to_owned(), ..model::Thread::default() };
        Self { data, may_be_cut, ..Self::default() }
    }

    /// It waits for events again and again.
    pub(super) fn is_loop(&self) -> bool {
        let is_own = self.wait_rank >= calls::RANK_LOOP;
        self.data.waits >= LOOP_WAITS_MIN && (is_own || self.watched_max > 1)
    }

    /// Whether this call is what it waits for its events by.
    pub(super) fn is_wait(&mut self, call: Call, args: &[u64; 6]) -> bool {
        let waits_for_completions = call.wait_flag.is_none_or(|(at, flag)| args[at] & flag != 0);
        if call.wait_rank == 0 || call.wait_rank < self.wait_rank || !waits_for_completions {
            return false;
        }
        self.wait_rank = call.wait_rank;
        if let Some(at) = call.watched {
            self.watched_max = self.watched_max.max(args[at]);
        }
        true
    }

    /// Accounts for its time up to `now_ns`.
    pub(super) fn account(&mut self, now_ns: u64, reason: impl FnOnce(Option<u32>, u64) -> Reason) {
        let (from_ns, passed_ns) = (self.since_ns, now_ns.saturating_sub(self.since_ns));
        self.since_ns = self.since_ns.max(now_ns);
        if !self.is_known || self.mode == Mode::Unknown || passed_ns == 0 {
            return;
        }
        let mut why = None;
        let state = match (self.mode, &mut self.open) {
            (Mode::On, None) => State::User,
            (Mode::On, Some(open)) => {
                open.on_cpu_ns += passed_ns;
                State::Call
            }
            (Mode::Runnable, open) => {
                if let Some(open) = open {
                    open.runnable_ns += passed_ns;
                }
                State::Runnable
            }
            (_, None) => return,
            (_, Some(open)) => {
                open.blocked_ns += passed_ns;
                if passed_ns > open.longest_ns {
                    (open.longest_ns, open.stack) = (passed_ns, open.stack_now);
                }
                if open.is_wait {
                    State::Waiting
                } else {
                    let found = reason(open.stack_now, open.call);
                    // A wait that an idle thread had begun before counts nowhere.
                    if open.began_before && found.may_be_idle() {
                        State::Waiting
                    } else {
                        why = Some(found);
                        State::Blocked
                    }
                }
            }
        };
        *self.data.time.share(state) += passed_ns;
        if why == Some(Reason::Futex) {
            self.futex_ns += passed_ns;
        }
        let Some(timeline) = &mut self.timeline else { return };
        let open = self.open.as_ref().filter(|_| !matches!(state, State::User | State::Runnable));
        let kind = Kind {
            state,
            call: open.map(|open| open.call),
            reason: why,
            call_start_ns: open.filter(|_| state == State::Blocked).map_or(0, |open| open.start_ns),
        };
        timeline.push(from_ns, now_ns, kind);
    }

    /// How long it has been blocked until `now_ns`, which is not before its last event; without
    /// the part of a [`Reason::Futex`] that is over.
    pub(super) fn blocked_until_ns(&self, now_ns: u64) -> u64 {
        let is_blocked = self.is_known && self.mode == Mode::Waits;
        let now = self.open.as_ref().filter(|open| is_blocked && !open.is_wait);
        self.data.time.blocked_ns - self.futex_ns + now.map_or(0, |_| now_ns.saturating_sub(self.since_ns))
    }

    /// How long it has run, or could have with a core of its own, until `now_ns`.
    pub(super) fn worked_ns(&self, now_ns: u64) -> u64 {
        let is_now = self.is_known && matches!(self.mode, Mode::On | Mode::Runnable);
        let now_ns = if is_now { now_ns.saturating_sub(self.since_ns) } else { 0 };
        self.data.time.on_core_ns() + self.data.time.runnable_ns + now_ns
    }

    /// Keeps a call that blocked, for a while.
    pub(super) fn remember(&mut self, blocked: Blocked) {
        if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(blocked);
    }

    pub(super) fn has_received(&mut self, fd: i32, now_ns: u64) {
        if self.received_at.len() < TURNED_MAX || self.received_at.contains_key(&fd) {
            self.received_at.insert(fd, now_ns);
        }
    }

    /// For how long of this time it was blocked in calls for the connection behind this descriptor since it received
    /// from it, as far as is remembered.
    pub(super) fn blocked_for_ns(&self, fd: i32, from_ns: u64, to_ns: u64) -> u64 {
        let from_ns = from_ns.max(self.received_at.get(&fd).copied().unwrap_or(0));
        let own = self.recent.iter().rev().take_while(|blocked| blocked.end_ns > from_ns);
        let own = own.filter(|blocked| blocked.works_for == Some(fd));
        own.map(|blocked| {
            let both_ns = blocked.end_ns.min(to_ns).saturating_sub(blocked.start_ns.max(from_ns));
            both_ns.min(blocked.blocked_ns)
        })
        .sum()
    }

    /// It handles a descriptor. Where it handled another one meanwhile, both, if it is yet to be looked up what
    /// they are.
    pub(super) fn alternates(&mut self, fd: i32) -> Option<(i32, i32)> {
        if self.has_alternated || self.lookups >= LOOKUPS_MAX || self.turned_at.len() >= TURNED_MAX {
            return None;
        }
        self.turns += 1;
        let before = self.turned_at.insert(fd, self.turns)?;
        let later = self.turned_at.iter().filter(|(other, at)| **other != fd && **at > before);
        later.map(|(other, _)| *other).next().map(|other| (fd, other))
    }

    /// The number of this descriptor will be another one's.
    pub(super) fn closed(&mut self, fd: i32) {
        self.turned_at.remove(&fd);
        self.received_at.remove(&fd);
        self.works_for = self.works_for.filter(|other| *other != fd);
    }

    /// Adds a call that has ended to the sums; `reason` of one that has blocked.
    pub(super) fn count(&mut self, open: &Open, ended: Ended, reason: Option<Reason>) {
        let duration_ns = ended.at_ns.saturating_sub(open.start_ns);
        let reason = reason.map(|reason| ReasonTotal::of(reason, open.blocked_ns, duration_ns));
        self.totals.entry(open.call).or_default().add(&CallTotal {
            is_wait: open.is_wait,
            count: 1,
            errors: u64::from(is_error(ended.result)),
            duration_ns,
            on_cpu_ns: open.on_cpu_ns,
            blocked_ns: open.blocked_ns,
            runnable_ns: open.runnable_ns,
            blocked: u64::from(open.switches > 0),
            longest_ns: duration_ns,
            reasons: reason.into_iter().collect(),
            ..CallTotal::default()
        });
    }
}

/// Whether a call answered with an error (errno(3)).
pub(super) fn is_error(result: i64) -> bool {
    (-4095..0).contains(&result)
}
