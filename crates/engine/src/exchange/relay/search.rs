//! Looks up names before a server gets a request: the file that answers instead, if it is there, and the script, since only a file
//! beneath the root is run. Called by [`pump`](super::pump).

use std::borrow::Cow;
use std::sync::Arc;

use flash_http::request::Method;

use super::{Advance, Awaits, Instead, Otherwise, Relay, Search, Then};
use crate::caches::{NameEntry, Pass, Resolved};
use crate::exchange::Turn;
use crate::handler::{
    BUSY, FileRequest, NO_METHOD_OF_FILES, PathFound, Substitute, admit_preferred_file, check_script,
    find_path,
};
use crate::jobs::Waiter;
use crate::machine::Machine;

/// Returns once the names are found. The rules of a name that answers for a missing one can ask for passwords and servers then.
pub(super) fn search<M: Machine>(turn: &mut Turn<'_, M>, relay: &mut Relay) -> Result<(), Advance> {
    while let Some(entry) = find(turn, relay)? {
        let Some((instead, otherwise)) = relay.current.instead.take() else {
            check_script(&entry).map_err(Advance::Refused)?;
            relay.current.search = Search::Over;
            return Ok(());
        };
        match instead {
            Instead::File(path) if entry.resolved.answers() => return Err(hand_back(turn, relay, &path)),
            Instead::Script(transaction) if !matches!(entry.resolved, Resolved::Missing) => {
                check_script(&entry).map_err(Advance::Refused)?;
                relay.current.transaction = *transaction;
                relay.current.transaction.grant(&relay.granted);
                relay.current.search = Search::Over;
            }
            Instead::File(_) | Instead::Script(_) => {
                let Otherwise { script, refusal, checks, auths } = otherwise;
                if let Some(refusal) = refusal {
                    return Err(Advance::Refused(refusal));
                }
                relay.current.search = Search::of(script);
                relay.checks = checks;
                for auth in auths {
                    let later = relay.begin(auth, turn.context.core.clock.ms());
                    relay.next.push(Then::Upstream(Box::new(later)));
                }
                if !(relay.checks.is_empty() && relay.next.is_empty()) {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

/// The entry for the path that must be looked up, if there is one.
fn find<M: Machine>(turn: &mut Turn<'_, M>, relay: &mut Relay) -> Result<Option<Arc<NameEntry>>, Advance> {
    let found = match &relay.current.search {
        Search::Over => return Ok(None),
        Search::AtHelper(_) => match relay.refused.take() {
            Some(refusal) => PathFound::Refused(refusal),
            None => return Err(wait(turn, relay)),
        },
        Search::Found(entry) => PathFound::Entry(Arc::clone(entry)),
        Search::Wanted(path) => {
            let request = relay.request.request();
            let (site, path) = match relay.current.instead {
                Some((Instead::File(_), _)) => {
                    turn.context.core.rules.place(relay.site, Cow::Borrowed(&path[..]))
                }
                // A server runs scripts beneath the root of the site.
                _ => (relay.site, Cow::Borrowed(&path[..])),
            };
            let (pass, substitute, is_local, checks) = (Pass::Once, Substitute::None, false, Vec::new());
            let (request, conditions, holds) = (&request, None, None);
            let asked =
                FileRequest { request, site, path, pass, conditions, substitute, is_local, checks, holds };
            find_path(&mut turn.context, &asked)
        }
    };
    match found {
        PathFound::Entry(entry) => Ok(Some(entry)),
        PathFound::Refused(refusal) => Err(Advance::Refused(refusal)),
        PathFound::Wait(wanted) => {
            let core = &mut *turn.context.core;
            let waiter = Waiter { exchange: relay.key, client: relay.opener.client };
            let job = core.jobs.submit(*wanted, Some(waiter), core.clock.ms());
            relay.current.search = Search::AtHelper(job.map_err(|_| Advance::Refused(BUSY))?);
            Err(wait(turn, relay))
        }
    }
}

/// Gives the request to the file of a path.
fn hand_back<M: Machine>(turn: &Turn<'_, M>, relay: &Relay, path: &[u8]) -> Advance {
    if !matches!(relay.request.request().method, Method::Get | Method::Head) {
        return Advance::Refused(NO_METHOD_OF_FILES);
    }
    // If the body was not read, its rest follows on the connection.
    let request = relay.request.persisting(!relay.current.transaction.wants_body());
    Advance::HandBack(Box::new(admit_preferred_file(turn.context.core, relay.site, request, path)))
}

/// The job has a deadline of its own.
fn wait<M: Machine>(turn: &Turn<'_, M>, relay: &mut Relay) -> Advance {
    relay.await_from(Awaits::Helper, false, turn.context.core.clock.ms());
    relay.block(u64::MAX)
}
