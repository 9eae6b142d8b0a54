//! A single timer as a descriptor. Waiting in epoll without a timeout is cheaper, and the timer is set again
//! only if the next deadline moves closer.

use std::io;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// As the time of a timer: it does not expire.
const NEVER: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// A timer of the monotonic clock; readable once it has expired.
#[derive(Debug)]
pub struct Timer {
    fd: OwnedFd,
    /// When it expires, in nanoseconds.
    due_ns: Option<u64>,
}

impl Timer {
    /// Makes a timer that is not set.
    pub fn new() -> io::Result<Self> {
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        Ok(Self { fd, due_ns: None })
    }

    /// Makes the timer expire at `due_ms` of the monotonic clock at the latest.
    #[inline]
    pub fn at_latest(&mut self, due_ms: u64) -> io::Result<()> {
        self.at_latest_ns(due_ms.saturating_mul(1_000_000))
    }

    /// The same in nanoseconds.
    #[inline]
    pub fn at_latest_ns(&mut self, due_ns: u64) -> io::Result<()> {
        if self.due_ns.is_some_and(|ns| ns <= due_ns) {
            return Ok(());
        }
        self.due_ns = Some(due_ns);
        // A time of zero would disarm it.
        let due_ns = due_ns.max(1);
        self.set(Timespec {
            tv_sec: (due_ns / 1_000_000_000) as i64,
            tv_nsec: (due_ns % 1_000_000_000) as i64,
        })
    }

    /// The timer has expired: it is no longer set, nor readable.
    ///
    /// Setting a timer also drops its expirations, so it need not be read, and the sandbox of a worker allows
    /// read(2) on no descriptor. A condition on the timer's number would not be enough: after close(2) a file
    /// can have this number.
    pub fn clear(&mut self) -> io::Result<()> {
        self.due_ns = None;
        self.set(NEVER)
    }

    fn set(&self, value: Timespec) -> io::Result<()> {
        let spec = Itimerspec { it_interval: NEVER, it_value: value };
        timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &spec)?;
        Ok(())
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::monotonic_ms;
    use crate::epoll::{Epoll, Watch};

    #[test]
    fn expires_at_the_earliest_requested_time() {
        let mut timer = Timer::new().expect("a timer");
        let mut epoll = Epoll::new(4).expect("an epoll");
        epoll.add(&timer, 7, Watch::Input).expect("watched");
        let start_ms = monotonic_ms();
        timer.at_latest(start_ms + 60_000).expect("set");
        timer.at_latest(start_ms + 20).expect("set");
        timer.at_latest(start_ms + 90_000).expect("set");
        assert_eq!(epoll.wait(Some(30_000)).expect("waited").map(|r| r.token).collect::<Vec<_>>(), [7]);
        assert!(monotonic_ms() >= start_ms + 20);
        timer.clear().expect("cleared");
        assert_eq!(epoll.wait(Some(0)).expect("waited").count(), 0, "cleared");
        timer.at_latest(start_ms).expect("set");
        assert_eq!(epoll.wait(Some(30_000)).expect("waited").count(), 1, "set again");
    }
}
