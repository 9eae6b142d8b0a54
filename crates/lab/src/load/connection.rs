//! One connection of a generator: sends a request, receives its response.
//!
//! A pool owns it and decides what it asks; it knows nothing of other connections and reads no
//! clock.

use std::io;
use std::net::SocketAddr;

use flash_sys::OwnedFd;
use flash_sys::prompt::net;

use super::Ask;
use super::response::Response;
use super::tally::Fault;
use crate::fileset::content::content_matches;
use crate::fileset::layout::File;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not established yet.
    Connecting,
    /// Free for a request.
    Idle,
    /// Waiting for the answer to one.
    Busy(Ask),
}

/// What one receive brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// There may be more to receive at once.
    Again,
    /// Nothing more now.
    Wait,
    /// The answer is complete: `Ok` or what was wrong with it; and whether the connection can
    /// be used again.
    Answered { outcome: Result<(), Fault>, reusable: bool },
    /// The connection is over, and any request on it has failed so.
    Ended(Fault),
}

/// A connection and the request on it.
#[derive(Debug)]
pub(crate) struct Connection {
    fd: OwnedFd,
    /// What it is doing; the pool changes it.
    pub(crate) state: State,
    /// The peer has closed its side: what is left to receive is the last.
    pub(crate) hang_up: bool,
    /// It has carried a complete exchange.
    used: bool,
    request: Vec<u8>,
    sent_bytes: usize,
    response: Response,
    content_wrong: bool,
}

impl Connection {
    /// Starts to connect.
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        Ok(Self {
            fd: net::connect(address)?,
            state: State::Connecting,
            hang_up: false,
            used: false,
            request: Vec::new(),
            sent_bytes: 0,
            response: Response::default(),
            content_wrong: false,
        })
    }

    /// The socket, for epoll.
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Why connecting failed, if it did.
    pub(crate) fn connected(&self) -> io::Result<()> {
        net::take_error(&self.fd)
    }

    /// Whether a request that fails now may be sent again elsewhere: the server closed a
    /// connection that had been idle, and no byte of an answer came (RFC 9112 §9.3.1).
    pub(crate) fn was_stale(&self) -> bool {
        self.used && !self.response.has_begun()
    }

    /// Sends the request for `ask` to `host`, whose paths start with `base`.
    ///
    /// Errors: the connection is over.
    pub(crate) fn ask(&mut self, ask: Ask, host: &str, base: &str) -> io::Result<()> {
        self.state = State::Busy(ask);
        self.response.clear();
        self.content_wrong = false;
        self.request.clear();
        self.sent_bytes = 0;
        write_request(&mut self.request, &File::from_path_id(ask.path_id), host, base);
        self.flush()
    }

    /// Sends what is left of the request.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while self.sent_bytes < self.request.len() {
            match net::send(&self.fd, &self.request[self.sent_bytes..]) {
                Ok(n) => self.sent_bytes += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Receives once into `buffer`. Checks the content against the set made with `verify_seed`.
    pub(crate) fn receive(&mut self, buffer: &mut [u8], verify_seed: Option<u64>) -> Step {
        let length = match net::recv(&self.fd, buffer) {
            Ok(0) => return Step::Ended(Fault::ClosedEarly),
            Ok(length) => length,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Step::Wait,
            Err(_) => return Step::Ended(Fault::Reset),
        };
        let State::Busy(ask) = self.state else {
            return Step::Ended(Fault::Garbage);
        };
        let content_wrong = &mut self.content_wrong;
        let fed = self.response.feed(&buffer[..length], |head, offset_bytes, bytes| {
            if let (Some(seed), 200) = (verify_seed, head.status) {
                *content_wrong |= !content_matches(seed, ask.path_id, offset_bytes, bytes);
            }
        });
        match fed {
            Err(fault) => Step::Ended(fault),
            // A short receive emptied the socket, and what comes next makes a new edge; but the
            // end of input may be behind it already, without an edge of its own.
            Ok(None) if length < buffer.len() && !self.hang_up => Step::Wait,
            Ok(None) => Step::Again,
            Ok(Some(head)) => {
                self.used = true;
                let outcome = match head.status {
                    200 if head.body_bytes != File::from_path_id(ask.path_id).file_bytes() => {
                        Err(Fault::WrongLength)
                    }
                    200 if self.content_wrong => Err(Fault::WrongContent),
                    200 => Ok(()),
                    status => Err(Fault::Status(status)),
                };
                Step::Answered { outcome, reusable: head.keep_alive && !self.hang_up }
            }
        }
    }
}

/// Writes a GET with the fields that every server wants.
fn write_request(into: &mut Vec<u8>, file: &File, host: &str, base: &str) {
    use io::Write;
    let File { directory, class, number } = file;
    let _ =
        write!(into, "GET {base}/dir{directory:05}/class{class}_{number} HTTP/1.1\r\nHost: {host}\r\n\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_for_the_path_of_the_layout() {
        let file = File::from_path_id(36 * 123 + 20);
        let mut request = Vec::new();
        write_request(&mut request, &file, "h:1", "/set");
        let expected = format!("GET /set/{} HTTP/1.1\r\nHost: h:1\r\n\r\n", file.path());
        assert_eq!(request, expected.as_bytes());
    }
}
