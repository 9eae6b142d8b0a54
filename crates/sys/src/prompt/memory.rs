//! The process's own memory, kept from being paged out.

use std::io;

use rustix::mm::{MlockAllFlags, mlockall};

/// Locks what is mapped now, and each later page once it is touched: a worker whose own code
/// or tables were paged out would wait for the disk on a hit.
///
/// Errors: `ENOMEM` or `EPERM` where `RLIMIT_MEMLOCK` is too small.
pub fn lock_all() -> io::Result<()> {
    mlockall(MlockAllFlags::CURRENT)?;
    Ok(mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?)
}
