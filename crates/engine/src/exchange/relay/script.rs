//! Looks for the script of a request before a server is asked to run it: only a file beneath the root is run. Called by
//! [`pump`](super::pump).

use std::borrow::Cow;

use super::{Advance, Awaits, Relay, ScriptSearch};
use crate::caches::Pass;
use crate::exchange::Turn;
use crate::handler::{BUSY, FileRequest, ScriptFound, find_script, script_of};
use crate::jobs::Waiter;
use crate::machine::Machine;

/// Returns once the request can be passed on.
pub(super) fn seek_script<M: Machine>(turn: &mut Turn<'_, M>, relay: &mut Relay) -> Result<(), Advance> {
    let found = match &relay.script {
        ScriptSearch::Over => return Ok(()),
        ScriptSearch::AtHelper(_) => match relay.refused.take() {
            Some(refusal) => ScriptFound::Refused(refusal),
            None => return Err(wait(turn, relay)),
        },
        ScriptSearch::Found(entry) => script_of(entry),
        ScriptSearch::Wanted(path) => {
            let request = relay.request.request();
            let (site, path) = (relay.site, Cow::Borrowed(&path[..]));
            let (pass, may_fall_back, is_local, checks) = (Pass::Once, false, false, Vec::new());
            let (request, conditions) = (&request, None);
            let asked =
                FileRequest { request, site, path, pass, conditions, may_fall_back, is_local, checks };
            find_script(&mut turn.desk, &asked)
        }
    };
    match found {
        ScriptFound::Yes => {
            relay.script = ScriptSearch::Over;
            Ok(())
        }
        ScriptFound::Refused(refusal) => Err(Advance::Refused(refusal)),
        ScriptFound::Wait(wanted) => {
            let core = &mut *turn.desk.core;
            let waiter = Waiter { exchange: relay.key, client: relay.opener.client };
            let job = core.jobs.submit(*wanted, Some(waiter), core.clock.ms());
            relay.script = ScriptSearch::AtHelper(job.map_err(|_| Advance::Refused(BUSY))?);
            Err(wait(turn, relay))
        }
    }
}

/// The job has a deadline of its own.
fn wait<M: Machine>(turn: &Turn<'_, M>, relay: &mut Relay) -> Advance {
    relay.await_from(Awaits::Helper, false, turn.desk.core.clock.ms());
    relay.block(u64::MAX)
}
