//! The part of a connection that every protocol has: its transport, its deadline and its buffered input. Called by
//! [`wire`](crate::wire) and the protocols.

use std::cell::OnceCell;
use std::net::SocketAddr;

use flash_http::Field;
use flash_http::proxies::{NamedClient, named_client};
use flash_http::proxy_protocol::ProxyHeader;

use crate::context::{Context, Core};
use crate::exchange::{Inputs, Opener};
use crate::limits::RATE_WINDOW_MS;
use crate::machine::{Machine, RecordLayer, TlsVersion};
use crate::requester::{Requester, Scheme};
use crate::schedule::{Egress, Ticket};
use crate::shares::Sharer;
use crate::slab::ClientNumber;
use crate::transport::{Readiness, Transport};

/// The part of a connection that every protocol has.
#[derive(Debug)]
pub(crate) struct Conn<S> {
    pub(crate) transport: Transport<S>,
    pub(crate) peer: SocketAddr,
    /// Whether the peer is a proxy whose word about its clients counts.
    pub(crate) is_proxy: bool,
    /// Who sends its requests: the peer, or the client that it has introduced.
    own: Requester,
    /// Who sent the last request: the same, or the client that a trusted proxy names in it.
    pub(crate) requester: Requester,
    /// The address that the client reached, once an application has wanted it.
    local: OnceCell<Option<SocketAddr>>,
    pub(crate) opener: Opener,
    /// Input received and not yet consumed.
    pub(crate) input: Vec<u8>,
    /// Deadline, in milliseconds of the monotonic clock; `u64::MAX` for none.
    pub(crate) deadline_ms: u64,
    /// Since when it has been idle, if it is idle; for a newcomer, from when on it counts as idle.
    pub(crate) idle_since_ms: u64,
    /// The tick under which the timers have it.
    pub(crate) filed_tick: Option<u64>,
    /// Whether it is in the queue of connections to be continued.
    pub(crate) queued: bool,
    /// The bytes that the client had acknowledged at the last rate check; None while the server does not wait
    /// for the client to read.
    pub(crate) acknowledged_before: Option<u64>,
    pub(crate) uplink: Uplink,
}

/// The place of a connection at an uplink of known rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uplink {
    /// It does not wait.
    Free,
    /// It waits for its turn.
    Waiting(Ticket),
    /// It is its turn.
    Granted,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnEnd {
    /// The connection waits for its socket, a job, or its deadline.
    Blocked,
    /// The connection has used up its turn.
    Yield,
    Close,
    /// The client speaks HTTP/2; its input is kept.
    SpeaksHttp2,
    /// The connection is closed, and unsent data is discarded.
    Reset,
}

impl<S> Conn<S> {
    pub(crate) fn new(socket: S, peer: SocketAddr, opener: Opener) -> Self {
        let is_local = peer.ip().to_canonical().is_loopback();
        let (scheme, sharer, is_proxied) = (Scheme::Http, opener.sharer(), false);
        let own = Requester { address: peer, scheme, tls: None, sharer, is_local, is_proxied };
        Self {
            transport: Transport::new(socket),
            peer,
            is_proxy: false,
            own,
            requester: own,
            local: OnceCell::new(),
            opener,
            input: Vec::new(),
            deadline_ms: u64::MAX,
            idle_since_ms: 0,
            filed_tick: None,
            queued: false,
            acknowledged_before: None,
            uplink: Uplink::Free,
        }
    }

    /// Puts a record layer between the connection and its socket, which is new.
    pub(crate) fn start_tls(&mut self, layer: Box<dyn RecordLayer>) {
        self.transport.start_tls(layer);
        self.own.scheme = Scheme::Https;
        self.requester.scheme = Scheme::Https;
    }

    /// Notes the version that the handshake has agreed on.
    pub(crate) fn set_tls_version(&mut self, version: TlsVersion) {
        self.own.tls = Some(version);
        self.requester.tls = Some(version);
    }

    /// Gives the connection the client that its proxy has introduced.
    pub(crate) fn take_proxy_header(&mut self, header: &ProxyHeader, is_exempt: bool) {
        if let Some((client, server)) = header.addresses {
            self.opener = Opener { client: ClientNumber::of(client.ip()), is_exempt, ..self.opener };
            self.own = Requester { address: client, sharer: self.opener.sharer(), ..self.own };
            self.local = OnceCell::from(Some(server));
        }
        if header.is_encrypted {
            self.own.scheme = Scheme::Https;
        }
        self.own.is_local = false;
        self.requester = self.own;
    }

    /// Says whether the peer is a proxy whose word about its clients counts.
    pub(crate) fn set_proxy(&mut self, is_proxy: bool) {
        self.is_proxy = is_proxy;
        self.own.is_local &= !is_proxy;
        self.own.is_proxied = is_proxy;
        self.requester = self.own;
    }

    /// Counts input that is no request as sent by the peer, or by the client that it has introduced.
    pub(crate) fn forget_requester(&mut self) {
        self.requester = self.own;
    }

    /// Who sent a request with these fields, if the peer is a trusted proxy.
    pub(crate) fn named_requester<F>(&self, core: &Core<F>, fields: &[Field<'_>]) -> Requester {
        let own = self.own;
        let NamedClient { address, is_https } =
            named_client(fields, core.rules.proxies.field, |ip| core.rules.proxies.contain(ip));
        let scheme =
            is_https.map_or(own.scheme, |is_https| if is_https { Scheme::Https } else { Scheme::Http });
        let Some(address) = address else { return Requester { scheme, ..own } };
        let is_exempt = core.rules.admission.exempts(address.ip());
        Requester {
            address,
            scheme,
            tls: own.tls,
            sharer: Sharer { client: ClientNumber::of(address.ip()), is_exempt },
            is_local: false,
            is_proxied: true,
        }
    }

    /// The connection and the client that the exchange of a request belongs to.
    pub(crate) fn opener_for(&self, requester: &Requester) -> Opener {
        let Sharer { client, is_exempt } = requester.sharer;
        Opener { client, is_exempt, ..self.opener }
    }

    /// The address that the client has reached, if it is known: that of a proxy is not.
    pub(crate) fn local_address<M: Machine<Socket = S>>(&self, machine: &mut M) -> Option<SocketAddr> {
        if self.is_proxy {
            return None;
        }
        *self.local.get_or_init(|| machine.local_address(self.transport.socket()))
    }

    /// Keeps input that was received and not consumed. Returns false if there is no room for it.
    pub(crate) fn keep_input(&mut self, inputs: &mut Inputs, rest: &[u8]) -> bool {
        debug_assert!(self.input.is_empty());
        if rest.is_empty() {
            return true;
        }
        let has_room = inputs.take(self.opener.client, rest.len());
        if has_room {
            self.input = rest.to_vec();
        }
        has_room
    }

    /// Takes the kept input out.
    pub(crate) fn take_input(&mut self, inputs: &mut Inputs) -> Vec<u8> {
        inputs.give_back(self.opener.client, self.input.len());
        std::mem::take(&mut self.input)
    }

    /// Gives the socket the band of the bytes that its answer has left. Costs nothing with a fair schedule.
    pub(crate) fn follow_schedule<M: Machine<Socket = S>>(
        &mut self,
        context: &mut Context<'_, M>,
        left_bytes: u64,
    ) {
        let schedule = &mut context.core.schedule;
        if !schedule.is_fair()
            && self.transport.set_band(context.machine, &self.peer, schedule.band(left_bytes))
        {
            schedule.count_change();
        }
    }

    /// How many bytes of an answer with `left_bytes` left may go to the uplink now. None if the connection has
    /// to wait for its turn; the uplink calls it then.
    pub(crate) fn request_uplink<M: Machine>(
        &mut self,
        context: &mut Context<'_, M>,
        left_bytes: u64,
    ) -> Option<usize> {
        let (egress, now_ms) = (&mut context.core.egress, context.core.clock.ms());
        match self.uplink {
            Uplink::Granted => {
                self.uplink = Uplink::Free;
                return Some(egress.grant_bytes());
            }
            Uplink::Free => match egress.request(left_bytes, now_ms) {
                Some(bytes) => return Some(bytes),
                None => {
                    let ticket = egress.wait(self.opener.connection, left_bytes, now_ms);
                    self.uplink = Uplink::Waiting(ticket);
                }
            },
            Uplink::Waiting(_) => {}
        }
        self.await_server();
        None
    }

    /// Stops checking the client's rate, because the server makes it wait.
    pub(crate) fn await_server(&mut self) {
        self.acknowledged_before = None;
        self.deadline_ms = u64::MAX;
    }

    /// Leaves the uplink, because the connection is being closed or its answer is made anew.
    pub(crate) fn leave_uplink(&mut self, egress: &mut Egress) {
        if let Uplink::Waiting(ticket) = std::mem::replace(&mut self.uplink, Uplink::Free) {
            egress.leave(ticket);
        }
    }

    /// Waits until the client has read more, and starts to check its rate.
    pub(crate) fn await_room<M: Machine<Socket = S>>(&mut self, machine: &mut M, now_ms: u64) -> TurnEnd {
        if self.acknowledged_before.is_none() {
            self.acknowledged_before = Some(self.transport.acknowledged_bytes(machine));
            self.deadline_ms = now_ms + RATE_WINDOW_MS;
        }
        TurnEnd::Blocked
    }

    /// Checks the client's rate. If it is too low, the transport tries again to send, because the kernel reports room only
    /// when there is much of it; a second check then decides. A client that is fast enough is sent nothing: to fill its
    /// socket takes long, and thousands of clients can be checked at once.
    pub(crate) fn seems_slow<M: Machine<Socket = S>>(&mut self, context: &mut Context<'_, M>) -> bool {
        let before = self.acknowledged_before;
        let is_slow = !self.check_reader_rate(context);
        if is_slow {
            self.acknowledged_before = before;
            self.transport.suspect(Readiness { writable: true, ..Readiness::default() });
        }
        is_slow
    }

    /// Checks how much a client has acknowledged since the last check. Returns false if its rate is too low.
    pub(crate) fn check_reader_rate<M: Machine<Socket = S>>(&mut self, context: &mut Context<'_, M>) -> bool {
        let wanted_bytes = context.core.rules.least_rate_bytes_per_s * RATE_WINDOW_MS / 1000;
        let acknowledged_bytes = self.transport.acknowledged_bytes(context.machine);
        let before = self.acknowledged_before.replace(acknowledged_bytes).unwrap_or(0);
        self.deadline_ms = context.core.clock.ms() + RATE_WINDOW_MS;
        acknowledged_bytes.saturating_sub(before) >= wanted_bytes
    }
}
