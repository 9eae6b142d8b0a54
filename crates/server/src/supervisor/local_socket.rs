//! Unix sockets at a path: those of `listen` and `listen_tls`, and those of `flash backend`, its own and those of the warm endpoint.
//! The supervisor owns them, so that clients can connect while a worker is replaced. Those of a backend are the same for all
//! configurations, and systemd can pass them on.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use flash_prompt::OwnedFd;
use flash_waiting::local;
use flash_waiting::sandbox::privileges::{self, Keep};
use flash_waiting::systemd::{BoundAddress, Listener};

use crate::config::{FilePath, Listen, RunAs, SOCKET_BY_DEFAULT, Settings};

/// The permissions of a backend's socket: its user and group.
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

/// The path of a [`LocalSocket`] as the next program takes it over.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LeftPath {
    path: FilePath,
    file: Option<(u64, u64)>,
}

impl LocalSocket {
    /// Listens at `path`, as a socket of this user, unless systemd has passed on a socket for packets, at any path.
    ///
    /// Errors: with the path, the reason and the remedy.
    pub(super) fn bind(path: &Path, run_as: Option<&RunAs>, passed: &mut Passed) -> io::Result<Self> {
        if let Some(socket) = passed.take(|listener, _| listener.is_packets) {
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
        if let Some(socket) = passed.take(|listener, place| !listener.is_packets && place == path) {
            return Ok(socket);
        }
        let bound = Self::own(path, run_as, local::listen_bytes(path, PERMISSIONS));
        bound.map_err(|e| explain(path, "--warm or --fastcgi", &e))
    }

    /// Listens at the path of `listen` or `listen_tls`. The socket belongs to the user of the workers from the first moment on.
    ///
    /// Errors: with the path, the reason and the remedy.
    fn bind_listener(path: &Path, settings: &Settings) -> io::Result<Self> {
        let account = settings.run_as.as_ref().map(RunAs::account);
        let bind = || {
            let listener = local::listen_bytes(path, settings.listen_mode.0)?;
            Ok((listener, local::give_to(path, None)?))
        };
        let bound = privileges::with_rights_of(account.as_ref(), Keep::DacOverride, bind);
        let (listener, file) = bound.and_then(|bound| bound).map_err(|e| explain_listener(path, &e))?;
        Ok(Self { listener, path: path.to_owned(), file: Some(file) })
    }

    /// Its descriptor, its path and its file, for another process, which removes it.
    pub(super) fn into_parts(mut self) -> io::Result<(OwnedFd, PathBuf, (u64, u64))> {
        let parts = (self.listener.try_clone()?, self.path.clone(), self.file.unwrap_or_default());
        self.file = None;
        Ok(parts)
    }

    /// The reverse of [`LocalSocket::into_parts`].
    pub(super) fn from_parts((listener, path, file): (OwnedFd, PathBuf, (u64, u64))) -> Self {
        Self { listener, path, file: Some(file) }
    }

    /// Its path, for the next program of this process.
    pub(super) fn place(&self) -> LeftPath {
        LeftPath { path: self.path.as_path().into(), file: self.file }
    }

    /// A socket that an earlier program of this process has bound.
    pub(super) fn adopt(listener: OwnedFd, LeftPath { path, file }: LeftPath) -> Self {
        Self { listener, path: path.to_path_buf(), file }
    }

    /// Removes it without waiting for its disk.
    pub(super) fn remove_later(mut self) {
        if let Some(file) = self.file.take() {
            local::remove_later(&self.path, file);
        }
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

/// Binds the paths of `listen` and `listen_tls`, except those that this server already listens at. It may wait for disks.
///
/// Errors: the first that cannot be bound, with the reason and the remedy.
pub(super) fn bind_new(settings: &Settings, known: &[FilePath]) -> io::Result<Vec<LocalSocket>> {
    let paths = settings.listen.iter().chain(&settings.tls_listen).filter_map(Listen::path);
    let new = paths.filter(|path| !known.contains(path));
    new.map(|path| LocalSocket::bind_listener(path, settings)).collect()
}

/// The sockets that systemd has passed to a backend and that nothing has taken yet.
#[derive(Debug)]
pub(super) struct Passed(pub(super) Vec<Listener>);

impl Passed {
    fn take(&mut self, is_it: impl Fn(&Listener, &Path) -> bool) -> Option<LocalSocket> {
        let path_of = |listener: &Listener| match &listener.address {
            BoundAddress::Path(path) if is_it(listener, path) => Some(path.clone()),
            _ => None,
        };
        let (at, path) = self.0.iter().enumerate().find_map(|(at, it)| Some((at, path_of(it)?)))?;
        Some(LocalSocket { listener: self.0.remove(at).socket, path, file: None })
    }

    /// Every socket must have been taken: clients of another one would wait forever.
    ///
    /// Errors: the first that is left, with the remedy.
    pub(super) fn finish(self) -> io::Result<()> {
        let Some(Listener { is_packets, address, .. }) = self.0.first() else { return Ok(()) };
        let why = match address {
            BoundAddress::Path(path) if *is_packets => format!(
                "systemd passed a second socket for packets, `{}`; give its units one ListenSequentialPacket=",
                path.display()
            ),
            BoundAddress::Path(path) => {
                let path = path.display();
                format!(
                    "systemd passed the socket `{path}`, which no option names; add --warm unix:{path} or \
                     --fastcgi unix:{path} with --warm-root, or stop its unit"
                )
            }
            BoundAddress::Tcp(address) => format!(
                "systemd passed the socket {address}, which `flash backend` cannot take; give its unit a path, or use \
                 --warm {address} without the unit"
            ),
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

fn explain_listener(path: &Path, error: &io::Error) -> io::Error {
    let why = match error.kind() {
        io::ErrorKind::AddrInUse => "a process listens there; stop it, or choose another path".to_owned(),
        io::ErrorKind::AlreadyExists => "it exists and is not a socket; choose another path".to_owned(),
        io::ErrorKind::NotFound => {
            "its folder does not exist; create it first, or let systemd create it with RuntimeDirectory=".to_owned()
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "its file system is read-only; choose a path in /run, or name its folder in ReadWritePaths= of the service"
                .to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            format!("{error}: this user cannot create or replace it; choose a folder of this user")
        }
        _ => format!("{error}; choose another path"),
    };
    io::Error::new(error.kind(), format!("cannot listen on `unix:{}`: {why}", path.display()))
}
