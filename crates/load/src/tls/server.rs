//! The server's side, for the floor and for tests: the same cryptography as the client's, session tickets, no HTTP/2.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{Certificate, provider};
use flash_kit::{Error, Result};

/// The configuration of a server with this certificate.
///
/// Errors: run, for a certificate and a key that do not go together.
pub fn config(certificate: &Certificate, protocols: &[&[u8]]) -> Result<Arc<ServerConfig>> {
    let failed = |why: &dyn std::fmt::Display| Error::run(format!("cannot serve TLS: {why}"));
    let chain = CertificateDer::pem_slice_iter(certificate.pem.as_bytes())
        .collect::<std::result::Result<Vec<_>, _>>()
        .map_err(|why| failed(&why))?;
    let key = PrivateKeyDer::from_pem_slice(certificate.key_pem.as_bytes()).map_err(|why| failed(&why))?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|why| failed(&why))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|why| failed(&why))?;
    config.ticketer = Ticketer::new().map_err(|why| failed(&why))?;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config))
}
