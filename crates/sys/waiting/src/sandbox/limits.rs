//! Resource limits of a process: setrlimit(2).

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Bounds of one role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Descriptors open at once; as many as the system allows for None.
    pub descriptors: Option<u64>,
    /// Private memory that can be written to, in bytes (`RLIMIT_DATA`).
    pub memory_bytes: u64,
}

/// Sets the bounds, for good, and turns off core dumps. Where the bound in force is lower, that one
/// stays. Gives the descriptors that may be open at once.
pub fn apply(limits: Limits) -> io::Result<u64> {
    let descriptors = lower(Resource::Nofile, limits.descriptors)?;
    lower(Resource::Data, Some(limits.memory_bytes))?;
    lower(Resource::Core, Some(0))?;
    Ok(descriptors.unwrap_or(DESCRIPTORS_MAX))
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
