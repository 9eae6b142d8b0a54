//! Settings as a config file, for `flash check --print`.
//!
//! The file leads to the same settings again. A setting that has its default value is a comment, because Flash refuses a
//! setting that has no effect with the others. It must not read anything but users, to name them.

use std::ffi::OsStr;

use toml::Value;

use super::architecture;
use super::error::NotUtf8;
use super::kind::{Kind, Unit};
use super::options::{OPTIONS, Overrides, Settings, Site, Spec, Target};
use super::route_options::{ROUTE_OPTIONS, Route, by};

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
        for route in self.sites.iter().filter(is_default_site).flat_map(|site| &site.routes) {
            text += &format!("\n[[route]]\n{}", lines_of(route)?);
        }
        if !self.types.is_empty() {
            text += "\n[types]\n";
            for (extension, content_type) in &self.types {
                text += &format!("{} = {}\n", quoted(extension), quoted(content_type));
            }
        }
        for site in self.sites.iter().filter(|site| !is_default_site(site)) {
            text += &format!("\n[[site]]\nhosts = {}\n", list(site.hosts.iter().map(|host| quoted(host))));
            for spec in OPTIONS {
                if let Target::Site(field) = &spec.target {
                    let items = (field.show)(site, spec.kind)?.unwrap_or_default();
                    text += &line(spec.key, spec.kind, &items);
                }
            }
            for route in &site.routes {
                text += &format!("\n[[site.route]]\n{}", lines_of(route)?);
            }
        }
        Ok(text)
    }
}

/// The keys of a route.
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
    let is_list = kind.is_list() || matches!(kind, Kind::Servers | Kind::Command);
    let value = if is_list { list(values) } else { values.next().unwrap_or_default() };
    format!("{key} = {value}\n")
}

fn list(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(", "))
}

fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}
