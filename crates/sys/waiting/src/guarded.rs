//! Opens the files that Flash writes with root's rights, so that no other user chooses which file that is.
//!
//! A user who can change a folder can put a link, a FIFO or another user's file under a name that root opens. So root refuses
//! folders that others can change, follows only links of root, and works in another user's folder with the rights of that
//! user. For everybody, the last component is no link, and the file has no other name.
//!
//! Called by the log writer before its sandbox, and by the supervisor for the list of hot files.

use std::collections::VecDeque;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Component, Path, PathBuf};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::child_call::ChildCall;
use crate::sandbox::privileges::{self, Account, Keep};

/// Maximum symbolic links on a path, as in the kernel (path_resolution(7)).
const LINKS_MAX: usize = 40;
const ROOT: u32 = 0;
/// The group of a process that acts for the owner of a folder: none that owns files.
const NO_GROUP: u32 = 65534;
const WRITABLE_BY_GROUP: u32 = 0o020;
const WRITABLE_BY_OTHERS: u32 = 0o002;
const STICKY: u32 = 0o1000;
/// Groups below this one belong to services, not to people (SYS_GID_MAX of login.defs(5)).
const SERVICE_GROUPS_END: u32 = 1000;

/// A file that is opened safely: its folder, which is open, and its name there.
#[derive(Debug)]
pub struct GuardedFile {
    folder: OwnedFd,
    name: OsString,
    /// The owner of the folder, if calls are made with the rights of that user.
    owner: Option<Account>,
}

/// The access to a file that exists, or is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Append,
    Create,
}

impl GuardedFile {
    /// Finds the place of `path`.
    ///
    /// Errors: any of opening a folder; with root's rights, a folder that others can change, with the remedy.
    pub fn find(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let name = path.file_name().ok_or_else(|| invalid("it is the path of a folder".to_owned()))?;
        let folder = path.parent().unwrap_or(Path::new("/"));
        let name = name.to_owned();
        if !privileges::is_root() {
            return Ok(Self { folder: super::file::open_folder(folder)?, name, owner: None });
        }
        let (folder, path) = walk(folder)?;
        let found = fs::fstat(&folder)?;
        if is_writable_by_others(&found) {
            return Err(insecure(&path, "users other than its owner can write to it", "chmod go-w"));
        }
        let owner = (found.st_uid != ROOT && found.st_uid != privileges::user()).then_some(found.st_uid);
        Ok(Self { folder, name, owner: owner.map(account) })
    }

    /// Connects with the socket of messages at `path`, such as that of syslog(3). Its last component may be a link, if nobody else can
    /// have made it.
    ///
    /// Errors: as of [`GuardedFile::find`], for the folders of the link and of the socket; any of connect(2).
    pub fn connect(path: &Path) -> io::Result<OwnedFd> {
        Self::find(path)?;
        let path = std::fs::canonicalize(path)?;
        let socket = UnixDatagram::unbound()?;
        Self::find(&path)?.as_owner(|| socket.connect(&path))??;
        Ok(socket.into())
    }

    /// The folder, and the user with whose rights calls are made if it is another one: for another process.
    pub fn into_parts(self) -> (OwnedFd, Option<u32>) {
        (self.folder, self.owner.map(|owner| owner.uid))
    }

    /// The folder, the user as in [`GuardedFile::into_parts`], and the name.
    pub fn parts(&self) -> (BorrowedFd<'_>, Option<u32>, &OsStr) {
        (self.folder.as_fd(), self.owner.as_ref().map(|owner| owner.uid), &self.name)
    }

    /// The place of `path`, whose folder another process has found.
    ///
    /// Errors: `InvalidInput` for the path of a folder.
    pub fn from_parts(folder: OwnedFd, owner: Option<u32>, path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        Ok(Self { folder, name, owner: owner.map(account) })
    }

    /// Opens the file for appending, and creates it with mode 0640 if there is none.
    ///
    /// Errors: any of open(2); anything else than a regular file with one name, or a character device.
    pub fn append(&self) -> io::Result<OwnedFd> {
        self.open(&self.name, Access::Append)
    }

    /// Opens the file for reading; None if there is none.
    ///
    /// Errors: as of [`GuardedFile::append`].
    pub fn read(&self) -> io::Result<Option<OwnedFd>> {
        match self.open(&self.name, Access::Read) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Renames the file to `NAME.1`, after the earlier ones up to `NAME.(keep - 1)` to the next number. The last one is replaced.
    ///
    /// Errors: any of rename(2).
    pub fn rotate(&self, keep: usize) -> io::Result<()> {
        let numbered = |number: usize| match number {
            0 => self.name.clone(),
            number => [self.name.as_os_str(), OsStr::new(&format!(".{number}"))].into_iter().collect(),
        };
        for number in (0..keep).rev() {
            let (from, to) = (numbered(number), numbered(number + 1));
            match self.as_owner(|| fs::renameat(&self.folder, &from, &self.folder, &to))? {
                Err(Errno::NOENT) if number > 0 => {}
                renamed => renamed?,
            }
        }
        Ok(())
    }

    /// Creates the next version of the file beside it, with mode 0600, in place of an unfinished one.
    pub fn create_next(&self) -> io::Result<OwnedFd> {
        let next = self.next_name();
        match self.as_owner(|| fs::unlinkat(&self.folder, &next, AtFlags::empty()))? {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => return Err(e.into()),
        }
        self.open(&next, Access::Create)
    }

    /// Puts the next version in place of the file. A child does it, because its disk may hang.
    ///
    /// Errors: any of rename(2), and of starting a process; `TimedOut` if it takes long.
    pub fn use_next(&self) -> io::Result<()> {
        let next = CString::new(self.next_name().as_bytes())?;
        let name = CString::new(self.name.as_bytes())?;
        self.in_child(|folder| fs::renameat(folder, next.as_c_str(), folder, name.as_c_str()))
    }

    /// Removes the next version. A child does it, because its disk may hang.
    pub fn drop_next(&self) {
        let Ok(next) = CString::new(self.next_name().as_bytes()) else { return };
        // One that is left over is replaced at the next start.
        let _ = self.in_child(|folder| fs::unlinkat(folder, next.as_c_str(), AtFlags::empty()));
    }

    fn next_name(&self) -> OsString {
        [self.name.as_os_str(), OsStr::new(".new")].into_iter().collect()
    }

    fn open(&self, name: &OsStr, access: Access) -> io::Result<OwnedFd> {
        // Opening a FIFO would wait for its other end, and a terminal could become that of this process.
        let always = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let (flags, mode) = match access {
            Access::Read => (OFlags::RDONLY, 0),
            Access::Append => (OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE, 0o640),
            Access::Create => (OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, 0o600),
        };
        let mode = Mode::from_raw_mode(mode);
        let opened = self.as_owner(|| fs::openat(&self.folder, name, flags | always, mode))?;
        let file = opened.map_err(|e| match e {
            Errno::LOOP => invalid("it is a symbolic link; name the file itself".to_owned()),
            // A FIFO that no process reads, or a socket.
            Errno::NXIO => not_a_file(),
            Errno::ACCESS => self.denied(),
            e => e.into(),
        })?;
        let found = fs::fstat(&file)?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile if found.st_nlink > 1 => {
                let why = "the file has another name, by a hard link; remove one of the names";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
            FileType::RegularFile => {}
            // Only root makes devices, such as /dev/null.
            FileType::CharacterDevice if access == Access::Append => {}
            _ => return Err(not_a_file()),
        }
        let status = fs::fcntl_getfl(&file)?;
        fs::fcntl_setfl(&file, status & !OFlags::NONBLOCK)?;
        Ok(file)
    }

    fn denied(&self) -> io::Error {
        let e = io::Error::from(Errno::ACCESS);
        let Some(Account { uid, .. }) = &self.owner else { return e };
        let why = format!("{e} for user {uid}, who owns the folder; give the file to this user");
        io::Error::new(e.kind(), why)
    }

    /// Makes a call with the rights of the folder's owner, so that the kernel refuses everything that this user is not
    /// allowed to do.
    fn as_owner<T: Send>(&self, call: impl FnOnce() -> T + Send) -> io::Result<T> {
        match &self.owner {
            None => Ok(call()),
            Some(owner) => privileges::with_rights_of(Some(owner), Keep::Nothing, call),
        }
    }

    /// Makes a call in the folder, as [`GuardedFile::as_owner`] does, in a child. `call` must not allocate.
    fn in_child(&self, call: impl FnOnce(BorrowedFd<'_>) -> Result<(), Errno>) -> io::Result<()> {
        let owner = self.owner.as_ref().map(|owner| owner.uid);
        let work = |folder: Option<BorrowedFd<'_>>| {
            if let Some(uid) = owner {
                privileges::become_owner(uid, NO_GROUP)?;
            }
            call(folder.ok_or(Errno::BADF)?)
        };
        // SAFETY: it makes only system calls, on names that exist.
        unsafe { ChildCall::run(Some(self.folder.as_fd()), work) }
    }
}

fn account(uid: u32) -> Account {
    Account { uid, gid: NO_GROUP, groups: Vec::new() }
}

/// Opens a folder, component by component, and returns it with its path without links.
fn walk(path: &Path) -> io::Result<(OwnedFd, PathBuf)> {
    let open_root = || fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let mut folder = open_root()?;
    let mut found = fs::fstat(&folder)?;
    // In a user namespace, the machine's root may have another number.
    let trusted = [ROOT, privileges::user(), found.st_uid];
    let mut reached = PathBuf::from("/");
    let mut rest: VecDeque<OsString> = names(path).collect();
    let mut links = 0;
    while let Some(name) = rest.pop_front() {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let next = fs::openat(&folder, &name, flags, Mode::empty())?;
        let next_found = fs::fstat(&next)?;
        if name != ".." {
            check_folder(&reached, &found, &next_found, &trusted)?;
        }
        match FileType::from_raw_mode(next_found.st_mode) {
            FileType::Directory => {
                if name == ".." {
                    reached.pop();
                } else {
                    reached.push(&name);
                }
                (folder, found) = (next, next_found);
            }
            FileType::Symlink if links == LINKS_MAX => return Err(Errno::LOOP.into()),
            FileType::Symlink => {
                links += 1;
                let target = OsString::from_vec(fs::readlinkat(&next, "", Vec::new())?.into_bytes());
                let target = Path::new(&target);
                if target.is_absolute() {
                    folder = open_root()?;
                    found = fs::fstat(&folder)?;
                    reached = PathBuf::from("/");
                }
                names(target).rev().for_each(|name| rest.push_front(name));
            }
            _ => return Err(Errno::NOTDIR.into()),
        }
    }
    Ok((folder, reached))
}

fn names(path: &Path) -> impl DoubleEndedIterator<Item = OsString> + '_ {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

/// Checks that only trusted users decide what this entry of a folder is.
fn check_folder(path: &Path, folder: &Stat, entry: &Stat, trusted: &[u32]) -> io::Result<()> {
    if !trusted.contains(&folder.st_uid) {
        let who = format!("user {} owns it and can replace the folders in it", folder.st_uid);
        return Err(insecure(path, &who, "chown root"));
    }
    // In a folder such as /tmp, only its owner replaces an entry.
    let is_kept = folder.st_mode & STICKY != 0 && trusted.contains(&entry.st_uid);
    // Ubuntu's /var/log belongs to the group of its log service. A service that replaces a folder there gains nothing: what
    // is in its own folder is opened with its own rights. A link of its own is another matter.
    let is_link = FileType::from_raw_mode(entry.st_mode) == FileType::Symlink;
    let is_of_service = folder.st_mode & WRITABLE_BY_OTHERS == 0
        && folder.st_gid < SERVICE_GROUPS_END
        && (!is_link || trusted.contains(&entry.st_uid));
    if is_writable_by_others(folder) && !is_kept && !is_of_service {
        return Err(insecure(path, "users other than its owner can replace the folders in it", "chmod go-w"));
    }
    Ok(())
}

/// Whether users other than its owner and root's group can write. A group that a list of users (acl(5)) adds shows in the
/// same bits.
fn is_writable_by_others(found: &Stat) -> bool {
    let by_group = found.st_mode & WRITABLE_BY_GROUP != 0 && found.st_gid != ROOT;
    by_group || found.st_mode & WRITABLE_BY_OTHERS != 0
}

fn insecure(folder: &Path, why: &str, remedy: &str) -> io::Error {
    let place = String::from_utf8_lossy(folder.as_os_str().as_bytes());
    let text = format!(
        "root does not write below {place}: {why}; run `{remedy} {place}`, or choose a folder that only root can change"
    );
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

fn not_a_file() -> io::Error {
    invalid("it is not a regular file".to_owned())
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(test)]
#[path = "guarded_tests.rs"]
mod tests;
