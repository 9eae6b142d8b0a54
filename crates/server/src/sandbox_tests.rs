//! The memory that a worker gets, by its settings and the machine.

use super::*;
use crate::config::Architecture;

const MIB: u64 = 1 << 20;

fn settings() -> Settings {
    let sources = crate::config::Sources {
        cli: crate::config::Overrides::default(),
        env: Vec::new(),
        cwd: std::env::temp_dir(),
    };
    let mut settings = sources.load().expect("the defaults");
    (settings.cache_memory_bytes, settings.workers, settings.connections_max) = (64 * MIB, 2, 16_384);
    settings
}

/// A worker's, in MiB.
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
    // Room for all connections, on a machine that is large enough, or of which nothing is known.
    let all = 256 + 96 + 16_384 * 264 / 1024;
    assert_eq!(mib(&settings, 1 << 20, Some(1 << 20)), all);
    assert_eq!(mib(&settings, 1 << 20, None), all);
    // Descriptors for fewer of them.
    let few = connections_that_fit(&settings, 4096);
    assert!(few < 4096);
    assert_eq!(mib(&settings, 4096, Some(1 << 20)), 256 + 96 + few * 264 / 1024);
    // Half of 4 GiB for two workers, and of one that is too small the least.
    assert_eq!(mib(&settings, 1 << 20, Some(4096)), 256 + 96 + 1024);
    assert_eq!(mib(&settings, 1 << 20, Some(256)), 256 + 96 + 128);
}

#[test]
fn who_has_one_connection_has_memory_for_one() {
    let mut settings = settings();
    settings.architecture = Architecture::Mp;
    settings.listing_entries_max = 1;
    assert_eq!(mib(&settings, 1 << 20, Some(1 << 20)), 256 + 96);
}
