//! The answer of an upstream on its way to the client. The [spool](crate::spool) takes the bytes that the client does not
//! take at once, so that a slow reader keeps no server busy. Called by [`pump`](super::pump).

use flash_http::response::Status;
use flash_http::target::encode_path;
use flash_http::upstream_response::{HandBack, ResponseHead};

use super::{Advance, Relay, RelayClient, RelayReply, gzip};
use crate::exchange::Turn;
use crate::handler::{FileRequestBuf, NOT_A_FILE_OF_THE_SITE, RelayedHead, admit_application_file};
use crate::limits::RECEIVE_BYTES;
use crate::machine::Machine;
use crate::slab::SpooledKey;
use crate::spool::{SpoolFull, Supply};
use crate::transport::Gone;
use crate::upstream::BadAnswer;

/// The same request for a file that the upstream names.
pub(super) fn request_for_file<M: Machine>(
    turn: &Turn<'_, M>,
    relay: &Relay,
    hand_back: &HandBack,
) -> Result<FileRequestBuf, BadAnswer> {
    let core = &*turn.context.core;
    let (place, path) = match hand_back {
        HandBack::Path(path) => (None, path.clone()),
        HandBack::File(file) => {
            let found = core.rules.place_of_file(relay.site, file);
            let (place, beneath) = found.ok_or(BadAnswer(NOT_A_FILE_OF_THE_SITE))?;
            (Some(place), encode_path(beneath).into_bytes())
        }
    };
    // If the body was not read, its rest follows on the connection.
    let persists = !relay.current.transaction.wants_body();
    let request = relay.request.for_path(&path, persists);
    admit_application_file(core, (relay.site, place), request).map_err(BadAnswer)
}

/// Begins to pass an answer on. Its fields change as those of an answer with the status `ruled_as`.
pub(super) fn begin_reply<M: Machine>(
    client: &mut impl RelayClient<M>,
    turn: &mut Turn<'_, M>,
    relay: &mut Relay,
    answer: &ResponseHead,
    ruled_as: Status,
) {
    let (answer, gzip) = gzip::choose(relay, answer);
    client.begin(turn, &relay.request.request(), RelayedHead { answer: &answer, ruled_as });
    turn.context.core.counters.heads_made += 1;
    let reply = RelayReply { gzip, ..RelayReply::new(&answer, relay.current.streams_answers) };
    // One of unknown length is counted at its end.
    if let Some(bytes) = reply.left_bytes {
        turn.context.core.schedule.note_answer(bytes);
    }
    relay.reply = Some(reply);
}

/// Whether the spool has room for a piece of the answer that the client does not take yet. A helper then makes room.
pub(super) fn has_room<M: Machine>(turn: &mut Turn<'_, M>, relay: &Relay) -> bool {
    let Some(reply) = relay.reply.as_ref().filter(|reply| reply.gathers) else { return false };
    let (core, body) = (&mut *turn.context.core, SpooledKey::Answer(relay.key));
    if reply.gathered_bytes == 0 {
        return core.spool.has_memory(relay.opener.sharer());
    }
    if core.spool.wants_write(body) {
        // Without room in the file, the answer waits in memory, and then at its server.
        let _ = core.spool.write(body, &mut core.jobs, core.clock.ms());
    }
    core.spool.has_room(body)
}

/// Takes a piece of the body.
pub(super) fn take_answer<M: Machine>(
    client: &mut impl RelayClient<M>,
    turn: &mut Turn<'_, M>,
    relay: &mut Relay,
    (data, is_behind): (&[u8], bool),
) -> Result<(), Gone> {
    match relay.reply.as_mut().and_then(|reply| reply.gzip.as_mut()) {
        Some(gzip) => {
            gzip.take(data);
            Ok(())
        }
        None => pass_or_gather(client, turn, relay, (data, is_behind)),
    }
}

/// Takes bytes for the client: for the spool, if the client does not have everything before them.
pub(super) fn pass_or_gather<M: Machine>(
    client: &mut impl RelayClient<M>,
    turn: &mut Turn<'_, M>,
    relay: &mut Relay,
    (data, is_behind): (&[u8], bool),
) -> Result<(), Gone> {
    let Some(reply) = &mut relay.reply else { return Ok(()) };
    if !is_behind {
        reply.framed(data.len());
        if relay.pace.is_throttled() {
            client.frame(data);
            return Ok(());
        }
        return client.pass(turn, data);
    }
    let (spool, body) = (&mut turn.context.core.spool, SpooledKey::Answer(relay.key));
    if reply.gathered_bytes == 0 && !data.is_empty() {
        reply.gathered_at = 0;
        spool.begin(body, relay.opener.sharer());
    }
    reply.gathered_bytes += data.len() as u64;
    spool.add(body, data);
    Ok(())
}

/// Takes the next piece from the spool, once the piece before it was sent. Returns whether there is one.
fn take_gathered<M: Machine>(
    client: &mut impl RelayClient<M>,
    turn: &mut Turn<'_, M>,
    relay: &mut Relay,
) -> Result<bool, Advance> {
    let is_complete = relay.current.transaction.is_over();
    let Some(reply) = relay.reply.as_mut().filter(|reply| reply.gathered_bytes > 0) else { return Ok(false) };
    let (core, body) = (&mut *turn.context.core, SpooledKey::Answer(relay.key));
    let handed_over_bytes = core.handed_over.bytes();
    let Supply::Bytes(bytes) = core.spool.part(body, reply.gathered_at) else {
        let pace = (handed_over_bytes, core.clock.ms());
        let read = core.spool.read(body, reply.gathered_at, &mut core.jobs, pace);
        return read.map(|()| false).map_err(|SpoolFull| Advance::Cut);
    };
    let taken = bytes.len().min(RECEIVE_BYTES).min(turn.budget.bytes);
    turn.budget.bytes -= taken;
    reply.framed(taken);
    client.frame(&bytes[..taken]);
    reply.gathered_at += taken as u64;
    reply.gathered_bytes -= taken as u64;
    if reply.gathered_bytes == 0 {
        core.spool.end(body, &mut core.jobs);
    } else {
        core.spool.forget(body, reply.gathered_at, &mut core.jobs);
    }
    if is_complete {
        reply.end(client);
    }
    Ok(taken > 0)
}

/// Sends what the client has not got yet.
pub(super) fn pass_on<M: Machine>(
    client: &mut impl RelayClient<M>,
    turn: &mut Turn<'_, M>,
    relay: &mut Relay,
) -> Result<bool, Advance> {
    if relay.pace.is_waiting(turn.context.core) {
        return Ok(false);
    }
    let is_empty = client.unsent_bytes() == 0;
    if !client.is_writable() || is_empty && !take_gathered(client, turn, relay)? {
        return Ok(false);
    }
    let Some(reply) = &relay.reply else { return Ok(false) };
    let unsent_bytes = client.unsent_bytes() as u64;
    let rank_bytes = reply.rank_bytes(unsent_bytes, relay.current.transaction.is_over());
    let Some(bytes_max) = relay.pace.request(&mut turn.context, relay.key, unsent_bytes) else {
        // From now on the spool takes what the server sends.
        return Ok(true);
    };
    let sent = client.send(turn, bytes_max, rank_bytes).map_err(|Gone| Advance::Cut)?;
    relay.pace.spend(sent);
    Ok(sent > 0)
}
