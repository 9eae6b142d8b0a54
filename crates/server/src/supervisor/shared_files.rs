//! The files that the workers of all configurations share: which of them use the uplink, and how they count requests for rules that
//! bound their rate or their number. They outlive configurations, so that a reload gives no client a new allowance.
//!
//! In two of them each worker of all generations has a place of its own. Each generation has a range of places, so that workers that
//! drain after a reload count too.

use std::ffi::CStr;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use flash_prompt::counts::{CHANGES_AT, COUNTS_FILE_BYTES, NUMBERS_AT};
use flash_prompt::numbers::{NUMBERS_BYTES, new_key};
use flash_prompt::uplink_users::{UPLINK_FILE_BYTES, WORKERS_MAX, word_at};
use flash_waiting::store_file;
use flash_worker::control::Order;

use super::outbox::{Outbox, Shared};
use crate::config::{Rule, Settings};

/// The files, each created for the first configuration that needs it.
#[derive(Debug, Default)]
pub(super) struct SharedFiles {
    uplink: Option<PlacesFile>,
    buckets: Option<Shared>,
    /// The counts of requests, in which each worker has a term.
    counts: Option<PlacesFile>,
    /// The number of the last change of a term, which is the term of a worker that began with it.
    last_change: u32,
}

/// The part of a configuration in the files; None in those that it does not need.
#[derive(Debug)]
pub(super) struct Shares {
    uplink: Option<Places>,
    buckets: Option<Shared>,
    counts: Option<Places>,
}

impl SharedFiles {
    /// The part of another configuration.
    pub(super) fn share(&mut self, settings: &Settings) -> io::Result<Shares> {
        let has_rule =
            |needs: fn(&Rule) -> bool| settings.sites.iter().flat_map(|site| &site.rules).any(needs);
        let uplink = (settings.egress_bits_per_s > 0)
            .then(|| places(&mut self.uplink, || PlacesFile::new(c"flash-uplink", UPLINK_FILE_BYTES)));
        let counts = has_rule(Rule::needs_counts).then(|| places(&mut self.counts, new_counts));
        let needs_buckets = has_rule(Rule::needs_buckets);
        if needs_buckets && self.buckets.is_none() {
            self.buckets = Some(new_buckets()?);
        }
        let buckets = self.buckets.clone().filter(|_| needs_buckets);
        Ok(Shares { uplink: uplink.transpose()?, buckets, counts: counts.transpose()? })
    }

    /// Changes the term of a worker, and has the others look at the terms. The file is in memory, so this cannot fail.
    fn change_term(&mut self, change: impl FnOnce(u32)) {
        self.last_change = self.last_change.wrapping_add(1).max(1);
        change(self.last_change);
        let change = self.last_change.to_ne_bytes();
        let _ = self.counts.as_ref().map(|counts| store_file::write(&counts.file, CHANGES_AT, &change));
    }
}

/// Places in a file, which is created if there is none.
fn places(
    file: &mut Option<PlacesFile>,
    create: impl FnOnce() -> io::Result<PlacesFile>,
) -> io::Result<Places> {
    match file {
        Some(file) => file.places(),
        None => file.insert(create()?).places(),
    }
}

fn new_counts() -> io::Result<PlacesFile> {
    let counts = PlacesFile::new(c"flash-counts", COUNTS_FILE_BYTES)?;
    store_file::write(&counts.file, NUMBERS_AT, &new_key())?;
    Ok(counts)
}

/// All of the file is in memory, so that no access of a worker can fail.
fn new_buckets() -> io::Result<Shared> {
    let file = store_file::create(c"flash-rates", NUMBERS_BYTES)?;
    store_file::write(&file, 0, &vec![0; NUMBERS_BYTES as usize])?;
    store_file::write(&file, 0, &new_key())?;
    Ok(Arc::new(file))
}

impl Shares {
    /// Gives the files to a worker, whose term begins.
    pub(super) fn give(&self, worker: usize, files: &mut SharedFiles, orders: &mut Outbox) -> io::Result<()> {
        if let Some(uplink) = &self.uplink {
            let (place, file) = uplink.of(worker);
            orders.give_at_start(Order::Uplink(place, file))?;
        }
        if let Some(buckets) = &self.buckets {
            orders.give_at_start(Order::Buckets(Arc::clone(buckets)))?;
        }
        if let Some(counts) = &self.counts {
            files.change_term(|change| counts.set(worker, change));
            let (place, file) = counts.of(worker);
            orders.give_at_start(Order::Counts(place, file))?;
        }
        Ok(())
    }

    /// Takes back the announcements of a worker that has ended.
    pub(super) fn clear(&self, worker: usize, files: &mut SharedFiles) {
        self.uplink.iter().for_each(|uplink| uplink.set(worker, 0));
        self.counts.iter().for_each(|counts| files.change_term(|_| counts.set(worker, 0)));
    }
}

/// The places of a generation: the most workers that it can have.
const PLACES: usize = 256;

/// A file that begins with a word for each place, and the ranges that generations have.
#[derive(Debug)]
struct PlacesFile {
    file: Shared,
    /// The ranges in use. A generation that ends drops its own.
    ranges: Vec<Rc<Range<usize>>>,
}

#[derive(Debug)]
struct Places {
    file: Shared,
    range: Rc<Range<usize>>,
}

impl PlacesFile {
    /// Creates a file of zeros, with this name for people. All of it is in memory, so that no access of a worker can fail.
    fn new(name: &CStr, length_bytes: u64) -> io::Result<Self> {
        let file = store_file::create(name, length_bytes)?;
        store_file::write(&file, 0, &vec![0; length_bytes as usize])?;
        Ok(Self { file: Arc::new(file), ranges: Vec::new() })
    }

    /// Places that no other generation has.
    ///
    /// Errors: if there are none, which the bound on configurations that drain prevents.
    fn places(&mut self) -> io::Result<Places> {
        self.ranges.retain(|range| Rc::strong_count(range) > 1);
        let mut starts = (0..WORKERS_MAX).step_by(PLACES);
        let start = starts.find(|start| self.ranges.iter().all(|range| range.start != *start));
        let start =
            start.ok_or_else(|| io::Error::other("too many configurations share the workers' files"))?;
        // A worker that was killed may have left its word.
        store_file::write(&self.file, word_at(start), &[0; PLACES * size_of::<u32>()])?;
        let range = Rc::new(start..start + PLACES);
        self.ranges.push(Rc::clone(&range));
        Ok(Places { file: Arc::clone(&self.file), range })
    }
}

impl Places {
    /// The place of the worker with this number, and the file.
    fn of(&self, worker: usize) -> (u64, Shared) {
        ((self.range.start + worker) as u64, Arc::clone(&self.file))
    }

    /// Sets the word of a worker. The file is in memory, so this cannot fail.
    fn set(&self, worker: usize, word: u32) {
        let _ = store_file::write(&self.file, word_at(self.range.start + worker), &word.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use flash_prompt::uplink_users::{UPLINK_FILE_BYTES, UplinkUsers};

    use super::*;

    #[test]
    fn generations_have_places_of_their_own_until_they_end() {
        let mut uplink = PlacesFile::new(c"uplink", UPLINK_FILE_BYTES).expect("a file");
        let [old, new] = [(); 2].map(|()| uplink.places().expect("places"));
        let of = |places: &Places| UplinkUsers::map(&*places.file, places.range.start + 3).expect("mapped");
        let [first, second] = [of(&old), of(&new)];
        assert_eq!((first.announce(true), second.announce(true)), (0, 1));
        old.set(3, 0);
        assert_eq!(second.announce(true), 0);
        let start = old.range.start;
        drop(old);
        assert_eq!(uplink.places().expect("places").range.start, start);
        let many: Vec<_> = std::iter::from_fn(|| uplink.places().ok()).collect();
        assert_eq!(many.len(), WORKERS_MAX / PLACES - 1);
    }
}
