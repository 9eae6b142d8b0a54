//! Waits until a helper has compared the password of a request, before a server or the spool gets anything of it. Called by
//! [`pump`](super::pump).

use super::{Advance, Awaits, Relay};
use crate::exchange::Turn;
use crate::handler::{BUSY, Password, verify};
use crate::jobs::Waiter;
use crate::machine::Machine;

/// Returns once the password is known to be right.
pub(super) fn seek_password<M: Machine>(turn: &mut Turn<'_, M>, relay: &mut Relay) -> Result<(), Advance> {
    if relay.verifying.is_some() {
        if let Some(refusal) = relay.refused.take() {
            return Err(Advance::Refused(refusal));
        }
    } else {
        match verify(&turn.context, &mut relay.checks) {
            Password::Right => return Ok(()),
            Password::Refused(refusal) => return Err(Advance::Refused(refusal)),
            Password::Wait(wanted) => {
                let core = &mut *turn.context.core;
                let waiter = Waiter { exchange: relay.key, client: relay.opener.client };
                let job = core.jobs.submit(*wanted, Some(waiter), core.clock.ms());
                relay.verifying = Some(job.map_err(|_| Advance::Refused(BUSY))?);
            }
        }
    }
    // The job has a deadline of its own.
    relay.await_from(Awaits::Helper, false, turn.context.core.clock.ms());
    Err(relay.block(u64::MAX))
}
