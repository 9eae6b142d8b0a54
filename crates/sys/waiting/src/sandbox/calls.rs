//! The system calls that a thread can make from now on: seccomp(2) filters made from a list for each role.
//!
//! A call that is not on its role's list ends the process with a message (see the module's `violation`). The
//! worker's list is Flash's promise: no call on it waits for a disk.

use std::collections::BTreeMap;
use std::io;

use rustix::fs::OFlags;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::violation;
use flash_prompt::file::SYS_CACHESTAT;
use flash_prompt::mechanism;

/// The role whose calls are allowed.
#[derive(Clone, Copy, Debug)]
pub enum CallList {
    /// A worker, with the additional calls that its settings need.
    Worker(More),
    /// A worker that also does a helper's work, and can be one of several threads.
    WaitingWorker(More),
    /// A helper process.
    Helper,
    /// A helper thread of a worker.
    HelperThread,
    /// The thread of a worker that computes TLS handshakes.
    HandshakeThread,
    /// The log writer.
    Log,
    /// The keeper of the store.
    Keeper,
    /// The watcher of the roots.
    Watcher,
    /// The gateway. To probe servers it sends and receives on its connections.
    Gateway {
        /// Whether it probes servers.
        probes: bool,
        /// As [`More::wakes`].
        wakes: bool,
    },
}

/// Calls that a worker's settings need in addition to the default ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct More {
    /// sendfile(2).
    pub sendfile: bool,
    /// Mapping files for reading, and checking their residency (mincore(2)).
    pub map_files: bool,
    /// pread(2), which can block.
    pub pread: bool,
    /// The call by which its loop waits, in addition to epoll.
    pub mechanism: mechanism::MechanismKind,
    /// The locks of the allocator, because it shares its process with helpers.
    pub has_threads: bool,
    /// Waking waiters of a lock, of which a single thread has none: the cryptography of TLS does that when it is first used.
    pub wakes: bool,
    /// Asking a connection for its user, and a file for its identity: for the loop of `flash backend`.
    pub has_local_clients: bool,
    /// Setting the priority of a connection.
    pub priorities: bool,
    /// Setting the code point (DSCP) of a connection's packets.
    pub code_points: bool,
}

/// Forbids every call that the role does not need. `who` names the process in the message about a forbidden
/// call.
///
/// This applies to the calling thread only; if there are others, each must call this.
///
/// Errors: `Unsupported` if the kernel or the machine has no seccomp.
pub fn restrict(calls: CallList, who: &str) -> io::Result<()> {
    violation::report_as(who)?;
    let arch = std::env::consts::ARCH.try_into().map_err(unsupported)?;
    let rules = list(calls).map_err(unsupported)?;
    let filter = SeccompFilter::new(rules, SeccompAction::Trap, SeccompAction::Allow, arch);
    let program: BpfProgram = filter.and_then(TryInto::try_into).map_err(unsupported)?;
    seccompiler::apply_filter(&program).map_err(|e| match e {
        // The errors of a kernel without seccomp, or without its filters (seccomp(2)).
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

/// Memory, the clock, the exit, and the calls of the Rust runtime for a message before an abort.
const COMMON: &[i64] = &[
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_close,
    libc::SYS_clock_gettime,
    libc::SYS_getrandom,
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

/// Without conditions: the kernel keeps a table of such calls, so that the calls of a hit do not run the
/// filter. `openat2` is only called with `RESOLVE_CACHED`. A filter cannot check that; Landlock limits the
/// rest.
const WORKER: &[i64] = &[
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_ctl,
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    // For the variables of CGI that name the server.
    libc::SYS_getsockname,
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
    libc::SYS_newfstatat,
    libc::SYS_faccessat2,
    libc::SYS_fstatfs,
    libc::SYS_pread64,
    libc::SYS_getdents64,
    libc::SYS_lseek,
    libc::SYS_fadvise64,
    SYS_CACHESTAT,
    libc::SYS_memfd_create,
    libc::SYS_write,
    // For filling the store: reading past the page cache, and writing the block.
    libc::SYS_statx,
    libc::SYS_preadv2,
    libc::SYS_pwrite64,
    // For room in the file for bodies, where the file system cannot make holes.
    libc::SYS_ftruncate,
    // For the place of an open file in /proc.
    libc::SYS_readlinkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    // For an answer that cannot be sent at once.
    libc::SYS_clock_nanosleep,
];

const KEEPER: &[i64] = &[
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_ctl,
    libc::SYS_fallocate,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_ftruncate,
    libc::SYS_write,
];

const GATEWAY: &[i64] = &[libc::SYS_epoll_pwait, libc::SYS_epoll_ctl, libc::SYS_connect];

/// The same call under another name. Its type differs between C libraries.
#[allow(clippy::unnecessary_cast)]
const SIOCOUTQ: u64 = libc::TIOCOUTQ as u64;

/// For threads that share a lock. The C library asks for the number of cores when it gives a thread its
/// memory.
const THREADS: &[i64] = &[libc::SYS_futex, libc::SYS_sched_yield, libc::SYS_sched_getaffinity];

const WATCHER: &[i64] = &[
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_ctl,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_rm_watch,
    // For the handle of a directory and of its file system.
    libc::SYS_name_to_handle_at,
    libc::SYS_fstatfs,
    // For a pause while only others change files.
    libc::SYS_clock_nanosleep,
    libc::SYS_read,
    libc::SYS_ppoll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_openat2,
    libc::SYS_openat,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_faccessat2,
    libc::SYS_getdents64,
    libc::SYS_lseek,
    libc::SYS_readlinkat,
    libc::SYS_write,
];

const LOG: &[i64] = &[libc::SYS_epoll_pwait, libc::SYS_epoll_ctl, libc::SYS_write];

impl More {
    /// The calls without conditions.
    fn calls(self) -> Vec<i64> {
        use mechanism::MechanismKind;
        let mut calls = match self.mechanism {
            MechanismKind::Epoll => Vec::new(),
            MechanismKind::Poll => vec![libc::SYS_ppoll],
            MechanismKind::Select => vec![libc::SYS_pselect6],
        };
        // The C library uses separate calls for these on machines that have them.
        #[cfg(target_arch = "x86_64")]
        match self.mechanism {
            MechanismKind::Epoll => {}
            MechanismKind::Poll => calls.push(libc::SYS_poll),
            MechanismKind::Select => calls.push(libc::SYS_select),
        }
        calls.extend(self.sendfile.then_some(libc::SYS_sendfile));
        calls.extend(self.map_files.then_some([libc::SYS_mincore, libc::SYS_munlock]).into_iter().flatten());
        calls.extend(self.pread.then_some(libc::SYS_pread64));
        // The standard library's channels between threads yield before they wait.
        let of_threads = [libc::SYS_futex, libc::SYS_sched_yield];
        calls.extend(self.has_threads.then_some(of_threads).into_iter().flatten());
        calls
    }

    /// The socket options that may be set: level and name. `SO_LINGER` resets a connection.
    fn socket_options(self) -> impl Iterator<Item = (libc::c_int, libc::c_int)> {
        let always = [(libc::SOL_SOCKET, libc::SO_LINGER)];
        let priority = self.priorities.then_some((libc::SOL_SOCKET, libc::SO_PRIORITY));
        let code_points = [(libc::IPPROTO_IP, libc::IP_TOS), (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)];
        let code_points = self.code_points.then_some(code_points);
        always.into_iter().chain(priority).chain(code_points.into_iter().flatten())
    }
}

/// A condition: the number of the argument, the comparison, and the value.
type Argument = (u8, SeccompCmpOp, u64);

/// The gateway's calls with conditions.
fn gateway_calls(probes: bool, wakes: bool) -> Vec<(i64, Vec<Argument>)> {
    use SeccompCmpOp::{Eq, MaskedEq};
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let socket = |family| (libc::SYS_socket, vec![(0, Eq, family as u64), (1, Eq, kind as u64)]);
    let option = |call, level, name| (call, vec![(1, Eq, level as u64), (2, Eq, name as u64)]);
    let mut calls = vec![
        socket(libc::AF_UNIX),
        socket(libc::AF_INET),
        socket(libc::AF_INET6),
        option(libc::SYS_setsockopt, libc::IPPROTO_TCP, libc::TCP_NODELAY),
        option(libc::SYS_getsockopt, libc::SOL_SOCKET, libc::SO_ERROR),
        (libc::SYS_write, vec![(0, Eq, libc::STDERR_FILENO as u64)]),
    ];
    if probes {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // Without an address, which MSG_FASTOPEN would connect to.
        calls.push((libc::SYS_sendto, vec![(3, Eq, flags as u64), (5, Eq, 0)]));
        calls.push((libc::SYS_recvfrom, vec![(3, Eq, libc::MSG_DONTWAIT as u64)]));
    }
    if wakes {
        calls.push((libc::SYS_futex, vec![(1, MaskedEq(0x7f), libc::FUTEX_WAKE as u64)]));
    }
    calls
}

/// The calls with conditions of a role, except those of workers.
fn calls_of_role(calls: CallList) -> Vec<(i64, Vec<Argument>)> {
    match calls {
        CallList::Gateway { probes, wakes } => gateway_calls(probes, wakes),
        CallList::Helper | CallList::HelperThread | CallList::WaitingWorker(_) => {
            // Only holes: a helper needs no room.
            let hole = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) as u64;
            vec![(libc::SYS_fallocate, vec![(1, SeccompCmpOp::Eq, hole)])]
        }
        _ => Vec::new(),
    }
}

/// The calls of every process that ends by a signal or for a violation.
fn calls_at_the_end() -> Vec<(i64, Vec<Argument>)> {
    use SeccompCmpOp::Eq;
    // The handler of the standard library makes these signals fatal again, so that the process ends by the signal itself.
    let fatal = [libc::SIGSEGV, libc::SIGBUS, libc::SIGABRT];
    let mut calls = Vec::from(fatal.map(|signal| (libc::SYS_rt_sigaction, vec![(0, Eq, signal as u64)])));
    calls.push((libc::SYS_tgkill, vec![(0, Eq, std::process::id().into())]));
    // For the message about a violation.
    #[cfg(target_arch = "x86_64")]
    calls.push((libc::SYS_poll, vec![(2, Eq, 0)]));
    #[cfg(not(target_arch = "x86_64"))]
    calls.push((libc::SYS_ppoll, vec![(1, Eq, 1)]));
    calls
}

/// The role's calls without conditions, besides the common ones.
fn always(calls: CallList) -> &'static [&'static [i64]] {
    match calls {
        CallList::Worker(_) => &[WORKER],
        CallList::WaitingWorker(_) => &[WORKER, HELPER, THREADS],
        CallList::Helper => &[HELPER],
        CallList::HelperThread => &[HELPER, &[libc::SYS_futex]],
        CallList::HandshakeThread => &[&[libc::SYS_futex, libc::SYS_sched_yield]],
        CallList::Log => &[LOG],
        CallList::Keeper => &[KEEPER],
        CallList::Watcher => &[WATCHER],
        CallList::Gateway { .. } => &[GATEWAY],
    }
}

/// The side of a socket that the role can shut down, if any.
fn way_to_shut_down(calls: CallList) -> Option<libc::c_int> {
    match calls {
        // A listener that is shut down to read can be connected by sendto(2) with MSG_FASTOPEN, which Landlock does
        // not see.
        CallList::Worker(_) | CallList::WaitingWorker(_) => Some(libc::SHUT_WR),
        // For the channel of a process that broke the protocol.
        CallList::Keeper => Some(libc::SHUT_WR),
        // For its own channel, when it ends after the tasks that are in transit.
        CallList::Helper => Some(libc::SHUT_RD),
        CallList::HelperThread
        | CallList::HandshakeThread
        | CallList::Log
        | CallList::Watcher
        | CallList::Gateway { .. } => None,
    }
}

/// The flags that may be set on open files. Neither `O_ASYNC` nor `O_APPEND`, and `O_DIRECT`, which makes reads go to the disk, only
/// where they are allowed to wait.
fn flags_of_files(calls: CallList) -> OFlags {
    let flags = OFlags::NONBLOCK | OFlags::NOATIME | OFlags::ACCMODE | OFlags::LARGEFILE;
    match calls {
        CallList::Helper | CallList::HelperThread | CallList::WaitingWorker(_) => flags | OFlags::DIRECT,
        _ => flags,
    }
}

fn list(calls: CallList) -> Compiled<Rules> {
    use SeccompCmpOp::{Eq, Ge, MaskedEq};
    let mut rules: Rules = COMMON
        .iter()
        .chain(always(calls).iter().copied().flatten())
        .map(|call| (*call, Vec::new()))
        .collect();
    #[cfg(target_arch = "x86_64")]
    if !matches!(calls, CallList::Helper | CallList::HelperThread | CallList::HandshakeThread) {
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
    // A mapped file can wait for the disk at any access.
    allow(libc::SYS_mmap, &[not_to_be_executed.clone(), anonymous])?;
    allow(libc::SYS_mprotect, &[not_to_be_executed])?;
    for (call, arguments) in calls_at_the_end().into_iter().chain(calls_of_role(calls)) {
        allow(call, &arguments)?;
    }
    for command in [libc::F_GETFD, libc::F_GETFL] {
        allow(libc::SYS_fcntl, &[(1, Eq, command as u64)])?;
    }
    // Never to the number of standard error, the only one that some roles may write to: a role can close it,
    // but then gets it only for a file that it opens to read, or that another role sends it.
    let lowest = (2, Ge, libc::STDERR_FILENO as u64 + 1);
    allow(libc::SYS_fcntl, &[(1, Eq, libc::F_DUPFD_CLOEXEC as u64), lowest])?;
    // Not MSG_FASTOPEN, which connects.
    allow(libc::SYS_sendmsg, &[(2, MaskedEq(libc::MSG_FASTOPEN as u64), 0)])?;
    let others = u64::from(!flags_of_files(calls).bits());
    allow(libc::SYS_fcntl, &[(1, Eq, libc::F_SETFL as u64), (2, MaskedEq(others), 0)])?;
    if let Some(how) = way_to_shut_down(calls) {
        allow(libc::SYS_shutdown, &[(1, Eq, how as u64)])?;
    }
    if let CallList::Worker(more) | CallList::WaitingWorker(more) = calls {
        // For a connection that must be reset, and for the number of bytes that a connection holds for its
        // client. A filter cannot check that the linger time is 0; `flash_prompt::net::reset` ensures it.
        for (level, option) in more.socket_options() {
            allow(libc::SYS_setsockopt, &[(1, Eq, level as u64), (2, Eq, option as u64)])?;
        }
        allow(libc::SYS_ioctl, &[(1, Eq, SIOCOUTQ)])?;
        if more.has_local_clients {
            // A filter cannot check that the path is empty; Landlock forbids opening any.
            let flags = (libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC) as u64;
            allow(libc::SYS_statx, &[(2, Eq, flags)])?;
            let (level, option) = (libc::SOL_SOCKET as u64, libc::SO_PEERCRED as u64);
            allow(libc::SYS_getsockopt, &[(1, Eq, level), (2, Eq, option)])?;
        }
        if more.wakes {
            allow(libc::SYS_futex, &[(1, MaskedEq(0x7f), libc::FUTEX_WAKE as u64)])?;
        }
        if more.map_files {
            allow(libc::SYS_mmap, &[(2, Eq, libc::PROT_READ as u64), (3, Eq, libc::MAP_SHARED as u64)])?;
        }
    }
    if matches!(calls, CallList::Worker(_) | CallList::HandshakeThread) {
        allow(libc::SYS_write, &[(0, Eq, libc::STDERR_FILENO as u64)])?;
    }
    if matches!(calls, CallList::Worker(_)) {
        allow(libc::SYS_preadv2, &[(5, Eq, libc::RWF_NOWAIT as u64)])?;
        allow(libc::SYS_fadvise64, &[(3, Eq, libc::POSIX_FADV_RANDOM as u64)])?;
    }
    let more = match calls {
        CallList::Worker(more) | CallList::WaitingWorker(more) => more.calls(),
        _ => Vec::new(),
    };
    rules.extend(more.into_iter().map(|call| (call, Vec::new())));
    Ok(rules)
}
