//! The engine in random worlds, each made from one seed: settings, files, clients, and a disk, helpers and
//! clocks that can fail in every way.
//!
//! Properties, checked after each turn of the loop if possible:
//!
//! - **answers**: each answers the oldest unanswered request, and it is one state of its file (head and every
//!   byte) or an error with a valid reason ([`oracle`]). Once a state was sent, no later request gets an
//!   older one. A listing is as fresh as its name. A 503 has a `Retry-After`.
//! - **the promise**: if a request is the only one of its connection, its client reads, and its answer is in
//!   memory, it is answered in the turn in which its last byte arrives. Jobs end in later turns and no call
//!   of the machine blocks, so the answer cannot have waited for the disk. An answer counts as in memory if a
//!   cached look-up finds the name and the file is resident and has never changed, or if the file was sent
//!   before and every block of it is in the store. A file larger than the bound of a turn has one more turn
//!   for each such amount.
//! - **streams**: on a connection with several concurrent requests, an answer that is in memory is sent
//!   within the turns that its frames take, whatever the others wait for. Half of these connections speak HTTP/2 ([`h2`]).
//! - **cut**: a connection is closed without an answer only for a reason: the client closed it, a timeout, a
//!   change of the file, a failed or lost job for this file or path, a clock jump, or a drain.
//! - **announced**: an encrypted connection is not closed in the middle of a record or without notice, unless its place is
//!   needed or its client does not read. Half of the runs have such connections, and all other properties hold for them.
//! - **records**: a record is sent completely as soon as there is room.
//! - **bytes per turn**, **fairness**, **connections**, **bounds**: nothing exceeds its bound, including jobs
//!   in total and per client, input, and bytes loaded ahead of a client.
//! - **turns of sites**: if two sites wait for helpers, neither has two jobs started before one of the other.
//! - **least rate**: a client that reads nothing is closed.
//! - **jobs**, **sockets**, **leaks**: nothing outlives its owner; at the end not even the engine's files are
//!   open.
//! - **timeouts**, **timers**: every deadline is handled in time, including that of a slowly arriving head,
//!   and no timer is left over.
//! - **progress**, **rest**: once the disk works again, every client is answered and then nothing happens any
//!   more.
//! - **uplink rate**, **work**, **starvation**, **places**, **answers**: of worlds with an uplink of known
//!   rate ([`uplink`]).
//! - **admission**, **overload**: of worlds with more connections than there is room for ([`newcomers`]).
//! - **watched**: the watcher of the files ([`watcher`]) is late, loses events, tells them in another order and tells some
//!   that did not happen; all properties above hold for names that are used without checks, and each leads to what was there at
//!   the time until which the keeper knows all changes.
//! - **concurrency**, **bandwidth**: of runs in which a rule bounds the requests of a site ([`bounded`]).
//! - **relay …**: of worlds with routes to applications ([`relays`]).
//! - **determinism**: a second run has the same events and calls. Only two hashes of the engine differ: that of
//!   names, which orders nothing, and that of request heads, which decides only whether a hit is parsed again.
//!
//! `FLASH_SEEDS=N` runs this many seeds; `FLASH_SEED=S` runs one and prints its trace. `.ci/faults` applies
//! each patch of `faults/` to show that these properties can fail.

mod ask;
mod bounded;
mod client;
mod disk;
mod h2;
#[path = "../machine/mod.rs"]
#[expect(dead_code, unused_imports, reason = "the other test target uses the rest")]
mod machine;
mod newcomers;
mod oracle;
mod plan;
mod properties;
mod relays;
mod rng;
mod run;
mod rush;
mod sibling;
mod stored;
mod troubles;
mod uplink;
mod visitors;
mod watcher;

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use run::Run;

const SEEDS: u64 = 2_000;
/// One in this many seeds is run twice, to compare both runs.
const TWICE: u64 = 20;

/// The result of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    hash: u64,
    turns: u64,
    answers: u64,
    promises: u64,
}

fn run(seed: u64, print: bool) -> Result<Tally, String> {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut run = Run::new(seed);
        run.machine.trace.print = print;
        let mut tally = run.run();
        if seed.is_multiple_of(uplink::ONE_IN) {
            tally.hash ^= uplink::run(seed);
        }
        if (seed + 1).is_multiple_of(newcomers::ONE_IN) {
            tally.hash ^= newcomers::run(seed);
        }
        if seed.is_multiple_of(relays::ONE_IN) {
            tally.hash ^= relays::run(seed, print);
        }
        tally
    }));
    result.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        if text.starts_with("property: ") {
            text.to_owned()
        } else {
            format!("property: assertions of the machine and the clients: {text}")
        }
    })
}

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

fn fail(seed: u64, why: &str) -> ! {
    panic!("seed {seed}: {why}\nreplay: FLASH_SEED={seed} cargo test -p flash-engine --test simulation");
}

/// Runs all seeds, or one.
#[test]
fn every_run_keeps_every_property() {
    if let Some(seed) = number("FLASH_SEED") {
        match run(seed, true) {
            Ok(tally) => return println!("seed {seed}: {tally:?}"),
            Err(why) => fail(seed, &why),
        }
    }
    let seeds = number("FLASH_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(0);
    let worst = Mutex::new((u64::MAX, String::new()));
    let sum = Mutex::new(Tally::default());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds || seed > worst.lock().unwrap().0 {
                        return;
                    }
                    let mut result = run(seed, false);
                    if let (0, Ok(first)) = (seed % TWICE, &result)
                        && run(seed, false).as_ref() != Ok(first)
                    {
                        result = Err("property: determinism: a second run differs".into());
                    }
                    match result {
                        Ok(tally) => {
                            let mut sum = sum.lock().unwrap();
                            sum.turns += tally.turns;
                            sum.answers += tally.answers;
                            sum.promises += tally.promises;
                        }
                        Err(why) => {
                            let mut worst = worst.lock().unwrap();
                            if seed < worst.0 {
                                *worst = (seed, why);
                            }
                        }
                    }
                }
            });
        }
    });
    let (seed, why) = worst.into_inner().unwrap();
    if seed != u64::MAX {
        fail(seed, &why);
    }
    let sum = sum.into_inner().unwrap();
    println!(
        "{seeds} seeds: {} turns, {} answers, {} of them due at once",
        sum.turns, sum.answers, sum.promises
    );
    assert!(seeds < 100 || sum.promises > seeds, "too few answers were due at once: {sum:?}");
}
