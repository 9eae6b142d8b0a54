//! The helpers of a configuration's workers: they start when their worker wants one, and it gets their channel when they have
//! read their orders.

use std::io;
use std::sync::Arc;

use flash_waiting::subprocess::Subprocess;
use flash_worker::control::Order;

use super::Generation;
use crate::supervisor::Resources;
use crate::supervisor::life::{Duty, End, State};
use crate::supervisor::outbox::Shared;
use crate::supervisor::poller::Poller;
use crate::supervisor::process::Process;

/// Helper processes of a worker per busy helper: the same number may be ending, some of them hung in the kernel.
const PROCESSES_PER_HELPER: usize = 2;
/// Helpers that others end are reported at most this often.
const REPORT_PAUSE_MS: u64 = 10_000;

impl Generation {
    /// Starts a helper for the worker with this token.
    pub(super) fn start_helper(&mut self, worker: u64, resources: &mut Resources) {
        if let Err(e) = self.try_to_start_helper(worker, resources) {
            self.report_no_helper(worker, &e.to_string(), resources);
        }
    }

    fn try_to_start_helper(&mut self, worker: u64, resources: &mut Resources) -> io::Result<()> {
        let duty = Duty::Helper(worker);
        let processes_max = self.settings.helpers_max * PROCESSES_PER_HELPER;
        if self.processes.helpers().filter(|helper| helper.duty == duty).count() >= processes_max {
            return Err(io::Error::other(format!(
                "{processes_max} helper processes exist already, and some of them hang in the kernel"
            )));
        }
        let Resources { poller, store, .. } = resources;
        let program = self.program.clone();
        let name = duty.rules().name;
        let start = |channel| Subprocess::start_role_behind(program.as_deref(), name, &channel);
        let mut helper = Process::start_by(duty, &self.settings_file, poller, start)?;
        self.roots.give(&mut helper.orders)?;
        if let Some(store) = store.as_mut().filter(|_| self.has_store) {
            store.give_names(&mut helper.orders)?;
            store.give_filler(&mut helper.orders, 1)?;
        }
        helper.orders.give_at_start(Order::Begin)?;
        self.processes.insert(helper, poller)
    }

    /// Gives workers the helpers that have read their orders. Their channel could be too small for many roots, so the worker must
    /// not have it before.
    pub(super) fn introduce_helpers(&mut self, resources: &mut Resources) {
        let begun = self.processes.iter_mut().filter(|helper| helper.orders.is_sent());
        let begun: Vec<_> = begun.filter_map(|helper| take_helper(helper, &resources.poller)).collect();
        for helper in begun {
            self.introduce(helper, resources);
        }
    }

    /// Gives its worker a helper that ended before it had read its orders: the worker handles the end of the channel.
    pub(super) fn introduce_ended(&mut self, helper: &mut Process, resources: &mut Resources) {
        if let Some(helper) = take_helper(helper, &resources.poller) {
            self.introduce(helper, resources);
        }
    }

    fn introduce(&mut self, Introduced { worker, order }: Introduced, resources: &mut Resources) {
        // Without its worker the helper ends.
        let Some(process) = self.processes.get_mut(worker) else { return };
        if let Err(e) = process.orders.give(order) {
            self.report_no_helper(worker, &e.to_string(), resources);
        }
    }

    /// Reports to a worker and to the operator that a helper could not be started.
    pub(super) fn report_no_helper(&mut self, worker: u64, why: &str, resources: &mut Resources) {
        if let Some(process) = self.processes.get_mut(worker) {
            // A worker that does not receive this does not receive helpers either.
            let _ = process.orders.give(Order::NoHelper);
            resources.report(format!("{}: cannot start a helper: {why}", process.name));
        }
    }

    /// Kills a helper that its worker has given up.
    pub(super) fn end_helper(&mut self, worker: u64, helper: u64) {
        let helper = self.processes.get_mut(helper);
        helper.filter(|helper| helper.duty == Duty::Helper(worker)).map(Process::kill);
    }

    /// Kills all helpers of a worker that has ended.
    pub(super) fn kill_helpers(&mut self, worker: u64) {
        let helpers = self.processes.iter_mut().filter(|process| process.duty == Duty::Helper(worker));
        helpers.for_each(Process::kill);
    }
}

/// A helper on its way to its worker.
struct Introduced {
    worker: u64,
    order: Order<Shared>,
}

/// The channel of a helper that its worker does not have yet.
fn take_helper(helper: &mut Process, poller: &Poller) -> Option<Introduced> {
    let Duty::Helper(worker) = helper.duty else { return None };
    if helper.state != State::Starting {
        return None;
    }
    let channel = helper.orders.take_channel(&poller.epoll)?;
    helper.become_ready();
    Some(Introduced { worker, order: Order::Helper(helper.token(), Arc::new(channel)) })
}

/// The helpers that others than Flash have ended.
#[derive(Debug, Default)]
pub(super) struct LostHelpers {
    count: u64,
    last: Option<End>,
    pause_until_ms: u64,
}

impl LostHelpers {
    /// Notes the end of a helper.
    pub(super) fn note(&mut self, end: End) {
        if end.is_by_others() {
            self.count += 1;
            self.last = Some(end);
        }
    }

    /// A message for the operator, if there is one and it is time.
    pub(super) fn report(&mut self, now_ms: u64) -> Option<String> {
        let end = self.last.filter(|_| now_ms >= self.pause_until_ms)?;
        self.pause_until_ms = now_ms + REPORT_PAUSE_MS;
        self.last = None;
        Some(match std::mem::take(&mut self.count) {
            1 => format!("a helper ended ({end})"),
            count => format!("{count} helpers ended, the last one ({end})"),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn many_lost_helpers_make_few_messages() {
        let mut lost = LostHelpers::default();
        let of = |raw, is_own| End { status: Some(ExitStatus::from_raw(raw)), is_own };
        lost.note(of(9, true));
        lost.note(of(0, false));
        assert_eq!(lost.report(100), None, "nothing that others did");
        let mut said = 0;
        for now_ms in 0..=REPORT_PAUSE_MS {
            lost.note(of(11, false));
            said += u64::from(lost.report(now_ms).is_some());
        }
        assert_eq!((said, lost.count), (2, 0));
    }
}
