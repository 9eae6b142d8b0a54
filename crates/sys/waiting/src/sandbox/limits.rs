//! Resource limits of a process: setrlimit(2).

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Bounds the descriptors that are open at once, for good; by what the system allows for None. Gives the bound in
/// force, which is lower where the system's is.
///
/// Errors: those of setrlimit(2).
pub fn descriptors(wanted: Option<u64>) -> io::Result<u64> {
    Ok(lower(Resource::Nofile, wanted)?.unwrap_or(DESCRIPTORS_MAX))
}

/// Bounds the private memory that can be written to, in bytes (`RLIMIT_DATA`), for good, and turns off core
/// dumps. Where the bound in force is lower, that one stays.
///
/// Errors: those of setrlimit(2).
pub fn memory(bytes: u64) -> io::Result<()> {
    lower(Resource::Data, Some(bytes))?;
    lower(Resource::Core, Some(0))?;
    Ok(())
}

/// The bound taken where the system has none.
const DESCRIPTORS_MAX: u64 = 1 << 20;

/// Sets both the soft and the hard limit; gives what is in force then, None for no limit.
fn lower(resource: Resource, wanted: Option<u64>) -> io::Result<Option<u64>> {
    let maximum = match (wanted, getrlimit(resource).maximum) {
        (Some(wanted), Some(maximum)) => Some(wanted.min(maximum)),
        (wanted, maximum) => wanted.or(maximum),
    };
    setrlimit(resource, Rlimit { current: maximum, maximum })?;
    Ok(maximum)
}
