//! Tests of a worker's memory limit, by settings and machine.

use super::*;
use crate::config::{Architecture, CacheMemory};

const MIB: u64 = 1 << 20;

fn settings() -> Settings {
    let sources = crate::config::Sources {
        cli: crate::config::Overrides::default(),
        env: Vec::new(),
        cwd: std::env::temp_dir(),
    };
    let mut settings = sources.load().expect("the defaults");
    (settings.cache_memory, settings.workers, settings.connections_max) = (store(1024), 2, 16_384);
    settings
}

fn store(mib: u64) -> CacheMemory {
    CacheMemory::Fixed { bytes: mib * MIB, asked_bytes: mib * MIB }
}

/// Memory of a worker with the store of `settings`, 1 GiB, without its connections, in MiB: names have 128, repeated
/// requests a quarter of that, heads 64.
const OWN_MIB: u64 = 256 + 160 + 64;

/// The limit of a worker, in MiB.
fn mib(settings: &Settings, descriptors_max: u64, usable_mib: Option<u64>) -> u64 {
    Role::Worker.memory_bytes(settings, descriptors_max, usable_mib.map(|mib| mib * MIB)) / MIB
}

#[test]
fn a_connection_can_hold_what_the_engine_lets_it() {
    assert_eq!(CONNECTION_BYTES / 1024, 64 + 2 * 32 + 128 + 8);
}

#[test]
fn a_workers_memory_follows_from_what_it_can_have() {
    let settings = settings();
    // Memory for all connections, on a large machine or one of unknown size.
    let all = OWN_MIB + 16_384 * 264 / 1024;
    assert_eq!(mib(&settings, 1 << 20, Some(1 << 20)), all);
    assert_eq!(mib(&settings, 1 << 20, None), all);
    // Descriptors for fewer connections.
    let few = connections_that_fit(&settings, 4096);
    assert!(few < 4096);
    assert_eq!(mib(&settings, 4096, Some(1 << 20)), OWN_MIB + few * 264 / 1024);
    // Half of 4 GiB for two workers; the minimum on a machine that is too small.
    assert_eq!(mib(&settings, 1 << 20, Some(4096)), OWN_MIB + 1024);
    // There, two workers' names have 16 MiB each instead of 128, and repeated requests 4 instead of 32.
    assert_eq!(mib(&settings, 1 << 20, Some(256)), OWN_MIB - 140 + 128);
}

#[test]
fn a_worker_has_room_for_its_heads_and_not_for_the_store() {
    let mut settings = settings();
    let least = 256 + 128;
    // Names follow the store, within an eighth of the memory for two workers.
    for (store_mib, names_mib, heads_mib) in
        [(0, 32, 0), (16, 32, 1), (512, 64, 32), (1024, 128, 64), (4096, 128, 256), (1 << 20, 128, 256)]
    {
        settings.cache_memory = store(store_mib);
        for (usable_mib, names_mib) in [(512, names_mib.min(32)), (256, 16)] {
            let expected = least + names_mib + names_mib / 4 + heads_mib;
            assert_eq!(mib(&settings, 1 << 20, Some(usable_mib)), expected, "{store_mib} MiB");
        }
    }
}

#[test]
fn who_has_one_connection_has_memory_for_one() {
    let mut settings = settings();
    settings.architecture = Architecture::Mp;
    settings.listing_entries_max = 1;
    assert_eq!(mib(&settings, 1 << 20, Some(1 << 20)), OWN_MIB);
}

#[test]
fn a_helper_is_killed_before_any_other_process() {
    let others = [Role::Worker, Role::Keeper, Role::Gateway, Role::Watcher, Role::Log];
    // All memory that a worker has mapped counts 1,000 at most.
    let most = others.map(|role| role.oom_score_shift() + 1_000).into_iter().max();
    assert!(Some(Role::Helper.oom_score_shift()) >= most);
}
