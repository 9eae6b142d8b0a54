//! A thread that looks at something time and again until it is told to stop. It gives way to all others.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use flash_waiting::{process, program};

use flash_kit::{Error, Result};

/// The thread, and what its looks have gathered.
#[derive(Debug)]
pub(super) struct Sampler<T> {
    /// Dropped, it ends the thread.
    over: Option<Sender<()>>,
    thread: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> Sampler<T> {
    /// Begins to look at this interval, on these cores; on any when there are none. `look` adds to what is gathered.
    ///
    /// Errors: run, when no thread can be started.
    pub(super) fn start(
        every: Duration,
        cores: &[usize],
        mut gathered: T,
        mut look: impl FnMut(&mut T) + Send + 'static,
    ) -> Result<Self> {
        let (over, is_over) = mpsc::channel();
        let cores = cores.to_vec();
        let sample = move || {
            // Where that is not allowed it still does little.
            let _ = process::give_way();
            if !cores.is_empty() {
                let _ = program::pin_thread(&cores);
            }
            while is_over.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                look(&mut gathered);
            }
            gathered
        };
        let thread = thread::Builder::new().name("sampler".to_owned()).spawn(sample);
        let thread =
            thread.map_err(|why| Error::run(format!("cannot start a thread to look at processes: {why}")))?;
        Ok(Self { over: Some(over), thread: Some(thread) })
    }

    /// Ends the thread, and gives what it gathered; none a second time.
    pub(super) fn finish(&mut self) -> Option<T> {
        self.over = None;
        self.thread.take().and_then(|thread| thread.join().ok())
    }
}
