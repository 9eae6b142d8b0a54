//! A program that is started and held before its first instruction, so that somebody can first get ready to
//! watch it. The lab's `trace` does.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::pipe::{PipeFlags, pipe_with};

use super::signal::unblock_all;

/// A process that has not executed its program yet. Dropped, it ends without having done so.
#[derive(Debug)]
pub struct Held {
    pid: u32,
    go: OwnedFd,
    started: Receiver<io::Result<Child>>,
    parent: Parent,
}

/// The thread that started a process stays as long as this does. It, not the process that it is of, is the parent
/// whose end a program may have asked to be signalled (prctl(2), `PR_SET_PDEATHSIG`).
#[derive(Debug)]
pub struct Parent {
    /// Nothing is sent: that it goes is what the thread waits for.
    _stay: Sender<()>,
}

impl Held {
    /// Makes the process of `command` and holds it.
    ///
    /// Errors: those of fork(2), pipe(2) and of a thread.
    pub fn new(mut command: Command) -> io::Result<Self> {
        let (told, tell) = pipe_with(PipeFlags::CLOEXEC)?;
        let (wait, go) = pipe_with(PipeFlags::CLOEXEC)?;
        let go_number = go.as_raw_fd();
        let tell_pid = move || {
            // SAFETY: this is the process that was forked: nobody uses the number in it. With it open here
            // there would be no end to read below.
            unsafe { rustix::io::close(go_number) };
            rustix::io::write(&tell, &rustix::process::getpid().as_raw_nonzero().get().to_ne_bytes())?;
            // Its end is the end of who holds it: then there is nothing to do any more.
            match rustix::io::read(&wait, &mut [0_u8; 1])? {
                1 => unblock_all(),
                _ => Err(rustix::io::Errno::CANCELED.into()),
            }
        };
        // SAFETY: between fork and exec the closure makes nothing but system calls, on memory made before.
        unsafe { command.pre_exec(tell_pid) };
        // `spawn` returns when the program is executed, so somebody else has to wait for it.
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

    /// Its id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets it execute its program, with no signal blocked. Keep its parent for as long as it may run.
    ///
    /// Errors: those of execve(2).
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
    fn nothing_is_executed_before_it_may() {
        let mut command = Command::new("/bin/cat");
        command.arg("/proc/self/comm").stdout(Stdio::piped());
        let held = Held::new(command).expect("held");
        let pid = held.pid();
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).expect("it is there");
        assert_ne!(name, "cat\n");
        let (child, _parent) = held.go().expect("executed");
        assert_eq!(child.id(), pid);
        assert_eq!(child.wait_with_output().expect("ended").stdout, b"cat\n");
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let held = Held::new(Command::new("/no/such/program")).expect("held");
        assert_eq!(held.go().expect_err("not there").kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn one_that_is_let_go_of_never_executes() {
        let held = Held::new(Command::new("/bin/sleep")).expect("held");
        let (pid, started) = (held.pid, held.started);
        drop(held.go);
        let why = started.recv().expect("an answer").expect_err("let go");
        assert_eq!(why.raw_os_error(), Some(libc::ECANCELED));
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn it_begins_with_no_signal_blocked() {
        // Of a thread of its own, which blocks them for itself and for what it starts.
        let start = || {
            let _signals = signal::watch().expect("watched");
            let mut command = Command::new("/bin/grep");
            command.args(["SigBlk", "/proc/self/status"]).stdout(Stdio::piped());
            let (child, _parent) = Held::new(command).expect("held").go().expect("executed");
            child.wait_with_output().expect("ended").stdout
        };
        let blocked = std::thread::spawn(start).join().expect("no panic");
        assert_eq!(String::from_utf8_lossy(&blocked), "SigBlk:\t0000000000000000\n");
    }

    #[test]
    fn one_that_ends_with_its_parent_does_not_end_before() {
        let mut command = Command::new("/bin/sleep");
        command.arg("600");
        // SAFETY: the closure makes nothing but one system call.
        unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?)) };
        let (mut child, parent) = Held::new(command).expect("held").go().expect("executed");
        for _ in 0..20 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            assert_eq!(child.try_wait().expect("a child"), None);
        }
        drop(parent);
        assert_eq!(child.wait().expect("ended").signal(), Some(Signal::KILL.as_raw()));
    }
}
