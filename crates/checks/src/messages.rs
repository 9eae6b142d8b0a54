//! Messages between the server's processes: what holds for each kind of them.

use std::fs::File;
use std::os::fd::OwnedFd;

use flash_worker::codec::{decode, encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Decodes a message and encodes it again.
pub(crate) fn again<M: Serialize + DeserializeOwned>(bytes: &[u8]) -> Option<Vec<u8>> {
    decode::<M>(bytes).map(|message| encode(&message))
}

/// Checks `input`, a message that `again` decodes and encodes again: the same message follows from its encoding, and from
/// nothing that is shorter or longer.
pub(crate) fn message(input: &[u8], again: impl Fn(&[u8]) -> Option<Vec<u8>>) {
    let Some(bytes) = again(input) else { return };
    assert!(bytes.len() <= input.len(), "the message has grown");
    assert_eq!(again(&bytes).as_ref(), Some(&bytes), "another message");
    for length in (0..bytes.len()).step_by(bytes.len() / 64 + 1) {
        assert_eq!(again(&bytes[..length]), None, "cut to {length}");
    }
    assert_eq!(again(&[&bytes, &[0][..]].concat()), None, "with an extra byte");
}

/// This many descriptors.
pub(crate) fn descriptors(count: usize) -> Vec<OwnedFd> {
    (0..count).map(|_| File::open("/dev/null").expect("/dev/null opens").into()).collect()
}
