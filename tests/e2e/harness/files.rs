//! Folders and files: new ones, cold ones, and files replaced as an editor does it.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use tempfile::TempDir;

use super::skip;

/// A folder that is removed with its owner. The served files are in its `www`.
#[derive(Debug)]
pub(crate) struct Folder(TempDir);

impl Folder {
    /// A new folder with an empty `www`.
    pub(crate) fn new() -> Self {
        // Servers change their user and still read here.
        let open_to_all = Permissions::from_mode(0o755);
        let folder = tempfile::Builder::new().prefix("flash-e2e-").permissions(open_to_all).tempdir();
        let folder = Self(folder.unwrap());
        fs::create_dir(folder.path("www")).unwrap();
        folder
    }

    /// A new folder with a page `/hello.txt`.
    pub(crate) fn with_hello() -> Self {
        let folder = Self::new();
        folder.www("hello.txt", "hello\n");
        folder
    }

    /// The path of an entry of the folder.
    pub(crate) fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.0.path().join(Path::new(name.as_ref()))
    }

    /// The path of a served entry.
    pub(crate) fn served(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.0.path().join("www").join(Path::new(name.as_ref()))
    }

    /// Writes a file, and creates its parent folders.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// Writes a served file.
    pub(crate) fn www(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        self.write(&format!("www/{name}"), content)
    }
}

/// Bytes in which every eight are unique, so that moved, lost, repeated or mixed bytes are noticed.
pub(crate) fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes + 8);
    let mut at = seed << 40;
    while out.len() < bytes {
        out.extend_from_slice(&at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        at += 1;
    }
    out.truncate(bytes);
    out
}

/// A file length with which a client that does not read blocks the server: more than both sockets can hold.
pub(crate) fn film_bytes() -> usize {
    let limits = fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").unwrap();
    let most: usize = limits.split_whitespace().last().unwrap().parse().unwrap();
    2 * most + (8 << 20)
}

/// A content of that length.
pub(crate) fn film() -> &'static [u8] {
    static FILM: OnceLock<Vec<u8>> = OnceLock::new();
    FILM.get_or_init(|| pattern(film_bytes(), 77))
}

/// Removes a file's content from memory, as far as `dd` and the kernel allow it. If that fails, it prints so, and the
/// test continues with a warm file.
pub(crate) fn evict(path: &Path) {
    let mut target = std::ffi::OsString::from("of=");
    target.push(path);
    let how = ["oflag=nocache", "conv=notrunc,fdatasync", "count=0", "status=none"];
    let done = Command::new("dd").arg(target).args(how).status();
    if !done.is_ok_and(|status| status.success()) {
        super::skip("no cold files: this dd cannot make any");
    }
}

/// Replaces a file safely: writes a new one beside it and renames that over it.
pub(crate) fn write_aside(path: &Path, content: impl AsRef<[u8]>) {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".new");
    fs::write(&aside, content).unwrap();
    fs::rename(&aside, path).unwrap();
}

/// Waits for a tick of the file system's clock, so that a later change gets another time.
pub(crate) fn unlike_before() {
    std::thread::sleep(Duration::from_millis(30));
}

/// A small file system in memory, which can be full.
pub(crate) struct SmallDisk<'p>(&'p Path);

impl<'p> SmallDisk<'p> {
    pub(crate) const BYTES: usize = 2 << 20;

    pub(crate) fn mount(place: &'p Path) -> Option<Self> {
        // Root writes no log in a folder that everybody can write to, as a new one of this type is.
        let size = format!("size={},mode=755", Self::BYTES);
        let mut command = Command::new("mount");
        let status =
            command.args(["-t", "tmpfs", "-o", &size, "flash-e2e"]).arg(place).stderr(Stdio::null()).status();
        if !status.is_ok_and(|status| status.success()) {
            skip("needs root, to mount a file system that can be full");
            return None;
        }
        Some(Self(place))
    }

    /// Mounts a file system whose times are in whole seconds: ext2 with inodes of 128 bytes, in the file `image`.
    pub(crate) fn with_coarse_times(place: &'p Path, image: &Path) -> Option<Self> {
        fs::File::create(image).and_then(|file| file.set_len(4 * Self::BYTES as u64)).unwrap();
        let run = |program, args: &[&str], path: &Path| {
            let mut command = Command::new(program);
            let command = command.args(args).arg(path).stdout(Stdio::null()).stderr(Stdio::null());
            let command = if program == "mount" { command.arg(place) } else { command };
            command.status().is_ok_and(|status| status.success())
        };
        if !run("mkfs.ext2", &["-q", "-F", "-I", "128"], image) || !run("mount", &["-o", "loop"], image) {
            skip("needs root, mkfs.ext2 and a loop device, to mount a file system with coarse times");
            return None;
        }
        Some(Self(place))
    }
}

impl SmallDisk<'_> {
    /// Freezes the file system: every write waits until the result is dropped (fsfreeze(8)).
    pub(crate) fn freeze(&self) -> Frozen<'_> {
        assert!(Command::new("fsfreeze").arg("--freeze").arg(self.0).status().unwrap().success());
        Frozen(self.0)
    }
}

/// A frozen file system. Dropping this thaws it.
pub(crate) struct Frozen<'d>(&'d Path);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").arg("--unfreeze").arg(self.0).status();
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}
