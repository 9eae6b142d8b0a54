//! Messages between the supervisor and the other processes.

use flash_worker::codec::encode;
use flash_worker::control::{decode_notice, decode_order, encode_order};

use crate::messages::{descriptors, message};

/// Checks `input`, a message in either direction.
pub fn control(input: &[u8]) {
    let order_again = |bytes: &[u8], given| {
        let order = decode_order(bytes, descriptors(given)).ok()?;
        let (bytes, descriptor) = encode_order(&order);
        Some((bytes, descriptor.is_some()))
    };
    message(input, |bytes| order_again(bytes, 1).map(|(bytes, _)| bytes));
    if let Some((bytes, needs_descriptor)) = order_again(input, 1) {
        assert_eq!(order_again(&bytes, 0).is_some(), !needs_descriptor, "without its descriptor");
    }
    message(input, |bytes| decode_notice(bytes).ok().map(|notice| encode(&notice)));
}
