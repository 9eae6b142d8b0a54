//! Opens the sites' roots, and finds out whether their file systems can depend on another process or host.
//!
//! A network server or FUSE daemon that hangs blocks every process that opens a path there, for any time and
//! beyond any signal. So a child process opens each root, and only that child hangs. Called by the supervisor
//! and by the check of the settings; other roles get open roots.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

use crate::child_call::{ChildCall, Note};
use crate::watched::reports_changes;

/// Magic numbers (linux/magic.h, and the sources of the last three) of file systems on block devices or in
/// memory, where calls for cached data never wait for another process or host. File systems that are not
/// listed may wait.
const LOCAL: [u64; 19] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683e, // btrfs
    0xf2f5_2010, // f2fs
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0x794c_7630, // overlayfs
    0x7371_7368, // squashfs
    0xe0f5_e1e2, // erofs
    0x28cd_3d45, // cramfs
    0x9660,      // isofs
    0x1501_3346, // udf
    0x4d44,      // vfat
    0x2011_bab0, // exfat
    0x3434,      // nilfs2
    0x5265_4973, // reiserfs
    0x3153_464a, // jfs
    0x2fc1_2fc1, // zfs
    0xca45_1a4e, // bcachefs
];

/// Whether a file is on a local file system. This call itself can block.
pub fn is_local(file: impl AsFd) -> io::Result<bool> {
    let kind = fs::fstatfs(file)?.f_type;
    // The type is signed on some machines; the numbers have 32 bits.
    Ok(LOCAL.contains(&(kind as u64 & 0xffff_ffff)))
}

/// A site's root.
#[derive(Debug)]
pub struct Root {
    /// The directory, for look-ups only (`O_PATH`).
    pub folder: OwnedFd,
    /// See [`is_local`].
    pub is_local: bool,
    /// Whether it is local and [`crate::watched::reports_changes`].
    pub reports_changes: bool,
    /// Its device and inode, if it is local: another root with the same ones is the same directory.
    pub identity: (u64, u64),
}

impl Root {
    /// The root that a child has opened.
    fn of((folder, [kind, device, inode]): (OwnedFd, Note)) -> Self {
        Self {
            folder,
            is_local: kind & LOCAL_KIND != 0,
            reports_changes: kind & REPORTING_KIND != 0,
            identity: (device, inode),
        }
    }
}

/// Why a root is not open.
#[derive(Debug)]
pub enum Unopened {
    /// It has not answered so far.
    Hangs(Opening),
    /// It cannot be opened.
    Failed(io::Error),
}

/// Opens roots: some in one child as long as each answers at once, and then each of the others in a child of its own. Those that do not
/// answer within `patience` stay under way.
pub fn open_roots(paths: &[&Path], patience: Duration) -> Vec<Result<Root, Unopened>> {
    let open = |paths: &[&Path]| {
        let mut opened = open_in_turn(paths);
        let deadline = Instant::now() + patience;
        let others: Vec<_> = paths[opened.len()..].iter().map(|path| Opening::start(path)).collect();
        opened.extend(others.into_iter().map(|opening| finish(opening, deadline)));
        opened
    };
    paths.chunks(AT_ONCE).flat_map(open).collect()
}

/// Maximum number of roots opened at once; the following ones have their own time.
const AT_ONCE: usize = 64;
/// How long the child of several roots may need for the next one.
const PROMPT: Duration = Duration::from_millis(100);

/// Opens roots in one child, up to the first that it does not answer for at once.
fn open_in_turn(paths: &[&Path]) -> Vec<Result<Root, Unopened>> {
    let named = paths.iter().map(|path| CString::new(path.as_os_str().as_bytes()));
    let Ok(named) = named.collect::<Result<Vec<_>, _>>() else { return Vec::new() };
    // SAFETY: opening makes only system calls, and the paths exist.
    let Ok(call) = (unsafe { ChildCall::start_each(named.iter().map(open)) }) else { return Vec::new() };
    let mut opened = Vec::with_capacity(paths.len());
    while opened.len() < paths.len() {
        match call.wait(Instant::now() + PROMPT).and_then(|()| call.take()) {
            Ok(found) => opened.push(Ok(Root::of(found))),
            // It needs longer, or it died.
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::UnexpectedEof) => break,
            Err(e) => opened.push(Err(Unopened::Failed(e))),
        }
    }
    opened
}

fn finish(opening: io::Result<Opening>, deadline: Instant) -> Result<Root, Unopened> {
    let opening = opening.map_err(Unopened::Failed)?;
    opening.0.wait(deadline).map_err(Unopened::Failed)?;
    match opening.take() {
        Ok(root) => Ok(root),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(Unopened::Hangs(opening)),
        Err(e) => Err(Unopened::Failed(e)),
    }
}

const ROOT_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A child process that opens a root. Its descriptor is readable once it has a result.
#[derive(Debug)]
pub struct Opening(ChildCall);

impl Opening {
    /// Starts to open a directory.
    pub fn start(path: &Path) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: it makes only system calls, and the path exists.
        unsafe { ChildCall::start(|| open(&path)) }.map(Self)
    }

    /// Takes the result.
    ///
    /// Errors: `WouldBlock` while there is none; any of openat(2).
    pub fn take(&self) -> io::Result<Root> {
        self.0.take().map(Root::of)
    }
}

impl AsFd for Opening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Bits of the first number of an opening's note.
const LOCAL_KIND: u64 = 1;
const REPORTING_KIND: u64 = 2;

/// The child's work. It must not allocate.
fn open(path: &CString) -> Result<(OwnedFd, Note), Errno> {
    let folder = fs::openat(fs::CWD, path.as_c_str(), ROOT_FLAGS, Mode::empty())?;
    // A file system that does not even report its type is not considered local. Only a local one is asked more.
    let is_local = is_local(&folder).unwrap_or(false);
    let (device, inode) = match fs::fstat(&folder) {
        Ok(found) if is_local => (found.st_dev, found.st_ino),
        _ => (0, 0),
    };
    let kind = match is_local {
        true if reports_changes(&folder) => LOCAL_KIND | REPORTING_KIND,
        true => LOCAL_KIND,
        false => 0,
    };
    Ok((folder, [kind, device, inode]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_opened_and_local_ones_recognized() {
        let here = std::env::temp_dir();
        let paths = [&here, Path::new("/proc"), &here.join("not-there"), Path::new("/proc/version")];
        let opened = open_roots(&paths, Duration::from_secs(60));
        let [Ok(_), Ok(proc), Err(Unopened::Failed(missing)), Err(Unopened::Failed(file))] = &opened[..]
        else {
            panic!("{opened:?}")
        };
        assert!(!proc.is_local, "a file system that is not listed may wait");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert_eq!(file.kind(), io::ErrorKind::NotADirectory);
    }

    #[test]
    fn a_thousand_roots_are_opened_in_their_order() {
        let folder = tempfile::tempdir().expect("a folder");
        let names: Vec<_> = (0..1_000).map(|number| folder.path().join(number.to_string())).collect();
        // Every seventh is not there.
        let is_there = |number: usize| !number.is_multiple_of(7);
        for (_, name) in names.iter().enumerate().filter(|(number, _)| is_there(*number)) {
            std::fs::create_dir(name).expect("made");
        }
        let paths: Vec<&Path> = names.iter().map(std::path::PathBuf::as_path).collect();
        let opened = open_roots(&paths, Duration::from_secs(60));
        assert_eq!(opened.len(), 1_000);
        for (number, opened) in opened.iter().enumerate() {
            use std::os::unix::fs::MetadataExt;
            match opened {
                Ok(root) => {
                    let found = std::fs::metadata(&names[number]).expect("it is there");
                    assert_eq!(root.identity, (found.dev(), found.ino()), "{number}");
                }
                Err(Unopened::Failed(e)) => {
                    assert!(e.kind() == io::ErrorKind::NotFound && !is_there(number), "{number}: {e}");
                }
                Err(Unopened::Hangs(_)) => panic!("{number} hangs"),
            }
        }
    }

    #[test]
    fn memory_is_local() {
        let file = crate::file::memory_file(b"").expect("a memory file");
        assert!(is_local(file).expect("its type"));
    }
}
