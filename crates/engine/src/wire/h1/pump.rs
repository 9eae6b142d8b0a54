//! Moves the bytes of a request that an upstream answers, in both directions, until nothing more can be moved. The spool
//! takes what the client does not take, and the server is free once it has answered. Where the spool has no room, and in
//! the other direction, at most one piece is held, so a slow reader slows its sender down. Called by
//! [`relay`](super::relay).

use super::answer::{begin_reply, deliver, gather_answer, hand_over, has_room, pass_on};
use super::upload::{Pumped, Stop, gather, give_held, take_body};
use crate::exchange::Turn;
use crate::exchange::{Awaits, BodyWay, Relay, RelayReply};
use crate::handler::{BAD_ANSWER, EXHAUSTED, NO_ANSWER, NO_LINK, UPSTREAM_BUSY};
use crate::limits::GATEWAY_LATE_MS;
use crate::machine::Machine;
use crate::slab::{ExchangeKey, HeldKey, Key};
use crate::transport::{Gone, Readiness, Received};
use crate::upstream::{LinkPlace, NoLink, Sought, TalkFailure};
use crate::wire::conn::{Conn, Uplink};

/// Moves bytes until nothing more can be moved, or the turn is over.
pub(super) fn pump<M: Machine>(
    conn: &mut Conn<M::Socket>,
    turn: &mut Turn<'_, M>,
    buffer: &mut [u8],
    (relay, key): (&mut Relay, ExchangeKey),
) -> Pumped {
    if let Err(pumped) = gather(conn, turn, buffer, relay) {
        return pumped;
    }
    let mut has_progressed = false;
    while !relay.talk.is_over() {
        let (link, was_used) = match find_link(conn, turn, relay) {
            Ok(found) => found,
            Err(pumped) => return pumped,
        };
        match step(conn, turn, buffer, relay, (link, key)) {
            Ok(true) => has_progressed = true,
            Ok(false) => return settle(conn, turn, relay, (link, key), has_progressed),
            Err(Stop::Pumped(pumped)) => return pumped,
            Err(Stop::Failed(failure)) => match fail(turn, relay, (link, was_used), failure) {
                Some(pumped) => return pumped,
                None => continue,
            },
        }
        if turn.budget.bytes == 0 && !relay.talk.is_over() {
            // The next turn does not know of this progress.
            relay.since_ms = turn.desk.core.clock.ms();
            relay.note_heard(relay.since_ms);
            return Pumped::Yield;
        }
    }
    // The server is free, whatever the client has read until now.
    leave_link(turn, relay);
    turn.desk.core.spool.end(HeldKey::Request(key), &mut turn.desk.core.jobs);
    relay.hears_since_ms = None;
    send_rest(conn, turn, relay, key)
}

/// Sends the rest of an answer that the server has completed.
fn send_rest<M: Machine>(
    conn: &mut Conn<M::Socket>,
    turn: &mut Turn<'_, M>,
    relay: &mut Relay,
    key: ExchangeKey,
) -> Pumped {
    let mut has_progressed = false;
    while !relay.reply.as_ref().is_none_or(RelayReply::is_sent) {
        if turn.budget.bytes == 0 {
            return Pumped::Yield;
        }
        match pass_on(conn, turn, relay, key) {
            Ok(true) => has_progressed = true,
            Ok(false) => return await_client(conn, turn, relay, (key, false), has_progressed),
            Err(pumped) => return pumped,
        }
    }
    Pumped::Done
}

/// The link of a request, and whether an earlier request has used it.
fn find_link<M: Machine>(
    conn: &mut Conn<M::Socket>,
    turn: &mut Turn<'_, M>,
    relay: &mut Relay,
) -> Result<(Key, bool), Pumped> {
    let now_ms = turn.desk.core.clock.ms();
    loop {
        let seeker = relay.seeker(conn.opener);
        match turn.links.seek(turn.desk.machine, seeker, &mut relay.place, now_ms) {
            Sought::Linked { link, was_used } => return Ok((link, was_used)),
            Sought::Full => return Err(Pumped::Refused(UPSTREAM_BUSY)),
            Sought::Failed(server, why) => {
                let servers = turn.links.rules(relay.upstream).servers.len();
                if !relay.try_other(server.server, servers, now_ms) {
                    let refusal = match why {
                        NoLink::Refused => NO_LINK,
                        NoLink::Late => NO_ANSWER,
                        NoLink::OwnFault => EXHAUSTED,
                    };
                    return Err(Pumped::Refused(refusal));
                }
            }
            Sought::Waits if conn.transport.is_hung_up() && !relay.talk.wants_body() => {
                return Err(Pumped::Cut);
            }
            Sought::Waits => {
                relay.await_from(Awaits::Link, false, now_ms);
                let connect_ms = turn.links.rules(relay.upstream).connect_ms;
                // The gateway has the same deadline for each server, and reports it unless it is in trouble itself.
                let is_asked = matches!(relay.place, LinkPlace::Has(_));
                conn.await_server();
                conn.deadline_ms = relay.since_ms + connect_ms + if is_asked { GATEWAY_LATE_MS } else { 0 };
                return Err(Pumped::Blocked);
            }
        }
    }
}

/// Moves one piece in each direction. Returns whether anything was moved.
fn step<M: Machine>(
    conn: &mut Conn<M::Socket>,
    turn: &mut Turn<'_, M>,
    buffer: &mut [u8],
    relay: &mut Relay,
    (link, key): (Key, ExchangeKey),
) -> Result<bool, Stop> {
    let has_taken = take_body(conn, turn, buffer, relay, link)? | give_held(turn, relay)?;
    let has_said = say(turn, relay, link);
    let has_heard = hear(conn, turn, buffer, relay, (link, key))?;
    if has_taken | has_said | has_heard {
        relay.note_heard(turn.desk.core.clock.ms());
    }
    let has_passed = pass_on(conn, turn, relay, key)?;
    Ok(has_taken | has_said | has_heard | has_passed)
}

/// Sends the request to the server.
fn say<M: Machine>(turn: &mut Turn<'_, M>, relay: &mut Relay, link: Key) -> bool {
    let Some(transport) = turn.links.transport(link) else { return false };
    if !relay.is_heard || relay.talk.is_all_sent() || !transport.is_writable() {
        return false;
    }
    let (first, second) = relay.talk.unsent();
    match transport.send(turn.desk.machine, first, second) {
        Ok(sent) => {
            relay.talk.sent(sent);
            sent > 0
        }
        // Its answer can be there already.
        Err(Gone) => {
            relay.is_heard = false;
            transport.suspect(Readiness { readable: true, ..Readiness::default() });
            true
        }
    }
}

/// Whether a piece of the answer can be received: once the client has the piece before it, or while the spool can take
/// what the client does not take.
fn may_hear<M: Machine>(
    conn: &Conn<M::Socket>,
    turn: &mut Turn<'_, M>,
    relay: &Relay,
    key: ExchangeKey,
) -> bool {
    let Some(reply) = relay.reply.as_ref().filter(|reply| !reply.is_passed_on()) else { return true };
    let is_read = reply.unsent().is_empty() && turn.desk.core.spool.is_reading(HeldKey::Answer(key));
    let is_taken = conn.transport.is_writable() && !matches!(conn.uplink, Uplink::Waiting(_)) && !is_read;
    !is_taken && has_room(conn, turn, relay, key)
}

/// Receives a piece of the answer.
fn hear<M: Machine>(
    conn: &mut Conn<M::Socket>,
    turn: &mut Turn<'_, M>,
    buffer: &mut [u8],
    relay: &mut Relay,
    (link, key): (Key, ExchangeKey),
) -> Result<bool, Stop> {
    let is_behind = relay.reply.as_ref().is_some_and(|reply| !reply.is_passed_on());
    if relay.talk.is_over() || !may_hear(conn, turn, relay, key) {
        return Ok(false);
    }
    let Some(transport) = turn.links.transport(link) else { return Ok(false) };
    let filled = match transport.receive(turn.desk.machine, buffer) {
        Received::Bytes(bytes) => bytes,
        Received::Nothing => return Ok(false),
        Received::End => {
            relay.talk.hear_end()?;
            relay.reply.iter_mut().for_each(RelayReply::end);
            return Ok(true);
        }
        Received::Failed => return Err(TalkFailure("The server reset the connection").into()),
    };
    turn.budget.bytes = turn.budget.bytes.saturating_sub(filled);
    let heard = relay.talk.hear(&mut buffer[..filled])?;
    if let Some(answer) = heard.head {
        if let Some(server) = turn.links.server_of(link) {
            turn.links.note_success(server);
        }
        if let Some(hand_back) = &answer.hand_back {
            let request = hand_over(turn, relay, hand_back)?;
            return Err(Stop::Pumped(Pumped::HandBack(Box::new(request))));
        }
        relay.reply = Some(begin_reply(turn, relay, &answer));
    }
    let data = &buffer[..heard.data_bytes];
    match &mut relay.reply {
        Some(reply) if is_behind => gather_answer(conn, turn, reply, key, data),
        _ => deliver(conn, turn, relay, data)?,
    }
    if relay.talk.is_over() {
        relay.reply.iter_mut().for_each(RelayReply::end);
    }
    Ok(true)
}

/// Decides whom the request waits for, and until when.
fn settle<M: Machine>(
    conn: &mut Conn<M::Socket>,
    turn: &mut Turn<'_, M>,
    relay: &mut Relay,
    (link, key): (Key, ExchangeKey),
    has_progressed: bool,
) -> Pumped {
    let now_ms = turn.desk.core.clock.ms();
    if relay.reply.as_ref().is_some_and(|reply| !reply.is_passed_on()) {
        let hears = has_room(conn, turn, relay, key);
        return await_client(conn, turn, relay, (key, hears), has_progressed);
    }
    let heard_ms = relay.hears_since_ms.take();
    // A client that closes its sending side while the server is slow has left: one that does only that is very rare.
    if conn.transport.is_hung_up() && !relay.talk.wants_body() && !relay.talk.is_upgraded() {
        return Pumped::Cut;
    }
    let server_is_slow = turn.links.transport(link).is_some_and(|transport| !transport.is_writable());
    let is_heard_out = relay.talk.is_all_sent() || !server_is_slow;
    let awaits_body = relay.talk.wants_body() && relay.is_heard && !relay.talk.is_upgraded() && is_heard_out;
    conn.await_server();
    if let BodyWay::Held(exchange) = relay.body
        && turn.desk.core.spool.is_busy(HeldKey::Request(exchange))
    {
        relay.await_from(Awaits::Helper, has_progressed, now_ms);
        return Pumped::Blocked;
    }
    let limit_ms = if awaits_body {
        relay.await_from(Awaits::Body, has_progressed, now_ms);
        relay.pace.wait(now_ms);
        turn.desk.core.rules.timeouts.head_ms
    } else {
        relay.await_from(Awaits::Server, has_progressed, now_ms);
        // Its silence began while the client read.
        relay.since_ms = heard_ms.unwrap_or(relay.since_ms);
        turn.links.rules(relay.upstream).answer_ms
    };
    conn.deadline_ms = (relay.since_ms + limit_ms).min(relay.pace.due_ms());
    Pumped::Blocked
}

/// Decides until when a client is waited for that does not have all of what the server has sent, and until when its
/// server, if that is heard meanwhile.
fn await_client<M: Machine>(
    conn: &mut Conn<M::Socket>,
    turn: &mut Turn<'_, M>,
    relay: &mut Relay,
    (key, hears): (ExchangeKey, bool),
    has_progressed: bool,
) -> Pumped {
    let now_ms = turn.desk.core.clock.ms();
    relay.hears_since_ms = hears.then(|| relay.hears_since_ms.unwrap_or(now_ms));
    let is_unsent = relay.reply.as_ref().is_some_and(|reply| !reply.unsent().is_empty());
    if !is_unsent && turn.desk.core.spool.is_reading(HeldKey::Answer(key)) {
        relay.await_from(Awaits::Helper, has_progressed, now_ms);
        conn.await_server();
    } else {
        relay.await_from(Awaits::Room, has_progressed, now_ms);
        // Otherwise it waits for its turn at the uplink.
        if !conn.transport.is_writable() {
            if conn.pace.is_none() {
                let _ = conn.await_room(turn.desk.machine, now_ms);
                relay.pace_due_ms = conn.deadline_ms;
            }
            conn.deadline_ms = relay.pace_due_ms;
        }
    }
    let answer_ms = turn.links.rules(relay.upstream).answer_ms;
    if relay.is_ready_for_body() {
        relay.pace.wait(now_ms);
    }
    conn.deadline_ms = conn.deadline_ms.min(relay.late_ms(answer_ms));
    Pumped::Blocked
}

/// Handles a failure of the server. Returns None if the request is tried again.
fn fail<M: Machine>(
    turn: &mut Turn<'_, M>,
    relay: &mut Relay,
    (link, was_used): (Key, bool),
    failure: TalkFailure,
) -> Option<Pumped> {
    if relay.talk.is_upgraded() {
        return Some(Pumped::Cut);
    }
    // A server closes an idle connection when it likes, also while the next request is on its way.
    let is_stale = was_used && relay.talk.has_heard_nothing();
    if !is_stale {
        blame(turn, relay, link, failure);
    }
    let server = turn.links.server_of(link);
    let now_ms = turn.desk.core.clock.ms();
    relay.is_heard = false;
    report_said(turn, relay, link);
    relay.place = LinkPlace::None;
    turn.links.discard(turn.desk.machine, link, now_ms);
    if server.is_some_and(|server| relay.try_again(server.server, is_stale, now_ms)) {
        return None;
    }
    Some(if relay.reply.is_some() { Pumped::Cut } else { Pumped::Refused(BAD_ANSWER) })
}

/// Counts a failure of the server of a link, and reports it.
pub(super) fn blame<M: Machine>(turn: &mut Turn<'_, M>, relay: &Relay, link: Key, failure: TalkFailure) {
    let Some(server) = turn.links.server_of(link) else { return };
    let now_ms = turn.desk.core.clock.ms();
    turn.links.note_failure(server, now_ms);
    let request = relay.request.request();
    if let Some(report) = turn.links.complaint(server, failure.0, Some(request.line), now_ms) {
        turn.desk.machine.report(&report);
    }
}

/// Reports the standard error of a FastCGI application.
pub(super) fn report_said<M: Machine>(turn: &mut Turn<'_, M>, relay: &mut Relay, link: Key) {
    let said = std::mem::take(&mut relay.talk.said);
    let Some(server) = turn.links.server_of(link).filter(|_| !said.is_empty()) else { return };
    if let Some(report) = turn.links.report_said(server, &said, turn.desk.core.clock.ms()) {
        turn.desk.machine.report(&report);
    }
}

/// Leaves the link, for the next request if it is in order.
pub(super) fn leave_link<M: Machine>(turn: &mut Turn<'_, M>, relay: &mut Relay) {
    let now_ms = turn.desk.core.clock.ms();
    if let LinkPlace::Has(link) = relay.place {
        report_said(turn, relay, link);
    }
    match std::mem::replace(&mut relay.place, LinkPlace::None) {
        LinkPlace::Has(link) if relay.is_heard && relay.talk.leaves_link_usable() => {
            turn.links.release(turn.desk.machine, link, now_ms);
        }
        place => turn.links.leave(turn.desk.machine, relay.upstream, place, now_ms),
    }
}
