//! Calls by which a process changes itself: limits, priorities, standard error, its end with its parent. For the supervisor
//! and the roles.

use std::io;
use std::time::Duration;

use flash_prompt::call::check;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit};

/// Makes the kernel kill this process when its parent dies. A role must call it first. If the parent has
/// already died, the role finds its channel closed.
pub fn die_with_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Names this process `flash` (prctl(2), `PR_SET_NAME`): one that was executed by a descriptor has its number as the name.
pub fn take_own_name() {
    // Without it, only lists of processes are harder to read.
    let _ = rustix::thread::set_name(c"flash");
}

/// Lets time pass, by clock_nanosleep(2) and no other call.
pub fn pause(time: Duration) {
    let time = time.try_into().expect("no time of this program is beyond the kernel's");
    // A signal ends it early.
    let _ = rustix::thread::clock_nanosleep_relative(rustix::thread::ClockId::Monotonic, &time);
}

/// Makes the kernel send SIGTERM to this process when its parent dies. For a process that must then end others first.
pub fn end_with_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::TERM))?)
}

/// Prevents roles from inheriting the descriptors that this process was given, except standard input, output
/// and error.
///
/// Errors: `ENOSYS` before Linux 5.9, `EINVAL` before 5.11.
pub fn keep_descriptors_to_itself() -> io::Result<()> {
    const FIRST: libc::c_uint = 3;
    let call = libc::SYS_close_range;
    // SAFETY: the call closes no descriptor now; it only marks them to be closed at an exec.
    check(unsafe { libc::syscall(call, FIRST, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) }).map(drop)
}

/// Gives the calling thread a descriptor table of its own, with standard error and the descriptor `kept` alone. In a process whose threads share a table,
/// each call must count the uses of its descriptor, and a descriptor that one thread has closed stays open.
///
/// Errors: `ENOSYS` before Linux 5.9.
pub fn keep_in_this_thread(kept: impl AsFd) -> io::Result<()> {
    const ERRORS: libc::c_uint = libc::STDERR_FILENO.unsigned_abs();
    let kept = kept.as_fd().as_raw_fd().unsigned_abs();
    let (low, high) = (kept.min(ERRORS), kept.max(ERRORS));
    let ranges = [(0, low), (low + 1, high), (high + 1, libc::c_uint::MAX)];
    for (first, end) in ranges.into_iter().filter(|(first, end)| first < end) {
        let last = end - 1;
        // SAFETY: the table is the thread's own from the first call on, and the caller uses no other descriptor.
        check(unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_UNSHARE) })?;
    }
    Ok(())
}

/// Begins a session and a process group of its own, which gets no signals from a terminal.
///
/// Errors: `EPERM` if this process leads a group.
pub fn begin_session() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// Raises the limit of open descriptors as far as allowed, and returns it.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(1 << 20);
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum })?;
    Ok(wanted)
}

/// Keeps the memory of this process, which holds secrets, out of dumps and from other processes of its user
/// (prctl(2), `PR_SET_DUMPABLE`).
pub fn hide_memory() -> io::Result<()> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Makes the descriptor table of this process large enough for this many descriptors, which must be within
/// its limit. In a process with several threads, a table grows only after every core has left the kernel once
/// (`synchronize_rcu`), which delays the call that needs the first number beyond the table by milliseconds.
pub fn make_room_for_descriptors(count: u64) -> io::Result<()> {
    let last = i32::try_from(count.saturating_sub(1)).unwrap_or(i32::MAX);
    rustix::io::fcntl_dupfd_cloexec(io::stdin(), last)?;
    Ok(())
}

/// Makes the calling thread give way to processes that answer requests, other servers' too: they take its core at once when they wake, it
/// does not preempt them when it wakes, and it gets a tenth of their share of a busy core (sched(7), `SCHED_BATCH`).
pub fn give_way() -> io::Result<()> {
    const NICE: i32 = 10;
    schedule(libc::SCHED_BATCH, LONG_SLICE_NS)?;
    rustix::process::nice(NICE)?;
    Ok(())
}

/// Gives this process three times the share of a busy core that an ordinary process has (sched(7)), and a short slice. So one that
/// needs no more than its share runs as soon as it wakes.
///
/// Errors: `EACCES` without `CAP_SYS_NICE`, `CAP_SYS_RESOURCE` or a limit that allows it (getrlimit(2), `RLIMIT_NICE`); it has the
/// slice nevertheless. Those of sched_setattr(2).
pub fn go_first() -> io::Result<()> {
    const NICE: i32 = -5;
    let limit = Some((20 - NICE).unsigned_abs().into());
    let _ = setrlimit(Resource::Nice, Rlimit { current: limit, maximum: limit });
    let raised = rustix::process::nice(NICE);
    schedule(libc::SCHED_OTHER, SHORT_SLICE_NS)?;
    raised?;
    Ok(())
}

/// Makes the calling thread run only while no other wants its core, and give way at once to one that wakes (sched(7), `SCHED_IDLE`).
pub fn go_last() -> io::Result<()> {
    schedule(libc::SCHED_IDLE, DEFAULT_SLICE_NS)
}

/// Prevents the calling thread from preempting others when it wakes (sched(7), `SCHED_BATCH`). Otherwise, of
/// threads that share a lock, one that wakes could take the core from the one that holds the lock, only to
/// wait for it.
pub fn never_preempt_others() -> io::Result<()> {
    schedule(libc::SCHED_BATCH, DEFAULT_SLICE_NS)
}

/// The shortest time that the kernel lets a thread run before others have their turn. A thread that wakes takes its core at once from
/// those with longer slices. Otherwise it waits for the end of the other's: up to 1.4 ms on two cores, by kernel/sched/fair.c of 6.18
/// twice as long on eight.
const SHORT_SLICE_NS: u64 = 100_000;
/// The kernel's own.
const DEFAULT_SLICE_NS: u64 = 0;
/// Longer than the kernel's own on any number of cores, and no longer than threads of this slice may wait for each other.
const LONG_SLICE_NS: u64 = 10_000_000;

/// Gives the calling thread a policy and a slice (sched_setattr(2)); it keeps its nice value. Before Linux 6.12 all threads have the same
/// slice.
fn schedule(policy: libc::c_int, slice_ns: u64) -> io::Result<()> {
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: policy as u32,
        sched_flags: 0,
        sched_nice: rustix::process::getpriority_process(None)?,
        sched_priority: 0,
        sched_runtime: slice_ns,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the call reads `attributes`, which outlives it, and changes only this thread.
    check(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) }).map(drop)
}

/// Makes the kernel more likely to kill this process, and processes that it starts later, if memory runs out,
/// by this many thousandths of the memory (proc(5), `oom_score_adj`). A negative value makes it less likely
/// and needs `CAP_SYS_RESOURCE`. A process that must never be killed stays so.
pub fn shift_oom_score(by: i32) -> io::Result<()> {
    const PLACE: &str = "/proc/self/oom_score_adj";
    const NEVER: i32 = -1000;
    let found = std::fs::read_to_string(PLACE)?;
    let found: i32 = found.trim().parse().map_err(|_| io::ErrorKind::InvalidData)?;
    if by < 0 && found == NEVER {
        return Ok(());
    }
    std::fs::write(PLACE, found.saturating_add(by).clamp(NEVER + 1, 1000).to_string())
}

/// Standard error in another place: what this process and the programs that it starts write to descriptor 2 goes into a
/// pipe.
#[derive(Debug)]
pub struct Redirected {
    /// The former standard error.
    pub real: OwnedFd,
    /// The other end of the pipe. It ends when every process with the pipe has ended, after [`restore_stderr`].
    pub written: OwnedFd,
}

/// Redirects standard error.
pub fn redirect_stderr() -> io::Result<Redirected> {
    let (written, write) = pipe_with(PipeFlags::CLOEXEC)?;
    let real = io::stderr().as_fd().try_clone_to_owned()?;
    restore_stderr(&write)?;
    Ok(Redirected { real, written })
}

/// Makes a descriptor standard error.
pub fn restore_stderr(real: &OwnedFd) -> io::Result<()> {
    Ok(rustix::stdio::dup2_stderr(real)?)
}

/// Maximum number of bytes that a pipe with room accepts without blocking (pipe(7), `PIPE_BUF`).
const PIPE_BYTES: usize = 4096;

/// Writes a message to standard error if that is possible without blocking, as much as fits at once. For a
/// process that is about to end and must not wait for a reader.
pub fn print_if_possible(text: &str) {
    let mut stderr = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    let length = text.len().min(PIPE_BYTES);
    // SAFETY: both pointers are to live values of the given lengths. Every role is allowed to make these
    // calls (`sandbox::calls`).
    unsafe {
        if libc::poll(&raw mut stderr, 1, 0) == 1 {
            libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skipping::skip;

    #[test]
    fn who_goes_first_has_the_shortest_slice_and_who_gives_way_the_longest() {
        let slice_ns = || {
            // SAFETY: all zeros are valid, and the kernel writes at most the size that it is told.
            unsafe {
                let mut attributes: libc::sched_attr = std::mem::zeroed();
                let size = size_of::<libc::sched_attr>();
                let answer = libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0);
                assert_eq!(answer, 0, "{}", io::Error::last_os_error());
                attributes.sched_runtime
            }
        };
        // The slice is that of a thread.
        std::thread::spawn(move || {
            if slice_ns() == 0 {
                return skip("processes have slices of their own since Linux 6.12");
            }
            let ordinary_ns = slice_ns();
            let _ = go_first();
            assert!(slice_ns() < ordinary_ns, "{} and {ordinary_ns}", slice_ns());
            give_way().unwrap();
            assert!(slice_ns() > ordinary_ns, "{} and {ordinary_ns}", slice_ns());
            never_preempt_others().unwrap();
            assert_eq!(slice_ns(), ordinary_ns);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn the_descriptor_table_grows_before_descriptors_exist() {
        let size = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
            line.unwrap().trim().parse::<u64>().unwrap()
        };
        // The next power of two: this process has at least a table of the smallest size.
        let wanted = size() * 2;
        make_room_for_descriptors(wanted).unwrap();
        assert!(size() >= wanted, "{} for {wanted}", size());
        assert!(make_room_for_descriptors(u64::MAX).is_err(), "a table beyond the limit must be refused");
    }
}
