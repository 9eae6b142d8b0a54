//! The roots that are watched, each in parts, and how far the watch of each part is. Called by [`watcher`](super).

use flash_engine::SiteRules;
use flash_prompt::OwnedFd;
use flash_prompt::names::{NameHash, NamesReader};
use flash_waiting::watched;
use flash_worker::names::{SharedNames, Subtrees};

use crate::config::Settings;
use crate::convert;

/// A site, as far as its names matter.
pub(super) struct Site {
    pub(super) rules: SiteRules,
    pub(super) hash: NameHash,
}

/// How far the watch of a subtree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// None of its directories is watched. They are looked for from this time on.
    Begins(u64),
    /// Its directories are being found and watched.
    Walks,
    /// All of its changes are reported.
    Whole,
    /// It cannot be watched.
    Unwatched,
}

/// Whether a directory, or a link to one, has appeared whose names could be unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Appearing {
    Nothing,
    /// One has appeared, and the keeper does not know it.
    Unreported,
    /// The keeper knows that, and gets a message when it is watched.
    Reported,
}

/// Some of the directories in a root, with everything beneath them. A change that cannot be followed costs only the watch
/// of its subtree.
pub(super) struct Subtree {
    pub(super) number: u16,
    pub(super) progress: Progress,
    /// Directories that are not watched yet.
    pub(super) waiting: Vec<Box<[u8]>>,
    pub(super) appearing: Appearing,
}

/// Which subtrees of a root are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    All,
    One(u16),
}

impl Which {
    pub(super) fn has(self, number: u16) -> bool {
        self == Which::All || self == Which::One(number)
    }
}

/// A folder that sites serve.
pub(super) struct Root {
    pub(super) folder: OwnedFd,
    pub(super) name: String,
    pub(super) sites: Vec<Site>,
    pub(super) subtrees: Vec<Subtree>,
    /// The file systems mounted beneath it.
    pub(super) mounts: Vec<Vec<u8>>,
    /// Whether it was reported to the supervisor that a part of it cannot be watched.
    pub(super) is_reported: bool,
}

impl Root {
    pub(super) fn new(folder: OwnedFd, site: Site, subtrees: Subtrees) -> Self {
        let subtree = |number| Subtree {
            number,
            progress: Progress::Begins(0),
            waiting: Vec::new(),
            appearing: Appearing::Nothing,
        };
        Self {
            folder,
            name: site.rules.root.display().to_string(),
            sites: vec![site],
            subtrees: subtrees.numbers().map(subtree).collect(),
            mounts: Vec::new(),
            is_reported: false,
        }
    }

    /// The hashes of a subtree, one for each site of this root.
    pub(super) fn hashes(&self, subtrees: Subtrees, names: &NamesReader, number: u16) -> Vec<NameHash> {
        self.sites.iter().map(|site| subtrees.hash(names, site.hash, number)).collect()
    }

    /// The subtrees that begin now.
    pub(super) fn due(&self, now_ms: u64) -> Vec<u16> {
        let is_due =
            |subtree: &&Subtree| matches!(subtree.progress, Progress::Begins(at_ms) if at_ms <= now_ms);
        self.subtrees.iter().filter(is_due).map(|subtree| subtree.number).collect()
    }

    /// A directory that is not watched has been found.
    pub(super) fn find(&mut self, number: u16, path: Box<[u8]>) {
        let subtree = &mut self.subtrees[usize::from(number)];
        match subtree.progress {
            Progress::Walks | Progress::Whole => subtree.waiting.push(path),
            // It is looked for later, or not at all.
            Progress::Begins(_) | Progress::Unwatched => {}
        }
    }

    /// A directory, or a link to one, has appeared.
    pub(super) fn note_appearance(&mut self, number: u16) {
        let subtree = &mut self.subtrees[usize::from(number)];
        if subtree.progress == Progress::Whole {
            subtree.appearing = Appearing::Unreported;
        }
    }

    /// Whether a directory in these subtrees can be watched.
    pub(super) fn has_watches(&self, which: Which) -> bool {
        let has = |subtree: &Subtree| matches!(subtree.progress, Progress::Walks | Progress::Whole);
        self.subtrees.iter().any(|subtree| which.has(subtree.number) && has(subtree))
    }

    /// Ends the watch of subtrees, until they begin anew. Returns those whose watch was in force.
    pub(super) fn end(&mut self, which: Which, next: Progress) -> Vec<u16> {
        let mut ended = Vec::new();
        for subtree in self.subtrees.iter_mut().filter(|subtree| which.has(subtree.number)) {
            if subtree.progress == Progress::Unwatched {
                continue;
            }
            if subtree.progress == Progress::Whole {
                ended.push(subtree.number);
            }
            subtree.progress = next;
            subtree.waiting.clear();
            subtree.appearing = Appearing::Nothing;
        }
        ended
    }

    /// Whether directories must be watched now.
    pub(super) fn is_working(&self, now_ms: u64) -> bool {
        self.subtrees.iter().any(|subtree| !subtree.waiting.is_empty()) || !self.due(now_ms).is_empty()
    }
}

/// The roots that can be watched, and the number of sites with other roots.
pub(super) fn find_roots(
    settings: &Settings,
    folders: Vec<Option<OwnedFd>>,
    names: &NamesReader,
    subtrees: Subtrees,
) -> (Vec<Root>, u64) {
    let types = convert::types(settings);
    let (mut roots, mut unwatched): (Vec<Root>, u64) = (Vec::new(), 0);
    for (rules, folder) in convert::sites(settings).into_iter().zip(folders) {
        let name = rules.root.display().to_string();
        let Some(folder) = folder.filter(|folder| watched::reports_changes(folder)) else {
            unwatched += 1;
            continue;
        };
        let Some(hash) = SharedNames::site_hash(names, &rules, &folder, &types) else { continue };
        let site = Site { rules, hash };
        match roots.iter_mut().find(|root| root.name == name) {
            Some(root) => root.sites.push(site),
            None => roots.push(Root::new(folder, site, subtrees)),
        }
    }
    (roots, unwatched)
}
