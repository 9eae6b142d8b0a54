//! The end-to-end tests of requests and answers over HTTP/2 over TLS: all modules that are about HTTP itself, not about connections in clear
//! text.

mod variant;

/// Modules of `main.rs`.
const MODULES: &[&str] = &[
    "applications",
    "cgi_programs",
    "conditionals",
    "freshness",
    "held_bodies",
    "hits",
    "http_methods",
    "listings",
    "names",
    "negotiation",
    "path_rules",
    "paths",
    "programs",
    "proxies",
    "ranges",
    "route_failures",
    "route_links",
    "routes",
    "store",
    "vhosts",
];

fn main() -> std::process::ExitCode {
    variant::run(("E2E_WIRE", "http2"), MODULES)
}
