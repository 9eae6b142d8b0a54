//! Reads frames: what each means for the connection and its streams. Called by [`h2`](super).

use flash_http::h2::frame::{self, push_ping, push_reset, push_settings, push_window_update};
use flash_http::h2::settings;
use flash_http::h2::{
    ErrorCode, Frame, ListLimits, PREFACE, Priority, Violation, check_trailers, next_frame,
};

use super::closing::Drain;
use super::stream::{Stream, StreamState};
use super::{ConnStage, H2, Workspace};
use crate::exchange::{CLIENT_LEFT, Turn};
use crate::limits::{
    FIELDS_MAX, H2_CONNECTION_WINDOW_BYTES, H2_CONTINUATIONS_MAX, H2_SETTINGS_ACK_MS, H2_STREAM_WINDOW_BYTES,
    H2_STREAMS_MAX, HEAD_BYTES_MAX, REQUEST_BODY_BYTES_MAX,
};
use crate::machine::Machine;
use crate::transport::Received;
use crate::wire::conn::{Conn, TurnEnd};

const LIST_LIMITS: ListLimits = ListLimits { bytes: HEAD_BYTES_MAX, fields: FIELDS_MAX + PSEUDO_FIELDS };
/// `:method`, `:scheme`, `:authority` and `:path`.
const PSEUDO_FIELDS: usize = 4;

const NO_PREFACE: Violation =
    Violation::connection(ErrorCode::PROTOCOL_ERROR, "The connection preface is malformed");
const NO_SETTINGS: Violation =
    Violation::connection(ErrorCode::PROTOCOL_ERROR, "The first frame is not SETTINGS");
const OPEN_BLOCK: Violation =
    Violation::connection(ErrorCode::PROTOCOL_ERROR, "A header block is interrupted");
const NO_BLOCK: Violation =
    Violation::connection(ErrorCode::PROTOCOL_ERROR, "CONTINUATION does not follow a header block");
const LONG_BLOCK: Violation =
    Violation::connection(ErrorCode::ENHANCE_YOUR_CALM, "A header block is too long");
pub(super) const IDLE: Violation =
    Violation::connection(ErrorCode::PROTOCOL_ERROR, "The stream has not begun");
const CLOSED: Violation = Violation::connection(ErrorCode::STREAM_CLOSED, "The stream has ended");
const BAD_NUMBER: Violation =
    Violation::connection(ErrorCode::PROTOCOL_ERROR, "The number of a new stream is not higher, or even");

/// A header block that is not complete.
#[derive(Debug)]
pub(super) struct HeaderBlock {
    head: BlockHead,
    pub(super) bytes: Vec<u8>,
    frames: usize,
    pub(super) due_ms: u64,
}

/// The facts about a header block from its first frame.
#[derive(Clone, Copy, Debug)]
struct BlockHead {
    stream: u32,
    ends_stream: bool,
    depends_on_itself: bool,
}

impl H2 {
    /// Receives input and handles the complete frames. Returns how the turn ended if the connection cannot continue.
    pub(super) fn read<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        (buffer, workspace): (&mut [u8], &mut Workspace),
    ) -> Option<TurnEnd> {
        self.has_input = false;
        let mut filled = conn.input.len();
        if filled > 0 {
            buffer[..filled].copy_from_slice(&conn.take_input(turn.inputs));
        }
        loop {
            let (taken, violation) = self.take_frames(conn, turn, (&buffer[..filled], &mut *workspace));
            if let Some(violation) = violation {
                self.fail(conn, turn, violation);
                return None;
            }
            buffer.copy_within(taken..filled, 0);
            filled -= taken;
            if self.is_full(turn) {
                self.has_input = filled > 0 || conn.transport.may_have_input();
                break;
            }
            match conn.transport.receive(turn.context.machine, &mut buffer[filled..]) {
                Received::Bytes(bytes) => filled += bytes,
                Received::Nothing => break,
                Received::End => {
                    self.has_input = false;
                    self.drop_unfinished(conn, turn);
                    break;
                }
                Received::Failed => return Some(TurnEnd::Close),
            }
        }
        (!conn.keep_input(turn.inputs, &buffer[..filled])).then_some(TurnEnd::Close)
    }

    /// Whether nothing more is read in this turn, or before the framed bytes are sent.
    fn is_full<M: Machine>(&self, turn: &Turn<'_, M>) -> bool {
        turn.budget.requests == 0 || self.room_bytes(&turn.budget) == 0
    }

    /// Handles the complete frames in `bytes`. Returns how many bytes they took.
    fn take_frames<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        (bytes, workspace): (&[u8], &mut Workspace),
    ) -> (usize, Option<Violation>) {
        let mut at = 0;
        while !self.is_full(turn) {
            match self.take_frame(conn, turn, (&bytes[at..], &mut *workspace)) {
                Ok(0) => break,
                Ok(taken) => at += taken,
                Err(violation) => return (at, Some(violation)),
            }
        }
        (at, None)
    }

    /// Handles the frame at the front of `bytes`. Returns its length; 0 if it is not complete.
    fn take_frame<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        (bytes, workspace): (&[u8], &mut Workspace),
    ) -> Result<usize, Violation> {
        if self.stage == ConnStage::Preface {
            return self.take_preface(turn, bytes);
        }
        let (frame, taken) = match next_frame(bytes) {
            Ok(None) => return Ok(0),
            Ok(Some(found)) => found,
            Err((violation, _)) if violation.stream == 0 || self.block.is_some() => {
                return Err(Violation { stream: 0, ..violation });
            }
            Err((violation, taken)) => {
                self.end_stream(conn, turn, violation)?;
                return Ok(taken);
            }
        };
        if self.stage == ConnStage::Settings {
            if !matches!(frame, Frame::Settings { .. }) {
                return Err(NO_SETTINGS);
            }
            self.stage = ConnStage::Open;
        }
        if self.block.is_some() && !matches!(frame, Frame::Continuation { .. }) {
            return Err(OPEN_BLOCK);
        }
        match self.handle(conn, turn, (frame, workspace)) {
            Err(violation) if violation.stream != 0 => self.end_stream(conn, turn, violation)?,
            other => other?,
        }
        Ok(taken)
    }

    /// Reads the preface, and answers with the settings of this server.
    fn take_preface<M: Machine>(&mut self, turn: &Turn<'_, M>, bytes: &[u8]) -> Result<usize, Violation> {
        let there = bytes.len().min(PREFACE.len());
        if bytes[..there] != PREFACE[..there] {
            return Err(NO_PREFACE);
        }
        if there < PREFACE.len() {
            return Ok(0);
        }
        push_settings(
            &mut self.out,
            &[
                (settings::MAX_CONCURRENT_STREAMS, H2_STREAMS_MAX as u32),
                (settings::INITIAL_WINDOW_SIZE, H2_STREAM_WINDOW_BYTES),
                (settings::MAX_HEADER_LIST_SIZE, HEAD_BYTES_MAX as u32),
                (settings::NO_RFC7540_PRIORITIES, 1),
            ],
        );
        push_window_update(&mut self.out, 0, H2_CONNECTION_WINDOW_BYTES - settings::WINDOW_BYTES);
        self.settings_due_ms = turn.context.core.clock.ms() + H2_SETTINGS_ACK_MS;
        self.stage = ConnStage::Settings;
        Ok(PREFACE.len())
    }

    fn handle<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        (frame, workspace): (Frame<'_>, &mut Workspace),
    ) -> Result<(), Violation> {
        match frame {
            Frame::Data { stream, data, flow_bytes, ends_stream } => {
                if data.is_empty() && !ends_stream {
                    self.frame_budget.frame()?;
                }
                self.take_data(conn, turn, (stream, data, flow_bytes), ends_stream)
            }
            Frame::Headers { stream, fragment, ends_stream, ends_headers, depends_on_itself } => {
                let head = BlockHead { stream, ends_stream, depends_on_itself };
                if ends_headers {
                    return self.take_block(conn, turn, (head, fragment), workspace);
                }
                let due_ms = turn.context.core.clock.ms() + turn.context.core.rules.timeouts.head_ms;
                self.block = Some(HeaderBlock { head, bytes: Vec::new(), frames: 0, due_ms });
                self.continue_block(conn, turn, fragment)
            }
            Frame::Continuation { stream, fragment, ends_headers } => {
                if self.block.as_ref().is_none_or(|block| block.head.stream != stream) {
                    return Err(NO_BLOCK);
                }
                self.continue_block(conn, turn, fragment)?;
                match self.block.take_if(|_| ends_headers) {
                    Some(block) => {
                        turn.inputs.give_back(conn.opener.client, block.bytes.len());
                        self.take_block(conn, turn, (block.head, &block.bytes), workspace)
                    }
                    None => Ok(()),
                }
            }
            Frame::Settings { payload } => self.take_settings(payload),
            Frame::SettingsAck => {
                self.settings_due_ms = u64::MAX;
                self.frame_budget.frame()
            }
            Frame::Ping { is_ack, data } => {
                if is_ack {
                    self.drain.note_ping_ack(data);
                } else {
                    push_ping(&mut self.out, true, data);
                }
                self.frame_budget.frame()
            }
            Frame::WindowUpdate { stream, increment } => {
                self.frame_budget.frame()?;
                self.take_window(stream, increment)
            }
            Frame::PriorityUpdate { prioritized, value } => {
                self.frame_budget.frame()?;
                self.set_priority(prioritized, Priority::parse(value));
                Ok(())
            }
            Frame::Reset { stream, .. } => self.take_reset(conn, turn, stream),
            Frame::GoAway => {
                self.drain = Drain::Final;
                self.frame_budget.frame()
            }
            Frame::Priority { .. } | Frame::Unknown => self.frame_budget.frame(),
        }
    }

    /// Adds a part to the header block.
    fn continue_block<M: Machine>(
        &mut self,
        conn: &Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        fragment: &[u8],
    ) -> Result<(), Violation> {
        let Some(block) = &mut self.block else { return Err(NO_BLOCK) };
        block.frames += 1;
        if block.bytes.len() + fragment.len() > HEAD_BYTES_MAX
            || block.frames > 1 + H2_CONTINUATIONS_MAX
            || !turn.inputs.take(conn.opener.client, fragment.len())
        {
            return Err(LONG_BLOCK);
        }
        block.bytes.extend_from_slice(fragment);
        Ok(())
    }

    /// Handles a complete header block: a request, or trailers.
    fn take_block<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        (head, block): (BlockHead, &[u8]),
        workspace: &mut Workspace,
    ) -> Result<(), Violation> {
        let BlockHead { stream: id, ends_stream, depends_on_itself } = head;
        // Every block changes the table, whatever becomes of its stream.
        self.decoder.decode(block, LIST_LIMITS, &mut workspace.list)?;
        if let Some(at) = self.find(id) {
            self.frame_budget.frame()?;
            let is_malformed = workspace.list.is_too_large() || check_trailers(&workspace.list).is_err();
            let stream = &mut self.streams[at];
            stream.receiving.take_trailers(id, ends_stream)?;
            stream.is_blocked = false;
            let reason = "The trailers are malformed";
            return if is_malformed {
                Err(Violation::stream(id, ErrorCode::PROTOCOL_ERROR, reason))
            } else {
                Ok(())
            };
        }
        if id <= self.last_stream {
            return match self.closed.was_reset(id) {
                Some(true) => self.frame_budget.frame(),
                Some(false) => Err(CLOSED),
                None => Err(BAD_NUMBER),
            };
        }
        if id.is_multiple_of(2) {
            return Err(BAD_NUMBER);
        }
        if matches!(self.drain, Drain::Final) {
            // GOAWAY has said that these streams are not served (RFC 9113, section 6.8).
            return self.frame_budget.frame();
        }
        self.last_stream = id;
        if depends_on_itself {
            return Err(Violation::stream(id, ErrorCode::PROTOCOL_ERROR, "A stream depends on itself"));
        }
        if self.streams.len() >= H2_STREAMS_MAX {
            return Err(Violation::stream(id, ErrorCode::REFUSED_STREAM, "There are too many streams"));
        }
        turn.budget.requests = turn.budget.requests.saturating_sub(1);
        self.begin(conn, turn, (id, ends_stream), workspace)
    }

    fn take_data<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        (id, data, flow_bytes): (u32, &[u8], usize),
        ends_stream: bool,
    ) -> Result<(), Violation> {
        // The connection's window is given back at once: it is the stream's that bounds what is held.
        self.receive_window.take(flow_bytes)?;
        let used = H2_CONNECTION_WINDOW_BYTES as usize - self.receive_window.available();
        if used > H2_CONNECTION_WINDOW_BYTES as usize / 2 {
            push_window_update(&mut self.out, 0, used as u32);
            self.receive_window.grow(used as i64)?;
        }
        let Some(at) = self.find(id) else {
            return match self.closed.was_reset(id) {
                _ if id > self.last_stream => Err(IDLE),
                Some(true) => self.frame_budget.frame(),
                _ => Err(CLOSED),
            };
        };
        let stream = &mut self.streams[at];
        let of_stream = |violation| Violation { stream: id, ..violation };
        stream.receiving.take_data(id, data.len(), ends_stream)?;
        stream.receive_window.take(flow_bytes).map_err(of_stream)?;
        stream.is_blocked = false;
        match &mut stream.state {
            StreamState::Relaying(frames) => {
                stream.credit_bytes += flow_bytes - data.len();
                if turn.inputs.take(conn.opener.client, data.len()) {
                    frames.body.extend(data);
                } else {
                    frames.is_stopped = true;
                }
            }
            StreamState::Discarding { read_bytes, .. } => {
                *read_bytes += data.len() as u64;
                stream.credit_bytes += flow_bytes;
                if *read_bytes > REQUEST_BODY_BYTES_MAX {
                    self.refuse_body(turn, at, crate::handler::TOO_LARGE);
                    return Ok(());
                }
            }
            // Its answer has begun, so nothing more of the body is wanted.
            StreamState::Pending | StreamState::Sending(_) => {}
        }
        give_credit(&mut self.out, &mut self.streams[at]);
        Ok(())
    }

    fn take_reset<M: Machine>(
        &mut self,
        conn: &Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        id: u32,
    ) -> Result<(), Violation> {
        if id > self.last_stream {
            return Err(IDLE);
        }
        let Some(at) = self.find(id) else { return self.frame_budget.frame() };
        let mut stream = self.streams.remove(at);
        stream.drop_body(turn.inputs, conn.opener.client);
        turn.abort(stream.key, &stream.requester, Some(stream.sent().unwrap_or((CLIENT_LEFT, 0))));
        self.closed.note(id, false);
        self.has_answered = true;
        self.frame_budget.reset()
    }

    /// The place of a stream.
    pub(super) fn find(&self, id: u32) -> Option<usize> {
        self.streams.binary_search_by_key(&id, |stream| stream.id).ok()
    }

    /// Ends a stream that violates the protocol.
    fn end_stream<M: Machine>(
        &mut self,
        conn: &Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        violation: Violation,
    ) -> Result<(), Violation> {
        let id = violation.stream;
        if id > self.last_stream {
            return Err(Violation { stream: 0, ..violation });
        }
        match self.find(id) {
            Some(at) => {
                let stream = self.streams.remove(at);
                self.end_early(conn, turn, stream, violation.code);
            }
            None => {
                push_reset(&mut self.out, id, violation.code);
                self.closed.note(id, true);
            }
        }
        self.has_answered = true;
        self.frame_budget.reset()
    }

    /// Drops the streams whose requests can no longer be completed, because the client sends no more.
    fn drop_unfinished<M: Machine>(&mut self, conn: &Conn<M::Socket>, turn: &mut Turn<'_, M>) {
        while let Some(at) = self.streams.iter().position(|stream| {
            matches!(stream.state, StreamState::Discarding { .. }) && !stream.receiving.has_ended()
        }) {
            let stream = self.streams.remove(at);
            self.end_early(conn, turn, stream, ErrorCode::CANCEL);
        }
    }
}

/// Lets the client send more on a stream, once it is worth a frame.
pub(super) fn give_credit(out: &mut Vec<u8>, stream: &mut Stream) {
    let credit = stream.credit_bytes;
    if credit >= H2_STREAM_WINDOW_BYTES as usize / 2 && !stream.receiving.has_ended() {
        push_window_update(out, stream.id, credit as u32);
        // It gets back no more than it has used.
        let _ = stream.receive_window.grow(credit as i64);
        stream.credit_bytes = 0;
    }
}

const _: () = assert!(frame::FRAME_BYTES + frame::FRAME_HEAD_BYTES < crate::limits::RECEIVE_BYTES);
