//! The process's own memory, kept from being paged out: a worker whose code or tables were would
//! wait for the disk on a hit.

use std::io;

use rustix::mm::{MlockAllFlags, MlockFlags, mlock_with, mlockall};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Locks what is mapped now and what will be, each page once it is touched. Where the limit does not
/// allow that and cannot be raised, only the program's code and constants: those alone are paged out
/// without swap, and more could make allocations fail at the limit.
///
/// Call it while the process still has its privileges.
///
/// Errors: `ENOMEM` or `EPERM` where not even that is allowed.
pub fn keep_resident() -> io::Result<()> {
    let unlimited = Rlimit { current: None, maximum: None };
    if getrlimit(Resource::Memlock).current.is_none() || setrlimit(Resource::Memlock, unlimited).is_ok() {
        return Ok(mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?);
    }
    for line in std::fs::read_to_string("/proc/self/maps")?.lines() {
        let Some((start, length)) = program_text(line) else { continue };
        // SAFETY: locking changes no memory, and a mapping that is gone by now makes it fail.
        unsafe { mlock_with(std::ptr::without_provenance_mut(start), length, MlockFlags::ONFAULT)? };
    }
    Ok(())
}

/// Gives each of so many threads an arena of the allocator for itself, as far as the C library does that
/// (mallopt(3)): one that waits for another's lock would wait for as long as the other is kept off its core.
///
/// Call it before they are started.
pub fn separate_arenas(threads: usize) {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets a number; where it is refused, arenas are shared.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, i32::try_from(threads).unwrap_or(i32::MAX));
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = threads;
}

/// Start and length of a mapping of a file that cannot be written to (proc_pid_maps(5)).
fn program_text(line: &str) -> Option<(usize, usize)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let (rights, inode) = (words.next()?, words.nth(2)?);
    let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    (!rights.contains('w') && inode != "0").then(|| (start, end.saturating_sub(start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_file_backs_and_nobody_writes_is_locked_alone() {
        let code = "55d0c0000000-55d0c0003000 r-xp 00001000 fd:01 1234   /usr/bin/flash";
        assert_eq!(program_text(code), Some((0x55d0_c000_0000, 0x3000)));
        for other in [
            "55d0c0000000-55d0c0003000 rw-p 00001000 fd:01 1234   /usr/bin/flash",
            "7f00c0000000-7f00c0003000 r-xp 00000000 00:00 0      [vdso]",
            "",
        ] {
            assert_eq!(program_text(other), None, "{other}");
        }
    }
}
