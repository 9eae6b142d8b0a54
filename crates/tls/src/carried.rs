//! Values on their way to another process of the server, as bytes. Called by [`Bundle`](crate::Bundle),
//! [`Tickets`](crate::Tickets) and [`Trust`](crate::Trust).

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A value that the process with the rights to read files gives to the workers. The bytes may contain keys.
pub trait Carried: Serialize + DeserializeOwned {
    /// The bytes for another process.
    #[must_use]
    fn to_bytes(&self) -> Vec<u8> {
        postcard::to_extend(self, Vec::new()).unwrap_or_default()
    }

    /// Reads [`Carried::to_bytes`].
    #[must_use]
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }
}
