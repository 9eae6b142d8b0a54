//! Writes the configuration as TOML. The notes are its head.

use std::fmt::{Display, Write as _};

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
    let values: Vec<String> = values.iter().map(|value| text(value.as_ref())).collect();
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
    let mut keys = Keys(&mut out);
    keys.list("listen", &config.listen);
    keys.list("listen_tls", &config.listen_tls);
    config.settings.iter().for_each(|(name, value)| keys.put(name, value));
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

/// The keys of a table.
struct Keys<'o>(&'o mut String);

impl Keys<'_> {
    /// A key whose value is TOML already.
    fn put(&mut self, name: &str, value: impl Display) {
        let _ = writeln!(self.0, "{name} = {value}");
    }

    fn text(&mut self, name: &str, value: Option<&String>) {
        value.into_iter().for_each(|value| self.put(name, text(value)));
    }

    fn number(&mut self, name: &str, value: Option<u64>) {
        value.into_iter().for_each(|value| self.put(name, value));
    }

    /// A list, unless it is empty.
    fn list(&mut self, name: &str, values: &[String]) {
        if !values.is_empty() {
            self.put(name, list(values));
        }
    }

    /// A setting of a site, unless the default site has the same.
    fn other<T: Display + PartialEq>(
        &mut self,
        name: &str,
        [site, top]: [&Site; 2],
        value: impl Fn(&Site) -> T,
    ) {
        let own = value(site);
        if own != value(top) {
            self.put(name, own);
        }
    }

    /// Fields of heads, unless there are none.
    fn fields(&mut self, name: &str, fields: &Fields) {
        let value = |values: &[String]| if let [value] = values { text(value) } else { list(values) };
        let each: Vec<String> =
            fields.iter().map(|(name, values)| format!("{} = {}", text(name), value(values))).collect();
        if !each.is_empty() {
            self.put(name, format!("{{ {} }}", each.join(", ")));
        }
    }
}

/// The keys of a site. It has those of the default site if it does not have its own.
fn site_keys(out: &mut String, site: &Site, top: Option<&Site>) {
    // Without a default site, the others have Flash's own defaults.
    let none = Site::default();
    let both = [site, top.unwrap_or(&none)];
    let mut keys = Keys(out);
    keys.text("root", site.root.as_ref());
    keys.other("index", both, |site| if site.index.is_empty() { list(&[INDEX]) } else { list(&site.index) });
    keys.other("browse", both, |site| site.browse);
    keys.other("precompressed", both, |site| site.precompressed.unwrap_or(true));
    keys.other("compress", both, |site| site.compress);
    keys.list("certificate", &site.certificates);
    if !site.certificates.is_empty() {
        keys.put("certificate_key", list(&site.keys));
    }
    keys.list("ocsp", &site.ocsp);
    keys.other("hsts", both, |site| text(site.hsts.as_deref().unwrap_or("off")));
    let status = |site: &Site| site.https_redirect.map_or("off".to_owned(), |status| status.to_string());
    keys.other("https_redirect", both, |site| text(&status(site)));
}

fn rule(out: &mut String, rule: &Rule, table: &str) {
    let _ = write!(out, "\n[[{table}]]\n");
    let mut keys = Keys(out);
    keys.text("path", Some(&rule.path).filter(|path| *path != "*"));
    keys.list("except", &rule.except);
    keys.list("allow", &rule.allow);
    keys.list("deny", &rule.deny);
    keys.list("remove", &rule.remove);
    keys.text("users", rule.users.as_ref());
    keys.text("auth", rule.auth.as_ref());
    keys.list("auth_fields", &rule.auth_fields);
    if let Some((rate, burst)) = &rule.rate {
        keys.put("rate", text(rate));
        keys.put("burst", burst);
    }
    keys.text("total_rate", rule.total_rate.as_ref());
    keys.number("concurrency", rule.concurrency);
    keys.number("total_concurrency", rule.total_concurrency);
    keys.fields("set", &rule.set);
    keys.fields("add", &rule.add);
    if rule.errors {
        keys.put("errors", true);
    }
    if let Some((target, status)) = &rule.redirect {
        keys.put("redirect", text(target));
        keys.put("status", status);
    }
    keys.list("try_extensions", &rule.try_extensions);
    keys.text("rewrite", rule.rewrite.as_ref());
    keys.text("fallback", rule.fallback.as_ref());
    keys.text("alias", rule.alias.as_ref());
    keys.text("error_page", rule.error_page.as_ref());
    if !rule.statuses.is_empty() {
        keys.put("statuses", format_args!("{:?}", rule.statuses));
    }
}

fn route(out: &mut String, route: &Route, table: &str) {
    let _ = write!(out, "\n[[{table}]]\n");
    let mut keys = Keys(out);
    keys.put(route.paths.0, text(&route.paths.1));
    let servers = if let [server] = &route.servers[..] { text(server) } else { list(&route.servers) };
    keys.put(route.protocol, servers);
    if !route.weights.is_empty() {
        keys.put("weights", format_args!("{:?}", route.weights));
    }
    route.settings.iter().for_each(|(name, value)| keys.put(name, value));
}
