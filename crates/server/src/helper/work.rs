//! The work that may wait for a disk, one task at a time: of helpers, and of workers without helpers.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flash_engine::limits::{LOAD_BYTES, SMALL_FILE_BYTES_MAX};
use flash_engine::{
    FileKind, FileStat, Finding, ListingForm, LookUpError, NameFacts, NameOfFile, Outcome, SiteId, SiteRules,
    Task, Want, find,
};
use flash_http::types::TypeTable;
use flash_prompt::file::is_path_only;
use flash_prompt::names::NamesReader;
use flash_prompt::{AsFd, OwnedFd, clock};
use flash_waiting::{file, store_file, warm, watched};

use flash_worker::names::{self, SharedNames};
use flash_worker::store_protocol::{ROOT_AND_PATH_BYTES_MAX, Request};

use super::compress::{compress_listing, deflate};
use super::fill::Fill;
use super::listing;
use crate::config::Settings;
use crate::{convert, passwords};

/// The file of a directory that the warm endpoint brings into memory.
const INDEX: &str = "index.html";

struct Site {
    rules: SiteRules,
    /// None if it did not answer when this process started.
    root: Option<Arc<OwnedFd>>,
}

/// The resources of the work. Threads may share them.
pub(crate) struct DiskWork {
    sites: Vec<Site>,
    types: TypeTable,
    listing_entries_max: usize,
    /// The directories of the warm endpoint.
    warm_roots: Vec<PathBuf>,
    /// None without a store.
    store: Option<Arc<Fill>>,
    /// The names that all workers share; None without a store.
    names: Option<SharedNames>,
    /// Whether the keeper saves a list of hot files.
    saves_list: bool,
    /// A task needed a root that is missing or gone: a newer process may have it.
    outdated: AtomicBool,
}

impl DiskWork {
    pub(crate) fn new(settings: &Settings) -> Self {
        let sites = convert::sites(settings).into_iter().map(|rules| Site { rules, root: None });
        Self {
            sites: sites.collect(),
            types: convert::types(settings),
            listing_entries_max: settings.listing_entries_max,
            warm_roots: settings.service.warm_roots().map(Path::to_owned).collect(),
            store: None,
            names: None,
            saves_list: settings.cache_list.is_some(),
            outdated: AtomicBool::new(false),
        }
    }

    pub(crate) fn set_root(&mut self, site: usize, root: Arc<OwnedFd>) {
        if let Some(site) = self.sites.get_mut(site) {
            site.root = Some(root);
        }
    }

    pub(crate) fn set_store(&mut self, store: Arc<Fill>) {
        self.store = Some(store);
    }

    /// Adds the table of the names that all workers share, once all roots are known.
    ///
    /// Errors: those of mapping it.
    pub(crate) fn set_names(&mut self, table: impl AsFd) -> io::Result<()> {
        let sites = self.sites.iter().map(|site| (&site.rules, site.root.as_deref()));
        self.names = Some(SharedNames::new(NamesReader::map(table)?, sites, &self.types));
        Ok(())
    }

    /// Whether a newer process may have a keeper while this one has none.
    pub(super) fn has_lost_keeper(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.has_lost_keeper())
    }

    pub(crate) fn roots(&self) -> impl Iterator<Item = &OwnedFd> {
        self.sites.iter().filter_map(|site| site.root.as_deref())
    }

    /// Whether a newer process may be able to do more than this one.
    pub(super) fn is_outdated(&self) -> bool {
        self.outdated.load(Ordering::Relaxed)
    }

    pub(crate) fn do_task<F: AsFd, G: AsFd + From<OwnedFd>>(&self, task: &Task<F>) -> Outcome<G> {
        let outcome = match task {
            Task::Find { site, path } => self.find(*site, path),
            Task::List { site, path, form, with_readme } => self.list(*site, path, (*form, *with_readme)),
            Task::Fill { file, block, name } => {
                let filled = self.fill(&**file, *block);
                if let Some(NameOfFile { site, path }) = name {
                    self.find_for_all(*site, path);
                }
                filled.map(|()| Outcome::Loaded)
            }
            Task::Warm { site, path, block } => {
                self.warm(*site, path, *block);
                Ok(Outcome::Loaded)
            }
            Task::Load { file, offset, length_bytes } => {
                file::load(&**file, *offset, *length_bytes).map(|()| Outcome::Loaded)
            }
            Task::Read { file, offset, length_bytes } => self.read_bytes(&**file, *offset, *length_bytes),
            Task::Write { file, offset, bytes } => {
                store_file::write(&**file, *offset, bytes).map(|()| Outcome::Written)
            }
            Task::GiveBack { file, offset, length_bytes } => give_back(&**file, *offset, *length_bytes),
            Task::Touch { root, path } => {
                file::touch(&**root, path, self.listing_entries_max).map(|()| Outcome::Loaded)
            }
            Task::WarmFile { path, part } => self.warm_file(path, *part).map(|()| Outcome::Loaded),
            Task::Verify { stored, given } => {
                Ok(Outcome::Verified(passwords::is_right(stored.bytes(), given.bytes())))
            }
            Task::Deflate { plain } => deflate(plain).map(Outcome::Deflated),
            // The receiver of the message has already closed its file.
            Task::Close { .. } => Ok(Outcome::Closed),
        };
        let outcome = outcome.unwrap_or_else(|e| Outcome::Failed(e.raw_os_error().unwrap_or(0)));
        if let Outcome::Failed(number) = outcome {
            let kind = io::Error::from_raw_os_error(number).kind();
            // A file system is gone. Another may be mounted in its place.
            if matches!(kind, ErrorKind::NotConnected | ErrorKind::StaleNetworkFileHandle) {
                self.outdated.store(true, Ordering::Relaxed);
            }
        }
        outcome
    }

    /// Brings a file beneath the warm roots into memory.
    fn warm_file(&self, path: &[u8], part: flash_engine::FileRange) -> io::Result<()> {
        let path = Path::new(OsStr::from_bytes(path));
        warm::warm(path, &|size| part.within(size), &self.warm_roots, INDEX, self.listing_entries_max)
    }

    fn find<G: AsFd + From<OwnedFd>>(&self, site: SiteId, path: &[u8]) -> io::Result<Outcome<G>> {
        let found_ms = clock::monotonic_ms();
        let Some(found) = self.look_up(site, path, Want::Content)? else { return Ok(Outcome::Lost) };
        let finding = match found {
            Ok(finding) => finding,
            Err(LookUpError::Failed(number)) => return Ok(Outcome::Failed(number)),
            Err(LookUpError::Exhausted) => return Ok(Outcome::Exhausted),
            Err(e) => return Err(io::Error::other(format!("{e:?}"))),
        };
        if let Finding::File { plain, coded, .. } = &finding
            && let Some(file) = &plain.file
            && coded.iter().all(Option::is_none)
        {
            // The content is nearly always needed next. If it cannot be read, the next task reports that.
            let _ = self.load_small(file, plain.stat.size_bytes);
        }
        self.share_finding(site, path, &finding, found_ms);
        Ok(Outcome::Found(finding))
    }

    /// Looks a path up, for as long as it takes. None if the root did not answer at startup.
    fn look_up<G: From<OwnedFd>>(
        &self,
        site: SiteId,
        path: &[u8],
        want: Want,
    ) -> io::Result<Option<Result<Finding<G>, LookUpError>>> {
        let Some((rules, root)) = self.rooted(site)? else { return Ok(None) };
        let look_up = |path: &[u8], want| {
            flash_worker::convert::look_up(file::open(root, path, flash_worker::convert::sys_want(want)))
        };
        Ok(Some(find(path, rules, &self.types, want, look_up)))
    }

    /// Looks up a path that leads to a file, for all workers: the kernel knows it by now, and can forget it later.
    fn find_for_all(&self, site: SiteId, path: &[u8]) {
        let found_ms = clock::monotonic_ms();
        if self.names.is_some()
            && let Ok(Some(Ok(finding))) = self.look_up::<OwnedFd>(site, path, Want::Stat)
        {
            self.share_finding(site, path, &finding, found_ms);
        }
    }

    /// Shares with all workers what was found. A file that changed just now can change again unnoticed.
    fn share_finding<G>(&self, site: SiteId, path: &[u8], finding: &Finding<G>, found_ms: u64) {
        let (Some(names), Some(store)) = (&self.names, &self.store) else { return };
        let rules = self.sites.get(usize::from(site.0)).map(|site| &site.rules);
        if let Some(facts) = rules.and_then(|rules| NameFacts::of(finding, path, rules))
            && let Some(name) = names.hash(site, path)
            && !facts.is_racy(clock::wall_ns())
        {
            let subtree = names.subtree(site, path).filter(|_| self.is_watched(site, path, &facts));
            store.notify_keeper(&Request::Learned { name, facts, found_ms, subtree });
            if self.saves_list
                && let Some(named) = rules.and_then(|rules| named(&facts, rules, path))
            {
                store.notify_keeper(&named);
            }
        }
    }

    /// Whether every change of a name with these facts is reported where its directory is watched.
    fn is_watched(&self, site: SiteId, path: &[u8], facts: &NameFacts) -> bool {
        let Ok(Some((rules, root))) = self.rooted(site) else { return false };
        let look_up = |path: &[u8], _| match watched::find(root, path) {
            Err(e) if e.kind() == ErrorKind::Other => Err(LookUpError::Failed(0)),
            found => flash_worker::convert::look_up::<OwnedFd>(found),
        };
        watched::is_direct(path)
            && watched::reports_changes(root)
            && find(path, rules, &self.types, Want::Stat, look_up)
                .is_ok_and(|finding| NameFacts::of(&finding, path, rules).as_ref() == Some(facts))
    }

    /// Brings a block of the file at a path into the store, if it can be found and read.
    fn warm(&self, site: SiteId, path: &[u8], block: u64) {
        let found_ms = clock::monotonic_ms();
        if let Ok(Some(Ok(finding))) = self.look_up::<OwnedFd>(site, path, Want::Content)
            && let Finding::File { plain, .. } = &finding
            && let Some(file) = &plain.file
        {
            let _ = self.fill(file, block);
            self.share_finding(site, path, &finding, found_ms);
        }
    }

    /// Brings a small file into memory: into the store, if there is one.
    fn load_small(&self, file: impl AsFd, size_bytes: u64) -> io::Result<()> {
        if self.store.is_some() && size_bytes <= LOAD_BYTES {
            self.fill(file, 0)
        } else if size_bytes <= SMALL_FILE_BYTES_MAX && !is_path_only(&file)? {
            file::load(file, 0, size_bytes)
        } else {
            Ok(())
        }
    }

    fn fill(&self, file: impl AsFd, block: u64) -> io::Result<()> {
        self.store.as_ref().map_or(Ok(()), |store| store.fill(file, block))
    }

    fn read_bytes<G>(&self, file: impl AsFd, offset: u64, length_bytes: u64) -> io::Result<Outcome<G>> {
        let mut bytes = Vec::new();
        let read = file::read(&file, offset, usize::try_from(length_bytes).unwrap_or(0), &mut bytes);
        match read.and_then(|_| state(file)) {
            Ok(stat) => Ok(Outcome::Bytes(bytes, stat)),
            // Another program replaced the file of this place: no bytes, so that it is looked up again.
            Err(e) if matches!(e.kind(), ErrorKind::StaleNetworkFileHandle | ErrorKind::NotFound) => {
                Ok(Outcome::Bytes(Vec::new(), GONE))
            }
            Err(e) => Err(e),
        }
    }

    fn list<G: From<OwnedFd>>(
        &self,
        site: SiteId,
        path: &[u8],
        (form, with_readme): (ListingForm, bool),
    ) -> io::Result<Outcome<G>> {
        let Some((rules, root)) = self.rooted(site)? else {
            return Ok(Outcome::Lost);
        };
        let read_ms = clock::monotonic_ms();
        let listing = match listing::read(root, path, (self.listing_entries_max, form.order)) {
            Ok(listing) if with_readme => listing.with_readme(root),
            Ok(listing) => listing,
            Err(e) => return Ok(unlisted(&e)),
        };
        let listing = listing.shown_as(&rules.public_path(path));
        let text = if form.json { listing.to_json() } else { listing.to_html() }.into_bytes();
        let text = match form.coding {
            Some(coding) => compress_listing(&text, coding)?,
            None => text,
        };
        let file = file::memory_file(&text)?;
        let stat = state(&file)?;
        self.share_finding(site, path, &Finding::<G>::Listing, read_ms);
        Ok(Outcome::Listed(file.into(), stat, read_ms))
    }

    /// The rules and the root of a site; None if the root did not answer at startup.
    fn rooted(&self, site: SiteId) -> io::Result<Option<(&SiteRules, &OwnedFd)>> {
        let no_such_site = || io::Error::new(ErrorKind::InvalidInput, "no such site");
        let site = self.sites.get(usize::from(site.0)).ok_or_else(no_such_site)?;
        if site.root.is_none() {
            self.outdated.store(true, Ordering::Relaxed);
        }
        Ok(site.root.as_deref().map(|root| (&site.rules, root)))
    }
}

/// The message that names a path that leads to a file. None for other paths, and if no message has room for it.
fn named(facts: &NameFacts, rules: &SiteRules, path: &[u8]) -> Option<Request> {
    let NameFacts::File { plain, .. } = facts else { return None };
    let root = rules.root.as_os_str().as_bytes();
    let file = names::state(plain).filter(|_| root.len() + path.len() <= ROOT_AND_PATH_BYTES_MAX)?;
    Some(Request::Named { file, root: root.to_vec(), path: path.to_vec() })
}

/// Gives room of a file back to its file system. Not every file system can make a hole.
fn give_back<G>(file: impl AsFd, offset: u64, length_bytes: Option<u64>) -> io::Result<Outcome<G>> {
    let given_back = match length_bytes {
        Some(length_bytes) => store_file::give_back(file, offset, length_bytes),
        None => store_file::cut(file, offset),
    };
    match given_back {
        Err(e) if store_file::is_unsupported(&e) => Ok(Outcome::Unsupported),
        other => other.map(|()| Outcome::Written),
    }
}

/// The answer for a directory that cannot be listed: only here is it found unreadable or gone.
fn unlisted<G>(error: &io::Error) -> Outcome<G> {
    match flash_worker::convert::look_up_error(error) {
        LookUpError::Denied => Outcome::Found(Finding::Denied),
        LookUpError::Missing => Outcome::Found(Finding::Missing),
        LookUpError::Exhausted => Outcome::Exhausted,
        LookUpError::Failed(number) => Outcome::Failed(number),
        LookUpError::WouldWait => Outcome::Failed(error.raw_os_error().unwrap_or(0)),
    }
}

/// The state of a file that no longer exists.
const GONE: FileStat =
    FileStat { kind: FileKind::Regular, device: 0, inode: 0, size_bytes: 0, modified_ns: 0, changed_ns: 0 };

fn state(file: impl AsFd) -> io::Result<FileStat> {
    Ok(flash_worker::convert::stat(&file::stat(file)?))
}
