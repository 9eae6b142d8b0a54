//! The directives that Flash has once for all sites: they are collected from all blocks.

use std::collections::BTreeMap;

use super::route::Upstream;
use super::units;
use crate::directive::Directive;
use crate::files::Files;
use crate::notes::{Notes, Position};
use crate::{toml, values};

/// A zone in which requests are counted.
#[derive(Clone, Debug)]
pub(super) struct Zone {
    /// Whether each client has a count of its own; otherwise all have one together.
    pub(super) is_of_client: bool,
    pub(super) rate: String,
}

/// The settings of the whole server so far.
#[derive(Debug, Default)]
pub(super) struct Global {
    pub(super) settings: BTreeMap<&'static str, String>,
    pub(super) types: BTreeMap<String, String>,
    pub(super) upstreams: Vec<Upstream>,
    pub(super) charset: Option<String>,
    /// The zones of `limit_req`, by their names.
    pub(super) zones: BTreeMap<String, Zone>,
    /// The zones of `limit_conn`, and whether they count each client apart.
    pub(super) conn_zones: BTreeMap<String, bool>,
    proxies: Vec<String>,
    /// The field of `real_ip_header`, and where it is.
    field: Option<(String, Position)>,
    /// Where connections begin with the PROXY protocol.
    pub(super) introduced: Option<Position>,
    /// The first access log, or none.
    log: Option<Option<(String, String)>>,
}

impl Global {
    /// Takes a directive, or leaves it.
    pub(super) fn take(&mut self, directive: &Directive, notes: &mut Notes, files: &Files) -> bool {
        let first = directive.first();
        match directive.name.as_str() {
            "user" => {
                let group = directive.args.get(1).map_or(String::new(), |group| format!(":{group}"));
                self.put("user", toml::text(&format!("{first}{group}")), directive, notes);
            }
            "worker_processes" => {
                if let Ok(number @ 1..=256) = first.parse::<u64>() {
                    self.put("workers", number.to_string(), directive, notes);
                }
            }
            "worker_connections" => {
                if let Ok(number @ 1..=1_000_000) = first.parse::<u64>() {
                    self.put("connections", number.to_string(), directive, notes);
                }
            }
            "keepalive_timeout" => match units::seconds(first) {
                Some(0) => notes.lost(directive, "Flash keeps connections open"),
                time => {
                    let time = time.map(|seconds| values::duration(seconds.min(86_400)));
                    time.into_iter().for_each(|time| self.put("idle_timeout", time, directive, notes));
                }
            },
            "client_header_timeout" => {
                let time = units::seconds(first).map(|seconds| values::duration(seconds.clamp(1, 3_600)));
                time.into_iter().for_each(|time| self.put("head_timeout", time, directive, notes));
            }
            "charset" => self.take_charset(directive, notes),
            "http2" if first == "off" => self.put("http2", "false".to_owned(), directive, notes),
            "http2" => {}
            "types" => self.take_types(directive, notes),
            "set_real_ip_from" => match values::network(first) {
                Some(network) if !self.proxies.contains(&network) => self.proxies.push(network),
                None if first != "unix:" => {
                    notes.lost(directive, "Flash takes networks");
                }
                _ => {}
            },
            "limit_req_zone" | "limit_conn_zone" => self.take_zone(directive, notes),
            "real_ip_header" => self.field = Some((first.to_owned(), directive.position.clone())),
            "access_log" => self.take_log(directive, notes, files),
            _ => return false,
        }
        true
    }

    fn put(&mut self, key: &'static str, value: String, directive: &Directive, notes: &mut Notes) {
        let is_other = self.settings.get(key).is_some_and(|earlier| *earlier != value);
        if is_other {
            notes.lost(
                directive,
                &format!("Flash has one `{key}` for all sites, and an earlier line sets it"),
            );
        } else {
            self.settings.insert(key, value);
        }
    }

    fn take_zone(&mut self, directive: &Directive, notes: &mut Notes) {
        let of = |name: &str| directive.args.iter().find_map(|word| word.strip_prefix(name));
        let name = of("zone=").and_then(|zone| zone.split(':').next());
        let rate = of("rate=").and_then(|rate| {
            let (number, unit) = rate.split_once("r/")?;
            let fits = number.parse().is_ok_and(|number: u32| (1..=1_000_000).contains(&number));
            (fits && ["s", "m"].contains(&unit)).then(|| format!("{number}/{unit}"))
        });
        let is_of_client = match directive.first() {
            "$binary_remote_addr" | "$remote_addr" => Some(true),
            "$server_name" | "$host" | "$http_host" => Some(false),
            _ => None,
        };
        match (name, rate, is_of_client) {
            (Some(name), _, Some(is_of_client)) if directive.name == "limit_conn_zone" => {
                self.conn_zones.insert(name.to_owned(), is_of_client);
            }
            (Some(name), Some(rate), Some(is_of_client)) => {
                self.zones.insert(name.to_owned(), Zone { is_of_client, rate });
            }
            _ => {
                let why = "Flash counts requests of clients, by their addresses, or of all together";
                notes.lost(directive, why);
            }
        }
    }

    fn take_charset(&mut self, directive: &Directive, notes: &mut Notes) {
        let name = directive.first().to_ascii_lowercase();
        let is_name = !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:+".contains(&byte));
        match &self.charset {
            _ if !is_name || name.len() > 40 => {
                notes.lost(directive, "is no name of a character set");
            }
            Some(earlier) if *earlier != name => {
                notes.lost(directive, &format!("Flash has one `charset` for all sites, {earlier}"));
            }
            _ => self.charset = Some(name),
        }
    }

    fn take_types(&mut self, directive: &Directive, notes: &mut Notes) {
        for entry in directive.inner() {
            let is_type =
                entry.name.split_once('/').is_some_and(|(main, sub)| !main.is_empty() && !sub.is_empty())
                    && entry.name.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
            for extension in &entry.args {
                let extension = extension.to_ascii_lowercase();
                let fits = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b'.';
                let is_extension = (1..=32).contains(&extension.len()) && extension.bytes().all(fits);
                let earlier = self.types.get(&extension);
                if !is_type || !is_extension {
                    notes.lost(entry, "Flash takes no such type or extension");
                } else if earlier.is_some_and(|earlier| *earlier != entry.name) {
                    notes.lost(entry, &format!(".{extension} has another type above"));
                } else {
                    self.types.insert(extension, entry.name.clone());
                }
            }
        }
    }

    fn take_log(&mut self, directive: &Directive, notes: &mut Notes, files: &Files) {
        let path = directive.first();
        let mut lose = |why: &str| notes.lost(directive, why);
        if path.starts_with("syslog:") || path.contains('$') {
            return lose("Flash writes one log to a file or to standard output");
        }
        let path = if path == "/dev/stdout" { "-".to_owned() } else { files.absolute(path) };
        let format =
            directive.args.get(1).filter(|word| !word.contains('=')).map_or("combined", String::as_str);
        if directive.args.iter().any(|word| word.starts_with("if=")) {
            lose("Flash logs all requests");
        }
        let log = (directive.first() != "off").then(|| (path, format.to_owned()));
        match &self.log {
            None => {
                if let Some((_, format)) = log.as_ref().filter(|(_, format)| format != "combined") {
                    lose(&format!("the format `{format}` becomes combined; Flash also has json"));
                }
                self.log = Some(log);
            }
            Some(earlier) if *earlier != log => {
                lose("Flash has one log of all requests, which an earlier line sets");
            }
            Some(_) => {}
        }
    }

    /// The settings, once all blocks are read. `sites` is the number of sites with names.
    pub(super) fn finish(
        mut self,
        sites: usize,
        notes: &mut Notes,
    ) -> (BTreeMap<&'static str, String>, BTreeMap<String, String>) {
        let charset = self.charset.take().unwrap_or_else(|| "off".to_owned());
        if charset != "utf-8" {
            self.settings.insert("charset", toml::text(&charset));
        }
        if let Some(Some((path, _))) = &self.log {
            self.settings.insert("log_file", toml::text(path));
            let format = if sites == 0 { "combined" } else { "combined_host" };
            self.settings.insert("log_format", toml::text(format));
        }
        self.finish_proxies(notes);
        (self.settings, self.types)
    }

    fn finish_proxies(&mut self, notes: &mut Notes) {
        let mut field = self.field.take();
        if let Some(position) = &self.introduced {
            if self.proxies.is_empty() {
                let why = "`proxy_protocol`: name the proxies in Flash's `proxy_protocol`; nginx takes it from everybody";
                notes.add(position, why);
            } else {
                self.settings.insert("proxy_protocol", toml::list(&self.proxies));
            }
            field = field.filter(|(name, _)| name != "proxy_protocol");
        }
        match field {
            _ if self.proxies.is_empty() => {}
            Some((name, _)) if name.eq_ignore_ascii_case("x-forwarded-for") => {
                self.settings.insert("trusted_proxies", toml::list(&self.proxies));
            }
            Some((name, position)) => {
                let why =
                    format!("`real_ip_header {name}`: Flash takes clients from X-Forwarded-For or Forwarded");
                notes.add(&position, why);
            }
            None => {}
        }
    }
}
