//! The loop that starts requests on time and takes their answers.
//!
//! Commands give it flows and get counts. It polls without sleeping while arrivals come, since a
//! sleeping thread wakes late by more than a hot answer takes: give it a core of its own. After
//! each receive of at most [`BUFFER_BYTES`] it looks at the clock again, so a long answer does not
//! delay an arrival.

use std::collections::VecDeque;
use std::io;

use flash_sys::prompt::clock;
use flash_sys::prompt::epoll::{Epoll, Ready};
use hdrhistogram::Histogram;

use super::Ask;
use super::pool::{Pool, Setup};
use super::tally::{Tally, times_histogram};
use crate::workload::arrivals::Arrivals;

/// Descriptors taken from one epoll call.
const EVENTS_MAX: usize = 512;
/// Bytes of one receive: some 15 µs of copying.
const BUFFER_BYTES: usize = 64 * 1024;
/// How long the loop sleeps at most when no more arrivals come.
const DRAIN_WAIT_MS: u64 = 1;

/// A stream of requests; it goes to the pool with its index.
pub(crate) struct Flow<'a> {
    /// When requests start.
    pub(crate) arrivals: Arrivals,
    /// Chooses the file of the next request.
    pub(crate) choose: Box<dyn FnMut() -> u32 + 'a>,
}

/// The loop, its pools, and its buffers.
pub(crate) struct Generator {
    epoll: Epoll,
    pools: Vec<Pool>,
    events: Vec<Ready>,
    /// Tokens of connections that have something to receive.
    ready: VecDeque<u64>,
    buffer: Vec<u8>,
}

/// What the generator says of itself.
pub(crate) struct Report {
    /// Nanoseconds by which it sent requests, or queued them, later than they were meant.
    pub(crate) late_ns: Histogram<u64>,
    /// How long the last answers took to come after the last arrival.
    pub(crate) drain_ns: u64,
}

impl Generator {
    /// Makes a pool for each setup.
    ///
    /// Errors: those of `epoll_create`.
    pub(crate) fn new(setups: Vec<Setup>) -> io::Result<Self> {
        let pools = setups.into_iter().enumerate().map(|(i, setup)| Pool::new(i as u8, setup)).collect();
        Ok(Self {
            epoll: Epoll::new(EVENTS_MAX)?,
            pools,
            events: Vec::with_capacity(EVENTS_MAX),
            ready: VecDeque::new(),
            buffer: vec![0; BUFFER_BYTES],
        })
    }

    /// The counts of the pool with that index since they were last taken.
    pub(crate) fn take_tally(&mut self, pool: usize) -> Tally {
        self.pools[pool].take_tally()
    }

    /// Lets the flows run to their end, then waits up to `drain_max_ns` for the last answers and
    /// gives up on the rest.
    ///
    /// Errors: those of `epoll_wait`.
    pub(crate) fn run(&mut self, flows: &mut [Flow<'_>], drain_max_ns: u64) -> io::Result<Report> {
        let mut late_ns = times_histogram();
        let start_ns = clock::monotonic_ns();
        self.set_overtime(false);
        while flows.iter().any(|flow| !flow.arrivals.is_over()) {
            self.start_due(flows, start_ns, &mut late_ns);
            self.receive_some(0)?;
        }
        let end_ns = clock::monotonic_ns();
        self.set_overtime(true);
        let mut now_ns = end_ns;
        while self.outstanding() > 0 && now_ns - end_ns < drain_max_ns {
            self.receive_some(DRAIN_WAIT_MS)?;
            now_ns = clock::monotonic_ns();
        }
        for pool in &mut self.pools {
            pool.abandon(now_ns, &self.epoll);
        }
        Ok(Report { late_ns, drain_ns: now_ns - end_ns })
    }

    fn set_overtime(&mut self, overtime: bool) {
        for pool in &mut self.pools {
            pool.set_overtime(overtime);
        }
    }

    fn outstanding(&self) -> usize {
        self.pools.iter().map(Pool::outstanding).sum()
    }

    fn start_due(&mut self, flows: &mut [Flow<'_>], start_ns: u64, late_ns: &mut Histogram<u64>) {
        for (flow, pool) in flows.iter_mut().zip(&mut self.pools) {
            loop {
                let elapsed_ns = clock::monotonic_ns() - start_ns;
                let Some(intended_ns) = flow.arrivals.take(elapsed_ns) else {
                    break;
                };
                late_ns.saturating_record(elapsed_ns - intended_ns);
                let ask = Ask { path_id: (flow.choose)(), intended_ns: start_ns + intended_ns };
                pool.arrive(ask, &self.epoll);
            }
        }
    }

    /// Takes new events when the earlier ones are dealt with, then receives once.
    fn receive_some(&mut self, timeout_ms: u64) -> io::Result<()> {
        if self.ready.is_empty() {
            self.events.clear();
            self.events.extend(self.epoll.wait(Some(timeout_ms))?);
            for &event in &self.events {
                let pool = &mut self.pools[usize::from(Pool::number_of(event.token))];
                if pool.note(event, &self.epoll) {
                    self.ready.push_back(event.token);
                }
            }
        }
        if let Some(token) = self.ready.pop_front() {
            let pool = &mut self.pools[usize::from(Pool::number_of(token))];
            if pool.turn(token, &mut self.buffer, &self.epoll, clock::monotonic_ns) {
                self.ready.push_back(token);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "generator_tests.rs"]
mod tests;
