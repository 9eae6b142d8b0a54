//! The server that is asked about requests: one connection of it. It is polite, but ends a connection after some answers, instead of
//! reading the next question.

use super::application::number_in;
use super::ledger::{Agreement, GRANTED, Ledger, require};
use crate::machine::Client;

/// Answers on a connection before it ends it.
const ANSWERS_MAX: usize = 3;

pub(super) struct Gatekeeper {
    pub(super) end: Client,
    inbox: Vec<u8>,
    answers: usize,
    has_ended: bool,
}

impl Gatekeeper {
    pub(super) fn new(end: Client) -> Self {
        Self { end, inbox: Vec::new(), answers: 0, has_ended: false }
    }

    /// Answers a question, if there is one, or closes its side.
    pub(super) fn act(&mut self, ledger: &mut Ledger) {
        if self.has_ended {
            return;
        }
        self.inbox.extend_from_slice(&self.end.take_bytes());
        let Some(at) = self.inbox.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { return };
        if self.answers == ANSWERS_MAX {
            self.has_ended = true;
            return self.end.end();
        }
        let head = String::from_utf8_lossy(&self.inbox[..at]).into_owned();
        self.inbox.drain(..at + 4);
        let ask = number_in(&head).filter(|ask| *ask < ledger.asks.len());
        let is_bare = !head.contains("Content-Length") && !head.contains("Transfer-Encoding");
        let is_question = (head.starts_with("GET /auth ") || head.starts_with("HEAD /auth ")) && is_bare;
        require(is_question && self.inbox.is_empty(), "questions", || format!("a server was asked {head:?}"));
        let Some(ask) = ask else { return };
        self.answers += 1;
        if ledger.asks[ask].agreement == Agreement::Given {
            ledger.agreed.insert(ask);
            self.end.send(format!("HTTP/1.1 204 No Content\r\n{GRANTED}: {ask}\r\n\r\n"));
        } else {
            self.end.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
        }
    }
}
