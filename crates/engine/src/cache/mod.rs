//! The three caches of the paper (Flash 1999, sections 5.2 to 5.4): names, response heads and
//! contents. Heads live in [`Version`]: they need no invalidation of their own, since a
//! changed file is a new version.
//!
//! The replacement policy is `quick_cache`'s: resistant to scans, so that cold requests,
//! each asked once, do not drive the hot ones out.

mod contents;
mod known;
mod names;
mod version;

pub(crate) use contents::{Content, Contents, write_head};
pub(crate) use known::{Known, KnownRequests};
pub(crate) use names::{Listings, NameEntry, NameKind, Names, Resource};
pub(crate) use version::{OpenFiles, Version, VersionId, Versions};
