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

/// An unknown key of a `[[site]]`. Usually it is a key of the whole file below a table.
pub(super) fn of_site(key: &Key<'_>) -> Problem {
    let name = key.get_ref().as_ref();
    let of_site = OPTIONS.iter().filter(|spec| spec.is_of_site()).map(|spec| spec.key);
    let for_all = name == "types" || options::find(name).is_some_and(|spec| spec.is_in_file());
    let (why, help) = if for_all {
        ("applies to the whole server, not to a site", Some(to_the_top(name)))
    } else {
        ("not a setting of a site", suggest::did_you_mean(name, of_site.chain(["hosts", "route", "rule"])))
    };
    Problem::at(key.span(), format!("unknown key `{name}` in a site"), why)
        .of(ConfigErrorKind::Key)
        .maybe_helped(help)
}

/// An unknown key of a route. Usually it is a key of the site or of the whole file below a route.
pub(super) fn of_route(key: &Key<'_>) -> Problem {
    let name = key.get_ref().as_ref();
    let spec = options::find(name).filter(|spec| spec.is_in_file());
    let owners = table::find::<RouteOverrides>(name).map_or(&[][..], |spec| spec.place);
    let (why, help) = match spec {
        _ if !owners.is_empty() => {
            let title = format!("wrong key `{name}` in a route");
            let why = format!("applies to a route with `{}`", owners.join("` or `"));
            return Problem::at(key.span(), title, why).of(ConfigErrorKind::Key);
        }
        _ if name == "hosts" || spec.is_some_and(|spec| spec.is_of_site()) => {
            let help = format!("move `{name}` above the first route of its site");
            ("applies to a site, not to a route", Some(help))
        }
        Some(_) => ("applies to the whole server, not to a route", Some(to_the_top(name))),
        None => {
            let words = ROUTE_OPTIONS.iter().map(|spec| spec.key);
            let help = suggest::did_you_mean(name, words);
            ("not a setting of a route", help)
        }
    };
    Problem::at(key.span(), format!("unknown key `{name}` in a route"), why)
        .of(ConfigErrorKind::Key)
        .maybe_helped(help)
}

/// An unknown key of a rule. Usually it is a key of the site or of the whole file below a rule.
pub(super) fn of_rule(key: &Key<'_>) -> Problem {
    let name = key.get_ref().as_ref();
    let (why, help) = match options::find(name).filter(|spec| spec.is_in_file()) {
        spec if name == "hosts" || spec.is_some_and(|spec| spec.is_of_site()) => (
            "applies to a site, not to a rule",
            Some(format!("move `{name}` above the first rule of its site")),
        ),
        Some(_) => ("applies to the whole server, not to a rule", Some(to_the_top(name))),
        None => {
            ("not a setting of a rule", suggest::did_you_mean(name, RULE_OPTIONS.iter().map(|spec| spec.key)))
        }
    };
    Problem::at(key.span(), format!("unknown key `{name}` in a rule"), why)
        .of(ConfigErrorKind::Key)
        .maybe_helped(help)
}
