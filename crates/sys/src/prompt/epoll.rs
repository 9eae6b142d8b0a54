//! The readiness loop: a thin, safe face of epoll(7).

use std::io;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{Timespec, epoll::Event};
use rustix::fd::{AsFd, OwnedFd};

/// How a descriptor is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// Edge-triggered, for input, output and the peer's half-close: a client's connection.
    Connection,
    /// Level-triggered, for input: listeners and channels, which are read a bounded amount a turn.
    Input,
    /// Level-triggered, for input and room to write.
    InputOutput,
}

/// One ready descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The token that the descriptor was added with.
    pub token: u64,
    /// There is input, the end of input, or an error to be read.
    pub readable: bool,
    /// There may be room to write.
    pub writable: bool,
    /// The peer closed its sending side: input ends after what is there.
    pub hung_up: bool,
    /// The connection failed, or both sides are closed.
    pub broken: bool,
}

/// An epoll instance.
pub struct Epoll {
    fd: OwnedFd,
    events: Vec<Event>,
}

impl Epoll {
    /// Makes an instance that reports at most `events_max` descriptors a call.
    pub fn new(events_max: usize) -> io::Result<Self> {
        let fd = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self { fd, events: Vec::with_capacity(events_max) })
    }

    /// Watches `fd`, whose events will carry `token`.
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

    /// Waits up to `timeout_ms` (`None`: until something is ready) and gives what is ready.
    /// An interrupting signal gives an empty batch.
    pub fn wait(&mut self, timeout_ms: Option<u64>) -> io::Result<impl Iterator<Item = Ready> + '_> {
        let timeout = timeout_ms
            .map(|ms| Timespec { tv_sec: (ms / 1000) as i64, tv_nsec: ((ms % 1000) * 1_000_000) as i64 });
        self.events.clear();
        match epoll::wait(&self.fd, rustix::buffer::spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        Ok(self.events.iter().map(|event| {
            let Event { flags, data } = *event;
            Ready {
                token: data.u64(),
                readable: flags.intersects(EventFlags::IN | EventFlags::RDHUP),
                writable: flags.contains(EventFlags::OUT),
                hung_up: flags.contains(EventFlags::RDHUP),
                broken: flags.intersects(EventFlags::ERR | EventFlags::HUP),
            }
        }))
    }
}

fn flags(watch: Watch) -> EventFlags {
    match watch {
        Watch::Connection => EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET,
        Watch::Input => EventFlags::IN,
        Watch::InputOutput => EventFlags::IN | EventFlags::OUT,
    }
}
