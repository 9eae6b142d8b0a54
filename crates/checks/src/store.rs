//! Messages between the keeper of the store, the workers and the fillers: each has exactly one encoding, so a
//! message that decodes encodes to the same bytes, and a message that is cut short is refused.

use crate::messages::{STORE_MESSAGE_BYTES_MAX, STORE_MESSAGES, StoreMessage};

/// Checks `input`: a byte that selects the kind of message, and a message.
pub fn store(input: &[u8]) {
    let Some((first, message)) = input.split_first() else { return };
    let StoreMessage { again, ends } = STORE_MESSAGES[usize::from(*first) % STORE_MESSAGES.len()];
    let message = &message[..message.len().min(STORE_MESSAGE_BYTES_MAX)];
    let Some(bytes) = again(message) else { return };
    assert_eq!(bytes, message, "a message has two encodings");
    for length in (0..message.len()).step_by(message.len() / 64 + 1) {
        if let Some(bytes) = again(&message[..length]) {
            assert!(ends(message, length), "cut to {length}");
            assert_eq!(bytes, message[..length], "cut to {length}");
        }
    }
}
