//! Clients without an address: those of Unix sockets.
//!
//! The unspecified address stands for them. No packet comes from it (RFC 1122 section 3.2.1.3, RFC 4291 section 2.5.2), and the
//! readers of this crate take it from no proxy, so no other client has it.

use std::net::IpAddr;

/// Whether the client of a Unix socket has this address.
#[must_use]
pub fn is_unix(address: IpAddr) -> bool {
    address.to_canonical().is_unspecified()
}

/// The address as logs and the servers of routes get it. An IPv4-mapped IPv6 address is written as IPv4, and the client of a Unix
/// socket as nginx writes it.
#[must_use]
pub fn address_text(address: IpAddr) -> String {
    if is_unix(address) { UNIX.to_owned() } else { address.to_canonical().to_string() }
}

/// The text in place of the address of a Unix socket's client.
pub const UNIX: &str = "unix:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_of_a_unix_socket_has_a_text_of_its_own() {
        let text = |address: &str| address_text(address.parse().expect("an address"));
        assert_eq!(["0.0.0.0", "::", "::ffff:0.0.0.0"].map(text), ["unix:", "unix:", "unix:"]);
        assert_eq!(["192.0.2.1", "::ffff:192.0.2.1", "::1"].map(text), ["192.0.2.1", "192.0.2.1", "::1"]);
    }
}
