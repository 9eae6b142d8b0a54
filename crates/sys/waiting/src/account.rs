//! Users and groups by name, from any source of the system (nsswitch.conf(5)).

use std::ffi::CString;
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};

use crate::sandbox::privileges::Account;

/// The numbers that systemd lends to services while they run (systemd.exec(5), `DynamicUser=`). No package gives them to
/// a user for good.
const LENT: RangeInclusive<u32> = 61_184..=65_519;
/// Where systemd has a file for each number that is lent.
const LENDINGS: &str = "/run/systemd/dynamic-uid";
/// Numbers that are tried: each is a question to the user database.
const TRIES_MAX: u32 = 16;

/// A user and a group that no process has, so that no other process can signal or trace one that becomes them. Two
/// processes rarely find the same user, because each begins the search at its own process ID.
///
/// Returns None if the user database says of every tried number that it is taken, or fails.
pub fn unused() -> Option<Account> {
    let count = LENT.end() - LENT.start() + 1;
    (0..TRIES_MAX)
        .map(|n| LENT.start() + (std::process::id() + n) % count)
        .find(|number| {
            matches!(User::from_uid(Uid::from_raw(*number)), Ok(None))
                && matches!(Group::from_gid(Gid::from_raw(*number)), Ok(None))
                && !Path::new(LENDINGS).join(number.to_string()).exists()
        })
        .map(|number| Account { uid: number, gid: number, groups: vec![number] })
}

/// Finds the user `user`, with only `group` or, without it, with all of the user's groups. Both can be names
/// or numbers.
///
/// Errors: `NotFound`, with a message, if there is no such user or group; any of the system's look-up.
pub fn find(user: &str, group: Option<&str>) -> io::Result<Account> {
    let known = match user.parse() {
        Ok(number) => User::from_uid(Uid::from_raw(number))?,
        Err(_) => User::from_name(user)?,
    };
    let group = group.map(find_group).transpose()?;
    match (known, user.parse(), group) {
        (Some(known), _, Some(gid)) => Ok(account(known.uid, gid, vec![gid])),
        (Some(known), _, None) => {
            let name = CString::new(known.name).unwrap_or_default();
            Ok(account(known.uid, known.gid, getgrouplist(&name, known.gid)?))
        }
        // A number needs no entry. Without an entry, the group has the same number.
        (None, Ok(uid), gid) => {
            let gid = gid.unwrap_or(Gid::from_raw(uid));
            Ok(account(Uid::from_raw(uid), gid, vec![gid]))
        }
        (None, Err(_), _) => Err(missing("user", user)),
    }
}

fn find_group(group: &str) -> io::Result<Gid> {
    match group.parse() {
        Ok(number) => Ok(Gid::from_raw(number)),
        Err(_) => Ok(Group::from_name(group)?.ok_or_else(|| missing("group", group))?.gid),
    }
}

fn account(uid: Uid, gid: Gid, groups: Vec<Gid>) -> Account {
    Account { uid: uid.as_raw(), gid: gid.as_raw(), groups: groups.into_iter().map(Gid::as_raw).collect() }
}

fn missing(what: &str, name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("there is no {what} `{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_by_number() {
        let root = find("root", None).expect("root");
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(root.groups.contains(&0));
        assert_eq!(find("0", None).expect("root"), root);
        assert_eq!(find("root", Some("54321")).expect("root").groups, [54321]);
        assert_eq!(find("54321", None).expect("a number"), account_of(54321));
        let error = find("no-such-user", None).expect_err("no user has this name");
        assert_eq!(error.to_string(), "there is no user `no-such-user`");
        assert!(find("root", Some("no-such-group")).is_err());
    }

    #[test]
    fn an_unused_user_is_nobody() {
        let account = unused().expect("not all numbers are taken");
        assert!(LENT.contains(&account.uid), "{account:?}");
        assert_eq!(find(&account.uid.to_string(), None).expect("a number"), account_of(account.uid));
    }

    fn account_of(number: u32) -> Account {
        Account { uid: number, gid: number, groups: vec![number] }
    }
}
