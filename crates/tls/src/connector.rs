//! The client's side of TLS connections, to the servers of routes. Made by each process that connects to them at its start,
//! before it gives up its rights.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use flash_engine::{RecordLayer, ServerId};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme,
};

use crate::acceptor::{protocol, provider, warm_up_thread};
use crate::certificate::Certificate;
use crate::explain::explain;
use crate::records::TlsRecords;
use crate::trust::{Trust, read_roots};

/// Sessions with a server that can be continued. It offers as many tickets as it likes, and each is used once.
const SESSIONS_MAX: usize = 1;

/// Makes the record layers of new connections to servers.
#[derive(Clone, Default)]
pub struct Connector(Arc<BTreeMap<ServerId, Peer>>);

/// A server. The configuration is its own, so that its sessions are not offered to others.
#[derive(Clone)]
struct Peer {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

impl Connector {
    /// Makes a connector to these servers.
    ///
    /// # Errors
    /// A name or a file that was not checked, or a failure of the cryptography.
    pub fn new(trust: &Trust) -> Result<Self, String> {
        if trust.servers.is_empty() {
            return Ok(Self::default());
        }
        let provider = Arc::new(provider());
        let verifiers = trust.roots.iter().map(|pem| Verifier::new(pem, &provider));
        let verifiers = verifiers.collect::<Result<Vec<_>, _>>()?;
        let unverified = Arc::new(Verifier::of_nothing(&provider));
        let mut peers = BTreeMap::new();
        for (server, trusted) in &trust.servers {
            let verifier = match trusted.roots {
                Some(place) => verifiers.get(place).ok_or("a file of certificates is missing")?,
                None => &unverified,
            };
            let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
                .with_safe_default_protocol_versions()
                .map_err(|e| e.to_string())?;
            let verifier = Arc::<Verifier>::clone(verifier);
            let mut config =
                builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
            config.alpn_protocols = vec![protocol::HTTP1.to_vec()];
            config.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
            let name = ServerName::try_from(trusted.name.clone()).map_err(|e| e.to_string())?;
            peers.insert(*server, Peer { config: Arc::new(config), name });
        }
        warm_up_thread()?;
        let connector = Self(Arc::new(peers));
        // The first connection must not find out that a random number needs another call of the kernel.
        connector.0.keys().next().map(|server| connector.layer(*server));
        Ok(connector)
    }

    /// The record layer of a new connection to a server. None if memory or random bytes are short, or if the server is not
    /// reached over TLS.
    #[must_use]
    pub fn layer(&self, server: ServerId) -> Option<Box<dyn RecordLayer>> {
        let Peer { config, name } = self.0.get(&server)?;
        let tls = ClientConnection::new(Arc::clone(config), name.clone()).ok()?;
        Some(Box::new(TlsRecords::new(tls, explain)))
    }
}

/// Verifies the certificates of servers.
#[derive(Debug)]
struct Verifier {
    /// None if any certificate is accepted.
    issuers: Option<Arc<WebPkiServerVerifier>>,
    /// Certificates that are accepted from servers themselves: one that signed itself is its own issuer, which the rules for
    /// chains do not allow (RFC 5280, section 4.2.1.9).
    own: Vec<CertificateDer<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    fn new(pem: &[u8], provider: &Arc<CryptoProvider>) -> Result<Arc<Self>, String> {
        let read = read_roots(pem);
        let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(read.store), Arc::clone(provider));
        let issuers = Some(builder.build().map_err(|e| e.to_string())?);
        let algorithms = provider.signature_verification_algorithms;
        Ok(Arc::new(Self { issuers, own: read.certificates, algorithms }))
    }

    fn of_nothing(provider: &CryptoProvider) -> Self {
        Self { issuers: None, own: Vec::new(), algorithms: provider.signature_verification_algorithms }
    }
}

/// Verifies a certificate whose issuer need not be known.
fn verify_own(certificate: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Result<(), Error> {
    let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let dates = Certificate::of_der(certificate).ok_or(CertificateError::BadEncoding)?;
    let time = |second: i64| UnixTime::since_unix_epoch(std::time::Duration::from_secs(second.max(0) as u64));
    if dates.until_s < now_s {
        return Err(CertificateError::ExpiredContext { time: now, not_after: time(dates.until_s) }.into());
    }
    if dates.from_s > now_s {
        let not_before = time(dates.from_s);
        return Err(CertificateError::NotValidYetContext { time: now, not_before }.into());
    }
    verify_server_name(&ParsedCertificate::try_from(certificate)?, name)
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(issuers) = &self.issuers else { return Ok(ServerCertVerified::assertion()) };
        if self.own.iter().any(|own| own == certificate) {
            return verify_own(certificate, name, now).map(|()| ServerCertVerified::assertion());
        }
        issuers.verify_server_cert(certificate, others, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
