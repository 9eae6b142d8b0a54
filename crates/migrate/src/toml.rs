//! Writes the configuration as TOML. The notes are its head.

use std::fmt::Write as _;

use crate::model::{Config, Fields, Route, Rule, Site};
use crate::notes::Note;

/// Flash's own default of `index`.
const INDEX: &str = "index.html";
/// A list that is longer than this is written with one value a line.
const LINE_CHARS: usize = 100;

/// A text as TOML.
pub(crate) fn text(value: &str) -> String {
    let mut quoted = String::with_capacity(value.len() + 2);
    quoted.push('"');
    for c in value.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A list of texts as TOML.
pub(crate) fn list<T: AsRef<str>>(values: &[T]) -> String {
    wrapped(&values.iter().map(|value| text(value.as_ref())).collect::<Vec<_>>())
}

fn wrapped(values: &[String]) -> String {
    let line = values.join(", ");
    if line.len() <= LINE_CHARS {
        format!("[{line}]")
    } else {
        format!("[\n    {},\n]", values.join(",\n    "))
    }
}

/// The whole file. `subject` names the file that it is from, and its language.
pub(crate) fn write(config: &Config, notes: &[Note], subject: &str) -> String {
    let mut out = format!("# Made by `flash migrate` from {subject}.\n");
    if !notes.is_empty() {
        out.push_str("# Not carried over:\n");
        for note in notes {
            let _ = writeln!(out, "#   {note}");
        }
    }
    for (file, lines) in &config.user_files {
        let _ = writeln!(out, "# Write these lines to {file}, which only root may read (chmod 600):");
        for line in lines {
            let _ = writeln!(out, "#   {line}");
        }
    }
    out.push('\n');
    let mut key = |name: &str, value: String| {
        let _ = writeln!(out, "{name} = {value}");
    };
    if !config.listen.is_empty() {
        key("listen", list(&config.listen));
    }
    if !config.listen_tls.is_empty() {
        key("listen_tls", list(&config.listen_tls));
    }
    config.settings.iter().for_each(|(name, value)| key(name, value.clone()));
    let top = config.default.as_ref();
    if let Some(site) = top {
        if !config.sites.is_empty() {
            let hosts = site.hosts.join(", ");
            let and = if hosts.is_empty() { "Every" } else { ", and every" };
            let _ = write!(out, "\n# {hosts}{and} host that no [[site]] has.\n");
        }
        site_keys(&mut out, site, None);
    }
    if !config.types.is_empty() {
        out.push_str("\n[types]\n");
        for (extension, kind) in &config.types {
            let _ = writeln!(out, "{} = {}", text(extension), text(kind));
        }
    }
    if let Some(site) = top {
        site.rules.iter().for_each(|each| rule(&mut out, each, "rule"));
        site.routes.iter().for_each(|each| route(&mut out, each, "route"));
    }
    for site in &config.sites {
        let _ = write!(out, "\n[[site]]\nhosts = {}\n", list(&site.hosts));
        site_keys(&mut out, site, top);
        site.rules.iter().for_each(|each| rule(&mut out, each, "site.rule"));
        site.routes.iter().for_each(|each| route(&mut out, each, "site.route"));
    }
    out
}

/// The keys of a site. It has those of the default site if it does not have its own.
fn site_keys(out: &mut String, site: &Site, top: Option<&Site>) {
    let mut key = |name: &str, value: String| {
        let _ = writeln!(out, "{name} = {value}");
    };
    if let Some(root) = &site.root {
        key("root", text(root));
    }
    let names = |site: &Site| if site.index.is_empty() { vec![INDEX.to_owned()] } else { site.index.clone() };
    let default = top.map_or_else(|| vec![INDEX.to_owned()], names);
    if names(site) != default {
        key("index", list(&names(site)));
    }
    if site.browse != top.is_some_and(|top| top.browse) {
        key("browse", site.browse.to_string());
    }
    let compressed = |site: &Site| site.precompressed.unwrap_or(true);
    if compressed(site) != top.is_none_or(compressed) {
        key("precompressed", compressed(site).to_string());
    }
    if site.compress != top.is_some_and(|top| top.compress) {
        key("compress", site.compress.to_string());
    }
    if !site.certificates.is_empty() {
        key("certificate", list(&site.certificates));
        key("certificate_key", list(&site.keys));
    }
    if !site.ocsp.is_empty() {
        key("ocsp", list(&site.ocsp));
    }
    if site.hsts.as_ref() != top.and_then(|top| top.hsts.as_ref()) {
        key("hsts", text(site.hsts.as_deref().unwrap_or("off")));
    }
    if site.https_redirect != top.and_then(|top| top.https_redirect) {
        key(
            "https_redirect",
            text(&site.https_redirect.map_or_else(|| "off".to_owned(), |it| it.to_string())),
        );
    }
}

fn fields(fields: &Fields) -> String {
    let value = |values: &[String]| if let [value] = values { text(value) } else { list(values) };
    let each: Vec<String> =
        fields.iter().map(|(name, values)| format!("{} = {}", text(name), value(values))).collect();
    format!("{{ {} }}", each.join(", "))
}

fn rule(out: &mut String, rule: &Rule, table: &str) {
    let _ = write!(out, "\n[[{table}]]\n");
    let mut key = |name: &str, value: String| {
        let _ = writeln!(out, "{name} = {value}");
    };
    if rule.path != "*" {
        key("path", text(&rule.path));
    }
    for (name, values) in
        [("except", &rule.except), ("allow", &rule.allow), ("deny", &rule.deny), ("remove", &rule.remove)]
    {
        if !values.is_empty() {
            key(name, list(values));
        }
    }
    if let Some(file) = &rule.users {
        key("users", text(file));
    }
    if let Some(path) = &rule.auth {
        key("auth", text(path));
    }
    if !rule.auth_fields.is_empty() {
        key("auth_fields", list(&rule.auth_fields));
    }
    if let Some((rate, burst)) = &rule.rate {
        key("rate", text(rate));
        key("burst", burst.to_string());
    }
    if let Some(rate) = &rule.total_rate {
        key("total_rate", text(rate));
    }
    for (name, most) in [("concurrency", rule.concurrency), ("total_concurrency", rule.total_concurrency)] {
        if let Some(most) = most {
            key(name, most.to_string());
        }
    }
    for (name, values) in [("set", &rule.set), ("add", &rule.add)] {
        if !values.is_empty() {
            key(name, fields(values));
        }
    }
    if rule.errors {
        key("errors", "true".to_owned());
    }
    if let Some((target, status)) = &rule.redirect {
        key("redirect", text(target));
        key("status", status.to_string());
    }
    if !rule.try_extensions.is_empty() {
        key("try_extensions", list(&rule.try_extensions));
    }
    for (name, value) in [
        ("rewrite", &rule.rewrite),
        ("fallback", &rule.fallback),
        ("alias", &rule.alias),
        ("error_page", &rule.error_page),
    ] {
        if let Some(value) = value {
            key(name, text(value));
        }
    }
    if !rule.statuses.is_empty() {
        key("statuses", format!("{:?}", rule.statuses));
    }
}

fn route(out: &mut String, route: &Route, table: &str) {
    let _ = write!(out, "\n[[{table}]]\n{} = {}\n", route.paths.0, text(&route.paths.1));
    let servers = if let [server] = &route.servers[..] { text(server) } else { list(&route.servers) };
    let _ = writeln!(out, "{} = {servers}", route.protocol);
    if !route.weights.is_empty() {
        let _ = writeln!(out, "weights = {:?}", route.weights);
    }
    for (name, value) in &route.settings {
        let _ = writeln!(out, "{name} = {value}");
    }
}
