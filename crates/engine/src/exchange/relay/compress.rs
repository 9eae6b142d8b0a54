//! Moves the pieces of a compressed answer: to a helper, and from it to the client. Called by [`pump`](super::pump).

use std::sync::Arc;

use super::answer::{has_room, pass_or_gather};
use super::gzip::GzipStep;
use super::{Relay, RelayClient};
use crate::exchange::Turn;
use crate::jobs::{JobKey, Urgency, Waiter, Wanted};
use crate::machine::{JobId, Machine, Task};
use crate::transport::Gone;

/// Moves a piece of the answer on. Returns whether one was moved. `is_quiet` tells that the server sends no more at the moment, so that
/// the piece is not held back for more.
pub(super) fn compress<M: Machine>(
    client: &mut impl RelayClient<M>,
    turn: &mut Turn<'_, M>,
    relay: &mut Relay,
    is_quiet: bool,
) -> Result<bool, Gone> {
    if relay.reply.as_ref().is_none_or(|reply| reply.gzip.is_none()) {
        return Ok(false);
    }
    let (is_behind, is_complete) = (relay.is_behind(client), relay.current.transaction.is_over());
    let may_pass = !is_behind || has_room(turn, relay);
    let waiter = Waiter { exchange: relay.key, client: relay.opener.client };
    let Some(reply) = &mut relay.reply else { return Ok(false) };
    let Some(gzip) = &mut reply.gzip else { return Ok(false) };
    let bytes = match gzip.step((is_quiet, is_complete, may_pass)) {
        GzipStep::Bytes(bytes) => bytes,
        GzipStep::End(bytes) => {
            reply.gzip = None;
            bytes
        }
        GzipStep::Deflate(piece) => {
            let job = submit(turn, waiter, &piece, gzip.number());
            gzip.wait(piece, job);
            return Ok(job.is_none());
        }
        GzipStep::None => return Ok(false),
    };
    pass_or_gather(client, turn, relay, (&bytes, is_behind))?;
    if is_complete && let Some(reply) = &mut relay.reply {
        reply.end(client);
    }
    Ok(true)
}

/// The job that compresses the piece of this number.
fn submit<M: Machine>(
    turn: &mut Turn<'_, M>,
    waiter: Waiter,
    piece: &Arc<[u8]>,
    number: u64,
) -> Option<JobId> {
    let core = &mut *turn.context.core;
    let wanted = Wanted {
        key: JobKey::Deflate(core.compressing, waiter.exchange, number),
        task: Task::Deflate { plain: Arc::clone(piece) },
        // Without room now, the piece is sent as it is.
        urgency: Urgency::Bounded,
        subject: None,
        remaining_bytes: 0,
    };
    core.jobs.submit(wanted, Some(waiter), core.clock.ms()).ok()
}
