//! The names that all workers share, as one process looks them up: its sites in the table, and the engine's facts as
//! entries of it. Workers, helpers and the keeper use this.

use flash_engine::{FileKind, FileStat, NameFacts, NameMark, SharedName, SiteId, SiteRules};
use flash_http::types::TypeTable;
use flash_prompt::AsFd;
use flash_prompt::file;
use flash_prompt::names::{FileState, NameEntry, NameHash, NamesReader, WATCH_PLACES};

/// The parts of a name: itself, and the forms of its file.
pub const PARTS: u8 = 4;

const FILE: u8 = 1;
const SCRIPT: u8 = 2;
const REDIRECT: u8 = 3;
const LISTING: u8 = 4;
const MISSING: u8 = 5;
const DENIED: u8 = 6;

/// Each site is watched for changes in this many parts: a subtree has some of the directories in its root, with everything
/// beneath them. All processes of a configuration have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subtrees(u16);

impl Subtrees {
    const EACH_MAX: usize = 64;
    /// Each has two watches, one for absent names; two configurations can have watches at once.
    const ALL_MAX: usize = WATCH_PLACES as usize / 4;

    /// The subtrees of each of this many sites.
    #[must_use]
    pub fn of(sites: usize) -> Self {
        Self((Self::ALL_MAX / sites.max(1)).clamp(1, Self::EACH_MAX) as u16)
    }

    /// The numbers of the subtrees of a site.
    pub fn numbers(self) -> impl Iterator<Item = u16> {
        0..self.0
    }

    /// The subtree of a decoded path, which begins with a slash.
    #[must_use]
    pub fn number(self, table: &NamesReader, path: &[u8]) -> u16 {
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let top = path.iter().position(|byte| *byte == b'/').map_or(&b""[..], |end| &path[..end]);
        (table.site(top).0[0] % u64::from(self.0)) as u16
    }

    /// The hash of a subtree of a site.
    #[must_use]
    pub fn hash(self, table: &NamesReader, site: NameHash, number: u16) -> NameHash {
        // No path has this form.
        table.name(site, &[&self.0.to_le_bytes()[..], &number.to_le_bytes()].concat())
    }
}

/// The table, and the sites of a process in it.
#[derive(Debug)]
pub struct SharedNames {
    table: NamesReader,
    subtrees: Subtrees,
    /// None for a site whose root is missing.
    sites: Vec<Option<NameHash>>,
}

impl SharedNames {
    /// The names of sites with these rules and roots.
    ///
    /// A site is known by its root and the rules by which its names are looked up. So its names outlive a reload that
    /// changes neither, and another site does not use them.
    pub fn new<'s>(
        table: NamesReader,
        sites: impl Iterator<Item = (&'s SiteRules, Option<impl AsFd>)>,
        types: &TypeTable,
    ) -> Self {
        let site = |(rules, root): (&SiteRules, Option<_>)| Self::site_hash(&table, rules, root?, types);
        let sites: Vec<Option<NameHash>> = sites.map(site).collect();
        Self { table, subtrees: Subtrees::of(sites.len()), sites }
    }

    /// The hash of a site.
    pub fn site_hash(
        table: &NamesReader,
        rules: &SiteRules,
        root: impl AsFd,
        types: &TypeTable,
    ) -> Option<NameHash> {
        // This does not wait, whatever the file system.
        let root = file::identity(root).ok()?;
        let mut identity = [root.device, root.inode].map(u64::to_le_bytes).concat();
        identity.extend_from_slice(&rules.identity(types));
        Some(table.site(&identity))
    }

    /// The hash of the subtree of a decoded path; None for a site that shares no names.
    #[must_use]
    pub fn subtree(&self, site: SiteId, path: &[u8]) -> Option<NameHash> {
        let number = self.subtrees.number(&self.table, path);
        Some(self.subtrees.hash(&self.table, self.site(site)?, number))
    }

    /// The hash of a decoded path; None for a site that shares no names.
    #[must_use]
    pub fn hash(&self, site: SiteId, path: &[u8]) -> Option<NameHash> {
        Some(self.table.name(self.site(site)?, path))
    }

    fn site(&self, site: SiteId) -> Option<NameHash> {
        *self.sites.get(usize::from(site.0))?
    }

    /// Whether the changes of any names are reported.
    #[must_use]
    pub fn are_changes_reported(&self) -> bool {
        self.table.has_watches()
    }

    /// The facts about a decoded path.
    #[must_use]
    pub fn find(&self, site: SiteId, path: &[u8]) -> Option<SharedName> {
        let hash = self.hash(site, path)?;
        // Before the entry: a change after that is counted.
        let (shard, changes) = self.table.shard(hash);
        let plain = self.table.find(hash, 0)?;
        let facts = match plain.kind {
            FILE => {
                let mut coded = [None; 3];
                for (sibling, part) in coded.iter_mut().zip(1..PARTS) {
                    if plain.forms & form_bit(part) != 0 {
                        let found = self.table.find(hash, part)?;
                        // The parts of one finding belong together.
                        *sibling = (found.confirmed_ms == plain.confirmed_ms).then(|| stat(&found.state));
                        (*sibling)?;
                    }
                }
                NameFacts::File { plain: stat(&plain.state), coded, index: plain.index.checked_sub(1) }
            }
            SCRIPT => NameFacts::Script,
            REDIRECT => NameFacts::Redirect,
            LISTING => NameFacts::Listing,
            MISSING => NameFacts::Missing,
            DENIED => NameFacts::Denied,
            _ => return None,
        };
        let watched_ms = self.table.watched_ms(plain.watch);
        Some(SharedName {
            facts,
            found_ms: plain.confirmed_ms,
            confirmed_ms: plain.confirmed_ms.max(watched_ms.unwrap_or(0)),
            watched: watched_ms.map(|_| NameMark { watch: plain.watch, shard, changes }),
        })
    }

    /// Until when a name with this mark is known not to have changed, in milliseconds of the monotonic clock.
    #[inline]
    #[must_use]
    pub fn unchanged_ms(&self, mark: NameMark) -> Option<u64> {
        let until_ms = self.table.watched_ms(mark.watch)?;
        // After the time: changes up to then are counted.
        (self.table.changes(mark.shard) == mark.changes).then_some(until_ms)
    }
}

/// The entries of the table for what was found for a name, itself first. None if the table cannot represent it.
#[must_use]
pub fn entries(hash: NameHash, facts: &NameFacts, confirmed_ms: u64) -> Option<Vec<NameEntry>> {
    let entry =
        |part, kind, state| NameEntry { hash, part, kind, forms: 0, index: 0, state, confirmed_ms, watch: 0 };
    let of_kind = |kind| Some(vec![entry(0, kind, FileState::default())]);
    match facts {
        NameFacts::File { plain, coded, index } => {
            let mut entries = vec![entry(0, FILE, state(plain)?)];
            entries[0].index = index.map_or(Some(0), |place| place.checked_add(1))?;
            for (part, sibling) in (1..PARTS).zip(coded) {
                if let Some(sibling) = sibling {
                    entries[0].forms |= form_bit(part);
                    entries.push(entry(part, FILE, state(sibling)?));
                }
            }
            Some(entries)
        }
        NameFacts::Script => of_kind(SCRIPT),
        NameFacts::Redirect => of_kind(REDIRECT),
        NameFacts::Listing => of_kind(LISTING),
        NameFacts::Missing => of_kind(MISSING),
        NameFacts::Denied => of_kind(DENIED),
    }
}

/// Whether an entry is that of a directory to be listed.
#[must_use]
pub fn is_listing(entry: &NameEntry) -> bool {
    entry.kind == LISTING
}

/// Whether an entry says that there is nothing.
#[must_use]
pub fn is_absent(entry: &NameEntry) -> bool {
    entry.kind == MISSING
}

fn form_bit(part: u8) -> u8 {
    1 << part
}

/// The state of a file; None if its times are beyond those of the table.
#[must_use]
pub fn state(stat: &FileStat) -> Option<FileState> {
    let FileStat { device, inode, size_bytes, modified_ns, changed_ns, kind: _ } = *stat;
    let (modified_ns, changed_ns) = (modified_ns.try_into().ok()?, changed_ns.try_into().ok()?);
    Some(FileState { device, inode, size_bytes, modified_ns, changed_ns })
}

fn stat(state: &FileState) -> FileStat {
    let FileState { device, inode, size_bytes, modified_ns, changed_ns } = *state;
    FileStat {
        kind: FileKind::Regular,
        device,
        inode,
        size_bytes,
        modified_ns: modified_ns.into(),
        changed_ns: changed_ns.into(),
    }
}
