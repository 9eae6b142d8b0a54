//! The work that may wait for a disk, a task at a time: a helper's, and that of workers which have none.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};

use flash_engine::limits::SMALL_FILE_BYTES_MAX;
use flash_engine::{FileKind, FileStat, Finding, LookUpError, Outcome, SiteId, SiteRules, Task, Want, find};
use flash_http::types::TypeTable;
use flash_prompt::file::is_place;
use flash_prompt::{AsFd, OwnedFd};
use flash_waiting::file;

use super::listing;
use crate::config::{self, Settings};
use crate::convert;

struct Site {
    rules: SiteRules,
    /// None where it did not answer when this process was started.
    root: Option<OwnedFd>,
}

/// What the work needs. Threads may share it.
pub(crate) struct DiskWork {
    sites: Vec<Site>,
    types: TypeTable,
    listing_entries_max: usize,
    /// A root was asked for that is not here, or that is gone: a process that is started now may have it.
    outdated: AtomicBool,
}

impl DiskWork {
    /// Without any root yet.
    pub(crate) fn new(settings: &Settings) -> Self {
        let site = |site: &config::Site| Site { rules: convert::site_rules(site), root: None };
        Self {
            sites: settings.sites.iter().map(site).collect(),
            types: convert::types(settings),
            listing_entries_max: settings.listing_entries_max,
            outdated: AtomicBool::new(false),
        }
    }

    /// Takes the root of the site with this number.
    pub(crate) fn set_root(&mut self, site: usize, root: OwnedFd) {
        if let Some(site) = self.sites.get_mut(site) {
            site.root = Some(root);
        }
    }

    /// The roots that there are.
    pub(crate) fn roots(&self) -> impl Iterator<Item = &OwnedFd> {
        self.sites.iter().filter_map(|site| site.root.as_ref())
    }

    /// Whether a newer process may be able to do what this one was not.
    pub(super) fn is_outdated(&self) -> bool {
        self.outdated.load(Ordering::Relaxed)
    }

    /// Does a task, however long it takes.
    pub(crate) fn do_task<F: AsFd, G: AsFd + From<OwnedFd>>(&self, task: &Task<F>) -> Outcome<G> {
        let outcome = match task {
            Task::Find { site, path } => self.find(*site, path),
            Task::List { site, path, json } => self.list(*site, path, *json),
            Task::Load { file, offset, length_bytes } => {
                file::load(&**file, *offset, *length_bytes).map(|()| Outcome::Loaded)
            }
            Task::Read { file, offset, length_bytes } => self.hand_over(&**file, *offset, *length_bytes),
            // Whoever received the message has closed the file that came with it.
            Task::Close { .. } => Ok(Outcome::Closed),
        };
        let outcome = outcome.unwrap_or_else(|e| Outcome::Failed(e.raw_os_error().unwrap_or(0)));
        if let Outcome::Failed(number) = outcome {
            let kind = io::Error::from_raw_os_error(number).kind();
            // A file system has gone. Another may be mounted in its place.
            if matches!(kind, ErrorKind::NotConnected | ErrorKind::StaleNetworkFileHandle) {
                self.outdated.store(true, Ordering::Relaxed);
            }
        }
        outcome
    }

    fn find<G: AsFd + From<OwnedFd>>(&self, site: SiteId, path: &[u8]) -> io::Result<Outcome<G>> {
        let Some((rules, root)) = self.rooted(site)? else {
            return Ok(Outcome::Lost);
        };
        let look_up = |path: &[u8], want| {
            flash_worker::convert::look_up(file::open(root, path, flash_worker::convert::sys_want(want)))
        };
        let finding = match find(path, rules, &self.types, Want::Content, look_up) {
            Ok(finding) => finding,
            Err(LookUpError::Failed(number)) => return Ok(Outcome::Failed(number)),
            Err(LookUpError::Exhausted) => return Ok(Outcome::Exhausted),
            Err(e) => return Err(io::Error::other(format!("{e:?}"))),
        };
        if let Finding::File { plain, coded, .. } = &finding
            && let Some(file) = &plain.file
            && plain.stat.size_bytes <= SMALL_FILE_BYTES_MAX
            && !is_place(file)?
            && coded.iter().all(Option::is_none)
        {
            // Nearly always wanted next. Where it cannot be read, that will be the answer then.
            let _ = file::load(file, 0, plain.stat.size_bytes);
        }
        Ok(Outcome::Found(finding))
    }

    fn hand_over<G>(&self, file: impl AsFd, offset: u64, length_bytes: u64) -> io::Result<Outcome<G>> {
        let mut bytes = Vec::new();
        let read = file::read(&file, offset, usize::try_from(length_bytes).unwrap_or(0), &mut bytes);
        match read.and_then(|_| state(file)) {
            Ok(stat) => Ok(Outcome::Bytes(bytes, stat)),
            // A place whose file was replaced by somebody else: no bytes, so that it is looked up anew.
            Err(e) if matches!(e.kind(), ErrorKind::StaleNetworkFileHandle | ErrorKind::NotFound) => {
                Ok(Outcome::Bytes(Vec::new(), GONE))
            }
            Err(e) => Err(e),
        }
    }

    fn list<G: From<OwnedFd>>(&self, site: SiteId, path: &[u8], json: bool) -> io::Result<Outcome<G>> {
        let Some((_, root)) = self.rooted(site)? else {
            return Ok(Outcome::Lost);
        };
        let listing = match listing::read(root, path, self.listing_entries_max) {
            Ok(listing) => listing,
            Err(e) => return Ok(unlisted(&e)),
        };
        let text = if json { listing.to_json() } else { listing.to_html() };
        let file = file::memory_file(text.as_bytes())?;
        let stat = state(&file)?;
        Ok(Outcome::Listed(file.into(), stat))
    }

    /// The rules and the root of a site; None when it did not answer at the start.
    fn rooted(&self, site: SiteId) -> io::Result<Option<(&SiteRules, &OwnedFd)>> {
        let no_such_site = || io::Error::new(ErrorKind::InvalidInput, "no such site");
        let site = self.sites.get(usize::from(site.0)).ok_or_else(no_such_site)?;
        if site.root.is_none() {
            self.outdated.store(true, Ordering::Relaxed);
        }
        Ok(site.root.as_ref().map(|root| (&site.rules, root)))
    }
}

/// What to say of a directory that cannot be listed: also that it may not be, or is not there any more,
/// is found out only here.
fn unlisted<G>(error: &io::Error) -> Outcome<G> {
    match flash_worker::convert::look_up_error(error) {
        LookUpError::Denied => Outcome::Found(Finding::Denied),
        LookUpError::Missing => Outcome::Found(Finding::Missing),
        LookUpError::Exhausted => Outcome::Exhausted,
        LookUpError::Failed(number) => Outcome::Failed(number),
        LookUpError::WouldWait => Outcome::Failed(error.raw_os_error().unwrap_or(0)),
    }
}

/// The state of a file that is no more.
const GONE: FileStat =
    FileStat { kind: FileKind::Regular, device: 0, inode: 0, size_bytes: 0, modified_ns: 0, changed_ns: 0 };

fn state(file: impl AsFd) -> io::Result<FileStat> {
    Ok(flash_worker::convert::stat(&file::stat(file)?))
}
