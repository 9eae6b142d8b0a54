//! The record of a world with routes: the requests of clients, the attempts of applications to answer them, and the
//! reasons that Flash has for errors of its own.

use std::collections::BTreeSet;

use flash_engine::limits::{RECEIVE_BYTES, SPOOL_ANSWER_MEMORY_BYTES_MAX};

/// A client's request.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) upstream: usize,
    /// The request does no harm if it is repeated.
    pub(super) is_safe: bool,
    pub(super) is_head: bool,
    /// The body, of which each byte follows from the number of the request.
    pub(super) body_bytes: usize,
    /// Its route passes answers on as they come.
    pub(super) streams_answers: bool,
    /// Helpers may compress its answer, and its server waits for them.
    pub(super) compresses: bool,
    /// The framing of the body is malformed after these bytes.
    pub(super) is_malformed: bool,
    /// The file for request bodies can be too small for it, or the server has none.
    pub(super) may_lack_room: bool,
    /// A helper may come too late to find its script.
    pub(super) may_lack_helper: bool,
    /// Until its body is complete it waits for nothing but its client.
    pub(super) needs_client_only: bool,
    /// Maximum jobs that it waits for before a server gets it.
    pub(super) jobs_before: u64,
    /// Status of Flash's own answer that the request itself deserves.
    pub(super) refusal: Option<u16>,
    /// The script is no file of the site: 404, whatever else is wrong.
    pub(super) lacks_script: bool,
    /// Whether a server is asked about it, and agrees.
    pub(super) agreement: Agreement,
    /// The attempts to answer it.
    pub(super) attempts: Vec<usize>,
    /// When its first byte was sent, and when Flash could begin with it.
    pub(super) begun_ms: Option<u64>,
}

/// The answer of the server that is asked about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Agreement {
    NotNeeded,
    Given,
    Refused,
}

/// An attempt of an application to answer a request. It begins when the application has the whole head.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) ask: usize,
    /// An earlier request was answered on the connection.
    pub(super) was_used: bool,
    /// The application has sent something.
    pub(super) has_spoken: bool,
    pub(super) status: u16,
    /// The length of the answer's body, each byte of which follows from the number of the attempt.
    pub(super) length: usize,
    /// The answer says that it passes as it comes.
    pub(super) is_stream: bool,
    /// Every byte of the answer was sent.
    pub(super) is_whole: bool,
    /// The application did something for which Flash may break the answer off.
    pub(super) is_faulty: bool,
    /// When the application last sent something, or got the head.
    pub(super) said_ms: u64,
    /// When the application last sent or received something.
    pub(super) active_ms: u64,
}

/// When something last happened that is a reason for an error, by upstream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Troubles {
    /// A connection was refused, or ended without a request.
    pub(super) broken_ms: u64,
    /// A connection was not made in time.
    pub(super) late_ms: u64,
    /// The gateway was at a limit.
    pub(super) own_ms: u64,
    /// A helper failed, or was given up.
    pub(super) disk_ms: u64,
}

impl Troubles {
    pub(super) fn latest_ms(&self) -> u64 {
        self.broken_ms.max(self.late_ms).max(self.own_ms).max(self.disk_ms)
    }
}

/// The record.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) asks: Vec<Asked>,
    pub(super) attempts: Vec<Attempt>,
    pub(super) troubles: Vec<Troubles>,
    /// The requests to which the server that is asked has agreed.
    pub(super) agreed: BTreeSet<usize>,
}

/// Fails with the property's name.
#[track_caller]
pub(super) fn require(holds: bool, property: &str, what: impl FnOnce() -> String) {
    assert!(holds, "property: relay {property}: {}", what());
}

/// An answer of this length finds room in memory, whatever the file for bodies does.
pub(super) const GATHERED_BYTES: usize = SPOOL_ANSWER_MEMORY_BYTES_MAX - RECEIVE_BYTES;

/// An attempt after the first one to answer the same request, including those on other servers, is a retry. Flash
/// makes at most this many.
pub(super) const RETRIES_MAX: usize = flash_engine::limits::TRIES_MAX as usize;

/// The field that a server gives to requests to which it agrees. Clients forge it.
pub(super) const GRANTED: &str = "X-Granted";
/// Its value from clients.
pub(super) const FORGED: &str = "forged";

impl Ledger {
    /// Checks that a request to which a server has agreed has the field from that server alone.
    pub(super) fn check_granted(&self, ask: usize, granted: &[String]) {
        let is_right = match self.asks[ask].agreement {
            Agreement::NotNeeded => granted.iter().all(|value| value == FORGED),
            Agreement::Given | Agreement::Refused => granted == [ask.to_string()],
        };
        require(is_right, "grants", || {
            format!("an application got request {ask} with {GRANTED}: {granted:?}")
        });
    }

    /// Records that an application has a request.
    pub(super) fn begin(&mut self, ask: usize, was_used: bool, now_ms: u64) -> usize {
        let number = self.attempts.len();
        let asked = &mut self.asks[ask];
        asked.attempts.push(number);
        let (attempts, is_safe) = (asked.attempts.len(), asked.is_safe);
        require(is_safe || attempts == 1, "repetition", || {
            format!("request {ask} must not be repeated, and an application got it {attempts} times")
        });
        let is_let_in = asked.agreement == Agreement::NotNeeded || self.agreed.contains(&ask);
        require(is_let_in, "authorization", || {
            format!("an application got request {ask}, to which no server has agreed")
        });
        require(!asked.lacks_script, "scripts", || {
            format!("an application got request {ask}, whose script is no file")
        });
        require(attempts <= 2, "repetition", || format!("request {ask} was sent {attempts} times"));
        let others = asked.attempts.iter().filter_map(|number| self.attempts.get(*number));
        // Two that are read at the same time are in no order.
        let is_stale = |other: &Attempt| other.was_used && !other.has_spoken;
        let was_read = !was_used && others.clone().any(|other| !is_stale(other));
        require(!was_read, "repetition", || {
            format!("request {ask} was sent again after {:?}", others.collect::<Vec<_>>())
        });
        self.attempts.push(Attempt {
            ask,
            was_used,
            has_spoken: false,
            status: 0,
            length: 0,
            is_stream: false,
            is_whole: false,
            is_faulty: false,
            said_ms: now_ms,
            active_ms: now_ms,
        });
        number
    }

    /// The latest attempt to answer a request; if possible one that has not failed, because two that are read at the
    /// same time are in no order.
    pub(super) fn latest(&self, ask: usize) -> Option<&Attempt> {
        let attempts = || self.asks[ask].attempts.iter().rev().map(|number| &self.attempts[*number]);
        attempts().find(|attempt| !attempt.is_faulty).or_else(|| attempts().next())
    }

    /// Whether an application can have to wait until its client has read the answer.
    pub(super) fn may_hold(&self, ask: usize) -> bool {
        let asked = &self.asks[ask];
        let made = asked.attempts.iter().map(|number| &self.attempts[*number]);
        asked.streams_answers
            || asked.compresses
            || made.into_iter().any(|made| made.is_stream || made.length > GATHERED_BYTES)
    }

    /// Whether an application failed this request.
    pub(super) fn is_failed(&self, ask: usize) -> bool {
        self.asks[ask].attempts.iter().any(|number| self.attempts[*number].is_faulty)
    }
}
