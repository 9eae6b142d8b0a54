//! The part of Flash's configuration that other servers' configurations lead to. `toml` writes it.

use std::collections::BTreeMap;

use crate::notes::{Notes, Position};
use crate::pattern::{self, Paths, whole};

/// A whole config file.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Config {
    pub(crate) listen: Vec<String>,
    pub(crate) listen_tls: Vec<String>,
    /// Other keys at the top, each with its value in TOML.
    pub(crate) settings: BTreeMap<&'static str, String>,
    pub(crate) types: BTreeMap<String, String>,
    /// Files of users that the operator has to write: paths, each with its lines.
    pub(crate) user_files: Vec<(String, Vec<String>)>,
    /// The site of all hosts that no other site names.
    pub(crate) default: Option<Site>,
    pub(crate) sites: Vec<Site>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Site {
    /// The hosts that it answers. The default site answers all others, and its hosts are only a remark.
    pub(crate) hosts: Vec<String>,
    pub(crate) root: Option<String>,
    pub(crate) index: Vec<String>,
    pub(crate) browse: bool,
    pub(crate) precompressed: Option<bool>,
    pub(crate) compress: bool,
    pub(crate) certificates: Vec<String>,
    pub(crate) keys: Vec<String>,
    pub(crate) ocsp: Vec<String>,
    pub(crate) hsts: Option<String>,
    pub(crate) https_redirect: Option<u16>,
    pub(crate) routes: Vec<Route>,
    pub(crate) rules: Vec<Rule>,
}

impl Site {
    /// Adds a rule for each of these paths.
    pub(crate) fn add(&mut self, paths: &Paths, rule: &Rule) {
        self.rules.extend(paths.iter().map(|(path, except)| rule.at(path, except)));
    }

    /// Refuses all requests for these paths.
    pub(crate) fn close(&mut self, paths: &Paths) {
        self.add(paths, &Rule::closed());
    }

    /// Adds a server that decides about requests, and keeps its paths from clients. Returns whether it is a new one.
    ///
    /// # Errors
    /// Why it cannot be added.
    pub(crate) fn add_authorizer(&mut self, route: Route) -> Result<bool, &'static str> {
        match self.routes.iter().find(|other| other.paths == route.paths) {
            Some(other) if *other == route => return Ok(false),
            Some(_) => return Err("another server has this path"),
            None => {}
        }
        self.close(&whole(format!("{}*", route.paths.1)));
        self.routes.push(route);
        Ok(true)
    }

    /// Refuses requests for scripts that have no route, and shows none of them for a directory: otherwise their sources would be sent.
    pub(crate) fn close_scripts(&mut self, paths: &Paths) {
        for (path, except) in paths {
            let rule = Rule::closed().at(path, except);
            if !self.rules.contains(&rule) {
                self.rules.push(rule);
            }
        }
        self.index.retain(|name| !name.to_ascii_lowercase().ends_with(".php"));
    }

    /// Takes fallbacks and rewrites to scripts away that no route runs: their sources would be sent. Returns the scripts.
    fn drop_sources(&mut self) -> Vec<String> {
        let routes: Vec<_> = self.routes.iter().map(|route| route.paths.clone()).collect();
        let runs = |file: &str| {
            let has = |(kind, text): &(&str, String)| match *kind {
                "prefix" => file.starts_with(text.as_str()),
                _ => text == "php",
            };
            routes.iter().any(has)
        };
        let is_source = |file: &String| {
            let path = file.split('?').next().unwrap_or_default();
            path.to_ascii_lowercase().ends_with(".php") && !runs(path)
        };
        let mut dropped = Vec::new();
        for rule in &mut self.rules {
            dropped.extend(rule.fallback.take_if(|file| is_source(file)));
            dropped.extend(rule.rewrite.take_if(|file| is_source(file)));
        }
        self.rules.retain(|rule| *rule != Rule::default().at(&rule.path, &rule.except));
        dropped
    }

    /// Whether all requests get a redirect, a refusal or the answer of a server, so that no file answers.
    fn needs_no_files(&self) -> bool {
        let is_all = |path: &str| path == "*" || path == "/*";
        let is_answer = |rule: &Rule| rule.redirect.is_some() || rule.deny == EVERYBODY;
        self.rules.iter().any(|rule| is_all(&rule.path) && rule.except.is_empty() && is_answer(rule))
            || self
                .routes
                .iter()
                .any(|route| route.paths.1 == "/" && !route.settings.contains_key("files_first"))
    }
}

impl Config {
    fn all_sites(&mut self) -> impl Iterator<Item = &mut Site> {
        self.default.iter_mut().chain(&mut self.sites)
    }

    /// Gives each site what Flash asks for: a root, and HSTS over HTTPS alone. A site whose files are unknown is closed: it must
    /// not show those of another one. `root` is the directive that it lacks, `whole` the position of the notes.
    pub(crate) fn complete(&mut self, root: &str, whole: &Position, notes: &mut Notes) {
        let any = self.all_sites().find_map(|site| site.root.clone()).unwrap_or_else(|| "/srv".to_owned());
        let has_https = !self.listen_tls.is_empty();
        for site in self.all_sites() {
            if site.root.is_none() && !site.needs_no_files() {
                site.rules.insert(0, Rule { path: "*".to_owned(), ..Rule::closed() });
                let host = site.hosts.first().map_or("the default site", String::as_str);
                notes.add(whole, format!("{host}: has no {root}, so everybody gets 403 there"));
            }
            site.root.get_or_insert_with(|| any.clone());
        }
        if !has_https && self.all_sites().filter_map(|site| site.hsts.take()).count() > 0 {
            notes.add(whole, "Strict-Transport-Security: Flash sends it over HTTPS alone, and there is none");
        }
    }

    /// Compresses the answers of routes too where texts are compressed, as other servers do.
    pub(crate) fn compress_answers(&mut self) {
        for site in self.all_sites().filter(|site| site.compress) {
            let streams = |route: &&mut Route| route.settings.contains_key("stream_answers");
            for route in site.routes.iter_mut().filter(|route| !streams(route)) {
                route.settings.insert("compress", "true".to_owned());
            }
        }
    }

    /// Takes fallbacks and rewrites to scripts away that no route runs. Returns the scripts.
    pub(crate) fn drop_sources(&mut self) -> Vec<String> {
        self.all_sites().flat_map(Site::drop_sources).collect()
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rule {
    pub(crate) path: String,
    pub(crate) except: Vec<String>,
    pub(crate) allow: Vec<String>,
    pub(crate) deny: Vec<String>,
    pub(crate) users: Option<String>,
    /// The path of the server that must agree, and the fields that it gives.
    pub(crate) auth: Option<String>,
    pub(crate) auth_fields: Vec<String>,
    /// The rate of a client, and how many requests it may send at once.
    pub(crate) rate: Option<(String, u64)>,
    pub(crate) total_rate: Option<String>,
    pub(crate) concurrency: Option<u64>,
    pub(crate) total_concurrency: Option<u64>,
    pub(crate) set: Fields,
    pub(crate) add: Fields,
    pub(crate) remove: Vec<String>,
    pub(crate) errors: bool,
    pub(crate) redirect: Option<(String, u16)>,
    pub(crate) rewrite: Option<String>,
    pub(crate) try_extensions: Vec<String>,
    pub(crate) fallback: Option<String>,
    pub(crate) alias: Option<String>,
    pub(crate) error_page: Option<String>,
    pub(crate) statuses: Vec<u16>,
}

/// Fields of heads: names, each with its values.
pub(crate) type Fields = Vec<(String, Vec<String>)>;

impl Rule {
    /// A rule without effect for paths of this form.
    pub(crate) fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), ..Self::default() }
    }

    /// A rule that admits nobody.
    pub(crate) fn closed() -> Self {
        Self { deny: EVERYBODY.map(str::to_owned).to_vec(), ..Self::default() }
    }

    /// The same rule for other paths.
    pub(crate) fn at(&self, path: &str, except: &[String]) -> Self {
        Self { path: path.to_owned(), except: except.to_vec(), ..self.clone() }
    }

    /// Whether a path can be one of both.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let is_apart = self.except.contains(&other.path) || other.except.contains(&self.path);
        !is_apart && pattern::overlap(&self.path, &other.path)
    }
}

/// All clients.
pub(crate) const EVERYBODY: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// The requests that other servers answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Route {
    /// `prefix` or `extension`, and its value.
    pub(crate) paths: (&'static str, String),
    /// `proxy` or `fastcgi`.
    pub(crate) protocol: &'static str,
    pub(crate) servers: Vec<String>,
    /// None if all are equal.
    pub(crate) weights: Vec<u64>,
    /// Other keys, each with its value in TOML.
    pub(crate) settings: BTreeMap<&'static str, String>,
}
