//! Threads that leave their core and get one: between both they wait.

use super::thread::{Ended, Mode, Open};
use super::{Analysis, pools};
use crate::calls::{NO_CALL, PAGE_FAULT};
use crate::model::{CallTotal, ReasonTotal};

impl Analysis {
    /// A thread leaves its core.
    pub(super) fn off(&mut self, tid: u32, now_ns: u64, runnable: bool) {
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        let stack = thread.stack.take();
        // Who has no core sends nothing.
        self.requests.sending.remove(&tid);
        if !thread.is_known {
            return;
        }
        if runnable || self.stacks.is_stop(stack) {
            thread.mode = Mode::Runnable;
            return;
        }
        thread.mode = Mode::Waits;
        let is_loop = thread.is_loop();
        let (pid, last) = (thread.data.pid, thread.last_call);
        let outside = || self.stacks.outside_call(stack, last);
        let open = thread
            .open
            .get_or_insert_with(|| Open { is_outside: true, ..Open::new(outside(), [0; 6], now_ns, false) });
        open.switches += 1;
        open.stack_now = stack;
        if !open.is_wait && self.stacks.reason(stack, open.call).is_disk_read() {
            let is_sole = pid == tid && !self.processes_of_threads.contains(&pid);
            let parent = self.processes.get(&pid).map_or(0, |process| process.parent);
            if is_sole && parent > 1 {
                self.pools.begins(pools::Key::Processes(parent), tid, now_ns);
            } else if !is_loop {
                self.pools.begins(pools::Key::Threads(pid), tid, now_ns);
            }
        }
        if !open.is_wait && open.looked.is_none() {
            self.blocked_now.insert(tid);
        }
    }

    /// A thread gets a core.
    pub(super) fn on(&mut self, tid: u32, now_ns: u64) {
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        thread.mode = Mode::On;
        thread.since_ns = thread.since_ns.max(now_ns);
        self.pools.ends(tid, now_ns);
        if thread.sends {
            self.requests.sending.insert(tid);
        }
        if thread.open.as_ref().is_some_and(|open| open.is_outside)
            && let Some(open) = thread.open.take()
        {
            self.blocked_now.remove(&tid);
            let reason = self.stacks.reason(open.stack, open.call);
            let ended = Ended { at_ns: now_ns, result: 0 };
            if matches!(open.call, PAGE_FAULT | NO_CALL) {
                thread.count(&open, ended, Some(reason));
            } else {
                // The time after a call was counted with the call.
                let blocked_ns = open.blocked_ns;
                thread.totals.entry(open.call).or_default().add(&CallTotal {
                    blocked: 1,
                    blocked_ns,
                    duration_ns: blocked_ns,
                    longest_ns: blocked_ns,
                    reasons: vec![ReasonTotal::of(reason, blocked_ns, blocked_ns)],
                    ..CallTotal::default()
                });
            }
            self.blocked(tid, &open, ended, false);
        }
    }
}
