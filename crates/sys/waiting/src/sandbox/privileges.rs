//! Users, groups and capabilities (capabilities(7)).

use std::collections::BTreeSet;
use std::io;

use rustix::io::Errno;
use rustix::process::{Gid, Uid, getegid, geteuid, getgid, getgroups, getuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
    set_keep_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

/// A user to become, with its groups, as numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// All groups, including `gid`.
    pub groups: Vec<u32>,
}

/// Whether this process has root's rights.
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// The user for whom this process acts.
pub fn user() -> u32 {
    geteuid().as_raw()
}

/// Whether this process has `CAP_FOWNER` and can keep it or pass it on.
///
/// Errors: none; if the kernel does not report it, the answer is no.
pub fn has_fowner() -> bool {
    capabilities(None).is_ok_and(|have| have.permitted.contains(CapabilitySet::FOWNER))
}

/// Whether this process can change network devices (`CAP_NET_ADMIN`).
///
/// Errors: none; if the kernel does not report it, the answer is no.
pub fn has_net_admin() -> bool {
    capabilities(None).is_ok_and(|have| have.effective.contains(CapabilitySet::NET_ADMIN))
}

/// Whether this kernel can restrict a process to a list of calls (seccomp(2)). A capability that allows more
/// than Flash needs is kept only if such a list takes the rest away.
pub fn can_forbid_calls() -> bool {
    let action: u32 = libc::SECCOMP_RET_TRAP;
    // SAFETY: the operation reads the four bytes at the pointer and changes nothing.
    let answer = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0 as libc::c_uint, &raw const action)
    };
    answer == 0
}

/// The capability that a supervisor has in force only while it makes a queue of changes of whole file systems
/// ([`with_reserve`]): it would allow much else, such as mounting.
const IN_RESERVE: CapabilitySet = CapabilitySet::SYS_ADMIN;

/// The capabilities of a supervisor started by root: to bind low ports, to start roles as another user with
/// their own limits, priority and locked memory and to end them, and to read its configuration and open its log
/// whoever owns them.
const SUPERVISOR: CapabilitySet = CapabilitySet::NET_BIND_SERVICE
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(IN_RESERVE)
    // Only to pass it on to workers that keep it.
    .union(CapabilitySet::FOWNER);

/// Gives up the capabilities that a supervisor does not need, for itself and for every process that it
/// starts.
pub fn narrow_supervisor() -> io::Result<()> {
    set_no_new_privs(true)?;
    narrow_bounding_set(SUPERVISOR);
    narrow(SUPERVISOR)?;
    let have = capabilities(None)?;
    set_capabilities(None, CapabilitySets { effective: have.effective - IN_RESERVE, ..have })?;
    if !is_root() && has_fowner() {
        pass_on(CapabilitySet::FOWNER);
    }
    Ok(())
}

/// Runs `work` with the capability in force that a supervisor has in reserve, if it has it.
///
/// Errors: those of `work`, and of capset(2).
pub fn with_reserve<T>(work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let have = capabilities(None)?;
    let effective = have.effective | (have.permitted & IN_RESERVE);
    set_capabilities(None, CapabilitySets { effective, ..have })?;
    let done = work();
    set_capabilities(None, have)?;
    done
}

/// Passes the capability, which this process has, on to the programs that it executes. Programs executed by
/// root get it anyway.
///
/// A file's capabilities would not work, because `no_new_privs` disables them.
fn pass_on(capability: CapabilitySet) {
    let Ok(have) = capabilities(None) else { return };
    let inheritable = have.inheritable | capability;
    // If the kernel refuses (before 4.3, or because of a securebit), roles begin without it. The start line
    // then tests the resulting rights.
    let _ = set_capabilities(None, CapabilitySets { inheritable, ..have });
    let _ = configure_capability_in_ambient_set(capability, true);
}

/// Whether this process can signal processes of other users.
pub fn may_end_others() -> io::Result<bool> {
    Ok(capabilities(None)?.effective.contains(CapabilitySet::KILL))
}

/// The capability that a role, or a thread with its rights, keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// None.
    Nothing,
    /// `CAP_FOWNER`, if present: with it, the kernel reports the residency of files of other owners.
    Fowner,
    /// `CAP_DAC_OVERRIDE`, if present: a thread creates a socket of another user in a folder of root with it. No role keeps it.
    DacOverride,
}

impl Keep {
    fn set(self) -> CapabilitySet {
        match self {
            Keep::Nothing => CapabilitySet::empty(),
            Keep::Fowner => CapabilitySet::FOWNER,
            Keep::DacOverride => CapabilitySet::DAC_OVERRIDE,
        }
    }
}

/// Becomes `account` (None: stays the same user), and gives up every capability except `keep`, and the
/// ability to gain any by executing a program.
///
/// This applies to the calling thread and to the threads that it starts, so it must be the only thread. After
/// a change of user, the parent's death no longer ends this process, so that must be requested again.
///
/// Errors: `EPERM` if another user is requested without root's rights.
pub fn become_role(account: Option<&Account>, keep: Keep) -> io::Result<()> {
    set_no_new_privs(true)?;
    narrow_bounding_set(keep.set());
    if let Some(account) = account.filter(|account| is_root() || account.uid != user()) {
        take_on(account)?;
    }
    narrow(keep.set())
}

/// Runs `look` on a separate thread with the rights of a role that is `account` and has `keep`.
pub fn with_rights_of<T: Send>(
    account: Option<&Account>,
    keep: Keep,
    look: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, || {
            if let Some(account) = account.filter(|_| is_root()) {
                take_on(account)?;
            }
            let have = capabilities(None)?;
            let kept = have.permitted & keep.set();
            set_capabilities(None, CapabilitySets { effective: kept, ..have })?;
            Ok(look())
        })?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
    })
}

/// Becomes this user, with this group alone and without capabilities, in a child that was forked from root's process. It
/// makes only system calls.
///
/// Errors: `EPERM` without root's rights.
pub(crate) fn become_owner(uid: u32, gid: u32) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    // The kernel takes the capabilities away (capabilities(7)).
    set_thread_res_uid(uid, uid, uid)
}

/// Changes user and groups of the calling thread. Its permitted capabilities stay.
fn take_on(account: &Account) -> io::Result<()> {
    let groups: Vec<Gid> = account.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
    // In its own namespace, root is not allowed to change anything, and does not need to.
    let all = |groups: &[Gid]| groups.iter().chain([&gid]).map(|gid| gid.as_raw()).collect::<BTreeSet<_>>();
    let is_same = (getuid(), geteuid(), getgid(), getegid()) == (uid, uid, gid, gid);
    if is_same && all(&getgroups()?) == all(&groups) {
        return Ok(());
    }
    set_keep_capabilities(true)?;
    set_thread_groups(&groups)?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    Ok(set_keep_capabilities(false)?)
}

/// Limits the capabilities that executed programs could gain.
fn narrow_bounding_set(keep: CapabilitySet) {
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        if !keep.contains(capability) {
            // Refused without CAP_SETPCAP, and for capabilities that this kernel does not have.
            // `no_new_privs` still keeps programs from gaining any.
            let _ = remove_capability_from_bounding_set(capability);
        }
    }
}

/// Reduces the other capability sets to `keep`.
fn narrow(keep: CapabilitySet) -> io::Result<()> {
    let have = capabilities(None)?;
    // The inheritable set comes first, because ambient capabilities are removed with it.
    let inheritable = have.inheritable & keep;
    let permitted = have.permitted & keep;
    set_capabilities(None, CapabilitySets { effective: permitted, permitted, inheritable })?;
    if keep.is_empty() {
        // Unknown before Linux 4.3, which has no ambient capabilities.
        let _ = clear_ambient_capability_set();
    }
    Ok(())
}
