//! The files that the workers of all configurations share: which of them use the uplink, and how they count requests for rules that
//! bound their rate or their number. They outlive configurations, so that a reload gives no client a new allowance.
//!
//! In two of them each worker of all generations has a slot of its own. Each generation has a range of slots, so that workers that
//! drain after a reload count too.

use std::ffi::CStr;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use flash_prompt::counts::{CHANGES_AT, COUNTS_FILE_BYTES, NUMBERS_AT};
use flash_prompt::numbers::{NUMBERS_BYTES, new_key};
use flash_prompt::uplink_users::{UPLINK_FILE_BYTES, WORKERS_MAX, word_at};
use flash_waiting::store_file;
use flash_waiting::successor::Bequest;
use flash_worker::control::Order;

use super::estate::Estate;
use super::outbox::{Outbox, Shared};
use crate::config::{Rule, Settings};

/// The files, each created for the first configuration that needs it.
#[derive(Debug, Default)]
pub(super) struct SharedFiles {
    uplink: Option<SlotFile>,
    buckets: Option<Shared>,
    /// The counts of requests, in which each worker has a term.
    counts: Option<SlotFile>,
    /// The number of the last change of a term, which is the term of a worker that began with it.
    last_change: u32,
}

/// The part of a configuration in the files; None in those that it does not need.
#[derive(Debug)]
pub(super) struct Shares {
    uplink: Option<Slots>,
    buckets: Option<Shared>,
    counts: Option<Slots>,
}

/// [`SharedFiles`] as the next program takes them over.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LeftFiles {
    uplink: Option<usize>,
    buckets: Option<usize>,
    counts: Option<usize>,
    last_change: u32,
}

/// [`Shares`] as the next program takes them over: where their ranges begin.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LeftShares {
    uplink: Option<usize>,
    has_buckets: bool,
    counts: Option<usize>,
}

impl SharedFiles {
    /// Leaves them to the next program.
    pub(super) fn leave(&self, bequest: &mut Bequest) -> io::Result<LeftFiles> {
        let mut leave = |file: Option<&Shared>| file.map(|file| bequest.add(&**file)).transpose();
        Ok(LeftFiles {
            uplink: leave(self.uplink.as_ref().map(|uplink| &uplink.file))?,
            buckets: leave(self.buckets.as_ref())?,
            counts: leave(self.counts.as_ref().map(|counts| &counts.file))?,
            last_change: self.last_change,
        })
    }

    /// Takes over those of an earlier program.
    pub(super) fn adopt(left: &LeftFiles, estate: &mut Estate) -> io::Result<Self> {
        let mut take =
            |number: Option<usize>| number.map(|number| estate.take(number).map(Arc::new)).transpose();
        let slots = |file: Shared| SlotFile { file, ranges: Vec::new() };
        Ok(Self {
            uplink: take(left.uplink)?.map(slots),
            buckets: take(left.buckets)?,
            counts: take(left.counts)?.map(slots),
            last_change: left.last_change,
        })
    }

    /// The part of another configuration.
    pub(super) fn share(&mut self, settings: &Settings) -> io::Result<Shares> {
        let has_rule =
            |needs: fn(&Rule) -> bool| settings.sites.iter().flat_map(|site| &site.rules).any(needs);
        let uplink = (settings.egress_bits_per_s > 0)
            .then(|| slots(&mut self.uplink, || SlotFile::new(c"flash-uplink", UPLINK_FILE_BYTES)));
        let counts = has_rule(Rule::needs_counts).then(|| slots(&mut self.counts, new_counts));
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

/// Slots in a file, which is created if there is none.
fn slots(file: &mut Option<SlotFile>, create: impl FnOnce() -> io::Result<SlotFile>) -> io::Result<Slots> {
    match file {
        Some(file) => file.slots(),
        None => file.insert(create()?).slots(),
    }
}

fn new_counts() -> io::Result<SlotFile> {
    let counts = SlotFile::new(c"flash-counts", COUNTS_FILE_BYTES)?;
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
    /// Leaves them to the next program.
    pub(super) fn leave(&self) -> LeftShares {
        let start = |slots: &Option<Slots>| slots.as_ref().map(|slots| slots.range.start);
        let (uplink, counts) = (start(&self.uplink), start(&self.counts));
        LeftShares { uplink, has_buckets: self.buckets.is_some(), counts }
    }

    /// Takes over the part of a configuration of an earlier program.
    pub(super) fn adopt(left: &LeftShares, files: &mut SharedFiles) -> Self {
        let take = |file: &mut Option<SlotFile>, start: Option<usize>| Some(file.as_mut()?.take(start?));
        Self {
            uplink: take(&mut files.uplink, left.uplink),
            buckets: files.buckets.clone().filter(|_| left.has_buckets),
            counts: take(&mut files.counts, left.counts),
        }
    }

    /// Gives the files to a worker, whose term begins.
    pub(super) fn give(&self, worker: usize, files: &mut SharedFiles, orders: &mut Outbox) -> io::Result<()> {
        if let Some(uplink) = &self.uplink {
            let (slot, file) = uplink.of(worker);
            orders.give_at_start(Order::Uplink(slot, file))?;
        }
        if let Some(buckets) = &self.buckets {
            orders.give_at_start(Order::Buckets(Arc::clone(buckets)))?;
        }
        if let Some(counts) = &self.counts {
            files.change_term(|change| counts.set(worker, change));
            let (slot, file) = counts.of(worker);
            orders.give_at_start(Order::Counts(slot, file))?;
        }
        Ok(())
    }

    /// Takes back the announcements of a worker that has ended.
    pub(super) fn clear(&self, worker: usize, files: &mut SharedFiles) {
        self.uplink.iter().for_each(|uplink| uplink.set(worker, 0));
        self.counts.iter().for_each(|counts| files.change_term(|_| counts.set(worker, 0)));
    }
}

/// The slots of a generation: the most workers that it can have.
const SLOTS_PER_GENERATION: usize = 256;

/// A file that begins with a word for each slot, and the ranges that generations have.
#[derive(Debug)]
struct SlotFile {
    file: Shared,
    /// The ranges in use. A generation that ends drops its own.
    ranges: Vec<Rc<Range<usize>>>,
}

#[derive(Debug)]
struct Slots {
    file: Shared,
    range: Rc<Range<usize>>,
}

impl SlotFile {
    /// Creates a file of zeros, with this name for people. All of it is in memory, so that no access of a worker can fail.
    fn new(name: &CStr, length_bytes: u64) -> io::Result<Self> {
        let file = store_file::create(name, length_bytes)?;
        store_file::write(&file, 0, &vec![0; length_bytes as usize])?;
        Ok(Self { file: Arc::new(file), ranges: Vec::new() })
    }

    /// Slots that no other generation has.
    ///
    /// Errors: if there are none, which the bound on configurations that drain prevents.
    fn slots(&mut self) -> io::Result<Slots> {
        self.ranges.retain(|range| Rc::strong_count(range) > 1);
        let mut starts = (0..WORKERS_MAX).step_by(SLOTS_PER_GENERATION);
        let start = starts.find(|start| self.ranges.iter().all(|range| range.start != *start));
        let start =
            start.ok_or_else(|| io::Error::other("too many configurations share the workers' files"))?;
        // A worker that was killed may have left its word.
        store_file::write(&self.file, word_at(start), &[0; SLOTS_PER_GENERATION * size_of::<u32>()])?;
        Ok(self.take(start))
    }

    /// The slots of the generation whose range begins here.
    fn take(&mut self, start: usize) -> Slots {
        let range = Rc::new(start..start + SLOTS_PER_GENERATION);
        self.ranges.push(Rc::clone(&range));
        Slots { file: Arc::clone(&self.file), range }
    }
}

impl Slots {
    /// The slot of the worker with this number, and the file.
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
        let mut uplink = SlotFile::new(c"uplink", UPLINK_FILE_BYTES).expect("a file");
        let [old, new] = [(); 2].map(|()| uplink.slots().expect("slots"));
        let of = |slots: &Slots| UplinkUsers::map(&*slots.file, slots.range.start + 3).expect("mapped");
        let [first, second] = [of(&old), of(&new)];
        assert_eq!((first.announce(true), second.announce(true)), (0, 1));
        old.set(3, 0);
        assert_eq!(second.announce(true), 0);
        let start = old.range.start;
        drop(old);
        assert_eq!(uplink.slots().expect("slots").range.start, start);
        let many: Vec<_> = std::iter::from_fn(|| uplink.slots().ok()).collect();
        assert_eq!(many.len(), WORKERS_MAX / SLOTS_PER_GENERATION - 1);
    }
}
