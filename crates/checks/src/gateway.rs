//! Messages between the gateway and the workers.

use flash_worker::gateway_protocol::{Connect, GATEWAY_MESSAGE_BYTES_MAX, GatewayReply};

use crate::messages::{again, message};

/// Checks `input`, a message in either direction.
pub fn gateway(input: &[u8]) {
    let input = &input[..input.len().min(GATEWAY_MESSAGE_BYTES_MAX)];
    message(input, again::<Connect>);
    message(input, again::<GatewayReply>);
}
