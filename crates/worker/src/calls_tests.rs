//! Calls that are long or short, on counters of each test's own.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::*;

/// Waits, so that it costs a voluntary switch.
fn wait() {
    let (mut ours, _theirs) = UnixStream::pair().expect("a pair");
    ours.set_read_timeout(Some(Duration::from_millis(5))).expect("set");
    assert!(ours.read(&mut [0]).is_err());
}

/// As if the thread's last call had cost nothing known since.
fn begin_turn_with(switches: Option<u64>) {
    THREAD.with(|thread| thread.switches.set(switches));
}

#[test]
fn a_call_that_waits_is_told_from_one_that_does_not() {
    let counted = Counted::new();
    begin_turn_with(Some(usage::voluntary_switches()));
    wait();
    counted.look_at(Call::Read, Some("/srv/a".into()), 5 * STALL_NS);
    counted.look_at(Call::Send, None, STALL_NS);
    begin_turn_with(None);
    counted.look_at(Call::Receive, None, STALL_NS);
    // Shorter than a stall, but long enough to be looked at.
    wait();
    counted.look_at(Call::Stat, None, STALL_NS - 1);
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
        let told = counted.times[call as usize].told();
        (told.stalls, told.waited)
    };
    assert_eq!(
        [Call::Read, Call::Send, Call::Receive, Call::Stat].map(of),
        [(1, 1), (1, 0), (1, 0), (0, 1)],
        "stalls and waits"
    );
}

#[test]
fn the_last_hundred_are_kept() {
    let counted = Counted::new();
    for n in 0..STALLS_MAX as u64 + 50 {
        counted.look_at(Call::Job, None, STALL_NS + n);
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
    assert_eq!(alone.told(), shared.told());
    assert_eq!((alone.told().count(), alone.told().max_ns), (6, 1 << 40));
}

#[test]
fn a_time_begins_where_the_one_before_ended_or_with_its_own_call() {
    let thread = Thread { last_ns: Cell::new(0), switches: Cell::new(None) };
    let since_boot_ns = thread.lap();
    assert!(thread.lap() < since_boot_ns);
    assert!(thread.switches().is_none(), "not known before");
    assert_eq!(thread.switches(), Some(0));
    let began = thread.begin();
    let at_ns = began.at_ns;
    while clock::monotonic_ns() < at_ns + 10_000 {}
    // One that is made in it takes nothing from it.
    thread.lap();
    assert!(thread.end(began) >= 10_000);
}

#[test]
fn a_wait_is_not_charged_to_a_call_that_is_made_after_it_within_the_same_one() {
    let thread = Thread { last_ns: Cell::new(0), switches: Cell::new(None) };
    let outer = thread.begin();
    wait();
    let inner = thread.begin();
    thread.end(inner);
    assert_eq!(thread.switches(), Some(0), "the wait was before it");
    thread.end(outer);
    assert!(thread.switches() >= Some(1), "the wait was in it");
    assert_eq!(thread.switches(), Some(0), "the next call");
}

#[test]
fn every_call_has_a_name_of_its_own() {
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
fn what_was_not_called_is_not_told() {
    let counted = Counted::new();
    counted.times[Call::Send as usize].count(3);
    assert_eq!(counted.calls().0.keys().collect::<Vec<_>>(), ["send"]);
}

#[test]
fn a_file_is_named_by_its_whole_path() {
    // Without roots, as here, from its site's root on.
    assert_eq!(whole_path(SiteId(3), b"/sub/a.txt"), "/sub/a.txt");
    assert_eq!(whole_path(SiteId(3), b"sub/a.txt"), "/sub/a.txt");
}
