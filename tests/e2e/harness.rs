//! What every test needs: a server of its own, clients that accept no sloppy answer, and folders
//! that go away.
//!
//! Used by every module of the suite. Nothing here waits without a bound, and nothing here knows
//! what a right answer is beyond what HTTP asks of all answers.

mod client;
mod disk;
mod files;
mod server;

use std::time::{Duration, Instant};

pub(crate) use client::{Answer, Broken, Client, Page};
pub(crate) use disk::Disk;
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

/// A config file for the suite's architecture: without the number of workers where that is refused.
pub(crate) fn adapted(config: &str) -> String {
    let lines = config.lines().filter(|line| !is(&["mp"]) || !line.starts_with("workers = "));
    lines.map(|line| format!("{line}\n")).collect()
}

/// Says why a test was not made.
pub(crate) fn skip(why: &str) {
    eprintln!("skipped: {why}");
}
