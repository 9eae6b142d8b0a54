//! Certificates and keys on their way to the workers. `flash-server` reads the files, checks each pair here, and passes the
//! bundle on in memory that only the workers get. Nothing prints a key.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

use crate::carried::Carried;
use crate::certificate::{Certificate, date};

/// The certificates of all sites that have any, in the order of the sites.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bundle(pub Vec<SiteCertificates>);

/// The certificates of a site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteCertificates {
    /// Its names, in lower case; `*.example.org` is every name that ends in `.example.org`.
    pub hosts: Vec<String>,
    /// One pair for each kind of key, the preferred one first.
    pub pairs: Vec<Pair>,
}

/// A certificate and its key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// The certificate and those of its issuers, in PEM.
    pub certificate: Vec<u8>,
    /// The private key, in PEM.
    pub key: Vec<u8>,
    /// The answer of its issuer that it is not revoked (OCSP), in DER.
    pub ocsp: Option<Vec<u8>>,
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pair")
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

/// Why a pair cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WrongPair {
    /// The certificate file has none.
    NoCertificate,
    /// The key file has none.
    NoKey,
    /// The key has a form that is not supported, with the reason.
    BadKey(String),
    /// The certificate is malformed.
    BadCertificate,
    /// The key is of another certificate.
    Mismatch,
    /// The certificate was valid until this second.
    Expired(i64),
    /// The certificate is valid from this second on.
    NotYet(i64),
}

impl fmt::Display for WrongPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WrongPair::NoCertificate => f.write_str("the file has no certificate in PEM form"),
            WrongPair::NoKey => f.write_str("the file has no private key in PEM form"),
            WrongPair::BadKey(why) => write!(f, "the key cannot be used: {why}"),
            WrongPair::BadCertificate => f.write_str("the certificate is malformed"),
            WrongPair::Mismatch => f.write_str("the key belongs to another certificate"),
            WrongPair::Expired(until_s) => write!(f, "the certificate expired on {}", date(*until_s)),
            WrongPair::NotYet(from_s) => write!(f, "the certificate is not valid before {}", date(*from_s)),
        }
    }
}

impl WrongPair {
    /// Whether the problem is in the file of the key.
    #[must_use]
    pub fn is_of_key(&self) -> bool {
        matches!(self, WrongPair::NoKey | WrongPair::BadKey(_) | WrongPair::Mismatch)
    }
}

impl Pair {
    /// Checks the pair, and returns the dates of its certificate.
    ///
    /// # Errors
    /// It cannot be used at this second since 1970.
    pub fn check(&self, now_s: i64) -> Result<Certificate, WrongPair> {
        let key = self.certified()?;
        match key.keys_match() {
            // Not every kind of key can be compared.
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => return Err(WrongPair::Mismatch),
            Err(_) => return Err(WrongPair::BadCertificate),
        }
        let first = key.cert.first().ok_or(WrongPair::NoCertificate)?;
        let certificate = Certificate::of_der(first).ok_or(WrongPair::BadCertificate)?;
        if certificate.until_s < now_s {
            return Err(WrongPair::Expired(certificate.until_s));
        }
        if certificate.from_s > now_s {
            return Err(WrongPair::NotYet(certificate.from_s));
        }
        Ok(certificate)
    }

    /// The pair as `rustls` uses it.
    pub(crate) fn certified(&self) -> Result<Arc<CertifiedKey>, WrongPair> {
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&self.certificate)
            .collect::<Result<_, _>>()
            .map_err(|_| WrongPair::BadCertificate)?;
        if chain.is_empty() {
            return Err(WrongPair::NoCertificate);
        }
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| WrongPair::NoKey)?;
        let key = any_supported_type(&key).map_err(|e| WrongPair::BadKey(e.to_string()))?;
        let mut certified = CertifiedKey::new(chain, key);
        certified.ocsp.clone_from(&self.ocsp);
        Ok(Arc::new(certified))
    }
}

impl Carried for Bundle {}
