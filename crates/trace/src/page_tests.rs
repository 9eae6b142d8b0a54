//! The output, the table and the page of made-up kernel traces.

use super::super::diagnosis::{LoopFinding, diagnose};
use super::super::fixture::{helped_server, total, waiting_server};
use super::super::model::{Reason, Trace};
use super::super::{diagnosis_text, table};
use super::*;

fn said(trace: &Trace) -> String {
    diagnosis_text::text(&diagnose(trace))
}

#[test]
fn the_output_names_the_calls_the_files_and_the_affected_requests() {
    let text = said(&waiting_server());
    let expected = [
        "The event loop of this server waits for the disk, in sendfile and openat: 2 of 4 requests (50.0 %) were delayed by calls for other requests.",
        "nginx 71: its event loop blocked for 250 ms of 1.00 s (25.0 %), in 2 calls, 2 for over 1 ms, at most 200 ms.",
        "nginx 71: 2 of 4 requests were delayed over 1 ms by calls for other requests; their first byte took 60.0 ms (median), at most 270 ms, 84.8 % of it these calls; the others' took 1.00 ms (median), at most 1.00 ms; 1 had no answer when the kernel trace ended.",
        "Threads other than the event loop waited for the disk 1 time in pread64, for 300 ms in total",
        "  200 ms  sendfile of /srv/cold/big; 2 ready connections waited\n",
        "  250 ms of 270 ms  GET /hot/a, behind 2 calls\n",
        "  30.0 ms of 60.0 ms  GET /hot/b, behind openat of /srv/cold/deep/name\n",
        "To try: `aio threads;`",
    ];
    let flat = text.replace("\n  ", " ");
    for words in expected {
        assert!(text.contains(words) || flat.contains(words), "no '{words}' in\n{text}");
    }
}

#[test]
fn waits_for_access_times_come_with_advice() {
    let advice = "mount the file system with noatime";
    let mut trace = waiting_server();
    assert!(!said(&trace).contains(advice));
    trace.calls.push(total("preadv2", true, Reason::AccessTime, &[14]));
    let text = said(&trace).replace("\n  ", " ");
    let expected = "Reads waited for the journal of the file system 1 time, for 14.0 ms in total, to record access times: mount \
                    the file system with noatime, or have the server open files with O_NOATIME.";
    assert!(text.contains(expected), "{text}");
    assert!(text.contains("the journal, to record the access time"), "{text}");
    let mut trace = helped_server();
    trace.calls.push(total("pread64", false, Reason::AccessTime, &[14]));
    assert!(said(&trace).replace("\n  ", " ").contains(advice), "in other threads, too");
}

#[test]
fn many_processes_with_event_loops_are_summed_up() {
    let trace = waiting_server();
    let mut found = diagnose(&trace);
    for pid in 2..=4 {
        found.loops.push(LoopFinding { pid, name: format!("nginx {pid}"), ..found.loops[0].clone() });
    }
    let text = diagnosis_text::text(&found).replace("\n  ", " ");
    let together =
        "The event loops of 2 more processes blocked in 4 calls, for 500 ms in total, at most 200 ms.";
    assert!(text.contains("nginx 2: ") && text.contains(together), "{text}");
    assert!(!text.contains("nginx 3"), "{text}");
}

#[test]
fn a_call_without_a_descriptor_is_named_alone() {
    let mut trace = waiting_server();
    trace.blocked.retain(|call| call.in_loop);
    for call in &mut trace.blocked {
        (call.call, call.target, call.fd, call.path) = ("futex".into(), None, None, None);
    }
    trace.targets.clear();
    let text = said(&trace);
    assert!(text.contains("  200 ms  futex; 2 ready"), "{text}");
    assert!(!text.contains("futex of"), "{text}");
}

#[test]
fn without_requests_connections_are_listed() {
    let mut trace = waiting_server();
    trace.requests = Default::default();
    let text = said(&trace);
    assert!(text.contains("250 ms  10.0.0.1:5, 2 times, longest behind sendfile of /srv/cold/big"), "{text}");
    assert!(!text.contains("GET /hot") && !text.contains(" requests"), "{text}");
    assert!(!html(&trace).contains("Affected requests"));
}

#[test]
fn requests_have_a_table_each() {
    let mut trace = waiting_server();
    let text = table::table(&trace);
    assert!(text.contains("worst-affected requests, 4 of 4"), "{text}");
    assert!(text.contains("nginx 71: 2 of 4 requests were delayed over 1 ms by calls"), "{text}");
    let mut of_threads = helped_server();
    of_threads.requests.totals[0].pid = 0;
    let other = table::table(&of_threads).replace("\n  ", " ");
    assert!(other.contains("no known event loop: 2 requests; the first byte took"), "{other}");
    assert!(text.lines().any(|line| line.contains("270 ms") && line.contains("GET /hot/a")), "{text}");
    trace.requests.costliest[0].line = "GET /<script>alert(1)\u{1b}".to_owned();
    let page = html(&trace);
    assert!(page.contains("Affected requests") && page.contains("GET /hot/b"));
    assert!(!page.contains("<script>alert") && !page.contains('\u{1b}'));
}

#[test]
fn waits_of_helpers_do_not_block_the_event_loop() {
    let text = said(&helped_server());
    assert!(text.starts_with("The event loop did not block.\n"), "{text}");
    assert!(
        text.replace("\n  ", " ").contains("These waits delay only the requests that need the disk."),
        "{text}"
    );
    assert!(
        text.contains("nginx 71: none of 2 requests were delayed over 1 ms by calls for other requests"),
        "{text}"
    );
    assert!(!text.contains("ready connection"), "{text}");
}

#[test]
fn a_server_without_an_event_loop_is_not_blamed() {
    let mut trace = helped_server();
    trace.threads.retain(|thread| !thread.is_loop);
    let text = said(&trace);
    assert!(
        text.starts_with("This server has no event loop that serves several connections at once."),
        "{text}"
    );
    assert!(text.replace("\n  ", " ").contains("Each wait delays its own request"), "{text}");
}

#[test]
fn lost_events_are_reported_everywhere() {
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
        "epoll_wait 1,000",
        "calls of other threads",
        "pread64",
        "blocked calls, event loops and disk reads first, then the longest: 3 of 3",
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
    assert!(page.contains("The 50.0 ms in which it was blocked longest"));
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
