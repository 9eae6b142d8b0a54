//! The desk: what serving a request takes, whatever the wire and the handler. It is lent to them for a turn.

use flash_http::date::http_date;
use std::sync::Arc;

use crate::access_log::{Ending, LineWriter, LogSource};
use crate::counters::Counters;
use crate::handed_over::HandedOverTotal;
use crate::jobs::Jobs;
use crate::limits::READ_BYTES_MAX;
use crate::machine::{Machine, Moment};
use crate::rules::{Router, Rules, root_numbers};
use crate::store::{Store, Version};

/// The state of a worker that all requests share.
#[derive(Debug)]
pub(crate) struct Core<F> {
    pub(crate) rules: Rules,
    pub(crate) router: Router,
    pub(crate) clock: Clock,
    pub(crate) store: Store<F>,
    pub(crate) jobs: Jobs<F, Arc<Version>>,
    pub(crate) counters: Counters,
    /// Boundaries used in multipart bodies.
    pub(crate) boundaries: u64,
    /// Bytes that helpers have handed over and that were not sent yet.
    pub(crate) handed_over: HandedOverTotal,
    /// Bytes of a file on their way to a socket.
    pub(crate) file_buffer: Vec<u8>,
    pub(crate) lines: LineWriter,
}

/// The machine and the core, for a turn.
#[derive(Debug)]
pub(crate) struct Desk<'t, M: Machine> {
    pub(crate) machine: &'t mut M,
    pub(crate) core: &'t mut Core<M::File>,
}

/// The time of the turn, and its date as HTTP writes it.
#[derive(Debug)]
pub(crate) struct Clock {
    pub(crate) now: Moment,
    pub(crate) date: [u8; 29],
    pub(crate) wall_s: i64,
}

impl Clock {
    fn new(now: Moment) -> Self {
        let mut clock = Self { now, date: [0; 29], wall_s: i64::MIN };
        clock.set(now);
        clock
    }

    /// A turn begins.
    pub(crate) fn set(&mut self, now: Moment) {
        self.now = now;
        // Nanoseconds since 1970 fit 64 bits until 2262.
        let wall_s = (now.wall_ns as i64).div_euclid(1_000_000_000);
        if wall_s != self.wall_s {
            self.wall_s = wall_s;
            self.date = http_date(wall_s);
        }
    }

    /// Milliseconds of the monotonic clock.
    #[inline]
    pub(crate) fn ms(&self) -> u64 {
        self.now.monotonic_ms
    }
}

impl<F> Core<F> {
    pub(crate) fn new(rules: Rules, now: Moment) -> Self {
        Self {
            router: Router::new(&rules.sites),
            clock: Clock::new(now),
            store: Store::new(&rules),
            jobs: Jobs::new(rules.timeouts.job_ms, rules.helpers_max, root_numbers(&rules.sites)),
            counters: Counters::default(),
            boundaries: 0,
            handed_over: HandedOverTotal::default(),
            file_buffer: vec![0; READ_BYTES_MAX],
            lines: LineWriter::new(rules.log_format),
            rules,
        }
    }
}

/// A request that has ended: its client, its part of the log line, and when it began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended<'r> {
    pub(crate) peer: &'r std::net::SocketAddr,
    pub(crate) source: Option<LogSource<'r>>,
    pub(crate) started_ms: u64,
    pub(crate) status: flash_http::response::Status,
    pub(crate) body_bytes: u64,
    pub(crate) whole: bool,
}

impl<F> Core<F> {
    /// Counts an answer that has ended; gives its line if lines are wanted.
    pub(crate) fn note_end(&mut self, ended: Ended<'_>) -> Option<&[u8]> {
        note_end(&mut self.counters, &mut self.lines, &self.clock, ended)
    }
}

/// Counts an answer that has ended; gives its line if lines are wanted.
#[inline]
pub(crate) fn note_end<'l>(
    counters: &mut Counters,
    lines: &'l mut LineWriter,
    clock: &Clock,
    ended: Ended<'_>,
) -> Option<&'l [u8]> {
    counters.count_response(ended.status, ended.whole);
    let source = ended.source?;
    let ending = Ending {
        status: ended.status.0,
        body_bytes: ended.body_bytes,
        whole: ended.whole,
        duration_ms: clock.ms().saturating_sub(ended.started_ms),
    };
    Some(lines.line(ended.peer, clock.wall_s, source, ending))
}
