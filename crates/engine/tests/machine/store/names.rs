//! The names that all workers share: a real [`NameSlots`] with its table, and the messages to the keeper that writes
//! it.

use std::collections::{BTreeMap, VecDeque};

use flash_engine::{
    FileStat, Finding, KnownName, Moment, NameFacts, NameOfFile, Outcome, SiteId, SiteRules, Task, Want, find,
};
use flash_http::types::TypeTable;
use flash_keeper::{NameClass, NameSlots};

use crate::machine::files::{FileHandle, Files};

/// A site and a path in it.
type Name = (SiteId, Vec<u8>);

/// A message to the keeper.
#[derive(Clone, Debug)]
enum Message {
    Learned(Name, Box<KnownName>),
    Wrong(Name),
}

/// The table, and everything that is under way to its keeper.
#[derive(Debug)]
pub(crate) struct KnownNames {
    slots: NameSlots,
    slots_max: u32,
    table: BTreeMap<u32, (Name, KnownName)>,
    index: BTreeMap<Name, u32>,
    messages: VecDeque<Message>,
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
            is_heard: true,
        }
    }

    /// The facts that a reader finds.
    pub(crate) fn get(&self, site: SiteId, path: &[u8]) -> Option<KnownName> {
        Some(self.table[self.index.get(&(site, path.to_vec()))?].1)
    }

    pub(crate) fn doubt(&mut self, site: SiteId, path: &[u8]) {
        self.messages.push_back(Message::Wrong((site, path.to_vec())));
    }

    /// A helper that has done a task tells the keeper what it has found, as `flash-server`'s helper does.
    pub(crate) fn tell(&mut self, done: Done<'_>) {
        let Done { task, outcome, files, sites, types, now } = done;
        match (task, outcome) {
            (Task::Find { site, path }, Outcome::Found(finding)) => {
                self.push((*site, path), finding, &sites[usize::from(site.0)], now);
            }
            (Task::Fill { name: Some(NameOfFile { site, path }), .. }, _) => {
                let rules = &sites[usize::from(site.0)];
                let look_up = |path: &[u8], want| files.open_waiting(*site, path, want);
                if let Ok(finding) = find(path, rules, types, Want::Stat, look_up) {
                    self.push((*site, path), &finding, rules, now);
                }
            }
            _ => {}
        }
    }

    fn push<F>(&mut self, name: (SiteId, &[u8]), finding: &Finding<F>, rules: &SiteRules, now: Moment) {
        let (site, path) = name;
        let Some(facts) = NameFacts::of(finding, path, rules) else { return };
        if !facts.is_racy(now.wall_ns) {
            let known = KnownName { facts, confirmed_ms: now.monotonic_ms };
            self.messages.push_back(Message::Learned((site, path.to_vec()), Box::new(known)));
        }
    }

    pub(super) fn has_unheard(&self) -> bool {
        !self.messages.is_empty()
    }

    /// The keeper dies: messages under way are lost. The next one has the same table.
    pub(super) fn lose_keeper(&mut self) {
        self.messages.clear();
        self.slots = NameSlots::new(self.slots_max);
        let used = self.table.keys().next_back().map_or(0, |slot| slot + 1);
        for slot in 0..used {
            self.slots.resume(self.table.get(&slot).map(|(_, known)| class(known)));
        }
    }

    /// The keeper receives its messages.
    pub(super) fn turn(&mut self, is_stored: impl Fn(&FileStat) -> bool) {
        let heard = if self.is_heard { std::mem::take(&mut self.messages) } else { VecDeque::new() };
        for message in heard {
            match message {
                Message::Learned(name, known) => self.learn(name, *known, &is_stored),
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

    fn forget(&mut self, name: &Name) {
        if let Some(slot) = self.index.remove(name) {
            self.table.remove(&slot);
            self.slots.free(slot);
        }
    }

    fn learn(&mut self, name: Name, known: KnownName, is_stored: impl Fn(&FileStat) -> bool) {
        let is_kept = |known: &KnownName| match &known.facts {
            NameFacts::File { plain, .. } => is_stored(plain),
            _ => false,
        };
        let slot = match self.index.get(&name) {
            Some(slot) if self.table[slot].1.confirmed_ms > known.confirmed_ms => return,
            Some(slot) => *slot,
            None => {
                let table = &self.table;
                let has_stored = |slot| table.get(&slot).is_some_and(|(_, known)| is_kept(known));
                let Some(taken) = self.slots.take(class(&known), is_kept(&known), has_stored) else { return };
                if let Some((old, _)) = self.table.remove(&taken.slot) {
                    assert!(taken.evicts, "property: names: a name was lost");
                    self.index.remove(&old);
                }
                taken.slot
            }
        };
        self.slots.change(slot, class(&known));
        self.index.insert(name.clone(), slot);
        self.table.insert(slot, (name, known));
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

fn class(known: &KnownName) -> NameClass {
    if known.facts == NameFacts::Missing { NameClass::Absent } else { NameClass::Present }
}
