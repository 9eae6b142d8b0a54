//! A diagnosis in words: the output of `flash doctor`, and the sentences of the page.
//!
//! `doctor` and `page` call it. It chooses words by the figures of a [`Diagnosis`] and adds no figures. Pure.

use std::fmt::Write as _;

use crate::diagnosis::{self, Diagnosis, LoopFinding, OthersFinding, Paid, Verdict};
use crate::display::{self, many, time};
use crate::model::{BlockedCall, CallTotal, Reason, RequestTotal, Times};
use crate::pools::PoolFinding;
use flash_kit::number::{count, percent};
use flash_kit::text::{columns, wrapped};

/// Calls in the table; the JSON has more.
const CALLS_MAX: usize = 4;
/// Blocked calls and requests in each list; the JSON has more.
const LONGEST_MAX: usize = 3;
/// System calls that are named in a sentence.
const NAMES_MAX: usize = 4;
/// Processes with event loops that are described one by one, the most blocked first.
const LOOPS_MAX: usize = 2;
/// A 99th percentile needs this many values.
const P99_COUNT_MIN: u64 = 200;
/// From this share of a loop's time on, it is reported that other threads had the core.
const RUNNABLE_SHARE_MIN: f64 = 0.05;

/// The answer in one sentence.
pub(crate) fn headline(found: &Diagnosis) -> String {
    let guilty = || found.loops.iter().filter(|one| one.is_judged && one.delays_others);
    let delayed = guilty().map(|one| one.requests.held_up.count + one.requests.unanswered_held_up).sum();
    let all = guilty().map(|one| one.requests.count()).sum();
    let price = match (delayed, all) {
        (_, 0) => "ready connections waited behind these calls".to_owned(),
        (delayed, all) => {
            let share = percent(diagnosis::per(delayed, all));
            format!(
                "{} of {} ({share}) were delayed by calls for other requests",
                count(delayed),
                many(all, "request")
            )
        }
    };
    let calls = || guilty().flat_map(|one| &one.calls);
    match found.verdict {
        Verdict::LoopWaitsForDisk => {
            let calls = names(calls().filter(|call| is_for_disk(call)));
            format!("The event loop of this server waits for the disk, in {calls}: {price}.")
        }
        Verdict::LoopWaits => {
            format!("The event loop of this server blocks, but not on the disk, in {}: {price}.", names(calls()))
        }
        Verdict::PoolExhausted => {
            found.pools.iter().find(|pool| pool.is_exhausted).map(exhausted).unwrap_or_default()
        }
        Verdict::ThreadsWaitForDisk => "This server has no event loop that serves several connections at once. Its \
                                        threads wait for the disk, each for its own request."
            .to_owned(),
        Verdict::NoWait if found.loops.is_empty() => {
            "This server has no event loop that serves several connections at once, and none of its threads waited for \
             the disk."
                .to_owned()
        }
        Verdict::NoWait => no_wait(found).to_owned(),
        Verdict::Unknown => {
            format!("Cannot tell whether requests wait for each other: {}.", found.unknown.join("; "))
        }
    }
}

fn no_wait(found: &Diagnosis) -> &'static str {
    let judged = || found.loops.iter().filter(|one| one.is_judged);
    if judged().any(|one| one.stalls > 0) {
        "The event loop blocked, but too few requests waited behind it to count."
    } else if judged().any(|one| one.blocked > 0) {
        "The event loop blocked only briefly."
    } else {
        "The event loop did not block."
    }
}

fn exhausted(pool: &PoolFinding) -> String {
    let PoolFinding { name, threads, .. } = pool;
    let (kind, what) = if pool.is_processes { ("process", "processes") } else { ("thread", "threads") };
    let behind = if pool.requests == 0 {
        format!("in {} of the time", percent(pool.full_share))
    } else {
        format!("in {} of the time while requests were waiting", percent(pool.queued_share))
    };
    format!("The {kind} pool of {name} is exhausted: all {threads} {what} waited for the disk {behind}.")
}

/// The headline, then what supports it, for the page.
pub(crate) fn sentences(found: &Diagnosis) -> Vec<String> {
    let (shown, more) = judged(found);
    let mut sentences = Vec::new();
    for one in shown {
        if one.blocked > 0 {
            sentences.push(blocked(one));
        }
        if one.held_up.times > 0 {
            sentences.push(held_up(one));
        }
        if one.requests.count() > 0 {
            sentences.push(format!("{}: {}", one.name, requests(&one.requests)));
        }
    }
    sentences.extend(more_loops(&more));
    sentences.extend(advice(found));
    sentences.extend(others(found));
    sentences.extend(access_times(found));
    sentences.extend(cost(found));
    sentences
}

/// The loops that are judged: those that are described one by one, and the rest.
fn judged(found: &Diagnosis) -> (Vec<&LoopFinding>, Vec<&LoopFinding>) {
    let mut shown: Vec<&LoopFinding> = found.loops.iter().filter(|one| one.is_judged).collect();
    let more = shown.split_off(shown.len().min(LOOPS_MAX));
    (shown, more)
}

fn more_loops(loops: &[&LoopFinding]) -> Option<String> {
    if loops.is_empty() {
        return None;
    }
    let sum = |of: fn(&LoopFinding) -> u64| loops.iter().map(|one| of(one)).fold(0, u64::saturating_add);
    let who = display::several(loops.len(), "more process", "more processes");
    if sum(|one| one.blocked) == 0 {
        return Some(format!("The event loops of {who} did not block."));
    }
    Some(format!(
        "The event loops of {who} blocked in {}, for {} in total, at most {}.",
        many(sum(|one| one.blocked), "call"),
        time(sum(|one| one.time.blocked_ns)),
        time(loops.iter().map(|one| one.longest_ns).max().unwrap_or(0)),
    ))
}

/// "sendfile, openat and read".
fn names<'a>(calls: impl Iterator<Item = &'a CallTotal>) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in calls.map(|call| &*call.call) {
        if names.len() < NAMES_MAX && !names.contains(&name) {
            names.push(name);
        }
    }
    match names.pop() {
        Some(last) if !names.is_empty() => format!("{} and {last}", names.join(", ")),
        last => last.unwrap_or("no known call").to_owned(),
    }
}

fn is_for_disk(call: &CallTotal) -> bool {
    call.reasons.iter().any(|total| total.reason.is_disk())
}

fn blocked(one: &LoopFinding) -> String {
    let stalls = match one.stalls {
        0 => "none of them for over 1 ms".to_owned(),
        stalls => format!("{} for over 1 ms, at most {}", count(stalls), time(one.longest_ns)),
    };
    format!(
        "{}: {} blocked for {} of {} ({}), in {}, {stalls}.",
        one.name,
        if one.threads == 1 {
            "its event loop".to_owned()
        } else {
            format!("its {} event loops", one.threads)
        },
        time(one.time.blocked_ns),
        time(one.time.total_ns()),
        percent(one.blocked_share),
        many(one.blocked, "call"),
    )
}

fn held_up(one: &LoopFinding) -> String {
    format!(
        "{}: ready connections waited behind a blocked call {}, for {} in total, at most {}.",
        one.name,
        many(one.held_up.times, "time"),
        time(one.held_up.ns),
        time(one.held_up.longest_ns),
    )
}

/// How long the requests of a process waited, and how many of them behind calls for others.
pub(crate) fn requests(total: &RequestTotal) -> String {
    let RequestTotal { held_up, others, unanswered, unanswered_held_up, .. } = total;
    let all = many(total.count(), "request");
    let mut text = match held_up.count + unanswered_held_up {
        _ if total.pid == 0 => all,
        0 => format!("none of {all} were delayed over 1 ms by calls for other requests"),
        some => format!("{} of {all} were delayed over 1 ms by calls for other requests", count(some)),
    };
    let mut add = |part: String| text = format!("{text}; {part}");
    if held_up.count > 0 {
        let share = percent(diagnosis::per(total.held_up_ns, total.waited_ns));
        add(format!("their first byte took {}, {share} of it these calls", times(held_up)));
    }
    if others.count > 0 {
        let whose = if held_up.count > 0 { "the others'" } else { "the first byte" };
        add(format!("{whose} took {}", times(others)));
    }
    if *unanswered > 0 {
        add(format!("{} had no answer when the kernel trace ended", count(*unanswered)));
    }
    text + "."
}

fn times(times: &Times) -> String {
    let Times { count, p50_ns, p99_ns, longest_ns } = *times;
    match count {
        ..P99_COUNT_MIN => format!("{} (median), at most {}", time(p50_ns), time(longest_ns)),
        _ => format!("{} (median), {} (p99)", time(p50_ns), time(p99_ns)),
    }
}

/// The waits of threads that are no event loop.
fn others(found: &Diagnosis) -> Option<String> {
    let OthersFinding { disk_threads, disk_threads_at_once, disk_blocked, disk_ns, longest_ns, .. } =
        found.others;
    if disk_blocked == 0 {
        return None;
    }
    let who = if found.loops.is_empty() { "Threads" } else { "Threads other than the event loop" };
    let which = format!(
        "{}, at most {disk_threads_at_once} at once",
        display::several(disk_threads, "thread", "threads")
    );
    let waits = format!(
        "{who} waited for the disk {} in {}, for {} in total, at most {} ({which}).",
        many(disk_blocked, "time"),
        names(found.others.calls.iter()),
        time(disk_ns),
        time(longest_ns),
    );
    let meaning = match found.verdict {
        Verdict::PoolExhausted => "",
        _ if found.loops.is_empty() => {
            " Each wait delays its own request; others wait only once all threads do."
        }
        Verdict::LoopWaitsForDisk => " These waits do not block the event loop.",
        _ => " These waits delay only the requests that need the disk.",
    };
    Some(waits + meaning)
}

/// One thing to try for each problem.
fn advice(found: &Diagnosis) -> Vec<String> {
    let mut advice = Vec::new();
    for pool in found.pools.iter().filter(|pool| pool.is_exhausted) {
        let behind = match pool.requests {
            0 => "No request was seen on the network".to_owned(),
            all => format!("{} of {} waited for it", count(pool.requests_behind), many(all, "request")),
        };
        advice.push(format!("{behind}. To try: {}.", pool.advice));
    }
    if found.verdict == Verdict::LoopWaitsForDisk {
        let guilty = || found.loops.iter().filter(|one| one.delays_others);
        let is_nginx = guilty().any(|one| one.name.starts_with("nginx"));
        let reads = ["sendfile", "pread64", "read"];
        let has_reads = guilty().flat_map(|one| &one.calls).any(|call| reads.contains(&&*call.call));
        let how = match (is_nginx, has_reads) {
            (true, true) => {
                "`aio threads;` (moves sendfile and reads to threads, but not openat), or more memory"
            }
            (true, false) => {
                "a larger `open_file_cache`, or more memory: nginx calls openat in its event loop only"
            }
            (false, _) => "more memory, or a thread pool for these calls",
        };
        advice.push(format!("To try: {how}."));
    }
    advice
}

/// How to avoid waits that serve no purpose: the kernel records when a file was read last.
fn access_times(found: &Diagnosis) -> Option<String> {
    let calls = found.loops.iter().flat_map(|one| &one.calls).chain(&found.others.calls);
    let noted = calls.flat_map(|call| &call.reasons).filter(|total| total.reason == Reason::AccessTime);
    let (times, ns) = noted.fold((0_u64, 0_u64), |(times, ns), total| {
        (times.saturating_add(total.count), ns.saturating_add(total.blocked_ns))
    });
    (times > 0).then(|| {
        format!(
            "Reads waited for the journal of the file system {}, for {} in total, to record access times: mount the file \
             system with noatime, or have the server open files with O_NOATIME.",
            many(times, "time"),
            time(ns)
        )
    })
}

/// The cost of the kernel trace, where the server was busy.
fn cost(found: &Diagnosis) -> Option<String> {
    let cost = found.cost;
    cost.is_high.then(|| {
        format!(
            "Watching slowed this server down: {} events/s were recorded, and it used {:.1} cores. At full load this costs \
             nginx a third of its throughput.",
            count(cost.events_per_s),
            cost.cores
        )
    })
}

/// The whole output, for a terminal of 100 columns.
pub(crate) fn text(found: &Diagnosis) -> String {
    let mut text = wrapped(&headline(found));
    for warning in &found.warnings {
        text += &wrapped(&format!("warning: {warning}"));
    }
    let (shown, more) = judged(found);
    for one in shown {
        text.push('\n');
        if one.blocked > 0 {
            text += &wrapped(&blocked(one));
        }
        if one.requests.count() > 0 {
            text += &wrapped(&format!("{}: {}", one.name, requests(&one.requests)));
        } else if one.held_up.times > 0 {
            text += &wrapped(&held_up(one));
        }
        if one.delays_others {
            details(&mut text, one);
        }
    }
    let mut end: Vec<String> = more_loops(&more).into_iter().collect();
    for one in found.loops.iter().filter(|one| !one.is_judged && one.blocked > 0) {
        end.push(format!("{} handled {} and is not judged.", one.name, many(one.ready, "event")));
    }
    end.extend(others(found));
    end.extend(advice(found));
    end.extend(access_times(found));
    end.extend(cost(found));
    if !end.is_empty() {
        text.push('\n');
    }
    end.iter().for_each(|sentence| text += &wrapped(sentence));
    text
}

fn details(text: &mut String, one: &LoopFinding) {
    let whole_ns = one.time.total_ns();
    let share = |ns: u64| percent(diagnosis::per(ns, whole_ns));
    if one.time.runnable_ns as f64 > whole_ns as f64 * RUNNABLE_SHARE_MIN {
        let sentence =
            format!("{}: it waited for a core for {} of the time.", one.name, share(one.time.runnable_ns));
        *text += &wrapped(&sentence);
    }
    if one.calls.is_empty() {
        return;
    }
    let row = |call: &CallTotal| {
        vec![
            format!("  {}", call.call),
            time(call.blocked_ns),
            share(call.blocked_ns),
            format!("{} of {}", count(call.blocked), count(call.count)),
            time(call.reasons.iter().map(|total| total.longest_ns).max().unwrap_or(0)),
            display::reasons(&call.reasons),
        ]
    };
    let heads = ["  blocked in", "total", "share", "calls", "longest", "waited for"];
    let rows = one.calls.iter().take(CALLS_MAX).map(row).collect();
    let _ = write!(text, "\n{}", columns(&heads, rows, &[0, 5]));
    *text += "\n  longest calls\n";
    for call in one.longest.iter().take(LONGEST_MAX) {
        describe_call(text, call);
    }
    describe_affected(text, one);
}

fn describe_call(text: &mut String, call: &BlockedCall) {
    let _ = write!(text, "  {:>8}  {}", time(call.blocked_ns), display::call_on_what(call));
    let held_up = call.batch.as_ref().map_or(0, |batch| u64::from(batch.held_up()));
    if held_up > 0 {
        let _ = write!(text, "; {} waited", many(held_up, "ready connection"));
    }
    if call.reason == Reason::Unknown && !call.stack.is_empty() {
        let _ = write!(text, "; in the kernel: {}", display::stack(call));
    }
    text.push('\n');
}

fn describe_affected(text: &mut String, one: &LoopFinding) {
    if !one.paid.is_empty() {
        *text += "\n  worst-affected requests, by how long calls for other requests blocked the event loop\n";
        for Paid { request, behind } in one.paid.iter().take(LONGEST_MAX) {
            let calls = match behind.calls {
                0 => String::new(),
                1 => format!(", behind {}", behind.longest),
                calls => format!(", behind {} calls", count(calls)),
            };
            let until = if request.is_answered { "" } else { ", no answer yet" };
            let _ = writeln!(
                text,
                "  {:>8} of {}  {}{calls}{until}",
                time(request.held_up_ns),
                time(request.waited_ns),
                display::request(&request.line),
            );
        }
    } else if !one.payers.is_empty() && one.delays_others {
        *text += "\n  worst-affected connections, by how long they waited at most\n";
        for payer in one.payers.iter().take(LONGEST_MAX) {
            let (waited, times) = (time(payer.waited_ns), many(payer.times, "time"));
            let _ = writeln!(text, "  {waited:>8}  {}, {times}, longest behind {}", payer.name, payer.behind);
        }
    }
}
