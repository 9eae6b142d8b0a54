//! The engine in random worlds, each made from one seed: settings, files, clients, and a disk, helpers
//! and clocks of which everything may go wrong.
//!
//! What is checked, after each turn of the loop where it can be:
//!
//! * **answers**: each is for the oldest request that has no answer yet, and is of one state of its
//!   file, head and every byte, or an error for which there is a reason ([`oracle`]). Once a state was sent, nobody who
//!   asks afterwards is sent an older one; a listing is as fresh as its name; a 503 says when to try again.
//! * **the promise**: a request that is the only one of its connection, from a client that reads, whose
//!   answer is in memory, is answered in the turn in which its last byte arrives. Jobs end in later
//!   turns, and no call of the machine waits, so such an answer cannot have come from the disk. In memory
//!   are names that a cached look-up finds with a file that is resident, never changed before; and
//!   without either, a small file that was sent before where the content cache is large enough for all.
//!   A file above the share of a turn has one more turn for each share.
//! * **streams**: on a connection with several requests at once, one whose answer is in memory is answered within the
//!   turns that its frames take, whatever the others wait for.
//! * **cut**: a connection is closed without an answer only for a reason: the client's own, a timeout,
//!   a change of the file, a failed or lost job of this file or path, a jump of the clock, a drain.
//! * **bytes per turn**, **fairness**, **connections**, **bounds**: nothing goes beyond its bound: neither jobs in all
//!   and of one client, nor input, nor what is loaded ahead of a client.
//! * **turns of sites**: of two sites that wait for helpers neither has two jobs started before one of the other.
//! * **least rate**: a client that takes nothing is cut.
//! * **jobs**, **sockets**, **leaks**: nothing outlives its owner, at the end not even the engine's files.
//! * **timeouts**, **timers**: what is due is done, also to a head that comes piece by piece; no timer is left over.
//! * **progress**, **rest**: with the disk well again everybody is answered, and then nothing moves.
//! * **determinism**: a second run is alike in each event and each call.
//!
//! `FLASH_SEEDS=N` runs so many seeds, `FLASH_SEED=S` one with a trace of what happens in it. The
//! faults in `faults/` are what `.ci/faults` puts in to see that these properties can fail.

mod ask;
mod client;
mod disk;
#[path = "../machine/mod.rs"]
#[expect(dead_code, unused_imports, reason = "the other test program uses the rest")]
mod machine;
mod oracle;
mod plan;
mod properties;
mod rng;
mod run;
mod troubles;
mod visitors;

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use run::Run;

const SEEDS: u64 = 2_000;
/// Each seed divided by this is run twice, to see that both runs are alike.
const TWICE: u64 = 20;

/// What a run came to.
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
        run.run()
    }));
    result.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        if text.starts_with("property: ") {
            text.to_owned()
        } else {
            format!("property: what the machine and its clients assert: {text}")
        }
    })
}

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

fn fail(seed: u64, why: &str) -> ! {
    panic!("seed {seed}: {why}\nreplay: FLASH_SEED={seed} cargo test -p flash-engine --test simulation");
}

/// All seeds, or one.
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
