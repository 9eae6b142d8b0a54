//! The floor: a responder that only receives and sends a ready buffer.
//!
//! `flash floor` runs it and `bench/` compares every server with it: no server that uses the
//! same loop and the same sockets can answer for less CPU. To be a floor it must not parse,
//! allocate or copy for a request; to be honest it uses the listener and the edge-triggered loop
//! of Flash, and its head carries the fields that a file server sends.
//!
//! With TLS it has a record layer, that of Flash, and no other difference.
//!
//! It takes whatever one `recv` gives for one request, so it is no server: clients that
//! pipeline, or send a request in pieces, get wrong numbers of replies.

mod secure;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use flash_prompt::OwnedFd;
use flash_prompt::epoll::{Epoll, Ready, Watch};
use flash_prompt::net;
use flash_waiting::process;
use rustls::ServerConfig;

use crate::tls::{Certificate, KeyKind, server};
use flash_kit::{Error, Result};
use secure::Session;

/// Connections that the kernel queues until they are accepted.
const BACKLOG: i32 = 4096;
/// Descriptors taken from one epoll call.
const EVENTS_MAX: usize = 512;
/// Connections accepted in one turn of the loop.
const ACCEPTS_PER_TURN: usize = 64;
/// Room for a request; what is longer counts as several.
const REQUEST_BYTES: usize = 16 * 1024;
/// The listener's token; connections have the index of their slot.
const LISTENER: u64 = u64::MAX;

/// The arguments of `flash floor`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen; port 0 takes a free one, which is printed.
    pub listen: SocketAddr,
    pub body_bytes: usize,
    /// Speak TLS, by a key of this kind.
    pub tls: Option<KeyKind>,
}

/// Serves until the process is ended.
///
/// Errors: an address that can't be bound, and the system's limits of descriptors or memory.
pub fn run(options: &Options) -> Result<()> {
    let mut floor = Floor::bind(options)?;
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    println!("floor: {scheme}://{} answers every request with {} bytes", floor.address, options.body_bytes);
    // A script waits for that line; a closed pipe is its own affair.
    let _ = io::stdout().flush();
    loop {
        floor.turn(None)?;
    }
}

/// One listener, its connections, and the reply that all of them get.
struct Floor {
    address: SocketAddr,
    listener: OwnedFd,
    epoll: Epoll,
    ready: Vec<Ready>,
    slots: Vec<Option<Connection>>,
    free: Vec<usize>,
    request: Vec<u8>,
    reply: Vec<u8>,
    tls: Option<Arc<ServerConfig>>,
}

struct Connection {
    fd: OwnedFd,
    /// None in clear.
    session: Option<Session>,
    /// Bytes of the reply that are sent already; 0 between replies.
    sent_bytes: usize,
}

impl Floor {
    fn bind(options: &Options) -> Result<Self> {
        let _ = process::raise_descriptor_limit();
        let failed = |why: io::Error| {
            Error::run(format!("cannot listen on {}: {why}; choose another --listen", options.listen))
        };
        let certificate =
            options.tls.map(|kind| Certificate::make(vec!["localhost".to_owned()], kind)).transpose()?;
        let tls = certificate.map(|certificate| server::config(&certificate, &[b"http/1.1"])).transpose()?;
        let listener = net::listen(options.listen, BACKLOG).map_err(failed)?;
        let address = net::local_address(&listener).map_err(failed)?;
        let epoll = Epoll::new(EVENTS_MAX).map_err(failed)?;
        epoll.add(&listener, LISTENER, Watch::Input).map_err(failed)?;
        Ok(Self {
            address,
            listener,
            epoll,
            ready: Vec::with_capacity(EVENTS_MAX),
            slots: Vec::new(),
            free: Vec::new(),
            request: vec![0; REQUEST_BYTES],
            reply: reply(options.body_bytes),
            tls,
        })
    }

    /// Waits for events and serves each.
    fn turn(&mut self, timeout_ms: Option<u64>) -> Result<()> {
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        ready.extend(
            self.epoll.wait(timeout_ms).map_err(|why| Error::run(format!("epoll_wait failed: {why}")))?,
        );
        for event in &ready {
            if event.token == LISTENER {
                self.accept()?;
            } else {
                self.serve(event.token as usize);
            }
        }
        self.ready = ready;
        Ok(())
    }

    fn accept(&mut self) -> Result<()> {
        for _ in 0..ACCEPTS_PER_TURN {
            let fd = match net::accept(&self.listener) {
                Ok((fd, _)) => fd,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(e) => {
                    return Err(Error::run(format!("cannot accept a connection: {e}; raise `ulimit -n`")));
                }
            };
            let slot = self.free.pop().unwrap_or_else(|| {
                self.slots.push(None);
                self.slots.len() - 1
            });
            let added = self.epoll.add(&fd, slot as u64, Watch::Connection);
            added.map_err(|why| Error::run(format!("cannot watch a connection: {why}")))?;
            let session = self.tls.as_ref().map(Session::new).transpose()?;
            self.slots[slot] = Some(Connection { fd, session, sent_bytes: 0 });
        }
        Ok(())
    }

    /// One connection's turn. A slot is only emptied by its own event, and epoll reports a
    /// descriptor once a batch, so no event of an earlier owner can follow.
    fn serve(&mut self, slot: usize) {
        let Some(connection) = &mut self.slots[slot] else {
            return;
        };
        if !connection.answer(&mut self.request, &self.reply) {
            self.slots[slot] = None;
            self.free.push(slot);
        }
    }
}

impl Connection {
    /// Receives and answers; gives false when the connection is over.
    fn answer(&mut self, request: &mut [u8], reply: &[u8]) -> bool {
        if let Some(session) = &mut self.session {
            return session.answer(&self.fd, request, reply);
        }
        // A rest of an earlier reply goes first, and then the edge of its next request may be
        // behind us already: look for it.
        if self.sent_bytes > 0 && !self.send(reply) {
            return false;
        }
        while self.sent_bytes == 0 {
            match net::recv(&self.fd, request) {
                Ok(0) => return false,
                Ok(n) => {
                    if !self.send(reply) {
                        return false;
                    }
                    // A short receive emptied the socket: the next request makes a new edge.
                    if n < request.len() {
                        return true;
                    }
                }
                Err(e) => return e.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }

    /// Sends what is left of the reply, as far as the socket takes it.
    fn send(&mut self, reply: &[u8]) -> bool {
        while self.sent_bytes < reply.len() {
            match net::send(&self.fd, &reply[self.sent_bytes..]) {
                Ok(n) => self.sent_bytes += n,
                Err(e) => return e.kind() == io::ErrorKind::WouldBlock,
            }
        }
        self.sent_bytes = 0;
        true
    }
}

fn reply(body_bytes: usize) -> Vec<u8> {
    let now = httpdate::fmt_http_date(SystemTime::now());
    let mut reply = format!(
        "HTTP/1.1 200 OK\r\nServer: floor\r\nDate: {now}\r\nContent-Type: application/octet-stream\r\n\
         Content-Length: {body_bytes}\r\nLast-Modified: {now}\r\nETag: \"0123456789abcdef\"\r\n\
         Accept-Ranges: bytes\r\nX-Content-Type-Options: nosniff\r\n\r\n"
    )
    .into_bytes();
    reply.resize(reply.len() + body_bytes, b'x');
    reply
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpStream;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::tls::{Client, ClientOptions};

    /// Runs a floor beside `client`, which gets its address.
    fn with_floor(body_bytes: usize, tls: Option<KeyKind>, client: impl FnOnce(SocketAddr)) {
        let (over, (tell, told)) = (AtomicBool::new(false), std::sync::mpsc::channel());
        std::thread::scope(|scope| {
            let over = &over;
            scope.spawn(move || {
                let options = Options { listen: "127.0.0.1:0".parse().unwrap(), body_bytes, tls };
                let mut floor = Floor::bind(&options).unwrap();
                tell.send(floor.address).unwrap();
                while !over.load(Ordering::Relaxed) {
                    floor.turn(Some(5)).unwrap();
                }
            });
            client(told.recv().unwrap());
            over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn answers_many_requests_on_many_connections() {
        with_floor(1000, None, |address| {
            let mut streams: Vec<_> = (0..50).map(|_| TcpStream::connect(address).unwrap()).collect();
            let mut got = vec![0; reply(1000).len()];
            for _ in 0..3 {
                for stream in &mut streams {
                    stream.write_all(b"GET /1k HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
                    stream.read_exact(&mut got).unwrap();
                    assert!(got.starts_with(b"HTTP/1.1 200 OK\r\n") && got.ends_with(&[b'x'; 1000]));
                }
            }
        });
    }

    #[test]
    fn finishes_a_reply_that_the_socket_takes_in_pieces() {
        let body_bytes = 32 * 1024 * 1024;
        with_floor(body_bytes, None, |address| {
            let mut stream = TcpStream::connect(address).unwrap();
            let mut got = vec![0; reply(body_bytes).len()];
            for _ in 0..2 {
                stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
                std::thread::sleep(std::time::Duration::from_millis(30));
                stream.read_exact(&mut got).unwrap();
                assert_eq!(got[got.len() - 1], b'x');
            }
        });
    }

    #[test]
    fn answers_over_tls_as_in_clear() {
        for (kind, body_bytes) in [(KeyKind::Ecdsa, 1000), (KeyKind::Rsa, 4 * 1024 * 1024)] {
            with_floor(body_bytes, Some(kind), |address| {
                let client = Client::new(&ClientOptions::default(), b"http/1.1").unwrap();
                let mut got = vec![0; reply(body_bytes).len()];
                for _ in 0..3 {
                    let socket = TcpStream::connect(address).unwrap();
                    let mut stream = client.wrap("localhost", socket).unwrap();
                    for _ in 0..2 {
                        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
                        stream.read_exact(&mut got).unwrap();
                        assert!(got.starts_with(b"HTTP/1.1 200 OK\r\n") && got.ends_with(&[b'x'; 1000]));
                    }
                }
            });
        }
    }
}
