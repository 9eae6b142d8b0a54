//! Which files a process can open from now on: landlock(7).

use std::io;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath,
    Ruleset, RulesetAttr, RulesetCreatedAttr, Scope,
};
use rustix::fd::BorrowedFd;

/// What is allowed under a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Reading files.
    Read,
    /// Reading files and listing folders.
    ReadAndList,
    /// Making files and writing to them.
    Write,
}

impl Rights {
    fn access(self) -> BitFlags<AccessFs> {
        match self {
            Rights::Read => AccessFs::ReadFile.into(),
            Rights::ReadAndList => AccessFs::ReadFile | AccessFs::ReadDir,
            Rights::Write => AccessFs::WriteFile | AccessFs::MakeReg,
        }
    }
}

/// The newest rules that Flash knows; an older kernel enforces those that it knows.
const ABI_KNOWN: ABI = ABI::V6;

/// Forbids this process to open any file but those under `folders`, to listen or connect by TCP, and
/// to signal or connect to processes that are not under the same rules. What is open already stays so.
///
/// Gives the version of Landlock in force, None where the kernel has none.
///
/// Errors: a kernel that has Landlock and yet refuses.
pub fn restrict(folders: &[(BorrowedFd<'_>, Rights)]) -> io::Result<Option<u8>> {
    let attempt = || {
        let mut rules = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(ABI_KNOWN))?
            .handle_access(AccessNet::from_all(ABI_KNOWN))?
            .scope(Scope::from_all(ABI_KNOWN))?
            .create()?;
        for (folder, rights) in folders {
            rules = rules.add_rule(PathBeneath::new(folder, rights.access()))?;
        }
        rules.restrict_self()
    };
    let status = attempt().map_err(|e| io::Error::other(format!("Landlock: {e}")))?;
    Ok(match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => Some(effective_abi as u8),
        LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => None,
    })
}
