//! An exchange turns one request into one response. It sees no socket and no connection: a wire opens it, lends it for a
//! turn, and pulls its body. Jobs know it by its [`ExchangeKey`].
//!
//! Its state is a value that is taken and replaced, so a stale one cannot be used:
//!
//! ```text
//! Reading ──body read──> (handler) ──Wait──> Waiting ──job done──> Woken ──> (handler) ──Answer──> Sending ──> gone
//!                            └──────────────────────Answer───────────────────────────────────────────┘
//! ```
//!
//! An answer that one send takes whole needs no exchange at all: then the wire has called [`begin`] and is done.

mod completion;
mod request_body;
mod sending;

use std::net::SocketAddr;

use flash_http::RequestBuf;
use flash_http::request::Request;
use flash_http::response::Status;

pub(crate) use completion::finish_job;
pub(crate) use request_body::RequestBody;
pub(crate) use sending::{Halt, Sending};

use crate::access_log::{LogSource, LogText};
use crate::desk::{Desk, Ended};
use crate::handler::{self, BUSY, Found, Refusal, Response, Step, TOO_LARGE, UNSTEADY, Wait};
use crate::jobs::Waiter;
use crate::limits::TRIES_MAX;
use crate::machine::{JobId, Machine};
use crate::slab::{ClientNumber, ExchangeKey, Key, Slab};

/// A request and how far its response is.
#[derive(Debug)]
pub(crate) struct Exchange<F> {
    pub(crate) opener: Opener,
    pub(crate) record: Record,
    pub(crate) state: State<F>,
}

/// The connection and the client that an exchange belongs to. Only the wire and the jobs interpret them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opener {
    pub(crate) connection: Key,
    pub(crate) client: ClientNumber,
}

/// A request's part of its log line, kept while it waits.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// None when no lines are wanted.
    pub(crate) log: Option<LogText>,
    pub(crate) started_ms: u64,
}

/// How far an exchange is.
#[derive(Debug)]
pub(crate) enum State<F> {
    /// The request's body is being read.
    Reading(RequestBuf, RequestBody),
    /// A job has to be done before the answer can begin.
    Waiting(JobId, Parked<F>),
    /// The job is done: the handler has to be asked again.
    Woken(Parked<F>, Wake),
    /// The answer is being sent.
    Sending(Sending<F>),
}

/// A request that has to wait, and what was found for it.
#[derive(Debug)]
pub(crate) struct Parked<F> {
    pub(crate) request: RequestBuf,
    pub(crate) found: Found<F>,
}

/// How a request goes on after its wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wake {
    LookAgain,
    /// The file was found to be no longer what its entry says.
    ForgetAndLook,
    Refuse(Refusal),
}

/// How a request whose head is whole goes on.
pub(crate) enum Admission<F> {
    /// The handler can be asked.
    Ready,
    /// Its body has to be read first, for the next request follows it.
    Reads(RequestBody),
    /// It is refused, whatever the body.
    Refused(Response<F>),
}

/// Decides whether a request is read on. A body has no meaning for any method that is served (RFC 9110, section 9.3.1), so
/// it is read and discarded.
pub(crate) fn admit<F>(request: &Request<'_>) -> Admission<F> {
    if let Some(refusal) = handler::refusal_of_method(request) {
        return Admission::Refused(handler::error_page(request, refusal));
    }
    if !handler::has_body(request) {
        return Admission::Ready;
    }
    match RequestBody::new(request.body) {
        Some(body) => Admission::Reads(body),
        None => Admission::Refused(handler::error_page(request, TOO_LARGE)),
    }
}

/// Asks the handler for the first time.
#[inline]
pub(crate) fn begin<M: Machine>(desk: &mut Desk<'_, M>, request: &Request<'_>) -> Step<M::File> {
    handler::answer(desk, request, Found::NOTHING)
}

/// Asks the handler again after a wait.
fn resume<M: Machine>(
    desk: &mut Desk<'_, M>,
    parked: Parked<M::File>,
    wake: Wake,
) -> (RequestBuf, Step<M::File>) {
    let Parked { request, found } = parked;
    let step = match wake {
        Wake::LookAgain => handler::answer(desk, &request.request(), found),
        // Look again, but not for ever.
        Wake::ForgetAndLook if found.tries > 3 * TRIES_MAX => {
            Step::Answer(handler::error_page(&request.request(), UNSTEADY))
        }
        Wake::ForgetAndLook => {
            handler::forget(desk, &request.request());
            handler::answer(desk, &request.request(), found.anew())
        }
        Wake::Refuse(refusal) => Step::Answer(handler::error_page(&request.request(), refusal)),
    };
    (request, step)
}

/// The result of asking an exchange to go on.
pub(crate) enum Progress<F> {
    /// It waits; it is told when its job is done.
    Waits(State<F>),
    /// The answer to its request.
    Answer(RequestBuf, Response<F>),
}

/// Goes on with an exchange that was woken, or whose request is whole. `key` is its own.
pub(crate) fn proceed<M: Machine>(
    desk: &mut Desk<'_, M>,
    waiter: Waiter,
    parked: Parked<M::File>,
    wake: Wake,
) -> Progress<M::File> {
    let (request, step) = resume(desk, parked, wake);
    match step {
        Step::Answer(response) => Progress::Answer(request, response),
        Step::Wait(wait) => park(desk, waiter, request, *wait),
    }
}

/// Makes an exchange wait for a job, if there is room for the job.
fn park<M: Machine>(
    desk: &mut Desk<'_, M>,
    waiter: Waiter,
    request: RequestBuf,
    wait: Wait<M::File>,
) -> Progress<M::File> {
    let Wait { wanted, mut found } = wait;
    found.tries = found.tries.saturating_add(1);
    match desk.core.jobs.submit(wanted, Some(waiter), desk.core.clock.ms()) {
        Some(job) => Progress::Waits(State::Waiting(job, Parked { request, found })),
        None => {
            let page = handler::error_page(&request.request(), BUSY);
            Progress::Answer(request, page)
        }
    }
}

/// The result of opening an exchange with a wait.
pub(crate) enum Opening<F> {
    Waits(ExchangeKey),
    /// There was no room for the job: this is the answer instead.
    Answer(Response<F>),
}

/// The exchanges of a worker.
#[derive(Debug)]
pub(crate) struct Exchanges<F>(Slab<Exchange<F>>);

impl<F> Exchanges<F> {
    pub(crate) fn new() -> Self {
        Self(Slab::new())
    }

    pub(crate) fn insert(&mut self, exchange: Exchange<F>) -> ExchangeKey {
        ExchangeKey(self.0.insert(exchange))
    }

    pub(crate) fn get(&self, key: ExchangeKey) -> Option<&Exchange<F>> {
        self.0.get(key.0)
    }

    /// Takes an exchange for a turn of its wire.
    ///
    /// # Panics
    /// When there is none, which is a bug of the wire: it costs the connection alone.
    pub(crate) fn lend(&mut self, key: ExchangeKey) -> Exchange<F> {
        self.0.lend(key.0).expect("a wire's exchange is there until the wire ends it")
    }

    pub(crate) fn put_back(&mut self, key: ExchangeKey, exchange: Exchange<F>) {
        self.0.put_back(key.0, exchange);
    }

    /// The exchange is over; it was lent.
    pub(crate) fn end_lent(&mut self, key: ExchangeKey) {
        self.0.free_lent(key.0);
    }

    fn remove(&mut self, key: ExchangeKey) -> Option<Exchange<F>> {
        self.0.remove(key.0)
    }

    /// Opens an exchange whose first step is a wait.
    pub(crate) fn open_waiting<M: Machine<File = F>>(
        &mut self,
        desk: &mut Desk<'_, M>,
        (opener, record): (Opener, Record),
        request: &Request<'_>,
        wait: Wait<F>,
    ) -> Opening<F> {
        let request = RequestBuf::new(request);
        let reading = State::Reading(request.clone(), RequestBody::NONE);
        let key = self.insert(Exchange { opener, record, state: reading });
        let waiter = Waiter { exchange: key, client: opener.client };
        let mut exchange = self.lend(key);
        match park(desk, waiter, request, wait) {
            Progress::Waits(state) => {
                exchange.state = state;
                self.put_back(key, exchange);
                Opening::Waits(key)
            }
            Progress::Answer(_, response) => {
                self.end_lent(key);
                Opening::Answer(response)
            }
        }
    }

    /// Ends an exchange before its time: its jobs are left, and what was sent of an answer is logged. `sent` is the status,
    /// if an answer has begun, and the bytes of its body.
    pub(crate) fn abort<M: Machine<File = F>>(
        &mut self,
        desk: &mut Desk<'_, M>,
        key: ExchangeKey,
        peer: &SocketAddr,
        sent: Option<(Status, u64)>,
    ) {
        let Some(mut exchange) = self.remove(key) else {
            // A panic in its turn: it was lent and is lost.
            self.0.free_lent(key.0);
            return desk.core.jobs.leave_all(key);
        };
        match &mut exchange.state {
            State::Waiting(job, _) => desk.core.jobs.leave(*job, key),
            State::Sending(sending) => sending.leave_jobs(&mut desk.core.jobs, key),
            State::Reading(..) | State::Woken(..) => {}
        }
        if let Some((status, body_bytes)) = sent {
            exchange.record.note_end(desk, peer, (status, body_bytes, false));
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Record {
    /// Counts and logs the end of the exchange: its status, the bytes of its body, and whether the answer was sent whole.
    pub(crate) fn note_end<M: Machine>(
        &self,
        desk: &mut Desk<'_, M>,
        peer: &SocketAddr,
        (status, body_bytes, whole): (Status, u64, bool),
    ) {
        let source = self.log.as_ref().map(LogSource::Text);
        let ended = Ended { peer, source, started_ms: self.started_ms, status, body_bytes, whole };
        if let Some(line) = desk.core.note_end(ended) {
            desk.machine.log_access(line);
        }
    }
}
