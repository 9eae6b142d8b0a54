//! Finds the route of a path, and whether a file or another script answers before it. Called by the [gate](super::gate).

use std::borrow::Cow;
use std::sync::Arc;

use flash_http::forward::Inbound;
use flash_http::granted::is_alike;
use flash_http::request::{Method, Request};
use flash_http::target::{encode_path, has_dot_segment, is_hidden, is_plain, readings};

use super::error_page::Refusal;
use super::file_request::{FileRequest, FileRequestBuf};
use super::look_up::fresh;
use super::password::PasswordCheck;
use crate::caches::Resolved;
use crate::context::{Context, Core};
use crate::in_flight::Holds;
use crate::machine::Machine;
use crate::path_rule::AuthRule;
use crate::rules::{Route, RoutePaths, SiteRules, UpstreamProtocol, has_extension};
use crate::slab::SiteId;

/// A request that an upstream answers.
#[derive(Debug)]
pub(crate) struct Routed<'r> {
    pub(crate) inbound: Inbound<'r>,
    pub(crate) site: SiteId,
    pub(crate) target: RouteTarget<'r>,
    pub(crate) preferred: Option<Preferred<'r>>,
    /// The query that takes the place of the client's.
    pub(crate) query: Option<Vec<u8>>,
    /// The rules that apply once the preferred file or script is missing.
    pub(crate) late: LateRules,
    /// Whether the spool takes the body before a server gets it.
    pub(crate) gathers: bool,
    /// The passwords that must be right.
    pub(crate) checks: Vec<PasswordCheck>,
    /// The servers that must agree first, in this order.
    pub(crate) auths: Vec<Authorizer>,
    /// The file that answers once the server of the target agrees too.
    pub(crate) file: Option<FileRequestBuf>,
    /// The bounds that rules set for the request.
    pub(crate) holds: Option<Arc<Holds>>,
}

/// The rules of a target that apply once the preferred file or script is missing.
#[derive(Debug, Default)]
pub(crate) struct LateRules {
    /// The reason why the target does not answer.
    pub(crate) refusal: Option<Refusal>,
    /// The passwords that must be right.
    pub(crate) checks: Vec<PasswordCheck>,
    /// The servers that must agree, in this order.
    pub(crate) auths: Vec<Authorizer>,
    /// The groups in which the request counts meanwhile.
    pub(crate) holds: Holds,
}

/// A server that must agree to a request.
#[derive(Debug)]
pub(crate) struct Authorizer {
    pub(crate) target: RouteTarget<'static>,
    /// The names of the fields that it gives to the request.
    pub(crate) grants: Arc<[String]>,
}

/// The name that a server is asked for.
#[derive(Debug)]
pub(crate) struct RouteTarget<'r> {
    /// The place of its route in the rules of the site.
    route: usize,
    /// The decoded path, an index file included.
    path: Cow<'r, [u8]>,
    /// Where the path of the script ends and `PATH_INFO` begins.
    script_bytes: usize,
    /// Length of the name of an index at the end of `path`.
    index_bytes: usize,
    /// Whether a rule has replaced the client's path.
    is_rewritten: bool,
}

/// The name that answers in place of the target of a route, if it is found.
#[derive(Debug)]
pub(crate) enum Preferred<'r> {
    /// The file or the listing of this path.
    File(Cow<'r, [u8]>),
    /// Another script of the route.
    Script(RouteTarget<'r>),
}

/// The route of a path.
struct RouteMatch {
    route: usize,
    script_bytes: usize,
    /// The path with the name of an index, if that is a script.
    with_index: Option<Vec<u8>>,
}

/// The route that answers a request.
pub(super) struct RouteChoice<'r> {
    target: RouteTarget<'r>,
    /// Whether the target answers for missing files.
    is_fallback: bool,
    preferred: Option<Preferred<'r>>,
}

impl<'r> RouteChoice<'r> {
    /// The path of the target, if it answers for missing files.
    pub(super) fn fallback(&self) -> Option<&[u8]> {
        self.is_fallback.then_some(&self.target.path)
    }

    fn of(target: RouteTarget<'r>) -> Self {
        Self { target, is_fallback: false, preferred: None }
    }

    /// The request that its upstream answers.
    pub(super) fn routed(self, inbound: Inbound<'r>, site: SiteId) -> Routed<'r> {
        let Self { target, preferred, .. } = self;
        let (query, late, gathers) = (None, LateRules::default(), false);
        let (checks, auths, file, holds) = (Vec::new(), Vec::new(), None, None);
        Routed { inbound, site, target, preferred, query, late, gathers, checks, auths, file, holds }
    }
}

impl Authorizer {
    /// The server of a rule. None if no route has its path.
    pub(super) fn of(rules: &SiteRules, AuthRule { path, fields }: &AuthRule) -> Option<Self> {
        let target = RouteTarget::of(Cow::Owned(path.clone()), true, find_route(rules, path)?);
        Some(Self { target, grants: Arc::clone(fields) })
    }

    /// Whether a server could take a field of the client for one that this server gives.
    pub(crate) fn gives(&self, name: &[u8]) -> bool {
        self.grants.iter().any(|granted| is_alike(granted.as_bytes(), name))
    }
}

impl<'r> RouteTarget<'r> {
    fn of(path: Cow<'r, [u8]>, is_rewritten: bool, found: RouteMatch) -> Self {
        let RouteMatch { route, script_bytes, with_index } = found;
        let index_bytes = with_index.as_ref().map_or(0, |with_index| with_index.len() - path.len());
        let path = with_index.map_or(path, Cow::Owned);
        Self { route, path, script_bytes, index_bytes, is_rewritten }
    }

    pub(crate) fn rules<'c, F>(&self, core: &'c Core<F>, site: SiteId) -> &'c Route {
        &core.rules.site(site).routes[self.route]
    }

    /// The protocol of its servers.
    pub(crate) fn protocol<F>(&self, core: &Core<F>, site: SiteId) -> UpstreamProtocol {
        core.rules.upstreams[usize::from(self.rules(core, site).upstream.0)].protocol
    }

    /// The script that must be a file beneath the root before a server is asked to run it. A path such as
    /// `/upload/picture.png/x.php` names none, but some servers would run the picture.
    pub(crate) fn script_to_find<F>(&self, core: &Core<F>, site: SiteId) -> Option<&[u8]> {
        self.rules(core, site).finds_scripts().then(|| self.script())
    }

    /// The decoded path of the script, for CGI; empty if the route's prefix is `/`.
    pub(crate) fn script(&self) -> &[u8] {
        &self.path[..self.script_bytes]
    }

    /// The decoded rest of the path, for CGI.
    pub(crate) fn path_info(&self) -> &[u8] {
        &self.path[self.script_bytes..]
    }

    /// The path that the server gets in place of the client's, percent-encoded.
    pub(crate) fn new_path(&self) -> Option<String> {
        self.is_rewritten.then(|| encode_path(self.without_index()))
    }

    /// The decoded path that was asked for.
    fn without_index(&self) -> &[u8] {
        &self.path[..self.path.len() - self.index_bytes]
    }
}

impl<'r> Routed<'r> {
    /// The request for a file, which answers once the servers of these targets agree.
    pub(super) fn for_file(
        (inbound, site): (Inbound<'r>, SiteId),
        (auths, last): (Vec<Authorizer>, Authorizer),
        file: &FileRequest<'_>,
    ) -> Self {
        let (checks, holds) = (file.checks.clone(), file.holds.clone());
        let file = Some(FileRequestBuf::let_in(file));
        Self { auths, checks, file, holds, ..RouteChoice::of(last.target).routed(inbound, site) }
    }
}

impl Routed<'_> {
    /// All servers that must agree, in this order.
    pub(crate) fn authorizers(&self) -> impl Iterator<Item = &Authorizer> + Clone {
        self.auths.iter().chain(&self.late.auths)
    }

    /// The name that a server is asked for instead, if that is found.
    pub(crate) fn preferred_target(&self) -> Option<&RouteTarget<'_>> {
        if let Some(Preferred::Script(target)) = &self.preferred { Some(target) } else { None }
    }

    /// Whether the server could read the path differently, and so find what belongs to another route. Flash resolves dot
    /// segments, joins slashes and decodes `%2F` before it chooses a route, but servers get the path as it was sent. An
    /// application of FastCGI gets that besides a rewritten one.
    pub(super) fn is_ambiguous<F>(&self, core: &Core<F>) -> bool {
        let (rules, sent) = (core.rules.site(self.site), self.inbound.request.path);
        [Some(&self.target), self.preferred_target()].into_iter().flatten().any(|target| {
            match target.new_path() {
                Some(new) if target.protocol(core, self.site) == UpstreamProtocol::Http => {
                    is_ambiguous(rules, new.as_bytes(), target)
                }
                Some(_) => has_dot_segment(sent),
                None => is_ambiguous(rules, sent, target),
            }
        })
    }
}

/// Whether a server could read the path of a target differently: as one of another route, or one for which other rules say who is
/// admitted.
fn is_ambiguous(rules: &SiteRules, path: &[u8], target: &RouteTarget<'_>) -> bool {
    let is_same = |reading: Vec<u8>| {
        find_route(rules, &reading).is_some_and(|found| found.route == target.route)
            && rules.paths.admit_alike(&reading, target.without_index())
    };
    !is_plain(path) && (has_dot_segment(path) || !readings(path).all(is_same))
}

/// The route that answers a request for a decoded path, which may have taken the place of the client's (`is_rewritten`). None if a file
/// answers, or nothing.
#[inline]
pub(super) fn choose_route<'r, M: Machine>(
    context: &mut Context<'_, M>,
    request: &Request<'_>,
    (site, path, is_rewritten): (SiteId, &Cow<'r, [u8]>, bool),
) -> Option<RouteChoice<'r>> {
    let rules = context.core.rules.site(site);
    if rules.routes.is_empty() {
        return None;
    }
    let own = find_route(rules, path)
        .map(|found| RouteChoice::of(RouteTarget::of(path.clone(), is_rewritten, found)));
    let route_of = |choice: &RouteChoice<'_>| &rules.routes[choice.target.route];
    let (files_first, finds_scripts) =
        own.as_ref().map_or((false, false), |own| (route_of(own).files_first, route_of(own).finds_scripts()));
    let fallback = || {
        let fallback = rules.paths.fallback(path)?.to_vec();
        let found = find_route(rules, &fallback)?;
        Some(RouteChoice {
            is_fallback: true,
            ..RouteChoice::of(RouteTarget::of(Cow::Owned(fallback), true, found))
        })
    };
    match own {
        Some(own) if files_first => after_file(context, request, (site, path), own),
        Some(own) if finds_scripts => match fallback().filter(|other| other.target.route == own.target.route)
        {
            Some(other) => Some(after_script(context, site, own, other)),
            None => Some(own),
        },
        Some(own) => Some(own),
        None if is_hidden(path) || rules.paths.is_alias(path) => None,
        None => {
            let other = fallback()?;
            after_file(context, request, (site, path), other)
        }
    }
}

/// The route that answers if there is no file of a path.
fn after_file<'r, M: Machine>(
    context: &mut Context<'_, M>,
    request: &Request<'_>,
    (site, path): (SiteId, &Cow<'r, [u8]>),
    choice: RouteChoice<'r>,
) -> Option<RouteChoice<'r>> {
    // An application knows best which methods it has, and no hidden file answers.
    let asks_methods = request.method == Method::Options;
    if asks_methods && !choice.is_fallback || is_hidden(path) {
        return Some(choice);
    }
    let (place, beneath) = context.core.rules.place(site, Cow::Borrowed(&**path));
    match fresh(context, (place, &beneath)) {
        Some(entry) => (!entry.resolved.answers()).then_some(choice),
        None if asks_methods => Some(choice),
        None => Some(RouteChoice { preferred: Some(Preferred::File(path.clone())), ..choice }),
    }
}

/// The first of two choices of a route whose script is there.
fn after_script<'r, M: Machine>(
    context: &mut Context<'_, M>,
    site: SiteId,
    first: RouteChoice<'r>,
    other: RouteChoice<'r>,
) -> RouteChoice<'r> {
    match fresh(context, (site, first.target.script()))
        .map(|entry| matches!(entry.resolved, Resolved::Missing))
    {
        Some(true) => other,
        Some(false) => first,
        None => RouteChoice { preferred: Some(Preferred::Script(first.target)), ..other },
    }
}

/// The first route of a path, to which the name of an index is added if it is a script.
fn find_route(rules: &SiteRules, path: &[u8]) -> Option<RouteMatch> {
    if let Some(found) = script_end(rules, path) {
        return Some(found);
    }
    let index =
        rules.index.first().filter(|index| path.ends_with(b"/") && rules.is_script(index.as_bytes()))?;
    let path = [path, index.as_bytes()].concat();
    let found = script_end(rules, &path)?;
    Some(RouteMatch { with_index: Some(path), ..found })
}

/// The first route of a path as it is.
fn script_end(rules: &SiteRules, path: &[u8]) -> Option<RouteMatch> {
    let of_route = |(route, rules): (usize, &Route)| {
        let script_bytes = rules.script_end(path)?;
        Some(RouteMatch { route, script_bytes, with_index: None })
    };
    rules.routes.iter().enumerate().find_map(of_route)
}

/// Whether a server answers requests for a decoded path, even if there is a file.
pub(super) fn leads_to_server(rules: &SiteRules, path: &[u8]) -> bool {
    find_route(rules, path).is_some_and(|found| !rules.routes[found.route].files_first)
}

/// Whether a route has a decoded path.
pub(super) fn has_route(rules: &SiteRules, path: &[u8]) -> bool {
    find_route(rules, path).is_some()
}

/// Whether a decoded path leads to a file that belongs to a route by its extension, and so is never sent.
pub(super) fn leads_to_script(rules: &SiteRules, path: &[u8]) -> bool {
    let is_index = path.ends_with(b"/") && rules.index.iter().any(|name| rules.is_script(name.as_bytes()));
    let has_script =
        |route: &Route| matches!(route.paths, RoutePaths::Extension(_)) && route.script_end(path).is_some();
    is_index || rules.routes.iter().any(has_script)
}

impl Route {
    /// Whether a script must be a file beneath the root before a server is asked to run it.
    fn finds_scripts(&self) -> bool {
        matches!(self.paths, RoutePaths::Extension(_)) && !self.has_own_files
    }

    /// Where the path of the script ends, if the route has this path.
    fn script_end(&self, path: &[u8]) -> Option<usize> {
        match &self.paths {
            RoutePaths::Prefix(prefix) => path
                .starts_with(prefix)
                .then(|| if prefix.ends_with(b"/") { prefix.len() - 1 } else { prefix.len() }),
            RoutePaths::Extension(extension) => {
                let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
                let is_script =
                    |end: &usize| has_extension(&path[..*end], extension) && !is_hidden(&path[..*end]);
                ends.skip(1).chain([path.len()]).find(is_script)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::UpstreamId;

    fn end(paths: RoutePaths, path: &str) -> Option<usize> {
        let route = Route {
            paths,
            files_first: false,
            upstream: UpstreamId(0),
            has_own_files: false,
            body_bytes_max: 0,
            streams_bodies: false,
            compresses: false,
            streams_answers: false,
        };
        route.script_end(path.as_bytes())
    }

    #[test]
    fn a_prefix_ends_before_its_slash() {
        let prefix = |prefix: &str, path| end(RoutePaths::Prefix(prefix.into()), path);
        assert_eq!(prefix("/api/", "/api/x"), Some(4));
        assert_eq!(prefix("/api/", "/api/"), Some(4));
        assert_eq!(prefix("/api/", "/api"), None);
        assert_eq!(prefix("/api", "/apix"), Some(4));
        assert_eq!(prefix("/", "/x"), Some(0));
    }

    #[test]
    fn an_extension_ends_a_part_of_the_path() {
        let php = |path| end(RoutePaths::Extension(b"php".to_vec()), path);
        assert_eq!(php("/a.php"), Some(6));
        assert_eq!(php("/a.php/"), Some(6));
        assert_eq!(php("/a.php/x.php"), Some(6));
        assert_eq!(php("/d/a.php/x/y"), Some(8));
        assert_eq!(php("/aphp"), None);
        assert_eq!(php("/a.php5"), None);
        assert_eq!(php("/.php"), None);
        assert_eq!(php("/.git/a.php"), None);
        assert_eq!(php("/a.PhP"), Some(6));
        assert_eq!(php("/"), None);
    }
}
