//! `proxy_pass` and `fastcgi_pass` as routes.

use super::location::{Kind, Location};
use super::scope::{Pass, Scope};
use super::site::{Builder, is_refusal};
use super::spread::form;
use crate::model::Route;
use crate::pattern::{Paths, whole};
use crate::values;

/// An `upstream` block.
#[derive(Clone, Debug)]
pub(super) struct Upstream {
    pub(super) name: String,
    /// The servers as they are written, with their weights.
    pub(super) servers: Vec<(String, u64)>,
}

/// Adds a route for each location that passes requests on.
pub(super) fn add(builder: &mut Builder<'_, '_>) {
    for (number, location) in builder.locations.iter().enumerate() {
        let Some(pass) = &location.scope.pass else {
            add_for_missing(builder, location);
            continue;
        };
        // Clients do not reach it, and a server that decides about requests has its route.
        if location.scope.internal && pass.protocol == "proxy" {
            continue;
        }
        if location.scope.try_files.as_ref().is_some_and(|it| pass.protocol == "proxy" && it.args.len() > 1) {
            builder.context.lost(
                &pass.directive,
                "Flash passes paths on by their prefix or extension, not if files are missing",
            );
            continue;
        }
        match route(builder, location, &location.scope, pass) {
            Ok(route) if builder.site.routes.contains(&route) => {}
            Ok(route) => {
                note_hidden(builder, number, &route);
                builder.site.routes.push(route);
            }
            Err(why) if pass.protocol == "fastcgi" => {
                builder.context.lost(&pass.directive, &format!("{why}; everybody gets 403 here"));
                close(builder, number);
            }
            Err(why) => builder.context.lost(&pass.directive, &why),
        }
    }
}

/// Adds the route of a location whose missing files a named location passes on.
fn add_for_missing(builder: &mut Builder<'_, '_>, location: &Location) {
    let server = builder.server;
    let Some(name) = location.scope.try_files.as_ref().and_then(|it| it.args.last()) else { return };
    let Some(scope) = server.locations.named(name) else { return };
    let Some(pass) = scope.pass.as_ref().filter(|pass| pass.protocol == "proxy") else { return };
    match route(builder, location, scope, pass) {
        Ok(mut route) => {
            route.settings.insert("files_first", "true".to_owned());
            builder.site.routes.push(route);
        }
        Err(why) => builder.context.lost(&pass.directive, &why),
    }
}

/// Refuses requests for the scripts of a location.
fn close(builder: &mut Builder<'_, '_>, number: usize) {
    let requests = builder.requests[number].iter();
    let paths: Paths = requests.map(|(path, except)| (form(path), except.clone())).collect();
    builder.site.close_scripts(&if paths.is_empty() { whole("*.php") } else { paths });
}

/// The route of the requests of a location, with the settings of a scope.
fn route(
    builder: &mut Builder<'_, '_>,
    location: &Location,
    scope: &Scope,
    pass: &Pass,
) -> Result<Route, String> {
    let paths = paths(location, pass)?;
    let (mut route, path) = to_servers(builder, scope, pass)?;
    route.paths = paths;
    if pass.protocol == "proxy" && !path.is_empty() && path != location.text {
        builder.context.lost(
            &pass.directive,
            &format!("Flash passes paths as they are: the server gets {}…, not {path}…", location.text),
        );
    }
    Ok(route)
}

/// A route to the servers of a directive, with the settings of a scope but no paths yet, and the path at the servers.
///
/// # Errors
/// Why Flash has no such route.
pub(super) fn to_servers<'p>(
    builder: &Builder<'_, '_>,
    scope: &Scope,
    pass: &'p Pass,
) -> Result<(Route, &'p str), String> {
    let (is_tls, authority, path) = split(&pass.to, pass.protocol)?;
    if authority.contains('$') || path.contains('$') {
        return Err("Flash has no variables".to_owned());
    }
    let named = builder.context.global.upstreams.iter().find(|upstream| upstream.name == authority).cloned();
    let servers = named.map_or_else(|| vec![(authority.to_owned(), 1)], |upstream| upstream.servers);
    let mut route = Route { protocol: pass.protocol, ..Route::default() };
    for (text, weight) in &servers {
        let port = if is_tls { 443 } else { 80 };
        let server = match text.strip_prefix("unix:") {
            Some(path) => Some(format!("unix:{path}")).filter(|_| path.starts_with('/') && !is_tls),
            None => values::server(text, port)
                .map(|address| if is_tls { format!("https://{address}") } else { address }),
        };
        route
            .servers
            .push(server.ok_or_else(|| format!("{text}: Flash resolves no names: write the address"))?);
        route.weights.push((*weight).clamp(1, 1_000));
    }
    if route.servers.is_empty() || route.servers.len() > 64 {
        return Err("a route has 1 to 64 servers".to_owned());
    }
    if route.weights.iter().all(|weight| *weight == route.weights[0]) {
        route.weights.clear();
    }
    route.settings = scope.of_route.clone();
    if is_tls {
        // nginx verifies nothing unless it is told to.
        let verify = scope.of_tls.get("verify").cloned().unwrap_or_else(|| "false".to_owned());
        let is_verified = verify == "true";
        route.settings.extend(scope.of_tls.clone());
        route.settings.insert("verify", verify);
        if !is_verified {
            route.settings.remove("roots");
        }
    }
    Ok((route, path))
}

/// The scheme, the server and the path of an address.
fn split<'t>(to: &'t str, protocol: &str) -> Result<(bool, &'t str, &'t str), String> {
    if protocol == "fastcgi" {
        return Ok((false, to, ""));
    }
    let (is_tls, rest) =
        values::scheme(to).ok_or("Flash has no variables, and takes http:// and https://")?;
    if let Some(unix) = rest.strip_prefix("unix:") {
        let (path, uri) = unix.split_once(':').unwrap_or((unix, ""));
        return Ok((is_tls, &rest[.."unix:".len() + path.len()], uri));
    }
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    Ok((is_tls, authority, path))
}

fn paths(location: &Location, pass: &Pass) -> Result<(&'static str, String), String> {
    let prefix = |text: &str| Ok(("prefix", text.to_owned()));
    match location.kind {
        Kind::First | Kind::Prefix if !location.shapes.is_empty() => prefix(&location.text),
        Kind::Regex => {
            if let Some(extension) = extension(&location.text) {
                return Ok(("extension", extension));
            }
            let forms: Vec<&str> = location.shapes.iter().map(|shape| shape.path.as_str()).collect();
            let is_plain = location.shapes.iter().all(|shape| shape.except.is_empty());
            match forms[..] {
                ["*" | "/*"] if is_plain => prefix("/"),
                [form]
                    if is_plain
                        && form.starts_with('/')
                        && form.ends_with('*')
                        && form.matches('*').count() == 1 =>
                {
                    prefix(&form[..form.len() - 1])
                }
                _ => Err("a route of Flash has a prefix or an extension".to_owned()),
            }
        }
        Kind::Exact if pass.protocol == "proxy" && !location.shapes.is_empty() && location.text != "/" => {
            prefix(&location.text)
        }
        _ => Err("a route of Flash has a prefix or an extension".to_owned()),
    }
}

/// The extension of the files that an expression has, such as `\.php$`.
pub(super) fn extension(text: &str) -> Option<String> {
    let starts = ["[^/]\\.", "^(.+\\.", "^(.+?\\.", "^.+\\.", "\\.", "."];
    let rest = starts.iter().find_map(|start| text.strip_prefix(start))?;
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
    let (extension, end) = rest.split_at(end);
    let ends = [
        "$", "(/|$)", "(?:$|/)", "($|/)", "(?:/|$)", ")(.*)$", ")(/.*)$", ")(/.+)$", "(/.*)?$", ")(/|$)",
        "(/.+)?$",
    ];
    (!extension.is_empty() && ends.contains(&end)).then(|| extension.to_ascii_lowercase())
}

/// Notes the files that a route takes from locations that nginx prefers.
fn note_hidden(builder: &mut Builder<'_, '_>, number: usize, route: &Route) {
    let location = &builder.locations[number];
    if location.kind == Kind::Exact {
        let text = format!("{}: also all paths that begin with it", location.shown);
        builder.context.notes.add(&location.position, text);
    }
    for other in &builder.locations[..number] {
        let scope = &other.scope;
        let answers_before = scope
            .returns
            .as_ref()
            .is_some_and(|it| super::redirects::of_return(it).is_some() || is_refusal(it.status))
            || scope.closed
            || scope.internal
            || scope.pass.is_some()
            || other.is_hidden();
        let is_challenge = other.text.starts_with("/.well-known/acme-challenge");
        let is_inside = location.kind != Kind::Regex || other.kind == Kind::First;
        let is_ended = route.paths.0 == "extension"
            && other.shapes.iter().all(|shape| {
                shape.path.rsplit_once('*').map_or(shape.path.as_str(), |(_, end)| end).contains('.')
            });
        if !answers_before && !is_challenge && is_inside && !is_ended && other.overlaps(location) {
            let what = if route.paths.0 == "prefix" {
                "the route takes its paths"
            } else {
                "the route takes its scripts"
            };
            let text =
                format!("{}: {what}, which a route of Flash cannot except: {}", other.shown, route.paths.1);
            builder.context.notes.add(&other.position, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_have_an_extension() {
        for text in ["\\.php$", "[^/]\\.php(/|$)", "^(.+\\.php)(.*)$", ".php$", "\\.php(?:$|/)"] {
            assert_eq!(extension(text).as_deref(), Some("php"), "{text}");
        }
        for text in ["^/index\\.php(/|$)", "\\.(php|phtml)$", "\\.$", "php"] {
            assert_eq!(extension(text), None, "{text}");
        }
    }

    #[test]
    fn addresses_have_a_server_and_a_path() {
        assert_eq!(split("http://a:1/b", "proxy"), Ok((false, "a:1", "/b")));
        assert_eq!(split("https://a", "proxy"), Ok((true, "a", "")));
        assert_eq!(split("http://unix:/run/a.sock:/b", "proxy"), Ok((false, "unix:/run/a.sock", "/b")));
        assert_eq!(split("unix:/run/a.sock", "fastcgi"), Ok((false, "unix:/run/a.sock", "")));
        assert!(split("$backend", "proxy").is_err());
    }
}
