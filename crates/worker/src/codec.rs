//! The encoding of the messages between Flash's processes (postcard) in packets of a `SOCK_SEQPACKET` channel.
//! Called by all ends.
//!
//! Both ends are the same program, but neither trusts the other's bytes: a message that does not decode is an
//! error, never a panic, and no length in it makes room before the bytes are there. A message that is cut short or
//! has extra bytes never decodes.

use std::io::{self, IoSlice};

use flash_prompt::{AsFd, BorrowedFd, channel};
use serde::{Deserialize, Serialize};

/// Room for most messages, in bytes.
const USUAL_BYTES: usize = 128;

/// Encodes a message.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    // Only a sequence of unknown length has no encoding, and no message has one. The other end would refuse the empty message.
    postcard::to_extend(message, Vec::with_capacity(USUAL_BYTES)).unwrap_or_default()
}

/// Decodes a message. None if the bytes are anything else.
pub fn decode<'b, M: Deserialize<'b>>(bytes: &'b [u8]) -> Option<M> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Some(message),
        _ => None,
    }
}

/// Sends a message with its descriptors. Errors: any of [`channel::send`].
pub fn send(channel: impl AsFd, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    channel::send(channel, &[IoSlice::new(&encode(message))], descriptors)
}
