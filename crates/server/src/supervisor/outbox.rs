//! Orders on their way to a role. A role that does not read them blocks nothing: orders that do not fit in its channel wait here
//! until there is room. Their number is bounded after its start; beyond the bound the role is replaced.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use flash_prompt::OwnedFd;
use flash_prompt::epoll::{Epoll, Watch};
use flash_prompt::{channel, net};

use flash_worker::control::{Order, send_order};

/// Maximum queued orders for a role, besides those at its start.
const WAITING_MAX: usize = 1024;

/// A descriptor that several orders carry.
pub(super) type Shared = Arc<OwnedFd>;

/// The supervisor's end of a control channel, and the orders that wait for room in it.
#[derive(Debug)]
pub(super) struct Outbox {
    /// None once it was passed on.
    pub(super) channel: Option<OwnedFd>,
    /// The token of its events.
    pub(super) token: u64,
    waiting: VecDeque<Order<Shared>>,
    /// How many of those at the end of the queue were given after its start.
    later: usize,
    /// Whether there were too many: the role must be replaced, and its successor gets everything again.
    is_stuck: bool,
    /// How epoll watches it.
    watched: Option<Watch>,
    /// Whether it is no longer watched, for good.
    is_over: bool,
}

impl Outbox {
    /// Takes one end of a channel, which is not watched yet.
    pub(super) fn new(channel: OwnedFd, token: u64) -> io::Result<Self> {
        channel::set_nonblocking(&channel)?;
        Ok(Self::adopt(Some(channel), token))
    }

    /// An outbox for a channel of an earlier program, which does not block; None if that program has passed it on.
    pub(super) fn adopt(channel: Option<OwnedFd>, token: u64) -> Self {
        let is_over = channel.is_none();
        let waiting = VecDeque::new();
        Self { channel, token, waiting, later: 0, is_stuck: false, watched: None, is_over }
    }

    /// Sends an order that a role needs before it begins, or queues it: the settings bound their number.
    ///
    /// Errors: as in [`Outbox::go_on`].
    pub(super) fn give_at_start(&mut self, order: Order<Shared>) -> io::Result<()> {
        self.waiting.push_back(order);
        self.go_on()
    }

    /// Sends an order, or queues it. If too many are queued, they are all dropped, with their descriptors, and
    /// [`Outbox::go_on`] fails from then on.
    ///
    /// Errors: as in [`Outbox::go_on`].
    pub(super) fn give(&mut self, order: Order<Shared>) -> io::Result<()> {
        if self.later >= WAITING_MAX {
            self.is_stuck = true;
            self.waiting.clear();
        }
        if self.is_stuck {
            return Ok(());
        }
        self.later += 1;
        self.give_at_start(order)
    }

    /// Sends an order now or not at all.
    ///
    /// Errors: `WouldBlock` if there is no room or others are queued; those of the channel.
    pub(super) fn give_now(&self, order: &Order) -> io::Result<()> {
        match &self.channel {
            Some(channel) if self.waiting.is_empty() => send_order(channel, order),
            _ => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Sends queued orders while there is room. A dead role needs none: after it is reaped, its successor gets them
    /// again.
    ///
    /// Errors: those of the channel; `TimedOut` if too many were queued.
    pub(super) fn go_on(&mut self) -> io::Result<()> {
        if self.is_stuck {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it does not read its control channel"));
        }
        let sent = self.send_waiting();
        self.later = self.later.min(self.waiting.len());
        sent
    }

    fn send_waiting(&mut self) -> io::Result<()> {
        while let (Some(order), Some(channel)) = (self.waiting.front(), &self.channel) {
            match send_order(channel, order) {
                Ok(()) => drop(self.waiting.pop_front()),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock || net::has_too_many_in_transit(&e) => {
                    return Ok(());
                }
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

    pub(super) fn is_sent(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Watches for messages of the role, and for room if orders are queued.
    pub(super) fn watch(&mut self, epoll: &Epoll) -> io::Result<()> {
        let Some(channel) = self.channel.as_ref().filter(|_| !self.is_over) else { return Ok(()) };
        let wanted = if self.is_sent() { Watch::Input } else { Watch::InputOutput };
        match self.watched {
            Some(watch) if watch == wanted => return Ok(()),
            Some(_) => epoll.change(channel, self.token, wanted)?,
            None => epoll.add(channel, self.token, wanted)?,
        }
        self.watched = Some(wanted);
        Ok(())
    }

    /// Stops watching for good. An end that was passed on would otherwise wake the loop for as long as its new owner
    /// has it.
    pub(super) fn unwatch(&mut self, epoll: &Epoll) {
        self.is_over = true;
        if let (Some(_), Some(channel)) = (self.watched.take(), &self.channel) {
            let _ = epoll.remove(channel);
        }
    }

    /// Takes out the channel, to be passed on. Orders can be sent no more.
    pub(super) fn take_channel(&mut self, epoll: &Epoll) -> Option<OwnedFd> {
        self.unwatch(epoll);
        self.channel.take()
    }
}

/// Connects two roles by a channel of this buffer size. Each gets its end by this order.
pub(super) fn link(
    one: &mut Outbox,
    other: &mut Outbox,
    order: fn(Shared) -> Order<Shared>,
    buffer_bytes: usize,
) -> io::Result<()> {
    let (ours, theirs) = channel::pair(buffer_bytes)?;
    one.give(order(Arc::new(ours)))?;
    other.give(order(Arc::new(theirs)))
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
        assert!(!outbox.is_sent(), "more than a channel holds");
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
        let folder = Arc::new(theirs.try_clone().expect("a copy"));
        for _ in 0..100_000 {
            outbox.give(Order::Filler(Arc::clone(&folder))).expect("taken or dropped");
        }
        assert_eq!(outbox.go_on().expect_err("bounded").kind(), io::ErrorKind::TimedOut);
        assert_eq!(Arc::strong_count(&folder), 1, "no order holds a descriptor any more");
        let (mut outbox, theirs) = pair();
        for _ in 0..1_000 {
            outbox.give(Order::Drain).expect("taken");
        }
        // Closing it would not do: a process that another test starts has a copy until it executes its program.
        channel::end_receiving(&theirs).expect("shut down");
        drop(theirs);
        outbox.go_on().expect("no fault of the supervisor's");
        outbox.give(Order::Drain).expect("taken");
        assert!(outbox.is_sent());
    }
}
