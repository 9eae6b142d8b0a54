//! What each role gives up before it works, from the settings: limits, privileges, paths, calls.
//!
//! A role calls [`enter`] first thing, opens what it needs, and then [`close`]. ARCHITECTURE.md shows
//! the result as a table.

use std::io;

use flash_engine::limits::{HAND_OVER_BYTES_MAX, HEAD_BYTES_MAX, RECEIVE_BYTES, SMALL_FILE_BYTES_MAX};
use flash_prompt::mechanism::SELECT_DESCRIPTORS_MAX;
use flash_prompt::{AsFd, OwnedFd};
use flash_waiting::memory::usable_bytes;
use flash_waiting::process;
use flash_waiting::sandbox::calls::{self, CallList};
use flash_waiting::sandbox::limits;
use flash_waiting::sandbox::memory;
use flash_waiting::sandbox::paths::{self, Rights};
use flash_waiting::sandbox::privileges::{self, Keep};
use flash_worker::control::InForce;

use crate::architecture;
use crate::config::{EventMechanism, SandboxMode, Settings};
use crate::convert::connections_that_fit;

/// A process that serves requests or writes their log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Worker,
    Helper,
    Log,
}

/// Memory that a process of Flash has besides what is counted below.
const MEMORY_APART_BYTES: u64 = 256 << 20;
/// What a connection can hold at most, by the engine's bounds: input behind the request that is answered; the
/// head of that request, and the words of it for the log; and either a part of a file that a helper handed over or a
/// content that the cache has let go. The last is for records, response heads and the allocator.
const CONNECTION_BYTES: u64 = RECEIVE_BYTES as u64
    + 2 * HEAD_BYTES_MAX as u64
    + max(HAND_OVER_BYTES_MAX, SMALL_FILE_BYTES_MAX)
    + CONNECTION_APART_BYTES;
const CONNECTION_APART_BYTES: u64 = 8 << 10;
/// Connections hold this part of the machine's memory at most, those of all workers together: few hold the most
/// that they can, and those that do at once are an attack. It costs a worker, which is replaced, and not the machine.
const CONNECTIONS_SHARE: u64 = 2;
/// A worker has this for them in any case.
const CONNECTIONS_LEAST_BYTES: u64 = 128 << 20;
/// The allocator may hold this part of the content cache besides it, in gaps between contents.
const CACHE_WASTE_SHARE: u64 = 2;
/// What an entry of a listing can take: its longest name, encoded, twice in the page.
const LISTING_ENTRY_BYTES: u64 = 4 << 10;
/// Descriptors that a helper or a log writer needs at most, besides the sites' roots.
const DESCRIPTORS: u64 = 1024;

const fn max(a: u64, b: u64) -> u64 {
    if a > b { a } else { b }
}

/// The memory for connections of a worker, in bytes.
fn connections_bytes(settings: &Settings, descriptors_max: u64, usable_bytes: Option<u64>) -> u64 {
    let asked = architecture::connections_max(settings) as u64;
    let connections = asked.min(connections_that_fit(settings, descriptors_max));
    let share =
        usable_bytes.map(|bytes| bytes / CONNECTIONS_SHARE / architecture::processes(settings) as u64);
    let share = share.unwrap_or(u64::MAX).max(CONNECTIONS_LEAST_BYTES);
    connections.saturating_mul(CONNECTION_BYTES).min(share)
}

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

    /// The descriptors that it may have open at once; None for as many as the system allows.
    fn descriptors(self, settings: &Settings) -> Option<u64> {
        match self {
            // So no descriptor has a number that select does not take.
            Role::Worker if settings.event_mechanism == EventMechanism::Select => {
                Some(SELECT_DESCRIPTORS_MAX)
            }
            Role::Worker => None,
            Role::Helper => Some(DESCRIPTORS + settings.sites.len() as u64),
            Role::Log => Some(DESCRIPTORS),
        }
    }

    /// The memory that it may have, in bytes: what the settings can need, and of a machine with so many
    /// `usable_bytes`, where that is known, no more than its share. A worker's may all be locked.
    fn memory_bytes(self, settings: &Settings, descriptors_max: u64, usable_bytes: Option<u64>) -> u64 {
        // Its entries, and the page made of them.
        let listing_bytes = 2 * settings.listing_entries_max as u64 * LISTING_ENTRY_BYTES;
        match self {
            Role::Worker => {
                let cache = settings.cache_memory_bytes;
                let connections = connections_bytes(settings, descriptors_max, usable_bytes);
                (MEMORY_APART_BYTES + architecture::memory_bytes(settings, listing_bytes))
                    .saturating_add(cache.saturating_add(cache / CACHE_WASTE_SHARE))
                    .saturating_add(connections)
            }
            Role::Helper => MEMORY_APART_BYTES + listing_bytes,
            Role::Log => MEMORY_APART_BYTES,
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
    let descriptors_max = limits::descriptors(role.descriptors(settings))?;
    limits::memory(role.memory_bytes(settings, descriptors_max, usable_bytes()))?;
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
    calls: CallList<'_>,
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
    let thread_of = if matches!(calls, CallList::HelperThread) { "thread of worker " } else { "" };
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

#[cfg(test)]
#[path = "sandbox_tests.rs"]
mod tests;
