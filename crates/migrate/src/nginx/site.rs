//! Turns the locations of a server into the rules of a site.

use std::collections::BTreeMap;

use super::global::Global;
use super::location::{Kind, Location};
use super::parse::Directive;
use super::route;
use super::scope::{Context, ErrorPage, Return, Scope};
use super::server::ServerBlock;
use super::spread::{self, Paths, apart, form, in_order};
use super::target::{self, Known};
use super::{ask, files, redirects};
use crate::model::{EVERYBODY, Fields, Rule, Site};
use crate::values;

/// A site in the making.
pub(super) struct Builder<'b, 'c> {
    pub(super) locations: &'b [Location],
    /// The paths of the requests of each location.
    pub(super) requests: Vec<Paths>,
    /// The paths of the files that answer them.
    pub(super) files: Vec<Paths>,
    pub(super) known: Known<'b>,
    pub(super) context: &'b mut Context<'c>,
    pub(super) server: &'b ServerBlock,
    pub(super) site: Site,
}

/// The site of a server. `returns` is the answer to all requests, if there is one.
pub(super) fn build(
    server: &ServerBlock,
    returns: Option<&Return>,
    known: Known<'_>,
    context: &mut Context<'_>,
) -> Site {
    let locations = &server.locations.all[..];
    let requests: Vec<Paths> = locations.iter().map(spread::of_requests).collect();
    let files = requests.clone();
    let mut builder = Builder { locations, requests, files, known, context, server, site: Site::default() };
    builder.settings();
    if let Some(returns) = returns {
        builder.answer_all(returns);
    } else {
        files::place(&mut builder);
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
            if let Some((value, place)) = &location.scope.hsts
                && self.site.hsts.as_ref() != Some(value)
            {
                let why = format!(
                    "Strict-Transport-Security only in {}: Flash's `hsts` is for whole sites",
                    location.shown
                );
                self.context.notes.add(place, why);
            }
            let of_sites = [
                (&location.scope.autoindex, self.site.browse, "autoindex", "browse"),
                (&location.scope.compress, self.site.compress, "gzip", "compress"),
            ];
            for (of_location, of_site, name, key) in of_sites {
                if let Some((is_on, place)) = of_location
                    && *is_on != of_site
                {
                    let why = format!("`{name}` of {}: Flash's `{key}` is for whole sites", location.shown);
                    self.context.notes.add(place, why);
                }
            }
        }
        files::index(self, scope);
    }

    /// The same answer to all requests.
    fn answer_all(&mut self, returns: &Return) {
        let all = crate::regex::Shape {
            path: "/*".to_owned(),
            groups: [("0".to_owned(), "/$1".to_owned())].into(),
            ..crate::regex::Shape::default()
        };
        match redirects::of_return(returns) {
            Some(status) => match target::target(&returns.text, &all, self.known) {
                Ok(target) => {
                    let path = if target.contains("$1") { "/*" } else { "*" };
                    self.site.rules.push(Rule { redirect: Some((target, status)), ..Rule::new(path) });
                }
                Err(why) => self.lose_return(returns, &why),
            },
            None if is_refusal(returns.status) => {
                self.close("*".to_owned(), Vec::new());
                self.note_status(returns);
            }
            None => self.lose_return(returns, "Flash answers with files, redirects and errors"),
        }
    }

    pub(super) fn lose_return(&mut self, returns: &Return, why: &str) {
        let text = format!("`return {} {}`", returns.status, returns.text).replace(" `", "`");
        self.context.notes.add(&returns.place, format!("{text}: {why}"));
    }

    fn note_status(&mut self, returns: &Return) {
        if returns.status != 403 {
            self.lose_return(returns, "with 403");
        }
    }

    fn close(&mut self, path: String, except: Vec<String>) {
        let deny = EVERYBODY.map(str::to_owned).to_vec();
        self.site.rules.push(Rule { except, deny, ..Rule::new(path) });
    }

    fn access(&mut self) {
        let mut values: Vec<Access> =
            self.locations.iter().map(|location| self.access_of(location)).collect();
        give_alike(&mut values);
        for (path, except, at) in apart(&values, &self.requests) {
            let Access { allow, deny, users, auth, auth_fields } = values[at].clone();
            let rule = Rule { except, allow, deny, users, ..Rule::new(path) };
            self.site.rules.push(Rule { auth, auth_fields, ..rule });
        }
    }

    fn access_of(&mut self, location: &Location) -> Access {
        let access = Access::of(location, self.context);
        let Some(asks) = location.scope.auth.as_ref().filter(|_| access.deny != EVERYBODY) else {
            return access;
        };
        match ask::server(self, asks) {
            Ok(path) => {
                Access { auth: Some(path), auth_fields: location.scope.auth_fields.clone(), ..access }
            }
            Err(why) => {
                self.context.lost(asks, &format!("{why}, so everybody gets 403 here"));
                Access::closed()
            }
        }
    }

    fn limits(&mut self) {
        let values: Vec<Vec<Rule>> =
            self.locations.iter().map(|location| limits(location, self.context)).collect();
        for (path, except, at) in apart(&values, &self.requests) {
            for limit in &values[at] {
                let rule = Rule { path: path.clone(), except: except.clone(), ..limit.clone() };
                self.site.rules.push(rule);
            }
        }
    }

    fn headers(&mut self) {
        let values: Vec<Changes> =
            self.locations.iter().map(|location| Changes::of(&location.scope)).collect();
        let paths: Vec<Paths> =
            self.files.iter().map(|paths| with_folders(paths, &self.site.index)).collect();
        for (path, except, at) in by_files(self, (&values, &paths), apart) {
            for (errors, (set, add)) in [(false, &values[at].normal), (true, &values[at].always)] {
                let remove = if errors { Vec::new() } else { values[at].remove.clone() };
                if !set.is_empty() || !add.is_empty() || !remove.is_empty() {
                    let rule = Rule { except: except.clone(), errors, remove, ..Rule::new(path.clone()) };
                    self.site.rules.push(Rule { set: set.clone(), add: add.clone(), ..rule });
                }
            }
        }
    }

    fn error_pages(&mut self) {
        let pages: Vec<Vec<(Vec<u16>, String)>> = (0..self.locations.len())
            .map(|at| {
                let pages = &self.locations[at].scope.error_pages;
                pages.iter().filter_map(|page| self.error_page(page)).collect()
            })
            .collect();
        for (path, except, at) in by_files(self, (&pages, &self.files), apart) {
            for (statuses, page) in &pages[at] {
                let rule =
                    Rule { except: except.clone(), statuses: statuses.clone(), ..Rule::new(path.clone()) };
                self.site.rules.push(Rule { error_page: Some(page.clone()), ..rule });
            }
        }
    }

    /// The statuses and the file of a page, if Flash can show it.
    fn error_page(&mut self, page: &ErrorPage) -> Option<(Vec<u16>, String)> {
        if files::is_fallback(page) {
            return None;
        }
        let why = if page.status.is_some() {
            "Flash's pages keep the status of the error".to_owned()
        } else {
            match files::of_uri(self, &page.uri) {
                Ok(file) => return Some((page.statuses.clone(), file)),
                Err(why) => why,
            }
        };
        self.context.notes.add(&page.place, format!("`error_page … {}`: {why}", page.uri));
        None
    }
}

/// Whether a status only says that nobody gets an answer.
pub(super) fn is_refusal(status: u16) -> bool {
    [403, 404, 410, 421, 444].contains(&status)
}

/// The clients that are admitted.
#[derive(Clone, Default, PartialEq)]
struct Access {
    allow: Vec<String>,
    deny: Vec<String>,
    /// The file of the users.
    users: Option<String>,
    /// The path of the server that must agree, and the fields that it gives.
    auth: Option<String>,
    auth_fields: Vec<String>,
}

impl Access {
    fn of(location: &Location, context: &mut Context<'_>) -> Self {
        let (allow, deny) = access_of(location, context);
        let Some(asks) = location.scope.asks.as_ref().filter(|_| deny != EVERYBODY) else {
            return Self { allow, deny, ..Self::default() };
        };
        match users(location.scope.users.as_deref()) {
            Ok((file, note)) => {
                note.into_iter().for_each(|note| context.lost(asks, note));
                Self { allow, deny, users: Some(file), ..Self::default() }
            }
            Err(why) => {
                context.lost(asks, &format!("{why}, so everybody gets 403 here"));
                Self::closed()
            }
        }
    }

    /// Nobody is admitted.
    fn closed() -> Self {
        Self { deny: EVERYBODY.map(str::to_owned).to_vec(), ..Self::default() }
    }
}

/// Gives all requests that a server decides about the same fields: a route can take paths of another location, where a client could
/// send the fields itself.
fn give_alike(values: &mut [Access]) {
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

/// The networks that are allowed and denied.
fn access_of(location: &Location, context: &mut Context<'_>) -> (Vec<String>, Vec<String>) {
    let scope = &location.scope;
    let everybody = || EVERYBODY.map(str::to_owned).to_vec();
    let refusal = scope.returns.as_ref().filter(|returns| is_refusal(returns.status));
    if location.is_hidden() {
        return (Vec::new(), Vec::new());
    }
    if let Some(returns) = refusal {
        if returns.status != 403 {
            context.notes.add(&returns.place, format!("`return {}`: with 403", returns.status));
        }
        return (Vec::new(), everybody());
    }
    if scope.closed || scope.internal {
        return (Vec::new(), everybody());
    }
    let (mut allow, mut deny, mut is_mixed) = (Vec::new(), Vec::new(), false);
    for (is_allowed, network) in &scope.access {
        match (is_allowed, network.as_str()) {
            (true, "all") => {
                // All that come here and were not denied.
                allow.clear();
                break;
            }
            (false, "all") if allow.is_empty() => return (Vec::new(), everybody()),
            (false, "all") => return (noted(allow, is_mixed, scope, context), deny),
            (true, _) => allow.push(network.clone()),
            (false, _) => {
                is_mixed |= !allow.is_empty();
                deny.push(network.clone());
            }
        }
    }
    (noted(Vec::new(), is_mixed, scope, context), deny)
}

fn noted(allow: Vec<String>, is_mixed: bool, scope: &Scope, context: &mut Context<'_>) -> Vec<String> {
    if let Some(place) = scope.access_place.as_ref().filter(|_| is_mixed) {
        context.notes.add(place, "`deny` after `allow`: Flash's `deny` comes first".to_owned());
    }
    allow
}

/// How the fields of answers change.
#[derive(Clone, Debug, Default, PartialEq)]
struct Changes {
    /// Fields that are set and added.
    normal: (Fields, Fields),
    /// Those of errors too.
    always: (Fields, Fields),
    remove: Vec<String>,
}

impl Changes {
    fn of(scope: &Scope) -> Self {
        let mut changes = Self { remove: scope.removed.clone(), ..Self::default() };
        if !scope.expires.is_empty() {
            put(&mut changes.normal.0, "Cache-Control", &scope.expires);
        }
        for header in &scope.headers {
            let (set, add) = if header.always { &mut changes.always } else { &mut changes.normal };
            put(if values::is_added(&header.name) { add } else { set }, &header.name, &header.value);
        }
        // A rule for errors applies to all answers, and would replace the value of the other.
        if let Some(at) =
            changes.always.0.iter().position(|(name, _)| name.eq_ignore_ascii_case("cache-control"))
        {
            for (_, values) in
                changes.normal.0.extract_if(.., |(name, _)| name.eq_ignore_ascii_case("cache-control"))
            {
                values.iter().for_each(|value| join(&mut changes.always.0[at].1, value));
            }
        }
        changes
    }
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
