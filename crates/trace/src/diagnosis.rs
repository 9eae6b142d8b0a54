//! The diagnosis of a server, as data: whether its event loops block, in which calls, for which files, and which
//! requests waited behind them. `flash doctor --json` prints it.
//!
//! A wait counts against a server only if a request of another connection waited behind it: a blocked event loop
//! delays all its connections, a thread that serves one connection delays only that one.
//!
//! `diagnosis_text` puts it into words, `page` draws it. Everything in it is computed from the kernel trace. Pure.

mod finding;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

pub use finding::Verdict;
pub(crate) use finding::{Behind, Diagnosis, LoopFinding, OthersFinding, Paid, Payer};

use crate::display;
pub(crate) use crate::model::per;
use crate::model::{
    BlockedCall, CallTotal, Ending, HeldUp, READY_SHARE_MIN, Reason, ReasonTotal, Request, RequestTotal,
    STALL_NS, Shares, TargetTotal, Thread, Trace,
};
use crate::pools::{self, Cost, PoolFinding};

/// The version of the JSON; raised when a field changes its meaning or goes.
const VERSION: u32 = 2;
/// A loop that no single call stops for long still waits, when it is stopped for this share of its time.
const BLOCKED_SHARE_MAX: f64 = 0.01;
/// Event loops are to blame only if this share of the requests, or more, waited behind calls for others: their 99th
/// percentile shows it.
const HELD_UP_SHARE_MIN: f64 = 0.01;
/// How many of the longest are kept in each list.
const LONGEST_MAX: usize = 10;

pub(crate) fn diagnose(trace: &Trace) -> Diagnosis {
    let mut loops: Vec<LoopFinding> =
        loop_pids(trace).into_iter().map(|pid| loop_finding(trace, pid)).collect();
    let has_requests = loops.iter().any(|found| found.requests.count() > 0);
    let busiest = loops.iter().map(|found| found.ready).max().unwrap_or(0);
    for found in &mut loops {
        let serves = found.requests.count() > 0 || !has_requests;
        let is_busy = found.ready as f64 >= busiest as f64 * READY_SHARE_MIN;
        // A blocked loop handles few events because it is blocked.
        found.is_judged = serves && is_busy || is_over(found.disk_ns, found);
    }
    loops.sort_by_key(|found| Reverse((found.is_judged, found.time.blocked_ns)));
    let others = others(trace);
    let pools = pools::find(trace);
    let known = judge(&loops, &others, &pools);
    let unknown = if known.is_none() { unknown(trace) } else { Vec::new() };
    let no_wait = if unknown.is_empty() { Verdict::NoWait } else { Verdict::Unknown };
    Diagnosis {
        version: VERSION,
        verdict: known.unwrap_or(no_wait),
        unknown,
        warnings: display::warnings(trace),
        duration_ns: trace.duration_ns,
        loops,
        others,
        pools,
        cost: Cost::of(trace),
    }
}

/// The verdict, if a wait was seen that makes one.
fn judge(loops: &[LoopFinding], others: &OthersFinding, pools: &[PoolFinding]) -> Option<Verdict> {
    let judged = || loops.iter().filter(|found| found.is_judged && found.delays_others);
    let counts = |stalls: u64, ns: u64, found: &LoopFinding| stalls > 0 || is_over(ns, found);
    if judged().any(|found| counts(found.disk_stalls, found.disk_ns, found)) {
        Some(Verdict::LoopWaitsForDisk)
    } else if pools.iter().any(|pool| pool.is_exhausted) {
        Some(Verdict::PoolExhausted)
    } else if judged().any(|found| counts(found.stalls, found.time.blocked_ns, found)) {
        Some(Verdict::LoopWaits)
    } else {
        (loops.is_empty() && others.disk_blocked > 0).then_some(Verdict::ThreadsWaitForDisk)
    }
}

/// Why a trace without a wait proves nothing; empty if it does.
fn unknown(trace: &Trace) -> Vec<String> {
    let made_calls = trace.calls.iter().any(|call| call.count > 0);
    let mut waiting = trace.threads.iter().filter(|thread| thread.waits > 0).peekable();
    let was_idle = waiting.peek().is_some() && waiting.all(|thread| thread.ready == 0);
    let reasons = [
        (
            trace.ending == Ending::TargetEnded,
            "no wait was seen, but the process ended: run this while the server runs",
        ),
        (
            trace.missing.threads_dropped > 0,
            "no wait was seen, but not all threads were watched: allow more descriptors (ulimit -n)",
        ),
        (
            trace.missing.events_lost > 0,
            "no wait was seen, but events were lost: run this with a larger --buffer",
        ),
        (!made_calls, "it made no system call: run this while the server is under load"),
        (
            made_calls && was_idle,
            "its event loops had nothing to do: run this while the server is under load",
        ),
    ];
    reasons.into_iter().filter(|(is_so, _)| *is_so).map(|(_, why)| why.to_owned()).collect()
}

/// Whether a loop is stopped for more than what is let pass.
fn is_over(ns: u64, found: &LoopFinding) -> bool {
    ns as f64 > found.time.total_ns() as f64 * BLOCKED_SHARE_MAX
}

fn loop_pids(trace: &Trace) -> BTreeSet<u32> {
    trace.threads.iter().filter(|thread| thread.is_loop).map(|thread| thread.pid).collect()
}

fn loop_finding(trace: &Trace, pid: u32) -> LoopFinding {
    let threads: Vec<&Thread> =
        trace.threads.iter().filter(|thread| thread.is_loop && thread.pid == pid).collect();
    let sum =
        |of: fn(&Thread) -> u64| threads.iter().fold(0_u64, |sum, thread| sum.saturating_add(of(thread)));
    let mut time = threads.iter().fold(Shares::default(), |sum, thread| sum + thread.time);
    // Loops that share the work of a process, as those of Go and Tokio, wait for it by a futex or a nap when they have
    // none.
    let is_idle = |reason: Reason| matches!(reason, Reason::Futex | Reason::Sleep) && threads.len() > 1;
    let of_loop = blocking(trace).filter(|call| call.in_loop && call.pid == pid);
    let (calls, idle_ns) = without(of_loop, is_idle);
    let idle_ns = idle_ns.min(time.blocked_ns);
    (time.blocked_ns, time.waiting_ns) = (time.blocked_ns - idle_ns, time.waiting_ns + idle_ns);
    let reasons = || calls.iter().flat_map(|call| &call.reasons);
    let disk = || reasons().filter(|total| total.reason.is_disk());
    let mine = |call: &&BlockedCall| call.in_loop && call.pid == pid && !is_idle(call.reason);
    let held_up = held_up(&threads, trace.blocked.iter().filter(mine));
    let targets: Vec<TargetTotal> =
        trace.targets.iter().filter(|total| total.in_loop && total.pid == pid).cloned().collect();
    let requests = trace.requests.totals.iter().find(|total| total.pid == pid).cloned().unwrap_or_default();
    LoopFinding {
        delays_others: delays_others(&requests, held_up.times),
        pid,
        name: display::process(trace, pid),
        threads: threads.len() as u32,
        is_judged: true,
        wait_call: threads
            .iter()
            .find_map(|thread| thread.wait_call.clone())
            .unwrap_or_default()
            .into_owned(),
        waits: sum(|thread| thread.waits),
        ready: sum(|thread| thread.ready),
        ready_max: threads.iter().map(|thread| thread.ready_max).max().unwrap_or(0),
        time,
        blocked_share: per(time.blocked_ns, time.total_ns()),
        blocked: calls.iter().map(|call| call.blocked).sum(),
        stalls: reasons().map(|total| total.stalls).sum(),
        disk_stalls: disk().map(|total| total.stalls).sum(),
        disk_ns: disk().map(|total| total.blocked_ns).sum(),
        longest_ns: reasons().map(|total| total.longest_ns).max().unwrap_or(0),
        targets_in_all: targets.len(),
        targets: targets.into_iter().take(LONGEST_MAX).collect(),
        longest: longest(trace.blocked.iter().filter(mine)),
        held_up,
        payers: payers(trace.blocked.iter().filter(mine)),
        requests,
        paid: paid(trace, |tid| threads.iter().any(|thread| thread.tid == tid)),
        calls,
    }
}

/// Whether enough requests waited behind calls for others; where none was seen, whether any connection did.
fn delays_others(requests: &RequestTotal, held_up: u64) -> bool {
    let delayed = requests.held_up.count + requests.unanswered_held_up;
    match requests.count() {
        0 => held_up > 0,
        all => delayed > 0 && per(delayed, all) >= HELD_UP_SHARE_MIN,
    }
}

/// Kinds of calls, of event loops or of other threads, those that were blocked longest first. Waits for events
/// come last: they are no loss.
pub(crate) fn kinds(trace: &Trace, in_loop: bool) -> Vec<&CallTotal> {
    let is_one = |call: &&CallTotal| call.in_loop == in_loop && call.count > 0;
    let mut kinds: Vec<&CallTotal> = trace.calls.iter().filter(is_one).collect();
    kinds.sort_by_key(|call| (call.is_wait, Reverse((call.blocked_ns, call.on_cpu_ns))));
    kinds
}

/// Calls that blocked, those of event loops and for the disk first: helpers that have nothing to do wait longest, for
/// work.
pub(crate) fn waits(trace: &Trace) -> Vec<&BlockedCall> {
    let mut waits: Vec<&BlockedCall> = trace.blocked.iter().collect();
    waits.sort_by_key(|call| Reverse((call.in_loop, call.reason.is_disk(), call.blocked_ns)));
    waits
}

/// These calls without what they waited for idly, and how long that was.
fn without<'a>(
    calls: impl Iterator<Item = &'a CallTotal>,
    is_idle: impl Fn(Reason) -> bool,
) -> (Vec<CallTotal>, u64) {
    let (mut kept, mut idle_ns) = (Vec::new(), 0);
    for call in calls {
        let mut call = call.clone();
        for idle in call.reasons.extract_if(.., |total| is_idle(total.reason)) {
            call.blocked = call.blocked.saturating_sub(idle.count);
            call.blocked_ns = call.blocked_ns.saturating_sub(idle.blocked_ns);
            idle_ns += idle.blocked_ns;
        }
        if call.blocked > 0 {
            kept.push(call);
        }
    }
    (kept, idle_ns)
}

/// The times that descriptors were held up. Of several loops, by the calls that are kept: an idle loop delays no connection.
fn held_up<'a>(threads: &[&Thread], calls: impl Iterator<Item = &'a BlockedCall>) -> HeldUp {
    if let [thread] = threads {
        return thread.held_up;
    }
    let mut all = HeldUp::default();
    calls.for_each(|call| all.add(call));
    all
}

/// The calls that blocked and are not there to wait, those that cost most first.
fn blocking(trace: &Trace) -> impl Iterator<Item = &CallTotal> {
    let mut calls: Vec<&CallTotal> =
        trace.calls.iter().filter(|call| !call.is_wait && call.blocked_ns > 0).collect();
    calls.sort_by_key(|call| Reverse(call.blocked_ns));
    calls.into_iter()
}

fn longest<'a>(calls: impl Iterator<Item = &'a BlockedCall>) -> Vec<BlockedCall> {
    let mut calls: Vec<&BlockedCall> = calls.collect();
    calls.sort_by_key(|call| Reverse(call.blocked_ns));
    calls.into_iter().take(LONGEST_MAX).cloned().collect()
}

/// The requests that these threads held up for longest.
fn paid(trace: &Trace, is_of: impl Fn(u32) -> bool) -> Vec<Paid> {
    let held_up = |request: &&Request| request.held_up_ns > STALL_NS && request.tid.is_some_and(&is_of);
    let chosen = trace.requests.costliest.iter().filter(held_up).take(LONGEST_MAX);
    let told = |request: &Request| Paid { request: request.clone(), behind: behind(trace, request) };
    chosen.map(told).collect()
}

/// The calls that a request waited for.
pub(crate) fn behind(trace: &Trace, request: &Request) -> Behind {
    let of_its = trace.blocked.iter().filter(|call| call.in_loop && Some(call.tid) == request.tid);
    let kept_it = of_its.filter_map(|call| {
        let both_ns = both_ns(call, request).min(call.blocked_ns);
        (both_ns > 0).then_some((call, both_ns))
    });
    let kept_it: Vec<(&BlockedCall, u64)> = kept_it.collect();
    // The first of equally long ones.
    let longest = kept_it.iter().rev().max_by_key(|(_, ns)| *ns);
    Behind {
        calls: kept_it.len() as u64,
        longest: longest.map(|(call, _)| display::call_on_what(call)).unwrap_or_default(),
        longest_ns: longest.map_or(0, |(_, ns)| *ns),
    }
}

/// For how long a call and a request waited at the same time.
fn both_ns(call: &BlockedCall, request: &Request) -> u64 {
    let end_ns = call.start_ns.saturating_add(call.duration_ns);
    let until_ns = end_ns.min(request.start_ns.saturating_add(request.waited_ns));
    until_ns.saturating_sub(call.start_ns.max(request.start_ns))
}

/// Connections by how long they were held up, for when their requests are not known. One behind two calls in a row waited for each of them no
/// longer than that was blocked.
fn payers<'a>(calls: impl Iterator<Item = &'a BlockedCall>) -> Vec<Payer> {
    let mut payers: BTreeMap<(u32, String), (Payer, u64)> = BTreeMap::new();
    for call in calls {
        for waiter in call.batch.iter().flat_map(|batch| &batch.waiters) {
            let Some(target) = &waiter.target else { continue };
            let waited_ns = waiter.waited_ns.min(call.blocked_ns);
            let (payer, worst_ns) = payers.entry((call.tid, target.name.clone())).or_default();
            payer.name = display::target(target);
            payer.times += 1;
            payer.waited_ns += waited_ns;
            if waited_ns > *worst_ns {
                *worst_ns = waited_ns;
                payer.behind = display::call_on_what(call);
            }
        }
    }
    let mut payers: Vec<Payer> = payers.into_values().map(|(payer, _)| payer).collect();
    payers.sort_by_key(|payer| Reverse(payer.waited_ns));
    payers.truncate(LONGEST_MAX);
    payers
}

fn others(trace: &Trace) -> OthersFinding {
    let waits = || trace.blocked.iter().filter(|call| !call.in_loop && call.reason.is_disk());
    let calls = together(
        blocking(trace)
            .filter(|call| !call.in_loop && call.reasons.iter().any(|total| total.reason.is_disk())),
    );
    let reasons = || calls.iter().flat_map(|call| &call.reasons).filter(|total| total.reason.is_disk());
    let is_disk =
        |total: &&TargetTotal| !total.in_loop && total.reasons.iter().any(|one| one.reason.is_disk());
    OthersFinding {
        threads: trace.threads.iter().filter(|thread| !thread.is_loop).count(),
        disk_threads: waits().map(|call| call.tid).collect::<BTreeSet<u32>>().len(),
        disk_threads_at_once: at_once(waits()),
        disk_blocked: reasons().map(|total| total.count).sum(),
        disk_ns: reasons().map(|total| total.blocked_ns).sum(),
        longest_ns: reasons().map(|total| total.longest_ns).max().unwrap_or(0),
        targets: trace.targets.iter().filter(is_disk).take(LONGEST_MAX).cloned().collect(),
        longest: longest(waits()),
        calls,
    }
}

/// Calls of the same name, of all processes together.
fn together<'a>(calls: impl Iterator<Item = &'a CallTotal>) -> Vec<CallTotal> {
    let mut sums: BTreeMap<&str, CallTotal> = BTreeMap::new();
    for call in calls {
        sums.entry(&call.call)
            .or_insert_with(|| CallTotal { call: call.call.clone(), ..CallTotal::default() })
            .add(call);
    }
    sums.values_mut().for_each(|sum| ReasonTotal::sort(&mut sum.reasons));
    let mut calls: Vec<CallTotal> = sums.into_values().collect();
    calls.sort_by_key(|call| Reverse(call.blocked_ns));
    calls
}

/// The most of these calls that were under way at one moment.
fn at_once<'a>(calls: impl Iterator<Item = &'a BlockedCall>) -> usize {
    let mut edges: Vec<(u64, isize)> = calls
        .flat_map(|call| [(call.start_ns, 1), (call.start_ns.saturating_add(call.duration_ns), -1)])
        .collect();
    // At the same moment ends come first.
    edges.sort_unstable();
    let (mut now, mut most) = (0_isize, 0_isize);
    for (_, step) in edges {
        now += step;
        most = most.max(now);
    }
    most.unsigned_abs()
}

#[cfg(test)]
#[path = "diagnosis_tests.rs"]
mod tests;
