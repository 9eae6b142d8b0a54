//! Listings of directories: names and states of entries. Called by helpers, and by the supervisor before it serves.

use std::io;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, Access, AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use flash_prompt::file::{BENEATH, FileKind, Stat, stat};

/// A directory under a root, opened to be listed.
#[derive(Debug)]
pub struct Directory<'r> {
    root: BorrowedFd<'r>,
    path: &'r [u8],
    own: OwnedFd,
}

impl<'r> Directory<'r> {
    /// Opens the directory `path` under `root`.
    ///
    /// Errors: those of openat2(2).
    pub fn open(root: &'r OwnedFd, path: &'r [u8]) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let own = fs::openat2(root, path, flags, Mode::empty(), BENEATH)?;
        Ok(Self { root: root.as_fd(), path, own })
    }

    /// Its names, in the order of the file system, without `.` and `..`: at most `names_max`, and whether there were more.
    ///
    /// Errors: those of getdents64(2).
    pub fn names(&self, names_max: usize) -> io::Result<(Vec<Vec<u8>>, bool)> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.own)? {
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

    /// The state of an entry, of the file to which it leads if it is a link, and whether this process can read it: the content of
    /// a file, or the entries of a directory. It opens nothing for reading.
    ///
    /// If the kernel has no faccessat2(2) (before Linux 5.8), everything counts as readable.
    ///
    /// Errors: those of fstatat(2), and for a link those of openat2(2), such as `EXDEV` if it leads out of the root.
    pub fn look(&self, name: &[u8]) -> io::Result<(Stat, bool)> {
        let state = fs::statat(&self.own, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(state.st_mode) == FileType::Symlink {
            return self.follow(name);
        }
        let stat = Stat::from(&state);
        let flags = AtFlags::EACCESS | AtFlags::SYMLINK_NOFOLLOW;
        Ok((stat, is_granted(fs::accessat(&self.own, name, needed_access(stat.kind), flags))))
    }

    /// As [`Directory::look`], for a link.
    fn follow(&self, name: &[u8]) -> io::Result<(Stat, bool)> {
        let path = [self.path, b"/", name].concat();
        let place = fs::openat2(self.root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), BENEATH)?;
        let stat = stat(&place)?;
        let flags = libc::AT_EMPTY_PATH | libc::AT_EACCESS;
        let access = needed_access(stat.kind).bits() as libc::c_int;
        // SAFETY: faccessat2(2) takes an open descriptor and a NUL-terminated string; both outlive the call.
        let answer =
            unsafe { libc::syscall(libc::SYS_faccessat2, place.as_raw_fd(), c"".as_ptr(), access, flags) };
        let refused = answer != 0 && io::Error::last_os_error().kind() == io::ErrorKind::PermissionDenied;
        Ok((stat, !refused))
    }
}

fn needed_access(kind: FileKind) -> Access {
    if kind == FileKind::Directory { Access::EXEC_OK } else { Access::READ_OK }
}

fn is_granted(answer: rustix::io::Result<()>) -> bool {
    !matches!(answer, Err(Errno::ACCESS | Errno::PERM))
}
