//! The bytes of a connection on their way: over a socket as they are, or through TLS.
//!
//! A connection owns one, sends requests and receives responses over it, and does not know which. It takes all that is to be
//! sent, and keeps what the socket does not take yet.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

use flash_prompt::OwnedFd;
use flash_prompt::clock;
use flash_prompt::epoll::Ready;
use flash_prompt::net;
use rustls::{ClientConnection, HandshakeKind};

use super::Setup;
use crate::record::Handshake;
use crate::tls::{Client, Socket};

/// Bytes of a body that are encrypted at once, of those that a session takes without being asked twice.
const TLS_PIECE_BYTES: usize = 16 * 1024;

/// How a connection is begun. The error of an attempt that TLS ends has [`ErrorKind::InvalidData`].
#[derive(Clone, Debug)]
pub(crate) enum Opening {
    Plain,
    Tls { client: Client, host: String },
}

impl Opening {
    /// That of connections to the server of these settings.
    pub(crate) fn to(setup: &Setup) -> Self {
        match &setup.tls {
            Some(client) => Self::Tls { client: client.clone(), host: setup.target.host.clone() },
            None => Self::Plain,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Transport {
    /// Not established yet.
    pub(crate) is_connecting: bool,
    /// The generator knows that there is something to receive.
    pub(crate) is_listed: bool,
    /// The peer has closed its side: what is left to receive is the last.
    pub(crate) hang_up: bool,
    fd: OwnedFd,
    unsent: Vec<u8>,
    /// The body of a request that is behind these bytes, and how much of it was sent.
    body: Option<(Arc<[u8]>, usize)>,
    tls: Option<Box<Tls>>,
}

#[derive(Debug)]
struct Tls {
    session: ClientConnection,
    client: Client,
    /// When the handshake began; none before the socket is connected.
    began_ns: Option<u64>,
    /// Received and decrypted, and not taken yet.
    ahead: Vec<u8>,
}

/// The state of a connection that is being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Pending,
    /// It is established, if over TLS by this handshake.
    Established(Option<Handshake>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// Bytes in the buffer.
    pub(crate) bytes: usize,
    /// Whether there may be more at once. Otherwise more makes a new edge.
    pub(crate) may_be_more: bool,
    pub(crate) is_end: bool,
}

impl Transport {
    /// Over a socket that is being connected.
    ///
    /// Errors: the host can be in no certificate.
    pub(crate) fn new(fd: OwnedFd, opening: &Opening) -> io::Result<Self> {
        let tls = match opening {
            Opening::Plain => None,
            Opening::Tls { client, host } => Some(Box::new(Tls {
                session: client.begin(host)?,
                client: client.clone(),
                began_ns: None,
                ahead: Vec::new(),
            })),
        };
        Ok(Self {
            is_connecting: true,
            is_listed: false,
            hang_up: false,
            fd,
            unsent: Vec::new(),
            body: None,
            tls,
        })
    }

    /// Goes on with making the connection after an event.
    ///
    /// Errors: it cannot be made.
    pub(crate) fn set_up(&mut self, ready: Ready, scratch: &mut [u8]) -> io::Result<Progress> {
        let is_connected = match &self.tls {
            None => false,
            Some(tls) => tls.began_ns.is_some(),
        };
        if !is_connected {
            if !(ready.writable || ready.hung_up || ready.broken) {
                return Ok(Progress::Pending);
            }
            net::take_error(&self.fd)?;
        }
        let Some(tls) = &mut self.tls else { return Ok(Progress::Established(None)) };
        let began_ns = *tls.began_ns.get_or_insert_with(clock::monotonic_ns);
        loop {
            tls.push(&self.fd).map_err(|why| no_handshake(&why.to_string()))?;
            if !tls.session.is_handshaking() {
                break;
            }
            match net::recv(&self.fd, scratch) {
                Ok(0) => return Err(no_handshake("the server closed the connection during the handshake")),
                Ok(bytes) => tls.decrypt(&scratch[..bytes], &mut [])?,
                Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(Progress::Pending),
                Err(why) => return Err(no_handshake(&why.to_string())),
            };
        }
        if !tls.client.accepts(tls.session.alpn_protocol()) {
            return Err(no_handshake("the server does not speak that version of HTTP over TLS (ALPN)"));
        }
        let is_resumed = tls.session.handshake_kind() == Some(HandshakeKind::Resumed);
        let took_ns = clock::monotonic_ns().saturating_sub(began_ns);
        Ok(Progress::Established(Some(Handshake { took_ns, is_resumed })))
    }

    /// Sends bytes, or keeps them to be sent.
    ///
    /// Errors: the connection is over.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.session.writer().write_all(bytes)?;
            return tls.push(&self.fd);
        }
        let sent_bytes = if self.unsent.is_empty() { send_some(&self.fd, bytes)? } else { 0 };
        self.unsent.extend_from_slice(&bytes[sent_bytes..]);
        Ok(())
    }

    /// Sends a body behind the bytes before it. It is not copied.
    ///
    /// Errors: as [`Transport::flush`].
    pub(crate) fn send_body(&mut self, body: &Arc<[u8]>) -> io::Result<()> {
        self.body = Some((Arc::clone(body), 0));
        self.flush()
    }

    /// Sends what was kept.
    ///
    /// Errors: the connection is over. The end of one that takes no more of a body is no error: the answer may be there.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match self.flush_bytes().and_then(|()| self.flush_body()) {
            Err(_) if self.body.take().is_some() => {
                self.hang_up = true;
                Ok(())
            }
            flushed => flushed,
        }
    }

    fn flush_bytes(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            return tls.push(&self.fd);
        }
        if !self.unsent.is_empty() {
            let sent_bytes = send_some(&self.fd, &self.unsent)?;
            self.unsent.drain(..sent_bytes);
        }
        Ok(())
    }

    fn flush_body(&mut self) -> io::Result<()> {
        while let Some((body, sent)) = &mut self.body {
            let rest = &body[*sent..];
            if rest.is_empty() {
                self.body = None;
                break;
            }
            let sent_bytes = match &mut self.tls {
                Some(tls) if tls.session.wants_write() => break,
                Some(tls) => {
                    let piece = &rest[..rest.len().min(TLS_PIECE_BYTES)];
                    tls.session.writer().write_all(piece)?;
                    tls.push(&self.fd)?;
                    piece.len()
                }
                None if !self.unsent.is_empty() => break,
                None => send_some(&self.fd, rest)?,
            };
            if sent_bytes == 0 {
                break;
            }
            *sent += sent_bytes;
        }
        Ok(())
    }

    pub(crate) fn has_unsent(&self) -> bool {
        let has_bytes = self.tls.as_ref().map_or(!self.unsent.is_empty(), |tls| tls.session.wants_write());
        has_bytes || self.body.is_some()
    }

    /// Receives once into `buffer`; `scratch` is for what is encrypted.
    ///
    /// Errors: `WouldBlock`, when there is nothing; otherwise the connection is over.
    pub(crate) fn receive(&mut self, buffer: &mut [u8], scratch: &mut [u8]) -> io::Result<Received> {
        let Some(tls) = &mut self.tls else {
            let bytes = net::recv(&self.fd, buffer)?;
            // A short receive emptied the socket.
            return Ok(Received { bytes, may_be_more: bytes == buffer.len(), is_end: bytes == 0 });
        };
        if !tls.ahead.is_empty() {
            let bytes = tls.ahead.len().min(buffer.len());
            buffer[..bytes].copy_from_slice(&tls.ahead[..bytes]);
            tls.ahead.drain(..bytes);
            return Ok(Received { bytes, may_be_more: true, is_end: false });
        }
        let room = scratch.len().min(buffer.len());
        let received = net::recv(&self.fd, &mut scratch[..room])?;
        if received == 0 {
            return Ok(Received { bytes: 0, may_be_more: false, is_end: true });
        }
        let bytes = tls.decrypt(&scratch[..received], buffer)?;
        // A handshake message, such as a session ticket, may want an answer.
        tls.push(&self.fd)?;
        let may_be_more = received == room || !tls.ahead.is_empty();
        Ok(Received { bytes, may_be_more, is_end: false })
    }
}

impl Tls {
    /// Sends what the session has to send.
    fn push(&mut self, fd: &OwnedFd) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Socket(fd)) {
                Ok(_) => {}
                Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }

    /// Decrypts all of `cipher` into `buffer`, and keeps what has no room there. Returns the bytes in the buffer.
    fn decrypt(&mut self, mut cipher: &[u8], buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while !cipher.is_empty() {
            self.session.read_tls(&mut cipher)?;
            let state = self.session.process_new_packets().map_err(|why| no_handshake(&why.to_string()))?;
            if state.plaintext_bytes_to_read() > 0 {
                filled += self.session.reader().read(&mut buffer[filled..]).unwrap_or(0);
                // An error is that there is nothing.
                let _ = self.session.reader().read_to_end(&mut self.ahead);
            }
        }
        Ok(filled)
    }
}

fn no_handshake(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why.to_owned())
}

fn send_some(fd: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    match net::send(fd, bytes) {
        Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(0),
        sent => sent,
    }
}
