//! Takes the body of a request that an upstream answers from its client: piece by piece for the server, or all of it
//! for the spool, which then gives it to the server. Called by [`pump`](super::pump).

use flash_http::RequestBuf;
use flash_http::request::Body;

use super::open::write_opening;
use crate::exchange::Turn;
use crate::exchange::{Awaits, BodyWay, Relay};
use crate::handler::{EXHAUSTED, Refusal, SPOOL_FAILED, route};
use crate::machine::Machine;
use crate::slab::{ExchangeKey, HeldKey, Key};
use crate::spool::{SpoolFull, Supply};
use crate::transport::{Gone, Received};
use crate::upstream::TalkFailure;
use crate::wire::conn::Conn;

/// How the work on a relayed request ended for now.
pub(super) enum Pumped {
    Blocked,
    Yield,
    /// All of the answer was sent.
    Done,
    /// The client gets no more of the answer, and notices by the close.
    Cut,
    Refused(Refusal),
    /// The upstream wants this request to be answered with a file.
    HandBack(Box<RequestBuf>),
}

/// Why a step could not be made.
pub(super) enum Stop {
    Pumped(Pumped),
    /// The server, or what it said, is at fault.
    Failed(TalkFailure),
}

impl From<TalkFailure> for Stop {
    fn from(failure: TalkFailure) -> Self {
        Stop::Failed(failure)
    }
}

impl From<Gone> for Stop {
    fn from(_: Gone) -> Self {
        Stop::Pumped(Pumped::Cut)
    }
}

impl From<Pumped> for Stop {
    fn from(pumped: Pumped) -> Self {
        Stop::Pumped(pumped)
    }
}

/// Takes a piece of the body for the server, once the piece before it was sent.
pub(super) fn take_body<M: Machine>(
    conn: &mut Conn<M::Socket>,
    turn: &mut Turn<'_, M>,
    buffer: &mut [u8],
    relay: &mut Relay,
    link: Key,
) -> Result<bool, Stop> {
    if !relay.talk.wants_body() || !relay.talk.is_all_sent() || !relay.is_heard {
        return Ok(false);
    }
    say_continue(conn, turn, relay)?;
    let filled = match receive(conn, turn, buffer) {
        Received::Bytes(bytes) => bytes,
        Received::Nothing => return Ok(false),
        // After an upgrade, either side can end first.
        Received::End if relay.talk.is_upgraded() => {
            relay.is_heard = false;
            if let Some(transport) = turn.links.transport(link) {
                transport.end_sending(turn.desk.machine);
            }
            return Ok(true);
        }
        ended => return Err(left(conn, relay, ended).into()),
    };
    let taken = relay.talk.take_body(&mut buffer[..filled]).map_err(|refusal| refused(relay, refusal))?;
    relay.pace.took(taken.data_bytes);
    keep(conn, turn, &buffer[taken.consumed..filled]);
    Ok(true)
}

/// Has the spool take the body, if that is its way. Returns once the request can be sent to a server.
pub(super) fn gather<M: Machine>(
    conn: &mut Conn<M::Socket>,
    turn: &mut Turn<'_, M>,
    buffer: &mut [u8],
    relay: &mut Relay,
) -> Result<(), Pumped> {
    if let Some(refusal) = relay.refused.take() {
        return Err(refused(relay, refusal));
    }
    let BodyWay::Gathered(exchange, _) = relay.body else { return Ok(()) };
    let mut has_progressed = false;
    loop {
        let now_ms = turn.desk.core.clock.ms();
        let is_whole = !relay.talk.wants_body();
        let body = HeldKey::Request(exchange);
        let core = &mut *turn.desk.core;
        if !is_whole && core.spool.wants_write(body) {
            let written = core.spool.write(body, &mut core.jobs, now_ms);
            written.map_err(|SpoolFull| Pumped::Refused(SPOOL_FAILED))?;
        }
        if core.spool.is_busy(body) {
            relay.await_from(Awaits::Helper, has_progressed, now_ms);
            conn.await_server();
            return Err(Pumped::Blocked);
        }
        if is_whole {
            return begin_sending(conn, turn, relay, exchange);
        }
        if turn.budget.bytes == 0 {
            relay.since_ms = now_ms;
            return Err(Pumped::Yield);
        }
        say_continue(conn, turn, relay)?;
        let filled = match receive(conn, turn, buffer) {
            Received::Bytes(bytes) => bytes,
            Received::Nothing => {
                relay.await_from(Awaits::Body, has_progressed, now_ms);
                relay.pace.wait(now_ms);
                conn.await_server();
                let silent_ms = relay.since_ms + turn.desk.core.rules.timeouts.head_ms;
                conn.deadline_ms = silent_ms.min(relay.pace.due_ms());
                return Err(Pumped::Blocked);
            }
            ended => return Err(left(conn, relay, ended)),
        };
        has_progressed = true;
        let decoded =
            relay.talk.decode_body(&mut buffer[..filled]).map_err(|refusal| refused(relay, refusal))?;
        turn.desk.core.spool.add(body, &buffer[..decoded.data_bytes]);
        relay.pace.took(decoded.data_bytes);
        keep(conn, turn, &buffer[decoded.consumed..filled]);
    }
}

/// Begins to send a request whose body the spool has.
fn begin_sending<M: Machine>(
    conn: &Conn<M::Socket>,
    turn: &mut Turn<'_, M>,
    relay: &mut Relay,
    exchange: ExchangeKey,
) -> Result<(), Pumped> {
    let length_bytes = turn.desk.core.spool.length_bytes(HeldKey::Request(exchange));
    if let BodyWay::Gathered(_, Some(head)) = std::mem::replace(&mut relay.body, BodyWay::Held(exchange)) {
        let request = relay.request.request();
        let routed = route(turn.desk.core, &request).ok_or(Pumped::Refused(EXHAUSTED))?;
        let body = Body::Length(length_bytes);
        write_opening(&mut turn.desk, conn, (&request, &head), &routed, (&mut relay.talk, body));
    }
    relay.talk.hold(length_bytes);
    relay.await_from(Awaits::Link, true, turn.desk.core.clock.ms());
    Ok(())
}

/// Gives a piece of a body that the spool has to the server, once the piece before it was sent.
pub(super) fn give_held<M: Machine>(turn: &mut Turn<'_, M>, relay: &mut Relay) -> Result<bool, Pumped> {
    let (BodyWay::Held(exchange), Some(at)) = (&relay.body, relay.talk.held_at()) else { return Ok(false) };
    if !relay.talk.is_all_sent() || !relay.is_heard {
        return Ok(false);
    }
    let (core, body) = (&mut *turn.desk.core, HeldKey::Request(*exchange));
    match core.spool.part(body, at) {
        Supply::Bytes(bytes) => {
            let bytes = &bytes[..bytes.len().min(turn.budget.bytes)];
            turn.budget.bytes -= bytes.len();
            relay.talk.give(bytes);
            Ok(!bytes.is_empty())
        }
        Supply::InFile => {
            let pace = (core.handed_over.bytes(), core.clock.ms());
            let read = core.spool.read(body, at, &mut core.jobs, pace);
            read.map(|()| false).map_err(|SpoolFull| refused(relay, SPOOL_FAILED))
        }
    }
}

/// Takes the input that the connection holds, or receives more.
fn receive<M: Machine>(conn: &mut Conn<M::Socket>, turn: &mut Turn<'_, M>, buffer: &mut [u8]) -> Received {
    let held = conn.input.len();
    let received = if held > 0 {
        buffer[..held].copy_from_slice(&conn.take_input(turn.inputs));
        Received::Bytes(held)
    } else {
        conn.transport.receive(turn.desk.machine, buffer)
    };
    if let Received::Bytes(bytes) = received {
        turn.budget.bytes = turn.budget.bytes.saturating_sub(bytes);
    }
    received
}

/// Keeps the bytes behind the body: the next request.
fn keep<M: Machine>(conn: &mut Conn<M::Socket>, turn: &mut Turn<'_, M>, rest: &[u8]) {
    if !conn.keep_input(turn.inputs, rest) {
        conn.transport.stop_receiving();
    }
}

/// The end of a request whose client sends no more, though the body is not complete.
fn left<S>(conn: &Conn<S>, relay: &Relay, received: Received) -> Pumped {
    // There was no room for what had come of it.
    let is_stopped = matches!(received, Received::End) && !conn.transport.is_hung_up();
    if is_stopped { refused(relay, EXHAUSTED) } else { Pumped::Cut }
}

/// The end of a request that is refused.
fn refused(relay: &Relay, refusal: Refusal) -> Pumped {
    if relay.reply.is_some() { Pumped::Cut } else { Pumped::Refused(refusal) }
}

/// Tells a client that waits for it to send the body (RFC 9110, section 10.1.1).
fn say_continue<M: Machine>(
    conn: &mut Conn<M::Socket>,
    turn: &mut Turn<'_, M>,
    relay: &mut Relay,
) -> Result<(), Pumped> {
    if std::mem::replace(&mut relay.said_continue, true) || !relay.request.request().expect_continue {
        return Ok(());
    }
    let interim = b"HTTP/1.1 100 Continue\r\n\r\n";
    // An answer that has begun says as much.
    if relay.reply.is_some() || !conn.input.is_empty() {
        return Ok(());
    }
    match conn.transport.send(turn.desk.machine, interim, &[]) {
        // The client continues without it after a while.
        Ok(sent) if sent == interim.len() || sent == 0 => {
            turn.desk.core.counters.sends.add(sent as u64);
            Ok(())
        }
        _ => Err(Pumped::Cut),
    }
}
