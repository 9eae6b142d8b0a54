//! Finds the route of a request: which of them an upstream answers. Called by the wires before they ask for a
//! file.

use flash_http::request::Request;
use flash_http::target::{decode_path, has_dot_segment, is_hidden, is_plain, readings};

use super::error_page::{AMBIGUOUS_PATH, Refusal};
use crate::desk::Core;
use crate::rules::{Route, RoutePaths, SiteId, SiteRules, has_extension};

/// A request that an upstream answers.
#[derive(Debug)]
pub(crate) struct Routed {
    pub(crate) site: SiteId,
    /// The place of its route in the rules of the site.
    pub(crate) route: usize,
    /// The decoded path, an index file included.
    path: Vec<u8>,
    /// Where the path of the script ends and `PATH_INFO` begins.
    script_bytes: usize,
}

impl Routed {
    /// The decoded path of the script, for CGI; empty if the route's prefix is `/`.
    pub(crate) fn script(&self) -> &[u8] {
        &self.path[..self.script_bytes]
    }

    /// The decoded rest of the path, for CGI.
    pub(crate) fn path_info(&self) -> &[u8] {
        &self.path[self.script_bytes..]
    }

    /// The script that must be a file beneath the root before a server is asked to run it. A path such as
    /// `/upload/picture.png/x.php` names none, but some servers would run the picture.
    pub(crate) fn script_to_find<F>(&self, core: &Core<F>) -> Option<&[u8]> {
        let Route { paths, has_own_files, .. } = self.rules(core);
        (matches!(paths, RoutePaths::Extension(_)) && !has_own_files).then(|| self.script())
    }

    /// The rules of its route.
    pub(crate) fn rules<'c, F>(&self, core: &'c Core<F>) -> &'c Route {
        &core.rules.sites[usize::from(self.site.0)].routes[self.route]
    }
}

/// The route of a request; None if a file, or an error page, answers it.
pub(crate) fn route<F>(core: &Core<F>, request: &Request<'_>) -> Option<Routed> {
    // CONNECT asks for a tunnel to anywhere, and TRACE would show the fields that Flash adds.
    let is_for_server = request.line.starts_with(b"CONNECT ") || request.line.starts_with(b"TRACE ");
    if core.rules.upstreams.is_empty() || is_for_server || !request.path.starts_with(b"/") {
        return None;
    }
    let site = core.router.route(request.host)?;
    let rules = &core.rules.sites[usize::from(site.0)];
    let mut path = decode_path(request.path, rules.encoded_slash).ok()?.into_owned();
    let (route, script_bytes) = find_route(rules, &mut path)?;
    Some(Routed { site, route, path, script_bytes })
}

/// Why a request must not be passed on although it has a route: its server could read the path differently, and so find
/// what belongs to another route. Flash resolves dot segments, joins slashes and decodes `%2F` before it chooses a route,
/// but servers get the path as it was sent.
pub(crate) fn refusal_of_path<F>(core: &Core<F>, path: &[u8], routed: &Routed) -> Option<Refusal> {
    if is_plain(path) {
        return None;
    }
    let rules = &core.rules.sites[usize::from(routed.site.0)];
    let is_refused = has_dot_segment(path)
        || readings(path)
            .any(|mut reading| find_route(rules, &mut reading).map(|(route, _)| route) != Some(routed.route));
    is_refused.then_some(AMBIGUOUS_PATH)
}

/// The first route of a path, to which the name of an index is added if it is a script, and where the path of the script
/// ends.
fn find_route(rules: &SiteRules, path: &mut Vec<u8>) -> Option<(usize, usize)> {
    if let Some(index) = rules.index.first().filter(|_| path.ends_with(b"/"))
        && rules.is_script(index.as_bytes())
        && script_end(rules, path).is_none()
    {
        path.extend_from_slice(index.as_bytes());
    }
    script_end(rules, path)
}

/// The first route of a path, and where the path of its script ends.
fn script_end(rules: &SiteRules, path: &[u8]) -> Option<(usize, usize)> {
    let mut routes = rules.routes.iter().enumerate();
    routes.find_map(|(number, route)| route.script_end(path).map(|end| (number, end)))
}

/// Whether a decoded path leads to a file that belongs to a route by its extension, and so is never sent.
pub(crate) fn leads_to_script(rules: &SiteRules, path: &[u8]) -> bool {
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
