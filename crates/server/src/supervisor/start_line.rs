//! What is said at the start: where, what, by how many, and how reads are kept from waiting.

use std::io;
use std::net::SocketAddr;

use flash_sys::prompt::file::{Want, tells_residency};
use flash_sys::waiting::file;

use crate::config::Settings;

/// Names looked through for a file to try.
const NAMES_TRIED_MAX: usize = 256;

/// The line.
pub(super) fn text(settings: &Settings, addresses: impl Iterator<Item = SocketAddr>) -> String {
    let urls: Vec<String> = addresses.map(|address| format!("http://{address}/")).collect();
    let what = match settings.sites.as_slice() {
        [site] => site.root.display().to_string(),
        sites => format!("{} sites", sites.len()),
    };
    let workers = match settings.workers {
        1 => "1 worker".to_owned(),
        workers => format!("{workers} workers"),
    };
    let reads = match residency(settings) {
        Ok(()) => "reads: memory by cachestat, disk by helpers".to_owned(),
        Err(e) => format!(
            "reads: content cache, all else by helpers (cachestat: {e}; run as the files' owner, on Linux 6.5 or later)"
        ),
    };
    format!("flash {} serves {what} at {}; {workers}; {reads}", env!("CARGO_PKG_VERSION"), urls.join(" "))
}

/// Whether the kernel tells what of the sites' files is in memory, tried on one file of each.
fn residency(settings: &Settings) -> io::Result<()> {
    for site in &settings.sites {
        let root = file::open_root(&site.root)?;
        let (names, _) = file::names(&root, b".", NAMES_TRIED_MAX).unwrap_or_default();
        let mut files = names.iter().filter_map(|name| file::open(&root, name, Want::Content).ok()?.file);
        if let Some(first) = files.next() {
            tells_residency(first)?;
        }
    }
    Ok(())
}
