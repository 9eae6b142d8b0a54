//! The end of a trace: the model, from all that is known.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use super::Analysis;
use super::pollers::REPLACED_NS;
use super::pools::{Key, Pool, THREADS_MIN};
use super::requests::Threads;
use super::thread::{Ended, Thread};
use crate::calls;
use crate::model::{
    self, CallTotal, Ending, HeldUp, Name, PoolTotal, ReasonTotal, TargetTotal, Timeline, Trace, VERSION, per,
};
use crate::world::World;

/// Targets in the model, at most.
const TARGETS_MAX: usize = 2_048;
/// A loop that handled more events than this for each request that was seen serves others that are not seen.
const REQUEST_EVENTS_MAX: u64 = 100;

impl Analysis {
    /// All that was found until `end_ns`. `lost` is the number of lost events where the kernel has counted
    /// them all.
    pub(crate) fn finish(
        mut self,
        end_ns: u64,
        ending: Ending,
        lost: Option<u64>,
        world: &mut impl World,
    ) -> Trace {
        self.cut(end_ns);
        self.release_all(world);
        let threads = Threads { all: &self.threads, loops: &self.timelines, pollers: &self.pollers };
        self.requests.exhausted = self.pools.exhausted(end_ns);
        let requests = self.requests.finish(self.start_ns, end_ns, threads);
        let mut missing = std::mem::take(&mut self.missing);
        missing.events_lost = missing.events_lost.max(lost.unwrap_or(0));
        let mut blocked = self.blocked_calls();
        missing.blocked_dropped += self.kept.dropped;
        let (mut targets, dropped) = self.targets();
        name_sockets(&mut blocked, &mut targets, world);
        missing.requests_dropped = self.requests.dropped;
        missing.targets_dropped = self.kept.targets_dropped + dropped;
        let places: HashMap<(u32, u64), u32> =
            blocked.iter().zip(0..).map(|(call, at)| ((call.tid, call.start_ns), at)).collect();
        let loops = self.threads.iter().filter(|(_, thread)| thread.is_loop());
        let timelines = loops.filter_map(|(tid, thread)| {
            let timeline = thread.timeline.as_ref()?;
            let place = |start_ns: u64| places.get(&(*tid, start_ns.saturating_sub(self.start_ns))).copied();
            Some(Timeline {
                tid: *tid,
                pid: thread.data.pid,
                resolution_ns: timeline.resolution_ns(),
                segments: timeline.segments(self.start_ns, place),
            })
        });
        Trace {
            version: VERSION,
            duration_ns: end_ns.saturating_sub(self.start_ns),
            ending,
            missing,
            timelines: timelines.collect(),
            threads: self.threads_as_data(requests.seen),
            pools: self.pools_as_data(),
            calls: self.calls(),
            processes: self.processes.into_values().collect(),
            targets,
            blocked,
            requests,
            ..Trace::default()
        }
    }

    /// Ends the calls that are under way: a blocked one has blocked until now.
    fn cut(&mut self, end_ns: u64) {
        let tids: Vec<u32> = self.threads.keys().copied().collect();
        for tid in tids {
            let stacks = &mut self.stacks;
            let Some(thread) = self.threads.get_mut(&tid) else { continue };
            thread.account(end_ns, |stack, call| stacks.reason(stack, call));
            let Some(open) = thread.open.take() else { continue };
            self.missing.calls_cut += u64::from(!open.is_outside);
            if !open.has_blocked() {
                continue;
            }
            let reason = self.stacks.reason(open.stack, open.call);
            if open.began_before && reason.may_be_idle() {
                continue;
            }
            let ended = Ended { at_ns: end_ns, result: 0 };
            thread.count(&open, ended, Some(reason));
            self.blocked(tid, &open, ended, true);
        }
    }

    fn blocked_calls(&mut self) -> Vec<model::BlockedCall> {
        let kept = self.kept.take();
        let complete = |(mut call, stack): (model::BlockedCall, Option<u32>)| {
            call.stack = self.stacks.functions(stack).to_vec();
            call.in_loop = self.threads.get(&call.tid).is_some_and(Thread::is_loop);
            if !call.in_loop {
                call.batch = None;
            }
            let polls_at = self.threads.get(&call.tid).and_then(|thread| thread.polls_at);
            if let Some(batch) = call.batch.as_mut().filter(|_| self.pollers.is_shared(polls_at)) {
                of_shared_poller(batch);
            }
            call
        };
        kept.into_iter().map(complete).collect()
    }

    fn threads_as_data(&self, requests_seen: u64) -> Vec<model::Thread> {
        let one = |(tid, thread): (&u32, &Thread)| {
            let mut data = thread.data.clone();
            let most = thread.waits_by.iter().max_by_key(|(call, count)| (**count, **call));
            data.wait_call = most.map(|(call, _)| calls::name(*call));
            data.is_loop = thread.is_loop();
            if !data.is_loop {
                data.held_up = HeldUp::default();
            }
            let by_requests = self.requests.serves_several(*tid, data.pid);
            let has_requests = requests_seen.saturating_mul(REQUEST_EVENTS_MAX) >= data.ready;
            data.serves_several = data.is_loop && (by_requests || !has_requests && thread.has_alternated);
            data
        };
        self.threads.iter().map(one).collect()
    }

    fn pools_as_data(&self) -> Vec<PoolTotal> {
        let total = |(key, pool): (&Key, &Pool)| {
            let (full_ns, queued_ns) = pool.full_ns();
            let (pid, is_processes) = match *key {
                Key::Threads(pid) => (pid, false),
                Key::Processes(pid) => (pid, true),
            };
            let mut tids: Vec<u32> = pool.members.iter().copied().collect();
            tids.sort_unstable();
            PoolTotal { pid, is_processes, tids, full_ns, queued_ns }
        };
        let chosen = self.pools.pools.iter().filter(|(_, pool)| pool.members.len() >= THREADS_MIN);
        let mut totals: Vec<PoolTotal> = chosen.map(total).collect();
        totals.sort_by_key(|total| (Reverse(total.queued_ns), total.pid));
        totals
    }

    fn targets(&mut self) -> (Vec<TargetTotal>, u64) {
        let mut sums: HashMap<(u32, bool, Name, model::Target), Vec<ReasonTotal>> = HashMap::new();
        for ((tid, call, target), reasons) in self.kept.targets.drain() {
            let Some(thread) = self.threads.get(&tid) else { continue };
            let all = sums.entry((thread.data.pid, thread.is_loop(), call, target)).or_default();
            ReasonTotal::merge(all, &reasons);
        }
        let total =
            |((pid, in_loop, call, target), mut reasons): ((u32, bool, Name, model::Target), Vec<_>)| {
                ReasonTotal::sort(&mut reasons);
                TargetTotal {
                    pid,
                    in_loop,
                    call,
                    target,
                    blocked: reasons.iter().map(|reason| reason.count).sum(),
                    blocked_ns: reasons.iter().map(|reason| reason.blocked_ns).sum(),
                    longest_ns: reasons.iter().map(|reason| reason.longest_ns).max().unwrap_or(0),
                    reasons,
                }
            };
        let mut totals: Vec<TargetTotal> = sums.into_iter().map(total).collect();
        totals.sort_by(|a, b| {
            let key =
                |of: &TargetTotal| (Reverse(of.blocked_ns), of.target.name.clone(), of.pid, of.call.clone());
            key(a).cmp(&key(b))
        });
        let dropped = totals.len().saturating_sub(TARGETS_MAX) as u64;
        totals.truncate(TARGETS_MAX);
        (totals, dropped)
    }

    fn calls(&self) -> Vec<CallTotal> {
        let mut sums: BTreeMap<(u32, bool, u64), CallTotal> = BTreeMap::new();
        let mut loop_ns: HashMap<u32, u64> = HashMap::new();
        for thread in self.threads.values() {
            let (pid, in_loop) = (thread.data.pid, thread.is_loop());
            if in_loop {
                *loop_ns.entry(pid).or_default() += thread.data.time.total_ns();
            }
            for (call, total) in &thread.totals {
                sums.entry((pid, in_loop, *call)).or_default().add(total);
            }
        }
        let complete = |((pid, in_loop, call), mut sum): ((u32, bool, u64), CallTotal)| {
            (sum.pid, sum.in_loop, sum.call) = (pid, in_loop, calls::name(call));
            if in_loop && !sum.is_wait {
                sum.loop_share = per(sum.blocked_ns, loop_ns.get(&pid).copied().unwrap_or(0));
            }
            ReasonTotal::sort(&mut sum.reasons);
            sum
        };
        let mut totals: Vec<CallTotal> = sums.into_iter().map(complete).collect();
        // A wait for events is no blocking, however long.
        totals.sort_by_key(|total| {
            let longest_first = Reverse((total.blocked_ns, total.duration_ns));
            (total.pid, !total.in_loop, total.is_wait, longest_first)
        });
        totals
    }
}

/// A connection is often younger than the table of sockets that was read last when it is asked for; by now it
/// may have been in one.
fn name_sockets(blocked: &mut [model::BlockedCall], targets: &mut [TargetTotal], world: &impl World) {
    let of_calls = blocked.iter_mut().flat_map(|call| {
        let waiters = call.batch.iter_mut().flat_map(|batch| &mut batch.waiters);
        call.target.iter_mut().chain(waiters.filter_map(|waiter| waiter.target.as_mut()))
    });
    for target in of_calls.chain(targets.iter_mut().map(|total| &mut total.target)) {
        if let Some(name) = world.socket(&target.name) {
            target.name = name;
        }
    }
}

/// Corrects what waited behind a call of a thread that shares its epoll instance: another thread may have taken the rest of the
/// batch, and any of them could wait for events meanwhile.
fn of_shared_poller(batch: &mut model::Batch) {
    batch.behind = 0;
    batch.waiters.retain(|waiter| waiter.arrived);
    if batch.unpolled_ns <= REPLACED_NS {
        batch.arrived = 0;
        batch.waiters.clear();
    }
}
