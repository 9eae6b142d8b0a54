//! Unix sockets at a path (unix(7)): the supervisor's control socket and its clients, the socket of `flash
//! backend`, and those of the programs of routes, whose paths are gone.

use std::ffi::{CStr, CString};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use flash_prompt::clock;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::child_call::ChildCall;
use crate::sandbox::privileges;

/// Maximum connections of packets that wait to be accepted; the kernel also bounds it by `somaxconn`.
const BACKLOG: i32 = 4096;
/// Names that are tried for a directory for temporary files.
const FOLDER_TRIES: usize = 100;

/// Listens at `path`. From the first moment on, only this user (and root) can connect. A stale socket at the
/// path, on which no process listens any more, is replaced. Calls on the listener do not block.
///
/// Errors: `AddrInUse` if another process listens there, `AlreadyExists` if the path is not a socket,
/// `InvalidInput` if the path is too long; any of bind(2).
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    listen_as(path, SocketType::STREAM, 0o600).map(UnixListener::from)
}

/// Listens at `path` for connections of packets (`SOCK_SEQPACKET`). From the first moment on, only users with
/// these permissions can connect. Otherwise like [`listen`].
pub fn listen_packets(path: &Path, permissions: u32) -> io::Result<OwnedFd> {
    listen_as(path, SocketType::SEQPACKET, permissions)
}

/// Listens at `path` for connections of bytes (`SOCK_STREAM`). Otherwise like [`listen_packets`].
pub fn listen_bytes(path: &Path, permissions: u32) -> io::Result<OwnedFd> {
    listen_as(path, SocketType::STREAM, permissions)
}

/// A listening socket for connections of bytes without a path, and its place in the file system: only processes that have
/// the place can connect ([`connect_in_private`]). Calls on the listener block.
pub fn listen_in_private() -> io::Result<(OwnedFd, OwnedFd)> {
    let folder = private_folder()?;
    let path = folder.join("socket");
    let made = listen_bytes(&path, 0o666).and_then(|listener| {
        rustix::fs::fcntl_setfl(&listener, rustix::fs::fcntl_getfl(&listener)? & !OFlags::NONBLOCK)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok((listener, rustix::fs::open(&path, flags, Mode::empty())?))
    });
    let _ = std::fs::remove_file(&path);
    let removed = std::fs::remove_dir(&folder);
    made.and_then(|made| removed.map(|()| made))
}

/// A new directory for temporary files, which only this user can use.
fn private_folder() -> io::Result<PathBuf> {
    // Others can take some names in advance, but not those with the time.
    for _ in 0..FOLDER_TRIES {
        let name = format!("flash-{}-{:x}", std::process::id(), clock::monotonic_ns());
        let folder = temporary_files().join(name);
        // It fails if the name is taken, also by a link.
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| folder),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// A directory for temporary files, in memory if there is one: the supervisor must not wait for a disk.
fn temporary_files() -> PathBuf {
    const IN_MEMORY: &str = "/dev/shm";
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    let found = rustix::fs::statfs(IN_MEMORY).ok();
    let usable = || rustix::fs::access(IN_MEMORY, rustix::fs::Access::WRITE_OK).is_ok();
    match found.filter(|found| found.f_type as u64 == TMPFS_MAGIC && usable()) {
        Some(_) => PathBuf::from(IN_MEMORY),
        None => std::env::temp_dir(),
    }
}

/// Connects to a socket of [`listen_in_private`] without waiting. Calls on the connection do not block.
///
/// Errors: as in [`connect`]; `NotFound` without /proc.
pub fn connect_in_private(place: &OwnedFd) -> io::Result<OwnedFd> {
    connect_prompt(&PathBuf::from(format!("/proc/self/fd/{}", place.as_raw_fd())))
}

fn listen_as(path: &Path, kind: SocketType, permissions: u32) -> io::Result<OwnedFd> {
    make_room(path, kind)?;
    let address = SocketAddrUnix::new(path.as_os_str().as_bytes())?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
    // bind(2) gives the path the mode that the socket has, less the umask; the umask of all threads stays as it is.
    rustix::fs::fchmod(&fd, Mode::from_raw_mode(permissions))?;
    rustix::net::bind(&fd, &address)?;
    set_permissions(path, permissions)?;
    rustix::net::listen(&fd, BACKLOG)?;
    Ok(fd)
}

/// Gives the socket at `path`, which this process has just bound, these permissions.
fn set_permissions(path: &Path, permissions: u32) -> io::Result<()> {
    let (place, found) = place_of_own(path)?;
    if found.st_mode & 0o777 == permissions {
        return Ok(());
    }
    let place = format!("/proc/self/fd/{}", place.as_raw_fd());
    Ok(rustix::fs::chmod(place, Mode::from_raw_mode(permissions))?)
}

/// Gives the socket at `path`, which this process has just bound, to a user and a group. Returns the device and the inode of
/// the socket.
///
/// Errors: `AlreadyExists` if something else is there by now; any of chown(2).
pub fn give_to(path: &Path, owner: Option<(u32, u32)>) -> io::Result<(u64, u64)> {
    let (place, found) = place_of_own(path)?;
    if let Some((uid, gid)) = owner {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        rustix::fs::chownat(&place, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
    }
    Ok((found.st_dev, found.st_ino))
}

/// Removes the socket at `path` if it still has this device and inode: another process may have replaced it. A child does it,
/// because its disk may hang.
pub fn remove(path: &Path, file: (u64, u64)) {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return };
    // A socket that stays is stale, and replaced at the next start.
    //
    // SAFETY: it makes only system calls, and the path exists.
    let _ = unsafe { ChildCall::run(None, |_| unlink(&path, file)) };
}

/// The same, for a process that goes on: it does not wait for the child.
pub fn remove_later(path: &Path, file: (u64, u64)) {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return };
    // SAFETY: as in `remove`.
    let _ = unsafe { ChildCall::leave(|| unlink(&path, file)) };
}

fn unlink(path: &CStr, file: (u64, u64)) -> Result<(), Errno> {
    let found = rustix::fs::lstat(path)?;
    if (found.st_dev, found.st_ino) == file { rustix::fs::unlink(path) } else { Ok(()) }
}

/// The place of a socket of this user, whatever its path leads to later. A user who can change its folder could replace it by
/// a link to another file.
fn place_of_own(path: &Path) -> io::Result<(OwnedFd, Stat)> {
    let place = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let found = rustix::fs::fstat(&place)?;
    let is_socket = FileType::from_raw_mode(found.st_mode) == FileType::Socket;
    if is_socket && found.st_nlink == 1 && found.st_uid == privileges::user() {
        return Ok((place, found));
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Removes a stale socket.
fn make_room(path: &Path, kind: SocketType) -> io::Result<()> {
    match path.symlink_metadata() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
        Ok(found) if !found.file_type().is_socket() => Err(io::ErrorKind::AlreadyExists.into()),
        Ok(_) if is_refused(connect_as(path, kind).map(drop))? => std::fs::remove_file(path),
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
    }
}

/// Whether no process listens on the socket at `path`.
///
/// Errors: any of connect(2), except a refusal.
pub fn is_stale(path: &Path) -> io::Result<bool> {
    is_refused(connect(path).map(drop))
}

/// Whether a connection was refused because no process listens.
fn is_refused(connected: io::Result<()>) -> io::Result<bool> {
    match connected {
        Ok(()) => Ok(false),
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => Ok(true),
        // Its queue is full, or it is a socket of another type, which a process listens on.
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(e) if Errno::from_io_error(&e) == Some(Errno::PROTOTYPE) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Connects to the socket at `path` without waiting. Calls on the stream block.
///
/// Errors: `ConnectionRefused` if no process listens there, `NotFound`, `PermissionDenied`, `WouldBlock` if
/// too many clients are waiting; other errors of connect(2).
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::from(connect_as(path, SocketType::STREAM)?);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Connects to the socket at `path` without waiting. Calls on the connection do not block.
pub fn connect_prompt(path: &Path) -> io::Result<OwnedFd> {
    connect_as(path, SocketType::STREAM)
}

/// Connects to a socket of packets at `path` without waiting. Calls on the connection block.
///
/// Errors: as in [`connect`]; `EPROTOTYPE` for a socket of another type.
pub fn connect_packets(path: &Path) -> io::Result<OwnedFd> {
    let fd = connect_as(path, SocketType::SEQPACKET)?;
    let flags = rustix::fs::fcntl_getfl(&fd)?;
    rustix::fs::fcntl_setfl(&fd, flags & !rustix::fs::OFlags::NONBLOCK)?;
    Ok(fd)
}

fn connect_as(path: &Path, kind: SocketType) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path.as_os_str().as_bytes())?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
    rustix::net::connect(&fd, &address)?;
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_socket_is_only_for_its_user() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let listener = listen(&path).expect("a listener");
        assert_eq!(path.symlink_metadata().expect("a socket").permissions().mode() & 0o7777, 0o600);
        assert_eq!(listener.accept().expect_err("no client yet").kind(), io::ErrorKind::WouldBlock);
        let _client = connect(&path).expect("connected");
        listener.accept().expect("a client");
    }

    #[test]
    fn a_socket_without_a_path_is_reached_by_its_place() {
        let (listener, place) = listen_in_private().expect("a listener");
        let _client = connect_in_private(&place).expect("connected");
        UnixListener::from(listener).accept().expect("a client");
        // No other process has a copy of this listener for long.
        let refused = || connect_in_private(&place).err().map(|e| e.kind());
        while refused() != Some(io::ErrorKind::ConnectionRefused) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    #[test]
    fn a_link_in_place_of_a_socket_is_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let [path, file] = ["socket", "file"].map(|name| folder.path().join(name));
        std::fs::write(&file, "precious").expect("a file");
        let mode = || file.metadata().expect("the file").permissions().mode() & 0o7777;
        let before = mode();
        // As another user would, between bind and the next call.
        std::os::unix::fs::symlink(&file, &path).expect("a link");
        for replaced in [set_permissions(&path, 0o666), give_to(&path, Some((1, 1))).map(drop)] {
            assert_eq!(replaced.expect_err("not a socket").kind(), io::ErrorKind::AlreadyExists);
        }
        assert_eq!(mode(), before);
        std::fs::remove_file(&path).expect("removed");
        let other = folder.path().join("other");
        let _other = listen(&other).expect("a listener");
        std::fs::hard_link(&other, &path).expect("a link");
        let replaced = set_permissions(&path, 0o666).expect_err("another socket");
        assert_eq!(replaced.kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn only_the_own_socket_is_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let wait_until_gone = || {
            while path.exists() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        };
        let _first = listen(&path).expect("a listener");
        let file = give_to(&path, None).expect("its own");
        remove(&path, (file.0, file.1 + 1));
        assert!(path.exists(), "it is another one");
        remove(&path, file);
        assert!(!path.exists());
        let _second = listen(&path).expect("a listener");
        remove_later(&path, give_to(&path, None).expect("its own"));
        wait_until_gone();
    }

    #[test]
    fn only_a_stale_socket_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let first = listen(&path).expect("a listener");
        assert_eq!(listen(&path).expect_err("in use").kind(), io::ErrorKind::AddrInUse);
        // Closing it would not do: a process that another test starts has a copy until it executes its program.
        rustix::net::shutdown(&first, rustix::net::Shutdown::Both).expect("shut down");
        drop(first);
        assert!(is_stale(&path).expect("an answer"));
        drop(listen(&path).expect("a listener"));
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, "precious").expect("a file");
        assert_eq!(listen(&path).expect_err("a file").kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).expect("the file"), b"precious");
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(connect(&path).expect_err("nothing there").kind(), io::ErrorKind::NotFound);
    }
}
