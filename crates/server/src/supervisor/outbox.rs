//! Orders on their way to a role. One that does not take them holds nobody up: what finds no room in its
//! channel waits here, and goes on when there is room.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use flash_prompt::OwnedFd;
use flash_prompt::channel;
use flash_prompt::epoll::{Epoll, Watch};

use flash_worker::control::{Order, encode_order, send_order};

/// Orders that wait for a role, besides those before it begins.
const WAITING_MAX: usize = 1024;

/// A descriptor that several orders carry.
pub(super) type Shared = Arc<OwnedFd>;

/// The supervisor's end of a control channel, and the orders that wait for room in it.
#[derive(Debug)]
pub(super) struct Outbox {
    channel: OwnedFd,
    /// Its token in the supervisor's epoll.
    number: u64,
    waiting: VecDeque<Order<Shared>>,
    /// How epoll watches it.
    watched: Option<Watch>,
    /// Nothing will be heard of it any more.
    is_over: bool,
}

impl Outbox {
    /// Takes one end of a channel; nothing is watched yet.
    pub(super) fn new(channel: OwnedFd, number: u64) -> io::Result<Self> {
        channel::set_nonblocking(&channel)?;
        Ok(Self { channel, number, waiting: VecDeque::new(), watched: None, is_over: false })
    }

    /// Where the role is heard.
    pub(super) fn channel(&self) -> &OwnedFd {
        &self.channel
    }

    /// The token under which it is heard, and told that there is room.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Sends what a role needs before it begins, as much of it as there is: that is bounded by the settings.
    ///
    /// Errors: as in [`Outbox::go_on`].
    pub(super) fn give_at_start(&mut self, order: Order<Shared>) -> io::Result<()> {
        self.waiting.push_back(order);
        self.go_on()
    }

    /// Sends an order, or has it wait for its turn.
    ///
    /// Errors: `WouldBlock` when too many wait; as in [`Outbox::go_on`].
    pub(super) fn give(&mut self, order: Order<Shared>) -> io::Result<()> {
        if self.waiting.len() >= WAITING_MAX {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "it does not take its orders"));
        }
        self.give_at_start(order)
    }

    /// Sends an order now or not at all.
    ///
    /// Errors: `WouldBlock` when there is no room, or others wait; those of the channel.
    pub(super) fn give_now(&self, order: &Order) -> io::Result<()> {
        if self.waiting.is_empty() {
            send_order(&self.channel, order)
        } else {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }

    /// Sends what waits, as far as there is room. A role that has died needs no orders: it is replaced, and
    /// they are given again, once it is reaped.
    ///
    /// Errors: those of the channel.
    pub(super) fn go_on(&mut self) -> io::Result<()> {
        while let Some(order) = self.waiting.front() {
            match encode_order(order).send(&self.channel) {
                Ok(()) => drop(self.waiting.pop_front()),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if matches!(e.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                    self.waiting.clear();
                }
                Err(e) => {
                    self.waiting.clear();
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    /// Whether every order was sent.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Has it heard when the role says something, and when there is room for what waits.
    pub(super) fn watch(&mut self, epoll: &Epoll) -> io::Result<()> {
        if self.is_over {
            return Ok(());
        }
        let wanted = if self.is_empty() { Watch::Input } else { Watch::InputOutput };
        match self.watched {
            Some(watch) if watch == wanted => return Ok(()),
            Some(_) => epoll.change(&self.channel, self.number, wanted)?,
            None => epoll.add(&self.channel, self.number, wanted)?,
        }
        self.watched = Some(wanted);
        Ok(())
    }

    /// Hears nothing of it any more, for good. An end that was passed on would be heard of for as long as its
    /// new owner has it.
    pub(super) fn unwatch(&mut self, epoll: &Epoll) {
        self.is_over = true;
        if self.watched.take().is_some() {
            let _ = epoll.remove(&self.channel);
        }
    }

    /// The channel, to be passed on.
    pub(super) fn into_channel(mut self, epoll: &Epoll) -> OwnedFd {
        self.unwatch(epoll);
        self.channel
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flash_worker::control::{CHANNEL_BYTES, receive_order};

    fn pair() -> (Outbox, OwnedFd) {
        let (ours, theirs) = channel::pair(CHANNEL_BYTES).expect("a pair");
        channel::set_nonblocking(&theirs).expect("set");
        (Outbox::new(ours, 7).expect("an outbox"), theirs)
    }

    #[test]
    fn orders_that_nobody_takes_wait_and_arrive_in_their_order() {
        let (mut outbox, theirs) = pair();
        let mut epoll = Epoll::new(4).expect("an epoll");
        let folder = Arc::new(theirs.try_clone().expect("a copy"));
        for site in 0..5_000 {
            let order = Order::Root { site, is_local: site % 2 == 0, folder: Arc::clone(&folder) };
            outbox.give_at_start(order).expect("taken");
        }
        outbox.give_at_start(Order::Begin).expect("taken");
        assert!(!outbox.is_empty(), "no channel holds so many");
        assert_eq!(
            outbox.give_now(&Order::Drain).expect_err("not past others").kind(),
            io::ErrorKind::WouldBlock
        );
        let mut sites = 0;
        loop {
            outbox.watch(&epoll).expect("watched");
            while let Ok(order) = receive_order(&theirs) {
                match order {
                    Order::Root { site, is_local, .. } => {
                        assert_eq!((site, is_local), (sites, sites % 2 == 0));
                    }
                    Order::Begin => return assert_eq!(sites, 5_000),
                    other => panic!("{other:?}"),
                }
                sites += 1;
            }
            let ready: Vec<_> = epoll.wait(Some(0)).expect("a wait").collect();
            assert!(ready.iter().any(|ready| ready.token == 7 && ready.writable), "after {sites}: {ready:?}");
            outbox.go_on().expect("sent");
        }
    }

    #[test]
    fn a_role_that_takes_nothing_has_a_bound_and_one_that_died_takes_everything() {
        let (mut outbox, theirs) = pair();
        let refused = (0..100_000).find_map(|_| outbox.give(Order::Drain).err());
        assert_eq!(refused.expect("bounded").kind(), io::ErrorKind::WouldBlock);
        drop(theirs);
        outbox.go_on().expect("no fault of the supervisor's");
        outbox.give(Order::Drain).expect("taken");
        assert!(outbox.is_empty());
    }
}
