//! Ctrl-C in the middle of a measurement: the run ends early and keeps what it has.
//!
//! A [`super::Driver`] watches from its start. The first signal ends the arrivals, a second one the
//! process.

use std::thread;

use flash_waiting::signal::{self, Signal};

use crate::error::{Error, Result};
use crate::load::Stop;

/// The exit code of a process that a second signal ends, as shells have it for INT.
const EXIT_INTERRUPTED: i32 = 130;

/// Has INT, TERM, QUIT and HUP set the [`Stop`] that it gives. Call it before any thread is started:
/// they inherit what it sets.
///
/// Errors: run, when the system gives no descriptor or thread.
pub fn watch() -> Result<Stop> {
    let stop = Stop::default();
    let signals = signal::watch().map_err(|why| Error::run(format!("cannot watch for signals: {why}")))?;
    let stopped = stop.clone();
    let wait = move || {
        let mut heard = false;
        while let Ok(()) = signal::wait(&signals) {
            let Some(Signal::Stop { .. } | Signal::Reload) = signal::take(&signals) else {
                continue;
            };
            if heard {
                std::process::exit(EXIT_INTERRUPTED);
            }
            heard = true;
            eprintln!("interrupted: ending early; once more to end at once, without results");
            stopped.stop();
        }
    };
    let started = thread::Builder::new().name("signals".to_owned()).spawn(wait);
    started.map_err(|why| Error::run(format!("cannot watch for signals: {why}")))?;
    Ok(stop)
}
