//! The answer of an upstream on its way to the client: its head, the framing of its body, and its pieces. Called by
//! [`h1_pump`](super::h1_pump).

use flash_http::RequestBuf;
use flash_http::answer::{Answer, AnswerBody, HandBack};
use flash_http::request::Version;
use flash_http::response::HeadWriter;
use flash_http::target::{decode_path, encode_path};

use super::conn::{Conn, Turn};
use super::h1_head::persistence;
use crate::exchange::{Relay, RelayReply};
use crate::handler::leads_to_script;
use crate::limits::PASSED_ON_BYTES;
use crate::machine::Machine;
use crate::store::Persistence;
use crate::transport::Gone;
use crate::upstream::TalkFailure;

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
pub(super) fn begin_reply<M: Machine>(
    conn: &mut Conn<M::Socket>,
    turn: &mut Turn<'_, M>,
    relay: &Relay,
    answer: &Answer,
) -> RelayReply {
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
    let left_bytes = if let AnswerBody::Length(bytes) = answer.body { Some(bytes) } else { None };
    turn.desk.core.schedule.note_answer(left_bytes.unwrap_or(0));
    conn.follow_schedule(&mut turn.desk, left_bytes.unwrap_or(0));
    RelayReply {
        status: answer.status,
        is_chunked,
        closes,
        unsent,
        unsent_at: 0,
        body_bytes: 0,
        left_bytes,
        has_chunk: false,
        is_ended: false,
    }
}

/// Takes a piece of the body for the client. A long one is sent from the buffer.
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
    if relay.talk.is_over() {
        reply.end();
    }
    Ok(())
}

/// Sends what the client has not got yet.
pub(super) fn pass_on<M: Machine>(
    conn: &mut Conn<M::Socket>,
    turn: &mut Turn<'_, M>,
    relay: &mut Relay,
) -> Result<bool, Gone> {
    let Some(reply) = &mut relay.reply else { return Ok(false) };
    if reply.unsent().is_empty() || !conn.transport.is_writable() {
        return Ok(false);
    }
    let left_bytes = reply.left_bytes.unwrap_or(0).saturating_add(reply.unsent().len() as u64);
    let Some(allowed) = conn.ask_uplink(&mut turn.desk, left_bytes) else { return Ok(false) };
    let piece = &reply.unsent()[..reply.unsent().len().min(allowed)];
    let sent = conn.transport.send(turn.desk.machine, piece, &[])?;
    let core = &mut *turn.desk.core;
    core.counters.sends.add(sent as u64);
    core.schedule.count_sent(conn.transport.band(), sent);
    core.egress.spend(sent);
    reply.sent(sent);
    Ok(sent > 0)
}
