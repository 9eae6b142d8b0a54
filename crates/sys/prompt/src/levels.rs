//! Readiness by poll(2) or select(2). The kernel keeps no state for these calls: the table of descriptors is
//! kept here, and each wait passes all of it.
//!
//! Used only by [`mechanism`](super::mechanism). It must not decide which events to wait for: its owner
//! passes them before each wait.

use std::io;
use std::mem::MaybeUninit;

use libc::{c_int, c_short, pollfd};
use rustix::fd::{AsFd, AsRawFd, RawFd};

use super::call::check;
use super::epoll::Ready;
use super::mechanism::Awaited;

/// Waits for the events in the table and records those that occurred. Returns the number of ready
/// descriptors.
type Call = fn(&mut [pollfd], Option<u64>) -> io::Result<usize>;

/// A table of descriptors, and the call that waits for them. A descriptor's place is found by its number, so
/// adding and removing take constant time.
pub struct Levels {
    call: Call,
    /// Descriptors with this number or a higher one cannot be watched.
    numbers_max: RawFd,
    fds: Vec<pollfd>,
    /// The token of each descriptor.
    tokens: Vec<u64>,
    /// The place of each descriptor number; [`NOWHERE`] if it is not watched.
    places: Vec<u32>,
}

const NOWHERE: u32 = u32::MAX;

impl Levels {
    /// A table for poll(2).
    pub(super) fn poll() -> Self {
        Self::new(poll, RawFd::MAX)
    }

    /// A table for select(2).
    pub(super) fn select() -> Self {
        Self::new(select, libc::FD_SETSIZE as RawFd)
    }

    fn new(call: Call, numbers_max: RawFd) -> Self {
        Self { call, numbers_max, fds: Vec::new(), tokens: Vec::new(), places: Vec::new() }
    }

    /// Watches `fd`. If the table already has its number, that descriptor was closed unnoticed and the number
    /// was reused.
    pub(super) fn add(&mut self, fd: impl AsFd, token: u64) -> io::Result<()> {
        let number = fd.as_fd().as_raw_fd();
        if number >= self.numbers_max {
            let why =
                format!("select takes descriptors below {}, but this one is {number}", self.numbers_max);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        if let Some(place) = self.place_of(number) {
            self.tokens[place] = token;
            return Ok(());
        }
        let index = number as usize;
        if self.places.len() <= index {
            self.places.resize(index + 1, NOWHERE);
        }
        self.places[index] = self.fds.len() as u32;
        self.fds.push(pollfd { fd: number, events: 0, revents: 0 });
        self.tokens.push(token);
        Ok(())
    }

    /// Stops watching `fd`.
    pub(super) fn remove(&mut self, fd: impl AsFd) {
        if let Some(place) = self.place_of(fd.as_fd().as_raw_fd()) {
            self.forget(place);
        }
    }

    /// Waits for the events that `awaited` returns for each token; None means that its descriptor is closed.
    pub(super) fn wait(
        &mut self,
        timeout_ms: Option<u64>,
        mut awaited: impl FnMut(u64) -> Option<Awaited>,
        into: &mut Vec<Ready>,
    ) -> io::Result<()> {
        let mut place = 0;
        while let Some(token) = self.tokens.get(place) {
            match awaited(*token) {
                Some(awaited) => {
                    self.fds[place].events = events(awaited);
                    place += 1;
                }
                None => self.forget(place),
            }
        }
        match (self.call)(&mut self.fds, timeout_ms) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(e) => return Err(e),
        }
        let both = self.fds.iter().zip(&self.tokens);
        into.extend(both.filter(|(fd, _)| fd.revents != 0).map(|(fd, token)| ready(fd.revents, *token)));
        Ok(())
    }

    fn place_of(&self, number: RawFd) -> Option<usize> {
        let place = *self.places.get(usize::try_from(number).ok()?)?;
        (place != NOWHERE).then_some(place as usize)
    }

    fn forget(&mut self, place: usize) {
        let gone = self.fds.swap_remove(place);
        self.tokens.swap_remove(place);
        self.places[gone.fd as usize] = NOWHERE;
        if let Some(moved) = self.fds.get(place) {
            self.places[moved.fd as usize] = place as u32;
        }
    }
}

fn events(awaited: Awaited) -> c_short {
    let flag = |wanted, flag| if wanted { flag } else { 0 };
    flag(awaited.readable, libc::POLLIN)
        | flag(awaited.writable, libc::POLLOUT)
        | flag(awaited.hung_up, libc::POLLRDHUP)
}

fn ready(events: c_short, token: u64) -> Ready {
    let any = |flags| events & flags != 0;
    Ready {
        token,
        readable: any(libc::POLLIN | libc::POLLRDHUP),
        writable: any(libc::POLLOUT),
        hung_up: any(libc::POLLRDHUP),
        // Also set if the number is closed, so that its owner notices.
        broken: any(libc::POLLERR | libc::POLLHUP | libc::POLLNVAL),
    }
}

fn poll(fds: &mut [pollfd], timeout_ms: Option<u64>) -> io::Result<usize> {
    let timeout = timeout_ms.map_or(-1, |ms| c_int::try_from(ms).unwrap_or(c_int::MAX));
    // SAFETY: the kernel reads and writes as many elements as the slice has; it outlives the call.
    count(unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout) })
}

/// select(2), with a table in the format of poll(2). It reports a half-close only as input.
fn select(fds: &mut [pollfd], timeout_ms: Option<u64>) -> io::Result<usize> {
    let (mut input, mut room) = (empty_set(), empty_set());
    let mut highest = -1;
    for fd in fds.iter() {
        // SAFETY: `add` accepts only numbers that fit in a set.
        unsafe {
            if fd.events & libc::POLLIN != 0 {
                libc::FD_SET(fd.fd, &raw mut input);
            }
            if fd.events & libc::POLLOUT != 0 {
                libc::FD_SET(fd.fd, &raw mut room);
            }
        }
        highest = highest.max(fd.fd);
    }
    let mut timeout = timeout_ms.map(|ms| libc::timeval {
        tv_sec: (ms / 1000) as libc::time_t,
        tv_usec: (ms % 1000 * 1000) as libc::suseconds_t,
    });
    let timeout = timeout.as_mut().map_or(std::ptr::null_mut(), |timeout| timeout);
    // SAFETY: the sets and the timeout outlive the call, and all numbers fit in a set.
    let answer =
        unsafe { libc::select(highest + 1, &raw mut input, &raw mut room, std::ptr::null_mut(), timeout) };
    let count = count(answer)?;
    for fd in fds.iter_mut() {
        // SAFETY: as above.
        let (readable, writable) =
            unsafe { (libc::FD_ISSET(fd.fd, &raw const input), libc::FD_ISSET(fd.fd, &raw const room)) };
        fd.revents = if readable { libc::POLLIN } else { 0 } | if writable { libc::POLLOUT } else { 0 };
    }
    Ok(count)
}

fn empty_set() -> libc::fd_set {
    let mut set = MaybeUninit::uninit();
    // SAFETY: FD_ZERO writes the whole set.
    unsafe {
        libc::FD_ZERO(set.as_mut_ptr());
        set.assume_init()
    }
}

fn count(answer: c_int) -> io::Result<usize> {
    Ok(check(answer)? as usize)
}
