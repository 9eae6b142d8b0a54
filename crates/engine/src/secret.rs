//! A secret text, such as a password, that no message for people shows. Used by all modules.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A secret text.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<u8>", into = "Vec<u8>")]
pub struct Secret(Arc<[u8]>);

impl Secret {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Secret {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl From<Secret> for Vec<u8> {
    fn from(secret: Secret) -> Self {
        secret.0.to_vec()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a secret")
    }
}
