//! A client: what it still has to say, and how it reads what comes.

use std::collections::VecDeque;

use crate::ask::Ask;
use crate::machine::Client;
use crate::machine::response::parse_head;
use crate::oracle::{Facts, Piece};

/// One client and its connection.
pub(crate) struct Peer {
    pub(crate) client: Client,
    /// Asks for what is in memory, one at a time, and is to be answered at once.
    pub(crate) hot: bool,
    /// One of many that came at once.
    pub(crate) crowd: bool,
    /// What has no answer yet, in order.
    pub(crate) asks: VecDeque<Ask>,
    /// What is still to be sent of them.
    pub(crate) unsent: VecDeque<u8>,
    pub(crate) sent_bytes: u64,
    /// Requests that it will still make.
    pub(crate) more: u64,
    /// The most that it sends at once, and how long it waits in between.
    pub(crate) piece_bytes: u64,
    pub(crate) gap_ms: u64,
    /// Sends one request after the other was answered.
    pub(crate) serial: bool,
    /// Reads so many bytes at once; None reads all as it comes.
    pub(crate) room: Option<u64>,
    /// Has let the server wait for room at some time.
    pub(crate) slow: bool,
    pub(crate) ended: bool,
    pub(crate) reset: bool,
    /// The server said that this is the end.
    pub(crate) last_heard: bool,
    pub(crate) closed: bool,
    /// Closed to make room for another.
    pub(crate) evicted: bool,
    /// When it last sent or was answered something.
    pub(crate) active_ms: u64,
    /// When it was answered last, by turn.
    pub(crate) answered_turn: u64,
    pub(crate) answers: u64,
    /// Of its latest answer.
    pub(crate) status: u16,
    pub(crate) received_bytes: u64,
    /// Received and not read yet.
    inbox: Vec<u8>,
    /// What is still to come of the answer under way.
    pieces: VecDeque<Piece>,
    in_body: bool,
    /// The turn in which its answer has to be whole, for that is in memory.
    pub(crate) promised_turn: Option<u64>,
}

impl Peer {
    pub(crate) fn new(client: Client, hot: bool, now_ms: u64) -> Self {
        Self {
            client,
            hot,
            crowd: false,
            asks: VecDeque::new(),
            unsent: VecDeque::new(),
            sent_bytes: 0,
            more: 0,
            piece_bytes: u64::MAX,
            gap_ms: 0,
            serial: true,
            room: None,
            slow: false,
            ended: false,
            reset: false,
            last_heard: false,
            closed: false,
            evicted: false,
            active_ms: now_ms,
            answered_turn: 0,
            answers: 0,
            status: 0,
            received_bytes: 0,
            inbox: Vec::new(),
            pieces: VecDeque::new(),
            in_body: false,
            promised_turn: None,
        }
    }

    /// Puts a request behind the others.
    pub(crate) fn push(&mut self, mut ask: Ask) {
        self.unsent.extend(&ask.bytes);
        ask.end_at = self.sent_bytes + self.unsent.len() as u64;
        self.asks.push_back(ask);
    }

    /// Sends the next piece; it arrives in `turn`.
    pub(crate) fn send(&mut self, now_ms: u64, turn: u64) {
        let bytes = self.piece_bytes.min(self.unsent.len() as u64);
        let piece: Vec<u8> = self.unsent.drain(..bytes as usize).collect();
        self.client.send(piece);
        self.sent_bytes += bytes;
        self.active_ms = now_ms;
        let mut begun = true;
        for ask in &mut self.asks {
            if begun && ask.first_ms == u64::MAX {
                ask.first_ms = now_ms;
            }
            begun = ask.end_at < self.sent_bytes;
            if ask.end_at <= self.sent_bytes && ask.whole_turn.is_none() {
                ask.whole_turn = Some(turn);
                ask.whole_ms = now_ms;
            }
        }
    }

    /// The request that is to be answered next, if any of it was sent.
    pub(crate) fn next_ask(&self) -> Option<&Ask> {
        self.asks.front().filter(|ask| ask.first_ms != u64::MAX)
    }

    /// Whether a part of an answer has come.
    pub(crate) fn has_part(&self) -> bool {
        self.in_body || !self.inbox.is_empty()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.asks.is_empty() && self.more == 0
    }

    /// Reads what has come and holds it against what may come.
    pub(crate) fn read(&mut self, facts: &Facts<'_>, turn: u64) -> Result<(), String> {
        let bytes = self.client.take_bytes();
        self.received_bytes += bytes.len() as u64;
        self.inbox.extend_from_slice(&bytes);
        let mut at = 0;
        loop {
            if self.in_body {
                at += take_body(&mut self.pieces, &self.inbox[at..])?;
                if !self.pieces.is_empty() {
                    break;
                }
                self.in_body = false;
                self.asks.pop_front();
                (self.active_ms, self.answered_turn) = (facts.now_ms, turn);
                self.answers += 1;
            }
            if at == self.inbox.len() {
                break;
            }
            let Some((head, head_bytes)) = parse_head(&self.inbox[at..]) else { break };
            at += head_bytes;
            let ask = self.asks.front().filter(|ask| ask.first_ms != u64::MAX && !self.last_heard);
            let Some(ask) = ask else { return Err(format!("nobody asked for this: {}", head.head)) };
            if head.status == 100 {
                continue;
            }
            let judged = facts.judge(ask, &head);
            self.pieces = judged.map_err(|why| format!("{why}\n{}to {}", head.head, wording(ask)))?;
            self.last_heard = head.closes();
            self.status = head.status;
            self.in_body = true;
        }
        self.inbox.drain(..at);
        Ok(())
    }
}

/// Takes bytes off the front that the pieces call for; gives how many.
fn take_body(pieces: &mut VecDeque<Piece>, bytes: &[u8]) -> Result<usize, String> {
    let mut taken = 0;
    while let Some(piece) = pieces.front_mut() {
        let rest = &bytes[taken..];
        let (n, wanted, left) = match piece {
            Piece::Text(text) => {
                let n = rest.len().min(text.len());
                let behind = text.split_off(n);
                let left = behind.len();
                (n, std::mem::replace(text, behind), left)
            }
            Piece::File(content, at, end) => {
                let n = rest.len().min((*end - *at) as usize);
                let wanted = content.slice(*at, *at + n as u64);
                *at += n as u64;
                (n, wanted, (*end - *at) as usize)
            }
            Piece::Page(status, left, page) => {
                let n = rest.len().min(*left);
                *left -= n;
                page.extend_from_slice(&rest[..n]);
                if *left == 0 && !String::from_utf8_lossy(page).contains(&status.to_string()) {
                    return Err(format!("a page that is not of a {status}: {}", page.escape_ascii()));
                }
                (n, rest[..n].to_vec(), *left)
            }
        };
        if rest[..n] != wanted[..] {
            let at = rest.iter().zip(&wanted).position(|(a, b)| a != b);
            return Err(format!("other bytes than those of the head's version, from {at:?} of {n} on"));
        }
        taken += n;
        if left > 0 {
            break;
        }
        pieces.pop_front();
    }
    Ok(taken)
}

fn wording(ask: &Ask) -> String {
    ask.bytes[..ask.bytes.len().min(400)].escape_ascii().to_string()
}
