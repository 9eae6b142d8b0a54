//! Moves the bytes of a request that an upstream answers, in both directions, until nothing more can be moved. The spool
//! takes what the client does not take, and the server is free once it has answered. Where the spool has no room, and in
//! the other direction, at most one piece is held, so a slow reader slows its sender down. Called by the wires.

use flash_http::granted::grant;
use flash_http::response::Status;
use flash_http::upstream_response::ResponseHead;

use super::answer::{begin_reply, has_room, pass_on, request_for_file, take_answer};
use super::compress::compress;
use super::password::seek_password;
use super::search::search;
use super::upload::{gather, give_held, take_body};
use super::{Advance, Awaits, BodyWay, Relay, RelayClient, Stop, Then};
use crate::exchange::Turn;
use crate::handler::{BAD_ANSWER, EXHAUSTED, NO_ANSWER, NO_LINK, REQUEST_LATE, SPOOL_FAILED, UPSTREAM_BUSY};
use crate::limits::GATEWAY_LATE_MS;
use crate::machine::Machine;
use crate::slab::{Key, SpooledKey};
use crate::transport::{Gone, Readiness, Received};
use crate::upstream::{BadAnswer, LinkClaim, NoLink, Sought};

/// Gives a relay a turn: moves bytes until nothing more can be moved, or the turn is over.
pub(crate) fn advance<M: Machine>(
    client: &mut impl RelayClient<M>,
    turn: &mut Turn<'_, M>,
    buffer: &mut [u8],
    relay: &mut Relay,
) -> Advance {
    relay.upload_rate.pause(turn.context.core.clock.ms());
    let gathered = prepare(client, turn, buffer, relay).and_then(|()| gather(client, turn, buffer, relay));
    match gathered.and_then(|()| pump(client, turn, buffer, relay)) {
        Ok(()) => Advance::Done,
        Err(Advance::HandBack(mut file)) => {
            file.holds = relay.pace.take_holds();
            Advance::HandBack(file)
        }
        Err(advance) => advance,
    }
}

/// Returns once the request can be passed on: its passwords are right, servers have agreed, and names are found.
fn prepare<M: Machine>(
    client: &mut impl RelayClient<M>,
    turn: &mut Turn<'_, M>,
    buffer: &mut [u8],
    relay: &mut Relay,
) -> Result<(), Advance> {
    loop {
        seek_password(turn, relay)?;
        authorize(client, turn, buffer, relay)?;
        search(turn, relay)?;
        // The search can lead to a script whose rules ask for a password or a server.
        if relay.checks.is_empty() && relay.next.is_empty() {
            return Ok(());
        }
    }
}

/// Returns once all servers that are asked about the request have agreed, or one has an answer of its own.
fn authorize<M: Machine>(
    client: &mut impl RelayClient<M>,
    turn: &mut Turn<'_, M>,
    buffer: &mut [u8],
    relay: &mut Relay,
) -> Result<(), Advance> {
    while !relay.next.is_empty() {
        search(turn, relay)?;
        let mut has_progressed = false;
        let asked = relay.next.len();
        while relay.next.len() == asked {
            move_on(client, turn, buffer, relay, &mut has_progressed)?;
        }
    }
    Ok(())
}

/// Returns once all of the answer was sent.
fn pump<M: Machine>(
    client: &mut impl RelayClient<M>,
    turn: &mut Turn<'_, M>,
    buffer: &mut [u8],
    relay: &mut Relay,
) -> Result<(), Advance> {
    let mut has_progressed = false;
    while !relay.current.transaction.is_over() {
        move_on(client, turn, buffer, relay, &mut has_progressed)?;
    }
    // The server is free, whatever the client has read until now.
    leave_link(turn, relay);
    turn.context.core.spool.end(SpooledKey::Request(relay.key), &mut turn.context.core.jobs);
    relay.receives_since_ms = None;
    send_rest(client, turn, relay)
}

/// Moves one piece in each direction, on a link to a server.
fn move_on<M: Machine>(
    client: &mut impl RelayClient<M>,
    turn: &mut Turn<'_, M>,
    buffer: &mut [u8],
    relay: &mut Relay,
    has_progressed: &mut bool,
) -> Result<(), Advance> {
    let (link, was_used) = find_link(client, turn, relay)?;
    match step(client, turn, buffer, relay, link) {
        Ok(true) => *has_progressed = true,
        Ok(false) => return Err(settle(client, turn, relay, link, *has_progressed)),
        Err(Stop::Advance(advance)) => return Err(advance),
        Err(Stop::Failed(failure)) => return fail(turn, relay, (link, was_used), failure),
    }
    if turn.budget.bytes == 0 && !relay.current.transaction.is_over() {
        // The next turn does not know of this progress.
        relay.since_ms = turn.context.core.clock.ms();
        relay.note_progress(relay.since_ms);
        return Err(Advance::Yield);
    }
    Ok(())
}

/// Sends the rest of an answer that the server has completed.
fn send_rest<M: Machine>(
    client: &mut impl RelayClient<M>,
    turn: &mut Turn<'_, M>,
    relay: &mut Relay,
) -> Result<(), Advance> {
    let mut has_progressed = false;
    while !relay.reply.as_ref().is_none_or(|reply| reply.is_ended) || client.unsent_bytes() > 0 {
        if turn.budget.bytes == 0 {
            return Err(Advance::Yield);
        }
        let has_compressed = compress(client, turn, relay, true).map_err(|Gone| Advance::Cut)?;
        if !(pass_on(client, turn, relay)? | has_compressed) {
            return Err(await_client(client, turn, relay, false, has_progressed));
        }
        has_progressed = true;
    }
    Ok(())
}

/// The link of a request, and whether an earlier request has used it.
fn find_link<M: Machine>(
    client: &impl RelayClient<M>,
    turn: &mut Turn<'_, M>,
    relay: &mut Relay,
) -> Result<(Key, bool), Advance> {
    let now_ms = turn.context.core.clock.ms();
    loop {
        let seeker = relay.seeker();
        match turn.links.seek(turn.context.machine, seeker, &mut relay.claim, now_ms) {
            Sought::Linked { link, was_used } => return Ok((link, was_used)),
            Sought::Full => return Err(Advance::Refused(UPSTREAM_BUSY)),
            Sought::Failed(server, why) => {
                let servers = turn.links.rules(relay.current.upstream).servers.len();
                if !relay.try_other(server.server, servers, now_ms) {
                    let refusal = match why {
                        NoLink::Refused => NO_LINK,
                        NoLink::Late => NO_ANSWER,
                        NoLink::OwnFault => EXHAUSTED,
                    };
                    return Err(Advance::Refused(refusal));
                }
            }
            Sought::Waits if client.is_half_closed() && !relay.current.transaction.wants_body() => {
                return Err(Advance::Cut);
            }
            Sought::Waits => {
                relay.await_from(Awaits::Link, false, now_ms);
                let connect_ms = turn.links.rules(relay.current.upstream).connect_ms;
                // The gateway has the same deadline for each server, and reports it unless it is in trouble itself.
                let is_asked = matches!(relay.claim, LinkClaim::Has(_));
                let late_ms = if is_asked { GATEWAY_LATE_MS } else { 0 };
                return Err(relay.block(relay.since_ms + connect_ms + late_ms));
            }
        }
    }
}

/// Moves one piece in each direction. Returns whether anything was moved.
fn step<M: Machine>(
    client: &mut impl RelayClient<M>,
    turn: &mut Turn<'_, M>,
    buffer: &mut [u8],
    relay: &mut Relay,
    link: Key,
) -> Result<bool, Stop> {
    let has_taken = take_body(client, turn, buffer, relay, link)? | give_held(turn, relay)?;
    let has_sent = send_request(turn, relay, link);
    let has_received = receive_answer(client, turn, buffer, relay, link)?;
    if has_taken | has_sent | has_received {
        relay.note_progress(turn.context.core.clock.ms());
    }
    let has_compressed = compress(client, turn, relay, !has_received)?;
    let has_passed = pass_on(client, turn, relay)?;
    Ok(has_taken | has_sent | has_received | has_compressed | has_passed)
}

/// Sends the request to the server.
fn send_request<M: Machine>(turn: &mut Turn<'_, M>, relay: &mut Relay, link: Key) -> bool {
    let Some(transport) = turn.links.transport(link) else { return false };
    if !relay.accepts_request || relay.current.transaction.is_all_sent() || !transport.is_writable() {
        return false;
    }
    let (first, second) = relay.current.transaction.unsent();
    match transport.send(turn.context.machine, first, second) {
        Ok(sent) => {
            relay.current.transaction.sent(sent);
            sent > 0
        }
        // Its answer can be there already.
        Err(Gone) => {
            relay.accepts_request = false;
            transport.suspect(Readiness { readable: true, ..Readiness::default() });
            true
        }
    }
}

/// Whether a piece of the answer can be received: once the client has the piece before it, or while the spool can take
/// what the client does not take.
fn may_receive<M: Machine>(client: &impl RelayClient<M>, turn: &mut Turn<'_, M>, relay: &Relay) -> bool {
    if let Some(gzip) = relay.reply.as_ref().and_then(|reply| reply.gzip.as_ref()) {
        return gzip.has_room();
    }
    if !relay.is_behind(client) {
        return true;
    }
    let is_read =
        client.unsent_bytes() == 0 && turn.context.core.spool.is_reading(SpooledKey::Answer(relay.key));
    let is_taken = client.is_writable() && !is_read && !relay.pace.is_waiting(turn.context.core);
    !is_taken && has_room(turn, relay)
}

/// Receives a piece of the answer.
fn receive_answer<M: Machine>(
    client: &mut impl RelayClient<M>,
    turn: &mut Turn<'_, M>,
    buffer: &mut [u8],
    relay: &mut Relay,
    link: Key,
) -> Result<bool, Stop> {
    let is_behind = relay.is_behind(client);
    if relay.current.transaction.is_over() || !may_receive(client, turn, relay) {
        return Ok(false);
    }
    let Some(transport) = turn.links.transport(link) else { return Ok(false) };
    let filled = match transport.receive(turn.context.machine, buffer) {
        Received::Bytes(bytes) => bytes,
        Received::Nothing => return Ok(false),
        Received::End => {
            relay.current.transaction.receive_end(transport.is_end_announced())?;
            relay.reply.iter_mut().for_each(|reply| reply.end(client));
            return Ok(true);
        }
        Received::Failed => return Err(BadAnswer("The server reset the connection").into()),
    };
    turn.budget.bytes = turn.budget.bytes.saturating_sub(filled);
    let part = relay.current.transaction.receive(&mut buffer[..filled])?;
    if let Some(answer) = part.head {
        if let Some(server) = turn.links.server_of(link) {
            turn.links.note_success(server);
        }
        if !relay.next.is_empty() {
            if (200..300).contains(&answer.status.0) {
                return go_on(turn, relay, &answer);
            }
            // The others are not asked.
            relay.next.clear();
            begin_reply(client, turn, relay, &answer, Status::FORBIDDEN);
        } else if let Some(hand_back) = &answer.hand_back {
            let request = request_for_file(turn, relay, hand_back)?;
            return Err(Advance::HandBack(Box::new(request)).into());
        } else {
            begin_reply(client, turn, relay, &answer, answer.status);
        }
    }
    take_answer(client, turn, relay, (&buffer[..part.data_bytes], is_behind))?;
    if relay.current.transaction.is_over() {
        relay.reply.iter_mut().for_each(|reply| reply.end(client));
    }
    Ok(true)
}

/// Goes on after a server has agreed by this answer.
fn go_on<M: Machine>(turn: &mut Turn<'_, M>, relay: &mut Relay, answer: &ResponseHead) -> Result<bool, Stop> {
    leave_link(turn, relay);
    grant(&mut relay.granted, &answer.fields, &relay.current.grants);
    match relay.next.pop() {
        Some(Then::File(file)) => return Err(Advance::HandBack(file).into()),
        Some(Then::Upstream(ask)) => drop(relay.begin(*ask, turn.context.core.clock.ms())),
        None => {}
    }
    Ok(true)
}

/// Decides whom the request waits for, and until when.
fn settle<M: Machine>(
    client: &impl RelayClient<M>,
    turn: &mut Turn<'_, M>,
    relay: &mut Relay,
    link: Key,
    has_progressed: bool,
) -> Advance {
    let now_ms = turn.context.core.clock.ms();
    let is_full =
        relay.reply.as_ref().and_then(|reply| reply.gzip.as_ref()).is_some_and(|gzip| !gzip.has_room());
    if relay.is_behind(client) {
        let receives = !is_full && has_room(turn, relay);
        return await_client(client, turn, relay, receives, has_progressed);
    }
    if is_full {
        relay.await_from(Awaits::Helper, has_progressed, now_ms);
        // The job has a deadline of its own.
        return relay.block(u64::MAX);
    }
    let since_ms = relay.receives_since_ms.take();
    // A client that closes its sending side while the server is slow has left: one that does only that is very rare.
    if client.is_half_closed()
        && !relay.current.transaction.wants_body()
        && !relay.current.transaction.is_upgraded()
    {
        return Advance::Cut;
    }
    let server_is_slow = turn.links.transport(link).is_some_and(|transport| !transport.is_writable());
    let is_heard_out = relay.current.transaction.is_all_sent() || !server_is_slow;
    let awaits_body = relay.current.transaction.wants_body()
        && relay.accepts_request
        && !relay.current.transaction.is_upgraded()
        && is_heard_out;
    if matches!(relay.current.body, BodyWay::Spooled)
        && turn.context.core.spool.is_busy(SpooledKey::Request(relay.key))
    {
        relay.await_from(Awaits::Helper, has_progressed, now_ms);
        return relay.block(u64::MAX);
    }
    let limit_ms = if awaits_body {
        relay.await_from(Awaits::Body, has_progressed, now_ms);
        relay.upload_rate.wait(now_ms);
        turn.context.core.rules.timeouts.head_ms
    } else {
        relay.await_from(Awaits::Server, has_progressed, now_ms);
        // Its silence began while the client read.
        relay.since_ms = since_ms.unwrap_or(relay.since_ms);
        turn.links.rules(relay.current.upstream).answer_ms
    };
    relay.block((relay.since_ms + limit_ms).min(relay.upload_rate.due_ms()))
}

/// Waits for a client that does not have all of what the server has sent, and decides until when its server is waited for,
/// if something of it is received meanwhile.
fn await_client<M: Machine>(
    client: &impl RelayClient<M>,
    turn: &mut Turn<'_, M>,
    relay: &mut Relay,
    receives: bool,
    has_progressed: bool,
) -> Advance {
    let now_ms = turn.context.core.clock.ms();
    relay.receives_since_ms = receives.then(|| relay.receives_since_ms.unwrap_or(now_ms));
    let has_job =
        turn.context.core.spool.is_reading(SpooledKey::Answer(relay.key)) || relay.deflates().is_some();
    let is_read = client.unsent_bytes() == 0 && has_job;
    let awaits = match is_read {
        _ if relay.pace.is_waiting(turn.context.core) => Awaits::Pace,
        true => Awaits::Helper,
        false => Awaits::Room,
    };
    relay.await_from(awaits, has_progressed, now_ms);
    let answer_ms = turn.links.rules(relay.current.upstream).answer_ms;
    if relay.is_ready_for_body() {
        relay.upload_rate.wait(now_ms);
    }
    relay.block(relay.late_ms(answer_ms))
}

/// Ends the wait of a relay whose time is up.
pub(crate) fn expire<M: Machine>(turn: &mut Turn<'_, M>, relay: &mut Relay) -> Advance {
    relay.upload_rate.pause(turn.context.core.clock.ms());
    let refusal = match (relay.awaits, relay.claim) {
        _ if relay.current.transaction.wants_body() && relay.upload_rate.is_late() => REQUEST_LATE,
        // The gateway, which would know of the server, does not answer.
        (Awaits::Link, LinkClaim::Has(_)) => NO_ANSWER,
        (Awaits::Link, _) => UPSTREAM_BUSY,
        (Awaits::Body, _) => REQUEST_LATE,
        (Awaits::Helper, _) => SPOOL_FAILED,
        (_, claim) => {
            if let (LinkClaim::Has(link), false) = (claim, relay.current.transaction.is_upgraded()) {
                blame(turn, relay, link, BadAnswer("The server said nothing for too long"));
            }
            NO_ANSWER
        }
    };
    // Nothing of it is of use any more.
    relay.accepts_request = false;
    if relay.reply.is_some() { Advance::Cut } else { Advance::Refused(refusal) }
}

/// Handles a failure of the server. Returns if the request is tried again.
fn fail<M: Machine>(
    turn: &mut Turn<'_, M>,
    relay: &mut Relay,
    (link, was_used): (Key, bool),
    failure: BadAnswer,
) -> Result<(), Advance> {
    if relay.current.transaction.is_upgraded() {
        return Err(Advance::Cut);
    }
    // A server closes an idle connection when it likes, also while the next request is on its way.
    let is_stale = was_used && relay.current.transaction.has_received_nothing();
    if !is_stale {
        blame(turn, relay, link, failure);
    }
    let server = turn.links.server_of(link);
    let now_ms = turn.context.core.clock.ms();
    relay.accepts_request = false;
    report_stderr(turn, relay, link);
    relay.claim = LinkClaim::None;
    turn.links.discard(turn.context.machine, link, now_ms);
    if server.is_some_and(|server| relay.try_again(server.server, is_stale, now_ms)) {
        return Ok(());
    }
    Err(if relay.reply.is_some() { Advance::Cut } else { Advance::Refused(BAD_ANSWER) })
}

/// Counts a failure of the server of a link, and reports it.
fn blame<M: Machine>(turn: &mut Turn<'_, M>, relay: &Relay, link: Key, failure: BadAnswer) {
    let Some(server) = turn.links.server_of(link) else { return };
    let now_ms = turn.context.core.clock.ms();
    turn.links.note_failure(server, now_ms);
    let request = relay.request.request();
    if let Some(report) = turn.links.failure_report(server, failure.0, Some(request.line), now_ms) {
        turn.context.machine.report(&report);
    }
}

/// Reports the standard error of a FastCGI application.
fn report_stderr<M: Machine>(turn: &mut Turn<'_, M>, relay: &mut Relay, link: Key) {
    let stderr = std::mem::take(&mut relay.current.transaction.stderr);
    let Some(server) = turn.links.server_of(link).filter(|_| !stderr.is_empty()) else { return };
    if let Some(report) = turn.links.report_stderr(server, &stderr, turn.context.core.clock.ms()) {
        turn.context.machine.report(&report);
    }
}

/// Leaves the link, for the next request if it is in order.
fn leave_link<M: Machine>(turn: &mut Turn<'_, M>, relay: &mut Relay) {
    let now_ms = turn.context.core.clock.ms();
    if let LinkClaim::Has(link) = relay.claim {
        report_stderr(turn, relay, link);
    }
    match std::mem::replace(&mut relay.claim, LinkClaim::None) {
        LinkClaim::Has(link) if relay.accepts_request && relay.current.transaction.leaves_link_usable() => {
            turn.links.release(turn.context.machine, link, now_ms);
        }
        claim => turn.links.leave(turn.context.machine, relay.current.upstream, claim, now_ms),
    }
}

/// Leaves everything that a relay holds: its link, and the bodies in the spool.
pub(crate) fn leave<M: Machine>(turn: &mut Turn<'_, M>, relay: &mut Relay) {
    leave_link(turn, relay);
    relay.pace.leave(&mut turn.context);
    turn.context.core.spool.end_all(relay.key, &mut turn.context.core.jobs);
    if let Some(job) = relay.deflates() {
        turn.context.core.jobs.leave(job, relay.key);
    }
}
