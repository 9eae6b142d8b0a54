//! Child processes, each with a descriptor (pidfd) that becomes readable at its end. For the supervisor, and for the
//! process that starts CGI programs.

use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::ptr;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process_group, pidfd_open,
    pidfd_send_signal, waitid, waitpid,
};

use crate::{process, successor, systemd};

/// A child process. Dropping it neither ends nor reaps it.
#[derive(Debug)]
pub struct Subprocess {
    pid: Pid,
    descriptor: OwnedFd,
}

impl Subprocess {
    /// Starts a program, or this one again, as `flash role NAME`, with `channel` as its standard input, inherited standard
    /// output and error, and a clean environment.
    ///
    /// Errors: those of starting a process; `EMFILE`, `ENFILE`.
    pub fn start_role(program: Option<&OwnedFd>, name: &str, channel: OwnedFd) -> io::Result<Self> {
        Self::start(role(program, name).env_clear().stdin(Stdio::from(channel)))
    }

    /// As [`Subprocess::start_role`], with a low priority from its first instruction ([`process::give_way`]): otherwise a burst of
    /// starting processes would take its core from others. It is not waited for until it has executed the program, as that would be
    /// late on a busy core; one that cannot ends with code 127.
    ///
    /// Errors: those of fork(2); `EMFILE`, `ENFILE`.
    pub fn start_role_behind(program: Option<&OwnedFd>, name: &str, channel: impl AsFd) -> io::Result<Self> {
        let path = CString::new(path_of(program))?;
        let words = [c"flash".to_owned(), c"role".to_owned(), CString::new(name)?];
        let words: Vec<*const libc::c_char> =
            words.iter().map(|word| word.as_ptr()).chain([ptr::null()]).collect();
        let (channel, none) = (channel.as_fd().as_raw_fd(), [ptr::null()]);
        // SAFETY: the child makes only system calls, on memory that exists already, until it executes the program or ends.
        let child = unsafe { libc::fork() };
        match u32::try_from(child) {
            Err(_) => Err(io::Error::last_os_error()),
            Ok(pid @ 1..) => Self::adopt(pid),
            Ok(0) => {
                // If this fails, it works as well.
                let _ = process::give_way();
                // SAFETY: as above; `words` and `none` end with a null pointer.
                unsafe {
                    libc::dup2(channel, 0);
                    libc::execve(path.as_ptr(), words.as_ptr(), none.as_ptr());
                    libc::_exit(127)
                }
            }
        }
    }

    /// Starts a program, or this one again, as `flash role NAME WORDS`, with the environment of this process, except for what
    /// only this process has from systemd or from an earlier program. Otherwise like [`Subprocess::start_role`].
    pub fn start_again(
        program: Option<&OwnedFd>,
        name: &str,
        words: &[OsString],
        channel: OwnedFd,
    ) -> io::Result<Self> {
        let mut command = role(program, name);
        for variable in systemd::VARIABLES.into_iter().chain([successor::VARIABLE]) {
            command.env_remove(variable);
        }
        Self::start(command.args(words).stdin(Stdio::from(channel)))
    }

    fn start(command: &mut Command) -> io::Result<Self> {
        let mut child = command.spawn()?;
        // It is not waited for: `reap_others` reaps it.
        Self::new(&child).inspect_err(|_| drop(child.kill()))
    }

    /// A child that nobody has waited for yet, and that only this value will wait for.
    ///
    /// Errors: `EMFILE`, `ENFILE`.
    pub fn new(child: &Child) -> io::Result<Self> {
        Self::adopt(child.id())
    }

    /// A child that an earlier program of this process has started. As [`Subprocess::new`].
    pub fn adopt(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self { pid, descriptor: pidfd_open(pid, PidfdFlags::empty())? })
    }

    /// Its id.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Kills it.
    pub fn kill(&self) {
        // This fails only if it has already ended.
        let _ = pidfd_send_signal(&self.descriptor, Signal::KILL);
    }

    /// Kills it and all others of the process group that it leads. It must not have been reaped: until then, no other group
    /// can have its number.
    pub fn kill_group(&self) {
        // Before it has begun its group, it is alone.
        self.kill_rest_of_group();
        self.kill();
    }

    /// Kills the others of its process group, when it has just ended. As in [`Subprocess::kill_group`].
    pub fn kill_rest_of_group(&self) {
        // Usually there are none.
        let _ = kill_process_group(self.pid, Signal::KILL);
    }

    /// Asks all processes of its process group to end. As in [`Subprocess::kill_group`].
    pub fn end_group(&self) {
        let _ = kill_process_group(self.pid, Signal::TERM);
    }

    /// How it has ended; None while it runs. This does not reap it.
    ///
    /// Errors: `ECHILD` if it was reaped.
    pub fn peek(&self) -> io::Result<Option<ExitStatus>> {
        self.status(WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT)
    }

    /// Reaps it, if it has ended.
    ///
    /// Errors: as of [`Subprocess::peek`].
    pub fn reap(&self) -> io::Result<Option<ExitStatus>> {
        self.status(WaitIdOptions::NOHANG)
    }

    /// Waits for its end, and reaps it.
    ///
    /// Errors: as of [`Subprocess::peek`].
    pub fn wait(&self) -> io::Result<Option<ExitStatus>> {
        self.status(WaitIdOptions::empty())
    }

    fn status(&self, options: WaitIdOptions) -> io::Result<Option<ExitStatus>> {
        let id = WaitId::PidFd(self.descriptor.as_fd());
        let Some(found) = waitid(id, options | WaitIdOptions::EXITED)? else { return Ok(None) };
        // As wait(2) has it: an exit code is in the second byte, a signal in the first.
        let raw =
            found.exit_status().map_or_else(|| found.terminating_signal().unwrap_or(0), |code| code << 8);
        Ok(Some(ExitStatus::from_raw(raw)))
    }
}

impl AsFd for Subprocess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// `flash role NAME`, of an open program or of this one.
fn role(program: Option<&OwnedFd>, name: &str) -> Command {
    let mut command = Command::new(path_of(program));
    command.arg0("flash").args(["role", name]);
    command
}

fn path_of(program: Option<&OwnedFd>) -> String {
    // This link is the running program itself, even after an upgrade has replaced the file.
    program.map_or_else(|| "/proc/self/exe".to_owned(), successor::path_of)
}

/// Reaps ended children that are not `supervised`: orphans that this process inherited as the first process of a
/// container, and children that were given up. It does not block, and stops at the first supervised one.
///
/// No other thread may start a program meanwhile, because a program that cannot be executed would be reaped
/// here.
pub fn reap_others(supervised: impl Fn(u32) -> bool) {
    const LOOK: libc::c_int = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    loop {
        // SAFETY: the call writes to `info`, for which any bytes are valid and which outlives it.
        let ended = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            if libc::waitid(libc::P_ALL, 0, &raw mut info, LOOK) != 0 { 0 } else { info.si_pid() }
        };
        // 0 means that no child has ended.
        let Some(pid) = u32::try_from(ended).ok().filter(|pid| *pid > 0 && !supervised(*pid)) else {
            return;
        };
        if waitpid(Pid::from_raw(pid as i32), WaitOptions::NOHANG).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    #[test]
    #[expect(clippy::zombie_processes, reason = "the `Subprocess` of each child reaps it")]
    fn an_ended_child_is_seen_before_it_is_reaped() {
        for (text, ended) in [("exit 3", "exit status: 3"), ("kill -KILL $$", "signal: 9 (SIGKILL)")] {
            let child = Command::new("/bin/sh").args(["-c", text]).stdin(Stdio::piped()).spawn().unwrap();
            let child = Subprocess::new(&child).unwrap();
            while poll(&mut [PollFd::new(&child, PollFlags::IN)], None).is_err() {}
            for _ in 0..2 {
                assert_eq!(child.peek().unwrap().unwrap().to_string(), ended);
            }
            assert_eq!(child.reap().unwrap().unwrap().to_string(), ended);
            child.peek().unwrap_err();
            child.kill();
        }
        let cat = Command::new("/bin/cat").stdin(Stdio::piped()).spawn().unwrap();
        let child = Subprocess::new(&cat).unwrap();
        assert_eq!((child.peek().unwrap(), child.reap().unwrap()), (None, None));
        child.kill();
        assert_eq!(child.wait().unwrap().unwrap().to_string(), "signal: 9 (SIGKILL)");
    }
}
