//! Threads that work in a sandbox of their own. The start of a worker calls it, which may wait.

use std::io;
use std::sync::mpsc;
use std::thread;

/// A thread to start: `confine` closes its sandbox, and `work` is the rest of its life.
pub(crate) struct Confined<C, W> {
    pub(crate) confine: C,
    pub(crate) work: W,
}

/// Starts these threads, and waits until each has closed its sandbox. A thread that cannot does no work.
///
/// Errors: the first of starting a thread and of closing a sandbox.
pub(crate) fn start<C, W>(
    name: &str,
    stack_bytes: Option<usize>,
    threads: impl IntoIterator<Item = Confined<C, W>>,
) -> io::Result<()>
where
    C: FnOnce() -> io::Result<()> + Send + 'static,
    W: FnOnce() + Send + 'static,
{
    let (ready, all_ready) = mpsc::channel();
    let mut count = 0;
    for Confined { confine, work } in threads {
        let ready = ready.clone();
        let mut builder = thread::Builder::new().name(name.to_owned());
        if let Some(bytes) = stack_bytes {
            builder = builder.stack_size(bytes);
        }
        let spawned = builder.spawn(move || {
            let confined = confine();
            let works = confined.is_ok();
            // The start waits for it; otherwise it has ended.
            let _ = ready.send(confined);
            drop(ready);
            if works {
                work();
            }
        });
        spawned.map_err(|e| io::Error::new(e.kind(), format!("cannot start a {name} thread: {e}")))?;
        count += 1;
    }
    drop(ready);
    let confined: Vec<()> = all_ready.into_iter().collect::<io::Result<_>>()?;
    if confined.len() < count {
        return Err(io::Error::other(format!("a {name} thread ended before it was ready")));
    }
    Ok(())
}
