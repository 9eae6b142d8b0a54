//! Finds the route of a path. Called by the [gate](super::gate).

use std::borrow::Cow;

use flash_http::forward::Inbound;
use flash_http::target::{encode_path, has_dot_segment, is_hidden, is_plain, readings};

use super::password::PasswordCheck;
use crate::desk::Core;
use crate::rules::{Route, RoutePaths, SiteId, SiteRules, UpstreamProtocol, has_extension};

/// A request that an upstream answers.
#[derive(Debug)]
pub(crate) struct Routed<'r> {
    pub(crate) inbound: Inbound<'r>,
    pub(crate) site: SiteId,
    /// The place of its route in the rules of the site.
    pub(super) route: usize,
    /// The decoded path, an index file included.
    path: Cow<'r, [u8]>,
    /// Where the path of the script ends and `PATH_INFO` begins.
    script_bytes: usize,
    /// Length of the name of an index at the end of `path`.
    index_bytes: usize,
    /// Whether a rule has replaced the client's path.
    pub(super) is_rewritten: bool,
    /// Whether the spool takes the body before a server gets it.
    pub(crate) gathers: bool,
    /// The passwords that must be right.
    pub(crate) checks: Vec<PasswordCheck>,
}

/// The route of a path.
pub(super) struct RouteMatch {
    route: usize,
    script_bytes: usize,
    /// The path with the name of an index, if that is a script.
    with_index: Option<Vec<u8>>,
}

impl<'r> Routed<'r> {
    pub(super) fn new(inbound: Inbound<'r>, site: SiteId, path: Cow<'r, [u8]>, found: RouteMatch) -> Self {
        let RouteMatch { route, script_bytes, with_index } = found;
        let index_bytes = with_index.as_ref().map_or(0, |with_index| with_index.len() - path.len());
        let path = with_index.map_or(path, Cow::Owned);
        let (is_rewritten, gathers, checks) = (false, false, Vec::new());
        Self { inbound, site, route, path, script_bytes, index_bytes, is_rewritten, gathers, checks }
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
        self.is_rewritten.then(|| encode_path(&self.path[..self.path.len() - self.index_bytes]))
    }

    /// Whether the server could read the path differently, and so find what belongs to another route. Flash resolves dot
    /// segments, joins slashes and decodes `%2F` before it chooses a route, but servers get the path as it was sent. An
    /// application of FastCGI gets that besides a rewritten one.
    pub(super) fn is_ambiguous<F>(&self, core: &Core<F>) -> bool {
        let (rules, sent) = (core.rules.site(self.site), self.inbound.request.path);
        match self.new_path() {
            Some(new) if self.protocol(core) == UpstreamProtocol::Http => {
                is_ambiguous(rules, new.as_bytes(), self.route)
            }
            Some(_) => has_dot_segment(sent),
            None => is_ambiguous(rules, sent, self.route),
        }
    }

    /// The script that must be a file beneath the root before a server is asked to run it. A path such as
    /// `/upload/picture.png/x.php` names none, but some servers would run the picture.
    pub(crate) fn script_to_find<F>(&self, core: &Core<F>) -> Option<&[u8]> {
        let Route { paths, has_own_files, .. } = self.rules(core);
        (matches!(paths, RoutePaths::Extension(_)) && !has_own_files).then(|| self.script())
    }

    pub(crate) fn rules<'c, F>(&self, core: &'c Core<F>) -> &'c Route {
        &core.rules.site(self.site).routes[self.route]
    }

    /// The protocol of its servers.
    pub(crate) fn protocol<F>(&self, core: &Core<F>) -> UpstreamProtocol {
        core.rules.upstreams[usize::from(self.rules(core).upstream.0)].protocol
    }
}

/// Whether a server could read a path of a route differently.
fn is_ambiguous(rules: &SiteRules, path: &[u8], route: usize) -> bool {
    let is_same = |reading: Vec<u8>| find_route(rules, &reading).is_some_and(|found| found.route == route);
    !is_plain(path) && (has_dot_segment(path) || !readings(path).all(is_same))
}

/// The first route of a path, to which the name of an index is added if it is a script.
pub(super) fn find_route(rules: &SiteRules, path: &[u8]) -> Option<RouteMatch> {
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

/// Whether a decoded path leads to a file that belongs to a route by its extension, and so is never sent.
pub(super) fn leads_to_script(rules: &SiteRules, path: &[u8]) -> bool {
    let is_index = path.ends_with(b"/") && rules.index.iter().any(|name| rules.is_script(name.as_bytes()));
    let has_script =
        |route: &Route| matches!(route.paths, RoutePaths::Extension(_)) && route.script_end(path).is_some();
    is_index || rules.routes.iter().any(has_script)
}

impl Route {
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
        let upstream = UpstreamId(0);
        let (streams_bodies, streams_answers) = (false, false);
        Route { paths, upstream, has_own_files: false, body_bytes_max: 0, streams_bodies, streams_answers }
            .script_end(path.as_bytes())
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
