//! The messages between the workers and the gateway, which connects to the servers of routes for them.

use flash_engine::ServerId;
use serde::{Deserialize, Serialize};

/// Size of the longest message in bytes: a tag and two numbers, of 64 and 32 bits.
pub const GATEWAY_MESSAGE_BYTES_MAX: usize = 1 + 10 + 6;

/// A worker's request for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connect {
    /// The worker's number of the connection.
    pub link: u64,
    /// The server.
    pub server: ServerId,
}

/// A message of the gateway. Each request has one answer: a connection, or the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GatewayReply {
    /// The connection is made; its descriptor comes with the message.
    Connected {
        /// The worker's number of the connection.
        link: u64,
    },
    /// The connection is not made.
    NotConnected {
        /// The worker's number of the connection.
        link: u64,
        /// The number of the error (errno(3)).
        errno: i32,
    },
    /// The result of probes of a server, which no request has asked for.
    Probed {
        /// The server.
        server: ServerId,
        /// Whether it is in order.
        is_up: bool,
    },
}

#[cfg(test)]
mod tests {
    use flash_engine::UpstreamId;

    use super::*;
    use crate::codec::{decode, encode};

    #[test]
    fn every_message_arrives_in_its_bound() {
        let server = ServerId { upstream: UpstreamId(u16::MAX), server: u16::MAX };
        let connect = Connect { link: u64::MAX, server };
        let bytes = encode(&connect);
        assert_eq!(decode(&bytes), Some(connect));
        assert!(bytes.len() <= GATEWAY_MESSAGE_BYTES_MAX);
        for answer in [
            GatewayReply::Connected { link: u64::MAX },
            GatewayReply::NotConnected { link: u64::MAX, errno: i32::MIN },
            GatewayReply::Probed { server, is_up: true },
        ] {
            let bytes = encode(&answer);
            assert_eq!(decode(&bytes), Some(answer));
            assert!(bytes.len() <= GATEWAY_MESSAGE_BYTES_MAX);
        }
    }
}
