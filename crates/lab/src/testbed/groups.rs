//! Control groups of a server: bounded memory, page cache included, a disk held to some reads/s, a share of a core.
//!
//! [`super::running`] makes them before a server starts and removes them after its end, however that
//! comes. Only processes that join are bounded. cgroups(7), version 1 (`memory`, `blkio`) where it
//! has both, else version 2 (`memory`, `io`); `cpu` of version 1 where it is there, else of version 2.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use flash_waiting::program;

use super::Testbed;
use super::disk::device::READS_PER_S;
use flash_kit::{Error, Result};

/// The prefix of the groups' names; the lab's process id and a number follow.
const PREFIX: &str = "flash-lab-";
/// The span in which a server may use its share of a core. The kernel allows no less than 1 ms in it, so
/// this is about the shortest for 10 %: who has used his share waits no longer than this for the next one.
///
/// It is no multiple of the kernel's ticks (1, 3.3, 4 or 10 ms): /proc/stat counts what runs at a tick, and in step with
/// them it would have seen a server with half a core for 0.4 or 0.6 of the time, and taken the rest for other work.
const CPU_PERIOD_US: u32 = 10_300;
/// How long the last processes of a group may take to be gone.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(10);

/// The groups of one server, removed when dropped.
#[derive(Debug)]
pub(super) struct Groups {
    folders: Vec<PathBuf>,
    disk: Option<Throttle>,
    cpu: Option<Throttle>,
}

#[derive(Debug)]
struct Throttle {
    file: PathBuf,
    /// Written to hold the server back, and to let it go. For a disk a control group's file takes MAJ:MIN of the whole disk with it.
    held: String,
    free: String,
}

/// The disk below a folder.
#[derive(Debug, PartialEq, Eq)]
enum Below {
    /// MAJ:MIN, for a limit of a control group.
    Disk(String),
    /// A [`Disk`](super::Disk): the file that holds it.
    Served(PathBuf),
}

#[derive(Debug, PartialEq, Eq)]
enum Mounted {
    One { memory: PathBuf, blkio: PathBuf },
    Two(PathBuf),
}

impl Groups {
    /// Makes groups with the bounds of this testbed, none where there is nothing to bound. Those of the disk and the CPU
    /// do not count before [`Groups::throttle`].
    ///
    /// Errors: run, when the machine does not allow it, with what is missing.
    pub(super) fn make(testbed: &Testbed, root: &Path) -> Result<Self> {
        let mut groups = Self { folders: Vec::new(), disk: None, cpu: None };
        // The bounds that are still to be kept.
        let mut testbed = testbed.clone();
        let has_more = testbed.memory_bytes.is_some() || testbed.reads_per_s.is_some();
        if !has_more && testbed.cpu_percent.is_none() {
            return Ok(groups);
        }
        if !flash_waiting::sandbox::privileges::is_root() {
            return Err(impossible("bounds of memory, disk and CPU need root"));
        }
        let mounts = fs::read_to_string("/proc/self/mounts")
            .map_err(|why| Error::file("read", Path::new("/proc/self/mounts"), &why))?;
        let name = format!("{PREFIX}{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        if let (Some(percent), Some(mount)) = (testbed.cpu_percent, controller(&mounts, "cpu")) {
            let folder = groups.add(&mount, &name)?;
            set(&folder.join("cpu.cfs_period_us"), &CPU_PERIOD_US.to_string())?;
            let file = folder.join("cpu.cfs_quota_us");
            groups.cpu = Some(Throttle { file, held: quota_us(percent).to_string(), free: "-1".to_owned() });
            testbed.cpu_percent = None;
            if !has_more {
                groups.try_throttle()?;
                return Ok(groups);
            }
        }
        let Some(mounted) = find(&mounts) else {
            return Err(impossible(
                "neither cgroup v1 with memory and blkio nor cgroup v2 with memory and io is mounted",
            ));
        };
        let mut disk = None;
        if let Some(reads_per_s) = testbed.reads_per_s {
            match disk_of(root)? {
                Below::Disk(numbers) => disk = Some(numbers),
                Below::Served(file) => {
                    let (held, free) = (reads_per_s.to_string(), "0".to_owned());
                    groups.disk = Some(Throttle { file, held, free });
                }
            }
        }
        match mounted {
            Mounted::One { .. } if testbed.cpu_percent.is_some() => {
                return Err(impossible("the controller cpu of cgroup v1 is not mounted"));
            }
            Mounted::One { memory, blkio } => {
                groups.make_v1(&testbed, disk.as_deref(), [memory, blkio], &name)?;
            }
            Mounted::Two(mount) => groups.make_v2(&testbed, disk.as_deref(), &mount, &name)?,
        }
        groups.try_throttle()?;
        Ok(groups)
    }

    /// Some machines refuse a bound only when it is set: better to hear it now than after a warm-up.
    fn try_throttle(&self) -> Result<()> {
        self.throttle(true)?;
        self.throttle(false)
    }

    fn make_v1(
        &mut self,
        testbed: &Testbed,
        disk: Option<&str>,
        mounts: [PathBuf; 2],
        name: &str,
    ) -> Result<()> {
        let [memory, blkio] = mounts;
        if let Some(bytes) = testbed.memory_bytes {
            let folder = self.add(&memory, name)?;
            set(&folder.join("memory.limit_in_bytes"), &bytes.to_string())?;
        }
        if let (Some(reads_per_s), Some(disk)) = (testbed.reads_per_s, disk) {
            let file = self.add(&blkio, name)?.join("blkio.throttle.read_iops_device");
            let (held, free) = (format!("{disk} {reads_per_s}"), format!("{disk} 0"));
            self.disk = Some(Throttle { file, held, free });
        }
        Ok(())
    }

    fn make_v2(&mut self, testbed: &Testbed, disk: Option<&str>, mount: &Path, name: &str) -> Result<()> {
        set(&mount.join("cgroup.subtree_control"), "+memory +io")?;
        if testbed.cpu_percent.is_some() {
            set(&mount.join("cgroup.subtree_control"), "+cpu")?;
        }
        let folder = self.add(mount, name)?;
        if let Some(percent) = testbed.cpu_percent {
            self.cpu = Some(cpu_v2(folder.join("cpu.max"), percent));
        }
        if let Some(bytes) = testbed.memory_bytes {
            set(&folder.join("memory.max"), &bytes.to_string())?;
        }
        if let (Some(reads_per_s), Some(disk)) = (testbed.reads_per_s, disk) {
            self.disk = Some(disk_v2(folder.join("io.max"), disk, reads_per_s));
        }
        Ok(())
    }

    /// Makes one group, after those that a killed lab left behind are gone.
    fn add(&mut self, mount: &Path, name: &str) -> Result<PathBuf> {
        sweep(mount);
        let folder = mount.join(name);
        fs::create_dir(&folder)
            .map_err(|why| impossible(&format!("the group {} can't be made: {why}", folder.display())))?;
        self.folders.push(folder.clone());
        Ok(folder)
    }

    /// The files through which a process joins, open for writing.
    pub(super) fn entrances(&self) -> Result<Vec<File>> {
        let open = |folder: &PathBuf| {
            let path = folder.join("cgroup.procs");
            OpenOptions::new().write(true).open(&path).map_err(|why| Error::file("open", &path, &why))
        };
        self.folders.iter().map(open).collect()
    }

    /// The processes that are in them.
    pub(super) fn pids(&self) -> Vec<u32> {
        let read = |folder: &PathBuf| fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        let lists: Vec<String> = self.folders.iter().map(read).collect();
        lists.iter().flat_map(|list| list.lines()).filter_map(|line| line.parse().ok()).collect()
    }

    /// How many of their processes the kernel has killed because the memory was too small.
    pub(super) fn killed_for_memory(&self) -> u64 {
        let read = |folder: &PathBuf, file: &str| {
            let text = fs::read_to_string(folder.join(file)).ok()?;
            text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse::<u64>().ok())
        };
        // Version 1 has the one, version 2 the other.
        let files = ["memory.oom_control", "memory.events"];
        self.folders.iter().flat_map(|folder| files.iter().filter_map(move |file| read(folder, file))).sum()
    }

    /// Whether [`Groups::throttle`] holds a disk.
    pub(super) fn bounds_reads(&self) -> bool {
        self.disk.is_some()
    }

    /// Holds the disk to its reads/s and the server to its share of a core, or lets them go; nothing where no bound was asked for.
    pub(super) fn throttle(&self, on: bool) -> Result<()> {
        let mut throttles = [&self.disk, &self.cpu].into_iter().flatten();
        throttles.try_for_each(|Throttle { file, held, free }| set(file, if on { held } else { free }))
    }

    /// Removes them, once their processes are gone.
    ///
    /// Errors: run, when one stays.
    pub(super) fn remove(&mut self) -> Result<()> {
        let deadline = Instant::now() + REMOVAL_PATIENCE;
        while let Some(folder) = self.folders.last() {
            match fs::remove_dir(folder) {
                Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
                    if Instant::now() > deadline {
                        return Err(Error::file("remove the group", folder, &why));
                    }
                    thread::sleep(Duration::from_millis(20));
                }
                _ => {
                    self.folders.pop();
                }
            }
        }
        Ok(())
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            eprintln!("warning: {error}");
        }
    }
}

fn disk_v2(file: PathBuf, disk: &str, reads_per_s: u32) -> Throttle {
    Throttle { file, held: format!("{disk} riops={reads_per_s}"), free: format!("{disk} riops=max") }
}

fn cpu_v2(file: PathBuf, percent: u32) -> Throttle {
    Throttle {
        file,
        held: format!("{} {CPU_PERIOD_US}", quota_us(percent)),
        free: format!("max {CPU_PERIOD_US}"),
    }
}

/// A share of a core, as time in a period.
fn quota_us(percent: u32) -> u64 {
    u64::from(CPU_PERIOD_US) * u64::from(percent) / 100
}

static COUNT: AtomicU32 = AtomicU32::new(0);

fn impossible(why: &str) -> Error {
    Error::run(format!(
        "there can be no testbed on this machine: {why}; run as root where cgroups can be changed, or do without bounds \
         of memory, disk and CPU"
    ))
}

fn set(path: &Path, text: &str) -> Result<()> {
    // One write and nothing truncated: that is how the kernel takes it.
    let written = OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
    written.map_err(|why| impossible(&format!("writing '{text}' to {} failed: {why}", path.display())))
}

/// The mounts of a kind in the text of /proc/self/mounts, with their options.
fn of_kind<'a>(mounts: &'a str, wanted: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    mounts.lines().filter_map(move |line| {
        let mut fields = line.split(' ').skip(1);
        let (folder, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        (kind == wanted).then_some((folder, options))
    })
}

/// Where a controller of version 1 is mounted.
fn controller(mounts: &str, name: &str) -> Option<PathBuf> {
    let mut found =
        of_kind(mounts, "cgroup").filter(|(_, options)| options.split(',').any(|option| option == name));
    found.next().map(|(folder, _)| PathBuf::from(folder))
}

/// Finds the controllers in the text of /proc/self/mounts.
fn find(mounts: &str) -> Option<Mounted> {
    if let (Some(memory), Some(blkio)) = (controller(mounts, "memory"), controller(mounts, "blkio")) {
        return Some(Mounted::One { memory, blkio });
    }
    let has_both = |folder: &str| {
        let list = fs::read_to_string(Path::new(folder).join("cgroup.controllers")).unwrap_or_default();
        ["memory", "io"].iter().all(|wanted| list.split_ascii_whitespace().any(|name| name == *wanted))
    };
    of_kind(mounts, "cgroup2")
        .find(|(folder, _)| has_both(folder))
        .map(|(folder, _)| Mounted::Two(folder.into()))
}

/// Removes the empty groups of labs that are gone.
fn sweep(mount: &Path) {
    for entry in fs::read_dir(mount).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // One whose server still runs can't be removed.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The disk of a folder or file.
///
/// Errors: run, when it is on none, or on an image that is read through the page cache.
fn disk_of(path: &Path) -> Result<Below> {
    let about = fs::metadata(path).map_err(|why| Error::file("find the disk of", path, &why))?;
    let (major, minor) = program::device_numbers(about.dev());
    let link = format!("/sys/dev/block/{major}:{minor}");
    let Ok(device) = fs::canonicalize(&link) else {
        return Err(impossible(&format!(
            "{} is not on a disk (its device is {major}:{minor}); choose a folder on a real one",
            path.display()
        )));
    };
    disk_below(device)
}

/// The disk below a device in sysfs: the whole one of a partition, the one that holds an image. A limit of an image's own
/// device would let reads of names and attributes pass; a limit of the disk below holds them too.
fn disk_below(mut device: PathBuf) -> Result<Below> {
    if device.join("partition").exists() {
        device.pop();
    }
    let read = |file: &Path| fs::read_to_string(file).map_err(|why| Error::file("read", file, &why));
    let Ok(image) = fs::read_to_string(device.join("loop/backing_file")) else {
        return Ok(Below::Disk(read(&device.join("dev"))?.trim().to_owned()));
    };
    let image = Path::new(image.trim_end());
    let file = image.with_file_name(READS_PER_S);
    if file.exists() {
        return Ok(Below::Served(file));
    }
    if read(&device.join("loop/dio"))?.trim() != "1" {
        return Err(impossible(&format!(
            "the image {} is read through the page cache; attach it by 'losetup --direct-io=on'",
            image.display()
        )));
    }
    disk_of(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_see_a_server_for_its_share_of_the_time() {
        assert_eq!([10, 30, 100].map(quota_us), [1_030, 3_090, 10_300]);
        const SECONDS: u64 = 3;
        for (hz, percent) in [100, 250, 300, 1_000].into_iter().flat_map(|hz| [(hz, 10), (hz, 30), (hz, 50)])
        {
            for began_us in (0..u64::from(CPU_PERIOD_US)).step_by(500) {
                let runs = |tick: &u64| {
                    (began_us + tick * 1_000_000 / hz) % u64::from(CPU_PERIOD_US) < quota_us(percent)
                };
                let seen = (0..SECONDS * hz).filter(runs).count() as f64 / (SECONDS * hz) as f64;
                let share = f64::from(percent) / 100.0;
                assert!((seen - share).abs() < 0.03, "{hz} ticks/s, {share}: {seen}");
            }
        }
    }

    #[test]
    fn finds_the_controllers() {
        let one = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /a/cpuacct cgroup rw,cpuacct 0 0\n\
                   cgroup /a/memory cgroup rw,relatime,memory 0 0\ncgroup /a/blkio cgroup rw,blkio 0 0\n";
        let found = Mounted::One { memory: "/a/memory".into(), blkio: "/a/blkio".into() };
        assert_eq!(find(one), Some(found));
        assert_eq!(find("cgroup /a/memory cgroup rw,relatime,memory 0 0\n"), None);
        assert_eq!(controller(one, "cpu"), None, "cpuacct is another one");
        assert_eq!(
            controller("cgroup /a/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n", "cpu").unwrap(),
            Path::new("/a/cpu,cpuacct")
        );
        assert_eq!(find("cgroup2 /not/there cgroup2 rw 0 0\n"), None);
        assert_eq!(find("nonsense\n\n"), None);
    }

    #[test]
    fn two_is_taken_where_it_has_the_controllers() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path();
        let mounts = format!("cgroup2 {} cgroup2 rw 0 0\n", folder.display());
        fs::write(folder.join("cgroup.controllers"), "cpuset cpu io memory pids\n").unwrap();
        assert_eq!(find(&mounts), Some(Mounted::Two(folder.to_owned())));
        fs::write(folder.join("cgroup.controllers"), "hugetlb memory\n").unwrap();
        assert_eq!(find(&mounts), None);
    }

    #[test]
    fn version_two_is_written_as_the_kernel_wants_it() {
        // Plain files stand in for the kernel's; the test checks the text that the groups write.
        let temporary = tempfile::tempdir().unwrap();
        let mount = temporary.path();
        let [io, cpu] = ["io.max", "cpu.max"].map(|name| mount.join(name));
        let (disk, share) = (disk_v2(io.clone(), "254:0", 150), cpu_v2(cpu.clone(), 20));
        let groups = Groups { folders: Vec::new(), disk: Some(disk), cpu: Some(share) };
        let written = |on| {
            let files = [&io, &cpu];
            files.iter().for_each(|file| fs::write(file, "").unwrap());
            groups.throttle(on).unwrap();
            files.map(|file| fs::read_to_string(file).unwrap())
        };
        assert_eq!(written(true), ["254:0 riops=150", "2060 10300"]);
        assert_eq!(written(false), ["254:0 riops=max", "max 10300"]);
        let error = set(&mount.join("none"), "1").unwrap_err();
        assert_eq!(error.exit_code(), 1);
        assert!(error.to_string().contains("there can be no testbed"), "{error}");
    }

    #[test]
    fn the_disk_of_an_image_is_the_one_that_holds_it() {
        // A plain folder stands in for the device in sysfs.
        let device = tempfile::tempdir().unwrap();
        fs::create_dir(device.path().join("loop")).unwrap();
        let write = |name: &str, text: &str| fs::write(device.path().join(name), text).unwrap();
        write("dev", "7:0\n");
        let disk = || disk_below(device.path().to_owned());
        assert_eq!(disk().unwrap(), Below::Disk("7:0".to_owned()));
        let image = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        write("loop/backing_file", &format!("{}\n", image.display()));
        write("loop/dio", "1\n");
        assert_eq!(disk().ok(), disk_of(&image).ok());
        write("loop/dio", "0\n");
        assert!(disk().unwrap_err().to_string().contains("read through the page cache"));
        let file = device.path().join(READS_PER_S);
        fs::write(&file, "").unwrap();
        write("loop/backing_file", &format!("{}\n", device.path().join("content").display()));
        assert_eq!(disk().unwrap(), Below::Served(file));
    }

    #[test]
    fn what_is_on_no_disk_has_no_disk() {
        let error = disk_of(Path::new("/proc")).unwrap_err();
        assert!(error.to_string().contains("is not on a disk"), "{error}");
        disk_of(Path::new("/not/there")).unwrap_err();
    }
}
