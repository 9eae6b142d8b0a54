//! A rush: clients come one after the other and request unknown names, faster than a troubled disk can look
//! them up. Each look-up is a separate job, so its order and its wait are visible from outside: no look-up
//! starts before an older one, and no client waits if the server knows that the wait will be too long.

use std::collections::BTreeMap;

use flash_engine::limits::PACE_JOBS;
use flash_engine::{SiteId, Task};

use crate::machine::FileHandle;
use crate::run::{Event, Run};

/// The site of the rush. All its names have the same root.
const SITE: u16 = 0;

/// The clients of a rush.
#[derive(Debug, Default)]
pub(crate) struct Rush {
    /// Clients whose look-up was not started yet, by path.
    waiting: BTreeMap<String, Waiting>,
    /// When a job was last finished.
    finished_ms: u64,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    peer: usize,
    since_ms: u64,
}

impl Run {
    /// Adds the next client of the rush, and schedules those after it.
    pub(crate) fn rush(&mut self, number: u64) {
        if self.drained || self.over || number >= self.plan.rush {
            return;
        }
        let path = format!("/rush{number}");
        let ask = self.ask_for_nothing(SITE, path.clone());
        let Some(peer) = self.connect(false) else { return };
        self.peers[peer].crowd = true;
        self.peers[peer].push(ask);
        self.send(peer);
        self.rush.waiting.insert(path, Waiting { peer, since_ms: self.now_ms() });
        self.after(self.plan.rush_gap_ms, Event::Rush(number + 1));
    }

    /// Records that a job was finished.
    pub(crate) fn note_finished(&mut self) {
        self.rush.finished_ms = self.now_ms();
    }

    /// A look-up has begun: no client may have waited longer.
    pub(crate) fn note_order(&mut self, task: &Task<FileHandle>) {
        let Task::Find { site: SiteId(SITE), path } = task else { return };
        let path = String::from_utf8_lossy(path).into_owned();
        let Some(begun) = self.rush.waiting.remove(&path) else { return };
        let Some(turn) = self.turn_of(begun) else { return };
        let passed =
            self.rush.waiting.iter().find(|(_, other)| self.turn_of(**other).is_some_and(|t| t < turn));
        self.require(passed.is_none(), "order of the queue", || {
            format!("{path} is looked up before {passed:?}, which has waited longer")
        });
    }

    /// No request was queued in this turn whose wait is known to be too long.
    pub(crate) fn check_rush(&mut self) {
        let mut rush = std::mem::take(&mut self.rush);
        rush.waiting.retain(|_, waiting| self.is_waiting(*waiting));
        let earlier = || rush.waiting.values().filter(|other| self.turn_of(**other) < Some(self.turn));
        let bound_ms = self.limits.queue_wait_ms;
        if bound_ms > 0
            && let Some(first_ms) = earlier().map(|waiting| waiting.since_ms).min()
            && rush.waiting.values().any(|other| self.turn_of(*other) == Some(self.turn))
        {
            // During this time the queue was never empty, and no job was finished.
            let gap_ms = self.now_ms() - first_ms.max(rush.finished_ms);
            let (ahead, most) = (earlier().count() as u64, PACE_JOBS);
            self.require(gap_ms * ahead / most <= bound_ms, "early refusal", || {
                format!("a request waits behind {ahead} others although no job was finished for {gap_ms} ms")
            });
        }
        self.rush = rush;
    }

    /// Whether a client of the rush still waits for its look-up, as far as it can know.
    fn is_waiting(&self, waiting: Waiting) -> bool {
        let peer = &self.peers[waiting.peer];
        let is_here = !(peer.closed || peer.ended || peer.reset || peer.evicted || peer.client.is_closed());
        is_here && peer.answers == 0 && peer.client.received_len() == 0 && !peer.has_part()
    }

    /// The turn in which the request of a waiting client was complete.
    fn turn_of(&self, waiting: Waiting) -> Option<u64> {
        let ask = self.peers[waiting.peer].next_ask().filter(|_| self.is_waiting(waiting));
        ask.and_then(|ask| ask.whole_turn)
    }
}
