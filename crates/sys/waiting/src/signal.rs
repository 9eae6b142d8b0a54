//! Signals: the supervisor reads them from a descriptor, the other roles ignore them.

use std::io;
use std::mem::MaybeUninit;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};

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
    /// CHLD: a child has ended.
    Child,
}

const WATCHED: [libc::c_int; 6] =
    [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGUSR1, libc::SIGCHLD];

/// Makes a non-blocking descriptor that is readable when a watched signal is pending. The signals no longer
/// interrupt the process. From now on, a write beyond the process's file size limit (RLIMIT_FSIZE) is an
/// error of the call and does not end the process.
pub fn watch() -> io::Result<OwnedFd> {
    ignore(&[libc::SIGXFSZ]);
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `set` is initialised by sigemptyset before any other use, each pointer is valid for its call,
    // and no other code owns the descriptor that signalfd returns.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in WATCHED {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        if libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Makes signals act as when a program starts without a parent that ignores or blocks some. For a process that is about
/// to execute a program, or to start some. (`Command` does that for SIGPIPE, which must not end the latter.)
///
/// Errors: none in practice (sigprocmask(2)).
pub fn act_as_usual() -> io::Result<()> {
    for signal in WATCHED.into_iter().chain([libc::SIGXFSZ]) {
        // SAFETY: SIG_DFL is a valid disposition for these signals, and no handler is replaced on which other code relies.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    unblock_all()
}

/// Unblocks all signals in the calling thread. For a process that is about to execute another program, which
/// would inherit the signals blocked by [`watch`] and never receive them.
pub(super) fn unblock_all() -> io::Result<()> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `set` is initialised by sigemptyset before its other use, and each pointer is valid for its
    // call.
    let answer = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, set.as_ptr(), std::ptr::null_mut())
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Waits until a signal is pending on the descriptor of [`watch`].
pub fn wait(fd: &OwnedFd) -> io::Result<()> {
    loop {
        match poll(&mut [PollFd::new(fd, PollFlags::IN)], None) {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other.map(drop)?),
        }
    }
}

/// Takes one pending signal from the descriptor of [`watch`].
pub fn take(fd: &OwnedFd) -> Option<Signal> {
    let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: the buffer is `size` bytes long, and any bytes are a valid signalfd_siginfo.
    let number = unsafe {
        let got = libc::read(fd.as_raw_fd(), info.as_mut_ptr().cast(), size);
        if got != size as isize {
            return None;
        }
        info.assume_init().ssi_signo as libc::c_int
    };
    Some(match number {
        libc::SIGHUP => Signal::Reload,
        libc::SIGUSR1 => Signal::ReopenLogs,
        libc::SIGCHLD => Signal::Child,
        other => Signal::Stop { interrupt: other == libc::SIGINT },
    })
}

/// Ignores the signals that a terminal or a service manager sends to the whole process group: the supervisor
/// receives them and gives orders to the other roles. Also ignores signals that duplicate the error of a
/// call.
pub fn leave_to_supervisor() {
    ignore(&[libc::SIGTERM, libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGUSR1]);
    ignore(&[libc::SIGPIPE, libc::SIGXFSZ]);
}

fn ignore(signals: &[libc::c_int]) {
    for signal in signals {
        // SAFETY: SIG_IGN is a valid disposition for the signals above, and no handler is replaced on which
        // other code relies.
        unsafe { libc::signal(*signal, libc::SIG_IGN) };
    }
}
