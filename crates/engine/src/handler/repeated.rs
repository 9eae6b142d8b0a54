//! Requests that get an earlier answer again, without parsing and look-up: which are remembered, and whether the answer still
//! holds. The wires find them by their bytes ([`caches::RepeatedRequests`](crate::caches::RepeatedRequests)) and call this.

use std::net::IpAddr;
use std::sync::Arc;

use super::counting::Counting;
use super::look_up::is_unchanged;
use super::{About, FileRequest, Response};
use crate::access_log::LogFields;
use crate::body::Source;
use crate::caches::{Content, HeadHash, NameEntry, Pass, Persistence, RepeatedReply, ReplyForm};
use crate::conditions::Conditions;
use crate::context::Core;
use crate::head_changes::HeadChanges;
use crate::machine::Machine;
use crate::requester::Scheme;
use crate::slab::{ClientNumber, SiteId};

/// Remembers the bytes of a request for a file with its answer, if the same bytes would get the same answer again.
pub(crate) fn remember<F>(
    core: &mut Core<F>,
    (hash, bytes): (HeadHash, &[u8]),
    file: &FileRequest<'_>,
    response: &Response<F>,
    (persistence, changes): (Persistence, &Option<Arc<HeadChanges>>),
) {
    let Some((entry, form)) = &response.repeats else { return };
    let (About::File(version, _) | About::NotModified(version)) = &response.about else { return };
    if version.is_passing {
        return;
    }
    let content = core.caches.contents.get(version.id).map(Arc::downgrade);
    let reply = RepeatedReply {
        pass: file.pass,
        conditions: file.conditions.clone(),
        entry: Arc::clone(entry),
        version: Arc::clone(version),
        form: *form,
        persistence,
        changes: changes.clone(),
        content: content.unwrap_or_default(),
    };
    let lines = &core.lines;
    core.caches.repeated.put(hash, bytes, reply, || lines.text(LogFields::of(file.request)));
}

/// Whether a reply still answers the bytes that it was remembered with.
#[inline]
pub(crate) fn is_valid<M: Machine>(
    machine: &M,
    core: &Core<M::File>,
    reply: &RepeatedReply,
    scheme: Scheme,
) -> bool {
    let is_admitted = match reply.pass {
        Pass::Once => false,
        Pass::SameHead => true,
        Pass::SameHeadOverHttp => scheme == Scheme::Http,
        Pass::SameHeadOverHttps => scheme == Scheme::Https,
    };
    let (now_ms, freshness_ms) = (core.clock.ms(), core.rules.freshness_ms);
    is_admitted
        && (reply.entry.is_fresh(now_ms, freshness_ms)
            || renew(machine, &reply.entry, now_ms) && reply.entry.is_fresh(now_ms, freshness_ms))
}

/// Whether an entry that is due for a comparison is known to be unchanged without one.
#[inline(never)]
fn renew<M: Machine>(machine: &M, entry: &NameEntry, now_ms: u64) -> bool {
    !entry.lacks_proof(now_ms) && is_unchanged(machine, entry, now_ms)
}

/// Whether the conditions of the earlier request hold for one of this client, so that it is admitted. It counts for rates.
#[inline]
pub(crate) fn readmit<M: Machine>(
    machine: &mut M,
    core: &Core<M::File>,
    reply: &RepeatedReply,
    client: IpAddr,
) -> bool {
    reply
        .conditions
        .as_deref()
        .is_none_or(|conditions| hold(machine, core, (reply.version.site, conditions), client))
}

fn hold<M: Machine>(
    machine: &mut M,
    core: &Core<M::File>,
    (site, conditions): (SiteId, &Conditions),
    client: IpAddr,
) -> bool {
    let Conditions { guards, rates, passwords } = conditions;
    let rules = &core.rules.site(site).paths;
    let site = core.rules.public_site(site);
    let counting = Counting::of(site, ClientNumber::of(client), core);
    guards.iter().all(|number| rules.admits(*number, client))
        && passwords.iter().all(|pair| core.caches.password_results.get(*pair, core.clock.ms()) == Some(true))
        && counting.count(machine, rates).is_ok()
}

/// The answer that a reply stands for; one with a body has this content.
pub(crate) fn repeat<F>(reply: &RepeatedReply, content: Option<&Arc<Content>>) -> Response<F> {
    match content {
        Some(content) => Response::whole(&reply.version, Source::Memory(Arc::clone(content))),
        None if reply.form == ReplyForm::NotModified => Response::not_modified(&reply.version),
        None => Response::head_only(&reply.version),
    }
}
