//! The names that all workers share: a real [`NameSlots`] with its table, and the messages to the keeper that writes
//! it.

use std::collections::{BTreeMap, VecDeque};

use flash_engine::{
    FileStat, Finding, Moment, NameFacts, NameMark, NameOfFile, Outcome, SharedName, SiteId, SiteRules, Task,
    Want, find,
};
use flash_http::types::TypeTable;
use flash_keeper::{NameClass, NameSlots};

use super::watched::{Watches, Word};
use crate::machine::files::{FileHandle, Files};

/// A site and a path in it.
pub(super) type Name = (SiteId, Vec<u8>);

/// A message to the keeper.
#[derive(Clone, Debug)]
enum Message {
    /// The name, its facts, and whether a watcher tells its changes.
    Learned(Name, Box<SharedName>, bool),
    Wrong(Name),
}

/// Few, so that changes of other names count too.
const SHARDS: usize = 4;

/// An entry of the table.
#[derive(Debug)]
struct Row {
    name: Name,
    known: SharedName,
    /// The watch under which it was found.
    watch: Option<u32>,
}

/// The table, and everything that is under way to its keeper.
#[derive(Debug)]
pub(crate) struct KnownNames {
    slots: NameSlots,
    slots_max: u32,
    table: BTreeMap<u32, Row>,
    index: BTreeMap<Name, u32>,
    messages: VecDeque<Message>,
    /// The messages of the watcher, which come in order but are not delayed with the others.
    words: VecDeque<Word>,
    watches: Watches,
    /// The changes of names, by shard.
    changes: [u64; SHARDS],
    /// Whether a watcher tells the changes of files that it can watch.
    pub(crate) has_watcher: bool,
    /// Whether it also tells when a listing changes.
    pub(crate) reports_listings: bool,
    /// Whether readers miss every name, as they can for a moment while its neighbours change.
    pub(crate) are_missed: bool,
    /// Whether the keeper receives its messages in its next turn; otherwise they are still under way.
    pub(crate) is_heard: bool,
}

impl KnownNames {
    pub(super) fn new(slots_max: u32) -> Self {
        Self {
            slots: NameSlots::new(slots_max),
            slots_max,
            table: BTreeMap::new(),
            index: BTreeMap::new(),
            messages: VecDeque::new(),
            words: VecDeque::new(),
            watches: Watches::new(),
            changes: [0; SHARDS],
            has_watcher: false,
            reports_listings: true,
            are_missed: false,
            is_heard: true,
        }
    }

    /// The facts that a reader finds.
    pub(crate) fn get(&self, site: SiteId, path: &[u8]) -> Option<SharedName> {
        let slot = self.index.get(&(site, path.to_vec())).filter(|_| !self.are_missed)?;
        let row = &self.table[slot];
        let until_ms = row.watch.and_then(|watch| self.watches.until_ms(watch));
        let confirmed_ms = row.known.found_ms.max(until_ms.unwrap_or(0));
        let shard = path.len() % SHARDS;
        let mark = |watch| NameMark { watch, shard: shard as u16, changes: self.changes[shard] };
        Some(SharedName { confirmed_ms, watched: until_ms.and(row.watch).map(mark), ..row.known })
    }

    /// Until when a name with this mark is known not to have changed.
    pub(crate) fn unchanged_ms(&self, mark: NameMark) -> Option<u64> {
        let until_ms = self.watches.until_ms(mark.watch)?;
        (self.changes[usize::from(mark.shard)] == mark.changes).then_some(until_ms)
    }

    /// The names that are used without a check, what they lead to, and the time until which all changes are known.
    pub(crate) fn watched(&self) -> impl Iterator<Item = (&Name, NameFacts, u64)> {
        self.table.values().filter_map(|row| {
            let until_ms = self.watches.until_ms(row.watch?)?;
            Some((&row.name, row.known.facts, until_ms))
        })
    }

    pub(crate) fn are_changes_reported(&self) -> bool {
        self.watches.are_any_in_force()
    }

    /// The watcher sends a message.
    pub(crate) fn say(&mut self, word: Word) {
        self.words.push_back(word);
    }

    pub(crate) fn doubt(&mut self, site: SiteId, path: &[u8]) {
        self.messages.push_back(Message::Wrong((site, path.to_vec())));
    }

    /// A helper that has done a task tells the keeper what it has found, as `flash-server`'s helper does.
    pub(crate) fn tell(&mut self, done: Done<'_>) {
        let Done { task, outcome, files, sites, types, now } = done;
        match (task, outcome) {
            (Task::Find { site, path }, Outcome::Found(finding)) => {
                let is_told = self.has_watcher && files.reports_changes(*site, path);
                self.push((*site, path), finding, &sites[usize::from(site.0)], (now, is_told));
            }
            (Task::List { site, path, .. }, Outcome::Listed(..)) => {
                let is_told = self.has_watcher && files.reports_changes(*site, path);
                let finding = Finding::<FileHandle>::Listing;
                self.push((*site, path), &finding, &sites[usize::from(site.0)], (now, is_told));
            }
            (Task::Fill { name: Some(NameOfFile { site, path }), .. }, _) => {
                let rules = &sites[usize::from(site.0)];
                let look_up = |path: &[u8], want| files.open_waiting(*site, path, want);
                if let Ok(finding) = find(path, rules, types, Want::Stat, look_up) {
                    let is_told = self.has_watcher && files.reports_changes(*site, path);
                    self.push((*site, path), &finding, rules, (now, is_told));
                }
            }
            _ => {}
        }
    }

    fn push<F>(
        &mut self,
        (site, path): (SiteId, &[u8]),
        finding: &Finding<F>,
        rules: &SiteRules,
        (now, is_told): (Moment, bool),
    ) {
        let Some(facts) = NameFacts::of(finding, path, rules) else { return };
        if !facts.is_racy(now.wall_ns) {
            let found_ms = now.monotonic_ms();
            let known = SharedName { facts, found_ms, confirmed_ms: found_ms, watched: None };
            self.messages.push_back(Message::Learned((site, path.to_vec()), Box::new(known), is_told));
        }
    }

    pub(super) fn has_unheard(&self) -> bool {
        !self.messages.is_empty() || !self.words.is_empty()
    }

    /// The keeper dies: messages under way are lost. The next one has the same table.
    pub(super) fn lose_keeper(&mut self) {
        self.messages.clear();
        self.words.clear();
        self.watches.begin_anew();
        self.slots = NameSlots::new(self.slots_max);
        let used = self.table.keys().next_back().map_or(0, |slot| slot + 1);
        for slot in 0..used {
            self.slots.resume(self.table.get(&slot).map(|row| class(&row.known)));
        }
    }

    /// The keeper receives its messages.
    pub(super) fn turn(&mut self, now_ms: u64, is_stored: impl Fn(&FileStat) -> bool) {
        while let Some(word) = self.words.pop_front() {
            self.hear(word, now_ms);
        }
        let heard = if self.is_heard { std::mem::take(&mut self.messages) } else { VecDeque::new() };
        for message in heard {
            match message {
                Message::Learned(name, known, is_told) => {
                    let (found_ms, known_facts) = (known.found_ms, known.facts);
                    self.learn(name.clone(), *known, &is_stored);
                    if is_told && (self.reports_listings || known_facts != NameFacts::Listing) {
                        self.watches.find(&name, found_ms, known_facts == NameFacts::Missing);
                    }
                }
                Message::Wrong(name) => self.forget(&name),
            }
        }
        assert!(self.table.len() <= self.slots_max as usize, "property: bounds: {} names", self.table.len());
        assert_eq!(
            self.slots.len(),
            self.table.len() as u64,
            "property: names: the slots and the table differ"
        );
    }

    fn hear(&mut self, word: Word, now_ms: u64) {
        let (changed, entered) = self.watches.hear(word, now_ms);
        changed.iter().for_each(|name| self.forget(name));
        for (name, found_ms, watch) in entered {
            if let Some(slot) = self.index.get(&name)
                && let Some(row) = self.table.get_mut(slot).filter(|row| row.known.found_ms == found_ms)
            {
                row.watch = Some(watch);
            }
        }
    }

    fn forget(&mut self, name: &Name) {
        self.changes[name.1.len() % SHARDS] += 1;
        if let Some(slot) = self.index.remove(name) {
            self.table.remove(&slot);
            self.slots.free(slot);
        }
    }

    fn learn(&mut self, name: Name, known: SharedName, is_stored: impl Fn(&FileStat) -> bool) {
        let is_as_true = |row: &Row| {
            let is_in_force = row.watch.is_some_and(|watch| self.watches.until_ms(watch).is_some());
            is_in_force && known.facts == NameFacts::Listing && row.known.facts == NameFacts::Listing
        };
        if self.index.get(&name).is_some_and(|slot| is_as_true(&self.table[slot])) {
            return;
        }
        let is_kept = |known: &SharedName| match &known.facts {
            NameFacts::File { plain, .. } => is_stored(plain),
            _ => false,
        };
        let slot = match self.index.get(&name) {
            Some(slot) if self.table[slot].known.found_ms > known.found_ms => return,
            Some(slot) => *slot,
            None => {
                let table = &self.table;
                let has_stored = |slot| table.get(&slot).is_some_and(|row| is_kept(&row.known));
                let Some(taken) = self.slots.take(class(&known), is_kept(&known), has_stored) else { return };
                if let Some(old) = self.table.remove(&taken.slot) {
                    assert!(taken.evicts, "property: names: a name was lost");
                    self.index.remove(&old.name);
                }
                taken.slot
            }
        };
        self.slots.change(slot, class(&known));
        self.changes[name.1.len() % SHARDS] += 1;
        self.index.insert(name.clone(), slot);
        self.table.insert(slot, Row { name, known, watch: None });
    }
}

/// A task that a helper has done, and the files as it sees them.
pub(crate) struct Done<'a> {
    pub(crate) task: &'a Task<FileHandle>,
    pub(crate) outcome: &'a Outcome<FileHandle>,
    pub(crate) files: &'a mut Files,
    pub(crate) sites: &'a [SiteRules],
    pub(crate) types: &'a TypeTable,
    pub(crate) now: Moment,
}

fn class(known: &SharedName) -> NameClass {
    if known.facts == NameFacts::Missing { NameClass::Absent } else { NameClass::Present }
}
