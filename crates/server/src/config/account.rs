//! Who workers and helpers are to be, and whether they may read what they are to serve.
//!
//! Called by `config::resolve`. May look up users, which may wait; may not change this process.

use flash_prompt::OwnedFd;
use flash_prompt::file::Want;
use flash_waiting::sandbox::privileges::{self, Account, Keep};
use flash_waiting::{account, file};

use super::error::Problem;
use super::options::{Given, Origin, Overrides};
use super::resolve::reason;
use super::settings::RunAs;
use super::values::UserName;

/// Who serves when root has started Flash and named nobody.
const BY_DEFAULT: &str = "nobody";
/// The number of that user where no such name is known.
const BY_DEFAULT_UID: &str = "65534";

impl RunAs {
    /// The user as the system knows it.
    pub(crate) fn account(&self) -> Account {
        Account { uid: self.uid, gid: self.gid, groups: self.groups.clone() }
    }
}

/// The user that roles become; None for who starts them.
pub(super) fn run_as(given: &Overrides, problems: &mut Vec<Problem>) -> Option<RunAs> {
    let Some(named) = &given.user else {
        return privileges::is_root().then(by_default);
    };
    let UserName { user, group } = &named.value;
    let title = format!("cannot run as `{user}`");
    match account::find(user, group.as_deref()) {
        Ok(account) if privileges::is_root() => Some(run_as_account(user, account)),
        // To name oneself is no change.
        Ok(account) if account.uid == privileges::user() && group.is_none() => None,
        Ok(_) => {
            let why = "flash was not started by root, and only root can become another user";
            problems.push(of_user(named, title, why.to_owned()));
            None
        }
        Err(e) => {
            problems.push(of_user(named, title, e.to_string()));
            None
        }
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

fn of_user(named: &Given<UserName>, title: String, why: String) -> Problem {
    match &named.origin {
        Origin::File(span) => Problem::at(span.clone(), title, why),
        _ => Problem::plain(title, why),
    }
}

/// Whether `run_as` may look up files in the folder. It need not be able to get there by itself.
///
/// Errors: why not, and what to do.
pub(super) fn may_enter(folder: &OwnedFd, run_as: Option<&RunAs>) -> Result<(), (String, Option<String>)> {
    let account = run_as.map(RunAs::account);
    let enter = || file::open(folder, b".", Want::Stat).map(drop);
    match privileges::with_rights_of(account.as_ref(), Keep::Nothing, enter) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(e)) => Err((reason(&e), advice(run_as))),
        Err(e) => {
            let name = run_as.map_or("another user", |run_as| &run_as.name);
            let help = "that needs CAP_SETUID and CAP_SETGID; --user names another user";
            Err((format!("cannot become user `{name}`: {}", reason(&e)), Some(help.to_owned())))
        }
    }
}

/// What to do about a folder that `run_as` may not enter.
fn advice(run_as: Option<&RunAs>) -> Option<String> {
    let name = &run_as?.name;
    Some(format!(
        "flash serves as user `{name}`; name one who may read the files (--user, or `user` in the file)"
    ))
}
