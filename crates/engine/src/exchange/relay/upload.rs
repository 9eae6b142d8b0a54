//! Takes the body of a request that an upstream answers from its client: piece by piece for the server, or all of it
//! for the spool, which then gives it to the server. Called by [`pump`](super::pump).

use flash_http::request::Body;

use super::{Advance, Awaits, BodyWay, ReceivedBody, Relay, RelayClient, Stop};
use crate::exchange::Turn;
use crate::handler::{EXHAUSTED, Refusal, SPOOL_FAILED};
use crate::machine::Machine;
use crate::slab::{Key, SpooledKey};
use crate::spool::{SpoolFull, Supply};
use crate::transport::Gone;

/// Takes a piece of the body for the server, once the piece before it was sent.
pub(super) fn take_body<M: Machine>(
    client: &mut impl RelayClient<M>,
    turn: &mut Turn<'_, M>,
    buffer: &mut [u8],
    relay: &mut Relay,
    link: Key,
) -> Result<bool, Stop> {
    if !relay.current.transaction.wants_body()
        || !relay.current.transaction.is_all_sent()
        || !relay.accepts_request
    {
        return Ok(false);
    }
    invite(client, turn, relay)?;
    let (bytes, is_last) = match client.receive(turn, buffer) {
        ReceivedBody::Data { bytes, is_last } => (bytes, is_last),
        ReceivedBody::Nothing => return Ok(false),
        // After an upgrade, either side can end first.
        ReceivedBody::End { .. } if relay.current.transaction.is_upgraded() => {
            relay.accepts_request = false;
            if let Some(transport) = turn.links.transport(link) {
                transport.end_sending(turn.context.machine);
            }
            return Ok(true);
        }
        other => return Err(left(relay, other).into()),
    };
    let taken = relay.current.transaction.take_body(&buffer[..bytes], is_last);
    taken.map_err(|refusal| refused(relay, refusal))?;
    relay.upload_rate.took(bytes);
    Ok(true)
}

/// Has the spool take the body, if that is its way. Returns once the request can be sent to a server.
pub(super) fn gather<M: Machine>(
    client: &mut impl RelayClient<M>,
    turn: &mut Turn<'_, M>,
    buffer: &mut [u8],
    relay: &mut Relay,
) -> Result<(), Advance> {
    if let Some(refusal) = relay.refused.take() {
        return Err(refused(relay, refusal));
    }
    if !matches!(relay.current.body, BodyWay::Gathered) {
        return Ok(());
    }
    let body = SpooledKey::Request(relay.key);
    let mut has_progressed = false;
    loop {
        let now_ms = turn.context.core.clock.ms();
        let is_whole = !relay.current.transaction.wants_body();
        let core = &mut *turn.context.core;
        if !is_whole && core.spool.wants_write(body) {
            let written = core.spool.write(body, &mut core.jobs, now_ms);
            written.map_err(|SpoolFull| Advance::Refused(SPOOL_FAILED))?;
        }
        if core.spool.is_busy(body) {
            relay.await_from(Awaits::Helper, has_progressed, now_ms);
            return Err(relay.block(u64::MAX));
        }
        if is_whole {
            begin_sending(turn, relay);
            return Ok(());
        }
        if turn.budget.bytes == 0 {
            relay.since_ms = now_ms;
            return Err(Advance::Yield);
        }
        invite(client, turn, relay)?;
        let (bytes, is_last) = match client.receive(turn, buffer) {
            ReceivedBody::Data { bytes, is_last } => (bytes, is_last),
            ReceivedBody::Nothing => {
                relay.await_from(Awaits::Body, has_progressed, now_ms);
                relay.upload_rate.wait(now_ms);
                let silent_ms = relay.since_ms + turn.context.core.rules.timeouts.head_ms;
                return Err(relay.block(silent_ms.min(relay.upload_rate.due_ms())));
            }
            other => return Err(left(relay, other)),
        };
        has_progressed = true;
        relay.current.transaction.pass_body(bytes, is_last).map_err(|refusal| refused(relay, refusal))?;
        turn.context.core.spool.add(body, &buffer[..bytes]);
        relay.upload_rate.took(bytes);
    }
}

/// Begins to send a request whose body the spool has.
fn begin_sending<M: Machine>(turn: &mut Turn<'_, M>, relay: &mut Relay) {
    let length_bytes = turn.context.core.spool.length_bytes(SpooledKey::Request(relay.key));
    if relay.request.request().body == Body::Chunked {
        relay.current.transaction.announce(Body::Length(length_bytes));
    }
    relay.current.body = BodyWay::Spooled;
    relay.current.transaction.hold(length_bytes);
    relay.await_from(Awaits::Link, true, turn.context.core.clock.ms());
}

/// Gives a piece of a body that the spool has to the server, once the piece before it was sent.
pub(super) fn give_held<M: Machine>(turn: &mut Turn<'_, M>, relay: &mut Relay) -> Result<bool, Advance> {
    let (BodyWay::Spooled, Some(at)) = (&relay.current.body, relay.current.transaction.spooled_at()) else {
        return Ok(false);
    };
    if !relay.current.transaction.is_all_sent() || !relay.accepts_request {
        return Ok(false);
    }
    let (core, body) = (&mut *turn.context.core, SpooledKey::Request(relay.key));
    match core.spool.part(body, at) {
        Supply::Bytes(bytes) => {
            let bytes = &bytes[..bytes.len().min(turn.budget.bytes)];
            turn.budget.bytes -= bytes.len();
            relay.current.transaction.give(bytes);
            Ok(!bytes.is_empty())
        }
        Supply::InFile => {
            let pace = (core.handed_over.bytes(), core.clock.ms());
            let read = core.spool.read(body, at, &mut core.jobs, pace);
            read.map(|()| false).map_err(|SpoolFull| refused(relay, SPOOL_FAILED))
        }
    }
}

/// The end of a request whose client sends no more, though the body is not complete, or which is malformed.
fn left(relay: &Relay, part: ReceivedBody) -> Advance {
    match part {
        ReceivedBody::Refused(refusal) => refused(relay, refusal),
        ReceivedBody::End { is_stopped: true } => refused(relay, EXHAUSTED),
        _ => Advance::Cut,
    }
}

/// The end of a request that is refused.
fn refused(relay: &Relay, refusal: Refusal) -> Advance {
    if relay.reply.is_some() { Advance::Cut } else { Advance::Refused(refusal) }
}

/// Asks a client that waits for it to send the body. An answer that has begun does that too.
fn invite<M: Machine>(
    client: &mut impl RelayClient<M>,
    turn: &mut Turn<'_, M>,
    relay: &mut Relay,
) -> Result<(), Advance> {
    let request = relay.request.request();
    let waits = !std::mem::replace(&mut relay.is_invited, true) && request.expect_continue;
    if !waits || relay.reply.is_some() {
        return Ok(());
    }
    client.invite(turn).map_err(|Gone| Advance::Cut)
}
