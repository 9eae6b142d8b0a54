//! The size of the store, computed from the settings and the available memory.
//!
//! Called by `config::resolve`, which passes the available memory. It must not look at the machine.

use flash_units::size_text;
use flash_waiting::memory::Usable;
use serde::{Deserialize, Serialize};

use super::values::Auto;

/// The default size of the store if /proc does not report the memory.
const UNKNOWN_BYTES: u64 = 64 << 20;
/// Memory of a control group that a store of a fixed size leaves: for the processes, their connections and the kernel's
/// buffers, which the group is charged for too. Without it, the kernel kills one process of Flash after the other.
const LEFT_BYTES: u64 = 64 << 20;

/// The default leaves at least this fraction of a control group, and is at least as much.
const GROUP_PART: u64 = 8;

/// The size of the store, which all workers share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum CacheMemory {
    /// The size follows the available memory.
    Auto {
        /// The maximum size in bytes.
        bytes_max: u64,
    },
    /// The size was given.
    Fixed {
        /// The maximum size in bytes; 0 for no store.
        bytes: u64,
        /// The given size in bytes, which is larger if it does not fit in memory.
        asked_bytes: u64,
    },
}

impl Default for CacheMemory {
    fn default() -> Self {
        CacheMemory::OFF
    }
}

impl CacheMemory {
    /// No store.
    pub(super) const OFF: CacheMemory = CacheMemory::Fixed { bytes: 0, asked_bytes: 0 };

    /// The size for the given setting, within the available memory, if that is known.
    /// `processes_bytes` is the memory that the processes can come to need.
    pub(super) fn of(asked: Auto<u64>, usable: Option<Usable>, processes_bytes: u64) -> CacheMemory {
        match asked {
            Auto::Auto => {
                let bytes_max = usable.map_or(UNKNOWN_BYTES, |usable| auto_bytes(usable, processes_bytes));
                CacheMemory::Auto { bytes_max }
            }
            Auto::Given(asked_bytes) => {
                let most_bytes = usable.map_or(u64::MAX, |usable| most_bytes(usable.bytes()));
                CacheMemory::Fixed { bytes: asked_bytes.min(most_bytes), asked_bytes }
            }
        }
    }

    /// The setting that leads to this size.
    pub(super) fn asked(self) -> Auto<u64> {
        match self {
            CacheMemory::Auto { .. } => Auto::Auto,
            CacheMemory::Fixed { asked_bytes, .. } => Auto::Given(asked_bytes),
        }
    }

    /// The maximum size of the store in bytes; 0 for no store.
    #[must_use]
    pub fn bytes_max(self) -> u64 {
        match self {
            CacheMemory::Auto { bytes_max } => bytes_max,
            CacheMemory::Fixed { bytes, .. } => bytes,
        }
    }

    /// The startup warning that the store is smaller than the given size, or that there is none.
    pub(super) fn warning(self) -> Option<String> {
        match self {
            CacheMemory::Fixed { bytes, asked_bytes } if bytes < asked_bytes => Some(format!(
                "cache_memory is lowered from {} to {}: at most 90 % of the memory of this machine or control group, and {} \
                 less than all of it",
                size_text(asked_bytes),
                rounded_text(bytes),
                size_text(LEFT_BYTES)
            )),
            _ => None,
        }
    }
}

/// The default. A machine has other programs; a control group with its own limit exists for Flash. The keeper of the
/// store keeps it smaller while other memory is in use.
fn auto_bytes(usable: Usable, processes_bytes: u64) -> u64 {
    match usable {
        Usable::Machine { bytes } => bytes / 2,
        Usable::Group { bytes } => {
            let left_bytes = bytes.saturating_sub(processes_bytes);
            (bytes - bytes / GROUP_PART).min(left_bytes).max(bytes / GROUP_PART)
        }
    }
}

/// The maximum of a given size: with more, the kernel would kill a process of Flash.
fn most_bytes(usable_bytes: u64) -> u64 {
    (usable_bytes / 10 * 9).min(usable_bytes.saturating_sub(LEFT_BYTES))
}

/// A readable size, in whole MiB if it has any.
pub(crate) fn rounded_text(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    size_text(if bytes < MIB { bytes } else { bytes / MIB * MIB })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn machine(mib: u64) -> Option<Usable> {
        Some(Usable::Machine { bytes: mib * MIB })
    }

    fn group(mib: u64) -> Option<Usable> {
        Some(Usable::Group { bytes: mib * MIB })
    }

    #[test]
    fn auto_follows_the_memory_and_whose_it_is() {
        for (usable, expected_mib) in [
            (machine(8192), 4096),
            (machine(512), 256),
            (group(512), 448),
            // Seven eighths would leave less than the processes need.
            (group(128), 68),
            (group(64), 8),
            (group(16), 2),
            (None, 64),
        ] {
            let found = CacheMemory::of(Auto::Auto, usable, 60 * MIB);
            assert_eq!(found, CacheMemory::Auto { bytes_max: expected_mib * MIB }, "{usable:?}");
            assert_eq!((found.bytes_max(), found.warning()), (expected_mib * MIB, None));
        }
    }

    #[test]
    fn a_size_that_does_not_fit_is_lowered_and_said() {
        let fixed = |mib, usable| CacheMemory::of(Auto::Given(mib * MIB), usable, 0);
        for usable in [machine(1000), group(1000)] {
            assert_eq!(fixed(900, usable).bytes_max(), 900 * MIB);
            assert_eq!(fixed(900, usable).warning(), None);
            let lowered = fixed(2048, usable);
            assert_eq!(lowered.bytes_max(), 900 * MIB);
            let text = lowered.warning().unwrap();
            assert!(text.contains("cache_memory is lowered from 2GiB to 900MiB: "), "{text}");
        }
        assert_eq!(fixed(2048, None).bytes_max(), 2048 * MIB, "nothing is known of the memory");
        // The processes need some of it, too.
        assert_eq!((fixed(2048, group(100)).bytes_max(), fixed(2048, group(60)).bytes_max()), (36 * MIB, 0));
        assert_eq!((fixed(0, group(16)), fixed(0, None)), (CacheMemory::OFF, CacheMemory::OFF));
        assert_eq!(CacheMemory::OFF.warning(), None);
    }
}
