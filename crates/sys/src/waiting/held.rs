//! A program that is started and held before its first instruction, so that somebody can first get ready to
//! watch it. The lab's `trace` does.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread::JoinHandle;

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::pipe::{PipeFlags, pipe_with};

/// A process that has not executed its program yet. Dropped, it ends without having done so.
#[derive(Debug)]
pub struct Held {
    pid: u32,
    go: OwnedFd,
    starter: JoinHandle<io::Result<Child>>,
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
                1 => Ok(()),
                _ => Err(rustix::io::Errno::CANCELED.into()),
            }
        };
        // SAFETY: between fork and exec the closure makes nothing but system calls, on memory made before.
        unsafe { command.pre_exec(tell_pid) };
        // `spawn` returns when the program is executed, so somebody else has to wait for it.
        let starter = std::thread::Builder::new().spawn(move || command.spawn())?;
        let mut pid = [0_u8; 4];
        match rustix::io::read(&told, &mut pid) {
            Ok(4) => Ok(Self { pid: u32::from_ne_bytes(pid), go, starter }),
            _ => match starter.join() {
                Ok(Err(why)) => Err(why),
                _ => Err(io::ErrorKind::BrokenPipe.into()),
            },
        }
    }

    /// Its id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets it execute its program.
    ///
    /// Errors: those of execve(2).
    pub fn go(self) -> io::Result<Child> {
        rustix::io::write(&self.go, b"g")?;
        self.starter.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn nothing_is_executed_before_it_may() {
        let mut command = Command::new("/bin/cat");
        command.arg("/proc/self/comm").stdout(Stdio::piped());
        let held = Held::new(command).expect("held");
        let pid = held.pid();
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).expect("it is there");
        assert_ne!(name, "cat\n");
        let child = held.go().expect("executed");
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
        let (pid, starter) = (held.pid, held.starter);
        drop(held.go);
        assert_eq!(
            starter.join().expect("no panic").expect_err("let go").raw_os_error(),
            Some(libc::ECANCELED)
        );
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
