//! A role's end of its control channel, for roles with an event loop of their own.

use std::io;

use flash_prompt::epoll::{Epoll, Watch};
use flash_prompt::{OwnedFd, channel};
use flash_worker::control::{InForce, Notice, Order, receive_order, send_notice};

/// The error of an order that a role does not expect at its start.
pub(crate) fn unexpected(order: &Order) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("unexpected {order:?}"))
}

/// The channel from and to the supervisor.
pub(crate) struct Control(OwnedFd);

impl Control {
    /// The epoll token of its events. No other has it.
    pub(crate) const TOKEN: u64 = u64::MAX;

    /// The role's end of the channel, which its event loop watches from now on.
    pub(crate) fn watch(channel: OwnedFd, epoll: &Epoll) -> io::Result<Self> {
        channel::set_nonblocking(&channel)?;
        epoll.add(&channel, Self::TOKEN, Watch::Input)?;
        Ok(Self(channel))
    }

    /// The next order, if there is one. Pings are answered here.
    ///
    /// Errors: `UnexpectedEof` if the supervisor has ended; those of the channel.
    pub(crate) fn receive(&self) -> io::Result<Option<Order>> {
        loop {
            match receive_order(&self.0) {
                Ok(Order::Ping) => self.send(&Notice::Pong),
                Ok(order) => return Ok(Some(order)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) => return Err(e),
            }
        }
    }

    /// Reports that the role has begun, in this sandbox.
    pub(crate) fn ready(&self, in_force: InForce) -> io::Result<()> {
        send_notice(&self.0, &Notice::Ready(in_force))
    }

    pub(crate) fn report(&self, text: impl Into<String>) {
        self.send(&Notice::Report(text.into()));
    }

    /// Sends a notice. Best effort: the supervisor may have no room for it now, and without its supervisor the role ends anyway.
    pub(crate) fn send(&self, notice: &Notice) {
        let _ = send_notice(&self.0, notice);
    }
}
