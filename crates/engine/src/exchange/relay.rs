//! A request that an upstream answers: its talk with a server, its link, and the answer on its way to the
//! client. Called by [`exchange`](crate::exchange) and the wires.

use std::sync::Arc;

use flash_http::RequestBuf;
use flash_http::request::Method;
use flash_http::response::Status;

use super::Opener;
use super::body_pace::BodyPace;
use crate::caches::NameEntry;
use crate::handler::Refusal;
use crate::limits::TRIES_MAX;
use crate::machine::JobId;
use crate::rules::{BodyRules, SiteId, UpstreamId};
use crate::slab::ExchangeKey;
use crate::upstream::{FailedServers, LinkPlace, Seeker, Talk};

/// A request that an upstream answers.
#[derive(Debug)]
pub(crate) struct Relay {
    pub(crate) request: RequestBuf,
    pub(crate) site: SiteId,
    pub(crate) upstream: UpstreamId,
    /// Whether its route passes answers on as they come.
    pub(crate) streams_answers: bool,
    pub(crate) talk: Talk,
    pub(crate) script: ScriptSearch,
    pub(crate) body: BodyWay,
    /// Why a helper could not do its part; the answer is this page.
    pub(crate) refused: Option<Refusal>,
    pub(crate) place: LinkPlace,
    /// The servers that have failed this request, and how often one has.
    failed: FailedServers,
    tries: u8,
    /// Whether a link that was used before ended with this request on its way, so that it needs a new one.
    needs_new: bool,
    /// The answer, once its head is known.
    pub(crate) reply: Option<RelayReply>,
    /// Whether the client was told to send the body.
    pub(crate) said_continue: bool,
    /// Whether the client sends the body fast enough.
    pub(crate) pace: BodyPace,
    /// Whether the server still takes the request. One that does not can still answer.
    pub(crate) is_heard: bool,
    /// Who is waited for, and since when.
    pub(crate) awaits: Awaits,
    pub(crate) since_ms: u64,
    /// Since when the server is waited for while the client reads what came before; None if nothing more is received.
    pub(crate) hears_since_ms: Option<u64>,
    /// When the rate of the client is checked next, while it is waited for.
    pub(crate) pace_due_ms: u64,
}

/// How far the search for the script of a request has come, which must be a file before a server is asked to run it.
#[derive(Debug)]
pub(crate) enum ScriptSearch {
    /// It was found, or the server has files of its own.
    Over,
    /// This path must be looked up.
    Wanted(Box<[u8]>),
    /// A helper looks it up.
    AtHelper(JobId),
    /// A helper has found this.
    Found(Arc<NameEntry>),
}

impl ScriptSearch {
    /// The job that looks it up.
    pub(crate) fn job(&self) -> Option<JobId> {
        if let ScriptSearch::AtHelper(job) = self { Some(*job) } else { None }
    }
}

/// The way of a request body from the client to the server.
#[derive(Debug)]
pub(crate) enum BodyWay {
    /// The server gets it while the client sends it; or there is none.
    Streamed,
    /// The [spool](crate::spool) takes it for this exchange, and the request is sent to a server afterwards. With its
    /// head, if the server needs to know the length.
    Gathered(ExchangeKey, Option<Box<[u8]>>),
    /// The spool has all of it for this exchange.
    Held(ExchangeKey),
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
}

/// An answer on its way to the client.
#[derive(Debug)]
pub(crate) struct RelayReply {
    pub(crate) status: Status,
    /// Whether the wire frames the body in chunks.
    pub(crate) is_chunked: bool,
    /// Whether it is the last answer of the connection.
    pub(crate) closes: bool,
    /// Bytes that were not sent yet.
    pub(crate) unsent: Vec<u8>,
    pub(crate) unsent_at: usize,
    /// Whether the spool takes what the client does not take at once.
    pub(crate) gathers: bool,
    /// The part of the body that the spool has: where it begins in the spool, and its length.
    pub(crate) gathered_at: u64,
    pub(crate) gathered_bytes: u64,
    /// Bytes of the body that were passed on.
    pub(crate) body_bytes: u64,
    /// Bytes of the body that remain to be passed on, if it is known.
    pub(crate) left_bytes: Option<u64>,
    /// Whether a chunk was framed, whose line end is part of the next frame.
    pub(crate) has_chunk: bool,
    /// Whether the end was framed.
    pub(crate) is_ended: bool,
}

impl Relay {
    pub(crate) fn new(
        request: RequestBuf,
        (site, upstream, streams_answers): (SiteId, UpstreamId, bool),
        talk: Talk,
        (bodies, now_ms): (BodyRules, u64),
    ) -> Self {
        Self {
            request,
            site,
            upstream,
            streams_answers,
            talk,
            script: ScriptSearch::Over,
            body: BodyWay::Streamed,
            refused: None,
            place: LinkPlace::None,
            failed: FailedServers::default(),
            tries: 0,
            needs_new: false,
            reply: None,
            said_continue: false,
            pace: BodyPace::new(bodies),
            is_heard: true,
            awaits: Awaits::Link,
            since_ms: now_ms,
            hears_since_ms: None,
            pace_due_ms: u64::MAX,
        }
    }

    /// Its need for a link.
    pub(crate) fn seeker(&self, opener: Opener) -> Seeker {
        let (holder, sharer) = (opener.connection, opener.sharer());
        let Self { upstream, failed, needs_new, .. } = *self;
        Seeker { upstream, holder, sharer, failed, needs_new }
    }

    /// Prepares another attempt after this server has failed. False if there is none: the answer has begun, a
    /// part of the body is gone, or the server may have read the request, which could end the next server too. A server that
    /// closes a link after an earlier request (`is_stale`) most likely has not: a request that does no harm twice (RFC 9110,
    /// section 9.2.2; RFC 9112, section 9.3.1) gets one new link.
    pub(crate) fn try_again(&mut self, failed: u16, is_stale: bool, now_ms: u64) -> bool {
        let may_repeat = !self.talk.has_begun() || (is_stale && self.is_idempotent());
        if self.tries >= TRIES_MAX || !may_repeat || self.reply.is_some() || !self.talk.begin_again() {
            return false;
        }
        self.tries += 1;
        self.needs_new |= is_stale;
        self.failed.insert(failed);
        self.since_ms = now_ms;
        self.is_heard = true;
        self.place = LinkPlace::None;
        true
    }

    /// Prepares another attempt after one of `servers` has accepted no connection. False if there is
    /// none: each server has failed the request.
    pub(crate) fn try_other(&mut self, failed: u16, servers: usize, now_ms: u64) -> bool {
        self.failed.insert(failed);
        self.failed.len() < servers && self.try_again(failed, false, now_ms)
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
    pub(crate) fn note_heard(&mut self, now_ms: u64) {
        self.hears_since_ms = self.hears_since_ms.map(|_| now_ms);
    }

    /// When the server has been silent for too long while the client reads what came before, or the client has sent too
    /// little of the body meanwhile.
    pub(crate) fn late_ms(&self, answer_ms: u64) -> u64 {
        let silent_ms = self.hears_since_ms.map_or(u64::MAX, |since_ms| since_ms.saturating_add(answer_ms));
        silent_ms.min(self.pace.due_ms())
    }

    /// Whether nothing but the client holds up the body.
    pub(crate) fn is_ready_for_body(&self) -> bool {
        let takes_body = self.talk.wants_body() && !self.talk.is_upgraded() && !self.talk.is_over();
        takes_body && self.is_heard && self.talk.is_all_sent()
    }

    /// Notes who is waited for. The time of a wait begins anew when someone else is waited for, and when there
    /// was progress.
    pub(crate) fn await_from(&mut self, awaits: Awaits, has_progressed: bool, now_ms: u64) {
        if has_progressed || awaits != self.awaits {
            self.since_ms = now_ms;
        }
        self.awaits = awaits;
    }
}

impl RelayReply {
    /// Frames data of the body: returns what the client gets before it.
    pub(crate) fn frame(&mut self, data_bytes: usize) -> Vec<u8> {
        self.body_bytes += data_bytes as u64;
        self.left_bytes = self.left_bytes.map(|left| left.saturating_sub(data_bytes as u64));
        if !self.is_chunked || data_bytes == 0 {
            return Vec::new();
        }
        let line_end = if std::mem::replace(&mut self.has_chunk, true) { "\r\n" } else { "" };
        format!("{line_end}{data_bytes:x}\r\n").into_bytes()
    }

    /// Frames the end of the body, once nothing of it is in the spool.
    pub(crate) fn end(&mut self) {
        if self.gathered_bytes > 0 {
            return;
        }
        if std::mem::replace(&mut self.is_ended, true) || !self.is_chunked {
            return;
        }
        let end: &[u8] = if self.has_chunk { b"\r\n0\r\n\r\n" } else { b"0\r\n\r\n" };
        self.unsent.extend_from_slice(end);
    }

    /// Whether nothing of what the server has sent waits for the client.
    pub(crate) fn is_passed_on(&self) -> bool {
        self.unsent.is_empty() && self.gathered_bytes == 0
    }

    /// Whether the client has all of it.
    pub(crate) fn is_sent(&self) -> bool {
        self.is_ended && self.unsent.is_empty()
    }

    /// How urgent its next bytes are: the bytes that it has left, the fewest first. While the server has not said how
    /// many there are, those that were sent count instead, as in least-attained-service scheduling: short answers go
    /// first, and a long one loses its urgency.
    pub(crate) fn rank_bytes(&self, is_complete: bool) -> u64 {
        let unsent = self.unsent().len() as u64;
        match self.left_bytes {
            Some(left) => left.saturating_add(unsent),
            None if is_complete => self.gathered_bytes + unsent,
            None => self.body_bytes.saturating_sub(unsent),
        }
    }

    /// The bytes that were not sent yet.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.unsent[self.unsent_at..]
    }

    /// Notes that the client has accepted this many of the unsent bytes.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.unsent_at += bytes;
        if self.unsent_at == self.unsent.len() {
            self.unsent = Vec::new();
            self.unsent_at = 0;
        }
    }
}
