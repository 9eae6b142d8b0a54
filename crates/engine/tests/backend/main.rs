//! `flash backend` in random worlds, each made from one seed: rules, file systems, clients that ask, cancel,
//! leave, fall silent and send garbage, and helpers that are late, fail, die or hang with their file system.
//!
//! The worker's loop is played by [`run`], in the order of the real one. Properties, checked after each message
//! or at the end of each turn:
//!
//! - **answers**: each question gets exactly one reply, at the latest with its job, or its client has left or
//!   withdrawn it. A HELLO gets one reply with the right status. A connection goes on or ends as docs/backend-protocol.md says.
//! - **in memory**: a READY comes only after a helper has brought exactly these bytes, or this name, into memory
//!   since the question came. An error number comes only from such a job, and ETIMEDOUT only at a deadline.
//! - **joins**: the job behind a reply began with the root or the descriptor of the same user, for the same root
//!   and path, or the same file and range. Two equal jobs never run at once.
//! - **from memory**: the endpoint answers at once only for a file that is in memory, or that a helper has loaded
//!   within the last second.
//! - **quota**, **bounds**, **busy**: a client beyond its limit gets BUSY, and no other without a reason. Jobs,
//!   helpers, connections, files and the time of a HELLO stay within their bounds.
//! - **shares**: no file system takes all helpers. While one hangs, another is served.
//! - **jobs**: no job starts for nobody. Jobs, places of helpers and waiting requests are those of the model.
//! - **files**: a file is held as long as its job or CLOSE needs it, and no longer.
//! - **progress**, **rest**: no question outlives its deadline, every turn at once has work, and a drain ends.
//! - **leaks**: when all clients have left and the file systems work, nothing is left: no request, job, timer,
//!   group or file.
//! - **determinism**: a second run has the same events.
//!
//! `FLASH_SEEDS=N` runs this many seeds; `FLASH_SEED=S` runs one and prints its trace. `.ci/faults` applies
//! each patch of `faults/` to show that these properties can fail.

mod client;
mod disk;
mod oracle;
mod plan;
#[path = "../simulation/rng.rs"]
#[expect(dead_code, reason = "the simulation of the engine uses the rest")]
mod rng;
mod run;

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use run::{Run, Tally};

const SEEDS: u64 = 1_000;
/// One in this many seeds is run twice, to compare both runs.
const TWICE: u64 = 20;

fn run(seed: u64, print: bool) -> Result<Tally, String> {
    let result = catch_unwind(AssertUnwindSafe(|| Run::new(seed, print).run()));
    result.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        if text.starts_with("property: ") { text.to_owned() } else { format!("property: no panic: {text}") }
    })
}

/// Runs a seed, some twice.
fn check(seed: u64) -> Result<Tally, String> {
    let first = run(seed, false)?;
    if seed.is_multiple_of(TWICE) && run(seed, false).as_ref() != Ok(&first) {
        return Err("property: determinism: a second run differs".into());
    }
    Ok(first)
}

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

fn fail(seed: u64, why: &str) -> ! {
    panic!("seed {seed}: {why}\nreplay: FLASH_SEED={seed} cargo test -p flash-engine --test backend");
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
    let (worst, sum) = (Mutex::new((u64::MAX, String::new())), Mutex::new(Tally::default()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds || seed > worst.lock().unwrap().0 {
                return;
            }
            match check(seed) {
                Ok(tally) => sum.lock().unwrap().add(&tally),
                Err(why) => {
                    let mut worst = worst.lock().unwrap();
                    if seed < worst.0 {
                        *worst = (seed, why);
                    }
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let (seed, why) = worst.into_inner().unwrap();
    if seed != u64::MAX {
        fail(seed, &why);
    }
    let sum = sum.into_inner().unwrap();
    println!("{seeds} seeds: {sum:?}");
    // A property about something that never happens would hold for nothing.
    let happened =
        [sum.ready, sum.errors, sum.late, sum.busy, sum.joined, sum.from_memory, sum.deaf, sum.jammed];
    assert!(seeds < 200 || happened.iter().all(|count| *count > 0), "something never happened: {sum:?}");
}
