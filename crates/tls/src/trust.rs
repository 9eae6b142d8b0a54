//! The servers of routes that are reached over TLS, on their way to the processes that connect to them: the name of each, and the
//! certificates that it is verified by. `flash-server` reads and checks the files. Nothing in here is secret.

use std::collections::BTreeMap;

use flash_engine::ServerId;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde::{Deserialize, Serialize};

use crate::carried::Carried;

/// The servers, and the certificates of issuers that their routes trust.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trust {
    /// The contents of files of certificates, in PEM.
    pub roots: Vec<Vec<u8>>,
    /// The servers.
    pub servers: BTreeMap<ServerId, TrustedServer>,
}

/// How a server is verified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustedServer {
    /// The name or IP address in its certificate.
    pub name: String,
    /// The place of the certificates of its issuer in [`Trust::roots`]; None if it is not verified.
    pub roots: Option<usize>,
}

impl Carried for Trust {}

/// Whether this is a name or an address that the certificate of a server can have.
#[must_use]
pub fn is_server_name(name: &str) -> bool {
    ServerName::try_from(name).is_ok()
}

/// Checks a file of certificates of issuers, in PEM.
///
/// # Errors
/// It has no certificate that can be used.
pub fn check_roots(pem: &[u8]) -> Result<(), &'static str> {
    let read = read_roots(pem);
    if read.certificates.is_empty() {
        return Err("the file has no certificate in PEM form");
    }
    if read.store.is_empty() { Err("no certificate in the file can be used") } else { Ok(()) }
}

/// The certificates of a file.
pub(crate) struct ReadRoots {
    pub(crate) certificates: Vec<CertificateDer<'static>>,
    /// Those of them that can be used.
    pub(crate) store: RootCertStore,
}

/// Reads a file of certificates. The bundle of a system can have some that are of no use here, so these are left out.
pub(crate) fn read_roots(pem: &[u8]) -> ReadRoots {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect();
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(certificates.iter().cloned());
    ReadRoots { certificates, store }
}
