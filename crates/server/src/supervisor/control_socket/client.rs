//! A client of the control socket: its connection, its request, and the part of its answer that was sent. No call waits.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use flash_prompt::{AsFd, BorrowedFd};

use super::http::{self, Content, HEAD_BYTES_MAX, HttpRequest, Parsed};
use crate::stats::{Answer, Request};

/// Maximum size of a request of one line, including its end.
pub(super) const REQUEST_BYTES_MAX: usize = 256;

/// The connection of a client.
#[derive(Debug)]
pub(super) enum Stream {
    /// To the socket of this user. It speaks lines, or HTTP.
    Own(UnixStream),
    /// To an address of `admin`. It speaks HTTP.
    Admin(TcpStream),
}

impl Stream {
    pub(super) fn is_own(&self) -> bool {
        matches!(self, Stream::Own(_))
    }

    pub(super) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Stream::Own(stream) => stream.set_nonblocking(true),
            Stream::Admin(stream) => stream.set_nonblocking(true),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Own(stream) => stream.read(buffer),
            Stream::Admin(stream) => stream.read(buffer),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Own(stream) => stream.write(bytes),
            Stream::Admin(stream) => stream.write(bytes),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Own(stream) => stream.as_fd(),
            Stream::Admin(stream) => stream.as_fd(),
        }
    }
}

/// The request of a client that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// On a line; answered with a document on a line.
    Line(Request),
    Http(HttpRequest),
}

impl Wanted {
    /// The request to the workers; None if no worker is needed.
    pub(super) fn request(self) -> Option<Request> {
        match self {
            Wanted::Line(request) => Some(request),
            Wanted::Http(HttpRequest { content: Content::Ready, .. }) => None,
            Wanted::Http(_) => Some(Request::Stats),
        }
    }
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) token: u64,
    pub(super) stream: Stream,
    pub(super) deadline_ms: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Sends its request.
    Asks(Vec<u8>),
    /// Waits for the server.
    Waits(Wanted),
    /// Receives its answer, of which this many bytes were sent.
    Takes(Vec<u8>, usize),
}

impl Client {
    pub(super) fn new(token: u64, stream: Stream, deadline_ms: u64) -> Self {
        Self { token, stream, deadline_ms, state: State::Asks(Vec::new()) }
    }

    /// Receives or sends as much as possible now. False if the client is finished.
    pub(super) fn go_on(&mut self) -> bool {
        if let State::Asks(request) = &mut self.state {
            let mut buffer = [0; REQUEST_BYTES_MAX];
            loop {
                match self.stream.read(&mut buffer) {
                    Ok(0) => return false,
                    Ok(bytes) => request.extend_from_slice(&buffer[..bytes]),
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    Err(_) => return false,
                }
                if request.len() >= HEAD_BYTES_MAX {
                    break;
                }
            }
            let asked = match &self.stream {
                Stream::Own(_) if !http::is_http(request) => asked_by_line(request),
                _ => asked_by_http(request),
            };
            match asked {
                Asked::Nothing => return true,
                Asked::Wanted(wanted) => self.state = State::Waits(wanted),
                Asked::Answered(answer) => self.answer(answer),
            }
        }
        self.send();
        !self.is_done()
    }

    pub(super) fn answer(&mut self, answer: Vec<u8>) {
        self.state = State::Takes(answer, 0);
        self.send();
    }

    /// Refuses the client before it has asked.
    pub(super) fn refuse(&mut self, why: &str) {
        let answer = match self.stream {
            Stream::Own(_) => Answer::refusal(why).to_line(),
            Stream::Admin(_) => {
                http::answer("503 Service Unavailable", "text/plain; charset=utf-8", why.as_bytes(), false)
            }
        };
        self.answer(answer);
    }

    /// Sends as much as the client takes now.
    fn send(&mut self) {
        let State::Takes(answer, sent) = &mut self.state else { return };
        while *sent < answer.len() {
            match self.stream.write(&answer[*sent..]) {
                Ok(bytes) => *sent += bytes,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                // The client has gone.
                Err(_) => *sent = answer.len(),
            }
        }
        // If the socket closed with unread bytes, the client could see an error instead of the end.
        let _ = self.stream.read(&mut [0; HEAD_BYTES_MAX]);
    }

    pub(super) fn waits_for(&self) -> Option<Wanted> {
        match self.state {
            State::Waits(wanted) => Some(wanted),
            State::Asks(_) | State::Takes(..) => None,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(&self.state, State::Takes(answer, sent) if *sent == answer.len())
    }
}

/// The meaning of the bytes that a client has sent.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    /// They are no complete request.
    Nothing,
    Wanted(Wanted),
    /// The answer is ready.
    Answered(Vec<u8>),
}

fn asked_by_http(bytes: &[u8]) -> Asked {
    match http::parse(bytes) {
        Parsed::Incomplete => Asked::Nothing,
        Parsed::Request(request) => Asked::Wanted(Wanted::Http(request)),
        Parsed::Answer(answer) => Asked::Answered(answer),
    }
}

fn asked_by_line(bytes: &[u8]) -> Asked {
    let wrong = |why: String| Asked::Answered(Answer::refusal(why).to_line());
    match bytes.split(|byte| *byte == b'\n').next() {
        Some(line) if line.len() < bytes.len() => {
            let word = line.strip_suffix(b"\r").unwrap_or(line);
            if let Some(request) = Request::ALL.into_iter().find(|request| request.word().as_bytes() == word)
            {
                return Asked::Wanted(Wanted::Line(request));
            }
            let line = String::from_utf8_lossy(line).escape_debug().to_string();
            let all = Request::ALL.map(|request| format!("`{}`", request.word())).join(" or ");
            wrong(format!("unknown request `{line}`; expected {all}"))
        }
        _ if bytes.len() < REQUEST_BYTES_MAX => Asked::Nothing,
        _ => wrong(format!("a request must be a line of less than {REQUEST_BYTES_MAX} bytes")),
    }
}
