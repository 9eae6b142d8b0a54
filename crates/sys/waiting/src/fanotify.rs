//! Changes of the names on whole file systems (fanotify(7)). The supervisor makes the queue, which takes `CAP_SYS_ADMIN`; the
//! watcher process reads it, which takes no right.

use std::io;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::{fstatfs, fstatvfs};

use crate::happening::{HANDLE_BYTES_MAX, Handle, Happening, How, Queue, WatchId};

const APPEARED: u64 = libc::FAN_CREATE | libc::FAN_MOVED_TO;
const CHANGED: u64 = libc::FAN_MODIFY | libc::FAN_ATTRIB | libc::FAN_CLOSE_WRITE;
const WATCHED: u64 =
    APPEARED | CHANGED | libc::FAN_MOVED_FROM | libc::FAN_DELETE | libc::FAN_DELETE_SELF | libc::FAN_ONDIR;

/// The file systems whose handles name a directory for good and have [`HANDLE_BYTES_MAX`], and which have one identity. Not
/// Btrfs and bcachefs, whose subvolumes have identities of their own.
const SUITABLE: [u64; 4] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0xf2f5_2010, // f2fs
    0x0102_1994, // tmpfs
];

/// Makes a queue of all changes on the file systems of open directories.
///
/// Errors: `PermissionDenied` without `CAP_SYS_ADMIN`, `Unsupported` for a file system that does not suit, others of
/// fanotify_init(2) and fanotify_mark(2).
pub fn queue<'f>(folders: impl IntoIterator<Item = BorrowedFd<'f>>) -> io::Result<OwnedFd> {
    let flags = libc::FAN_CLOEXEC | libc::FAN_NONBLOCK | libc::FAN_CLASS_NOTIF | libc::FAN_REPORT_DFID_NAME;
    // SAFETY: the call takes numbers alone.
    let queue = unsafe { libc::fanotify_init(flags, libc::O_RDONLY as libc::c_uint) };
    if queue < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it, and nothing else has it.
    let queue = unsafe { OwnedFd::from_raw_fd(queue) };
    for folder in folders {
        if !SUITABLE.contains(&(fstatfs(folder)?.f_type as u64 & 0xffff_ffff)) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the file system does not suit"));
        }
        let flags = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
        // SAFETY: the path ends with a zero, and the kernel keeps no pointer.
        let marked = unsafe {
            libc::fanotify_mark(queue.as_raw_fd(), flags, WATCHED, folder.as_raw_fd(), c".".as_ptr())
        };
        if marked < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(queue)
}

/// Calls `each` for what each event in `bytes` means, as fanotify(7) describes them. Stops at bytes that are no event. The kernel
/// merges events of one name, so it can have appeared, changed and been deleted in any order.
pub fn decode(bytes: &[u8], mut each: impl FnMut(Happening<'_>)) {
    let mut rest = bytes;
    while let Some(&[a, b, c, d]) = rest.first_chunk() {
        let Some((event, next)) = rest.split_at_checked(u32::from_ne_bytes([a, b, c, d]) as usize) else {
            return;
        };
        let Some(mask) = numbers::<8>(event, 8).map(u64::from_ne_bytes) else { return };
        let Some(header_bytes) = numbers::<2>(event, 6).map(u16::from_ne_bytes) else { return };
        rest = next;
        if mask & libc::FAN_Q_OVERFLOW != 0 {
            each(Happening::Overflow);
        } else if let Some((directory, name)) = event.get(header_bytes.into()..).and_then(named) {
            happenings(WatchId::Handle(directory), mask, name, &mut each);
        }
    }
}

/// `N` bytes of an event.
fn numbers<const N: usize>(event: &[u8], at: usize) -> Option<[u8; N]> {
    event.get(at..)?.first_chunk().copied()
}

/// The directory and the name in the records of an event. None if there is no name, or the handle is that of another file system than
/// those that suit.
fn named(records: &[u8]) -> Option<(Handle, &[u8])> {
    let mut rest = records;
    while let (Some(kind), Some(length)) = (rest.first(), numbers::<2>(rest, 2)) {
        let (record, next) = rest.split_at_checked(u16::from_ne_bytes(length).max(1).into())?;
        if *kind == libc::FAN_EVENT_INFO_TYPE_DFID_NAME {
            let length = u32::from_ne_bytes(numbers(record, 12)?) as usize;
            let kind = i32::from_ne_bytes(numbers(record, 16)?);
            let (handle, name) = record.get(20..)?.split_at_checked(length)?;
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            return Some((of_bytes(numbers(record, 4)?, kind, handle)?, name));
        }
        rest = next;
    }
    None
}

fn of_bytes(file_system: [u8; 8], kind: i32, handle: &[u8]) -> Option<Handle> {
    let mut bytes = [0; HANDLE_BYTES_MAX];
    bytes.get_mut(..handle.len())?.copy_from_slice(handle);
    Some(Handle { file_system, kind, length: handle.len() as u8, bytes })
}

fn happenings(directory: WatchId, mask: u64, name: &[u8], each: &mut impl FnMut(Happening<'_>)) {
    let has = |flags: u64| mask & flags != 0;
    let is_directory = has(libc::FAN_ONDIR);
    // An event of a directory itself.
    if name == b"." {
        if has(libc::FAN_ATTRIB) {
            each(Happening::Attributes(directory));
        }
        if has(libc::FAN_DELETE_SELF) {
            each(Happening::Unwatched(directory));
        }
        return;
    }
    if name.is_empty() {
        return;
    }
    let mut tell = |how| each(Happening::Name { directory, name, is_directory, how });
    if has(libc::FAN_MOVED_FROM) {
        tell(How::MovedAway);
    }
    if has(libc::FAN_DELETE) {
        tell(How::Deleted);
    }
    if has(APPEARED) {
        tell(How::Appeared);
    }
    // One that appeared or is gone has changed too.
    if !has(APPEARED | libc::FAN_MOVED_FROM | libc::FAN_DELETE) {
        tell(How::Changed);
    }
}

/// A queue of events.
#[derive(Debug)]
pub struct Fanotify(Queue);

impl Fanotify {
    /// Reads a [`queue`].
    pub fn of(queue: OwnedFd) -> Self {
        Self(Queue::of(queue))
    }

    /// The name by which the queue calls an open directory on its file systems, also one that is open for look-ups only (`O_PATH`).
    ///
    /// Errors: `Unsupported` if its file system has other handles; those of name_to_handle_at(2) and fstatfs(2).
    pub fn watch(&self, directory: impl AsFd) -> io::Result<WatchId> {
        #[repr(C)]
        struct Room {
            head: [u32; 2],
            bytes: [u8; HANDLE_BYTES_MAX],
        }
        let mut room = Room { head: [HANDLE_BYTES_MAX as u32, 0], bytes: [0; HANDLE_BYTES_MAX] };
        let mut mount: libc::c_int = 0;
        // SAFETY: the room begins with a `struct file_handle` and has the bytes that its first word says.
        let found = unsafe {
            libc::name_to_handle_at(
                directory.as_fd().as_raw_fd(),
                c"".as_ptr(),
                (&raw mut room).cast(),
                &raw mut mount,
                libc::AT_EMPTY_PATH,
            )
        };
        if found < 0 {
            return Err(io::Error::last_os_error());
        }
        let [length, kind] = room.head;
        let file_system = fstatvfs(directory)?.f_fsid;
        // The kernel has it as two numbers.
        let [a, b] = [file_system as u32, (file_system >> 32) as u32].map(u32::to_ne_bytes);
        let file_system = [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]];
        let handle =
            room.bytes.get(..length as usize).and_then(|handle| of_bytes(file_system, kind as i32, handle));
        handle.map(WatchId::Handle).ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))
    }

    /// Calls `each` for the next events; false if there are none.
    ///
    /// Errors: those of read(2).
    pub fn read(&mut self, each: impl FnMut(Happening<'_>)) -> io::Result<bool> {
        self.0.read(|bytes| decode(bytes, each))
    }
}

impl AsFd for Fanotify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::file::open_folder;
    use crate::skipping::skip;

    /// The next events in a directory, as text. Other programs change other files.
    fn events(fanotify: &mut Fanotify, of: &[WatchId]) -> Vec<String> {
        let mut events = Vec::new();
        let describe = |happening: Happening<'_>| match happening {
            Happening::Name { directory, name, is_directory, how } => of
                .contains(&directory)
                .then(|| format!("{how:?} {}{}", name.escape_ascii(), if is_directory { "/" } else { "" })),
            Happening::Attributes(of_one) => of.contains(&of_one).then(|| "Attributes".to_owned()),
            Happening::Unwatched(of_one) => of.contains(&of_one).then(|| "Unwatched".to_owned()),
            other => Some(format!("{other:?}")),
        };
        while fanotify.read(|happening| events.extend(describe(happening))).expect("read") {}
        events
    }

    #[test]
    fn changes_on_a_file_system_are_reported_with_their_directory() {
        // The second is a tmpfs.
        for parent in [std::env::temp_dir(), "/dev/shm".into()] {
            check_beneath(&parent);
        }
    }

    fn check_beneath(parent: &Path) {
        let folder = tempfile::tempdir_in(parent).expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let open = |path: &Path| open_folder(path).expect("opened");
        let root = open(folder.path());
        let mut fanotify = match queue([root.as_fd()]) {
            Ok(queue) => Fanotify::of(queue),
            Err(e) => return skip(&format!("in part: no fanotify for {}: {e}", parent.display())),
        };
        let root = fanotify.watch(&root).expect("a handle");
        fs::create_dir(path("d")).expect("made");
        let directory = fanotify.watch(open(&path("d"))).expect("a handle");
        assert_ne!(root, directory);
        assert_eq!(fanotify.watch(open(&path("d"))).expect("a handle"), directory);
        let of = [root, directory];
        assert_eq!(events(&mut fanotify, &of), ["Appeared d/"]);
        fs::write(path("d/f"), "x").expect("written");
        assert_eq!(events(&mut fanotify, &of)[0], "Appeared f");
        fs::rename(path("d/f"), path("g")).expect("moved");
        assert_eq!(events(&mut fanotify, &of), ["MovedAway f", "Appeared g"]);
        // The kernel merges what happens to one name.
        fs::remove_file(path("g")).expect("deleted");
        fs::create_dir(path("h")).expect("made");
        fs::remove_dir(path("h")).expect("deleted");
        assert_eq!(events(&mut fanotify, &of), ["Deleted g", "Deleted h/", "Appeared h/"]);
        fs::remove_dir(path("d")).expect("deleted");
        // So a directory can end before the file in it. It ends later if a process that another test starts has it open for a moment.
        let mut ends_first = || {
            fs::create_dir(path("d")).expect("made");
            let of = [root, fanotify.watch(open(&path("d"))).expect("a handle")];
            fs::write(path("d/f"), "x").expect("written");
            events(&mut fanotify, &of);
            fs::set_permissions(path("d"), std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("set");
            fs::remove_file(path("d/f")).expect("deleted");
            fs::remove_dir(path("d")).expect("deleted");
            events(&mut fanotify, &of) == ["Attributes", "Unwatched", "Deleted f", "Deleted d/"]
        };
        assert!((0..50).any(|_| ends_first()));
    }

    #[test]
    fn bytes_that_are_no_event_end_the_events() {
        let event = |mask: u64, records: &[u8]| {
            let mut bytes = (24 + records.len() as u32).to_ne_bytes().to_vec();
            bytes.extend_from_slice(&[3, 0, 24, 0]);
            bytes.extend_from_slice(&mask.to_ne_bytes());
            bytes.extend_from_slice(&[0xff; 8]);
            bytes.extend_from_slice(records);
            bytes
        };
        let mut record = vec![libc::FAN_EVENT_INFO_TYPE_DFID_NAME, 0, 32, 0];
        record.extend_from_slice(b"filesyst\x08\0\0\0\x01\0\0\0handlehaname\0\0\0\0");
        record[2] = record.len() as u8;
        let bytes = [event(libc::FAN_CREATE, &record), event(libc::FAN_Q_OVERFLOW, &[])].concat();
        let decoded = |bytes: &[u8]| {
            let mut all = Vec::new();
            decode(bytes, |happening| all.push(format!("{happening:?}")));
            all
        };
        let all = decoded(&bytes);
        assert!(all[0].contains("Appeared") && all[0].contains("[110, 97, 109, 101]"), "{}", all[0]);
        assert_eq!(all[1..], ["Overflow"]);
        for length in 0..bytes.len() {
            assert_eq!(decoded(&bytes[..length]).len(), usize::from(length >= 24 + record.len()), "{length}");
        }
        // A handle that is too long is that of another file system.
        record[12] = 17;
        assert_eq!(decoded(&event(libc::FAN_CREATE, &record)), [""; 0]);
    }
}
