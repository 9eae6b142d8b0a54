//! The shortcut of HTTP/1: a request known by the bytes of its head is answered without parsing and look-up,
//! and a plain hit by one send of one buffer. Called by [`h1`](super).

use std::sync::Arc;

use flash_http::response::Status;

use super::answering::{Answering, RequestSource};
use super::send::send_content;
use super::{Flow, H1, Phase};
use crate::access_log::{AnswerEnd, LogSource};
use crate::body::Source;
use crate::caches::{HeadHash, Persistence, RepeatedReply};
use crate::context::{Ended, note_end};
use crate::exchange::Turn;
use crate::handler::{Response, is_valid, readmit, remember, repeat};
use crate::head_changes::Changes;
use crate::machine::Machine;
use crate::timing::CacheResult;
use crate::wire::conn::Conn;

/// The result of the shortcut.
pub(super) enum Shortcut {
    Answered(Flow),
    /// The head is unknown or no longer valid. The hash is needed to remember it.
    Unknown(HeadHash),
}

impl H1 {
    /// Remembers the bytes of a request with its answer, if the same bytes would get the same answer again.
    pub(super) fn remember<M: Machine>(
        &self,
        turn: &mut Turn<'_, M>,
        answering: &Answering<'_>,
        response: &Response<M::File>,
        known_by: (HeadHash, &[u8]),
    ) {
        let RequestSource::File(file) = answering.asked else { return };
        if !turn.draining {
            let kept = (answering.persistence, &answering.changes);
            remember(turn.context.core, known_by, file, response, kept);
        }
    }

    /// Answers a request that is known by the bytes of its head.
    #[inline]
    pub(super) fn answer_repeated<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        head: &[u8],
    ) -> Shortcut {
        let core = &mut *turn.context.core;
        let (hash, known) = core.caches.repeated.get(head);
        let scheme = conn.requester.scheme;
        let fresh = known
            .filter(|known| !turn.draining && is_valid(turn.context.machine, core, &known.reply, scheme));
        let Some(known) = fresh else {
            core.counters.known_misses += 1;
            return Shortcut::Unknown(hash);
        };
        let RepeatedReply { version, persistence, changes, .. } = &known.reply;
        let persistence = *persistence;
        let content = known.reply.content().ok();
        // Last, because it counts for rates.
        let client = conn.requester.address.ip();
        let admitted = content.filter(|_| readmit(turn.context.machine, core, &known.reply, client));
        let Some(content) = admitted else {
            core.counters.known_misses += 1;
            return Shortcut::Unknown(hash);
        };
        core.counters.requests += 1;
        core.counters.known_hits += 1;
        content.iter().for_each(|content| core.counters.count_content(content.body().len() as u64));
        turn.budget.requests -= 1;
        let extending = changes.as_deref().and_then(|changes| changes.of(Status::OK));
        let only_extends = extending.is_none_or(Changes::extend_files);
        // Bitwise, so that the schedule costs this shortcut no branch of its own.
        let is_plain = (persistence == Persistence::Persists) & core.is_unscheduled() & only_extends;
        let mut timing = core.clock.timing(CacheResult::Hit);
        let Some(content) = content.as_ref().filter(|_| is_plain) else {
            // For most other forms the head is encoded; with SRPT a plain answer first gets its band, and rules change heads.
            let response = repeat(&known.reply, content.as_ref());
            let answering = Answering {
                persistence,
                asked: RequestSource::Repeated(known.log.clone()),
                changes: changes.clone(),
                timing,
            };
            return Shortcut::Answered(self.reply(conn, turn, answering, response));
        };
        let sending = (&core.clock, &**content, extending);
        let first = send_content(conn, &mut *turn.context.machine, &mut *turn.head, sending);
        if first.sent == Ok(first.offered) {
            core.counters.sends.add(first.offered as u64);
            turn.budget.bytes = turn.budget.bytes.saturating_sub(first.offered);
            let body_bytes = (first.offered - first.head_bytes) as u64;
            timing.note_first(&mut core.counters.latencies, turn.context.machine.last_call_ns());
            let ended = Ended {
                requester: &conn.requester,
                source: known.log.as_ref().map(LogSource::Text),
                timing,
                end: AnswerEnd { status: Status::OK, body_bytes, is_whole: true },
            };
            let logs = (&mut core.counters, &mut core.lines);
            note_end(&mut *turn.context.machine, logs, &core.clock, ended);
            self.phase = Phase::Idle;
            return Shortcut::Answered(Flow::Finished);
        }
        let response = Response::whole(version, Source::Memory(Arc::clone(content)));
        let asked = RequestSource::Repeated(known.log.clone());
        let answering = Answering { persistence, asked, changes: changes.clone(), timing };
        Shortcut::Answered(self.sent_first(conn, turn, answering, (first, response)))
    }
}
