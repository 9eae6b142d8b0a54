//! The directives of Caddy that ask other servers.

use super::site::Builder;
use crate::directive::Directive;
use crate::model::{Route, Rule};
use crate::pattern::{Paths, whole};
use crate::{toml, values};

impl Builder<'_> {
    /// The prefix of a route, if it has one.
    fn prefix(&mut self, line: &Directive, paths: &Paths) -> Option<String> {
        let prefix = match &paths[..] {
            [(path, _)] if path == "*" => Some("/".to_owned()),
            [(path, _)] => path
                .strip_suffix('*')
                .filter(|it| it.starts_with('/') && !it.contains('*'))
                .map(str::to_owned),
            _ => None,
        };
        match (&prefix, &paths[..]) {
            (None, _) => self.lose(line, "a route of Flash has a prefix"),
            (Some(prefix), [(_, except)])
                if except
                    .iter()
                    .any(|it| !self.site.routes.iter().any(|route| *it == format!("{}*", route.paths.1))) =>
            {
                self.lose(line, &format!("the route takes other paths that begin with {prefix} too"));
            }
            _ => {}
        }
        prefix
    }

    pub(super) fn proxy(&mut self, line: &Directive, args: &[String], paths: &Paths) {
        let Some(prefix) = self.prefix(line, paths) else { return };
        let to = line.inner().iter().filter(|inner| inner.name == "to").flat_map(|inner| inner.args.clone());
        let mut servers = Vec::new();
        for text in args.iter().cloned().chain(to) {
            match server(&text) {
                Some(server) => servers.push(server),
                None => {
                    return self.lose(line, &format!("{text}: Flash resolves no names: write the address"));
                }
            }
        }
        if servers.is_empty() || servers.len() > 64 {
            return self.lose(line, "a route has 1 to 64 servers");
        }
        let mut route = Route { paths: ("prefix", prefix), protocol: "proxy", servers, ..Route::default() };
        for inner in line.inner() {
            let value = inner.first();
            match inner.name.as_str() {
                "to" | "transport" | "fail_duration" | "max_fails" | "health_timeout" | "health_status"
                | "health_interval" => {}
                "health_uri" if value.starts_with('/') => {
                    drop(route.settings.insert("probe", toml::text(value)));
                }
                "flush_interval" => drop(route.settings.insert("stream_answers", "true".to_owned())),
                "lb_policy" if ["least_conn", "round_robin", "random"].contains(&value) => {}
                "header_up"
                    if ["host", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"]
                        .contains(&value.to_ascii_lowercase().as_str()) => {}
                _ => self.lose(inner, "Flash has nothing like it"),
            }
        }
        self.site.routes.push(route);
    }

    pub(super) fn php(&mut self, line: &Directive, args: &[String], paths: &Paths) {
        let Some(server) = args.first().and_then(|text| server(text)) else {
            self.site.close_scripts(&whole("*.php"));
            return self.lose(
                line,
                "Flash resolves no names: write the address, and everybody gets 403 for scripts",
            );
        };
        let server = server
            .strip_prefix("unix:/")
            .map_or(server.clone(), |rest| format!("unix:/{}", rest.trim_start_matches('/')));
        self.site.routes.push(Route {
            paths: ("extension", "php".to_owned()),
            protocol: "fastcgi",
            servers: vec![server],
            ..Route::default()
        });
        self.site.index = vec!["index.php".to_owned()];
        self.site.add(paths, &Rule { fallback: Some("/index.php".to_owned()), ..Rule::default() });
        self.lose(line, "index.php is the only index: no other is tried");
    }

    /// Carries over that a server must agree to requests, or closes their paths: left as they are, they would be open.
    pub(super) fn forward_auth(&mut self, line: &Directive, args: &[String], paths: &Paths) {
        let (mut uri, mut auth_fields) = ("", Vec::new());
        for inner in line.inner() {
            match inner.name.as_str() {
                "uri" => uri = inner.first(),
                "copy_headers" => {
                    let listed = inner.inner().iter().flat_map(Directive::words);
                    auth_fields.extend(inner.args.iter().cloned().chain(listed));
                }
                _ => self.lose(inner, "Flash has nothing like it"),
            }
        }
        if let Err(why) = values::asked_path(uri) {
            return self.close_for_want(line, paths, why);
        }
        let servers: Option<Vec<String>> = args.iter().map(|text| server(text)).collect();
        let Some(servers) = servers.filter(|servers| (1..=64).contains(&servers.len())) else {
            return self.close_for_want(line, paths, "Flash resolves no names: write the address");
        };
        if let Some(name) = auth_fields.iter().find(|name| !values::is_given(name)) {
            let why =
                format!("{name}: Flash gives fields under their own names, and none that it writes itself");
            return self.close_for_want(line, paths, &why);
        }
        let route = ("prefix", uri.to_owned());
        let route = Route { paths: route, protocol: "proxy", servers, ..Route::default() };
        match self.site.add_authorizer(route) {
            Err(why) => return self.close_for_want(line, paths, why),
            Ok(false) => {}
            Ok(true) => self.lose(line, &values::closed_for_server(uri)),
        }
        let asks = Rule { auth: Some(uri.to_owned()), auth_fields, ..Rule::default() };
        for (path, except) in paths {
            let rule = asks.at(path, except);
            let asks_otherwise = |other: &Rule| {
                other.auth.is_some() && (&other.auth, &other.auth_fields) != (&rule.auth, &rule.auth_fields)
            };
            if self.site.rules.iter().any(|other| asks_otherwise(other) && other.overlaps(&rule)) {
                let why = "Flash asks one server about a path, and an earlier line has one";
                self.close_for_want(line, &vec![(path.clone(), except.clone())], why);
            } else {
                self.site.rules.push(rule);
            }
        }
    }
}

fn server(text: &str) -> Option<String> {
    if let Some(path) = text.strip_prefix("unix//").or_else(|| text.strip_prefix("unix/")) {
        return Some(format!("unix:/{}", path.trim_start_matches('/')));
    }
    if let Some(rest) = text.strip_prefix("https://") {
        return values::server(rest, 443).map(|address| format!("https://{address}"));
    }
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("h2c://")).unwrap_or(text);
    let rest = if rest.starts_with(':') { format!("localhost{rest}") } else { rest.to_owned() };
    values::server(&rest, 80)
}
