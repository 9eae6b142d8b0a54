//! `ProxyPass` and `SetHandler` as routes.

use super::site::Builder;
use crate::directive::Directive;
use crate::model::Route;
use crate::pattern::Paths;
use crate::values;

impl Builder<'_> {
    pub(super) fn proxy(&mut self, directive: &Directive, paths: &Paths) {
        let (prefix, to) = match (&directive.args[..], &paths[..]) {
            ([prefix, to, ..], _) if prefix.starts_with('/') => (prefix.clone(), to.clone()),
            ([to], [(path, _)]) => (path.trim_end_matches('*').to_owned(), to.clone()),
            _ => return self.lose(directive, "a route of Flash has a prefix"),
        };
        let Some((is_tls, rest)) = values::scheme(&to) else {
            return self.lose(directive, "Flash passes requests on to http:// and https://");
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let Some(server) = values::server(authority, if is_tls { 443 } else { 80 }) else {
            return self.lose(directive, &format!("{authority}: Flash resolves no names: write the address"));
        };
        let prefix = if prefix.is_empty() { "/".to_owned() } else { prefix };
        if path.trim_end_matches('/') != prefix.trim_end_matches('/') {
            self.lose(
                directive,
                &format!("Flash passes paths as they are: the server gets {prefix}…, not {path}…"),
            );
        }
        let server = if is_tls { format!("https://{server}") } else { server };
        self.site.routes.push(Route {
            paths: ("prefix", prefix),
            protocol: "proxy",
            servers: vec![server],
            ..Route::default()
        });
    }

    /// A section whose requests a FastCGI server answers.
    pub(super) fn handler(&mut self, section: &Directive, paths: &Paths) {
        let Some(handler) = section.inner().iter().find(|inner| inner.name == "sethandler") else { return };
        let text = handler.first();
        let unix = text
            .strip_prefix("proxy:unix:")
            .and_then(|rest| rest.split_once('|'))
            .map(|(path, _)| format!("unix:{path}"));
        let tcp = text
            .strip_prefix("proxy:fcgi://")
            .and_then(|authority| values::server(authority.trim_end_matches('/'), 9_000));
        let extension = match &paths[..] {
            [(path, except)] if except.is_empty() => {
                path.strip_prefix("*.").filter(|it| it.bytes().all(|byte| byte.is_ascii_alphanumeric()))
            }
            _ => None,
        };
        match (unix.or(tcp), extension) {
            (Some(server), Some(extension)) => {
                let paths = ("extension", extension.to_owned());
                self.site.routes.push(Route {
                    paths,
                    protocol: "fastcgi",
                    servers: vec![server],
                    ..Route::default()
                });
                let is_script = |name: &String| name.ends_with(&format!(".{extension}"));
                let (scripts, others): (Vec<String>, Vec<String>) =
                    self.site.index.iter().cloned().partition(is_script);
                if let Some(first) = scripts.first() {
                    self.site.index = vec![first.clone()];
                    if !others.is_empty() || scripts.len() > 1 {
                        self.lose(handler, &format!("{first} is the only index: no other is tried"));
                    }
                }
            }
            _ => {
                self.site.close_scripts(paths);
                self.lose(
                    handler,
                    "Flash passes files with one extension to a FastCGI server: everybody gets 403 here",
                );
            }
        }
    }
}
