//! The states of threads when the recording begins.
//!
//! Each is looked at, then events are enabled one after the other, and it begins when all are: what comes before
//! only tells where a thread is by then.

use super::thread::{Mode, Open};
use super::{Analysis, calls};
use crate::event::{InCall, What};

impl Analysis {
    /// A thread that there is at the beginning, and the call that it is blocked in, if it is.
    pub(crate) fn add_thread(&mut self, pid: u32, tid: u32, name: &str, in_call: Option<InCall>) {
        self.add_process(pid, 0);
        let start_ns = self.start_ns;
        let blocked_in =
            in_call.map(|InCall { call, args, functions }| (call, args, self.stacks.of_functions(functions)));
        let Some(thread) = self.thread(pid, tid, name, true) else { return };
        let Some((call, args, stack)) = blocked_in else { return };
        let is_wait = thread.is_wait(calls::call(call), &args);
        let open = Open::new(call, args, start_ns, is_wait);
        thread.open = Some(Open { began_before: true, switches: 1, stack, stack_now: stack, ..open });
        (thread.is_known, thread.mode, thread.since_ns) = (true, Mode::Waits, start_ns);
        self.draw(tid);
        if is_wait {
            self.polls(tid, start_ns);
        } else {
            self.blocked_now.insert(tid);
        }
    }

    /// An event from before the recording begins; it is not counted.
    pub(super) fn before(&mut self, tid: u32, what: &What) {
        let start_ns = self.start_ns;
        self.polls_no_more(tid, start_ns);
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        match *what {
            What::Enter { call, args } => {
                let is_wait = thread.is_wait(calls::call(call), &args);
                let open = Open::new(call, args, start_ns, is_wait);
                thread.open = Some(Open { began_before: true, ..open });
                (thread.is_known, thread.may_be_cut, thread.mode) = (true, false, Mode::On);
            }
            What::Exit { call, .. } => {
                thread.open = None;
                (thread.is_known, thread.may_be_cut, thread.mode) = (true, false, Mode::On);
                thread.last_call = Some(call);
            }
            What::Off { runnable } => return self.off(tid, start_ns, runnable),
            What::On => {
                thread.mode = Mode::On;
                thread.open.take_if(|open| open.is_outside);
            }
            _ => return,
        }
        thread.since_ns = start_ns;
        self.blocked_now.remove(&tid);
        self.draw(tid);
    }
}
