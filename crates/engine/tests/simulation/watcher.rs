//! The watcher of the files: it tells the keeper which names have changed, but late, in another order, and with changes that
//! did not happen; and it loses some, which it says. It never says that it knows all changes up to a time when it does not.

use flash_engine::{NameFacts, SiteId};

use crate::disk::{Disk, Lead};
use crate::machine::store::{ALL_ACTIONS, Word};
use crate::rng::Rng;
use crate::run::{Event, Run};

/// Separates the random numbers of the watcher from those of the run.
const WATCHER_DICE: u64 = 0x3a7c_4e53_a7c4_e53a;

/// A site and a path in it.
type Name = (SiteId, Vec<u8>);

/// The state of the watcher.
pub(crate) struct Watcher {
    rng: Rng,
    /// Changes that it knows and has not told.
    untold: Vec<Name>,
    /// Which sites are watched, by number.
    watched: Vec<bool>,
    /// Sites in which a directory has appeared that is not watched yet.
    appearing: Vec<SiteId>,
}

impl Watcher {
    pub(crate) fn new(seed: u64) -> Option<Self> {
        let mut rng = Rng::new(seed ^ WATCHER_DICE);
        let is_there = rng.chance(50);
        is_there.then_some(Self { rng, untold: Vec::new(), watched: Vec::new(), appearing: Vec::new() })
    }

    /// Another keeper knows nothing.
    pub(crate) fn begin_anew(&mut self) {
        self.watched.fill(false);
        self.appearing.clear();
    }

    /// Whether a file changes while a finding of its name is under way to the keeper.
    pub(crate) fn overtakes(&mut self) -> bool {
        self.rng.chance(10)
    }

    /// Reads the events of the disk.
    fn read_events(&mut self, disk: &mut Disk, words: &mut Vec<Word>) {
        for (place, was_absent) in std::mem::take(&mut disk.events) {
            for target in (0..disk.targets.len()).filter(|target| disk.files_of(*target).contains(&place)) {
                let Lead::File { plain, .. } = disk.targets[target].lead else { continue };
                let site = SiteId(disk.targets[target].site);
                if was_absent && plain == place && self.rng.chance(30) {
                    // It has appeared with its directory, so only that is told.
                    words.push(Word::Appearing(site));
                    self.appearing.push(site);
                } else {
                    self.untold.push((site, disk.targets[target].path.clone().into_bytes()));
                }
            }
        }
    }

    /// Everything that it says now.
    fn turn(&mut self, disk: &mut Disk, sites: usize, now_ms: u64) -> Vec<Word> {
        let mut words = Vec::new();
        self.watched.resize(sites, false);
        let site = SiteId(self.rng.below(sites as u64) as u16);
        match self.rng.below(30) {
            0 => {
                // The events are lost, and it says so before anything else.
                disk.events.clear();
                self.untold.clear();
                self.watched.fill(false);
                self.appearing.clear();
                words.extend((0..sites).map(|site| Word::Lost(SiteId(site as u16))));
            }
            1 => {
                let named: Vec<Name> = disk
                    .targets
                    .iter()
                    .map(|target| (SiteId(target.site), target.path.clone().into_bytes()))
                    .collect();
                words.push(Word::Changed(vec![named[self.rng.place(named.len())].clone()]));
            }
            2 => {
                words.push(Word::Appearing(site));
                self.appearing.push(site);
            }
            _ => {}
        }
        self.read_events(disk, &mut words);
        self.rng.shuffle(&mut self.untold);
        let told = if self.rng.chance(30) {
            self.rng.below(self.untold.len() as u64 + 1) as usize
        } else {
            self.untold.len()
        };
        if told > 0 {
            words.push(Word::Changed(self.untold.drain(..told).collect()));
        }
        for site in 0..sites {
            if !self.watched[site] && self.rng.chance(40) {
                self.watched[site] = true;
                words.push(Word::Begun(SiteId(site as u16), now_ms));
            }
        }
        if self.rng.chance(60) {
            let appeared = std::mem::take(&mut self.appearing);
            words.extend(appeared.into_iter().map(|site| Word::Appeared(site, now_ms)));
        }
        if self.untold.is_empty() && self.rng.chance(80) {
            words.push(Word::Until(now_ms));
        }
        words
    }
}

impl Run {
    /// The watcher has a turn.
    pub(crate) fn turn_watcher(&mut self) {
        let now_ms = self.now_ms();
        let (Some(watcher), Some(host)) = (&mut self.store.watcher, &self.store.host) else { return };
        if self.over {
            return;
        }
        let words = watcher.turn(&mut self.disk, self.sites.len(), now_ms);
        let in_ms = watcher.rng.pick(&[1, 2, 5, 20, 50, 200, 1_000]);
        words.into_iter().for_each(|word| host.borrow_mut().names.say(word));
        self.after(in_ms, Event::Watcher);
        self.wake_keeper();
    }

    /// The file of a name changes after it was looked up, and the keeper hears of the change before it hears of the finding.
    pub(crate) fn overtake_finding(&mut self, site: SiteId, path: &[u8]) {
        let now_ms = self.now_ms();
        let (Some(watcher), Some(host)) = (&mut self.store.watcher, &self.store.host) else { return };
        let Some(target) = self.disk.target_of(site, path) else { return };
        let Lead::File { plain, .. } = self.disk.targets[target].lead else { return };
        if self.disk.named[plain].hot || path.ends_with(b"/") {
            return;
        }
        let size_bytes = Disk::size(&mut watcher.rng);
        self.disk.replace(&mut self.machine, &mut watcher.rng, plain, size_bytes);
        let words = watcher.turn(&mut self.disk, self.sites.len(), now_ms);
        let mut host = host.borrow_mut();
        words.into_iter().for_each(|word| host.names.say(word));
        host.names.is_heard = false;
        host.turn(now_ms, ALL_ACTIONS);
        drop(host);
        self.wake_keeper();
    }

    /// Requires that every name that is used without a check leads to what was there at the time until which all changes are
    /// known.
    pub(crate) fn check_watched(&self) {
        let Some(host) = &self.store.host else { return };
        for (name, facts, until_ms) in host.borrow().names.watched() {
            let Some(target) = self.disk.target_of(name.0, &name.1) else { continue };
            let Lead::File { plain, .. } = self.disk.targets[target].lead else { continue };
            let found = match facts {
                NameFacts::File { plain, .. } => Some(plain),
                NameFacts::Missing => None,
                _ => continue,
            };
            let is_true = self.disk.named[plain].was(until_ms).any(|state| state == found);
            self.require(is_true, "watched", || {
                format!("{} is not {found:?} at {until_ms}", String::from_utf8_lossy(&name.1))
            });
        }
    }
}
