//! One connection of HTTP/2. The multiplexer owns it and decides what it asks; it reads no clock.

use std::collections::HashMap;
use std::io;

use flash_http::h2::settings::{ENABLE_PUSH, HEADER_TABLE_SIZE, INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS};
use flash_http::h2::{Decoder, ErrorCode, FieldList, Frame, ListLimits, PREFACE, Window, frame, next_frame};

use super::answer::{Answer, STREAM_WINDOW_BYTES};
use super::head::{AnswerHead, RequestHead, Table};
use super::upload::{Broken, Uploads};
use crate::generator::pool::PooledConnection;
use crate::generator::request::{Kind, Request};
use crate::generator::transport::{Received, Transport};
use crate::record::Outcome;
use crate::workload::Catalogue;

/// The window of a connection: that of Chrome.
const CONNECTION_WINDOW_BYTES: u32 = 15 << 20;
/// The window of a connection before it grows (RFC 9113 section 6.9.2).
const FIRST_WINDOW_BYTES: u32 = 65_535;
/// Streams before the server has said how many it takes: the fewest that RFC 9113 section 6.5.2 recommends.
const FIRST_STREAMS: u32 = 100;
/// The last stream of a connection; the next is opened on another one.
const STREAM_MAX: u32 = 1 << 30;
const BLOCK_BYTES_MAX: usize = 64 * 1024;
const LIMITS: ListLimits = ListLimits { bytes: 32 * 1024, fields: 200 };

/// The facts that all connections of a generator share.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) is_https: bool,
    pub(crate) authority: Vec<u8>,
    /// The path of the server before that of each file.
    pub(crate) base: String,
    /// The most streams at once that this client opens on a connection.
    pub(crate) streams_max: u32,
    pub(crate) requests_per_connection: Option<u32>,
    pub(crate) flows: Vec<OfFlow>,
}

/// The facts about a stream of requests.
#[derive(Debug)]
pub(crate) struct OfFlow {
    pub(crate) catalogue: std::sync::Arc<Catalogue>,
    /// Whether contents are verified.
    pub(crate) verify: bool,
    pub(crate) kinds: Vec<Kind>,
}

impl Common {
    pub(crate) fn flow(&self, flow: u8) -> &OfFlow {
        &self.flows[usize::from(flow)]
    }
}

/// The means to take received bytes.
pub(crate) struct Taking<'a> {
    pub(crate) common: &'a Common,
    /// When they came.
    pub(crate) now_ns: u64,
    pub(crate) done: &'a mut Vec<Done>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) flow: u8,
    pub(crate) request: Request,
    /// None for a request that the server did not handle: it is to be sent again.
    pub(crate) outcome: Option<Outcome>,
}

/// A header block that more frames continue.
#[derive(Clone, Copy, Debug)]
struct Block {
    stream: u32,
    ends_stream: bool,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) transport: Transport,
    /// It is in the multiplexer's list of those with room, and of those with something to send.
    pub(crate) is_offered: bool,
    pub(crate) has_output: bool,
    output: Vec<u8>,
    /// A frame that is not complete.
    partial: Vec<u8>,
    decoder: Decoder,
    list: FieldList,
    block: Vec<u8>,
    in_block: Option<Block>,
    answers: HashMap<u32, Answer>,
    next_stream: u32,
    requests_sent: u32,
    /// Whether any request was answered: requests are sent again only after that, so that it comes to an end.
    has_answered: bool,
    table: Table,
    uploads: Uploads,
    window: Window,
    taken_bytes: usize,
    peer_streams_max: u32,
    is_going_away: bool,
}

impl Connection {
    pub(crate) fn new(transport: Transport) -> Self {
        Self {
            transport,
            is_offered: false,
            has_output: false,
            output: Vec::new(),
            partial: Vec::new(),
            decoder: Decoder::new(),
            list: FieldList::new(),
            block: Vec::new(),
            in_block: None,
            answers: HashMap::new(),
            next_stream: 1,
            requests_sent: 0,
            has_answered: false,
            table: Table::Empty,
            uploads: Uploads::new(),
            window: Window::new(CONNECTION_WINDOW_BYTES),
            taken_bytes: 0,
            peer_streams_max: FIRST_STREAMS,
            is_going_away: false,
        }
    }

    /// Says hello (RFC 9113 section 3.4); the first requests follow at once.
    pub(crate) fn begin(&mut self) {
        self.output.extend_from_slice(PREFACE);
        let settings = [(ENABLE_PUSH, 0), (INITIAL_WINDOW_SIZE, STREAM_WINDOW_BYTES)];
        frame::push_settings(&mut self.output, &settings);
        frame::push_window_update(&mut self.output, 0, CONNECTION_WINDOW_BYTES - FIRST_WINDOW_BYTES);
    }

    /// Whether it may be asked for something more.
    pub(crate) fn has_room(&self, common: &Common) -> bool {
        let streams_max = common.streams_max.min(self.peer_streams_max) as usize;
        !self.transport.is_connecting && !self.is_used_up(common) && self.answers.len() < streams_max
    }

    fn is_used_up(&self, common: &Common) -> bool {
        let is_enough = common.requests_per_connection.is_some_and(|max| self.requests_sent >= max);
        self.is_going_away || is_enough || self.next_stream > STREAM_MAX
    }

    /// Whether it carries nothing, and takes no more requests.
    pub(crate) fn is_over(&self, common: &Common) -> bool {
        !self.transport.is_connecting && self.answers.is_empty() && self.is_used_up(common)
    }

    pub(crate) fn was_used(&self) -> bool {
        self.requests_sent > 0
    }

    /// Adds a request for a file; the bytes go with the next [`Connection::flush`]. Returns the number of the stream.
    pub(crate) fn submit(&mut self, common: &Common, flow: u8, request: Request, path: &[u8]) -> u32 {
        let stream = self.next_stream;
        self.next_stream += 2;
        self.requests_sent = self.requests_sent.saturating_add(1);
        let OfFlow { catalogue, kinds, .. } = common.flow(flow);
        let kind = &kinds[catalogue.method_number(request.record.path_id)];
        let head = RequestHead {
            method: &kind.h2_method,
            is_https: common.is_https,
            authority: &common.authority,
            path,
            fields: &kind.h2_fields,
        };
        let table = &mut self.table;
        frame::push_headers(&mut self.output, stream, kind.body.is_none(), |out| {
            table.push_request(out, &head);
        });
        if let Some(body) = &kind.body {
            self.uploads.begin(stream, body.clone());
        }
        self.answers.insert(stream, Answer::new(flow, request, kind.expected));
        stream
    }

    /// Gives a request up. None if it is not there any more.
    pub(crate) fn abort(&mut self, stream: u32) -> Option<(u8, Request)> {
        let answer = self.answers.remove(&stream)?;
        self.uploads.end(stream);
        frame::push_reset(&mut self.output, stream, ErrorCode::CANCEL);
        Some((answer.flow, answer.request))
    }

    /// Sends all that there is to send.
    ///
    /// Errors: the connection is over.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if !self.uploads.is_empty() {
            self.transport.flush()?;
            while !self.transport.has_unsent() {
                self.uploads.write(&mut self.output);
                if self.output.is_empty() {
                    return Ok(());
                }
                let sent = self.transport.send(&self.output);
                self.output.clear();
                sent?;
            }
        }
        if !self.output.is_empty() {
            let sent = self.transport.send(&self.output);
            self.output.clear();
            return sent;
        }
        self.transport.flush()
    }

    /// Receives once into `buffer`; `scratch` is for what is encrypted. None when there is nothing.
    ///
    /// Errors: the connection is over, and the requests on it end so.
    pub(crate) fn receive(
        &mut self,
        buffer: &mut [u8],
        scratch: &mut [u8],
    ) -> Result<Option<Received>, Outcome> {
        match self.transport.receive(buffer, scratch) {
            Ok(Received { is_end: true, .. }) => Err(Outcome::ClosedEarly),
            Ok(received) => Ok(Some(received)),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(why) if why.kind() == io::ErrorKind::InvalidData => Err(Outcome::Garbage),
            Err(_) => Err(Outcome::Reset),
        }
    }

    /// Takes the frames in some bytes.
    ///
    /// Errors: the server breaks the protocol.
    pub(crate) fn take(&mut self, bytes: &[u8], taking: &mut Taking<'_>) -> Result<(), Broken> {
        let mut joined = std::mem::take(&mut self.partial);
        let whole = if joined.is_empty() {
            bytes
        } else {
            joined.extend_from_slice(bytes);
            &joined
        };
        let mut at = 0;
        while let Some((frame, length)) = next_frame(&whole[at..]).map_err(|_| Broken)? {
            let raw = &whole[at..at + length];
            at += length;
            self.take_frame(frame, raw, taking)?;
        }
        self.partial = whole[at..].to_vec();
        Ok(())
    }

    fn take_frame(&mut self, frame: Frame<'_>, raw: &[u8], taking: &mut Taking<'_>) -> Result<(), Broken> {
        if self.in_block.is_some() && !matches!(frame, Frame::Continuation { .. }) {
            return Err(Broken);
        }
        match frame {
            Frame::Headers { stream, fragment, ends_stream, ends_headers, .. } => {
                self.block.clear();
                self.in_block = Some(Block { stream, ends_stream });
                self.take_block(fragment, ends_headers, taking)?;
            }
            Frame::Continuation { stream, fragment, ends_headers } => {
                self.in_block.filter(|block| block.stream == stream).ok_or(Broken)?;
                self.take_block(fragment, ends_headers, taking)?;
            }
            Frame::Data { stream, data, flow_bytes, ends_stream } => {
                self.take_flow(flow_bytes)?;
                self.take_data((stream, data, flow_bytes), taking)?;
                if ends_stream {
                    self.end(stream, taking);
                }
            }
            Frame::Reset { stream, code } => {
                self.uploads.end(stream);
                if let Some(answer) = self.answers.remove(&stream) {
                    let is_unhandled = code == ErrorCode::REFUSED_STREAM && self.has_answered;
                    let outcome = (!is_unhandled).then_some(Outcome::Reset);
                    taking.done.push(Done { flow: answer.flow, request: answer.request, outcome });
                }
            }
            Frame::Settings { payload } => {
                for parameter in payload.chunks_exact(6) {
                    let &[id_high, id_low, a, b, c, d] = parameter else { continue };
                    let value = u32::from_be_bytes([a, b, c, d]);
                    match u16::from_be_bytes([id_high, id_low]) {
                        MAX_CONCURRENT_STREAMS => self.peer_streams_max = value,
                        HEADER_TABLE_SIZE => self.table.resize(value),
                        INITIAL_WINDOW_SIZE => self.uploads.resize(value)?,
                        _ => {}
                    }
                }
                frame::push_settings_ack(&mut self.output);
            }
            Frame::Ping { is_ack: false, data } => frame::push_ping(&mut self.output, true, data),
            Frame::GoAway => {
                let last = raw.get(9..13).and_then(|last| last.try_into().ok()).map_or(0, u32::from_be_bytes);
                self.go_away(last & 0x7fff_ffff, taking.done);
            }
            Frame::WindowUpdate { stream, increment } => self.uploads.grow(stream, increment)?,
            Frame::SettingsAck | Frame::Ping { .. } | Frame::Unknown => {}
            Frame::Priority { .. } | Frame::PriorityUpdate { .. } => {}
        }
        Ok(())
    }

    /// Takes a part of a header block, and reads the block when it is complete.
    fn take_block(
        &mut self,
        fragment: &[u8],
        ends_headers: bool,
        taking: &mut Taking<'_>,
    ) -> Result<(), Broken> {
        if self.block.len() + fragment.len() > BLOCK_BYTES_MAX {
            return Err(Broken);
        }
        self.block.extend_from_slice(fragment);
        if !ends_headers {
            return Ok(());
        }
        let Some(Block { stream, ends_stream }) = self.in_block.take() else { return Err(Broken) };
        // That of a stream that was given up changes the table as well.
        self.decoder.decode(&self.block, LIMITS, &mut self.list).map_err(|_| Broken)?;
        if stream >= self.next_stream || stream.is_multiple_of(2) {
            return Err(Broken);
        }
        let Some(answer) = self.answers.get_mut(&stream) else { return Ok(()) };
        let record = &mut answer.request.record;
        record.first_byte_ns = record.first_byte_ns.min(taking.now_ns);
        if answer.take_head(AnswerHead::read(&self.list), ends_stream).is_err() {
            self.refuse(stream, taking.done);
        } else if ends_stream {
            self.end(stream, taking);
        }
        Ok(())
    }

    /// Counts data against the window of the connection, which grows again when half of it is used.
    fn take_flow(&mut self, flow_bytes: usize) -> Result<(), Broken> {
        self.window.take(flow_bytes).map_err(|_| Broken)?;
        self.taken_bytes += flow_bytes;
        if self.taken_bytes >= CONNECTION_WINDOW_BYTES as usize / 2 {
            let increment = std::mem::take(&mut self.taken_bytes);
            self.window.grow(increment as i64).map_err(|_| Broken)?;
            frame::push_window_update(&mut self.output, 0, increment as u32);
        }
        Ok(())
    }

    fn take_data(
        &mut self,
        (stream, data, flow_bytes): (u32, &[u8], usize),
        taking: &mut Taking<'_>,
    ) -> Result<(), Broken> {
        if stream >= self.next_stream {
            return Err(Broken);
        }
        let Some(answer) = self.answers.get_mut(&stream) else { return Ok(()) };
        let of_flow = taking.common.flow(answer.flow);
        match answer.take_data(data, flow_bytes, of_flow.verify.then_some(&*of_flow.catalogue)) {
            Ok(Some(increment)) => frame::push_window_update(&mut self.output, stream, increment),
            Ok(None) => {}
            Err(_) => self.refuse(stream, taking.done),
        }
        Ok(())
    }

    fn end(&mut self, stream: u32, taking: &mut Taking<'_>) {
        let Some(answer) = self.answers.remove(&stream) else { return };
        let outcome = answer.outcome(&taking.common.flow(answer.flow).catalogue);
        self.has_answered = true;
        if self.uploads.end(stream) {
            // The server does not want the rest (RFC 9113 section 8.1).
            frame::push_reset(&mut self.output, stream, ErrorCode::NO_ERROR);
        }
        taking.done.push(Done { flow: answer.flow, request: answer.request, outcome: Some(outcome) });
    }

    /// An answer is malformed, which costs its stream only (RFC 9113 section 8.1.1).
    fn refuse(&mut self, stream: u32, done: &mut Vec<Done>) {
        let Some(answer) = self.answers.remove(&stream) else { return };
        self.uploads.end(stream);
        frame::push_reset(&mut self.output, stream, ErrorCode::PROTOCOL_ERROR);
        done.push(Done { flow: answer.flow, request: answer.request, outcome: Some(Outcome::Garbage) });
    }

    /// The server takes no new streams, and does not handle those after `last` (RFC 9113 section 6.8).
    fn go_away(&mut self, last: u32, done: &mut Vec<Done>) {
        self.is_going_away = true;
        let outcome = if self.has_answered { None } else { Some(Outcome::Reset) };
        let after: Vec<u32> = self.answers.keys().copied().filter(|stream| *stream > last).collect();
        for stream in after {
            self.uploads.end(stream);
            let Some(answer) = self.answers.remove(&stream) else { continue };
            done.push(Done { flow: answer.flow, request: answer.request, outcome });
        }
    }

    /// All requests that are on it, which end so.
    pub(crate) fn give_up(&mut self, outcome: Outcome, done: &mut Vec<Done>) {
        for (_, answer) in self.answers.drain() {
            done.push(Done { flow: answer.flow, request: answer.request, outcome: Some(outcome) });
        }
    }
}

impl PooledConnection for Connection {
    fn transport(&mut self) -> &mut Transport {
        &mut self.transport
    }

    fn is_idle(&self) -> bool {
        self.answers.is_empty()
    }
}
