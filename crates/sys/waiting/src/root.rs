//! Opening sites' roots, and telling whether their file systems may wait for somebody else.
//!
//! A server or a FUSE daemon that hangs keeps whoever opens a path there for as long as it likes,
//! beyond any signal. So each root is opened by a child process, which alone hangs then. The
//! supervisor and the check of the settings use it; the other roles get open roots.

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

/// Magic numbers (linux/magic.h, and the sources of the last three) of file systems on block devices
/// or in memory, on which calls for what is cached wait for nobody. What is not listed may wait.
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

/// Whether a file lies on a file system that waits for nobody else. The question itself may wait.
pub fn is_local(file: impl AsFd) -> io::Result<bool> {
    let kind = fs::fstatfs(file)?.f_type;
    // The type is signed on some machines; the numbers have 32 bits.
    Ok(LOCAL.contains(&(kind as u64 & 0xffff_ffff)))
}

/// Whether both are the same folder. For those on local file systems, which are asked.
pub fn is_same(one: impl AsFd, other: impl AsFd) -> io::Result<bool> {
    let (one, other) = (fs::fstat(one)?, fs::fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// A site's root.
#[derive(Debug)]
pub struct Root {
    /// The folder, for look-ups only (`O_PATH`).
    pub folder: OwnedFd,
    /// See [`is_local`].
    pub is_local: bool,
}

/// Why there is no root (yet).
#[derive(Debug)]
pub enum Unopened {
    /// It did not answer so far.
    Hangs(Opening),
    /// It cannot be opened.
    Failed(io::Error),
}

/// Opens roots, many at once; what does not answer within `patience` stays under way.
pub fn open_roots(paths: &[&Path], patience: Duration) -> Vec<Result<Root, Unopened>> {
    let open = |paths: &[&Path]| {
        let deadline = Instant::now() + patience;
        let started: Vec<_> = paths.iter().map(|path| Opening::start(path)).collect();
        started.into_iter().map(|opening| finish(opening, deadline)).collect::<Vec<_>>()
    };
    paths.chunks(AT_ONCE).flat_map(open).collect()
}

/// Roots opened at once; the next ones have their own time.
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

/// A child that opens a root. Its descriptor is readable once it has an answer.
#[derive(Debug)]
pub struct Opening {
    child: Pid,
    channel: OwnedFd,
    answered: bool,
}

impl Opening {
    /// Starts to open a folder.
    pub fn start(path: &Path) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let (ours, theirs) = channel::pair(4096)?;
        channel::set_nonblocking(&ours)?;
        // SAFETY: the child makes nothing but system calls on memory made before, and ends without
        // unwinding or running any destructor, so no lock that another thread held matters to it.
        let child = unsafe { libc::fork() };
        if child < 0 {
            return Err(io::Error::last_os_error());
        }
        match Pid::from_raw(child) {
            Some(child) => Ok(Self { child, channel: ours, answered: false }),
            None => {
                open_and_send(&path, &theirs);
                // SAFETY: ends the child at once, which owns nothing that would have to be kept.
                unsafe { libc::_exit(0) }
            }
        }
    }

    /// The child, which is waited for when this is dropped.
    pub fn pid(&self) -> u32 {
        self.child.as_raw_nonzero().get().unsigned_abs()
    }

    /// Waits for an answer, until `deadline`.
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

    /// Takes the answer.
    ///
    /// Errors: `WouldBlock` as long as there is none; those of openat(2).
    pub fn take(&mut self) -> io::Result<Root> {
        let (mut answer, mut descriptors) = ([0; 5], Vec::new());
        channel::recv(&self.channel, &mut answer, &mut descriptors)?;
        self.answered = true;
        let [is_local, number @ ..] = answer;
        match (i32::from_le_bytes(number), descriptors.pop()) {
            (0, Some(folder)) => Ok(Root { folder, is_local: is_local != 0 }),
            // It died without a word.
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
        // One that hangs ends when its file system lets it, and is reaped then as one that was let go.
        let _ = kill_process(self.child, Signal::KILL);
        let options = if self.answered { WaitOptions::empty() } else { WaitOptions::NOHANG };
        let _ = waitpid(Some(self.child), options);
    }
}

/// The child's work. It may not allocate.
fn open_and_send(path: &CString, channel: &OwnedFd) {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    // A child that hangs must not hold its parent's sockets and pipes: it keeps the channel alone.
    // SAFETY: the descriptors closed and replaced belong to this child alone, which uses none of them
    // any more and runs no destructor; 0 is then open until it ends.
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
        // A file system that does not even tell what it is is not one to rely on.
        Ok(folder) => send(is_local(&folder).unwrap_or(false), 0, &[folder.as_fd()]),
        Err(e) => send(false, e.raw_os_error(), &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_opened_and_told_apart() {
        let here = std::env::temp_dir();
        let paths = [&here, Path::new("/proc"), &here.join("not-there"), Path::new("/proc/version")];
        let opened = open_roots(&paths, Duration::from_secs(60));
        let [Ok(_), Ok(proc), Err(Unopened::Failed(missing)), Err(Unopened::Failed(file))] = &opened[..]
        else {
            panic!("{opened:?}")
        };
        assert!(!proc.is_local, "what is not listed may wait");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert_eq!(file.kind(), io::ErrorKind::NotADirectory);
    }

    #[test]
    fn memory_is_local() {
        let file = crate::file::memory_file(b"").expect("a memory file");
        assert!(is_local(file).expect("its file system"));
    }
}
