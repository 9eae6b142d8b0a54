//! Helpers whose other ends are in the tests' hands.

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

/// Helpers with one, number 7, and the other ends: the supervisor's and the helper's.
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
        assert!(started.elapsed() < Duration::from_secs(15), "no event of the helper");
        events.wait(Some(100), |_| Some(Awaited::INPUT), &mut ready).expect("a wait");
    }
}

#[test]
fn the_end_of_one_that_was_given_up_is_told_with_its_job_when_it_is_gone() {
    let mut events = Mechanism::new(MechanismKind::Epoll, 8).expect("a mechanism");
    let (mut helpers, supervisor, helper) = with_one(&mut events);
    let job = JobId::from_u64(5);
    assert!(helpers.start(job, &task(), 1, None));
    helpers.abandon(job);
    assert_eq!(receive_notice(&supervisor).expect("a notice"), Notice::EndHelper(7));
    assert!(matches!(helpers.receive(7), Heard::Nothing));
    // It hears that it was given up, should it not be killed.
    let (mut bytes, mut none) = (vec![0; MESSAGE_BYTES_MAX], Vec::new());
    assert!(channel::recv(&helper, &mut bytes, &mut none).expect("its task") > 0);
    assert_eq!(channel::recv(&helper, &mut bytes, &mut none).expect("the end"), 0);
    // What it says too late is no outcome.
    channel::send(&helper, &[IoSlice::new(b"late")], &[]).expect("sent");
    wait_for_event(&mut events);
    assert!(matches!(helpers.receive(7), Heard::Nothing));
    drop(helper);
    wait_for_event(&mut events);
    assert!(matches!(helpers.receive(7), Heard::AbandonedGone(id) if id == job));
    assert!(matches!(helpers.receive(7), Heard::Nothing), "once");
}

#[test]
fn one_that_was_given_up_with_its_task_unread_is_told_too() {
    let mut events = Mechanism::new(MechanismKind::Epoll, 8).expect("a mechanism");
    let (mut helpers, _supervisor, helper) = with_one(&mut events);
    let job = JobId::from_u64(5);
    assert!(helpers.start(job, &task(), 1, None));
    helpers.abandon(job);
    drop(helper);
    wait_for_event(&mut events);
    assert!(matches!(helpers.receive(7), Heard::AbandonedGone(id) if id == job));
}

#[test]
fn one_that_was_given_up_leaves_room_for_another() {
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
fn one_that_could_not_be_started_is_asked_for_again_after_a_pause() {
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
fn threads_are_not_asked_for_nor_let_go_and_come_back() {
    let mut events = Mechanism::new(MechanismKind::Epoll, 8).expect("a mechanism");
    let (mut helpers, supervisor, helper) = with_one(&mut events);
    helpers.kind = HelperKind::Threads;
    helpers.keep_house(1_000_000);
    assert!(helpers.has(7) && !helpers.needs_housekeeping());
    let [first, second] = [5, 6].map(JobId::from_u64);
    assert!(helpers.start(first, &task(), 1, None));
    helpers.abandon(first);
    assert!(helpers.has(7) && !helpers.start(second, &task(), 1, None), "it is not idle");
    assert!(receive_notice(&supervisor).is_err(), "nobody is told");
    assert!(matches!(helpers.receive(7), Heard::Nothing));
    channel::send(&helper, &[IoSlice::new(b"late")], &[]).expect("sent");
    wait_for_event(&mut events);
    assert!(matches!(helpers.receive(7), Heard::AbandonedGone(id) if id == first));
    assert!(matches!(helpers.receive(7), Heard::Nothing), "once");
    assert!(helpers.start(second, &task(), 1, None), "it takes work again");
    drop(helper);
    wait_for_event(&mut events);
    assert!(matches!(helpers.receive(7), Heard::Gone(Some(id)) if id == second));
    assert!(!helpers.has(7));
}

#[test]
fn a_helper_whose_channel_is_full_is_not_taken_for_dead() {
    let mut events = Mechanism::new(MechanismKind::Epoll, 8).expect("a mechanism");
    let (mut helpers, _supervisor, helper) = with_one(&mut events);
    let filler = [0; 1024];
    let mut sent = 0;
    while channel::send(&helpers.helpers[&7].channel, &[IoSlice::new(&filler)], &[]).is_ok() {
        sent += 1;
    }
    let job = JobId::from_u64(5);
    assert!(!helpers.start(job, &task(), 1, None), "there is no room for the job");
    assert!(helpers.has(7), "the helper is there still");
    let mut bytes = vec![0; MESSAGE_BYTES_MAX];
    for _ in 0..sent {
        assert!(channel::recv(&helper, &mut bytes, &mut Vec::new()).expect("a message") > 0);
    }
    assert!(helpers.start(job, &task(), 1, None), "it takes the job once there is room");
}
