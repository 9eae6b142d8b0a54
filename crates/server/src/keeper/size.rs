//! The size of a store that follows the memory: it shrinks while memory is tight, and grows again afterwards.

use flash_waiting::pressure::Pressure;

/// The interval between two checks of the memory.
pub(super) const LOOK_MS: u64 = 1_000;
/// Memory is tight when less than this fraction is available without swapping.
const AVAILABLE_PART: u64 = 40;
/// Memory is also tight when less than this fraction is available and tasks wait for it for more than this share of
/// the time. The wait alone proves nothing: when page cache fills the memory, readers of files always wait for some
/// of it to be dropped, and would fill whatever the store gave back.
const STALLED_PART: u64 = 10;
const STALLED_SHARE: f64 = 0.05;
/// The store never shrinks below this size.
pub(super) const LEAST_BYTES: u64 = 16 << 20;

/// The next size of the store in bytes: `now_bytes` is its current maximum, `held_bytes` its memory, `most_bytes` the
/// upper bound.
pub(super) fn next_bytes(pressure: &Pressure, now_bytes: u64, held_bytes: u64, most_bytes: u64) -> u64 {
    let has_less_than = |part: u64| {
        let both = pressure.available_bytes.zip(pressure.total_bytes);
        both.is_some_and(|(available, total)| available < total / part)
    };
    let stalls = pressure.stalled_share.is_some_and(|share| share > STALLED_SHARE);
    if has_less_than(AVAILABLE_PART) || (stalls && has_less_than(STALLED_PART)) {
        // An eighth per second gives back half of it in five seconds.
        now_bytes.min(held_bytes - held_bytes / 8).max(LEAST_BYTES.min(most_bytes))
    } else {
        (now_bytes + now_bytes / 64).min(most_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const EASY: Pressure = Pressure {
        stalled_share: Some(0.0),
        available_bytes: Some(500 * MIB),
        total_bytes: Some(1000 * MIB),
    };

    #[test]
    fn it_gives_back_while_memory_is_tight_and_grows_again() {
        let tight = [
            Pressure { stalled_share: Some(0.2), available_bytes: Some(90 * MIB), ..EASY },
            Pressure { available_bytes: Some(20 * MIB), ..EASY },
        ];
        for pressure in tight {
            let mut bytes = 400 * MIB;
            for _ in 0..6 {
                bytes = next_bytes(&pressure, bytes, bytes, 400 * MIB);
            }
            assert!(bytes < 200 * MIB, "{bytes}");
            for _ in 0..100 {
                bytes = next_bytes(&pressure, bytes, bytes, 400 * MIB);
            }
            assert_eq!(bytes, LEAST_BYTES);
            for _ in 0..1_000 {
                bytes = next_bytes(&EASY, bytes, bytes, 400 * MIB);
            }
            assert_eq!(bytes, 400 * MIB);
        }
    }

    #[test]
    fn what_is_not_told_is_not_tight_and_a_store_that_is_not_full_stays_so() {
        assert_eq!(next_bytes(&Pressure::default(), 100, 50, 100), 100);
        let full = Pressure { stalled_share: Some(1.0), ..EASY };
        assert_eq!(next_bytes(&full, 400 * MIB, 400 * MIB, 400 * MIB), 400 * MIB, "page cache can go");
        let tight = Pressure { available_bytes: Some(MIB), ..EASY };
        assert_eq!(next_bytes(&tight, 400 * MIB, 80 * MIB, 400 * MIB), 70 * MIB);
        assert_eq!(next_bytes(&tight, 4 * MIB, 4 * MIB, 4 * MIB), 4 * MIB, "smaller than the least");
    }
}
