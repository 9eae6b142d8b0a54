//! A table of system calls: which wait for events, and which arguments are descriptors, paths and sizes.
//!
//! By names, since numbers differ between machines. It knows nothing of any trace.

use std::sync::OnceLock;

use flash_waiting::perf::call_name;

use crate::model::Name;

/// Calls are numbered below this on every machine; numbers above have no table.
const NUMBERS_MAX: usize = 1024;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Call {
    /// How surely it is what an event loop waits by; 0 when it waits for no events. A thread that has made one
    /// of a higher rank does not wait for its events by those of a lower one.
    pub(crate) wait_rank: u8,
    /// It waits only when this argument has this bit.
    pub(crate) wait_flag: Option<(usize, u64)>,
    /// Which argument says how many descriptors a wait is for, where one does.
    pub(crate) watched: Option<usize>,
    /// Which argument is the descriptor that it is for.
    pub(crate) fd: Option<usize>,
    /// The descriptor that is read from, in calls between two descriptors.
    pub(crate) from_fd: Option<usize>,
    /// Which argument is a path, and which the directory it begins at.
    pub(crate) path: Option<usize>,
    pub(crate) directory: Option<usize>,
    /// Which argument is the number of bytes.
    pub(crate) size: Option<usize>,
    /// Which argument is the buffer that it fills, when it may be from a client.
    pub(crate) filled: Option<usize>,
    /// The change that its success makes to the table of descriptors.
    pub(crate) effect: Effect,
    /// It is how a loop handles a ready descriptor.
    pub(crate) handles: Handles,
    /// It may send to a peer.
    pub(crate) sends: bool,
}

/// A change that a call makes to the table of descriptors of its process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Effect {
    #[default]
    None,
    /// Its result is a new descriptor of a file.
    OpensFile,
    /// Its result is a new socket.
    OpensSocket,
    /// Its result is a new descriptor of something without a name.
    OpensAnonymous,
    /// Its argument is a descriptor no more, whatever the result.
    Closes,
    /// From its first argument to its second none is a descriptor any more.
    ClosesRange,
    /// Its result is another name for its first argument.
    Duplicates,
    /// It may have brought in descriptors.
    Receives,
}

impl Effect {
    /// Whether its result is a new descriptor.
    pub(crate) fn opens(self) -> bool {
        matches!(self, Self::OpensFile | Self::OpensSocket | Self::OpensAnonymous | Self::Duplicates)
    }
}

/// Whether a loop that makes the call handles its descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Handles {
    #[default]
    No,
    /// If it is no file.
    IfNoFile,
    /// It is for sockets.
    Yes,
}

/// epoll and io_uring are there for event loops; poll is also used to wait for one descriptor.
pub(crate) const RANK_LOOP: u8 = 3;
const RANK_IO: u8 = 2;
const RANK_POLL: u8 = 1;

/// Calls in which an answer leaves; setsockopt(2), when it takes the cork out (tcp(7), `TCP_CORK`).
const SENDS: &str = "sendto sendmsg sendmmsg write writev sendfile splice io_uring_enter setsockopt";

impl Call {
    pub(crate) fn named(name: &str) -> Self {
        Self { sends: SENDS.split(' ').any(|known| known == name), ..by_arguments(name) }
    }
}

/// All but `sends`.
fn by_arguments(name: &str) -> Call {
    let none = Call::default();
    let wait = |wait_rank, watched| Call { wait_rank, watched, ..none };
    let at = |directory, path| Call { path: Some(path), directory, ..none };
    let on = |fd| Call { fd: Some(fd), ..none };
    let stream = |handles| Call { handles, ..on(0) };
    let sized = |handles| Call { size: Some(2), ..stream(handles) };
    let between = |handles| Call { from_fd: Some(0), fd: Some(2), size: Some(4), handles, ..none };
    let only = |effect| Call { effect, ..none };
    match name {
        // Waits.
        "epoll_wait" | "epoll_pwait" | "epoll_pwait2" => Call { wait_rank: RANK_LOOP, ..on(0) },
        // `IORING_ENTER_GETEVENTS`
        "io_uring_enter" => Call { wait_rank: RANK_LOOP, wait_flag: Some((3, 1)), ..on(0) },
        "io_getevents" | "io_pgetevents" => wait(RANK_IO, None),
        "poll" | "ppoll" => wait(RANK_POLL, Some(1)),
        "select" | "pselect6" => wait(RANK_POLL, Some(0)),
        // Paths.
        "open" | "creat" => Call { effect: Effect::OpensFile, ..at(None, 0) },
        "openat" | "openat2" => Call { effect: Effect::OpensFile, ..at(Some(0), 1) },
        "statx" | "newfstatat" | "faccessat" | "faccessat2" | "readlinkat" | "unlinkat" | "mkdirat"
        | "name_to_handle_at" | "renameat" | "renameat2" => at(Some(0), 1),
        "stat" | "lstat" | "access" | "readlink" | "unlink" | "rename" | "mkdir" | "rmdir" | "chdir"
        | "truncate" | "statfs" | "execve" => at(None, 0),
        // Bytes.
        "read" => Call { filled: Some(1), ..sized(Handles::IfNoFile) },
        "write" => sized(Handles::IfNoFile),
        "readv" | "writev" => stream(Handles::IfNoFile),
        "pread64" | "pwrite64" => sized(Handles::No),
        "preadv" | "preadv2" | "pwritev" | "pwritev2" => on(0),
        "recvfrom" => Call { filled: Some(1), ..sized(Handles::Yes) },
        "recvmsg" | "recvmmsg" => Call { effect: Effect::Receives, ..stream(Handles::Yes) },
        "sendto" => sized(Handles::Yes),
        "sendmsg" | "sendmmsg" | "shutdown" => stream(Handles::Yes),
        "accept" | "accept4" => Call { effect: Effect::OpensSocket, ..stream(Handles::Yes) },
        "sendfile" => Call { from_fd: Some(1), size: Some(3), ..stream(Handles::Yes) },
        "splice" => between(Handles::IfNoFile),
        "copy_file_range" => between(Handles::No),
        // Descriptors.
        "close" => Call { effect: Effect::Closes, ..on(0) },
        "close_range" => only(Effect::ClosesRange),
        "dup" | "dup2" | "dup3" => Call { effect: Effect::Duplicates, ..on(0) },
        "socket" => only(Effect::OpensSocket),
        "epoll_create" | "epoll_create1" | "eventfd" | "eventfd2" | "signalfd" | "signalfd4"
        | "timerfd_create" | "inotify_init1" | "memfd_create" | "io_uring_setup" | "pidfd_open" => {
            only(Effect::OpensAnonymous)
        }
        "getdents64" | "fstat" | "fstatfs" | "fsync" | "fdatasync" | "sync_file_range" | "ftruncate"
        | "fallocate" | "lseek" | "fadvise64" | "readahead" | "flock" | "cachestat" | "connect" | "bind"
        | "listen" | "setsockopt" | "getsockopt" | "ioctl" | "fcntl" | "syncfs" | "fchmod" | "fchown" => {
            on(0)
        }
        "epoll_ctl" => on(2),
        "mmap" => on(4),
        _ => none,
    }
}

pub(crate) fn call(number: u64) -> Call {
    static TABLE: OnceLock<Vec<Call>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let named = |number| call_name(number as u64).map_or_else(Call::default, Call::named);
        (0..NUMBERS_MAX).map(named).collect()
    });
    usize::try_from(number).ok().and_then(|number| table.get(number)).copied().unwrap_or_default()
}

/// Stands for a page fault, where a number of a call does.
pub(crate) const PAGE_FAULT: u64 = u64::MAX;
/// Stands for what is neither a call nor a page fault.
pub(crate) const NO_CALL: u64 = u64::MAX - 1;

/// Its name, or its number where it has none.
pub(crate) fn name(number: u64) -> Name {
    match number {
        PAGE_FAULT => return Name::Borrowed("page fault"),
        NO_CALL => return Name::Borrowed("no call"),
        _ => {}
    }
    call_name(number).map_or_else(|| Name::Owned(format!("syscall_{number}")), Name::Borrowed)
}

#[cfg(test)]
pub(crate) fn number(name: &str) -> u64 {
    (0..NUMBERS_MAX as u64).find(|number| call_name(*number) == Some(name)).expect("a call of this machine")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_known_by_number() {
        assert_eq!(call(number("epoll_pwait")), Call::named("epoll_pwait"));
        assert_eq!(call(number("epoll_pwait")).wait_rank, RANK_LOOP);
        assert_eq!(call(number("ppoll")).wait_rank, RANK_POLL);
        assert_eq!(call(number("openat")).path, Some(1));
        assert_eq!(call(number("sendfile")).from_fd, Some(1));
        assert!(call(number("sendfile")).sends && !call(number("recvfrom")).sends);
        assert_eq!(name(number("pread64")), "pread64");
    }

    #[test]
    fn unknown_numbers_are_calls_of_which_nothing_is_known() {
        assert_eq!(call(u64::MAX), Call::default());
        assert_eq!(name(1 << 30), "syscall_1073741824");
    }
}
