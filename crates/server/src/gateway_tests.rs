//! Tests of the gateway with real sockets: this test is the supervisor, a worker and the servers.

use std::io::{IoSlice, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};

use super::*;
use crate::config::{Overrides, Probe, Route, RoutePaths, Sources};
use flash_engine::{UpstreamId, UpstreamProtocol};
use flash_worker::codec::{decode, encode};
use flash_worker::control::{CHANNEL_BYTES, Notice, receive_notice, send_order};

/// Far beyond any wait that a test needs.
const PATIENCE_MS: u64 = 60_000;

/// A new folder, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("flash-gateway-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A gateway in a thread, and the supervisor's end of its control channel.
struct Running {
    control: OwnedFd,
    thread: JoinHandle<io::Result<()>>,
}

impl Running {
    /// Starts a gateway with a route to each of these servers.
    fn start(servers: &[&ServerAddress], connect_timeout_ms: u64) -> Self {
        Self::probing(servers, connect_timeout_ms, None)
    }

    /// Like [`Running::start`], with probes.
    fn probing(servers: &[&ServerAddress], connect_timeout_ms: u64, probe: Option<&Probe>) -> Self {
        let route = |server: &&ServerAddress| Route {
            protocol: UpstreamProtocol::Http,
            servers: vec![(*server).clone()],
            tls: None,
            body_bytes_max: 0,
            stream_bodies: false,
            files_first: false,
            compress: false,
            stream_answers: false,
            connect_timeout_ms,
            answer_timeout_ms: 1,
            connections_max: 1,
            idle_max: 0,
            queue_max: 0,
            paths: RoutePaths::Prefix("/".to_owned()),
            weights: Vec::new(),
            probe: probe.cloned(),
            program: None,
        };
        let sources = Sources { cli: Overrides::default(), env: Vec::new(), cwd: std::env::temp_dir() };
        let mut settings = sources.load().expect("the defaults");
        settings.sites[0].routes = servers.iter().map(route).collect();
        let (control, theirs) = channel::pair(CHANNEL_BYTES).expect("a pair");
        let gateway = Gateway::new(theirs, &settings, &Connector::default()).expect("a gateway");
        Self { control, thread: thread::spawn(|| gateway.run()) }
    }

    /// Links a worker.
    fn worker(&self, buffer_bytes: usize) -> OwnedFd {
        let (ours, theirs) = channel::pair(buffer_bytes).expect("a pair");
        send_order(&self.control, &Order::Gateway(theirs)).expect("sent");
        ours
    }

    /// Tells it to drain and waits for its end.
    fn drain(self) {
        send_order(&self.control, &Order::<OwnedFd>::Drain).expect("sent");
        self.thread.join().expect("no panic").expect("no error");
    }
}

fn ask(worker: &OwnedFd, link: u64, upstream: u16) {
    let server = ServerId { upstream: UpstreamId(upstream), server: 0 };
    send(worker, &Connect { link, server }, &[]).expect("sent");
}

/// Waits for a message; None at the end of the channel.
#[track_caller]
fn receive(worker: &OwnedFd) -> Option<(GatewayReply, Vec<OwnedFd>)> {
    let mut epoll = Epoll::new(1).expect("an epoll");
    epoll.add(worker, 0, Watch::Input).expect("watched");
    assert_eq!(epoll.wait(Some(PATIENCE_MS)).expect("a wait").count(), 1, "no answer");
    let (mut bytes, mut sockets) = ([0; GATEWAY_MESSAGE_BYTES_MAX], Vec::new());
    match channel::recv(worker, &mut bytes, &mut sockets) {
        Ok(length) if length > 0 => Some((decode(&bytes[..length]).expect("an answer"), sockets)),
        Ok(_) => None,
        Err(e) if e.kind() == io::ErrorKind::ConnectionReset => None,
        Err(e) => panic!("{e}"),
    }
}

/// Waits for the connection with this number.
#[track_caller]
fn connected(worker: &OwnedFd, link: u64) -> OwnedFd {
    let (answer, mut sockets) = receive(worker).expect("an answer");
    assert_eq!((answer, sockets.len()), (GatewayReply::Connected { link }, 1));
    sockets.pop().expect("a socket")
}

/// Waits for the refusal of the connection with this number, and returns its kind.
#[track_caller]
fn refused(worker: &OwnedFd, link: u64) -> io::ErrorKind {
    match receive(worker) {
        Some((GatewayReply::NotConnected { link: number, errno }, sockets)) => {
            assert_eq!((number, sockets.len()), (link, 0));
            io::Error::from_raw_os_error(errno).kind()
        }
        other => panic!("{other:?}"),
    }
}

/// Accepts a connection and compares what arrives with what `socket` sends.
fn carries_bytes(socket: &OwnedFd, mut accepted: impl io::Read) {
    assert_eq!(net::send(socket, b"hello").expect("sent"), 5);
    net::end_sending(socket).expect("ended");
    let mut received = String::new();
    accepted.read_to_string(&mut received).expect("received");
    assert_eq!(received, "hello");
}

fn unix(path: &Path) -> ServerAddress {
    ServerAddress::Unix(path.into())
}

#[test]
fn a_worker_gets_connections_to_its_servers() {
    let folder = Folder::new();
    let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
    let local = UnixListener::bind(folder.socket()).expect("bound");
    let servers = [&ServerAddress::Tcp(tcp.local_addr().expect("an address")), &unix(&folder.socket())];
    let gateway = Running::start(&servers, PATIENCE_MS);
    let workers = [gateway.worker(CHANNEL_BYTES), gateway.worker(CHANNEL_BYTES)];
    for (number, worker) in (0..).zip(&workers) {
        ask(worker, number, 0);
        carries_bytes(&connected(worker, number), tcp.accept().expect("accepted").0);
        ask(worker, u64::MAX, 1);
        carries_bytes(&connected(worker, u64::MAX), local.accept().expect("accepted").0);
    }
    drop(workers);
    gateway.drain();
}

#[test]
fn a_server_that_is_not_there_is_reported() {
    let folder = Folder::new();
    let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
    let address = ServerAddress::Tcp(tcp.local_addr().expect("an address"));
    drop(tcp);
    drop(UnixListener::bind(folder.socket()).expect("bound"));
    let servers = [&address, &unix(&folder.socket()), &unix(&folder.0.join("gone"))];
    let gateway = Running::start(&servers, PATIENCE_MS);
    let worker = gateway.worker(CHANNEL_BYTES);
    for (upstream, kind) in [
        (0, io::ErrorKind::ConnectionRefused),
        (1, io::ErrorKind::ConnectionRefused),
        (2, io::ErrorKind::NotFound),
    ] {
        ask(&worker, 7, upstream);
        assert_eq!(refused(&worker, 7), kind, "{:?}", servers[usize::from(upstream)]);
    }
    drop(worker);
    gateway.drain();
}

/// Fills the backlog of the listener at `path`. Returns the connections.
fn fill(path: &Path) -> Vec<OwnedFd> {
    let mut connections = Vec::new();
    loop {
        match local::connect_prompt(path) {
            Ok(connection) => connections.push(connection),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return connections,
            Err(e) => panic!("{e}"),
        }
    }
}

#[test]
fn an_attempt_ends_at_its_deadline() {
    let folder = Folder::new();
    let _local = UnixListener::bind(folder.socket()).expect("bound");
    let _full = fill(&folder.socket());
    // Beyond the backlog, the kernel does not answer.
    let tcp = net::listen(SocketAddr::from(([127, 0, 0, 1], 0)), 1).expect("listens");
    let address = net::local_address(&tcp).expect("an address");
    let _others: Vec<_> = (0..8).map(|_| net::connect(address).expect("begun")).collect();
    let gateway = Running::start(&[&unix(&folder.socket()), &ServerAddress::Tcp(address)], 100);
    let worker = gateway.worker(CHANNEL_BYTES);
    for upstream in 0..2 {
        ask(&worker, 1, upstream);
        assert_eq!(refused(&worker, 1), io::ErrorKind::TimedOut, "of server {upstream}");
    }
    drop(worker);
    gateway.drain();
}

#[test]
fn a_full_backlog_is_waited_for() {
    let folder = Folder::new();
    let local = UnixListener::bind(folder.socket()).expect("bound");
    let full = fill(&folder.socket());
    let gateway = Running::start(&[&unix(&folder.socket())], PATIENCE_MS);
    let worker = gateway.worker(CHANNEL_BYTES);
    ask(&worker, 1, 0);
    for _ in &full {
        local.accept().expect("accepted");
    }
    connected(&worker, 1);
    drop(worker);
    gateway.drain();
}

#[test]
fn a_wrong_message_ends_the_link_alone() {
    let folder = Folder::new();
    let _local = UnixListener::bind(folder.socket()).expect("bound");
    let gateway = Running::start(&[&unix(&folder.socket())], PATIENCE_MS);
    let good = gateway.worker(CHANNEL_BYTES);
    let server = |upstream, server| ServerId { upstream: UpstreamId(upstream), server };
    let message = |server| encode(&Connect { link: 1, server });
    let cut = message(server(0, 0))[..2].to_vec();
    for wrong in [cut, vec![0; 100], message(server(1, 0)), message(server(0, 1))] {
        let worker = gateway.worker(CHANNEL_BYTES);
        channel::send(&worker, &[IoSlice::new(&wrong)], &[]).expect("sent");
        assert!(receive(&worker).is_none(), "{wrong:?}");
    }
    ask(&good, 1, 0);
    connected(&good, 1);
    drop(good);
    gateway.drain();
}

#[test]
fn a_worker_that_does_not_read_holds_up_nobody() {
    let folder = Folder::new();
    let local = UnixListener::bind(folder.socket()).expect("bound");
    thread::spawn(move || while local.accept().is_ok() {});
    let gateway = Running::start(&[&unix(&folder.socket())], PATIENCE_MS);
    let (lazy, good) = (gateway.worker(4096), gateway.worker(CHANNEL_BYTES));
    channel::set_nonblocking(&lazy).expect("set");
    let message = |link| encode(&Connect { link, server: ServerId { upstream: UpstreamId(0), server: 0 } });
    // Until neither direction has room: then the gateway does not read either.
    let (mut asked, mut refused) = (0, 0);
    while refused < 100 {
        if channel::send(&lazy, &[IoSlice::new(&message(asked))], &[]).is_ok() {
            (asked, refused) = (asked + 1, 0);
        } else {
            refused += 1;
            ask(&good, refused, 0);
            connected(&good, refused);
        }
    }
    for link in 0..asked {
        connected(&lazy, link);
    }
    drop((lazy, good));
    gateway.drain();
}

/// Probes that are frequent, because the tests wait for them.
fn often(target: &str) -> Probe {
    Probe { target: target.to_owned(), interval_ms: 5 }
}

/// Serves a probe on `listener` with these bytes, and returns the request.
#[track_caller]
fn serve_probe(listener: &TcpListener, answer: &str) -> String {
    let (mut stream, _) = listener.accept().expect("accepted");
    let (mut request, mut byte) = (Vec::new(), [0]);
    while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).expect("received") > 0 {
        request.push(byte[0]);
    }
    // In two pieces.
    let (first, second) = answer.split_at(answer.len().min(3));
    for piece in [first, second] {
        // The gateway could have left already.
        let _ = stream.write_all(piece.as_bytes());
    }
    String::from_utf8(request).expect("text")
}

/// Waits for the next report to the supervisor.
#[track_caller]
fn report(gateway: &Running) -> String {
    match receive_notice(&gateway.control) {
        Ok(Notice::Report(text)) => text,
        other => panic!("{other:?}"),
    }
}

/// Waits for the next result of probes of the first server of this route.
#[track_caller]
fn probed(worker: &OwnedFd, upstream: u16) -> bool {
    match receive(worker) {
        Some((GatewayReply::Probed { server, is_up }, _)) => {
            assert_eq!(server, ServerId { upstream: UpstreamId(upstream), server: 0 });
            is_up
        }
        other => panic!("{other:?}"),
    }
}

const GOOD: &str = "HTTP/1.1 204 No Content\r\n\r\n";

#[test]
fn a_server_is_down_after_two_failures_and_up_after_one_success() {
    let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
    let address = tcp.local_addr().expect("an address");
    let gateway = Running::probing(&[&ServerAddress::Tcp(address)], PATIENCE_MS, Some(&often("/health?a")));
    let worker = gateway.worker(CHANNEL_BYTES);
    let request = serve_probe(&tcp, GOOD);
    assert!(
        request.starts_with(&format!("GET /health?a HTTP/1.1\r\nHost: {address}\r\n"))
            && request.contains("\r\nConnection: close\r\n"),
        "{request}"
    );
    assert!(probed(&worker, 0));
    for (bad, why) in [
        ("HTTP/1.1 503 \r\n\r\n", "status 503"),
        ("HTTP/1.1 199 \r\n\r\n", "status 199"),
        ("HTTP/1.0 404 Not Found\r\n\r\n", "status 404"),
        ("HTTP/2 200 OK\r\n\r\n", "the answer is not HTTP/1.1"),
        ("HTTP/1.1 +20 OK\r\n\r\n", "the answer is not HTTP/1.1"),
        ("HTTP/1.1 2000 OK\r\n\r\n", "the answer is not HTTP/1.1"),
        ("SSH-2.0-OpenSSH_9.2", "the answer is not HTTP/1.1"),
        ("HTTP/1.1 20", "the connection ended before the answer"),
        ("", "the connection ended before the answer"),
    ] {
        // One failure between successes changes nothing.
        serve_probe(&tcp, bad);
        serve_probe(&tcp, "HTTP/1.0 302\n");
        serve_probe(&tcp, bad);
        serve_probe(&tcp, bad);
        assert!(!probed(&worker, 0), "{bad:?}");
        let expected =
            format!("upstream {address}: probe failed: {why}; it gets no requests until a probe succeeds");
        assert_eq!(report(&gateway), expected, "{bad:?}");
        // A new worker learns it.
        assert!(!probed(&gateway.worker(CHANNEL_BYTES), 0));
        serve_probe(&tcp, bad);
        serve_probe(&tcp, GOOD);
        assert!(probed(&worker, 0));
        assert_eq!(report(&gateway), format!("upstream {address}: answers probes again"));
        assert!(probed(&gateway.worker(CHANNEL_BYTES), 0));
    }
    // After the server is gone too.
    drop(tcp);
    assert!(!probed(&worker, 0));
    let text = report(&gateway);
    assert!(text.contains("refused") || text.contains("reset"), "{text}");
    drop(worker);
    gateway.drain();
}

#[test]
fn a_probe_ends_at_its_deadline_and_holds_up_nobody() {
    let folder = Folder::new();
    let _local = UnixListener::bind(folder.socket()).expect("bound");
    let _full = fill(&folder.socket());
    // The kernel accepts connections, and no process answers on them.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
    let good = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
    let address = |tcp: &TcpListener| ServerAddress::Tcp(tcp.local_addr().expect("an address"));
    let servers = [&unix(&folder.socket()), &address(&silent), &address(&good)];
    let gateway = Running::probing(&servers, 50, Some(&often("/")));
    let worker = gateway.worker(CHANNEL_BYTES);
    // The third one answers no probes either, but its backlog never fills.
    thread::spawn(move || good.incoming().collect::<Vec<_>>());
    let mut down = [false; 3];
    while down[..2] != [true; 2] {
        match receive(&worker) {
            Some((GatewayReply::Probed { server, is_up: false }, _)) => {
                down[usize::from(server.upstream.0)] = true;
            }
            other => panic!("{other:?}"),
        }
        let text = report(&gateway);
        assert!(text.contains("probe failed: no answer in 50 ms; it gets"), "{text}");
        // Connections are made meanwhile.
        let lonely = gateway.worker(CHANNEL_BYTES);
        ask(&lonely, 5, 2);
        loop {
            match receive(&lonely) {
                Some((GatewayReply::Connected { link: 5 }, _)) => break,
                Some((GatewayReply::Probed { .. }, _)) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    drop(worker);
    gateway.drain();
}

#[test]
fn a_worker_that_does_not_read_gets_the_last_result() {
    let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
    let address = ServerAddress::Tcp(tcp.local_addr().expect("an address"));
    let gateway = Running::probing(&[&address], PATIENCE_MS, Some(&often("/")));
    let (lazy, good) = (gateway.worker(4096), gateway.worker(CHANNEL_BYTES));
    serve_probe(&tcp, GOOD);
    assert!(probed(&good, 0));
    for _ in 0..50 {
        serve_probe(&tcp, "");
        serve_probe(&tcp, "");
        assert!(!probed(&good, 0));
        report(&gateway);
        serve_probe(&tcp, GOOD);
        assert!(probed(&good, 0));
        report(&gateway);
    }
    serve_probe(&tcp, "");
    serve_probe(&tcp, "");
    assert!(!probed(&good, 0));
    let mut count = 0;
    let mut is_up = true;
    channel::set_nonblocking(&lazy).expect("set");
    while is_up || count == 0 {
        // The last result is that it is down, and comes once there is room.
        is_up = probed(&lazy, 0);
        count += 1;
        let mut bytes = [0; GATEWAY_MESSAGE_BYTES_MAX];
        while let Ok(length) = channel::recv(&lazy, &mut bytes, &mut Vec::new()) {
            match decode(&bytes[..length]) {
                Some(GatewayReply::Probed { is_up: now, .. }) => is_up = now,
                other => panic!("{other:?}"),
            }
            count += 1;
        }
    }
    assert!(count <= 102, "{count}");
    drop((lazy, good));
    gateway.drain();
}

#[test]
fn it_ends_with_its_supervisor() {
    let folder = Folder::new();
    let gateway = Running::start(&[&unix(&folder.socket())], PATIENCE_MS);
    let _worker = gateway.worker(CHANNEL_BYTES);
    drop(gateway.control);
    let end = gateway.thread.join().expect("no panic").expect_err("the supervisor is gone");
    assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
}
