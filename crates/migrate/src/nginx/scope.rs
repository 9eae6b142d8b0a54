//! The directives of a block, with those that it inherits.

use std::collections::BTreeMap;

use super::auth_request;
use super::global::Global;
use super::meanings::{self, Meaning};
use super::redirects;
use super::units;
use crate::directive::Directive;
use crate::files::Files;
use crate::notes::{Notes, Position};
use crate::{toml, values};

/// Things that all blocks share.
pub(super) struct Context<'c> {
    pub(super) notes: &'c mut Notes,
    pub(super) files: &'c Files,
    pub(super) global: Global,
}

impl Context<'_> {
    /// Notes that a directive is not carried over.
    pub(super) fn lost(&mut self, directive: &Directive, why: &str) {
        self.notes.lost(directive, why);
    }
}

/// A field that `add_header` adds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Header {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) always: bool,
}

/// A page for errors: statuses, and the rest of the directive.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ErrorPage {
    pub(super) statuses: Vec<u16>,
    /// `=200` without its `=`, if it is there.
    pub(super) status: Option<String>,
    pub(super) uri: String,
    pub(super) position: Position,
}

/// `return`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Return {
    pub(super) status: u16,
    pub(super) text: String,
    pub(super) position: Position,
}

impl Return {
    /// The answer of a `return`: a status and a text, or an address alone.
    pub(super) fn of(directive: &Directive) -> Self {
        let (status, text) = match directive.first().parse() {
            Ok(status) => (status, directive.args.get(1).cloned().unwrap_or_default()),
            Err(_) => (302, directive.first().to_owned()),
        };
        Self { status, text, position: directive.position.clone() }
    }
}

/// A directive that passes requests on.
#[derive(Clone, Debug)]
pub(super) struct Pass {
    pub(super) protocol: &'static str,
    pub(super) to: String,
    pub(super) directive: Directive,
}

/// The directives that hold for a block.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    pub(super) root: Option<(String, Position)>,
    pub(super) index: Option<(Vec<String>, Position)>,
    pub(super) autoindex: Option<(bool, Position)>,
    pub(super) precompressed: Option<bool>,
    pub(super) compress: Option<(bool, Position)>,
    pub(super) headers: Vec<Header>,
    pub(super) hsts: Option<(String, Position)>,
    /// The value of Cache-Control; empty for none.
    pub(super) expires: String,
    pub(super) removed: Vec<String>,
    /// `allow` and `deny`, in their order.
    pub(super) access: Vec<(bool, String)>,
    pub(super) access_position: Option<Position>,
    /// A check of clients that Flash does not make: nobody may pass.
    pub(super) closed: bool,
    /// `auth_basic`, if it is on, and the file of the users.
    pub(super) asks: Option<Directive>,
    pub(super) users: Option<String>,
    /// `auth_request`, if it is on, the variables that hold fields of the answer, and the fields that requests get.
    pub(super) auth: Option<Directive>,
    pub(super) answered: BTreeMap<String, String>,
    pub(super) auth_fields: Vec<String>,
    /// `limit_req`, and `limit_conn`.
    pub(super) limits: Vec<Directive>,
    pub(super) bounds: Vec<Directive>,
    pub(super) error_pages: Vec<ErrorPage>,
    /// Keys of routes.
    pub(super) of_route: BTreeMap<&'static str, String>,
    /// Keys of routes over TLS.
    pub(super) of_tls: BTreeMap<&'static str, String>,
    pub(super) certificates: Vec<String>,
    pub(super) keys: Vec<String>,
    // These are not inherited.
    pub(super) alias: Option<(String, Position)>,
    pub(super) returns: Option<Return>,
    pub(super) pass: Option<Pass>,
    pub(super) try_files: Option<Directive>,
    /// `rewrite`, each with an expression and a target.
    pub(super) rewrites: Vec<Directive>,
    pub(super) internal: bool,
    pub(super) conditions: Vec<Directive>,
}

impl Scope {
    fn inherited(&self) -> Self {
        let (alias, returns, pass, try_files) = (None, None, None, None);
        let (rewrites, conditions, internal) = (Vec::new(), Vec::new(), false);
        Self { alias, returns, pass, try_files, rewrites, conditions, internal, ..self.clone() }
    }

    /// The directives of a block beneath this one.
    pub(super) fn within(&self, directives: &[Directive], context: &mut Context<'_>) -> Self {
        // A block that has any of these has none of those above it.
        let empty = Self { headers: Vec::new(), hsts: None, access: Vec::new(), ..self.inherited() };
        let empty = Self { certificates: Vec::new(), keys: Vec::new(), limits: Vec::new(), ..empty };
        let empty = Self { bounds: Vec::new(), ..empty };
        let mut scope = Self { error_pages: Vec::new(), ..empty };
        let sets = directives.iter().filter(|directive| directive.name == "auth_request_set");
        scope.answered.extend(sets.filter_map(auth_request::variable));
        for directive in directives {
            let is_taken = scope.take_file(directive, context)
                || scope.take_answer(directive, context)
                || scope.take_action(directive, context)
                || scope.take_route(directive, context)
                || context.global.take(directive, context.notes, context.files);
            if !is_taken {
                refuse(directive, &mut scope, context);
            }
        }
        if scope.headers.is_empty() && scope.hsts.is_none() {
            (scope.headers, scope.hsts) = (self.headers.clone(), self.hsts.clone());
        }
        if scope.certificates.is_empty() {
            (scope.certificates, scope.keys) = (self.certificates.clone(), self.keys.clone());
        }
        inherit(&mut scope.limits, &self.limits);
        inherit(&mut scope.bounds, &self.bounds);
        inherit(&mut scope.access, &self.access);
        inherit(&mut scope.error_pages, &self.error_pages);
        scope
    }

    fn take_file(&mut self, directive: &Directive, context: &mut Context<'_>) -> bool {
        let position = || directive.position.clone();
        let first = directive.first();
        match directive.name.as_str() {
            "root" | "alias" if first.contains('$') => context.lost(directive, "Flash has no variables"),
            "root" => self.root = Some((values::folder(&meanings::folder(first)), position())),
            "alias" => self.alias = Some((first.to_owned(), position())),
            "index" => self.index = Some((directive.args.clone(), position())),
            "autoindex" => self.autoindex = Some((first == "on", position())),
            "ssl_certificate" | "ssl_certificate_key" if first.contains('$') => {
                context.lost(directive, "Flash has no variables");
            }
            "ssl_certificate" => self.certificates.push(context.files.absolute(first)),
            "ssl_certificate_key" => self.keys.push(context.files.absolute(first)),
            "gzip" | "brotli" | "zstd" => self.compress = Some((first == "on", position())),
            "gzip_static" | "brotli_static" => self.precompressed = Some(first != "off"),
            "autoindex_format" if first == "xml" || first == "jsonp" => {
                context.lost(directive, "Flash lists directories in HTML and JSON");
            }
            "autoindex_format" => {}
            _ => return false,
        }
        true
    }

    fn take_answer(&mut self, directive: &Directive, context: &mut Context<'_>) -> bool {
        match directive.name.as_str() {
            "add_header" => self.add_header(directive, context),
            "expires" => match units::expires(&directive.args) {
                Some(value) => self.expires = value,
                None => context.lost(directive, "Flash has no such time for Cache-Control"),
            },
            "etag" if directive.first() == "off" => self.removed.push("ETag".to_owned()),
            "etag" => {}
            "error_page" => self.add_error_page(directive, context),
            "allow" | "deny" => {
                let network = match directive.first() {
                    "all" => Some("all".to_owned()),
                    text => values::network(text),
                };
                match network {
                    Some(network) => self.access.push((directive.name == "allow", network)),
                    None if directive.first() == "unix:" => {}
                    None => context.lost(directive, "is no network"),
                }
                self.access_position = Some(directive.position.clone());
            }
            _ => return false,
        }
        true
    }

    fn add_header(&mut self, directive: &Directive, context: &mut Context<'_>) {
        let [name, value, rest @ ..] = &directive.args[..] else {
            return context.lost(directive, "needs a name and a value");
        };
        if value.is_empty() {
            if name.eq_ignore_ascii_case("last-modified") || name.eq_ignore_ascii_case("etag") {
                self.removed.push(name.clone());
            }
            return;
        }
        if name.eq_ignore_ascii_case("strict-transport-security") {
            match values::hsts(value) {
                Some((text, is_lost)) => {
                    self.hsts = Some((text, directive.position.clone()));
                    if is_lost {
                        context.lost(
                            directive,
                            "in part: preload needs includeSubDomains, and other words are unknown",
                        );
                    }
                }
                None => context.lost(directive, "Flash's `hsts` does not take this value"),
            }
            return;
        }
        if name.eq_ignore_ascii_case("alt-svc") {
            return context.lost(directive, "Flash does not speak HTTP/3");
        }
        let variable = value.contains('$').then(|| "Flash has no variables".to_owned());
        match variable.or_else(|| values::field_problem(name, Some(value))) {
            Some(why) => context.lost(directive, &why),
            None => {
                let always = rest.iter().any(|word| word == "always");
                self.headers.push(Header { name: name.clone(), value: value.clone(), always });
            }
        }
    }

    fn add_error_page(&mut self, directive: &Directive, context: &mut Context<'_>) {
        let mut page = ErrorPage {
            statuses: Vec::new(),
            status: None,
            uri: directive.args.last().cloned().unwrap_or_default(),
            position: directive.position.clone(),
        };
        for word in directive.args.iter().rev().skip(1).rev() {
            match (word.strip_prefix('='), word.parse()) {
                (Some(status), _) => page.status = Some(status.to_owned()),
                (None, Ok(status)) if (400..600).contains(&status) => page.statuses.push(status),
                _ => return context.lost(directive, "Flash has pages for the statuses from 400 to 599"),
            }
        }
        if page.statuses.contains(&497) {
            return context.lost(directive, "Flash answers plain HTTP on a port for HTTPS with 400");
        }
        self.error_pages.push(page);
    }

    fn take_action(&mut self, directive: &Directive, context: &mut Context<'_>) -> bool {
        let first = directive.first();
        match directive.name.as_str() {
            "return" => {
                self.returns.get_or_insert_with(|| Return::of(directive));
            }
            "rewrite" if directive.args.len() < 2 => {
                context.lost(directive, "needs an expression and a target");
            }
            "rewrite" => self.rewrites.push(directive.clone()),
            "try_files" => self.try_files = Some(directive.clone()),
            "internal" => self.internal = true,
            "auth_basic" => self.asks = Some(directive.clone()).filter(|_| first != "off"),
            "auth_basic_user_file" => self.users = Some(context.files.absolute(first)),
            "auth_request" => self.auth = Some(directive.clone()).filter(|_| first != "off"),
            "limit_req" => self.limits.push(directive.clone()),
            "limit_conn" => self.bounds.push(directive.clone()),
            "if" => match if_missing(directive) {
                Some(try_files) => self.try_files = Some(try_files),
                None => self.conditions.push(directive.clone()),
            },
            "proxy_pass" | "fastcgi_pass" => {
                let protocol = if directive.name == "proxy_pass" { "proxy" } else { "fastcgi" };
                self.pass = Some(Pass { protocol, to: first.to_owned(), directive: directive.clone() });
            }
            _ => return false,
        }
        true
    }

    fn take_route(&mut self, directive: &Directive, context: &mut Context<'_>) -> bool {
        let first = directive.first();
        let is_on = first == "on";
        let seconds = || units::seconds(first).map(|seconds| values::duration(seconds.clamp(1, 3_600)));
        match directive.name.as_str() {
            "client_max_body_size" => match units::bytes(first) {
                Some(bytes) => {
                    let bytes = if bytes == 0 { 1 << 40 } else { bytes.min(1 << 40) };
                    self.of_route.insert("body_max", toml::text(&units::size(bytes)));
                }
                None => context.lost(directive, "is no size"),
            },
            "proxy_buffering" if !is_on => drop(self.of_route.insert("stream_answers", "true".to_owned())),
            "proxy_request_buffering" if !is_on => {
                self.of_route.insert("stream_bodies", "true".to_owned());
            }
            "proxy_buffering" | "proxy_request_buffering" => {}
            "proxy_read_timeout" | "fastcgi_read_timeout" => {
                let limit = units::seconds(first).map(|seconds| values::duration(seconds.clamp(1, 86_400)));
                self.of_route.extend(limit.map(|it| ("answer_timeout", it)));
            }
            "proxy_connect_timeout" | "fastcgi_connect_timeout" => {
                self.of_route.extend(seconds().map(|it| ("connect_timeout", it)));
            }
            "proxy_hide_header" | "fastcgi_hide_header" => match values::field_problem(first, None) {
                Some(why) => context.lost(directive, &why),
                None => self.removed.push(first.to_owned()),
            },
            "proxy_ssl_verify" => drop(self.of_tls.insert("verify", is_on.to_string())),
            "proxy_ssl_name" if !first.contains('$') => {
                self.of_tls.insert("server_name", toml::text(first));
            }
            "proxy_ssl_trusted_certificate" => {
                self.of_tls.insert("roots", toml::text(&context.files.absolute(first)));
            }
            "proxy_set_header" | "fastcgi_param"
                if directive.args.get(1).is_some_and(|value| self.answered.contains_key(value)) =>
            {
                self.give(directive, context);
            }
            "proxy_set_header" if !meanings::is_sent(first, &directive.args) => {
                context.lost(directive, "Flash passes the client's fields on, and adds X-Forwarded-For, -Proto, -Host and Forwarded");
            }
            "proxy_redirect" if !["off", "default"].contains(&first) => {
                context.lost(directive, "Flash passes Location on as it is");
            }
            "fastcgi_param" if !meanings::is_param(first) => {
                context.lost(directive, "Flash passes the usual parameters only");
            }
            "proxy_set_header" | "proxy_redirect" | "fastcgi_param" => {}
            _ => return false,
        }
        true
    }
}

impl Scope {
    /// Takes a field that requests get from the answer of the server that decides about them.
    fn give(&mut self, directive: &Directive, context: &mut Context<'_>) {
        let (name, field) = (directive.first(), &self.answered[&directive.args[1]]);
        if auth_request::is_named(name, field) {
            let name = if directive.name == "proxy_set_header" { name } else { field };
            if !self.auth_fields.iter().any(|other| other.eq_ignore_ascii_case(name)) {
                self.auth_fields.push(name.to_owned());
            }
        } else {
            // Without it, a client could send the field itself.
            self.closed = true;
            let why = "Flash gives fields under their own names, and none that it writes itself, so everybody gets 403 here";
            context.lost(directive, why);
        }
    }
}

/// Gives a block the directives of the outer one where it has none of its own.
fn inherit<T: Clone>(own: &mut Vec<T>, outer: &[T]) {
    if own.is_empty() {
        own.extend_from_slice(outer);
    }
}

/// The `try_files` that says the same as a test for missing files and a `rewrite`.
fn if_missing(directive: &Directive) -> Option<Directive> {
    let test: String = directive.args.concat().chars().filter(|c| !"()".contains(*c)).collect();
    let tests = ["!-e$request_filename", "!-f$request_filename", "!-e$document_root$uri"];
    let [inner] = directive.inner() else { return None };
    let is_all = inner.args.first().is_some_and(|it| redirects::ALL.contains(&it.as_str()));
    let target = inner.args.get(1).filter(|it| it.starts_with('/'))?;
    let words = ["try_files", "$uri", "$uri/", target].map(str::to_owned).to_vec();
    let is_it = tests.contains(&test.as_str()) && inner.name == "rewrite" && is_all;
    is_it.then(|| Directive::new(words, None, &directive.position))
}

/// A directive that no part of the configuration has: dropped silently, or noted with the reason.
fn refuse(directive: &Directive, scope: &mut Scope, context: &mut Context<'_>) {
    match meanings::meaning(&directive.name, directive.first()) {
        Meaning::Nothing => {}
        Meaning::Lost(why) => context.lost(directive, why),
        Meaning::Closed(why) => {
            scope.closed = true;
            context.lost(directive, &format!("{why}, so everybody gets 403 here"));
        }
        Meaning::Opened => scope.closed = false,
    }
}
