//! The problem with a key that is unknown where it stands: the nearest known key, or its right place.

use toml::de::DeTable;

use super::super::error::{ConfigErrorKind, Problem};
use super::super::options::{self, OPTIONS};
use super::super::route_options::{ROUTE_OPTIONS, RouteOverrides};
use super::super::rule_options::RULE_OPTIONS;
use super::super::suggest;
use super::super::table;
use super::{Key, Value};

/// The tables of the file.
const TABLES: [&str; 4] = ["site", "route", "rule", "types"];

/// An unknown key of the file, with the nearest known key, or its right place.
pub(super) fn of_file(key: &Key<'_>, value: &Value<'_>) -> Problem {
    let name = key.get_ref().as_ref();
    let in_file = || OPTIONS.iter().filter(|spec| spec.is_in_file()).map(|spec| spec.key);
    let help = if name == "hosts" {
        Some("hosts belong to a site: write them below a `[[site]]`".to_owned())
    } else if let Some(inner) = value.get_ref().as_table() {
        table_help(name, inner)
    } else {
        suggest::did_you_mean(name, in_file().chain(TABLES))
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
    suggest::did_you_mean(name, TABLES)
}

/// The remedy for a key of the whole file below the head of a table.
pub(super) fn to_the_top(key: &str) -> String {
    format!("move `{key}` to the top of the file, above every `[[site]]` and `[types]`")
}

/// An unknown key of a `[[site]]`.
pub(super) fn of_site(key: &Key<'_>) -> Problem {
    let known = OPTIONS.iter().filter(|spec| spec.is_of_site()).map(|spec| spec.key);
    of_table("site", key, known.chain(["hosts", "route", "rule"]))
}

/// An unknown key of a route, or one of routes with other servers.
pub(super) fn of_route(key: &Key<'_>) -> Problem {
    let name = key.get_ref().as_ref();
    let owners = table::find::<RouteOverrides>(name).map_or(&[][..], |spec| spec.details);
    if owners.is_empty() {
        return of_table("route", key, ROUTE_OPTIONS.iter().map(|spec| spec.key));
    }
    let why = format!("applies to a route with `{}`", owners.join("` or `"));
    Problem::at(key.span(), format!("wrong key `{name}` in a route"), why).of(ConfigErrorKind::Key)
}

/// An unknown key of a rule.
pub(super) fn of_rule(key: &Key<'_>) -> Problem {
    of_table("rule", key, RULE_OPTIONS.iter().map(|spec| spec.key))
}

/// An unknown key of one of these tables. Usually it is a key of the site or of the whole file, below the head of the table.
fn of_table(table: &str, key: &Key<'_>, known: impl Iterator<Item = &'static str>) -> Problem {
    let name = key.get_ref().as_ref();
    let spec = options::find(name).filter(|spec| spec.is_in_file());
    let is_of_site = name == "hosts" || spec.is_some_and(|spec| spec.is_of_site());
    let (why, help) = if is_of_site && table != "site" {
        let help = format!("move `{name}` above the first {table} of its site");
        (format!("applies to a site, not to a {table}"), Some(help))
    } else if spec.is_some() || table == "site" && name == "types" {
        (format!("applies to the whole server, not to a {table}"), Some(to_the_top(name)))
    } else {
        (format!("not a setting of a {table}"), suggest::did_you_mean(name, known))
    };
    Problem::at(key.span(), format!("unknown key `{name}` in a {table}"), why)
        .of(ConfigErrorKind::Key)
        .maybe_helped(help)
}
