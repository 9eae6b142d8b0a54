//! An application of the simulation on one connection: it reads requests, checks that each is exactly what a client has
//! sent, and plays its answers.

use flash_engine::{ServerId, UpstreamProtocol};

use super::framing::{Dechunker, PARAMS, STDIN, byte_of, param, take_record};
use super::ledger::{Attempt, GRANTED, Ledger, require};
use super::script::{self, Manners, Script, Step};
use crate::machine::Client;
use crate::machine::records::Seal;
use crate::rng::Rng;

/// The framing of a request body.
#[derive(Debug)]
enum Rest {
    Length(usize),
    Chunked(Dechunker),
    /// FastCGI records.
    Records,
}

/// The request on a connection.
#[derive(Debug)]
struct Incoming {
    attempt: usize,
    ask: usize,
    rest: Rest,
    got_bytes: usize,
    is_complete: bool,
    /// The answer, once it was begun.
    script: Option<Script>,
    is_early: bool,
}

/// A connection of an application.
pub(super) struct Application {
    pub(super) end: Client,
    pub(super) server: ServerId,
    protocol: UpstreamProtocol,
    manners: Manners,
    inbox: Vec<u8>,
    params: Vec<u8>,
    incoming: Option<Incoming>,
    /// Reads this many bytes at each look; None reads everything as it comes.
    reads_bytes: Option<usize>,
    next_ms: u64,
    /// It says nothing, and so completes no handshake.
    is_mute: bool,
    /// It has closed its side.
    pub(super) is_over: bool,
    /// Requests that were answered completely on this connection.
    pub(super) answered: Vec<usize>,
    /// The latest of them, until the next look.
    recent: Option<usize>,
    /// When it was first seen without a request.
    pub(super) idle_since_ms: Option<u64>,
}

/// An application that reads little has room for every head.
const HEAD_ROOM_BYTES: usize = 3_000;

impl Application {
    pub(super) fn new(
        rng: &mut Rng,
        end: Client,
        server: ServerId,
        protocol: UpstreamProtocol,
        manners: Manners,
    ) -> Self {
        let is_stingy = rng.chance(manners.stingy);
        let reads_bytes = is_stingy.then(|| rng.pick(&[0, 100, 5_000, 40_000]));
        if is_stingy {
            end.set_room(HEAD_ROOM_BYTES);
        }
        Self {
            end,
            server,
            protocol,
            manners,
            inbox: Vec::new(),
            params: Vec::new(),
            incoming: None,
            reads_bytes,
            next_ms: 0,
            is_mute: false,
            is_over: false,
            answered: Vec::new(),
            recent: None,
            idle_since_ms: None,
        }
    }

    /// One that says nothing, on a connection that the engine encrypts.
    pub(super) fn mute(self) -> Self {
        Self { is_mute: true, ..self }
    }

    pub(super) fn is_mute(&self) -> bool {
        self.is_mute
    }

    /// Whether requests can come: the connection is in clear text, or its handshake is complete.
    fn is_ready(&self) -> bool {
        !self.is_mute && self.end.wire().encrypted().is_none_or(Seal::is_established)
    }

    /// The request under way, or that was answered since the last look.
    pub(super) fn ask(&self) -> Option<usize> {
        self.incoming.as_ref().map(|incoming| incoming.ask).or(self.recent)
    }

    /// The request whose answer it has not completed.
    pub(super) fn under_way(&self, ledger: &Ledger) -> Option<usize> {
        let attempt = |incoming: &&Incoming| &ledger.attempts[incoming.attempt];
        let is_under_way = |attempt: &Attempt| !attempt.is_whole && !attempt.is_faulty;
        let incoming = self.incoming.as_ref().filter(|incoming| is_under_way(attempt(incoming)))?;
        Some(incoming.ask)
    }

    /// The request of which it lacks a part, although it reads everything.
    pub(super) fn lacks(&self) -> Option<usize> {
        let reads = !self.is_over && self.reads_bytes.is_none();
        self.incoming.as_ref().filter(|incoming| reads && !incoming.is_complete).map(|incoming| incoming.ask)
    }

    /// Whether it has a part of a record, and reads the rest later: it does not know of the request in it.
    pub(super) fn lacks_record(&self) -> bool {
        self.end.wire().encrypted().is_some_and(Seal::is_cut)
    }

    /// Whether no request is under way, as far as it knows.
    pub(super) fn is_idle(&self) -> bool {
        let lacks_request = self.incoming.is_none() && self.inbox.is_empty() && self.params.is_empty();
        lacks_request && !self.lacks_record() && self.is_ready()
    }

    /// It reads everything from now on.
    pub(super) fn mend(&mut self) {
        self.reads_bytes = None;
        self.manners = Manners::GOOD;
        self.end.set_room(usize::MAX);
    }

    /// Reads what has come, between these times.
    pub(super) fn read(&mut self, rng: &mut Rng, ledger: &mut Ledger, (from_ms, now_ms): (u64, u64)) {
        self.recent = None;
        let bytes = self.end.take_bytes();
        if let (Some(room), false) = (self.reads_bytes, self.end.is_closed()) {
            self.end.add_room(room);
        }
        if bytes.is_empty() || self.is_mute {
            return;
        }
        self.inbox.extend_from_slice(&bytes);
        // An early answer can be over before its request: then the next request follows directly.
        for _ in 0..2 {
            self.finish(ledger);
            if self.incoming.is_none() {
                self.begin(rng, ledger, from_ms);
            }
            self.read_body(ledger, now_ms);
        }
        let follows =
            self.incoming.as_ref().filter(|incoming| incoming.is_complete && !self.inbox.is_empty());
        require(follows.is_none(), "requests", || {
            format!("{} follows the request {:?}", self.inbox.escape_ascii(), self.ask())
        });
    }

    /// Reads the head of a request.
    fn begin(&mut self, rng: &mut Rng, ledger: &mut Ledger, now_ms: u64) {
        let head = match self.protocol {
            UpstreamProtocol::Http => self.http_head(),
            UpstreamProtocol::FastCgi => self.fastcgi_head(),
        };
        let Some((ask, rest, granted)) = head else { return };
        ledger.check_granted(ask, &granted);
        let attempt = ledger.begin(ask, !self.answered.is_empty(), now_ms);
        // The end of a used connection meets the request, which the application has not read.
        if !self.answered.is_empty() && !self.is_over && rng.chance(self.manners.closes_idle) {
            self.close(rng.chance(50), ledger, now_ms);
        }
        if self.is_over {
            ledger.attempts[attempt].is_faulty = true;
        }
        let is_early = rng.chance(self.manners.early);
        let is_complete = matches!(rest, Rest::Length(0));
        self.incoming =
            Some(Incoming { attempt, ask, rest, got_bytes: 0, is_complete, script: None, is_early });
    }

    /// The request, the framing of its body, and the values of the field that only a server may give.
    fn http_head(&mut self) -> Option<(usize, Rest, Vec<String>)> {
        let end = self.inbox.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
        let head = String::from_utf8_lossy(&self.inbox[..end]).into_owned();
        self.inbox.drain(..end);
        let ask = number_in(&head);
        require(ask.is_some() && head.contains(" HTTP/1.1\r\n"), "requests", || {
            format!("an application got {head:?}")
        });
        let field = |name: &str| head.split("\r\n").find_map(|line| line.strip_prefix(name));
        let rest = match (field("Content-Length: "), field("Transfer-Encoding: chunked")) {
            (Some(length), _) => Rest::Length(length.parse().expect("a length")),
            (None, Some(_)) => Rest::Chunked(Dechunker::default()),
            (None, None) => Rest::Length(0),
        };
        let granted = head.split("\r\n").filter_map(|line| line.strip_prefix(GRANTED)?.strip_prefix(": "));
        Some((ask?, rest, granted.map(str::to_owned).collect()))
    }

    fn fastcgi_head(&mut self) -> Option<(usize, Rest, Vec<String>)> {
        while let Some((kind, content)) = take_record(&mut self.inbox) {
            if kind != PARAMS {
                continue;
            }
            self.params.extend_from_slice(&content);
            if content.is_empty() {
                let params = std::mem::take(&mut self.params);
                let ask = param(&params, "REQUEST_URI").and_then(|uri| number_in(&uri));
                require(ask.is_some(), "requests", || {
                    format!("an application got {}", params.escape_ascii())
                });
                return Some((ask?, Rest::Records, param(&params, "HTTP_X_GRANTED").into_iter().collect()));
            }
        }
        None
    }

    fn read_body(&mut self, ledger: &mut Ledger, now_ms: u64) {
        let Some(incoming) = &mut self.incoming else { return };
        let mut data = Vec::new();
        let mut inbox = std::mem::take(&mut self.inbox);
        let was_complete = incoming.is_complete;
        match &mut incoming.rest {
            _ if was_complete => {}
            Rest::Length(left) => {
                let count = inbox.len().min(*left);
                data.extend(inbox.drain(..count));
                *left -= count;
                incoming.is_complete = *left == 0;
            }
            Rest::Chunked(chunks) => {
                let taken = chunks.take(&inbox, &mut data);
                let count = taken.unwrap_or_else(|why| panic!("property: relay requests: {why}"));
                inbox.drain(..count);
                incoming.is_complete = chunks.is_done();
            }
            Rest::Records => {
                while !incoming.is_complete
                    && let Some((kind, content)) = take_record(&mut inbox)
                {
                    require(kind == STDIN, "requests", || format!("a record of type {kind} within a body"));
                    incoming.is_complete = content.is_empty();
                    data.extend(content);
                }
            }
        }
        ledger.attempts[incoming.attempt].active_ms = now_ms;
        let (from, ask) = (incoming.got_bytes, incoming.ask);
        let wrong = data.iter().enumerate().find(|(at, byte)| **byte != byte_of(ask, from + at));
        require(wrong.is_none(), "bodies", || {
            format!("byte {} of the body of request {ask} is another's", from + wrong.map_or(0, |w| w.0))
        });
        incoming.got_bytes += data.len();
        let (got, asked) = (incoming.got_bytes, &ledger.asks[ask]);
        require(got <= asked.body_bytes, "bodies", || format!("{got} bytes of {}", asked.body_bytes));
        let is_right = !incoming.is_complete || (got == asked.body_bytes && !asked.is_malformed);
        require(is_right, "bodies", || {
            format!("the body of request {ask} ends after {got} of {} bytes", asked.body_bytes)
        });
        self.inbox = inbox;
    }

    /// Plays the steps of the answer whose time has come, or closes an idle connection.
    pub(super) fn act(&mut self, rng: &mut Rng, ledger: &mut Ledger, now_ms: u64) {
        if self.is_over {
            return;
        }
        if self.is_idle() {
            if rng.chance(self.manners.closes_idle) {
                self.close(rng.chance(50), ledger, now_ms);
            } else if !self.answered.is_empty() && self.end.is_received() && rng.chance(self.manners.strays) {
                self.end.send(script::STRAY);
            }
            return;
        }
        let Some(incoming) = &mut self.incoming else { return };
        if incoming.script.is_none() && (incoming.is_complete || incoming.is_early) {
            let is_head = ledger.asks[incoming.ask].is_head;
            let is_encrypted = self.end.wire().encrypted().is_some();
            let attempt = &mut ledger.attempts[incoming.attempt];
            let script = script::write(
                rng,
                self.protocol,
                self.manners,
                (incoming.attempt, is_head, is_encrypted),
                attempt,
            );
            self.next_ms = now_ms + script.front().map_or(0, |(pause_ms, _)| *pause_ms);
            incoming.script = Some(script);
        }
        self.play(ledger, now_ms);
        self.finish(ledger);
    }

    /// Forgets a request that was answered: the next one can follow.
    fn finish(&mut self, ledger: &Ledger) {
        let is_done = self.incoming.as_ref().is_some_and(|incoming| {
            let is_played = self.is_over || incoming.script.as_ref().is_some_and(Script::is_empty);
            is_played && incoming.is_complete && ledger.attempts[incoming.attempt].is_whole
        });
        if is_done && let Some(incoming) = self.incoming.take() {
            self.answered.push(incoming.ask);
            self.recent = Some(incoming.ask);
        }
    }

    fn play(&mut self, ledger: &mut Ledger, now_ms: u64) {
        while let Some(incoming) = &mut self.incoming
            && let Some(script) = &mut incoming.script
            && !self.is_over
            && self.next_ms <= now_ms
            && let Some((_, step)) = script.pop_front()
        {
            self.next_ms = now_ms + script.front().map_or(0, |(pause_ms, _)| *pause_ms);
            let attempt = &mut ledger.attempts[incoming.attempt];
            match step {
                Step::Send(bytes) => {
                    (attempt.said_ms, attempt.active_ms) = (now_ms, now_ms);
                    attempt.has_spoken = true;
                    self.end.send(bytes);
                }
                Step::Whole => attempt.is_whole = true,
                Step::Mistake => attempt.is_faulty = true,
                Step::End => self.close(false, ledger, now_ms),
                Step::Cut => {
                    self.is_over = true;
                    ledger.troubles[usize::from(self.server.upstream.0)].broken_ms = now_ms;
                    self.end.cut();
                }
                Step::Reset => self.close(true, ledger, now_ms),
            }
        }
    }

    fn close(&mut self, resets: bool, ledger: &mut Ledger, now_ms: u64) {
        // The next request can be on its way.
        ledger.troubles[usize::from(self.server.upstream.0)].broken_ms = now_ms;
        self.is_over = true;
        if resets { self.end.reset() } else { self.end.end() }
    }
}

/// The number of the request in a path of the form `/x/NUMBER.php` or `/x/NUMBER`.
pub(super) fn number_in(text: &str) -> Option<usize> {
    let (_, name) = text.split_once("/n")?;
    let digits: String = name.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}
