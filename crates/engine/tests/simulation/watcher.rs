//! The watcher of the files: it tells the keeper which names have changed, but late, in another order, and with changes that
//! did not happen; and it loses some, which it says. It never says that it knows all changes up to a time when it does not.

use flash_engine::SiteId;

use crate::disk::{Disk, Lead};
use crate::machine::store::Word;
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
}
