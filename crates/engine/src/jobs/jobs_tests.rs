//! Tests of the jobs by themselves: joined, queued, shared out, given up.

use proptest::prelude::*;

use super::*;

fn wanted(site: u16, path: &[u8], urgency: Urgency) -> Wanted<(), ()> {
    let site = SiteId(site);
    let task = Task::Find { site, path: path.into() };
    Wanted { key: JobKey::Find(site, path.into()), task, urgency, subject: None }
}

fn submit(jobs: &mut Jobs<(), ()>, path: &[u8], waiter: Option<Waiter>) -> Option<JobId> {
    jobs.submit(wanted(0, path, Urgency::Bounded), waiter, 0)
}

/// Exchanges of two clients.
fn waiters() -> [Waiter; 2] {
    let mut slab = Slab::new();
    [0, 1].map(|client| Waiter { exchange: ExchangeKey(slab.insert(())), client: ClientNumber(client) })
}

#[test]
fn jobs_for_the_same_file_are_joined() {
    let (mut jobs, [a, b]) = (Jobs::new(100, 2, vec![0]), waiters());
    let first = submit(&mut jobs, b"/x", Some(a));
    assert_eq!(submit(&mut jobs, b"/x", Some(b)), first);
    assert_eq!(submit(&mut jobs, b"/x", Some(b)), first);
    assert_eq!(jobs.queued_len(), 1);
    assert_eq!(jobs.take(first.expect("queued")).expect("there").waiters, [a.exchange, b.exchange].into());
}

#[test]
fn a_queued_job_that_nobody_waits_for_is_dropped_and_a_running_one_is_not() {
    let (mut jobs, [a, b]) = (Jobs::new(100, 2, vec![0]), waiters());
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
fn an_unasked_job_is_kept() {
    let (mut jobs, [a, _]) = (Jobs::new(100, 2, vec![0]), waiters());
    let id = submit(&mut jobs, b"/x", None).expect("room");
    submit(&mut jobs, b"/x", Some(a));
    jobs.leave(id, a.exchange);
    assert_eq!(jobs.queued_len(), 1);
}

#[test]
fn the_queue_is_bounded() {
    let mut jobs = Jobs::new(100, 2, vec![0]);
    for n in 0..JOBS_QUEUED_MAX {
        assert!(submit(&mut jobs, n.to_string().as_bytes(), None).is_some());
    }
    assert!(submit(&mut jobs, b"one more", None).is_none());
    assert!(submit(&mut jobs, b"0", None).is_some(), "joining needs no room");
    assert!(jobs.submit(wanted(0, b"under way", Urgency::UnderWay), None, 0).is_some());
}

#[test]
fn one_client_does_not_fill_the_queue() {
    let (mut jobs, [a, b]) = (Jobs::new(100, 2, vec![0]), waiters());
    let ask =
        |jobs: &mut Jobs<(), ()>, n: usize, waiter| submit(jobs, n.to_string().as_bytes(), Some(waiter));
    for n in 0..JOBS_PER_CLIENT_MAX {
        assert!(ask(&mut jobs, n, a).is_some());
    }
    assert!(ask(&mut jobs, JOBS_PER_CLIENT_MAX, a).is_none());
    assert!(ask(&mut jobs, 0, a).is_some(), "joining needs no room");
    let of_another = ask(&mut jobs, JOBS_PER_CLIENT_MAX, b).expect("another client has room");
    jobs.take(of_another);
    let first = ask(&mut jobs, 0, a).expect("joined");
    jobs.take(first);
    assert!(ask(&mut jobs, JOBS_PER_CLIENT_MAX, a).is_some(), "a finished job counts no more");
}

#[test]
fn deadlines_run_in_the_queue_and_again_at_the_helper() {
    let mut jobs = Jobs::new(100, 2, vec![0]);
    let id = submit(&mut jobs, b"/x", None).expect("room");
    assert_eq!((jobs.next_ms(), jobs.overdue(99), jobs.overdue(100)), (Some(100), None, Some(id)));
    jobs.started(id, 200);
    assert_eq!((jobs.next_ms(), jobs.overdue(299), jobs.overdue(300)), (Some(300), None, Some(id)));
}

#[test]
fn jobs_over_their_roots_share_ask_for_no_helper() {
    let mut jobs = Jobs::new(100, 16, vec![0, 1]);
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

/// An event in the life of jobs. Numbers are taken modulo the jobs that there are.
#[derive(Clone, Debug)]
enum Step {
    Submit { site: u16, path: u8, waiter: Option<usize> },
    Leave { job: usize, waiter: usize },
    LeaveAll { waiter: usize },
    Start,
    Take { job: usize },
    GiveUp { job: usize },
    Gone { job: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let any = 0usize..1000;
    prop_oneof![
        8 => (0u16..4, 0u8..9, proptest::option::of(0usize..2))
            .prop_map(|(site, path, waiter)| Step::Submit { site, path, waiter }),
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

/// The books agree with the jobs that there are.
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
        assert_eq!(jobs.queue_shares.held(root), of(root, false).count());
        assert_eq!(jobs.queues[root].len(), of(root, false).count());
        let turns = jobs.turns.iter().filter(|turn| **turn == root).count();
        assert_eq!(turns, usize::from(!jobs.queues[root].is_empty()));
    }
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
        let mut jobs: Jobs<(), ()> = Jobs::new(100, helpers_max, vec![0, 1, 0, 2]);
        let mut running_max = 0;
        for step in steps {
            let all: Vec<JobId> = jobs.jobs.keys().map(JobId).collect();
            match step {
                Step::Submit { site, path, waiter } => {
                    let waiter = waiter.map(|n| waiters[n]);
                    jobs.submit(wanted(site, &[path], Urgency::Bounded), waiter, 0);
                }
                Step::Leave { job, waiter } => {
                    pick(&all, job).into_iter().for_each(|id| jobs.leave(id, waiters[waiter].exchange));
                }
                Step::LeaveAll { waiter } => jobs.leave_all(waiters[waiter].exchange),
                Step::Start => {
                    if let Some(id) = jobs.next_startable().map(|(id, _)| id) {
                        assert!(jobs.startable_len() > 0);
                        jobs.started(id, 0);
                    } else {
                        assert_eq!(jobs.startable_len(), 0);
                    }
                }
                Step::Take { job } => drop(pick(&all, job).and_then(|id| jobs.take(id))),
                Step::GiveUp { job } => {
                    if let Some(id) = pick(&jobs.running.clone(), job) {
                        jobs.give_up(id);
                        jobs.take(id);
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
