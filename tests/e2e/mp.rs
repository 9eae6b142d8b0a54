//! The end-to-end tests with multi-process servers: all modules except those about helpers, processes and the sandbox of
//! an AMPED server.

mod variant;

/// Modules of `main.rs`.
const MODULES: &[&str] = &[
    "conditionals",
    "framing",
    "freshness",
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
    "signals",
    "store",
    "vhosts",
];

fn main() -> std::process::ExitCode {
    variant::run(("E2E_ARCHITECTURE", "mp"), MODULES)
}
