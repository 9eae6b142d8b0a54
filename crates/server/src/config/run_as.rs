//! A user that workers, helpers and the programs of routes run as.

use flash_waiting::sandbox::privileges::Account;
use serde::{Deserialize, Serialize};

/// A user that workers and helpers run as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunAs {
    /// Its name, or its number if it has no name.
    pub name: String,
    /// The user ID.
    pub uid: u32,
    /// The group ID.
    pub gid: u32,
    /// All its group IDs.
    pub groups: Vec<u32>,
}

impl RunAs {
    /// The user as the system knows it.
    pub(crate) fn account(&self) -> Account {
        Account { uid: self.uid, gid: self.gid, groups: self.groups.clone() }
    }
}
