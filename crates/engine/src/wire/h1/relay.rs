//! Requests that an upstream answers: their begin, their deadlines and their end. Called by [`h1`](super);
//! [`pump`](super::pump) moves their bytes.

use flash_http::max_forwards;
use flash_http::request::{Body, Request};
use flash_http::response::Status;

use super::open::{is_gathered, open};
use super::pump::{blame, leave_link, pump};
use super::script::seek_script;
use super::send::Answering;
use super::upload::Pumped;
use super::{Flow, H1, Phase, record};
use crate::desk::Core;
use crate::exchange::{Awaits, BodyWay, CLIENT_LEFT, Exchange, Parked, Record, Relay, State, Wake};
use crate::exchange::{Blamed, Turn};
use crate::handler::{
    NO_ANSWER, REQUEST_LATE, Response, Routed, SPOOL_FAILED, UPSTREAM_BUSY, error_page, has_body,
};
use crate::machine::Machine;
use crate::rules::UpstreamProtocol;
use crate::slab::{ExchangeKey, HeldKey};
use crate::upstream::{LinkPlace, TalkFailure};
use crate::wire::conn::{Conn, Verdict};

impl H1 {
    /// Begins a request that an upstream answers. `head` are its bytes.
    pub(super) fn begin_relay<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        (request, head): (&Request<'_>, &[u8]),
        routed: &Routed,
    ) -> Flow {
        if answers_itself(turn.desk.core, request, (routed, head)) {
            let answering = Answering::fresh(request, turn);
            let answering = if has_body(request) { answering.closing() } else { answering };
            return self.reply(conn, turn, answering, Response::methods());
        }
        let opened = is_gathered(turn.desk.core, request, routed).and_then(|gathers| {
            Ok((open(&mut turn.desk, conn, (request, head), (routed, gathers))?, gathers))
        });
        let (mut relay, gathers) = match opened {
            Ok(opened) => opened,
            Err(refusal) => {
                let answering = Answering::fresh(request, turn);
                return self.reply(conn, turn, answering, error_page(request, refusal));
            }
        };
        let record = record(turn, request);
        let key = turn.exchanges.insert_with(|key| {
            if gathers {
                let needs_head = request.body == Body::Chunked;
                relay.body = BodyWay::Gathered(key, needs_head.then(|| head.into()));
            }
            Exchange { opener: conn.opener, record, state: State::Relaying(Box::new(relay)) }
        });
        if gathers {
            turn.desk.core.spool.begin(HeldKey::Request(key), conn.opener.sharer());
        }
        conn.await_server();
        self.phase = Phase::Relaying(key);
        Flow::Again
    }

    /// Continues a request that an upstream answers.
    pub(super) fn relay_on<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        buffer: &mut [u8],
        key: ExchangeKey,
    ) -> Flow {
        let (record, mut relay) = self.lend_relay(turn, key);
        let pumped = match seek_script(conn, turn, &mut relay, key) {
            Ok(()) => pump(conn, turn, buffer, (&mut relay, key)),
            Err(pumped) => pumped,
        };
        self.after_pump(conn, turn, (key, record, relay), pumped)
    }

    fn lend_relay<M: Machine>(&mut self, turn: &mut Turn<'_, M>, key: ExchangeKey) -> (Record, Box<Relay>) {
        self.lent = Some(key);
        let Exchange { record, state, .. } = turn.exchanges.lend(key);
        let State::Relaying(mut relay) = state else {
            unreachable!("the Relaying phase has an exchange in the Relaying state")
        };
        relay.pace.pause(turn.desk.core.clock.ms());
        *turn.blamed = Blamed::Line(relay.request.request().line.to_vec());
        (record, relay)
    }

    /// Whether the rate of a client that reads the answer is to be checked now. Otherwise its server or its body is late.
    pub(super) fn is_pace_due<M: Machine>(turn: &Turn<'_, M>, key: ExchangeKey) -> bool {
        let relay = turn.exchanges.get(key).map(|exchange| &exchange.state);
        matches!(relay, Some(State::Relaying(relay)) if relay.pace_due_ms <= turn.desk.core.clock.ms())
    }

    /// Notes when the rate of a client is checked next. Its server can be late before that.
    pub(super) fn note_pace_due<S, M: Machine>(conn: &mut Conn<S>, turn: &mut Turn<'_, M>, key: ExchangeKey) {
        let Some(Exchange { state: State::Relaying(relay), .. }) = turn.exchanges.get_mut(key) else {
            return;
        };
        relay.pace_due_ms = conn.deadline_ms;
        let answer_ms = turn.links.rules(relay.upstream).answer_ms;
        conn.deadline_ms = conn.deadline_ms.min(relay.late_ms(answer_ms));
    }

    /// Handles the deadline of a relayed request.
    pub(super) fn relay_late<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        key: ExchangeKey,
    ) -> Flow {
        self.phase = Phase::Idle;
        let (record, mut relay) = self.lend_relay(turn, key);
        let refusal = match (relay.awaits, relay.place) {
            _ if relay.talk.wants_body() && relay.pace.is_late() => REQUEST_LATE,
            // The gateway, which would know of the server, does not answer.
            (Awaits::Link, LinkPlace::Has(_)) => NO_ANSWER,
            (Awaits::Link, _) => UPSTREAM_BUSY,
            (Awaits::Body, _) => REQUEST_LATE,
            (Awaits::Helper, _) => SPOOL_FAILED,
            (_, place) => {
                if let (LinkPlace::Has(link), false) = (place, relay.talk.is_upgraded()) {
                    blame(turn, &relay, link, TalkFailure("The server said nothing for too long"));
                }
                NO_ANSWER
            }
        };
        // Nothing of it is of use any more.
        relay.is_heard = false;
        let pumped = if relay.reply.is_some() { Pumped::Cut } else { Pumped::Refused(refusal) };
        self.after_pump(conn, turn, (key, record, relay), pumped)
    }

    fn after_pump<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        (key, record, mut relay): (ExchangeKey, Record, Box<Relay>),
        pumped: Pumped,
    ) -> Flow {
        let verdict = match pumped {
            Pumped::Blocked => Some(Verdict::Blocked),
            Pumped::Yield => Some(Verdict::Yield),
            _ => None,
        };
        if let Some(verdict) = verdict {
            let state = State::Relaying(relay);
            turn.exchanges.put_back(key, Exchange { opener: conn.opener, record, state });
            self.phase = Phase::Relaying(key);
            return Flow::Over(verdict);
        }
        leave_link(turn, &mut relay);
        turn.desk.core.spool.end_all(key, &mut turn.desk.core.jobs);
        conn.pace = None;
        match pumped {
            Pumped::Refused(refusal) => {
                let page = error_page(&relay.request.request(), refusal);
                let is_last = relay.talk.wants_body();
                let answering = Answering::kept(key, record, relay.request, turn);
                let answering = if is_last { answering.closing() } else { answering };
                self.reply(conn, turn, answering, page)
            }
            Pumped::HandBack(request) => {
                let state = State::Woken(Parked::new(*request), Wake::LookAgain);
                turn.exchanges.put_back(key, Exchange { opener: conn.opener, record, state });
                self.phase = Phase::Pending(key);
                Flow::Again
            }
            pumped => {
                turn.exchanges.end_lent(key);
                conn.leave_uplink(&mut turn.desk.core.egress);
                let Some(reply) = relay.reply else {
                    record.note_end(&mut turn.desk, &conn.peer, (CLIENT_LEFT, 0, false));
                    return Flow::Over(Verdict::Close);
                };
                let is_whole = matches!(pumped, Pumped::Done);
                if is_whole && reply.left_bytes.is_none() {
                    turn.desk.core.schedule.note_answer(reply.body_bytes);
                }
                record.note_end(&mut turn.desk, &conn.peer, (reply.status, reply.body_bytes, is_whole));
                if !is_whole {
                    // A client that takes the end of the connection for that of the body gets a reset instead.
                    let ends_with_close = !reply.is_chunked && reply.left_bytes.is_none();
                    return Flow::Over(if ends_with_close { Verdict::Reset } else { Verdict::Close });
                }
                self.after_answer(conn, turn, reply.status, reply.closes)
            }
        }
    }

    /// Leaves the link of a request whose connection is being dropped. Returns what the client got of the answer.
    pub(super) fn leave_relay<M: Machine>(turn: &mut Turn<'_, M>, key: ExchangeKey) -> (Status, u64) {
        let mut exchange = turn.exchanges.lend(key);
        let mut sent = (CLIENT_LEFT, 0);
        if let State::Relaying(relay) = &mut exchange.state {
            leave_link(turn, relay);
            turn.desk.core.spool.end_all(key, &mut turn.desk.core.jobs);
            if let Some(reply) = &relay.reply {
                sent = (reply.status, reply.body_bytes);
            }
        }
        turn.exchanges.put_back(key, exchange);
        sent
    }
}

/// Whether a request must not be forwarded any further (RFC 9110, section 7.6.2). An application of FastCGI is a part of
/// this server.
fn answers_itself<F>(core: &Core<F>, request: &Request<'_>, (routed, head): (&Routed, &[u8])) -> bool {
    let upstream = routed.rules(core).upstream;
    core.rules.upstreams[usize::from(upstream.0)].protocol == UpstreamProtocol::Http
        && max_forwards(request, head) == Some(0)
}
