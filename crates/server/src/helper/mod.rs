//! A helper: does one task at a time that may wait for the disk, for one worker.
//!
//! It has the sites' roots and nothing else. It ends when its worker closes the channel.

mod listing;

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use flash_engine::limits::SMALL_FILE_BYTES_MAX;
use flash_engine::{FileStat, Finding, Kind, LookUpError, Outcome, SiteId, SiteRules, Task, Want, find};
use flash_http::types::TypeTable;
use flash_sys::OwnedFd;
use flash_sys::prompt::{channel, file::is_place};
use flash_sys::waiting::{file, root::open_root};

use crate::config::{self, Settings};
use crate::convert;
use crate::protocol::{MESSAGE_BYTES_MAX, decode_task, encode_outcome};

struct Site {
    rules: SiteRules,
    path: PathBuf,
    /// Opened for the first task of the site: another site's disk may hang. None as long as it
    /// cannot be opened.
    root: Option<OwnedFd>,
}

struct Helper {
    /// To its worker.
    channel: OwnedFd,
    sites: Vec<Site>,
    types: TypeTable,
    listing_entries_max: usize,
    /// What was read, where only reading it counts.
    buffer: Vec<u8>,
}

/// Serves tasks from `channel` until the worker is gone.
pub(crate) fn run(channel: OwnedFd, settings: &Settings) -> io::Result<()> {
    let site =
        |site: &config::Site| Site { rules: convert::site_rules(site), path: site.root.clone(), root: None };
    let mut helper = Helper {
        channel,
        sites: settings.sites.iter().map(site).collect(),
        types: convert::types(settings),
        listing_entries_max: settings.listing_entries_max,
        buffer: Vec::new(),
    };
    let mut bytes = vec![0; MESSAGE_BYTES_MAX];
    let mut descriptors = Vec::new();
    loop {
        let length = channel::recv(&helper.channel, &mut bytes, &mut descriptors)?;
        if length == 0 {
            return Ok(());
        }
        let Some((id, task)) = decode_task(&bytes[..length], &mut descriptors) else {
            return Err(io::Error::new(ErrorKind::InvalidData, "a message that is no task"));
        };
        descriptors.clear();
        let outcome = helper.work(&task);
        let message = encode_outcome(id, &outcome);
        channel::send(&helper.channel, &[io::IoSlice::new(&message.bytes)], &message.descriptors)?;
    }
}

impl Helper {
    fn work(&mut self, task: &Task<OwnedFd>) -> Outcome<OwnedFd> {
        let outcome = match task {
            Task::Find { site, path } => self.find(*site, path),
            Task::List { site, path, json } => self.list(*site, path, *json),
            Task::Load { file, offset, length_bytes } => {
                self.read(file, *offset, *length_bytes).map(|()| Outcome::Loaded)
            }
            Task::Read { file, offset, length_bytes } => self.hand_over(file, *offset, *length_bytes),
        };
        let outcome = outcome.unwrap_or_else(|e| Outcome::Failed(e.raw_os_error().unwrap_or(0)));
        if let Outcome::Failed(number) = outcome
            && matches!(
                io::Error::from_raw_os_error(number).kind(),
                ErrorKind::NotConnected | ErrorKind::StaleNetworkFileHandle
            )
        {
            // A file system has gone. Another may be mounted in its place.
            self.sites.iter_mut().for_each(|site| site.root = None);
        }
        outcome
    }

    fn find(&mut self, site: SiteId, path: &[u8]) -> io::Result<Outcome<OwnedFd>> {
        let Some((rules, root)) = rooted(&mut self.sites, site)? else {
            return Ok(Outcome::Found(Finding::Missing));
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
            let _ = self.read(file, 0, plain.stat.size_bytes);
        }
        Ok(Outcome::Found(finding))
    }

    /// Brings a part of a file into the page cache, by reading it: unlike readahead(2), that
    /// ends when it is there.
    fn read(&mut self, file: &OwnedFd, offset: u64, length_bytes: u64) -> io::Result<()> {
        self.buffer.clear();
        file::read(file, offset, usize::try_from(length_bytes).unwrap_or(0), &mut self.buffer)?;
        Ok(())
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
        let Some((_, root)) = rooted(&mut self.sites, site)? else {
            return Err(ErrorKind::NotFound.into());
        };
        let listing = listing::read(root, path, self.listing_entries_max)?;
        let text = if json { listing.to_json() } else { listing.to_html() };
        let file = file::memory_file(text.as_bytes())?;
        let stat = state(&file)?;
        Ok(Outcome::Listed(file, stat))
    }
}

/// The rules and the root of a site; None when the root is gone.
fn rooted(sites: &mut [Site], site: SiteId) -> io::Result<Option<(&SiteRules, &OwnedFd)>> {
    let no_such_site = || io::Error::new(ErrorKind::InvalidInput, "no such site");
    let site = sites.get_mut(usize::from(site.0)).ok_or_else(no_such_site)?;
    if site.root.is_none() {
        site.root = open_root(&site.path).ok();
    }
    Ok(site.root.as_ref().map(|root| (&site.rules, root)))
}

/// The state of a file that is no more.
const GONE: FileStat =
    FileStat { kind: Kind::File, device: 0, inode: 0, size_bytes: 0, modified_ns: 0, changed_ns: 0 };

fn state(file: &OwnedFd) -> io::Result<FileStat> {
    Ok(convert::stat(&file::stat(file)?))
}
