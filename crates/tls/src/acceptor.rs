//! Everything that the TLS connections of a worker share: certificates, tickets and the protocols that are offered. Made by
//! the worker at its start, before it gives up its rights.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use flash_engine::RecordLayer;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{Error, ServerConfig, ServerConnection, SignatureScheme, SupportedCipherSuite};

use crate::bundle::Bundle;
use crate::records::TlsRecords;
use crate::tickets::{Ticketer, Tickets};

/// The names of protocols for ALPN (RFC 7301).
pub mod protocol {
    /// HTTP/2 (RFC 9113, section 3.2).
    pub const HTTP2: &[u8] = b"h2";
    /// HTTP/1.1.
    pub const HTTP1: &[u8] = b"http/1.1";
}

/// Makes the record layers of new connections.
#[derive(Clone)]
pub struct Acceptor(Arc<ServerConfig>);

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Acceptor")
    }
}

impl Acceptor {
    /// Makes an acceptor that offers these [protocols](protocol), the preferred one first.
    ///
    /// # Errors
    /// A pair that was not checked, or a failure of the cryptography.
    pub fn new(bundle: &Bundle, tickets: Tickets, protocols: &[&[u8]]) -> Result<Self, String> {
        let chosen = Chosen::new(bundle)?;
        let builder = ServerConfig::builder_with_provider(Arc::new(provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?;
        let chosen = Arc::new(chosen);
        let resolver: Arc<dyn ResolvesServerCert> = Arc::<Chosen>::clone(&chosen);
        let mut config = builder.with_no_client_auth().with_cert_resolver(resolver);
        config.ignore_client_order = true;
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        // Sessions are in their tickets, so that every worker can resume them.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = Arc::new(Ticketer::new(tickets).ok_or("no key for tickets")?);
        warm_up(&chosen)?;
        Ok(Self(Arc::new(config)))
    }

    /// The record layer of a new connection. None if memory or random bytes are short.
    #[must_use]
    pub fn layer(&self) -> Option<Box<dyn RecordLayer>> {
        let tls = ServerConnection::new(Arc::clone(&self.0)).ok()?;
        Some(Box::new(TlsRecords::new(tls, Error::to_string)))
    }
}

/// The cryptography, with AES-128-GCM before the other ciphers: it costs least where there are instructions for it, and all of
/// them are strong.
pub(crate) fn provider() -> CryptoProvider {
    use rustls::CipherSuite::{
        TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        TLS13_AES_128_GCM_SHA256,
    };
    let is_cheapest = |suite: &SupportedCipherSuite| {
        matches!(
            suite.suite(),
            TLS13_AES_128_GCM_SHA256
                | TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
                | TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
        )
    };
    let mut provider = default_provider();
    provider.cipher_suites.sort_by_key(|suite| !is_cheapest(suite));
    provider
}

/// Uses everything of the cryptography that a handshake uses. Its first use asks the kernel for more than a worker may, such as
/// for the state of devices of random bytes.
fn warm_up(chosen: &Chosen) -> Result<(), String> {
    let all = [
        SignatureScheme::ECDSA_NISTP256_SHA256,
        SignatureScheme::ECDSA_NISTP384_SHA384,
        SignatureScheme::ECDSA_NISTP521_SHA512,
        SignatureScheme::ED25519,
        SignatureScheme::RSA_PSS_SHA256,
    ];
    let pairs = chosen.exact.values().chain(chosen.wildcards.values()).chain(&chosen.default);
    for pair in pairs.flat_map(|pairs| pairs.iter()) {
        if let Some(signer) = pair.key.choose_scheme(&all) {
            signer.sign(b"").map_err(|e| e.to_string())?;
        }
    }
    warm_up_provider()
}

/// The same for what both sides of a connection use.
pub(crate) fn warm_up_provider() -> Result<(), String> {
    aws_lc_rs::rand::fill(&mut [0; 32]).map_err(|_| "no random bytes")?;
    for group in default_provider().kx_groups {
        group.start().map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// The pairs of a site, the preferred one first.
type Pairs = Arc<[Arc<CertifiedKey>]>;

/// Chooses the certificate for the name that a client wants (SNI, RFC 6066, section 3).
#[derive(Debug)]
struct Chosen {
    exact: HashMap<String, Pairs>,
    /// By what follows the asterisk: `.example.org`.
    wildcards: HashMap<String, Pairs>,
    /// For clients that want another name, or none.
    default: Option<Pairs>,
}

impl Chosen {
    fn new(bundle: &Bundle) -> Result<Self, String> {
        let mut chosen = Self { exact: HashMap::new(), wildcards: HashMap::new(), default: None };
        for site in &bundle.0 {
            let pairs = site.pairs.iter().map(|pair| pair.certified().map_err(|e| e.to_string()));
            let pairs: Pairs = pairs.collect::<Result<Vec<_>, _>>()?.into();
            chosen.default.get_or_insert_with(|| Arc::clone(&pairs));
            for host in &site.hosts {
                let (names, name) = match host.strip_prefix('*') {
                    Some(rest) => (&mut chosen.wildcards, rest),
                    None => (&mut chosen.exact, host.as_str()),
                };
                names.insert(name.to_owned(), Arc::clone(&pairs));
            }
        }
        Ok(chosen)
    }

    fn of_name(&self, name: &str) -> Option<&Pairs> {
        let name = name.to_ascii_lowercase();
        self.exact.get(&name).or_else(|| {
            let ends = name.match_indices('.').map(|(at, _)| &name[at..]);
            ends.filter_map(|end| self.wildcards.get(end)).next()
        })
    }
}

impl ResolvesServerCert for Chosen {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let pairs = hello.server_name().and_then(|name| self.of_name(name)).or(self.default.as_ref())?;
        let schemes = hello.signature_schemes();
        let fitting = pairs.iter().find(|pair| pair.key.choose_scheme(schemes).is_some());
        fitting.or(pairs.first()).map(Arc::clone)
    }
}
