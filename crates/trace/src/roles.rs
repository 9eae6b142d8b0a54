//! Which threads that wait for events are event loops: those that serve several connections at once.
//!
//! `recorder` calls it when all is recorded. A process per connection may wait by epoll, too, for its one client and
//! for its parent; its calls delay nobody else, so it is a thread as any other. Pure.

use std::collections::BTreeSet;

use crate::model::{HeldUp, Trace};

/// Takes the loops of processes that never served several connections at once for other threads.
pub(crate) fn settle(trace: &mut Trace) {
    let serves = trace.threads.iter().filter(|thread| thread.is_loop && thread.serves_several);
    let loops: BTreeSet<u32> = serves.map(|thread| thread.pid).collect();
    let is_loop = |pid: u32| loops.contains(&pid);
    for thread in trace.threads.iter_mut().filter(|thread| !is_loop(thread.pid)) {
        thread.is_loop = false;
        thread.held_up = HeldUp::default();
    }
    for call in trace.blocked.iter_mut().filter(|call| !is_loop(call.pid)) {
        (call.in_loop, call.batch) = (false, None);
    }
    for call in trace.calls.iter_mut().filter(|call| !is_loop(call.pid)) {
        (call.in_loop, call.loop_share) = (false, 0.0);
    }
    for total in trace.targets.iter_mut().filter(|total| !is_loop(total.pid)) {
        total.in_loop = false;
    }
    for request in &mut trace.requests.costliest {
        let pid = request.tid.and_then(|tid| trace.threads.iter().find(|thread| thread.tid == tid));
        if pid.is_none_or(|thread| !is_loop(thread.pid)) {
            request.held_up_ns = 0;
        }
    }
    trace.timelines.retain(|timeline| is_loop(timeline.pid));
    // A pool of processes that serve many connections each is none: their calls are judged as those of loops.
    trace.pools.retain(|pool| {
        let of_loops =
            trace.threads.iter().filter(|thread| thread.is_loop && pool.tids.contains(&thread.tid));
        of_loops.count() == 0
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::waiting_server;

    #[test]
    fn a_loop_of_one_connection_is_a_thread_as_any_other() {
        let mut trace = waiting_server();
        settle(&mut trace);
        assert!(trace.threads[0].is_loop && trace.blocked[0].in_loop && !trace.timelines.is_empty());
        trace.threads[0].serves_several = false;
        settle(&mut trace);
        assert!(trace.threads.iter().all(|thread| !thread.is_loop && thread.held_up.times == 0));
        assert!(trace.blocked.iter().all(|call| !call.in_loop && call.batch.is_none()));
        assert!(trace.calls.iter().all(|call| !call.in_loop) && trace.timelines.is_empty());
        assert!(trace.requests.costliest.iter().all(|request| request.held_up_ns == 0));
    }
}
