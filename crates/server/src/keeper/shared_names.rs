//! The names that all workers share: the keeper writes what helpers have found into their table. Called by
//! [`keeper`](super).

use std::collections::HashMap;
use std::io;

use flash_engine::NameFacts;
use flash_keeper::{Finding, NameClass, NameSlots, Totals, WatchAction, WatcherId, Watching};
use flash_prompt::AsFd;
use flash_prompt::names::{FileState, NameEntry, NameHash, NamesWriter, WATCH_PLACES};
use flash_worker::names::{self, PARTS};
use flash_worker::store_protocol::{FromWatcher, WatcherFigures};

/// The table and its slots.
#[derive(Debug)]
pub(super) struct SharedNamesTable {
    table: NamesWriter,
    slots: NameSlots,
    watching: Watching<NameHash, NameHash>,
    figures: HashMap<WatcherId, WatcherFigures>,
    /// Names that made room for others.
    evictions: u64,
}

impl SharedNamesTable {
    /// Takes over the table of an earlier keeper, or an empty one.
    ///
    /// Errors: those of [`NamesWriter::open`].
    pub(super) fn open(file: impl AsFd) -> io::Result<Self> {
        let mut table = NamesWriter::open(file)?;
        // Changes may have been missed since the earlier keeper ended.
        let watching = Watching::new(WATCH_PLACES, table.end_watches().into_iter());
        let mut slots = NameSlots::new(table.slots_max());
        for slot in 0..table.slots_used() {
            slots.resume(table.get(slot).map(|entry| class(&entry)));
        }
        Ok(Self { table, slots, watching, figures: HashMap::new(), evictions: 0 })
    }

    #[cfg(test)]
    fn len(&self) -> u64 {
        self.slots.len()
    }

    /// Adds the figures about names to those of the store.
    pub(super) fn count(&self, totals: Totals) -> Totals {
        let sum = |of: fn(&WatcherFigures) -> u64| self.figures.values().map(of).sum();
        Totals {
            names: self.slots.len(),
            names_evicted: self.evictions,
            subtrees_watched: self.watching.watched() as u64,
            subtrees_unwatched: sum(|figures| figures.subtrees_unwatched),
            directories_watched: sum(|figures| figures.directories),
            directories_max: self.figures.values().map(|figures| figures.directories_max).max().unwrap_or(0),
            sites_watched: sum(|figures| figures.sites),
            sites_unreported: sum(|figures| figures.sites_unreported),
            ..totals
        }
    }

    pub(super) fn handle_message(&mut self, watcher: WatcherId, message: FromWatcher, now_ms: u64) {
        match message {
            FromWatcher::Changed(changed) => {
                for name in changed {
                    self.watching.handle_changed(&name, now_ms);
                    self.forget(name);
                }
            }
            FromWatcher::Begun { subtree, since_ms } => {
                self.watching.handle_begun(watcher, subtree, since_ms);
            }
            FromWatcher::Appearing { subtree } => self.watching.handle_appearing(watcher, subtree),
            FromWatcher::Appeared { subtree, since_ms } => {
                self.watching.handle_appeared(watcher, subtree, since_ms);
            }
            FromWatcher::Lost { subtree } => self.watching.handle_lost(watcher, subtree),
            FromWatcher::Until(until_ms) => self.watching.handle_until(watcher, until_ms),
            FromWatcher::Figures(figures) => {
                self.figures.insert(watcher, figures);
            }
        }
        self.act();
    }

    pub(super) fn lose(&mut self, watcher: WatcherId) {
        self.figures.remove(&watcher);
        self.watching.handle_gone(watcher);
        self.act();
    }

    fn act(&mut self) {
        while let Some(action) = self.watching.poll() {
            match action {
                WatchAction::Extend(watch, until_ms) => self.table.extend_watch(watch, until_ms),
                WatchAction::End(watch) => self.table.end_watch(watch),
                WatchAction::Enter(name, found_ms, watch) => {
                    // A later finding has a turn of its own.
                    if let Some((slot, entry)) = self.table.find(name, 0)
                        && entry.confirmed_ms == found_ms
                    {
                        self.table.put(slot, &NameEntry { watch, ..entry });
                    }
                }
            }
        }
    }

    /// A helper has found a name, every change of which a watcher of this subtree reports.
    pub(super) fn watch(&mut self, name: NameHash, subtree: NameHash, facts: &NameFacts, found_ms: u64) {
        let is_absent = *facts == NameFacts::Missing;
        self.watching.handle_found(name, Finding { subtree, found_ms, is_absent });
    }

    /// Enters what a helper has found for a name, unless something newer is known. `is_stored` is whether the content
    /// of a file in this state is in the store.
    pub(super) fn learn(
        &mut self,
        name: NameHash,
        facts: &NameFacts,
        found_ms: u64,
        is_stored: impl Fn(&FileState) -> bool,
    ) {
        let is_known = |entry: &NameEntry| {
            // Listings that were read since then stay true, so that time is kept.
            let is_reported = names::is_listing(entry) && *facts == NameFacts::Listing;
            entry.confirmed_ms > found_ms || is_reported && self.table.is_watched(entry.watch)
        };
        if self.table.find(name, 0).is_some_and(|(_, entry)| is_known(&entry)) {
            return;
        }
        let Some(entries) = names::entries(name, facts, found_ms) else { return self.forget(name) };
        let there = self.parts(name);
        for part in 1..PARTS {
            if !entries.iter().any(|entry| entry.part == part) {
                there[usize::from(part)].into_iter().for_each(|slot| self.drop_slot(slot));
            }
        }
        // The name itself leads readers to its parts, so it comes last.
        for entry in entries.iter().rev() {
            let own = there[usize::from(entry.part)];
            let Some(slot) = own.or_else(|| self.take(entry, &is_stored)) else { break };
            self.slots.change(slot, class(entry));
            self.table.put(slot, entry);
        }
        // Without one of its parts, which can have made room for another, a name is not known.
        if self.parts(name).into_iter().flatten().count() < entries.len() {
            self.forget(name);
        }
        self.table.count_change(name);
    }

    pub(super) fn forget(&mut self, name: NameHash) {
        for slot in self.parts(name).into_iter().flatten() {
            self.drop_slot(slot);
        }
        self.table.count_change(name);
    }

    fn parts(&self, name: NameHash) -> [Option<u32>; PARTS as usize] {
        std::array::from_fn(|part| self.table.find(name, part as u8).map(|(slot, _)| slot))
    }

    fn take(&mut self, entry: &NameEntry, is_stored: impl Fn(&FileState) -> bool) -> Option<u32> {
        let table = &self.table;
        let is_kept = |entry: &NameEntry| class(entry) == NameClass::Present && is_stored(&entry.state);
        let has_stored = |slot| table.get(slot).is_some_and(|entry| is_kept(&entry));
        let taken = self.slots.take(class(entry), is_kept(entry), has_stored)?;
        self.evictions += u64::from(taken.evicts);
        Some(taken.slot)
    }

    fn drop_slot(&mut self, slot: u32) {
        self.table.remove(slot);
        self.slots.free(slot);
    }
}

fn class(entry: &NameEntry) -> NameClass {
    if names::is_absent(entry) { NameClass::Absent } else { NameClass::Present }
}

#[cfg(test)]
mod tests {
    use flash_engine::{FileKind, FileStat, PathRules, SharedName, SiteId, SiteRules};
    use flash_http::EncodedSlash;
    use flash_http::types::TypeTable;
    use flash_prompt::OwnedFd;
    use flash_prompt::names::{NamesReader, file_bytes};
    use flash_waiting::store_file;
    use flash_worker::names::SharedNames;

    use super::*;

    const SITE: SiteId = SiteId(0);

    fn rules(browse: bool) -> SiteRules {
        SiteRules {
            root: "/".into(),
            hosts: vec![],
            index: vec!["index.html".into()],
            browse,
            precompressed: true,
            compress: false,
            encoded_slash: EncodedSlash::Decode,
            hsts: None,
            https_redirect: None,
            paths: PathRules::default().into(),
            alias_of: None,
            routes: vec![],
        }
    }

    fn table(slots_max: u32) -> (OwnedFd, SharedNamesTable) {
        let file =
            store_file::create(c"flash-test", file_bytes(slots_max).expect("a length")).expect("a file");
        NamesWriter::create(&file, slots_max).expect("created");
        let names_table = SharedNamesTable::open(&file).expect("opened");
        (file, names_table)
    }

    fn shared(file: &OwnedFd, browse: bool, root: &str) -> SharedNames {
        let table = NamesReader::map(store_file::read_only(file).expect("opened")).expect("mapped");
        let root = std::fs::File::open(root).expect("a root");
        SharedNames::new(table, [(&rules(browse), Some(root))].into_iter(), &TypeTable::default())
    }

    fn file(inode: u64, coded: [Option<u64>; 3]) -> NameFacts {
        let stat = |inode| FileStat {
            kind: FileKind::Regular,
            device: 1,
            inode,
            size_bytes: 10,
            modified_ns: 5,
            changed_ns: -6,
        };
        NameFacts::File { plain: stat(inode), coded: coded.map(|inode| inode.map(stat)), index: None }
    }

    #[test]
    fn a_worker_finds_what_a_helper_has_found() {
        let (memory, mut names_table) = table(100);
        let shared = shared(&memory, false, "/");
        let name = shared.hash(SITE, b"/a").expect("a hash");
        assert_eq!(shared.find(SITE, b"/a"), None);
        for (facts, entries) in [
            (file(7, [None; 3]), 1),
            (file(7, [Some(8), None, Some(9)]), 3),
            (file(7, [None, Some(8), None]), 2),
            (NameFacts::Missing, 1),
            (NameFacts::Redirect, 1),
        ] {
            names_table.learn(name, &facts, 50, |_| false);
            assert_eq!(
                shared.find(SITE, b"/a"),
                Some(SharedName { facts, found_ms: 50, confirmed_ms: 50, watched: None })
            );
            assert_eq!(names_table.len(), entries);
        }
        names_table.learn(name, &NameFacts::Denied, 49, |_| false);
        assert_eq!(
            shared.find(SITE, b"/a").map(|name| name.facts),
            Some(NameFacts::Redirect),
            "that is newer"
        );
        // The next keeper has the same names.
        drop(names_table);
        let mut names_table = SharedNamesTable::open(&memory).expect("opened");
        assert_eq!((names_table.len(), shared.find(SITE, b"/a").is_some()), (1, true));
        names_table.forget(name);
        assert_eq!((names_table.len(), shared.find(SITE, b"/a")), (0, None));
    }

    #[test]
    fn a_site_with_other_rules_or_another_root_does_not_use_a_name() {
        let (memory, mut names_table) = table(100);
        let name = shared(&memory, false, "/").hash(SITE, b"/a").expect("a hash");
        names_table.learn(name, &NameFacts::Listing, 50, |_| false);
        assert!(shared(&memory, false, "/").find(SITE, b"/a").is_some());
        assert!(shared(&memory, true, "/").find(SITE, b"/a").is_none());
        assert!(shared(&memory, false, "/proc").find(SITE, b"/a").is_none());
    }

    #[test]
    fn a_name_that_has_no_room_with_its_parts_is_not_known() {
        let (memory, mut names_table) = table(4);
        let shared = shared(&memory, false, "/");
        let hash = |path: &[u8]| shared.hash(SITE, path).expect("a hash");
        for path in [b"/1", b"/2", b"/3"] {
            names_table.learn(hash(path), &file(path[1].into(), [None; 3]), 50, |_| true);
        }
        // Its forms are not stored, and all others are.
        names_table.learn(hash(b"/4"), &file(4, [Some(5), Some(6), None]), 50, |state| state.inode > 10);
        assert_eq!((shared.find(SITE, b"/4"), names_table.len()), (None, 3));
        names_table.learn(hash(b"/4"), &file(4, [Some(5), None, None]), 50, |_| true);
        assert!(shared.find(SITE, b"/4").is_some());
        let left = [b"/1", b"/2", b"/3"].iter().filter(|path| shared.find(SITE, **path).is_some()).count();
        assert_eq!(left, 2, "one of them makes room");
        assert!(names_table.evictions > 0);
    }

    #[test]
    fn a_watched_name_is_true_until_it_changes_or_the_watch_ends() {
        const WATCHER: WatcherId = WatcherId(1);
        let (memory, mut names_table) = table(100);
        let shared = shared(&memory, false, "/");
        let subtree = shared.subtree(SITE, b"/a").expect("a subtree");
        let name = shared.hash(SITE, b"/a").expect("a hash");
        let facts = file(7, [Some(8), None, None]);
        let learn = |names_table: &mut SharedNamesTable, found_ms| {
            names_table.learn(name, &facts, found_ms, |_| true);
            names_table.watch(name, subtree, &facts, found_ms);
        };
        let mark = || shared.find(SITE, b"/a").and_then(|name| name.watched).expect("a mark");
        let seen = || shared.find(SITE, b"/a").map(|name| (name.confirmed_ms, name.watched.is_some()));
        names_table.handle_message(WATCHER, FromWatcher::Begun { subtree, since_ms: 100 }, 100);
        learn(&mut names_table, 110);
        assert_eq!(seen(), Some((110, false)));
        names_table.handle_message(WATCHER, FromWatcher::Until(150), 151);
        assert_eq!(seen(), Some((150, true)));
        names_table.handle_message(WATCHER, FromWatcher::Until(200), 201);
        assert_eq!(seen(), Some((200, true)));
        let before = mark();
        assert_eq!(shared.unchanged_ms(before), Some(200));
        names_table.handle_message(WATCHER, FromWatcher::Until(205), 206);
        assert_eq!(shared.unchanged_ms(before), Some(205), "nothing has changed");
        names_table.handle_message(WATCHER, FromWatcher::Changed(vec![name]), 210);
        assert_eq!((seen(), shared.unchanged_ms(before)), (None, None));
        learn(&mut names_table, 205);
        names_table.handle_message(WATCHER, FromWatcher::Until(250), 251);
        assert_eq!(seen(), Some((205, false)), "it was found before the change was reported");
        learn(&mut names_table, 260);
        names_table.handle_message(WATCHER, FromWatcher::Until(300), 301);
        assert_eq!((seen(), shared.unchanged_ms(before)), (Some((300, true)), None));
        let before = mark();
        names_table.lose(WATCHER);
        assert_eq!((seen(), shared.unchanged_ms(before)), (Some((260, false)), None));
        names_table.handle_message(WATCHER, FromWatcher::Begun { subtree, since_ms: 310 }, 310);
        learn(&mut names_table, 320);
        names_table.handle_message(WATCHER, FromWatcher::Until(350), 351);
        assert_eq!((seen(), names_table.count(Totals::default()).subtrees_watched), (Some((350, true)), 1));
        drop(names_table);
        // The next keeper has missed changes.
        let _known = SharedNamesTable::open(&memory).expect("opened");
        assert_eq!(seen(), Some((320, false)));
    }
}
