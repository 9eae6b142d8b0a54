//! Tests of the job queue alone: joining, order, shares, deadlines.

use proptest::prelude::*;

use super::*;
use crate::limits::{JOBS_AHEAD_MAX, LOAD_BYTES, QUEUE_PENALTY_MS_MAX, QUEUE_UNASKED_MS};
use crate::machine::Task;

fn wanted(site: u16, path: &[u8], urgency: Urgency) -> Wanted<(), ()> {
    let site = SiteId(site);
    let task = Task::Find { site, path: path.into() };
    Wanted { key: JobKey::Find(site, path.into()), task, urgency, subject: None, remaining_bytes: 0 }
}

/// A job for an answer of which `blocks` remain.
fn wanted_of(path: &[u8], urgency: Urgency, blocks: u64) -> Wanted<(), ()> {
    Wanted { remaining_bytes: blocks * LOAD_BYTES, ..wanted(0, path, urgency) }
}

fn submit(jobs: &mut Jobs<(), ()>, path: &[u8], waiter: Option<Waiter>) -> Result<JobId, NoRoom> {
    jobs.submit(wanted(0, path, Urgency::Bounded), waiter, 0)
}

/// A queue whose jobs have 100 ms each and can wait any time for a helper.
fn jobs(helpers_max: usize, roots: Vec<usize>) -> Jobs<(), ()> {
    Jobs::new(Patience { job_ms: 100, queue_ms: 0 }, helpers_max, roots)
}

/// A queue with long deadlines that refuses requests whose expected wait exceeds `queue_ms`.
fn bounded(queue_ms: u64, helpers_max: usize) -> Jobs<(), ()> {
    Jobs::new(Patience { job_ms: 3_600_000, queue_ms }, helpers_max, vec![0])
}

/// Exchanges of two clients.
fn waiters() -> [Waiter; 2] {
    let mut slab = Slab::new();
    [0, 1].map(|client| Waiter { exchange: ExchangeKey(slab.insert(())), client: ClientNumber(client) })
}

#[test]
fn jobs_for_the_same_file_are_joined() {
    let (mut jobs, [a, b]) = (jobs(2, vec![0]), waiters());
    let first = submit(&mut jobs, b"/x", Some(a));
    assert_eq!(submit(&mut jobs, b"/x", Some(b)), first);
    assert_eq!(submit(&mut jobs, b"/x", Some(b)), first);
    assert_eq!(jobs.queued_len(), 1);
    assert_eq!(jobs.take(first.expect("queued")).expect("there").waiters, [a.exchange, b.exchange].into());
}

#[test]
fn a_queued_job_without_waiters_is_dropped_and_a_running_one_is_not() {
    let (mut jobs, [a, b]) = (jobs(2, vec![0]), waiters());
    let first = submit(&mut jobs, b"/x", Some(a)).expect("room");
    let second = submit(&mut jobs, b"/y", Some(b)).expect("room");
    jobs.started(first, 200);
    jobs.leave(first, a.exchange);
    jobs.leave(second, b.exchange);
    assert!(jobs.is_running(first));
    assert_eq!((jobs.queued_len(), jobs.running_len()), (0, 1));
    assert!(jobs.take(second).is_none());
}

#[test]
fn a_job_queued_without_waiters_is_kept() {
    let (mut jobs, [a, _]) = (jobs(2, vec![0]), waiters());
    let id = submit(&mut jobs, b"/x", None).expect("room");
    submit(&mut jobs, b"/x", Some(a)).expect("joined");
    jobs.leave(id, a.exchange);
    assert_eq!(jobs.queued_len(), 1);
}

#[test]
fn the_queue_is_bounded() {
    let mut jobs = jobs(2, vec![0]);
    for n in 0..JOBS_QUEUED_MAX {
        assert!(submit(&mut jobs, n.to_string().as_bytes(), None).is_ok());
    }
    assert!(submit(&mut jobs, b"one more", None).is_err());
    assert!(submit(&mut jobs, b"0", None).is_ok(), "joining a job needs no room");
    assert!(jobs.submit(wanted(0, b"under way", Urgency::UnderWay), None, 0).is_ok());
}

#[test]
fn requests_and_jobs_ahead_of_them_leave_each_other_room() {
    let mut jobs = jobs(2, vec![0]);
    let ask = |jobs: &mut Jobs<(), ()>, urgency, n: usize| {
        jobs.submit(wanted(0, format!("{urgency:?} {n}").as_bytes(), urgency), None, 0).is_ok()
    };
    for (urgency, most) in [(Urgency::Ahead, JOBS_AHEAD_MAX), (Urgency::Bounded, JOBS_QUEUED_MAX)] {
        assert!((0..most).all(|n| ask(&mut jobs, urgency, n)), "{urgency:?}");
        assert!(!ask(&mut jobs, urgency, most), "{urgency:?}");
    }
    let first = jobs.next_startable().expect("a job").0;
    assert_eq!(jobs.take(first).map(|job| job.urgency), Some(Urgency::Ahead), "it came first");
    assert!(!ask(&mut jobs, Urgency::Bounded, JOBS_QUEUED_MAX));
    assert!(ask(&mut jobs, Urgency::Ahead, JOBS_AHEAD_MAX));
}

#[test]
fn one_client_does_not_fill_the_queue() {
    let (mut jobs, [a, b]) = (jobs(2, vec![0]), waiters());
    let ask =
        |jobs: &mut Jobs<(), ()>, n: usize, waiter| submit(jobs, n.to_string().as_bytes(), Some(waiter));
    for n in 0..JOBS_PER_CLIENT_MAX {
        assert!(ask(&mut jobs, n, a).is_ok());
    }
    assert!(ask(&mut jobs, JOBS_PER_CLIENT_MAX, a).is_err());
    assert!(ask(&mut jobs, 0, a).is_ok(), "joining a job needs no room");
    let of_another = ask(&mut jobs, JOBS_PER_CLIENT_MAX, b).expect("another client has room");
    jobs.take(of_another);
    let first = ask(&mut jobs, 0, a).expect("joined");
    jobs.take(first);
    assert!(ask(&mut jobs, JOBS_PER_CLIENT_MAX, a).is_ok(), "a finished job does not count");
}

#[test]
fn the_deadline_runs_in_the_queue_and_starts_again_at_the_helper() {
    let mut jobs = jobs(2, vec![0]);
    let id = submit(&mut jobs, b"/x", None).expect("room");
    assert_eq!((jobs.next_ms(), jobs.overdue(99), jobs.overdue(100)), (Some(100), None, Some(id)));
    jobs.started(id, 200);
    assert_eq!((jobs.next_ms(), jobs.overdue(299), jobs.overdue(300)), (Some(300), None, Some(id)));
}

#[test]
fn jobs_over_their_roots_share_ask_for_no_helper() {
    let mut jobs = jobs(16, vec![0, 1]);
    let ask = |jobs: &mut Jobs<(), ()>, site: u16, n: u64| {
        let wanted = wanted(site, n.to_string().as_bytes(), Urgency::UnderWay);
        jobs.submit(wanted, None, 0).expect("under way")
    };
    for n in 0..500 {
        ask(&mut jobs, 0, n);
    }
    assert_eq!(jobs.startable_len(), 12);
    while let Some((id, _)) = jobs.next_startable() {
        jobs.started(id, 0);
    }
    assert_eq!((jobs.startable_len(), jobs.running_len()), (0, 12));
    ask(&mut jobs, 1, 500);
    assert_eq!(jobs.startable_len(), 1);
}

/// The path of a job.
fn path_of(job: &Job<(), ()>) -> String {
    match &job.key {
        JobKey::Find(_, path) => String::from_utf8_lossy(path).into_owned(),
        other => panic!("this test queues only Find jobs, not {other:?}"),
    }
}

/// Starts the next job and finishes it `took_ms` later. Returns its path.
fn work_one(jobs: &mut Jobs<(), ()>, now_ms: &mut u64, took_ms: u64) -> Option<String> {
    let id = jobs.next_startable()?.0;
    jobs.started(id, *now_ms);
    *now_ms += took_ms;
    jobs.finish(id, *now_ms).as_ref().map(path_of)
}

/// The paths of all queued jobs in the order in which they start.
fn order(jobs: &mut Jobs<(), ()>) -> Vec<String> {
    let mut now_ms = 0;
    std::iter::from_fn(|| work_one(jobs, &mut now_ms, 0)).collect()
}

/// Runs jobs of `job_ms` each, one after the other. Returns the time at the end.
fn warm_up(jobs: &mut Jobs<(), ()>, waiter: Waiter, count: u64, job_ms: u64) -> u64 {
    let mut now_ms = 0;
    for n in 0..=count {
        jobs.submit(wanted(0, format!("warm {n}").as_bytes(), Urgency::UnderWay), Some(waiter), now_ms)
            .expect("under way");
    }
    while work_one(jobs, &mut now_ms, job_ms).is_some() {}
    now_ms
}

#[test]
fn the_smallest_remaining_answer_comes_first() {
    let (mut jobs, [a, _]) = (bounded(0, 1), waiters());
    let now_ms = warm_up(&mut jobs, a, 200, 100);
    let urgent = Urgency::UnderWay;
    for (path, urgency, blocks, waiter) in [
        ("checked", urgent, 0, None),
        ("ahead", Urgency::Ahead, 1, Some(a)),
        ("huge", urgent, 1_000_000, Some(a)),
        ("ten", urgent, 10, Some(a)),
        ("three", urgent, 3, Some(a)),
        ("one", urgent, 1, Some(a)),
        ("found", urgent, 0, Some(a)),
    ] {
        jobs.submit(wanted_of(path.as_bytes(), urgency, blocks), waiter, now_ms).expect("room");
    }
    // The later job passes only jobs whose penalty exceeds one second.
    jobs.submit(wanted_of(b"later", urgent, 1), Some(a), now_ms + 1_000).expect("room");
    let expected = ["one", "found", "three", "ten", "later", "checked", "ahead", "huge"];
    assert_eq!(order(&mut jobs), expected);
}

#[test]
fn a_job_has_the_best_claim_of_its_requests() {
    let (mut jobs, [a, b]) = (bounded(0, 1), waiters());
    let now_ms = warm_up(&mut jobs, a, 200, 100);
    let urgent = Urgency::UnderWay;
    let mut ask = |path: &str, urgency, blocks, waiter, at_ms| {
        jobs.submit(wanted_of(path.as_bytes(), urgency, blocks), Some(waiter), at_ms).expect("room")
    };
    ask("ahead", Urgency::Ahead, 1, a, now_ms);
    ask("large", urgent, 15, a, now_ms);
    ask("middle", urgent, 10, a, now_ms);
    ask("unlike", urgent, 12, a, now_ms);
    ask("large", urgent, 1, b, now_ms + 500);
    ask("ahead", urgent, 1, b, now_ms + 500);
    // A longer remaining answer of a second request does not move the job back.
    ask("middle", urgent, 1_000, b, now_ms + 500);
    assert_eq!(jobs.queued_len(), 4);
    assert_eq!(order(&mut jobs), ["ahead", "large", "middle", "unlike"]);
}

#[test]
fn a_request_that_has_waited_keeps_its_place() {
    let (mut jobs, [a, _]) = (bounded(0, 1), waiters());
    for n in 0..5 {
        jobs.submit(wanted(0, n.to_string().as_bytes(), Urgency::Bounded), Some(a), 100 + n).expect("room");
    }
    let load = wanted(0, b"load", Urgency::Bounded);
    jobs.submit_since(load, Some(a), 102, 900).expect("room");
    assert_eq!(order(&mut jobs), ["0", "1", "2", "load", "3", "4"]);
}

#[test]
fn no_job_starves_behind_an_endless_stream_of_small_ones() {
    for (urgency, bound_ms) in
        [(Urgency::UnderWay, QUEUE_PENALTY_MS_MAX), (Urgency::Ahead, QUEUE_PENALTY_MS_MAX + QUEUE_UNASKED_MS)]
    {
        let (mut jobs, [a, _]) = (bounded(0, 1), waiters());
        let mut now_ms = warm_up(&mut jobs, a, 200, 10);
        let since_ms = now_ms;
        jobs.submit(wanted_of(b"huge", urgency, 1_000_000), Some(a), now_ms).expect("room");
        // One job comes for every job that is done.
        for n in 0.. {
            let small = wanted_of(n.to_string().as_bytes(), Urgency::UnderWay, 1);
            jobs.submit(small, Some(a), now_ms).expect("under way");
            if work_one(&mut jobs, &mut now_ms, 10).as_deref() == Some("huge") {
                break;
            }
            assert!(now_ms - since_ms <= bound_ms + 20, "the job waited {} ms", now_ms - since_ms);
        }
        assert!(
            now_ms - since_ms > bound_ms / 2,
            "the penalty had no effect: the job waited {} ms",
            now_ms - since_ms
        );
    }
}

#[test]
fn the_earliest_deadline_is_found_in_any_order() {
    let (mut jobs, [a, _]) = (Jobs::new(Patience { job_ms: 100, queue_ms: 0 }, 1, vec![0]), waiters());
    let unasked = submit(&mut jobs, b"unasked", None).expect("room");
    let asked = jobs.submit(wanted(0, b"asked", Urgency::Bounded), Some(a), 10).expect("room");
    assert_eq!(jobs.next_startable().map(|(id, _)| id), Some(asked));
    assert_eq!((jobs.next_ms(), jobs.overdue(99), jobs.overdue(100)), (Some(100), None, Some(unasked)));
    jobs.finish(unasked, 100);
    assert_eq!((jobs.next_ms(), jobs.overdue(109), jobs.overdue(110)), (Some(110), None, Some(asked)));
    jobs.finish(asked, 110);
    assert_eq!((jobs.next_ms(), jobs.overdue(u64::MAX)), (None, None));
}

#[test]
fn a_request_that_would_wait_too_long_is_refused_and_others_are_not() {
    let (mut jobs, [a, b]) = (bounded(1_000, 1), waiters());
    let now_ms = warm_up(&mut jobs, a, 200, 100);
    let ask = |jobs: &mut Jobs<(), ()>, path: &str, urgency| {
        jobs.submit(wanted(0, path.as_bytes(), urgency), Some(a), now_ms)
    };
    for n in 0..=10 {
        assert!(ask(&mut jobs, &n.to_string(), Urgency::Bounded).is_ok(), "{n} are ahead");
    }
    let refused = ask(&mut jobs, "one more", Urgency::Bounded);
    assert_eq!(refused, Err(NoRoom { wait_ms: Some(1_100) }));
    assert_eq!(jobs.count(JobKind::Find).refused_wait, 1);
    assert!(ask(&mut jobs, "10", Urgency::Bounded).is_ok(), "joining a job");
    assert!(ask(&mut jobs, "under way", Urgency::UnderWay).is_ok());
    assert!(jobs.submit(wanted(0, b"unasked", Urgency::Bounded), None, now_ms).is_ok());
    let waited = jobs.submit_since(wanted(0, b"load", Urgency::Bounded), Some(b), now_ms - 500, now_ms);
    assert!(waited.is_ok(), "a request that has waited is not refused");
    assert_eq!((jobs.count(JobKind::Find).refused, jobs.count(JobKind::Find).refused_wait), (0, 1));
}

#[test]
fn a_burst_after_idling_is_judged_by_the_old_pace_and_soon_by_its_own() {
    let (mut jobs, [a, _]) = (bounded(1_000, 1), waiters());
    let mut now_ms = warm_up(&mut jobs, a, 200, 100) + 3_600_000;
    let burst = |jobs: &mut Jobs<(), ()>, now_ms: u64, name: &str| {
        let ask =
            |n| jobs.submit(wanted(0, format!("{name} {n}").as_bytes(), Urgency::Bounded), Some(a), now_ms);
        (0..JOBS_PER_CLIENT_MAX).map(ask).filter(Result::is_ok).count()
    };
    assert_eq!(burst(&mut jobs, now_ms, "first"), 11);
    // The disk is a hundred times faster now, so each burst can be longer than the one before.
    let mut accepted = Vec::new();
    for round in 0..20 {
        while work_one(&mut jobs, &mut now_ms, 1).is_some() {}
        now_ms += 60_000;
        accepted.push(burst(&mut jobs, now_ms, &round.to_string()));
    }
    assert_eq!(accepted.last(), Some(&JOBS_PER_CLIENT_MAX), "{accepted:?}");
}

/// An event in the life of jobs. Numbers are taken modulo the number of jobs.
#[derive(Clone, Debug)]
enum Step {
    Submit { site: u16, path: u8, waiter: Option<usize>, urgency: Urgency, blocks: u64 },
    Pass { ms: u64 },
    Leave { job: usize, waiter: usize },
    LeaveAll { waiter: usize },
    Start,
    Take { job: usize },
    GiveUp { job: usize },
    Gone { job: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let any = 0usize..1000;
    let urgency = prop_oneof![Just(Urgency::Bounded), Just(Urgency::UnderWay), Just(Urgency::Ahead)];
    prop_oneof![
        8 => (0u16..4, 0u8..9, proptest::option::of(0usize..2), urgency, 0u64..50)
            .prop_map(|(site, path, waiter, urgency, blocks)| {
                Step::Submit { site, path, waiter, urgency, blocks }
            }),
        4 => (1u64..3_000).prop_map(|ms| Step::Pass { ms }),
        4 => (any.clone(), 0usize..2).prop_map(|(job, waiter)| Step::Leave { job, waiter }),
        1 => (0usize..2).prop_map(|waiter| Step::LeaveAll { waiter }),
        6 => Just(Step::Start),
        3 => any.clone().prop_map(|job| Step::Take { job }),
        2 => any.clone().prop_map(|job| Step::GiveUp { job }),
        2 => any.prop_map(|job| Step::Gone { job }),
    ]
}

fn pick(ids: &[JobId], number: usize) -> Option<JobId> {
    ids.get(number.checked_rem(ids.len())?).copied()
}

/// Asserts that the bookkeeping agrees with the jobs that exist.
fn check(jobs: &Jobs<(), ()>) {
    let of = |root: usize, running: bool| {
        jobs.jobs
            .keys()
            .filter_map(|key| jobs.jobs.get(key))
            .filter(move |job| job.root == root && (job.state == JobState::Running) == running)
    };
    for root in 0..jobs.queues.len() {
        let given_up = jobs.given_up.iter().filter(|(_, r)| *r == root).count();
        assert_eq!(jobs.helper_shares.held(root), of(root, true).count() + given_up);
        let ahead = of(root, false).filter(|job| job.urgency == Urgency::Ahead).count();
        assert_eq!(jobs.ahead_shares.held(root), ahead);
        assert_eq!(jobs.queue_shares.held(root), of(root, false).count() - ahead);
        assert_eq!(jobs.queues[root].len(), of(root, false).count());
        let mut places: Vec<Rank> = of(root, false).map(|job| job.place).collect();
        places.sort_unstable();
        let queued: Vec<Rank> = jobs.queues[root].places().collect();
        assert_eq!(queued, places, "the queue is in order, and each job knows its place");
        let turns = jobs.turns.iter().filter(|turn| **turn == root).count();
        assert_eq!(turns, usize::from(!jobs.queues[root].is_empty()));
    }
    let deadlines = |job: &Job<(), ()>| (job.state != JobState::Running).then_some(job.deadline_ms);
    let mut queued: Vec<u64> =
        jobs.jobs.keys().filter_map(|key| jobs.jobs.get(key)).filter_map(deadlines).collect();
    queued.sort_unstable();
    let noted: Vec<u64> = jobs.deadlines.iter().map(|(deadline_ms, _)| *deadline_ms).collect();
    assert_eq!(noted, queued);
    for client in [0, 1].map(ClientNumber) {
        let theirs =
            jobs.jobs.keys().filter_map(|key| jobs.jobs.get(key)).filter(|job| job.client == Some(client));
        assert_eq!(jobs.of_clients.get(&client).copied().unwrap_or(0), theirs.count());
    }
}

proptest::proptest! {
    #[test]
    fn shares_are_neither_lost_nor_held_twice(
        steps in proptest::collection::vec(step(), 0..300),
        helpers_max in 1usize..8,
    ) {
        let waiters = waiters();
        let mut jobs: Jobs<(), ()> = jobs(helpers_max, vec![0, 1, 0, 2]);
        let (mut running_max, mut now_ms) = (0, 0);
        for step in steps {
            let all: Vec<JobId> = jobs.jobs.keys().map(JobId).collect();
            match step {
                Step::Submit { site, path, waiter, urgency, blocks } => {
                    let waiter = waiter.map(|n| waiters[n]);
                    let wanted = Wanted {
                        remaining_bytes: blocks * LOAD_BYTES,
                        ..wanted(site, &[path], urgency)
                    };
                    let _ = jobs.submit(wanted, waiter, now_ms);
                }
                Step::Pass { ms } => now_ms += ms,
                Step::Leave { job, waiter } => {
                    pick(&all, job).into_iter().for_each(|id| jobs.leave(id, waiters[waiter].exchange));
                }
                Step::LeaveAll { waiter } => jobs.leave_all(waiters[waiter].exchange),
                Step::Start => {
                    if let Some(id) = jobs.next_startable().map(|(id, _)| id) {
                        assert!(jobs.startable_len() > 0);
                        jobs.started(id, now_ms);
                    } else {
                        assert_eq!(jobs.startable_len(), 0);
                    }
                }
                Step::Take { job } => drop(pick(&all, job).and_then(|id| jobs.finish(id, now_ms))),
                Step::GiveUp { job } => {
                    if let Some(id) = pick(&jobs.running.clone(), job) {
                        jobs.give_up(id);
                        jobs.finish(id, now_ms);
                    }
                }
                Step::Gone { job } => {
                    let given_up: Vec<JobId> = jobs.given_up.iter().map(|(id, _)| *id).collect();
                    pick(&given_up, job).into_iter().for_each(|id| jobs.helper_gone(id));
                }
            }
            check(&jobs);
            running_max = running_max.max(jobs.running_len());
        }
        assert!(running_max <= helpers_max);
    }
}
