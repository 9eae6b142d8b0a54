//! Waits for events, and the connections that wait behind the calls between them.
//!
//! The analysis calls it when a thread begins or ends a wait for events, and when it handles a descriptor.

use super::pollers::{self, Moment, REPLACED_NS};
use super::thread::{Ended, Open, ReadyBatch};
use super::{Analysis, NO_DESCRIPTOR, WAITERS_MAX};
use crate::calls::{self, Call, Handles};
use crate::model::Waiter;

/// The descriptor that was ready, and the one that the loop works for then: the same, or a connection that it has accepted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handled {
    pub(super) ready: i32,
    pub(super) works_for: i32,
}

impl Analysis {
    /// A thread begins to wait for events.
    pub(super) fn polls(&mut self, tid: u32, now_ns: u64) {
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        let at = thread.open.as_ref().and_then(Open::argument_fd);
        let key = (thread.data.pid, at.unwrap_or(NO_DESCRIPTOR | u64::from(tid)));
        thread.polls_at = Some(key);
        let now = self.moment(key, now_ns);
        let unpolled_ns = self.pollers.begins(key, tid, now);
        self.change(tid, |thread| thread.unpolled_ns = unpolled_ns);
    }

    /// How long the threads of a group have worked until now, or could have: a thread that runs or waits for a core will wait
    /// for events in place of a blocked one.
    fn moment(&self, key: pollers::Key, at_ns: u64) -> Moment {
        let threads = self.pollers.threads(key).filter_map(|tid| self.threads.get(&tid));
        let is_shared = self.pollers.is_shared(Some(key));
        let worked_ns = if is_shared { threads.map(|thread| thread.worked_ns(at_ns)).sum() } else { 0 };
        Moment { at_ns, worked_ns }
    }

    /// Where a thread is, is not known any more, or it has ended.
    pub(super) fn polls_no_more(&mut self, tid: u32, now_ns: u64) {
        self.pools.ends(tid, now_ns);
        if let Some(key) = self.threads.get(&tid).and_then(|thread| thread.polls_at) {
            let now = self.moment(key, now_ns);
            self.pollers.ends(key, tid, now);
        }
    }

    pub(super) fn waited(&mut self, tid: u32, open: &Open, Ended { at_ns: now_ns, result }: Ended) {
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        let (polls_at, unpolled_ns) = (thread.polls_at, thread.unpolled_ns);
        thread.data.waits += 1;
        *thread.waits_by.entry(open.call).or_default() += 1;
        let ready = match calls::call(open.call).wait_flag {
            None => u32::try_from(result).unwrap_or(0),
            // io_uring_enter(2) tells what it submitted; at least one completion was there.
            Some(_) => 1,
        };
        thread.data.ready += u64::from(ready);
        thread.data.ready_max = thread.data.ready_max.max(ready);
        // The next call is for one of these, and a buffer may have been reused by then.
        thread.received = None;
        let before = thread.batch.take();
        let mut batch = ReadyBatch { ready, ..ReadyBatch::default() };
        if let Some(mut before) = before {
            let at_once = open.switches == 0 && ready > 0;
            let longest = before
                .blocked
                .iter()
                .copied()
                .max_by_key(|id| self.pending.get(id).map_or(0, |pending| pending.call.blocked_ns));
            if let Some(id) = longest.filter(|_| at_once) {
                before.blocked.retain(|other| *other != id);
                batch.carried = Some(id);
                if let Some(call) = self.pending.get_mut(&id).map(|pending| &mut pending.call)
                    && let Some(batch) = &mut call.batch
                {
                    batch.arrived = ready;
                    batch.unpolled_ns = unpolled_ns.min(call.blocked_ns);
                    if batch.unpolled_ns > REPLACED_NS
                        && let Some(key) = polls_at
                    {
                        self.pollers.held_up(key, batch.unpolled_ns);
                    }
                }
            }
            self.close(before);
        }
        if let Some(key) = polls_at {
            let now = self.moment(key, now_ns);
            self.pollers.ends(key, tid, now);
        }
        self.change(tid, |thread| thread.batch = Some(batch));
    }

    /// Nothing more can wait behind the calls of a batch.
    pub(super) fn close(&mut self, batch: ReadyBatch) {
        for id in batch.blocked.into_iter().chain(batch.carried) {
            if let Some(pending) = self.pending.get_mut(&id) {
                pending.is_open = false;
            }
        }
    }

    /// The loop handles a descriptor that was ready, for another or the same one: that has waited behind
    /// whatever blocked before.
    pub(super) fn handle(&mut self, tid: u32, call: Call, handled: Handled, now_ns: u64) {
        let Handled { ready, works_for: fd } = handled;
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        match call.handles {
            Handles::No => return,
            Handles::IfNoFile if self.descriptors.is_file(thread.data.pid, ready) => return,
            Handles::IfNoFile | Handles::Yes => {}
        }
        // From now on it works for another one than it received from last.
        thread.received = thread.received.filter(|received| received.fd == fd);
        thread.works_for = Some(fd);
        if let Some(pair) = thread.alternates(ready) {
            self.alternating.insert(tid, pair);
        }
        let Some(batch) = &mut thread.batch else { return };
        // Where none was ready it goes on with what it had begun.
        if batch.ready == 0 || batch.opened.contains(&ready) || !batch.handled.insert(ready) {
            return;
        }
        let start_ns = self.start_ns;
        let behind = batch.blocked.iter().map(|id| (*id, false));
        for (id, arrived) in behind.chain(batch.carried.map(|id| (id, true))) {
            let Some(pending) = self.pending.get_mut(&id) else { continue };
            if pending.works_for == Some(fd) {
                // The connection that the call was made for does not wait for another one.
                if let Some(batch) = pending.call.batch.as_mut().filter(|_| arrived) {
                    batch.arrived = batch.arrived.saturating_sub(1);
                }
                continue;
            }
            let waited_ns = now_ns.saturating_sub(start_ns + pending.call.start_ns);
            let Some(batch) = &mut pending.call.batch else { continue };
            batch.behind += u32::from(!arrived);
            if batch.waiters.len() < WAITERS_MAX {
                batch.waiters.push(Waiter { fd, arrived, waited_ns, ..Waiter::default() });
                pending.has_looked = false;
            }
        }
    }
}
