//! The end-to-end tests of requests and answers over HTTP/1.1 over TLS: all modules that are about HTTP itself, not about connections in clear
//! text.

/// The architecture of the servers.
const ARCHITECTURE: &str = "amped";
/// The wire of its clients.
const WIRE: harness::Wire = harness::Wire::Tls;

mod applications;
mod cgi_programs;
mod conditionals;
mod freshness;
#[expect(dead_code, reason = "some of it is for the tests of other suites")]
mod harness;
mod held_bodies;
mod hits;
mod http_methods;
mod listings;
mod names;
mod negotiation;
mod path_rules;
mod paths;
mod programs;
mod proxies;
mod ranges;
mod route_failures;
mod route_links;
mod routes;
mod store;
mod vhosts;
