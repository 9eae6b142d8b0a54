//! Files without waiting: look-ups in the dentry cache, reads from the page cache.
//!
//! The facts behind this module were measured (DESIGN.md, "What the kernel really promises"):
//! `RESOLVE_CACHED` never waits on a local file system; `preadv2(RWF_NOWAIT)` may wait on a miss,
//! because it submits readahead itself, so `cachestat` is asked first and the descriptor is marked
//! `POSIX_FADV_RANDOM`. On others open, close and even fstat may wait for somebody else: of those
//! a worker has no descriptors but places (`O_PATH`), on which only [`is_place`] is called.

use std::io::{self, IoSliceMut};

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{self, Advice, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, ReadWriteFlags};

/// What a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A device, socket or FIFO: never opened for reading.
    Special,
}

/// What fstat(2) says of a file, as far as Flash cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: FileKind,
    /// Device, major in the upper half.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Last change of the content, nanoseconds since 1970.
    pub modified_ns: i128,
    /// Last change of content or metadata, nanoseconds since 1970.
    pub changed_ns: i128,
}

/// A path that was found.
#[derive(Debug)]
pub struct Found {
    /// What fstat said of it.
    pub stat: Stat,
    /// Open for reading when it is a regular file that was asked for with content.
    pub file: Option<OwnedFd>,
}

/// How far a look-up may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Only what fstat says.
    Stat,
    /// A regular file also opened for reading.
    Content,
}

/// Looks `path` up under `root`, which is on a local file system, without waiting.
///
/// `path` is relative (`.` is the root itself). The look-up does not leave `root`, also not
/// by symlink, and follows no magic link (openat2(2)).
///
/// Errors: `WouldBlock` when the answer is not in the dentry cache, and for a path that leaves the
/// root or goes to another file system, which the kernel does not tell apart; `NotFound`;
/// `PermissionDenied`; others of openat2(2).
pub fn open_cached(root: impl AsFd, path: &[u8], want: Want) -> io::Result<Found> {
    let resolve = BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::CACHED;
    let open = |flags| Ok(fs::openat2(&root, path, flags, Mode::empty(), resolve)?);
    look_up_by(want, open, |file| stat(file)).map_err(would_wait_elsewhere)
}

/// Every look-up has these: it stays beneath the root and follows no magic link (openat2(2)).
pub const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// The error of a look-up that stays on one file system, such that a helper looks at a path to another.
pub fn would_wait_elsewhere(error: io::Error) -> io::Error {
    match Errno::from_io_error(&error) {
        Some(Errno::XDEV) => Errno::AGAIN.into(),
        _ => error,
    }
}

/// What every kind of look-up does, by an `open` of the path and a `stat` that may wait or not: which of
/// them, the caller decides.
///
/// Errors: those of `open` and `stat`.
pub fn look_up_by(
    want: Want,
    open: impl Fn(OFlags) -> io::Result<OwnedFd>,
    stat: impl Fn(&OwnedFd) -> io::Result<Stat>,
) -> io::Result<Found> {
    // Looked at before it is opened for reading: opening a device has side effects, and
    // opening a FIFO waits for a writer.
    let found = stat(&open(OFlags::PATH | OFlags::CLOEXEC)?)?;
    if found.kind != FileKind::File || want == Want::Stat {
        return Ok(Found { stat: found, file: None });
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = open(flags)?;
    let opened = stat(&file)?;
    if opened.kind != FileKind::File {
        // Replaced between the two opens; NONBLOCK has kept it from hanging.
        return Ok(Found { stat: opened, file: None });
    }
    mark_random(&file)?;
    leave_access_time(&file);
    Ok(Found { stat: opened, file: Some(file) })
}

/// What fstat(2) says of an open file. It takes no path, so the sandbox can allow a worker this call and no other
/// of its kind: a filter does not see whether the path that statx(2) was given is empty. On a file system that
/// may wait for somebody else this waits, too; a worker has only places there, and asks nothing of them.
///
/// Errors: `EBADF`.
#[inline]
pub fn stat(file: impl AsFd) -> io::Result<Stat> {
    let s = fs::fstat(file)?;
    let kind = match fs::FileType::from_raw_mode(s.st_mode) {
        fs::FileType::RegularFile => FileKind::File,
        fs::FileType::Directory => FileKind::Directory,
        _ => FileKind::Special,
    };
    let time_ns = |seconds, ns| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
    Ok(Stat {
        kind,
        device: u64::from(fs::major(s.st_dev)) << 32 | u64::from(fs::minor(s.st_dev)),
        inode: s.st_ino,
        size_bytes: s.st_size.unsigned_abs(),
        modified_ns: time_ns(s.st_mtime, s.st_mtime_nsec),
        changed_ns: time_ns(s.st_ctime, s.st_ctime_nsec),
    })
}

/// Whether an open file has no name any more, so that its last close frees its blocks.
///
/// Errors: `EBADF`.
pub fn is_deleted(file: impl AsFd) -> io::Result<bool> {
    Ok(fs::fstat(file)?.st_nlink == 0)
}

/// Whether an open file is only a place in a file system (`O_PATH`): it can be neither read nor
/// asked without waiting for somebody else (see `flash_waiting::file::open`).
#[inline]
pub fn is_place(file: impl AsFd) -> io::Result<bool> {
    Ok(fs::fcntl_getfl(file)?.contains(OFlags::PATH))
}

/// Marks a descriptor so that reading through it starts no readahead of its own.
pub fn mark_random(file: impl AsFd) -> io::Result<()> {
    Ok(fs::fadvise(file, 0, None, Advice::Random)?)
}

/// Has reads through a descriptor that [`look_up_by`] opened leave the file's access time alone (`O_NOATIME`),
/// where the process owns the file or has `CAP_FOWNER`.
///
/// Otherwise a read may bring the access time up to date (relatime, mount(8)), for which ext4 starts a
/// transaction of its journal and waits for the one that is being committed: in 78 of 1,383 reads, up to 14 ms
/// (measured with relatime). No read flag prevents that, `RWF_NOWAIT` least of all. The flag is set after
/// the open: an open with it fails for every other file, and would have to be made again.
fn leave_access_time(file: &OwnedFd) {
    // `EPERM` for a file of another owner: its access time is kept as its mount says.
    let _ = fs::fcntl_setfl(file, OFlags::NONBLOCK | OFlags::NOATIME);
}

/// What came of a read that was not to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resident {
    /// So many bytes were in memory and were read; 0 is the end of the file.
    Bytes(usize),
    /// The first byte is not in memory.
    Absent,
    /// The kernel will not tell, or the file system cannot read without waiting: `cachestat`
    /// answered `EPERM`, `ENOSYS` or, for a place, `EBADF`, or `preadv2` answered `EOPNOTSUPP`.
    Unknown,
}

/// Reads what is in memory of `buffer.len()` bytes at `offset`, as far as it is there without
/// a gap. Never starts I/O, never waits.
///
/// Errors: those of preadv2(2) other than "would wait".
pub fn read_resident(file: impl AsFd, offset: u64, buffer: &mut [u8]) -> io::Result<Resident> {
    let length = match resident_start(&file, offset, buffer.len())? {
        Resident::Bytes(length) => length,
        other => return Ok(other),
    };
    let mut parts = [IoSliceMut::new(&mut buffer[..length])];
    match rustix::io::preadv2(&file, &mut parts, offset, ReadWriteFlags::NOWAIT) {
        Ok(n) => Ok(Resident::Bytes(n)),
        // Counted by cachestat, but its read is still under way.
        Err(Errno::AGAIN) => Ok(Resident::Absent),
        Err(Errno::OPNOTSUPP) => Ok(Resident::Unknown),
        Err(e) => Err(e.into()),
    }
}

/// How much of a part of a file is in memory, or on its way, from its start on: all of it, or about
/// half, and so on.
///
/// Errors: those of cachestat(2) that do not mean "the kernel will not tell".
pub fn resident_start(file: impl AsFd, offset: u64, mut length: usize) -> io::Result<Resident> {
    loop {
        match resident(&file, offset, length) {
            Ok(true) => return Ok(Resident::Bytes(length)),
            Ok(false) if length <= PAGE_BYTES => return Ok(Resident::Absent),
            // Halving finds a resident start in a few calls; the rest is for a helper.
            Ok(false) => length = (length / 2).next_multiple_of(PAGE_BYTES),
            Err(Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP | Errno::BADF) => return Ok(Resident::Unknown),
            Err(e) => return Err(e.into()),
        }
    }
}

/// Whether the kernel tells what of a file is in memory.
///
/// Errors: `EPERM` for a file of another owner, `ENOSYS` before Linux 6.5.
pub fn tells_residency(file: impl AsFd) -> io::Result<()> {
    resident(file, 0, 1)?;
    Ok(())
}

/// The number of cachestat(2), on all machines; it is newer than the libc crate's list.
pub const SYS_CACHESTAT: i64 = 451;

/// The smallest page of any machine that Flash runs on; the kernel counts residency in pages.
const PAGE_BYTES: usize = 4096;

/// Whether the page cache holds every page of a range, read or on its way (cachestat(2)).
///
/// Errors: as in [`tells_residency`].
pub fn resident(file: impl AsFd, offset: u64, length: usize) -> Result<bool, Errno> {
    #[repr(C)]
    struct Range {
        offset: u64,
        length: u64,
    }
    #[repr(C)]
    #[derive(Default)]
    struct Counts {
        cached: u64,
        dirty: u64,
        writeback: u64,
        evicted: u64,
        recently_evicted: u64,
    }
    let range = Range { offset, length: length as u64 };
    let mut counts = Counts::default();
    // SAFETY: cachestat(2) reads one `Range` and writes one `Counts`; both outlive the call
    // and have the kernel's layout (include/uapi/linux/mman.h).
    let answer = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_fd().as_raw_fd(), &raw const range, &raw mut counts, 0)
    };
    if answer != 0 {
        return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::NOSYS));
    }
    let page = PAGE_BYTES as u64;
    let pages = (offset + range.length).div_ceil(page) - offset / page;
    Ok(counts.cached >= pages)
}

/// Errors of look-ups that `std::io::ErrorKind` does not tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// `ELOOP`: symlinks in a circle, or a magic link.
    Loop,
    /// `EMFILE`, `ENFILE`: descriptors ran out.
    Exhausted,
    /// Anything else, with its number; 0 when it has none.
    Other(i32),
}

/// Tells what kind of trouble `error` is.
pub fn classify(error: &io::Error) -> Trouble {
    match Errno::from_io_error(error) {
        Some(Errno::LOOP) => Trouble::Loop,
        Some(Errno::MFILE | Errno::NFILE) => Trouble::Exhausted,
        Some(other) => Trouble::Other(other.raw_os_error()),
        None => Trouble::Other(0),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, FileTimes};
    use std::io::Write;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn the_state_of_a_file_is_what_statx_says() {
        let path = std::env::temp_dir().join(format!("flash-stat-{}", std::process::id()));
        std::fs::write(&path, "12345").expect("a file");
        let file = File::open(&path).expect("opened");
        // The standard library asks by statx(2), which has both halves of the device by themselves.
        let known = file.metadata().expect("its metadata");
        let ns = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
        let (major, minor) = (fs::major(known.dev()), fs::minor(known.dev()));
        let expected = Stat {
            kind: FileKind::File,
            device: u64::from(major) << 32 | u64::from(minor),
            inode: known.ino(),
            size_bytes: 5,
            modified_ns: ns(known.mtime(), known.mtime_nsec()),
            changed_ns: ns(known.ctime(), known.ctime_nsec()),
        };
        assert_eq!(stat(&file).expect("its state"), expected);
        assert!(!is_deleted(&file).expect("its names"));
        let link = path.with_extension("link");
        symlink(&path, &link).expect("a link");
        std::fs::remove_file(&link).expect("removed");
        assert!(!is_deleted(&file).expect("its names"), "a symlink is no name of its own");
        std::fs::remove_file(&path).expect("removed");
        assert!(is_deleted(&file).expect("its names"));
        assert_eq!(stat(File::open("/").expect("/")).expect("its state").kind, FileKind::Directory);
        assert_eq!(stat(File::open("/dev/null").expect("it")).expect("its state").kind, FileKind::Special);
    }

    #[test]
    fn reading_leaves_the_access_time_alone() {
        let old = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        // On the disk of the sources, with an access time that any read would bring up to date (mount(8), relatime).
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let make = |kind: &str| {
            let name = format!("atime-{}-{kind}.tmp", std::process::id());
            let mut file = File::create(folder.join(&name)).expect("a file");
            file.write_all(b"12345").expect("written");
            file.set_times(FileTimes::new().set_accessed(old)).expect("its times set");
            name
        };
        let accessed =
            |name: &str| std::fs::metadata(folder.join(name)).expect("there").accessed().expect("a time");
        let (ours, other) = (make("ours"), make("other"));
        let root = File::open(folder).expect("the folder");
        let file = open_cached(&root, ours.as_bytes(), Want::Content).expect("found").file.expect("a file");
        let read = read_resident(&file, 0, &mut [0; 5]).expect("an answer");
        std::fs::read(folder.join(&other)).expect("read");
        let (ours_now, other_now) = (accessed(&ours), accessed(&other));
        for name in [ours, other] {
            std::fs::remove_file(folder.join(name)).expect("removed");
        }
        if read == Resident::Unknown || other_now == old {
            return println!(
                "skipped: this file system does not read without waiting, or keeps no access times"
            );
        }
        assert_eq!((read, ours_now), (Resident::Bytes(5), old));
    }
}
