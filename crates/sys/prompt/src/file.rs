//! Files without blocking: look-ups in the dentry cache, reads from the page cache.
//!
//! This module relies on measured facts: `RESOLVE_CACHED` never blocks on a local file system.
//! `preadv2(RWF_NOWAIT)` can block on a miss, because it submits readahead itself; so `cachestat` is called
//! first and the descriptor is marked `POSIX_FADV_RANDOM`. On other file systems, open, close and even fstat
//! can wait for another process or host; there a worker has only `O_PATH` descriptors, on which it calls
//! nothing except [`is_path_only`].

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;

use linux_raw_sys::general::{cachestat, cachestat_range};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{self, Advice, AtFlags, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::param::page_size;

use super::call::check;
use super::mapped::Mapped;

/// The kind of file that a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A device, socket or FIFO; never opened for reading.
    Special,
}

impl FileKind {
    fn of(mode: fs::RawMode) -> Self {
        match fs::FileType::from_raw_mode(mode) {
            fs::FileType::RegularFile => FileKind::File,
            fs::FileType::Directory => FileKind::Directory,
            _ => FileKind::Special,
        }
    }
}

/// The result of fstat(2), as far as Flash needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The kind of file.
    pub kind: FileKind,
    /// Device number, major in the upper half.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Time of the last change of the content, in nanoseconds since 1970.
    pub modified_ns: i128,
    /// Time of the last change of content or metadata, in nanoseconds since 1970.
    pub changed_ns: i128,
}

/// A path that was found.
#[derive(Debug)]
pub struct Found {
    /// The result of fstat(2).
    pub stat: Stat,
    /// Open for reading, if it is a regular file and the look-up wanted its content.
    pub file: Option<OwnedFd>,
}

/// How far a look-up goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Only call fstat(2).
    Stat,
    /// Also open a regular file for reading.
    Content,
}

/// Looks up `path` under `root`, which must be on a local file system, without blocking.
///
/// `path` is relative (`.` is the root itself). The look-up does not leave `root`, even through a symlink,
/// and follows no magic links (openat2(2)).
///
/// Errors: `WouldBlock` if the answer is not in the dentry cache, and for a path that leaves the root or
/// crosses to another file system, which the kernel does not distinguish; `NotFound`; `PermissionDenied`;
/// others of openat2(2).
pub fn open_cached(root: impl AsFd, path: &[u8], want: Want) -> io::Result<Found> {
    let resolve = BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::CACHED;
    let open = |flags| Ok(fs::openat2(&root, path, flags, Mode::empty(), resolve)?);
    look_up_by(want, open, |file| stat(file)).map_err(would_wait_elsewhere)
}

/// The flags of every look-up: it stays beneath the root and follows no magic links (openat2(2)).
pub const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// Turns "crosses to another file system" into "would block", so that a helper looks up the path.
pub fn would_wait_elsewhere(error: io::Error) -> io::Error {
    match Errno::from_io_error(&error) {
        Some(Errno::XDEV) => Errno::AGAIN.into(),
        _ => error,
    }
}

/// The steps that every kind of look-up shares. The caller passes an `open` and a `stat`, and thereby decides
/// whether they can block.
///
/// Errors: any of `open` and `stat`.
pub fn look_up_by(
    want: Want,
    open: impl Fn(OFlags) -> io::Result<OwnedFd>,
    stat: impl Fn(&OwnedFd) -> io::Result<Stat>,
) -> io::Result<Found> {
    // The file is checked before it is opened for reading, because opening a device has side effects and
    // opening a FIFO waits for a writer.
    let found = stat(&open(OFlags::PATH | OFlags::CLOEXEC)?)?;
    if found.kind != FileKind::File || want == Want::Stat {
        return Ok(Found { stat: found, file: None });
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = open(flags)?;
    let opened = stat(&file)?;
    if opened.kind != FileKind::File {
        // The file was replaced between the two opens. `NONBLOCK` prevented this open from hanging.
        return Ok(Found { stat: opened, file: None });
    }
    mark_random(&file)?;
    leave_access_time(&file);
    Ok(Found { stat: opened, file: Some(file) })
}

/// Calls fstat(2) on an open file. It takes no path, so the sandbox can allow a worker this call and no
/// similar one: a filter cannot see whether the path passed to statx(2) is empty. On a file system that
/// depends on another process or host this call can block too; a worker has only `O_PATH` descriptors there,
/// and does not call this on them.
///
/// Errors: `EBADF`.
#[inline]
pub fn stat(file: impl AsFd) -> io::Result<Stat> {
    Ok(Stat::from(&fs::fstat(file)?))
}

impl From<&fs::Stat> for Stat {
    #[inline]
    fn from(s: &fs::Stat) -> Self {
        let time_ns = |seconds, ns| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
        Self {
            kind: FileKind::of(s.st_mode),
            device: u64::from(fs::major(s.st_dev)) << 32 | u64::from(fs::minor(s.st_dev)),
            inode: s.st_ino,
            size_bytes: s.st_size.unsigned_abs(),
            modified_ns: time_ns(s.st_mtime, s.st_mtime_nsec),
            changed_ns: time_ns(s.st_ctime, s.st_ctime_nsec),
        }
    }
}

/// The identity and kind of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Device number, major in the upper half.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Number of the mount through which it was opened (since Linux 5.8; otherwise 0).
    pub mount: u64,
    /// The kind of file.
    pub kind: FileKind,
}

/// Asks for the identity of any open file as the kernel knows it, without asking its file system
/// (`AT_STATX_DONT_SYNC`, statx(2)). So this never waits, even if the file system depends on another process
/// that hangs.
///
/// Errors: `EBADF`.
pub fn identity(file: impl AsFd) -> io::Result<Identity> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let wanted = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::MNT_ID;
    let s = fs::statx(file, c"", flags, wanted)?;
    let is_known = s.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    Ok(Identity {
        device: u64::from(s.stx_dev_major) << 32 | u64::from(s.stx_dev_minor),
        inode: s.stx_ino,
        mount: if is_known { s.stx_mnt_id } else { 0 },
        kind: FileKind::of(s.stx_mode.into()),
    })
}

/// The identity of a directory by its absolute path, through symlinks, without blocking.
///
/// Errors: `WouldBlock` if the answer is not in the dentry cache; others of openat2(2).
pub fn identity_cached(path: &[u8]) -> io::Result<Identity> {
    let resolve = ResolveFlags::NO_MAGICLINKS | ResolveFlags::CACHED;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    identity(fs::openat2(fs::CWD, path, flags, Mode::empty(), resolve)?)
}

/// Whether an open file has no name any more, so that its last close frees its blocks.
///
/// Errors: `EBADF`.
pub fn is_deleted(file: impl AsFd) -> io::Result<bool> {
    Ok(fs::fstat(file)?.st_nlink == 0)
}

/// Whether a descriptor was opened with `O_PATH`. It cannot be read, and even asking for its state could wait
/// for another process or host (see `flash_waiting::file::open`).
#[inline]
pub fn is_path_only(file: impl AsFd) -> io::Result<bool> {
    Ok(fs::fcntl_getfl(file)?.contains(OFlags::PATH))
}

/// Marks a descriptor so that reads through it start no readahead.
pub fn mark_random(file: impl AsFd) -> io::Result<()> {
    Ok(fs::fadvise(file, 0, None, Advice::Random)?)
}

/// Makes reads through a descriptor from [`look_up_by`] leave the file's access time alone (`O_NOATIME`), if
/// the process owns the file or has `CAP_FOWNER`.
///
/// Otherwise a read can update the access time (relatime, mount(8)). For that, ext4 starts a journal
/// transaction and waits for the one being committed: 78 of 1,383 reads waited, up to 14 ms (measured with
/// relatime). No read flag prevents that, not even `RWF_NOWAIT`. The flag is set after the open, because an
/// open with it fails for files of other owners and would have to be repeated.
fn leave_access_time(file: &OwnedFd) {
    // `EPERM` for a file of another owner: its access time is updated as its mount demands.
    let _ = fs::fcntl_setfl(file, OFlags::NONBLOCK | OFlags::NOATIME);
}

/// The result of a read that must not block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resident {
    /// This many bytes were in memory and were read; 0 is the end of the file.
    Bytes(usize),
    /// The first byte is not in memory.
    Absent,
    /// The kernel does not report residency, or the file system cannot read without blocking: `cachestat`
    /// returned `EPERM`, `ENOSYS` or (for `O_PATH`) `EBADF`, or `preadv2` returned `EOPNOTSUPP`.
    Unknown,
}

/// Reads up to `buffer.len()` bytes at `offset`, as far as they are in memory without a gap. Never starts I/O
/// and never blocks.
///
/// Errors: any of preadv2(2) other than "would block".
pub fn read_resident(file: impl AsFd, offset: u64, buffer: &mut [u8]) -> io::Result<Resident> {
    let length = match resident_start(&file, offset, buffer.len())? {
        Resident::Bytes(length) => length,
        other => return Ok(other),
    };
    let mut parts = [IoSliceMut::new(&mut buffer[..length])];
    match rustix::io::preadv2(&file, &mut parts, offset, ReadWriteFlags::NOWAIT) {
        Ok(n) => Ok(Resident::Bytes(n)),
        // `cachestat` counted the page, but its read from the disk is still under way.
        Err(Errno::AGAIN) => Ok(Resident::Absent),
        Err(Errno::OPNOTSUPP) => Ok(Resident::Unknown),
        Err(e) => Err(e.into()),
    }
}

/// How much of a part of a file is in memory or being read, counted from its start: all of it, or about half,
/// and so on.
///
/// Errors: any of cachestat(2) that do not mean "unknown".
pub fn resident_start(file: impl AsFd, offset: u64, length: usize) -> io::Result<Resident> {
    start_of(length, |length| resident(&file, offset, length))
}

/// The same without what is still being read. `Unknown` too for a file system that cannot read without blocking.
///
/// Errors: any of cachestat(2) that do not mean "unknown".
pub fn read_start(file: impl AsFd, offset: u64, length: usize) -> io::Result<Resident> {
    start_of(length, |length| Ok(resident(&file, offset, length)? && is_read(&file, offset, length)?))
}

fn start_of(
    mut length: usize,
    is_resident: impl Fn(usize) -> rustix::io::Result<bool>,
) -> io::Result<Resident> {
    loop {
        match is_resident(length) {
            Ok(true) => return Ok(Resident::Bytes(length)),
            Ok(false) if length <= PAGE_BYTES => return Ok(Resident::Absent),
            // Halving finds a resident start in a few calls; a helper loads the rest.
            Ok(false) => length = (length / 2).next_multiple_of(PAGE_BYTES),
            Err(Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP | Errno::BADF) => return Ok(Resident::Unknown),
            Err(e) => return Err(e.into()),
        }
    }
}

/// Whether a part of a file, up to its end, is in memory. Never starts I/O and never blocks; false also if the
/// kernel does not report it.
pub fn is_part_resident(file: impl AsFd, offset: u64, length_bytes: u64) -> bool {
    let Ok(length) = usize::try_from(length_bytes) else { return false };
    let is_whole =
        || resident(&file, offset, length) == Ok(true) && is_read(&file, offset, length) == Ok(true);
    offset.checked_add(length_bytes).is_some() && (length == 0 || is_whole())
}

/// Whether all pages of a part of a file are read: `cachestat` counts those too that are still being read. It reads none of
/// them, because the kernel counts a read as a use of the page, and so keeps it in memory for longer.
///
/// Errors: `EOPNOTSUPP` if the file cannot be mapped or read without blocking.
fn is_read(file: impl AsFd, offset: u64, length: usize) -> rustix::io::Result<bool> {
    // Only a read shows whether the file system has reads that do not block. This one begins after the end of any file.
    let read = rustix::io::preadv2(&file, &mut [IoSliceMut::new(&mut [0])], 1 << 62, ReadWriteFlags::NOWAIT);
    if read == Err(Errno::OPNOTSUPP) {
        return Err(Errno::OPNOTSUPP);
    }
    let before = (offset % page_size() as u64) as usize;
    let mapped =
        Mapped::new(file, offset - before as u64, before + length, ProtFlags::READ, MapFlags::empty());
    let pages = mapped.and_then(|mapped| mapped.pages_in_memory(0, before + length));
    Ok(pages.map_err(|_| Errno::OPNOTSUPP)? == (before + length).div_ceil(page_size()))
}

/// Checks whether the kernel reports the residency of a file.
///
/// Errors: `EPERM` for a file of another owner, `ENOSYS` before Linux 6.5.
pub fn reports_residency(file: impl AsFd) -> io::Result<()> {
    resident(file, 0, 1)?;
    Ok(())
}

/// The number of cachestat(2), the same on all machines. The libc crate does not have it yet.
pub const SYS_CACHESTAT: i64 = 451;

/// The smallest page size of any machine that Flash runs on; the kernel counts residency in pages.
const PAGE_BYTES: usize = 4096;

/// Whether the page cache has every page of a range, read or being read (cachestat(2)).
pub fn resident(file: impl AsFd, offset: u64, length: usize) -> Result<bool, Errno> {
    let range = cachestat_range { off: offset, len: length as u64 };
    let mut counts = MaybeUninit::<cachestat>::zeroed();
    // SAFETY: cachestat(2) reads the range and writes the counts, for which all zeros are valid; both outlive the call.
    let (answer, counts) = unsafe {
        let fd = file.as_fd().as_raw_fd();
        let answer = libc::syscall(SYS_CACHESTAT, fd, &raw const range, counts.as_mut_ptr(), 0);
        (answer, counts.assume_init())
    };
    check(answer).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::NOSYS))?;
    let page = PAGE_BYTES as u64;
    let pages = (offset + range.len).div_ceil(page) - offset / page;
    Ok(counts.nr_cache >= pages)
}

/// Errors of look-ups that `std::io::ErrorKind` does not distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// `ELOOP`: a loop of symlinks, or a magic link.
    Loop,
    /// `EMFILE`, `ENFILE`: no descriptors are left.
    Exhausted,
    /// Any other error, with its number; 0 if it has none.
    Other(i32),
}

/// Classifies an error.
pub fn classify(error: &io::Error) -> Trouble {
    match Errno::from_io_error(error) {
        Some(Errno::LOOP) => Trouble::Loop,
        Some(Errno::MFILE | Errno::NFILE) => Trouble::Exhausted,
        Some(other) => Trouble::Other(other.raw_os_error()),
        None => Trouble::Other(0),
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
