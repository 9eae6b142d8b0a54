//! A helper: does one task at a time that may wait for the disk, for one worker.
//!
//! It has the sites' roots, opened by the supervisor, and nothing else. It ends when its worker closes the channel.
//! It is a process, or a thread of its worker ([`threads`]); what it does is the same.

mod listing;
mod threads;

use std::io::{self, ErrorKind, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use flash_engine::limits::SMALL_FILE_BYTES_MAX;
use flash_engine::{
    FileStat, Finding, JobId, Kind, LookUpError, Outcome, SiteId, SiteRules, Task, Want, find,
};
use flash_http::types::TypeTable;
use flash_sys::OwnedFd;
use flash_sys::prompt::channel;
use flash_sys::prompt::file::is_place;
use flash_sys::sandbox::calls::Calls;
use flash_sys::sandbox::paths::Rights;
use flash_sys::waiting::file;

use crate::config::{self, Settings};
use crate::control::{Order, receive_order};
use crate::convert;
use crate::protocol::{CLOSE, MESSAGE_BYTES_MAX, decode_task, encode_outcome};
use crate::sandbox::{self, Role};
pub(crate) use threads::start as start_threads;

/// How old a helper without some root is at least when it makes room for one with it: a root that
/// hangs or fails must not make every request of its site start a process.
const OUTDATED_MIN: Duration = Duration::from_secs(1);

struct Site {
    rules: SiteRules,
    /// None where it did not answer when this helper was started.
    root: Option<Arc<OwnedFd>>,
}

struct Helper {
    sites: Vec<Site>,
    types: TypeTable,
    listing_entries_max: usize,
    /// It was asked for a root that it does not have, or that is gone: the next helper may have it.
    outdated: bool,
}

/// Serves tasks from `channel` until the worker is gone.
///
/// Errors: `StaleNetworkFileHandle` when it makes room for a helper with newer roots.
pub(crate) fn run(channel: &OwnedFd, settings: &Settings) -> io::Result<()> {
    let mut roots: Vec<Option<Arc<OwnedFd>>> = settings.sites.iter().map(|_| None).collect();
    loop {
        match receive_order(channel)? {
            Order::Root { site, folder, .. } => {
                if let Some(root) = roots.get_mut(site) {
                    *root = Some(Arc::new(folder));
                }
            }
            Order::Begin => break,
            other => return Err(io::Error::new(ErrorKind::InvalidData, format!("unexpected {other:?}"))),
        }
    }
    sandbox::close(Role::Helper, settings, &folders(&roots), Calls::Helper)?;
    Helper::new(settings, roots).serve(channel, Some(OUTDATED_MIN))
}

/// What a helper may open.
fn folders(roots: &[Option<Arc<OwnedFd>>]) -> Vec<(&OwnedFd, Rights)> {
    roots.iter().flatten().map(|root| (&**root, Rights::ReadAndList)).collect()
}

/// No job has this number.
const NO_JOB: u64 = u64::MAX;

impl Helper {
    fn new(settings: &Settings, roots: Vec<Option<Arc<OwnedFd>>>) -> Self {
        let site = |(site, root): (&config::Site, _)| Site { rules: convert::site_rules(site), root };
        Self {
            sites: settings.sites.iter().zip(roots).map(site).collect(),
            types: convert::types(settings),
            listing_entries_max: settings.listing_entries_max,
            outdated: false,
        }
    }

    /// Does tasks until the worker is gone. One that is as old as `room_after` makes room when it met a root
    /// that it lacks or that is gone.
    ///
    /// Errors: `StaleNetworkFileHandle` then, and those of the channel.
    fn serve(&mut self, channel: &OwnedFd, room_after: Option<Duration>) -> io::Result<()> {
        let started = Instant::now();
        let mut bytes = vec![0; MESSAGE_BYTES_MAX];
        let mut descriptors = Vec::new();
        loop {
            let length = channel::recv(channel, &mut bytes, &mut descriptors)?;
            if length == 0 {
                return Ok(());
            }
            if bytes[..length] == [CLOSE] {
                descriptors.clear();
                continue;
            }
            let task = decode_task(&bytes[..length], &mut descriptors);
            descriptors.clear();
            let (id, outcome) = match &task {
                Some((id, task)) => (*id, self.work_guarded(task)),
                // Its descriptor was lost at the limit of descriptors, or there is a bug.
                None => (JobId::from_u64(NO_JOB), Outcome::Lost),
            };
            if self.outdated && room_after.is_some_and(|age| started.elapsed() > age) {
                // Without an answer, which is one, too: after another it might be given a job on its way out.
                return Err(ErrorKind::StaleNetworkFileHandle.into());
            }
            let message = encode_outcome(id, &outcome);
            let parts = [io::IoSlice::new(&message.bytes)];
            if channel::send(channel, &parts, &message.descriptors).is_err() {
                // Too many descriptors are under way (`ETOOMANYREFS`), or the worker is gone.
                let message = encode_outcome(id, &Outcome::Lost);
                channel::send(channel, &[io::IoSlice::new(&message.bytes)], &[])?;
            }
        }
    }

    /// A panic costs its task only.
    fn work_guarded(&mut self, task: &Task<OwnedFd>) -> Outcome<OwnedFd> {
        catch_unwind(AssertUnwindSafe(|| self.work(task))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            // Nobody may be reading any more.
            let _ = writeln!(
                io::stderr(),
                "flash: a bug: panic in a helper ({text}); its requests were answered 503"
            );
            Outcome::Lost
        })
    }

    fn work(&mut self, task: &Task<OwnedFd>) -> Outcome<OwnedFd> {
        let outcome = match task {
            Task::Find { site, path } => self.find(*site, path),
            Task::List { site, path, json } => self.list(*site, path, *json),
            Task::Load { file, offset, length_bytes } => {
                file::load(file, *offset, *length_bytes).map(|()| Outcome::Loaded)
            }
            Task::Read { file, offset, length_bytes } => self.hand_over(file, *offset, *length_bytes),
        };
        let outcome = outcome.unwrap_or_else(|e| Outcome::Failed(e.raw_os_error().unwrap_or(0)));
        if let Outcome::Failed(number) = outcome {
            let kind = io::Error::from_raw_os_error(number).kind();
            // A file system has gone. Another may be mounted in its place.
            self.outdated |= matches!(kind, ErrorKind::NotConnected | ErrorKind::StaleNetworkFileHandle);
        }
        outcome
    }

    fn find(&mut self, site: SiteId, path: &[u8]) -> io::Result<Outcome<OwnedFd>> {
        let Some((rules, root)) = rooted(&self.sites, site, &mut self.outdated)? else {
            return Ok(Outcome::Lost);
        };
        let look_up = |path: &[u8], want| convert::look_up(file::open(root, path, convert::sys_want(want)));
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

    fn hand_over(&mut self, file: &OwnedFd, offset: u64, length_bytes: u64) -> io::Result<Outcome<OwnedFd>> {
        let mut bytes = Vec::new();
        let read = file::read(file, offset, usize::try_from(length_bytes).unwrap_or(0), &mut bytes);
        match read.and_then(|_| state(file)) {
            Ok(stat) => Ok(Outcome::Bytes(bytes, stat)),
            // A place whose file was replaced by somebody else: no bytes, so that it is looked up anew.
            Err(e) if matches!(e.kind(), ErrorKind::StaleNetworkFileHandle | ErrorKind::NotFound) => {
                Ok(Outcome::Bytes(Vec::new(), GONE))
            }
            Err(e) => Err(e),
        }
    }

    fn list(&mut self, site: SiteId, path: &[u8], json: bool) -> io::Result<Outcome<OwnedFd>> {
        let Some((_, root)) = rooted(&self.sites, site, &mut self.outdated)? else {
            return Ok(Outcome::Lost);
        };
        let listing = listing::read(root, path, self.listing_entries_max)?;
        let text = if json { listing.to_json() } else { listing.to_html() };
        let file = file::memory_file(text.as_bytes())?;
        let stat = state(&file)?;
        Ok(Outcome::Listed(file, stat))
    }
}

/// The rules and the root of a site; None when it did not answer at this helper's start.
fn rooted<'s>(
    sites: &'s [Site],
    site: SiteId,
    outdated: &mut bool,
) -> io::Result<Option<(&'s SiteRules, &'s OwnedFd)>> {
    let no_such_site = || io::Error::new(ErrorKind::InvalidInput, "no such site");
    let site = sites.get(usize::from(site.0)).ok_or_else(no_such_site)?;
    *outdated |= site.root.is_none();
    Ok(site.root.as_ref().map(|root| (&site.rules, &**root)))
}

/// The state of a file that is no more.
const GONE: FileStat =
    FileStat { kind: Kind::File, device: 0, inode: 0, size_bytes: 0, modified_ns: 0, changed_ns: 0 };

fn state(file: &OwnedFd) -> io::Result<FileStat> {
    Ok(convert::stat(&file::stat(file)?))
}
