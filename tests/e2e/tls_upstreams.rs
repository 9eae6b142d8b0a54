//! Servers of routes that are reached over TLS: which are trusted, and what becomes of answers that are cut.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{HandshakeKind, ServerConfig, ServerConnection, StreamOwned};

use crate::harness::documented::block;
use crate::harness::upstream::{Ended, Peer, Upstream, config, framed, ok, proxy, start};
use crate::harness::{Folder, Launch, PATIENCE, Server, pattern, stats_at, wait_until};
use crate::tls::{ECDSA, RSA, certificate_of};

/// A server that speaks TLS, as threads of the test. Its threads end with their connections.
struct TlsServer {
    /// As the config file has it.
    address: String,
    connections: Arc<AtomicUsize>,
    resumed: Arc<AtomicUsize>,
    /// The names that were asked for (SNI).
    names: Arc<Mutex<Vec<Option<String>>>>,
}

/// A connection of it.
struct Connection(StreamOwned<ServerConnection, TcpStream>);

impl Connection {
    /// The next request: its head, and the body if it has a length. None if the connection ends.
    fn request(&mut self) -> Option<(String, Vec<u8>)> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            match self.0.read(&mut byte) {
                Ok(1) => head.push(byte[0]),
                _ => return None,
            }
        }
        let head = String::from_utf8(head).unwrap();
        let length = head
            .lines()
            .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        self.0.read_exact(&mut body).ok()?;
        Some((head, body))
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let sent = self.0.write_all(bytes.as_ref()).and_then(|()| self.0.flush());
        sent.unwrap_or_else(|e| panic!("cannot send: {e}"));
    }

    /// Announces the end (`close_notify`).
    fn announce_end(&mut self) {
        self.0.conn.send_close_notify();
        self.0.flush().unwrap();
    }
}

impl TlsServer {
    /// A server with the certificate `NAME.pem`, which serves each connection in a thread.
    fn run(folder: &Folder, name: &str, serve: impl Fn(Connection) + Send + Sync + 'static) -> Self {
        let pem = fs::read(folder.path(format!("{name}.pem"))).unwrap();
        let chain = CertificateDer::pem_slice_iter(&pem).map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_file(folder.path(format!("{name}.key"))).unwrap();
        let versions = if name == "old" { [&TLS12] } else { [&TLS13] };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder =
            ServerConfig::builder_with_provider(provider).with_protocol_versions(&versions).unwrap();
        let mut config = builder.with_no_client_auth().with_single_cert(chain, key).unwrap();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self {
            address: format!("https://{}", listener.local_addr().unwrap()),
            connections: Arc::default(),
            resumed: Arc::default(),
            names: Arc::default(),
        };
        let (connections, resumed, names) =
            (server.connections.clone(), server.resumed.clone(), server.names.clone());
        let serve = Arc::new(serve);
        thread::spawn(move || {
            while let Ok((socket, _)) = listener.accept() {
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                socket.set_write_timeout(Some(PATIENCE)).unwrap();
                let tls = ServerConnection::new(config.clone()).unwrap();
                let (connections, resumed) = (connections.clone(), resumed.clone());
                let (names, serve) = (names.clone(), serve.clone());
                thread::spawn(move || {
                    let mut connection = StreamOwned::new(tls, socket);
                    while connection.conn.is_handshaking() {
                        if connection.conn.complete_io(&mut connection.sock).is_err() {
                            return;
                        }
                    }
                    connections.fetch_add(1, Ordering::AcqRel);
                    let is_resumed = connection.conn.handshake_kind() == Some(HandshakeKind::Resumed);
                    resumed.fetch_add(usize::from(is_resumed), Ordering::AcqRel);
                    names.lock().unwrap().push(connection.conn.server_name().map(str::to_owned));
                    serve(Connection(connection));
                });
            }
        });
        server
    }

    /// A server that answers each request with its target, or with its body if it has one.
    fn echo(folder: &Folder, name: &str) -> Self {
        Self::run(folder, name, |mut connection| {
            while let Some((head, body)) = connection.request() {
                let target = head.split(' ').nth(1).unwrap();
                let answer = match target {
                    "/app/large" => pattern(3_000_000, 7),
                    "/app/head" => head.clone().into_bytes(),
                    _ if !body.is_empty() => body,
                    other => other.as_bytes().to_vec(),
                };
                connection.send(ok(answer));
                if target == "/app/close" {
                    return connection.announce_end();
                }
            }
        })
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::Acquire)
    }
}

const SIGNED_ITSELF: &str =
    "the server's certificate has signed itself or others, and is not trusted; set `roots`";

/// Files to serve, and self-signed certificates.
fn folder() -> Folder {
    let folder = Folder::with_hello();
    for (name, of, kind) in [
        ("address", "IP:127.0.0.1", ECDSA),
        ("old", "IP:127.0.0.1", RSA),
        ("name", "DNS:backend.example", ECDSA),
        ("late", "IP:127.0.0.1", ECDSA),
    ] {
        certificate_of(&folder, name, of, kind, 90);
    }
    openssl(&folder, "x509 -in late.pem -signkey late.key -days -1 -out late.pem");
    folder
}

/// Runs openssl in the folder.
fn openssl(folder: &Folder, words: &str) {
    let made = Command::new("openssl").args(words.split(' ')).current_dir(folder.path("")).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// A line of a route that trusts this certificate.
fn roots(folder: &Folder, name: &str) -> String {
    format!("roots = {:?}", folder.path(format!("{name}.pem")))
}

#[test]
fn requests_go_over_links_that_stay_encrypted() {
    let folder = folder();
    for name in ["address", "old"] {
        let upstream = TlsServer::echo(&folder, name);
        let server = start(&folder, &proxy("/app/", &upstream.address, &roots(&folder, name)));
        let mut client = Peer::client(&server);
        for round in 0..5 {
            let target = format!("/app/{round}");
            assert_eq!(client.get(&target).brief(), (200, target));
        }
        assert_eq!(client.get("/app/large").body, pattern(3_000_000, 7));
        let body = pattern(2_000_000, 5);
        assert_eq!(client.post("/app/post", &body).body, body);
        let head = client.get("/app/head").text().to_ascii_lowercase();
        assert!(head.contains("x-forwarded-proto: http\r\n"), "{head}");
        assert_eq!(upstream.connections(), 1, "{name}");
        assert_eq!(*upstream.names.lock().unwrap(), [None], "an address is no name");
        // A link that its server ends properly is followed by another, which continues the session.
        for round in 2..5 {
            assert_eq!(client.get("/app/close").status(), 200);
            assert_eq!(client.get("/app/next").brief(), (200, "/app/next".into()));
            assert_eq!(upstream.connections(), round);
        }
        assert_eq!(upstream.resumed.load(Ordering::Acquire), 3, "{name}");
    }
}

#[test]
fn a_server_is_asked_for_its_name() {
    let folder = folder();
    let upstream = TlsServer::echo(&folder, "name");
    let more = format!("server_name = \"backend.example\"\n{}", roots(&folder, "name"));
    let server = start(&folder, &proxy("/app/", &upstream.address, &more));
    assert_eq!(Peer::client(&server).get("/app/x").status(), 200);
    assert_eq!(*upstream.names.lock().unwrap(), [Some("backend.example".to_owned())]);
}

#[test]
fn a_server_whose_certificate_is_not_trusted_gets_no_request() {
    let folder = folder();
    let plain = Upstream::tcp().run(|mut peer| {
        peer.some();
        peer.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    });
    let plain_address = format!("https://{}", plain.address);
    let ours = |name: &str| TlsServer::echo(&folder, name);
    let (address, name, late) = (ours("address"), ours("name"), ours("late"));
    let trust = |name: &str| roots(&folder, name);
    let documented = block("docs/tls.md", "a_server_whose_certificate_is_not_trusted_gets_no_request");
    for (address, more, why) in [
        (&address.address, trust("name"), SIGNED_ITSELF),
        (&address.address, String::new(), SIGNED_ITSELF),
        (&name.address, trust("name"), "for backend.example, not for 127.0.0.1; set `server_name`"),
        (
            &name.address,
            format!("server_name = \"other.example\"\n{}", trust("name")),
            "not for other.example",
        ),
        (&late.address, trust("late"), "the certificate of the server expired on "),
        (
            &plain_address,
            trust("late"),
            "the server does not speak TLS on this port; write its address without",
        ),
    ] {
        let server = start(&folder, &proxy("/app/", address, &more));
        let answer = Peer::client(&server).get("/app/x");
        assert_eq!(answer.status(), 502, "{why}: {answer:?}");
        server.wait_for_stderr(&format!("upstream {address}: "));
        server.wait_for_stderr(why);
        // Reports are limited, and each failure counts.
        let mut client = Peer::client(&server);
        for _ in 0..5 {
            assert_eq!(client.get("/app/x").status(), 502);
        }
        assert_eq!(server.stderr().matches(why).count(), 1, "{}", server.stderr());
        if why.contains("not for 127.0.0.1") {
            let expected =
                documented.replace("https://10.0.0.1:443", address).replace("10.0.0.1", "127.0.0.1");
            assert!(server.stderr().contains(expected.trim_end()), "{}", server.stderr());
        }
        assert_eq!(server.get("/hello.txt").status, 200);
    }
    for server in [&address, &name, &late] {
        assert_eq!(server.connections(), 0, "no handshake was completed");
    }
}

#[test]
fn an_operator_can_turn_verification_off_and_is_warned() {
    let folder = folder();
    let upstream = TlsServer::echo(&folder, "late");
    let server = start(&folder, &proxy("/app/", &upstream.address, "verify = false"));
    server.wait_for_stderr(&format!("warning: verify = false: anyone on the way to {}", upstream.address));
    assert_eq!(Peer::client(&server).get("/app/x").status(), 200);
}

#[test]
fn a_certificate_is_verified_by_that_of_its_issuer() {
    let folder = folder();
    let run = |words| openssl(&folder, words);
    run(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=issuer -keyout ca.key -out ca.pem",
    );
    run(
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=leaf -keyout leaf.key -out leaf.csr",
    );
    folder.write("leaf.ext", "subjectAltName=IP:127.0.0.1\n");
    run("x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -days 9 -extfile leaf.ext -out leaf.pem");
    let upstream = TlsServer::echo(&folder, "leaf");
    let route = proxy("/app/", &upstream.address, &roots(&folder, "trusted"));
    fs::copy(folder.path("address.pem"), folder.path("trusted.pem")).unwrap();
    let server = start(&folder, &route);
    assert_eq!(Peer::client(&server).get("/app/x").status(), 502);
    server
        .wait_for_stderr("the issuer of the server's certificate is not trusted; set `roots` to a file with");
    // A file that changes is read again with the configuration.
    fs::copy(folder.path("ca.pem"), folder.path("trusted.pem")).unwrap();
    server.signal("HUP");
    wait_until("the new file", || Peer::client(&server).get("/app/x").status() == 200);
    // One that cannot be used changes nothing.
    folder.write("trusted.pem", "no certificate");
    server.signal("HUP");
    server.wait_for_stderr("as `roots`: the file has no certificate in PEM form");
    assert_eq!(Peer::client(&server).get("/app/x").status(), 200);
    drop(server);
    let (_, _, stderr) = Launch::configured(&folder, &config(&folder, &route)).fail();
    assert!(stderr.contains("trusted.pem` as `roots`: the file has no certificate"), "{stderr}");
}

#[test]
fn a_handshake_without_an_end_is_ended() {
    let folder = folder();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_address = format!("https://{}", silent.local_addr().unwrap());
    let more =
        |connect_timeout| format!("connect_timeout = {connect_timeout:?}\n{}", roots(&folder, "address"));
    let server = start(&folder, &proxy("/app/", &silent_address, &more("300ms")));
    let mut client = Peer::client(&server);
    assert_eq!(client.get("/app/x").status(), 504);
    server.wait_for_stderr("the server did not complete the TLS handshake within `connect_timeout`");
    // The worker has closed the connection, and serves others meanwhile.
    let (mut first, _) = silent.accept().unwrap();
    first.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut hello = Vec::new();
    let _ = first.read_to_end(&mut hello);
    assert_eq!(hello[..2], [22, 3], "a ClientHello");
    assert_eq!(server.get("/hello.txt").status, 200);
    // A server that answers is used instead of one that does not. On a busy machine that takes it a while.
    let upstream = TlsServer::echo(&folder, "address");
    let route = format!(
        "[[route]]\nprefix = \"/app/\"\nproxy = [{silent_address:?}, {:?}]\n{}\n",
        upstream.address,
        more("3s"),
    );
    let server = start(&folder, &route);
    for _ in 0..4 {
        assert_eq!(Peer::client(&server).get("/app/x").status(), 200);
    }
}

#[test]
fn an_answer_without_a_length_ends_with_that_of_tls_only() {
    let folder = folder();
    let body = pattern(500_000, 3);
    let sent = body.clone();
    let upstream = TlsServer::run(&folder, "address", move |mut connection| {
        let Some((head, _)) = connection.request() else { return };
        connection.send("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        connection.send(&sent);
        if head.starts_with("GET /app/whole ") {
            connection.announce_end();
        }
    });
    let server = start(&folder, &proxy("/app/", &upstream.address, &roots(&folder, "address")));
    assert_eq!(Peer::client(&server).get("/app/whole").body, body);
    let mut client = Peer::client(&server);
    client.ask("/app/cut");
    let cut = client.receive();
    assert!(matches!(&cut, Err(Ended::InBody(message)) if body.starts_with(&message.body)), "{cut:?}");
    server.wait_for_stderr("the end of TLS (close_notify), so the answer may be cut");
}

#[test]
fn a_server_over_tls_is_probed_over_tls() {
    let folder = folder();
    let upstream = TlsServer::echo(&folder, "address");
    let control = folder.path("control.sock");
    let start = |trusted: &str| -> Server {
        let more = format!("probe = \"/health\"\nprobe_interval = \"100ms\"\n{}", roots(&folder, trusted));
        let route = config(&folder, &proxy("/app/", &upstream.address, &more));
        Launch::configured(&folder, &route).arg("--control").arg(&control).start()
    };
    let server = start("address");
    wait_until("probes", || upstream.connections() >= 3);
    assert_eq!(Peer::client(&server).get("/app/x").status(), 200);
    assert_eq!(stats_at(&control)["sum"]["upstreams"]["probed_down"], 0);
    drop(server);
    let server = start("name");
    server.wait_for_stderr(&format!("upstream {}: probe failed: {SIGNED_ITSELF}", upstream.address));
    wait_until("the worker to learn it", || stats_at(&control)["sum"]["upstreams"]["probed_down"] == 1);
}

#[test]
fn flash_is_a_server_over_tls() {
    let folder = folder();
    folder.write("inner/app/film.bin", pattern(1_000_000, 9));
    let inner = format!(
        "listen = [\"127.0.0.1:0\"]\nlisten_tls = [\"127.0.0.1:0\"]\nworkers = 1\nroot = {:?}\ncertificate = [{:?}]\ncertificate_key = [{:?}]\n",
        folder.path("inner"),
        folder.path("address.pem"),
        folder.path("address.key"),
    );
    let inner = Launch::configured(&folder, &inner).start();
    let address = format!("https://{}", inner.announcements()[0][1]);
    let server = start(&folder, &proxy("/app/", &address, &roots(&folder, "address")));
    let mut client = Peer::client(&server);
    for _ in 0..3 {
        assert_eq!(client.get("/app/film.bin").body, pattern(1_000_000, 9));
        assert_eq!(client.get("/app/none").status(), 404);
    }
}

#[test]
fn a_body_is_passed_on_while_it_comes() {
    let folder = folder();
    let upstream = TlsServer::echo(&folder, "address");
    let more = format!("stream_bodies = true\nstream_answers = true\n{}", roots(&folder, "address"));
    let server = start(&folder, &proxy("/app/", &upstream.address, &more));
    let body = pattern(700_000, 2);
    let request = framed("POST /app/x HTTP/1.1\r\nHost: localhost\r\n", &body, None);
    let mut client = Peer::client(&server);
    for part in request.chunks(100_000) {
        client.send(part);
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(client.message().body, body);
}
