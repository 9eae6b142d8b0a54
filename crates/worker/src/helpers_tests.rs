//! Tests of helpers whose other ends the test holds.

use std::io::IoSlice;
use std::time::{Duration, Instant};

use flash_engine::SiteId;
use flash_prompt::epoll::Ready;
use flash_prompt::mechanism::{Awaited, MechanismKind};

use super::*;
use crate::control::{CHANNEL_BYTES, receive_notice};

const TOKEN: u64 = 9;

fn rules(kind: HelperKind) -> HelperRules {
    HelperRules { kind, helpers_max: 2, idle_ms: 1_000 }
}

fn task() -> Task<SiteFile> {
    Task::Find { site: SiteId(0), path: (*b"/x").into() }
}

/// Makes helpers with one, number 7. Also returns the supervisor's end and the helper's end.
fn with_one(events: &mut Mechanism) -> (Helpers, OwnedFd, OwnedFd) {
    let (supervisor, ours) = channel::pair(CHANNEL_BYTES).expect("a pair");
    let (helper, channel) = channel::pair(CHANNEL_BYTES).expect("a pair");
    channel::set_nonblocking(&supervisor).expect("a flag set");
    let mut helpers = Helpers::new(rules(HelperKind::Processes), ours);
    assert!(helpers.add(events, TOKEN, 7, channel));
    (helpers, supervisor, helper)
}

#[track_caller]
fn wait_for_event(events: &mut Mechanism) {
    let started = Instant::now();
    let mut ready = Vec::new();
    while ready.iter().all(|ready: &Ready| ready.token != TOKEN) {
        assert!(started.elapsed() < Duration::from_secs(15), "the helper's channel reports no event");
        events.wait(Some(100), |_| Some(Awaited::INPUT), &mut ready).expect("a wait");
    }
}

#[test]
fn the_end_of_an_abandoned_helper_is_reported_with_its_job() {
    let mut events = Mechanism::new(MechanismKind::Epoll, 8).expect("a mechanism");
    let (mut helpers, supervisor, helper) = with_one(&mut events);
    let job = JobId::from_u64(5);
    assert!(helpers.start(job, &task(), 1, None));
    helpers.abandon(job);
    assert_eq!(receive_notice(&supervisor).expect("a notice"), Notice::EndHelper(7));
    assert!(matches!(helpers.receive(7), HelperEvent::Nothing));
    // The helper notices that it was given up, even if it is not killed.
    let (mut bytes, mut none) = (vec![0; MESSAGE_BYTES_MAX], Vec::new());
    assert!(channel::recv(&helper, &mut bytes, &mut none).expect("its task") > 0);
    assert_eq!(channel::recv(&helper, &mut bytes, &mut none).expect("the end"), 0);
    // A late answer is not a result.
    channel::send(&helper, &[IoSlice::new(b"late")], &[]).expect("sent");
    wait_for_event(&mut events);
    assert!(matches!(helpers.receive(7), HelperEvent::Nothing));
    drop(helper);
    wait_for_event(&mut events);
    assert!(matches!(helpers.receive(7), HelperEvent::AbandonedGone(id) if id == job));
    assert!(matches!(helpers.receive(7), HelperEvent::Nothing), "once");
}

#[test]
fn the_end_of_an_abandoned_helper_with_an_unread_task_is_reported_too() {
    let mut events = Mechanism::new(MechanismKind::Epoll, 8).expect("a mechanism");
    let (mut helpers, _supervisor, helper) = with_one(&mut events);
    let job = JobId::from_u64(5);
    assert!(helpers.start(job, &task(), 1, None));
    helpers.abandon(job);
    drop(helper);
    wait_for_event(&mut events);
    assert!(matches!(helpers.receive(7), HelperEvent::AbandonedGone(id) if id == job));
}

#[test]
fn an_abandoned_helper_leaves_room_for_another() {
    let mut events = Mechanism::new(MechanismKind::Epoll, 8).expect("a mechanism");
    let (mut helpers, supervisor, _helper) = with_one(&mut events);
    let [first, second] = [5, 6].map(JobId::from_u64);
    assert!(helpers.start(first, &task(), 1, None));
    helpers.abandon(first);
    for _ in 0..3 {
        assert!(!helpers.start(second, &task(), 2, None));
    }
    let notices: Vec<Notice> = std::iter::from_fn(|| receive_notice(&supervisor).ok()).collect();
    assert_eq!(notices, [Notice::EndHelper(7), Notice::WantHelper, Notice::WantHelper]);
}

#[test]
fn a_helper_that_could_not_be_started_is_requested_again_after_a_pause() {
    let (supervisor, ours) = channel::pair(CHANNEL_BYTES).expect("a pair");
    channel::set_nonblocking(&supervisor).expect("a flag set");
    let mut helpers = Helpers::new(rules(HelperKind::Processes), ours);
    helpers.keep_house(5_000);
    let asks = |helpers: &mut Helpers| {
        assert!(!helpers.start(JobId::from_u64(5), &task(), 1, None));
        receive_notice(&supervisor).is_ok_and(|notice| notice == Notice::WantHelper)
    };
    assert!(asks(&mut helpers));
    helpers.not_started();
    assert!(!asks(&mut helpers) && helpers.needs_housekeeping());
    helpers.keep_house(5_000 + ASK_AGAIN_MS - 1);
    assert!(!asks(&mut helpers) && helpers.needs_housekeeping());
    helpers.keep_house(5_000 + ASK_AGAIN_MS);
    assert!(asks(&mut helpers) && !helpers.needs_housekeeping());
}

#[test]
fn threads_are_neither_requested_nor_ended_and_take_jobs_again() {
    let mut events = Mechanism::new(MechanismKind::Epoll, 8).expect("a mechanism");
    let (mut helpers, supervisor, helper) = with_one(&mut events);
    helpers.kind = HelperKind::Threads;
    helpers.keep_house(1_000_000);
    assert!(helpers.has(7) && !helpers.needs_housekeeping());
    let [first, second] = [5, 6].map(JobId::from_u64);
    assert!(helpers.start(first, &task(), 1, None));
    helpers.abandon(first);
    assert!(helpers.has(7) && !helpers.start(second, &task(), 1, None), "the helper is not idle");
    assert!(receive_notice(&supervisor).is_err(), "the supervisor gets no notice");
    assert!(matches!(helpers.receive(7), HelperEvent::Nothing));
    channel::send(&helper, &[IoSlice::new(b"late")], &[]).expect("sent");
    wait_for_event(&mut events);
    assert!(matches!(helpers.receive(7), HelperEvent::AbandonedGone(id) if id == first));
    assert!(matches!(helpers.receive(7), HelperEvent::Nothing), "once");
    assert!(helpers.start(second, &task(), 1, None), "the thread takes jobs again");
    drop(helper);
    wait_for_event(&mut events);
    assert!(matches!(helpers.receive(7), HelperEvent::Gone(Some(id)) if id == second));
    assert!(!helpers.has(7));
}

#[test]
fn a_helper_whose_channel_is_full_is_not_considered_dead() {
    let mut events = Mechanism::new(MechanismKind::Epoll, 8).expect("a mechanism");
    let (mut helpers, _supervisor, helper) = with_one(&mut events);
    let filler = [0; 1024];
    let mut sent = 0;
    while channel::send(&helpers.helpers[&7].channel, &[IoSlice::new(&filler)], &[]).is_ok() {
        sent += 1;
    }
    let job = JobId::from_u64(5);
    assert!(!helpers.start(job, &task(), 1, None), "the channel has no room for the job");
    assert!(helpers.has(7), "the helper is kept");
    let mut bytes = vec![0; MESSAGE_BYTES_MAX];
    for _ in 0..sent {
        assert!(channel::recv(&helper, &mut bytes, &mut Vec::new()).expect("a message") > 0);
    }
    assert!(helpers.start(job, &task(), 1, None), "the helper takes the job once its channel has room");
}
