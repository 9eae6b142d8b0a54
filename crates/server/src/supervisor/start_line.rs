//! The start line: the served folder, the URLs, the number of workers, the user, the sandbox, and how reads avoid waiting.

use super::generation::Generation;
use super::sockets::Sockets;
use crate::config::architecture;
use crate::config::{BackendSettings, SandboxMode, Service, Settings};
use flash_worker::control::InForce;

/// The line of a configuration whose workers are ready.
pub(super) fn text(generation: &Generation) -> String {
    let Generation { settings, sockets, roots, residency, .. } = generation;
    let in_force = generation.in_force();
    if let Service::Backend(backend) = &settings.service {
        return backend_text(settings, backend, sockets, in_force);
    }
    let urls: Vec<String> = sockets.urls().collect();
    let what = match settings.sites.as_slice() {
        [site] => site.root.display().to_string(),
        sites => format!("{} sites", sites.len()),
    };
    let crew = architecture::crew(settings);
    let reads = architecture::reads(settings, residency);
    let others = match roots.others_len() {
        0 => String::new(),
        others => format!("; {others} of the roots on file systems that may hang"),
    };
    let names = names(generation);
    let user = user(settings);
    let fowner = fowner(settings);
    let sandbox = sandbox(settings, in_force);
    format!(
        "flash {} serves {what} at {}; {crew}{user}{fowner}; sandbox: {sandbox}; reads: {reads}{names}{others}",
        env!("CARGO_PKG_VERSION"),
        urls.join(" ")
    )
}

/// How changes of files are noticed: by events, or by a check after each freshness. The directories are found later, so their
/// number is in `flash stats`.
fn names(generation: &Generation) -> String {
    let settings = &generation.settings;
    let why = match generation.roots.reporting_len() {
        _ if settings.freshness_ms == 0 => {
            return "; names: checked for each request (freshness = 0)".to_owned();
        }
        _ if !settings.watch => "watch = false",
        _ if !generation.has_watcher() => "they are watched only with a store",
        (_, 0) => "their file systems do not report every change",
        (all, reporting) if all > reporting => {
            return format!(
                "; names: {reporting} of {all} roots watched by {}, others checked after freshness",
                generation.watch_by.name()
            );
        }
        _ => return format!("; names: watched by {}", generation.watch_by.name()),
    };
    format!("; names: checked after freshness ({why})")
}

fn backend_text(
    settings: &Settings,
    backend: &BackendSettings,
    sockets: &Sockets,
    in_force: Option<InForce>,
) -> String {
    let delay = match backend.delay_ms {
        0 => String::new(),
        ms => format!("; for tests, every reply is delayed by {ms} ms"),
    };
    let tcp = sockets.addresses().map(|address| format!(", http://{address}/"));
    let local = backend.endpoint.sockets.iter().map(|socket| format!(", unix:{}", socket.path.display()));
    let endpoint: String = tcp.chain(local).collect();
    format!(
        "flash {} backend listens at {}{endpoint}{}{}; up to {} helpers; sandbox: {}{delay}",
        env!("CARGO_PKG_VERSION"),
        sockets.path().unwrap_or(&backend.socket).display(),
        user(settings),
        fowner(settings),
        settings.helpers_max,
        sandbox(settings, in_force),
    )
}

fn user(settings: &Settings) -> String {
    settings.run_as.as_ref().map_or(String::new(), |run_as| format!(" as {}", run_as.name))
}

fn fowner(settings: &Settings) -> &'static str {
    if settings.cap_fowner { " with CAP_FOWNER" } else { "" }
}

fn sandbox(settings: &Settings, in_force: Option<InForce>) -> String {
    match (settings.sandbox, in_force) {
        (SandboxMode::Off, _) | (_, None) => "off".to_owned(),
        (_, Some(in_force)) => in_force.to_string(),
    }
}
