//! Shared by all tests: a private server, strict clients, and temporary folders.
//!
//! Nothing here waits without a bound, and nothing here knows the right answers beyond the rules of HTTP.

mod browser;
mod client;
pub(crate) mod disk;
#[path = "../../documented.rs"]
pub(crate) mod documented;
mod files;
pub(crate) mod server;
#[path = "../../skip.rs"]
mod skipping;
mod suite;
pub(crate) mod upstream;
mod wire;

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub(crate) use browser::browse;
pub(crate) use client::{Answer, Broken, Client, Page};
pub(crate) use files::{Folder, SmallDisk, evict, film, film_bytes, pattern, unlike_before, write_aside};
pub(crate) use server::{Launch, Server, kill, stats_at, without_settings};
pub(crate) use skipping::skip;
pub(crate) use suite::{architecture, watches, wire};
pub(crate) use wire::{Wire, not_http2, only_plain};

/// Maximum time for an event that should happen at once. A test that succeeds never waits this long, so it is far beyond what
/// a busy machine needs. `.ci/kernels` builds the tests for an emulated one.
pub(crate) const PATIENCE: Duration =
    Duration::from_secs(if option_env!("FLASH_EMULATED").is_some() { 600 } else { 60 });

/// An address for a program that cannot take any free port, such as nginx: its port is below those that the system gives out,
/// and another one for each call and process.
pub(crate) fn address_to_give() -> SocketAddr {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let port = || {
        let number = std::process::id().wrapping_mul(64).wrapping_add(CALLS.fetch_add(1, Ordering::Relaxed));
        SocketAddr::from(([127, 0, 0, 1], 10_000 + (number % 20_000) as u16))
    };
    wait_for("a free port", || Some(port()).filter(|address| TcpListener::bind(address).is_ok()))
}

/// Repeats `check` until it returns a value.
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

/// Repeats `check` until it is true.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut check: impl FnMut() -> bool) {
    wait_for(what, || check().then_some(()));
}

/// Ends what runs beside a test when it is dropped, also if the test fails.
pub(crate) struct Over<'o>(pub(crate) &'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Whether the tests run as root.
pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|found| std::os::unix::fs::MetadataExt::uid(&found) == 0)
}

/// The line of a route with the user of its programs, which only root can choose.
pub(crate) fn of_a_program() -> &'static str {
    if is_root() { "user = \"nobody\"" } else { "" }
}

/// Raises this process's descriptor limit; false if that is not allowed.
pub(crate) fn raise_own_descriptor_limit(wanted: u64) -> bool {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let mut numbers = line.split_whitespace().skip(3).map(|n| n.parse().unwrap_or(u64::MAX));
    let (soft, hard) = (numbers.next().unwrap(), numbers.next().unwrap());
    if soft >= wanted {
        return true;
    }
    if hard < wanted {
        return false;
    }
    let pid = std::process::id().to_string();
    let words = ["--pid", &pid, &format!("--nofile={wanted}:")];
    std::process::Command::new("prlimit").args(words).status().is_ok_and(|status| status.success())
}

/// Whether the servers of this suite have one of these architectures.
pub(crate) fn is(architectures: &[&str]) -> bool {
    architectures.contains(&architecture())
}

/// Whether a test does not apply to these architectures; prints the reason.
pub(crate) fn skips(architectures: &[&str], why: &str) -> bool {
    let skipped = is(architectures);
    if skipped {
        skip(&format!("not for {}: {why}", architecture()));
    }
    skipped
}

/// Processes that replace one worker where each has one connection at a time: enough for the clients of a test.
const PROCESSES_OF_WORKER: usize = 12;

/// The number of processes for a test that wants this many workers.
pub(crate) fn workers(wanted: usize) -> usize {
    if is(&["mp"]) { wanted * PROCESSES_OF_WORKER } else { wanted }
}

/// A config file for the suite's architecture and wire: with its number of processes, without helpers if it has none, and with
/// addresses for HTTPS beside the others.
pub(crate) fn adapted(config: &str) -> String {
    let adapt = |line: &str| match line.strip_prefix("workers = ").map(str::parse) {
        Some(Ok(wanted)) if is(&["mp"]) => format!("processes = {}\n", workers(wanted)),
        _ if line.starts_with("helper") && !is(&["amped"]) => String::new(),
        // A process that waits for the disk itself cannot stop waiting.
        _ if line.starts_with("job_deadline") && is(&["sped", "mp"]) => String::new(),
        _ => match line.strip_prefix("listen = ") {
            Some(listen) if wire() != Wire::Plain => format!("{line}\n{}", wire::config_lines(listen)),
            _ => format!("{line}\n"),
        },
    };
    config.lines().map(adapt).collect()
}
