//! Decides whether Flash has a reason for an answer of its own, or to break one off.

use std::cell::RefCell;

use flash_engine::limits::{GATEWAY_LATE_MS, TICK_MS};
use flash_engine::{BodyRules, UpstreamRules};

use super::ledger::{Agreement, Attempt, Ledger, RETRIES_MAX, require};
use super::visitor::Visitor;
use crate::machine::response::Response;

/// The time and the rules.
#[derive(Debug)]
pub(super) struct Judge {
    pub(super) now_ms: u64,
    /// When everyone looked last before that.
    pub(super) looked_ms: u64,
    pub(super) head_ms: u64,
    pub(super) idle_ms: u64,
    pub(super) bodies: BodyRules,
    pub(super) upstreams: Vec<UpstreamRules>,
    /// The longest time that helpers need for all jobs of a request, and for one.
    pub(super) disk_ms: u64,
    pub(super) job_ms: u64,
    /// Whether every job without trouble is done long before its deadline.
    pub(super) is_disk_fast: bool,
    /// Before the latest turn: requests without an answer, and connections in the making, by upstream.
    pub(super) busy: Vec<usize>,
    /// Connections among them that a client can have left to its next request: they count for it until they are idle.
    pub(super) left: Vec<usize>,
    /// The longest time in which the simulation does not look.
    pub(super) blind_ms: u64,
    /// Requests that were answered completely since the last look.
    pub(super) satisfied: RefCell<Vec<usize>>,
}

impl Judge {
    pub(super) fn satisfied(&self, ask: usize) {
        self.satisfied.borrow_mut().push(ask);
    }

    /// Whether the application was silent for too long.
    fn is_silent(&self, ledger: &Ledger, attempt: &Attempt) -> bool {
        let answer_ms = self.upstreams[ledger.asks[attempt.ask].upstream].answer_ms;
        self.now_ms >= attempt.said_ms + answer_ms
    }

    /// Whether Flash may break off this answer.
    pub(super) fn may_break(&self, ledger: &Ledger, attempt: &Attempt) -> bool {
        attempt.is_faulty || (!attempt.is_whole && self.is_silent(ledger, attempt))
    }

    /// Whether the client has sent nothing of its request for too long.
    pub(super) fn is_body_late(&self, visitor: &Visitor) -> bool {
        !visitor.has_sent_all()
            && (self.now_ms >= visitor.sent_ms + self.head_ms || self.is_body_slow(visitor))
    }

    /// Whether the first pending request of a client is so old that its body can be too slow.
    fn is_body_slow(&self, visitor: &Visitor) -> bool {
        let BodyRules { least_rate_bytes_per_s, grace_ms, total_ms } = self.bodies;
        let since_ms = self.now_ms - visitor.front_ms;
        (least_rate_bytes_per_s > 0 && since_ms >= grace_ms) || (total_ms > 0 && since_ms >= total_ms)
    }

    /// Checks that a body that waits for nothing but its client is neither too slow nor too long under way. A request after
    /// another one can wait for the end of that.
    pub(super) fn check_pace(&self, ledger: &Ledger, visitor: &Visitor) {
        let Some(pending) = visitor.waits().filter(|_| visitor.answers == 0 && !visitor.has_sent_all())
        else {
            return;
        };
        if !ledger.asks[pending.ask].needs_client_only {
            return;
        }
        let BodyRules { least_rate_bytes_per_s: rate, grace_ms, total_ms } = self.bodies;
        let took_ms = self.now_ms - visitor.front_ms;
        // The head comes first.
        let slack_ms = self.head_ms + 3 * TICK_MS + self.blind_ms;
        let is_over = total_ms > 0 && took_ms > total_ms + slack_ms;
        let earned_ms = ((visitor.sent_bytes - pending.begin) as u64 * 1_000).checked_div(rate);
        let is_slow = earned_ms.is_some_and(|earned_ms| took_ms > grace_ms + earned_ms + slack_ms);
        require(!is_over && !is_slow, "pace", || {
            let Self { bodies, now_ms, .. } = self;
            let sent = visitor.sent_bytes;
            format!("at {now_ms} the body of {pending:?} has come for {took_ms} ms, {sent} bytes; {bodies:?}")
        });
    }

    /// Checks that a page of Flash itself has a reason.
    pub(super) fn judge_page(&self, ledger: &Ledger, visitor: &Visitor, head: &Response) {
        let ask = visitor.pending[0].ask;
        let asked = &ledger.asks[ask];
        let rules = &self.upstreams[asked.upstream];
        let troubles = &ledger.troubles[asked.upstream];
        let begun_ms = visitor.front_ms;
        let may = match head.status {
            502 => ledger.is_failed(ask) || troubles.broken_ms >= begun_ms,
            503 => {
                // A client gets as many connections as it leaves free. Those of a crowd count together.
                let busy = self.busy[asked.upstream];
                let left = self.left[asked.upstream].min(visitor.answers as usize);
                let theirs = if visitor.is_of_crowd { busy } else { left };
                let is_full = busy + theirs > rules.connections_max + rules.queue_max;
                // Some mechanisms do not report that the client has ended: its input could have found no room.
                let is_short = visitor.ended && !visitor.has_sent_all();
                is_full
                    || is_short
                    || troubles.own_ms >= begun_ms
                    || troubles.disk_ms >= begun_ms
                    || asked.may_lack_room
                    || asked.may_lack_helper
                    || self.now_ms >= begun_ms + rules.connect_ms
            }
            504 => {
                let is_silent = ledger.latest(ask).is_some_and(|latest| self.is_silent(ledger, latest));
                // The time in the queue is a part of that for a connection.
                let is_unlinked = asked.attempts.is_empty() && self.now_ms >= begun_ms + rules.connect_ms;
                // So does one that waits for a helper to look its script up.
                let is_unfound = asked.attempts.is_empty() && asked.may_lack_helper && self.now_ms > begun_ms;
                is_silent || is_unlinked || is_unfound || troubles.late_ms >= begun_ms
            }
            408 => {
                // A head has this time from its first byte on, a body from its latest, besides the limits of its pace.
                let is_head_late = asked.attempts.is_empty() && self.now_ms >= begun_ms + self.head_ms;
                self.is_body_late(visitor) || (is_head_late && !visitor.has_sent_all())
            }
            400 if asked.is_malformed => true,
            404 if asked.lacks_script => true,
            403 => asked.agreement == Agreement::Refused,
            // A helper could not look its script up. The job can have failed for an earlier request that it was made for.
            500 => troubles.disk_ms + self.disk_ms >= begun_ms,
            status => asked.refusal == Some(status),
        };
        require(may, "errors", || {
            format!(
                "request {ask} of {begun_ms} got {} at {}, of {rules:?}; {asked:?}; {troubles:?}; {:?}; busy {:?}",
                head.status,
                self.now_ms,
                ledger.latest(ask),
                self.busy
            )
        });
    }

    /// Checks that no request waits for longer than the deadlines allow.
    pub(super) fn check_patience(&self, ledger: &Ledger, visitor: &Visitor) {
        let Some(pending) = visitor.waits().filter(|_| visitor.reads_bytes.is_none()) else { return };
        let rules = &self.upstreams[ledger.asks[pending.ask].upstream];
        let latest = ledger.latest(pending.ask);
        let slack_ms = 3 * TICK_MS + self.blind_ms;
        // The previous answer can be complete for its client before it is for its application.
        let previous = visitor.latest.map(|number| &ledger.attempts[number]);
        let previous_ms = previous.map_or(0, |made| {
            let answer_ms = self.upstreams[ledger.asks[made.ask].upstream].answer_ms;
            made.active_ms + if made.is_whole { 0 } else { answer_ms + slack_ms }
        });
        let active_ms = visitor.active_ms().max(latest.map_or(0, |latest| latest.active_ms));
        let since_ms = active_ms.max(previous_ms.min(self.now_ms));
        let body_ms = if visitor.has_sent_all() { 0 } else { self.head_ms + slack_ms };
        // The time in the queue is a part of that for a connection, and each failure gives a new one.
        let troubles = &ledger.troubles[ledger.asks[pending.ask].upstream];
        let has_failed = latest.is_some() || troubles.latest_ms() >= visitor.front_ms;
        let tries = if has_failed { 1 + RETRIES_MAX as u64 } else { 1 };
        let wait_ms = match latest {
            Some(latest) if !latest.is_faulty => rules.answer_ms.max(body_ms),
            _ => tries * (rules.connect_ms + GATEWAY_LATE_MS + slack_ms) + body_ms,
        };
        let jobs_ms = ledger.asks[pending.ask].jobs_before * self.job_ms;
        let disk_ms = if latest.is_some() { self.disk_ms } else { jobs_ms };
        let waited_ms = self.now_ms - since_ms;
        require(waited_ms <= wait_ms + slack_ms + disk_ms, "patience", || {
            let asked = &ledger.asks[pending.ask];
            format!(
                "{pending:?} has waited for {waited_ms} ms, of {wait_ms} ms; {asked:?}; {latest:?}; before: {previous:?}"
            )
        });
    }
}
