//! An exchange turns one request into one response. It does not know how many of them its
//! connection carries.

use std::collections::VecDeque;
use std::sync::Arc;

use flash_http::body::Chunked;
use flash_http::range::ByteRange;
use flash_http::request::Request;
use flash_http::response::Status;

use crate::access_log::{Ending, LogFormat, Record, write_line};
use crate::cache::{Content, NameEntry, Version, VersionId};
use crate::connection::{Budget, Next, Phase};
use crate::engine::Engine;
use crate::jobs::JobId;
use crate::limits::READ_BYTES_MAX;
use crate::slab::Key;
use crate::system::System;

/// A request with the bytes of its head, which an exchange that must wait keeps.
pub(crate) struct Asked<'b> {
    pub(crate) request: Request<'b>,
    pub(crate) head: &'b [u8],
}

/// An exchange that could not be finished in one go.
#[derive(Debug)]
pub(crate) struct Exchange<F> {
    /// The request head, parsed again when the answer can begin, or has to begin anew.
    pub(crate) head: Vec<u8>,
    pub(crate) record: Record,
    /// The rest of the request's body, while it is read.
    pub(crate) request_body: Option<RequestBody>,

    /// What the path was found to lead to.
    pub(crate) entry: Option<Arc<NameEntry>>,
    /// The content of the version that is answered with.
    pub(crate) content: Option<Arc<Content>>,
    /// The listing that is answered with.
    pub(crate) listing: Option<Arc<Version>>,
    /// The open file of a version that it waits for: the cache of open files may let it go.
    pub(crate) file: Option<(VersionId, Arc<F>)>,
    /// The file was found to be no longer what its entry says.
    pub(crate) changed: bool,
    /// Why a job gave no result.
    pub(crate) refused: Option<Refusal>,
    /// Times that it had to wait.
    pub(crate) tries: u8,
    /// The job that it waits for.
    pub(crate) waiting: Option<JobId>,

    pub(crate) status: Status,
    /// Bytes to be sent first: head, page, or what a helper handed over.
    pub(crate) out: Vec<u8>,
    pub(crate) out_at: usize,
    /// Then the bytes of `source` from `at` to `end`.
    pub(crate) source: Source<F>,
    pub(crate) at: u64,
    pub(crate) end: u64,
    /// Then these, for `multipart/byteranges`.
    pub(crate) parts: VecDeque<Part>,
    pub(crate) close: bool,
    /// Bytes of the response head.
    pub(crate) head_bytes: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) pace: Pace,

    /// Loads in vain for the same place of the file.
    pub(crate) loads: u8,
    /// Blocks being loaded ahead, and where the next one begins.
    pub(crate) ahead: Vec<JobId>,
    pub(crate) ahead_to: u64,
    /// How much is read at once: follows what the client takes.
    pub(crate) read_bytes: usize,
}

/// Why an exchange cannot give what was asked for.
pub(crate) type Refusal = (Status, &'static str);

/// Where a body is pulled from.
#[derive(Debug)]
pub(crate) enum Source<F> {
    /// There is none.
    None,
    /// A content in memory.
    Memory(Arc<Content>),
    /// A file.
    File(Arc<Version>, Arc<F>),
}

/// One part of a `multipart/byteranges` body.
#[derive(Debug)]
pub(crate) struct Part {
    /// What stands before it.
    pub(crate) text: Vec<u8>,
    /// The bytes of the file; None for the end.
    pub(crate) range: Option<ByteRange>,
}

/// How fast a client takes what it is sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// When the window began; None when not blocked on the client.
    pub(crate) since_ms: Option<u64>,
    /// What had been sent then.
    pub(crate) sent_bytes: u64,
}

/// What is left of a request's body, which is discarded.
#[derive(Debug)]
pub(crate) enum RequestBody {
    /// So many bytes.
    Length(u64),
    /// Chunks, and the bytes of them so far, framing included.
    Chunked(Chunked, u64),
}

impl<F> Exchange<F> {
    pub(crate) fn new(record: Record) -> Self {
        Self {
            head: Vec::new(),
            record,
            request_body: None,
            entry: None,
            content: None,
            listing: None,
            file: None,
            changed: false,
            refused: None,
            tries: 0,
            waiting: None,
            status: Status::OK,
            out: Vec::new(),
            out_at: 0,
            source: Source::None,
            at: 0,
            end: 0,
            parts: VecDeque::new(),
            close: false,
            head_bytes: 0,
            sent_bytes: 0,
            pace: Pace::default(),
            loads: 0,
            ahead: Vec::new(),
            ahead_to: 0,
            read_bytes: READ_BYTES_MAX,
        }
    }

    /// Whether an answer has been decided on.
    pub(crate) fn has_begun(&self) -> bool {
        self.head_bytes > 0
    }

    /// Forgets an answer of which nothing was sent, so that the request can be answered anew.
    pub(crate) fn begin_anew(&mut self) {
        let record = std::mem::take(&mut self.record);
        let old = std::mem::replace(self, Self::new(record));
        self.head = old.head;
        self.refused = old.refused;
        self.changed = old.changed;
        self.tries = old.tries.saturating_add(1);
        self.ahead = old.ahead;
    }
}

impl<S: System> Engine<S> {
    /// Keeps a request until `job` is done.
    pub(crate) fn park(
        &mut self,
        key: Key,
        asked: &Asked<'_>,
        exchange: Option<Box<Exchange<S::File>>>,
        job: JobId,
    ) -> Next {
        let mut exchange = self.boxed(exchange);
        exchange.head = asked.head.to_vec();
        exchange.tries = exchange.tries.saturating_add(1);
        exchange.waiting = Some(job);
        let Some(connection) = self.connections.get_mut(key) else { return Next::Close };
        connection.phase = Phase::Answer;
        connection.exchange = Some(exchange);
        // The job has a deadline of its own.
        connection.deadline_ms = u64::MAX;
        Next::Blocked
    }

    /// Goes on with a request that was kept, once its job is done.
    pub(crate) fn resume(&mut self, sys: &mut S, key: Key, budget: &mut Budget) -> Next {
        let Some(connection) = self.connections.get_mut(key) else { return Next::Close };
        let Some(mut exchange) = connection.exchange.take() else { return Next::Close };
        if exchange.waiting.is_some() {
            connection.exchange = Some(exchange);
            return Next::Blocked;
        }
        // For the report of a panic.
        self.record.line.clone_from(&exchange.record.line);
        let head = std::mem::take(&mut exchange.head);
        match flash_http::request::parse_head(&head, &self.head_limits) {
            Ok(flash_http::request::Head::Complete(request)) => {
                let asked = Asked { request, head: &head };
                let next = self.answer(sys, key, &asked, Some(exchange), budget);
                // What follows a finished exchange is the connection's next request.
                if next == Next::Finished { self.back_to_head(key) } else { next }
            }
            // It was parsed before with the same result.
            _ => Next::Close,
        }
    }

    /// The exchange so far, or a new one with the record of the request just read.
    pub(crate) fn boxed(&mut self, exchange: Option<Box<Exchange<S::File>>>) -> Box<Exchange<S::File>> {
        exchange.unwrap_or_else(|| Box::new(Exchange::new(std::mem::take(&mut self.record))))
    }

    /// Makes a connection ready for its next request.
    pub(crate) fn back_to_head(&mut self, key: Key) -> Next {
        let Some(connection) = self.connections.get_mut(key) else { return Next::Close };
        connection.phase = Phase::Head { begun: false };
        connection.note_answered();
        Next::Finished
    }

    /// Remembers of a request what its log line needs.
    pub(crate) fn begin_record(&mut self, line: &[u8], request: Option<&Request<'_>>) {
        self.counters.requests += 1;
        let record = &mut self.record;
        for field in [&mut record.line, &mut record.host, &mut record.referer, &mut record.agent] {
            field.clear();
        }
        record.line.extend_from_slice(line);
        record.started_ms = self.now.monotonic_ms;
        if self.rules.log_format == LogFormat::Off {
            return;
        }
        if let Some(request) = request {
            record.host.extend_from_slice(request.host);
            record.referer.extend_from_slice(request.referer.unwrap_or_default());
            record.agent.extend_from_slice(request.user_agent.unwrap_or_default());
        }
    }

    /// The same for a request whose record is known.
    pub(crate) fn repeat_record(&mut self, known: &Record) {
        self.counters.requests += 1;
        let record = &mut self.record;
        record.line.clone_from(&known.line);
        record.started_ms = self.now.monotonic_ms;
        if self.rules.log_format == LogFormat::Off {
            return;
        }
        record.host.clone_from(&known.host);
        record.referer.clone_from(&known.referer);
        record.agent.clone_from(&known.agent);
    }

    /// Counts and logs an exchange that went through [`Exchange`].
    pub(crate) fn log_ending(
        &mut self,
        sys: &mut S,
        peer: std::net::SocketAddr,
        exchange: &Exchange<S::File>,
        whole: bool,
    ) {
        self.counters.count_response(exchange.status, whole);
        let body_bytes = exchange.sent_bytes.saturating_sub(exchange.head_bytes);
        self.log(sys, peer, &exchange.record, exchange.status, body_bytes, whole);
    }

    /// Logs one exchange, if lines are wanted.
    pub(crate) fn log(
        &self,
        sys: &mut S,
        peer: std::net::SocketAddr,
        record: &Record,
        status: Status,
        body_bytes: u64,
        whole: bool,
    ) {
        if self.rules.log_format == LogFormat::Off {
            return;
        }
        let duration_ms = self.now.monotonic_ms.saturating_sub(record.started_ms);
        let ending = Ending { status: status.0, body_bytes, whole, duration_ms };
        let mut line = String::with_capacity(256);
        write_line(&mut line, self.rules.log_format, peer, self.wall_s(), record, ending);
        sys.log_access(line.as_bytes());
    }
}
