//! Long and short calls, with separate counters for each test.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::*;

/// Waits, which costs a voluntary context switch.
fn wait() {
    let (mut ours, _theirs) = UnixStream::pair().expect("a pair");
    ours.set_read_timeout(Some(Duration::from_millis(5))).expect("set");
    assert!(ours.read(&mut [0]).is_err());
}

/// Begins a turn in which this number of switches was read.
fn begin_turn_with(switches: Option<u64>) {
    THREAD.with(|thread| thread.switches.set(switches));
}

/// Gives what the first right one of ten tries gives, or else the last. A page fault that waits counts as a switch, so a
/// single try can have one too many.
fn tried<T>(mut make: impl FnMut() -> T, is_right: impl Fn(&T) -> bool) -> T {
    let mut made = make();
    for _ in 1..10 {
        if is_right(&made) {
            break;
        }
        made = make();
    }
    made
}

#[test]
fn a_call_that_waits_is_distinguished_from_a_busy_one() {
    let make = || {
        let counted = Counted::new();
        begin_turn_with(Some(usage::voluntary_switches()));
        wait();
        counted.note_long(Call::Read, Some("/srv/a".into()), 5 * STALL_NS);
        counted.note_long(Call::Send, None, STALL_NS);
        begin_turn_with(None);
        counted.note_long(Call::Receive, None, STALL_NS);
        // Shorter than a stall, but long enough for its switches to be read.
        wait();
        counted.note_long(Call::Stat, None, STALL_NS - 1);
        counted
    };
    let counted = tried(make, |counted: &Counted| counted.stalls().last[1].switches == Some(0));
    let Stalls { count, last } = counted.stalls();
    let told: Vec<_> =
        last.iter().map(|s| (s.number, s.call.as_str(), s.path.as_deref(), s.took_ns)).collect();
    assert_eq!(count, 3);
    assert_eq!(
        told,
        [
            (1, "read", Some("/srv/a"), 5 * STALL_NS),
            (2, "send", None, STALL_NS),
            (3, "receive", None, STALL_NS),
        ]
    );
    let switches: Vec<_> = last.iter().map(|stall| stall.switches).collect();
    assert!(switches[0] >= Some(1) && switches[1..] == [Some(0), None], "{switches:?}");
    let of = |call: Call| {
        let times = counted.times[call as usize].times();
        (times.stalls, times.waited)
    };
    assert_eq!(
        [Call::Read, Call::Send, Call::Receive, Call::Stat].map(of),
        [(1, 1), (1, 0), (1, 0), (0, 1)],
        "stalls and waits"
    );
}

#[test]
fn the_last_hundred_stalls_are_kept() {
    let counted = Counted::new();
    for n in 0..STALLS_MAX as u64 + 50 {
        counted.note_long(Call::Job, None, STALL_NS + n);
    }
    let Stalls { count, last } = counted.stalls();
    assert_eq!((count, last.len()), (150, STALLS_MAX));
    let numbers: Vec<u64> = last.iter().map(|stall| stall.number).collect();
    assert_eq!(numbers, (51..=150).collect::<Vec<_>>());
    assert_eq!(last[0].took_ns, STALL_NS + 50);
}

#[test]
fn both_ways_of_counting_agree() {
    let (alone, shared) = (Times::new(), Times::new());
    for ns in [0, 255, 256, 1_000, STALL_NS, 1 << 40] {
        alone.count_alone(ns);
        shared.count(ns);
    }
    assert_eq!(alone.times(), shared.times());
    assert_eq!((alone.times().count(), alone.times().max_ns), (6, 1 << 40));
}

#[test]
fn a_time_begins_at_the_end_of_the_previous_call_or_at_its_own_call() {
    let thread = Thread { last_ns: Cell::new(0), switches: Cell::new(None) };
    let since_boot_ns = thread.since_previous();
    assert!(thread.since_previous() < since_boot_ns);
    assert!(thread.switches().is_none(), "the switches were not read before");
    let switches = tried(|| thread.switches(), |switches: &Option<u64>| *switches == Some(0));
    assert_eq!(switches, Some(0));
    let began = thread.begin();
    let at_ns = began.at_ns;
    while clock::monotonic_ns() < at_ns + 10_000 {}
    // An inner call does not shorten the outer one.
    thread.since_previous();
    assert!(thread.end(began) >= 10_000);
}

#[test]
fn a_wait_is_not_charged_to_a_later_call_within_the_same_call() {
    let make = || {
        let thread = Thread { last_ns: Cell::new(0), switches: Cell::new(None) };
        let outer = thread.begin();
        wait();
        let inner = thread.begin();
        thread.end(inner);
        let of_inner = thread.switches();
        thread.end(outer);
        [of_inner, thread.switches(), thread.switches()]
    };
    let is_right = |of: &[Option<u64>; 3]| of[0] == Some(0) && of[2] == Some(0);
    let [inner, outer, next] = tried(make, is_right);
    assert_eq!(inner, Some(0), "the wait was before the inner call");
    assert!(outer >= Some(1), "the wait was in the outer call");
    assert_eq!(next, Some(0), "the next call");
}

#[test]
fn every_call_has_a_unique_name() {
    let all: std::collections::BTreeSet<&str> = NAMES.iter().copied().collect();
    assert_eq!(all.len(), NAMES.len());
    for (call, name) in [
        (Call::Accept, "accept"),
        (Call::SendFile, "send_file"),
        (Call::Message, "message"),
        (Call::Job, "job"),
    ] {
        assert_eq!(NAMES[call as usize], name);
    }
}

#[test]
fn calls_that_were_not_made_are_not_reported() {
    let counted = Counted::new();
    counted.times[Call::Send as usize].count(3);
    assert_eq!(counted.calls().0.keys().collect::<Vec<_>>(), ["send"]);
}

#[test]
fn a_file_is_named_by_its_full_path() {
    // This test sets no roots, so the path begins at the root of its site.
    assert_eq!(whole_path(SiteId(3), b"/sub/a.txt"), "/sub/a.txt");
    assert_eq!(whole_path(SiteId(3), b"sub/a.txt"), "/sub/a.txt");
}
