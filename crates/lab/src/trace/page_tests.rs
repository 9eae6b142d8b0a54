//! What the words, the table and the page say of made-up traces.

use super::super::diagnosis::{LoopFinding, diagnose};
use super::super::fixture::{helped_server, total, waiting_server};
use super::super::model::{Reason, Trace};
use super::super::{table, verdict};
use super::*;

fn said(trace: &Trace) -> String {
    verdict::text(trace, &diagnose(trace))
}

#[test]
fn the_verdict_names_the_calls_the_files_and_who_paid() {
    let text = said(&waiting_server());
    let expected = [
        "This server waits for the disk in its event loop: in sendfile and openat.",
        "nginx 71: its loop stood still in 2 calls that waited, 250 ms of 1.00 s (25.0 %)",
        "2 times for more than 1 ms, the longest took 200 ms.",
        "3 times a connection that was ready was held up behind them, for 350 ms together, 200 ms at most.",
        "Threads besides the loop waited for the disk 1 time in pread64, 300 ms together",
        "200 ms  sendfile of /srv/cold/big, 100 ms after the begin, for a read of the disk",
        "behind it: 1 of the same batch, 1 that became ready meanwhile",
        "2 of 4 requests waited while it stood still for over 1 ms. Half of them waited 60.0 ms or longer for the first byte of the answer, 270 ms at most; for 84.8 % of that time, all together, it stood still.",
        "Half of the others waited 1.00 ms or longer",
        "1 had no answer when the trace ended.",
        "waited meanwhile: GET /hot/a, GET /hot/b",
        "250 ms  GET /hot/a, 95.0 ms after the begin, from 10.0.0.1:95\n",
        "it waited 60.0 ms for the answer; behind openat of /srv/cold/deep/name\n",
        "it waited 270 ms for the answer; behind 2 calls, longest, 200 ms, sendfile of /srv/cold/big",
        "the request: GET /srv/cold/big\n",
    ];
    let flat = text.replace("\n  ", " ");
    for words in expected {
        assert!(text.contains(words) || flat.contains(words), "no '{words}' in\n{text}");
    }
}

#[test]
fn waits_for_access_times_come_with_what_to_do_about_them() {
    let advice = "mount the file system with noatime";
    let mut trace = waiting_server();
    assert!(!said(&trace).contains(advice));
    trace.calls.push(total("preadv2", true, Reason::AccessTime, &[14]));
    let text = said(&trace).replace("\n  ", " ");
    let expected = "Reads waited for the journal of the file system to note the access times of files, 1 time, 14.0 ms \
                    together: mount the file system with noatime, or have the server open files with O_NOATIME.";
    assert!(text.contains(expected), "{text}");
    assert!(text.contains("the journal, to note the access time"), "{text}");
    let mut trace = helped_server();
    trace.calls.push(total("pread64", false, Reason::AccessTime, &[14]));
    assert!(said(&trace).replace("\n  ", " ").contains(advice), "in other threads, too");
}

#[test]
fn many_processes_with_loops_are_told_of_together() {
    let trace = waiting_server();
    let mut found = diagnose(&trace);
    for pid in 2..=4 {
        found.loops.push(LoopFinding { pid, name: format!("nginx {pid}"), ..found.loops[0].clone() });
    }
    let text = verdict::text(&trace, &found).replace("\n  ", " ");
    let together = "2 more processes with an event loop stood still in 4 calls, 500 ms together, the longest took 200 ms.";
    assert!(text.contains("nginx 2: ") && text.contains(together), "{text}");
    assert!(!text.contains("nginx 3"), "{text}");
}

#[test]
fn a_call_that_is_for_no_descriptor_is_named_alone() {
    let mut trace = waiting_server();
    trace.blocked.retain(|call| call.in_loop);
    for call in &mut trace.blocked {
        (call.call, call.target, call.fd, call.path) = ("futex".into(), None, None, None);
    }
    trace.targets.clear();
    let text = said(&trace);
    assert!(text.contains("  futex, 100 ms after the begin"), "{text}");
    assert!(!text.contains("futex of") && !text.contains("for which files"), "{text}");
}

#[test]
fn where_requests_are_not_known_connections_are_told() {
    let mut trace = waiting_server();
    trace.requests = Default::default();
    let text = said(&trace);
    assert!(text.contains("250 ms  10.0.0.1:5, 2 times, most behind sendfile of /srv/cold/big"), "{text}");
    assert!(!text.contains("GET /hot") && !text.contains(" requests"), "{text}");
    assert!(!html(&trace).contains("Requests that paid"));
}

#[test]
fn requests_have_a_table_each() {
    let mut trace = waiting_server();
    let text = table::table(&trace);
    assert!(text.contains("the requests that paid most, 4 of 4"), "{text}");
    assert!(text.contains("nginx 71: 2 of 4 requests waited while it stood still"), "{text}");
    let mut of_threads = helped_server();
    of_threads.requests.totals[0].pid = 0;
    let other = table::table(&of_threads).replace("\n  ", " ");
    assert!(other.contains("no event loop that is known: 2 requests. Half of them waited"), "{other}");
    assert!(text.lines().any(|line| line.contains("270 ms") && line.contains("GET /hot/a")), "{text}");
    trace.requests.costliest[0].line = "GET /<script>alert(1)\u{1b}".to_owned();
    let page = html(&trace);
    assert!(page.contains("Requests that paid") && page.contains("GET /hot/b"));
    assert!(!page.contains("<script>alert") && !page.contains('\u{1b}'));
}

#[test]
fn a_server_whose_helpers_wait_is_told_that_its_loop_does_not() {
    let text = said(&helped_server());
    assert!(text.starts_with("This server did not wait in its event loop.\n"), "{text}");
    assert!(text.contains("That is where waits belong"), "{text}");
    assert!(
        text.contains("nginx 71: none of 2 requests waited while it stood still for over 1 ms."),
        "{text}"
    );
    assert!(!text.contains("held up"), "{text}");
}

#[test]
fn a_server_of_threads_is_told_what_a_wait_costs_there() {
    let mut trace = helped_server();
    trace.threads.retain(|thread| !thread.is_loop);
    let text = said(&trace);
    assert!(
        text.starts_with("No event loop of this server was seen, and threads of it wait for the disk.\n"),
        "{text}"
    );
    assert!(text.replace("\n  ", " ").contains("one of the threads for that long"), "{text}");
}

#[test]
fn lost_events_stand_in_plain_sight_everywhere() {
    let mut trace = waiting_server();
    trace.missing.events_lost = 77;
    for text in [said(&trace), table::table(&trace)] {
        assert!(text.contains("warning: 77 events lost"), "{text}");
    }
    let page = html(&trace);
    assert!(
        page.contains("77 events lost: counts and times are too low") && page.contains("class=\"warnings\"")
    );
    assert!(html(&waiting_server()).contains("no event lost"));
}

#[test]
fn the_table_has_each_call_and_the_longest_waits_first() {
    let text = table::table(&waiting_server());
    let place = |words: &str| text.find(words).unwrap_or_else(|| panic!("no '{words}' in\n{text}"));
    let order = [
        "event loop nginx 71: epoll_wait 90 times",
        "calls of event loops",
        "sendfile",
        "openat",
        "epoll_wait  1,000",
        "calls of other threads",
        "pread64",
        "the longest waits, those of event loops and for the disk first, 3 of 3",
        "/srv/cold/big",
        "/srv/cold/other",
    ];
    let places = order.map(place);
    assert!(places.is_sorted(), "{places:?}\n{text}");
    assert!(text.lines().any(|line| line.contains("sendfile") && line.contains("20.0 %")), "{text}");
}

#[test]
fn the_page_stands_alone_and_names_from_outside_are_escaped() {
    let mut trace = waiting_server();
    trace.processes[0].command = "<script>alert(1)</script>".to_owned();
    trace.blocked[0].target.as_mut().unwrap().name = "/srv/\"><b>".to_owned();
    trace.missing.notes.push("a\u{1b}[2J".to_owned());
    let page = html(&trace);
    assert!(!page.contains("<script>alert") && !page.contains("<b>") && !page.contains('\u{1b}'));
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("url("));
    // The whole and the 50 ms around the worst.
    assert_eq!(page.matches("<figure").count(), 2);
    assert!(page.contains("The 50.0 ms in which it was blocked most"));
}

#[test]
fn a_trace_of_nothing_and_one_of_nonsense_have_a_page() {
    let page = html(&Trace::default());
    assert!(page.contains("No thread here is an event loop") && !page.contains("NaN"), "{page}");
    let mut trace = waiting_server();
    trace.duration_ns = 0;
    trace.timelines[0].segments[2].duration_ns = u64::MAX / 4;
    trace.timelines[0].segments[4].start_ns = u64::MAX / 2;
    trace.blocked[0].start_ns = u64::MAX - 5;
    trace.requests.costliest[0].waited_ns = u64::MAX;
    let text = html(&trace) + &table::table(&trace) + &said(&trace);
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
}
