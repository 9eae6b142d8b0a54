//! Users, groups and capabilities (capabilities(7)).

use std::collections::BTreeSet;
use std::io;

use rustix::process::{Gid, Uid, getegid, geteuid, getgid, getgroups, getuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

/// A user to become, with its groups, by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// All groups, the one above among them.
    pub groups: Vec<u32>,
}

/// Whether this process has root's rights.
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// The user that this process acts for.
pub fn user() -> u32 {
    geteuid().as_raw()
}

/// What a supervisor started by root needs: to bind low ports, to start roles as another user with
/// limits and locked memory of their own and to end them, to read its configuration and open its log
/// whoever owns them.
const SUPERVISOR: CapabilitySet = CapabilitySet::NET_BIND_SERVICE
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::DAC_OVERRIDE)
    // Only to pass it on to workers that were configured to have it.
    .union(CapabilitySet::FOWNER);

/// Gives up what a supervisor does not need, for itself and for all that it starts.
pub fn narrow_supervisor() -> io::Result<()> {
    set_no_new_privs(true)?;
    narrow_bounding_set(SUPERVISOR);
    narrow(SUPERVISOR)
}

/// Whether this process may signal those of other users.
pub fn may_end_others() -> io::Result<bool> {
    Ok(capabilities(None)?.effective.contains(CapabilitySet::KILL))
}

/// What a role keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing.
    Nothing,
    /// `CAP_FOWNER`, if there: the kernel tells then what is in memory of files of other owners.
    Fowner,
    /// `CAP_DAC_OVERRIDE`, if there: to open the access log whoever owns its folder.
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

/// Becomes `account`, or stays who it is for None, and gives up every capability but `keep`, and
/// the way to any by executing a program.
///
/// It holds for the calling thread and those that it starts: it must be the only one. The parent's death no
/// longer ends this process after a change of user: ask for it again.
///
/// Errors: `EPERM` when another user is asked for without root's rights.
pub fn become_role(account: Option<&Account>, keep: Keep) -> io::Result<()> {
    set_no_new_privs(true)?;
    narrow_bounding_set(keep.set());
    if let Some(account) = account.filter(|account| is_root() || account.uid != user()) {
        take_on(account)?;
    }
    narrow(keep.set())
}

/// Runs `look` with the rights that a role has as `account` and with `keep`, on a thread of its own.
///
/// Errors: those of starting a thread and of changing its user.
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

/// Changes user and groups of the calling thread; its permitted capabilities stay.
fn take_on(account: &Account) -> io::Result<()> {
    let groups: Vec<Gid> = account.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
    // In a namespace of its own, root may not change anything, and need not.
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

/// Bounds what programs that are executed could gain.
fn narrow_bounding_set(keep: CapabilitySet) {
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        if !keep.contains(capability) {
            // Refused without CAP_SETPCAP, and for capabilities that this kernel does not have:
            // `no_new_privs` keeps programs from gaining any all the same.
            let _ = remove_capability_from_bounding_set(capability);
        }
    }
}

/// Keeps of the other capability sets no more than `keep`.
fn narrow(keep: CapabilitySet) -> io::Result<()> {
    let have = capabilities(None)?;
    // First the inheritable set: ambient ones go with it.
    let inheritable = have.inheritable & keep;
    let permitted = have.permitted & keep;
    set_capabilities(None, CapabilitySets { effective: permitted, permitted, inheritable })?;
    if keep.is_empty() {
        // Unknown before Linux 4.3, where there are none.
        let _ = clear_ambient_capability_set();
    }
    Ok(())
}
