//! What an architecture decides of how its workers reach files. Only it knows what may wait.

use std::io;

use flash_sys::OwnedFd;
use flash_sys::prompt::file::{Found, Resident, Stat, Want};

use super::site_file::SiteFile;

/// How a worker reaches files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    /// Looks a path up under a root: `WouldBlock` where that would wait and may not.
    pub(crate) look_up: fn(&OwnedFd, &[u8], Want) -> io::Result<Found>,
    /// Reads what there is, or what is in memory, at an offset.
    pub(crate) read: fn(&SiteFile, u64, &mut [u8]) -> io::Result<Resident>,
    /// Asks for the state of an open file: `WouldBlock` where that would wait and may not.
    pub(crate) stat: fn(&SiteFile) -> io::Result<Stat>,
    /// Whether it looks files up also under roots that may wait for somebody else.
    pub(crate) under_all_roots: bool,
}
