//! The event mechanism of a worker's loop: epoll(7), poll(2) or select(2), behind one interface.
//!
//! The engine works with edges: it remembers that there is input, or room, until a call comes short. epoll
//! reports edges. poll and select report levels again and again, so before each wait they are told which
//! events of each connection are still unknown ([`Awaited`]). Both examine every descriptor at every wait
//! anyway, so one question more for each costs little. In return, there is no state to keep in step, and the
//! same question finds connections that were closed.

use std::io;

use rustix::fd::AsFd;
use serde::{Deserialize, Serialize};

use super::epoll::{Epoll, Ready, Watch};
use super::levels::Levels;

/// A kind of event mechanism.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MechanismKind {
    /// epoll(7).
    #[default]
    Epoll,
    /// poll(2).
    Poll,
    /// select(2), for descriptors below [`SELECT_DESCRIPTORS_MAX`].
    Select,
}

/// Descriptors with this number or a higher one cannot be passed to select(2).
pub const SELECT_DESCRIPTORS_MAX: u64 = libc::FD_SETSIZE as u64;

/// The events of a descriptor that must be reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Awaited {
    /// Input.
    pub readable: bool,
    /// Room to write.
    pub writable: bool,
    /// A half-close by the peer. select cannot report it and reports input instead.
    pub hung_up: bool,
}

impl Awaited {
    /// Input only: for listeners and channels, whose level is reported until they are empty.
    pub const INPUT: Awaited = Awaited { readable: true, writable: false, hung_up: false };
}

/// A mechanism and the descriptors that it watches.
pub enum Mechanism {
    /// epoll(7).
    Epoll(Epoll),
    /// poll(2) or select(2).
    Levels(Levels),
}

impl Mechanism {
    /// Makes a mechanism. epoll reports at most `events_max` descriptors per wait, the others report all.
    pub fn new(kind: MechanismKind, events_max: usize) -> io::Result<Self> {
        Ok(match kind {
            MechanismKind::Epoll => Mechanism::Epoll(Epoll::new(events_max)?),
            MechanismKind::Poll => Mechanism::Levels(Levels::poll()),
            MechanismKind::Select => Mechanism::Levels(Levels::select()),
        })
    }

    /// Watches `fd`. Its events carry `token`.
    ///
    /// Errors: any of epoll_ctl(2); `InvalidInput` for a number that select cannot watch.
    pub fn add(&mut self, fd: impl AsFd, token: u64, watch: Watch) -> io::Result<()> {
        match self {
            Mechanism::Epoll(epoll) => epoll.add(fd, token, watch),
            Mechanism::Levels(levels) => levels.add(fd, token),
        }
    }

    /// Stops watching `fd`. Closing the last copy of a descriptor does the same, if `awaited` returns None
    /// for it at the next wait.
    pub fn remove(&mut self, fd: impl AsFd) -> io::Result<()> {
        match self {
            Mechanism::Epoll(epoll) => epoll.remove(fd),
            Mechanism::Levels(levels) => {
                levels.remove(fd);
                Ok(())
            }
        }
    }

    /// Waits up to `timeout_ms` (`None`: until something is ready) and appends the ready descriptors to
    /// `into`; none if a signal interrupts the wait. poll and select first ask `awaited` for the events of
    /// every token; None means that its descriptor is closed. epoll does not need that.
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
