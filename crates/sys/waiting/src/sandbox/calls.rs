//! Which system calls a thread can make from now on: seccomp(2), by lists of what each role needs.
//!
//! A call that is not on its role's list ends the process with a message (see the module's
//! `violation`). The worker's list is the promise: nothing on it waits for a disk.

use std::collections::BTreeMap;
use std::io;

use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::OFlags;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::violation;
use flash_prompt::file::SYS_CACHESTAT;
use flash_prompt::mechanism;

/// Whose calls.
#[derive(Clone, Copy, Debug)]
pub enum CallList<'fd> {
    /// A worker's, which reads from this timer and from no other descriptor by read(2).
    Worker {
        /// The timer of its loop.
        timer: BorrowedFd<'fd>,
        /// What it may do besides.
        more: More,
    },
    /// Those of a worker that does a helper's work, too, and may be one of several threads.
    WaitingWorker {
        /// The timer of its loop.
        timer: BorrowedFd<'fd>,
        /// What it may do besides.
        more: More,
    },
    /// Those of a helper that is a process.
    Helper,
    /// Those of a helper that is a thread of its worker.
    HelperThread,
    /// The log writer's.
    Log,
}

/// What the settings of a worker need beyond what it needs by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct More {
    /// sendfile(2).
    pub sendfile: bool,
    /// To map files for reading, and to ask what of them is in memory (mincore(2)).
    pub map_files: bool,
    /// pread(2), which waits.
    pub pread: bool,
    /// What its loop waits by, besides epoll.
    pub mechanism: mechanism::MechanismKind,
    /// The locks of the allocator: it shares its process with helpers.
    pub has_threads: bool,
}

/// Forbids every call but those that the role needs. `who` names the process in the message on a
/// forbidden call.
///
/// It is the calling thread that is held to it: where there are others, each calls this.
///
/// Errors: `Unsupported` where the kernel or the machine has no seccomp.
pub fn restrict(calls: CallList<'_>, who: &str) -> io::Result<()> {
    violation::report_as(who)?;
    let arch = std::env::consts::ARCH.try_into().map_err(unsupported)?;
    let rules = list(calls).map_err(unsupported)?;
    let filter = SeccompFilter::new(rules, SeccompAction::Trap, SeccompAction::Allow, arch);
    let program: BpfProgram = filter.and_then(TryInto::try_into).map_err(unsupported)?;
    seccompiler::apply_filter(&program).map_err(|e| match e {
        // What a kernel without seccomp, or without its filters, says (seccomp(2)).
        seccompiler::Error::Seccomp(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL)) => {
            unsupported(e)
        }
        e => io::Error::other(format!("seccomp: {e}")),
    })
}

fn unsupported(e: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("seccomp: {e}"))
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;
type Compiled<T> = Result<T, seccompiler::BackendError>;

/// Memory, the clock, the end, and what a message of the Rust runtime before an abort needs.
const COMMON: &[i64] = &[
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_close,
    libc::SYS_clock_gettime,
    libc::SYS_getrandom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigprocmask,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Without conditions: the kernel keeps a table of these, so that the calls of a hit cost no filter.
/// `openat2` is asked with `RESOLVE_CACHED` only; a filter cannot see that, Landlock bounds the rest.
const WORKER: &[i64] = &[
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_ctl,
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_shutdown,
    libc::SYS_openat2,
    libc::SYS_fstat,
    SYS_CACHESTAT,
    libc::SYS_timerfd_settime,
    libc::SYS_getrusage,
];

const HELPER: &[i64] = &[
    libc::SYS_openat2,
    libc::SYS_openat,
    libc::SYS_fstat,
    libc::SYS_faccessat2,
    libc::SYS_fstatfs,
    libc::SYS_pread64,
    libc::SYS_getdents64,
    libc::SYS_lseek,
    libc::SYS_fadvise64,
    SYS_CACHESTAT,
    libc::SYS_memfd_create,
    libc::SYS_write,
];

/// By another name. Its type differs between C libraries.
#[allow(clippy::unnecessary_cast)]
const SIOCOUTQ: u64 = libc::TIOCOUTQ as u64;

/// Of threads that share a lock; the C library asks for the number of cores when it gives one its memory.
const THREADS: &[i64] = &[libc::SYS_futex, libc::SYS_sched_yield, libc::SYS_sched_getaffinity];

const LOG: &[i64] = &[
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_ctl,
    libc::SYS_openat,
    libc::SYS_statx,
    libc::SYS_write,
    libc::SYS_writev,
];

impl More {
    /// Those without conditions.
    fn calls(self) -> Vec<i64> {
        use mechanism::MechanismKind;
        let mut calls = match self.mechanism {
            MechanismKind::Epoll => Vec::new(),
            MechanismKind::Poll => vec![libc::SYS_ppoll],
            MechanismKind::Select => vec![libc::SYS_pselect6],
        };
        // The C library has these as calls of their own where the machine has.
        #[cfg(target_arch = "x86_64")]
        match self.mechanism {
            MechanismKind::Epoll => {}
            MechanismKind::Poll => calls.push(libc::SYS_poll),
            MechanismKind::Select => calls.push(libc::SYS_select),
        }
        calls.extend(self.sendfile.then_some(libc::SYS_sendfile));
        calls.extend(self.map_files.then_some([libc::SYS_mincore, libc::SYS_munlock]).into_iter().flatten());
        calls.extend(self.pread.then_some(libc::SYS_pread64));
        calls.extend(self.has_threads.then_some(libc::SYS_futex));
        calls
    }
}

/// Which argument a condition looks at, and how.
type Argument = (u8, SeccompCmpOp, u64);

fn list(calls: CallList<'_>) -> Compiled<Rules> {
    use SeccompCmpOp::{Eq, MaskedEq};
    let own: &[&[i64]] = match calls {
        CallList::Worker { .. } => &[WORKER],
        CallList::WaitingWorker { .. } => &[WORKER, HELPER, THREADS],
        CallList::Helper => &[HELPER],
        CallList::HelperThread => &[HELPER, &[libc::SYS_futex]],
        CallList::Log => &[LOG],
    };
    let mut rules: Rules =
        COMMON.iter().chain(own.iter().copied().flatten()).map(|call| (*call, Vec::new())).collect();
    #[cfg(target_arch = "x86_64")]
    if !matches!(calls, CallList::Helper | CallList::HelperThread) {
        rules.insert(libc::SYS_epoll_wait, Vec::new());
    }
    let mut allow = |call, arguments: &[Argument]| -> Compiled<()> {
        let condition = |(number, how, value): &Argument| {
            SeccompCondition::new(*number, SeccompCmpArgLen::Dword, how.clone(), *value)
        };
        let rule = SeccompRule::new(arguments.iter().map(condition).collect::<Compiled<_>>()?)?;
        rules.entry(call).or_default().push(rule);
        Ok(())
    };
    let not_to_be_executed = (2, MaskedEq(libc::PROT_EXEC as u64), 0);
    let anonymous = (3, MaskedEq(libc::MAP_ANONYMOUS as u64), libc::MAP_ANONYMOUS as u64);
    // A file that is mapped waits for the disk at any touch.
    allow(libc::SYS_mmap, &[not_to_be_executed.clone(), anonymous])?;
    allow(libc::SYS_mprotect, &[not_to_be_executed])?;
    allow(libc::SYS_tgkill, &[(0, Eq, std::process::id().into())])?;
    for command in [libc::F_GETFD, libc::F_GETFL, libc::F_DUPFD_CLOEXEC] {
        allow(libc::SYS_fcntl, &[(1, Eq, command as u64)])?;
    }
    // Not O_DIRECT, with which a read goes to the disk, nor O_ASYNC or O_APPEND.
    let flags = OFlags::NONBLOCK | OFlags::NOATIME | OFlags::ACCMODE | OFlags::LARGEFILE;
    let others = u64::from(!flags.bits());
    allow(libc::SYS_fcntl, &[(1, Eq, libc::F_SETFL as u64), (2, MaskedEq(others), 0)])?;
    // For the message on a violation.
    #[cfg(target_arch = "x86_64")]
    allow(libc::SYS_poll, &[(2, Eq, 0)])?;
    #[cfg(not(target_arch = "x86_64"))]
    allow(libc::SYS_ppoll, &[(1, Eq, 1)])?;
    if let CallList::Worker { timer, more } | CallList::WaitingWorker { timer, more } = calls {
        allow(libc::SYS_read, &[(0, Eq, timer.as_raw_fd() as u64)])?;
        // A connection that is to be closed at once, and how much one holds for its client. That the time to
        // linger is 0, a filter cannot see: it rests on `flash_prompt::net::reset`.
        let (level, option) = (libc::SOL_SOCKET as u64, libc::SO_LINGER as u64);
        allow(libc::SYS_setsockopt, &[(1, Eq, level), (2, Eq, option)])?;
        allow(libc::SYS_ioctl, &[(1, Eq, SIOCOUTQ)])?;
        allow(libc::SYS_preadv2, &[(5, Eq, libc::RWF_NOWAIT as u64)])?;
        if more.map_files {
            allow(libc::SYS_mmap, &[(2, Eq, libc::PROT_READ as u64), (3, Eq, libc::MAP_SHARED as u64)])?;
        }
    }
    if matches!(calls, CallList::Worker { .. }) {
        allow(libc::SYS_write, &[(0, Eq, libc::STDERR_FILENO as u64)])?;
        allow(libc::SYS_fadvise64, &[(3, Eq, libc::POSIX_FADV_RANDOM as u64)])?;
    }
    let more = match calls {
        CallList::Worker { more, .. } | CallList::WaitingWorker { more, .. } => more.calls(),
        CallList::Helper | CallList::HelperThread | CallList::Log => Vec::new(),
    };
    rules.extend(more.into_iter().map(|call| (call, Vec::new())));
    Ok(rules)
}
