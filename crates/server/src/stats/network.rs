//! The network as the server's kernel sees it: queues of the listening sockets, connections by state, and counts of TCP
//! (overload-and-srpt, section 3.2: the authors changed their kernel to see these).
//!
//! The supervisor reads them on request, for an answer. No worker does, and no request costs more because of them.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;

use flash_prompt::OwnedFd;
use flash_waiting::listening;
use flash_worker::stats::figures;
use serde::{Deserialize, Serialize};

/// Maximum connections of an address that are counted.
const CONNECTIONS_MAX: u64 = 100_000;
/// Maximum addresses that are read; further ones are not reported.
const ADDRESSES_MAX: usize = 16;

/// The names of states by their number in the kernel, as tcp(7) and ss(8) have them. Numbers 0 and 10 are no
/// connections; 12 is 3 to programs.
const STATE_NAMES: [Option<&str>; listening::STATES] = [
    None,
    Some("established"),
    Some("syn_sent"),
    Some("syn_received"),
    Some("fin_wait_1"),
    Some("fin_wait_2"),
    Some("time_wait"),
    Some("closed"),
    Some("close_wait"),
    Some("last_ack"),
    None,
    Some("closing"),
    Some("syn_received"),
];

/// The network of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkStats {
    /// Each address that it listens on.
    pub listeners: Vec<ListenerStats>,
    /// Counts of the network namespace; `None` if the kernel does not show them.
    pub namespace: Option<NamespaceCounts>,
}

/// An address and its listening sockets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerStats {
    /// The address as bound, or `unix:` and a path; with `(systemd:NAME)` if it is a socket of systemd.
    pub address: String,
    /// The accept queue of each of its sockets. Shorter than their number if a socket could not be read.
    pub accept_queues: Vec<Queue>,
    /// The SYN queue of all its sockets together; `None` if the kernel has no sock_diag(7).
    pub syn_queue: Option<Queue>,
    /// Connections by state, without the listening sockets; empty if the kernel has no sock_diag(7).
    pub connections: BTreeMap<String, u64>,
    /// Whether there are more connections, which were not counted.
    pub is_cut: bool,
}

/// A queue of a listening socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Connections in it now.
    pub now: u64,
    /// Its maximum.
    pub bound: u64,
}

impl ListenerStats {
    /// The accept queues of all its sockets as one.
    #[must_use]
    pub fn accept_queue(&self) -> Queue {
        let sum = |of: fn(&Queue) -> u64| self.accept_queues.iter().map(of).sum();
        Queue { now: sum(|queue| queue.now), bound: sum(|queue| queue.bound) }
    }
}

pub(crate) struct Listening<'a> {
    /// The name that an answer shows.
    pub(crate) name: String,
    /// Its address, if it is one of TCP.
    pub(crate) address: Option<SocketAddr>,
    pub(crate) sockets: &'a [OwnedFd],
}

/// Defines [`NamespaceCounts`]: each field with its meaning, and the file, line and name of the kernel.
macro_rules! namespace_counts {
    ($($(#[doc = $meaning:literal])* $field:ident: $line:literal $name:literal,)*) => {
        figures! {
            /// Counts of TCP in the network namespace, of all its programs, since it was made: segments and connections of
            /// other servers, and of clients, are among them (proc(5), `/proc/net/netstat` and `/proc/net/snmp`).
            NamespaceCounts {
                $($(#[doc = $meaning])* $field: u64,)*
            }
        }

        impl NamespaceCounts {
            /// Reads both files, joined. A count that the kernel does not have is 0.
            fn parse(text: &str) -> Self {
                let counts = by_name(text);
                let count = |line, name| counts.get(&(line, name)).copied().unwrap_or(0);
                Self { $($field: count($line, $name),)* }
            }
        }
    };
}

namespace_counts! {
    /// Connections that came and were not taken because the accept queue was full.
    accept_overflows: "TcpExt" "ListenOverflows",
    /// SYNs and connections that were dropped by a listening socket, for whatever reason; includes `accept_overflows`.
    listen_drops: "TcpExt" "ListenDrops",
    /// SYNs dropped because the SYN queue was full.
    syn_queue_drops: "TcpExt" "TCPReqQFullDrop",
    /// SYNs answered with a cookie because the SYN queue was full.
    syn_cookies: "TcpExt" "TCPReqQFullDoCookies",
    /// Connections accepted by the kernel.
    passive_opens: "Tcp" "PassiveOpens",
    /// Segments sent, without those sent again.
    segments_sent: "Tcp" "OutSegs",
    /// Segments sent again.
    segments_resent: "Tcp" "RetransSegs",
    /// Times that a retransmission timer expired.
    timeouts: "TcpExt" "TCPTimeouts",
    /// Resets sent.
    resets_sent: "Tcp" "OutRsts",
    /// Connections that a reset ended, sent or received.
    resets: "Tcp" "EstabResets",
}

/// The numbers of both files, by the word of their line and their name. Each line with numbers follows one with names.
fn by_name(text: &str) -> BTreeMap<(&str, &str), u64> {
    let mut counts = BTreeMap::new();
    let mut names: Option<(&str, &str)> = None;
    for line in text.lines() {
        let Some((word, rest)) = line.split_once(": ") else { continue };
        match names.take() {
            Some((named, names)) if named == word => {
                let pairs = names.split_ascii_whitespace().zip(rest.split_ascii_whitespace());
                counts.extend(pairs.filter_map(|(name, count)| Some(((word, name), count.parse().ok()?))));
            }
            _ => names = Some((word, rest)),
        }
    }
    counts
}

/// Reads the network of a server that listens on these sockets. Waits for nothing.
pub(crate) fn network<'a>(listening: impl Iterator<Item = Listening<'a>>) -> NetworkStats {
    // Those of the thread: the namespace belongs to it.
    let read = |name| fs::read_to_string(format!("/proc/thread-self/net/{name}"));
    let namespace = match (read("netstat"), read("snmp")) {
        (Ok(netstat), Ok(snmp)) => Some(NamespaceCounts::parse(&(netstat + &snmp))),
        _ => None,
    };
    let listeners = listening.take(ADDRESSES_MAX).map(listener);
    NetworkStats { listeners: listeners.collect(), namespace }
}

fn listener(Listening { name, address, sockets }: Listening<'_>) -> ListenerStats {
    let queue = |socket| match address {
        Some(_) => listening::accept_queue(socket),
        None => listening::accept_queue_of_unix(socket),
    };
    let queues = sockets.iter().filter_map(|socket| queue(socket).ok());
    let queues = queues.map(|queue| Queue { now: queue.length.into(), bound: queue.bound.into() });
    let accept_queues: Vec<_> = queues.collect();
    let mut stats = ListenerStats {
        address: name,
        accept_queues,
        syn_queue: None,
        connections: BTreeMap::new(),
        is_cut: false,
    };
    let counted = address.and_then(|address| listening::connections(address, CONNECTIONS_MAX).ok());
    let Some(counted) = counted else { return stats };
    for (name, count) in STATE_NAMES.iter().zip(counted.by_state) {
        if let Some(name) = name.filter(|_| count > 0) {
            *stats.connections.entry(name.to_owned()).or_default() += count;
        }
    }
    // The kernel has one bound for both queues of a socket (inet_csk_reqsk_queue_is_full).
    let now = stats.connections.get("syn_received").copied().unwrap_or(0);
    stats.syn_queue = Some(Queue { now, bound: stats.accept_queue().bound });
    stats.is_cut = counted.is_cut;
    stats
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_found_by_the_names_in_the_line_before() {
        let text = "TcpExt: SyncookiesSent ListenOverflows ListenDrops TCPReqQFullDrop\nTcpExt: 1 2 3 4\n\
                    IpExt: InNoRoutes\nIpExt: 9\nIp: Forwarding\nIp: 2\n\
                    Tcp: MaxConn PassiveOpens OutSegs RetransSegs OutRsts\nTcp: -1 10 20 30 40\n";
        let counts = NamespaceCounts::parse(text);
        let expected = NamespaceCounts {
            accept_overflows: 2,
            listen_drops: 3,
            syn_queue_drops: 4,
            passive_opens: 10,
            segments_sent: 20,
            segments_resent: 30,
            resets_sent: 40,
            ..NamespaceCounts::default()
        };
        assert_eq!(counts, expected);
        for strange in ["", "Tcp: A\nUdp: 1\n", "Tcp: A B\nTcp: x\n", "no colon", "Tcp: PassiveOpens"] {
            assert_eq!(NamespaceCounts::parse(strange), NamespaceCounts::default(), "{strange}");
        }
    }

    #[test]
    fn this_kernel_has_every_count_that_is_reported() {
        let text = ["netstat", "snmp"].map(|name| fs::read_to_string(format!("/proc/self/net/{name}")));
        let [Ok(netstat), Ok(snmp)] = text else { panic!("proc(5)") };
        let (text, names) = (netstat + &snmp, include_str!("network.rs"));
        let counts = by_name(&text);
        for line in ["TcpExt", "Tcp"] {
            let named = names.lines().filter_map(|text| text.split_once(&format!(": \"{line}\" \"")));
            let named: Vec<_> = named.filter_map(|(_, rest)| rest.strip_suffix("\",")).collect();
            assert!(named.len() >= 4, "{named:?}");
            for name in named {
                assert!(counts.contains_key(&(line, name)), "{line} {name}");
            }
        }
    }
}
