//! An exchange turns one request into one response. It knows no socket and no connection: a wire opens it,
//! lends it for a turn, and pulls its body. Jobs refer to it by its [`ExchangeKey`].
//!
//! Its state is a value that is taken and replaced, so a stale state cannot be used:
//!
//! ```text
//! Reading ──body read──> (handler) ──Wait──> Waiting ──job done──> Woken ──> (handler) ──Answer──> Sending ──> gone
//!                            └──────────────────────Answer───────────────────────────────────────────┘
//! ```
//!
//! An answer that fits in one send needs no exchange: the wire calls [`handler::answer`] and sends the answer itself.

mod completion;
mod pace;
pub(crate) mod relay;
mod sending;
mod turn;

use std::borrow::Cow;

use flash_http::RequestBuf;
use flash_http::request::Request;
use flash_http::response::Status;

pub(crate) use completion::{end_short_waits, finish_job};
use pace::Pace;
pub(crate) use relay::Relay;
pub(crate) use sending::{Halt, Sending};
pub(crate) use turn::{Budget, Inputs, Serving, Turn};

use crate::access_log::{AnswerEnd, LogFields, LogSource, LogText};
use crate::context::{Context, Core, Ended};
use crate::handler::{self, FileRequest, FileRequestBuf, Found, Refusal, Response, Step, UNSTEADY, Wait};
use crate::jobs::{NoRoom, Waiter};
use crate::limits::TRIES_MAX;
use crate::machine::{JobId, Machine};
use crate::requester::Requester;
use crate::shares::Sharer;
use crate::slab::{ClientNumber, ExchangeKey, Key, Slab};
use crate::timing::{CacheResult, Timing};

/// The status in the log and the counters of a request whose client left before its answer. Nobody gets it; nginx has the
/// same number.
pub(crate) const CLIENT_LEFT: Status = Status(499);

/// A request and the progress of its response.
#[derive(Debug)]
pub(crate) struct Exchange<F> {
    pub(crate) opener: Opener,
    pub(crate) log_entry: LogEntry,
    pub(crate) state: State<F>,
}

/// The connection and the client that an exchange belongs to. Only wires and jobs interpret these keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opener {
    pub(crate) connection: Key,
    pub(crate) client: ClientNumber,
    /// Whether the client is exempt from bounds of its own.
    pub(crate) is_exempt: bool,
}

impl Opener {
    /// The client, as far as its shares are concerned.
    pub(crate) fn sharer(self) -> Sharer {
        Sharer { client: self.client, is_exempt: self.is_exempt }
    }
}

/// The log fields and the course of a request, kept until its answer ends.
#[derive(Clone, Debug)]
pub(crate) struct LogEntry {
    /// None when access logging is off.
    pub(crate) log: Option<LogText>,
    pub(crate) timing: Timing,
}

/// The progress of an exchange.
#[derive(Debug)]
pub(crate) enum State<F> {
    /// The wire reads the request body, which has no meaning.
    Reading(AfterBody<F>),
    /// The answer cannot begin before this job is done.
    Waiting(JobId, Parked<F>),
    /// The job is done, and the handler must be called again.
    Woken(Parked<F>, Wake),
    /// The answer is being sent.
    Sending(Sending<F>),
    /// An upstream answers.
    Relaying(Box<Relay>),
}

/// How a request continues once its body was read.
#[derive(Debug)]
pub(crate) enum AfterBody<F> {
    /// A file answers.
    File(FileRequestBuf),
    /// This is the answer.
    Answer(RequestBuf, Response<F>),
}

impl<F> AfterBody<F> {
    pub(crate) fn request(&self) -> Request<'_> {
        match self {
            AfterBody::File(file) => file.request(),
            AfterBody::Answer(request, _) => request.request(),
        }
    }
}

impl<F> State<F> {
    /// The job before which nothing of the answer can begin.
    pub(crate) fn begins_after(&self) -> Option<JobId> {
        match self {
            State::Waiting(job, _) => Some(*job),
            State::Relaying(relay) => relay.begins_after(),
            State::Reading(..) | State::Woken(..) | State::Sending(_) => None,
        }
    }
}

/// A request that waits, and everything already found for it.
#[derive(Debug)]
pub(crate) struct Parked<F> {
    pub(crate) file: FileRequestBuf,
    pub(crate) found: Found<F>,
    /// When the request first waited for a job; None if it has not waited.
    pub(crate) waits_since_ms: Option<u64>,
}

impl<F> Parked<F> {
    /// A request that is complete, with nothing found for it yet.
    pub(crate) fn new(file: FileRequestBuf) -> Self {
        Self { file, found: Found::NOTHING, waits_since_ms: None }
    }
}

/// How a request continues after its wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wake {
    LookAgain,
    /// The file is no longer in the state that its entry describes.
    ForgetAndLook,
    Refuse(Refusal),
}

/// Calls the handler again after a wait.
fn resume<M: Machine>(
    context: &mut Context<'_, M>,
    file: &mut FileRequestBuf,
    found: Found<M::File>,
    wake: Wake,
) -> Step<M::File> {
    let request = file.request();
    let mut asked = file.lent(&request);
    let step = match wake {
        Wake::LookAgain => handler::answer(context, &mut asked, found),
        // The number of attempts is bounded, in case the file keeps changing.
        Wake::ForgetAndLook if found.tries > 3 * TRIES_MAX => {
            Step::Answer(handler::error_page(&request, UNSTEADY))
        }
        Wake::ForgetAndLook => {
            handler::forget(context, &asked);
            handler::answer(context, &mut asked, found.next_try())
        }
        Wake::Refuse(refusal) => Step::Answer(handler::error_page(&request, refusal)),
    };
    let FileRequest { site, path, substitute, checks, .. } = asked;
    if let Cow::Owned(path) = path {
        file.path = path.into();
    }
    (file.site, file.substitute, file.checks) = (site, substitute, checks);
    step
}

/// The result of [`proceed`].
pub(crate) enum Progress<F> {
    /// The exchange waits for a job, which will wake it.
    Waits(State<F>),
    /// The request, and its answer.
    Answer(FileRequestBuf, Response<F>),
}

/// Continues an exchange that was woken, or whose request is complete. `waiter` is the exchange itself.
pub(crate) fn proceed<M: Machine>(
    context: &mut Context<'_, M>,
    waiter: Waiter,
    parked: Parked<M::File>,
    wake: Wake,
) -> Progress<M::File> {
    let Parked { mut file, found, waits_since_ms } = parked;
    match resume(context, &mut file, found, wake) {
        Step::Answer(response) => Progress::Answer(file, response),
        Step::Wait(wait) => park(context, waiter, (file, waits_since_ms), *wait),
    }
}

/// Makes an exchange wait for a job, if the queue has room. A request that has waited before keeps its place
/// in the queue.
fn park<M: Machine>(
    context: &mut Context<'_, M>,
    waiter: Waiter,
    (file, waits_since_ms): (FileRequestBuf, Option<u64>),
    wait: Wait<M::File>,
) -> Progress<M::File> {
    let Wait { wanted, mut found } = wait;
    found.tries = found.tries.saturating_add(1);
    let now_ms = context.core.clock.ms();
    let since_ms = waits_since_ms.unwrap_or(now_ms);
    match context.core.jobs.submit_since(wanted, Some(waiter), since_ms, now_ms) {
        Ok(job) => {
            if found.stale.is_some() {
                context.core.jobs.wait_shortly(job, waiter.exchange, now_ms);
            }
            let parked = Parked { file, found, waits_since_ms: Some(since_ms) };
            Progress::Waits(State::Waiting(job, parked))
        }
        Err(NoRoom { wait_ms }) => {
            let page = handler::busy_page(&file.request(), wait_ms);
            Progress::Answer(file, page)
        }
    }
}

/// The result of [`Exchanges::open_waiting`].
pub(crate) enum Opening<F> {
    Waits(ExchangeKey),
    /// The queue had no room for the job: this answer is sent instead.
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

    /// Makes the key of a new exchange, as if it were lent.
    pub(crate) fn reserve(&mut self) -> ExchangeKey {
        ExchangeKey(self.0.reserve())
    }

    pub(crate) fn get(&self, key: ExchangeKey) -> Option<&Exchange<F>> {
        self.0.get(key.0)
    }

    /// Takes an exchange out for a turn of its wire.
    ///
    /// # Panics
    /// If there is no such exchange. That would be a bug of the wire; it costs only this connection.
    pub(crate) fn lend(&mut self, key: ExchangeKey) -> Exchange<F> {
        self.0.lend(key.0).expect("an exchange exists until its wire ends it")
    }

    pub(crate) fn put_back(&mut self, key: ExchangeKey, exchange: Exchange<F>) {
        self.0.put_back(key.0, exchange);
    }

    pub(crate) fn end_lent(&mut self, key: ExchangeKey) {
        self.0.free_lent(key.0);
    }

    fn remove(&mut self, key: ExchangeKey) -> Option<Exchange<F>> {
        self.0.remove(key.0)
    }

    /// Opens an exchange that begins by waiting for a job.
    pub(crate) fn open_waiting<M: Machine<File = F>>(
        &mut self,
        context: &mut Context<'_, M>,
        (opener, log_entry): (Opener, LogEntry),
        file: &FileRequest<'_>,
        wait: Wait<F>,
    ) -> Opening<F> {
        let key = self.reserve();
        let waiter = Waiter { exchange: key, client: opener.client };
        match park(context, waiter, (FileRequestBuf::new(file), None), wait) {
            Progress::Waits(state) => {
                self.put_back(key, Exchange { opener, log_entry, state });
                Opening::Waits(key)
            }
            Progress::Answer(_, response) => {
                self.end_lent(key);
                Opening::Answer(response)
            }
        }
    }

    /// When the wait of a relayed request ends.
    pub(crate) fn due_ms(&self, key: ExchangeKey) -> u64 {
        match self.get(key).map(|exchange| &exchange.state) {
            Some(State::Relaying(relay)) => relay.due_ms,
            _ => u64::MAX,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl<M: Machine> Turn<'_, M> {
    /// Ends an exchange early: leaves its jobs and its link, and logs the part of the answer that was sent. `sent` is the
    /// status, which is [`CLIENT_LEFT`] if the answer has not begun, and the body bytes sent; None
    /// after a panic.
    pub(crate) fn abort(&mut self, key: ExchangeKey, requester: &Requester, sent: Option<(Status, u64)>) {
        let Some(mut exchange) = self.exchanges.remove(key) else {
            // The exchange was lost in a panic while it was lent.
            self.exchanges.end_lent(key);
            self.links.leave_all(self.context.machine, key, self.context.core.clock.ms());
            self.context.core.spool.end_all(key, &mut self.context.core.jobs);
            return self.context.core.jobs.leave_all(key);
        };
        let mut sent = sent;
        match &mut exchange.state {
            State::Sending(sending) => sending.leave(&mut self.context, key),
            state => state.begins_after().into_iter().for_each(|job| self.context.core.jobs.leave(job, key)),
        }
        if let State::Relaying(relay) = &mut exchange.state {
            relay::leave(self, relay);
            let of_reply = relay.reply.as_ref().map(|reply| (reply.status, reply.body_bytes));
            sent = sent.map(|sent| of_reply.unwrap_or(sent));
        }
        if let Some((status, body_bytes)) = sent {
            let end = AnswerEnd { status, body_bytes, is_whole: false };
            exchange.log_entry.note_end(&mut self.context, requester, end);
        }
    }
}

impl LogEntry {
    pub(crate) fn new<F>(core: &Core<F>, request: &Request<'_>, result: CacheResult) -> Self {
        let log = core.lines.text(LogFields::of(request));
        Self { log, timing: core.clock.timing(result) }
    }

    /// Counts and logs the end of the exchange.
    pub(crate) fn note_end<M: Machine>(
        &self,
        context: &mut Context<'_, M>,
        requester: &Requester,
        end: AnswerEnd,
    ) {
        let source = self.log.as_ref().map(LogSource::Text);
        context.note_end(Ended { requester, source, timing: self.timing, end });
    }
}
