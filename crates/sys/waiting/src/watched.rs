//! Look-ups for names that are watched: such a name leads to its file by directories alone, without a link and
//! without another file system in its way, and its file has no other name. So every change of it is an event of the
//! directory that it is in ([`super::happening`]). Called by the watcher process and by helpers.

use std::cell::Cell;
use std::io;

use flash_prompt::file::{Found, Stat, Want, look_up_by};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{self, Access, AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, read};

const DIRECT: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// The file systems that report every change that is made through them, and are changed in no other way.
const TELLS: [u64; 7] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683e, // btrfs
    0xf2f5_2010, // f2fs
    0x0102_1994, // tmpfs
    0x2fc1_2fc1, // zfs
    0xca45_1a4e, // bcachefs
];

/// Whether changes on the file system of a directory can be watched. Not those of overlayfs: its layers can change
/// beneath it.
pub fn reports_changes(file: impl AsFd) -> bool {
    fs::fstatfs(file).is_ok_and(|found| TELLS.contains(&(found.f_type as u64 & 0xffff_ffff)))
}

/// Looks a path up like [`super::file::open`], if it is that of a watched name, beneath a root that [`reports_changes`].
///
/// Errors: `NotFound` and `NotADirectory` if there is nothing, `PermissionDenied`, and `Other` if a change of the
/// name might not be reported.
pub fn open(root: impl AsFd, path: &[u8], want: Want) -> io::Result<Found> {
    let links = Cell::new(1);
    let open = |flags| {
        fs::openat2(&root, path, flags, Mode::empty(), DIRECT).map_err(|e| match e {
            Errno::NOENT | Errno::NOTDIR | Errno::ACCESS => io::Error::from(e),
            other => io::Error::other(other),
        })
    };
    let stat = |file: &OwnedFd| {
        let found = fs::fstat(file)?;
        if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile {
            links.set(found.st_nlink);
        }
        Ok(Stat::from(&found))
    };
    let found = look_up_by(want, open, stat)?;
    if links.get() > 1 {
        return Err(io::Error::other("its file has other names"));
    }
    Ok(found)
}

/// Whether a path has a part that means nothing, so that another path leads to the same file.
#[must_use]
pub fn is_direct(path: &[u8]) -> bool {
    let parts = path.strip_prefix(b"/").unwrap_or(path);
    let parts = parts.strip_suffix(b"/").unwrap_or(parts);
    matches!(path, b"" | b"/")
        || parts.split(|byte| *byte == b'/').all(|part| !matches!(part, b"" | b"." | b".."))
}

/// Opens a directory to watch and to list it. `path` begins with a slash.
///
/// Errors: `CrossesDevices` on another file system; others of openat2(2).
pub fn open_directory(root: impl AsFd, path: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    Ok(fs::openat2(root, relative(path), flags, Mode::empty(), DIRECT)?)
}

/// A directory into which this process has no right to look, so that it finds no name there, open for look-ups only (`O_PATH`).
/// None if it has the right, or there is no such directory.
pub fn find_closed(root: impl AsFd, path: &[u8]) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = fs::openat2(root, relative(path), flags, Mode::empty(), DIRECT).ok()?;
    let denied = fs::accessat(&directory, c".", Access::EXEC_OK, AtFlags::EACCESS);
    (denied == Err(Errno::ACCESS)).then_some(directory)
}

/// Who may look into a directory: its mode, owner and group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights(u32, u32, u32);

/// The rights of an open directory.
pub fn rights(directory: impl AsFd) -> io::Result<Rights> {
    let found = fs::fstat(directory)?;
    Ok(Rights(found.st_mode, found.st_uid, found.st_gid))
}

/// The names of the directories in an open directory.
pub fn directories_in(directory: impl AsFd) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let is_directory = match entry.file_type() {
            FileType::Directory => true,
            FileType::Unknown => fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory),
            _ => false,
        };
        if is_directory {
            names.push(name.to_bytes().to_vec());
        }
    }
    Ok(names)
}

/// Whether a name that has just appeared is that of a regular file. If it is gone already, it was.
pub fn is_regular(root: impl AsFd, path: &[u8]) -> bool {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match fs::openat2(root, relative(path), flags, Mode::empty(), DIRECT).and_then(fs::fstat) {
        Ok(found) => FileType::from_raw_mode(found.st_mode) == FileType::RegularFile,
        Err(e) => e == Errno::NOENT,
    }
}

/// A path of a request relative to the root.
pub fn relative(path: &[u8]) -> &[u8] {
    match path.strip_prefix(b"/") {
        Some(rest) if !rest.is_empty() => rest,
        _ => b".",
    }
}

/// Changes of what is mounted where.
#[derive(Debug)]
pub struct Mounts(OwnedFd);

impl Mounts {
    /// Watches all mounts of this process.
    ///
    /// Errors: those of openat(2) for `/proc/self/mountinfo`.
    pub fn watch() -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(Self(fs::openat(fs::CWD, c"/proc/self/mountinfo", flags, Mode::empty())?))
    }

    /// The file systems that are mounted beneath an open directory, wherever that is now: one line for each, as
    /// proc_pid_mountinfo(5) describes it.
    ///
    /// Errors: those of readlinkat(2), lseek(2) and read(2).
    pub fn beneath(&self, folder: impl AsFd) -> io::Result<Vec<Vec<u8>>> {
        let link = format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd());
        let path = fs::readlinkat(fs::CWD, link, Vec::new())?;
        let mut lines = Vec::new();
        fs::seek(&self.0, fs::SeekFrom::Start(0))?;
        let mut buffer = [0; 4096];
        loop {
            match read(&self.0, &mut buffer)? {
                0 => break,
                length => lines.extend_from_slice(&buffer[..length]),
            }
        }
        let is_beneath = |line: &&[u8]| {
            line.split(|byte| *byte == b' ')
                .nth(4)
                .is_some_and(|at| is_beneath(&unescape(at), path.as_bytes()))
        };
        Ok(lines.split(|byte| *byte == b'\n').filter(is_beneath).map(<[u8]>::to_vec).collect())
    }

    /// Whether something was mounted or unmounted since the last call, or the first call.
    pub fn have_changed(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, poll};
        let mut file = [PollFd::new(&self.0, PollFlags::PRI)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut file, Some(&now)).is_ok_and(|count| count > 0)
    }
}

/// Whether a path is a folder's, or that of something in it.
fn is_beneath(path: &[u8], folder: &[u8]) -> bool {
    let folder = folder.strip_suffix(b"/").unwrap_or(folder);
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// A path of proc_pid_mountinfo(5), in which some bytes are written as a backslash and three octal digits.
pub fn unescape(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        let digits = after
            .get(..3)
            .filter(|digits| *first == b'\\' && digits.iter().all(|digit| (b'0'..b'8').contains(digit)));
        match digits {
            Some(digits) => {
                plain.push(
                    digits.iter().fold(0u8, |byte, digit| byte.wrapping_mul(8).wrapping_add(digit - b'0')),
                );
                rest = &after[3..];
            }
            None => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::fs as std_fs;

    use super::*;
    use crate::file::open_folder;

    #[test]
    fn only_names_whose_every_change_is_told_are_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std_fs::create_dir(path("d")).expect("made");
        std_fs::write(path("d/f"), "x").expect("written");
        std_fs::write(path("two"), "x").expect("written");
        std_fs::hard_link(path("two"), path("names")).expect("linked");
        std::os::unix::fs::symlink("d", path("link")).expect("linked");
        std::os::unix::fs::symlink("f", path("d/linked")).expect("linked");
        let root = open_folder(folder.path()).expect("opened");
        let find = |path: &[u8]| open(&root, path, Want::Stat);
        assert!(find(b"d/f").is_ok() && find(b"d").is_ok());
        for missing in [&b"none"[..], b"d/none", b"d/f/none"] {
            let kind = find(missing).expect_err("nothing").kind();
            assert!(matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory), "{kind:?}");
        }
        assert!(open(&root, b"d/f", Want::Content).is_ok_and(|found| found.file.is_some()));
        for untold in [&b"link/f"[..], b"link/none", b"d/linked", b"two", b"names", b"../x"] {
            assert_eq!(find(untold).expect_err("not told").kind(), io::ErrorKind::Other);
        }
        assert_eq!(directories_in(open_directory(&root, b"/").expect("opened")).expect("listed"), [b"d"]);
        assert!(is_regular(&root, b"/d/f") && is_regular(&root, b"/gone"));
        assert!(!is_regular(&root, b"/link") && !is_regular(&root, b"/d"));
    }

    #[test]
    fn a_path_has_one_form() {
        for path in [&b"/"[..], b"/a", b"/a/", b"/a/b.c", b"/..a/.b"] {
            assert!(is_direct(path));
        }
        for path in [&b"//"[..], b"/a//b", b"/a//", b"/./a", b"/a/..", b"/a/../b"] {
            assert!(!is_direct(path), "{}", path.escape_ascii());
        }
    }

    #[test]
    fn mounts_are_found_by_their_paths() {
        assert_eq!(unescape(b"/a\\040b\\134"), b"/a b\\");
        assert_eq!(unescape(b"/a\\04"), b"/a\\04");
        assert!(is_beneath(b"/a", b"/a") && is_beneath(b"/a/b", b"/a") && is_beneath(b"/a", b"/"));
        assert!(!is_beneath(b"/ab", b"/a") && !is_beneath(b"/", b"/a"));
        let mounts = Mounts::watch().expect("opened");
        let root = open_folder(std::path::Path::new("/")).expect("opened");
        let beneath = mounts.beneath(&root).expect("read");
        assert!(!beneath.is_empty() && !mounts.have_changed());
        let proc = open_folder(std::path::Path::new("/proc")).expect("opened");
        assert!(!mounts.beneath(&proc).expect("read again").is_empty());
    }
}
