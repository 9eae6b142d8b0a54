//! End-to-end tests: the real program over real sockets, one module per promise of the README. Every test has its own server and
//! folder. `sped.rs`, `mp.rs`, `mt.rs`, `over_tls.rs` and `over_h2.rs` run many of the modules again.

mod admission;
mod aliases;
mod applications;
mod architectures;
mod authorization;
mod bandwidth;
mod cgi_programs;
mod conditionals;
mod downgrades;
mod framing;
mod freshness;
#[expect(dead_code, reason = "some of it is for the tests of `flash backend`")]
mod harness;
mod held_bodies;
mod helpers;
mod hits;
mod http2;
mod http_methods;
mod hung_disks;
mod ipv6;
mod lifecycle;
mod limits;
mod listeners;
mod listings;
mod logs;
mod many_files;
mod mechanisms;
mod names;
mod negotiation;
mod optimizations;
mod path_rules;
mod paths;
mod processes;
mod programs;
mod proxies;
mod qdisc;
mod ranges;
mod residency;
mod route_failures;
mod route_health;
mod route_links;
mod routes;
mod sandbox;
mod signals;
mod sites;
mod stalls;
mod stats;
mod store;
mod storms;
mod tls;
mod tls_upstreams;
mod upgrades;
mod vhosts;
mod watching;
// The same tests, of servers without the right to use fanotify.
#[expect(clippy::duplicate_mod)]
#[path = "watching.rs"]
mod watching_by_inotify;
