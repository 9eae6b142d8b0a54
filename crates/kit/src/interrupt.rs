//! Ctrl-C during a measurement: the run ends early and keeps its results so far.
//!
//! The lab's driver and `flash trace` watch from their start. The first signal ends the run, a second one the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use flash_waiting::signal::{self, Signal};

use crate::error::{Error, Result};

/// The exit code of a process that a second signal ends; shells report the same for INT.
const EXIT_INTERRUPTED: i32 = 130;

/// Ends a run early, as Ctrl-C does; its results so far are kept.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Stops: arrivals end at once, and the wait for the last answers is bounded.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Returns a [`Stop`] that INT, TERM, QUIT and HUP set. Call it before any thread is started: threads inherit the
/// signal mask that it sets.
///
/// Errors: run, if the system has no descriptor or thread left.
pub fn watch() -> Result<Stop> {
    let stop = Stop::default();
    let signals = signal::watch().map_err(|why| Error::run(format!("cannot watch for signals: {why}")))?;
    let stopped = stop.clone();
    let wait = move || {
        let mut interrupted = false;
        while let Ok(()) = signals.wait() {
            let Some(Signal::Stop { .. } | Signal::Reload) = signals.take() else {
                continue;
            };
            if interrupted {
                std::process::exit(EXIT_INTERRUPTED);
            }
            interrupted = true;
            eprintln!("interrupted: ending early; interrupt again to end at once, without results");
            stopped.stop();
        }
    };
    let started = thread::Builder::new().name("signals".to_owned()).spawn(wait);
    started.map_err(|why| Error::run(format!("cannot watch for signals: {why}")))?;
    Ok(stop)
}
