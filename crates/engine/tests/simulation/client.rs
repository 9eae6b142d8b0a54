//! A client of the simulation: the requests that it still has to send, and a check of everything that it
//! receives.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use crate::ask::Ask;
use crate::h2::H2Peer;
use crate::machine::Client;
use crate::machine::h2::Heard;
use crate::machine::response::parse_head;
use crate::oracle::{Facts, Piece};

/// The parts of an answer on a stream.
const HEAD: u8 = 1;
const DATA: u8 = 2;
const END: u8 = 3;
const ABORT: u8 = 4;
/// Maximum number of bytes in a frame.
pub(crate) const FRAME_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of requests of one connection that the server answers at the same time.
pub(crate) const STREAMS_MAX: usize = 8;

/// The code of a connection of HTTP/2 that ends because its settings are not acknowledged.
const SETTINGS_TIMEOUT: u32 = 4;

/// One client and its connection.
pub(crate) struct Peer {
    pub(crate) client: Client,
    pub(crate) address: IpAddr,
    /// Requests only files in memory, one at a time, and must be answered at once.
    pub(crate) hot: bool,
    /// One of many clients that came at once.
    pub(crate) crowd: bool,
    /// The state of HTTP/2, if it speaks it: its requests are answered concurrently and in any order.
    pub(crate) h2: Option<Box<H2Peer>>,
    /// Requests without a complete answer, in order.
    pub(crate) asks: VecDeque<Ask>,
    /// The bytes of these requests that are still to be sent.
    pub(crate) unsent: VecDeque<u8>,
    pub(crate) sent_bytes: u64,
    /// How many requests it will still make.
    pub(crate) more: u64,
    /// Maximum number of bytes that it sends at once. Between two sends it waits.
    pub(crate) piece_bytes: u64,
    pub(crate) gap_ms: u64,
    /// Sends each request only after the previous answer.
    pub(crate) serial: bool,
    /// Reads this many bytes at once; None reads everything as it comes.
    pub(crate) room: Option<u64>,
    /// Whether the server ever had to wait for this client to read.
    pub(crate) slow: bool,
    /// Since when the server has more for it than there is room, and no byte has come.
    pub(crate) stuck_since_ms: Option<u64>,
    pub(crate) ended: bool,
    /// Whether its requests may be dropped, because it seems to have gone away while many wait.
    pub(crate) is_left: bool,
    pub(crate) reset: bool,
    /// Whether the server announced the end of the connection.
    pub(crate) last_heard: bool,
    pub(crate) closed: bool,
    /// Whether it was closed to make room for another connection.
    pub(crate) evicted: bool,
    /// When it connected.
    pub(crate) came_ms: u64,
    /// When it last sent something or got an answer.
    pub(crate) active_ms: u64,
    /// When it last got an answer.
    pub(crate) answered_ms: u64,
    /// The turn in which it last got an answer.
    pub(crate) answered_turn: u64,
    pub(crate) answers: u64,
    /// The status of its latest answer.
    pub(crate) status: u16,
    pub(crate) received_bytes: u64,
    /// All bytes that came, encrypted or not, at the last check.
    pub(crate) wire_bytes: u64,
    /// Bytes received and not parsed yet.
    inbox: Vec<u8>,
    /// The expected rest of the current answer.
    pieces: VecDeque<Piece>,
    in_body: bool,
    /// The expected rest of each answer whose head has come, by stream.
    lanes: BTreeMap<u16, VecDeque<Piece>>,
    asked: u16,
    /// Bytes of files received since the last check, by the targets of their requests.
    pub(crate) file_bytes: Vec<(usize, u64)>,
    /// Targets of requests that were answered completely since the last check.
    pub(crate) finished: Vec<usize>,
    /// Sends everything as [`Peer::send_burst`] does.
    pub(crate) bursts: bool,
    /// The turn by which its answer must be complete, because it is in memory.
    pub(crate) promised_turn: Option<u64>,
    /// The time until which it may wait all the same: a moment if only a helper can confirm the entry.
    pub(crate) promised_ms: Option<u64>,
    /// The turns that its answer takes once it has waited.
    pub(crate) promised_turns: u64,
}

impl Peer {
    pub(crate) fn new((client, address): (Client, IpAddr), hot: bool, now_ms: u64) -> Self {
        Self {
            client,
            address,
            hot,
            crowd: false,
            h2: None,
            asks: VecDeque::new(),
            unsent: VecDeque::new(),
            sent_bytes: 0,
            more: 0,
            piece_bytes: u64::MAX,
            gap_ms: 0,
            serial: true,
            room: None,
            slow: false,
            stuck_since_ms: None,
            ended: false,
            is_left: false,
            reset: false,
            last_heard: false,
            closed: false,
            evicted: false,
            came_ms: now_ms,
            active_ms: now_ms,
            answered_ms: now_ms,
            answered_turn: 0,
            answers: 0,
            status: 0,
            received_bytes: 0,
            wire_bytes: 0,
            inbox: Vec::new(),
            pieces: VecDeque::new(),
            in_body: false,
            lanes: BTreeMap::new(),
            asked: 0,
            file_bytes: Vec::new(),
            finished: Vec::new(),
            bursts: false,
            promised_turn: None,
            promised_ms: None,
            promised_turns: 0,
        }
    }

    /// Appends a request.
    pub(crate) fn push(&mut self, mut ask: Ask) {
        if let Some(h2) = &mut self.h2 {
            self.asked += 1;
            ask.stream = self.asked;
            self.unsent.extend(h2.open(&ask));
        } else {
            self.unsent.extend(&ask.bytes);
        }
        ask.end_at = if ask.hoards { u64::MAX } else { self.sent_bytes + self.unsent.len() as u64 };
        self.asks.push_back(ask);
    }

    /// Sends the next piece, which arrives in `turn`.
    pub(crate) fn send(&mut self, now_ms: u64, turn: u64) {
        let bytes = self.piece_bytes.min(self.unsent.len() as u64);
        let piece: Vec<u8> = self.unsent.drain(..bytes as usize).collect();
        self.client.send(piece);
        self.note_sent(bytes, now_ms, turn);
    }

    /// Sends every request as a piece that arrives when the previous one was received, and then closes its
    /// side: the server knows of the end from the start.
    pub(crate) fn send_burst(&mut self, now_ms: u64, turn: u64) {
        let pieces: Vec<Vec<u8>> = self.asks.iter().map(|ask| ask.bytes.clone()).collect();
        let bytes = std::mem::take(&mut self.unsent).len() as u64;
        self.client.wire().ends_early = true;
        self.client.send_pieces(pieces);
        self.client.end();
        self.ended = true;
        self.note_sent(bytes, now_ms, turn);
    }

    fn note_sent(&mut self, bytes: u64, now_ms: u64, turn: u64) {
        self.sent_bytes += bytes;
        // A frame that only answers one of the server keeps no connection open.
        if self.h2.is_none() || self.asks.iter().any(|ask| ask.whole_turn.is_none()) {
            self.active_ms = now_ms;
        }
        // Some records arrive in two pieces, one a turn. A request in small records then arrives long after it was sent.
        let arrives_at_once = self.client.wire().encrypted().is_none();
        let mut begun = true;
        for ask in &mut self.asks {
            if begun && ask.first_ms == u64::MAX {
                ask.first_ms = now_ms;
            }
            begun = ask.end_at < self.sent_bytes;
            if ask.end_at <= self.sent_bytes && ask.whole_turn.is_none() {
                ask.whole_turn = Some(turn);
                ask.whole_ms = if arrives_at_once { now_ms } else { u64::MAX };
            }
        }
    }

    /// The request that must be answered next, if any of it was sent.
    pub(crate) fn next_ask(&self) -> Option<&Ask> {
        self.asks.front().filter(|ask| ask.first_ms != u64::MAX)
    }

    /// Whether a part of an answer has come.
    pub(crate) fn has_part(&self) -> bool {
        self.in_body || !self.inbox.is_empty() || !self.lanes.is_empty()
    }

    /// Whether a part of the answer to this request has come.
    pub(crate) fn has_part_of(&self, ask: &Ask) -> bool {
        if self.h2.is_some() { self.lanes.contains_key(&ask.stream) } else { self.has_part() }
    }

    /// The positions in files that the client has reached: the target of the request, and the next byte.
    pub(crate) fn places_in_files(&self) -> impl Iterator<Item = (usize, u64)> {
        let of_streams = self.asks.iter().filter_map(|ask| Some((ask.target?, self.lanes.get(&ask.stream)?)));
        let in_order = self.asks.front().filter(|_| self.in_body).and_then(|ask| ask.target);
        of_streams.chain(in_order.map(|target| (target, &self.pieces))).filter_map(|(target, pieces)| {
            pieces.iter().find_map(|piece| match piece {
                Piece::File(_, at, _) => Some((target, *at)),
                _ => None,
            })
        })
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.asks.is_empty() && self.more == 0
    }

    /// Parses the received bytes and compares them with the allowed answers.
    pub(crate) fn read(&mut self, facts: &Facts<'_>, turn: u64) -> Result<(), String> {
        let bytes = self.client.take_bytes();
        self.received_bytes += bytes.len() as u64;
        self.inbox.extend_from_slice(&bytes);
        if self.h2.is_some() {
            return self.read_h2(&facts.of_streams(), turn);
        }
        let mut at = 0;
        loop {
            if self.in_body {
                let taken = take_body(&mut self.pieces, &self.inbox[at..])?;
                let target = self.asks.front().and_then(|ask| ask.target);
                self.file_bytes.extend(target.map(|target| (target, taken.of_files)));
                at += taken.all;
                if !self.pieces.is_empty() {
                    break;
                }
                self.in_body = false;
                let ask = self.asks.pop_front();
                self.note_answered(ask, facts.now_ms, turn);
            }
            if at == self.inbox.len() {
                break;
            }
            let Some((head, head_bytes)) = parse_head(&self.inbox[at..]) else { break };
            at += head_bytes;
            let ask = self.asks.front().filter(|ask| ask.first_ms != u64::MAX && !self.last_heard);
            let Some(ask) = ask else { return Err(format!("an answer without a request: {}", head.head)) };
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

impl Peer {
    fn note_answered(&mut self, ask: Option<Ask>, now_ms: u64, turn: u64) {
        self.finished.extend(ask.and_then(|ask| ask.target));
        (self.active_ms, self.answered_ms, self.answered_turn) = (now_ms, now_ms, turn);
        self.answers += 1;
    }

    /// Parses the received frames of HTTP/2.
    fn read_h2(&mut self, facts: &Facts<'_>, turn: u64) -> Result<(), String> {
        let Some(mut h2) = self.h2.take() else { return Ok(()) };
        let inbox = std::mem::take(&mut self.inbox);
        let heard = h2.codec.read(&inbox)?;
        for heard in heard {
            let read = match &heard {
                Heard::Head(stream, _) if !h2.is_asked(*stream) => Ok(()),
                Heard::Data(stream, _) | Heard::End(stream) | Heard::Reset(stream, _)
                    if !h2.is_asked(*stream) =>
                {
                    Ok(())
                }
                Heard::Head(stream, head) => {
                    h2.check_pongs(*stream)?;
                    self.read_frame(facts, turn, (h2.number(*stream), HEAD, head.as_bytes()))
                }
                Heard::Data(stream, data) => self.read_frame(facts, turn, (h2.number(*stream), DATA, data)),
                Heard::End(stream) => self.read_frame(facts, turn, (h2.number(*stream), END, &[])),
                // The end of a stream whose request was not needed whole.
                Heard::Reset(_, 0) => Ok(()),
                Heard::Reset(stream, _) => self.read_frame(facts, turn, (h2.number(*stream), ABORT, &[])),
                Heard::Pong(data) => h2.take_pong(*data),
                Heard::GoAway(0x7fff_ffff, 0) => Ok(()),
                // Whether it may end, because of silence or of a clock that jumps, is judged when it does.
                Heard::GoAway(_, 0 | SETTINGS_TIMEOUT) => {
                    self.last_heard = true;
                    self.active_ms = facts.now_ms;
                    Ok(())
                }
                Heard::GoAway(_, code) => Err(format!("the connection ends with code {code}")),
                Heard::Ping(_) | Heard::WindowUpdate(..) | Heard::Settings | Heard::SettingsAck => Ok(()),
            };
            read.map_err(|why| format!("{why} ({heard:?})"))?;
        }
        self.h2 = Some(h2);
        Ok(())
    }

    fn read_frame(
        &mut self,
        facts: &Facts<'_>,
        turn: u64,
        (stream, kind, payload): Frame<'_>,
    ) -> Result<(), String> {
        let asked = |ask: &Ask| ask.stream == stream && ask.whole_turn.is_some_and(|whole| whole <= turn);
        let number = self.asks.iter().position(asked).ok_or("a frame without a request")?;
        match kind {
            HEAD => {
                let parsed = parse_head(payload).filter(|(_, head_bytes)| *head_bytes == payload.len());
                let (head, _) = parsed.ok_or("a HEAD frame without a valid head")?;
                let ask = &self.asks[number];
                let judged = facts.judge(ask, &head);
                let pieces = judged.map_err(|why| format!("{why}\n{}to {}", head.head, wording(ask)))?;
                self.status = head.status;
                if self.lanes.insert(stream, pieces).is_some() {
                    return Err("a second head".into());
                }
            }
            DATA => {
                let pieces = self.lanes.get_mut(&stream).ok_or("data before its head")?;
                let taken = take_body(pieces, payload)?;
                if payload.is_empty() || taken.all != payload.len() {
                    return Err("more bytes than the head says".into());
                }
                self.file_bytes.extend(self.asks[number].target.map(|target| (target, taken.of_files)));
            }
            END => {
                let mut pieces = self.lanes.remove(&stream).ok_or("an end before its head")?;
                take_body(&mut pieces, &[])?;
                if !pieces.is_empty() {
                    return Err("fewer bytes than the head says".into());
                }
                let ask = self.asks.remove(number);
                self.note_answered(ask, facts.now_ms, turn);
            }
            ABORT if facts.is_excused(&self.asks[number]) || self.is_left => {
                self.lanes.remove(&stream);
                let ask = self.asks.remove(number);
                self.note_answered(ask, facts.now_ms, turn);
            }
            ABORT => return Err(format!("aborted: {}", wording(&self.asks[number]))),
            _ => return Err(format!("a frame of kind {kind}")),
        }
        Ok(())
    }
}

/// A frame: its stream, its kind, and its payload.
type Frame<'b> = (u16, u8, &'b [u8]);

/// Bytes of a body.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    all: usize,
    of_files: u64,
}

/// Removes the expected bytes from the front of `bytes`. Returns how many.
fn take_body(pieces: &mut VecDeque<Piece>, bytes: &[u8]) -> Result<Taken, String> {
    let mut taken = Taken::default();
    while let Some(piece) = pieces.front_mut() {
        let rest = &bytes[taken.all..];
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
                taken.of_files += n as u64;
                (n, wanted, (*end - *at) as usize)
            }
            Piece::Page(status, left, page) => {
                let n = rest.len().min(*left);
                *left -= n;
                page.extend_from_slice(&rest[..n]);
                if *left == 0 && !String::from_utf8_lossy(page).contains(&status.to_string()) {
                    return Err(format!("the page does not match status {status}: {}", page.escape_ascii()));
                }
                (n, rest[..n].to_vec(), *left)
            }
            Piece::Listing(listing, made) => {
                let n = rest.len().min(listing.bytes - made.len());
                made.extend_from_slice(&rest[..n]);
                if made.len() == listing.bytes {
                    listing.judge(made)?;
                }
                (n, rest[..n].to_vec(), listing.bytes - made.len())
            }
        };
        if rest[..n] != wanted[..] {
            let at = rest.iter().zip(&wanted).position(|(a, b)| a != b);
            return Err(format!("the bytes from {at:?} of {n} on do not belong to the version of the head"));
        }
        taken.all += n;
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
