//! Opens the relay of a request: its bytes for each server that it asks, in the protocol of its upstream. Called by the wires.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use flash_http::RequestBuf;
use flash_http::forward::{About, Forwarding, Inbound, Script, each_cgi_variable, write_proxy_head};
use flash_http::request::{Body, Method, Request};
use flash_http::target::{decode_path, encode_path};
use flash_http::upstream_response::ResponseTo;

use super::upload_rate::UploadRate;
use super::{Awaits, BodyWay, Instead, Otherwise, Relay, Search, Then, UpstreamRequest};
use crate::context::Core;
use crate::exchange::{Exchange, LogEntry, Opener, Pace, State, Turn};
use crate::fastcgi::client::{write_begin, write_params};
use crate::handler::{Authorizer, PasswordCheck, Preferred, RouteTarget, Routed};
use crate::machine::Machine;
use crate::rules::UpstreamProtocol;
use crate::slab::{ExchangeKey, SpooledKey};
use crate::timing::CacheResult;
use crate::upstream::{FailedServers, LinkClaim, Transaction, Upload};

/// Room for the opening of most requests: CGI has long names.
const OPENING_BYTES: usize = 2048;

/// The facts about a request that its client does not send.
#[derive(Clone, Copy)]
struct Facts<'f> {
    /// The address of the client.
    peer: SocketAddr,
    /// The address that it has reached, if a server needs it.
    local: Option<SocketAddr>,
    request_id: &'f str,
}

/// Opens the relay of a request. `peer` is the address of its client, and `local` finds the address that it has reached.
pub(crate) fn open<M: Machine>(
    turn: &mut Turn<'_, M>,
    routed: &Routed<'_>,
    opener: Opener,
    peer: SocketAddr,
    local: impl FnOnce(&mut M) -> Option<SocketAddr>,
) -> ExchangeKey {
    let core = &mut *turn.context.core;
    core.relayed += 1;
    let request_id = format!("{:x}-{:x}-{:x}", core.clock.now.wall_ns, peer.port(), core.relayed);
    let core = &*core;
    let log_entry = LogEntry::new(core, routed.inbound.request, CacheResult::Relay);
    // Only CGI has variables for it.
    let is_cgi = |target: &RouteTarget<'_>| target.protocol(core, routed.site) == UpstreamProtocol::FastCgi;
    let needs_local = is_cgi(&routed.target) || routed.authorizers().any(|auth| is_cgi(&auth.target));
    let local = needs_local.then(|| local(turn.context.machine)).flatten();
    let facts = Facts { peer, local, request_id: &request_id };
    let (own, file) = match &routed.file {
        Some(file) => {
            let last = request_without_body(core, routed, (&routed.target, routed.auths.len()), facts);
            (last, Some(Then::File(Box::new(file.clone()))))
        }
        None => (answering_request(core, routed, facts), None),
    };
    let mut next: Vec<Then> = file.into_iter().collect();
    let mut first = own;
    for (place, auth) in routed.auths.iter().enumerate().rev() {
        let later = std::mem::replace(&mut first, authorizing_request(core, routed, (place, auth), facts));
        next.push(Then::Upstream(Box::new(later)));
    }
    let now_ms = turn.context.core.clock.ms();
    let upload_rate = UploadRate::new(turn.context.core.rules.bodies);
    let key = turn.exchanges.reserve();
    let relay = Relay {
        key,
        opener,
        request: RequestBuf::new(routed.inbound.request),
        site: routed.site,
        next,
        current: first,
        granted: Vec::new(),
        checks: routed.checks.clone(),
        pace: Pace::of(routed.holds.clone()),
        verifying: None,
        refused: None,
        claim: LinkClaim::None,
        failed: FailedServers::default(),
        tries: 0,
        needs_new: false,
        reply: None,
        is_invited: false,
        upload_rate,
        accepts_request: true,
        awaits: Awaits::Link,
        since_ms: now_ms,
        receives_since_ms: None,
        due_ms: u64::MAX,
    };
    turn.exchanges.put_back(key, Exchange { opener, log_entry, state: State::Relaying(Box::new(relay)) });
    if routed.gathers {
        turn.context.core.spool.begin(SpooledKey::Request(key), opener.sharer());
    }
    key
}

/// Asks a server for the answer.
fn answering_request<F>(core: &Core<F>, routed: &Routed<'_>, facts: Facts<'_>) -> UpstreamRequest {
    let inbound = besides(&routed.inbound, &routed.authorizers());
    let transaction_of = |target| {
        let (inbound, request) = (&*inbound, inbound.request);
        let rules = routed.target.rules(core, routed.site);
        let upgrades =
            routed.target.protocol(core, routed.site) == UpstreamProtocol::Http && inbound.asks_upgrade();
        let upload = Upload::new(request.body, rules.body_bytes_max);
        let mut transaction =
            begin_transaction(core, (routed, target), (inbound, None), (upload, upgrades), facts);
        // The length of a gathered body is known at its end.
        if !routed.gathers || request.body != Body::Chunked {
            transaction.announce(request.body);
        }
        transaction
    };
    let script: Option<Box<[u8]>> = routed.target.script_to_find(core, routed.site).map(Into::into);
    let instead = routed.preferred.as_ref().map(|preferred| match preferred {
        Preferred::File(path) => (path[..].into(), Instead::File(path[..].into())),
        Preferred::Script(target) => {
            (target.script().into(), Instead::Script(Box::new(transaction_of(target))))
        }
    });
    let (search, instead) = match instead {
        Some((path, instead)) => {
            let late = routed.authorizers().enumerate().skip(routed.auths.len());
            let mut auths: Vec<UpstreamRequest> =
                late.map(|auth| authorizing_request(core, routed, auth, facts)).collect();
            auths.reverse();
            let (refusal, checks) = (routed.late.refusal, routed.late.checks.clone());
            let otherwise = Otherwise { script, refusal, checks, auths };
            (Search::Wanted(path), Some((instead, otherwise)))
        }
        None => (Search::of(script), None),
    };
    let rules = routed.target.rules(core, routed.site);
    UpstreamRequest {
        upstream: rules.upstream,
        transaction: transaction_of(&routed.target),
        streams_answers: rules.streams_answers,
        compresses: rules.compresses,
        grants: Arc::default(),
        instead,
        search,
        body: if routed.gathers { BodyWay::Gathered } else { BodyWay::Streamed },
    }
}

/// The request without the fields that these servers give.
fn besides<'i, 'r>(
    inbound: &'i Inbound<'r>,
    auths: &(impl Iterator<Item = &'i Authorizer> + Clone),
) -> Cow<'i, Inbound<'r>> {
    let mut inbound = Cow::Borrowed(inbound);
    if auths.clone().any(|auth| !auth.grants.is_empty()) {
        inbound.to_mut().fields.retain(|(name, _)| !auths.clone().any(|auth| auth.gives(name)));
    }
    inbound
}

/// Asks a server whether the request may be answered, and for its fields. It is the one at this place of those that are asked.
fn authorizing_request<F>(
    core: &Core<F>,
    routed: &Routed<'_>,
    (place, auth): (usize, &Authorizer),
    facts: Facts<'_>,
) -> UpstreamRequest {
    UpstreamRequest {
        grants: Arc::clone(&auth.grants),
        ..request_without_body(core, routed, (&auth.target, place), facts)
    }
}

/// Asks the server of a target whether the request may be answered, after this many others have agreed. The server does not get the
/// body, and the fields of the others in place of the client's.
fn request_without_body<F>(
    core: &Core<F>,
    routed: &Routed<'_>,
    (target, others): (&RouteTarget<'_>, usize),
    facts: Facts<'_>,
) -> UpstreamRequest {
    let inbound = besides(&routed.inbound, &routed.authorizers().take(others));
    let Inbound { request, method, ref fields, .. } = *inbound;
    // The path by which Flash finds files. A server could take another spelling for the path of another file.
    let path = decode_path(request.path, core.rules.site(routed.site).encoded_slash);
    let path = encode_path(&path.unwrap_or_default());
    let is_head = request.method == Method::Head;
    let is_cgi = target.protocol(core, routed.site) == UpstreamProtocol::FastCgi;
    let bare = Request {
        method: if is_head { Method::Head } else { Method::Get },
        path: path.as_bytes(),
        // For an HTTP server the target is the path of the rule alone.
        query: request.query.filter(|_| is_cgi),
        body: Body::None,
        ..request.clone()
    };
    let inbound = Inbound {
        request: &bare,
        method: if is_head { b"HEAD" } else { b"GET" },
        fields: fields.iter().copied().filter(|(name, _)| !is_about_content(name)).collect(),
        ..*inbound
    };
    let about = Some(About { method, path: path.as_bytes(), query: request.query });
    let upload = Upload::new(Body::None, 0);
    let mut transaction =
        begin_transaction(core, (routed, target), (&inbound, about), (upload, false), facts);
    transaction.announce(Body::None);
    let rules = target.rules(core, routed.site);
    UpstreamRequest {
        upstream: rules.upstream,
        transaction,
        streams_answers: rules.streams_answers,
        compresses: rules.compresses,
        grants: Arc::default(),
        instead: None,
        search: Search::of(target.script_to_find(core, routed.site).map(Into::into)),
        body: BodyWay::Streamed,
    }
}

/// Whether a field is about the body of a request, or about the file that answers it.
fn is_about_content(name: &[u8]) -> bool {
    let begins = |start: &[u8]| name.get(..start.len()).is_some_and(|name| name.eq_ignore_ascii_case(start));
    begins(b"if-") || begins(b"content-") || name.eq_ignore_ascii_case(b"range")
}

/// The transaction with a server about a target, up to the framing of the body.
fn begin_transaction<F>(
    core: &Core<F>,
    (routed, target): (&Routed<'_>, &RouteTarget<'_>),
    (inbound, about): (&Inbound<'_>, Option<About<'_>>),
    (upload, upgrade): (Upload, bool),
    Facts { peer, local, request_id }: Facts<'_>,
) -> Transaction {
    let protocol = target.protocol(core, routed.site);
    let new_path = target.new_path();
    let forwarding = Forwarding {
        peer,
        path: new_path.as_deref().map(str::as_bytes),
        query: routed.query.as_deref().filter(|_| about.is_none()),
        server: local,
        user: routed.checks.last().map(PasswordCheck::user),
        request_id,
        about,
        upgrade,
    };
    let mut out = Vec::with_capacity(OPENING_BYTES);
    match protocol {
        UpstreamProtocol::Http => write_proxy_head(&mut out, inbound, &forwarding),
        UpstreamProtocol::FastCgi => {
            let root = core.rules.site(routed.site).root.as_os_str();
            let script = Script {
                document_root: root.as_encoded_bytes(),
                script_name: target.script(),
                path_info: target.path_info(),
            };
            write_begin(&mut out);
            write_params(&mut out, |param| each_cgi_variable(inbound, &forwarding, &script, param));
        }
    }
    let asking = ResponseTo { is_head: inbound.request.method == Method::Head, upgrades: upgrade };
    Transaction::new(protocol, asking, upload, out)
}
