//! The end-to-end tests with single-process event-driven servers: all modules except those about helpers, processes and the
//! sandbox of an AMPED server.

mod variant;

/// Modules of `main.rs`.
const MODULES: &[&str] = &[
    "admission",
    "conditionals",
    "framing",
    "freshness",
    "held_bodies",
    "hits",
    "http_methods",
    "ipv6",
    "limits",
    "listeners",
    "listings",
    "logs",
    "negotiation",
    "path_rules",
    "paths",
    "proxies",
    "ranges",
    "route_failures",
    "routes",
    "signals",
    "store",
    "vhosts",
];

fn main() -> std::process::ExitCode {
    variant::run(("E2E_ARCHITECTURE", "sped"), MODULES)
}
