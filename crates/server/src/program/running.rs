//! A program of `cgi` that runs, and its end. Used by `exchange`.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

use flash_prompt::epoll::{Epoll, Watch};
use flash_waiting::subprocess::Subprocess;

/// A started program, which leads a process group. When this is dropped, the program has ended.
#[derive(Debug)]
pub(super) struct Running {
    child: Subprocess,
    /// Its end, once it is known. It is reaped later: until then no other process group can have its number.
    status: Option<ExitStatus>,
}

impl Running {
    /// Errors: no descriptor is left; then the program is killed.
    pub(super) fn new(mut child: Child) -> io::Result<Self> {
        match Subprocess::new(&child) {
            Ok(child) => Ok(Self { child, status: None }),
            Err(e) => {
                child.kill()?;
                child.wait()?;
                Err(e)
            }
        }
    }

    pub(super) fn watch(&self, epoll: &Epoll, token: u64) -> io::Result<()> {
        epoll.add(&self.child, token, Watch::Connection)
    }

    /// How it has ended; None while it runs. If a signal has killed it, the others of its group are killed too: they could keep
    /// its output open, although the answer cannot become complete any more.
    ///
    /// Errors: none in practice (waitid(2)).
    pub(super) fn status(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = self.child.peek()?;
            if self.status.is_some_and(|status| status.signal().is_some()) {
                self.child.kill_rest_of_group();
            }
        }
        Ok(self.status)
    }

    pub(super) fn ask_to_end(&self) {
        self.child.end_group();
    }

    /// Kills it, if it still runs, and its group.
    pub(super) fn kill(&self) {
        self.child.kill_rest_of_group();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.status.is_none() {
            self.child.kill_group();
        }
        // After SIGKILL this takes only a moment.
        let _ = self.child.wait();
    }
}
