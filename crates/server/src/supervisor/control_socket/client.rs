//! A client of the control socket: its connection, its request, and the part of its answer that was sent. No call waits.

use std::io;

use flash_prompt::{OwnedFd, net};

use super::http::{self, HEAD_BYTES_MAX, Parsed, Wanted};
use crate::stats::{Answer, Request, UPGRADE};

/// Maximum size of a request of one line, including its end.
pub(super) const REQUEST_BYTES_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct Client {
    pub(super) token: u64,
    pub(super) socket: OwnedFd,
    /// Whether it came to the socket of this user, and speaks lines or HTTP; at an address of `admin` it speaks HTTP.
    pub(super) is_own: bool,
    pub(super) deadline_ms: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    Asks(Vec<u8>),
    Waits(Wanted),
    /// Receives its answer, of which this many bytes were sent.
    Takes(Vec<u8>, usize),
}

impl Client {
    pub(super) fn new(token: u64, (socket, is_own): (OwnedFd, bool), deadline_ms: u64) -> Self {
        Self { token, socket, is_own, deadline_ms, state: State::Asks(Vec::new()) }
    }

    /// Receives or sends as much as possible now. False if the client is finished.
    pub(super) fn go_on(&mut self) -> bool {
        if let State::Asks(request) = &mut self.state {
            let mut buffer = [0; REQUEST_BYTES_MAX];
            loop {
                match net::recv(&self.socket, &mut buffer) {
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
            let asked = if self.is_own && !http::is_http(request) {
                asked_by_line(request)
            } else {
                http::parse(request)
            };
            match asked {
                Parsed::Incomplete => return true,
                Parsed::Wanted(wanted) => self.state = State::Waits(wanted),
                Parsed::Answered(answer) => self.answer(answer),
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
        self.answer(if self.is_own {
            Answer::refusal(why).to_line()
        } else {
            http::refusal("503 Service Unavailable", why)
        });
    }

    /// Sends as much as the client takes now.
    fn send(&mut self) {
        let State::Takes(answer, sent) = &mut self.state else { return };
        while *sent < answer.len() {
            match net::send(&self.socket, &answer[*sent..]) {
                Ok(bytes) => *sent += bytes,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                // The client has gone.
                Err(_) => *sent = answer.len(),
            }
        }
        // If the socket closed with unread bytes, the client could see an error instead of the end.
        let _ = net::recv(&self.socket, &mut [0; HEAD_BYTES_MAX]);
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

fn asked_by_line(bytes: &[u8]) -> Parsed {
    let wrong = |why: String| Parsed::Answered(Answer::refusal(why).to_line());
    match bytes.split(|byte| *byte == b'\n').next() {
        Some(line) if line.len() < bytes.len() => {
            let word = line.strip_suffix(b"\r").unwrap_or(line);
            if let Some(request) = Request::ALL.into_iter().find(|request| request.word().as_bytes() == word)
            {
                return Parsed::Wanted(Wanted::Line(request));
            }
            if word == UPGRADE.as_bytes() {
                return Parsed::Wanted(Wanted::Upgrade);
            }
            let line = String::from_utf8_lossy(line).escape_debug().to_string();
            let [stats, stalls] = Request::ALL.map(Request::word);
            wrong(format!("unknown request `{line}`; expected `{stats}`, `{stalls}` or `{UPGRADE}`"))
        }
        _ if bytes.len() < REQUEST_BYTES_MAX => Parsed::Incomplete,
        _ => wrong(format!("a request must be a line of less than {REQUEST_BYTES_MAX} bytes")),
    }
}
