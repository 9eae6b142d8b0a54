//! Opens the sites' roots, and finds out whether their file systems can depend on another process or host.
//!
//! A network server or FUSE daemon that hangs blocks every process that opens a path there, for any time and
//! beyond any signal. So a child process opens each root, and only that child hangs. Called by the supervisor
//! and by the check of the settings; other roles get open roots.

use std::ffi::{CString, c_uint};
use std::io::{self, IoSlice};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use flash_prompt::channel;

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

/// Whether both are the same directory. Only for local file systems, because this call asks them.
pub fn is_same(one: impl AsFd, other: impl AsFd) -> io::Result<bool> {
    let (one, other) = (fs::fstat(one)?, fs::fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// A site's root.
#[derive(Debug)]
pub struct Root {
    /// The directory, for look-ups only (`O_PATH`).
    pub folder: OwnedFd,
    /// See [`is_local`].
    pub is_local: bool,
}

/// Why a root is not open.
#[derive(Debug)]
pub enum Unopened {
    /// It has not answered so far.
    Hangs(Opening),
    /// It cannot be opened.
    Failed(io::Error),
}

/// Opens roots, many at once. Those that do not answer within `patience` stay under way.
pub fn open_roots(paths: &[&Path], patience: Duration) -> Vec<Result<Root, Unopened>> {
    let open = |paths: &[&Path]| {
        let deadline = Instant::now() + patience;
        let started: Vec<_> = paths.iter().map(|path| Opening::start(path)).collect();
        started.into_iter().map(|opening| finish(opening, deadline)).collect::<Vec<_>>()
    };
    paths.chunks(AT_ONCE).flat_map(open).collect()
}

/// Maximum number of roots opened at once; the following ones have their own time.
const AT_ONCE: usize = 64;

fn finish(opening: io::Result<Opening>, deadline: Instant) -> Result<Root, Unopened> {
    let mut opening = opening.map_err(Unopened::Failed)?;
    opening.wait(deadline).map_err(Unopened::Failed)?;
    match opening.take() {
        Ok(root) => Ok(root),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(Unopened::Hangs(opening)),
        Err(e) => Err(Unopened::Failed(e)),
    }
}

const ROOT_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A child process that opens a root. Its descriptor is readable once it has a result.
#[derive(Debug)]
pub struct Opening {
    child: Pid,
    channel: OwnedFd,
    answered: bool,
}

impl Opening {
    /// Starts to open a directory.
    pub fn start(path: &Path) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let (ours, theirs) = channel::pair(4096)?;
        channel::set_nonblocking(&ours)?;
        // SAFETY: the child makes only system calls on memory allocated before, and ends without unwinding or
        // running destructors, so locks that other threads held do not matter.
        let child = unsafe { libc::fork() };
        if child < 0 {
            return Err(io::Error::last_os_error());
        }
        match Pid::from_raw(child) {
            Some(child) => Ok(Self { child, channel: ours, answered: false }),
            None => {
                open_and_send(&path, &theirs);
                // SAFETY: ends the child at once; it owns nothing that must be kept.
                unsafe { libc::_exit(0) }
            }
        }
    }

    /// The id of the child, which is waited for when this is dropped.
    pub fn pid(&self) -> u32 {
        self.child.as_raw_nonzero().get().unsigned_abs()
    }

    /// Waits for a result, until `deadline`.
    fn wait(&self, deadline: Instant) -> io::Result<()> {
        loop {
            let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now()))
                .map_err(|_| io::ErrorKind::InvalidInput)?;
            match poll(&mut [PollFd::new(&self.channel, PollFlags::IN)], Some(&left)) {
                Err(Errno::INTR) => {}
                other => return Ok(other.map(drop)?),
            }
        }
    }

    /// Takes the result.
    ///
    /// Errors: `WouldBlock` while there is none; any of openat(2).
    pub fn take(&mut self) -> io::Result<Root> {
        let (mut answer, mut descriptors) = ([0; 5], Vec::new());
        channel::recv(&self.channel, &mut answer, &mut descriptors)?;
        self.answered = true;
        let [is_local, number @ ..] = answer;
        match (i32::from_le_bytes(number), descriptors.pop()) {
            (0, Some(folder)) => Ok(Root { folder, is_local: is_local != 0 }),
            // The child died without a result.
            (0, None) => Err(io::ErrorKind::UnexpectedEof.into()),
            (number, _) => Err(io::Error::from_raw_os_error(number)),
        }
    }
}

impl AsFd for Opening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        // A child that hangs ends when its file system lets it, and is reaped later.
        let _ = kill_process(self.child, Signal::KILL);
        let options = if self.answered { WaitOptions::empty() } else { WaitOptions::NOHANG };
        let _ = waitpid(Some(self.child), options);
    }
}

/// The child's work. It must not allocate.
fn open_and_send(path: &CString, channel: &OwnedFd) {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    // A child that hangs must not hold its parent's sockets and pipes, so it keeps only the channel.
    //
    // SAFETY: the closed and replaced descriptors belong only to this child, which no longer uses them and
    // runs no destructors; 0 stays open until it ends.
    let channel = unsafe {
        libc::dup2(channel.as_raw_fd(), 0);
        libc::syscall(libc::SYS_close_range, 1 as c_uint, c_uint::MAX, 0 as c_uint);
        BorrowedFd::borrow_raw(0)
    };
    let send = |is_local: bool, number: i32, folder: &[BorrowedFd<'_>]| {
        let _ = channel::send(
            channel,
            &[IoSlice::new(&[u8::from(is_local)]), IoSlice::new(&number.to_le_bytes())],
            folder,
        );
    };
    match fs::openat(fs::CWD, path.as_c_str(), ROOT_FLAGS, Mode::empty()) {
        // A file system that does not even report its type is not considered local.
        Ok(folder) => send(is_local(&folder).unwrap_or(false), 0, &[folder.as_fd()]),
        Err(e) => send(false, e.raw_os_error(), &[]),
    }
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
    fn memory_is_local() {
        let file = crate::file::memory_file(b"").expect("a memory file");
        assert!(is_local(file).expect("its type"));
    }
}
