//! Begins requests of HTTP/2: known ones by the bytes of their lists, others through the gate. Called by [`h2`](super).

use std::sync::Arc;

use flash_http::RequestBuf;
use flash_http::h2::head::{BadRequest, read_head};
use flash_http::h2::{ErrorCode, FieldList, Priority, Receiving, Violation, Window};
use flash_http::request::{BadHead, Body, Request};

use super::answer_head::Head;
use super::stream::{Stream, StreamAnswer, StreamState};
use super::{H2, Workspace};
use crate::access_log::{AnswerEnd, LogFields, LogSource, LogText};
use crate::caches::{HeadHash, Persistence};
use crate::context::Ended;
use crate::exchange::relay::open;
use crate::exchange::{AfterBody, Exchange, LogEntry, Opening, Parked, Sending, Serving, State, Turn, Wake};
use crate::handler::{
    Admitted, FileRequest, FileRequestBuf, Found, Refusal, Response, Step, admit, answer, error_page,
    head_changes, head_changes_of_path, is_valid, malformed, readmit, remember, repeat,
};
use crate::head_changes::HeadChanges;
use crate::in_flight::Holds;
use crate::limits::H2_STREAM_WINDOW_BYTES;
use crate::machine::Machine;
use crate::requester::Requester;
use crate::slab::ExchangeKey;
use crate::timing::{CacheResult, Timing};
use crate::wire::conn::Conn;
use crate::wire::h1::HEAD_LIMITS;

/// A new stream.
#[derive(Clone, Debug)]
pub(super) struct Fresh {
    id: u32,
    requester: Requester,
    priority: Priority,
    receiving: Receiving,
    /// How rules change the head of the answer.
    changes: Option<Arc<HeadChanges>>,
    timing: Timing,
}

/// The request that a new stream asks.
enum StreamRequest<'r> {
    /// One for a file, whose answer can be repeated.
    File(&'r FileRequest<'r>),
    Other(&'r Request<'r>),
    /// It is malformed.
    Line(&'r [u8]),
    /// It was known by its list.
    Repeated(Option<LogText>),
}

impl StreamRequest<'_> {
    /// Whether rules bound the bandwidth of the answer.
    fn is_throttled(&self) -> bool {
        matches!(self, StreamRequest::File(file) if !Holds::throttles(file.holds.as_ref()).is_empty())
    }

    fn source(&self) -> Option<LogSource<'_>> {
        match self {
            StreamRequest::File(file) => Some(LogSource::Fields(LogFields::of(file.request))),
            StreamRequest::Other(request) => Some(LogSource::Fields(LogFields::of(request))),
            StreamRequest::Line(line) => Some(LogSource::Fields(LogFields::of_line(line))),
            StreamRequest::Repeated(log) => log.as_ref().map(LogSource::Text),
        }
    }
}

impl H2 {
    /// Begins the request of a new stream.
    pub(super) fn begin<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        (id, ends_stream): (u32, bool),
        workspace: &mut Workspace,
    ) -> Result<(), Violation> {
        let Workspace { list, scratch, .. } = workspace;
        let timing = turn.context.core.clock.timing(CacheResult::Hit);
        let receiving = if ends_stream { Receiving::Ended } else { Receiving::Open { left_bytes: None } };
        let (requester, priority) = (conn.requester, Priority::default());
        let fresh = Fresh { id, requester, priority, receiving, changes: None, timing };
        // A known list has no `priority` but the usual one.
        let hash = if ends_stream && self.early_priorities.is_empty() && !conn.is_proxy {
            match self.answer_repeated(conn, turn, (fresh.clone(), list)) {
                None => return Ok(()),
                Some(hash) => hash,
            }
        } else {
            HeadHash::NONE
        };
        let head = match read_head(list, ends_stream, &HEAD_LIMITS, scratch) {
            Ok(head) => head,
            Err(BadRequest::Malformed(reason)) => {
                turn.context.core.counters.requests += 1;
                return Err(Violation::stream(id, ErrorCode::PROTOCOL_ERROR, reason));
            }
            Err(BadRequest::Refused(bad)) => {
                self.refuse(conn, turn, (fresh, bad), list);
                return Ok(());
            }
        };
        let request = &head.request;
        let receiving = match request.body {
            _ if ends_stream => Receiving::Ended,
            Body::Length(bytes) => Receiving::Open { left_bytes: Some(bytes) },
            Body::None | Body::Chunked => Receiving::Open { left_bytes: None },
        };
        let priority = self.priority_of(id, head.priority);
        let requester = if conn.is_proxy {
            conn.named_requester(turn.context.core, &head.inbound("").fields)
        } else {
            conn.requester
        };
        turn.context.core.counters.requests += 1;
        *turn.serving = Serving::Line(request.line.to_vec());
        let hash = if priority == Priority::default() { hash } else { HeadHash::NONE };
        let client = (request, requester.scheme, requester.client());
        let admitted = admit(&mut turn.context, client, || head.inbound(requester.scheme.name()));
        let fresh = Fresh { requester, priority, receiving, ..fresh };
        self.begin_admitted(conn, turn, (fresh, request), admitted, (hash, list));
        Ok(())
    }

    /// Begins a request after the decision of the gate.
    fn begin_admitted<M: Machine>(
        &mut self,
        conn: &Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        (fresh, request): (Fresh, &Request<'_>),
        admitted: Admitted<'_, M::File>,
        (hash, list): (HeadHash, &FieldList),
    ) {
        let has_body = !request.body.is_empty();
        // The rules for fields follow the file that answers, which is known when it is found.
        let changes = match admitted {
            Admitted::File(_) if !has_body => None,
            _ => head_changes(turn.context.core, fresh.requester.scheme, request),
        };
        let fresh = Fresh { changes, ..fresh };
        match admitted {
            Admitted::Route(routed) => {
                let (opener, peer) = (conn.opener_for(&fresh.requester), fresh.requester.address);
                let key = open(turn, &routed, opener, peer, |machine| conn.local_address(machine));
                self.push(fresh, key, StreamState::Relaying(Box::default()));
            }
            Admitted::Answer(response) if has_body => {
                let after = AfterBody::Answer(RequestBuf::new(request), response);
                self.discard_body(conn, turn, (fresh, request), after);
            }
            // Reading a short body shows whether it is well-formed, and spares the client an error when it stops.
            Admitted::Refused(response) if has_body && is_short(request) => {
                let after = AfterBody::Answer(RequestBuf::new(request), response);
                self.discard_body(conn, turn, (fresh, request), after);
            }
            Admitted::Refused(response) | Admitted::Answer(response) => {
                self.reply(conn, turn, (fresh, StreamRequest::Other(request)), response);
            }
            Admitted::File(file) if has_body => {
                let after = AfterBody::File(FileRequestBuf::new(&file));
                self.discard_body(conn, turn, (fresh, request), after);
            }
            Admitted::File(file) => self.begin_file(conn, turn, (fresh, file), (hash, list)),
        }
    }

    fn begin_file<M: Machine>(
        &mut self,
        conn: &Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        (fresh, mut file): (Fresh, FileRequest<'_>),
        (hash, list): (HeadHash, &FieldList),
    ) {
        let step = answer(&mut turn.context, &mut file, Found::NOTHING);
        let response = match step {
            Step::Answer(response) => response,
            Step::Wait(wait) => {
                let log_entry = LogEntry::new(turn.context.core, file.request, CacheResult::Miss);
                match turn.exchanges.open_waiting(
                    &mut turn.context,
                    (conn.opener_for(&fresh.requester), log_entry),
                    &file,
                    *wait,
                ) {
                    Opening::Waits(key) => return self.push(fresh, key, StreamState::Pending),
                    Opening::Answer(response) => response,
                }
            }
        };
        let subject = (&file.path[..], file.request.origin);
        let changes = head_changes_of_path(turn.context.core, fresh.requester.scheme, file.site, subject);
        let fresh = Fresh { changes, ..fresh };
        let kept = (Persistence::Persists, &fresh.changes);
        remember(turn.context.core, (hash, list.as_bytes()), &file, &response, kept);
        self.reply(conn, turn, (fresh, StreamRequest::File(&file)), response);
    }

    /// Answers a request that is known by its list. Otherwise returns the hash that is needed to remember it.
    #[inline]
    fn answer_repeated<M: Machine>(
        &mut self,
        conn: &Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        (fresh, list): (Fresh, &FieldList),
    ) -> Option<HeadHash> {
        let core = &mut *turn.context.core;
        let (hash, known) = core.caches.repeated.get(list.as_bytes());
        let scheme = conn.requester.scheme;
        let usable = known.filter(|known| {
            is_valid(turn.context.machine, core, &known.reply, scheme) && !list.is_too_large()
        });
        let Some(known) = usable else {
            core.counters.known_misses += 1;
            return Some(hash);
        };
        let fresh = Fresh { changes: known.reply.changes.clone(), ..fresh };
        let content = known.reply.content().ok();
        // Last, because it counts for rates.
        let client = conn.requester.address.ip();
        let admitted = content.filter(|_| readmit(turn.context.machine, core, &known.reply, client));
        let Some(content) = admitted else {
            core.counters.known_misses += 1;
            return Some(hash);
        };
        core.counters.requests += 1;
        core.counters.known_hits += 1;
        content.iter().for_each(|content| core.counters.count_content(content.body().len() as u64));
        let response = repeat(&known.reply, content.as_ref());
        let log = known.log.clone();
        self.reply(conn, turn, (fresh, StreamRequest::Repeated(log)), response);
        None
    }

    /// Answers a request that is not valid, though its stream is.
    fn refuse<M: Machine>(
        &mut self,
        conn: &Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        (fresh, bad): (Fresh, BadHead),
        list: &FieldList,
    ) {
        turn.context.core.counters.requests += 1;
        let part =
            |wanted: &[u8]| list.iter().find(|field| field.0 == wanted).map_or(&b"-"[..], |field| field.1);
        let line = [part(b":method"), b" ", part(b":path"), b" HTTP/2.0"].concat();
        let response = malformed((bad.status(), bad.reason()));
        self.reply(conn, turn, (fresh, StreamRequest::Line(&line)), response);
    }

    /// Answers a new request: at once if all of the answer fits, otherwise through an exchange.
    fn reply<M: Machine>(
        &mut self,
        conn: &Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        (fresh, asked): (Fresh, StreamRequest<'_>),
        response: Response<M::File>,
    ) {
        let mut response = response;
        response.follow_rules(fresh.changes.as_deref());
        if !asked.is_throttled()
            && let Some(body) = self.whole_now(fresh.priority, &response.body)
        {
            let Fresh { id, requester, receiving, changes, mut timing, .. } = fresh;
            let Response { status, about, length, .. } = &response;
            let head = Head { status: *status, about, length: *length };
            self.push_head(turn.context.core, (id, body.is_empty()), changes.as_deref(), head);
            if !body.is_empty() {
                self.push_data((id, body), true);
            }
            let body_bytes = body.len() as u64;
            turn.context.core.schedule.note_answer(body_bytes);
            turn.context.note_first(&mut timing);
            turn.context.note_end(Ended {
                requester: &requester,
                source: asked.source(),
                timing,
                end: AnswerEnd { status: *status, body_bytes, is_whole: true },
            });
            return self.close_stream(id, receiving);
        }
        let lines = &turn.context.core.lines;
        let (file, log) = match asked {
            StreamRequest::File(file) => {
                (Some(FileRequestBuf::new(file)), lines.text(LogFields::of(file.request)))
            }
            StreamRequest::Other(request) => (None, lines.text(LogFields::of(request))),
            StreamRequest::Line(line) => (None, lines.text(LogFields::of_line(line))),
            StreamRequest::Repeated(log) => (None, log),
        };
        let Response { status, about, length, body, tries, .. } = response;
        let state = State::Sending(Sending::new(body, file, tries));
        let key = turn.exchanges.insert(Exchange {
            opener: conn.opener_for(&fresh.requester),
            log_entry: LogEntry { log, timing: fresh.timing },
            state,
        });
        let outgoing = StreamAnswer { status, head: Some((about, length)), body_bytes: 0 };
        self.push(fresh, key, StreamState::Sending(Box::new(outgoing)));
    }

    /// Adds a stream.
    fn push(&mut self, fresh: Fresh, key: ExchangeKey, state: StreamState) {
        let Fresh { id, requester, priority, receiving, changes, .. } = fresh;
        let stream = Stream {
            receiving,
            window: Window::new(self.first_window),
            changes,
            ..Stream::new((id, requester), key, priority, state)
        };
        self.streams.push(stream);
    }

    /// Reads a body that has no meaning before its request is answered.
    fn discard_body<M: Machine>(
        &mut self,
        conn: &Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        (fresh, request): (Fresh, &Request<'_>),
        after: AfterBody<M::File>,
    ) {
        if request.expect_continue {
            self.push_continue(fresh.id);
        }
        let log_entry = LogEntry::new(turn.context.core, request, CacheResult::Hit);
        let state = State::Reading(after);
        let key =
            turn.exchanges.insert(Exchange { opener: conn.opener_for(&fresh.requester), log_entry, state });
        let due_ms = turn.context.core.clock.ms() + turn.context.core.rules.timeouts.head_ms;
        self.push(fresh, key, StreamState::Discarding { read_bytes: 0, due_ms });
    }

    /// Refuses a request whose body is being discarded.
    pub(super) fn refuse_body<M: Machine>(&mut self, turn: &mut Turn<'_, M>, at: usize, refusal: Refusal) {
        let stream = &mut self.streams[at];
        let Exchange { opener, log_entry, state } = turn.exchanges.lend(stream.key);
        let State::Reading(after) = state else {
            unreachable!("a discarded body has an exchange that waits for it")
        };
        let state = stream.begin_answer(error_page(&after.request(), refusal), None);
        turn.exchanges.put_back(stream.key, Exchange { opener, log_entry, state });
        stream.is_blocked = false;
    }

    /// Continues a request whose body was discarded.
    pub(super) fn after_body<F>(stream: &mut Stream, after: AfterBody<F>) -> State<F> {
        match after {
            AfterBody::File(file) => {
                stream.state = StreamState::Pending;
                State::Woken(Parked::new(file), Wake::LookAgain)
            }
            AfterBody::Answer(_, response) => stream.begin_answer(response, None),
        }
    }
}

/// Whether the client sends the body unasked and without waiting for a window.
fn is_short(request: &Request<'_>) -> bool {
    let fits = |bytes: u64| bytes <= H2_STREAM_WINDOW_BYTES.into();
    !request.expect_continue && !matches!(request.body, Body::Length(bytes) if !fits(bytes))
}
