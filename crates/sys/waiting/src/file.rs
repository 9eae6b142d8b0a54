//! Blocking look-ups, reads and directory listings: for helpers, and for workers without helpers.

use std::fs::File;
use std::io::{self, Write as _};
use std::num::NonZeroU64;
use std::path::Path;

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{self, Advice, Dir, Mode, OFlags, ResolveFlags, SeekFrom};
use rustix::io::{Errno, retry_on_intr};

use flash_prompt::file::{
    self as prompt, BENEATH, FileKind, Found, Resident, Stat, Want, is_path_only, look_up_by, resident,
    would_wait_elsewhere,
};
use flash_prompt::sendfile::{Sent, send_behind_by};

use super::root::is_local;

/// Opens a directory, for look-ups only.
pub fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(fs::openat(fs::CWD, path, flags, Mode::empty())?)
}

/// Looks up `path` under `root` and waits for the disk if necessary; otherwise like
/// [`open_cached`](flash_prompt::file::open_cached).
///
/// On a file system that can wait for another process or host, the file is only opened with `O_PATH`, and
/// [`read`] opens it again: holding and closing such a descriptor never blocks.
pub fn open(root: impl AsFd, path: &[u8], want: Want) -> io::Result<Found> {
    let open = |flags| Ok(fs::openat2(&root, path, flags, Mode::empty(), BENEATH)?);
    let mut found = look_up_by(want, open, |file| stat(file))?;
    if let Some(file) = &mut found.file
        && !is_local(&*file).unwrap_or(false)
    {
        *file = open_again(&*file, OFlags::PATH)?;
    }
    Ok(found)
}

/// Like [`open`], for a caller that uses [`read_now`]: the kernel reads ahead as usual.
pub fn open_to_read(root: impl AsFd, path: &[u8], want: Want) -> io::Result<Found> {
    let found = open(root, path, want)?;
    if let Some(file) = &found.file {
        // Refused for an `O_PATH` descriptor, which is not used for reading.
        let _ = fs::fadvise(file, 0, None, Advice::Normal);
    }
    Ok(found)
}

/// Like [`open`], but stays on the file system of `root`: `EXDEV` for a path to another one.
pub fn open_on_same(root: impl AsFd, path: &[u8], want: Want) -> io::Result<Found> {
    let resolve = BENEATH | ResolveFlags::NO_XDEV;
    let open = |flags| Ok(fs::openat2(&root, path, flags, Mode::empty(), resolve)?);
    look_up_by(want, open, |file| prompt::stat(file))
}

/// Like [`open_on_same`], as a replacement for [`open_cached`](flash_prompt::file::open_cached) in
/// experiments, with the same errors: a path to another file system "would block".
pub fn open_in_loop(root: impl AsFd, path: &[u8], want: Want) -> io::Result<Found> {
    open_on_same(root, path, want).map_err(would_wait_elsewhere)
}

/// Calls fstat(2) on an open file. Can wait for another process or host.
pub fn stat(file: impl AsFd) -> io::Result<Stat> {
    prompt::stat(file)
}

/// Opens the file of a descriptor again, with other flags. Only /proc makes that possible.
pub(crate) fn open_again(file: impl AsFd, flags: OFlags) -> io::Result<OwnedFd> {
    let place = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    Ok(fs::openat(fs::CWD, place, flags | OFlags::CLOEXEC, Mode::empty())?)
}

/// Flags for opening a file to read it, whatever it has become meanwhile.
pub(crate) const TO_READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Opens the file of an `O_PATH` descriptor for reading.
///
/// Errors: any of openat(2); `EINVAL` if its file system has replaced it by something else than a regular file.
pub(crate) fn open_place(place: impl AsFd, more: OFlags) -> io::Result<OwnedFd> {
    let file = open_again(place, TO_READ | more)?;
    if stat(&file)?.kind != FileKind::File {
        return Err(Errno::INVAL.into());
    }
    Ok(file)
}

/// Appends up to `length_bytes` at `offset` to `into`. Stops early only at the end of the file. A file opened
/// with `O_PATH` is opened again for this.
pub fn read(file: impl AsFd, offset: u64, length_bytes: usize, into: &mut Vec<u8>) -> io::Result<usize> {
    if is_path_only(&file)? {
        return read_at(open_place(&file, OFlags::empty())?, offset, length_bytes, into);
    }
    read_at(file, offset, length_bytes, into)
}

/// Reads bytes into `buffer` from `offset` and waits for the disk if necessary; 0 is the end of the file. It
/// makes no other call first: an `O_PATH` descriptor cannot be read, and is left to [`read`]. For workers
/// that may block, as a replacement for [`read_resident`](flash_prompt::file::read_resident).
pub fn read_now(file: impl AsFd, offset: u64, buffer: &mut [u8]) -> io::Result<Resident> {
    match retry_on_intr(|| rustix::io::pread(&file, &mut *buffer, offset)) {
        Ok(count) => Ok(Resident::Bytes(count)),
        // An `O_PATH` descriptor.
        Err(Errno::BADF) => Ok(Resident::Unknown),
        Err(e) => Err(e.into()),
    }
}

/// Sends a head and a part of a file, and waits for the part that is not in memory. For workers that may
/// block, as a replacement for [`send_resident`](flash_prompt::sendfile::send_resident).
pub fn send_now(
    socket: impl AsFd,
    head: &[u8],
    file: impl AsFd,
    offset: u64,
    length: usize,
) -> io::Result<Sent> {
    if is_path_only(&file)? {
        return Ok(Sent::Unknown);
    }
    send_behind_by(&socket, head, length, |from, left| {
        let mut at = offset + from;
        fs::sendfile(&socket, &file, Some(&mut at), left)
    })
}

fn read_at(file: impl AsFd, offset: u64, length_bytes: usize, into: &mut Vec<u8>) -> io::Result<usize> {
    let start = into.len();
    into.resize(start + length_bytes, 0);
    let mut done = 0;
    while done < length_bytes {
        let rest = &mut into[start + done..];
        match retry_on_intr(|| rustix::io::pread(&file, &mut *rest, offset + done as u64))? {
            0 => break,
            count => done += count,
        }
    }
    into.truncate(start + done);
    Ok(done)
}

/// Loads a part of a file into the page cache and waits until it is there.
///
/// A read would do, but the kernel counts it as a use. With the server's read after it, each page would count
/// as used twice, and files requested once would evict popular ones. So the part is only submitted for
/// reading, and a byte of each `ONE_REQUEST_BYTES` is read to wait for it. The first page comes last, because the
/// next read through the same descriptor does not count it again (`prev_pos` in filemap_read of the kernel).
///
/// If the kernel reports that the part is not whole in memory then, the part is read.
pub fn load(file: impl AsFd, offset: u64, length_bytes: u64) -> io::Result<()> {
    let Some(length) = NonZeroU64::new(length_bytes) else { return Ok(()) };
    fs::fadvise(&file, offset, Some(length), Advice::WillNeed)?;
    let mut byte = Vec::with_capacity(1);
    let mut left = length_bytes;
    while left > ONE_REQUEST_BYTES {
        read_at(&file, offset + left - 1, 1, &mut byte)?;
        left -= ONE_REQUEST_BYTES;
    }
    read_at(&file, offset, 1, &mut byte)?;
    if let Ok(false) = resident(&file, offset, length_bytes as usize) {
        read_at(&file, offset, length_bytes as usize, &mut Vec::new())?;
    }
    Ok(())
}

/// Locks a file for this open descriptor, until it is closed (flock(2)).
///
/// Errors: `EWOULDBLOCK`, where another one has it locked.
pub fn lock(file: impl AsFd) -> io::Result<()> {
    Ok(fs::flock(file, fs::FlockOperation::NonBlockingLockExclusive)?)
}

/// Loads a sparse file into the page cache, without its holes.
///
/// Errors: those of lseek(2) and read(2).
pub fn load_data(file: impl AsFd) -> io::Result<()> {
    const PIECE_BYTES: u64 = 1 << 20;
    let mut hole = 0;
    loop {
        let data = match fs::seek(&file, SeekFrom::Data(hole)) {
            Err(Errno::NXIO) => return Ok(()),
            found => found?,
        };
        hole = fs::seek(&file, SeekFrom::Hole(data))?;
        for piece in (data..hole).step_by(PIECE_BYTES as usize) {
            load(&file, piece, PIECE_BYTES.min(hole - piece))?;
        }
    }
}

/// A read of this length is usually one request to the disk, whose pages all arrive together.
const ONE_REQUEST_BYTES: u64 = 128 * 1024;

/// Opens `path` as a server whose root directory is `root` would, and closes it again: so its directories, its
/// attributes and, of a directory, up to `entries_max` entries are in memory then.
///
/// A file is opened for reading, because the kernel checks the rights, reads extended attributes and loads
/// the first blocks of the file's map only then. Devices, sockets and FIFOs are not opened.
///
/// Errors: any of openat2(2), with a loop of symlinks as `ELOOP`; any of getdents64(2).
pub fn touch(root: impl AsFd, path: &[u8], entries_max: usize) -> io::Result<()> {
    // A rename elsewhere can make the kernel doubt whether `..` left the root. It asks for another try.
    const TRIES: usize = 8;
    let open = |flags: OFlags| {
        let mut tried = Err(Errno::AGAIN);
        for _ in 0..TRIES {
            tried = fs::openat2(&root, path, flags | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::IN_ROOT);
            if !matches!(tried, Err(Errno::AGAIN)) {
                break;
            }
        }
        tried
    };
    match stat(&open(OFlags::PATH)?)?.kind {
        FileKind::File => drop(open(TO_READ)?),
        FileKind::Directory => {
            for entry in Dir::read_from(open(TO_READ | OFlags::DIRECTORY)?)?.take(entries_max) {
                entry?;
            }
        }
        FileKind::Special => {}
    }
    Ok(())
}

/// Makes an unnamed file in memory with this `content`, open for reading and writing.
pub fn memory_file(content: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(fs::memfd_create(c"flash-listing", fs::MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    Ok(file.into())
}

/// Makes an unnamed file in memory with this secret `content`, which can never change and never be executed.
pub fn secret_file(content: &[u8]) -> io::Result<OwnedFd> {
    let flags = fs::MemfdFlags::CLOEXEC | fs::MemfdFlags::ALLOW_SEALING;
    let file = fs::memfd_create(c"flash-secret", flags)?;
    let mut rest = content;
    while !rest.is_empty() {
        let n = rustix::io::write(&file, rest)?;
        rest = &rest[n..];
    }
    let seals = fs::SealFlags::WRITE | fs::SealFlags::SHRINK | fs::SealFlags::GROW | fs::SealFlags::SEAL;
    fs::fcntl_add_seals(&file, seals)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use flash_prompt::file::read_resident;

    #[test]
    fn a_file_that_could_block_is_opened_with_o_path_and_can_still_be_read() {
        // /proc is not on the list of local file systems, and always present.
        let root = fs::open("/proc", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("/proc");
        let file = open(&root, b"version", Want::Content).expect("found").file.expect("a file");
        assert!(is_path_only(&file).expect("its flags"));
        assert_eq!(read_resident(&file, 0, &mut [0; 16]).expect("an answer"), Resident::Unknown);
        let mut bytes = Vec::new();
        read(&file, 0, 5, &mut bytes).expect("read");
        assert_eq!(bytes, b"Linux");
        let file = open_to_read(&root, b"version", Want::Content).expect("found").file.expect("a file");
        let mut buffer = [0; 5];
        assert_eq!(read_now(&file, 0, &mut buffer).expect("an answer"), Resident::Unknown);
        let file = std::fs::File::open("/proc/version").expect("opened for reading");
        assert_eq!(read_now(&file, 0, &mut buffer).expect("read"), Resident::Bytes(5));
        assert_eq!(&buffer, b"Linux");
    }

    #[test]
    fn a_loaded_part_is_completely_in_memory() {
        // On the disk of the sources, because the kernel never evicts a file in memory.
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("load-{}.tmp", std::process::id()));
        for length in [1, 5000, ONE_REQUEST_BYTES, ONE_REQUEST_BYTES + 70_000] {
            let bytes: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
            std::fs::write(&path, &bytes).expect("a file");
            let file = std::fs::File::open(&path).expect("the file");
            std::fs::remove_file(&path).expect("removed");
            file.sync_all().expect("on the disk");
            fs::fadvise(&file, 0, None, Advice::DontNeed).expect("forgotten");
            flash_prompt::file::mark_random(&file).expect("marked");
            // A length beyond the end of the file loads it to its end.
            load(&file, 0, length + 10_000).expect("loaded");
            load(&file, 0, length).expect("loaded");
            let mut read = vec![0; bytes.len()];
            // Pages between the first and the last may still be on their way from the disk.
            let patience = Instant::now() + Duration::from_secs(10);
            loop {
                match read_resident(&file, 0, &mut read).expect("an answer") {
                    Resident::Bytes(n) if n < bytes.len() && Instant::now() < patience => {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    Resident::Bytes(n) => {
                        assert_eq!((n, &read), (bytes.len(), &bytes));
                        break;
                    }
                    Resident::Unknown => {
                        return crate::skipping::skip("this kernel or file system does not report residency");
                    }
                    Resident::Absent => panic!("{length} bytes were loaded but are not in memory"),
                }
            }
        }
    }

    #[test]
    fn the_data_of_a_sparse_file_are_loaded() {
        use std::os::unix::fs::FileExt as _;

        const HOLE_BYTES: u64 = 64 << 20;
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("sparse-{}.tmp", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
        std::fs::remove_file(&path).expect("removed");
        let parts = [(0, 4096), (HOLE_BYTES, 3 << 20)];
        for (offset, length) in parts {
            file.write_all_at(&vec![1; length], offset).expect("written");
        }
        file.set_len(2 * HOLE_BYTES).expect("a hole at the end");
        file.sync_all().expect("on the disk");
        fs::fadvise(&file, 0, None, Advice::DontNeed).expect("forgotten");
        let are_resident =
            || parts.iter().all(|&(offset, length)| resident(&file, offset, length) == Ok(true));
        if resident(&file, 0, 1) != Ok(false) {
            return crate::skipping::skip("this kernel or file system does not report residency");
        }
        load_data(&file).expect("loaded");
        assert!(are_resident());
        // Some file systems know of no holes.
        let has_hole = fs::seek(&file, SeekFrom::Hole(0)) == Ok(4096);
        assert!(!has_hole || resident(&file, HOLE_BYTES / 2, 4096) == Ok(false));
        load_data(std::fs::File::open("/proc/version").expect("opened")).expect_err("it cannot be sought in");
    }

    #[test]
    fn a_touch_reports_the_error_that_a_server_would_get_and_does_not_leave_the_root() {
        let temporary = tempfile::tempdir().expect("a folder");
        let folder = temporary.path();
        std::fs::create_dir_all(folder.join("sub/more")).expect("a folder");
        std::fs::write(folder.join("sub/a.txt"), "a").expect("a file");
        for (name, target) in [("in", "/sub/a.txt"), ("out", "../../../../sub"), ("loop", "loop")] {
            std::os::unix::fs::symlink(target, folder.join(name)).expect("a link");
        }
        let root = open_folder(folder).expect("the folder");
        for path in ["/", "/sub", "/sub/", "/sub/a.txt", "/in", "/out/a.txt", "/../sub/../in"] {
            touch(&root, path.as_bytes(), 1).unwrap_or_else(|e| panic!("{path}: {e}"));
        }
        for (path, expected) in [("/none", Errno::NOENT), ("/in/x", Errno::NOTDIR), ("/loop", Errno::LOOP)] {
            let error = touch(&root, path.as_bytes(), 1).expect_err(path);
            assert_eq!(Errno::from_io_error(&error), Some(expected), "{path}");
        }
        let error = touch(&root, b"/etc/passwd", 1).expect_err("not the machine's own /etc");
        assert_eq!(Errno::from_io_error(&error), Some(Errno::NOENT));
    }

    #[test]
    fn a_file_replaced_by_a_special_file_is_not_read() {
        let place = fs::open("/proc/self", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("a place");
        read(place, 0, 5, &mut Vec::new()).expect_err("not a regular file");
    }
}
