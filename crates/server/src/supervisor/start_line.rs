//! What is said at the start: where, what, by how many, and how reads are kept from waiting.

use std::io;
use std::net::SocketAddr;

use flash_sys::OwnedFd;
use flash_sys::prompt::file::{Want, tells_residency};
use flash_sys::waiting::{file, root::open_roots};

use crate::config::{ROOT_PATIENCE, Settings};

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
    let roots = settings.roots();
    let opened = open_roots(&roots, ROOT_PATIENCE).flatten();
    let local: Vec<OwnedFd> = opened.filter(|root| root.is_local).map(|root| root.folder).collect();
    let reads = match residency(&local) {
        Ok(()) => "memory by cachestat, disk by helpers".to_owned(),
        Err(e) => format!(
            "content cache, all else by helpers (cachestat: {e}; run as the files' owner, on Linux 6.5 or later)"
        ),
    };
    let others = match roots.len() - local.len() {
        0 => String::new(),
        others => format!("; roots on file systems that may wait: {others}, by helpers alone"),
    };
    format!(
        "flash {} serves {what} at {}; {workers}; reads: {reads}{others}",
        env!("CARGO_PKG_VERSION"),
        urls.join(" ")
    )
}

/// Whether the kernel tells what of the local sites' files is in memory, tried on one file of each.
fn residency(roots: &[OwnedFd]) -> io::Result<()> {
    for root in roots {
        let (names, _) = file::names(root, b".", NAMES_TRIED_MAX).unwrap_or_default();
        let mut files =
            names.iter().filter_map(|name| file::open_on_same(root, name, Want::Content).ok()?.file);
        if let Some(first) = files.next() {
            tells_residency(first)?;
        }
    }
    Ok(())
}
