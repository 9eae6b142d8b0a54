//! Measures memory pressure, for the keeper, which returns memory of the store in time.
//!
//! All files are opened at the start, while the process can still open files; later they are only read, by
//! pread(2). If a file is missing or has unexpected contents, its value is None.

use std::fs::{File, read_to_string};
use std::io;
use std::path::Path;

use super::memory::{MOUNTS, bound_bytes, field_bytes, group};

/// The state of the system's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// The share of time, over about the last ten seconds, in which no task could run for lack of memory: 0
    /// to 1 (`full avg10` of pressure stall information). The larger of the machine's and the control
    /// group's.
    pub stalled_share: Option<f64>,
    /// About how many bytes could be used without swapping: free memory, plus page cache that could be
    /// dropped. The lowest of the machine's and of this process's control groups'.
    pub available_bytes: Option<u64>,
    /// Total bytes of memory, of the machine or of the control group with the lowest limit.
    pub total_bytes: Option<u64>,
}

/// The open files with these values.
#[derive(Debug)]
pub struct PressureFiles {
    /// Pressure files of the machine and of the control group.
    stalls: Vec<File>,
    meminfo: Option<File>,
    /// The control group of this process and the groups above it that can have a limit.
    levels: Vec<Level>,
    text: Vec<u8>,
}

#[derive(Debug)]
struct Level {
    limit: File,
    usage: File,
    stat: Option<File>,
}

/// The name of the file with a control group's usage, in version 1 and version 2, in the order of [`MOUNTS`].
const USAGES: [&str; 2] = ["memory.usage_in_bytes", "memory.current"];

/// Maximum number of control groups that are read, from that of this process upwards.
const LEVELS_MAX: usize = 16;

/// The longest file, memory.stat, has 2 to 4 KB. In the other files, only the start is needed.
const TEXT_BYTES_MAX: usize = 16 * 1024;

impl PressureFiles {
    /// Opens the files that exist.
    #[must_use]
    pub fn open() -> Self {
        Self::open_in(Path::new("/"))
    }

    /// Opens the files that exist under `root`.
    fn open_in(root: &Path) -> Self {
        let mut files = Self {
            stalls: File::open(root.join("proc/pressure/memory")).into_iter().collect(),
            meminfo: File::open(root.join("proc/meminfo")).ok(),
            levels: Vec::new(),
            text: vec![0; TEXT_BYTES_MAX],
        };
        let groups = read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        for ((mount, limit), usage) in MOUNTS.into_iter().zip(USAGES) {
            let mount = root.join(mount.trim_start_matches('/'));
            // In a container, the path can be the one outside of it, where only the mount itself exists.
            let folder = group(&groups, limit == "memory.max").unwrap_or_default();
            let mut above = Path::new(folder.trim_start_matches('/')).ancestors();
            let Some(own) = above.find(|at| mount.join(at).join(limit).exists()) else { continue };
            let own = mount.join(own);
            files.stalls.extend(File::open(own.join("memory.pressure")));
            let levels = own.ancestors().take_while(|at| at.starts_with(&mount)).take(LEVELS_MAX);
            files.levels.extend(levels.filter_map(|at| {
                let (limit, usage) = (File::open(at.join(limit)).ok()?, File::open(at.join(usage)).ok()?);
                Some(Level { limit, usage, stat: File::open(at.join("memory.stat")).ok() })
            }));
        }
        files
    }

    /// Reads the present values. Makes one or two pread(2) calls for each file and does not wait for a disk.
    pub fn look(&mut self) -> Pressure {
        let text = &mut self.text;
        let stalls = self.stalls.iter().filter_map(|file| full_share(read(file, text)?));
        let stalled_share = stalls.reduce(f64::max);
        let meminfo = self.meminfo.as_ref().and_then(|file| read(file, text)).unwrap_or_default();
        let mut available_bytes = field_bytes(meminfo, "MemAvailable:");
        let mut total_bytes = field_bytes(meminfo, "MemTotal:");
        for level in &self.levels {
            let Some(limit) = read(&level.limit, text).and_then(bound_bytes) else { continue };
            if total_bytes.is_none_or(|total| limit < total) {
                total_bytes = Some(limit);
            }
            let Some(usage) = read(&level.usage, text).and_then(bound_bytes) else { continue };
            let cache = level.stat.as_ref().and_then(|file| read(file, text)).map_or(0, cache_bytes);
            let rest = limit.saturating_sub(usage.saturating_sub(cache));
            if available_bytes.is_none_or(|available| rest < available) {
                available_bytes = Some(rest);
            }
        }
        Pressure { stalled_share, available_bytes, total_bytes }
    }
}

/// Reads a file from its start, as far as `text` has room.
fn read<'text>(file: &File, text: &'text mut [u8]) -> Option<&'text str> {
    let mut length = 0;
    while length < text.len() {
        match std::os::unix::fs::FileExt::read_at(file, &mut text[length..], length as u64) {
            Ok(0) => break,
            Ok(n) => length += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    std::str::from_utf8(&text[..length]).ok()
}

/// `avg10` of the line `full`, as a share of 1 (Documentation/accounting/psi.rst of the kernel).
fn full_share(pressure: &str) -> Option<f64> {
    let line = pressure.lines().find_map(|line| line.strip_prefix("full "))?;
    let average = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("avg10="))?;
    let percent = average.parse::<f64>().ok().filter(|percent| percent.is_finite())?;
    Some((percent / 100.0).clamp(0.0, 1.0))
}

/// The part of a group's usage that the kernel can drop: the page cache of files, without locked pages and memory
/// files (such as the store), and in version 2 the caches of names and inodes. In version 1, the lines that begin with
/// `total_` include the groups below, and no line counts names and inodes.
fn cache_bytes(stat: &str) -> u64 {
    let sum = |names: [&str; 2]| {
        let [inactive, active] = names.map(|name| line_value(stat, name));
        Some(inactive?.saturating_add(active?))
    };
    let files = sum(["total_inactive_file", "total_active_file"])
        .or_else(|| sum(["inactive_file", "active_file"]))
        .unwrap_or(0);
    files.saturating_add(line_value(stat, "slab_reclaimable").unwrap_or(0))
}

/// The number on the line that begins with `name`.
fn line_value(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const MEMINFO: &str = "MemTotal:       4096 kB\nMemFree:  10 kB\nMemAvailable:   3072 kB\n";
    const STALLS: &str =
        "some avg10=20.00 avg60=0.00 avg300=0.00 total=5\nfull avg10=12.50 avg60=1.00 avg300=0.00 total=3\n";

    /// Makes a system with these files and contents.
    fn system(files: &[(&str, &str)]) -> PressureFiles {
        let root = tempfile::tempdir().expect("a folder");
        for (path, content) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, content).expect("written");
        }
        PressureFiles::open_in(root.path())
    }

    #[test]
    fn stalls_are_shares() {
        assert_eq!(full_share(STALLS), Some(0.125));
        assert_eq!(full_share("full avg10=100.00 avg60=0.00"), Some(1.0));
        assert_eq!(full_share("full avg10=250.00"), Some(1.0));
        for text in
            ["", "some avg10=20.00 avg60=0.00\n", "full avg60=1.00\n", "full avg10=x", "full avg10=NaN"]
        {
            assert_eq!(full_share(text), None, "{text}");
        }
    }

    #[test]
    fn page_cache_of_both_versions_is_counted() {
        assert_eq!(cache_bytes("anon 1\ninactive_file 20\nactive_file 300\nunevictable 5\n"), 320);
        let names = "inactive_file 20\nactive_file 300\nslab_reclaimable 4000\nslab_unreclaimable 50000\n";
        assert_eq!(cache_bytes(names), 4_320);
        let one = "inactive_file 1\nactive_file 2\ntotal_inactive_file 100\ntotal_active_file 200\n";
        assert_eq!(cache_bytes(one), 300);
        assert_eq!((cache_bytes(""), cache_bytes("inactive_file 1\n")), (0, 0));
    }

    #[test]
    fn a_machine_without_groups_is_read() {
        let mut files = system(&[("proc/meminfo", MEMINFO), ("proc/pressure/memory", STALLS)]);
        let expected = Pressure {
            stalled_share: Some(0.125),
            available_bytes: Some(3 * MIB),
            total_bytes: Some(4 * MIB),
        };
        assert_eq!(files.look(), expected);
        assert_eq!(files.look(), expected, "files are read from the start each time");
        assert_eq!(system(&[]).look(), Pressure::default());
    }

    #[test]
    fn a_group_of_version_2_is_limited_by_the_groups_above_it() {
        let mut files = system(&[
            ("proc/meminfo", MEMINFO),
            ("proc/pressure/memory", STALLS),
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/memory.max", "2097152\n"),
            ("sys/fs/cgroup/a/memory.current", "1572864\n"),
            ("sys/fs/cgroup/a/memory.stat", "inactive_file 200000\nactive_file 62144\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.current", "1048576\n"),
            ("sys/fs/cgroup/a/b/memory.pressure", "some avg10=60.00\nfull avg10=50.00 avg60=1.00\n"),
        ]);
        let expected = Pressure {
            stalled_share: Some(0.5),
            // 2 MiB minus the 1.5 MiB in use, of which a quarter is page cache.
            available_bytes: Some(MIB / 2 + 262_144),
            total_bytes: Some(2 * MIB),
        };
        assert_eq!(files.look(), expected);
    }

    #[test]
    fn a_group_of_version_1_with_a_path_outside_its_container() {
        let mut files = system(&[
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "4:memory:/outside/x\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1048576\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000000\n"),
        ]);
        let expected =
            Pressure { stalled_share: None, available_bytes: Some(48_576), total_bytes: Some(MIB) };
        assert_eq!(files.look(), expected);
        // No limit: a number beyond all memory.
        let mut files = system(&[
            ("proc/meminfo", MEMINFO),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000000\n"),
        ]);
        let pressure = files.look();
        assert_eq!((pressure.available_bytes, pressure.total_bytes), (Some(3 * MIB), Some(4 * MIB)));
    }

    #[test]
    fn this_system_is_read() {
        let pressure = PressureFiles::open().look();
        println!("{pressure:?}");
        let (Some(available), Some(total)) = (pressure.available_bytes, pressure.total_bytes) else {
            return crate::skipping::skip("no /proc/meminfo here");
        };
        assert!(available <= total && total > MIB, "{pressure:?}");
        assert!(pressure.stalled_share.is_none_or(|share| (0.0..=1.0).contains(&share)), "{pressure:?}");
    }
}
