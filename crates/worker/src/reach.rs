//! How an architecture lets its workers reach files. Only the architecture knows which calls may block.

use std::io;

use flash_prompt::OwnedFd;
use flash_prompt::file::{Found, Resident, Stat, Want};

use crate::comparisons::SendFile;
use crate::site_file::SiteFile;

/// The functions by which a worker reaches files.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// Looks up a path under a root. Returns `WouldBlock` if that would block and must not.
    pub look_up: fn(&OwnedFd, &[u8], Want) -> io::Result<Found>,
    /// Reads bytes at an offset: all of them, or only those in memory.
    pub read: fn(&SiteFile, u64, &mut [u8]) -> io::Result<Resident>,
    /// Asks for the state of an open file. Returns `WouldBlock` if that would block and must not.
    pub stat: fn(&SiteFile) -> io::Result<Stat>,
    /// Sends a head and this many bytes of a file from an offset by sendfile(2): all of them, or only those
    /// in memory.
    pub send_file: SendFile,
    /// Whether files are also looked up under roots whose file system may depend on another process or host.
    pub under_all_roots: bool,
}
