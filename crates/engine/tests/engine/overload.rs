//! Overload of the disk: requests that would wait too long are refused at once, the others wait no longer
//! than the bound, hits are not affected, and small answers do not wait for large ones.

use crate::machine::{Client, Content, MIB, World, rules};
use flash_engine::limits::{QUEUE_PENALTY_MS_MAX, RETRY_AFTER_S_MAX};
use flash_engine::{JobKind, Rules};

const HELPERS: usize = 16;
const BOUND_MS: u64 = 5_000;

/// A world whose disk finishes one job every `gap_ms`, in the order in which the jobs were started.
struct Slow {
    world: World,
    gap_ms: u64,
    next_ms: u64,
}

impl Slow {
    fn new(gap_ms: u64, queue_wait_ms: u64) -> Self {
        let mut world = World::with(Rules { helpers_max: HELPERS, queue_wait_ms, ..rules() });
        world.auto = false;
        world.machine.helpers.idle = HELPERS;
        world.machine.files.add("hot", "hot");
        world.get_auto("/hot");
        Self { world, gap_ms, next_ms: 0 }
    }

    fn now_ms(&self) -> u64 {
        self.world.elapsed_ms()
    }

    /// Lets a millisecond pass.
    fn pass(&mut self) {
        self.world.advance(1);
        let now_ms = self.now_ms();
        let Some(id) = self.world.machine.helpers.running.first().map(|(id, _)| *id) else {
            self.next_ms = now_ms + self.gap_ms;
            return;
        };
        if now_ms >= self.next_ms {
            self.next_ms += self.gap_ms;
            self.world.finish(id);
            self.world.run();
        }
    }

    fn ask(&mut self, path: &str) -> Client {
        let client = self.world.connect();
        client.get(path);
        self.world.run();
        client
    }
}

/// How the requests of a run were answered.
#[derive(Debug, Default)]
struct Answers {
    /// The waiting times of the served requests.
    served_ms: Vec<u64>,
    refused: u64,
    retry_after_s: Vec<u64>,
}

/// For a while, sends ten times as many requests as the disk can serve. Every refusal must come at once.
fn overload(slow: &mut Slow, for_ms: u64) -> Answers {
    let (mut waiting, mut answers): (Vec<(u64, Client)>, Answers) = Default::default();
    let hits = slow.world.engine.counters().content_hits;
    let end_ms = slow.now_ms() + for_ms;
    let mut asked = 0;
    while slow.now_ms() < end_ms || !waiting.is_empty() {
        slow.pass();
        let now_ms = slow.now_ms();
        if now_ms < end_ms && now_ms * 10 / slow.gap_ms > asked {
            asked += 1;
            let path = format!("cold{asked}");
            slow.world.machine.files.add_cold(&path, "cold");
            waiting.push((now_ms, slow.ask(&format!("/{path}"))));
        }
        if now_ms.is_multiple_of(100) {
            assert_eq!(slow.world.get("/hot").text(), "hot", "a hit is answered at once");
        }
        waiting.retain(|(since_ms, client)| {
            if client.received_len() == 0 {
                return true;
            }
            let (answer, waited_ms) = (client.take_one(), now_ms - since_ms);
            if answer.status == 200 {
                answers.served_ms.push(waited_ms);
            } else {
                assert_eq!((answer.status, waited_ms, answer.closes()), (503, 0, false));
                answers.refused += 1;
                let seconds = answer.field("Retry-After").and_then(|text| text.parse().ok());
                answers.retry_after_s.push(seconds.expect("the 503 has a Retry-After"));
            }
            client.end();
            false
        });
    }
    assert!(slow.world.engine.counters().content_hits > hits);
    answers
}

#[test]
fn in_overload_no_request_waits_much_longer_than_the_bound_and_the_disk_is_busy() {
    for (gap_ms, for_ms) in [(10, 8_000), (40, 20_000)] {
        let mut slow = Slow::new(gap_ms, BOUND_MS);
        let answers = overload(&mut slow, for_ms);
        let longest_ms = answers.served_ms.iter().max().expect("some requests are served");
        assert!(*longest_ms <= BOUND_MS * 3 / 2, "{longest_ms} ms with {gap_ms} ms a job");
        // A request takes two jobs: a look-up and a load.
        let most = for_ms / gap_ms / 2;
        let served = answers.served_ms.len() as u64;
        assert!(served >= most * 9 / 10, "{served} of {most} that the disk could serve");
        let honest = BOUND_MS / 1_000..=BOUND_MS / 1_000 * 2;
        assert!(answers.retry_after_s.iter().all(|s| honest.contains(s)), "{:?}", answers.retry_after_s);
        let counters = slow.world.engine.counters();
        assert_eq!(counters.jobs_refused(), answers.refused);
        assert_eq!(counters.jobs[JobKind::Find as usize].refused_wait, answers.refused);
        slow.world.end();
    }
}

#[test]
fn without_a_bound_only_a_full_queue_refuses() {
    let mut slow = Slow::new(40, 0);
    let answers = overload(&mut slow, 1_000);
    assert_eq!((answers.refused, slow.world.engine.counters().jobs_refused()), (0, 0));
    assert!(answers.served_ms.iter().any(|ms| *ms > BOUND_MS), "the disk was in overload");
    slow.world.end();
}

#[test]
fn a_hung_disk_is_noticed_at_once() {
    let mut slow = Slow::new(10, BOUND_MS);
    overload(&mut slow, 2_000);
    slow.gap_ms = 3_600_000;
    slow.next_ms = u64::MAX;
    for n in 0..400 {
        slow.world.machine.files.add_cold(&format!("{n}"), "cold");
    }
    let first: Vec<Client> = (0..100).map(|n| slow.ask(&format!("/{n}"))).collect();
    assert!(first.iter().all(|client| client.received_len() == 0), "the first requests are not refused");
    slow.world.advance(BOUND_MS);
    let late: Vec<Client> = (100..400).map(|n| slow.ask(&format!("/{n}"))).collect();
    for client in &late {
        let answer = client.take_one();
        let seconds: u64 = answer.field("Retry-After").and_then(|text| text.parse().ok()).expect("a number");
        assert_eq!(answer.status, 503);
        assert!((BOUND_MS / 1_000..=RETRY_AFTER_S_MAX).contains(&seconds), "{seconds}");
    }
    assert_eq!(slow.world.get("/hot").text(), "hot");
    // The disk works again: waiting requests are served, and new ones too.
    slow.world.auto = true;
    slow.world.run();
    assert!(first.iter().all(|client| client.take_one().status == 200));
    assert_eq!(slow.world.get("/300").status, 200);
    slow.world.end();
}

#[test]
fn a_small_answer_does_not_wait_for_large_ones() {
    let mut slow = Slow::new(50, 0);
    let large: Vec<Client> = (0..60)
        .map(|n| {
            slow.world.machine.files.add_cold(&format!("large{n}"), Content::Pattern(n, 20 * MIB));
            slow.ask(&format!("/large{n}"))
        })
        .collect();
    // Every transfer has waited for the disk and has two more blocks loaded ahead.
    for _ in 0..8_000 {
        slow.pass();
    }
    let queued = slow.world.engine.counters().jobs_queued as u64;
    assert!(queued > 60, "{queued} jobs");
    slow.world.machine.files.add_cold("small", "small");
    let since_ms = slow.now_ms();
    let small = slow.ask("/small");
    while small.received_len() == 0 {
        slow.pass();
    }
    let waited_ms = slow.now_ms() - since_ms;
    let in_turn_ms = queued * slow.gap_ms;
    assert!(waited_ms + QUEUE_PENALTY_MS_MAX / 2 < in_turn_ms, "{waited_ms} of {in_turn_ms} ms");
    assert!(large.iter().all(|client| client.received_len() > 0), "none starves");
    slow.world.end();
}
