//! The default paths of control sockets: in a private folder of the user, by the process ID of the supervisor.
//!
//! Called by the supervisor, which creates folder and socket, and by clients, which look for them.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use flash_waiting::local;
use flash_waiting::sandbox::privileges;

/// The end of a socket's name, after the process ID.
const SUFFIX: &str = ".sock";
const ENTRIES_MAX: usize = 4096;

/// The default socket of the server with this process ID, if it belongs to this user.
#[must_use]
pub fn socket_of(pid: u32) -> PathBuf {
    folder().join(format!("{pid}{SUFFIX}"))
}

/// The default socket of this process; creates the folder, and removes sockets that killed servers left there.
///
/// Errors: those of mkdir(2); `PermissionDenied`, with a message, if the folder is not private.
pub(crate) fn own_socket() -> io::Result<PathBuf> {
    let folder = folder();
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            return Err(io::Error::new(e.kind(), format!("cannot create `{}`: {e}", folder.display())));
        }
        _ => {}
    }
    check(&folder)?;
    for (pid, path) in sockets() {
        let is_gone = !Path::new(&format!("/proc/{pid}")).exists();
        if is_gone && local::is_stale(&path).unwrap_or(false) {
            let _ = fs::remove_file(&path);
        }
    }
    Ok(socket_of(std::process::id()))
}

/// Checks that no other user can place sockets in the folder.
fn check(folder: &Path) -> io::Result<()> {
    let found = folder.symlink_metadata()?;
    if found.is_dir() && found.uid() == privileges::user() && found.mode() & 0o022 == 0 {
        return Ok(());
    }
    let why = format!("`{}` is not a folder that belongs to this user alone", folder.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// The sockets in this user's folder, by process ID, listening or not.
pub(super) fn sockets() -> Vec<(u32, PathBuf)> {
    let folder = folder();
    if check(&folder).is_err() {
        return Vec::new();
    }
    let entries = fs::read_dir(&folder).into_iter().flatten().take(ENTRIES_MAX);
    let mut found: Vec<_> = entries
        .filter_map(|entry| {
            let name = entry.ok()?.file_name();
            let pid = name.to_str()?.strip_suffix(SUFFIX)?.parse().ok()?;
            Some((pid, folder.join(name)))
        })
        .collect();
    found.sort_unstable();
    found
}

fn folder() -> PathBuf {
    folder_of(privileges::user(), std::env::var_os("XDG_RUNTIME_DIR").as_deref())
}

fn folder_of(user: u32, runtime: Option<&OsStr>) -> PathBuf {
    match runtime.map(Path::new) {
        _ if user == 0 => PathBuf::from("/run/flash"),
        Some(runtime) if runtime.is_absolute() => runtime.join("flash"),
        _ => PathBuf::from(format!("/tmp/flash-{user}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_a_folder() {
        let runtime = Some(OsStr::new("/run/user/7"));
        assert_eq!(folder_of(0, runtime), Path::new("/run/flash"));
        assert_eq!(folder_of(7, runtime), Path::new("/run/user/7/flash"));
        for unusable in [None, Some(OsStr::new("")), Some(OsStr::new("here"))] {
            assert_eq!(folder_of(7, unusable), Path::new("/tmp/flash-7"));
        }
    }

    #[test]
    fn a_folder_of_somebody_else_or_of_everybody_is_refused() {
        let here = tempfile::tempdir().expect("a folder");
        check(here.path()).expect("ours");
        let link = here.path().join("link");
        std::os::unix::fs::symlink(&here, &link).expect("a link");
        assert!(check(&link).is_err());
        assert!(check(Path::new("/tmp")).is_err(), "everybody's");
    }
}
