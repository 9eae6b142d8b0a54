//! The files that a process can open from now on, and the processes that it can signal: landlock(7).
//!
//! It makes the system calls itself, because the `landlock` crate calls fstat on each directory, which blocks
//! for as long as a directory's file system hangs.

use std::io;

use libc::{c_int, c_long, c_void, syscall};
use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The rights under a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Reading files.
    Read,
    /// Reading files and listing directories.
    ReadAndList,
}

// Numbers and rights of linux/landlock.h; the calls have the same numbers on all machines.
const CREATE_RULESET: c_long = 444;
const ADD_RULE: c_long = 445;
const RESTRICT_SELF: c_long = 446;
const ASK_VERSION: c_int = 1;
const RULE_PATH_BENEATH: c_int = 1;
const RULE_NET_PORT: c_int = 2;
const BIND_TCP: u64 = 1 << 0;
const CONNECT_TCP: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;

/// The version that can forbid signals (Linux 6.12), and the scope for that.
const VERSION_OF_SIGNALS: c_long = 6;
const SCOPE_SIGNAL: u64 = 1 << 1;

/// `struct landlock_ruleset_attr`: the actions that are forbidden unless a rule allows them.
#[repr(C)]
struct Ruleset {
    files: u64,
    tcp: u64,
    scopes: u64,
}

impl Ruleset {
    /// Everything that this version of Landlock can forbid, as far as Flash knows it. Fields that an old
    /// kernel does not know must be zero.
    fn all(version: c_long) -> Self {
        let files = match version {
            ..2 => 13,
            2 => 14,
            3..5 => 15,
            5.. => 16,
        };
        Self {
            files: (1 << files) - 1,
            tcp: if version >= 4 { BIND_TCP | CONNECT_TCP } else { 0 },
            scopes: if version >= 6 { 0b11 } else { 0 },
        }
    }
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    folder: i32,
}

/// `struct landlock_net_port_attr`.
#[repr(C)]
struct NetPort {
    allowed: u64,
    port: u64,
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
        create(&Ruleset { files: 0, tcp: 0, scopes: SCOPE_SIGNAL }).map(|rules| Some(Self(rules)))
    }

    /// Restricts the calling thread, and what it starts or executes. It makes one system call and allocates nothing, so it
    /// can be called between fork and exec. The thread must have `no_new_privs`.
    ///
    /// Errors: `EPERM` without `no_new_privs`; `E2BIG` beyond 16 layers of rules.
    pub fn enforce(&self) -> io::Result<()> {
        // SAFETY: the call reads no memory.
        let answer = unsafe { syscall(RESTRICT_SELF, self.0.as_raw_fd(), 0) };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// The version of Landlock that the kernel has; less than 1 if it has none.
fn version() -> c_long {
    // SAFETY: when asked for its version, the call reads no memory.
    unsafe { syscall(CREATE_RULESET, std::ptr::null::<c_void>(), 0_usize, ASK_VERSION) }
}

fn create(ruleset: &Ruleset) -> io::Result<OwnedFd> {
    // SAFETY: the call reads one `Ruleset`, which outlives it.
    let fd =
        checked(unsafe { syscall(CREATE_RULESET, std::ptr::from_ref(ruleset), size_of::<Ruleset>(), 0) })?;
    // SAFETY: the call has made this descriptor, and no other code owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as c_int) })
}

/// The rights `free` to files are not restricted at all.
fn restrict_to(folders: &[(BorrowedFd<'_>, Rights)], ports: &[u16], free: u64) -> io::Result<Option<u8>> {
    let version = version();
    if version < 1 {
        return Ok(None);
    }
    let mut ruleset = Ruleset::all(version);
    ruleset.files &= !free;
    let rules = create(&ruleset)?;
    for (folder, rights) in folders {
        let rule = PathBeneath { allowed: rights.bits(), folder: folder.as_raw_fd() };
        // SAFETY: the call reads one `PathBeneath`, which outlives it.
        checked(unsafe { syscall(ADD_RULE, rules.as_raw_fd(), RULE_PATH_BENEATH, &raw const rule, 0) })?;
    }
    // A kernel that does not restrict TCP refuses rules for it.
    for port in ports.iter().filter(|_| ruleset.tcp & CONNECT_TCP != 0) {
        let rule = NetPort { allowed: CONNECT_TCP, port: u64::from(*port) };
        // SAFETY: the call reads one `NetPort`, which outlives it.
        checked(unsafe { syscall(ADD_RULE, rules.as_raw_fd(), RULE_NET_PORT, &raw const rule, 0) })?;
    }
    // SAFETY: the call reads no memory.
    checked(unsafe { syscall(RESTRICT_SELF, rules.as_raw_fd(), 0) })?;
    Ok(Some(u8::try_from(version).unwrap_or(u8::MAX)))
}

fn checked(answer: c_long) -> io::Result<c_long> {
    if answer >= 0 {
        return Ok(answer);
    }
    let e = io::Error::last_os_error();
    Err(io::Error::new(e.kind(), format!("Landlock: {e}")))
}
