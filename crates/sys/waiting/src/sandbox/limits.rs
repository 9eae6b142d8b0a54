//! Resource limits of a process: setrlimit(2).

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Permanently limits the number of open descriptors; None stands for the system's limit. Returns the limit
/// in force, which is lower if the system's limit is.
pub fn descriptors(wanted: Option<u64>) -> io::Result<u64> {
    Ok(lower(Resource::Nofile, wanted)?.unwrap_or(DESCRIPTORS_MAX))
}

/// The number of descriptors that this process may have at most.
pub fn descriptors_max() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(DESCRIPTORS_MAX)
}

/// Lowers the number of descriptors that this process has without asking for more to that of most systems: programs that call
/// select(2), or close all descriptors that could be open, rely on a small number.
pub fn few_descriptors() -> io::Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = Some(maximum.map_or(USUAL_DESCRIPTORS, |maximum| maximum.min(USUAL_DESCRIPTORS)));
    Ok(setrlimit(Resource::Nofile, Rlimit { current, maximum })?)
}

/// The soft limit of most systems.
const USUAL_DESCRIPTORS: u64 = 1024;

/// Permanently limits the private writable memory in bytes (`RLIMIT_DATA`), and turns off core dumps. A lower
/// limit that is already in force stays.
pub fn memory(bytes: u64) -> io::Result<()> {
    lower(Resource::Data, Some(bytes))?;
    no_core_dumps()
}

/// Permanently turns off core dumps of this process, and of those that it starts.
pub fn no_core_dumps() -> io::Result<()> {
    lower(Resource::Core, Some(0))?;
    Ok(())
}

/// The limit that is used if the system has none.
const DESCRIPTORS_MAX: u64 = 1 << 20;

/// Sets both the soft and the hard limit. Returns the limit in force, None for no limit.
fn lower(resource: Resource, wanted: Option<u64>) -> io::Result<Option<u64>> {
    let maximum = match (wanted, getrlimit(resource).maximum) {
        (Some(wanted), Some(maximum)) => Some(wanted.min(maximum)),
        (wanted, maximum) => wanted.or(maximum),
    };
    setrlimit(resource, Rlimit { current: maximum, maximum })?;
    Ok(maximum)
}
