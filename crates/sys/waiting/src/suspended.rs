//! Starts a program but holds it before its first instruction, so that a tracer can get ready. The lab's
//! `trace` uses it.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::pipe::{PipeFlags, pipe_with};

use super::signal::unblock_all;

/// A process that has not executed its program yet. If it is dropped, it ends without doing so.
#[derive(Debug)]
pub struct SuspendedProgram {
    pid: u32,
    go: OwnedFd,
    started: Receiver<io::Result<Child>>,
    parent: Parent,
}

/// Keeps the thread that started a process. A program can ask to be signalled when its parent ends (prctl(2),
/// `PR_SET_PDEATHSIG`), and the kernel counts that thread as the parent, not its process.
#[derive(Debug)]
pub struct Parent {
    /// No message is ever sent: the thread waits until the channel closes.
    _stay: Sender<()>,
}

impl SuspendedProgram {
    /// Makes the process of `command` and holds it.
    pub fn new(mut command: Command) -> io::Result<Self> {
        let (told, tell) = pipe_with(PipeFlags::CLOEXEC)?;
        let (wait, go) = pipe_with(PipeFlags::CLOEXEC)?;
        let go_number = go.as_raw_fd();
        let tell_pid = move || {
            // SAFETY: this is the forked process, in which no other code uses the number. If it stayed open
            // here, the read below would never see the end of the pipe.
            unsafe { rustix::io::close(go_number) };
            rustix::io::write(&tell, &rustix::process::getpid().as_raw_nonzero().get().to_ne_bytes())?;
            // The end of the pipe means that the holder has gone, so this process ends too.
            match rustix::io::read(&wait, &mut [0_u8; 1])? {
                1 => unblock_all(),
                _ => Err(rustix::io::Errno::CANCELED.into()),
            }
        };
        // SAFETY: between fork and exec the closure makes only system calls, on memory allocated before.
        unsafe { command.pre_exec(tell_pid) };
        // `spawn` returns only when the program is executed, so another thread must wait for it.
        let (tell_started, started) = channel();
        let (stay, stays) = channel::<()>();
        std::thread::Builder::new().spawn(move || {
            let _ = tell_started.send(command.spawn());
            let _ = stays.recv();
        })?;
        let mut pid = [0_u8; 4];
        match rustix::io::read(&told, &mut pid) {
            Ok(4) => Ok(Self { pid: u32::from_ne_bytes(pid), go, started, parent: Parent { _stay: stay } }),
            _ => match started.recv() {
                Ok(Err(why)) => Err(why),
                _ => Err(io::ErrorKind::BrokenPipe.into()),
            },
        }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets the process execute its program, with no signal blocked. The caller must keep the returned
    /// [`Parent`] for as long as the program runs.
    pub fn go(self) -> io::Result<(Child, Parent)> {
        rustix::io::write(&self.go, b"g")?;
        let child = self.started.recv().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?;
        Ok((child, self.parent))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;

    use rustix::process::{Signal, set_parent_process_death_signal};

    use super::*;
    use crate::signal;

    #[test]
    fn the_program_is_not_executed_before_go() {
        let mut command = Command::new("/bin/cat");
        command.arg("/proc/self/comm").stdout(Stdio::piped());
        let held = SuspendedProgram::new(command).expect("held");
        let pid = held.pid();
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).expect("the held process exists");
        assert_ne!(name, "cat\n");
        let (child, _parent) = held.go().expect("executed");
        assert_eq!(child.id(), pid);
        assert_eq!(child.wait_with_output().expect("ended").stdout, b"cat\n");
    }

    #[test]
    fn a_missing_program_is_an_error() {
        let held = SuspendedProgram::new(Command::new("/no/such/program")).expect("held");
        assert_eq!(held.go().expect_err("not there").kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_dropped_process_never_executes_its_program() {
        let held = SuspendedProgram::new(Command::new("/bin/sleep")).expect("held");
        let (pid, started) = (held.pid, held.started);
        drop(held.go);
        let why = started.recv().expect("an answer").expect_err("let go");
        assert_eq!(why.raw_os_error(), Some(libc::ECANCELED));
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn the_program_begins_with_no_signal_blocked() {
        // A separate thread, because it blocks signals for itself and for the programs that it starts.
        let start = || {
            let _signals = signal::watch().expect("watched");
            let mut command = Command::new("/bin/grep");
            command.args(["SigBlk", "/proc/self/status"]).stdout(Stdio::piped());
            let (child, _parent) = SuspendedProgram::new(command).expect("held").go().expect("executed");
            child.wait_with_output().expect("ended").stdout
        };
        let blocked = std::thread::spawn(start).join().expect("no panic");
        assert_eq!(String::from_utf8_lossy(&blocked), "SigBlk:\t0000000000000000\n");
    }

    #[test]
    fn a_program_that_ends_with_its_parent_does_not_end_before() {
        let mut command = Command::new("/bin/sleep");
        command.arg("600");
        // SAFETY: the closure makes only one system call.
        unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?)) };
        let (mut child, parent) = SuspendedProgram::new(command).expect("held").go().expect("executed");
        for _ in 0..20 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            assert_eq!(child.try_wait().expect("a child"), None);
        }
        drop(parent);
        assert_eq!(child.wait().expect("ended").signal(), Some(Signal::KILL.as_raw()));
    }
}
