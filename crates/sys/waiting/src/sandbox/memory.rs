//! Keeps a process's own memory from being paged out. If a worker's code or tables were paged out, a hit
//! would wait for the disk.

use std::io;

use rustix::mm::{MlockAllFlags, MlockFlags, mlock_with, mlockall};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Locks everything that is mapped now or later, each page once it is touched. If the limit does not allow
/// that and cannot be raised, locks only the program's code and constants: without swap, only these can be
/// paged out, and locking more could make allocations fail at the limit.
///
/// Must be called while the process still has its privileges.
///
/// Errors: `ENOMEM` or `EPERM` if not even that is allowed.
pub fn keep_resident() -> io::Result<()> {
    let unlimited = Rlimit { current: None, maximum: None };
    if getrlimit(Resource::Memlock).current.is_none() || setrlimit(Resource::Memlock, unlimited).is_ok() {
        return Ok(mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?);
    }
    for line in std::fs::read_to_string("/proc/self/maps")?.lines() {
        let Some((start, length)) = program_text(line) else { continue };
        // SAFETY: locking changes no memory, and it fails for a mapping that no longer exists.
        unsafe { mlock_with(std::ptr::without_provenance_mut(start), length, MlockFlags::ONFAULT)? };
    }
    Ok(())
}

/// Gives each of `threads` threads its own arena of the allocator, as far as the C library allows
/// (mallopt(3)). A thread that waited for another's lock would wait for as long as the other is not running.
///
/// Must be called before the threads are started.
pub fn separate_arenas(threads: usize) {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets a number; if it is refused, arenas are shared.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, i32::try_from(threads).unwrap_or(i32::MAX));
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = threads;
}

/// Start and length of a mapping of a file that cannot be written (proc_pid_maps(5)).
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
    fn only_read_only_mappings_of_files_are_locked() {
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
