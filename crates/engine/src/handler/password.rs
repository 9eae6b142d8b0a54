//! Whether a request has the password of a user whom a rule admits. Called by the [gate](super::gate), which refuses requests without
//! one, and before the answer of a request whose password a helper has yet to compare.

use std::sync::Arc;

use flash_http::basic::Credentials;
use flash_http::request::Request;

use super::error_page::{PASSWORD_NEEDED, Refusal};
use crate::caches::Version;
use crate::context::{Context, Core};
use crate::jobs::{JobKey, Urgency, Wanted};
use crate::machine::{Machine, Task};
use crate::secret::Secret;
use crate::slab::PasswordPair;
use crate::users::Users;

/// Begins the passwords of unknown names.
const UNKNOWN: &[u8] = b"\xff";

/// A password that must be compared with a stored one.
#[derive(Clone, Debug)]
pub(crate) struct PasswordCheck {
    user: Box<[u8]>,
    pair: PasswordPair,
    stored: Secret,
    given: Secret,
    /// Whether there is a user of this name.
    is_user: bool,
}

impl PasswordCheck {
    /// The name that the client gives itself.
    pub(crate) fn user(&self) -> &[u8] {
        &self.user
    }

    /// The number of the pair of passwords.
    pub(super) fn pair(&self) -> PasswordPair {
        self.pair
    }
}

/// The result of a look at a password.
pub(crate) enum Password<F> {
    Right,
    /// A helper must compare it.
    Wait(Box<Wanted<F, Arc<Version>>>),
    Refused(Refusal),
}

/// The password of a request for one of these users. None without one.
pub(super) fn check_of<F>(core: &Core<F>, users: &Users, request: &Request<'_>) -> Option<PasswordCheck> {
    let Credentials { name, password } = Credentials::read(request.authorization?)?;
    let (stored, is_user) = users.stored_of(&name);
    // Otherwise the time of a second request would tell whether the password is that of another user.
    let given = if is_user { password } else { [UNKNOWN, &password].concat() };
    let pair = core.caches.password_results.pair(stored, &given);
    Some(PasswordCheck { user: name.into(), pair, stored: stored.clone(), given: given.into(), is_user })
}

/// Whether all of these passwords are right, as far as is known. Those that are need no further look.
pub(crate) fn verify<M: Machine>(
    context: &Context<'_, M>,
    checks: &mut Vec<PasswordCheck>,
) -> Password<M::File> {
    while let Some(check) = checks.last() {
        match context.core.caches.password_results.get(check.pair, context.core.clock.ms()) {
            Some(true) if check.is_user => drop(checks.pop()),
            Some(_) => return Password::Refused(PASSWORD_NEEDED),
            None => {
                return Password::Wait(Box::new(Wanted {
                    key: JobKey::Verify(context.core.verifying, check.pair),
                    task: Task::Verify { stored: check.stored.clone(), given: check.given.clone() },
                    urgency: Urgency::Bounded,
                    subject: None,
                    remaining_bytes: 0,
                }));
            }
        }
    }
    Password::Right
}
