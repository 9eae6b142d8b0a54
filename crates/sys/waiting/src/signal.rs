//! Signals: as descriptors for the supervisor, ignored in the other roles.

use std::io;
use std::mem::MaybeUninit;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The signals that Flash acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// TERM, INT or QUIT: end gracefully. INT is told apart because a second one ends at once.
    Stop {
        /// It came from the keyboard.
        interrupt: bool,
    },
    /// HUP: read the configuration again.
    Reload,
    /// USR1: open the log files again.
    ReopenLogs,
    /// CHLD: a child has ended.
    Child,
}

const WATCHED: [libc::c_int; 6] =
    [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGUSR1, libc::SIGCHLD];

/// A descriptor that is readable when a watched signal is pending; non-blocking.
/// The signals no longer interrupt the process.
pub fn watch() -> io::Result<OwnedFd> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `set` is initialised by sigemptyset before any other use, each pointer is valid
    // for its call, and the descriptor that signalfd returns is owned by nobody else.
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

/// Blocks no signal in the calling thread any more. For a process that is about to execute a program that is not
/// ours: it would inherit what [`watch`] blocks, and never hear of it.
pub(super) fn unblock_all() -> io::Result<()> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `set` is initialised by sigemptyset before its other use, and each pointer is valid for its call.
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

/// Ignores the signals that a terminal or a service manager sends to the whole group: the
/// supervisor hears them and tells the other roles what to do.
pub fn leave_to_supervisor() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGUSR1, libc::SIGPIPE] {
        // SAFETY: SIG_IGN is a valid disposition for these signals, and no handler is replaced
        // that other code relies on.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}
