//! The source "file": TOML text.
//!
//! Turns the text of a config file into a [`Draft`] and a list of all errors in it, each with its place. It walks the parsed
//! tree itself, because `serde` stops at the first error. Called by `Sources::load`. It must not touch the system or compare
//! two values; `config::resolve` does both.

mod keys;
mod probes;
mod programs;
mod routes;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeString, DeTable, DeValue};

use super::drafts::RouteDraft;
use super::error::{ConfigErrorKind, Problem};
use super::options::{self, OPTIONS, Origin, Overrides, Spec};
use super::suggest;
use super::values::{self, Kind, Refusal};

/// Maximum `[[site]]` tables, hosts per site, and entries of `[types]`. Each site's root costs a process at startup
/// and a descriptor in every process of the server (docs/config.md).
const SITES_MAX: usize = 1_024;
const HOSTS_MAX: usize = 1_024;
const TYPES_MAX: usize = 4_096;

/// The contents of a config file.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) overrides: Overrides,
    pub(super) types: BTreeMap<String, String>,
    pub(super) sites: Vec<SiteDraft>,
    /// The routes of the default site.
    pub(super) routes: Vec<RouteDraft>,
}

/// The contents of a `[[site]]`.
#[derive(Debug, Default)]
pub(super) struct SiteDraft {
    /// The hosts, with their places.
    pub(super) hosts: Vec<(String, Range<usize>)>,
    /// Only options that [`Spec::is_of_site`] accepts are ever set.
    pub(super) overrides: Overrides,
    pub(super) routes: Vec<RouteDraft>,
}

pub(super) use programs::program_numbers;
pub(super) use routes::route_numbers;

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
                "route" => draft.routes = self.routes(value),
                name => match options::find(name).filter(|spec| spec.is_in_file()) {
                    Some(spec) => self.option(&mut draft.overrides, spec, value),
                    None => self.problems.push(unknown_key(key, value)),
                },
            }
        }
        draft
    }

    fn option(&mut self, into: &mut Overrides, spec: &Spec, value: &Value<'_>) {
        let items = match items(spec.kind, value) {
            Ok(items) => items,
            Err(problem) => return self.problems.push(problem.titled(spec.key)),
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
            let extension = match values::extension(key.get_ref()) {
                Ok(extension) => extension,
                Err(refusal) => {
                    self.problems.push(refused("types", key.span(), refusal).of(ConfigErrorKind::Key));
                    continue;
                }
            };
            let content_type = match value.get_ref().as_str().map(values::content_type) {
                Some(Ok(content_type)) => content_type,
                _ => {
                    let why = "must be a content type, such as \"text/plain; charset=utf-8\"";
                    let problem = wrong(&format!("types.{extension}"), value.span(), why);
                    let misplaced = options::find(&extension).map(|spec| to_the_top(spec.key));
                    self.problems.push(problem.maybe_helped(misplaced));
                    continue;
                }
            };
            if types.insert(extension, content_type).is_some() {
                self.wrong("types", key.span(), "this extension is given twice");
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
        let Some(array) = value.get_ref().as_array().filter(|array| all_tables(array)) else {
            let head = if key == "route" { "site.route" } else { key };
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
                name => match options::find(name).filter(|spec| spec.is_of_site()) {
                    Some(spec) => self.option(&mut site.overrides, spec, value),
                    None => self.problems.push(unknown_site_key(key)),
                },
            }
        }
        for (key, example) in [("hosts", "[\"example.org\"]"), ("root", "\"/srv/example\"")] {
            if table.iter().all(|(found, _)| found.get_ref() != key) {
                let problem = Problem::at(span.clone(), "incomplete site", format!("`{key}` is missing"));
                let problem = problem.helped(format!("add a line such as `{key} = {example}`"));
                self.problems.push(problem.of(ConfigErrorKind::Key));
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
            match item.get_ref().as_str().map(values::host) {
                Some(Ok(host)) => hosts.push((host, item.span())),
                Some(Err(refusal)) => self.problems.push(refused("hosts", item.span(), refusal)),
                None => self.wrong("hosts", item.span(), "must be a name in quotes"),
            }
        }
        hosts
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

/// A value of the wrong TOML type, before its key is known.
struct WrongForm {
    span: Range<usize>,
    why: String,
    help: Option<String>,
}

impl WrongForm {
    fn titled(self, key: &str) -> Problem {
        wrong(key, self.span, self.why).maybe_helped(self.help)
    }
}

/// The texts in a value, each with its place, if the value has the TOML type of the kind.
fn items(kind: Kind, value: &Value<'_>) -> Result<Vec<(String, Range<usize>)>, WrongForm> {
    if !kind.is_list() {
        return Ok(vec![(scalar(kind, value)?, value.span())]);
    }
    let Some(array) = value.get_ref().as_array() else {
        let help = value.get_ref().as_str().map(|text| format!("write `[{text:?}]`"));
        return Err(WrongForm { span: value.span(), why: format!("must be {}", kind.file_form()), help });
    };
    let text = |item: &Value<'_>| match (kind, item.get_ref()) {
        (_, DeValue::String(text)) => Ok((text.to_string(), item.span())),
        (Kind::Sizes { .. }, DeValue::Integer(_)) => Ok((scalar(kind, item)?, item.span())),
        _ => Err(WrongForm { span: item.span(), why: "must be in quotes".to_owned(), help: None }),
    };
    array.iter().map(text).collect()
}

fn scalar(kind: Kind, value: &Value<'_>) -> Result<String, WrongForm> {
    let wrong = |help| WrongForm { span: value.span(), why: format!("must be {}", kind.file_form()), help };
    match (kind, value.get_ref()) {
        (Kind::Switch | Kind::AutoSwitch, DeValue::Boolean(yes)) => Ok(yes.to_string()),
        // A number above 64 bits is out of bounds, and no number is one of several words: the text is refused later.
        (
            Kind::Count { .. }
            | Kind::Size { .. }
            | Kind::MemorySize { .. }
            | Kind::Sizes { .. }
            | Kind::AutoSize { .. }
            | Kind::OneOf(_),
            DeValue::Integer(number),
        ) => {
            let parsed = i64::from_str_radix(number.as_str(), number.radix());
            Ok(parsed.map_or_else(|_| number.as_str().to_owned(), |number| number.to_string()))
        }
        (
            Kind::Path
            | Kind::AutoSwitch
            | Kind::OneOf(_)
            | Kind::User
            | Kind::Duration { .. }
            | Kind::Rate { .. }
            | Kind::Size { .. }
            | Kind::MemorySize { .. }
            | Kind::Sizes { .. }
            | Kind::AutoSize { .. },
            DeValue::String(text),
        ) => Ok(text.to_string()),
        (Kind::Rate { .. }, DeValue::Integer(number)) => {
            Err(wrong(Some(format!("add a unit: write `\"{}Mbit\"`", number.as_str()))))
        }
        (Kind::Duration { .. }, DeValue::Integer(number)) => {
            let help = format!("add a unit: write `\"{0}ms\"`, `\"{0}s\"` or `\"{0}m\"`", number.as_str());
            Err(wrong(Some(help)))
        }
        (Kind::Switch | Kind::Count { .. }, DeValue::String(text)) => {
            let plain = match kind {
                Kind::Switch => matches!(text.as_ref(), "true" | "false"),
                _ => text.parse::<u64>().is_ok(),
            };
            Err(wrong(plain.then(|| format!("write `{text}`, without quotes"))))
        }
        _ => Err(wrong(None)),
    }
}

fn all_tables(array: &DeArray<'_>) -> bool {
    array.iter().all(|item| item.get_ref().is_table())
}

/// An unknown key of the file, with the nearest known key, or its right place.
fn unknown_key(key: &Key<'_>, value: &Value<'_>) -> Problem {
    let name = key.get_ref().as_ref();
    let in_file = || OPTIONS.iter().filter(|spec| spec.is_in_file()).map(|spec| spec.key);
    let help = if name == "hosts" {
        Some("hosts belong to a site: write them below a `[[site]]`".to_owned())
    } else if let Some(inner) = value.get_ref().as_table() {
        table_help(name, inner)
    } else {
        suggest::did_you_mean(name, in_file().chain(["site", "route", "types"]))
    };
    Problem::at(key.span(), format!("unknown key `{name}`"), "not a setting of Flash")
        .of(ConfigErrorKind::Key)
        .maybe_helped(help)
}

/// The replacement for an unknown table such as `[log] format = ...`.
fn table_help(name: &str, inner: &DeTable<'_>) -> Option<String> {
    let joined = inner.iter().find_map(|(key, _)| options::find(&format!("{name}_{}", key.get_ref())));
    if let Some(spec) = joined {
        return Some(format!("there is no such table: write `{} = ...` at the top of the file", spec.key));
    }
    if inner.iter().any(|(key, _)| options::find(key.get_ref()).is_some()) {
        return Some("there is no such table: write its keys at the top of the file".to_owned());
    }
    suggest::did_you_mean(name, ["site", "route", "types"])
}

/// The remedy for a key of the whole file below the head of a table.
fn to_the_top(key: &str) -> String {
    format!("move `{key}` to the top of the file, above every `[[site]]` and `[types]`")
}

/// An unknown key of a `[[site]]`. Usually it is a key of the whole file below a table.
fn unknown_site_key(key: &Key<'_>) -> Problem {
    let name = key.get_ref().as_ref();
    let of_site = OPTIONS.iter().filter(|spec| spec.is_of_site()).map(|spec| spec.key);
    let for_all = name == "types" || options::find(name).is_some_and(Spec::is_in_file);
    let (why, help) = if for_all {
        ("applies to the whole server, not to a site", Some(to_the_top(name)))
    } else {
        ("not a setting of a site", suggest::did_you_mean(name, of_site.chain(["hosts", "route"])))
    };
    Problem::at(key.span(), format!("unknown key `{name}` in a site"), why)
        .of(ConfigErrorKind::Key)
        .maybe_helped(help)
}
