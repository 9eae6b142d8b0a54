//! A request that is being answered: where it is stored, and what its answer needs of it. Called by [`h1`](super).

use std::sync::Arc;

use flash_http::request::Request;

use crate::access_log::{LogFields, LogSource, LogText};
use crate::caches::Persistence;
use crate::exchange::{LogEntry, Turn};
use crate::handler::{FileRequest, FileRequestBuf, head_changes, head_changes_of_path, persistence};
use crate::head_changes::HeadChanges;
use crate::in_flight::Holds;
use crate::machine::Machine;
use crate::requester::Scheme;
use crate::slab::ExchangeKey;
use crate::timing::{CacheResult, Timing};

/// A request that is being answered.
pub(super) struct Answering<'r> {
    pub(super) persistence: Persistence,
    pub(super) asked: RequestSource<'r>,
    /// How rules change the head of the answer.
    pub(super) changes: Option<Arc<HeadChanges>>,
    pub(super) timing: Timing,
}

/// Where the request that is being answered is stored.
pub(super) enum RequestSource<'r> {
    /// In the receive buffer.
    Fresh(&'r Request<'r>),
    /// In the receive buffer, and a file answers it.
    File(&'r FileRequest<'r>),
    /// Nowhere: the input was not a valid request, and this is its first line.
    Line(&'r [u8]),
    /// Nowhere: it was known by its bytes.
    Repeated(Option<LogText>),
    /// In an exchange, which is lent; with the request if a file answers it.
    Exchange(ExchangeKey, Option<LogText>, Option<Box<FileRequestBuf>>),
}

impl<'r> Answering<'r> {
    /// For a request in the receive buffer. If its body was not read, it is the last request.
    pub(super) fn fresh<M: Machine>(
        (request, scheme): (&'r Request<'r>, Scheme),
        turn: &mut Turn<'_, M>,
    ) -> Self {
        let ends = turn.draining || !request.body.is_empty();
        Self {
            persistence: persistence(request, ends),
            asked: RequestSource::Fresh(request),
            changes: head_changes(turn.context.core, scheme, request),
            timing: turn.context.core.clock.timing(CacheResult::Hit),
        }
    }

    /// For input that is not a valid request.
    pub(super) fn of_line<M: Machine>(line: &'r [u8], turn: &Turn<'_, M>) -> Self {
        let timing = turn.context.core.clock.timing(CacheResult::Hit);
        Self { persistence: Persistence::Closes, asked: RequestSource::Line(line), changes: None, timing }
    }

    /// For a request in the receive buffer that a file answers.
    pub(super) fn of_file<M: Machine>(
        (file, scheme): (&'r FileRequest<'r>, Scheme),
        turn: &mut Turn<'_, M>,
    ) -> Self {
        let ends = turn.draining || !file.request.body.is_empty();
        let subject = (&file.path[..], file.request.origin);
        Self {
            persistence: persistence(file.request, ends),
            asked: RequestSource::File(file),
            changes: head_changes_of_path(turn.context.core, scheme, file.site, subject),
            timing: turn.context.core.clock.timing(CacheResult::Hit),
        }
    }

    /// For a request that an exchange has kept.
    pub(super) fn kept<M: Machine>(
        key: ExchangeKey,
        log_entry: LogEntry,
        (request, scheme): (&Request<'_>, Scheme),
        turn: &mut Turn<'_, M>,
    ) -> Self {
        let LogEntry { log, timing } = log_entry;
        let persistence = persistence(request, turn.draining);
        let changes = head_changes(turn.context.core, scheme, request);
        Self { persistence, asked: RequestSource::Exchange(key, log, None), changes, timing }
    }

    /// For a request that an exchange has kept and a file answers.
    pub(super) fn kept_file<M: Machine>(
        key: ExchangeKey,
        log_entry: LogEntry,
        (file, scheme): (FileRequestBuf, Scheme),
        turn: &mut Turn<'_, M>,
    ) -> Self {
        let LogEntry { log, timing } = log_entry;
        let persistence = persistence(&file.request(), turn.draining);
        let subject = (&file.path[..], file.request().origin);
        let changes = head_changes_of_path(turn.context.core, scheme, file.site, subject);
        Self { persistence, asked: RequestSource::Exchange(key, log, Some(Box::new(file))), changes, timing }
    }

    /// Whether rules bound the bandwidth of the answer.
    pub(super) fn is_throttled(&self) -> bool {
        let holds = match &self.asked {
            RequestSource::File(file) => &file.holds,
            RequestSource::Exchange(_, _, Some(file)) => &file.holds,
            _ => return false,
        };
        !Holds::throttles(holds.as_ref()).is_empty()
    }

    /// Marks the answer as the last one of its connection.
    pub(super) fn closing(self) -> Self {
        Self { persistence: Persistence::Closes, ..self }
    }

    pub(super) fn log_source<M: Machine>(&self, turn: &Turn<'_, M>) -> Option<LogSource<'_>> {
        if turn.context.core.lines.is_off() {
            return None;
        }
        match &self.asked {
            RequestSource::Fresh(request) | RequestSource::File(FileRequest { request, .. }) => {
                Some(LogSource::Fields(LogFields::of(request)))
            }
            RequestSource::Line(line) => Some(LogSource::Fields(LogFields::of_line(line))),
            RequestSource::Repeated(log) | RequestSource::Exchange(_, log, _) => {
                log.as_ref().map(LogSource::Text)
            }
        }
    }
}
