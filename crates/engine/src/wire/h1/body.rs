//! Reads request bodies, because the next request follows them on the connection. Called by [`h1`](super).

use flash_http::RequestBuf;
use flash_http::request::Request;

use super::send::Answering;
use super::{Flow, H1, Phase, record};
use crate::exchange::Turn;
use crate::exchange::{Exchange, RequestBody, State};
use crate::handler::{REQUEST_LATE, Refusal, malformed};
use crate::machine::Machine;
use crate::slab::ExchangeKey;
use crate::transport::Received;
use crate::wire::conn::{Conn, Verdict};

impl H1 {
    /// Starts to read a request body, because the next request follows it.
    pub(super) fn begin_body<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        request: &Request<'_>,
        body: RequestBody,
    ) -> Flow {
        if request.expect_continue {
            let interim = b"HTTP/1.1 100 Continue\r\n\r\n";
            let sent = conn.transport.send(turn.desk.machine, interim, &[]);
            turn.desk.core.counters.sends.add(sent.unwrap_or(0) as u64);
            match sent {
                Ok(sent) if sent == interim.len() => {}
                // The interim response is optional; the client continues without it after a while (RFC 9110,
                // section 10.1.1).
                Ok(0) => {}
                _ => return Flow::Over(Verdict::Close),
            }
        }
        let state = State::Reading(RequestBuf::new(request), body);
        let record = record(turn, request);
        let key = turn.exchanges.insert(Exchange { opener: conn.opener, record, state });
        self.phase = Phase::Pending(key);
        conn.deadline_ms = turn.desk.core.clock.ms() + turn.desk.core.rules.timeouts.head_ms;
        Flow::Again
    }

    /// Answers 408, because the request body did not arrive in time.
    pub(super) fn give_body_up<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        key: ExchangeKey,
    ) -> Flow {
        let exchange = turn.exchanges.lend(key);
        match exchange.state {
            State::Reading(request, _) => {
                let answering = Answering::kept(key, exchange.record, request, turn).closing();
                self.reply(conn, turn, answering, malformed(REQUEST_LATE))
            }
            state => {
                turn.exchanges.put_back(key, Exchange { state, ..exchange });
                Flow::Over(Verdict::Blocked)
            }
        }
    }
}

/// The result of reading a body.
pub(super) enum Reading {
    Done,
    Over(Verdict),
    Refused(Refusal),
}

/// Reads more of a request body.
pub(super) fn read_body<M: Machine>(
    conn: &mut Conn<M::Socket>,
    turn: &mut Turn<'_, M>,
    buffer: &mut [u8],
    body: &mut RequestBody,
) -> Reading {
    let mut filled = conn.input.len();
    buffer[..filled].copy_from_slice(&conn.take_input(turn.inputs));
    loop {
        match body.skip(&buffer[..filled]) {
            Ok(Some(consumed)) => {
                if !conn.keep_input(turn.inputs, &buffer[consumed..filled]) {
                    conn.transport.stop_receiving();
                }
                return Reading::Done;
            }
            Ok(None) => {}
            Err(refusal) => return Reading::Refused(refusal),
        }
        if turn.budget.bytes == 0 {
            return Reading::Over(Verdict::Yield);
        }
        match conn.transport.receive(turn.desk.machine, buffer) {
            Received::Bytes(n) => {
                filled = n;
                turn.budget.bytes = turn.budget.bytes.saturating_sub(n);
            }
            Received::Nothing => return Reading::Over(Verdict::Blocked),
            Received::End | Received::Failed => return Reading::Over(Verdict::Close),
        }
    }
}
