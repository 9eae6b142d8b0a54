//! The history of the disk: every state of every file with its time, so that the oracle knows which answers
//! are allowed. All changes are made through this module.

use std::collections::BTreeMap;

use flash_engine::limits::{COMPRESSED_BYTES_MAX, COMPRESSED_FROM_BYTES, SMALL_FILE_BYTES_MAX};
use flash_engine::{FileStat, LookUpError, SiteId};

use crate::ask::Ask;
use crate::machine::files::{NOISE_BYTES, Residency};
use crate::machine::{Content, Files, KIB, Machine, Meddling};
use crate::oracle::stands_for;
use crate::rng::Rng;

/// Extensions of precompressed siblings and their names in `Content-Encoding`, the server's favourite first.
pub(crate) const CODINGS: [(&str, &str); 3] = [(".br", "br"), (".zst", "zstd"), (".gz", "gzip")];

/// One state of a file under a name.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) until_ms: u64,
    /// None while there is no file.
    pub(crate) file: Option<(FileStat, Content)>,
}

/// A name that leads, or could lead, to a file.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) path: String,
    /// In order; the last one is current.
    pub(crate) states: Vec<State>,
    /// Whether the name was always in memory: no state older than the freshness interval is allowed.
    pub(crate) strict: bool,
    /// Whether the file never changes, leaves memory, loses its cached name, or fails.
    pub(crate) hot: bool,
    /// When something last happened that can excuse an error for this file.
    pub(crate) excuse_ms: u64,
    pub(crate) failing: bool,
    /// Whether it has had more than one state.
    pub(crate) changed: bool,
    /// Whether it was ever written in place.
    pub(crate) written: bool,
}

impl Named {
    /// The states of the file in a millisecond, which has two or more if it changed then.
    pub(crate) fn was(&self, at_ms: u64) -> impl Iterator<Item = Option<FileStat>> {
        let since_ms = std::iter::once(0).chain(self.states.iter().map(|state| state.until_ms));
        let there = since_ms.zip(&self.states);
        let there = there.filter(move |(since_ms, state)| (*since_ms..=state.until_ms).contains(&at_ms));
        there.map(|(_, state)| state.file.as_ref().map(|(stat, _)| *stat))
    }
}

/// The result of looking up an address.
#[derive(Clone, Debug)]
pub(crate) enum Lead {
    /// A file and its precompressed siblings, as indices of [`Disk::named`].
    File {
        plain: usize,
        coded: [Option<usize>; 3],
    },
    Listing,
    Redirect,
    Missing,
    Denied,
    /// The look-up fails.
    Error,
}

/// An address that clients request.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) site: u16,
    /// The decoded path; it begins with a slash.
    pub(crate) path: String,
    pub(crate) lead: Lead,
    pub(crate) content_type: &'static str,
    /// When a job for this path last failed or was lost.
    pub(crate) excuse_ms: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub(crate) named: Vec<Named>,
    pub(crate) targets: Vec<Target>,
    /// Whether entity tags include the time of the last metadata change.
    pub(crate) etag_of_change: bool,
    /// Whether the texts of each site are compressed.
    pub(crate) compresses: Vec<bool>,
    /// The name under which each inode is or was found.
    inodes: BTreeMap<u64, usize>,
    /// Makes every time stamp unique.
    stamps: i128,
    /// The change that was given to the machine: name and state number.
    meddled: Option<(usize, usize)>,
    /// The names that have changed and of which the watcher has not heard, and whether there was nothing before.
    pub(crate) events: Vec<(usize, bool)>,
}

const SIZES: [u64; 20] = [
    0,
    1,
    2,
    100,
    100,
    3_000,
    4 * KIB,
    4 * KIB + 1,
    20_000,
    64 * KIB,
    128 * KIB - 1,
    128 * KIB,
    128 * KIB + 1,
    200 * KIB,
    300_001,
    512 * KIB,
    512 * KIB + 1,
    700 * KIB,
    1_100 * KIB + 3,
    3_000 * KIB,
];

impl Disk {
    /// Adds a file with a content of `size_bytes`, or a name without a file. Returns its index.
    pub(crate) fn add(
        &mut self,
        machine: &mut Machine,
        rng: &mut Rng,
        path: &str,
        size: Option<u64>,
    ) -> usize {
        let place = self.named.len();
        let state = State { until_ms: u64::MAX, file: None };
        let strict = machine.files.missing_cached && !machine.files.is_place(path.as_bytes());
        self.named.push(Named {
            path: path.to_owned(),
            states: vec![state],
            strict,
            hot: false,
            excuse_ms: 0,
            failing: false,
            changed: false,
            written: false,
        });
        if let Some(size_bytes) = size {
            self.replace(machine, rng, place, size_bytes);
            self.named[place].changed = false;
        }
        place
    }

    pub(crate) fn size(rng: &mut Rng) -> u64 {
        // Large files take most of the time of a run, so they are rare.
        let last = if rng.chance(20) { SIZES.len() } else { 14 };
        SIZES[rng.place(last)]
    }

    pub(crate) fn content(rng: &mut Rng, size_bytes: u64) -> Content {
        Content::Noise(rng.place(NOISE_BYTES - size_bytes as usize), size_bytes)
    }

    /// The present state.
    pub(crate) fn now(&self, place: usize) -> &State {
        self.named[place].states.last().expect("a name always has a state")
    }

    fn stamp(&mut self, machine: &mut Machine, rng: &mut Rng) -> i128 {
        self.stamps += 1;
        if rng.chance(30) {
            return machine.now.wall_ns + self.stamps;
        }
        machine.files.tick();
        machine.files.now_ns + self.stamps
    }

    fn begin_state(&mut self, place: usize, now_ms: u64, file: Option<(FileStat, Content)>) {
        self.named[place].changed = true;
        self.events.push((place, self.now(place).file.is_none()));
        let states = &mut self.named[place].states;
        if let Some(last) = states.last_mut() {
            last.until_ms = now_ms;
        }
        states.push(State { until_ms: u64::MAX, file });
    }

    /// Puts a new file in place of the old one, as a rename does.
    pub(crate) fn replace(&mut self, machine: &mut Machine, rng: &mut Rng, place: usize, size_bytes: u64) {
        self.settle_file(machine, place);
        self.set_failing(machine, place, false);
        let content = Self::content(rng, size_bytes);
        let path = self.named[place].path.clone();
        let (normal_ns, stamp_ns) = (machine.files.now_ns, self.stamp(machine, rng));
        machine.files.now_ns = stamp_ns;
        machine.files.add(&path, content.clone());
        machine.files.now_ns = normal_ns + 100_000_000;
        let stat = machine.files.look(&path).stat;
        self.inodes.insert(stat.inode, place);
        self.begin_state(place, machine.now.monotonic_ms(), Some((stat, content)));
    }

    pub(crate) fn remove(&mut self, machine: &mut Machine, place: usize) {
        self.settle_file(machine, place);
        self.set_failing(machine, place, false);
        machine.files.remove(&self.named[place].path);
        self.begin_state(place, machine.now.monotonic_ms(), None);
    }

    /// Writes to the file: new bytes, fewer, or more.
    pub(crate) fn write(&mut self, machine: &mut Machine, rng: &mut Rng, place: usize) {
        self.settle_file(machine, place);
        let Some((mut stat, old)) = self.now(place).file.clone() else { return };
        let content = match (rng.below(5), &old) {
            (0, Content::Noise(at, len)) => Content::Noise(*at, rng.below(*len + 1)),
            (1, Content::Noise(at, len)) if at + (*len as usize) + 5_000 < NOISE_BYTES => {
                Content::Noise(*at, len + rng.between(1, 5_000))
            }
            // A longer file is copied over it.
            (2, _) => {
                let longer_bytes = rng.between(1, 5_000);
                Self::content(rng, old.len() + longer_bytes)
            }
            _ => Self::content(rng, old.len()),
        };
        self.named[place].written = true;
        let now_ns = self.stamp(machine, rng);
        let path = self.named[place].path.clone();
        stat.size_bytes = content.len();
        (stat.modified_ns, stat.changed_ns) = (now_ns, now_ns);
        let now_ms = machine.now.monotonic_ms();
        if rng.chance(50) {
            self.settle(machine);
            // The change happens during the engine's next check of the file.
            machine.meddling = Some(Meddling { inode: stat.inode, content: content.clone(), now_ns });
            self.named[place].changed = true;
            let states = &mut self.named[place].states;
            self.meddled = Some((place, states.len() - 1));
            states.push(State { until_ms: u64::MAX, file: Some((stat, content)) });
        } else {
            machine.files.inode(&path).update(content.clone(), now_ns);
            self.begin_state(place, now_ms, Some((stat, content)));
        }
        self.named[place].excuse_ms = now_ms;
    }

    /// Records a change that was left to the machine, once it is made. Called after each turn.
    pub(crate) fn note_meddling(&mut self, machine: &Machine) {
        if machine.meddling.is_none()
            && let Some((place, state)) = self.meddled.take()
        {
            self.events.push((place, false));
            self.named[place].states[state].until_ms = machine.now.monotonic_ms();
            self.named[place].excuse_ms = machine.now.monotonic_ms();
        }
    }

    /// Takes back a change of this file that was never made.
    fn settle_file(&mut self, machine: &mut Machine, place: usize) {
        if self.meddled.is_some_and(|(other, _)| other == place) {
            self.settle(machine);
        }
    }

    /// Takes back a change of any file that was never made.
    pub(crate) fn settle(&mut self, machine: &mut Machine) {
        self.note_meddling(machine);
        machine.meddling = None;
        if let Some((place, state)) = self.meddled.take() {
            self.named[place].states.truncate(state + 1);
        }
    }

    /// Makes reads of the file fail, or succeed again.
    pub(crate) fn set_failing(&mut self, machine: &mut Machine, place: usize, fails: bool) {
        if self.now(place).file.is_some() && self.named[place].failing != fails {
            machine.files.inode(&self.named[place].path).fails = fails;
            self.named[place].failing = fails;
            self.named[place].excuse_ms = machine.now.monotonic_ms();
        }
    }

    pub(crate) fn evict(&self, machine: &mut Machine, rng: &mut Rng, place: usize) {
        let Some((stat, _)) = &self.now(place).file else { return };
        let mut inode = machine.files.inode(&self.named[place].path);
        match &mut inode.residency {
            Residency::Pages(pages) if rng.chance(60) => {
                for _ in 0..rng.between(1, 4) {
                    pages.remove(&rng.below(stat.size_bytes / (4 * KIB) + 1));
                }
            }
            _ => inode.evict(),
        }
    }

    pub(crate) fn forget_name(&mut self, machine: &mut Machine, place: usize) {
        self.named[place].strict = false;
        machine.files.forget_name(&self.named[place].path);
    }

    /// Evicts pages that a job has loaded before they can be used.
    pub(crate) fn thrash(&self, machine: &mut Machine, inode: u64) {
        if let Some(place) = self.inodes.get(&inode)
            && self.now(*place).file.is_some()
            && !self.named[*place].hot
        {
            machine.files.inode(&self.named[*place].path).evict();
        }
    }

    /// The length of the answer, if everything that it needs is in memory: the names, and the resident bytes
    /// of the file.
    pub(crate) fn in_memory(&self, machine: &Machine, ask: &Ask) -> Option<u64> {
        let target = ask.target?;
        let Lead::File { plain, coded } = &self.targets[target].lead else { return None };
        let places = self.files_of(target);
        // An earlier state can still be served for a while, and its pages need not be in memory.
        if places.iter().any(|place| self.named[*place].changed) {
            return None;
        }
        let cached = |place: &usize| machine.files.is_cached(&self.named[*place].path);
        let there = self.now(*plain).file.is_some();
        if ask.has_body || !places.iter().all(cached) || !self.siblings_cached(machine, *plain) {
            return None;
        }
        if !there {
            return Some(0);
        }
        let plain_stat = self.now(*plain).file.as_ref()?.0;
        let is_taken = |place: usize| {
            self.now(place).file.as_ref().is_some_and(|(stat, _)| stands_for(stat, &plain_stat))
        };
        let coding = ask.coding(coded.map(|place| place.is_some_and(is_taken))).unwrap_or(3);
        let place = coded.get(coding).copied().flatten().unwrap_or(*plain);
        let path = &self.named[place].path;
        let size_bytes = self.now(place).file.as_ref()?.0.size_bytes;
        let steady = self.named[place].hot || size_bytes <= SMALL_FILE_BYTES_MAX;
        (steady && machine.files.look(path).is_resident()).then_some(size_bytes)
    }

    /// Absent siblings are looked up too.
    fn siblings_cached(&self, machine: &Machine, plain: usize) -> bool {
        let path = &self.named[plain].path;
        CODINGS.iter().all(|(extension, _)| machine.files.is_cached(&format!("{path}{extension}")))
    }

    /// Records that a job for this inode failed.
    pub(crate) fn excuse_inode(&mut self, inode: u64, now_ms: u64) {
        if let Some(place) = self.inodes.get(&inode) {
            self.named[*place].excuse_ms = now_ms;
            return;
        }
        // An inode without a name belongs to a listing.
        let listings = self.targets.iter_mut().filter(|target| matches!(target.lead, Lead::Listing));
        listings.for_each(|target| target.excuse_ms = now_ms);
    }

    /// Records that a job for this path failed.
    pub(crate) fn excuse_path(&mut self, site: SiteId, path: &[u8], now_ms: u64) {
        for target in &mut self.targets {
            if target.site == site.0 && target.path.as_bytes() == path {
                target.excuse_ms = now_ms;
            }
        }
    }

    /// The entity tag of a state of a file in a coding (an index of [`CODINGS`]), from length, modification
    /// time and, if the rules say so, change time.
    pub(crate) fn etag(&self, stat: &FileStat, coding: usize) -> String {
        let change = if self.etag_of_change { format!("-{:x}", stat.changed_ns) } else { String::new() };
        let suffix = CODINGS.get(coding).map(|(_, name)| format!("-{name}")).unwrap_or_default();
        format!("\"{:x}-{:x}{change}{suffix}\"", stat.size_bytes, stat.modified_ns)
    }

    /// Whether the texts of the site of a target are compressed.
    pub(crate) fn compresses_at(&self, target: usize) -> bool {
        self.compresses[usize::from(self.targets[target].site)]
    }

    /// Whether a file of a target is compressed while it has this state.
    pub(crate) fn is_compressed(&self, target: usize, stat: &FileStat) -> bool {
        let Target { content_type, .. } = &self.targets[target];
        self.compresses_at(target)
            && content_type.starts_with("text/")
            && (COMPRESSED_FROM_BYTES..=COMPRESSED_BYTES_MAX).contains(&stat.size_bytes)
    }

    /// The name of an inode.
    pub(crate) fn place_of(&self, inode: u64) -> Option<usize> {
        self.inodes.get(&inode).copied()
    }

    /// The names that can answer requests for a target.
    pub(crate) fn files_of(&self, target: usize) -> Vec<usize> {
        match &self.targets[target].lead {
            Lead::File { plain, coded } => [Some(*plain)].iter().chain(coded).flatten().copied().collect(),
            _ => Vec::new(),
        }
    }

    /// The target of a path.
    pub(crate) fn target_of(&self, site: SiteId, path: &[u8]) -> Option<usize> {
        self.targets.iter().position(|target| target.site == site.0 && target.path.as_bytes() == path)
    }

    /// Whether anything since `since_ms` can excuse an error for this target.
    pub(crate) fn is_excused(&self, target: usize, since_ms: u64) -> bool {
        self.targets[target].excuse_ms >= since_ms
            || self
                .files_of(target)
                .iter()
                .any(|place| self.named[*place].failing || self.named[*place].excuse_ms >= since_ms)
    }
}

/// Adds files that make every look-up below them fail.
pub(crate) fn add_obstacles(files: &mut Files, root: &str) {
    files.add_special(&format!("{root}special"));
    files.add_error(&format!("{root}denied"), LookUpError::Denied);
    files.add_error(&format!("{root}eio"), LookUpError::Failed(5));
    files.add_error(&format!("{root}fds"), LookUpError::Exhausted);
}
