//! Everything that a configuration needs from file systems and from the user database before its processes start.
//!
//! Each call here may wait for a disk or another machine. So the supervisor calls it only at its start, before it serves;
//! on HUP a child does (`reader.rs`).

use std::io;
use std::path::Path;

use flash_prompt::OwnedFd;
use flash_prompt::file::{Want, reports_residency};
use flash_tls::Carried;
use flash_waiting::directory::Directory;
use flash_waiting::file;
use flash_waiting::root::{Root, Unopened, open_roots};
use flash_waiting::sandbox::privileges::{self, Keep};

use super::hot_list_files::HotList;
use super::local_socket::LocalSocket;
use crate::certificates::{self, Expiry};
use crate::config::{FilePath, ROOT_PATIENCE, RunAs, Service, Settings};
use crate::trust;

/// Maximum names searched for a file to try.
const NAMES_TRIED_MAX: usize = 256;

/// A configuration whose processes can start.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) settings: Settings,
    /// The roots of the sites, in the order of [`root_paths`].
    pub(super) roots: Vec<FoundRoot>,
    /// Whether the kernel reports to workers which parts of the sites' files are in memory, or why it does not.
    pub(super) residency: Result<(), String>,
    /// The certificates of the sites; None without addresses for TLS.
    pub(super) certificates: Option<Certificates>,
    /// The servers over TLS and the certificates that they are verified by; None without such servers.
    pub(super) trust: Option<OwnedFd>,
    /// Empty if the store has its list already.
    pub(super) hot_list: HotList,
    /// The sockets at paths of `listen` and `listen_tls` that a reload adds.
    pub(super) new_sockets: Vec<LocalSocket>,
}

/// The certificates of the sites.
#[derive(Debug)]
pub(super) struct Certificates {
    /// With their keys.
    pub(super) file: OwnedFd,
    pub(super) expiries: Vec<Expiry>,
}

/// The result of the first attempt to open a root.
#[derive(Debug)]
pub(super) enum FoundRoot {
    Open(Root),
    Hangs,
    Failed(String),
}

/// The paths of the roots, each once.
pub(super) fn root_paths(settings: &Settings) -> Vec<FilePath> {
    let mut paths: Vec<_> = settings.folders().cloned().collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// Opens all that these settings name. `has_store` is whether an earlier configuration has made the store.
///
/// Errors: the list of hot files, or a file of certificates, cannot be used.
pub(super) fn prepare(settings: Settings, has_store: bool) -> io::Result<Prepared> {
    let paths = root_paths(&settings);
    let paths: Vec<&Path> = paths.iter().map(|path| &**path).collect();
    let found = open_roots(&paths, ROOT_PATIENCE).into_iter().map(|opened| match opened {
        Ok(root) => FoundRoot::Open(root),
        Err(Unopened::Hangs(_)) => FoundRoot::Hangs,
        Err(Unopened::Failed(e)) => FoundRoot::Failed(e.to_string()),
    });
    let roots: Vec<_> = found.collect();
    let makes_store = !has_store && settings.cache_memory.bytes_max() > 0;
    let hot_list = if makes_store { HotList::of(&settings)? } else { HotList::default() };
    let residency = residency(&settings, &roots).map_err(|e| e.to_string());
    let certificates = certificates::read(&settings).map_err(io::Error::other)?;
    let certificates = match certificates {
        Some((bytes, expiries)) => Some(Certificates { file: file::secret_file(&bytes)?, expiries }),
        None => None,
    };
    let trust = trust::read(&settings).map_err(io::Error::other)?;
    let trust = trust.map(|trust| file::secret_file(&trust.to_bytes())).transpose()?;
    Ok(Prepared { settings, roots, residency, certificates, trust, hot_list, new_sockets: Vec::new() })
}

/// Whether the kernel reports to workers which parts of the sites' files are in memory.
fn residency(settings: &Settings, roots: &[FoundRoot]) -> io::Result<()> {
    if matches!(settings.service, Service::Backend(_)) {
        return Ok(());
    }
    let local = roots.iter().filter_map(|found| match found {
        FoundRoot::Open(root) if root.is_local => Some(&root.folder),
        _ => None,
    });
    let account = settings.run_as.as_ref().map(RunAs::account);
    let keep = if settings.cap_fowner { Keep::Fowner } else { Keep::Nothing };
    privileges::with_rights_of(account.as_ref(), keep, || try_residency(local))?
}

/// Tries one file of each local root.
fn try_residency<'r>(roots: impl Iterator<Item = &'r OwnedFd>) -> io::Result<()> {
    for root in roots {
        let names = Directory::open(root, b".").and_then(|folder| folder.names(NAMES_TRIED_MAX));
        let (names, _) = names.unwrap_or_default();
        let mut files =
            names.iter().filter_map(|name| file::open_on_same(root, name, Want::Content).ok()?.file);
        if let Some(first) = files.next() {
            reports_residency(first)?;
        }
    }
    Ok(())
}
