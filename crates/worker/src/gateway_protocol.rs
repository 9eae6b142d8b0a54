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

/// A message of the gateway. Each request has one answer: a connection, or the error.
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
    /// The result of probes of a server, which no request has asked for.
    Probed {
        /// The server.
        server: ServerId,
        /// Whether it is in order.
        is_up: bool,
    },
}

mod tag {
    pub(super) const CONNECT: u8 = 1;
    pub(super) const CONNECTED: u8 = 2;
    pub(super) const NOT_CONNECTED: u8 = 3;
    pub(super) const PROBED: u8 = 4;
}

/// Encodes a request.
#[must_use]
pub fn encode_connect(connect: &Connect) -> Vec<u8> {
    [&[tag::CONNECT], &connect.link.to_le_bytes()[..], &encode_server(connect.server)].concat()
}

fn encode_server(server: ServerId) -> [u8; 4] {
    let ServerId { upstream: UpstreamId(upstream), server } = server;
    let ([a, b], [c, d]) = (upstream.to_le_bytes(), server.to_le_bytes());
    [a, b, c, d]
}

fn decode_server([a, b, c, d]: [u8; 4]) -> ServerId {
    let upstream = UpstreamId(u16::from_le_bytes([a, b]));
    ServerId { upstream, server: u16::from_le_bytes([c, d]) }
}

/// Decodes a request; None if the message is not a request.
#[must_use]
pub fn decode_connect(bytes: &[u8]) -> Option<Connect> {
    let (tag, rest) = bytes.split_first()?;
    let (link, rest) = rest.split_first_chunk()?;
    let server = decode_server(rest.try_into().ok()?);
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
        Answer::Probed { server, is_up } => {
            [&[tag::PROBED], &encode_server(*server)[..], &[u8::from(*is_up)]].concat()
        }
    }
}

/// Decodes an answer; None if the message is not an answer.
#[must_use]
pub fn decode_answer(bytes: &[u8]) -> Option<Answer> {
    let (tag, rest) = bytes.split_first()?;
    if *tag == tag::PROBED {
        let (server, rest) = rest.split_first_chunk()?;
        let [is_up @ (0 | 1)] = rest else { return None };
        return Some(Answer::Probed { server: decode_server(*server), is_up: *is_up == 1 });
    }
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
        for answer in [
            Answer::Connected { link: u64::MAX },
            Answer::NotConnected { link: 7, errno: -111 },
            Answer::Probed { server, is_up: true },
            Answer::Probed { server, is_up: false },
        ] {
            let mut bytes = encode_answer(&answer);
            assert_eq!(decode_answer(&bytes), Some(answer));
            assert!(bytes.len() <= GATEWAY_MESSAGE_BYTES_MAX);
            assert!((0..bytes.len()).all(|length| decode_answer(&bytes[..length]).is_none()));
            assert_eq!(decode_connect(&bytes), None, "a request");
            bytes.push(0);
            assert_eq!(decode_answer(&bytes), None);
        }
        let mut bytes = encode_answer(&Answer::Probed { server, is_up: true });
        *bytes.last_mut().expect("a byte") = 2;
        assert_eq!(decode_answer(&bytes), None);
    }
}
