//! Servers of routes, as threads of the test, and both ends of their connections. [`Peer`] reads every framing of HTTP/1.1 that a
//! relayed message can have, which the strict [`Client`](super::Client) refuses.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::server::kill_group;
use super::wire::connect;
use super::{Folder, Launch, PATIENCE, Server, kill, wait_for, wait_until};

/// A config file with one worker, and these routes of the default site `www`.
pub(crate) fn config(folder: &Folder, routes: &str) -> String {
    format!("listen = [\"127.0.0.1:0\"]\nworkers = 1\nroot = {:?}\n{routes}", folder.path("www"))
}

/// A route of a prefix to the HTTP server at this address, with more lines.
pub(crate) fn proxy(prefix: &str, address: &str, more: &str) -> String {
    format!("[[route]]\nprefix = {prefix:?}\nproxy = {address:?}\n{more}\n")
}

/// A server with these routes.
#[track_caller]
pub(crate) fn start(folder: &Folder, routes: &str) -> Server {
    Launch::configured(folder, &config(folder, routes)).start()
}

/// A request or an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// The first line.
    pub(crate) line: String,
    fields: Vec<(String, String)>,
    /// Without its framing.
    pub(crate) body: Vec<u8>,
}

impl Message {
    /// A field's value, by its name in any case.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut found = self.fields.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.as_str())
    }

    /// The status of an answer.
    #[track_caller]
    pub(crate) fn status(&self) -> u16 {
        let status = self.line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
        status.and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("no answer: {}", self.line))
    }

    /// The target of a request.
    pub(crate) fn target(&self) -> &str {
        self.line.split(' ').nth(1).unwrap()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Status and body, for short answers.
    #[track_caller]
    pub(crate) fn brief(&self) -> (u16, String) {
        (self.status(), self.text())
    }

    pub(crate) fn is_chunked(&self) -> bool {
        self.field("Transfer-Encoding") == Some("chunked")
    }
}

/// Where a connection ended instead of a complete message.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Before its first byte.
    Before,
    InHead,
    /// After this part of its body.
    InBody(Message),
}

/// The bytes of a message: its body in chunks of this length, or announced by its length.
pub(crate) fn framed(head: &str, body: &[u8], chunk_bytes: Option<usize>) -> Vec<u8> {
    let mut bytes = head.as_bytes().to_vec();
    let Some(chunk_bytes) = chunk_bytes else {
        write!(bytes, "Content-Length: {}\r\n\r\n", body.len()).unwrap();
        bytes.extend_from_slice(body);
        return bytes;
    };
    bytes.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
    for chunk in body.chunks(chunk_bytes) {
        write!(bytes, "{:x}\r\n", chunk.len()).unwrap();
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

/// A 200 with this body.
pub(crate) fn ok(body: impl AsRef<[u8]>) -> Vec<u8> {
    framed("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n", body.as_ref(), None)
}

/// One end of a connection: the client's, or that of a server of a route.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Its calls are the same for a Unix socket.
    stream: TcpStream,
    /// Received bytes that were not used yet.
    input: Vec<u8>,
}

impl Peer {
    /// A client of a server.
    #[track_caller]
    pub(crate) fn client(server: &Server) -> Self {
        let address = server.addresses[0];
        let stream = connect(address, None);
        Self::of(stream.unwrap_or_else(|e| panic!("cannot connect to {address}: {e}")))
    }

    /// A client with this address of its own.
    #[track_caller]
    pub(crate) fn client_from(own: IpAddr, server: &Server) -> Self {
        let address = server.addresses[0];
        let stream = connect(address, Some(own));
        Self::of(stream.unwrap_or_else(|e| panic!("cannot connect from {own} to {address}: {e}")))
    }

    /// A client of the Unix socket at this path.
    #[track_caller]
    pub(crate) fn at(path: &Path) -> Self {
        let stream = UnixStream::connect(path);
        let stream = stream.unwrap_or_else(|e| panic!("cannot connect to {}: {e}", path.display()));
        Self::of(TcpStream::from(OwnedFd::from(stream)))
    }

    fn of(stream: TcpStream) -> Self {
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self { stream, input: Vec::new() }
    }

    #[track_caller]
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).unwrap_or_else(|e| panic!("cannot send: {e}"));
    }

    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// A second handle of the same socket, to send from another thread.
    pub(crate) fn sender(&self) -> TcpStream {
        self.stream.try_clone().unwrap()
    }

    /// Sends a GET and does not wait for the answer.
    #[track_caller]
    pub(crate) fn ask(&mut self, target: &str) {
        self.send(super::Client::request_bytes("GET", target, &[]));
    }

    /// A GET and its answer.
    #[track_caller]
    pub(crate) fn get(&mut self, target: &str) -> Message {
        self.get_with(target, &[])
    }

    /// A GET with these fields, and its answer.
    #[track_caller]
    pub(crate) fn get_with(&mut self, target: &str, fields: &[&str]) -> Message {
        self.send(super::Client::request_bytes("GET", target, fields));
        self.message()
    }

    /// A POST whose body has its length, and its answer.
    #[track_caller]
    pub(crate) fn post(&mut self, target: &str, body: &[u8]) -> Message {
        self.send(framed(&post_head(target), body, None));
        self.message()
    }

    /// The next message, which must be complete.
    #[track_caller]
    pub(crate) fn message(&mut self) -> Message {
        // Not a closure, which would hide the caller's line.
        match self.receive() {
            Ok(message) => message,
            Err(ended) => panic!("no message: {ended:?}"),
        }
    }

    /// The next message, if it is complete.
    pub(crate) fn receive(&mut self) -> Result<Message, Ended> {
        let mut message = self.head()?;
        let is_answer = message.line.starts_with("HTTP/");
        let whole = if is_answer && matches!(message.status(), 100..=199 | 204 | 304) {
            true
        } else if message.is_chunked() {
            self.chunks(&mut message.body)
        } else if let Some(length) = message.field("Content-Length") {
            let length = length.parse().unwrap();
            self.take(length, &mut message.body)
        } else {
            assert!(!is_answer, "Flash and its upstreams frame each body: {message:?}");
            true
        };
        if whole { Ok(message) } else { Err(Ended::InBody(message)) }
    }

    /// The head of the next message.
    pub(crate) fn head(&mut self) -> Result<Message, Ended> {
        let mut lines = Vec::new();
        loop {
            match self.line() {
                Some(line) if line.is_empty() => break,
                Some(line) => lines.push(line),
                None if lines.is_empty() && self.input.is_empty() => return Err(Ended::Before),
                None => return Err(Ended::InHead),
            }
        }
        let fields = lines[1..].iter().map(|line| {
            let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("no field: {line:?}"));
            (name.to_owned(), value.trim().to_owned())
        });
        Ok(Message { fields: fields.collect(), line: lines.swap_remove(0), body: Vec::new() })
    }

    /// The next bytes, exactly this many.
    #[track_caller]
    pub(crate) fn exactly(&mut self, bytes: usize) -> Vec<u8> {
        let mut taken = Vec::new();
        assert!(self.take(bytes, &mut taken), "the connection ended after {} of {bytes} bytes", taken.len());
        taken
    }

    /// A line without its end; None if the connection ends first.
    fn line(&mut self) -> Option<String> {
        let mut searched = 0;
        loop {
            if let Some(end) = self.input[searched..].windows(2).position(|two| two == b"\r\n") {
                let line = self.input.drain(..searched + end + 2).collect::<Vec<_>>();
                return Some(String::from_utf8(line[..line.len() - 2].to_vec()).unwrap());
            }
            searched = self.input.len().saturating_sub(1);
            if !self.fill() {
                return None;
            }
        }
    }

    /// Takes this many bytes. False if the connection ends first.
    fn take(&mut self, bytes: usize, into: &mut Vec<u8>) -> bool {
        let end = into.len() + bytes;
        loop {
            let taken = self.input.len().min(end - into.len());
            into.extend(self.input.drain(..taken));
            if into.len() == end {
                return true;
            }
            if !self.fill() {
                return false;
            }
        }
    }

    /// Takes a body in chunks. False if the connection ends first.
    fn chunks(&mut self, into: &mut Vec<u8>) -> bool {
        loop {
            let Some(line) = self.line() else { return false };
            let bytes = usize::from_str_radix(&line, 16).unwrap_or_else(|e| panic!("{e}: {line:?}"));
            // Nothing sends trailers, so the last chunk ends as the others do.
            if !self.take(bytes, into) {
                return false;
            }
            match self.line() {
                Some(end) => assert_eq!(end, "", "a chunk ends with its length"),
                None => return false,
            }
            if bytes == 0 {
                return true;
            }
        }
    }

    /// Receives more bytes. False if the connection has ended.
    fn fill(&mut self) -> bool {
        let mut buffer = [0; 64 * 1024];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(bytes) => {
                    self.input.extend_from_slice(&buffer[..bytes]);
                    return true;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => panic!("nothing came in {PATIENCE:?}"),
                Err(_) => return false,
            }
        }
    }

    /// The next bytes, as they come; none if the other side has ended the connection.
    pub(crate) fn some(&mut self) -> Vec<u8> {
        if self.input.is_empty() {
            self.fill();
        }
        std::mem::take(&mut self.input)
    }

    /// The bytes until the other side ends the connection, in any way.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        while self.fill() {}
        std::mem::take(&mut self.input)
    }

    /// Waits until the other side has ended the connection, in any way. Bytes before that are dropped.
    pub(crate) fn wait_for_end(&mut self) {
        while self.fill() {
            self.input.clear();
        }
    }

    /// Checks that the other side has ended the connection, and has sent nothing more.
    #[track_caller]
    pub(crate) fn assert_ended(&mut self) {
        if !self.input.is_empty() || self.fill() {
            panic!("bytes after the end: {}", self.input.escape_ascii());
        }
    }

    /// Closes the sending side; still receives.
    pub(crate) fn end_sending(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Resets the connection.
    pub(crate) fn reset(self) {
        flash_prompt::net::reset(&self.stream).unwrap();
    }

    /// Answers requests until the other side ends the connection.
    pub(crate) fn answer_each(&mut self, answer: impl Fn(&Message) -> Vec<u8>) {
        while let Ok(request) = self.receive() {
            if self.try_send(answer(&request)).is_err() {
                return;
            }
        }
    }
}

/// The head of a POST, without the framing of its body.
pub(crate) fn post_head(target: &str) -> String {
    format!("POST {target} HTTP/1.1\r\nHost: e2e.test\r\n")
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A server of a route that the test itself plays.
#[derive(Debug)]
pub(crate) struct Upstream {
    listener: Listener,
    /// As the config file has it.
    pub(crate) address: String,
}

impl Upstream {
    /// On any port of 127.0.0.1.
    pub(crate) fn tcp() -> Self {
        Self::of_tcp(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    /// With a listener of its own.
    pub(crate) fn of_tcp(listener: TcpListener) -> Self {
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        Self { listener: Listener::Tcp(listener), address }
    }

    /// At a Unix socket to which every user can connect.
    pub(crate) fn unix(path: &Path) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        listener.set_nonblocking(true).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).unwrap();
        Self { listener: Listener::Unix(listener), address: format!("unix:{}", path.display()) }
    }

    /// A connection that is waiting.
    pub(crate) fn pending(&self) -> Option<Peer> {
        let stream = match &self.listener {
            Listener::Tcp(listener) => listener.accept().map(|(stream, _)| stream),
            Listener::Unix(listener) => {
                listener.accept().map(|(stream, _)| TcpStream::from(OwnedFd::from(stream)))
            }
        };
        match stream {
            Ok(stream) => Some(Peer::of(stream)),
            Err(e) if e.kind() == ErrorKind::WouldBlock => None,
            Err(e) => panic!("{}: {e}", self.address),
        }
    }

    /// The next connection.
    #[track_caller]
    pub(crate) fn accept(&self) -> Peer {
        wait_for("a connection to the upstream", || self.pending())
    }

    /// Serves each connection in a thread, until the result is dropped.
    pub(crate) fn run(self, serve: impl Fn(Peer) + Send + Sync + 'static) -> Running {
        let (connections, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let running = Running {
            address: self.address.clone(),
            connections: connections.clone(),
            is_over: is_over.clone(),
        };
        let serve = Arc::new(serve);
        thread::spawn(move || {
            while !is_over.load(Ordering::Acquire) {
                let Some(peer) = self.pending() else {
                    thread::sleep(Duration::from_millis(2));
                    continue;
                };
                connections.fetch_add(1, Ordering::AcqRel);
                let serve = serve.clone();
                thread::spawn(move || serve(peer));
            }
        });
        running
    }

    /// Answers each request on each connection.
    pub(crate) fn answer(self, answer: impl Fn(&Message) -> Vec<u8> + Send + Sync + 'static) -> Running {
        self.run(move |mut peer| peer.answer_each(&answer))
    }
}

/// An upstream that runs. Dropping it ends its listener; connections end with their other side.
#[derive(Debug)]
pub(crate) struct Running {
    /// As the config file has it.
    pub(crate) address: String,
    connections: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
}

impl Running {
    /// How many connections it has accepted.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Acquire)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
    }
}

/// A real application that a test started, with its descendants. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Program(Child);

impl Program {
    /// Starts it, and waits until it listens at this socket. It writes to this log.
    #[track_caller]
    pub(crate) fn start(mut command: Command, socket: &Path, log: &Path) -> Self {
        let output = File::create(log).unwrap();
        command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output).process_group(0);
        let mut program = Self(command.spawn().unwrap());
        wait_until("the application to listen", || {
            let ended = program.0.try_wait().unwrap();
            assert!(ended.is_none(), "{command:?}: {ended:?} {}", std::fs::read_to_string(log).unwrap());
            UnixStream::connect(socket).is_ok()
        });
        program
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        kill("TERM", self.0.id());
        let asked = Instant::now();
        while self.0.try_wait().is_ok_and(|ended| ended.is_none()) && asked.elapsed() < Duration::from_secs(5)
        {
            std::thread::sleep(Duration::from_millis(10));
        }
        kill_group("KILL", self.0.id());
        let _ = self.0.wait();
    }
}
