//! The end of a trace: the model, from all that is known.

use std::collections::{BTreeMap, HashMap};

use super::Analysis;
use super::pollers::REPLACED_NS;
use super::pools::{Key, Pool, THREADS_MIN};
use super::requests::Threads;
use super::thread::{ReasonSum, Thread, Total};
use crate::calls;
use crate::model::{
    self, CallTotal, Ending, Name, PoolTotal, Reason, ReasonTotal, TargetTotal, Timeline, Trace, VERSION,
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
                pid: thread.pid,
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
            thread.count(&open, end_ns, 0, Some(reason));
            self.blocked(tid, &open, (end_ns, 0), true);
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
            let by_requests = self.requests.serves_several(*tid, thread.pid);
            let has_requests = requests_seen.saturating_mul(REQUEST_EVENTS_MAX) >= thread.ready;
            let serves_several = thread.is_loop() && (by_requests || !has_requests && thread.has_alternated);
            model::Thread { serves_several, ..as_data(*tid, thread) }
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
        totals.sort_by_key(|total| (std::cmp::Reverse(total.queued_ns), total.pid));
        totals
    }

    fn targets(&mut self) -> (Vec<TargetTotal>, u64) {
        let mut sums: HashMap<(u32, bool, Name, model::Target), HashMap<Reason, ReasonSum>> = HashMap::new();
        for ((tid, call, target), reasons) in self.kept.targets.drain() {
            let Some(thread) = self.threads.get(&tid) else { continue };
            let all = sums.entry((thread.pid, thread.is_loop(), call, target)).or_default();
            add(all, &reasons);
        }
        let total = |((pid, in_loop, call, target), reasons): ((u32, bool, Name, model::Target), _)| {
            let reasons = sorted(&reasons);
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
            (b.blocked_ns, &a.target.name, a.pid, &a.call).cmp(&(
                a.blocked_ns,
                &b.target.name,
                b.pid,
                &b.call,
            ))
        });
        let dropped = totals.len().saturating_sub(TARGETS_MAX) as u64;
        totals.truncate(TARGETS_MAX);
        (totals, dropped)
    }

    fn calls(&self) -> Vec<CallTotal> {
        let mut sums: BTreeMap<(u32, bool, u64), Total> = BTreeMap::new();
        let mut loop_ns: HashMap<u32, u64> = HashMap::new();
        for thread in self.threads.values() {
            if thread.is_loop() {
                *loop_ns.entry(thread.pid).or_default() += thread.time.total_ns();
            }
            for (call, total) in &thread.totals {
                let sum = sums.entry((thread.pid, thread.is_loop(), *call)).or_default();
                sum.is_wait |= total.is_wait;
                sum.count += total.count;
                sum.errors += total.errors;
                sum.duration_ns += total.duration_ns;
                sum.on_cpu_ns += total.on_cpu_ns;
                sum.blocked_ns += total.blocked_ns;
                sum.runnable_ns += total.runnable_ns;
                sum.blocked += total.blocked;
                sum.longest_ns = sum.longest_ns.max(total.longest_ns);
                add(&mut sum.reasons, &total.reasons);
            }
        }
        let total = |((pid, in_loop, call), sum): ((u32, bool, u64), Total)| {
            let of_ns = loop_ns.get(&pid).copied().filter(|ns| *ns > 0 && in_loop && !sum.is_wait);
            CallTotal {
                pid,
                in_loop,
                call: calls::name(call),
                is_wait: sum.is_wait,
                count: sum.count,
                errors: sum.errors,
                duration_ns: sum.duration_ns,
                on_cpu_ns: sum.on_cpu_ns,
                blocked_ns: sum.blocked_ns,
                runnable_ns: sum.runnable_ns,
                blocked: sum.blocked,
                longest_ns: sum.longest_ns,
                loop_share: of_ns.map_or(0.0, |of_ns| sum.blocked_ns as f64 / of_ns as f64),
                reasons: sorted(&sum.reasons),
            }
        };
        let mut totals: Vec<CallTotal> = sums.into_iter().map(total).collect();
        // A wait for events is no blocking, however long.
        let order = |total: &CallTotal| {
            (
                total.pid,
                !total.in_loop,
                total.is_wait,
                u64::MAX - total.blocked_ns,
                u64::MAX - total.duration_ns,
            )
        };
        totals.sort_by_key(order);
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

fn add(sums: &mut HashMap<Reason, ReasonSum>, others: &HashMap<Reason, ReasonSum>) {
    for (reason, other) in others {
        let sum = sums.entry(*reason).or_default();
        sum.count += other.count;
        sum.stalls += other.stalls;
        sum.blocked_ns += other.blocked_ns;
        sum.longest_ns = sum.longest_ns.max(other.longest_ns);
    }
}

fn sorted(reasons: &HashMap<Reason, ReasonSum>) -> Vec<ReasonTotal> {
    let total = |(reason, sum): (&Reason, &ReasonSum)| ReasonTotal {
        reason: *reason,
        count: sum.count,
        stalls: sum.stalls,
        blocked_ns: sum.blocked_ns,
        longest_ns: sum.longest_ns,
    };
    let mut totals: Vec<ReasonTotal> = reasons.iter().map(total).collect();
    totals.sort_by_key(|total| (std::cmp::Reverse(total.blocked_ns), total.reason));
    totals
}

fn as_data(tid: u32, thread: &Thread) -> model::Thread {
    let is_loop = thread.is_loop();
    let of_loop = |value: u64| if is_loop { value } else { 0 };
    let most = thread.waits_by.iter().max_by_key(|(call, count)| (**count, **call));
    model::Thread {
        tid,
        pid: thread.pid,
        name: thread.name.clone(),
        is_loop,
        wait_call: most.map(|(call, _)| calls::name(*call)),
        waits: thread.waits,
        ready: thread.ready,
        ready_max: thread.ready_max,
        time: thread.time,
        held_up: of_loop(thread.held_up),
        held_up_ns: of_loop(thread.held_up_ns),
        held_up_longest_ns: of_loop(thread.held_up_longest_ns),
        serves_several: false,
    }
}
