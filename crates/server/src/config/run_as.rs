//! A user that workers, helpers and the programs of routes run as.

use flash_waiting::account;
use flash_waiting::sandbox::privileges::Account;
use serde::{Deserialize, Serialize};

use super::values::UserName;

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

    /// The user as a setting: its name, if that leads to the same groups. It asks the user database.
    pub(super) fn setting(&self) -> UserName {
        let leads = |name: &str| account::find(name, None).is_ok_and(|found| found == self.account());
        let RunAs { name, uid, gid, .. } = self;
        let group = (!leads(name)).then(|| gid.to_string());
        let is_known = group.is_none() || account::find(name, None).is_ok();
        UserName { user: if is_known { name.clone() } else { uid.to_string() }, group }
    }
}
