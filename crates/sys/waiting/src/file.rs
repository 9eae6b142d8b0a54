//! Blocking look-ups, reads and directory listings: the work of helpers, and of workers that have none.

use std::io;
use std::num::NonZeroU64;
use std::path::Path;

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{self, Advice, Dir, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use flash_prompt::file::{
    self as prompt, BENEATH, FileKind, Found, Resident, Stat, Want, is_place, look_up_by, resident,
    would_wait_elsewhere,
};
use flash_prompt::sendfile::{Sent, send_behind_by};

use super::root::is_local;

/// Opens a folder, for look-ups only.
pub fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(fs::openat(fs::CWD, path, flags, Mode::empty())?)
}

/// Looks `path` up under `root` and waits for the disk where it must; otherwise like
/// [`open_cached`](flash_prompt::file::open_cached).
///
/// On a file system that may wait for somebody else, the file is only a place (`O_PATH`) that
/// [`read`] opens anew: holding and closing that waits for nobody.
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

/// Like [`open`], for whoever reads the file by [`read_now`]: the kernel reads ahead of it as of any other.
pub fn open_to_read(root: impl AsFd, path: &[u8], want: Want) -> io::Result<Found> {
    let found = open(root, path, want)?;
    if let Some(file) = &found.file {
        // Refused of a place, which nobody reads through.
        let _ = fs::fadvise(file, 0, None, Advice::Normal);
    }
    Ok(found)
}

/// Like [`open`], but stays on the file system of `root`: `EXDEV` for what lies on another.
pub fn open_on_same(root: impl AsFd, path: &[u8], want: Want) -> io::Result<Found> {
    let resolve = BENEATH | ResolveFlags::NO_XDEV;
    let open = |flags| Ok(fs::openat2(&root, path, flags, Mode::empty(), resolve)?);
    look_up_by(want, open, |file| prompt::stat(file))
}

/// Like [`open_on_same`], in the place of [`open_cached`](flash_prompt::file::open_cached) for
/// experiments, with the same errors: a path that goes to another file system "would wait".
pub fn open_in_loop(root: impl AsFd, path: &[u8], want: Want) -> io::Result<Found> {
    open_on_same(root, path, want).map_err(would_wait_elsewhere)
}

/// What fstat(2) says of an open file, asking whoever knows.
pub fn stat(file: impl AsFd) -> io::Result<Stat> {
    prompt::stat(file)
}

/// Opens what `file` has open once more, with other flags. It is only to be had through /proc.
fn open_again(file: impl AsFd, flags: OFlags) -> io::Result<OwnedFd> {
    let place = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    Ok(fs::openat(fs::CWD, place, flags | OFlags::CLOEXEC, Mode::empty())?)
}

/// Reads up to `length_bytes` at `offset` to the end of `into`, stopping early only at the
/// end of the file. A file that is only a place is opened for it.
pub fn read(file: impl AsFd, offset: u64, length_bytes: usize, into: &mut Vec<u8>) -> io::Result<usize> {
    if is_place(&file)? {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = open_again(&file, flags)?;
        // Its file system, whatever that does, may have made something else of it.
        if stat(&file)?.kind != FileKind::File {
            return Err(Errno::INVAL.into());
        }
        return read_at(file, offset, length_bytes, into);
    }
    read_at(file, offset, length_bytes, into)
}

/// Reads what there is for `buffer` at `offset`, waiting for the disk where it must; 0 is the end of the
/// file. It asks nothing before: a file that is only a place shows by that it cannot be read, and is left to
/// [`read`]. For workers that wait, in the place of [`read_resident`](flash_prompt::file::read_resident).
///
/// Errors: those of pread(2).
pub fn read_now(file: impl AsFd, offset: u64, buffer: &mut [u8]) -> io::Result<Resident> {
    loop {
        match rustix::io::pread(&file, &mut *buffer, offset) {
            Ok(n) => return Ok(Resident::Bytes(n)),
            Err(Errno::INTR) => {}
            // A place.
            Err(Errno::BADF) => return Ok(Resident::Unknown),
            Err(e) => return Err(e.into()),
        }
    }
}

/// Sends a head and a part of a file, and waits for what of it is not in memory: for workers that wait, in
/// the place of [`send_resident`](flash_prompt::sendfile::send_resident).
///
/// Errors: those of the socket.
pub fn send_now(
    socket: impl AsFd,
    head: &[u8],
    file: impl AsFd,
    offset: u64,
    length: usize,
) -> io::Result<Sent> {
    if is_place(&file)? {
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
        match rustix::io::pread(&file, &mut into[start + done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    into.truncate(start + done);
    Ok(done)
}

/// Brings a part of a file into the page cache and waits until it is there, at least to its first page.
///
/// A read would do, but the kernel counts it as a use; with that of the worker after it, each page
/// would be one used twice, and what is asked for once would drive out what is popular. So the
/// part is only submitted, and of one page a byte is read to wait for it: of the first, which the next
/// reader of the same descriptor does not count once more (`prev_pos` in filemap_read of the kernel).
/// Beyond `ONE_REQUEST_BYTES` the last page is waited for, too.
///
/// Where that does not bring all of it there, or the kernel does not tell, it is read.
pub fn load(file: impl AsFd, offset: u64, length_bytes: u64) -> io::Result<()> {
    let Some(length) = NonZeroU64::new(length_bytes) else { return Ok(()) };
    fs::fadvise(&file, offset, Some(length), Advice::WillNeed)?;
    let last = offset + length_bytes - 1;
    let mut byte = Vec::with_capacity(1);
    if length_bytes > ONE_REQUEST_BYTES {
        read_at(&file, last, 1, &mut byte)?;
    }
    read_at(&file, offset, 1, &mut byte)?;
    if !resident(&file, offset, length_bytes as usize).unwrap_or(false) {
        read_at(&file, offset, length_bytes as usize, &mut Vec::new())?;
    }
    Ok(())
}

/// So much of a file is mostly one request to the disk, all pages of which arrive together.
const ONE_REQUEST_BYTES: u64 = 128 * 1024;

/// What statx says of `path` under `root`, and whether this process may read it: the content of a file,
/// or what a directory leads to. It opens nothing for reading.
///
/// Where the kernel has no faccessat2(2), before Linux 5.8, everything counts as readable.
pub fn look(root: impl AsFd, path: &[u8]) -> io::Result<(Stat, bool)> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let place = fs::openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?;
    let stat = stat(&place)?;
    let access = if stat.kind == FileKind::Directory { libc::X_OK } else { libc::R_OK };
    let flags = libc::AT_EMPTY_PATH | libc::AT_EACCESS;
    // SAFETY: faccessat2(2) takes an open descriptor and a string that ends with NUL; both outlive the call.
    let answer =
        unsafe { libc::syscall(libc::SYS_faccessat2, place.as_raw_fd(), c"".as_ptr(), access, flags) };
    let refused = answer != 0 && io::Error::last_os_error().kind() == io::ErrorKind::PermissionDenied;
    Ok((stat, !refused))
}

/// The names in a directory, as the file system orders them, without `.` and `..`; at most
/// `names_max`, and whether there were more.
pub fn names(root: impl AsFd, path: &[u8], names_max: usize) -> io::Result<(Vec<Vec<u8>>, bool)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let directory = fs::openat2(root, path, flags, Mode::empty(), resolve)?;
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if names.len() == names_max {
            return Ok((names, true));
        }
        names.push(name.to_vec());
    }
    Ok((names, false))
}

/// An unnamed file in memory that holds `content`, open for reading and writing.
pub fn memory_file(content: &[u8]) -> io::Result<OwnedFd> {
    let file = fs::memfd_create(c"flash-listing", fs::MemfdFlags::CLOEXEC)?;
    let mut rest = content;
    while !rest.is_empty() {
        let n = rustix::io::write(&file, rest)?;
        rest = &rest[n..];
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flash_prompt::file::read_resident;

    #[test]
    fn a_file_that_may_wait_is_only_a_place_and_can_be_read_all_the_same() {
        // Not on the list of local ones, and always there.
        let root = fs::open("/proc", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("/proc");
        let file = open(&root, b"version", Want::Content).expect("found").file.expect("a file");
        assert!(is_place(&file).expect("its flags"));
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
    fn what_is_loaded_is_all_in_memory() {
        // On the disk of the sources: the kernel forgets nothing of a file in memory.
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("load-{}.tmp", std::process::id()));
        for length in [1, 5000, ONE_REQUEST_BYTES, ONE_REQUEST_BYTES + 70_000] {
            let bytes: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
            std::fs::write(&path, &bytes).expect("a file");
            let file = std::fs::File::open(&path).expect("the file");
            std::fs::remove_file(&path).expect("removed");
            file.sync_all().expect("on the disk");
            fs::fadvise(&file, 0, None, Advice::DontNeed).expect("forgotten");
            flash_prompt::file::mark_random(&file).expect("marked");
            // One longer than the file is loaded to its end.
            load(&file, 0, length + 10_000).expect("loaded");
            load(&file, 0, length).expect("loaded");
            let mut read = vec![0; bytes.len()];
            match read_resident(&file, 0, &mut read).expect("an answer") {
                Resident::Bytes(n) => assert_eq!((n, &read), (bytes.len(), &bytes)),
                Resident::Unknown => {
                    return println!("skipped: this kernel or file system does not tell what is in memory");
                }
                Resident::Absent => panic!("{length} bytes were loaded and are not there"),
            }
        }
    }

    #[test]
    fn what_was_replaced_by_no_file_is_not_read() {
        let place = fs::open("/proc/self", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("a place");
        read(place, 0, 5, &mut Vec::new()).expect_err("no regular file");
    }
}
