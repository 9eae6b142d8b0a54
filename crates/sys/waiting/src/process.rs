//! Starting, ending and limiting processes: the supervisor's work.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::fd::OwnedFd;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

/// Starts this program again as `flash role NAME`, with `channel` as its standard input,
/// standard output and error inherited, and a clean environment.
pub fn start_role(name: &str, channel: OwnedFd) -> io::Result<Child> {
    // The running image itself, also after the file was replaced by an upgrade.
    Command::new("/proc/self/exe")
        .arg0("flash")
        .args(["role", name])
        .env_clear()
        .stdin(Stdio::from(channel))
        .spawn()
}

/// Ends a child at once.
pub fn kill(child: &Child) {
    if let Some(pid) = Pid::from_raw(child.id() as i32) {
        // Only fails when the child is gone, which is what was wanted.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Reaps the children that have ended and that nobody else waits for: orphans that came to this process as to the first
/// one of a container, and children that were let go. It does not wait, and stops at one that `is_waited_for`.
///
/// No other thread may start a program meanwhile: one that cannot be executed would be taken for a stranger.
pub fn reap_strangers(is_waited_for: impl Fn(u32) -> bool) {
    const LOOK: libc::c_int = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    loop {
        // SAFETY: the call writes to `info`, of which any bytes are valid, and which outlives it.
        let ended = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            if libc::waitid(libc::P_ALL, 0, &raw mut info, LOOK) != 0 { 0 } else { info.si_pid() }
        };
        // 0 for none.
        let Some(pid) = u32::try_from(ended).ok().filter(|pid| *pid > 0 && !is_waited_for(*pid)) else {
            return;
        };
        let options = rustix::process::WaitOptions::NOHANG;
        if rustix::process::waitpid(Pid::from_raw(pid as i32), options).is_err() {
            return;
        }
    }
}

/// Has this process killed when its parent dies; call it first thing in a role. One whose parent is
/// gone already finds its channel ended.
pub fn die_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Keeps from roles what this process itself was given open, but for standard input, output and error.
///
/// Errors: `ENOSYS` before Linux 5.9, `EINVAL` before 5.11.
pub fn keep_descriptors_to_itself() -> io::Result<()> {
    const FIRST: libc::c_uint = 3;
    // SAFETY: the call closes nothing now; it only has these descriptors closed at an exec.
    let answer =
        unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Raises the limit of open descriptors as far as allowed and gives it.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(1 << 20);
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum })?;
    Ok(wanted)
}

/// Gives this process a table for so many descriptors, which must be within its limit. Of a process with several threads
/// a table grows only after every core has left the kernel once (`synchronize_rcu`): milliseconds, in
/// whatever call needs the first number that does not fit.
///
/// Errors: those of fcntl(2), `F_DUPFD`.
pub fn make_room_for_descriptors(count: u64) -> io::Result<()> {
    let last = i32::try_from(count.saturating_sub(1)).unwrap_or(i32::MAX);
    rustix::io::fcntl_dupfd_cloexec(io::stdin(), last)?;
    Ok(())
}

/// Makes this process give way to those that answer requests: it does not preempt them when it
/// wakes, and gets a tenth of their share when all have work (sched(7), `SCHED_BATCH`).
pub fn give_way() -> io::Result<()> {
    const NICE: i32 = 10;
    preempt_nobody()?;
    rustix::process::nice(NICE)?;
    Ok(())
}

/// Has the calling thread not preempt others when it wakes (sched(7), `SCHED_BATCH`). Of threads that share a
/// lock, one that wakes would else take the core from the one that holds it, only to wait for it.
pub fn preempt_nobody() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the call reads `parameters`, which outlives it, and changes only this thread.
    let answer = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes this process, and those that it starts from now on, more likely to be ended where memory runs out (or less, for
/// which it needs `CAP_SYS_RESOURCE`), by so many thousandths of the memory (proc(5), `oom_score_adj`). One
/// that is never to be ended stays so.
///
/// Errors: those of reading and writing the file.
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

/// The most bytes that a pipe with room takes without waiting (pipe(7), `PIPE_BUF`).
const PIPE_BYTES: usize = 4096;

/// Says something on standard error if that takes it now, as much as fits at once: for a process that is about to
/// end, which counts for more than to be heard.
pub fn say_if_heard(text: &str) {
    let mut stderr = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    let length = text.len().min(PIPE_BYTES);
    // SAFETY: both pointers are to live values of the lengths given. The calls are those that every role may
    // make (`sandbox::calls`).
    unsafe {
        if libc::poll(&raw mut stderr, 1, 0) == 1 {
            libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_room_before_there_are_descriptors() {
        let size = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
            line.unwrap().trim().parse::<u64>().unwrap()
        };
        // The next power of two: this process has at least one table of the least size.
        let wanted = size() * 2;
        make_room_for_descriptors(wanted).unwrap();
        assert!(size() >= wanted, "{} for {wanted}", size());
        assert!(make_room_for_descriptors(u64::MAX).is_err(), "beyond the limit");
    }
}
