//! The state that all requests of a worker share ([`Core`]), and [`Context`]: that state together with the
//! machine, lent to a wire or a handler for one turn.

use flash_http::date::http_date;
use std::sync::Arc;

use crate::access_log::{AnswerEnd, LineWriter, LogSource};
use crate::caches::{Caches, Version};
use crate::counters::Counters;
use crate::handed_over::HandedOverTotal;
use crate::head_changes::HeadRules;
use crate::in_flight::InFlight;
use crate::jobs::{Jobs, Patience};
use crate::limits::READ_BYTES_MAX;
use crate::machine::{Machine, Moment};
use crate::router::Router;
use crate::rules::{Rules, root_numbers};
use crate::schedule::{Egress, Schedule};
use crate::slab::SiteId;
use crate::spool::Spool;
use crate::throttles::Throttles;

/// The state that all requests of a worker share.
#[derive(Debug)]
pub(crate) struct Core<F> {
    pub(crate) rules: Rules,
    pub(crate) router: Router,
    pub(crate) head_rules: HeadRules,
    pub(crate) clock: Clock,
    pub(crate) caches: Caches<F>,
    pub(crate) jobs: Jobs<F, Arc<Version>>,
    /// Stands for the root of jobs that compare passwords, so that they wait for no disk.
    pub(crate) verifying: SiteId,
    /// The same for jobs that compress answers.
    pub(crate) compressing: SiteId,
    pub(crate) spool: Spool<F>,
    pub(crate) counters: Counters,
    pub(crate) schedule: Schedule,
    pub(crate) egress: Egress,
    pub(crate) in_flight: InFlight,
    pub(crate) throttles: Throttles,
    /// How many multipart boundaries were used; each is made from this number.
    pub(crate) boundaries: u64,
    /// How many requests upstreams were to answer; the name of each is made from this number.
    pub(crate) relayed: u64,
    /// Total of the bytes that helpers have handed over and that are not sent yet.
    pub(crate) handed_over: HandedOverTotal,
    /// Buffer for bytes of a file on their way to a socket.
    pub(crate) file_buffer: Vec<u8>,
    pub(crate) lines: LineWriter,
}

/// The machine and the shared state, for one turn.
#[derive(Debug)]
pub(crate) struct Context<'t, M: Machine> {
    pub(crate) machine: &'t mut M,
    pub(crate) core: &'t mut Core<M::File>,
}

/// The time of the turn, and the same as an HTTP date.
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

    /// Begins a turn.
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

    /// The same in microseconds.
    #[inline]
    pub(crate) fn us(&self) -> u64 {
        self.now.monotonic_ms * 1_000
    }
}

impl<F> Core<F> {
    pub(crate) fn new(rules: Rules, now: Moment) -> Self {
        let mut jobs = Jobs::new(
            Patience { job_ms: rules.timeouts.job_ms, queue_ms: rules.queue_wait_ms },
            rules.helpers_max,
            root_numbers(&rules.sites),
        );
        let asks = rules.sites.iter().any(|site| site.paths.ask_for_passwords());
        let verifying = if asks { jobs.add_root() } else { SiteId::default() };
        let compresses = rules.sites.iter().flat_map(|site| &site.routes).any(|route| route.compresses);
        let compressing = if compresses { jobs.add_root() } else { SiteId::default() };
        Self {
            router: Router::new(&rules.sites),
            head_rules: HeadRules::new(&rules),
            clock: Clock::new(now),
            caches: Caches::new(&rules),
            jobs,
            verifying,
            compressing,
            spool: Spool::new(rules.spool_idle_ms),
            counters: Counters::default(),
            schedule: Schedule::new(rules.policy),
            egress: Egress::new(rules.egress, now.monotonic_ms),
            in_flight: InFlight::default(),
            throttles: Throttles::default(),
            boundaries: 0,
            relayed: 0,
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
    pub(crate) end: AnswerEnd,
}

impl<F> Core<F> {
    /// Whether answers need neither a band nor a turn at the uplink.
    #[inline]
    pub(crate) fn is_unscheduled(&self) -> bool {
        self.schedule.is_fair() & self.egress.is_off()
    }

    /// Counts an answer that has ended. Returns its log line unless logging is off.
    pub(crate) fn note_end(&mut self, ended: Ended<'_>) -> Option<&[u8]> {
        note_end(&mut self.counters, &mut self.lines, &self.clock, ended)
    }
}

/// Counts an answer that has ended. Returns its log line unless logging is off.
#[inline]
pub(crate) fn note_end<'l>(
    counters: &mut Counters,
    lines: &'l mut LineWriter,
    clock: &Clock,
    ended: Ended<'_>,
) -> Option<&'l [u8]> {
    counters.count_response(ended.end.status, ended.end.is_whole);
    let source = ended.source?;
    let duration_ms = clock.ms().saturating_sub(ended.started_ms);
    Some(lines.line(ended.peer, clock.wall_s, source, (ended.end, duration_ms)))
}
