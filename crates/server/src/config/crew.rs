//! How many processes fit in a small control group, and the memory that they can come to need.
//!
//! Called by `config::resolve`, which passes the available memory. It must not look at the machine.

use flash_waiting::memory::Usable;

use super::memory::rounded_text;

const MIB: u64 = 1 << 20;
/// The part of a control group that each worker must have. A worker's own memory is less (below); the rest is for its
/// helpers, for the next configuration's processes while the old ones end, for its connections and its files' names.
const GROUP_BYTES_OF_WORKER: u64 = 16 * MIB;
/// The fraction of a control group for all helpers of one configuration.
const HELPERS_SHARE: u64 = 8;
/// A worker's own memory before it has connections, with the kernel's memory for it. RLIMIT_DATA bounds the rest.
const WORKER_BYTES: u64 = 3 * MIB;
/// A helper's memory at work, with the kernel's memory for it: about 1.4 MB.
const HELPER_BYTES: u64 = 3 * MIB / 2;
/// The memory of the supervisor, the keeper, the gateway and the log writer, and of the program's code.
const OTHERS_BYTES: u64 = 16 * MIB;
/// A reload starts the processes of the next configuration before those of the old one end.
const CONFIGURATIONS: u64 = 2;

/// The numbers of processes of one configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Crew {
    /// Workers, or the processes of `mp`.
    pub(super) workers: usize,
    /// Maximum helpers of each worker; 0 for an architecture without helpers.
    pub(super) helpers_max: usize,
}

impl Crew {
    /// As many of these processes as fit. Only a control group has too little memory: on a machine the kernel can take
    /// some from others.
    pub(super) fn that_fits(self, usable: Option<Usable>) -> Crew {
        let Some(Usable::Group { bytes }) = usable else { return self };
        let at_most = |asked: usize, most: u64| asked.min(usize::try_from(most.max(1)).unwrap_or(usize::MAX));
        let workers = at_most(self.workers, bytes / GROUP_BYTES_OF_WORKER);
        let helpers_max = at_most(self.helpers_max, bytes / HELPERS_SHARE / HELPER_BYTES / workers as u64);
        Crew { workers, helpers_max }
    }

    /// Memory that these processes can come to need, in bytes.
    pub(super) fn bytes(self) -> u64 {
        let of_worker = WORKER_BYTES + self.helpers_max as u64 * HELPER_BYTES;
        OTHERS_BYTES + CONFIGURATIONS * self.workers as u64 * of_worker
    }
}

/// The startup warning that a number in the settings is more than a small control group can have.
pub(super) fn warning(name: &str, asked: u64, number: usize, group_bytes: u64) -> Option<String> {
    (asked > number as u64).then(|| {
        format!(
            "{name} is lowered from {asked} to {number}: this control group has {} of memory, and more processes could \
             use it up",
            rounded_text(group_bytes)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(mib: u64) -> Option<Usable> {
        Some(Usable::Group { bytes: mib * MIB })
    }

    #[test]
    fn a_crew_and_its_successor_fit_in_every_group() {
        for mib in [64, 96, 128, 256, 512, 1024, 8192] {
            for workers in [1, 2, 8, 16, 256] {
                let crew = Crew { workers, helpers_max: 16 }.that_fits(group(mib));
                assert!((1..=workers).contains(&crew.workers) && (1..=16).contains(&crew.helpers_max));
                // The rest is for the store and for everything that nobody can know.
                let most = mib * MIB / 16 * 13;
                assert!(
                    crew.bytes() <= most,
                    "{mib} MiB, {workers} workers: {crew:?}, {} bytes",
                    crew.bytes()
                );
            }
        }
    }

    #[test]
    fn only_small_groups_have_fewer_processes() {
        let asked = Crew { workers: 16, helpers_max: 16 };
        assert_eq!(asked.that_fits(group(64)), Crew { workers: 4, helpers_max: 1 });
        assert_eq!(asked.that_fits(group(512)), Crew { workers: 16, helpers_max: 2 });
        assert_eq!(asked.that_fits(group(8192)), asked);
        for usable in [None, Some(Usable::Machine { bytes: 64 * MIB })] {
            assert_eq!(asked.that_fits(usable), asked);
        }
        let one = Crew { workers: 2, helpers_max: 0 };
        assert_eq!(one.that_fits(group(64)), one, "an architecture without helpers");
        assert_eq!(Crew { workers: 1, ..asked }.that_fits(group(4)), Crew { workers: 1, helpers_max: 1 });
    }

    #[test]
    fn a_number_that_was_lowered_is_reported() {
        assert_eq!(warning("workers", 16, 16, 64 * MIB), None);
        let text = warning("workers", 16, 4, 64 * MIB).unwrap();
        assert!(text.starts_with("workers is lowered from 16 to 4: this control group has 64MiB"), "{text}");
    }
}
