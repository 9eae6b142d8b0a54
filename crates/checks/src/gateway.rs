//! Messages between the gateway and the workers: each has exactly one encoding, so a message that decodes encodes
//! to the same bytes, and a message of another length is refused.

use crate::messages::{connect_again, gateway_answer_again};

/// Checks `input`, a message in either direction.
pub fn gateway(input: &[u8]) {
    let again = [connect_again(input), gateway_answer_again(input)];
    assert!(again.iter().flatten().count() <= 1, "a request is an answer");
    let Some(bytes) = again.into_iter().flatten().next() else { return };
    assert_eq!(bytes, input, "a message has two encodings");
    let longer = [input, &[0]].concat();
    for other in (0..input.len()).map(|length| &input[..length]).chain([longer.as_slice()]) {
        assert_eq!(connect_again(other), None, "of {} bytes", other.len());
        assert_eq!(gateway_answer_again(other), None, "of {} bytes", other.len());
    }
}
