//! The client's side: its settings, and the connections that it begins.

use std::fmt;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme, StreamOwned,
    SupportedProtocolVersion,
};

use super::provider;
use flash_kit::{Error, Result};

/// Sessions that are kept for resumption: of one server, at most eight are used.
const SESSIONS: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Version {
    /// TLS 1.2
    #[value(name = "1.2")]
    Tls12,
    /// TLS 1.3
    #[value(name = "1.3")]
    Tls13,
}

/// How a client speaks TLS. Comments of options are their help.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Wire")]
pub struct ClientOptions {
    /// Make a full handshake for each TLS connection, and resume no session
    #[arg(long)]
    pub no_resumption: bool,

    /// Speak only this version of TLS, 1.2 or 1.3 [default: both]
    #[arg(long = "tls-version", value_name = "VERSION", value_enum, hide_possible_values = true)]
    pub version: Option<Version>,

    /// Verify certificates against those in this PEM file [default: they are not verified]
    #[arg(long = "ca", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub authorities: Option<PathBuf>,
}

impl ClientOptions {
    /// The options in words, for the settings of results.
    pub fn text(&self) -> String {
        let versions = match self.version {
            None => "1.3 or 1.2",
            Some(Version::Tls12) => "1.2",
            Some(Version::Tls13) => "1.3",
        };
        let resumption = if self.no_resumption { "without resumption" } else { "sessions resumed" };
        let certificates = match &self.authorities {
            Some(file) => format!("certificates verified against {}", file.display()),
            None => "certificates not verified".to_owned(),
        };
        format!("{versions}, AES-128-GCM, X25519, {resumption}, {certificates}")
    }
}

/// TLS over a socket that blocks.
pub type Secured = StreamOwned<ClientConnection, TcpStream>;

/// Begins TLS connections. A clone shares the sessions.
#[derive(Clone)]
pub struct Client(Arc<ClientConfig>);

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

impl Client {
    /// A client that offers one protocol of the application: `http/1.1` or `h2`.
    ///
    /// Errors: run, for a file of authorities that cannot be read; usage, for one without a certificate.
    pub fn new(options: &ClientOptions, protocol: &[u8]) -> Result<Self> {
        let failed = |why: &dyn fmt::Display| Error::run(format!("cannot speak TLS: {why}"));
        let versions: &[&SupportedProtocolVersion] = match options.version {
            None => &[&TLS13, &TLS12],
            Some(Version::Tls12) => &[&TLS12],
            Some(Version::Tls13) => &[&TLS13],
        };
        let provider = provider();
        let verifier: Arc<dyn ServerCertVerifier> = match &options.authorities {
            None => Arc::new(Anyone(Arc::clone(&provider))),
            Some(file) => {
                let text = std::fs::read(file).map_err(|why| Error::file("read", file, &why))?;
                let mut roots = RootCertStore::empty();
                roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&text).flatten());
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                    .build()
                    .map_err(|why| {
                        Error::usage(format!("cannot verify certificates by {}: {why}", file.display()))
                    })?
            }
        };
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(|why| failed(&why))?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        config.resumption = if options.no_resumption {
            Resumption::disabled()
        } else {
            Resumption::in_memory_sessions(SESSIONS)
        };
        Ok(Self(Arc::new(config)))
    }

    /// Begins a connection to `host`, a name or an address, with a port or without.
    ///
    /// Errors: the host can be in no certificate.
    pub(crate) fn begin(&self, host: &str) -> std::io::Result<ClientConnection> {
        let name = name_of(host).ok_or_else(|| {
            std::io::Error::new(std::io::ErrorKind::InvalidInput, format!("{host} cannot have a certificate"))
        })?;
        let mut connection =
            ClientConnection::new(Arc::clone(&self.0), name).map_err(std::io::Error::other)?;
        // Requests at once on a connection of HTTP/2 may be more than the default.
        connection.set_buffer_limit(None);
        Ok(connection)
    }

    /// Whether a connection may do without the protocol that the client offers: an old server of HTTP/1.1 chooses none.
    pub(crate) fn accepts(&self, chosen: Option<&[u8]>) -> bool {
        let offered = self.0.alpn_protocols.first().map(Vec::as_slice);
        chosen == offered || chosen.is_none() && offered == Some(b"http/1.1")
    }

    /// Speaks TLS over a socket that blocks.
    ///
    /// Errors: the host can be in no certificate.
    pub fn wrap(&self, host: &str, socket: TcpStream) -> std::io::Result<Secured> {
        Ok(StreamOwned::new(self.begin(host)?, socket))
    }
}

/// The name of a host without its port.
fn name_of(host: &str) -> Option<ServerName<'static>> {
    let without_port = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = without_port.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(without_port);
    ServerName::try_from(bare.to_owned()).ok()
}

/// Takes every certificate, and does not check that the server has its key: a measurement is of the server's work.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_a_name_without_its_port() {
        let name = |text: &str| ServerName::try_from(text.to_owned()).unwrap();
        assert_eq!(name_of("localhost:8443"), Some(name("localhost")));
        assert_eq!(name_of("127.0.0.1:8443"), Some(name("127.0.0.1")));
        assert_eq!(name_of("[::1]:8443"), Some(name("::1")));
        assert_eq!(name_of("[::1]"), Some(name("::1")));
        assert_eq!(name_of("a b"), None);
    }

    #[test]
    fn an_old_server_of_http_1_chooses_no_protocol() {
        let client = |protocol: &[u8]| Client::new(&ClientOptions::default(), protocol).unwrap();
        let old = client(b"http/1.1");
        assert!(old.accepts(None) && old.accepts(Some(b"http/1.1")) && !old.accepts(Some(b"h2")));
        let new = client(b"h2");
        assert!(new.accepts(Some(b"h2")) && !new.accepts(None) && !new.accepts(Some(b"http/1.1")));
    }

    #[test]
    fn authorities_must_be_there() {
        let of = |file: &str| ClientOptions { authorities: Some(file.into()), ..ClientOptions::default() };
        assert_eq!(Client::new(&of("/not/there"), b"h2").unwrap_err().exit_code(), 1);
        assert_eq!(Client::new(&of("/dev/null"), b"h2").unwrap_err().exit_code(), 2);
    }
}
