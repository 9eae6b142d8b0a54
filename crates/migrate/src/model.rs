//! The part of Flash's configuration that other servers' configurations lead to. `toml` writes it.

use std::collections::BTreeMap;

/// A whole config file.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Config {
    pub(crate) listen: Vec<String>,
    pub(crate) listen_tls: Vec<String>,
    /// Other keys at the top, each with its value in TOML.
    pub(crate) settings: BTreeMap<&'static str, String>,
    pub(crate) types: BTreeMap<String, String>,
    /// The site of all hosts that no other site names.
    pub(crate) default: Option<Site>,
    pub(crate) sites: Vec<Site>,
}

/// A site.
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
    /// Refuses requests for scripts that have no route, and shows none of them for a directory: otherwise their sources would be sent.
    pub(crate) fn close_scripts(&mut self, paths: &[(String, Vec<String>)]) {
        for (path, except) in paths {
            let deny = EVERYBODY.map(str::to_owned).to_vec();
            let rule = Rule { except: except.clone(), deny, ..Rule::new(path.clone()) };
            if !self.rules.contains(&rule) {
                self.rules.push(rule);
            }
        }
        self.index.retain(|name| !name.to_ascii_lowercase().ends_with(".php"));
    }

    /// Whether all requests get a redirect, a refusal or the answer of a server, so that no file answers.
    fn needs_no_files(&self) -> bool {
        let is_all = |path: &str| path == "*" || path == "/*";
        let is_answer = |rule: &Rule| rule.redirect.is_some() || rule.deny == EVERYBODY;
        self.rules.iter().any(|rule| is_all(&rule.path) && rule.except.is_empty() && is_answer(rule))
            || self.routes.iter().any(|route| route.paths.1 == "/")
    }
}

impl Config {
    /// Gives each site the root that Flash asks for. One whose files are unknown is closed: it must not show those of another site. The
    /// result names the closed ones.
    pub(crate) fn give_roots(&mut self) -> Vec<String> {
        let any = self.default.iter().chain(&self.sites).find_map(|site| site.root.clone());
        let any = any.unwrap_or_else(|| "/srv".to_owned());
        let mut closed = Vec::new();
        for site in self.default.iter_mut().chain(&mut self.sites).filter(|site| site.root.is_none()) {
            if !site.needs_no_files() {
                let deny = EVERYBODY.map(str::to_owned).to_vec();
                site.rules.insert(0, Rule { deny, ..Rule::new("*") });
                closed.push(site.hosts.first().cloned().unwrap_or_else(|| "the default site".to_owned()));
            }
            site.root = Some(any.clone());
        }
        closed
    }
}

/// A rule for paths.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rule {
    pub(crate) path: String,
    pub(crate) except: Vec<String>,
    pub(crate) allow: Vec<String>,
    pub(crate) deny: Vec<String>,
    pub(crate) set: Fields,
    pub(crate) add: Fields,
    pub(crate) remove: Vec<String>,
    pub(crate) errors: bool,
    pub(crate) redirect: Option<(String, u16)>,
    pub(crate) rewrite: Option<String>,
    pub(crate) fallback: Option<String>,
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
