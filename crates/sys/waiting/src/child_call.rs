//! Calls on file systems that child processes of the supervisor make in its place, one each.
//!
//! A disk, a network server or a FUSE daemon that hangs blocks every process that uses its files, for any time and beyond
//! any signal. Only the child hangs then: its parent watches a descriptor, and gives the child up by dropping
//! its handle. Called by the supervisor, and by [`crate::root`], [`crate::guarded`] and [`crate::local`].

use std::ffi::{CString, c_uint};
use std::io::{self, IoSlice};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, pidfd_send_signal, waitid,
};

use flash_prompt::{channel, clock, net};

use crate::process;

/// The result of a call: a descriptor, if it makes one, and the note.
type Made = (Option<OwnedFd>, Note);
/// Numbers that a child reports beside its descriptor.
pub(crate) type Note = [u64; 3];

/// A message of the child: an error number or 0, and the note.
const ANSWER_BYTES: usize = 4 + size_of::<Note>();

/// How often a child tries to send a descriptor while its user has too many in transit.
const TRIES_MAX: u32 = 1_000;
/// The time between two of these.
const PAUSE: Duration = Duration::from_millis(5);

/// Time for [`ChildCall::run`]: a server that ends waits this long for a disk that hangs.
const RUN_TIME: Duration = Duration::from_secs(2);

/// A child process that makes a call. Its descriptor is readable once it has a result. Anybody may reap it at any time.
#[derive(Debug)]
pub(crate) struct ChildCall {
    /// The child, as a descriptor (pidfd_open(2)).
    child: OwnedFd,
    channel: OwnedFd,
    /// Whether the child continues when this is dropped.
    is_left: bool,
}

impl ChildCall {
    /// Starts `work` in a child.
    ///
    /// # Safety
    ///
    /// `work` must only make system calls on memory that exists already: in the child, other threads may have left any
    /// lock held, also that of the allocator.
    pub(crate) unsafe fn start(work: impl FnOnce() -> Result<(OwnedFd, Note), Errno>) -> io::Result<Self> {
        // SAFETY: the caller answers for `work`.
        unsafe { Self::start_with(None, |_| work().map(|(made, note)| (Some(made), note))) }
    }

    /// Starts a child that does these works in turn, and answers after each. [`ChildCall::take`] takes the answers in their order; the end
    /// of the child is `UnexpectedEof`.
    ///
    /// # Safety
    ///
    /// As of [`ChildCall::start`], of each work.
    pub(crate) unsafe fn start_each(
        works: impl Iterator<Item = Result<(OwnedFd, Note), Errno>>,
    ) -> io::Result<Self> {
        let run = |channel: BorrowedFd<'_>, _: Option<BorrowedFd<'_>>| {
            works.for_each(|done| answer(channel, done.map(|(made, note)| (Some(made), note))));
        };
        // SAFETY: the caller answers for the works.
        unsafe { Self::start_child(None, run) }
    }

    /// Starts `work`, which makes no descriptor, in a child.
    ///
    /// # Safety
    ///
    /// As of [`ChildCall::start`].
    pub(crate) unsafe fn start_noting(work: impl FnOnce() -> Note) -> io::Result<Self> {
        // SAFETY: the caller answers for `work`.
        unsafe { Self::start_with(None, |_| Ok((None, work()))) }
    }

    /// Takes the numbers of such work. Errors as of [`ChildCall::take`].
    pub(crate) fn take_note(&self) -> io::Result<Note> {
        self.take_all().map(|(_, note)| note)
    }

    /// Runs `work` in a child, with the descriptor `kept`, and waits for the end of it, at most [`RUN_TIME`].
    ///
    /// Errors: those of starting a process and of the work; `TimedOut`.
    ///
    /// # Safety
    ///
    /// As of [`ChildCall::start`].
    pub(crate) unsafe fn run(
        kept: Option<BorrowedFd<'_>>,
        work: impl FnOnce(Option<BorrowedFd<'_>>) -> Result<(), Errno>,
    ) -> io::Result<()> {
        // SAFETY: the caller answers for `work`.
        let call = unsafe { Self::start_with(kept, |kept| work(kept).map(|()| (None, Note::default()))) }?;
        call.wait(Instant::now() + RUN_TIME)?;
        match call.take_all() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                Err(io::Error::new(io::ErrorKind::TimedOut, "its disk does not answer"))
            }
            done => done.map(drop),
        }
    }

    /// Starts `work` in a child that nobody waits for. It ends with this process at the latest.
    ///
    /// Errors: those of starting a process.
    ///
    /// # Safety
    ///
    /// As of [`ChildCall::start`].
    pub(crate) unsafe fn leave(work: impl FnOnce() -> Result<(), Errno>) -> io::Result<()> {
        // SAFETY: the caller answers for `work`.
        let mut call = unsafe { Self::start_with(None, |_| work().map(|()| (None, Note::default()))) }?;
        call.is_left = true;
        Ok(())
    }

    /// # Safety
    ///
    /// As of [`ChildCall::start`].
    unsafe fn start_with(
        kept: Option<BorrowedFd<'_>>,
        work: impl FnOnce(Option<BorrowedFd<'_>>) -> Result<Made, Errno>,
    ) -> io::Result<Self> {
        // SAFETY: the caller answers for `work`.
        unsafe { Self::start_child(kept, |channel, kept| answer(channel, work(kept))) }
    }

    /// Starts a child that runs this with its end of the channel and the descriptor `kept`.
    ///
    /// # Safety
    ///
    /// As of [`ChildCall::start`].
    unsafe fn start_child(
        kept: Option<BorrowedFd<'_>>,
        run: impl FnOnce(BorrowedFd<'_>, Option<BorrowedFd<'_>>),
    ) -> io::Result<Self> {
        let (ours, theirs) = channel::pair(4096)?;
        channel::set_nonblocking(&ours)?;
        // SAFETY: the caller answers for `run`; `settle` makes only system calls, and the child ends without unwinding or
        // running destructors.
        let child = unsafe { libc::fork() };
        if child < 0 {
            return Err(io::Error::last_os_error());
        }
        match Pid::from_raw(child) {
            Some(child) => {
                let opened = pidfd_open(child, PidfdFlags::empty()).inspect_err(|_| {
                    let _ = kill_process(child, Signal::KILL);
                })?;
                Ok(Self { child: opened, channel: ours, is_left: false })
            }
            None => {
                let (channel, kept) = settle(&theirs, kept);
                run(channel, kept);
                // SAFETY: ends the child at once; it owns nothing that must be kept.
                unsafe { libc::_exit(0) }
            }
        }
    }

    /// Waits for a result, until `deadline`.
    pub(crate) fn wait(&self, deadline: Instant) -> io::Result<()> {
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
    /// Errors: `WouldBlock` while there is none; `UnexpectedEof` if the child died without one; those of the work.
    pub(crate) fn take(&self) -> io::Result<(OwnedFd, Note)> {
        let (made, note) = self.take_all()?;
        Ok((made.ok_or(io::ErrorKind::UnexpectedEof)?, note))
    }

    fn take_all(&self) -> io::Result<Made> {
        let (mut answer, mut descriptors) = ([0; ANSWER_BYTES], Vec::new());
        if channel::recv(&self.channel, &mut answer, &mut descriptors)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (number, note) = answer.split_at(4);
        let number = number.try_into().map_or(0, i32::from_le_bytes);
        let mut words = note.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes));
        let note = [(); 3].map(|()| words.next().unwrap_or(0));
        match number {
            0 => Ok((descriptors.pop(), note)),
            number => Err(io::Error::from_raw_os_error(number)),
        }
    }
}

impl AsFd for ChildCall {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl Drop for ChildCall {
    fn drop(&mut self) {
        if self.is_left {
            return;
        }
        // A child that hangs ends when its file system lets it, and is reaped later, like one that has just answered.
        let _ = pidfd_send_signal(&self.child, Signal::KILL);
        let _ = waitid(WaitId::PidFd(self.child.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }
}

/// The beginning of the child: it keeps two descriptors, which it returns. It must not allocate.
fn settle(
    channel: &OwnedFd,
    kept: Option<BorrowedFd<'_>>,
) -> (BorrowedFd<'static>, Option<BorrowedFd<'static>>) {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    // A child that hangs must not hold its parent's sockets and pipes, so it keeps only these two.
    //
    // SAFETY: the closed and replaced descriptors belong only to this child, which no longer uses them and
    // runs no destructors; 0 and 1 stay open until it ends. The standard descriptors are open, so neither is one of them.
    unsafe {
        libc::dup2(channel.as_raw_fd(), 0);
        let kept = kept.map(|kept| {
            libc::dup2(kept.as_raw_fd(), 1);
            BorrowedFd::borrow_raw(1)
        });
        let rest = 1 + c_uint::from(kept.is_some());
        libc::syscall(libc::SYS_close_range, rest, c_uint::MAX, 0 as c_uint);
        (BorrowedFd::borrow_raw(0), kept)
    }
}

/// Sends the result of a work. It must not allocate.
fn answer(channel: BorrowedFd<'_>, done: Result<Made, Errno>) {
    let (number, note, descriptor) = match done {
        Ok((descriptor, note)) => (0, note, descriptor),
        Err(e) => (e.raw_os_error(), Note::default(), None),
    };
    let mut answer = [0; ANSWER_BYTES];
    answer[..4].copy_from_slice(&number.to_le_bytes());
    for (place, word) in answer[4..].chunks_exact_mut(8).zip(note) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let descriptor = descriptor.as_ref().map(AsFd::as_fd);
    for _ in 0..TRIES_MAX {
        match channel::send(channel, &[IoSlice::new(&answer)], descriptor.as_slice()) {
            Err(e) if net::has_too_many_in_transit(&e) => process::pause(PAUSE),
            _ => return,
        }
    }
    let number = Errno::TOOMANYREFS.raw_os_error();
    answer[..4].copy_from_slice(&number.to_le_bytes());
    let _ = channel::send(channel, &[IoSlice::new(&answer)], &[]);
}

/// The creation of a file without a name, which is gone with its last descriptor. Its descriptor is readable once it has
/// a result.
#[derive(Debug)]
pub struct UnnamedFile(ChildCall);

impl UnnamedFile {
    /// Starts to create one in `folder`, open for reading and writing.
    pub fn start(folder: &Path) -> io::Result<Self> {
        let name = format!(".flash-{}-{:x}", std::process::id(), clock::monotonic_ns());
        let named = CString::new(folder.join(name).as_os_str().as_bytes())?;
        let folder = CString::new(folder.as_os_str().as_bytes())?;
        // SAFETY: it makes only system calls, and both names exist.
        unsafe { ChildCall::start(|| Ok((create_unnamed(&folder, &named)?, Note::default()))) }.map(Self)
    }

    /// Takes the file.
    ///
    /// Errors: `WouldBlock` while there is no answer; any of open(2) with `O_TMPFILE`, or of making and unlinking a file
    /// where the file system cannot do that.
    pub fn take(&self) -> io::Result<OwnedFd> {
        self.0.take().map(|(file, _)| file)
    }
}

impl AsFd for UnnamedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn create_unnamed(folder: &CString, named: &CString) -> Result<OwnedFd, Errno> {
    let mode = Mode::RUSR | Mode::WUSR;
    match fs::open(folder.as_c_str(), OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode) {
        // Older kernels and some file systems know no files without names (open(2)).
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT) => {}
        made => return made,
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
    let file = fs::open(named.as_c_str(), flags, mode)?;
    fs::unlinkat(fs::CWD, named.as_c_str(), AtFlags::empty())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_file_without_a_name_can_be_written_and_read() {
        use std::os::unix::fs::FileExt;
        let folder = std::env::temp_dir();
        let make = |folder: &Path| {
            let started = UnnamedFile::start(folder).expect("started");
            started.0.wait(Instant::now() + Duration::from_secs(60)).expect("waited");
            started.take()
        };
        let file = std::fs::File::from(make(&folder).expect("a file"));
        file.write_all_at(b"text", 0).expect("written");
        let mut text = [0; 4];
        file.read_exact_at(&mut text, 0).expect("read");
        assert_eq!(&text, b"text");
        let missing = make(&folder.join("not-there")).expect_err("no folder");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_run_ends_or_fails() {
        let folder = tempfile::tempdir().expect("a folder");
        let opened = std::fs::File::open(folder.path()).expect("open");
        let make = || {
            // SAFETY: it makes only one system call.
            unsafe {
                ChildCall::run(Some(opened.as_fd()), |kept| {
                    let kept = kept.ok_or(Errno::BADF)?;
                    fs::mkdirat(kept, c"made", Mode::RWXU)
                })
            }
        };
        make().expect("made");
        assert!(folder.path().join("made").is_dir());
        assert_eq!(make().expect_err("it is there").kind(), io::ErrorKind::AlreadyExists);
        // SAFETY: it makes only one system call.
        let died = unsafe { ChildCall::run(None, |_| libc::_exit(1)) };
        assert_eq!(died.expect_err("no answer").kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_child_that_does_not_answer_blocks_nobody() {
        // SAFETY: it makes only one system call.
        let call = unsafe {
            ChildCall::start(|| {
                libc::pause();
                Err(Errno::INTR)
            })
        };
        let call = call.expect("started");
        call.wait(Instant::now() + Duration::from_millis(20)).expect("waited");
        assert_eq!(call.take().expect_err("nothing yet").kind(), io::ErrorKind::WouldBlock);
    }
}
