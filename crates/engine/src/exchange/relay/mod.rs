//! A request that an upstream answers: its transaction with a server, its link, and the answer on its way to the client.
//!
//! A wire opens the relay of a request ([`open()`]) and gives it a turn ([`advance`]) whenever the client, the server or a
//! helper can continue. It passes itself as the [`RelayClient`]: it takes the request body out of its framing, and frames the
//! answer. Everything else is decided here, for all wires: the link, which body is held back, deadlines, and where an
//! answer waits that its client reads slowly.

mod answer;
mod compress;
mod gzip;
mod open;
mod password;
mod pump;
mod search;
mod upload;
mod upload_rate;

use std::sync::Arc;

use flash_http::RequestBuf;
use flash_http::request::{Method, Request};
use flash_http::response::Status;
use flash_http::upstream_response::{ResponseBody, ResponseHead};

pub(crate) use open::open;
pub(crate) use pump::{advance, expire, leave};

use super::{CLIENT_LEFT, LogEntry, Opener, Pace, Turn};
use crate::access_log::AnswerEnd;
use crate::caches::NameEntry;
use crate::handler::{FileRequestBuf, PasswordCheck, Refusal, RelayedHead};
use crate::limits::TRIES_MAX;
use crate::machine::{JobId, Machine};
use crate::requester::Requester;
use crate::rules::UpstreamId;
use crate::slab::ExchangeKey;
use crate::slab::SiteId;
use crate::transport::Gone;
use crate::upstream::{BadAnswer, FailedServers, LinkClaim, Seeker, Transaction};
use gzip::Gzip;
use upload_rate::UploadRate;

/// The client of a relayed request, as its wire shows it.
pub(crate) trait RelayClient<M: Machine> {
    /// Receives a part of the request body. Its data, without framing, is then at the front of `buffer`.
    fn receive(&mut self, turn: &mut Turn<'_, M>, buffer: &mut [u8]) -> ReceivedBody;

    /// Asks a client that waits for it to send the body (RFC 9110, section 10.1.1).
    fn invite(&mut self, turn: &mut Turn<'_, M>) -> Result<(), Gone>;

    /// Whether the client has closed its sending side.
    fn is_half_closed(&self) -> bool;

    /// Whether the client takes bytes of the answer now.
    fn is_writable(&self) -> bool;

    /// Frames the head of the answer.
    fn begin(&mut self, turn: &mut Turn<'_, M>, request: &Request<'_>, answer: RelayedHead<'_>);

    /// Frames data of the answer.
    fn frame(&mut self, data: &[u8]);

    /// Frames data of the answer, and can send it at once instead of copying it.
    fn pass(&mut self, turn: &mut Turn<'_, M>, data: &[u8]) -> Result<(), Gone>;

    /// Frames the end of the answer.
    fn end(&mut self);

    /// How many framed bytes were not sent yet.
    fn unsent_bytes(&self) -> usize;

    /// Sends framed bytes, at most `bytes_max`, and returns how many. The answer has this rank among those that wait for an uplink.
    fn send(&mut self, turn: &mut Turn<'_, M>, bytes_max: usize, rank_bytes: u64) -> Result<usize, Gone>;
}

/// The result of receiving a request body.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReceivedBody {
    /// This many bytes of data, and whether they are the last.
    Data { bytes: usize, is_last: bool },
    /// There are none now.
    Nothing,
    /// The client sends no more. Or the server had no room for what it has sent (`is_stopped`).
    End { is_stopped: bool },
    /// The connection failed.
    Gone,
    /// The body is malformed.
    Refused(Refusal),
}

/// How a turn of a relay ended.
#[derive(Debug)]
pub(crate) enum Advance {
    /// It waits, at most until [`Relay::due_ms`].
    Blocked,
    /// It has used up its turn.
    Yield,
    /// All of the answer was sent.
    Done,
    /// The client gets no more of the answer, and must notice that it is not complete.
    Cut,
    Refused(Refusal),
    /// A file answers this request instead.
    HandBack(Box<FileRequestBuf>),
}

/// Why a step could not be made.
enum Stop {
    Advance(Advance),
    /// The server, or its answer, is at fault.
    Failed(BadAnswer),
}

impl From<BadAnswer> for Stop {
    fn from(failure: BadAnswer) -> Self {
        Stop::Failed(failure)
    }
}

impl From<Gone> for Stop {
    fn from(_: Gone) -> Self {
        Stop::Advance(Advance::Cut)
    }
}

impl From<Advance> for Stop {
    fn from(advance: Advance) -> Self {
        Stop::Advance(advance)
    }
}

/// A request that an upstream answers.
#[derive(Debug)]
pub(crate) struct Relay {
    /// The exchange that it is the state of, and whose.
    key: ExchangeKey,
    opener: Opener,
    pub(crate) request: RequestBuf,
    site: SiteId,
    /// The steps after the server of `current` agrees, the next one last. Empty if that server answers the request.
    next: Vec<Then>,
    pub(crate) current: UpstreamRequest,
    /// The fields that servers have given to the request: lines that end in CRLF.
    granted: Vec<u8>,
    /// The passwords that must be right, and the job that compares one.
    checks: Vec<PasswordCheck>,
    pub(crate) pace: Pace,
    pub(crate) verifying: Option<JobId>,
    /// Why a helper could not do its part; the answer is this page.
    pub(crate) refused: Option<Refusal>,
    claim: LinkClaim,
    /// The servers that have failed this request, and how often one has.
    failed: FailedServers,
    tries: u8,
    /// Whether a link that was used before ended with this request on its way, so that it needs a new one.
    needs_new: bool,
    /// The answer, once its head is known.
    pub(crate) reply: Option<RelayReply>,
    /// Whether the client was asked to send the body.
    is_invited: bool,
    /// Whether the client sends the body fast enough.
    upload_rate: UploadRate,
    /// Whether the server still takes the request. One that does not can still answer.
    accepts_request: bool,
    /// Who is waited for, and since when.
    pub(crate) awaits: Awaits,
    since_ms: u64,
    /// Since when the server is waited for while the client reads what came before; None if nothing more is received.
    receives_since_ms: Option<u64>,
    /// When the wait ends, in milliseconds of the monotonic clock; `u64::MAX` for never. Whether a client reads fast enough
    /// is its wire's question.
    pub(crate) due_ms: u64,
}

/// A step after a server agrees to a request.
#[derive(Debug)]
enum Then {
    /// Another server is asked, or answers.
    Upstream(Box<UpstreamRequest>),
    /// A file answers.
    File(Box<FileRequestBuf>),
}

/// The part of a [`Relay`] that is about one server.
#[derive(Debug)]
pub(crate) struct UpstreamRequest {
    upstream: UpstreamId,
    /// Whether its route passes answers on as they come.
    streams_answers: bool,
    /// Whether its route compresses texts.
    compresses: bool,
    /// The names of the fields that its answer gives to the request, if it agrees.
    grants: Arc<[String]>,
    transaction: Transaction,
    pub(crate) search: Search,
    /// The file or script that answers if its name is found, and the rest of this step if it is not.
    instead: Option<(Instead, Otherwise)>,
    body: BodyWay,
}

/// The rest of an [`UpstreamRequest`] once the name that is looked up first is missing.
#[derive(Debug)]
struct Otherwise {
    /// The script that must be found before the server is asked.
    script: Option<Box<[u8]>>,
    /// The reason why the server does not get the request.
    refusal: Option<Refusal>,
    /// The passwords that must be right, and the servers that must agree, the first one last.
    checks: Vec<PasswordCheck>,
    auths: Vec<UpstreamRequest>,
}

/// How far the search for a name has come that must be looked up before a server gets the request: a script, which must be a file
/// before a server is asked to run it, or a file that answers instead.
#[derive(Debug)]
pub(crate) enum Search {
    /// Nothing needs to be looked up.
    Over,
    /// This path must be looked up.
    Wanted(Box<[u8]>),
    /// A helper looks it up.
    AtHelper(JobId),
    /// A helper has found this.
    Found(Arc<NameEntry>),
}

/// Who answers instead if a name is found.
#[derive(Debug)]
enum Instead {
    /// The file of this path.
    File(Box<[u8]>),
    /// The server, in this transaction about another script.
    Script(Box<Transaction>),
}

impl Search {
    fn of(script: Option<Box<[u8]>>) -> Self {
        script.map_or(Search::Over, Search::Wanted)
    }

    /// The job that looks it up.
    pub(crate) fn job(&self) -> Option<JobId> {
        if let Search::AtHelper(job) = self { Some(*job) } else { None }
    }
}

/// The way of a request body from the client to the server.
#[derive(Debug)]
pub(crate) enum BodyWay {
    /// The server gets it while the client sends it; or there is none.
    Streamed,
    /// The [spool](crate::spool) takes it, and the request is sent to a server afterwards.
    Gathered,
    /// The spool has all of it.
    Spooled,
}

/// Who a relayed request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaits {
    /// A link to a server.
    Link,
    /// A helper, which writes or reads a part of a body.
    Helper,
    /// The client, which sends the body.
    Body,
    /// The server.
    Server,
    /// The client, which reads the answer.
    Room,
    /// A throttle, for the next bytes.
    Pace,
}

/// An answer on its way to the client.
#[derive(Debug)]
pub(crate) struct RelayReply {
    pub(crate) status: Status,
    /// The stream that the body becomes, if helpers compress it.
    pub(crate) gzip: Option<Box<Gzip>>,
    /// Whether the spool takes what the client does not take at once.
    gathers: bool,
    /// The part of the body that the spool has: where it begins in the spool, and its length.
    gathered_at: u64,
    gathered_bytes: u64,
    /// Bytes of the body that were passed on.
    pub(crate) body_bytes: u64,
    /// Bytes of the body that remain to be passed on, if it is known.
    pub(crate) left_bytes: Option<u64>,
    /// Whether the end was framed.
    is_ended: bool,
}

impl Relay {
    /// The job before which nothing is sent to a server.
    pub(crate) fn begins_after(&self) -> Option<JobId> {
        self.verifying.or(self.current.search.job())
    }

    /// The job that compresses a piece of its answer.
    fn deflates(&self) -> Option<JobId> {
        self.reply.as_ref()?.gzip.as_ref()?.job()
    }

    /// Its need for a link.
    fn seeker(&self) -> Seeker {
        let Self { key: holder, failed, needs_new, .. } = *self;
        let upstream = self.current.upstream;
        let may_repeat = self.does_no_harm_twice();
        Seeker { upstream, holder, sharer: self.opener.sharer(), failed, needs_new, may_repeat }
    }

    /// How the answer has ended.
    fn end(&self, is_whole: bool) -> AnswerEnd {
        let sent = self.reply.as_ref().map(|reply| (reply.status, reply.body_bytes));
        let (status, body_bytes) = sent.unwrap_or((CLIENT_LEFT, 0));
        AnswerEnd { status, body_bytes, is_whole: is_whole && sent.is_some() }
    }

    /// Notes how the answer has ended, after all of it was sent or no more of it is.
    pub(crate) fn note_end<M: Machine>(
        &self,
        turn: &mut Turn<'_, M>,
        log_entry: &LogEntry,
        requester: &Requester,
        is_whole: bool,
    ) {
        let counted_at_end = self.reply.as_ref().filter(|reply| is_whole && reply.left_bytes.is_none());
        if let Some(reply) = counted_at_end {
            turn.context.core.schedule.note_answer(reply.body_bytes);
        }
        log_entry.note_end(&mut turn.context, requester, self.end(is_whole));
    }

    /// Prepares another attempt after this server has failed. False if there is none: the answer has begun, a
    /// part of the body is gone, or the server may have read the request, which could end the next server too. A server that
    /// closes a link after an earlier request (`is_stale`) most likely has not: a request that does no harm twice (RFC 9110,
    /// section 9.2.2; RFC 9112, section 9.3.1) gets one new link.
    fn try_again(&mut self, failed: u16, is_stale: bool, now_ms: u64) -> bool {
        let may_repeat = !self.current.transaction.has_begun() || (is_stale && self.does_no_harm_twice());
        if self.tries >= TRIES_MAX
            || !may_repeat
            || self.reply.is_some()
            || !self.current.transaction.begin_again()
        {
            return false;
        }
        self.tries += 1;
        self.needs_new |= is_stale;
        self.failed.insert(failed);
        self.since_ms = now_ms;
        self.accepts_request = true;
        self.claim = LinkClaim::None;
        true
    }

    /// Prepares another attempt after one of `servers` has accepted no connection. False if there is
    /// none: each server has failed the request.
    fn try_other(&mut self, failed: u16, servers: usize, now_ms: u64) -> bool {
        self.failed.insert(failed);
        self.failed.len() < servers && self.try_again(failed, false, now_ms)
    }

    /// Begins to ask another server. Returns what was asked before.
    fn begin(&mut self, ask: UpstreamRequest, now_ms: u64) -> UpstreamRequest {
        (self.failed, self.tries, self.needs_new) = (FailedServers::default(), 0, false);
        (self.accepts_request, self.awaits, self.since_ms) = (true, Awaits::Link, now_ms);
        let before = std::mem::replace(&mut self.current, ask);
        self.current.transaction.grant(&self.granted);
        before
    }

    /// Whether the server can get the request twice.
    fn does_no_harm_twice(&self) -> bool {
        !self.next.is_empty() || self.is_idempotent()
    }

    fn is_idempotent(&self) -> bool {
        let request = self.request.request();
        match request.method {
            Method::Get | Method::Head | Method::Options => true,
            Method::Known => [&b"PUT "[..], b"DELETE "].iter().any(|method| request.line.starts_with(method)),
            Method::Unknown => false,
        }
    }

    /// Notes that the server has sent or taken something.
    fn note_progress(&mut self, now_ms: u64) {
        self.receives_since_ms = self.receives_since_ms.map(|_| now_ms);
    }

    /// When the server has been silent for too long while the client reads what came before, or the client has sent too
    /// little of the body meanwhile.
    fn late_ms(&self, answer_ms: u64) -> u64 {
        let silent_ms =
            self.receives_since_ms.map_or(u64::MAX, |since_ms| since_ms.saturating_add(answer_ms));
        silent_ms.min(self.upload_rate.due_ms())
    }

    /// Whether nothing but the client holds up the body.
    fn is_ready_for_body(&self) -> bool {
        let takes_body = self.current.transaction.wants_body()
            && !self.current.transaction.is_upgraded()
            && !self.current.transaction.is_over();
        takes_body && self.accepts_request && self.current.transaction.is_all_sent()
    }

    /// Notes who is waited for. The time of a wait begins anew when someone else is waited for, and when there
    /// was progress.
    fn await_from(&mut self, awaits: Awaits, has_progressed: bool, now_ms: u64) {
        if has_progressed || awaits != self.awaits {
            self.since_ms = now_ms;
        }
        self.awaits = awaits;
    }

    /// Waits until this time at most.
    fn block(&mut self, due_ms: u64) -> Advance {
        self.due_ms = due_ms;
        Advance::Blocked
    }

    /// Whether the client does not have all of what the server has sent.
    fn is_behind<M: Machine>(&self, client: &impl RelayClient<M>) -> bool {
        self.reply.as_ref().is_some_and(|reply| reply.gathered_bytes > 0 || client.unsent_bytes() > 0)
    }
}

impl RelayReply {
    fn new(answer: &ResponseHead, streams: bool) -> Self {
        let left_bytes = match answer.body {
            ResponseBody::Length(bytes) => Some(bytes),
            ResponseBody::None => Some(0),
            ResponseBody::Chunked | ResponseBody::UntilEnd | ResponseBody::Upgraded => None,
        };
        Self {
            status: answer.status,
            gzip: None,
            gathers: !streams && answer.body != ResponseBody::Upgraded && !answer.is_stream,
            gathered_at: 0,
            gathered_bytes: 0,
            body_bytes: 0,
            left_bytes,
            is_ended: false,
        }
    }

    /// Notes that data of the body is framed.
    fn framed(&mut self, data_bytes: usize) {
        self.body_bytes += data_bytes as u64;
        self.left_bytes = self.left_bytes.map(|left| left.saturating_sub(data_bytes as u64));
    }

    /// Frames the end of the body, once nothing of it is in the spool or is to be compressed.
    fn end<M: Machine>(&mut self, client: &mut impl RelayClient<M>) {
        if self.gathered_bytes == 0 && self.gzip.is_none() && !std::mem::replace(&mut self.is_ended, true) {
            client.end();
        }
    }

    /// How urgent its next bytes are, of which the client has not got this many: the bytes that it has left, the fewest
    /// first. While the server has not sent how many there are, those that were sent count instead, as in
    /// least-attained-service scheduling: short answers go first, and a long one loses its urgency.
    fn rank_bytes(&self, unsent: u64, is_complete: bool) -> u64 {
        match self.left_bytes {
            Some(left) => left.saturating_add(unsent),
            None if is_complete => self.gathered_bytes + unsent,
            None => self.body_bytes.saturating_sub(unsent),
        }
    }
}
