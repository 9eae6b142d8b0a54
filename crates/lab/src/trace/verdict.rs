//! A diagnosis in words: what `flash doctor` prints, and the sentences at the head of the page.
//!
//! `doctor` and `page` call it. It chooses words by the figures of a [`Diagnosis`] and adds none. Pure.

use std::fmt::Write as _;

use super::diagnosis::{self, Diagnosis, LoopFinding, OthersFinding, Paid, Verdict};
use super::model::{BlockedCall, CallTotal, Reason, ReasonTotal, RequestTotal, Shares, Times, Trace};
use super::words::{self, many, time};
use crate::report::number::{count, percent};
use crate::report::terminal::wrapped;

/// So many of the longest are told; the JSON has more.
const TOLD_MAX: usize = 5;
/// Processes with event loops are told of one by one up to so many, those that lost most time first.
const LOOPS_TOLD_MAX: usize = 2;
/// From so many on, one in a hundred is more than one.
const SHARE_TOLD_MIN: u64 = 200;
/// Requests that waited meanwhile are told by so many examples.
const EXAMPLES_MAX: usize = 3;
/// From this share of a loop's time on, a core that others had is worth a word.
const RUNNABLE_SHARE_TOLD: f64 = 0.05;

/// The answer in a few sentences, the first of them the verdict.
pub(super) fn sentences(found: &Diagnosis) -> Vec<String> {
    let mut sentences = vec![headline(found)];
    let (told, more) = judged(found);
    for one in told {
        if one.blocked > 0 {
            sentences.push(stood_still(one));
        }
        if one.held_up > 0 {
            sentences.push(cost(one));
        }
        if one.requests.count() > 0 {
            sentences.push(format!("{}: {}", one.name, requests(&one.requests)));
        }
    }
    if !more.is_empty() {
        sentences.push(more_loops(&more));
    }
    if found.others.disk_blocked > 0 {
        sentences.push(others(found));
    }
    sentences.extend(access_times(found));
    sentences
}

/// What to do about waits that nobody needs: the kernel notes when a file was read last.
fn access_times(found: &Diagnosis) -> Option<String> {
    let calls = found.loops.iter().flat_map(|one| &one.calls).chain(&found.others.calls);
    let noted = calls.flat_map(|call| &call.reasons).filter(|total| total.reason == Reason::AccessTime);
    let (times, ns) = noted.fold((0_u64, 0_u64), |(times, ns), total| {
        (times.saturating_add(total.count), ns.saturating_add(total.blocked_ns))
    });
    (times > 0).then(|| {
        format!(
            "Reads waited for the journal of the file system to note the access times of files, {}, {} together: mount \
             the file system with noatime, or have the server open files with O_NOATIME.",
            many(times, "time"),
            time(ns)
        )
    })
}

/// The loops that are judged: those to be told of one by one, and the others.
fn judged(found: &Diagnosis) -> (Vec<&LoopFinding>, Vec<&LoopFinding>) {
    let mut told: Vec<&LoopFinding> = found.loops.iter().filter(|one| one.is_judged).collect();
    let more = told.split_off(told.len().min(LOOPS_TOLD_MAX));
    (told, more)
}

fn more_loops(loops: &[&LoopFinding]) -> String {
    let sum = |of: fn(&LoopFinding) -> u64| loops.iter().map(|one| of(one)).fold(0, u64::saturating_add);
    if sum(|one| one.blocked) == 0 {
        let who = words::several(loops.len(), "more process", "more processes");
        return format!("{who} with an event loop did not stand still.");
    }
    format!(
        "{} with an event loop stood still in {}, {} together, the longest took {}.",
        words::several(loops.len(), "more process", "more processes"),
        many(sum(|one| one.blocked), "call"),
        time(sum(|one| one.time.blocked_ns)),
        time(loops.iter().map(|one| one.longest_ns).max().unwrap_or(0)),
    )
}

fn headline(found: &Diagnosis) -> String {
    let judged_calls = || found.loops.iter().filter(|one| one.is_judged).flat_map(|one| &one.calls);
    match found.verdict {
        Verdict::LoopWaitsForDisk => {
            let calls = names(judged_calls().filter(|call| is_for_disk(call)));
            format!("This server waits for the disk in its event loop: in {calls}.")
        }
        Verdict::LoopWaits => {
            let calls = names(judged_calls());
            format!(
                "This server does not wait for the disk in its event loop, but for other things: in {calls}."
            )
        }
        Verdict::ThreadsWaitForDisk => {
            "No event loop of this server was seen, and threads of it wait for the disk.".to_owned()
        }
        Verdict::NoWait if found.loops.is_empty() => {
            "No event loop of this server was seen, and no thread of it waited for the disk.".to_owned()
        }
        Verdict::NoWait if found.loops.iter().any(|one| one.is_judged && one.blocked > 0) => {
            "This server did not wait in its event loop, but for moments.".to_owned()
        }
        Verdict::NoWait => "This server did not wait in its event loop.".to_owned(),
        Verdict::Unknown => {
            format!("It cannot be told whether this server waits: {}.", found.unknown.join("; "))
        }
    }
}

/// "sendfile, openat and read".
fn names<'a>(calls: impl Iterator<Item = &'a CallTotal>) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in calls.map(|call| &*call.call) {
        if names.len() < TOLD_MAX && !names.contains(&name) {
            names.push(name);
        }
    }
    match names.pop() {
        Some(last) if !names.is_empty() => format!("{} and {last}", names.join(", ")),
        last => last.unwrap_or("no call that is known").to_owned(),
    }
}

fn is_for_disk(call: &CallTotal) -> bool {
    call.reasons.iter().any(|total| total.reason.is_disk())
}

fn stood_still(one: &LoopFinding) -> String {
    let stalls = match one.stalls {
        0 => "none of them for more than 1 ms".to_owned(),
        stalls => {
            format!("{} for more than 1 ms, the longest took {}", many(stalls, "time"), time(one.longest_ns))
        }
    };
    format!(
        "{}: {} stood still in {} that waited, {} of {} ({}); {stalls}.",
        one.name,
        if one.threads == 1 { "its loop".to_owned() } else { format!("its {} loops", one.threads) },
        many(one.blocked, "call"),
        time(one.time.blocked_ns),
        time(one.time.total_ns()),
        percent(one.blocked_share),
    )
}

fn cost(one: &LoopFinding) -> String {
    format!(
        "{}: {} a connection that was ready was held up behind them, for {} together, {} at most.",
        one.name,
        many(one.held_up, "time"),
        time(one.held_up_ns),
        time(one.held_up_longest_ns),
    )
}

/// What standing still did to the requests of a process.
pub(super) fn requests(total: &RequestTotal) -> String {
    let RequestTotal { held_up, others, unanswered, unanswered_held_up, .. } = total;
    let all = many(total.count(), "request");
    let mut text = match held_up.count + unanswered_held_up {
        _ if total.pid == 0 => format!("{all}."),
        0 => format!("none of {all} waited while it stood still for over 1 ms."),
        some => format!("{} of {all} waited while it stood still for over 1 ms.", count(some)),
    };
    if held_up.count > 0 {
        let share = percent(diagnosis::per(total.stood_still_ns, total.held_up_ns));
        text +=
            &format!(" {}; for {share} of that time, all together, it stood still.", waited(held_up, "them"));
    }
    if others.count > 0 {
        text += &format!(" {}.", waited(others, if held_up.count > 0 { "the others" } else { "them" }));
    }
    if *unanswered > 0 {
        text += &format!(" {} had no answer when the trace ended.", count(*unanswered));
    }
    text
}

fn waited(times: &Times, whom: &str) -> String {
    let Times { count, p50_ns, p99_ns, longest_ns } = *times;
    let most = match count {
        ..SHARE_TOLD_MIN => format!("{} at most", time(longest_ns)),
        _ => format!("one in a hundred {} or longer", time(p99_ns)),
    };
    format!("Half of {whom} waited {} or longer for the first byte of the answer, {most}", time(p50_ns))
}

/// What waits where waiting is no harm to other requests.
fn others(found: &Diagnosis) -> String {
    let OthersFinding { disk_threads, disk_threads_at_once, disk_blocked, disk_ns, longest_ns, .. } =
        found.others;
    let who = if found.loops.is_empty() { "threads" } else { "threads besides the loop" };
    let what = format!(
        "{who} waited for the disk {} in {}, {} together, the longest {}; {disk_threads} did, at most \
         {disk_threads_at_once} at once",
        many(disk_blocked, "time"),
        names(found.others.calls.iter()),
        time(disk_ns),
        time(longest_ns),
    );
    let meaning = if found.loops.is_empty() {
        "Each such wait costs the request that it is for, and one of the threads for that long: others pay \
         once all threads wait."
    } else if found.verdict == Verdict::LoopWaitsForDisk {
        "Those cost the loop nothing; its own waits do."
    } else {
        "That is where waits belong: they cost the requests that they are for."
    };
    let mut text = what;
    if let Some(first) = text.get(..1) {
        text = first.to_uppercase() + &text[1..];
    }
    format!("{text}. {meaning}")
}

/// All that `flash doctor` prints, for a terminal of 100 columns.
pub(super) fn text(trace: &Trace, found: &Diagnosis) -> String {
    let mut text = String::new();
    for sentence in sentences(found) {
        text += &wrapped(&sentence);
    }
    for warning in &found.warnings {
        text += &wrapped(&format!("warning: {warning}"));
    }
    for one in judged(found).0 {
        told_of_loop(&mut text, trace, one);
    }
    for one in found.loops.iter().filter(|one| !one.is_judged) {
        let blocked = match one.blocked {
            0 => "did not wait".to_owned(),
            blocked => format!("waited {} in {}", time(one.time.blocked_ns), many(blocked, "call")),
        };
        let line =
            format!("{}: its loop handled {}: not judged; it {blocked}.", one.name, many(one.ready, "event"));
        text += &format!("\n{}", wrapped(&line));
    }
    if found.others.disk_blocked > 0 {
        told_of_others(&mut text, trace, &found.others);
    }
    text
}

fn told_of_loop(text: &mut String, trace: &Trace, one: &LoopFinding) {
    let _ = writeln!(text, "\n{}: where the time of its event loop went", one.name);
    let Shares { waiting_ns, user_ns, call_ns, blocked_ns, runnable_ns } = one.time;
    let whole_ns = one.time.total_ns();
    let mut line = |share_ns: u64, what: String| {
        let _ = writeln!(
            text,
            "  {:>8}  {:>8}  {what}",
            time(share_ns),
            percent(super::diagnosis::per(share_ns, whole_ns))
        );
    };
    let waits = format!(
        "{} for {} ready, at most {} at once",
        many(one.waits, "time"),
        many(one.ready, "descriptor"),
        one.ready_max
    );
    line(waiting_ns, format!("waiting for events, {}: {waits}", one.wait_call));
    line(user_ns.saturating_add(call_ns), "at work".to_owned());
    if runnable_ns as f64 > whole_ns as f64 * RUNNABLE_SHARE_TOLD {
        line(runnable_ns, "wanting a core that others had".to_owned());
    }
    line(blocked_ns, "standing still in calls that waited".to_owned());
    if one.calls.is_empty() {
        return;
    }
    *text +=
        "\n  in which calls                                                                    for what\n";
    for call in one.calls.iter().take(TOLD_MAX) {
        told_of_call(text, call);
    }
    if !one.targets.is_empty() {
        let told = TOLD_MAX.min(one.targets.len());
        let _ = writeln!(text, "\n  for which files, the {told} longest of {}", one.targets_in_all);
    }
    for total in one.targets.iter().take(TOLD_MAX) {
        let _ = writeln!(
            text,
            "  {:>8}  {:<10} {}  ({})",
            time(total.blocked_ns),
            total.call,
            words::target(&total.target),
            words::reasons(&total.reasons)
        );
    }
    *text += "\n  the longest of these waits\n";
    for call in one.longest.iter().take(TOLD_MAX) {
        told_of_wait(text, trace, call);
    }
    told_of_cost(text, one);
}

/// A row: time blocked, how many of how many, the longest, and for what.
fn told_of_call(text: &mut String, call: &CallTotal) {
    let reason = |total: &ReasonTotal| {
        format!("{} ({}, {})", total.reason.words(), many(total.count, "call"), time(total.blocked_ns))
    };
    let reasons: Vec<String> = match &call.reasons[..] {
        [only] => vec![only.reason.words().to_owned()],
        some => some.iter().map(reason).collect(),
    };
    let of = format!(
        "{} of {} waited, the longest {}",
        call.blocked,
        many(call.count, "call"),
        time(call.reasons.iter().map(|total| total.longest_ns).max().unwrap_or(0))
    );
    for (index, reason) in reasons.iter().enumerate() {
        if index == 0 {
            let _ = writeln!(text, "  {:>8}  {:<10} {of:<58} {reason}", time(call.blocked_ns), call.call);
        } else {
            let _ = writeln!(text, "  {:80} {reason}", "");
        }
    }
}

fn told_of_wait(text: &mut String, trace: &Trace, call: &BlockedCall) {
    let at = time(call.start_ns);
    let _ = writeln!(
        text,
        "  {:>8}  {}, {at} after the begin, for {}",
        time(call.blocked_ns),
        words::call_on_what(call),
        call.reason.words(),
    );
    if let Some(request) = words::own_request(call) {
        let _ = writeln!(text, "            the request: {request}");
    }
    let Some(batch) = &call.batch else { return };
    if batch.held_up() > 0 {
        let _ = writeln!(
            text,
            "            behind it: {} of the same batch, {} that became ready meanwhile",
            batch.behind, batch.arrived
        );
    }
    let mut examples: Vec<String> = Vec::new();
    for request in diagnosis::meanwhile(trace, call) {
        let line = words::request(&request.line);
        if examples.len() < EXAMPLES_MAX && !examples.contains(&line) {
            examples.push(line);
        }
    }
    if !examples.is_empty() {
        let _ = writeln!(text, "            waited meanwhile: {}", examples.join(", "));
    }
    if call.reason == Reason::Unknown && !call.stack.is_empty() {
        let _ = writeln!(text, "            in the kernel: {}", words::stack(call));
    }
}

fn told_of_cost(text: &mut String, one: &LoopFinding) {
    if !one.paid.is_empty() {
        *text += "\n  the requests that paid most: so long the loop stood still meanwhile\n";
        for paid in one.paid.iter().take(TOLD_MAX) {
            told_of_request(text, paid);
        }
        return;
    }
    if one.payers.is_empty() {
        return;
    }
    *text +=
        "\n  the connections that paid most (at most so long; one that became ready in mid-call paid less)\n";
    for payer in one.payers.iter().take(TOLD_MAX) {
        let _ = writeln!(
            text,
            "  {:>8}  {}, {}, most behind {}",
            time(payer.waited_ns),
            payer.name,
            many(payer.times, "time"),
            payer.behind
        );
    }
}

fn told_of_request(text: &mut String, Paid { request, behind }: &Paid) {
    let _ = writeln!(
        text,
        "  {:>8}  {}, {} after the begin, from {}",
        time(request.stood_still_ns),
        words::request(&request.line),
        time(request.start_ns),
        words::shortened(words::peer(&request.connection)),
    );
    let until = if request.is_answered { "for the answer" } else { "in vain" };
    let calls = match behind.calls {
        0 => String::new(),
        1 => format!("; behind {}", behind.longest),
        calls => format!("; behind {calls} calls, longest, {}, {}", time(behind.longest_ns), behind.longest),
    };
    let _ = writeln!(text, "            it waited {} {until}{calls}", time(request.waited_ns));
}

fn told_of_others(text: &mut String, trace: &Trace, others: &OthersFinding) {
    let _ = writeln!(
        text,
        "\nthreads that are no event loop, {}: in which calls they waited for the disk",
        others.threads
    );
    for call in others.calls.iter().take(TOLD_MAX) {
        told_of_call(text, call);
    }
    *text += "\n  the longest\n";
    for call in others.longest.iter().take(TOLD_MAX) {
        let _ = writeln!(
            text,
            "  {:>8}  {}, in {}, for {}",
            time(call.blocked_ns),
            words::call_on_what(call),
            words::thread(trace, call.tid),
            call.reason.words(),
        );
    }
}
