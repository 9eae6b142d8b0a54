//! The `server` blocks: where they listen, their names, and the answers that are for all of their requests.

use super::location::{Location, Locations};
use super::redirects;
use super::scope::{Context, Return, Scope};
use crate::directive::Directive;
use crate::notes::Position;
use crate::values;

/// An address of `listen`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listen {
    /// As Flash has it.
    pub(super) address: String,
    pub(super) is_tls: bool,
    pub(super) is_default: bool,
}

/// When an answer is for all requests.
#[derive(Clone, Debug, PartialEq)]
enum When {
    Host(bool, String),
    Http,
}

/// A `server` block.
#[derive(Debug)]
pub(super) struct ServerBlock {
    pub(super) position: Position,
    pub(super) listens: Vec<Listen>,
    pub(super) names: Vec<String>,
    pub(super) scope: Scope,
    pub(super) locations: Locations,
    pub(super) certificates: Vec<String>,
    pub(super) keys: Vec<String>,
    pub(super) ocsp: Vec<String>,
    rejects_handshakes: bool,
    conditional: Vec<(When, Return)>,
}

impl ServerBlock {
    pub(super) fn new(directive: &Directive, outer: &Scope, context: &mut Context<'_>) -> Self {
        let mut scope = outer.within(directive.inner(), context);
        let (mut conditional, conditions) = (Vec::new(), std::mem::take(&mut scope.conditions));
        for condition in &conditions {
            match self::condition(condition) {
                Some(it) => conditional.push(it),
                None => context.lost(condition, "Flash has no conditions"),
            }
        }
        // It comes first if no return is before it; those after it are never reached.
        if scope.returns.is_none()
            && let Some(returns) = scope.rewrites.first().and_then(redirects::of_rewrite)
        {
            (scope.returns, scope.rewrites) = (Some(returns), Vec::new());
        }
        let mut locations = Locations::default();
        locations.add(&scope, directive.inner(), "", context);
        if !locations.all.iter().any(|location| {
            location.text == "/" && location.shapes.len() == 1 && location.shapes[0].path == "/*"
        }) {
            let (returns, rewrites) = (None, Vec::new());
            let rest = Scope { returns, rewrites, ..scope.clone() };
            locations.all.push(Location::rest(rest, &directive.position));
        }
        let mut server = Self {
            position: directive.position.clone(),
            listens: Vec::new(),
            names: Vec::new(),
            certificates: scope.certificates.clone(),
            keys: scope.keys.clone(),
            scope,
            locations: locations.sorted(),
            ocsp: Vec::new(),
            rejects_handshakes: false,
            conditional,
        };
        server.read(directive, context);
        server
    }

    fn read(&mut self, directive: &Directive, context: &mut Context<'_>) {
        let is_ssl = directive.inner().iter().any(|inner| inner.name == "ssl" && inner.first() == "on");
        let mut has_listen = false;
        for inner in directive.inner() {
            let path = || context.files.absolute(inner.first());
            match inner.name.as_str() {
                "listen" => {
                    has_listen = true;
                    self.listens.extend(listen(inner, is_ssl, context));
                }
                "server_name" => inner.args.iter().for_each(|name| self.add_name(name, inner, context)),
                "ssl_stapling_file" => self.ocsp.push(path()),
                "ssl_reject_handshake" => self.rejects_handshakes = inner.first() == "on",
                _ => {}
            }
        }
        if !has_listen {
            self.listens.push(Listen { address: "0.0.0.0:80".to_owned(), is_tls: is_ssl, is_default: false });
        }
        if self.certificates.len() != self.keys.len() {
            context.notes.add(&self.position, "`server`: has not as many keys as certificates".to_owned());
        }
    }

    fn add_name(&mut self, name: &str, directive: &Directive, context: &mut Context<'_>) {
        if name == "_" || name.is_empty() || name == "--" {
            return;
        }
        let names = match name.strip_prefix('.') {
            Some(rest) => vec![rest.to_owned(), format!("*.{rest}")],
            None => vec![name.to_owned()],
        };
        for name in names {
            match values::host(&name).filter(|_| !name.starts_with('~')) {
                Some(host) if !self.names.contains(&host) => self.names.push(host),
                Some(_) => {}
                None => {
                    context.lost(directive, &format!("{name}: Flash has names, and `*.` in front of them"));
                }
            }
        }
    }

    /// The answer to all requests for a host, if there is one. `is_tls` says whether they come over HTTPS.
    pub(super) fn returns(&self, host: Option<&str>, is_tls: bool) -> Option<&Return> {
        let fits = |when: &When| match when {
            When::Host(is_equal, name) => {
                *is_equal == host.is_some_and(|host| host.eq_ignore_ascii_case(name))
            }
            When::Http => !is_tls,
        };
        let conditional = self.conditional.iter().find(|(when, _)| fits(when)).map(|(_, returns)| returns);
        conditional.or(self.scope.returns.as_ref())
    }

    /// Whether requests for hosts that no server names get no answer.
    pub(super) fn rejects(&self) -> bool {
        let refuses = |returns: Option<&Return>| returns.is_some_and(|it| super::site::is_refusal(it.status));
        let only = if let [only] = &self.locations.all[..] { Some(only) } else { None };
        let by_access = |scope: &Scope| scope.access == [(false, "all".to_owned())];
        self.rejects_handshakes
            || refuses(self.scope.returns.as_ref())
            || only.is_some_and(|location| {
                refuses(location.scope.returns.as_ref()) || by_access(&location.scope)
            })
    }
}

/// The condition of an `if` and its answer, if they are for all requests.
fn condition(directive: &Directive) -> Option<(When, Return)> {
    let [inner] = directive.inner() else { return None };
    let text = directive.args.join(" ");
    let words: Vec<&str> = text.trim().strip_prefix('(')?.strip_suffix(')')?.split_whitespace().collect();
    let [variable, operator, value] = words[..] else { return None };
    let is_equal = match operator {
        "=" => true,
        "!=" => false,
        _ => return None,
    };
    let value = value.trim_matches(['"', '\'']);
    let when = match (variable, value) {
        ("$host" | "$http_host", name) if values::host(name).is_some() => {
            When::Host(is_equal, name.to_ascii_lowercase())
        }
        ("$scheme", "http") | ("$server_port", "80") | ("$https" | "$ssl_protocol", "") if is_equal => {
            When::Http
        }
        ("$scheme", "https") | ("$https", "on") | ("$server_port", "443") if !is_equal => When::Http,
        _ => return None,
    };
    let returns = match inner.name.as_str() {
        "return" => Return::of(inner),
        "rewrite" => redirects::of_rewrite(inner)?,
        _ => return None,
    };
    Some((when, returns))
}

/// The addresses of a `listen`.
fn listen(directive: &Directive, is_ssl: bool, context: &mut Context<'_>) -> Vec<Listen> {
    let first = directive.first();
    let has = |word: &str| directive.args.iter().any(|arg| arg == word);
    if first.starts_with("unix:") {
        context.lost(directive, "Flash listens on addresses with ports");
        return Vec::new();
    }
    if has("quic") || has("http3") {
        context.lost(directive, "Flash does not speak HTTP/3");
        return Vec::new();
    }
    if has("proxy_protocol") {
        context.global.introduced.get_or_insert_with(|| directive.position.clone());
    }
    let text = match first.strip_prefix("*:").map(str::to_owned) {
        Some(port) => format!("0.0.0.0:{port}"),
        None if first.bytes().all(|byte| byte.is_ascii_digit()) => format!("0.0.0.0:{first}"),
        None => first.to_owned(),
    };
    let Some(address) = values::server(&text, 80) else {
        context.lost(directive, "Flash listens on addresses with ports");
        return Vec::new();
    };
    let is_default = has("default_server") || has("default");
    let one = |address: String| Listen { address, is_tls: has("ssl") || is_ssl, is_default };
    let both = has("ipv6only=off")
        .then(|| address.strip_prefix("[::]:").map(|port| format!("0.0.0.0:{port}")))
        .flatten();
    std::iter::once(one(address)).chain(both.map(one)).collect()
}
