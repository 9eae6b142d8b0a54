//! Facts about a name that all workers share: they have no open file, and an answer can be made from them.

use serde::{Deserialize, Serialize};

use super::{FileKind, FileStat, Finding, Opened};
use crate::rules::SiteRules;
use crate::slab::SiteId;

/// The target of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "nearly every name is that of a file")]
pub enum NameFacts {
    /// A regular file.
    File {
        /// The state of the file.
        plain: FileStat,
        /// The states of its precompressed siblings, in the order of
        /// [`Coding::ALL`](flash_http::negotiate::Coding::ALL).
        coded: [Option<FileStat>; 3],
        /// If the name is that of a directory, the place of the file's name in [`SiteRules::index`].
        index: Option<u8>,
    },
    /// As [`Finding::Script`].
    Script,
    /// As [`Finding::Redirect`].
    Redirect,
    /// As [`Finding::Listing`].
    Listing,
    /// As [`Finding::Missing`].
    Missing,
    /// As [`Finding::Denied`].
    Denied,
}

impl NameFacts {
    /// The facts in the finding for a decoded path. None if they have no room: the index file has a place beyond 255.
    pub fn of<F>(finding: &Finding<F>, path: &[u8], site: &SiteRules) -> Option<Self> {
        Some(match finding {
            Finding::File { plain, coded, path: file_path } => {
                let index = match file_path.strip_prefix(path) {
                    Some(name) if !name.is_empty() => {
                        let place = site.index.iter().position(|index| index.as_bytes() == name)?;
                        Some(u8::try_from(place).ok()?)
                    }
                    _ => None,
                };
                let coded = coded.each_ref().map(|sibling| sibling.as_ref().map(|found| found.stat));
                Self::File { plain: plain.stat, coded, index }
            }
            Finding::Script => Self::Script,
            Finding::Redirect => Self::Redirect,
            Finding::Listing => Self::Listing,
            Finding::Missing => Self::Missing,
            Finding::Denied => Self::Denied,
        })
    }

    /// The finding for a decoded path that has these facts, without open files. None if the site has no such index
    /// file.
    pub(crate) fn finding<F>(&self, path: &[u8], site: &SiteRules) -> Option<Finding<F>> {
        let closed = |stat: FileStat| Opened { stat, file: None };
        Some(match *self {
            Self::File { plain, coded, index } => {
                let mut file_path = path.to_vec();
                if let Some(place) = index {
                    file_path.extend_from_slice(site.index.get(usize::from(place))?.as_bytes());
                }
                Finding::File {
                    plain: closed(plain),
                    coded: coded.map(|stat| stat.map(closed)),
                    path: file_path,
                }
            }
            Self::Script => Finding::Script,
            Self::Redirect => Finding::Redirect,
            Self::Listing => Finding::Listing,
            Self::Missing => Finding::Missing,
            Self::Denied => Finding::Denied,
        })
    }

    /// Whether a file among these changed so recently that another change could go unnoticed
    /// ([`FileStat::is_racy`]).
    pub fn is_racy(&self, wall_ns: i128) -> bool {
        let Self::File { plain, coded, .. } = self else { return false };
        coded
            .iter()
            .flatten()
            .chain([plain])
            .any(|stat| stat.kind == FileKind::Regular && stat.is_racy(wall_ns))
    }
}

/// A name as the machine knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedName {
    /// Its target.
    pub facts: NameFacts,
    /// When it was looked up, in milliseconds of the monotonic clock.
    pub found_ms: u64,
    /// When that was last known to be true: later than `found_ms` if no change was reported up to then.
    pub confirmed_ms: u64,
    /// Where its changes are reported as soon as they happen; None if they are not.
    pub watched: Option<NameMark>,
}

/// Where the changes of a name are reported, and how many there were when it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameMark {
    /// The number of the watch; 0 is none.
    pub watch: u32,
    /// The names with the same number count their changes together.
    pub shard: u16,
    /// The changes of these names.
    pub changes: u64,
}

/// The names that all workers share. Helpers find them; nothing here waits.
pub trait SharedNames {
    /// The facts about a decoded path, however old.
    fn shared_name(&mut self, site: SiteId, path: &[u8]) -> Option<SharedName>;

    /// Until when a name with this mark is known not to have changed, in milliseconds of the monotonic clock; None if it may have
    /// changed. This costs less than to find the name.
    fn unchanged_ms(&self, mark: NameMark) -> Option<u64>;

    /// Whether the changes of any names are reported.
    fn are_changes_reported(&self) -> bool;

    /// The worker has found that the facts about a path are wrong.
    fn report_wrong_name(&mut self, site: SiteId, path: &[u8]);
}
