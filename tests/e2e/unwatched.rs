//! The end-to-end tests with servers that watch nothing and check names: all modules except those about watching.

mod variant;

/// Modules of `main.rs`.
const MODULES: &[&str] = &[
    "admission",
    "aliases",
    "applications",
    "architectures",
    "authorization",
    "bandwidth",
    "cgi_programs",
    "conditionals",
    "downgrades",
    "framing",
    "freshness",
    "held_bodies",
    "helpers",
    "hits",
    "http2",
    "http_methods",
    "hung_disks",
    "ipv6",
    "lifecycle",
    "limits",
    "listeners",
    "listings",
    "logs",
    "mechanisms",
    "negotiation",
    "optimizations",
    "path_rules",
    "paths",
    "processes",
    "programs",
    "proxies",
    "qdisc",
    "ranges",
    "residency",
    "route_failures",
    "route_health",
    "route_links",
    "routes",
    "sandbox",
    "signals",
    "sites",
    "stalls",
    "stats",
    "store",
    "tls",
    "tls_upstreams",
    "upgrades",
    "vhosts",
];

fn main() -> std::process::ExitCode {
    variant::run(("E2E_WATCH", "false"), MODULES)
}
