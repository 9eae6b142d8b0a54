//! The end-to-end tests with single-process event-driven servers: all modules except those about helpers, processes and the
//! sandbox of an AMPED server.

/// The architecture of the servers.
const ARCHITECTURE: &str = "sped";
/// The wire of its clients.
const WIRE: harness::Wire = harness::Wire::Plain;

mod admission;
mod conditionals;
mod framing;
mod freshness;
#[expect(dead_code, reason = "some of it is for the tests of helpers")]
mod harness;
mod held_bodies;
mod hits;
mod http_methods;
mod ipv6;
mod limits;
mod listeners;
mod listings;
mod logs;
mod negotiation;
mod path_rules;
mod paths;
mod proxies;
mod ranges;
mod route_failures;
mod routes;
mod signals;
mod store;
mod vhosts;
