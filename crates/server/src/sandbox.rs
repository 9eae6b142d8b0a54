//! What each role gives up before it works, from the settings: limits, privileges, paths, calls.
//!
//! A role calls [`enter`] first thing, opens what it needs, and then [`close`]. ARCHITECTURE.md shows
//! the result as a table.

use std::fmt;
use std::io;

use flash_sys::prompt::mechanism::SELECT_DESCRIPTORS_MAX;
use flash_sys::sandbox::calls::{self, Calls};
use flash_sys::sandbox::limits::{self, Limits};
use flash_sys::sandbox::memory;
use flash_sys::sandbox::paths::{self, Rights};
use flash_sys::sandbox::privileges::{self, Keep};
use flash_sys::waiting::process;
use flash_sys::{AsFd, OwnedFd};

use crate::architecture;
use crate::config::{EventMechanism, SandboxMode, Settings};

/// A process that serves requests or writes their log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Worker,
    Helper,
    Log,
}

/// Memory that a process of Flash has besides what is counted below.
const MEMORY_APART_BYTES: u64 = 256 << 20;
/// What a connection can take: an answer handed over by a helper, its request, and its record.
const CONNECTION_BYTES: u64 = 256 << 10;
/// What an entry of a listing can take: its longest name, encoded, twice in the page.
const LISTING_ENTRY_BYTES: u64 = 4 << 10;
/// Descriptors that a helper or a log writer needs at most, besides the sites' roots.
const DESCRIPTORS: u64 = 1024;

impl Role {
    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::Worker => "worker",
            Role::Helper => "helper",
            Role::Log => "log",
        }
    }

    /// The role of this name.
    pub(crate) fn named(name: &str) -> Option<Role> {
        [Role::Worker, Role::Helper, Role::Log].into_iter().find(|role| role.name() == name)
    }

    /// How much more likely than the supervisor it is ended where memory runs out: a helper's death costs a
    /// request, a worker's more.
    pub(crate) fn oom_score_shift(self) -> i32 {
        match self {
            Role::Worker | Role::Log => 300,
            Role::Helper => 400,
        }
    }

    fn limits(self, settings: &Settings) -> Limits {
        // Its entries, and the page made of them.
        let listing_bytes = 2 * settings.listing_entries_max as u64 * LISTING_ENTRY_BYTES;
        match self {
            Role::Worker => {
                let connections = settings.connections_max as u64 * CONNECTION_BYTES;
                let apart = MEMORY_APART_BYTES + architecture::memory_bytes(settings, listing_bytes);
                // Twice, because contents that are being sent live on when the cache lets them go.
                let memory_bytes = apart
                    .saturating_add(settings.cache_memory_bytes.saturating_mul(2))
                    .saturating_add(connections);
                // So no descriptor has a number that select does not take.
                let selects = settings.event_mechanism == EventMechanism::Select;
                Limits { descriptors: selects.then_some(SELECT_DESCRIPTORS_MAX), memory_bytes }
            }
            Role::Helper => Limits {
                descriptors: Some(DESCRIPTORS + settings.sites.len() as u64),
                memory_bytes: MEMORY_APART_BYTES + listing_bytes,
            },
            Role::Log => Limits { descriptors: Some(DESCRIPTORS), memory_bytes: MEMORY_APART_BYTES },
        }
    }

    fn keeps(self, settings: &Settings) -> Keep {
        match self {
            Role::Log => Keep::DacOverride,
            Role::Worker | Role::Helper if settings.cap_fowner => Keep::Fowner,
            Role::Worker | Role::Helper => Keep::Nothing,
        }
    }
}

/// Sets the role's limits, becomes the user of the settings and gives up every capability but those
/// of its role. Gives the descriptors that may be open at once.
///
/// Errors: those of the calls.
pub(crate) fn enter(role: Role, settings: &Settings) -> io::Result<u64> {
    let descriptors_max = limits::apply(role.limits(settings))?;
    if role == Role::Worker {
        // Where it may not, a worker's memory can be paged out like any other.
        let _ = memory::keep_resident();
    }
    // The log writer stays who started it: log folders belong to root.
    let account = settings.run_as.as_ref().filter(|_| role != Role::Log).map(crate::config::RunAs::account);
    privileges::become_role(account.as_ref(), role.keeps(settings))?;
    // The kernel forgets this at a change of user.
    process::die_with_parent()?;
    Ok(descriptors_max)
}

/// Has the kernel forbid this thread, from now on, every path but `folders` and every call but `calls`.
///
/// Errors: what the kernel does not have and the settings require.
pub(crate) fn close(
    role: Role,
    settings: &Settings,
    folders: &[(&OwnedFd, Rights)],
    calls: Calls<'_>,
) -> io::Result<InForce> {
    let mode = settings.sandbox;
    if mode == SandboxMode::Off {
        return Ok(InForce { landlock: None, seccomp: false });
    }
    let required = |what: &str| {
        let why = format!("the sandbox is required, but this kernel has no {what}; see --sandbox");
        if mode == SandboxMode::Required { Err(io::Error::other(why)) } else { Ok(()) }
    };
    let folders: Vec<_> = folders.iter().map(|(folder, rights)| (folder.as_fd(), *rights)).collect();
    let landlock = paths::restrict(&folders)?;
    if landlock.is_none() {
        required("Landlock")?;
    }
    let thread_of = if matches!(calls, Calls::HelperThread) { "thread of worker " } else { "" };
    let who = format!("{} {thread_of}process {}", role.name(), std::process::id());
    let seccomp = match calls::restrict(calls, &who) {
        Ok(()) => true,
        Err(e) if e.kind() == io::ErrorKind::Unsupported => {
            required("seccomp")?;
            false
        }
        Err(e) => return Err(e),
    };
    Ok(InForce { landlock, seccomp })
}

/// What holds a process to its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InForce {
    /// The version of Landlock.
    pub(crate) landlock: Option<u8>,
    pub(crate) seccomp: bool,
}

impl fmt::Display for InForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.landlock {
            Some(version) => write!(f, "Landlock {version}")?,
            None => f.write_str("no Landlock")?,
        }
        f.write_str(if self.seccomp { ", seccomp" } else { ", no seccomp" })
    }
}
