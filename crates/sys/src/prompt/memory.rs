//! The process's own memory, kept from being paged out.

use std::io;

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// Locks what is mapped now, and each later page once it is touched: a worker whose own code
/// or tables were paged out would wait for the disk on a hit.
///
/// Errors: `ENOMEM` or `EPERM` where `RLIMIT_MEMLOCK` is too small.
pub fn lock_all() -> io::Result<()> {
    mlockall(MlockAllFlags::CURRENT)?;
    // Under a limit, locking what comes later would make allocations fail at it.
    let unlimited = getrlimit(Resource::Memlock).current.is_none()
        || capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    if !unlimited {
        return Ok(());
    }
    Ok(mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?)
}
