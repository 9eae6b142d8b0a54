//! A certificate that nobody trusts, and its key: for trying out, and for the servers that the lab starts.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, date_time_ymd};

use flash_kit::{Error, Result};

/// How long such a certificate is valid: browsers accept no more.
const VALID_DAYS: u64 = 397;
const DAY_S: u64 = 86_400;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum KeyKind {
    /// ECDSA with P-256.
    #[default]
    Ecdsa,
    /// RSA with 2,048 bits.
    Rsa,
}

impl KeyKind {
    pub fn text(self) -> &'static str {
        match self {
            Self::Ecdsa => "ECDSA with P-256",
            Self::Rsa => "RSA with 2,048 bits",
        }
    }
}

/// A certificate and its key, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    pub kind: KeyKind,
    pub pem: String,
    pub key_pem: String,
}

impl Certificate {
    /// Makes one of these names and addresses, signed by itself, valid from yesterday on.
    ///
    /// Errors: run, for a name that cannot be in a certificate.
    pub fn make(hosts: Vec<String>, kind: KeyKind) -> Result<Self> {
        let failed = |why: rcgen::Error| Error::run(format!("cannot make a certificate: {why}"));
        let mut params = CertificateParams::new(hosts).map_err(failed)?;
        let day = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / DAY_S);
        // By seconds since 1970, so that the types of a library of dates stay out.
        let start = |day: u64| date_time_ymd(1970, 1, 1) + Duration::from_secs(day * DAY_S);
        let first_day = day.saturating_sub(1);
        (params.not_before, params.not_after) = (start(first_day), start(first_day + VALID_DAYS));
        let algorithm = match kind {
            KeyKind::Ecdsa => &PKCS_ECDSA_P256_SHA256,
            KeyKind::Rsa => &PKCS_RSA_SHA256,
        };
        let key = KeyPair::generate_for(algorithm).map_err(failed)?;
        let pem = params.self_signed(&key).map_err(failed)?.pem();
        Ok(Self { kind, pem, key_pem: key.serialize_pem() })
    }
}
