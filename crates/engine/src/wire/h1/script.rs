//! Looks for the script of a request before a server is asked to run it: only a file beneath the root is run. Called by
//! [`relay`](super::relay).

use super::upload::Pumped;
use crate::exchange::Turn;
use crate::exchange::{Awaits, Relay, ScriptSearch};
use crate::handler::{Asked, BUSY, ScriptFound, find_script, script_of};
use crate::jobs::Waiter;
use crate::machine::Machine;
use crate::slab::ExchangeKey;
use crate::wire::conn::Conn;

/// Returns once the request can be passed on.
pub(super) fn seek_script<M: Machine>(
    conn: &mut Conn<M::Socket>,
    turn: &mut Turn<'_, M>,
    relay: &mut Relay,
    key: ExchangeKey,
) -> Result<(), Pumped> {
    let found = match &relay.script {
        ScriptSearch::Over => return Ok(()),
        ScriptSearch::AtHelper(_) => match relay.refused.take() {
            Some(refusal) => ScriptFound::Refused(refusal),
            None => return Err(wait(conn, turn, relay)),
        },
        ScriptSearch::Found(entry) => script_of(entry),
        ScriptSearch::Wanted(path) => {
            let request = relay.request.request();
            find_script(&mut turn.desk, &Asked { request: &request, site: relay.site, path })
        }
    };
    match found {
        ScriptFound::Yes => {
            relay.script = ScriptSearch::Over;
            Ok(())
        }
        ScriptFound::Refused(refusal) => Err(Pumped::Refused(refusal)),
        ScriptFound::Wait(wanted) => {
            let core = &mut *turn.desk.core;
            let waiter = Waiter { exchange: key, client: conn.opener.client };
            let job = core.jobs.submit(*wanted, Some(waiter), core.clock.ms());
            relay.script = ScriptSearch::AtHelper(job.map_err(|_| Pumped::Refused(BUSY))?);
            Err(wait(conn, turn, relay))
        }
    }
}

/// The job has a deadline of its own, so the connection needs none.
fn wait<M: Machine>(conn: &mut Conn<M::Socket>, turn: &Turn<'_, M>, relay: &mut Relay) -> Pumped {
    relay.await_from(Awaits::Helper, false, turn.desk.core.clock.ms());
    conn.await_server();
    Pumped::Blocked
}
