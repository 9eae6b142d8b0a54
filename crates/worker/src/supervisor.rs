//! A worker's end of the channel to the supervisor, with the reports that do not fit into it yet. Called by the loops of
//! workers and of the backend. It must not wait for the supervisor.

use std::collections::VecDeque;
use std::io;

use flash_prompt::{OwnedFd, channel};

use crate::calls::{self, Call, note_call};
use crate::control::{InForce, Notice, Order, receive_order, send_notice};
use crate::panics;
use crate::stats::Counters;

/// Maximum number of messages for the operator that wait for the supervisor.
const REPORTS_MAX: usize = 64;

/// The channel to the supervisor.
#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(crate) channel: OwnedFd,
    reports: VecDeque<String>,
}

impl Supervisor {
    /// Errors: any of fcntl(2).
    pub(crate) fn new(channel: OwnedFd) -> io::Result<Self> {
        channel::set_nonblocking(&channel)?;
        Ok(Self { channel, reports: VecDeque::new() })
    }

    /// The next order. Errors: `WouldBlock` if there is none, and others if the supervisor has gone.
    pub(crate) fn receive(&self) -> io::Result<Order> {
        let order = receive_order(&self.channel);
        note_call(Call::Message);
        order
    }

    /// Sends a notice. If the channel is full, it is dropped, because the supervisor does not wait for it either.
    fn send(&self, notice: &Notice) {
        let _ = send_notice(&self.channel, notice);
        note_call(Call::Message);
    }

    pub(crate) fn send_stats(&self, question: u64, counters: &Counters) {
        self.send(&Notice::Stats(question, counters.to_json()));
    }

    pub(crate) fn send_pong(&self) {
        self.send(&Notice::Pong);
    }

    pub(crate) fn send_stalls(&self, question: u64) {
        self.send(&Notice::Stalls(question, calls::stalls().to_json()));
    }

    /// Reports that the loop has begun, under the sandbox `in_force`.
    pub(crate) fn send_ready(&self, in_force: InForce) -> io::Result<()> {
        send_notice(&self.channel, &Notice::Ready(in_force))
    }

    /// Keeps a message for the operator until there is room for it, with the last panic if there was one.
    pub(crate) fn report(&mut self, message: &str) {
        if self.reports.len() < REPORTS_MAX {
            let panic = panics::take_last();
            let report = if panic.is_empty() { message.to_owned() } else { format!("{message} ({panic})") };
            self.reports.push_back(report);
        }
    }

    pub(crate) fn report_wrong_order(&mut self, order: &Order) {
        self.report(&format!("a bug: the supervisor sent the order {order:?} to a running worker"));
    }

    pub(crate) fn has_reports(&self) -> bool {
        !self.reports.is_empty()
    }

    /// Sends the reports for which there is room.
    pub(crate) fn send_reports(&mut self) {
        while let Some(report) = self.reports.front() {
            let sent = send_notice(&self.channel, &Notice::Report(report.clone()));
            note_call(Call::Message);
            if sent.is_err() {
                return;
            }
            self.reports.pop_front();
        }
    }
}
