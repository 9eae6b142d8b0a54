//! The size of a store that follows the memory: it gives back what others need before the memory is full, and grows
//! again afterwards.
//!
//! The less memory is left, the more often the keeper looks. Triggers of pressure stall information come when tasks already
//! wait, need rights that the keeper has given up, and do not exist for control groups of version 1.

use flash_waiting::pressure::Pressure;

const MIB: u64 = 1 << 20;

/// The longest interval between two checks of the memory, also that of the figures for the supervisor.
pub(super) const LOOK_MS: u64 = 1_000;
/// The shortest: a check makes a few system calls for each control group.
const LOOK_MS_LEAST: u64 = 20;
/// Nobody is expected to take memory faster, in bytes per millisecond: the next check comes before it could all be used.
const TAKEN_BYTES_PER_MS: u64 = MIB;

/// The memory that must stay available is this fraction of it, but at most [`SPARE_BYTES`]...
const SPARE_PART: u64 = 8;
/// ... which lasts until several checks later.
const SPARE_BYTES: u64 = 64 * MIB;
/// ... and at least this fraction.
const SPARE_PART_LEAST: u64 = 40;
/// The fraction that must stay available while tasks wait for memory for more than this share of the time. The wait
/// alone proves nothing: when page cache fills the memory, readers of files always wait for some of it to be dropped,
/// and would fill whatever the store gave back.
const STALLED_PART: u64 = 10;
const STALLED_SHARE: f64 = 0.05;

/// The store never shrinks below this size ...
pub(super) const LEAST_BYTES: u64 = 16 * MIB;
/// ... or, if that is less, below this fraction of the memory.
const LEAST_PART: u64 = 16;

/// The next size of the store in bytes: `now_bytes` is its current maximum, `held_bytes` its memory, `most_bytes` the
/// upper bound.
pub(super) fn next_bytes(pressure: &Pressure, now_bytes: u64, held_bytes: u64, most_bytes: u64) -> u64 {
    let (Some(available), Some(total)) = (pressure.available_bytes, pressure.total_bytes) else {
        // Nothing is known but that the system once refused memory.
        return (now_bytes + now_bytes / 64).min(most_bytes);
    };
    let spare = spare_bytes(total, pressure.stalled_share.unwrap_or(0.0));
    let least = LEAST_BYTES.min(total / LEAST_PART).min(most_bytes);
    // It gives back all that is missing, but grows by half of the rest: others may take memory until the next check.
    let missing = spare.saturating_sub(available);
    let bytes = (held_bytes + available.saturating_sub(spare) / 2).saturating_sub(missing);
    bytes.clamp(least, most_bytes)
}

/// The memory that must stay available.
fn spare_bytes(total_bytes: u64, stalled_share: f64) -> u64 {
    let spare = (total_bytes / SPARE_PART).min(SPARE_BYTES).max(total_bytes / SPARE_PART_LEAST);
    if stalled_share > STALLED_SHARE { spare.max(total_bytes / STALLED_PART) } else { spare }
}

/// The time until the next check, in milliseconds: the less memory is available, the shorter.
pub(super) fn next_look_ms(pressure: &Pressure) -> u64 {
    let available = pressure.available_bytes.unwrap_or(u64::MAX);
    (available / TAKEN_BYTES_PER_MS).clamp(LOOK_MS_LEAST, LOOK_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressure(available_mib: u64, total_mib: u64) -> Pressure {
        Pressure {
            stalled_share: Some(0.0),
            available_bytes: Some(available_mib * MIB),
            total_bytes: Some(total_mib * MIB),
        }
    }

    #[test]
    fn a_neighbour_that_grows_gets_its_memory_before_the_group_is_full() {
        // 250 MB at 190 MB/s in a group of 512 MiB, of which the processes of Flash have 60.
        let (total, most) = (512, 384 * MIB);
        let (mut now_bytes, mut held_bytes, mut now_ms) = (most, most, 0);
        let mut lowest = u64::MAX;
        while now_ms < 5_000 {
            let neighbour = (now_ms * 190 / 1_000).min(250) * MIB;
            let available = (total * MIB).saturating_sub(60 * MIB + held_bytes + neighbour);
            lowest = lowest.min(available);
            let pressure = pressure(available / MIB, total);
            now_bytes = next_bytes(&pressure, now_bytes, held_bytes, most);
            // Evicting is fast, and requests fill all that they may.
            held_bytes = now_bytes;
            now_ms += next_look_ms(&pressure);
        }
        assert!(lowest > 40 * MIB, "{lowest}");
        // It has what is left, and all of it when the neighbour has ended.
        assert!((130 * MIB..150 * MIB).contains(&held_bytes), "{held_bytes}");
        for _ in 0..60 {
            let available = (total * MIB).saturating_sub(60 * MIB + held_bytes);
            held_bytes = next_bytes(&pressure(available / MIB, total), held_bytes, held_bytes, most);
        }
        assert!(held_bytes > 380 * MIB, "{held_bytes}");
    }

    #[test]
    fn a_store_grows_only_where_memory_is_available() {
        // A store that may have 48 MiB of a group of 64 where processes have 40.
        let mut held = 0;
        for _ in 0..100 {
            let available = 24 * MIB - held;
            held = next_bytes(&pressure(available / MIB, 64), 48 * MIB, held, 48 * MIB);
            assert!(24 * MIB - held >= 7 * MIB, "{held}");
        }
        assert!(held >= 14 * MIB, "{held}");
        assert_eq!(next_bytes(&pressure(0, 64), held, held, 48 * MIB), held - 8 * MIB, "all that is missing");
        assert_eq!(next_bytes(&pressure(0, 64), held, MIB, 48 * MIB), 4 * MIB, "the least");
        assert_eq!(next_bytes(&pressure(0, 4096), 0, MIB, 48 * MIB), LEAST_BYTES);
        assert_eq!(next_bytes(&pressure(0, 4096), 0, MIB, 2 * MIB), 2 * MIB, "smaller than the least");
    }

    #[test]
    fn the_spare_memory_follows_the_size_and_stalls() {
        for (total_mib, spare_mib) in [(64, 8), (256, 32), (512, 64), (2_048, 64), (8_000, 200)] {
            assert_eq!(spare_bytes(total_mib * MIB, 0.0), spare_mib * MIB);
        }
        assert_eq!(spare_bytes(8_000 * MIB, 0.2), 800 * MIB);
        assert_eq!(spare_bytes(64 * MIB, 0.2), 8 * MIB);
        let stalled = Pressure { stalled_share: Some(1.0), ..pressure(4_000, 8_000) };
        assert_eq!(next_bytes(&stalled, 400 * MIB, 400 * MIB, 400 * MIB), 400 * MIB, "page cache can go");
    }

    #[test]
    fn memory_of_unknown_size_is_not_short_and_is_seldom_looked_at() {
        assert_eq!(next_bytes(&Pressure::default(), 100, 50, 100), 100);
        assert_eq!(next_bytes(&Pressure::default(), 640, 50, 1_000), 650);
        assert_eq!(next_look_ms(&Pressure::default()), LOOK_MS);
        assert_eq!([8, 64, 5_000].map(|mib| next_look_ms(&pressure(mib, 8_000))), [20, 64, LOOK_MS]);
    }
}
