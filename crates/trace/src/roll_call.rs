//! Who of those that are traced is still there, and where they listen by now: asked of /proc now and then.
//!
//! `recorder` calls it at each of its turns, and it does a portion each time: meanwhile rings fill.

use std::collections::HashSet;

use flash_waiting::perf;

use crate::analysis::Analysis;
use crate::tap::Tap;
use crate::world::is_running;

/// How often it begins anew.
const INTERVAL_NS: u64 = 1_000_000_000;
/// Threads in a portion; for each a file of /proc is read.
const THREADS_MAX: usize = 64;

/// How far it has got.
#[derive(Debug, Default)]
pub(crate) struct RollCall {
    next_ns: u64,
    /// Processes and threads that it has yet to come to.
    threads: Vec<(u32, u32)>,
    processes: Vec<u32>,
    /// When it was found out that a thread has ended: what it did before may still be on its way.
    gone: Vec<(u64, u32, u32)>,
}

impl RollCall {
    pub(crate) fn new() -> Self {
        Self { next_ns: perf::now_ns() + INTERVAL_NS, ..Self::default() }
    }

    /// Does a bounded part of the work. The analysis has all events up to `settled_ns`.
    pub(crate) fn go_on(&mut self, analysis: &mut Analysis, tap: &mut Tap, settled_ns: u64) {
        let settled = self.gone.partition_point(|(at_ns, ..)| *at_ns <= settled_ns);
        for (_, pid, tid) in self.gone.drain(..settled) {
            analysis.end(pid, tid);
        }
        if self.threads.is_empty() && self.processes.is_empty() && perf::now_ns() >= self.next_ns {
            self.next_ns = perf::now_ns() + INTERVAL_NS;
            self.threads = analysis.running();
            let processes: HashSet<u32> = self.threads.iter().map(|(pid, _)| *pid).collect();
            self.processes = processes.into_iter().collect();
        }
        let portion = self.threads.len().saturating_sub(THREADS_MAX);
        for (pid, tid) in self.threads.drain(portion..) {
            if !is_running(pid, tid) {
                self.gone.push((perf::now_ns(), pid, tid));
            }
        }
        // One that has descriptors to be looked at is enough for a portion.
        while let Some(pid) = self.processes.pop() {
            if tap.look(pid) {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_to_all_of_them_in_portions_and_ends_who_is_gone() {
        let me = std::process::id();
        let mut analysis = Analysis::new(perf::now_ns());
        analysis.add_thread(me, me, "here", None);
        // No process has such a number (proc(5), pid_max).
        let gone = (1 << 22)..(1 << 22) + 2 * THREADS_MAX as u32;
        gone.clone().for_each(|tid| analysis.add_thread(tid, tid, "gone", None));
        let mut tap = Tap::open(me);
        let _listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut roll_call = RollCall::new();
        roll_call.next_ns = 0;
        for portion in 1..=3 {
            roll_call.go_on(&mut analysis, &mut tap, 0);
            assert_eq!(roll_call.threads.len(), (gone.len() + 1).saturating_sub(portion * THREADS_MAX));
        }
        // One process in a portion: this one comes at any time.
        (0..gone.len()).for_each(|_| roll_call.go_on(&mut analysis, &mut tap, 0));
        assert!(tap.has_listeners());
        assert_eq!(analysis.running().len(), gone.len() + 1, "events of before may still come");
        roll_call.go_on(&mut analysis, &mut tap, u64::MAX);
        assert_eq!(analysis.running(), [(me, me)]);
    }
}
