//! What is said at the start: where, what, by how many, as whom, what holds them to their part, and
//! how reads are kept from waiting.

use std::io;
use std::net::SocketAddr;

use flash_prompt::file::{Want, tells_residency};
use flash_waiting::file;
use flash_waiting::sandbox::privileges::{self, Keep};

use super::roots::Roots;
use crate::architecture;
use crate::config::{RunAs, SandboxMode, Settings};
use flash_worker::control::InForce;

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
    let crew = architecture::crew(settings);
    let reads = architecture::reads(settings, residency(settings, roots));
    let others = match roots.others_len() {
        0 => String::new(),
        others => format!("; {others} of the roots may wait for somebody else"),
    };
    let user = settings.run_as.as_ref().map_or(String::new(), |run_as| format!(" as {}", run_as.name));
    let fowner = if settings.cap_fowner { " with CAP_FOWNER" } else { "" };
    let sandbox = match (settings.sandbox, in_force) {
        (SandboxMode::Off, _) | (_, None) => "off".to_owned(),
        (_, Some(in_force)) => in_force.to_string(),
    };
    format!(
        "flash {} serves {what} at {}; {crew}{user}{fowner}; sandbox: {sandbox}; reads: {reads}{others}",
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
