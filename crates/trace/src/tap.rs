//! The network of what is traced: requests that come to it and answers that leave it, as events.
//!
//! `recorder` opens it and takes from it. Where it cannot listen the trace goes on without: `note` says why.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;

use flash_waiting::packets::Packets;

use crate::event::{Event, What};
use crate::segment::Segment;
use crate::world;

/// How often listening sockets are looked for in a process, at most: it may open them some time after it began.
const LOOKS_MAX: u32 = 5;
/// Processes in which they are looked for, at most.
const PROCESSES_MAX: usize = 16_384;

/// Where requests are seen.
#[derive(Debug)]
pub(crate) struct Tap {
    packets: std::io::Result<Packets>,
    listeners: HashSet<SocketAddr>,
    /// How often it was looked into each process.
    looks: HashMap<u32, u32>,
}

impl Tap {
    /// In the network namespace of the process `pid`.
    pub(crate) fn open(pid: u32) -> Self {
        Self { packets: packets(pid), listeners: HashSet::new(), looks: HashMap::new() }
    }

    /// Learns where a process listens, unless that was looked up often enough: whether it was now.
    pub(crate) fn look(&mut self, pid: u32) -> bool {
        if self.looks.len() >= PROCESSES_MAX && !self.looks.contains_key(&pid) {
            return false;
        }
        let looks = self.looks.entry(pid).or_default();
        if *looks >= LOOKS_MAX {
            return false;
        }
        *looks += 1;
        let before = self.listeners.len();
        self.listeners.extend(world::listeners(pid));
        if self.listeners.len() > before {
            self.keep_ports();
        }
        true
    }

    /// Other servers' packets would fill the ring. If that fails, they are only sorted out later.
    fn keep_ports(&self) {
        let Ok(packets) = &self.packets else { return };
        let ports: BTreeSet<u16> = self.listeners.iter().map(SocketAddr::port).collect();
        let _ = packets.keep_ports(&ports.into_iter().collect::<Vec<_>>());
    }

    /// Appends what has passed; a portion, since the kernel's ring is bounded.
    pub(crate) fn take(&mut self, into: &mut Vec<Event>) {
        let Ok(packets) = &mut self.packets else { return };
        let listeners = &self.listeners;
        packets.take(|packet| {
            let segment = Segment::decode(packet.bytes, packet.is_outgoing);
            if let Some(segment) = segment.filter(|segment| is_listening(listeners, segment.server)) {
                let what = What::Passed(Box::new(segment));
                into.push(Event { time_ns: packet.time_ns, core: 0, pid: 0, tid: 0, what });
            }
        });
    }

    /// Packets that found no room.
    pub(crate) fn lost(&mut self) -> u64 {
        self.packets.as_mut().map_or(0, Packets::lost)
    }

    /// Whether there is anything that requests come to.
    pub(crate) fn has_listeners(&self) -> bool {
        !self.listeners.is_empty()
    }

    /// Why no requests are seen, if there could be some.
    pub(crate) fn note(&self) -> Option<String> {
        let why = self.packets.as_ref().err().filter(|_| self.has_listeners())?;
        Some(format!(
            "requests are not known, only connections: a packet socket was refused ({why}); it needs root or \
             CAP_NET_RAW, in another network namespace CAP_SYS_ADMIN as well"
        ))
    }
}

fn packets(pid: u32) -> std::io::Result<Packets> {
    let theirs = File::open(format!("/proc/{pid}/ns/net"))?;
    let (here, there) = (std::fs::metadata("/proc/self/ns/net")?, theirs.metadata()?);
    let is_here = (here.dev(), here.ino()) == (there.dev(), there.ino());
    Packets::open(if is_here { None } else { Some(&theirs) })
}

/// Whether one listens at this address, or at all of them with this port.
fn is_listening(listeners: &HashSet<SocketAddr>, address: SocketAddr) -> bool {
    let at = |ip: IpAddr| listeners.contains(&SocketAddr::new(ip, address.port()));
    at(address.ip())
        || address.is_ipv4() && at(Ipv4Addr::UNSPECIFIED.into())
        || at(Ipv6Addr::UNSPECIFIED.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_who_listens_at_all_addresses_listens_at_each() {
        let listens = |at: &str, address: &str| {
            is_listening(&HashSet::from([at.parse().unwrap()]), address.parse().unwrap())
        };
        assert!(listens("10.0.0.1:80", "10.0.0.1:80") && listens("0.0.0.0:80", "10.0.0.1:80"));
        assert!(listens("[::]:80", "[::1]:80") && listens("[::]:80", "10.0.0.1:80"));
        assert!(!listens("0.0.0.0:80", "10.0.0.1:81") && !listens("0.0.0.0:80", "[::1]:80"));
        assert!(!listens("10.0.0.1:80", "10.0.0.2:80"));
    }

    #[test]
    fn a_process_is_not_looked_into_for_ever() {
        let mut tap = Tap { packets: Err(std::io::ErrorKind::Other.into()), ..Tap::open(std::process::id()) };
        for _ in 0..2 * LOOKS_MAX {
            tap.look(1);
            tap.look(std::process::id());
        }
        assert!(!tap.look(1) && tap.look(2));
        assert_eq!(tap.looks.get(&1), Some(&LOOKS_MAX));
        tap.listeners.clear();
        assert_eq!(tap.note(), None, "nothing that requests come to");
        tap.listeners.insert("10.0.0.1:80".parse().unwrap());
        assert!(tap.note().unwrap().contains("CAP_NET_RAW"));
    }
}
