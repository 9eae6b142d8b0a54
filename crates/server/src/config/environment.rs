//! The source "environment": variables `FLASH_*`.
//!
//! Called by `Sources`, which passes the variables, so that a reload sees the same ones and a test needs none. It must not
//! read the environment itself. Lists are separated by commas; an empty variable counts as not set.

use std::ffi::{OsStr, OsString};

use super::error::Problem;
use super::options::{OPTIONS, Overrides, Spec};
use super::suggest;
use super::table::Origin;

pub(super) const PREFIX: &str = "FLASH_";

/// Returns the values of the variables, and the errors in them.
pub(super) fn read(variables: &[(String, OsString)]) -> (Overrides, Vec<Problem>) {
    let mut overrides = Overrides::default();
    let mut problems = Vec::new();
    for (name, value) in variables.iter().filter(|(_, value)| !value.is_empty()) {
        let Some(spec) = of_variable(name) else {
            continue;
        };
        let items = items(spec, value);
        let Err(refusals) = spec.set(&mut overrides, &items, Origin::Environment) else {
            continue;
        };
        for refusal in refusals {
            let item = items.get(refusal.item).copied().unwrap_or_default().to_string_lossy();
            let title = format!("wrong value `{item}` for {name}");
            problems.push(Problem::plain(title, refusal.why).maybe_helped(refusal.help));
        }
    }
    (overrides, problems)
}

/// A warning for each unknown variable with Flash's prefix.
pub(super) fn warnings(variables: &[(String, OsString)]) -> Vec<String> {
    let names: Vec<String> = OPTIONS.iter().map(Spec::variable).collect();
    variables
        .iter()
        .filter(|(name, _)| name.starts_with(PREFIX) && of_variable(name).is_none())
        .map(|(name, _)| match suggest::did_you_mean(name, names.iter().map(String::as_str)) {
            Some(meant) => format!("unknown environment variable {name} is ignored; {meant}"),
            None => format!("unknown environment variable {name} is ignored"),
        })
        .collect()
}

fn of_variable(name: &str) -> Option<&'static Spec> {
    OPTIONS.iter().find(|spec| spec.variable() == name)
}

/// The values in a variable: its parts between commas for a list, otherwise the whole text.
fn items<'a>(spec: &Spec, value: &'a OsStr) -> Vec<&'a OsStr> {
    match value.to_str() {
        Some(text) if spec.kind.is_list() => text.split(',').map(|item| OsStr::new(item.trim())).collect(),
        _ => vec![value],
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::super::kind::{Bounds, Kind, Unit};
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Vec<(String, OsString)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), OsString::from(value))).collect()
    }

    #[test]
    fn every_option_has_a_variable() {
        let values = |spec: &Spec| match spec.key {
            "listen" => "127.0.0.1:80, [::1]:80",
            "listen_tls" | "admin" => "127.0.0.1:443",
            "index" => "a.html,b.html",
            "hsts" => "max-age=7",
            "https_redirect" => "301",
            "sandbox" => "required",
            "log_format" => "json",
            "log_template" => "{status}",
            "architecture" => "mt",
            "event_mechanism" => "poll",
            "helpers" => "threads",
            "send" => "mmap",
            "encoded_slash" => "refuse",
            "schedule" => "srpt",
            "egress" | "connection_rate" => "10Mbit",
            "client_exempt" | "trusted_proxies" | "proxy_protocol" => "10.0.0.0/8,loopback",
            "proxy_field" => "forwarded",
            "listen_mode" => "0666",
            "etag" => "changed",
            _ => match spec.kind {
                Kind::Switch | Kind::AutoSwitch => "yes",
                Kind::AutoNumber(_) | Kind::Number(Bounds { unit: Unit::MemoryBytes, .. }) => "7M",
                Kind::Number(Bounds { unit: Unit::Millis, .. }) => "7s",
                _ => "7",
            },
        };
        let variables: Vec<(String, OsString)> =
            OPTIONS.iter().map(|spec| (spec.variable(), values(spec).into())).collect();
        let (overrides, problems) = read(&variables);
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(overrides.clone().or(Overrides::defaults()), overrides, "a field was not set");
        assert_eq!(overrides.listen.unwrap().value.len(), 2);
        assert_eq!(overrides.index.unwrap().value, ["a.html", "b.html"]);
        assert!(warnings(&variables).is_empty());
    }

    #[test]
    fn empty_is_not_set() {
        let (overrides, problems) = read(&variables(&[("FLASH_WORKERS", ""), ("PATH", "/bin")]));
        assert_eq!(overrides, Overrides::default());
        assert!(problems.is_empty());
    }

    #[test]
    fn wrong_values_name_their_variable() {
        let mut variables = variables(&[("FLASH_WORKERS", "0"), ("FLASH_LISTEN", "127.0.0.1:80,:81")]);
        variables.push(("FLASH_FRESHNESS".to_owned(), OsString::from_vec(vec![0xff])));
        let (_, problems) = read(&variables);
        let error = super::super::ConfigError::of_problems(problems, None).to_string();
        assert!(error.contains("error: wrong value `0` for FLASH_WORKERS: must be from 1 to 256"), "{error}");
        assert!(error.contains("wrong value `:81` for FLASH_LISTEN"), "{error}");
        assert!(error.contains("did you mean `127.0.0.1:81`?"), "{error}");
        assert!(error.contains("for FLASH_FRESHNESS: must be UTF-8 text"), "{error}");
    }

    #[test]
    fn unknown_variables_are_warned_of() {
        let variables =
            variables(&[("FLASH_WORKER", "1"), ("FLASH_ZZZ", "1"), ("FLASHY", "1"), ("HOME", "/")]);
        assert_eq!(
            warnings(&variables),
            [
                "unknown environment variable FLASH_WORKER is ignored; did you mean `FLASH_WORKERS`?",
                "unknown environment variable FLASH_ZZZ is ignored",
            ]
        );
    }
}
