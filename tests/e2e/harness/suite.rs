//! Which suite runs: the architecture of its servers and the wire of its clients. Without a variable, AMPED servers and clear text;
//! `variant.rs` sets the variables for the others.

use std::sync::LazyLock;

use super::Wire;

/// The architecture of the servers.
pub(crate) fn architecture() -> &'static str {
    static NAME: LazyLock<String> =
        LazyLock::new(|| std::env::var("E2E_ARCHITECTURE").unwrap_or_else(|_| "amped".to_owned()));
    &NAME
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
