//! Whether any of some files has changed: a child looks at them, because their file system may hang. Called by the supervisor,
//! for certificates.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs;

use super::child_call::ChildCall;

/// A child process that looks at files. Its descriptor is readable once it has a result.
#[derive(Debug)]
pub struct Look(ChildCall);

impl Look {
    /// Starts to look at these files, following links.
    ///
    /// Errors: those of starting a process.
    pub fn start(paths: &[PathBuf]) -> io::Result<Self> {
        let paths: Vec<CString> =
            paths.iter().map(|path| CString::new(path.as_os_str().as_bytes())).collect::<Result<_, _>>()?;
        // SAFETY: it makes only system calls, and the paths exist.
        unsafe { ChildCall::start_noting(|| [state(&paths), 0, 0]) }.map(Self)
    }

    /// Takes the state of the files: a number that differs after a change of any of them.
    ///
    /// Errors: `WouldBlock` while there is none.
    pub fn take(&self) -> io::Result<u64> {
        self.0.take_note().map(|[state, ..]| state)
    }
}

impl AsFd for Look {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The child's work. It must not allocate.
fn state(paths: &[CString]) -> u64 {
    let mut state = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |number: u64| state = (state ^ number).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
    for path in paths {
        match fs::stat(path.as_c_str()) {
            Ok(found) => {
                let (seconds, nanoseconds) = (found.st_ctime as u64, found.st_ctime_nsec);
                for number in [found.st_dev, found.st_ino, found.st_size as u64, seconds, nanoseconds] {
                    add(number);
                }
            }
            Err(e) => add(u64::from(e.raw_os_error().unsigned_abs())),
        }
    }
    state
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn look(paths: &[PathBuf]) -> u64 {
        let look = Look::start(paths).expect("started");
        look.0.wait(Instant::now() + Duration::from_secs(60)).expect("waited");
        look.take().expect("a state")
    }

    #[test]
    fn every_change_is_seen() {
        let folder = tempfile::tempdir().expect("a folder");
        let paths = ["a", "b"].map(|name| folder.path().join(name));
        let mut states = vec![look(&paths)];
        for write in [("a", "x"), ("b", "x"), ("b", "xy")] {
            std::fs::write(folder.path().join(write.0), write.1).expect("written");
            states.push(look(&paths));
        }
        std::fs::rename(&paths[0], folder.path().join("c")).expect("renamed");
        states.push(look(&paths));
        assert_eq!(look(&paths), states[4], "nothing has changed");
        for (place, state) in states.iter().enumerate() {
            assert!(!states[..place].contains(state), "{place}");
        }
    }
}
