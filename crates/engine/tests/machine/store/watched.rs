//! The messages of the watcher of the files, and the watches of the keeper: a real [`Watching`].

use std::collections::BTreeMap;
use std::hash::{BuildHasherDefault, DefaultHasher};

use flash_engine::SiteId;
use flash_keeper::{Finding, WatchAction, WatcherId, Watching};

use super::names::Name;

/// The only watcher.
const WATCHER: WatcherId = WatcherId(7);
/// Few, so that they are used again.
const PLACES: u16 = 12;

/// A message from the watcher. A site has one part.
#[derive(Clone, Debug)]
pub(crate) enum Word {
    Changed(Vec<Name>),
    Begun(SiteId, u64),
    Appearing(SiteId),
    Appeared(SiteId, u64),
    Lost(SiteId),
    Until(u64),
}

/// The keeper's watches, and those in the table.
#[derive(Debug)]
pub(super) struct Watches {
    watching: Watching<Name, SiteId, BuildHasherDefault<DefaultHasher>>,
    /// The watches in force, with the times until which all changes are known.
    table: BTreeMap<u32, u64>,
    /// The last number of each place.
    last: Vec<u32>,
}

fn watching(last: &[u32]) -> Watching<Name, SiteId, BuildHasherDefault<DefaultHasher>> {
    let numbers = last.iter().map(|number| number + u32::from(PLACES));
    Watching::with_hasher(PLACES, numbers, BuildHasherDefault::default())
}

impl Watches {
    pub(super) fn new() -> Self {
        let last: Vec<u32> = (0..u32::from(PLACES)).collect();
        Self { watching: watching(&last), table: BTreeMap::new(), last }
    }

    /// Another keeper takes over.
    pub(super) fn begin_anew(&mut self) {
        self.table.clear();
        self.watching = watching(&self.last);
    }

    /// Until when all changes under a watch are known, if it is in force.
    pub(super) fn until_ms(&self, watch: u32) -> Option<u64> {
        self.table.get(&watch).copied()
    }

    pub(super) fn are_any_in_force(&self) -> bool {
        !self.table.is_empty()
    }

    pub(super) fn find(&mut self, name: &Name, found_ms: u64, is_absent: bool) {
        self.watching.handle_found(name.clone(), Finding { subtree: name.0, found_ms, is_absent });
    }

    /// Handles a message. Returns the names that have changed, and those that are watched from now on: their
    /// findings' times, and the watches.
    pub(super) fn hear(&mut self, word: Word, now_ms: u64) -> (Vec<Name>, Vec<(Name, u64, u32)>) {
        let mut changed = Vec::new();
        match word {
            Word::Changed(names) => {
                names.iter().for_each(|name| self.watching.handle_changed(name, now_ms));
                changed = names;
            }
            Word::Begun(site, since_ms) => self.watching.handle_begun(WATCHER, site, since_ms),
            Word::Appearing(site) => self.watching.handle_appearing(WATCHER, site),
            Word::Appeared(site, since_ms) => self.watching.handle_appeared(WATCHER, site, since_ms),
            Word::Lost(site) => self.watching.handle_lost(WATCHER, site),
            Word::Until(until_ms) => self.watching.handle_until(WATCHER, until_ms),
        }
        let mut entered = Vec::new();
        while let Some(action) = self.watching.poll() {
            match action {
                WatchAction::Extend(watch, until_ms) => {
                    self.last[(watch % u32::from(PLACES)) as usize] = watch;
                    self.table.insert(watch, until_ms);
                }
                WatchAction::End(watch) => {
                    self.last[(watch % u32::from(PLACES)) as usize] = watch;
                    self.table.remove(&watch);
                }
                WatchAction::Enter(name, found_ms, watch) => entered.push((name, found_ms, watch)),
            }
        }
        (changed, entered)
    }
}
