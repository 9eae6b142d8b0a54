//! Folders and files: fresh ones, cold ones, ones replaced as an editor does it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A folder that goes away with its owner. What is served lies in its `www`.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// A fresh one, with an empty `www` in it.
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("flash-e2e-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(path.join("www")).unwrap();
        Self(path)
    }

    /// One that holds a page `/hello.txt`.
    pub(crate) fn with_hello() -> Self {
        let folder = Self::new();
        folder.www("hello.txt", "hello\n");
        folder
    }

    /// Where something in it is.
    pub(crate) fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.0.join(Path::new(name.as_ref()))
    }

    /// Where something served is.
    pub(crate) fn served(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.0.join("www").join(Path::new(name.as_ref()))
    }

    /// Writes a file, with its parents.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// Writes a file to be served.
    pub(crate) fn www(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        self.write(&format!("www/{name}"), content)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Bytes of which every eight are unlike all others, so that nothing moved, lost, repeated or mixed
/// with another seed goes unseen.
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

/// How long a file must be for its server to be held up by a client that does not read: more than
/// the sockets of both can hold, and some.
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

/// Takes a file's content out of memory, as far as `dd` and the kernel agree; where they don't, it is
/// said, and the test goes on with a warm file.
pub(crate) fn evict(path: &Path) {
    let mut target = std::ffi::OsString::from("of=");
    target.push(path);
    let how = ["oflag=nocache", "conv=notrunc,fdatasync", "count=0", "status=none"];
    let done = Command::new("dd").arg(target).args(how).status();
    if !done.is_ok_and(|status| status.success()) {
        super::skip("no cold files: this dd cannot make any");
    }
}

/// Replaces a file the safe way: written beside it, then renamed over it.
pub(crate) fn write_aside(path: &Path, content: impl AsRef<[u8]>) {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".new");
    fs::write(&aside, content).unwrap();
    fs::rename(&aside, path).unwrap();
}

/// Lets the clock of the file system go on, so that a change after this has another time than one
/// before it.
pub(crate) fn unlike_before() {
    std::thread::sleep(Duration::from_millis(30));
}
