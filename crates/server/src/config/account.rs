//! The user that workers and helpers run as, and whether this user may read the roots.
//!
//! Called by `config::resolve`. It may look up users, which may wait, but must not change this process.

use std::io;

use flash_prompt::OwnedFd;
use flash_prompt::file::Want;
use flash_units::size_text;
use flash_waiting::sandbox::privileges::{self, Account, Keep};
use flash_waiting::{account, file};

use super::choices::SandboxMode;
use super::combinations;
use super::error::{Problem, reason};
use super::options::Overrides;
use super::run_as::RunAs;
use super::table::Given;
use super::values::{Auto, UserName};

/// The user when root starts Flash and names none.
const BY_DEFAULT: &str = "nobody";
/// The user ID if this name is unknown.
const BY_DEFAULT_UID: &str = "65534";

/// The user that roles run as; None for the current user.
pub(super) fn run_as(given: &Overrides, problems: &mut Vec<Problem>) -> Option<RunAs> {
    match &given.user {
        Some(user) => named(user, problems),
        None => privileges::is_root().then(by_default),
    }
}

/// The user of this name; None for the current user.
pub(super) fn named(named: &Given<UserName>, problems: &mut Vec<Problem>) -> Option<RunAs> {
    let UserName { user, group } = &named.value;
    let title = format!("cannot run as `{user}`");
    match account::find(user, group.as_deref()) {
        Ok(account) if privileges::is_root() => Some(run_as_account(user, account)),
        // Naming the current user changes nothing.
        Ok(account) if account.uid == privileges::user() && group.is_none() => None,
        Ok(_) => {
            let why = "root did not start Flash, and only root can become another user";
            problems.push(Problem::given(&named.origin, title, why));
            None
        }
        Err(e) => {
            problems.push(Problem::given(&named.origin, title, e.to_string()));
            None
        }
    }
}

/// Whether workers and helpers keep `CAP_FOWNER`.
pub(super) fn cap_fowner(given: &Overrides, problems: &mut Vec<Problem>) -> bool {
    let Some(Given { value: asked, origin }) = &given.cap_fowner else { return false };
    let is_there = privileges::has_fowner();
    if *asked == Auto::Given(true) && !is_there {
        let why = "this process does not have CAP_FOWNER";
        let help = "start Flash as root or with AmbientCapabilities=CAP_FOWNER, or remove the setting";
        problems.push(combinations::problem("cap_fowner", origin, "cannot be kept", why).helped(help));
    }
    let is_open = given.sandbox.as_ref().is_some_and(|given| given.value == SandboxMode::Off);
    keeps_fowner(*asked, is_there, !is_open && privileges::can_forbid_calls())
}

/// The capability also allows chmod and more. By default it is kept only where seccomp forbids those calls.
fn keeps_fowner(asked: Auto<bool>, is_there: bool, has_seccomp: bool) -> bool {
    is_there
        && match asked {
            Auto::Given(true) => true,
            Auto::Auto => has_seccomp,
            Auto::Given(false) => false,
        }
}

fn by_default() -> RunAs {
    let found = account::find(BY_DEFAULT, None).or_else(|_| account::find(BY_DEFAULT_UID, None));
    let account = found.unwrap_or(Account { uid: 65534, gid: 65534, groups: vec![65534] });
    run_as_account(BY_DEFAULT, account)
}

fn run_as_account(name: &str, account: Account) -> RunAs {
    RunAs { name: name.to_owned(), uid: account.uid, gid: account.gid, groups: account.groups }
}

/// Whether `run_as` may look up files in the folder. It need not be able to reach the folder by its path.
///
/// Errors: the reason, and the remedy.
pub(super) fn may_enter(folder: &OwnedFd, run_as: Option<&RunAs>) -> Result<(), (String, Option<String>)> {
    let account = run_as.map(RunAs::account);
    let enter = || file::open(folder, b".", Want::Stat).map(drop);
    match privileges::with_rights_of(account.as_ref(), Keep::Nothing, enter) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(e)) if e.kind() == io::ErrorKind::Unsupported => {
            Err((reason(&e), Some(NO_OPENAT2.to_owned())))
        }
        Ok(Err(e)) => Err((reason(&e), advice(run_as))),
        Err(e) => {
            let name = run_as.map_or("another user", |run_as| &run_as.name);
            let help = "start Flash with CAP_SETUID and CAP_SETGID, or choose another user with --user";
            Err((format!("cannot become user `{name}`: {}", reason(&e)), Some(help.to_owned())))
        }
    }
}

/// The text of a file beneath a root, read with the rights of `run_as` as workers read it. It has at most `bytes_max`.
///
/// Errors: the reason, and the remedy.
pub(super) fn read_text(
    root: &OwnedFd,
    (path, bytes_max): (&str, usize),
    run_as: Option<&RunAs>,
) -> Result<String, (String, Option<String>)> {
    let account = run_as.map(RunAs::account);
    let read = || {
        let found = file::open_on_same(root, path.trim_start_matches('/').as_bytes(), Want::Content)?;
        let file = found.file.ok_or_else(|| io::Error::other("it is no file"))?;
        let mut bytes = Vec::new();
        // One byte more shows that it is too long.
        file::read(&file, 0, bytes_max + 1, &mut bytes)?;
        Ok::<_, io::Error>(bytes)
    };
    let bytes = privileges::with_rights_of(account.as_ref(), Keep::Nothing, read)
        .and_then(|read| read)
        .map_err(|e| (reason(&e), advice(run_as).filter(|_| e.kind() == io::ErrorKind::PermissionDenied)))?;
    if bytes.len() > bytes_max {
        return Err((format!("it has more than {}", size_text(bytes_max as u64)), None));
    }
    String::from_utf8(bytes).map_err(|_| ("it is no text in UTF-8".to_owned(), None))
}

/// The remedy if the kernel, or a filter of calls, refuses to look names up beneath a root.
const NO_OPENAT2: &str = "Flash needs openat2(2): Linux 5.6 or later, and no filter of calls that takes it away, as \
                          RestrictSUIDSGID= in a unit of systemd does";

/// The remedy for a folder that `run_as` cannot enter.
fn advice(run_as: Option<&RunAs>) -> Option<String> {
    let name = &run_as?.name;
    Some(format!(
        "Flash serves as user `{name}`; choose a user that can read the files (--user, or `user` in the file)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capability_is_kept_where_it_is_there_and_seccomp_bounds_it() {
        const AUTO: Auto<bool> = Auto::Auto;
        const ON: Auto<bool> = Auto::Given(true);
        assert!(keeps_fowner(AUTO, true, true));
        assert!(!keeps_fowner(AUTO, true, false), "nothing would forbid chmod");
        assert!(!keeps_fowner(AUTO, false, true), "nothing to keep");
        assert!(keeps_fowner(ON, true, false), "who says so has it");
        assert!(!keeps_fowner(ON, false, true));
        assert!(!keeps_fowner(Auto::Given(false), true, true));
    }
}
