//! Frames answers: chooses the stream whose turn it is, and frames its next piece. Called by [`h2`](super).

use std::sync::Arc;

use flash_http::h2::frame::{self, push_headers, push_reset};
use flash_http::h2::{ErrorCode, Priority, Receiving};
use flash_http::response::Status;

use super::H2;
use super::answer_head::Head;
use super::stream::{Stream, StreamState};
use crate::access_log::AnswerEnd;
use crate::body::{Body, Pulled};
use crate::exchange::{CLIENT_LEFT, Exchange, Halt, LogEntry, Progress, Sending, State, Turn, proceed};
use crate::handler::{CommonFields, head_changes_of_path};
use crate::jobs::Waiter;
use crate::machine::{Machine, Resident};
use crate::wire::conn::Conn;

/// The order among streams: the lowest goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct StreamRank {
    urgency: u8,
    left_bytes: u64,
}

/// The result of framing a piece of an answer.
enum FramedPiece {
    Framed,
    /// Nothing can be framed before something happens.
    Blocked,
    Done,
    Halted(Halt),
}

/// Whether a stream remains after its turn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    Stays,
    Ended,
}

impl H2 {
    /// Frames answers until nothing more can be framed, or enough is.
    pub(super) fn frame_streams<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        buffer: &mut [u8],
    ) {
        while self.room_bytes(&turn.budget) > 0 {
            let Some(at) = self.next_stream(turn) else { return };
            self.served += 1;
            let mut stream = self.lend(at);
            stream.served = self.served;
            stream.is_stalled = false;
            let after = self.serve(conn, turn, buffer, &mut stream);
            self.put_back(conn, turn, (at, stream), after);
        }
    }

    /// Takes a stream out for its turn. A copy without its part keeps its place.
    pub(super) fn lend(&mut self, at: usize) -> Stream {
        let Stream { id, requester, key, priority, .. } = self.streams[at];
        self.lent = Some(key);
        std::mem::replace(
            &mut self.streams[at],
            Stream::new((id, requester), key, priority, StreamState::Pending),
        )
    }

    /// Puts a stream back after its turn, or removes it.
    pub(super) fn put_back<M: Machine>(
        &mut self,
        conn: &Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        (at, mut stream): (usize, Stream),
        after: After,
    ) {
        self.lent = None;
        match after {
            After::Stays => self.streams[at] = stream,
            After::Ended => {
                self.streams.remove(at);
                stream.drop_body(turn.inputs, conn.opener.client);
                self.has_answered = true;
            }
        }
    }

    /// The stream whose turn it is: the most urgent, and among these the one with the fewest bytes left. Streams that can use
    /// parts of their answers take turns if one of them is first.
    fn next_stream<M: Machine>(&mut self, turn: &Turn<'_, M>) -> Option<usize> {
        let mut first: Option<(StreamRank, usize)> = None;
        let mut shared: Option<(u8, u64, usize)> = None;
        let has_window = self.window.available() > 0;
        for (at, stream) in self.streams.iter_mut().enumerate().filter(|(_, stream)| !stream.is_blocked) {
            let Some(left_bytes) = left_bytes(turn, stream, has_window) else {
                stream.is_blocked = true;
                continue;
            };
            let Priority { urgency, is_incremental } = stream.priority;
            let rank = StreamRank { urgency, left_bytes };
            if first.is_none_or(|(best, _)| rank < best) {
                first = Some((rank, at));
            }
            if is_incremental
                && shared.is_none_or(|(best, served, _)| (urgency, stream.served) < (best, served))
            {
                shared = Some((urgency, stream.served, at));
            }
        }
        let (rank, at) = first?;
        match shared {
            Some((urgency, _, next))
                if self.streams[at].priority.is_incremental && urgency == rank.urgency =>
            {
                Some(next)
            }
            _ => Some(at),
        }
    }

    /// Gives a stream its turn.
    fn serve<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        buffer: &mut [u8],
        stream: &mut Stream,
    ) -> After {
        let Exchange { opener, mut log_entry, state } = turn.exchanges.lend(stream.key);
        let waiter = Waiter { exchange: stream.key, client: opener.client };
        let state = match state {
            State::Reading(after) if stream.receiving.has_ended() => Self::after_body(stream, after),
            State::Woken(parked, wake) => match proceed(&mut turn.context, waiter, parked, wake) {
                Progress::Waits(state) => state,
                Progress::Answer(file, response) => {
                    let subject = (&file.path[..], file.request().origin);
                    stream.changes =
                        head_changes_of_path(turn.context.core, stream.requester.scheme, file.site, subject);
                    stream.begin_answer(response, Some(file))
                }
            },
            State::Relaying(relay) => {
                return self.serve_relay(conn, turn, buffer, (stream, log_entry, relay));
            }
            State::Sending(mut sending) => {
                match self.follow_piece(turn, waiter, stream, (&mut sending, &mut log_entry)) {
                    FramedPiece::Framed => State::Sending(sending),
                    FramedPiece::Blocked => {
                        stream.is_blocked = true;
                        State::Sending(sending)
                    }
                    FramedPiece::Done => {
                        sending.leave(&mut turn.context, stream.key);
                        turn.exchanges.end_lent(stream.key);
                        let (status, body_bytes) = stream.sent().unwrap_or((Status::OK, 0));
                        let end = AnswerEnd { status, body_bytes, is_whole: true };
                        log_entry.note_end(&mut turn.context, &stream.requester, end);
                        self.close_stream(stream.id, stream.receiving);
                        return After::Ended;
                    }
                    FramedPiece::Halted(halt) => {
                        sending.leave(&mut turn.context, stream.key);
                        // If nothing was sent, the request is answered again.
                        let has_begun = stream.sent().is_some();
                        match if has_begun { None } else { sending.retry(halt) } {
                            Some(state) => {
                                stream.state = StreamState::Pending;
                                state
                            }
                            None => {
                                turn.exchanges.end_lent(stream.key);
                                let (status, body_bytes) = stream.sent().unwrap_or((Status::INTERNAL, 0));
                                let end = AnswerEnd { status, body_bytes, is_whole: false };
                                log_entry.note_end(&mut turn.context, &stream.requester, end);
                                self.reset_stream(stream.id, ErrorCode::INTERNAL_ERROR);
                                return After::Ended;
                            }
                        }
                    }
                }
            }
            state => {
                stream.is_blocked = true;
                state
            }
        };
        turn.exchanges.put_back(stream.key, Exchange { opener, log_entry, state });
        After::Stays
    }

    /// Frames the next piece of an answer, and notes when its first one was framed and whether it waits.
    fn follow_piece<M: Machine>(
        &mut self,
        turn: &mut Turn<'_, M>,
        waiter: Waiter,
        stream: &mut Stream,
        (sending, log_entry): (&mut Sending<M::File>, &mut LogEntry),
    ) -> FramedPiece {
        let piece = self.send_piece(turn, waiter, stream, sending);
        if stream.sent().is_some() {
            turn.context.note_first(&mut log_entry.timing);
        }
        log_entry.timing.note_wait(sending.waits_for.is_some());
        piece
    }

    /// Frames the next piece of an answer, preceded by its head.
    fn send_piece<M: Machine>(
        &mut self,
        turn: &mut Turn<'_, M>,
        waiter: Waiter,
        stream: &mut Stream,
        sending: &mut Sending<M::File>,
    ) -> FramedPiece {
        if let Some(halt) = sending.halt.take() {
            return FramedPiece::Halted(halt);
        }
        if sending.waits_for.is_some() {
            return FramedPiece::Blocked;
        }
        let left_bytes = sending.body.len();
        let room_bytes = self.window.available().min(stream.window.available()).min(frame::FRAME_BYTES);
        if room_bytes == 0 && left_bytes > 0 {
            stream.is_stalled = true;
            return FramedPiece::Blocked;
        }
        let Some(paced) = sending.pace.request(&mut turn.context, stream.key, left_bytes) else {
            return FramedPiece::Blocked;
        };
        let room_bytes = room_bytes.min(paced);
        sending.body.offer_at_most(room_bytes);
        sending.load_ahead(&mut turn.context, waiter);
        let (machine, core) = (&mut *turn.context.machine, &mut *turn.context.core);
        let common = CommonFields::of(core);
        let framed = match sending.body.pull(machine, core) {
            Pulled::Bytes(bytes) => {
                self.push_piece(common, stream, left_bytes, &bytes[..bytes.len().min(room_bytes)])
            }
            Pulled::Content(content, range) => {
                let end = range.end.min(range.start + room_bytes);
                self.push_piece(common, stream, left_bytes, content.part(&(range.start..end)))
            }
            Pulled::Part(file, part) => {
                let file = Arc::clone(file);
                let room = &mut core.file_buffer[..part.length.min(room_bytes)];
                match machine.read_resident(&file, part.offset, room) {
                    Ok(Resident::Bytes(0)) => return FramedPiece::Halted(Halt::Changed),
                    Ok(Resident::Bytes(bytes)) => {
                        self.push_piece(common, stream, left_bytes, &core.file_buffer[..bytes])
                    }
                    Ok(found @ (Resident::Absent | Resident::Unknown)) => {
                        sending.bring(&mut turn.context, waiter, found == Resident::Absent);
                        return FramedPiece::Framed;
                    }
                    Err(_) => return FramedPiece::Halted(Halt::FAILED),
                }
            }
            Pulled::Wait(wanted) => {
                sending.wait(&mut turn.context, waiter, *wanted);
                return FramedPiece::Framed;
            }
            Pulled::End => self.push_piece(common, stream, 0, &[]),
            Pulled::Changed => return FramedPiece::Halted(Halt::Changed),
            Pulled::Failed => return FramedPiece::Halted(Halt::FAILED),
        };
        account(turn, stream, sending, framed);
        sending.pace.spend(framed);
        self.rank_bytes = sending.body.len();
        if framed as u64 == left_bytes { FramedPiece::Done } else { FramedPiece::Framed }
    }

    /// Frames a piece of an answer that has `left_bytes` left, preceded by its head. Returns its length.
    fn push_piece(
        &mut self,
        common: CommonFields,
        stream: &mut Stream,
        left_bytes: u64,
        data: &[u8],
    ) -> usize {
        let StreamState::Sending(outgoing) = &mut stream.state else { return 0 };
        if let Some((about, length)) = outgoing.head.take() {
            let head = Head { status: outgoing.status, about: &about, length };
            self.push_common_head((common, stream.changes.as_deref()), (stream.id, left_bytes == 0), head);
            if left_bytes == 0 {
                return 0;
            }
        }
        // The window has room for it.
        let _ = stream.window.take(data.len());
        self.push_data((stream.id, data), data.len() as u64 == left_bytes);
        data.len()
    }

    /// The whole body of an answer if it can be framed now: it is in memory, fits in one frame and in the windows, and no more
    /// urgent stream waits.
    pub(super) fn whole_now<'b, F>(&self, priority: Priority, body: &'b Body<F>) -> Option<&'b [u8]> {
        let bytes = match body {
            Body::Empty => return Some(&[]),
            Body::Page(page, at) => &page[*at..],
            Body::Content(content, range) => content.part(range),
            Body::File(_) | Body::Multipart(_) => return None,
        };
        let room_bytes = self.window.available().min(self.first_window as usize).min(frame::FRAME_BYTES);
        let goes_first =
            |stream: &Stream| stream.is_answering() && stream.priority.urgency < priority.urgency;
        (bytes.len() <= room_bytes && !self.streams.iter().any(goes_first)).then_some(bytes)
    }

    /// Frames data, and takes it from the connection's window.
    pub(super) fn push_data(&mut self, (id, data): (u32, &[u8]), ends_stream: bool) {
        // The window has room for it.
        let _ = self.window.take(data.len());
        frame::push_data(&mut self.out, id, data, ends_stream);
        self.frame_budget.answered();
    }

    /// Tells a client that waits for it to send the body (RFC 9110, section 10.1.1).
    pub(super) fn push_continue(&mut self, id: u32) {
        let encoder = &mut self.encoder;
        push_headers(&mut self.out, id, false, |out| encoder.begin(out, Status::CONTINUE.0));
    }

    /// Notes the end of a stream whose answer is complete. A client that still sends is told to stop (RFC 9113, section 8.1).
    pub(super) fn close_stream(&mut self, id: u32, receiving: Receiving) {
        self.has_answered = true;
        if receiving.has_ended() {
            self.closed.note(id, false);
        } else {
            self.reset_stream(id, ErrorCode::NO_ERROR);
        }
    }

    /// Ends a stream before its answer is complete.
    pub(super) fn reset_stream(&mut self, id: u32, code: ErrorCode) {
        push_reset(&mut self.out, id, code);
        self.closed.note(id, true);
    }

    /// Ends a stream and its exchange.
    pub(super) fn end_early<M: Machine>(
        &mut self,
        conn: &Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        mut stream: Stream,
        code: ErrorCode,
    ) {
        stream.drop_body(turn.inputs, conn.opener.client);
        turn.abort(stream.key, &stream.requester, Some(stream.sent().unwrap_or((CLIENT_LEFT, 0))));
        self.reset_stream(stream.id, code);
    }
}

/// The bytes that a stream has left if something can be done for it now; 0 if that costs no bytes.
fn left_bytes<M: Machine>(turn: &Turn<'_, M>, stream: &mut Stream, has_window: bool) -> Option<u64> {
    match &turn.exchanges.get(stream.key)?.state {
        State::Reading(_) => stream.receiving.has_ended().then_some(0),
        State::Waiting(..) => None,
        State::Woken(..) => Some(0),
        State::Relaying(relay) => {
            Some(relay.reply.as_ref().map_or(0, |reply| reply.left_bytes.unwrap_or(reply.body_bytes)))
        }
        State::Sending(sending) if sending.halt.is_some() => Some(0),
        State::Sending(sending) if sending.waits_for.is_some() => None,
        State::Sending(sending) if sending.pace.is_waiting(turn.context.core) => None,
        State::Sending(sending) => {
            let left_bytes = sending.body.len();
            let is_stalled = left_bytes > 0 && (!has_window || stream.window.available() == 0);
            stream.is_stalled = is_stalled;
            (!is_stalled).then_some(left_bytes)
        }
    }
}

/// Accounts for a piece of an answer.
fn account<M: Machine>(
    turn: &mut Turn<'_, M>,
    stream: &mut Stream,
    sending: &mut Sending<M::File>,
    framed: usize,
) {
    if let StreamState::Sending(outgoing) = &mut stream.state {
        if outgoing.body_bytes == 0 {
            turn.context.core.counters.heads_made += 1;
            turn.context.core.schedule.note_answer(sending.body.len());
        }
        outgoing.body_bytes += framed as u64;
    }
    if let Some(file) = sending.body.file_mut()
        && file.sends_block()
    {
        turn.context.core.counters.stored_bytes += framed as u64;
    }
    sending.body.advance(framed);
}
