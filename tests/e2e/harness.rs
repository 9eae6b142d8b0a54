//! What every test needs: a server of its own, clients that accept no sloppy answer, and folders
//! that go away.
//!
//! Used by every module of the suite. Nothing here waits without a bound, and nothing here knows
//! what a right answer is beyond what HTTP asks of all answers.

mod client;
pub(crate) mod disk;
mod files;
mod server;

use std::time::{Duration, Instant};

pub(crate) use client::{Answer, Broken, Client, Page};
pub(crate) use files::{Folder, evict, film, film_bytes, pattern, unlike_before, write_aside};
pub(crate) use server::{Launch, Server, kill};

/// How long anything may take that should happen at once: generous, for a machine that is busy
/// with other tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

/// Looks again and again until `check` gives something.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Looks again and again until `check` is true.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut check: impl FnMut() -> bool) {
    wait_for(what, || check().then_some(()));
}

/// Whether the tests run as root.
pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|found| std::os::unix::fs::MetadataExt::uid(&found) == 0)
}

/// Whether the servers of this suite have one of these architectures.
pub(crate) fn is(architectures: &[&str]) -> bool {
    architectures.contains(&crate::ARCHITECTURE)
}

/// Whether a test is not for these architectures; it says why.
pub(crate) fn skips(architectures: &[&str], why: &str) -> bool {
    let skipped = is(architectures);
    if skipped {
        skip(&format!("not for {}: {why}", crate::ARCHITECTURE));
    }
    skipped
}

/// Processes that stand for one worker where each has one connection at a time: enough for a test's clients.
const PROCESSES_OF_WORKER: usize = 12;

/// How many processes there are where a test wants so many workers.
pub(crate) fn workers(wanted: usize) -> usize {
    if is(&["mp"]) { wanted * PROCESSES_OF_WORKER } else { wanted }
}

/// A config file for the suite's architecture: with its number of processes, and without helpers where there
/// are none.
pub(crate) fn adapted(config: &str) -> String {
    let adapt = |line: &str| match line.strip_prefix("workers = ").map(str::parse) {
        Some(Ok(wanted)) if is(&["mp"]) => format!("processes = {}\n", workers(wanted)),
        _ if line.starts_with("helper") && !is(&["amped"]) => String::new(),
        _ => format!("{line}\n"),
    };
    config.lines().map(adapt).collect()
}

/// Says why a test was not made.
pub(crate) fn skip(why: &str) {
    eprintln!("skipped: {why}");
}
