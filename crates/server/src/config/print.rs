//! Settings as a config file, for `flash check --print`.
//!
//! The file leads to the same settings again. A setting that has its default value is a comment, because Flash refuses a
//! setting that has no effect with the others. It must not read anything but users, to name them.

use std::ffi::OsStr;
use std::fmt::Write;
use std::path::Path;

use flash_units::{duration_text, rate_text, size_text};
use flash_waiting::account;
use toml::Value;

use super::choices::{Architecture, Choice};
use super::file::{program_numbers, route_numbers};
use super::memory::CacheMemory;
use super::options::{DefaultValue, OPTIONS, Origin, Overrides, Spec};
use super::programs::{Program, Runs};
use super::routes::{Protocol, Route, RoutePaths};
use super::run_as::RunAs;
use super::settings::{ControlSocket, Settings, Site};
use super::values::Kind;

/// A path that is not UTF-8, which TOML cannot hold.
#[derive(Debug, PartialEq, Eq)]
pub struct NotUtf8(
    /// The path, as far as it can be shown.
    pub String,
);

/// The values of an option as the command line has them; none to leave it out.
type Items = Option<Vec<String>>;

impl Settings {
    /// The config file.
    ///
    /// # Errors
    ///
    /// A path is not UTF-8.
    pub fn to_config_file(&self) -> Result<String, NotUtf8> {
        let mut text = String::new();
        for spec in OPTIONS.iter().filter(|spec| spec.is_in_file()) {
            if let Some(items) = self.items(spec.key)? {
                let comment = if is_default(spec, &items) { "#" } else { "" };
                text += &format!("{comment}{} = {}\n", spec.key, in_file(spec.kind, items));
            }
        }
        let is_default_site = |site: &&Site| site.hosts.is_empty();
        for route in self.sites.iter().filter(is_default_site).flat_map(|site| &site.routes) {
            text += &format!("\n[[route]]\n{}", keys_of(route)?);
        }
        if !self.types.is_empty() {
            text += "\n[types]\n";
            for (extension, content_type) in &self.types {
                text += &format!("{} = {}\n", quoted(extension), quoted(content_type));
            }
        }
        for site in self.sites.iter().filter(|site| !is_default_site(site)) {
            let hosts = in_file(Kind::FileNames, site.hosts.clone());
            text += &format!("\n[[site]]\nhosts = {hosts}\n");
            for spec in OPTIONS.iter().filter(|spec| spec.is_of_site()) {
                let items = of_site(site, spec.key)?.unwrap_or_default();
                text += &format!("{} = {}\n", spec.key, in_file(spec.kind, items));
            }
            for route in &site.routes {
                text += &format!("\n[[site.route]]\n{}", keys_of(route)?);
            }
        }
        Ok(text)
    }

    /// The values of an option of the whole server.
    fn items(&self, key: &str) -> Result<Items, NotUtf8> {
        let by_default = self.sites.first().filter(|site| site.hosts.is_empty());
        let path = |path: Option<&Path>| path.map(utf8).transpose();
        Ok(match key {
            "root" | "index" | "browse" | "precompressed" | "encoded_slash" => {
                by_default.map(|site| of_site(site, key)).transpose()?.flatten()
            }
            "cache_list" => one(path(self.cache_list.as_deref())?.unwrap_or_else(|| "off".to_owned())),
            "spool" => one(path(self.spool.folder.as_deref())?.unwrap_or_else(|| "off".to_owned())),
            "log_file" => path(self.log.file.as_deref())?.and_then(one),
            "control" => match &self.control {
                ControlSocket::Default => None,
                ControlSocket::Off => one("none"),
                ControlSocket::At(socket) => one(utf8(socket)?),
            },
            _ => self.resource(key).or_else(|| self.limit(key)),
        })
    }

    /// The values of an option about processes, memory and rights.
    fn resource(&self, key: &str) -> Items {
        let is_on = |is_on: bool| one(is_on.to_string());
        let Settings { optimizations, architecture, .. } = self;
        match key {
            "workers" if *architecture != Architecture::Mp => one(self.workers.to_string()),
            "helpers_max" => one(self.helpers_max.to_string()),
            "helper_idle" => one(duration_text(self.helper_idle_ms)),
            "cache_memory" => one(match self.cache_memory {
                CacheMemory::Auto { .. } => "auto".to_owned(),
                CacheMemory::Fixed { asked_bytes, .. } => size_text(asked_bytes),
            }),
            "spool_max" => one(size_text(self.spool.bytes_max)),
            "architecture" => one(architecture.word()),
            "processes" => one(self.processes.to_string()),
            "threads" => one(self.threads.to_string()),
            "event_mechanism" => one(self.event_mechanism.word()),
            "helpers" => one(self.helpers.word()),
            "name_cache" => is_on(optimizations.name_cache),
            "head_cache" => is_on(optimizations.head_cache),
            // A store of size 0 is off.
            "content_cache" => is_on(true),
            "send" => one(optimizations.send.word()),
            "align_heads" => is_on(optimizations.align_heads),
            "open_in_loop" => is_on(optimizations.open_in_loop),
            "residency_check" => is_on(optimizations.residency_check),
            "user" => self.run_as.as_ref().and_then(|run_as| one(user(run_as))),
            "cap_fowner" => is_on(self.cap_fowner),
            "sandbox" => one(self.sandbox.word()),
            "log_format" => one(self.log.format.word()),
            _ => None,
        }
    }

    /// The values of an option about the network, and of limits.
    fn limit(&self, key: &str) -> Items {
        let Settings { schedule, admission, .. } = self;
        let has_loop = matches!(self.architecture, Architecture::Amped | Architecture::Sped);
        match key {
            "etag" => one(self.etag.word()),
            "freshness" => one(duration_text(self.freshness_ms)),
            "stale" => one(duration_text(self.stale_ms)),
            "listen" => Some(self.listen.iter().map(ToString::to_string).collect()),
            "connections" => one(self.connections_max.to_string()),
            "client_connections" if has_loop => one(admission.client_connections_max.to_string()),
            "client_exempt" => Some(admission.client_exempt.iter().map(ToString::to_string).collect()),
            "accept_wait" => one(duration_text(admission.accept_wait_ms)),
            "schedule" => one(schedule.policy.word()),
            "srpt_cutoffs" if !schedule.cutoffs.is_empty() => {
                Some(schedule.cutoffs.iter().map(|cutoff| size_text(*cutoff)).collect())
            }
            "srpt_dscp" => one(schedule.dscp.to_string()),
            "cwnd_cap" => one(size_text(schedule.cwnd_cap_bytes)),
            "egress" => one(rate_text(schedule.egress_bits_per_s)),
            "head_timeout" => one(duration_text(self.head_timeout_ms)),
            "idle_timeout" => one(duration_text(self.idle_timeout_ms)),
            "least_rate" => one(size_text(self.least_rate_bytes_per_s)),
            "body_least_rate" => one(size_text(self.body_least_rate_bytes_per_s)),
            "body_timeout" => one(duration_text(self.body_timeout_ms)),
            "job_deadline" => one(duration_text(self.job_deadline_ms)),
            "queue_wait" => one(duration_text(self.queue_wait_ms)),
            "shutdown_timeout" => one(duration_text(self.shutdown_timeout_ms)),
            "reload_timeout" => one(duration_text(self.reload_timeout_ms)),
            "listing_entries" => one(self.listing_entries_max.to_string()),
            _ => None,
        }
    }
}

/// The keys of a route.
fn keys_of(route: &Route) -> Result<String, NotUtf8> {
    let (key, paths) = match &route.paths {
        RoutePaths::Prefix(prefix) => ("prefix", prefix),
        RoutePaths::Extension(extension) => ("extension", extension),
    };
    let mut text = format!("{key} = {}\n", quoted(paths));
    let by = match (&route.program, route.protocol) {
        (Some(Program { runs: Runs::App(_), .. }), _) => "app",
        (Some(Program { runs: Runs::Cgi(_), .. }), _) => "cgi",
        (None, Protocol::Http) => "proxy",
        (None, Protocol::FastCgi) => "fastcgi",
    };
    let servers = match route.program.as_ref().map(|program| &program.runs) {
        Some(Runs::App(words)) => in_file(Kind::FileNames, words.clone()),
        Some(Runs::Cgi(folder)) => quoted(&utf8(folder)?),
        None => in_file(Kind::FileNames, route.servers.iter().map(ToString::to_string).collect()),
    };
    let mut line = |key: &str, value: &str| {
        // Writing to a string never fails.
        let _ = writeln!(text, "{key} = {value}");
    };
    line(by, &servers);
    if !route.weights.is_empty() {
        line("weights", &format!("{:?}", route.weights));
    }
    for (key, kind, value) in route_numbers(by, route) {
        line(key, &number(kind, value));
    }
    line("stream_bodies", &route.stream_bodies.to_string());
    if let Some(probe) = &route.probe {
        line("probe", &quoted(&probe.target));
        line("probe_interval", &quoted(&duration_text(probe.interval_ms)));
    }
    if let Some(program) = &route.program {
        for (key, kind, value) in program_numbers(by, program) {
            line(key, &number(kind, value));
        }
        if program.authorization {
            line("authorization", "true");
        }
        if let Some(run_as) = &program.run_as {
            line("user", &quoted(&user(run_as)));
        }
    }
    Ok(text)
}

/// The values of an option of a site.
fn of_site(site: &Site, key: &str) -> Result<Items, NotUtf8> {
    Ok(match key {
        "root" => one(utf8(&site.root)?),
        "index" => Some(site.index.clone()),
        "browse" => one(site.browse.to_string()),
        "precompressed" => one(site.precompressed.to_string()),
        "encoded_slash" => one(site.encoded_slash.word()),
        _ => None,
    })
}

fn one(item: impl Into<String>) -> Items {
    Some(vec![item.into()])
}

fn utf8(path: &Path) -> Result<String, NotUtf8> {
    path.to_str().map(ToOwned::to_owned).ok_or_else(|| NotUtf8(path.display().to_string()))
}

/// A user as a setting: its name, if that leads to the same groups.
fn user(run_as: &RunAs) -> String {
    let leads = |name: &str| account::find(name, None).is_ok_and(|found| found == run_as.account());
    let RunAs { name, uid, gid, .. } = run_as;
    match () {
        () if leads(name) => name.clone(),
        () if account::find(name, None).is_ok() => format!("{name}:{gid}"),
        () => format!("{uid}:{gid}"),
    }
}

/// Whether these values are the default of the table.
fn is_default(spec: &Spec, items: &[String]) -> bool {
    let DefaultValue::Text(default) = spec.default else { return false };
    let set = |items: &[&OsStr]| {
        let mut set = Overrides::default();
        spec.set(&mut set, items, Origin::Default).ok().map(|()| set)
    };
    let items: Vec<&OsStr> = items.iter().map(OsStr::new).collect();
    set(&[OsStr::new(default)]) == set(&items)
}

/// The values of an option as the file has them.
fn in_file(kind: Kind, items: Vec<String>) -> String {
    match kind {
        _ if kind.is_list() => Value::Array(items.into_iter().map(Value::String).collect()).to_string(),
        Kind::Switch | Kind::AutoSwitch | Kind::Count { .. } => items.concat(),
        _ => quoted(&items.concat()),
    }
}

fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

/// A number of a route or of its program.
fn number(kind: Kind, value: u64) -> String {
    match kind {
        Kind::Duration { .. } => quoted(&duration_text(value)),
        Kind::MemorySize { .. } | Kind::Size { .. } => quoted(&size_text(value)),
        _ => value.to_string(),
    }
}
