//! The directives of a site of Caddy.
//!
//! Caddy sorts them: fields, redirects, rewrites, routes, files, which is Flash's order too. Of `handle` blocks only the first that fits
//! applies, so the rules of the others except its paths.

use std::collections::BTreeMap;

use crate::directive::Directive;
use crate::files::Files;
use crate::model::{Config, Rule, Site};
use crate::notes::Notes;
use crate::pattern::{self, Paths, is_all, whole, within};
use crate::{toml, values};

/// Directives that Flash needs not.
const NOTHING: &[&str] = &["log_skip", "skip_log", "log_append", "push", "vars"];
/// Directives that check clients.
const CHECKS: &[&str] = &["basic_auth", "basicauth", "forward_auth"];

pub(super) struct Builder<'b> {
    pub(super) site: Site,
    bind: Option<String>,
    matchers: BTreeMap<String, Option<Paths>>,
    /// Whether a note tells that case counts in paths.
    has_told_case: bool,
    notes: &'b mut Notes,
    files: &'b Files,
    pub(super) config: &'b mut Config,
}

/// The site that these directives describe, and where it listens if that is not everywhere.
pub(super) fn build(
    lines: &[Directive],
    files: &Files,
    notes: &mut Notes,
    config: &mut Config,
) -> (Site, Option<String>) {
    let mut builder = Builder {
        site: Site::default(),
        bind: None,
        matchers: BTreeMap::new(),
        has_told_case: false,
        notes,
        files,
        config,
    };
    builder.block(lines, &whole("*"));
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
    (builder.site, builder.bind)
}

impl Builder<'_> {
    pub(super) fn lose(&mut self, line: &Directive, why: &str) {
        self.notes.lost(line, why);
    }

    fn block(&mut self, lines: &[Directive], outer: &Paths) {
        for line in lines.iter().filter(|line| line.name.starts_with('@')) {
            let paths = self.matcher(line);
            self.matchers.insert(line.name.clone(), paths);
        }
        let mut handled: Vec<String> = Vec::new();
        let is_handle = |line: &&Directive| ["handle", "handle_path"].contains(&line.name.as_str());
        // Those with a path come before the one without, and longer paths before shorter ones.
        let path_len = |line: &&Directive| std::cmp::Reverse(line.args.first().map_or(0, String::len));
        let (mut with, without): (Vec<&Directive>, Vec<&Directive>) =
            lines.iter().filter(is_handle).partition(|line| !line.args.is_empty());
        with.sort_by_key(path_len);
        let others = lines.iter().filter(|line| !is_handle(line) && !line.name.starts_with('@'));
        let mut others: Vec<&Directive> = others.collect();
        others.sort_by_key(|line| {
            let is_sorted = ["redir", "rewrite", "respond"].contains(&line.name.as_str());
            let has_path = is_sorted && line.args.len() > 1 && line.args[0].starts_with('/');
            if has_path { path_len(line) } else { std::cmp::Reverse(0) }
        });
        for line in others.into_iter().chain(with).chain(without) {
            let Some((mut paths, args)) = self.matched(line, outer) else {
                if CHECKS.contains(&line.name.as_str()) {
                    self.close_for_want(line, outer, "it is not carried over");
                }
                continue;
            };
            let is_of_paths = paths.iter().any(|(path, _)| path != "*");
            if is_of_paths
                && CHECKS.contains(&line.name.as_str())
                && !std::mem::replace(&mut self.has_told_case, true)
            {
                self.lose(line, "Caddy means paths in any case of their letters, Flash here and below as they are written");
            }
            if is_handle(&line) {
                for (path, except) in &mut paths {
                    except.extend(handled.iter().filter(|other| pattern::overlap(other, path)).cloned());
                }
                handled.extend(paths.iter().map(|(path, _)| path.clone()));
                if line.name == "handle_path" {
                    self.folder(line, &paths);
                } else {
                    self.block(line.inner(), &paths);
                }
                continue;
            }
            self.directive(line, &args, &paths);
        }
    }

    /// The paths of a directive and its other arguments. None, and a note, if it has a matcher that no form says.
    fn matched(&mut self, line: &Directive, outer: &Paths) -> Option<(Paths, Vec<String>)> {
        let args = &line.args;
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
                        .contains(&line.name.as_str())
                    && args.len() + line.inner().len() > 1
                    || args.first().is_some_and(|it| it.starts_with('/'))
                        && ["handle", "handle_path", "file_server", "basic_auth", "basicauth"]
                            .contains(&line.name.as_str()) =>
            {
                let path = args[0].clone();
                if pattern::is_form(&path) {
                    Some((within(&whole(path), outer), rest()))
                } else {
                    self.lose(line, "Flash has no such form of paths");
                    None
                }
            }
            _ => Some((outer.clone(), args.to_vec())),
        }
    }

    /// The paths of a named matcher; None if it asks for something else.
    fn matcher(&mut self, line: &Directive) -> Option<Paths> {
        let one = Directive::new(line.args.clone(), None, &line.position);
        let conditions = if line.block.is_some() { line.inner().to_vec() } else { vec![one] };
        let (mut paths, mut except) = (Vec::new(), Vec::new());
        for condition in &conditions {
            match (condition.name.as_str(), &condition.args[..]) {
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

    fn directive(&mut self, line: &Directive, args: &[String], paths: &Paths) {
        match line.name.as_str() {
            "root" => self.root(line, args, paths),
            "file_server" => self.file_server(line, args),
            "try_files" => self.try_files(line, args, paths),
            "redir" => self.redirect(line, args, paths),
            "rewrite" => self.rewrite(line, args, paths),
            "header" => self.header(line, args, paths),
            "respond" | "error" | "abort" => self.refuse(line, args, paths),
            "basic_auth" | "basicauth" => self.basic_auth(line, args, paths),
            "forward_auth" => self.forward_auth(line, args, paths),
            "reverse_proxy" => self.proxy(line, args, paths),
            "php_fastcgi" => self.php(line, args, paths),
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

    /// The files of a block whose paths lose their prefix.
    fn folder(&mut self, line: &Directive, paths: &Paths) {
        let (roots, others): (Vec<&Directive>, Vec<&Directive>) =
            line.inner().iter().partition(|inner| inner.name == "root");
        let is_folder = !others.is_empty()
            && others.iter().all(|inner| ["file_server", "encode", "header"].contains(&inner.name.as_str()));
        let folder =
            roots.first().and_then(|root| root.args.last()).filter(|_| is_folder && roots.len() == 1);
        match folder.map(|folder| self.files.absolute(folder)) {
            Some(folder) if paths.iter().all(|(path, _)| pattern::is_of_folder(path)) => {
                self.aliases(paths, |_| values::folder(&folder));
            }
            _ => self.lose(line, "Flash keeps the whole path"),
        }
        let others: Vec<Directive> = others.into_iter().cloned().collect();
        self.block(&others, paths);
    }

    fn root(&mut self, line: &Directive, args: &[String], outer: &Paths) {
        let Some(folder) = args.last().map(|root| values::folder(&self.files.absolute(root))) else { return };
        let paths = match args {
            [path, _] if path.starts_with('/') => within(&whole(path), outer),
            _ => outer.clone(),
        };
        let is_all = paths.iter().all(|(path, _)| path == "*");
        if is_all && self.site.root.is_none() {
            self.site.root = Some(folder);
        } else if paths.iter().all(|(path, _)| pattern::is_of_folder(path)) {
            self.aliases(&paths, |prefix| format!("{}{prefix}", folder.trim_end_matches('/')));
        } else {
            self.lose(line, "Flash has one root for a site, and aliases for folders");
        }
    }

    /// Adds rules for paths whose files are apart.
    fn aliases(&mut self, paths: &Paths, folder_of: impl Fn(&str) -> String) {
        for (path, except) in paths {
            let alias = Some(folder_of(path.trim_end_matches("/*")));
            self.site.rules.push(Rule { alias, ..Rule::default() }.at(path, except));
        }
    }

    fn file_server(&mut self, line: &Directive, args: &[String]) {
        self.site.browse |= args.iter().any(|arg| arg == "browse");
        for inner in line.inner() {
            match inner.name.as_str() {
                "browse" => self.site.browse = true,
                "index" => {
                    self.site.index = inner.args.iter().filter(|name| !name.contains('/')).cloned().collect();
                }
                "root" => {
                    self.site.root =
                        inner.args.first().map(|root| values::folder(&self.files.absolute(root)));
                }
                "precompressed" | "pass_thru" | "disable_canonical_uris" => {}
                "hide" => {
                    self.lose(inner, "Flash hides the files whose names begin with a dot, and no others");
                }
                _ => self.lose(inner, "Flash has nothing like it"),
            }
        }
    }

    fn try_files(&mut self, line: &Directive, args: &[String], paths: &Paths) {
        let plain =
            |arg: &&String| ["{path}", "{path}/", "{path}/index.html", "{uri}"].contains(&arg.as_str());
        let extension = |arg: &String| values::tried_extension(arg, "{path}.");
        let tried: Vec<String> = args.iter().filter_map(extension).collect();
        let others: Vec<_> = args.iter().filter(|arg| !plain(arg) && extension(arg).is_none()).collect();
        let fallback = match &others[..] {
            [] => None,
            [last] if args.last() == Some(*last) && *last == "=404" => None,
            [last] if args.last() == Some(*last) && values::is_file(last) => Some((*last).clone()),
            [last] if args.last() == Some(*last) => {
                return self.lose(line, "is not the path of a file that Flash can serve");
            }
            _ => return self.lose(line, "Flash looks for the file of the path, and then for one other"),
        };
        if !tried.is_empty() && fallback.as_ref().is_some_and(|file| file.ends_with(".php")) {
            return self.lose(line, "Flash looks for no other names before a script answers");
        }
        if tried.is_empty() && fallback.is_none() {
            return;
        }
        self.site.add(paths, &Rule { try_extensions: tried, fallback, ..Rule::default() });
    }

    fn redirect(&mut self, line: &Directive, args: &[String], paths: &Paths) {
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
                    self.site.rules.push(Rule { redirect, ..Rule::default() }.at(&path, except));
                }
                Err(why) => self.lose(line, &why),
            }
        }
    }

    fn rewrite(&mut self, line: &Directive, args: &[String], paths: &Paths) {
        let Some(target) = args.first() else { return };
        for (path, except) in paths {
            match written(target, path) {
                Ok((_, target)) if !target.starts_with('/') || target.contains(['?', '#']) => {
                    self.lose(line, "Flash rewrites the path alone");
                }
                Ok((path, target)) => {
                    let rewrite = Some(target);
                    self.site.rules.push(Rule { rewrite, ..Rule::default() }.at(&path, except));
                }
                Err(why) => self.lose(line, &why),
            }
        }
    }

    fn header(&mut self, line: &Directive, args: &[String], paths: &Paths) {
        let own = (!args.is_empty()).then(|| args.to_vec());
        let inner = line.inner().iter().filter(|inner| inner.name != "defer").map(Directive::words);
        let mut rule = Rule::default();
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
            match values::field_problem(plain, (!is_removed).then_some(value)) {
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
        if rule != Rule::default() {
            self.site.add(paths, &rule);
        }
    }

    /// Closes paths whose clients Flash cannot check.
    pub(super) fn close_for_want(&mut self, line: &Directive, paths: &Paths, why: &str) {
        self.site.close(paths);
        self.lose(line, &format!("{why}, so everybody gets 403 here"));
    }

    fn refuse(&mut self, line: &Directive, args: &[String], paths: &Paths) {
        let status = args.iter().find_map(|arg| arg.parse::<u16>().ok());
        match status {
            _ if line.name == "abort" => {
                self.site.close(paths);
                self.lose(line, "with 403");
            }
            Some(403) => self.site.close(paths),
            Some(404 | 410 | 401) => {
                self.site.close(paths);
                self.lose(line, "with 403");
            }
            _ => self.lose(line, "Flash answers with files, redirects and errors"),
        }
    }

    fn tls(&mut self, line: &Directive, args: &[String]) {
        match args {
            [certificate, key] if !certificate.contains('{') => {
                self.site.certificates.push(self.files.absolute(certificate));
                self.site.keys.push(self.files.absolute(key));
            }
            [] => {}
            _ => self.lose(line, "Flash takes files of certificates and keys (docs/tls.md)"),
        }
        for inner in line.inner() {
            match inner.name.as_str() {
                "protocols" | "ciphers" | "curves" | "alpn" => {}
                "client_auth" => {
                    self.close_for_want(inner, &whole("*"), "Flash checks no certificates of clients");
                }
                _ => self.lose(inner, "Flash takes files of certificates and keys (docs/tls.md)"),
            }
        }
    }

    fn log(&mut self, line: &Directive) {
        let mut file = "-".to_owned();
        let mut format = "json";
        for inner in line.inner() {
            match (inner.name.as_str(), &inner.args[..]) {
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
        if self.config.settings.get("log_file").is_some_and(|earlier| *earlier != file) {
            self.lose(line, "Flash has one log of all requests, which an earlier line sets");
        } else {
            self.config.settings.insert("log_file", file);
            self.config.settings.insert("log_format", toml::text(format));
        }
    }
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
