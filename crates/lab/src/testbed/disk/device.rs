//! The device of a [`Disk`](super::Disk): a file whose reads take as long as those of an arm, one after the other.
//!
//! It is a FUSE file system of two files. [`CONTENT`] is the image, of which a loop device makes a block device. [`READS_PER_S`]
//! has the number of reads that the disk serves in a second; 0, written to it, lets the disk go, as in a control group's file.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use flash_waiting::file;
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, OpenFlags,
    ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};

pub(crate) const CONTENT: &str = "content";
pub(crate) const READS_PER_S: &str = "reads_per_s";

/// The numbers of the folder and of its files.
const ROOT: u64 = 1;
const CONTENT_NODE: u64 = 2;
const READS_NODE: u64 = 3;
/// How long the kernel may keep names and attributes, which do not change.
const TTL: Duration = Duration::from_secs(3600);

/// A disk with one arm.
pub(super) struct Device {
    image: File,
    bytes: u64,
    arm: Mutex<Arm>,
}

#[derive(Default)]
struct Arm {
    /// How many reads it serves in a second; 0 where it is not held.
    reads_per_s: u32,
    /// When the reads that came so far are done.
    is_free_at: Option<Instant>,
}

impl Arm {
    /// When a read that comes now is done.
    fn done_at(&mut self, now: Instant) -> Option<Instant> {
        let begins = self.is_free_at.map_or(now, |free_at| free_at.max(now));
        self.is_free_at = Duration::from_secs(1).checked_div(self.reads_per_s).map(|takes| begins + takes);
        self.is_free_at
    }
}

impl Device {
    pub(super) fn of(image: File) -> io::Result<Self> {
        let bytes = image.metadata()?.len();
        Ok(Self { image, bytes, arm: Mutex::default() })
    }

    fn attributes(&self, node: INodeNo) -> Result<FileAttr, Errno> {
        let (kind, perm, size) = match node.0 {
            ROOT => (FileType::Directory, 0o700, 0),
            CONTENT_NODE => (FileType::RegularFile, 0o600, self.bytes),
            READS_NODE => (FileType::RegularFile, 0o600, 0),
            _ => return Err(Errno::ENOENT),
        };
        let time = SystemTime::UNIX_EPOCH;
        let (blocks, blksize) = (size.div_ceil(512), 4096);
        let (atime, mtime, ctime, crtime) = (time, time, time, time);
        let (nlink, uid, gid, rdev, flags) = (1, 0, 0, 0, 0);
        Ok(FileAttr {
            ino: node,
            size,
            blocks,
            atime,
            mtime,
            ctime,
            crtime,
            kind,
            perm,
            nlink,
            uid,
            gid,
            rdev,
            blksize,
            flags,
        })
    }

    /// The read's bytes, once the disk has served it.
    fn served(&self, offset: u64, length: u32) -> io::Result<Vec<u8>> {
        let done_at = self.arm().done_at(Instant::now());
        let length = self.bytes.saturating_sub(offset).min(u64::from(length));
        let mut bytes = vec![0; length as usize];
        self.image.read_exact_at(&mut bytes, offset)?;
        if let Some(done_at) = done_at {
            thread::sleep(done_at.saturating_duration_since(Instant::now()));
        }
        Ok(bytes)
    }

    /// Holds the disk to the reads/s in this text, or lets it go by 0: it then reads from memory, so that a warm-up does not depend
    /// on the disk below.
    fn hold(&self, text: &[u8]) -> Result<(), Errno> {
        let text = std::str::from_utf8(text).map_err(|_| Errno::EINVAL)?;
        let reads_per_s: u32 = text.trim().parse().map_err(|_| Errno::EINVAL)?;
        if reads_per_s == 0 {
            file::load_data(&self.image)?;
        }
        *self.arm() = Arm { reads_per_s, is_free_at: None };
        Ok(())
    }

    /// The reads/s to which the disk is held, as text, from a byte of it on.
    fn held(&self, offset: u64) -> Vec<u8> {
        let text = format!("{}\n", self.arm().reads_per_s);
        text.into_bytes().into_iter().skip(offset as usize).collect()
    }

    fn arm(&self) -> MutexGuard<'_, Arm> {
        self.arm.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Filesystem for Device {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let known = [(CONTENT_NODE, CONTENT), (READS_NODE, READS_PER_S)]
            .into_iter()
            .find(|(_, known)| name == *known);
        match known.ok_or(Errno::ENOENT).and_then(|(number, _)| self.attributes(INodeNo(number))) {
            Ok(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
            Err(why) => reply.error(why),
        }
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(node) {
            Ok(attributes) => reply.attr(&TTL, &attributes),
            Err(why) => reply.error(why),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Past the page cache: what the disk has served once, it serves again.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = if node.0 == CONTENT_NODE { self.served(offset, length) } else { Ok(self.held(offset)) };
        match read {
            Ok(bytes) => reply.data(&bytes),
            Err(why) => reply.error(why.into()),
        }
    }

    fn write(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = if node.0 == CONTENT_NODE {
            self.image.write_all_at(bytes, offset).map_err(Errno::from)
        } else {
            self.hold(bytes)
        };
        match written {
            Ok(()) => reply.written(bytes.len() as u32),
            Err(why) => reply.error(why),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.image.sync_data() {
            Ok(()) => reply.ok(),
            Err(why) => reply.error(why.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_served_one_after_the_other() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut arm = Arm { reads_per_s: 100, is_free_at: None };
        for (comes_ms, done_ms) in [(0, 10), (1, 20), (2, 30), (50, 60), (55, 70)] {
            assert_eq!(arm.done_at(at(comes_ms)), Some(at(done_ms)));
        }
        arm.reads_per_s = 0;
        assert_eq!(arm.done_at(at(56)), None);
    }

    #[test]
    fn it_is_held_as_its_file_says() {
        let device = Device::of(tempfile::tempfile().unwrap()).unwrap();
        device.hold(b"150\n").unwrap();
        assert_eq!(
            (device.held(0), device.held(3), device.held(4)),
            (b"150\n".to_vec(), b"\n".to_vec(), vec![])
        );
        assert!(device.hold(b"many").is_err() && device.hold(b"-1").is_err());
        assert_eq!(device.held(0), b"150\n");
        device.hold(b"0").unwrap();
        assert_eq!(device.held(0), b"0\n");
    }
}
