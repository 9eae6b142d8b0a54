//! The source "file": TOML text.
//!
//! Turns the text of a config file into a [`Draft`] and a list of all errors in it, each with its place. It walks the parsed
//! tree itself, because `serde` stops at the first error. Called by `Sources::load`. It must not touch the system or compare
//! two values; `config::resolve` does both.

mod items;
mod routes;
mod rules;
mod unknown;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeArray, DeString, DeTable, DeValue};

use super::error::{ConfigErrorKind, Problem, Refusal};
use super::kind::TextFormat;
use super::options::{self, Overrides};
use super::route_options::RouteOverrides;
use super::rule_options::RuleOverrides;
use super::table::{self, Origin, Spec, Table};
use super::text_formats;
use items::items;

/// Maximum `[[site]]` tables, hosts per site, and entries of `[types]`. Each site's root costs a descriptor in every process of the
/// server (docs/config.md).
const SITES_MAX: usize = 16_384;
const HOSTS_MAX: usize = 1_024;
const TYPES_MAX: usize = 4_096;

/// The contents of a config file.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) types: BTreeMap<String, String>,
    /// The part above all sites: the options of the server, and the default site.
    pub(super) top: SiteDraft,
    pub(super) sites: Vec<SiteDraft>,
}

/// The contents of a `[[site]]`.
#[derive(Debug, Default)]
pub(super) struct SiteDraft {
    /// The hosts, with their places.
    pub(super) hosts: Vec<(String, Range<usize>)>,
    /// In a `[[site]]`, only options of a site are ever set.
    pub(super) overrides: Overrides,
    pub(super) routes: Vec<RouteDraft>,
    pub(super) rules: Vec<RuleDraft>,
}

/// The contents of a table, with its place.
#[derive(Debug)]
pub(super) struct TableDraft<G> {
    pub(super) given: G,
    pub(super) span: Range<usize>,
}

/// A `[[route]]` or `[[site.route]]`. One of the keys of each kind is given.
pub(super) type RouteDraft = TableDraft<RouteOverrides>;
/// A `[[rule]]` or `[[site.rule]]`.
pub(super) type RuleDraft = TableDraft<RuleOverrides>;

impl Draft {
    /// Makes relative paths absolute, from `folder`.
    pub(super) fn rebase(&mut self, folder: &Path) {
        for site in self.sites.iter_mut().chain([&mut self.top]) {
            table::rebase(&mut site.overrides, folder);
            site.routes.iter_mut().for_each(|route| table::rebase(&mut route.given, folder));
            site.rules.iter_mut().for_each(|rule| table::rebase(&mut rule.given, folder));
        }
    }
}

type Key<'i> = Spanned<DeString<'i>>;
type Value<'i> = Spanned<DeValue<'i>>;

/// Reads the text of a config file, as far as it is readable.
pub(super) fn read(text: &str) -> (Draft, Vec<Problem>) {
    let (tree, errors) = DeTable::parse_recoverable(text);
    let mut reader = Reader { problems: errors.iter().map(|error| syntax(error, text)).collect() };
    if !reader.problems.is_empty() {
        // The parser's guesses after a syntax error are not the user's text; more errors would mislead.
        return (Draft::default(), reader.problems);
    }
    let draft = reader.file(tree.get_ref());
    (draft, reader.problems)
}

fn syntax(error: &toml::de::Error, text: &str) -> Problem {
    let end = text.len();
    let span = error.span().unwrap_or(end..end);
    Problem::at(span, "the config file is not TOML", error.message()).of(ConfigErrorKind::Syntax)
}

struct Reader {
    problems: Vec<Problem>,
}

impl Reader {
    fn file(&mut self, table: &DeTable<'_>) -> Draft {
        let mut draft = Draft::default();
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "types" => draft.types = self.types(value),
                "site" => draft.sites = self.sites(value),
                "route" => draft.top.routes = self.routes(value),
                "rule" => draft.top.rules = self.rules(value),
                name => match options::find(name).filter(|spec| spec.is_in_file()) {
                    Some(spec) => self.option(&mut draft.top.overrides, spec, value),
                    None => self.problems.push(unknown::of_file(key, value)),
                },
            }
        }
        draft
    }

    /// Reads the value of a key. One that is wrong is not stored.
    fn option<G: Table>(&mut self, into: &mut G, spec: &Spec<G>, value: &Value<'_>) {
        let items = match items(spec.kind, value) {
            Ok(items) => items,
            Err((span, refusal)) => return self.problems.push(refused(spec.key, span, refusal)),
        };
        let texts: Vec<&OsStr> = items.iter().map(|(text, _)| OsStr::new(text)).collect();
        for refusal in spec.set(into, &texts, Origin::File(value.span())).err().unwrap_or_default() {
            let span = items.get(refusal.item).map_or_else(|| value.span(), |(_, span)| span.clone());
            self.problems.push(refused(spec.key, span, refusal));
        }
    }

    fn types(&mut self, value: &Value<'_>) -> BTreeMap<String, String> {
        let mut types = BTreeMap::new();
        let Some(table) = value.get_ref().as_table() else {
            self.wrong("types", value.span(), "must be a table, such as [types]");
            return types;
        };
        for (count, (key, value)) in table.iter().enumerate() {
            if count >= TYPES_MAX {
                self.wrong("types", key.span(), format!("too many types: at most {TYPES_MAX}"));
                break;
            }
            let name = match text_formats::typed_name(key.get_ref()) {
                Ok(name) => name,
                Err(refusal) => {
                    self.problems.push(refused("types", key.span(), refusal).of(ConfigErrorKind::Key));
                    continue;
                }
            };
            let content_type = match value.get_ref().as_str().map(text_formats::content_type) {
                Some(Ok(content_type)) => content_type,
                _ => {
                    let why = "must be a content type, such as \"text/plain; charset=utf-8\"";
                    let problem = wrong(&format!("types.{name}"), value.span(), why);
                    let misplaced = options::find(&name).map(|spec| unknown::to_the_top(spec.key));
                    self.problems.push(problem.maybe_helped(misplaced));
                    continue;
                }
            };
            if types.insert(name, content_type).is_some() {
                self.wrong("types", key.span(), "this name is given twice");
            }
        }
        types
    }

    fn sites(&mut self, value: &Value<'_>) -> Vec<SiteDraft> {
        let tables = self.tables("site", value, SITES_MAX);
        tables.into_iter().map(|(span, table)| self.site(span, table)).collect()
    }

    /// The tables in a list of up to `most`, with their places.
    fn tables<'t, 'i>(
        &mut self,
        key: &str,
        value: &'t Value<'i>,
        most: usize,
    ) -> Vec<(Range<usize>, &'t DeTable<'i>)> {
        let all_tables = |array: &&DeArray<'_>| array.iter().all(|item| item.get_ref().is_table());
        let Some(array) = value.get_ref().as_array().filter(all_tables) else {
            let head = if key == "site" { key.to_owned() } else { format!("site.{key}") };
            let help = format!("write `[[{head}]]`, in double brackets, above each {key}");
            self.problems.push(wrong(key, value.span(), "must be a list of tables").helped(help));
            return Vec::new();
        };
        if let Some(over) = array.get(most) {
            self.wrong(key, over.span(), format!("too many {key}s: at most {most}"));
            return Vec::new();
        }
        array.iter().filter_map(|item| Some((item.span(), item.get_ref().as_table()?))).collect()
    }

    fn site(&mut self, span: Range<usize>, table: &DeTable<'_>) -> SiteDraft {
        let mut site = SiteDraft::default();
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "hosts" => site.hosts = self.hosts(value),
                "route" => site.routes = self.routes(value),
                "rule" => site.rules = self.rules(value),
                name => match options::find(name).filter(|spec| spec.is_of_site()) {
                    Some(spec) => self.option(&mut site.overrides, spec, value),
                    None => self.problems.push(unknown::of_site(key)),
                },
            }
        }
        for (key, example) in [("hosts", "[\"example.org\"]"), ("root", "\"/srv/example\"")] {
            if table.iter().all(|(found, _)| found.get_ref() != key) {
                let help = format!("add a line such as `{key} = {example}`");
                self.refuse(&span, "incomplete site", &format!("`{key}` is missing"), &help);
            }
        }
        site
    }

    fn hosts(&mut self, value: &Value<'_>) -> Vec<(String, Range<usize>)> {
        let form = "must be a list of names, such as [\"example.org\"]";
        let array = value.get_ref().as_array().filter(|array| !array.is_empty());
        let Some(array) = array else {
            self.wrong("hosts", value.span(), form);
            return Vec::new();
        };
        if let Some(over) = array.get(HOSTS_MAX) {
            self.wrong("hosts", over.span(), format!("too many hosts: at most {HOSTS_MAX}"));
            return Vec::new();
        }
        let mut hosts = Vec::new();
        for item in array.iter() {
            match item.get_ref().as_str().map(|host| TextFormat::Host.read(host)) {
                Some(Ok(host)) => hosts.push((host, item.span())),
                Some(Err(refusal)) => self.problems.push(refused("hosts", item.span(), refusal)),
                None => self.wrong("hosts", item.span(), "must be a name in quotes"),
            }
        }
        hosts
    }

    /// Notes a problem with a key itself, whatever its value is.
    fn refuse(&mut self, span: &Range<usize>, title: &str, why: &str, help: &str) {
        let problem = Problem::at(span.clone(), title, why).helped(help);
        self.problems.push(problem.of(ConfigErrorKind::Key));
    }

    fn wrong(&mut self, key: &str, span: Range<usize>, why: impl Into<String>) {
        self.problems.push(wrong(key, span, why));
    }
}

fn wrong(key: &str, span: Range<usize>, why: impl Into<String>) -> Problem {
    Problem::at(span, format!("wrong value for `{key}`"), why)
}

fn refused(key: &str, span: Range<usize>, refusal: Refusal) -> Problem {
    wrong(key, span, refusal.why).maybe_helped(refusal.help)
}
