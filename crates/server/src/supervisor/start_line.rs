//! What is said at the start: where, what, by how many, as whom, what holds them to their part, and
//! how reads are kept from waiting.

use std::io;
use std::net::SocketAddr;

use flash_sys::prompt::file::{Want, tells_residency};
use flash_sys::sandbox::privileges::{self, Keep};
use flash_sys::waiting::file;

use super::roots::Roots;
use crate::config::{RunAs, SandboxMode, Settings};
use crate::sandbox::InForce;

/// Names looked through for a file to try.
const NAMES_TRIED_MAX: usize = 256;

/// The line.
pub(super) fn text(
    settings: &Settings,
    roots: &Roots,
    addresses: impl Iterator<Item = SocketAddr>,
    in_force: Option<InForce>,
) -> String {
    let urls: Vec<String> = addresses.map(|address| format!("http://{address}/")).collect();
    let what = match settings.sites.as_slice() {
        [site] => site.root.display().to_string(),
        sites => format!("{} sites", sites.len()),
    };
    let workers = match settings.workers {
        1 => "1 worker".to_owned(),
        workers => format!("{workers} workers"),
    };
    let reads = match residency(settings, roots) {
        _ if !settings.optimizations.residency_check => "all in the loop, also from the disk".to_owned(),
        Ok(()) => "memory by cachestat, disk by helpers".to_owned(),
        Err(e) => format!(
            "content cache, all else by helpers (cachestat: {e}; run as the files' owner or with --cap-fowner, on Linux 6.5 or later)"
        ),
    };
    let others = match roots.others_len() {
        0 => String::new(),
        others => format!("; {others} of the roots may wait for somebody else: all by helpers"),
    };
    let user = settings.run_as.as_ref().map_or(String::new(), |run_as| format!(" as {}", run_as.name));
    let fowner = if settings.cap_fowner { " with CAP_FOWNER" } else { "" };
    let sandbox = match (settings.sandbox, in_force) {
        (SandboxMode::Off, _) | (_, None) => "off".to_owned(),
        (_, Some(in_force)) => in_force.to_string(),
    };
    format!(
        "flash {} serves {what} at {}; {workers}{user}{fowner}; sandbox: {sandbox}; reads: {reads}{others}",
        env!("CARGO_PKG_VERSION"),
        urls.join(" ")
    )
}

/// Whether the kernel tells workers what of the sites' files is in memory.
fn residency(settings: &Settings, roots: &Roots) -> io::Result<()> {
    let account = settings.run_as.as_ref().map(RunAs::account);
    let keep = if settings.cap_fowner { Keep::Fowner } else { Keep::Nothing };
    privileges::with_rights_of(account.as_ref(), keep, || try_residency(roots))?
}

/// Tries it on one file of each local root.
fn try_residency(roots: &Roots) -> io::Result<()> {
    for root in roots.local() {
        let (names, _) = file::names(root, b".", NAMES_TRIED_MAX).unwrap_or_default();
        let mut files =
            names.iter().filter_map(|name| file::open_on_same(root, name, Want::Content).ok()?.file);
        if let Some(first) = files.next() {
            tells_residency(first)?;
        }
    }
    Ok(())
}
