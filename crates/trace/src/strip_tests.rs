//! Where things stand in the picture of a loop.

use super::super::fixture::{MS, waiting_server};
use super::super::model::{Segment, Trace};
use super::*;

fn whole(trace: &Trace) -> Window {
    Window { start_ns: 0, duration_ns: trace.duration_ns }
}

#[test]
fn a_column_is_as_high_as_the_share_of_its_time() {
    let trace = waiting_server();
    let columns = columns(&trace.timelines[0], whole(&trace));
    // 660 columns of 1.515 ms: sendfile from column 66 to 198, openat from 201.3 to 234.3.
    let read = Shade::DiskRead as usize;
    let percent = |column: usize| (columns[column].shades[read] * 100.0).round();
    assert_eq!([65, 66, 197, 198].map(percent), [0.0, 100.0, 100.0, 0.0]);
    let metadata = columns[234].shades[Shade::Metadata as usize];
    assert!((metadata - 0.3).abs() < 1e-6, "{metadata}");
    assert!(columns.iter().all(|column| (column.known - 1.0).abs() < 1e-6));
}

#[test]
fn what_was_put_together_keeps_its_shares() {
    let mut trace = waiting_server();
    let merged = Shares { waiting_ns: 600, user_ns: 100, call_ns: 300, ..Shares::default() };
    trace.timelines[0].segments =
        vec![Segment { duration_ns: 1000 * MS, shares: Some(merged), ..Segment::default() }];
    let column = columns(&trace.timelines[0], whole(&trace))[400];
    let of = |shade: Shade| (column.shades[shade as usize] * 1000.0).round();
    assert_eq!((of(Shade::User), of(Shade::Call), of(Shade::DiskRead)), (100.0, 300.0, 0.0));
}

#[test]
fn what_is_not_known_is_shown_as_such() {
    let mut trace = waiting_server();
    trace.timelines[0].segments.truncate(3);
    let drawn = draw(&trace.timelines[0], &trace.blocked, whole(&trace), "t").into_string();
    assert_eq!(drawn.matches("class=\"unknown\"").count(), 1);
    // From 305 ms on.
    assert!(drawn.contains("class=\"unknown\" x=\"363."), "{drawn}");
}

#[test]
fn those_held_up_are_the_batch_and_who_came_meanwhile() {
    let trace = waiting_server();
    let calls: Vec<&BlockedCall> = trace.blocked.iter().filter(|call| call.in_loop).collect();
    let held = held_up(&calls, whole(&trace));
    assert_eq!((held[60], held[220], held[400]), (0.0, 1.0, 0.0));
    assert!(held[70] > 1.0 && held[70] < 1.1 && held[197] > 1.99, "{} {}", held[70], held[197]);
}

#[test]
fn a_closer_look_is_taken_where_it_was_blocked_most() {
    let trace = waiting_server();
    let window = worst(&trace.timelines[0], whole(&trace), 100 * MS);
    assert_eq!((window.start_ns, window.duration_ns), (95 * MS, 100 * MS));
    let early = Window { start_ns: 0, duration_ns: 110 * MS };
    let window = worst(&trace.timelines[0], early, 20 * MS);
    assert_eq!(window.start_ns, 90 * MS, "it does not go beyond the end");
}

#[test]
fn the_closest_look_is_at_the_end_of_the_longest_wait() {
    let trace = waiting_server();
    let of = |window: Window| end_of_longest(&trace.timelines[0], &trace.blocked, window, 50 * MS);
    assert_eq!(of(whole(&trace)), Some(Window { start_ns: 290 * MS, duration_ns: 50 * MS }));
    let later = Window { start_ns: 310 * MS, duration_ns: 100 * MS };
    assert_eq!(of(later).map(|window| window.start_ns), Some(345 * MS));
    assert_eq!(
        of(Window { start_ns: 400 * MS, duration_ns: 100 * MS }),
        None,
        "the pool's is none of the loop"
    );
}

#[test]
fn the_picture_is_bounded_and_names_what_it_shows() {
    let mut trace = waiting_server();
    let drawn = draw(&trace.timelines[0], &trace.blocked, whole(&trace), "t").into_string();
    assert!(drawn.contains("sendfile 200 ms") && drawn.contains("openat 50.0 ms"), "{drawn}");
    assert!(drawn.contains("openat of /srv/cold/deep/name: blocked for 50.0 ms"), "{drawn}");
    assert!(!drawn.contains("pread64"), "that is another thread's");
    let one = trace.timelines[0].segments[1].clone();
    let call = trace.blocked[0].clone();
    trace.timelines[0].segments =
        (0..100_000).map(|n| Segment { start_ns: n * 10_000, duration_ns: 5_000, ..one.clone() }).collect();
    trace.blocked = (0..100_000)
        .map(|n| BlockedCall { start_ns: n * 10_000, duration_ns: 5_000, ..call.clone() })
        .collect();
    let drawn = draw(&trace.timelines[0], &trace.blocked, whole(&trace), "t").into_string();
    assert!(drawn.len() < 400_000, "{} bytes", drawn.len());
}

#[test]
fn ticks_are_round_and_as_exact_as_their_steps() {
    assert_eq!([step_ns(10_000 * MS), step_ns(500 * MS), step_ns(1)], [2_000 * MS, 100 * MS, 1]);
    assert_eq!([tick_label(4_000 * MS, 2_000 * MS), tick_label(4_100 * MS, 100 * MS)], ["4 s", "4.1 s"]);
}
