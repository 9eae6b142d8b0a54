//! A disk for file sets whose every read takes its time, one after the other, as an arm's does.
//!
//! A control group's limit of reads only keeps their rate: below it a read takes 0.3 ms, and reads of names and attributes
//! pass. A server that blocks loses next to nothing by such a disk. `experiment` puts the sets of bounded servers on
//! a [`Disk`]: an image with a file system, on a [`device`] that this process serves.

pub(super) mod device;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use flash_kit::{Error, Result};
use flash_waiting::{file, network, program, signal};
use fuser::{BackgroundSession, Session};

use device::{CONTENT, Device};

/// The image, and the folders where its device and its file system are mounted, in the folder of the sets.
const IMAGE: &str = "disk.img";
const DEVICE: &str = "device";
const MOUNTED: &str = "disk";
/// The size that its file system sees. The image is as large as its files.
const BYTES: u64 = 64 << 30;
/// 128 KiB, the kernel's default for disks. With the 2.5 MB of a loop device, one fault of a mapping reads a whole file.
const READ_AHEAD_SECTORS: &str = "256";
/// How long the device may be in use after its file system is unmounted.
const PATIENCE: Duration = Duration::from_secs(5);

/// A mounted disk, unmounted when dropped.
#[derive(Debug)]
pub(crate) struct Disk {
    root: PathBuf,
    device: PathBuf,
    /// None only while it is dropped.
    served: Option<BackgroundSession>,
}

impl Disk {
    /// Mounts the disk in a folder, with the image that is there; one is made if there is none. These cores serve it, those
    /// of the load generator, so that it takes no time of a server's core.
    ///
    /// Errors: run, where this is not allowed, a program is not installed, or another lab has it mounted.
    pub(crate) fn mount(folder: &Path, cores: &[usize]) -> Result<Self> {
        let (image, device, root) = (folder.join(IMAGE), folder.join(DEVICE), folder.join(MOUNTED));
        fs::create_dir_all(folder).map_err(|why| Error::file("make", folder, &why))?;
        if !image.exists() {
            make(&image)?;
        }
        let opened = File::options().read(true).write(true).open(&image);
        let opened = opened.map_err(|why| Error::file("open", &image, &why))?;
        lock(&opened).map_err(|why| Error::file("lock", &image, &why))?;
        // Those of a lab that was killed.
        for mounted in [&root, &device] {
            let _ = run("umount", &[mounted.as_os_str()]);
            fs::create_dir_all(mounted).map_err(|why| Error::file("make", mounted, &why))?;
        }
        let served = serve(opened, &device, cores)?;
        let disk = Self { root, device, served: Some(served) };
        disk.attach()?;
        Ok(disk)
    }

    /// The root of its file system.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Writes out what was written to its files, so that a full disk below is an error now.
    pub(crate) fn sync(&self) -> Result<()> {
        run("sync", &[OsStr::new("--file-system"), self.root.as_os_str()]).map(drop)
    }

    /// Mounts the file system through a loop device that goes with the mount.
    fn attach(&self) -> Result<()> {
        let content = self.device.join(CONTENT);
        let looped = run("losetup", &[OsStr::new("--find"), OsStr::new("--show"), content.as_os_str()])?;
        let read_ahead = run("blockdev", &["--setra", READ_AHEAD_SECTORS, &looped].map(OsStr::new));
        // Tables of inodes that nobody has used yet would be written while servers are measured.
        let mount = ["-t", "ext4", "-o", "noinit_itable", &looped].map(OsStr::new);
        let mounted = read_ahead.and_then(|_| run("mount", &[&mount[..], &[self.root.as_os_str()]].concat()));
        // While it is mounted this only marks it.
        run("losetup", &["--detach", &looped].map(OsStr::new))?;
        mounted.map(drop)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = run("umount", &[self.root.as_os_str()]);
        let deadline = Instant::now() + PATIENCE;
        while let Err(why) = run("umount", &[self.device.as_os_str()])
            && why.to_string().contains("busy")
        {
            if Instant::now() > deadline {
                eprintln!("warning: {why}");
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        // The image is locked until the thread that serves it has ended.
        let _ = self.served.take().map(BackgroundSession::join);
    }
}

/// Locks the image, with patience: a program that this process is just starting still has the image of an earlier disk open.
fn lock(image: &File) -> io::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(1);
    loop {
        match file::lock(image) {
            Err(why) if why.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(10));
            }
            done => return done,
        }
    }
}

/// Serves the image as a device, by a thread of this process that wakes on time.
fn serve(image: File, device: &Path, cores: &[usize]) -> Result<BackgroundSession> {
    let start = || {
        // The threads that serve inherit priority, cores and signal mask of the one that starts them: signals are not for them.
        signal::watch()?;
        network::wake_on_time(network::OnTime::Device);
        if !cores.is_empty() {
            program::pin_thread(cores)?;
        }
        Session::new(Device::of(image)?, device, &fuser::Config::default()).and_then(Session::spawn)
    };
    let started = thread::scope(|scope| scope.spawn(start).join());
    let session = started.unwrap_or_else(|_| Err(io::Error::other("its thread has panicked")));
    session.map_err(|why| Error::file("mount a file system by FUSE on", device, &why))
}

/// Makes a sparse image with an empty file system. One that was broken off has another name, and is made anew.
fn make(image: &Path) -> Result<()> {
    let new = image.with_extension("new");
    let sized = File::create(&new).and_then(|file| file.set_len(BYTES));
    sized.map_err(|why| Error::file("make", &new, &why))?;
    let options = ["-q", "-F", "-m", "0", "-J", "size=64", "-E", "lazy_itable_init=1"].map(OsStr::new);
    run("mkfs.ext4", &[&options[..], &[new.as_os_str()]].concat())?;
    fs::rename(&new, image).map_err(|why| Error::file("rename", &new, &why))
}

/// Runs a program to its end. Returns its output without the line's end.
///
/// Errors: run, with the last line that it wrote, when it fails or is not installed.
fn run(program: &str, arguments: &[&OsStr]) -> Result<String> {
    // The folders of these programs are not in the path of every user.
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let ran = Command::new(program).args(arguments).env("PATH", path).stdin(Stdio::null()).output();
    let ran = ran.map_err(|why| Error::run(format!("{program} cannot be started: {why}")))?;
    if !ran.status.success() {
        let text = String::from_utf8_lossy(&ran.stderr).into_owned();
        let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it wrote nothing");
        return Err(Error::run(format!("{program} failed: {last}")));
    }
    Ok(String::from_utf8_lossy(&ran.stdout).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(folder: &Path) -> Option<Disk> {
        let mounted = Disk::mount(folder, &[0]);
        let skip = |why| crate::skipping::skip(&format!("no disk can be mounted here: {why}"));
        mounted.map_err(skip).ok()
    }

    /// The cores of the threads with this name.
    fn allowed_of(name: &str) -> Vec<String> {
        let tasks = fs::read_dir("/proc/self/task").unwrap();
        let texts = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok());
        let of_name = texts.filter(|text| text.lines().next() == Some(&format!("Name:\t{name}")));
        let cores = |text: String| {
            text.lines().find_map(|line| Some(line.strip_prefix("Cpus_allowed_list:\t")?.to_owned())).unwrap()
        };
        of_name.map(cores).collect()
    }

    #[test]
    fn a_disk_is_made_once_and_unmounted_at_the_end() {
        let temporary = tempfile::tempdir().unwrap();
        let Some(disk) = mount(temporary.path()) else { return };
        assert!(allowed_of("fuser-0").iter().all(|cores| cores == "0"), "{:?}", allowed_of("fuser-0"));
        let source = ["-n", "-o", "SOURCE"].map(OsStr::new);
        let looped = run("findmnt", &[&source[..], &[disk.root().as_os_str()]].concat()).unwrap();
        assert_eq!(run("blockdev", &["--getra", &looped].map(OsStr::new)).unwrap(), READ_AHEAD_SECTORS);
        let file = disk.root().join("file");
        fs::write(&file, "x").unwrap();
        disk.sync().unwrap();
        let Err(why) = Disk::mount(temporary.path(), &[0]) else { panic!("another lab has it") };
        assert!(why.to_string().contains("lock") && file.exists(), "{why}");
        drop(disk);

        let disk = mount(temporary.path()).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "x");
        drop(disk);
        let left = [DEVICE, MOUNTED].map(|name| fs::read_dir(temporary.path().join(name)).unwrap().count());
        assert_eq!(left, [0, 0]);
        let attached = run("losetup", &[OsStr::new("--list")]).unwrap();
        assert!(!attached.contains(temporary.path().to_str().unwrap()), "{attached}");
    }

    #[test]
    fn reads_take_their_time_while_it_is_held() {
        let temporary = tempfile::tempdir().unwrap();
        let Some(disk) = mount(temporary.path()) else { return };
        let files: Vec<PathBuf> = (0..4).map(|number| disk.root().join(format!("file{number}"))).collect();
        for file in &files {
            fs::write(file, vec![7; 4096]).unwrap();
        }
        drop(disk);

        let _disk = mount(temporary.path()).unwrap();
        let file = temporary.path().join(DEVICE).join(device::READS_PER_S);
        let hold = |text: &str| {
            let file = File::options().write(true).open(&file);
            file.and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()))
        };
        hold("10").unwrap();
        assert!(hold("some").is_err());
        let began = Instant::now();
        assert!(files.iter().all(|file| fs::read(file).unwrap() == [7; 4096]));
        assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
        hold("0").unwrap();
    }

    #[test]
    fn an_image_that_is_none_is_left_detached() {
        let temporary = tempfile::tempdir().unwrap();
        fs::write(temporary.path().join(IMAGE), vec![0; 1 << 20]).unwrap();
        let Err(why) = Disk::mount(temporary.path(), &[0]) else { panic!("it is mounted") };
        let attached = run("losetup", &[OsStr::new("--list")]).unwrap_or_default();
        assert!(!attached.contains(temporary.path().to_str().unwrap()), "{why}: {attached}");
    }
}
