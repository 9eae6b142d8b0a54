//! Many small files, whose names the kernel has forgotten, on a slow disk: requests for them need neither a helper nor a
//! look-up.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::{
    Folder, Launch, Server, is_root, skip, skips, stats_at, unlike_before, wait_for, wait_until,
};

const FILES: u64 = 20_000;
const OF_DIRECTORY: u64 = 500;
/// The parts in which a single site is watched.
const SUBTREES: u64 = 64;

/// A control group for which the disk can be made slow.
struct SlowDisk {
    group: PathBuf,
    disk: String,
}

impl SlowDisk {
    /// None if this machine cannot have one for this folder.
    fn new(folder: &Path) -> Option<Self> {
        let device = fs::metadata(folder).ok()?.dev();
        let block = |name: &str| format!("/sys/dev/block/{}:{}/{name}", major(device), minor(device));
        // Only a whole disk has a limit.
        let disk = if Path::new(&block("partition")).exists() { block("../dev") } else { block("dev") };
        let disk = fs::read_to_string(disk).ok()?.trim().to_owned();
        let group = Path::new("/sys/fs/cgroup/blkio").join(format!("flash-test-{}", std::process::id()));
        fs::create_dir(&group).ok()?;
        Some(Self { group, disk })
    }

    /// Limits the reads in a second; 0 lifts the limit.
    fn limit(&self, reads: u64) {
        let limit = format!("{} {reads}", self.disk);
        fs::write(self.group.join("blkio.throttle.read_iops_device"), limit).expect("a slow disk");
    }

    /// A script that joins the group and then executes the server.
    fn script(&self) -> String {
        format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.group.display())
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        wait_until("the group to be empty", || fs::remove_dir(&self.group).is_ok());
    }
}

/// The parts of a device number (makedev(3)).
fn major(device: u64) -> u64 {
    device >> 8 & 0xfff | device >> 32 & !0xfff
}

fn minor(device: u64) -> u64 {
    device & 0xff | device >> 12 & !0xff
}

fn name(number: u64) -> String {
    format!("{}/{number}.txt", number / OF_DIRECTORY)
}

fn content(number: u64) -> Vec<u8> {
    format!("{number:0400}").into_bytes()
}

fn control(folder: &Folder) -> PathBuf {
    folder.path("control.sock")
}

fn figure(folder: &Folder, path: &str) -> u64 {
    wait_for("the figures", || stats_at(&control(folder)).pointer(path).and_then(Value::as_u64))
}

/// The jobs of helpers that a request can wait for.
fn jobs(folder: &Folder) -> u64 {
    ["find", "fill", "load", "read"]
        .iter()
        .map(|kind| figure(folder, &format!("/workers/0/counters/jobs/{kind}/started")))
        .sum()
}

/// Asks for files, some at a time, and compares their contents. Returns how many had to wait for the disk too long.
fn get_each(server: &Server, numbers: impl Iterator<Item = u64>) -> usize {
    let mut client = server.client();
    let numbers: Vec<u64> = numbers.collect();
    let mut late = 0;
    for some in numbers.chunks(100) {
        some.iter().for_each(|number| client.ask(&format!("/{}", name(*number))));
        for number in some {
            let page = client.page();
            late += usize::from(page.status == 503);
            let is_right = page.status == 503 || (page.status == 200 && page.body == content(*number));
            assert!(is_right, "{}: {} with {} bytes", name(*number), page.status, page.body.len());
        }
    }
    late
}

#[test]
fn files_whose_names_the_kernel_has_forgotten_are_answered_without_a_helper() {
    if skips(&["sped", "mp", "mt"], "they look up names themselves") {
        return;
    }
    if !is_root() {
        return skip("no root, or no cgroups v1 under /sys/fs/cgroup");
    }
    let folder = Folder::new();
    for number in 0..FILES {
        folder.www(&name(number), content(number));
    }
    let Some(disk) = SlowDisk::new(&folder.path("www")) else {
        return skip("no root, or no cgroups v1 under /sys/fs/cgroup");
    };
    unlike_before();
    let script = disk.script();
    let launch = Launch::with_workers(&folder, 1).args(["--cache-memory", "256MiB", "--freshness", "1s"]);
    let launch = launch.arg("--control").arg(control(&folder)).through_all(&["sh", "-ec", &script, "sh"]);
    let mut server = launch.start();
    wait_until("the site to be watched", || figure(&folder, "/store/subtrees_watched") == SUBTREES);
    wait_until("all contents and names", || {
        assert_eq!(get_each(&server, 0..FILES), 0);
        figure(&folder, "/store/blocks") >= FILES && figure(&folder, "/store/names") >= FILES
    });
    // On a busy machine the watcher can be late. That costs checks, which wait for the disk, some of them in vain.
    let mut step = 7;
    wait_until("a pass without a helper", || {
        disk.limit(0);
        // The names of this pass are watched shortly after it.
        assert_eq!(get_each(&server, 0..FILES), 0);
        disk.limit(150);
        fs::write("/proc/sys/vm/drop_caches", "3").expect("dropped");
        let before = jobs(&folder);
        step += 2;
        let late = get_each(&server, (0..2_000).map(|at| at * step * 311 % FILES));
        late == 0 && jobs(&folder) == before
    });
    // The group must be empty before it is removed.
    server.signal("TERM");
    server.wait();
}
