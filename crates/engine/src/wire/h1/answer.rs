//! The answer of an upstream on its way to the client: its head, the framing of its body, and its pieces. The
//! [spool](crate::spool) takes the bytes that the client does not take at once, so that a slow reader keeps no server
//! busy. Called by [`pump`](super::pump).

use flash_http::RequestBuf;
use flash_http::answer::{Answer, AnswerBody, HandBack};
use flash_http::request::Version;
use flash_http::response::HeadWriter;
use flash_http::target::{decode_path, encode_path};

use super::head::persistence;
use super::upload::Pumped;
use crate::caches::Persistence;
use crate::exchange::Turn;
use crate::exchange::{Relay, RelayReply};
use crate::handler::leads_to_script;
use crate::limits::{PASSED_ON_BYTES, RECEIVE_BYTES};
use crate::machine::Machine;
use crate::slab::{ExchangeKey, HeldKey};
use crate::spool::{SpoolFull, Supply};
use crate::transport::Gone;
use crate::upstream::TalkFailure;
use crate::wire::conn::Conn;

const SCRIPT: TalkFailure = TalkFailure("The answer names a script instead of a file");
const OUTSIDE: TalkFailure = TalkFailure("The answer names a file outside the site's root");

/// The same request for a file that the upstream names.
pub(super) fn hand_over<M: Machine>(
    turn: &Turn<'_, M>,
    relay: &Relay,
    hand_back: &HandBack,
) -> Result<RequestBuf, TalkFailure> {
    let site = &turn.desk.core.rules.sites[usize::from(relay.site.0)];
    let path = match hand_back {
        HandBack::Path(path) => path.clone(),
        HandBack::File(file) => {
            let root = site.root.as_os_str().as_encoded_bytes();
            let root = root.strip_suffix(b"/").unwrap_or(root);
            let beneath = file.strip_prefix(root).filter(|rest| rest.starts_with(b"/"));
            let beneath = beneath.ok_or(OUTSIDE)?;
            encode_path(beneath).into_bytes()
        }
    };
    let decoded = decode_path(&path, site.encoded_slash).map_err(|_| OUTSIDE)?;
    if leads_to_script(site, &decoded) {
        return Err(SCRIPT);
    }
    // If the body was not read, its rest follows on the connection.
    let persists = !relay.talk.wants_body();
    Ok(relay.request.for_path(&path, persists))
}

/// Begins the answer to the client.
pub(super) fn begin_reply<M: Machine>(turn: &mut Turn<'_, M>, relay: &Relay, answer: &Answer) -> RelayReply {
    let request = relay.request.request();
    let is_upgraded = answer.body == AnswerBody::Upgraded;
    let has_no_end = matches!(answer.body, AnswerBody::Chunked | AnswerBody::UntilEnd);
    let is_chunked = has_no_end && request.version == Version::Http11;
    let persistence = persistence(&request, turn.draining);
    let closes = persistence == Persistence::Closes || has_no_end && !is_chunked || relay.talk.wants_body();
    let mut unsent = Vec::with_capacity(answer.fields.len() + 256);
    let mut head = HeadWriter::start(&mut unsent, answer.status, &turn.desk.core.clock.date);
    if let Some(bytes) = answer.length_bytes.filter(|_| !has_no_end && answer.status.0 >= 200) {
        head.length(bytes);
    }
    if is_chunked {
        head.field("Transfer-Encoding", b"chunked");
    }
    head.raw(&answer.fields);
    if !closes && persistence == Persistence::SaidToPersist {
        head.field("Connection", b"keep-alive");
    }
    head.finish(closes && !is_upgraded, 1);
    turn.desk.core.counters.heads_made += 1;
    let left_bytes = match answer.body {
        AnswerBody::Length(bytes) => Some(bytes),
        AnswerBody::None => Some(0),
        AnswerBody::Chunked | AnswerBody::UntilEnd | AnswerBody::Upgraded => None,
    };
    // One of unknown length is counted at its end.
    if let Some(bytes) = left_bytes {
        turn.desk.core.schedule.note_answer(bytes);
    }
    RelayReply {
        status: answer.status,
        is_chunked,
        closes,
        unsent,
        unsent_at: 0,
        gathers: !relay.streams_answers && !is_upgraded && !answer.is_stream,
        gathered_at: 0,
        gathered_bytes: 0,
        body_bytes: 0,
        left_bytes,
        has_chunk: false,
        is_ended: false,
    }
}

/// Takes a piece of the body for the client, who has everything before it. A long one is sent from the buffer.
pub(super) fn deliver<M: Machine>(
    conn: &mut Conn<M::Socket>,
    turn: &mut Turn<'_, M>,
    relay: &mut Relay,
    data: &[u8],
) -> Result<(), Gone> {
    let Some(reply) = &mut relay.reply else { return Ok(()) };
    let frame = reply.frame(data.len());
    reply.unsent.extend_from_slice(&frame);
    let mut kept = data;
    if data.len() > PASSED_ON_BYTES && conn.transport.is_writable() && turn.desk.core.is_unscheduled() {
        let first = reply.unsent().len();
        let sent = conn.transport.send(turn.desk.machine, reply.unsent(), data)?;
        turn.desk.core.counters.sends.add(sent as u64);
        reply.sent(sent.min(first));
        kept = &data[sent.saturating_sub(first)..];
    }
    reply.unsent.extend_from_slice(kept);
    Ok(())
}

/// Whether the spool has room for a piece of the answer that the client does not take yet. A helper then makes room.
pub(super) fn has_room<M: Machine>(
    conn: &Conn<M::Socket>,
    turn: &mut Turn<'_, M>,
    relay: &Relay,
    key: ExchangeKey,
) -> bool {
    let Some(reply) = relay.reply.as_ref().filter(|reply| reply.gathers) else { return false };
    let (core, body) = (&mut *turn.desk.core, HeldKey::Answer(key));
    if reply.gathered_bytes == 0 {
        return core.spool.has_memory(conn.opener.sharer());
    }
    if core.spool.wants_write(body) {
        // Without room in the file, the answer waits in memory, and then at its server.
        let _ = core.spool.write(body, &mut core.jobs, core.clock.ms());
    }
    core.spool.has_room(body)
}

/// Takes a piece of the body for the spool.
pub(super) fn gather_answer<M: Machine>(
    conn: &Conn<M::Socket>,
    turn: &mut Turn<'_, M>,
    reply: &mut RelayReply,
    key: ExchangeKey,
    data: &[u8],
) {
    let (spool, body) = (&mut turn.desk.core.spool, HeldKey::Answer(key));
    if reply.gathered_bytes == 0 && !data.is_empty() {
        reply.gathered_at = 0;
        spool.begin(body, conn.opener.sharer());
    }
    reply.gathered_bytes += data.len() as u64;
    spool.add(body, data);
}

/// Takes the next piece from the spool, once the piece before it was sent. Returns whether there is one.
fn take_gathered<M: Machine>(
    turn: &mut Turn<'_, M>,
    relay: &mut Relay,
    key: ExchangeKey,
) -> Result<bool, Pumped> {
    let is_complete = relay.talk.is_over();
    let Some(reply) = relay.reply.as_mut().filter(|reply| reply.gathered_bytes > 0) else { return Ok(false) };
    let (core, body) = (&mut *turn.desk.core, HeldKey::Answer(key));
    let handed_over_bytes = core.handed_over.bytes();
    let Supply::Bytes(bytes) = core.spool.part(body, reply.gathered_at) else {
        let pace = (handed_over_bytes, core.clock.ms());
        let read = core.spool.read(body, reply.gathered_at, &mut core.jobs, pace);
        return read.map(|()| false).map_err(|SpoolFull| Pumped::Cut);
    };
    let taken = bytes.len().min(RECEIVE_BYTES).min(turn.budget.bytes);
    turn.budget.bytes -= taken;
    let frame = reply.frame(taken);
    reply.unsent.extend_from_slice(&frame);
    reply.unsent.extend_from_slice(&bytes[..taken]);
    reply.gathered_at += taken as u64;
    reply.gathered_bytes -= taken as u64;
    if reply.gathered_bytes == 0 {
        core.spool.end(body, &mut core.jobs);
    } else {
        core.spool.forget(body, reply.gathered_at, &mut core.jobs);
    }
    if is_complete {
        reply.end();
    }
    Ok(taken > 0)
}

/// Sends what the client has not got yet.
pub(super) fn pass_on<M: Machine>(
    conn: &mut Conn<M::Socket>,
    turn: &mut Turn<'_, M>,
    relay: &mut Relay,
    key: ExchangeKey,
) -> Result<bool, Pumped> {
    let is_complete = relay.talk.is_over();
    let is_empty = relay.reply.as_ref().is_none_or(|reply| reply.unsent().is_empty());
    if !conn.transport.is_writable() || is_empty && !take_gathered(turn, relay, key)? {
        return Ok(false);
    }
    let Some(reply) = &mut relay.reply else { return Ok(false) };
    let rank_bytes = reply.rank_bytes(is_complete);
    let Some(allowed) = conn.ask_uplink(&mut turn.desk, rank_bytes) else { return Ok(false) };
    conn.follow_schedule(&mut turn.desk, rank_bytes);
    let piece = &reply.unsent()[..reply.unsent().len().min(allowed)];
    let sent = conn.transport.send(turn.desk.machine, piece, &[]).map_err(|Gone| Pumped::Cut)?;
    let core = &mut *turn.desk.core;
    core.counters.sends.add(sent as u64);
    core.schedule.count_sent(conn.transport.band(), sent);
    core.egress.spend(sent);
    reply.sent(sent);
    Ok(sent > 0)
}
