//! The users that a rule admits, with their passwords as they are stored. Only helpers compare a password with a stored one, which
//! takes a tenth of a second by design; `caches::PasswordResults` remembers the result. Called by the [gate](crate::handler).

use std::collections::HashMap;
use std::fmt;

use crate::secret::Secret;

/// The names of users, and their passwords as they are stored.
#[derive(Clone, PartialEq, Eq)]
pub struct Users {
    stored: HashMap<Box<[u8]>, Secret>,
    /// That of some user, with which the passwords of unknown names are compared, so that they take as long.
    any: Secret,
}

impl Users {
    /// These users. None without a user.
    #[must_use]
    pub fn new(users: impl IntoIterator<Item = (String, String)>) -> Option<Self> {
        let secret = |(name, stored): (String, String)| {
            (name.into_bytes().into_boxed_slice(), Secret::from(stored.into_bytes()))
        };
        let stored: HashMap<_, _> = users.into_iter().map(secret).collect();
        let any = stored.values().next()?.clone();
        Some(Self { stored, any })
    }

    /// The password with which that of this name is compared, and whether it can be right.
    pub(crate) fn stored_of(&self, name: &[u8]) -> (&Secret, bool) {
        self.stored.get(name).map_or((&self.any, false), |stored| (stored, true))
    }
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} users", self.stored.len())
    }
}
