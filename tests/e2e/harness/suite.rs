//! Which suite runs: the architecture of its servers, whether they watch names, and the wire of its clients. Without a variable, AMPED
//! servers that watch and clear text; `variant.rs` sets the variables for the others.

use std::sync::LazyLock;

use super::Wire;

/// The architecture of the servers.
pub(crate) fn architecture() -> &'static str {
    static NAME: LazyLock<String> =
        LazyLock::new(|| std::env::var("E2E_ARCHITECTURE").unwrap_or_else(|_| "amped".to_owned()));
    &NAME
}

/// Whether the servers watch names, unless a test says otherwise.
pub(crate) fn watches() -> bool {
    std::env::var_os("E2E_WATCH").is_none_or(|value| value != "false")
}

/// The wire of the clients.
pub(crate) fn wire() -> Wire {
    static WIRE: LazyLock<Wire> = LazyLock::new(|| match std::env::var("E2E_WIRE").as_deref() {
        Err(_) => Wire::Plain,
        Ok("tls") => Wire::Tls,
        Ok("http2") => Wire::Http2,
        Ok(other) => panic!("E2E_WIRE is tls or http2, not {other}"),
    });
    *WIRE
}
