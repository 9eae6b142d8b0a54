//! TLS for the load generator and the floor, by `rustls`: the client's side of a connection, the server's, and certificates for
//! trying out.
//!
//! The generator and the floor move the bytes to and from their sockets.

pub mod client;
pub mod self_signed;
pub mod server;

use std::io::{self, IoSlice, Write};
use std::sync::Arc;

use flash_prompt::OwnedFd;
use flash_prompt::net;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{cipher_suite as suite, default_provider, kx_group};

pub use client::{Client, ClientOptions, Version};
pub use self_signed::{Certificate, KeyKind};

/// The cryptography of every measurement: AES-128-GCM and X25519, so that no server does more work than another. A server without
/// X25519 takes P-256.
fn provider() -> Arc<CryptoProvider> {
    let cipher_suites = vec![
        suite::TLS13_AES_128_GCM_SHA256,
        suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ];
    let kx_groups = vec![kx_group::X25519, kx_group::SECP256R1];
    Arc::new(CryptoProvider { cipher_suites, kx_groups, ..default_provider() })
}

/// A socket as `rustls` writes to it.
pub(crate) struct Socket<'a>(pub(crate) &'a OwnedFd);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        net::send(self.0, bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        net::send_parts(self.0, pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
