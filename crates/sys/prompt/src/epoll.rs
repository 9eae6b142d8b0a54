//! A safe wrapper of epoll(7).

use std::io;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{Timespec, epoll::Event};
use rustix::fd::{AsFd, OwnedFd};

/// How a descriptor is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// Edge-triggered, for input, output and a half-close by the peer: a client's connection.
    Connection,
    /// Level-triggered, for input: listeners and channels, of which each turn reads a bounded amount.
    Input,
    /// Level-triggered, for input, by several processes of which only one is woken (`EPOLLEXCLUSIVE`,
    /// epoll_ctl(2)): a shared listener. It can be added and removed, but not changed. Only a process that
    /// waits is woken, so the process that was woken must accept.
    Shared,
    /// Level-triggered, for input and room to write.
    InputOutput,
    /// Level-triggered, for room to write: a channel whose input must wait.
    Output,
}

/// One ready descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The token with which the descriptor was added.
    pub token: u64,
    /// There is input, the end of input, or an error to read.
    pub readable: bool,
    /// There may be room to write.
    pub writable: bool,
    /// The peer has closed its sending side: the input ends after the bytes already there.
    pub hung_up: bool,
    /// The connection failed, or both sides are closed.
    pub broken: bool,
}

/// An epoll instance.
pub struct Epoll {
    fd: OwnedFd,
    events: Vec<Event>,
}

// SAFETY: an event can hold a pointer for its owner, but these events hold numbers, and nothing uses them as
// pointers.
unsafe impl Send for Epoll {}

impl Epoll {
    /// Makes an instance that reports at most `events_max` descriptors per call.
    pub fn new(events_max: usize) -> io::Result<Self> {
        let fd = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self { fd, events: Vec::with_capacity(events_max) })
    }

    /// Clones the instance for another thread to wait on. Each event is reported to only one of them.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { fd: self.fd.try_clone()?, events: Vec::with_capacity(self.events.capacity()) })
    }

    /// Watches `fd`. Its events carry `token`.
    pub fn add(&self, fd: impl AsFd, token: u64, watch: Watch) -> io::Result<()> {
        Ok(epoll::add(&self.fd, fd, EventData::new_u64(token), flags(watch))?)
    }

    /// Changes how `fd` is watched.
    pub fn change(&self, fd: impl AsFd, token: u64, watch: Watch) -> io::Result<()> {
        Ok(epoll::modify(&self.fd, fd, EventData::new_u64(token), flags(watch))?)
    }

    /// Stops watching `fd`. Closing the last copy of a descriptor does the same.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.fd, fd)?)
    }

    /// Waits up to `timeout_ms` (`None`: until something is ready) and returns the ready descriptors. A
    /// signal ends the wait with an empty batch.
    pub fn wait(&mut self, timeout_ms: Option<u64>) -> io::Result<impl Iterator<Item = Ready> + '_> {
        let timeout = timeout_ms
            .map(|ms| Timespec { tv_sec: (ms / 1000) as i64, tv_nsec: ((ms % 1000) * 1_000_000) as i64 });
        self.events.clear();
        match epoll::wait(&self.fd, rustix::buffer::spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        Ok(self.events.iter().map(ready))
    }
}

fn ready(event: &Event) -> Ready {
    let Event { flags, data } = *event;
    Ready {
        token: data.u64(),
        readable: flags.intersects(EventFlags::IN | EventFlags::RDHUP),
        writable: flags.contains(EventFlags::OUT),
        hung_up: flags.contains(EventFlags::RDHUP),
        broken: flags.intersects(EventFlags::ERR | EventFlags::HUP),
    }
}

fn flags(watch: Watch) -> EventFlags {
    match watch {
        Watch::Connection => EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET,
        Watch::Input => EventFlags::IN,
        Watch::Shared => EventFlags::IN | EventFlags::EXCLUSIVE,
        Watch::InputOutput => EventFlags::IN | EventFlags::OUT,
        Watch::Output => EventFlags::OUT,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn an_edge_is_reported_to_one_of_the_clones_of_an_instance() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let mut first = Epoll::new(4).expect("an epoll");
        let mut second = first.try_clone().expect("the same");
        first.add(&ours, 7, Watch::Connection).expect("watched");
        let mut count = || {
            let batches = [&mut first, &mut second].map(|epoll| epoll.wait(Some(0)).expect("a wait").count());
            batches.iter().sum::<usize>()
        };
        assert_eq!((count(), count()), (1, 0), "room to write is reported once");
        theirs.write_all(b"x").expect("sent");
        assert_eq!((count(), count()), (1, 0));
        second.change(&ours, 7, Watch::Connection).expect("changed");
        assert_eq!(first.wait(Some(0)).expect("a wait").count(), 1, "a change makes the kernel check again");
    }

    #[test]
    fn a_shared_listener_is_watched_until_it_is_removed() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let (mut first, mut second) = (Epoll::new(4).expect("an epoll"), Epoll::new(4).expect("an epoll"));
        for epoll in [&first, &second] {
            epoll.add(&ours, 7, Watch::Shared).expect("watched");
        }
        theirs.write_all(b"x").expect("sent");
        // No process waited, so no wake-up was used up.
        for epoll in [&mut first, &mut second] {
            assert_eq!(epoll.wait(Some(0)).expect("a wait").count(), 1);
        }
        first.remove(&ours).expect("removed");
        assert_eq!(first.wait(Some(0)).expect("a wait").count(), 0);
    }
}
