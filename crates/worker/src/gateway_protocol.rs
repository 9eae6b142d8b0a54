//! The messages between the workers and the gateway, which connects to the servers of routes for them:
//! fixed-width little-endian numbers in messages of a `SOCK_SEQPACKET` channel. Called by both ends.
//!
//! Neither end trusts the other's bytes: a message that does not decode is an error, never a panic.

use flash_engine::{ServerId, UpstreamId};

/// Size of the longest message in bytes.
pub const GATEWAY_MESSAGE_BYTES_MAX: usize = 1 + 8 + 4;

/// A worker's request for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// The worker's number of the connection.
    pub link: u64,
    /// The server.
    pub server: ServerId,
}

/// The gateway's answer. Each request has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
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
}

mod tag {
    pub(super) const CONNECT: u8 = 1;
    pub(super) const CONNECTED: u8 = 2;
    pub(super) const NOT_CONNECTED: u8 = 3;
}

/// Encodes a request.
#[must_use]
pub fn encode_connect(connect: &Connect) -> Vec<u8> {
    let ServerId { upstream: UpstreamId(upstream), server } = connect.server;
    [&[tag::CONNECT], &connect.link.to_le_bytes()[..], &upstream.to_le_bytes(), &server.to_le_bytes()]
        .concat()
}

/// Decodes a request; None if the message is not a request.
#[must_use]
pub fn decode_connect(bytes: &[u8]) -> Option<Connect> {
    let (tag, rest) = bytes.split_first()?;
    let (link, rest) = rest.split_first_chunk()?;
    let (upstream, server) = rest.split_first_chunk()?;
    let upstream = UpstreamId(u16::from_le_bytes(*upstream));
    let server = ServerId { upstream, server: u16::from_le_bytes(server.try_into().ok()?) };
    (*tag == tag::CONNECT).then_some(Connect { link: u64::from_le_bytes(*link), server })
}

/// Encodes an answer.
#[must_use]
pub fn encode_answer(answer: &Answer) -> Vec<u8> {
    match answer {
        Answer::Connected { link } => [&[tag::CONNECTED], &link.to_le_bytes()[..]].concat(),
        Answer::NotConnected { link, errno } => {
            [&[tag::NOT_CONNECTED], &link.to_le_bytes()[..], &errno.to_le_bytes()].concat()
        }
    }
}

/// Decodes an answer; None if the message is not an answer.
#[must_use]
pub fn decode_answer(bytes: &[u8]) -> Option<Answer> {
    let (tag, rest) = bytes.split_first()?;
    let (link, rest) = rest.split_first_chunk()?;
    let link = u64::from_le_bytes(*link);
    match *tag {
        tag::CONNECTED if rest.is_empty() => Some(Answer::Connected { link }),
        tag::NOT_CONNECTED => {
            Some(Answer::NotConnected { link, errno: i32::from_le_bytes(rest.try_into().ok()?) })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_arrives_and_has_one_encoding() {
        let server = ServerId { upstream: UpstreamId(258), server: u16::MAX };
        let connect = Connect { link: 1 << 55, server };
        let mut bytes = encode_connect(&connect);
        assert_eq!(decode_connect(&bytes), Some(connect));
        assert!(bytes.len() <= GATEWAY_MESSAGE_BYTES_MAX);
        assert!((0..bytes.len()).all(|length| decode_connect(&bytes[..length]).is_none()));
        assert_eq!(decode_answer(&bytes), None, "an answer");
        bytes.push(0);
        assert_eq!(decode_connect(&bytes), None);
        for answer in [Answer::Connected { link: u64::MAX }, Answer::NotConnected { link: 7, errno: -111 }] {
            let mut bytes = encode_answer(&answer);
            assert_eq!(decode_answer(&bytes), Some(answer));
            assert!(bytes.len() <= GATEWAY_MESSAGE_BYTES_MAX);
            assert!((0..bytes.len()).all(|length| decode_answer(&bytes[..length]).is_none()));
            assert_eq!(decode_connect(&bytes), None, "a request");
            bytes.push(0);
            assert_eq!(decode_answer(&bytes), None);
        }
    }
}
