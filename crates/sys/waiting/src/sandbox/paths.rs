//! The files that a process can open from now on, and the processes that it can signal: landlock(7).
//!
//! It makes the system calls itself, because the `landlock` crate calls fstat on each directory, which blocks
//! for as long as a directory's file system hangs.

use std::io;

use flash_prompt::call::check;
use libc::{c_int, c_long, c_void, syscall};
use linux_raw_sys::landlock::{
    LANDLOCK_ACCESS_FS_READ_DIR, LANDLOCK_ACCESS_FS_READ_FILE, LANDLOCK_ACCESS_NET_BIND_TCP,
    LANDLOCK_ACCESS_NET_CONNECT_TCP, LANDLOCK_CREATE_RULESET_VERSION, LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET,
    LANDLOCK_SCOPE_SIGNAL, landlock_net_port_attr as NetPort, landlock_path_beneath_attr as PathBeneath,
    landlock_rule_type as RuleType, landlock_ruleset_attr as Ruleset,
};
use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The rights under a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Reading files.
    Read,
    /// Reading files and listing directories.
    ReadAndList,
}

const READ_FILE: u64 = LANDLOCK_ACCESS_FS_READ_FILE as u64;
const READ_DIR: u64 = LANDLOCK_ACCESS_FS_READ_DIR as u64;
const CONNECT_TCP: u64 = LANDLOCK_ACCESS_NET_CONNECT_TCP as u64;

/// The version that can forbid signals (Linux 6.12).
const VERSION_OF_SIGNALS: c_long = 6;

/// Everything that this version of Landlock can forbid, as far as Flash knows it. Fields that an old kernel does not know
/// must be zero.
fn all(version: c_long) -> Ruleset {
    let files = match version {
        ..2 => 13,
        2 => 14,
        3..5 => 15,
        5.. => 16,
    };
    let tcp = u64::from(LANDLOCK_ACCESS_NET_BIND_TCP) | CONNECT_TCP;
    let scopes = LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | LANDLOCK_SCOPE_SIGNAL;
    Ruleset {
        handled_access_fs: (1 << files) - 1,
        handled_access_net: if version >= 4 { tcp } else { 0 },
        scoped: if version >= VERSION_OF_SIGNALS { scopes.into() } else { 0 },
    }
}

impl Rights {
    fn bits(self) -> u64 {
        match self {
            Rights::Read => READ_FILE,
            Rights::ReadAndList => READ_FILE | READ_DIR,
        }
    }
}

/// Forbids this thread, and the threads that it starts, to open any file except those under `folders`, to
/// listen or connect by TCP, and to signal or connect to processes that are not under the same rules, as far
/// as the kernel's version of Landlock can. Files that are already open stay usable. The thread must have
/// `no_new_privs`.
///
/// Returns the version of Landlock in force, None if the kernel has none.
///
/// Errors: any of a kernel that has Landlock but refuses a call.
pub fn restrict(folders: &[(BorrowedFd<'_>, Rights)]) -> io::Result<Option<u8>> {
    restrict_to(folders, &[], 0)
}

/// Like [`restrict`], but the thread can read every file and list every directory, also in other mount
/// namespaces, whose directories no rule can name.
pub fn restrict_to_reading() -> io::Result<Option<u8>> {
    restrict_to(&[], &[], READ_FILE | READ_DIR)
}

/// Like [`restrict`] without any folder, but the thread can connect by TCP to these ports of any address. It can also
/// connect to Unix sockets at a path, which Landlock does not restrict.
pub fn restrict_to_connecting(ports: &[u16]) -> io::Result<Option<u8>> {
    restrict_to(&[], ports, 0)
}

/// Rules by which a process can signal and trace no processes except its children and theirs. They restrict nothing else.
#[derive(Debug)]
pub struct OwnSignals(OwnedFd);

impl OwnSignals {
    /// None if the kernel has no such rules.
    ///
    /// Errors: too few descriptors.
    pub fn new() -> io::Result<Option<Self>> {
        if version() < VERSION_OF_SIGNALS {
            return Ok(None);
        }
        let scoped = LANDLOCK_SCOPE_SIGNAL.into();
        create(&Ruleset { handled_access_fs: 0, handled_access_net: 0, scoped })
            .map(|rules| Some(Self(rules)))
    }

    /// Restricts the calling thread, and what it starts or executes. It makes one system call and allocates nothing, so it
    /// can be called between fork and exec. The thread must have `no_new_privs`.
    ///
    /// Errors: `EPERM` without `no_new_privs`; `E2BIG` beyond 16 layers of rules.
    pub fn enforce(&self) -> io::Result<()> {
        // SAFETY: the call reads no memory.
        check(unsafe { syscall(libc::SYS_landlock_restrict_self, self.0.as_raw_fd(), 0) }).map(drop)
    }
}

/// The version of Landlock that the kernel has; less than 1 if it has none.
fn version() -> c_long {
    // SAFETY: when asked for its version, the call reads no memory.
    unsafe {
        let call = libc::SYS_landlock_create_ruleset;
        syscall(call, std::ptr::null::<c_void>(), 0_usize, LANDLOCK_CREATE_RULESET_VERSION)
    }
}

fn create(ruleset: &Ruleset) -> io::Result<OwnedFd> {
    // SAFETY: the call reads one `Ruleset`, which outlives it.
    let fd = checked(unsafe {
        syscall(libc::SYS_landlock_create_ruleset, std::ptr::from_ref(ruleset), size_of::<Ruleset>(), 0)
    })?;
    // SAFETY: the call has made this descriptor, and no other code owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as c_int) })
}

/// The rights `free` to files are not restricted at all.
fn restrict_to(folders: &[(BorrowedFd<'_>, Rights)], ports: &[u16], free: u64) -> io::Result<Option<u8>> {
    let version = version();
    if version < 1 {
        return Ok(None);
    }
    let mut ruleset = all(version);
    ruleset.handled_access_fs &= !free;
    let rules = create(&ruleset)?;
    for (folder, rights) in folders {
        let rule = PathBeneath { allowed_access: rights.bits(), parent_fd: folder.as_raw_fd() };
        add(&rules, RuleType::LANDLOCK_RULE_PATH_BENEATH, &rule)?;
    }
    // A kernel that does not restrict TCP refuses rules for it.
    for port in ports.iter().filter(|_| ruleset.handled_access_net & CONNECT_TCP != 0) {
        let rule = NetPort { allowed_access: CONNECT_TCP, port: u64::from(*port) };
        add(&rules, RuleType::LANDLOCK_RULE_NET_PORT, &rule)?;
    }
    // SAFETY: the call reads no memory.
    checked(unsafe { syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0) })?;
    Ok(Some(u8::try_from(version).unwrap_or(u8::MAX)))
}

fn add<T>(rules: &OwnedFd, kind: RuleType, rule: &T) -> io::Result<()> {
    // SAFETY: the call reads one rule of this kind, which outlives it.
    let added = unsafe {
        syscall(libc::SYS_landlock_add_rule, rules.as_raw_fd(), kind as c_int, std::ptr::from_ref(rule), 0)
    };
    checked(added).map(drop)
}

fn checked(answer: c_long) -> io::Result<c_long> {
    check(answer).map_err(|e| io::Error::new(e.kind(), format!("Landlock: {e}")))
}
