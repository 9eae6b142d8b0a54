//! Signals: the supervisor reads them from a descriptor, the other roles ignore them.

use std::io;

use nix::sys::signal::{SigSet, SigmaskHow, Signal as Number, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::retry_on_intr;

/// The signals that Flash handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// TERM, INT or QUIT: end gracefully. INT is distinguished, because a second one ends at once.
    Stop {
        /// Whether it came from the keyboard.
        interrupt: bool,
    },
    /// HUP: read the configuration again.
    Reload,
    /// USR1: reopen the log files.
    ReopenLogs,
    /// USR2: execute the program again, which may be another version.
    Upgrade,
    /// CHLD: a child has ended.
    Child,
}

const WATCHED: [Number; 7] = [
    Number::SIGTERM,
    Number::SIGINT,
    Number::SIGQUIT,
    Number::SIGHUP,
    Number::SIGUSR1,
    Number::SIGUSR2,
    Number::SIGCHLD,
];

/// The watched signals, as a non-blocking descriptor (signalfd(2)) that is readable when one is pending.
#[derive(Debug)]
pub struct Signals(SignalFd);

/// Watches these signals, which no longer interrupt the process. From now on, a write beyond the process's file size limit
/// (RLIMIT_FSIZE) is an error of the call and does not end the process.
///
/// Errors: `EMFILE`, `ENFILE`.
pub fn watch() -> io::Result<Signals> {
    ignore(&[libc::SIGXFSZ]);
    let set = SigSet::from_iter(WATCHED);
    set.thread_block()?;
    Ok(Signals(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?))
}

impl Signals {
    /// Waits until a signal is pending.
    pub fn wait(&self) -> io::Result<()> {
        retry_on_intr(|| poll(&mut [PollFd::new(&self.0, PollFlags::IN)], None))?;
        Ok(())
    }

    /// Takes one pending signal.
    pub fn take(&self) -> Option<Signal> {
        let number = self.0.read_signal().ok()??.ssi_signo as libc::c_int;
        Some(match number {
            libc::SIGHUP => Signal::Reload,
            libc::SIGUSR1 => Signal::ReopenLogs,
            libc::SIGUSR2 => Signal::Upgrade,
            libc::SIGCHLD => Signal::Child,
            other => Signal::Stop { interrupt: other == libc::SIGINT },
        })
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Makes signals act as when a program starts without a parent that ignores or blocks some. For a process that is about
/// to execute a program, or to start some. (`Command` does that for SIGPIPE, which must not end the latter.)
///
/// Errors: none in practice (sigprocmask(2)).
pub fn act_as_usual() -> io::Result<()> {
    for signal in WATCHED.into_iter().map(|signal| signal as libc::c_int).chain([libc::SIGXFSZ]) {
        // SAFETY: SIG_DFL is a valid disposition for these signals, and no handler is replaced on which other code relies.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    unblock_all()
}

/// Unblocks all signals in the calling thread. For a process that is about to execute another program, which
/// would inherit the signals blocked by [`watch`] and never receive them.
pub(super) fn unblock_all() -> io::Result<()> {
    Ok(sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?)
}

/// Ignores the signals that a terminal or a service manager sends to the whole process group: the supervisor
/// receives them and gives orders to the other roles. Also ignores signals that duplicate the error of a
/// call.
pub fn leave_to_supervisor() {
    ignore(&[libc::SIGTERM, libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2]);
    ignore(&[libc::SIGPIPE, libc::SIGXFSZ]);
}

fn ignore(signals: &[libc::c_int]) {
    for signal in signals {
        // SAFETY: SIG_IGN is a valid disposition for the signals above, and no handler is replaced on which
        // other code relies.
        unsafe { libc::signal(*signal, libc::SIG_IGN) };
    }
}
