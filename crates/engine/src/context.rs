//! The state that all requests of a worker share ([`Core`]), and [`Context`]: that state together with the
//! machine, lent to a wire or a handler for one turn.

use flash_http::date::http_date;
use std::sync::Arc;

use crate::access_log::{AnswerEnd, LineWriter, LogSource, LoggedAnswer};
use crate::caches::{Caches, Version};
use crate::counters::Counters;
use crate::handed_over::HandedOverTotal;
use crate::head_changes::HeadRules;
use crate::in_flight::InFlight;
use crate::jobs::{Jobs, Patience};
use crate::limits::READ_BYTES_MAX;
use crate::machine::{Machine, Moment};
use crate::requester::Requester;
use crate::router::Router;
use crate::rules::{Rules, root_numbers};
use crate::schedule::{Egress, Schedule};
use crate::slab::SiteId;
use crate::spool::Spool;
use crate::throttles::Throttles;
use crate::timing::{CacheResult, Timing};

/// The state that all requests of a worker share.
#[derive(Debug)]
pub(crate) struct Core<F> {
    pub(crate) rules: Rules,
    pub(crate) router: Arc<Router>,
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
    ms: u64,
    pub(crate) date: [u8; 29],
    pub(crate) wall_s: i64,
}

impl Clock {
    fn new(now: Moment) -> Self {
        let mut clock = Self { now, ms: 0, date: [0; 29], wall_s: i64::MIN };
        clock.set(now);
        clock
    }

    /// Begins a turn.
    pub(crate) fn set(&mut self, now: Moment) {
        self.now = now;
        self.ms = now.monotonic_ms();
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
        self.ms
    }

    /// The same in microseconds, exact to the millisecond.
    #[inline]
    pub(crate) fn us(&self) -> u64 {
        self.ms * 1_000
    }

    /// The timing of a request that has begun in this turn.
    #[inline]
    pub(crate) fn timing(&self, result: CacheResult) -> Timing {
        Timing::new(self.now.monotonic_ns, result)
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
        let router = Arc::new(Router::new(&rules.sites));
        let lines = LineWriter::new(rules.log.clone(), Arc::clone(&router));
        Self {
            router,
            head_rules: HeadRules::new(&rules),
            clock: Clock::new(now),
            caches: Caches::new(&rules),
            jobs,
            verifying,
            compressing,
            spool: Spool::new(rules.spool_idle_ms),
            counters: Counters::default(),
            schedule: Schedule::new(rules.policy),
            egress: Egress::new(rules.egress, now.monotonic_ms()),
            in_flight: InFlight::default(),
            throttles: Throttles::default(),
            boundaries: 0,
            relayed: 0,
            handed_over: HandedOverTotal::default(),
            file_buffer: vec![0; READ_BYTES_MAX],
            lines,
            rules,
        }
    }
}

/// A request that has ended: its client, its part of the log line, and its course.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended<'r> {
    pub(crate) requester: &'r Requester,
    pub(crate) source: Option<LogSource<'r>>,
    pub(crate) timing: Timing,
    pub(crate) end: AnswerEnd,
}

impl<F> Core<F> {
    /// Whether answers need neither a band nor a turn at the uplink.
    #[inline]
    pub(crate) fn is_unscheduled(&self) -> bool {
        self.schedule.is_fair() & self.egress.is_off()
    }
}

impl<M: Machine> Context<'_, M> {
    /// Notes that the first bytes of an answer have gone.
    pub(crate) fn note_first(&mut self, timing: &mut Timing) {
        timing.note_first(&mut self.core.counters.latencies, self.machine.last_call_ns());
    }

    /// Counts and logs an answer that has ended.
    pub(crate) fn note_end(&mut self, ended: Ended<'_>) {
        let Core { counters, lines, clock, .. } = &mut *self.core;
        note_end(self.machine, (counters, lines), clock, ended);
    }
}

/// Counts and logs an answer that has ended.
#[inline]
pub(crate) fn note_end<M: Machine>(
    machine: &mut M,
    (counters, lines): (&mut Counters, &mut LineWriter),
    clock: &Clock,
    ended: Ended<'_>,
) {
    let Ended { requester, source, timing, end } = ended;
    counters.count_response(end.status, end.is_whole);
    let Some(source) = source else { return };
    let answer =
        LoggedAnswer { requester, end, timing, ended_ns: machine.last_call_ns(), wall_s: clock.wall_s };
    if let Some((log, line)) = lines.line(source, answer) {
        machine.log_access(log, line);
    }
}
