//! The sockets of `flash backend`: its own and those of the warm endpoint. The supervisor owns them, so that clients
//! can connect while a worker is replaced, and they are the same for all configurations. systemd can pass them on.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use flash_prompt::OwnedFd;
use flash_waiting::local;
use flash_waiting::sandbox::privileges;
use flash_waiting::systemd::{self, Listener};

use crate::config::{RunAs, SOCKET_BY_DEFAULT};

/// The permissions of the socket: its user and group.
const PERMISSIONS: u32 = 0o660;

/// A listening socket at a path.
#[derive(Debug)]
pub(super) struct LocalSocket {
    listener: OwnedFd,
    path: PathBuf,
    /// Device and inode of the path: another backend may later create a socket there. None for a socket that another
    /// program created and passed on.
    file: Option<(u64, u64)>,
}

impl LocalSocket {
    /// Listens at `path`, as a socket of this user, unless systemd has passed on a socket for packets, at any path.
    ///
    /// Errors: with the path, the reason and the remedy.
    pub(super) fn bind(path: &Path, run_as: Option<&RunAs>, passed: &mut Passed) -> io::Result<Self> {
        if let Some(socket) = passed.take(|listener| listener.is_packets) {
            return Ok(socket);
        }
        let failed = |e: io::Error| explain(path, "--socket", &e);
        make_folder(path).map_err(failed)?;
        Self::own(path, run_as, local::listen_packets(path, PERMISSIONS)).map_err(failed)
    }

    /// The same for a socket of the warm endpoint, unless systemd has passed on the socket of this path.
    pub(super) fn bind_endpoint(
        path: &Path,
        run_as: Option<&RunAs>,
        passed: &mut Passed,
    ) -> io::Result<Self> {
        let is_it =
            |listener: &Listener| !listener.is_packets && listener.path == path.as_os_str().as_bytes();
        if let Some(socket) = passed.take(is_it) {
            return Ok(socket);
        }
        let bound = Self::own(path, run_as, local::listen_bytes(path, PERMISSIONS));
        bound.map_err(|e| explain(path, "--warm or --fastcgi", &e))
    }

    /// Gives a bound socket to this user.
    fn own(path: &Path, run_as: Option<&RunAs>, bound: io::Result<OwnedFd>) -> io::Result<Self> {
        let listener = bound?;
        let file = local::give_to(path, run_as.map(|run_as| (run_as.uid, run_as.gid)))?;
        Ok(Self { listener, path: path.to_owned(), file: Some(file) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn try_clone(&self) -> io::Result<OwnedFd> {
        self.listener.try_clone()
    }
}

/// The sockets that systemd has passed on and that nothing has taken yet.
#[derive(Debug)]
pub(super) struct Passed(Vec<Listener>);

impl Passed {
    /// Takes them from systemd.
    ///
    /// Errors: one that cannot be used, with the reason and the remedy.
    pub(super) fn from_systemd() -> io::Result<Self> {
        Ok(Self(systemd::take_listeners()?))
    }

    fn take(&mut self, is_it: impl Fn(&Listener) -> bool) -> Option<LocalSocket> {
        let at = self.0.iter().position(is_it)?;
        let Listener { socket, path, .. } = self.0.remove(at);
        Some(LocalSocket { listener: socket, path: PathBuf::from(OsString::from_vec(path)), file: None })
    }

    /// Every socket must have been taken: clients of another one would wait forever.
    ///
    /// Errors: the first that is left, with the remedy.
    pub(super) fn finish(self) -> io::Result<()> {
        let Some(Listener { is_packets, path, .. }) = self.0.first() else { return Ok(()) };
        let path = String::from_utf8_lossy(path);
        let why = if *is_packets {
            format!(
                "systemd passed a second socket for packets, `{path}`; give its units one ListenSequentialPacket="
            )
        } else {
            format!(
                "systemd passed the socket `{path}`, which no option names; add --warm unix:{path} or \
                 --fastcgi unix:{path} with --warm-root, or stop its unit"
            )
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, why))
    }
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        if let Some(file) = self.file {
            local::remove(&self.path, file);
        }
    }
}

/// Creates the folder of the default socket, and lets the other servers' users reach the socket in it. Other folders
/// are the operator's.
fn make_folder(path: &Path) -> io::Result<()> {
    let Some(folder) = path.parent().filter(|_| path == Path::new(SOCKET_BY_DEFAULT)) else { return Ok(()) };
    match DirBuilder::new().mode(0o755).create(folder) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        created => return created,
    }
    let found = folder.symlink_metadata()?;
    if found.is_dir() && found.uid() == privileges::user() {
        fs::set_permissions(folder, Permissions::from_mode(0o755))?;
    }
    Ok(())
}

fn explain(path: &Path, option: &str, error: &io::Error) -> io::Error {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => "; another backend uses it: stop that one, or choose another path with",
        io::ErrorKind::AlreadyExists => "; the path exists and is not a socket: choose another path with",
        io::ErrorKind::NotFound => "; create its folder first, or choose another path with",
        io::ErrorKind::PermissionDenied => "; start the backend as root, or choose another path with",
        io::ErrorKind::InvalidInput => "; the path is too long for a socket: choose a shorter one with",
        _ => return io::Error::new(error.kind(), format!("cannot listen at `{}`: {error}", path.display())),
    };
    io::Error::new(error.kind(), format!("cannot listen at `{}`: {error}{advice} {option}", path.display()))
}
