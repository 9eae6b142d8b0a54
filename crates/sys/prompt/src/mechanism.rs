//! The event mechanism of a worker's loop: epoll(7), poll(2) or select(2), behind one face.
//!
//! The engine works with edges: it remembers that there is input, or room, until a call comes short.
//! epoll tells of edges. poll and select tell of levels, again and again, so before each wait they ask
//! what is not known yet of each connection ([`Awaited`]). Both look at every descriptor at every wait,
//! so one more question for each changes little; in exchange nothing has to be kept in step, and a
//! connection that was closed, in whatever way, is found by the same question.

use std::io;

use rustix::fd::AsFd;

use super::epoll::{Epoll, Ready, Watch};
use super::levels::Levels;

/// Which mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MechanismKind {
    /// epoll(7).
    Epoll,
    /// poll(2).
    Poll,
    /// select(2), for descriptors below [`SELECT_DESCRIPTORS_MAX`].
    Select,
}

/// Descriptors from this number on cannot be given to select(2).
pub const SELECT_DESCRIPTORS_MAX: u64 = libc::FD_SETSIZE as u64;

/// What is to be told of a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Awaited {
    /// That there is input.
    pub readable: bool,
    /// That there is room to write.
    pub writable: bool,
    /// That the peer has closed its sending side. select cannot tell; it tells of input then.
    pub hung_up: bool,
}

impl Awaited {
    /// Input only: of listeners and channels, whose level is told again until they are empty.
    pub const INPUT: Awaited = Awaited { readable: true, writable: false, hung_up: false };
}

/// A mechanism and the descriptors that it watches.
pub enum Mechanism {
    /// epoll(7).
    Epoll(Epoll),
    /// One of the others.
    Levels(Levels),
}

impl Mechanism {
    /// Makes one. epoll reports at most `events_max` descriptors a wait, the others all.
    pub fn new(kind: MechanismKind, events_max: usize) -> io::Result<Self> {
        Ok(match kind {
            MechanismKind::Epoll => Mechanism::Epoll(Epoll::new(events_max)?),
            MechanismKind::Poll => Mechanism::Levels(Levels::poll()),
            MechanismKind::Select => Mechanism::Levels(Levels::select()),
        })
    }

    /// Watches `fd`, whose events will carry `token`.
    ///
    /// Errors: those of epoll_ctl(2); `InvalidInput` for a number that select does not take.
    pub fn add(&mut self, fd: impl AsFd, token: u64, watch: Watch) -> io::Result<()> {
        match self {
            Mechanism::Epoll(epoll) => epoll.add(fd, token, watch),
            Mechanism::Levels(levels) => levels.add(fd, token),
        }
    }

    /// Stops watching `fd`. Closing the last copy of a descriptor does the same, if `awaited` says so at
    /// the next wait.
    pub fn remove(&mut self, fd: impl AsFd) -> io::Result<()> {
        match self {
            Mechanism::Epoll(epoll) => epoll.remove(fd),
            Mechanism::Levels(levels) => {
                levels.remove(fd);
                Ok(())
            }
        }
    }

    /// Waits up to `timeout_ms` (`None`: until something is ready) and appends what is ready to `into`;
    /// nothing on an interrupting signal. poll and select ask `awaited` of every token first: what is to
    /// be told of it, None if its descriptor is closed. epoll knows by itself.
    #[inline]
    pub fn wait(
        &mut self,
        timeout_ms: Option<u64>,
        awaited: impl FnMut(u64) -> Option<Awaited>,
        into: &mut Vec<Ready>,
    ) -> io::Result<()> {
        match self {
            Mechanism::Epoll(epoll) => into.extend(epoll.wait(timeout_ms)?),
            Mechanism::Levels(levels) => levels.wait(timeout_ms, awaited, into)?,
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "mechanism_tests.rs"]
mod tests;
