//! The part of [`Links`] that learns of the health of servers: failures, pauses, probes, and the reports of them. Called by
//! the wires and by [`Engine`](crate::Engine).

use std::io;

use super::links::Links;
use super::pool::{Pool, Probed, ServerHealth};
use crate::limits::REPORT_MS;
use crate::machine::Machine;
use crate::rules::{ServerId, UpstreamId};

impl<S> Links<S> {
    /// Notes that a server failed to answer. One that fails several times in a row gets no requests for a
    /// while, unless all of its upstream do.
    pub(crate) fn note_failure(&mut self, server: ServerId, now_ms: u64) {
        self.counters.failures += 1;
        let resumes_ms = self.health(server).fail(now_ms);
        self.resumes_ms = self.resumes_ms.into_iter().chain(resumes_ms).min();
    }

    /// Notes that a server has answered.
    pub(crate) fn note_success(&mut self, server: ServerId) {
        self.health(server).succeed();
    }

    /// Notes that the probes of a server have begun to fail, or to succeed. Until they succeed it gets no requests,
    /// unless all servers of its upstream are down.
    pub(crate) fn probed<M: Machine<Socket = S>>(
        &mut self,
        machine: &mut M,
        server: ServerId,
        is_up: bool,
        now_ms: u64,
    ) {
        let pool = self.pools.get_mut(usize::from(server.upstream.0));
        let Some(health) = pool.and_then(|pool| pool.servers.get_mut(usize::from(server.server))) else {
            return;
        };
        health.probe(if is_up { Probed::Up } else { Probed::Down });
        // With the last server down, requests can use those that were down before.
        self.serve_queue(machine, server.upstream, now_ms);
    }

    /// Serves the queues if the pause of a server has ended.
    pub(crate) fn resume<M: Machine<Socket = S>>(&mut self, machine: &mut M, now_ms: u64) {
        if self.resumes_ms.is_none_or(|ms| ms > now_ms) {
            return;
        }
        self.resumes_ms = self.pools.iter().filter_map(|pool| pool.resumes_ms(now_ms)).min();
        for upstream in 0..self.pools.len() {
            self.serve_queue(machine, UpstreamId(upstream as u16), now_ms);
        }
    }

    /// When [`Links::resume`], [`Links::close_idle`] or [`Links::end_handshakes`] has something to do: when a pause ends
    /// while requests wait, when a link has been idle for long, or when a handshake takes too long.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        let waits = |pool: &Pool| !pool.queue.is_empty();
        let resumes_ms = self.resumes_ms.filter(|_| self.pools.iter().any(waits));
        let handshake_ms = self.handshakes.first().map(|(due_ms, _)| *due_ms);
        resumes_ms.into_iter().chain(self.idle_ends_ms).chain(handshake_ms).min()
    }

    fn health(&mut self, server: ServerId) -> &mut ServerHealth {
        &mut self.pools[usize::from(server.upstream.0)].servers[usize::from(server.server)]
    }

    /// The report of a failure, unless there was one not long ago.
    pub(crate) fn failure_report(
        &mut self,
        server: ServerId,
        why: &str,
        request_line: Option<&[u8]>,
        now_ms: u64,
    ) -> Option<String> {
        let more = match self.health(server).report(now_ms)? {
            0 => String::new(),
            more => format!("; {more} more failures since the last report"),
        };
        let at =
            request_line.map_or(String::new(), |line| format!(", at {:?}", String::from_utf8_lossy(line)));
        Some(format!("upstream {}: {why}{at}{more}", self.name(server)))
    }

    /// The report of a connection that was not made for a reason of this machine, unless there was one not long ago.
    pub(crate) fn shortage(&mut self, why: &io::Error, now_ms: u64) -> Option<String> {
        if !self.shortage_reports.is_due(now_ms, REPORT_MS) {
            return None;
        }
        Some(format!("cannot connect to servers of routes: {why}; such requests are answered 503"))
    }

    /// The report of an application's standard error, unless there was one not long ago.
    pub(crate) fn report_stderr(&mut self, server: ServerId, stderr: &[u8], now_ms: u64) -> Option<String> {
        if !self.health(server).reports_stderr(now_ms) {
            return None;
        }
        let stderr = String::from_utf8_lossy(stderr);
        Some(format!("upstream {}: the application says {:?}", self.name(server), stderr.trim_end()))
    }
}
