//! Blocking look-ups, reads and directory listings: a helper's work.

use std::io;
use std::path::Path;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, Dir, Mode, OFlags, ResolveFlags};

use crate::prompt::file::{Found, Wait, Want, look_up};

/// Opens a folder, for look-ups only.
pub fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(fs::openat(fs::CWD, path, flags, Mode::empty())?)
}

/// Looks `path` up under `root` and waits for the disk where it must; otherwise like
/// [`open_cached`](crate::prompt::file::open_cached).
pub fn open(root: impl AsFd, path: &[u8], want: Want) -> io::Result<Found> {
    look_up(root, path, want, Wait::AsLongAsItTakes)
}

/// Reads up to `length_bytes` at `offset` to the end of `into`, stopping early only at the
/// end of the file.
pub fn read(file: impl AsFd, offset: u64, length_bytes: usize, into: &mut Vec<u8>) -> io::Result<usize> {
    let start = into.len();
    into.resize(start + length_bytes, 0);
    let mut done = 0;
    while done < length_bytes {
        match rustix::io::pread(&file, &mut into[start + done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    into.truncate(start + done);
    Ok(done)
}

/// The names in a directory, as the file system orders them, without `.` and `..`; at most
/// `names_max`, and whether there were more.
pub fn names(root: impl AsFd, path: &[u8], names_max: usize) -> io::Result<(Vec<Vec<u8>>, bool)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let directory = fs::openat2(root, path, flags, Mode::empty(), resolve)?;
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if names.len() == names_max {
            return Ok((names, true));
        }
        names.push(name.to_vec());
    }
    Ok((names, false))
}

/// An unnamed file in memory that holds `content`, open for reading and writing.
pub fn memory_file(content: &[u8]) -> io::Result<OwnedFd> {
    let file = fs::memfd_create(c"flash-listing", fs::MemfdFlags::CLOEXEC)?;
    let mut rest = content;
    while !rest.is_empty() {
        let n = rustix::io::write(&file, rest)?;
        rest = &rest[n..];
    }
    Ok(file)
}
