//! Sockets: byte queues in memory, seen from both ends.

use std::cell::{Ref, RefCell, RefMut};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::rc::Rc;

use flash_engine::{Band, Key, Readiness};

use super::Counted;
use super::records::Seal;
use super::response::{Response, parse_all};

/// A connection between a client and the engine.
#[derive(Debug)]
pub(crate) struct Wire {
    /// The number of the connection in a trace.
    pub(crate) number: u64,
    /// Bytes that arrived at the server and were not received yet.
    arrived: VecDeque<u8>,
    /// Pieces still under way. Each arrives once the previous one was received.
    under_way: VecDeque<Vec<u8>>,
    client_ended: bool,
    /// The end is reported before all sent bytes have arrived.
    pub(crate) ends_early: bool,
    reset: bool,
    /// How much the server can send now.
    room: usize,
    /// A send found no room, so more room makes an event.
    wants_room: bool,
    /// Room makes an event only from this amount on, as with a kernel's send buffer.
    pub(crate) room_event_bytes: usize,
    /// Bytes that the client received and has not read.
    sent: Vec<u8>,
    /// Number of all bytes that the client received.
    sent_bytes: u64,
    /// The band of the socket.
    band: Band,
    /// How many bytes were sent in each band, in order.
    pub(crate) sent_in_bands: Vec<(Band, u64)>,
    pub(crate) server_ended: bool,
    /// Whether the server reset the connection, which discards undelivered bytes.
    pub(crate) was_reset: bool,
    /// Bytes that were sent and that the client has not acknowledged.
    pub(crate) unacknowledged: u64,
    closed: bool,
    /// The readiness that the next turn will report.
    edge: Readiness,
    pub(crate) panic_on_recv: bool,
    pub(crate) panic_on_send: bool,
    /// The client's record layer, if the connection is encrypted. `sent` is then plaintext, everything else ciphertext.
    seal: Option<Seal>,
}

impl Wire {
    fn new(number: u64) -> Self {
        Self {
            number,
            arrived: VecDeque::new(),
            under_way: VecDeque::new(),
            client_ended: false,
            ends_early: false,
            reset: false,
            room: usize::MAX,
            wants_room: false,
            room_event_bytes: 1,
            sent: Vec::new(),
            sent_bytes: 0,
            band: Band::FIRST,
            sent_in_bands: Vec::new(),
            server_ended: false,
            was_reset: false,
            unacknowledged: 0,
            closed: false,
            edge: Readiness { writable: true, ..Readiness::default() },
            panic_on_recv: false,
            panic_on_send: false,
            seal: None,
        }
    }

    pub(crate) fn recv(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        assert!(!self.closed, "a receive from a closed socket");
        assert!(!self.panic_on_recv, "a panic on receive, as the test wants");
        // As on Linux, bytes that arrived before the reset can still be read.
        if self.reset && self.arrived.is_empty() {
            return Err(ErrorKind::ConnectionReset.into());
        }
        if self.arrived.is_empty() {
            let ended = self.client_ended && self.under_way.is_empty();
            return if ended { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
        }
        let n = buffer.len().min(self.arrived.len());
        let (front, back) = self.arrived.as_slices();
        let of_front = n.min(front.len());
        buffer[..of_front].copy_from_slice(&front[..of_front]);
        buffer[of_front..n].copy_from_slice(&back[..n - of_front]);
        self.arrived.drain(..n);
        self.bring();
        Ok(n)
    }

    /// Lets the next piece arrive.
    fn bring(&mut self) {
        if self.arrived.is_empty()
            && let Some(piece) = self.under_way.pop_front()
        {
            self.arrived.extend(piece);
            self.edge.readable = true;
        }
        if self.client_ended && self.under_way.is_empty() {
            self.edge.readable = true;
            self.edge.hung_up = true;
        }
    }

    pub(crate) fn send(&mut self, pieces: &[&[u8]]) -> io::Result<usize> {
        assert!(!self.closed, "a send to a closed socket");
        assert!(!self.server_ended, "a send after the end");
        assert!(!self.panic_on_send, "a panic on send, as the test wants");
        if self.reset {
            return Err(ErrorKind::ConnectionReset.into());
        }
        let offered: usize = pieces.iter().map(|piece| piece.len()).sum();
        let mut taken = 0;
        // Handshakes are short, so there is room for them in any case.
        let is_free = self.seal.as_ref().is_some_and(|seal| !seal.is_established());
        for piece in pieces {
            let n = if is_free { piece.len() } else { piece.len().min(self.room) };
            self.take(&piece[..n]);
            if self.room != usize::MAX && !is_free {
                self.room -= n;
            }
            taken += n;
        }
        self.sent_bytes += taken as u64;
        match self.sent_in_bands.last_mut() {
            Some((band, bytes)) if *band == self.band => *bytes += taken as u64,
            _ => self.sent_in_bands.push((self.band, taken as u64)),
        }
        self.wants_room |= taken < offered;
        if taken == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(taken) }
    }

    /// The client receives bytes.
    fn take(&mut self, bytes: &[u8]) {
        let Some(seal) = &mut self.seal else { return self.sent.extend_from_slice(bytes) };
        let (plaintext, pieces, ends) = seal.receive(bytes);
        self.sent.extend(plaintext);
        self.come(pieces);
        if ends {
            self.end();
        }
    }

    /// Puts pieces on their way to the server.
    fn come(&mut self, pieces: impl IntoIterator<Item = Vec<u8>>) {
        self.under_way.extend(pieces.into_iter().filter(|piece| !piece.is_empty()));
        // If earlier bytes are waiting, their event was already reported, and only later bytes make a new
        // one.
        if self.arrived.is_empty() {
            self.bring();
        } else if self.under_way.len() == 1
            && let Some(piece) = self.under_way.pop_front()
        {
            self.arrived.extend(piece);
            self.edge.readable = true;
        }
    }

    fn end(&mut self) {
        self.client_ended = true;
        if self.under_way.is_empty() || self.ends_early {
            self.edge.readable = true;
            self.edge.hung_up = true;
        }
    }

    /// Encrypts the connection, and begins its handshake.
    pub(crate) fn seal(&mut self) {
        self.seal = Some(Seal::default());
        // The first message arrives in two pieces.
        let mut hello = Seal::hello();
        let rest = hello.split_off(3);
        self.come([hello, rest]);
    }

    /// Encrypts the connection to an application, whose handshake the engine begins.
    pub(crate) fn seal_application(&mut self) {
        self.seal = Some(Seal::of_application());
    }

    /// Puts ciphertext on its way that no record layer has made.
    pub(crate) fn come_raw(&mut self, bytes: Vec<u8>) {
        self.come([bytes]);
    }

    /// Number of all bytes that the client received, encrypted or not.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// Whether more is under way than has arrived.
    pub(crate) fn has_more(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// The client's record layer.
    pub(crate) fn encrypted(&self) -> Option<&Seal> {
        self.seal.as_ref()
    }

    /// Whether a record of the server is incomplete although there is room for the rest and the server knows.
    pub(crate) fn is_kept_waiting(&self) -> bool {
        let knows = !self.wants_room && !self.edge.writable && self.room > 0;
        knows && !self.closed && !self.reset && self.seal.as_ref().is_some_and(Seal::is_cut)
    }

    /// Whether the server has closed an encrypted connection without announcing it, or in the middle of a record.
    pub(crate) fn was_closed_rudely(&self) -> bool {
        let is_rude = |seal: &Seal| seal.is_established() && (!seal.has_ended || seal.is_cut());
        self.closed && !self.reset && !self.was_reset && self.seal.as_ref().is_some_and(is_rude)
    }

    pub(crate) fn set_band(&mut self, band: Band) {
        assert!(self.band != band, "a system call for the band that the socket has");
        self.band = band;
    }

    pub(crate) fn take_edge(&mut self) -> Readiness {
        std::mem::take(&mut self.edge)
    }

    pub(crate) fn edge(&self) -> Readiness {
        self.edge
    }

    pub(crate) fn has_edge(&self) -> bool {
        !self.closed && self.edge != Readiness::default()
    }

    /// The readiness that a level-triggered turn would report, whether it was reported before or not.
    pub(crate) fn level(&self) -> Readiness {
        let is_over = self.client_ended && self.under_way.is_empty();
        Readiness {
            readable: !self.arrived.is_empty() || is_over || self.reset,
            writable: (self.room > 0 && !self.wants_room) || self.reset,
            hung_up: is_over || self.reset,
            broken: self.reset,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether the server has more to send than there is room for.
    pub(crate) fn wants_room(&self) -> bool {
        self.wants_room
    }

    /// Whether the server has more for the client than it has room for, or has sent a part of a record.
    pub(crate) fn is_sent_more(&self) -> bool {
        self.wants_room || self.seal.as_ref().is_some_and(Seal::is_cut)
    }

    /// Bytes on their way to the server that it has not received.
    pub(crate) fn unread(&self) -> usize {
        self.arrived.len() + self.under_way.iter().map(Vec::len).sum::<usize>()
    }

    /// A full send buffer holds bytes that the client has not acknowledged.
    pub(crate) fn unacknowledged_bytes(&self) -> u64 {
        let is_full = self.wants_room && self.room == 0;
        self.unacknowledged.max(u64::from(is_full)).min(self.sent_bytes)
    }
}

/// The server's end. Dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) number: u64,
    /// Whether it leads to a server, and not to a client.
    pub(crate) is_link: bool,
    pub(crate) wire: Rc<RefCell<Wire>>,
    _counted: Counted,
}

impl Drop for Socket {
    fn drop(&mut self) {
        // If a test panics inside a call, the wire is borrowed.
        if let Ok(mut wire) = self.wire.try_borrow_mut() {
            wire.closed = true;
        }
    }
}

/// Makes both ends of a new connection.
pub(crate) fn pair(number: u64, counted: Counted) -> (Socket, Rc<RefCell<Wire>>) {
    let wire = Rc::new(RefCell::new(Wire::new(number)));
    (Socket { number, is_link: false, wire: Rc::clone(&wire), _counted: counted }, wire)
}

/// A client's end.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) key: Key,
    wire: Rc<RefCell<Wire>>,
}

impl Client {
    pub(crate) fn new(key: Key, wire: Rc<RefCell<Wire>>) -> Self {
        Self { key, wire }
    }

    pub(crate) fn wire(&self) -> RefMut<'_, Wire> {
        self.wire.borrow_mut()
    }

    fn look(&self) -> Ref<'_, Wire> {
        self.wire.borrow()
    }

    /// Sends bytes, which arrive at once.
    pub(crate) fn send(&self, bytes: impl AsRef<[u8]>) {
        self.send_pieces([bytes.as_ref().to_vec()]);
    }

    /// Sends bytes in pieces. Each arrives once the previous one was received.
    pub(crate) fn send_pieces(&self, pieces: impl IntoIterator<Item = Vec<u8>>) {
        let mut wire = self.wire();
        let pieces = pieces.into_iter().filter(|piece| !piece.is_empty());
        match &mut wire.seal {
            None => wire.come(pieces),
            Some(seal) => {
                let pieces: Vec<Vec<u8>> = pieces.flat_map(|piece| seal.send(&piece)).collect();
                wire.come(pieces);
            }
        }
    }

    /// Sends a plain GET.
    pub(crate) fn get(&self, path: &str) {
        self.send(request("GET", path, ""));
    }

    /// Closes the sending side.
    pub(crate) fn end(&self) {
        let mut wire = self.wire();
        if let Some(seal) = &mut wire.seal {
            let pieces = seal.end();
            let waits = seal.waits();
            wire.come(pieces);
            if waits {
                return;
            }
        }
        wire.end();
    }

    /// Closes the sending side of an encrypted connection, without announcing it.
    pub(crate) fn cut(&self) {
        self.wire().end();
    }

    /// Resets the connection.
    pub(crate) fn reset(&self) {
        let mut wire = self.wire();
        wire.reset = true;
        wire.edge = Readiness { readable: true, writable: true, hung_up: true, broken: true };
    }

    /// From now on, the server can send this many bytes until there is more room.
    pub(crate) fn set_room(&self, bytes: usize) {
        let mut wire = self.wire();
        wire.room = bytes;
        if wire.wants_room && bytes >= wire.room_event_bytes {
            wire.wants_room = false;
            wire.edge.writable = true;
        }
    }

    /// Adds room for this many bytes.
    pub(crate) fn add_room(&self, bytes: usize) {
        let room = self.look().room.saturating_add(bytes);
        self.set_room(room);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.look().closed
    }

    /// Whether the server has closed its sending side, or the connection.
    pub(crate) fn is_ended(&self) -> bool {
        self.look().closed || self.look().server_ended
    }

    /// All bytes received so far.
    pub(crate) fn received(&self) -> Vec<u8> {
        self.look().sent.clone()
    }

    pub(crate) fn received_len(&self) -> usize {
        self.look().sent.len()
    }

    /// Whether the server has received all that was sent.
    pub(crate) fn is_received(&self) -> bool {
        let wire = self.look();
        let waits = wire.seal.as_ref().is_some_and(Seal::waits);
        wire.arrived.is_empty() && wire.under_way.is_empty() && !waits
    }

    /// Takes the bytes received so far.
    pub(crate) fn take_bytes(&self) -> Vec<u8> {
        std::mem::take(&mut self.wire().sent)
    }

    /// Takes the received bytes, which must be whole answers to requests other than HEAD.
    pub(crate) fn take(&self) -> Vec<Response> {
        let bytes = std::mem::take(&mut self.wire().sent);
        let (responses, rest) = parse_all(&bytes, |_| false);
        assert!(rest == bytes.len(), "not a whole answer: {}", bytes[rest..].escape_ascii());
        responses
    }

    /// Takes the one answer that was received.
    pub(crate) fn take_one(&self) -> Response {
        let mut all = self.take();
        assert_eq!(all.len(), 1, "one answer, not {all:?}");
        all.remove(0)
    }

    /// Takes the one answer to a HEAD request.
    pub(crate) fn take_head(&self) -> Response {
        let bytes = std::mem::take(&mut self.wire().sent);
        let (mut all, rest) = parse_all(&bytes, |_| true);
        assert!(rest == bytes.len() && all.len() == 1, "not one head: {}", bytes.escape_ascii());
        all.remove(0)
    }
}

/// A request without a body. `fields` are whole lines.
pub(crate) fn request(method: &str, path: &str, fields: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: h\r\n{fields}\r\n")
}
