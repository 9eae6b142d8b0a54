//! How much memory this process can use, including the page cache.

use std::fs::read_to_string;
use std::path::Path;

/// Where control groups are mounted, and the files that contain a limit: one of version 1, and two of version
/// 2. A group beyond `memory.high` is not killed but slowed down until it is below it again.
pub(super) const MOUNTS: [(&str, &str); 3] = [
    ("/sys/fs/cgroup/memory", OF_VERSION_1),
    ("/sys/fs/cgroup", "memory.max"),
    ("/sys/fs/cgroup", "memory.high"),
];
const OF_VERSION_1: &str = "memory.limit_in_bytes";

/// The memory that this process can use, and whose limit that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usable {
    /// All memory of the machine, which other programs use too.
    Machine {
        /// The size of the memory.
        bytes: u64,
    },
    /// The memory of a control group, which has less than the machine (cgroups(7)).
    Group {
        /// The lowest limit of the group and of the groups above it.
        bytes: u64,
    },
}

impl Usable {
    /// The size of the memory.
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            Usable::Machine { bytes } | Usable::Group { bytes } => bytes,
        }
    }

    /// The memory on a machine of this size, given the groups' limits.
    fn bound(machine_bytes: u64, bounds_bytes: impl Iterator<Item = u64>) -> Usable {
        match bounds_bytes.min() {
            Some(bytes) if bytes < machine_bytes => Usable::Group { bytes },
            _ => Usable::Machine { bytes: machine_bytes },
        }
    }
}

/// The bytes of [`usable`].
#[must_use]
pub fn usable_bytes() -> Option<u64> {
    usable().map(Usable::bytes)
}

/// The memory of the machine, or of the control group if that has less (cgroups(7)). None if /proc does not
/// report it.
#[must_use]
pub fn usable() -> Option<Usable> {
    let machine_bytes = total_bytes(&read_to_string("/proc/meminfo").ok()?)?;
    let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let bounds_bytes = MOUNTS.iter().flat_map(|(mount, name)| {
        // The limits of the groups above apply too. In a container, the path can be the one outside of it,
        // where only the mount itself exists.
        let folder = group(&groups, *name != OF_VERSION_1).unwrap_or_default();
        let below = Path::new(folder.trim_start_matches('/'));
        let files = below.ancestors().map(|at| Path::new(mount).join(at).join(name));
        files.filter_map(|file| bound_bytes(&read_to_string(file).ok()?)).collect::<Vec<_>>()
    });
    Some(Usable::bound(machine_bytes, bounds_bytes))
}

fn total_bytes(meminfo: &str) -> Option<u64> {
    field_bytes(meminfo, "MemTotal:")
}

/// The value of a line of /proc/meminfo.
pub(super) fn field_bytes(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The group of this process, from lines of the form `NUMBER:CONTROLLERS:PATH`.
pub(super) fn group(groups: &str, unified: bool) -> Option<&str> {
    groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let found =
            if unified { controllers.is_empty() } else { controllers.split(',').any(|c| c == "memory") };
        found.then_some(path)
    })
}

/// A limit; None for `max`.
pub(super) fn bound_bytes(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_this_machine_is_known() {
        assert_eq!(total_bytes("MemTotal:       2048 kB\nMemFree: 1 kB\n"), Some(2 << 20));
        assert_eq!(total_bytes("MemFree: 1 kB\n"), None);
        assert!(usable_bytes().is_none_or(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn the_lowest_limit_counts_and_its_owner_is_known() {
        let group = |bytes| Usable::Group { bytes };
        let machine = Usable::Machine { bytes: 100 };
        assert_eq!(Usable::bound(100, [70, 50, 90].into_iter()), group(50));
        assert_eq!(
            Usable::bound(100, [100, 200].into_iter()),
            machine,
            "the limit is not below the machine's memory"
        );
        assert_eq!(Usable::bound(100, [].into_iter()), machine);
        assert_eq!((machine.bytes(), group(7).bytes()), (100, 7));
    }

    #[test]
    fn groups_of_both_versions_are_found() {
        let both = "5:cpu,memory:/a/b\n4:cpu:/c\n0::/d\n";
        assert_eq!((group(both, false), group(both, true)), (Some("/a/b"), Some("/d")));
        assert_eq!((group("0::/", false), group("junk\n", true)), (None, None));
        assert_eq!((bound_bytes("1024\n"), bound_bytes("max\n")), (Some(1024), None));
    }
}
