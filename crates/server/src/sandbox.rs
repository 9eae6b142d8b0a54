//! The sandbox of each role, from the settings: limits, privileges, paths, system calls.
//!
//! A role calls [`enter`] first, opens everything that it needs, and then calls [`close`]. ARCHITECTURE.md shows the result as a
//! table.

use std::io;

use flash_engine::limits::{
    HAND_OVER_BYTES_MAX, HEAD_BYTES_MAX, RECEIVE_BYTES, REPEATED_SHARE, SMALL_FILE_BYTES_MAX,
    SPOOL_MEMORY_BYTES_MAX,
};
use flash_prompt::clock;
use flash_prompt::mechanism::{MechanismKind, SELECT_DESCRIPTORS_MAX};
use flash_prompt::{AsFd, OwnedFd};
use flash_waiting::memory::usable_bytes;
use flash_waiting::sandbox::calls::{self, CallList};
use flash_waiting::sandbox::limits;
use flash_waiting::sandbox::memory;
use flash_waiting::sandbox::paths::{self, Rights};
use flash_waiting::sandbox::privileges::{self, Keep};
use flash_waiting::{account, process};
use flash_worker::control::InForce;

use crate::config::architecture::{self, connections_that_fit, upstream_connections_max};
use crate::config::{SandboxMode, ServerAddress, Service, Settings};
use crate::convert::{DIRECTORY_BYTES, directories_max, names_bytes_max, store_slots_max};
use crate::hot_list::{LINES_MAX, LIST_BYTES_MAX};

/// A process that serves requests or writes their log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Worker,
    Helper,
    Keeper,
    Gateway,
    Watcher,
    Log,
}

/// Memory of a process of Flash besides the amounts below.
const MEMORY_APART_BYTES: u64 = 256 << 20;
/// Maximum memory of a connection, by the engine's bounds: input behind the current request; the head of that
/// request, and its words for the log; and either a part of a file from a helper or a content that the cache has
/// released. The last is for records, response heads and the allocator.
const CONNECTION_BYTES: u64 = RECEIVE_BYTES as u64
    + 2 * HEAD_BYTES_MAX as u64
    + max(HAND_OVER_BYTES_MAX, SMALL_FILE_BYTES_MAX)
    + CONNECTION_APART_BYTES;
const CONNECTION_APART_BYTES: u64 = 8 << 10;
/// Maximum memory of a connection to a server of a route: the bytes that are on their way through the worker, and a
/// piece of a body that a helper has read, with a copy in the framing of the server.
const UPSTREAM_CONNECTION_BYTES: u64 = (128 << 10) + 2 * HAND_OVER_BYTES_MAX;
/// Memory for the request bodies of routes that wait, and for the copies on their way to helpers.
const SPOOL_BYTES: u64 = 2 * SPOOL_MEMORY_BYTES_MAX as u64;
/// Maximum share of the machine's memory for the connections of all workers: few connections use their maximum, and
/// many that do at once are an attack, which then costs a worker and not the machine.
const CONNECTIONS_SHARE: u64 = 2;
/// The minimum for the connections of a worker.
const CONNECTIONS_LEAST_BYTES: u64 = 128 << 20;
/// A worker's own memory for files in the store, response heads and places, as a fraction of the store: a head
/// and its entry take about 1 KiB, and a file worth storing has 16 KiB on average. RLIMIT_DATA does not count the
/// store itself, which is shared.
const STORE_HEADS_SHARE: u64 = 16;
/// No store needs more: the engine bounds heads.
const STORE_HEADS_BYTES_MAX: u64 = 256 << 20;
/// Maximum memory of an entry of a listing: its longest name, encoded, twice in the page.
pub(crate) const LISTING_ENTRY_BYTES: u64 = 4 << 10;
/// Memory of the keeper per block, with room for its tables to grow.
const KEEPER_BYTES_OF_BLOCK: u64 = 512;
/// Memory of the keeper per line of the list of hot files, with room for its table to grow. The paths come on top, and the list.
const KEEPER_BYTES_OF_LINE: u64 = 384;
/// Maximum descriptors of a helper or a log writer, besides the sites' roots.
const DESCRIPTORS: u64 = 1024;

const fn max(a: u64, b: u64) -> u64 {
    if a > b { a } else { b }
}

/// The memory for connections of a worker, also those to the servers of routes, in bytes.
fn connections_bytes(settings: &Settings, descriptors_max: u64, usable_bytes: Option<u64>) -> u64 {
    let asked = architecture::connections_max(settings) as u64;
    let connections = asked.min(connections_that_fit(settings, descriptors_max));
    let share =
        usable_bytes.map(|bytes| bytes / CONNECTIONS_SHARE / architecture::processes(settings) as u64);
    let share = share.unwrap_or(u64::MAX).max(CONNECTIONS_LEAST_BYTES);
    let upstream =
        upstream_connections_max(settings, descriptors_max).saturating_mul(UPSTREAM_CONNECTION_BYTES);
    connections.saturating_mul(CONNECTION_BYTES).saturating_add(upstream).min(share)
}

impl Role {
    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::Worker => "worker",
            Role::Helper => "helper",
            Role::Keeper => "keeper",
            Role::Gateway => "gateway",
            Role::Watcher => "watcher",
            Role::Log => "log",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Role> {
        [Role::Worker, Role::Helper, Role::Keeper, Role::Gateway, Role::Watcher, Role::Log]
            .into_iter()
            .find(|role| role.name() == name)
    }

    /// How much more likely than the supervisor it is killed when memory runs out: a helper's death costs a request,
    /// a worker's more. The kernel adds this to the share of the memory that a process has mapped, in thousandths, and
    /// a worker maps the whole store, whose memory its death would not free. So a helper has more than any worker.
    pub(crate) fn oom_score_shift(self) -> i32 {
        match self {
            Role::Worker | Role::Keeper | Role::Gateway | Role::Watcher | Role::Log => 100,
            Role::Helper => 1_100,
        }
    }

    /// Maximum open descriptors; None for as many as the system allows.
    fn descriptors(self, settings: &Settings) -> Option<u64> {
        match self {
            // So no descriptor has a number that select cannot take.
            Role::Worker if settings.event_mechanism == MechanismKind::Select => Some(SELECT_DESCRIPTORS_MAX),
            Role::Worker => None,
            Role::Helper => Some(DESCRIPTORS + settings.folders().count() as u64),
            // They need only channels and connections.
            Role::Keeper | Role::Gateway => None,
            Role::Log | Role::Watcher => Some(DESCRIPTORS + settings.folders().count() as u64),
        }
    }

    /// Maximum memory in bytes: the need of the settings, but at most its share of a machine with `usable_bytes`, if
    /// that is known. A worker may lock all its memory.
    fn memory_bytes(self, settings: &Settings, descriptors_max: u64, usable_bytes: Option<u64>) -> u64 {
        // Its entries, and the page made from them.
        let listing_bytes = 2 * settings.listing_entries_max as u64 * LISTING_ENTRY_BYTES;
        match self {
            Role::Worker => {
                let heads = settings.cache_memory.bytes_max() / STORE_HEADS_SHARE;
                let connections = connections_bytes(settings, descriptors_max, usable_bytes);
                let names_bytes = names_bytes_max(settings, usable_bytes);
                (MEMORY_APART_BYTES + architecture::memory_bytes(settings, listing_bytes))
                    .saturating_add(names_bytes + names_bytes / REPEATED_SHARE)
                    .saturating_add(if settings.routes().next().is_some() { SPOOL_BYTES } else { 0 })
                    .saturating_add(heads.min(STORE_HEADS_BYTES_MAX))
                    .saturating_add(connections)
            }
            Role::Helper => MEMORY_APART_BYTES + listing_bytes,
            Role::Keeper => {
                let slots = u64::from(store_slots_max(settings.cache_memory.bytes_max()));
                let listed = settings.cache_list.as_ref().map_or(0, |_| slots.min(LINES_MAX as u64));
                let list_bytes =
                    listed * KEEPER_BYTES_OF_LINE + if listed > 0 { 2 * LIST_BYTES_MAX } else { 0 };
                MEMORY_APART_BYTES + slots * KEEPER_BYTES_OF_BLOCK + list_bytes
            }
            // A vector that grows has twice its room for a moment.
            Role::Watcher => MEMORY_APART_BYTES + 2 * directories_max(usable_bytes) as u64 * DIRECTORY_BYTES,
            Role::Gateway | Role::Log => MEMORY_APART_BYTES,
        }
    }

    fn keeps(self, settings: &Settings) -> Keep {
        match self {
            // Helpers of a backend test no residency.
            Role::Helper if matches!(settings.service, Service::Backend(_)) => Keep::Nothing,
            Role::Worker | Role::Helper if settings.cap_fowner => Keep::Fowner,
            Role::Worker | Role::Helper | Role::Keeper | Role::Gateway | Role::Watcher | Role::Log => {
                Keep::Nothing
            }
        }
    }
}

/// Sets the role's limits, changes to the user of the settings (the log writer: to one of its own) and gives up every
/// capability except those of its role. Returns the maximum of open descriptors.
pub(crate) fn enter(role: Role, settings: &Settings) -> io::Result<u64> {
    let descriptors_max = limits::descriptors(role.descriptors(settings))?;
    limits::memory(role.memory_bytes(settings, descriptors_max, usable_bytes()))?;
    if matches!(role, Role::Worker | Role::Keeper) {
        // If this fails, its memory can be paged out like any other. The keeper must be able to give memory back when
        // there is none left for its own code.
        let _ = memory::keep_resident();
    }
    if role == Role::Worker {
        // If this fails, a hit can wait for a moment while helpers and the keeper use the worker's core.
        let _ = process::go_first();
    }
    if role != Role::Log || !became_a_user_of_its_own()? {
        let account = settings.run_as.as_ref().map(crate::config::RunAs::account);
        privileges::become_role(account.as_ref(), role.keeps(settings))?;
    }
    // The kernel forgets this at a change of user.
    process::die_with_parent()?;
    Ok(descriptors_max)
}

/// Becomes a user that no other process has, so that none can signal or trace this one. False if the supervisor cannot end
/// processes of other users, or if no unused user was found.
fn became_a_user_of_its_own() -> io::Result<bool> {
    if !privileges::is_root() || !privileges::may_end_others()? {
        return Ok(false);
    }
    // In a user namespace the number can be missing.
    Ok(account::unused().is_some_and(|own| privileges::become_role(Some(&own), Keep::Nothing).is_ok()))
}

/// Makes the kernel forbid this thread every path except `folders` and every call except `calls`.
///
/// Errors: a kernel feature that is missing and required.
pub(crate) fn close(
    role: Role,
    settings: &Settings,
    folders: &[(&OwnedFd, Rights)],
    calls: CallList,
) -> io::Result<InForce> {
    let mode = settings.sandbox;
    if mode == SandboxMode::Off {
        return Ok(InForce { landlock: None, seccomp: false });
    }
    let required = |what: &str| {
        let why = format!("the sandbox is required, but this kernel has no {what}; see --sandbox");
        if mode == SandboxMode::Required { Err(io::Error::other(why)) } else { Ok(()) }
    };
    // The first clock reading sets up the kernel's page for it, with calls that are on no list.
    let _ = clock::monotonic_ns();
    let folders: Vec<_> = folders.iter().map(|(folder, rights)| (folder.as_fd(), *rights)).collect();
    let landlock = match (role, &settings.service) {
        // It opens paths beneath its clients' roots.
        (Role::Helper, Service::Backend(_)) => paths::restrict_to_reading()?,
        (Role::Gateway, _) => paths::restrict_to_connecting(&tcp_ports(settings))?,
        _ => paths::restrict(&folders)?,
    };
    if landlock.is_none() {
        required("Landlock")?;
    }
    let name = match calls {
        CallList::HelperThread => "helper thread of worker",
        CallList::HandshakeThread => "handshake thread of worker",
        _ => role.name(),
    };
    let who = format!("{name} process {}", std::process::id());
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

fn tcp_ports(settings: &Settings) -> Vec<u16> {
    let servers = settings.routes().flat_map(|route| &route.servers);
    let port = |server: &ServerAddress| match server {
        ServerAddress::Tcp(address) | ServerAddress::Tls(address) => Some(address.port()),
        ServerAddress::Unix(_) | ServerAddress::Program => None,
    };
    servers.filter_map(port).collect()
}

#[cfg(test)]
#[path = "sandbox_tests.rs"]
mod tests;
