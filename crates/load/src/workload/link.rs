//! The load of a link: which rate of requests fills it.
//!
//! In the experiments on overload the server's uplink is the bottleneck, and load is the requested bandwidth as a share
//! of the link's (overload-and-srpt, section 3.3.2). So [`Link::capacity_per_s`] is the capacity that a
//! [`super::PhasePlan`] takes its levels of. Pure.

use super::Workload;
use flash_kit::{Error, Result};

/// The packet length of Ethernet, the paper's baseline (Table 2).
const PACKET_BYTES: u32 = 1500;
/// The shortest packets that IPv4 hosts must take whole (RFC 791, section 3.2); the paper goes down to 536.
const PACKET_BYTES_MIN: u32 = 576 - 40;

/// Headers of a packet: IPv4, TCP, and TCP's time stamps.
const HEADERS_BYTES: u64 = 20 + 20 + 12;
/// The head of a response: 200 to 300 bytes with Flash, nginx and Apache.
const HEAD_BYTES: u64 = 256;
/// The packets of a connection that carry no response, from server to client: SYN-ACK, the ACK of the client's FIN, and the
/// server's FIN.
const CONNECTION_BYTES: u64 = 60 + 2 * HEADERS_BYTES;

/// A link from a server to its clients, as a queue that sends packets of IP at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Bits per second, headers of IP included.
    pub rate_bits_per_s: u64,
    /// The longest packet, bytes, headers included.
    pub packet_bytes: u32,
}

impl Link {
    /// A link with the packets of Ethernet.
    pub fn new(rate_bits_per_s: u64) -> Self {
        Self { rate_bits_per_s, packet_bytes: PACKET_BYTES }
    }

    /// The bytes that the link carries for a response with a body of `body_bytes`: the head, the headers of its packets,
    /// and its share of the connection's other packets. An estimate, 2 % above the counters of an interface that carried
    /// Flash's responses; retransmissions are not in it.
    pub fn response_bytes(&self, body_bytes: u64, requests_per_connection: u32) -> f64 {
        let payload_bytes = u64::from(self.packet_bytes.max(PACKET_BYTES_MIN)) - HEADERS_BYTES;
        let sent_bytes = HEAD_BYTES + body_bytes;
        let headers_bytes = sent_bytes.div_ceil(payload_bytes) * HEADERS_BYTES;
        let connection_bytes = CONNECTION_BYTES as f64 / f64::from(requests_per_connection.max(1));
        (sent_bytes + headers_bytes) as f64 + connection_bytes
    }

    /// The requests per second of a workload that fill the link: load 1.
    ///
    /// Errors: usage, for a rate of 0, or files whose length is not known.
    pub fn capacity_per_s(&self, workload: &Workload, requests_per_connection: u32) -> Result<f64> {
        if self.rate_bits_per_s == 0 {
            return Err(Error::usage("the link has a rate of 0: give one, as in 10Mbit"));
        }
        let bytes = |body_bytes| self.response_bytes(body_bytes, requests_per_connection);
        let mean_bytes = workload.mean_of(bytes).ok_or_else(|| {
            Error::usage(
                "the capacity of a link depends on the mean length of the files, and not all are known: give --files, \
                 or --paths with lengths, and no --dynamic",
            )
        })?;
        Ok(self.rate_bits_per_s as f64 / 8.0 / mean_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Options, Spec};

    #[test]
    fn a_response_costs_its_packets() {
        let link = Link::new(10_000_000);
        // 1,448 bytes of each packet are payload.
        assert_eq!(link.response_bytes(1448 - 256, u32::MAX).round(), 1500.0);
        assert_eq!(link.response_bytes(1449 - 256, u32::MAX).round(), 1553.0);
        let alone = link.response_bytes(0, 1);
        assert_eq!(alone, (256 + 52 + 60 + 104) as f64);
        assert_eq!(link.response_bytes(0, 4), 308.0 + 164.0 / 4.0);
        assert_eq!(link.response_bytes(0, 0), alone, "a connection has one request or more");
        let short = Link { packet_bytes: 536, ..link };
        assert!(short.response_bytes(100_000, 1) > link.response_bytes(100_000, 1) * 1.05);
        assert_eq!(
            Link { packet_bytes: 0, ..link }.response_bytes(9, 1),
            short.response_bytes(9, 1),
            "no packet is shorter than a host must take"
        );
    }

    #[test]
    fn the_capacity_is_the_rate_over_the_mean() {
        let options = Options { directories: Some(2), ..Options::default() };
        let workload = Workload::open(&Spec::Uniform, &options).unwrap();
        let link = Link::new(10_000_000);
        let capacity_per_s = link.capacity_per_s(&workload, 5).unwrap();
        let mean_bytes = 5_119_470.0 / 36.0;
        assert!(capacity_per_s < 10e6 / 8.0 / mean_bytes, "headers cost something");
        assert!(capacity_per_s > 0.95 * 10e6 / 8.0 / mean_bytes, "but not much with large files");
        assert_eq!(Link::new(0).capacity_per_s(&workload, 5).unwrap_err().exit_code(), 2);
        let unknown = Workload::open(&Spec::Single { path: "/x".to_owned() }, &Options::default()).unwrap();
        let error = link.capacity_per_s(&unknown, 5).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains("mean length"), "{error}");
    }
}
