//! The TLS edge: what reaches the record layer of a worker.

use std::io::{Cursor, ErrorKind, Read, Write};
use std::sync::{Arc, OnceLock};

use flash_engine::RecordLayer;
use flash_tls::{Acceptor, Bundle, Handshakes, Pair, SiteCertificates, Tickets, protocol};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// The text that a client sends once its handshake is complete.
const SENT: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
/// The answer to it.
const ANSWER: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";
/// No client needs more than this many flights.
const FLIGHTS_MAX: usize = 8;
/// An alert as a record, encrypted or not, has at most this many bytes.
const ALERT_BYTES_MAX: usize = 64;

/// Bit of the first byte: the client speaks TLS 1.2 only.
const IS_OLD: u8 = 1;
/// Bit of the first byte: the other bytes are what the server gets, without any client.
const IS_RAW: u8 = 2;
/// Bit of the first byte: a thread computes the handshake.
const IS_AWAY: u8 = 4;
/// Bit of the first byte: the event loop helps that thread.
const IS_HELPED: u8 = 8;

/// A server's side and both configurations of clients, which all inputs share.
struct Shared {
    acceptor: Acceptor,
    clients: [Arc<ClientConfig>; 2],
}

fn shared() -> &'static Shared {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    SHARED.get_or_init(|| {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        let pair =
            Pair { certificate: certificate.clone().into(), key: key.serialize_pem().into(), ocsp: None };
        let bundle = Bundle(vec![SiteCertificates { hosts: Vec::new(), pairs: vec![pair] }]);
        let tickets = Tickets::new().expect("random bytes");
        let acceptor = Acceptor::new(&bundle, tickets, &[protocol::HTTP1]).expect("an acceptor");
        let mut roots = RootCertStore::empty();
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM");
        roots.add(certificate).expect("a root");
        let client = |versions: &[&'static rustls::SupportedProtocolVersion]| {
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let builder = ClientConfig::builder_with_provider(provider);
            let builder = builder.with_protocol_versions(versions).expect("a version");
            let mut config = builder.with_root_certificates(roots.clone()).with_no_client_auth();
            config.resumption = rustls::client::Resumption::disabled();
            Arc::new(config)
        };
        Shared { acceptor, clients: [client(&[&TLS13]), client(&[&TLS12])] }
    })
}

/// The server's side, and what it has done.
struct Server {
    layer: Box<dyn RecordLayer>,
    heard: Vec<u8>,
    has_failed: bool,
    /// The handshakes that another thread would compute, and whether the event loop computes them.
    away: Option<(Arc<Handshakes>, bool)>,
}

impl Server {
    fn new(acceptor: &Acceptor, first: u8) -> Self {
        let mut acceptor = acceptor.clone();
        let queue = (first & IS_AWAY != 0).then(|| Arc::new(Handshakes::new(|| ())));
        queue.iter().for_each(|queue| acceptor.compute_by(Arc::clone(queue)));
        let layer = acceptor.layer().expect("memory and random bytes").records;
        let away = queue.map(|queue| (queue, first & IS_HELPED != 0));
        Self { layer, heard: Vec::new(), has_failed: false, away }
    }

    /// Computes the handshake elsewhere, if it is there.
    fn compute(&mut self) {
        let Some((queue, is_helped)) = &self.away else { return };
        if !queue.has_waiting() {
            return;
        }
        assert!(!self.layer.wants_write() && self.layer.is_handshaking() && self.layer.handshake().is_none());
        assert!(matches!(self.layer.take_back(), Ok(false)));
        let early = self.layer.pull(&mut |_| unreachable!("it is elsewhere")).expect_err("it is elsewhere");
        assert_eq!(early.kind(), ErrorKind::WouldBlock);
        let computed = if *is_helped { queue.help() } else { queue.compute() };
        assert!(computed.is_some() && !queue.has_waiting());
        assert_eq!(queue.computed() > 0, !is_helped);
        match self.layer.take_back() {
            Ok(is_back) => assert!(is_back),
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::InvalidData, "{e}");
                self.has_failed = true;
            }
        }
    }

    /// Passes bytes to the record layer in pieces of at most this length, as a socket would.
    fn take(&mut self, bytes: &[u8], piece_bytes: usize) {
        let mut at = 0;
        while at < bytes.len() && !self.has_failed {
            let mut receive = |buffer: &mut [u8]| {
                let piece = &bytes[at..(at + piece_bytes.min(buffer.len())).min(bytes.len())];
                buffer[..piece.len()].copy_from_slice(piece);
                Ok(piece.len())
            };
            match self.layer.pull(&mut receive) {
                Ok(received) => {
                    assert!(received > 0, "the record layer receives what there is");
                    at += received;
                }
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::InvalidData, "{e}");
                    self.has_failed = true;
                }
            }
            self.compute();
            if self.layer.is_handshaking() {
                assert!(self.layer.handshake().is_none() && !self.layer.has_plaintext());
            }
            let mut room = [0; 7];
            loop {
                match self.layer.read(&mut room) {
                    0 => break,
                    read => self.heard.extend_from_slice(&room[..read]),
                }
            }
            assert!(!self.layer.has_plaintext(), "plaintext that cannot be read");
        }
    }

    /// The bytes that it sends.
    fn sent(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        while self.layer.wants_write() {
            let mut send = |pieces: &[std::io::IoSlice<'_>]| {
                let before = all.len();
                pieces.iter().for_each(|piece| all.extend_from_slice(piece));
                Ok(all.len() - before)
            };
            let sent = self.layer.push(&mut send).expect("the socket takes everything");
            assert!(sent > 0, "nothing to send, but the record layer wants to");
        }
        all
    }
}

/// The first byte of an input says which client speaks (see `IS_OLD` and `IS_RAW`), where the handshake is computed (see `IS_AWAY`) and, in
/// its upper bits, in how long pieces its bytes arrive. The rest are changes of these bytes, three bytes each: where, and what is added to that byte; for 0, the
/// client's bytes end there.
///
/// Whatever arrives, the server reads nothing that the client has not sent, in this order. An unchanged connection is complete.
/// Without a client the server sends no more than an alert.
pub fn tls(input: &[u8]) {
    let Some((&first, rest)) = input.split_first() else { return };
    let shared = shared();
    let mut server = Server::new(&shared.acceptor, first);
    let piece_bytes = [usize::MAX, 1, 2, 5, 6, 100, 1_000, 16_384][usize::from(first >> 5)];
    if first & IS_RAW != 0 {
        server.take(rest, piece_bytes);
        let sent = server.sent();
        assert!(server.heard.is_empty() && server.layer.is_handshaking());
        assert!(!server.has_failed || sent.len() <= ALERT_BYTES_MAX, "{} bytes", sent.len());
        return;
    }
    let changes: Vec<(usize, u8)> = rest
        .chunks_exact(3)
        .map(|change| (usize::from(u16::from_be_bytes([change[0], change[1]])), change[2]))
        .collect();
    let config = Arc::clone(&shared.clients[usize::from(first & IS_OLD)]);
    let mut client =
        ClientConnection::new(config, ServerName::try_from("localhost").expect("a name")).expect("a client");
    let (mut carried, mut has_sent, mut answer) = (0, false, Vec::new());
    for _ in 0..FLIGHTS_MAX {
        if !client.is_handshaking() && !has_sent {
            client.writer().write_all(SENT).expect("a buffer");
            client.send_close_notify();
            has_sent = true;
        }
        let mut flight = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut flight).expect("a buffer");
        }
        let is_cut = change(&mut flight, carried, &changes);
        carried += flight.len();
        server.take(&flight, piece_bytes);
        if server.heard == SENT && answer.is_empty() {
            server.layer.write(ANSWER, b"");
        }
        let sent = server.sent();
        let mut cursor = Cursor::new(&sent[..]);
        let mut is_right = true;
        while is_right && (cursor.position() as usize) < sent.len() {
            is_right = client.read_tls(&mut cursor).is_ok() && client.process_new_packets().is_ok();
        }
        // Stops with an error once there is no more.
        let _ = client.reader().read_to_end(&mut answer);
        if is_cut || !is_right || server.has_failed {
            break;
        }
    }
    assert!(SENT.starts_with(&server.heard), "the server read {}", server.heard.escape_ascii());
    if changes.is_empty() {
        assert_eq!((&server.heard[..], server.has_failed), (SENT, false));
        assert!(server.layer.has_ended(), "the client has announced its end");
        assert_eq!(answer, ANSWER);
    }
}

/// Changes a flight that begins at `offset` of the client's bytes. Returns whether they end in it.
fn change(flight: &mut Vec<u8>, offset: usize, changes: &[(usize, u8)]) -> bool {
    let mut is_cut = false;
    for (at, add) in changes {
        let Some(at) = at.checked_sub(offset).filter(|at| *at < flight.len()) else { continue };
        if *add == 0 {
            flight.truncate(at);
            is_cut = true;
        } else {
            flight[at] = flight[at].wrapping_add(*add);
        }
    }
    is_cut
}
