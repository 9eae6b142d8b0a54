//! End-to-end tests: the real program over real sockets, one module for each promise of the README
//! and of the issue that the server was built from. Every test has a server and a folder of its own.

/// Of the servers; `sped.rs`, `mp.rs` and `mt.rs` run most of the modules with the others.
const ARCHITECTURE: &str = "amped";

mod architectures;
mod conditionals;
mod framing;
mod freshness;
mod harness;
mod helpers;
mod hits;
mod http_methods;
mod hung_disks;
mod ipv6;
mod limits;
mod listings;
mod logs;
mod mechanisms;
mod negotiation;
mod optimizations;
mod paths;
mod processes;
mod ranges;
mod residency;
mod sandbox;
mod signals;
mod stalls;
mod stats;
mod vhosts;
