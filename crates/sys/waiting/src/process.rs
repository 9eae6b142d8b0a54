//! Starts, ends and limits processes, for the supervisor and the roles.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, WaitId, WaitIdOptions, getrlimit, kill_process,
    kill_process_group, pidfd_open, set_parent_process_death_signal, setrlimit, waitid,
};

/// Starts this program again as `flash role NAME`, with `channel` as its standard input, inherited standard
/// output and error, and a clean environment.
pub fn start_role(name: &str, channel: OwnedFd) -> io::Result<Child> {
    // This link is the running program itself, even after an upgrade has replaced the file.
    Command::new("/proc/self/exe")
        .arg0("flash")
        .args(["role", name])
        .env_clear()
        .stdin(Stdio::from(channel))
        .spawn()
}

/// Starts this program again as `flash role NAME WORDS`, with the environment of this process. Otherwise like
/// [`start_role`].
pub fn start_again(name: &str, words: &[OsString], channel: OwnedFd) -> io::Result<Child> {
    Command::new("/proc/self/exe")
        .arg0("flash")
        .args(["role", name])
        .args(words)
        .stdin(Stdio::from(channel))
        .spawn()
}

/// Kills a child.
pub fn kill(child: &Child) {
    if let Some(pid) = Pid::from_raw(child.id() as i32) {
        // This fails only if the child has already ended.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Reaps ended children that no other code waits for: orphans that this process inherited as the first
/// process of a container, and children that were dropped. It does not block, and stops at a child for which
/// `is_waited_for` returns true.
///
/// No other thread may start a program meanwhile, because a program that cannot be executed would be reaped
/// here.
pub fn reap_strangers(is_waited_for: impl Fn(u32) -> bool) {
    const LOOK: libc::c_int = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    loop {
        // SAFETY: the call writes to `info`, for which any bytes are valid and which outlives it.
        let ended = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            if libc::waitid(libc::P_ALL, 0, &raw mut info, LOOK) != 0 { 0 } else { info.si_pid() }
        };
        // 0 means that no child has ended.
        let Some(pid) = u32::try_from(ended).ok().filter(|pid| *pid > 0 && !is_waited_for(*pid)) else {
            return;
        };
        let options = rustix::process::WaitOptions::NOHANG;
        if rustix::process::waitpid(Pid::from_raw(pid as i32), options).is_err() {
            return;
        }
    }
}

/// Makes the kernel kill this process when its parent dies. A role must call it first. If the parent has
/// already died, the role finds its channel closed.
pub fn die_with_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Makes the kernel send SIGTERM to this process when its parent dies. For a process that must then end others first.
pub fn end_with_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::TERM))?)
}

/// A descriptor of a child that nobody has waited for yet. It becomes readable when the child has ended (pidfd_open(2)).
///
/// Errors: `EMFILE`, `ENFILE`; `ENOSYS` before Linux 5.3.
pub fn descriptor(child: &Child) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(child.id() as i32).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Prevents roles from inheriting the descriptors that this process was given, except standard input, output
/// and error.
///
/// Errors: `ENOSYS` before Linux 5.9, `EINVAL` before 5.11.
pub fn keep_descriptors_to_itself() -> io::Result<()> {
    const FIRST: libc::c_uint = 3;
    // SAFETY: the call closes no descriptor now; it only marks them to be closed at an exec.
    let answer =
        unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Begins a session and a process group of its own, which gets no signals from a terminal.
///
/// Errors: `EPERM` if this process leads a group.
pub fn begin_session() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// Kills a child that has a process group of its own, and all others of the group.
pub fn kill_group(child: &Child) {
    if let Some(group) = Pid::from_raw(child.id() as i32) {
        // Before it has begun its group, it is alone.
        let _ = kill_process_group(group, Signal::KILL);
        kill(child);
    }
}

/// Kills the others of the process group of a child that has just ended.
pub fn kill_rest_of_group(child: &Child) {
    if let Some(group) = Pid::from_raw(child.id() as i32) {
        // Usually there are none.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Asks a child that has a process group of its own to end, and all others of the group.
pub fn end_group(child: &Child) {
    if let Some(group) = Pid::from_raw(child.id() as i32) {
        let _ = kill_process_group(group, Signal::TERM);
    }
}

/// Raises the limit of open descriptors as far as allowed, and returns it.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(1 << 20);
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum })?;
    Ok(wanted)
}

/// Makes the descriptor table of this process large enough for this many descriptors, which must be within
/// its limit. In a process with several threads, a table grows only after every core has left the kernel once
/// (`synchronize_rcu`), which delays the call that needs the first number beyond the table by milliseconds.
///
/// Errors: any of fcntl(2), `F_DUPFD`.
pub fn make_room_for_descriptors(count: u64) -> io::Result<()> {
    let last = i32::try_from(count.saturating_sub(1)).unwrap_or(i32::MAX);
    rustix::io::fcntl_dupfd_cloexec(io::stdin(), last)?;
    Ok(())
}

/// How a child has ended; None while it runs. Nobody has waited for it yet, so its id and that of its group stay its own until
/// somebody does.
///
/// Errors: `ECHILD` for a child that was waited for.
pub fn peek(child: &Child) -> io::Result<Option<ExitStatus>> {
    let pid = Pid::from_raw(child.id() as i32).ok_or(io::ErrorKind::InvalidInput)?;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let Some(found) = waitid(WaitId::Pid(pid), options)? else { return Ok(None) };
    // As wait(2) has it: an exit code is in the second byte, a signal in the first.
    let raw = found.exit_status().map_or_else(|| found.terminating_signal().unwrap_or(0), |code| code << 8);
    Ok(Some(ExitStatus::from_raw(raw)))
}

/// Makes this process give way to processes that answer requests: it does not preempt them when it wakes, and
/// gets a tenth of their share of a busy core (sched(7), `SCHED_BATCH`).
pub fn give_way() -> io::Result<()> {
    const NICE: i32 = 10;
    never_preempt_others()?;
    rustix::process::nice(NICE)?;
    Ok(())
}

/// Prevents the calling thread from preempting others when it wakes (sched(7), `SCHED_BATCH`). Otherwise, of
/// threads that share a lock, one that wakes could take the core from the one that holds the lock, only to
/// wait for it.
pub fn never_preempt_others() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the call reads `parameters`, which outlives it, and changes only this thread.
    let answer = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes the kernel more likely to kill this process, and processes that it starts later, if memory runs out,
/// by this many thousandths of the memory (proc(5), `oom_score_adj`). A negative value makes it less likely
/// and needs `CAP_SYS_RESOURCE`. A process that must never be killed stays so.
///
/// Errors: any of reading and writing the file.
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
///
/// Errors: any of pipe(2) and dup(2).
pub fn redirect_stderr() -> io::Result<Redirected> {
    let (written, write) = pipe_with(PipeFlags::CLOEXEC)?;
    let real = io::stderr().as_fd().try_clone_to_owned()?;
    restore_stderr(&write)?;
    Ok(Redirected { real, written })
}

/// Makes a descriptor standard error.
///
/// Errors: any of dup2(2).
pub fn restore_stderr(real: &OwnedFd) -> io::Result<()> {
    // SAFETY: nothing owns descriptor 2, and the call closes no other.
    let answer = unsafe { libc::dup2(real.as_raw_fd(), libc::STDERR_FILENO) };
    if answer >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
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
    use rustix::event::{PollFd, PollFlags};

    use super::*;

    #[test]
    fn an_ended_child_is_seen_before_it_is_reaped() {
        for (text, ended) in [("exit 3", "exit status: 3"), ("kill -KILL $$", "signal: 9 (SIGKILL)")] {
            let mut child = Command::new("/bin/sh").args(["-c", text]).stdin(Stdio::piped()).spawn().unwrap();
            let descriptor = descriptor(&child).unwrap();
            while rustix::event::poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], None).is_err() {}
            for _ in 0..2 {
                assert_eq!(peek(&child).unwrap().unwrap().to_string(), ended);
            }
            assert_eq!(child.wait().unwrap().to_string(), ended);
            peek(&child).unwrap_err();
        }
        let mut child = Command::new("/bin/cat").stdin(Stdio::piped()).spawn().unwrap();
        assert_eq!(peek(&child).unwrap(), None);
        child.wait().unwrap();
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
