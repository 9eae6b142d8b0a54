//! A client of a world with routes: it sends requests, and checks that each answer is the one that an application made
//! for its request, or an error of Flash that has a reason.

use std::collections::VecDeque;
use std::io::Write;

use flate2::write::GzDecoder;

use super::framing::{Dechunker, byte_of};
use super::judge::Judge;
use super::lanes::{Lane, LaneEnd};
use super::ledger::{GATHERED_BYTES, Ledger, require};
use crate::machine::Client;
use crate::machine::response::{Response, parse_head};

/// The framing of an answer's body.
#[derive(Debug)]
enum Rest {
    Length(usize),
    Chunked(Dechunker),
    UntilClose,
}

/// An answer whose head has come.
#[derive(Debug)]
struct Answer {
    /// The attempt that made it; None for a page of Flash.
    attempt: Option<usize>,
    rest: Rest,
    /// Decompresses the body, if it is compressed.
    gunzip: Option<GzDecoder<Vec<u8>>>,
    got_bytes: usize,
}

/// A request that was not answered yet.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) ask: usize,
    /// Where it begins and ends, counted in all bytes of its client.
    pub(super) begin: usize,
    pub(super) end: usize,
}

/// A client.
pub(super) struct Visitor {
    pub(super) client: Client,
    /// Its stream, if it shares the connection with others.
    pub(super) lane: Option<Lane>,
    /// It has the address of the crowd.
    pub(super) is_of_crowd: bool,
    pub(super) pending: VecDeque<Pending>,
    pub(super) unsent: VecDeque<u8>,
    pub(super) sent_bytes: usize,
    pub(super) sent_ms: u64,
    /// It sends this many bytes at once, with this pause.
    pub(super) piece_bytes: usize,
    pub(super) gap_ms: u64,
    /// It stops sending when this many bytes remain.
    pub(super) stalls_at: Option<usize>,
    /// It reads this many bytes at each look; None reads everything as it comes.
    pub(super) reads_bytes: Option<usize>,
    /// It leaves at this time, if it does.
    pub(super) leaves_ms: u64,
    pub(super) ended: bool,
    /// It is gone, or the server has closed the connection.
    pub(super) is_over: bool,
    /// When the server could begin with the first pending request.
    pub(super) front_ms: u64,
    answer: Option<Answer>,
    inbox: Vec<u8>,
    /// The latest answer announced the end of the connection.
    is_last: bool,
    /// The attempt that made the latest answer.
    pub(super) latest: Option<usize>,
    pub(super) answers: u64,
    /// Requests that an application answered completely.
    pub(super) satisfied: u64,
    heard_ms: u64,
}

impl Visitor {
    pub(super) fn new(client: Client, now_ms: u64) -> Self {
        Self {
            client,
            lane: None,
            is_of_crowd: false,
            pending: VecDeque::new(),
            unsent: VecDeque::new(),
            sent_bytes: 0,
            sent_ms: now_ms,
            piece_bytes: usize::MAX,
            gap_ms: 0,
            stalls_at: None,
            reads_bytes: None,
            leaves_ms: u64::MAX,
            ended: false,
            is_over: false,
            front_ms: now_ms,
            answer: None,
            inbox: Vec::new(),
            is_last: false,
            latest: None,
            answers: 0,
            satisfied: 0,
            heard_ms: now_ms,
        }
    }

    /// Adds a request.
    pub(super) fn push(&mut self, ask: usize, bytes: &[u8]) {
        let begin = self.sent_bytes + self.unsent.len();
        self.unsent.extend(bytes);
        self.pending.push_back(Pending { ask, begin, end: begin + bytes.len() });
    }

    /// Whether the server knows of the first pending request.
    pub(super) fn waits(&self) -> Option<&Pending> {
        self.pending.front().filter(|pending| !self.is_over && self.sent_bytes > pending.begin)
    }

    /// The requests that the server knows of, also if it does not know yet that the client is gone.
    pub(super) fn begun(&self) -> impl Iterator<Item = &Pending> {
        let is_open = !self.client.is_closed();
        self.pending.iter().filter(move |pending| is_open && self.sent_bytes > pending.begin)
    }

    /// Whether the first pending request was sent completely.
    pub(super) fn has_sent_all(&self) -> bool {
        self.pending.front().is_some_and(|pending| self.sent_bytes >= pending.end)
    }

    /// When something last happened to the first pending request on this side.
    pub(super) fn active_ms(&self) -> u64 {
        self.front_ms.max(self.sent_ms).max(self.heard_ms)
    }

    pub(super) fn send(&mut self, ledger: &mut Ledger, now_ms: u64) {
        let left = self.unsent.len().saturating_sub(self.stalls_at.unwrap_or(0));
        let count = left.min(self.piece_bytes);
        if self.is_over || self.ended || count == 0 || now_ms < self.sent_ms + self.gap_ms {
            return;
        }
        let waited = self.waits().is_some();
        let piece: Vec<u8> = self.unsent.drain(..count).collect();
        match &self.lane {
            Some(lane) => self.client.send(lane.frames(&piece)),
            None => self.client.send(piece),
        }
        self.sent_bytes += count;
        self.sent_ms = now_ms;
        if !waited {
            self.note_front(ledger, now_ms);
        }
    }

    fn note_front(&mut self, ledger: &mut Ledger, now_ms: u64) {
        if let Some(ask) = self.waits().map(|pending| pending.ask) {
            self.front_ms = now_ms;
            ledger.asks[ask].begun_ms = Some(now_ms);
        }
    }

    pub(super) fn leave(&mut self, resets: bool) {
        if resets {
            self.client.reset();
            self.is_over = true;
        } else {
            self.client.end();
            self.ended = true;
        }
    }

    /// Reads and checks what has come.
    pub(super) fn read(&mut self, ledger: &mut Ledger, judge: &Judge) {
        if self.is_over {
            return;
        }
        let (bytes, end) = match &self.lane {
            Some(lane) => lane.take(&self.client),
            None => (self.client.take_bytes(), None),
        };
        if !bytes.is_empty() {
            self.heard_ms = judge.now_ms;
        }
        self.inbox.extend_from_slice(&bytes);
        while self.read_head(ledger, judge) || self.read_body(ledger, judge) {}
        if end == Some(LaneEnd::Whole) && self.pending.is_empty() {
            self.is_over = true;
        } else if end.is_some() || self.client.is_ended() {
            self.hear_end(ledger, judge, end == Some(LaneEnd::Aborted));
        }
    }

    fn read_head(&mut self, ledger: &Ledger, judge: &Judge) -> bool {
        if self.answer.is_some() || self.inbox.is_empty() {
            return false;
        }
        let Some((head, head_bytes)) = parse_head(&self.inbox) else { return false };
        self.inbox.drain(..head_bytes);
        let waits = self.waits().is_some() && !self.is_last;
        require(waits, "answers", || format!("an answer without a request: {}", head.head));
        if head.status == 100 {
            return true;
        }
        let attempt = head.field("X-Attempt").map(|number| number.parse::<usize>().expect("a number"));
        let ask = self.pending[0].ask;
        match attempt {
            Some(number) => {
                let made = ledger.attempts.get(number).filter(|made| made.ask == ask);
                require(made.is_some_and(|made| made.status == head.status), "answers", || {
                    format!("request {ask} got the answer of attempt {number}, {made:?}")
                });
            }
            None => judge.judge_page(ledger, self, &head),
        }
        self.is_last = head.closes();
        let has_body = !ledger.asks[ask].is_head && head.status != 204;
        let is_coded = has_body && head.field("Content-Encoding") == Some("gzip");
        let gunzip = is_coded.then(|| GzDecoder::new(Vec::new()));
        self.answer = Some(Answer { attempt, rest: framing(&head, has_body), gunzip, got_bytes: 0 });
        self.latest = attempt;
        true
    }

    /// Takes bytes of the body. Returns whether the answer has ended.
    fn read_body(&mut self, ledger: &mut Ledger, judge: &Judge) -> bool {
        let Some(answer) = &mut self.answer else { return false };
        let mut data = Vec::new();
        let is_complete = match &mut answer.rest {
            Rest::Length(left) => {
                let count = self.inbox.len().min(*left);
                data.extend(self.inbox.drain(..count));
                *left -= count;
                *left == 0
            }
            Rest::Chunked(chunks) => {
                let taken = chunks.take(&self.inbox, &mut data);
                let count = taken.unwrap_or_else(|why| panic!("property: relay answers: {why}"));
                self.inbox.drain(..count);
                chunks.is_done()
            }
            Rest::UntilClose => {
                data = std::mem::take(&mut self.inbox);
                false
            }
        };
        if let Some(gunzip) = &mut answer.gunzip {
            let written = gunzip.write_all(&data).and_then(|()| gunzip.flush());
            let ended = if is_complete { gunzip.try_finish() } else { Ok(()) };
            require(written.is_ok() && ended.is_ok(), "answers", || {
                format!("the stream of {:?} is malformed: {written:?}, {ended:?}", answer.attempt)
            });
            data = std::mem::take(gunzip.get_mut());
        }
        let from = answer.got_bytes;
        answer.got_bytes += data.len();
        if let Some(number) = answer.attempt {
            let wrong = data.iter().enumerate().find(|(at, byte)| **byte != byte_of(number, from + at));
            let length = ledger.attempts[number].length;
            require(wrong.is_none() && answer.got_bytes <= length, "answers", || {
                format!("{} bytes of {length} of attempt {number}, wrong from {wrong:?} on", answer.got_bytes)
            });
        }
        if is_complete {
            self.complete(ledger, judge);
        }
        is_complete
    }

    /// The answer is complete, as far as the client can tell.
    fn complete(&mut self, ledger: &mut Ledger, judge: &Judge) {
        let (Some(answer), Some(pending)) = (self.answer.take(), self.pending.pop_front()) else { return };
        if let Some(number) = answer.attempt {
            let made = &ledger.attempts[number];
            // The length says where the answer ends, also if the application fails directly after that.
            // A compressed answer does not show the length that the application has told.
            let is_told = matches!(answer.rest, Rest::Length(_)) || answer.gunzip.is_some() || made.is_whole;
            require(is_told && answer.got_bytes == made.length, "answers", || {
                format!("{} bytes seem to be all of {made:?}", answer.got_bytes)
            });
            self.satisfied += 1;
            judge.satisfied(pending.ask);
        }
        self.answers += 1;
        // The server could begin with the next request before this client had read everything.
        self.note_front(ledger, judge.looked_ms);
    }

    /// The server has closed the connection, or ended the stream.
    fn hear_end(&mut self, ledger: &mut Ledger, judge: &Judge, was_aborted: bool) {
        let was_reset = self.client.wire().was_reset || was_aborted;
        if let Some(Answer { rest: Rest::UntilClose, .. }) = &self.answer
            && !was_reset
        {
            self.complete(ledger, judge);
        }
        if self.lane.is_some() && self.pending.is_empty() {
            self.is_over = true;
            return;
        }
        // A helper can fail to read what was gathered, or be too late.
        let has_lost = |ask: usize| {
            !judge.is_disk_fast || ledger.troubles[ledger.asks[ask].upstream].disk_ms >= self.front_ms
        };
        let is_cut_short = self.latest.is_some_and(|number| {
            let made = &ledger.attempts[number];
            judge.may_break(ledger, made) || made.length > GATHERED_BYTES / 2 && has_lost(made.ask)
        });
        let waits = self.waits().map(|pending| pending.ask);
        let may = match (&self.answer, waits) {
            (Some(_), Some(ask)) => {
                // One that has closed its sending side may be taken for gone when the server is slow.
                let is_late = self.ended || (!self.has_sent_all() && judge.is_body_late(self));
                is_cut_short || is_late || ledger.asks[ask].refusal.is_some()
            }
            _ if self.is_last || self.ended || is_cut_short => true,
            (None, Some(_)) => false,
            _ => judge.now_ms + judge.blind_ms >= self.active_ms() + judge.idle_ms,
        };
        require(may, "cuts", || {
            format!(
                "closed at request {waits:?}, answer {:?}, {:?}",
                self.answer,
                waits.map(|ask| ledger.latest(ask))
            )
        });
        self.is_over = true;
        if !self.client.is_closed() && self.lane.is_none() {
            self.client.reset();
        }
    }
}

fn framing(head: &Response, has_body: bool) -> Rest {
    if !has_body {
        return Rest::Length(0);
    }
    if head.field("Transfer-Encoding") == Some("chunked") {
        return Rest::Chunked(Dechunker::default());
    }
    head.length().map_or(Rest::UntilClose, Rest::Length)
}
