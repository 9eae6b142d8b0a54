//! The gate: decides on a request before anything looks for its answer. A wire asks once for each request, as soon as the
//! head is complete, and gets one value ([`Admitted`]): an answer, a request for a file, or one for an upstream.
//!
//! [`admit`] applies all rules for requests, in this order: the site, the path (decoded here), access, rates and passwords, redirects,
//! rewrites, the route, and then the rules of files or of the route. HTTP/1 answers repeated requests by the bytes of their heads
//! ([`caches::RepeatedRequests`](crate::caches::RepeatedRequests)); such a head keeps the [`Pass`] from the gate and its conditions, and
//! [`readmit`](super::readmit) decides whether these hold.

use std::borrow::Cow;
use std::sync::Arc;

use flash_http::RequestBuf;
use flash_http::forward::Inbound;
use flash_http::proxies::named_host;
use flash_http::request::{Body as RequestBody, Method, Request};
use flash_http::response::Status;
use flash_http::target::{BadPath, decode_path};

use super::Response;
use super::counting::{Counting, put_back};
use super::error_page::{
    AMBIGUOUS_PATH, LENGTH_REQUIRED, NO_LINK, NO_METHOD_OF_FILES, NO_SITE, NOT_ADMITTED, PASSWORD_NEEDED,
    Refusal, TOO_LARGE, TOO_MANY, TOO_MANY_OF_ALL, TooSoon, error_page, redirect_to, too_soon_page,
};
use super::file_request::{FileRequest, FileRequestBuf, Substitute};
use super::https;
use super::password::{PasswordCheck, check_of};
use super::route::{Authorizer, LateRules, Routed, choose_route, leads_to_script};
use crate::caches::Pass;
use crate::conditions::Conditions;
use crate::context::{Context, Core};
use crate::head_changes::HeadChanges;
use crate::in_flight::{Full, Holds};
use crate::limits::{RECEIVE_BYTES, REQUEST_BODY_BYTES_MAX};
use crate::machine::Machine;
use crate::path_rule::Rewritten;
use crate::requester::{RequestClient, Scheme};
use crate::rules::{Rules, SiteRules, UpstreamProtocol};
use crate::slab::{ClientNumber, SiteId};

/// The decision of the gate.
pub(crate) enum Admitted<'r, F> {
    /// The request is refused, whatever its body.
    Refused(Response<F>),
    /// The gate answers. A body has no meaning (RFC 9110, section 9.3.1); a wire whose next request follows it reads it
    /// first.
    Answer(Response<F>),
    /// A file or a listing answers. The same is true of the body.
    File(FileRequest<'r>),
    /// An upstream answers.
    Route(Box<Routed<'r>>),
}

/// A client with too many requests at once is asked to wait for this long before the next.
const TRY_AGAIN_US: u64 = 1_000_000;

/// Why a server cannot have a file sent: it lies elsewhere.
pub(crate) const NOT_A_FILE_OF_THE_SITE: &str = "The answer names a path that is no file of the site";

/// Decides on a request of a connection with this scheme and client. `inbound` returns all its fields, which only an upstream needs.
#[inline]
pub(crate) fn admit<'r, M: Machine>(
    context: &mut Context<'_, M>,
    (request, scheme, client): (&'r Request<'r>, Scheme, RequestClient),
    inbound: impl FnOnce() -> Inbound<'r>,
) -> Admitted<'r, M::File> {
    let core = &*context.core;
    let site = core.router.route(request.host);
    let mut path = site.map(|site| (site, decode_path(request.path, core.rules.site(site).encoded_slash)));
    // CONNECT asks for a tunnel to anywhere, and TRACE would show the fields that Flash adds.
    let is_for_server = request.line.starts_with(b"CONNECT ") || request.line.starts_with(b"TRACE ");
    let has_path = matches!(&path, Some((_, Ok(_)))) && !is_for_server;
    let redirect = site.and_then(|site| core.rules.site(site).https_redirect);
    let redirect = redirect.filter(|_| has_path && scheme == Scheme::Http);
    let is_challenge = |path: &[u8]| redirect.is_some() && https::is_challenge(path);
    if let Some((_, Ok(path))) = &path
        && let Some(rules) = redirect
        && !is_challenge(path)
    {
        return Admitted::Refused(https::to_https(request, rules));
    }
    let mut entered = Entered::default();
    // A site that redirects plain HTTP answers issuers of certificates there, whatever its rules say.
    if let Some((site, Ok(decoded))) = &mut path
        && has_path
        && !is_challenge(decoded)
    {
        entered = match enter(context, (request, client), *site, decoded) {
            Ok(entered) => entered,
            Err(response) => return Admitted::Refused(response),
        };
        let rewritten = entered.rewritten.take();
        let is_rewritten = rewritten.is_some();
        let query = rewritten.as_ref().and_then(|rewritten| rewritten.query_of(request.query));
        rewritten.into_iter().for_each(|rewritten| *decoded = Cow::Owned(rewritten.path));
        if let Some(choice) = choose_route(context, request, (*site, decoded, is_rewritten)) {
            let mut late = match choice.fallback() {
                Some(path) => let_in_at_fallback(context, (request, client), *site, (path, decoded)),
                None => LateRules::default(),
            };
            let mut routed = choice.routed(described(&context.core.rules, client, inbound()), *site);
            (routed.query, routed.checks, routed.auths) = (query, entered.checks, entered.auths);
            entered.holds.extend(std::mem::take(&mut late.holds));
            routed.holds = entered.holds.shared();
            if routed.preferred.is_some() {
                routed.late = late;
            } else {
                routed.checks.extend(late.checks);
                routed.auths.extend(late.auths);
                routed.late.refusal = late.refusal;
            }
            return admit_route(context.core, routed);
        }
    }
    // Issuers of certificates must hear that a file of theirs is missing.
    let is_file_of_challenge = matches!(&path, Some((_, Ok(path))) if is_challenge(path));
    let substitute = if is_file_of_challenge { Substitute::None } else { Substitute::FIRST };
    let mut auths = std::mem::take(&mut entered.auths);
    let known = (entered, substitute);
    let Some(last) = auths.pop() else {
        return admit_file(context.core, (request, scheme, client.is_local), path, known);
    };
    let site = path.as_ref().map(|(site, _)| *site);
    match (admit_file(context.core, (request, scheme, client.is_local), path, known), site) {
        (Admitted::File(file), Some(site)) => {
            let inbound = described(&context.core.rules, client, inbound());
            Admitted::Route(Box::new(Routed::for_file((inbound, site), (auths, last), &file)))
        }
        (admitted, _) => admitted,
    }
}

/// A request for an upstream, with the host that a trusted proxy names for its client.
fn described<'r>(rules: &Rules, client: RequestClient, mut inbound: Inbound<'r>) -> Inbound<'r> {
    if client.is_proxied {
        inbound.named_host = named_host(&inbound.fields, rules.proxies.field, |ip| rules.proxies.contain(ip));
    }
    inbound
}

/// A client that the rules of a site have let in.
#[derive(Default)]
struct Entered {
    conditions: Conditions,
    /// The passwords that must be right.
    checks: Vec<PasswordCheck>,
    /// The servers that must agree.
    auths: Vec<Authorizer>,
    /// The bounds that rules set for the request.
    holds: Holds,
    rewritten: Option<Rewritten>,
}

/// Applies the rules of a site for a path.
///
/// # Errors
/// The answer, if they decide on it.
fn enter<M: Machine>(
    context: &mut Context<'_, M>,
    (request, client): (&Request<'_>, RequestClient),
    site: SiteId,
    path: &[u8],
) -> Result<Entered, Response<M::File>> {
    let mut entered = Entered::default();
    let_in(context, (request, client), site, (path, None), &mut entered)?;
    let rules = &context.core.rules.site(site).paths;
    if let Some((redirect, parts)) = rules.redirect(path) {
        let location = redirect.location(&parts, request.query);
        return Err(redirect_to(request, redirect.status, location));
    }
    let bad_page = |bad: BadPath| error_page(request, (bad.status(), bad.reason()));
    let rewritten = rules.rewrite(path).transpose().map_err(bad_page)?;
    if let Some(rewritten) = &rewritten {
        // The rules of access are for the new path too: a part of the client's path can lead anywhere.
        let_in(context, (request, client), site, (&rewritten.path, Some(path)), &mut entered)?;
    }
    Ok(Entered { rewritten, ..entered })
}

/// Applies the rules for the script that answers for missing files. The result is for later, because the file may exist.
fn let_in_at_fallback<M: Machine>(
    context: &mut Context<'_, M>,
    (request, client): (&Request<'_>, RequestClient),
    site: SiteId,
    (path, former): (&[u8], &[u8]),
) -> LateRules {
    let mut entered = Entered::default();
    let denied = let_in(context, (request, client), site, (path, Some(former)), &mut entered).err();
    let refusal = denied.map(|denied| match denied.status {
        Status::UNAUTHORIZED => PASSWORD_NEEDED,
        Status::FORBIDDEN => NOT_ADMITTED,
        Status::TOO_MANY_REQUESTS => TOO_MANY,
        Status::BAD_GATEWAY => NO_LINK,
        _ => TOO_MANY_OF_ALL,
    });
    LateRules { refusal, checks: entered.checks, auths: entered.auths, holds: entered.holds }
}

/// Whether the rules of a site let a client in at a path, which takes the place of a former one if there is one.
///
/// # Errors
/// The answer to a client that they do not let in.
#[inline]
fn let_in<M: Machine>(
    context: &mut Context<'_, M>,
    (request, client): (&Request<'_>, RequestClient),
    site: SiteId,
    (path, former): (&[u8], Option<&[u8]>),
    Entered { conditions, checks, auths, holds, .. }: &mut Entered,
) -> Result<(), Response<M::File>> {
    let Context { machine, core } = context;
    let rules = &core.rules.site(site).paths;
    for number in rules.guards(path) {
        if !rules.admits(number, client.address) {
            return Err(error_page(request, NOT_ADMITTED));
        }
        conditions.guards.push(number);
    }
    for (number, bounds) in rules.bounds(path, former) {
        let client = ClientNumber::of(client.address);
        if let Err(Full { is_of_client }) =
            core.in_flight.enter(*machine, (site, number), (bounds, client), holds)
        {
            put_back(*machine, Counting::of(site, client, core).buckets(&conditions.rates));
            core.counters.limited += 1;
            return Err(too_soon_page(request, TooSoon { wait_us: TRY_AGAIN_US, is_of_client }));
        }
    }
    for (number, bandwidth) in rules.bandwidths(path, former) {
        holds.throttle(bandwidth.throttles((site, number), ClientNumber::of(client.address)));
    }
    let counted = conditions.rates.len();
    conditions.rates.extend(rules.rates(path, former));
    let counting = Counting::of(site, ClientNumber::of(client.address), core);
    if let Err(too_soon) = counting.count(*machine, &conditions.rates[counted..]) {
        put_back(*machine, counting.buckets(&conditions.rates[..counted]));
        core.counters.limited += 1;
        return Err(too_soon_page(request, too_soon));
    }
    if let Some(users) = rules.users(path, former) {
        let Some(check) = check_of(core, users, request) else {
            return Err(error_page(request, PASSWORD_NEEDED));
        };
        conditions.passwords.push(check.pair());
        checks.push(check);
    }
    if let Some(auth) = rules.auth(path, former) {
        let auth = Authorizer::of(core.rules.site(site), auth);
        auths.push(auth.ok_or_else(|| error_page(request, NO_LINK))?);
    }
    Ok(())
}

/// A site, and the decoded path of a request there.
type SitePath<'r> = (SiteId, Result<Cow<'r, [u8]>, BadPath>);

/// Decides on a request that has no route.
#[inline]
fn admit_file<'r, F>(
    core: &Core<F>,
    (request, scheme, is_local): (&'r Request<'r>, Scheme, bool),
    path: Option<SitePath<'r>>,
    (entered, substitute): (Entered, Substitute),
) -> Admitted<'r, F> {
    let refused = |refusal| Admitted::Refused(error_page(request, refusal));
    match (request.method, request.body) {
        (Method::Known, _) => refused(NO_METHOD_OF_FILES),
        (Method::Unknown, _) => refused((Status::NOT_IMPLEMENTED, "The method is not known here.")),
        (_, RequestBody::Length(bytes)) if bytes > REQUEST_BODY_BYTES_MAX => refused(TOO_LARGE),
        (Method::Options, _) => Admitted::Answer(Response::methods()),
        (Method::Get | Method::Head, body) => match path {
            Some((site, Ok(path))) => {
                let (site, path) = core.rules.place(site, path);
                let Entered { conditions, checks, holds, .. } = entered;
                let holds = holds.shared();
                let is_once = body != RequestBody::None || holds.is_some();
                let pass = if is_once { Pass::Once } else { pass(core.rules.site(site), scheme) };
                let conditions = (!conditions.are_none()).then(|| Arc::new(conditions));
                Admitted::File(FileRequest {
                    request,
                    site,
                    path,
                    pass,
                    conditions,
                    substitute,
                    is_local,
                    checks,
                    holds,
                })
            }
            Some((_, Err(bad))) => Admitted::Answer(error_page(request, (bad.status(), bad.reason()))),
            None => Admitted::Answer(error_page(request, NO_SITE)),
        },
    }
}

/// Whether requests with the same head as an admitted one can be admitted without being parsed.
fn pass(rules: &SiteRules, scheme: Scheme) -> Pass {
    match scheme {
        _ if rules.https_redirect.is_none() && rules.hsts.is_none() => Pass::SameHead,
        Scheme::Https => Pass::SameHeadOverHttps,
        Scheme::Http if rules.https_redirect.is_none() => Pass::SameHeadOverHttp,
        Scheme::Http => Pass::Once,
    }
}

/// The changes that rules make to the head of the answer to a request.
#[inline]
pub(crate) fn head_changes<F>(
    core: &mut Core<F>,
    scheme: Scheme,
    request: &Request<'_>,
) -> Option<Arc<HeadChanges>> {
    if !core.head_rules.are_there() {
        return None;
    }
    let site = core.router.route(request.host)?;
    let path = decode_path(request.path, core.rules.site(site).encoded_slash);
    let path = path.as_deref().unwrap_or_default();
    core.head_rules.changes(
        (site, core.rules.site(site)),
        scheme == Scheme::Https,
        (path, false),
        request.origin,
    )
}

/// The same for a file's answer to a script of a page with this origin. The decoded path is that of the file in a site or an alias.
#[inline]
pub(crate) fn head_changes_of_path<F>(
    core: &mut Core<F>,
    scheme: Scheme,
    site: SiteId,
    (path, origin): (&[u8], Option<&[u8]>),
) -> Option<Arc<HeadChanges>> {
    if !core.head_rules.are_there() {
        return None;
    }
    let rules = core.rules.site(site);
    let (site, path) = (core.rules.public_site(site), rules.public_path(path));
    core.head_rules.changes((site, rules), scheme == Scheme::Https, (&path, true), origin)
}

/// Decides on a request that has a route.
fn admit_route<'r, F>(core: &Core<F>, mut routed: Routed<'r>) -> Admitted<'r, F> {
    let protocol = routed.target.protocol(core, routed.site);
    let request = routed.inbound.request;
    // It must not be forwarded any further (RFC 9110, section 7.6.2). An application of FastCGI is a part of this server.
    if protocol == UpstreamProtocol::Http && routed.inbound.max_forwards() == Some(0) {
        return Admitted::Refused(Response::methods());
    }
    match judge_body(core, &routed) {
        Ok(gathers) => routed.gathers = gathers,
        Err(refusal) => routed.late.refusal = Some(refusal),
    }
    match routed.late.refusal {
        Some(refusal) if routed.preferred.is_none() => Admitted::Refused(error_page(request, refusal)),
        // The file or the other script may answer all the same.
        _ => Admitted::Route(Box::new(routed)),
    }
}

/// Whether the spool takes the body before a server gets it.
///
/// # Errors
/// The body is too long, its length must be known and is not, or the server could read the path differently.
fn judge_body<F>(core: &Core<F>, routed: &Routed<'_>) -> Result<bool, Refusal> {
    let (target, site) = (&routed.target, routed.site);
    let (request, rules) = (routed.inbound.request, target.rules(core, site));
    let body = request.body;
    let fits_memory = matches!(body, RequestBody::Length(bytes) if bytes <= RECEIVE_BYTES as u64);
    let gathers = !body.is_empty() && !rules.streams_bodies && (fits_memory || core.spool.has_file());
    // CGI has no way to say that the length is unknown (RFC 3875, section 4.1.2).
    let needs_length =
        target.protocol(core, site) == UpstreamProtocol::FastCgi && body == RequestBody::Chunked;
    match body {
        _ if needs_length && !gathers => Err(LENGTH_REQUIRED),
        _ if routed.is_ambiguous(core) => Err(AMBIGUOUS_PATH),
        RequestBody::Length(bytes) if bytes > rules.body_bytes_max => Err(TOO_LARGE),
        _ => Ok(gathers),
    }
}

/// The request of a relay for the file of this decoded path, which answers in place of its server.
pub(crate) fn admit_preferred_file<F>(
    core: &Core<F>,
    site: SiteId,
    request: RequestBuf,
    path: &[u8],
) -> FileRequestBuf {
    let (site, path) = core.rules.place(site, Cow::Borrowed(path));
    FileRequestBuf::of_relay(request, site, &path)
}

/// Admits the request of a relay for a file of its site that the server names, instead of answering itself. `place` is the site or
/// the alias whose folder has it, if the server has named that too.
///
/// # Errors
/// Why there is no such file.
pub(crate) fn admit_application_file<F>(
    core: &Core<F>,
    (site, place): (SiteId, Option<SiteId>),
    request: RequestBuf,
) -> Result<FileRequestBuf, &'static str> {
    let rules = core.rules.site(site);
    let path = decode_path(request.request().path, rules.encoded_slash)
        .map_err(|_| NOT_A_FILE_OF_THE_SITE)?
        .into_owned();
    if leads_to_script(rules, &path) {
        return Err("The answer names a script instead of a file");
    }
    Ok(match place {
        Some(place) => FileRequestBuf::of_relay(request, place, &path),
        None => admit_preferred_file(core, site, request, &path),
    })
}
