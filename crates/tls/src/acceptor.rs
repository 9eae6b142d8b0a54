//! Everything that the TLS connections of a worker share: certificates, tickets and the protocols that are offered. Made by
//! the worker at its start, before it gives up its rights.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use flash_engine::RecordLayer;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{
    Error, ServerConfig, ServerConnection, SignatureAlgorithm, SignatureScheme, SupportedCipherSuite,
};

use crate::bundle::Bundle;
use crate::handshakes::{AwayRecords, Handshakes};
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
pub struct Acceptor {
    config: Arc<ServerConfig>,
    has_slow_keys: bool,
    handshakes: Option<Arc<Handshakes>>,
}

/// The record layer of a new connection.
#[derive(Debug)]
pub struct NewLayer {
    /// The layer.
    pub records: Box<dyn RecordLayer>,
    /// Gets the number of the connection, if a thread computes the handshake ([`Handshakes`]).
    pub connection: Option<Arc<AtomicU64>>,
}

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
        let has_slow_keys = chosen.pairs().any(|pair| pair.key.algorithm() == SignatureAlgorithm::RSA);
        Ok(Self { config: Arc::new(config), has_slow_keys, handshakes: None })
    }

    /// Whether a signature takes so long that all other clients would notice it: with an RSA key.
    #[must_use]
    pub fn has_slow_keys(&self) -> bool {
        self.has_slow_keys
    }

    /// From now on, a thread computes the handshakes.
    pub fn compute_by(&mut self, handshakes: Arc<Handshakes>) {
        self.handshakes = Some(handshakes);
    }

    /// The record layer of a new connection. None if memory or random bytes are short.
    #[must_use]
    pub fn layer(&self) -> Option<NewLayer> {
        let tls = ServerConnection::new(Arc::clone(&self.config)).ok()?;
        let records = TlsRecords::new(tls, Error::to_string);
        let Some(handshakes) = &self.handshakes else {
            return Some(NewLayer { records: Box::new(records), connection: None });
        };
        let connection = Arc::new(AtomicU64::new(u64::MAX));
        let records = AwayRecords::new(records, Arc::clone(handshakes), Arc::clone(&connection));
        Some(NewLayer { records: Box::new(records), connection: Some(connection) })
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
    for pair in chosen.pairs() {
        if let Some(signer) = pair.key.choose_scheme(&all) {
            signer.sign(b"").map_err(|e| e.to_string())?;
        }
    }
    warm_up_thread()
}

/// The same for both sides of a connection, and for a further thread of the process, whose random numbers are its own.
///
/// # Errors
/// A failure of the cryptography.
pub fn warm_up_thread() -> Result<(), String> {
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

    /// All pairs, some more than once.
    fn pairs(&self) -> impl Iterator<Item = &Arc<CertifiedKey>> {
        let pairs = self.exact.values().chain(self.wildcards.values()).chain(&self.default);
        pairs.flat_map(|pairs| pairs.iter())
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
