//! Changes of the names in directories (inotify(7)). Called by the watcher process.

use std::io;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use crate::happening::{Happening, How, Queue, WatchId};

const HEADER_BYTES: usize = 16;

const WATCHED: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// Calls `each` for each event in `bytes`, as inotify(7) describes them. Stops at bytes that are no event.
pub fn decode(bytes: &[u8], mut each: impl FnMut(Happening<'_>)) {
    let mut rest = bytes;
    while let Some((header, after)) = rest.split_first_chunk::<HEADER_BYTES>() {
        let word = |at: usize| {
            let [a, b, c, d] = [0, 1, 2, 3].map(|n| header[at + n]);
            u32::from_ne_bytes([a, b, c, d])
        };
        let (watch, mask, length) = (WatchId::Number(word(0) as i32), word(4), word(12) as usize);
        let Some((name, next)) = after.split_at_checked(length) else { return };
        rest = next;
        // The name is filled up with zeros.
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        if let Some(happening) = happening(watch, mask, name) {
            each(happening);
        }
    }
}

fn happening(watch: WatchId, mask: u32, name: &[u8]) -> Option<Happening<'_>> {
    let has = |flags: u32| mask & flags != 0;
    if has(libc::IN_Q_OVERFLOW) {
        return Some(Happening::Overflow);
    }
    if has(libc::IN_UNMOUNT) {
        return Some(Happening::Unmounted(watch));
    }
    if has(libc::IN_IGNORED) {
        return Some(Happening::Unwatched(watch));
    }
    if has(libc::IN_MOVE_SELF) {
        return Some(Happening::Moved(watch));
    }
    if name.is_empty() {
        return has(libc::IN_ATTRIB).then_some(Happening::Attributes(watch));
    }
    let how = if has(libc::IN_CREATE | libc::IN_MOVED_TO) {
        How::Appeared
    } else if has(libc::IN_MOVED_FROM) {
        How::MovedAway
    } else if has(libc::IN_DELETE) {
        How::Deleted
    } else {
        How::Changed
    };
    Some(Happening::Name { directory: watch, name, is_directory: has(libc::IN_ISDIR), how })
}

/// Maximum number of watches of a user, in all processes together (`fs.inotify.max_user_watches`). None if the kernel does not
/// tell it.
pub fn watches_max() -> Option<u64> {
    std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches").ok()?.trim().parse().ok()
}

/// A queue of events.
#[derive(Debug)]
pub struct Inotify(Queue);

impl Inotify {
    /// Makes an empty queue.
    ///
    /// Errors: those of inotify_init1(2), also if the user has too many.
    pub fn new() -> io::Result<Self> {
        let queue = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Self(Queue::of(queue)))
    }

    /// Watches an open directory.
    ///
    /// Errors: `PermissionDenied` without the right to read it; `StorageFull` if the user has as many watches as are
    /// allowed (`fs.inotify.max_user_watches`); others of inotify_add_watch(2).
    pub fn watch(&self, directory: impl AsFd) -> io::Result<WatchId> {
        // There is no form of the call for an open directory.
        let path = format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd());
        Ok(WatchId::Number(inotify::add_watch(self.0.as_fd(), path, WATCHED)?))
    }

    /// Ends a watch. An event says so.
    pub fn unwatch(&self, watch: WatchId) {
        let WatchId::Number(number) = watch else { return };
        // This fails only if the kernel has ended it.
        let _ = inotify::remove_watch(self.0.as_fd(), number);
    }

    /// Calls `each` for the next events; false if there are none.
    ///
    /// Errors: those of read(2).
    pub fn read(&mut self, each: impl FnMut(Happening<'_>)) -> io::Result<bool> {
        self.0.read(|bytes| decode(bytes, each))
    }
}

impl AsFd for Inotify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::file::open_folder;

    /// The next events, as text.
    fn events(inotify: &mut Inotify) -> Vec<String> {
        let mut events = Vec::new();
        let describe = |happening: Happening<'_>| match happening {
            Happening::Name { name, is_directory, how, .. } => {
                format!("{how:?} {}{}", name.escape_ascii(), if is_directory { "/" } else { "" })
            }
            other => format!("{other:?}"),
        };
        while inotify.read(|happening| events.push(describe(happening))).expect("read") {}
        events
    }

    #[test]
    fn changes_in_a_directory_are_told_in_order() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let mut inotify = Inotify::new().expect("a queue");
        let directory = open_folder(folder.path()).expect("opened");
        let watch = inotify.watch(&directory).expect("watched");
        assert_eq!(inotify.watch(&directory).expect("watched"), watch);
        assert_eq!(events(&mut inotify), [""; 0]);
        fs::write(path("a"), "x").expect("written");
        let (mut changes, since) = (events(&mut inotify), Instant::now());
        // A process that another test has forked meanwhile can close the file later.
        while changes.len() < 3 && since.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
            changes.extend(events(&mut inotify));
        }
        assert_eq!(changes, ["Appeared a", "Changed a", "Changed a"]);
        fs::rename(path("a"), path("b")).expect("moved");
        fs::create_dir(path("d")).expect("made");
        fs::remove_file(path("b")).expect("deleted");
        let expected = ["MovedAway a", "Appeared b", "Appeared d/", "Deleted b"];
        assert_eq!(events(&mut inotify), expected);
        inotify.unwatch(watch);
        fs::write(path("c"), "x").expect("written");
        assert_eq!(events(&mut inotify), [format!("Unwatched({watch:?})")]);
    }

    #[test]
    fn bytes_that_are_no_event_end_the_events() {
        let mut bytes = Vec::new();
        for (mask, name) in [(libc::IN_CREATE, &b"name\0\0\0\0"[..]), (libc::IN_Q_OVERFLOW, b"")] {
            for word in [7, mask, 0, name.len() as u32] {
                bytes.extend_from_slice(&word.to_ne_bytes());
            }
            bytes.extend_from_slice(name);
        }
        let count = |bytes: &[u8]| {
            let mut count = 0;
            decode(bytes, |_| count += 1);
            count
        };
        assert_eq!(count(&bytes), 2);
        assert_eq!([0, 15, 20, 24, 39].map(|length| count(&bytes[..length])), [0, 0, 0, 1, 1]);
    }
}
