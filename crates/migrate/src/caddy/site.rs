//! The directives of a site of Caddy.
//!
//! Caddy sorts them: fields, redirects, rewrites, routes, files, which is Flash's order too. Of `handle` blocks only the first that fits
//! applies, so the rules of the others except its paths.

use std::collections::BTreeMap;

use super::Found;
use super::parse::Line;
use crate::files::Files;
use crate::model::{EVERYBODY, Route, Rule, Site};
use crate::notes::Notes;
use crate::pattern::{self, Paths, within};
use crate::{toml, values};

/// Directives that Flash needs not.
const NOTHING: &[&str] = &["log_skip", "skip_log", "log_append", "push", "vars", "request_header"];

struct Builder<'b> {
    site: Site,
    bind: Option<String>,
    matchers: BTreeMap<String, Option<Paths>>,
    notes: &'b mut Notes,
    files: &'b Files,
    settings: &'b mut BTreeMap<&'static str, String>,
}

/// The site that these directives describe.
pub(super) fn build(
    lines: &[Line],
    files: &Files,
    notes: &mut Notes,
    settings: &mut BTreeMap<&'static str, String>,
) -> Found {
    let mut builder =
        Builder { site: Site::default(), bind: None, matchers: BTreeMap::new(), notes, files, settings };
    builder.block(lines, &all());
    let scripts = |name: &&String| name.ends_with(".php");
    if builder.site.routes.iter().any(|route| route.paths.0 == "extension")
        && builder.site.index.iter().any(|it| scripts(&it))
    {
        builder.site.index.retain(|name| name.ends_with(".php"));
        builder.site.index.truncate(1);
    }
    builder
        .site
        .routes
        .sort_by_key(|route| (route.paths.0 == "prefix", std::cmp::Reverse(route.paths.1.len())));
    Found { site: builder.site, bind: builder.bind }
}

fn all() -> Paths {
    vec![("*".to_owned(), Vec::new())]
}

impl Builder<'_> {
    fn lose(&mut self, line: &Line, why: &str) {
        self.notes.add(&line.place, format!("{}: {why}", line.shown()));
    }

    fn block(&mut self, lines: &[Line], outer: &Paths) {
        for line in lines.iter().filter(|line| line.name().starts_with('@')) {
            let paths = self.matcher(line);
            self.matchers.insert(line.name().to_owned(), paths);
        }
        let mut handled: Vec<String> = Vec::new();
        let is_handle = |line: &&Line| ["handle", "handle_path"].contains(&line.name());
        // Those with a path come before the one without, and longer paths before shorter ones.
        let path_len = |line: &&Line| std::cmp::Reverse(line.args().first().map_or(0, String::len));
        let (mut with, without): (Vec<&Line>, Vec<&Line>) =
            lines.iter().filter(is_handle).partition(|line| !line.args().is_empty());
        with.sort_by_key(path_len);
        let others = lines.iter().filter(|line| !is_handle(line) && !line.name().starts_with('@'));
        let mut others: Vec<&Line> = others.collect();
        others.sort_by_key(|line| {
            let is_sorted = ["redir", "rewrite", "respond"].contains(&line.name());
            let has_path = is_sorted && line.args().len() > 1 && line.args()[0].starts_with('/');
            if has_path { path_len(line) } else { std::cmp::Reverse(0) }
        });
        for line in others.into_iter().chain(with).chain(without) {
            let Some((mut paths, args)) = self.matched(line, outer) else { continue };
            if is_handle(&line) {
                for (path, except) in &mut paths {
                    except.extend(handled.iter().filter(|other| pattern::overlap(other, path)).cloned());
                }
                handled.extend(paths.iter().map(|(path, _)| path.clone()));
                if line.name() == "handle_path" {
                    self.lose(line, "Flash keeps the whole path");
                }
                self.block(line.inner(), &paths);
                continue;
            }
            self.directive(line, &args, &paths);
        }
    }

    /// The paths of a directive and its other arguments. None, and a note, if it has a matcher that no form says.
    fn matched(&mut self, line: &Line, outer: &Paths) -> Option<(Paths, Vec<String>)> {
        let args = line.args();
        let rest = || args.get(1..).unwrap_or_default().to_vec();
        match args.first().map(String::as_str) {
            Some("*") => Some((outer.clone(), rest())),
            Some(name) if name.starts_with('@') => match self.matchers.get(name).cloned().flatten() {
                Some(paths) => Some((within(&paths, outer), rest())),
                None => {
                    self.lose(line, "Flash chooses by paths alone");
                    None
                }
            },
            Some(path)
                if path.starts_with('/')
                    && !["root", "tls", "bind", "try_files", "encode", "php_fastcgi"]
                        .contains(&line.name())
                    && args.len() + line.inner().len() > 1
                    || args.first().is_some_and(|it| it.starts_with('/'))
                        && ["handle", "handle_path", "file_server", "basic_auth", "basicauth"]
                            .contains(&line.name()) =>
            {
                let path = args[0].clone();
                if pattern::is_form(&path) {
                    Some((within(&vec![(path, Vec::new())], outer), rest()))
                } else {
                    self.lose(line, "Flash has no such form of paths");
                    None
                }
            }
            _ => Some((outer.clone(), args.to_vec())),
        }
    }

    /// The paths of a named matcher; None if it asks for something else.
    fn matcher(&mut self, line: &Line) -> Option<Paths> {
        let one = Line { words: line.args().to_vec(), block: None, place: line.place.clone() };
        let conditions = if line.block.is_some() { line.inner().to_vec() } else { vec![one] };
        let (mut paths, mut except) = (Vec::new(), Vec::new());
        for condition in &conditions {
            match (condition.name(), condition.args()) {
                ("path", args) => paths.extend(args.iter().cloned()),
                ("not", [kind, args @ ..]) if kind == "path" => except.extend(args.iter().cloned()),
                ("file" | "not", _) => return None,
                _ => return None,
            }
        }
        if paths.is_empty() {
            paths.push("*".to_owned());
        }
        let is_plain = paths.iter().chain(&except).all(|path| pattern::is_form(path));
        is_plain.then(|| paths.into_iter().map(|path| (path, except.clone())).collect())
    }

    fn directive(&mut self, line: &Line, args: &[String], paths: &Paths) {
        match line.name() {
            "root" if paths.iter().any(|(path, _)| path != "*") || self.site.root.is_some() => {
                self.lose(line, "Flash has one root for a site");
            }
            "root" => {
                self.site.root = args.last().map(|root| values::folder(&self.files.absolute(root)));
            }
            "file_server" => self.file_server(line, args),
            "try_files" => self.try_files(line, args, paths),
            "redir" => self.redirect(line, args, paths),
            "rewrite" => self.rewrite(line, args, paths),
            "header" => self.header(line, args, paths),
            "respond" | "error" | "abort" => self.refuse(line, args, paths),
            "basic_auth" | "basicauth" | "forward_auth" => {
                self.close(paths);
                self.lose(
                    line,
                    "passwords are not carried over (docs/config.md, `users`), so everybody gets 403 here",
                );
            }
            "reverse_proxy" => self.proxy(line, args, paths),
            "php_fastcgi" => self.php(line, args),
            "route" => self.block(line.inner(), paths),
            "tls" => self.tls(line, args),
            "bind" => {
                self.bind = args.first().cloned().filter(|address| values::network(address).is_some());
                if self.bind.is_none() || args.len() > 1 {
                    self.lose(line, "Flash listens on addresses, one of them here");
                }
            }
            "log" => self.log(line),
            "encode" => self.site.compress = true,
            "handle_errors" => self.lose(line, "Flash has pages for errors: `error_page` in a rule"),
            "request_body" => {}
            name if NOTHING.contains(&name) => {}
            _ => self.lose(line, "Flash has nothing like it"),
        }
    }

    fn file_server(&mut self, line: &Line, args: &[String]) {
        self.site.browse |= args.iter().any(|arg| arg == "browse");
        for inner in line.inner() {
            match inner.name() {
                "browse" => self.site.browse = true,
                "index" => {
                    self.site.index =
                        inner.args().iter().filter(|name| !name.contains('/')).cloned().collect();
                }
                "root" => {
                    self.site.root =
                        inner.args().first().map(|root| values::folder(&self.files.absolute(root)));
                }
                "precompressed" | "pass_thru" | "disable_canonical_uris" => {}
                "hide" => {
                    self.lose(inner, "Flash hides the files whose names begin with a dot, and no others");
                }
                _ => self.lose(inner, "Flash has nothing like it"),
            }
        }
    }

    fn try_files(&mut self, line: &Line, args: &[String], paths: &Paths) {
        let plain =
            |arg: &String| ["{path}", "{path}/", "{path}/index.html", "{uri}"].contains(&arg.as_str());
        let Some((last, others)) = args.split_last() else { return };
        match last.as_str() {
            _ if !others.iter().all(plain) => {
                self.lose(line, "Flash looks for the file of the path, and then for one other");
            }
            last if plain(&last.to_owned()) || last == "=404" => {}
            last if last.ends_with(".php") => self.lose(line, "Flash passes no missing files to a script"),
            last if values::is_file(last) => {
                for (path, except) in paths {
                    let fallback = Some(last.to_owned());
                    self.site.rules.push(Rule {
                        except: except.clone(),
                        fallback,
                        ..Rule::new(path.clone())
                    });
                }
            }
            _ => self.lose(line, "is not the path of a file that Flash can serve"),
        }
    }

    fn redirect(&mut self, line: &Line, args: &[String], paths: &Paths) {
        let status = match args.get(1).map_or("302", String::as_str) {
            "permanent" => Some(301),
            "temporary" => Some(302),
            text => text.parse().ok().filter(|status| values::is_redirect(*status)),
        };
        let Some((target, status)) = args.first().zip(status) else {
            return self.lose(line, "Flash redirects with 301, 302, 303, 307 and 308");
        };
        for (path, except) in paths {
            match written(target, path) {
                Ok((path, target)) => {
                    let redirect = Some((target, status));
                    self.site.rules.push(Rule { except: except.clone(), redirect, ..Rule::new(path) });
                }
                Err(why) => self.lose(line, &why),
            }
        }
    }

    fn rewrite(&mut self, line: &Line, args: &[String], paths: &Paths) {
        let Some(target) = args.first() else { return };
        for (path, except) in paths {
            match written(target, path) {
                Ok((_, target)) if !target.starts_with('/') || target.contains(['?', '#']) => {
                    self.lose(line, "Flash rewrites the path alone");
                }
                Ok((path, target)) => {
                    let rewrite = Some(target);
                    self.site.rules.push(Rule { except: except.clone(), rewrite, ..Rule::new(path) });
                }
                Err(why) => self.lose(line, &why),
            }
        }
    }

    fn header(&mut self, line: &Line, args: &[String], paths: &Paths) {
        let own: Vec<Vec<String>> = if args.is_empty() { Vec::new() } else { vec![args.to_vec()] };
        let inner =
            line.inner().iter().filter(|inner| inner.name() != "defer").map(|inner| inner.words.clone());
        let mut rule = Rule::new("*");
        for words in own.into_iter().chain(inner) {
            let (name, value) = (words[0].as_str(), words.get(1).map_or("", String::as_str));
            let plain = name.trim_start_matches(['+', '-', '?', '>']);
            let is_removed = name.starts_with('-');
            if plain.eq_ignore_ascii_case("strict-transport-security") && !is_removed {
                match values::hsts(value) {
                    Some((text, false)) if is_all(paths) => self.site.hsts = Some(text),
                    _ => self.lose(
                        line,
                        "`hsts` is for whole sites, and takes max-age, includeSubDomains and preload",
                    ),
                }
                continue;
            }
            let problem = values::field_problem(plain, if is_removed { "x" } else { value });
            match problem.filter(|why| !(is_removed && why.contains("only remove"))) {
                Some(why) => self.lose(line, &why),
                None if value.contains('{') || words.len() > 2 || name.starts_with('?') => {
                    self.lose(line, &format!("{plain}: Flash sets fields to fixed values"));
                }
                None if is_removed => rule.remove.push(plain.to_owned()),
                None => {
                    let is_added = name.starts_with('+') || values::is_added(plain);
                    let fields = if is_added { &mut rule.add } else { &mut rule.set };
                    fields.push((plain.to_owned(), vec![value.to_owned()]));
                }
            }
        }
        if rule != Rule::new("*") {
            for (path, except) in paths {
                self.site.rules.push(Rule { path: path.clone(), except: except.clone(), ..rule.clone() });
            }
        }
    }

    fn close(&mut self, paths: &Paths) {
        for (path, except) in paths {
            let deny = EVERYBODY.map(str::to_owned).to_vec();
            self.site.rules.push(Rule { except: except.clone(), deny, ..Rule::new(path.clone()) });
        }
    }

    fn refuse(&mut self, line: &Line, args: &[String], paths: &Paths) {
        let status = args.iter().find_map(|arg| arg.parse::<u16>().ok());
        match status {
            _ if line.name() == "abort" => {
                self.close(paths);
                self.lose(line, "with 403");
            }
            Some(403) => self.close(paths),
            Some(404 | 410 | 401) => {
                self.close(paths);
                self.lose(line, "with 403");
            }
            _ => self.lose(line, "Flash answers with files, redirects and errors"),
        }
    }

    /// The prefix of a route, if it has one.
    fn prefix(&mut self, line: &Line, paths: &Paths) -> Option<String> {
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

    fn proxy(&mut self, line: &Line, args: &[String], paths: &Paths) {
        let Some(prefix) = self.prefix(line, paths) else { return };
        let to =
            line.inner().iter().filter(|inner| inner.name() == "to").flat_map(|inner| inner.args().to_vec());
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
            let value = inner.args().first().map_or("", String::as_str);
            match inner.name() {
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

    fn php(&mut self, line: &Line, args: &[String]) {
        let Some(server) = args.first().and_then(|text| server(text)) else {
            self.site.close_scripts(&[("*.php".to_owned(), Vec::new())]);
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
        self.lose(line, "in part: Flash passes no missing files to index.php (docs/migrate.md), and no directory has another index");
    }

    fn tls(&mut self, line: &Line, args: &[String]) {
        match args {
            [certificate, key] if !certificate.contains('{') => {
                self.site.certificates.push(self.files.absolute(certificate));
                self.site.keys.push(self.files.absolute(key));
            }
            [] => {}
            _ => self.lose(line, "Flash takes files of certificates and keys (docs/tls.md)"),
        }
        for inner in line.inner() {
            match inner.name() {
                "protocols" | "ciphers" | "curves" | "alpn" => {}
                "client_auth" => {
                    self.close(&all());
                    self.lose(inner, "Flash checks no certificates of clients, so everybody gets 403 here");
                }
                _ => self.lose(inner, "Flash takes files of certificates and keys (docs/tls.md)"),
            }
        }
    }

    fn log(&mut self, line: &Line) {
        let mut file = "-".to_owned();
        let mut format = "json";
        for inner in line.inner() {
            match (inner.name(), inner.args()) {
                ("output", [kind, path, ..]) if kind == "file" => file = self.files.absolute(path),
                ("output", [kind, ..]) if kind == "stdout" => {}
                ("format", [kind, ..]) if kind == "console" => format = "combined",
                ("format", [kind, ..]) if kind == "json" => {}
                ("level", _) => {}
                _ => self
                    .lose(inner, "Flash writes one log to a file or to standard output, in its own formats"),
            }
        }
        let file = toml::text(&file);
        if self.settings.get("log_file").is_some_and(|earlier| *earlier != file) {
            self.lose(line, "Flash has one log of all requests, which an earlier line sets");
        } else {
            self.settings.insert("log_file", file);
            self.settings.insert("log_format", toml::text(format));
        }
    }
}

fn is_all(paths: &Paths) -> bool {
    matches!(&paths[..], [(path, except)] if (path == "*" || path == "/*") && except.is_empty())
}

/// A target with Caddy's placeholders, for paths of this form; the form begins with a slash if the target has a part of it.
fn written(target: &str, path: &str) -> Result<(String, String), String> {
    let is_part = target.contains("{uri}") || target.contains("{path}");
    let path = if is_part && path.starts_with('*') { format!("/{path}") } else { path.to_owned() };
    let mut whole = String::new();
    let mut stars = 0;
    for c in path.chars() {
        if c == '*' {
            stars += 1;
            whole.push_str(&format!("${stars}"));
        } else {
            whole.push(c);
        }
    }
    let own = target
        .strip_prefix("{scheme}://{host}")
        .or_else(|| target.strip_prefix("{scheme}://{hostport}"))
        .unwrap_or(target);
    let text = own.trim_end_matches("?{query}").replace("{uri}", &whole).replace("{path}", &whole);
    if text.contains('{') {
        return Err("Flash has no placeholders except the path".to_owned());
    }
    if values::is_location(&text) { Ok((path, text)) } else { Err(format!("Flash takes no target `{text}`")) }
}

/// The address of a server.
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
