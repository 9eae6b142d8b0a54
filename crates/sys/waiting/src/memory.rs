//! How much memory there is for this process, page cache included.

use std::fs::read_to_string;
use std::path::Path;

/// Where control groups are mounted, and what holds a bound there: of version 1 and of version 2.
const MOUNTS: [(&str, &str); 2] =
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];

/// Bytes of memory: those of the machine, or of the control group if that has fewer (cgroups(7)). None
/// where /proc does not tell.
#[must_use]
pub fn usable_bytes() -> Option<u64> {
    let machine = total_bytes(&read_to_string("/proc/meminfo").ok()?)?;
    let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
    Some(MOUNTS.iter().fold(machine, |least, (mount, name)| {
        // A group is bound by those above it, too. In a container the path may be that outside of it, of
        // which only the mount itself is there.
        let folder = group(&groups, *name == "memory.max").unwrap_or_default();
        let below = Path::new(folder.trim_start_matches('/'));
        let bounds = below
            .ancestors()
            .filter_map(|at| bound_bytes(&read_to_string(Path::new(mount).join(at).join(name)).ok()?));
        bounds.fold(least, u64::min)
    }))
}

fn total_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The group of this process, from lines of the form `NUMBER:CONTROLLERS:PATH`.
fn group(groups: &str, unified: bool) -> Option<&str> {
    groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let found =
            if unified { controllers.is_empty() } else { controllers.split(',').any(|c| c == "memory") };
        found.then_some(path)
    })
}

/// None for `max`.
fn bound_bytes(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_tells() {
        assert_eq!(total_bytes("MemTotal:       2048 kB\nMemFree: 1 kB\n"), Some(2 << 20));
        assert_eq!(total_bytes("MemFree: 1 kB\n"), None);
        assert!(usable_bytes().is_none_or(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn groups_of_both_versions() {
        let both = "5:cpu,memory:/a/b\n4:cpu:/c\n0::/d\n";
        assert_eq!((group(both, false), group(both, true)), (Some("/a/b"), Some("/d")));
        assert_eq!((group("0::/", false), group("junk\n", true)), (None, None));
        assert_eq!((bound_bytes("1024\n"), bound_bytes("max\n")), (Some(1024), None));
    }
}
