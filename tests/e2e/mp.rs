//! The end-to-end tests once more, with multi-process servers: the same modules but those about helpers, processes
//! and the sandbox of an AMPED server.

/// Of the servers.
const ARCHITECTURE: &str = "mp";

mod conditionals;
mod framing;
mod freshness;
#[expect(dead_code, reason = "some of it is for the tests of helpers")]
mod harness;
mod hits;
mod http_methods;
mod ipv6;
mod limits;
mod listings;
mod logs;
mod negotiation;
mod paths;
mod ranges;
mod signals;
mod vhosts;
