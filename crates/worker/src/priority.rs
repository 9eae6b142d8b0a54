//! The priorities that bands of responses have in the kernel's queues and in the network. Called by
//! [`system`](super::system); `flash qdisc` and the documentation follow these numbers.

use std::net::SocketAddr;

use flash_engine::{BANDS, Band};
use flash_prompt::net;

use super::calls::{Call, note_call};
use super::socket::Socket;

/// The priority (`SO_PRIORITY`) of each band. The first band has the priority that every socket has by
/// default, so it costs no call. The usual map of `pfifo_fast` and `prio` sends 1, 2, 3 and 5 after 0, but 4
/// beside it and 6 before it (tc-prio(8)), so these two are not used.
pub const PRIORITIES: [u8; BANDS] = [0, 1, 2, 3, 5];

/// The code point (DSCP) of each band: the default, assured forwarding with rising drop precedence (RFC 2597:
/// AF11, AF12), and background traffic (CS1, and LE of RFC 8622). CAKE sends the last two after all others
/// with `diffserv4`, and with `diffserv8` the first one, then the next three, then the last.
pub const CODE_POINTS: [u8; BANDS] = [0, 10, 12, 8, 1];

/// Whether packets also carry the band through the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marks {
    /// Only the queues of this machine see the band.
    None,
    /// Packets have a code point.
    Dscp,
}

/// Gives a socket the priority of a band.
pub(super) fn set(socket: &Socket, peer: &SocketAddr, band: Band, marks: Marks) {
    // Errors are ignored: these calls fail only if the connection has gone.
    if marks == Marks::Dscp {
        let _ = net::set_code_point(socket, peer.is_ipv6(), CODE_POINTS[band.number()]);
        note_call(Call::Prioritize);
    }
    let _ = net::set_priority(socket, PRIORITIES[band.number()]);
    note_call(Call::Prioritize);
}
