//! The connections of a worker to the servers of its upstreams: assigns them to requests, queues the requests
//! that must wait. `events` handles what happens to them, `handshake` encrypts them, `health` counts the failures of servers, and
//! `idle` keeps the connections that no request uses. Called by the wires, for requests that an upstream answers, and by
//! [`Engine`](crate::Engine).
//!
//! A request [`seek`](Links::seek)s a link. It gets an idle one, or one that the gateway makes for it, or it
//! waits in the upstream's queue. New requests do not pass those in the queue, except those of a client that has its
//! [share](crate::shares) of the connections.

use std::collections::{BTreeSet, HashMap};
use std::io;

use crate::counters::LinkCounters;
use crate::limits::HANDSHAKES_PER_TURN_MAX;
use crate::machine::Machine;
use crate::report_limit::ReportLimit;
use crate::rules::{ServerId, ServerRules, UpstreamId, UpstreamRules};
use crate::slab::{ClientNumber, ExchangeKey, Key, Slab};
use crate::transport::Transport;
use crate::upstream::pool::{Pool, Seeker};

/// A connection to a server.
#[derive(Debug)]
pub(super) struct Link<S> {
    pub(super) server: ServerId,
    /// The client whose share it counts for, until it is idle.
    pub(super) client: Option<ClientNumber>,
    /// Whether it has carried an earlier request, so that its server may be about to close it.
    pub(super) was_used: bool,
    /// When it was asked for.
    since_ms: u64,
    /// Whether its end was reported. It needs no further events.
    pub(super) is_broken: bool,
    /// When its handshake must be over, if it is encrypted.
    pub(super) due_ms: u64,
    pub(super) state: LinkState<S>,
}

#[derive(Debug)]
pub(super) enum LinkState<S> {
    /// The gateway makes it, for this exchange; None if that no longer needs it.
    Requested(Option<ExchangeKey>),
    /// The gateway has made it, and its handshake is under way, for this exchange.
    Handshaking(ExchangeKey, Transport<S>),
    /// The gateway could not make it, or its handshake failed, for this reason; this exchange does not know yet.
    Failed(ExchangeKey, NoLink),
    /// It was idle and is now for this exchange, which has not sent anything yet.
    Granted(ExchangeKey, Transport<S>),
    /// This exchange uses it.
    InUse(ExchangeKey, Transport<S>),
    /// No request uses it.
    Idle(Transport<S>),
}

/// How a request stands with its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkClaim {
    /// It has not asked for one.
    None,
    /// It waits in the queue, with this ticket.
    Queued(u64),
    /// It has this one, which may still be in the making.
    Has(Key),
}

/// Why there is no link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoLink {
    Refused,
    Late,
    /// A limit of this machine was reached, or the gateway has ended.
    OwnFault,
}

impl NoLink {
    pub(crate) fn of(why: &io::Error) -> Self {
        match why.kind() {
            io::ErrorKind::TimedOut => NoLink::Late,
            io::ErrorKind::WouldBlock => NoLink::OwnFault,
            _ if why.raw_os_error().is_none() => NoLink::OwnFault,
            _ => NoLink::Refused,
        }
    }
}

/// The result of [`Links::seek`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sought {
    /// The link is there. If it `was_used` by an earlier request, its server may be about to close it.
    Linked {
        link: Key,
        was_used: bool,
    },
    Waits,
    /// The server accepts no connection.
    Failed(ServerId, NoLink),
    /// The queue is full.
    Full,
}

/// The links of a worker.
#[derive(Debug)]
pub(crate) struct Links<S> {
    pub(super) links: Slab<Link<S>>,
    pub(super) pools: Vec<Pool>,
    /// No pause of a server ends earlier; None if there is none.
    pub(super) resumes_ms: Option<u64>,
    /// No link has been idle for long enough earlier; None if none is idle.
    pub(super) idle_ends_ms: Option<u64>,
    /// The handshakes under way: when each must be over, and the number of its link.
    pub(super) handshakes: BTreeSet<(u64, u64)>,
    /// How many steps of handshakes are left in this turn.
    pub(super) steps_left: usize,
    /// Reports of shortages of this machine.
    pub(super) shortage_reports: ReportLimit,
    next_ticket: u64,
    /// Links for requests that waited in a queue, by their tickets.
    granted: HashMap<u64, Key>,
    /// Exchanges that can continue.
    pub(super) woken: Vec<ExchangeKey>,
    pub(super) counters: LinkCounters,
}

impl<S> Links<S> {
    /// Without links. The choice among equal servers begins at the place `first`.
    pub(crate) fn new(rules: &[UpstreamRules], first: usize) -> Self {
        Self {
            links: Slab::new(),
            pools: rules.iter().map(|rules| Pool::new(rules, first)).collect(),
            resumes_ms: None,
            idle_ends_ms: None,
            handshakes: BTreeSet::new(),
            steps_left: HANDSHAKES_PER_TURN_MAX,
            shortage_reports: ReportLimit::default(),
            next_ticket: 0,
            granted: HashMap::new(),
            woken: Vec::new(),
            counters: LinkCounters::default(),
        }
    }

    /// Finds out whether a request has its link, and asks for one if it has none.
    pub(crate) fn seek<M: Machine<Socket = S>>(
        &mut self,
        machine: &mut M,
        seeker: Seeker,
        claim: &mut LinkClaim,
        now_ms: u64,
    ) -> Sought {
        match *claim {
            LinkClaim::None => match self.claim(machine, seeker, now_ms) {
                Some(new) => *claim = new,
                None => return Sought::Full,
            },
            LinkClaim::Queued(ticket) => {
                let Some(link) = self.granted.remove(&ticket) else { return Sought::Waits };
                *claim = LinkClaim::Has(link);
            }
            LinkClaim::Has(_) => {}
        }
        let LinkClaim::Has(mut key) = *claim else { return Sought::Waits };
        while self.has_ended(machine, key) {
            self.remove(key);
            // Since that link was chosen, its server may have been found to be in trouble.
            let Some(server) = self.pools[usize::from(seeker.upstream.0)].choose(seeker, now_ms) else {
                *claim = LinkClaim::None;
                return self.seek(machine, seeker, claim, now_ms);
            };
            key = self.link_to(machine, server, seeker, now_ms);
            *claim = LinkClaim::Has(key);
        }
        self.continue_handshake(machine, key, now_ms);
        match self.links.get(key) {
            Some(Link { state: LinkState::InUse(..), was_used, .. }) => {
                Sought::Linked { link: key, was_used: *was_used }
            }
            Some(Link { state: LinkState::Failed(_, why), server, .. }) => {
                let (server, why) = (*server, *why);
                *claim = LinkClaim::None;
                self.remove(key);
                self.serve_queue(machine, server.upstream, now_ms);
                Sought::Failed(server, why)
            }
            _ => Sought::Waits,
        }
    }

    /// Gets a link or a place in the queue; None if the queue is full.
    fn claim<M: Machine<Socket = S>>(
        &mut self,
        machine: &mut M,
        seeker: Seeker,
        now_ms: u64,
    ) -> Option<LinkClaim> {
        // A server that was left alone can have come back, and no event has reported it.
        self.serve_queue(machine, seeker.upstream, now_ms);
        let pool = &mut self.pools[usize::from(seeker.upstream.0)];
        // Those in the queue cannot have it: their clients have their shares.
        if let Some(server) = pool.choose(seeker, now_ms) {
            return Some(LinkClaim::Has(self.link_to(machine, server, seeker, now_ms)));
        }
        if !pool.may_queue(seeker.sharer) {
            return None;
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        pool.enqueue(ticket, seeker);
        self.counters.queued += 1;
        Some(LinkClaim::Queued(ticket))
    }

    /// An idle link to the server, or a new one.
    fn link_to<M: Machine<Socket = S>>(
        &mut self,
        machine: &mut M,
        server: u16,
        seeker: Seeker,
        now_ms: u64,
    ) -> Key {
        let server = ServerId { upstream: seeker.upstream, server };
        let client = seeker.sharer.client;
        self.pools[usize::from(server.upstream.0)].links_of_clients.take(client, 1);
        if let Some(key) = self.grant_idle(server, seeker) {
            return key;
        }
        self.pools[usize::from(server.upstream.0)].servers[usize::from(server.server)].links += 1;
        let state = LinkState::Requested(Some(seeker.holder));
        let client = Some(client);
        let due_ms = now_ms.saturating_add(self.rules(server.upstream).connect_ms);
        let link =
            Link { server, client, was_used: false, since_ms: now_ms, is_broken: false, due_ms, state };
        let key = self.links.insert(link);
        self.counters.asked += 1;
        machine.connect(key, server);
        key
    }

    /// The socket of a link that a request has.
    pub(crate) fn transport(&mut self, key: Key) -> Option<&mut Transport<S>> {
        match &mut self.links.get_mut(key)?.state {
            LinkState::InUse(_, transport) => Some(transport),
            _ => None,
        }
    }

    pub(crate) fn server_of(&self, key: Key) -> Option<ServerId> {
        self.links.get(key).map(|link| link.server)
    }

    /// The name of a server, for messages.
    pub(crate) fn name(&self, server: ServerId) -> &str {
        &self.rules_of(server).name
    }

    pub(super) fn rules_of(&self, server: ServerId) -> &ServerRules {
        &self.rules(server.upstream).servers[usize::from(server.server)]
    }

    /// Leaves a link after a complete answer, so that another request can use it.
    pub(crate) fn release<M: Machine<Socket = S>>(&mut self, machine: &mut M, key: Key, now_ms: u64) {
        let Some(Link { server, since_ms, .. }) = self.links.get(key) else { return };
        let (server, since_ms) = (*server, *since_ms);
        if self.pools[usize::from(server.upstream.0)].is_too_old(since_ms, now_ms) {
            self.close(machine, key);
        } else {
            self.make_idle(machine, key, now_ms);
        }
        self.serve_queue(machine, server.upstream, now_ms);
        self.trim(machine, server);
    }

    /// Leaves the place of a request whose link is of no further use, or that has ended early.
    pub(crate) fn leave<M: Machine<Socket = S>>(
        &mut self,
        machine: &mut M,
        upstream: UpstreamId,
        claim: LinkClaim,
        now_ms: u64,
    ) {
        let key = match claim {
            LinkClaim::None => return,
            LinkClaim::Queued(ticket) => {
                self.pools[usize::from(upstream.0)].dequeue(|other, _| other == ticket);
                match self.granted.remove(&ticket) {
                    Some(key) => key,
                    None => return,
                }
            }
            LinkClaim::Has(key) => key,
        };
        let Some(link) = self.links.get_mut(key) else { return };
        match &mut link.state {
            // It will be idle once it is made.
            LinkState::Requested(holder) => *holder = None,
            LinkState::Granted(..) => self.release(machine, key, now_ms),
            LinkState::InUse(_, transport) if !transport.has_sent() => self.release(machine, key, now_ms),
            _ => {
                self.close(machine, key);
                self.serve_queue(machine, upstream, now_ms);
            }
        }
    }

    /// Closes a link that has failed its request.
    pub(crate) fn discard<M: Machine<Socket = S>>(&mut self, machine: &mut M, key: Key, now_ms: u64) {
        let Some(server) = self.server_of(key) else { return };
        self.close(machine, key);
        self.serve_queue(machine, server.upstream, now_ms);
    }

    /// Leaves all places of an exchange whose turn has panicked.
    pub(crate) fn leave_all<M: Machine<Socket = S>>(
        &mut self,
        machine: &mut M,
        holder: ExchangeKey,
        now_ms: u64,
    ) {
        let held: Vec<Key> = self.links.keys().filter(|key| self.is_held_by(*key, holder)).collect();
        for pool in &mut self.pools {
            pool.dequeue(|_, seeker| seeker.holder == holder);
        }
        for key in held {
            self.granted.retain(|_, granted| *granted != key);
            let Some(server) = self.server_of(key) else { continue };
            self.leave(machine, server.upstream, LinkClaim::Has(key), now_ms);
        }
    }

    fn is_held_by(&self, key: Key, holder: ExchangeKey) -> bool {
        self.links.get(key).is_some_and(|link| match &link.state {
            LinkState::Requested(other) => *other == Some(holder),
            LinkState::Failed(other, _)
            | LinkState::Handshaking(other, _)
            | LinkState::Granted(other, _)
            | LinkState::InUse(other, _) => *other == holder,
            LinkState::Idle(_) => false,
        })
    }

    /// No longer counts a link for the share of its client.
    pub(super) fn end_share(&mut self, key: Key) {
        let Some(link) = self.links.get_mut(key) else { return };
        if let Some(client) = link.client.take() {
            self.pools[usize::from(link.server.upstream.0)].links_of_clients.give_back(client, 1);
        }
    }

    /// Closes a link that a request has used. Whoever closes first keeps the connection for a minute, in the state
    /// TIME_WAIT (RFC 9293, section 3.6.1), and with it a port: some 470 requests a second would use up all ports. A reset
    /// keeps nothing, and is useless for a Unix socket. It comes only when the server has all that was sent, and not if the server has closed first.
    pub(super) fn close<M: Machine<Socket = S>>(&mut self, machine: &mut M, key: Key) {
        if let Some(Link {
            server, state: LinkState::InUse(_, transport) | LinkState::Idle(transport), ..
        }) = self.links.get(key)
            && !self.rules_of(*server).is_unix
            && !transport.has_ended()
            && !transport.is_half_closed()
            && transport.is_acknowledged(machine)
        {
            transport.reset(machine);
        }
        self.remove(key);
    }

    pub(super) fn remove(&mut self, key: Key) {
        self.end_share(key);
        let Some(link) = self.links.remove(key) else { return };
        self.handshakes.remove(&(link.due_ms, key.to_u64()));
        self.pools[usize::from(link.server.upstream.0)].servers[usize::from(link.server.server)].links -= 1;
    }

    /// Gives free places to the requests in the queue, in their order.
    pub(super) fn serve_queue<M: Machine<Socket = S>>(
        &mut self,
        machine: &mut M,
        upstream: UpstreamId,
        now_ms: u64,
    ) {
        while let Some((ticket, seeker, server)) = self.pools[usize::from(upstream.0)].next_served(now_ms) {
            let key = self.link_to(machine, server, seeker, now_ms);
            self.granted.insert(ticket, key);
            self.woken.push(seeker.holder);
        }
    }

    pub(crate) fn rules(&self, upstream: UpstreamId) -> &UpstreamRules {
        &self.pools[usize::from(upstream.0)].rules
    }

    pub(crate) fn counters(&self) -> LinkCounters {
        let waiting = self.pools.iter().map(|pool| pool.queue.len()).sum();
        let down = self.pools.iter().map(Pool::probed_down).sum();
        LinkCounters { links: self.links.len(), waiting, down, ..self.counters }
    }
}
