//! Settings as a config file, for `flash check --print`.
//!
//! The file leads to the same settings again. A setting that has its default value is a comment, because Flash refuses a
//! setting that has no effect with the others. It must not read anything but users, to name them.

use std::ffi::OsStr;

use toml::Value;

use super::architecture;
use super::error::NotUtf8;
use super::kind::{Kind, Unit};
use super::options::{OPTIONS, Overrides, Settings, Site, Spec};
use super::route_options::{ROUTE_OPTIONS, Route, by};
use super::rule_options::{RULE_OPTIONS, Rule};

impl Settings {
    /// The config file.
    ///
    /// # Errors
    ///
    /// A path is not UTF-8.
    pub fn to_config_file(&self) -> Result<String, NotUtf8> {
        let mut text = String::new();
        for spec in OPTIONS.iter().filter(|spec| spec.is_in_file()) {
            let Some(items) = spec.show(self)? else { continue };
            let is_default = is_default(spec, &items);
            if is_default || architecture::refuses(self.architecture, spec.key).is_none() {
                text +=
                    &format!("{}{}", if is_default { "#" } else { "" }, line(spec.key, spec.kind, &items));
            }
        }
        let is_default_site = |site: &&Site| site.hosts.is_empty();
        for site in self.sites.iter().filter(is_default_site) {
            text += &tables_of(site, "")?;
        }
        if !self.types.is_empty() {
            text += "\n[types]\n";
            for (name, content_type) in &self.types {
                text += &format!("{} = {}\n", quoted(name), quoted(content_type));
            }
        }
        for site in self.sites.iter().filter(|site| !is_default_site(site)) {
            text += &format!("\n[[site]]\nhosts = {}\n", list(site.hosts.iter().map(|host| quoted(host))));
            for spec in OPTIONS {
                let Some(field) = spec.of_site() else { continue };
                // Without its own log, a site has that of the server.
                if spec.key != "log_file" || site.log_output != self.log_output {
                    let items = (field.show)(site, spec.kind)?.unwrap_or_default();
                    text += &line(spec.key, spec.kind, &items);
                }
            }
            text += &tables_of(site, "site.")?;
        }
        Ok(text)
    }
}

fn tables_of(site: &Site, parent: &str) -> Result<String, NotUtf8> {
    let mut text = String::new();
    for rule in &site.rules {
        text += &format!("\n[[{parent}rule]]\n{}", lines_of_rule(rule)?);
    }
    for route in &site.routes {
        text += &format!("\n[[{parent}route]]\n{}", lines_of(route)?);
    }
    Ok(text)
}

/// The keys of a rule, except those that have no effect.
fn lines_of_rule(rule: &Rule) -> Result<String, NotUtf8> {
    let mut text = String::new();
    for spec in RULE_OPTIONS {
        let show = |rule| Ok((spec.target.show)(rule, spec.kind)?.unwrap_or_default());
        let items = show(rule)?;
        let has_effect = match spec.key {
            "path" | "hashed" => true,
            "status" => rule.redirect.is_some(),
            _ => items != show(&Rule::default())?,
        };
        if has_effect {
            text += &line(spec.key, spec.kind, &items);
        }
    }
    Ok(text)
}

fn lines_of(route: &Route) -> Result<String, NotUtf8> {
    let mut text = String::new();
    for spec in ROUTE_OPTIONS.iter().filter(|spec| spec.applies(by(route))) {
        // No list of a route is empty: then the route does not have the key.
        if let Some(items) = (spec.target.show)(route, spec.kind)?.filter(|items| !items.is_empty()) {
            text += &line(spec.key, spec.kind, &items);
        }
    }
    Ok(text)
}

/// Whether these values are the default of the table.
fn is_default(spec: &Spec, items: &[String]) -> bool {
    let (mut default, mut set) = (Overrides::default(), Overrides::default());
    spec.set_default(&mut default);
    let items: Vec<&OsStr> = items.iter().map(OsStr::new).collect();
    let is_set = spec.set(&mut set, &items, super::Origin::Default).is_ok();
    is_set && set == default
}

/// An option as the file has it.
fn line(key: &str, kind: Kind, items: &[String]) -> String {
    let is_plain = match kind {
        Kind::Switch | Kind::AutoSwitch => true,
        Kind::Number(bounds) | Kind::Numbers(bounds) => bounds.unit == Unit::Count,
        _ => false,
    };
    let mut values = items.iter().map(|item| if is_plain { item.clone() } else { quoted(item) });
    if kind == Kind::Fields {
        return format!("{key} = {{ {} }}\n", fields(items));
    }
    let is_list = kind.is_list() || matches!(kind, Kind::Servers | Kind::Command);
    let value = if is_list { list(values) } else { values.next().unwrap_or_default() };
    format!("{key} = {value}\n")
}

/// Fields, each name with a list of its values.
fn fields(items: &[String]) -> String {
    let mut names: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, value) in items.iter().filter_map(|item| item.split_once(": ")) {
        match names.iter_mut().find(|(other, _)| *other == name) {
            Some((_, values)) => values.push(value),
            None => names.push((name, vec![value])),
        }
    }
    let field = |(name, values): &(&str, Vec<&str>)| {
        let value = if let [value] = values[..] {
            quoted(value)
        } else {
            list(values.iter().map(|value| quoted(value)))
        };
        format!("{} = {value}", quoted(name))
    };
    names.iter().map(field).collect::<Vec<_>>().join(", ")
}

fn list(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(", "))
}

fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}
