//! The work that may wait for a disk, one task at a time: of helpers, and of workers without helpers.

use std::cell::Cell;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use flash_engine::limits::{LOAD_BYTES, SMALL_FILE_BYTES_MAX};
use flash_engine::{
    FileKind, FileStat, Finding, ListingForm, LookUpError, NameFacts, NameOfFile, Outcome, SiteId, SiteRules,
    Task, Want, find,
};
use flash_http::types::TypeTable;
use flash_prompt::file::is_path_only;
use flash_prompt::names::NamesReader;
use flash_prompt::{AsFd, OwnedFd, clock};
use flash_waiting::past_cache::Source;
use flash_waiting::{file, store_file, warm, watched};

use flash_worker::names::{self, SharedNames};
use flash_worker::store_protocol::{Learned, ROOT_AND_PATH_BYTES_MAX, Request};

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
    /// Whether changes on the file system of the root can be watched, once that was asked.
    reports_changes: OnceLock<bool>,
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
        let sites = convert::sites(settings).into_iter().map(|rules| Site {
            rules,
            root: None,
            reports_changes: OnceLock::new(),
        });
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
                let filled = self.fill(&Source::Shared(&**file), *block, &mut None);
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
        let Some(looked_up) = self.look_up(site, path, Want::Content)? else { return Ok(Outcome::Lost) };
        let mut learned = self.learned(site, path, &looked_up);
        let finding = match looked_up.found {
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
            let _ = self.load_small(file, plain.stat.size_bytes, &mut learned);
        }
        self.share(learned, site, path, &finding);
        Ok(Outcome::Found(finding))
    }

    /// Looks a path up, for as long as it takes. None if the root did not answer at startup.
    fn look_up<G: From<OwnedFd>>(
        &self,
        site: SiteId,
        path: &[u8],
        want: Want,
    ) -> io::Result<Option<LookedUp<G>>> {
        let Some((Site { rules, reports_changes, .. }, root)) = self.rooted(site)? else { return Ok(None) };
        let began_ms = clock::monotonic_ms();
        let reports_changes = || *reports_changes.get_or_init(|| watched::reports_changes(root));
        let is_watched = Cell::new(watched::is_direct(path) && self.names.is_some() && reports_changes());
        let look_up = |path: &[u8], want| {
            let want = flash_worker::convert::sys_want(want);
            if is_watched.get() {
                match watched::open(root, path, want) {
                    Err(e) if e.kind() == ErrorKind::Other => is_watched.set(false),
                    found => return flash_worker::convert::look_up(found),
                }
            }
            flash_worker::convert::look_up(file::open(root, path, want))
        };
        let found = find(path, rules, &self.types, want, look_up);
        Ok(Some(LookedUp { found, began_ms, is_watched: is_watched.get() }))
    }

    /// Looks up a path for all workers and for the list of hot files: the kernel knows it by now, and can forget it later.
    fn find_for_all(&self, site: SiteId, path: &[u8]) {
        if (self.names.is_some() || self.saves_list)
            && let Ok(Some(looked_up)) = self.look_up::<OwnedFd>(site, path, Want::Stat)
            && let Ok(finding) = &looked_up.found
        {
            self.share(self.learned(site, path, &looked_up), site, path, finding);
        }
    }

    /// The facts about a name for all workers. A file that changed just now can change again unnoticed, so there are none then.
    fn learned<G>(&self, site: SiteId, path: &[u8], looked_up: &LookedUp<G>) -> Option<Learned> {
        let (names, finding) = (self.names.as_ref()?, looked_up.found.as_ref().ok()?);
        let facts = NameFacts::of(finding, path, &self.sites.get(usize::from(site.0))?.rules)?;
        let subtree = names.subtree(site, path).filter(|_| looked_up.is_watched);
        (!facts.is_racy(clock::wall_ns())).then_some(Learned {
            name: names.hash(site, path)?,
            facts,
            found_ms: looked_up.began_ms,
            subtree,
        })
    }

    /// Gives the keeper the facts about a name for all workers, and the path of a file for the list of hot files.
    fn share<G>(&self, learned: Option<Learned>, site: SiteId, path: &[u8], finding: &Finding<G>) {
        let Some(store) = &self.store else { return };
        if let Some(learned) = learned {
            store.notify_keeper(&Request::Learned(learned));
        }
        if self.saves_list
            && let Some(site) = self.sites.get(usize::from(site.0))
            && let Some(facts) = NameFacts::of(finding, path, &site.rules)
            && !facts.is_racy(clock::wall_ns())
            && let Some(named) = named(&facts, &site.rules, path)
        {
            store.notify_keeper(&named);
        }
    }

    /// Brings a block of the file at a path into the store, if it can be found and read.
    fn warm(&self, site: SiteId, path: &[u8], block: u64) {
        if let Ok(Some(looked_up)) = self.look_up::<OwnedFd>(site, path, Want::Content)
            && let Ok(finding @ Finding::File { plain, .. }) = &looked_up.found
            && let Some(file) = &plain.file
        {
            let mut learned = self.learned(site, path, &looked_up);
            let _ = self.fill(&Source::Own(file), block, &mut learned);
            self.share(learned, site, path, finding);
        }
    }

    /// Brings a small file into memory: into the store, if there is one.
    fn load_small(&self, file: impl AsFd, size_bytes: u64, learned: &mut Option<Learned>) -> io::Result<()> {
        if self.store.is_some() && size_bytes <= LOAD_BYTES {
            self.fill(&Source::Own(file), 0, learned)
        } else if size_bytes <= SMALL_FILE_BYTES_MAX && !is_path_only(&file)? {
            file::load(file, 0, size_bytes)
        } else {
            Ok(())
        }
    }

    fn fill(&self, file: &Source<impl AsFd>, block: u64, learned: &mut Option<Learned>) -> io::Result<()> {
        self.store.as_ref().map_or(Ok(()), |store| store.fill(file, block, learned))
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
        let Some((Site { rules, .. }, root)) = self.rooted(site)? else { return Ok(Outcome::Lost) };
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
        self.find_for_all(site, path);
        Ok(Outcome::Listed(file.into(), stat, read_ms))
    }

    /// The rules and the root of a site; None if the root did not answer at startup.
    fn rooted(&self, site: SiteId) -> io::Result<Option<(&Site, &OwnedFd)>> {
        let no_such_site = || io::Error::new(ErrorKind::InvalidInput, "no such site");
        let site = self.sites.get(usize::from(site.0)).ok_or_else(no_such_site)?;
        if site.root.is_none() {
            self.outdated.store(true, Ordering::Relaxed);
        }
        Ok(site.root.as_deref().map(|root| (site, root)))
    }
}

/// The result of a look-up.
struct LookedUp<G> {
    found: Result<Finding<G>, LookUpError>,
    /// When it began, in milliseconds of the monotonic clock.
    began_ms: u64,
    /// Whether every change of the name is reported where its directory is watched.
    is_watched: bool,
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
