//! Unix sockets at a path, for the user of this process alone (unix(7)): the supervisor's control
//! socket and its clients.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Listens at `path`, which nobody but this user (and root) can connect to from its first moment on. A
/// socket there at which nobody listens any more is replaced. Calls on the listener do not wait.
///
/// No other thread may make files meanwhile: the umask is the process's.
///
/// Errors: `AddrInUse` when somebody listens there, `AlreadyExists` when something else is there,
/// `InvalidInput` for a path that is too long; those of bind(2).
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    match path.symlink_metadata() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
        Ok(found) if !found.file_type().is_socket() => return Err(io::ErrorKind::AlreadyExists.into()),
        Ok(_) if is_stale(path)? => std::fs::remove_file(path)?,
        Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
    }
    // A socket is made with all rights but those in the mask.
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path);
    rustix::process::umask(before);
    let listener = bound?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Whether the socket at `path` is one at which nobody listens.
///
/// Errors: those of connect(2), but for the refusal.
pub fn is_stale(path: &Path) -> io::Result<bool> {
    match connect(path) {
        Ok(_) => Ok(false),
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => Ok(true),
        // Its queue is full.
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(e) => Err(e),
    }
}

/// Connects to the socket at `path`, at once or not at all; calls on the stream wait.
///
/// Errors: `ConnectionRefused` when nobody listens there, `NotFound`, `PermissionDenied`, `WouldBlock`
/// when too many clients wait already; others of connect(2).
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path.as_os_str().as_bytes())?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&fd, &address)?;
    let stream = UnixStream::from(fd);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    fn fresh(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("flash-local-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    #[test]
    fn a_socket_is_for_its_user_alone() {
        let path = fresh("mode");
        let listener = listen(&path).expect("a listener");
        assert_eq!(path.symlink_metadata().expect("a socket").permissions().mode() & 0o7777, 0o600);
        assert_eq!(listener.accept().expect_err("nobody yet").kind(), io::ErrorKind::WouldBlock);
        let _client = connect(&path).expect("connected");
        listener.accept().expect("a client");
        std::fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn a_stale_one_is_replaced_and_nothing_else_is() {
        let path = fresh("stale");
        let first = listen(&path).expect("a listener");
        assert_eq!(listen(&path).expect_err("in use").kind(), io::ErrorKind::AddrInUse);
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
