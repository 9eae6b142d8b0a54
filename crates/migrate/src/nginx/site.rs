//! Turns the locations of a server into the rules of a site.

use std::collections::BTreeMap;

use super::global::Global;
use super::location::{Kind, Location};
use super::route;
use super::scope::{Context, ErrorPage, Return, Scope};
use super::server::ServerBlock;
use super::spread::{self, apart, form, in_order};
use super::target::{self, RequestFacts};
use super::{auth_request, files, redirects};
use crate::directive::Directive;
use crate::model::{EVERYBODY, Fields, Rule, Site};
use crate::pattern::{Paths, whole};
use crate::regex::Shape;
use crate::values;

/// A site in the making.
pub(super) struct Builder<'b, 'c> {
    pub(super) locations: &'b [Location],
    /// The paths of the requests of each location.
    pub(super) requests: Vec<Paths>,
    /// The paths of the files that answer them.
    pub(super) files: Vec<Paths>,
    pub(super) facts: RequestFacts<'b>,
    pub(super) context: &'b mut Context<'c>,
    pub(super) server: &'b ServerBlock,
    pub(super) site: Site,
}

/// The site of a server. `returns` is the answer to all requests, if there is one.
pub(super) fn build(
    server: &ServerBlock,
    returns: Option<&Return>,
    facts: RequestFacts<'_>,
    context: &mut Context<'_>,
) -> Site {
    let locations = &server.locations.all[..];
    let requests: Vec<Paths> = locations.iter().map(spread::of_requests).collect();
    let files = requests.clone();
    let mut builder = Builder { locations, requests, files, facts, context, server, site: Site::default() };
    builder.settings();
    if let Some(returns) = returns {
        builder.answer_all(returns);
    } else {
        files::map_locations(&mut builder);
        builder.access();
        builder.limits();
        redirects::add(&mut builder);
        builder.headers();
        files::fall_back(&mut builder);
        builder.error_pages();
        route::add(&mut builder);
    }
    builder.site
}

/// The directives that hold for paths without a location of their own.
pub(super) fn rest(locations: &[Location]) -> Option<&Location> {
    locations.iter().find(|location| location.kind == Kind::Prefix && location.text == "/")
}

impl Builder<'_, '_> {
    fn settings(&mut self) {
        let server = self.server;
        let scope = rest(self.locations).map_or(&server.scope, |location| &location.scope);
        self.site.root = scope.root.as_ref().or(server.scope.root.as_ref()).map(|(root, _)| root.clone());
        self.site.browse = scope.autoindex.as_ref().is_some_and(|(is_on, _)| *is_on);
        self.site.precompressed = scope.precompressed.filter(|is_on| !is_on);
        self.site.compress = scope.compress.as_ref().is_some_and(|(is_on, _)| *is_on);
        self.site.hsts = scope.hsts.as_ref().or(server.scope.hsts.as_ref()).map(|(value, _)| value.clone());
        self.site.certificates.clone_from(&server.certificates);
        self.site.keys.clone_from(&server.keys);
        self.site.ocsp.clone_from(&server.ocsp);
        for location in self.locations {
            if let Some((value, position)) = &location.scope.hsts
                && self.site.hsts.as_ref() != Some(value)
            {
                let why = format!(
                    "Strict-Transport-Security only in {}: Flash's `hsts` is for whole sites",
                    location.shown
                );
                self.context.notes.add(position, why);
            }
            let of_sites = [
                (&location.scope.autoindex, self.site.browse, "autoindex", "browse"),
                (&location.scope.compress, self.site.compress, "gzip", "compress"),
            ];
            for (of_location, of_site, name, key) in of_sites {
                if let Some((is_on, position)) = of_location
                    && *is_on != of_site
                {
                    let why = format!("`{name}` of {}: Flash's `{key}` is for whole sites", location.shown);
                    self.context.notes.add(position, why);
                }
            }
        }
        files::index(self, scope);
    }

    /// The same answer to all requests.
    fn answer_all(&mut self, returns: &Return) {
        match redirects::of_return(returns) {
            Some(status) => match target::target(&returns.text, &Shape::all(), self.facts) {
                Ok(target) => {
                    let path = if target.contains("$1") { "/*" } else { "*" };
                    self.site.rules.push(Rule { redirect: Some((target, status)), ..Rule::new(path) });
                }
                Err(why) => self.lose_return(returns, &why),
            },
            None if is_refusal(returns.status) => {
                self.site.close(&whole("*"));
                if returns.status != 403 {
                    self.lose_return(returns, "with 403");
                }
            }
            None => self.lose_return(returns, "Flash answers with files, redirects and errors"),
        }
    }

    pub(super) fn lose_return(&mut self, returns: &Return, why: &str) {
        let text = format!("`return {} {}`", returns.status, returns.text).replace(" `", "`");
        self.context.notes.add(&returns.position, format!("{text}: {why}"));
    }

    fn access(&mut self) {
        let mut values: Vec<Rule> = self.locations.iter().map(|location| self.access_of(location)).collect();
        give_alike(&mut values);
        for (path, except, at) in apart(&values, &self.requests) {
            self.site.rules.push(values[at].at(&path, &except));
        }
    }

    /// The rule for the clients that a location admits, without paths.
    fn access_of(&mut self, location: &Location) -> Rule {
        let scope = &location.scope;
        let mut rule = networks_of(location, self.context);
        if let Some(asks) = scope.asks.as_ref().filter(|_| rule.deny != EVERYBODY) {
            match users(scope.users.as_deref()) {
                Ok((file, note)) => {
                    note.into_iter().for_each(|note| self.context.lost(asks, note));
                    rule.users = Some(file);
                }
                Err(why) => return self.closed_for_want(asks, why),
            }
        }
        if let Some(asks) = scope.auth.as_ref().filter(|_| rule.deny != EVERYBODY) {
            match auth_request::server(self, asks) {
                Ok(path) => (rule.auth, rule.auth_fields) = (Some(path), scope.auth_fields.clone()),
                Err(why) => return self.closed_for_want(asks, &why),
            }
        }
        rule
    }

    /// A rule that admits nobody, because Flash cannot check what the directive asks for.
    fn closed_for_want(&mut self, directive: &Directive, why: &str) -> Rule {
        self.context.lost(directive, &format!("{why}, so everybody gets 403 here"));
        Rule::closed()
    }

    fn limits(&mut self) {
        let values: Vec<Vec<Rule>> =
            self.locations.iter().map(|location| limits(location, self.context)).collect();
        let parts = apart(&values, &self.requests);
        self.add_parts(&values, parts);
    }

    fn headers(&mut self) {
        let values: Vec<Vec<Rule>> = self.locations.iter().map(|location| changes(&location.scope)).collect();
        let paths: Vec<Paths> =
            self.files.iter().map(|paths| with_folders(paths, &self.site.index)).collect();
        let parts = by_files(self, (&values, &paths), apart);
        self.add_parts(&values, parts);
    }

    /// Adds the rules of locations at the paths where they apply.
    fn add_parts(&mut self, values: &[Vec<Rule>], parts: Vec<spread::Part>) {
        for (path, except, at) in parts {
            self.site.rules.extend(values[at].iter().map(|rule| rule.at(&path, &except)));
        }
    }

    fn error_pages(&mut self) {
        let locations = self.locations;
        let mut of = |location: &Location| -> Vec<Rule> {
            location.scope.error_pages.iter().filter_map(|page| self.error_page(page)).collect()
        };
        let pages: Vec<Vec<Rule>> = locations.iter().map(&mut of).collect();
        let parts = by_files(self, (&pages, &self.files), apart);
        self.add_parts(&pages, parts);
    }

    /// The rule for a page without paths, if Flash can show it.
    fn error_page(&mut self, page: &ErrorPage) -> Option<Rule> {
        if files::is_fallback(page) {
            return None;
        }
        let why = if page.status.is_some() {
            "Flash's pages keep the status of the error".to_owned()
        } else {
            match files::of_uri(self, &page.uri) {
                Ok(file) => {
                    let statuses = page.statuses.clone();
                    return Some(Rule { statuses, error_page: Some(file), ..Rule::default() });
                }
                Err(why) => why,
            }
        };
        self.context.notes.add(&page.position, format!("`error_page … {}`: {why}", page.uri));
        None
    }
}

/// Whether a status only says that nobody gets an answer.
pub(super) fn is_refusal(status: u16) -> bool {
    [403, 404, 410, 421, 444].contains(&status)
}

/// Gives all requests that a server decides about the same fields: a route can take paths of another location, where a client could
/// send the fields itself.
fn give_alike(values: &mut [Rule]) {
    let mut given: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for access in values.iter() {
        let Some(auth) = &access.auth else { continue };
        let fields = given.entry(auth.clone()).or_default();
        for name in &access.auth_fields {
            if !fields.iter().any(|other| other.eq_ignore_ascii_case(name)) {
                fields.push(name.clone());
            }
        }
    }
    for access in values {
        access.auth_fields = access.auth.as_ref().map(|auth| given[auth].clone()).unwrap_or_default();
    }
}

/// The file of users if Flash can use it, and a note if that is not known.
///
/// # Errors
/// Why it cannot.
fn users(file: Option<&str>) -> Result<(String, Option<&'static str>), &'static str> {
    let file = file.ok_or("there is no `auth_basic_user_file`")?;
    if file.contains('$') {
        return Err("Flash has no variables");
    }
    values::users(file).map(|note| (file.to_owned(), note))
}

/// The limits of requests, as rules without paths.
fn limits(location: &Location, context: &mut Context<'_>) -> Vec<Rule> {
    let mut limits = Vec::new();
    for directive in location.scope.limits.iter().chain(&location.scope.bounds) {
        match limit(directive, &context.global) {
            Some(limit) => limits.push(limit),
            None => context.lost(directive, "there is no such zone, or Flash cannot count in it"),
        }
    }
    limits
}

fn limit(directive: &Directive, global: &Global) -> Option<Rule> {
    if directive.name == "limit_conn" {
        let most = directive.args.get(1)?.parse().ok().filter(|most| (1..=1_000_000).contains(most));
        let most = Some(most?);
        return Some(if *global.conn_zones.get(directive.first())? {
            Rule { concurrency: most, ..Rule::default() }
        } else {
            Rule { total_concurrency: most, ..Rule::default() }
        });
    }
    let of = |name: &str| directive.args.iter().find_map(|word| word.strip_prefix(name));
    let zone = global.zones.get(of("zone=")?)?;
    let burst = of("burst=").and_then(|burst| burst.parse::<u64>().ok()).unwrap_or(0);
    let rate = zone.rate.clone();
    Some(if zone.is_of_client {
        Rule { rate: Some((rate, burst.saturating_add(1).min(1_000_000))), ..Rule::default() }
    } else {
        Rule { total_rate: Some(rate), ..Rule::default() }
    })
}

/// The rule for the networks that a location allows and denies, without paths.
fn networks_of(location: &Location, context: &mut Context<'_>) -> Rule {
    let scope = &location.scope;
    if location.is_hidden() {
        return Rule::default();
    }
    if let Some(returns) = scope.returns.as_ref().filter(|returns| is_refusal(returns.status)) {
        if returns.status != 403 {
            context.notes.add(&returns.position, format!("`return {}`: with 403", returns.status));
        }
        return Rule::closed();
    }
    if scope.closed || scope.internal {
        return Rule::closed();
    }
    // Those who are not named get in, unless all are denied at the end.
    let (mut rule, mut is_mixed, mut is_last_denied) = (Rule::default(), false, false);
    for (is_allowed, network) in &scope.access {
        match (is_allowed, network.as_str()) {
            (false, "all") if rule.allow.is_empty() => return Rule::closed(),
            (_, "all") => {
                is_last_denied = !is_allowed;
                break;
            }
            (true, _) => rule.allow.push(network.clone()),
            (false, _) => {
                is_mixed |= !rule.allow.is_empty();
                rule.deny.push(network.clone());
            }
        }
    }
    if !is_last_denied {
        rule.allow.clear();
    }
    if let Some(position) = scope.access_position.as_ref().filter(|_| is_mixed) {
        context.notes.add(position, "`deny` after `allow`: Flash's `deny` comes first");
    }
    rule
}

/// The rules for the fields of answers, without paths: one for all but errors, and one for errors too.
fn changes(scope: &Scope) -> Vec<Rule> {
    let mut normal = Rule { remove: scope.removed.clone(), ..Rule::default() };
    let mut always = Rule { errors: true, ..Rule::default() };
    if !scope.expires.is_empty() {
        put(&mut normal.set, "Cache-Control", &scope.expires);
    }
    for header in &scope.headers {
        let rule = if header.always { &mut always } else { &mut normal };
        let fields = if values::is_added(&header.name) { &mut rule.add } else { &mut rule.set };
        put(fields, &header.name, &header.value);
    }
    // A rule for errors applies to all answers, and would replace the value of the other.
    let is_cache_control = |(name, _): &(String, Vec<String>)| name.eq_ignore_ascii_case("cache-control");
    if let Some((_, all)) = always.set.iter_mut().find(|field| is_cache_control(field)) {
        for (_, values) in normal.set.extract_if(.., |field| is_cache_control(field)) {
            values.iter().for_each(|value| join(all, value));
        }
    }
    let is_empty = |rule: &Rule| rule.set.is_empty() && rule.add.is_empty() && rule.remove.is_empty();
    [normal, always].into_iter().filter(|rule| !is_empty(rule)).collect()
}

fn put(fields: &mut Fields, name: &str, value: &str) {
    match fields.iter_mut().find(|(other, _)| other.eq_ignore_ascii_case(name)) {
        Some((_, values)) if name.eq_ignore_ascii_case("cache-control") => join(values, value),
        Some((_, values)) => values.push(value.to_owned()),
        None => fields.push((name.to_owned(), vec![value.to_owned()])),
    }
}

/// Adds the words of a Cache-Control to those that are there.
fn join(values: &mut [String], value: &str) {
    let Some(all) = values.first_mut() else { return };
    for word in value.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        if !all.split(',').any(|earlier| earlier.trim().eq_ignore_ascii_case(word)) {
            all.push_str(", ");
            all.push_str(word);
        }
    }
}

/// The paths of files, and those of the directories that the files answer for: Flash's rules see the directory.
fn with_folders(paths: &Paths, index: &[String]) -> Paths {
    let first = index.first().map_or("index.html", String::as_str);
    let mut all = paths.clone();
    for (path, except) in paths {
        let folders = match path.rsplit_once('*') {
            None => path.strip_suffix(first).map(|folder| vec![folder.to_owned()]),
            Some((start, end)) if !end.is_empty() && !end.contains('/') && first.ends_with(end) => {
                Some(if start.ends_with('/') {
                    vec![start.to_owned(), format!("{start}*/")]
                } else {
                    vec![format!("{start}*/")]
                })
            }
            Some(_) => None,
        };
        let folders = folders.into_iter().flatten().filter(|folder| folder.ends_with('/'));
        all.extend(folders.map(|folder| (form(&folder), except.clone())));
    }
    all
}

/// The parts for locations by the paths of their files: those whose files are elsewhere come first, because others have these
/// paths too.
pub(super) fn by_files<T: Clone>(
    builder: &Builder<'_, '_>,
    (values, paths): (&[T], &[Paths]),
    parts: impl Fn(&[T], &[Paths]) -> Vec<spread::Part>,
) -> Vec<spread::Part> {
    let is_moved = |at: &usize| builder.files[*at] != builder.requests[*at];
    let (mut order, others): (Vec<usize>, Vec<usize>) = (0..values.len()).partition(is_moved);
    order.extend(others);
    let values: Vec<T> = order.iter().map(|at| values[*at].clone()).collect();
    let paths: Vec<Paths> = order.iter().map(|at| paths[*at].clone()).collect();
    parts(&values, &paths).into_iter().map(|(path, except, at)| (path, except, order[at])).collect()
}

/// The parts of locations that have a value, of which the first counts, by the paths of requests.
pub(super) fn first_of<T>(builder: &Builder<'_, '_>, values: &[Option<T>]) -> Vec<spread::Part> {
    in_order(values, &builder.requests)
}
