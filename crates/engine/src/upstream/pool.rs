//! The servers of an upstream, their health, and the choice of one for a request. Called by
//! [`links`](super::links), which has the connections.

use std::collections::VecDeque;

use crate::limits::{COMPLAINT_MS, SERVER_DOWN_MS, SERVER_FAILURES_MAX};
use crate::rules::{UpstreamId, UpstreamRules};
use crate::slab::Key;

/// The load that one request is to a server of weight 1. Weights are smaller.
const LOAD_OF_REQUEST: u64 = 1 << 20;

/// The servers that have failed a request, by their places. Those beyond the first 64 are not remembered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FailedServers(u64);

impl FailedServers {
    pub(crate) fn insert(&mut self, server: u16) {
        self.0 |= 1u64.checked_shl(server.into()).unwrap_or(0);
    }

    /// How many there are.
    pub(crate) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    fn contains(self, server: u16) -> bool {
        1u64.checked_shl(server.into()).is_some_and(|bit| self.0 & bit != 0)
    }
}

/// A request that needs a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seeker {
    pub(crate) upstream: UpstreamId,
    /// The client's connection, which is continued when the link is there.
    pub(crate) holder: Key,
    /// The servers that have failed this request.
    pub(crate) failed: FailedServers,
    /// Whether it must not get a link that an earlier request has used.
    pub(crate) needs_new: bool,
}

/// A link that no request uses, and since when.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdleLink {
    pub(super) key: Key,
    pub(super) since_ms: u64,
}

/// The result of the latest probes of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Probed {
    /// They succeeded, or there are none.
    #[default]
    Up,
    /// They failed.
    Down,
}

/// The state of a server, as far as it is known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServerHealth {
    /// All links, also those in the making.
    pub(super) links: usize,
    /// Failures since its last success.
    failures: u32,
    /// When its pause after these failures ends.
    down_until_ms: u64,
    probed: Probed,
    /// When a failure was last reported, and how many were not since.
    reported_ms: Option<u64>,
    unreported: u64,
    /// When the standard error of an application was last reported.
    said_ms: Option<u64>,
}

impl ServerHealth {
    fn is_down(&self, now_ms: u64) -> bool {
        self.probed == Probed::Down || self.down_until_ms > now_ms
    }

    /// Counts a failure. Returns when the pause that follows ends, if one does.
    pub(super) fn fail(&mut self, now_ms: u64) -> Option<u64> {
        self.failures = self.failures.saturating_add(1);
        if self.failures < SERVER_FAILURES_MAX {
            return None;
        }
        self.down_until_ms = now_ms + SERVER_DOWN_MS;
        Some(self.down_until_ms)
    }

    /// Notes that the server has answered. Only a probe ends what a probe has found out.
    pub(super) fn succeed(&mut self) {
        (self.failures, self.down_until_ms) = (0, 0);
    }

    /// Notes a change that probes have found out. A server that answers them again has no pause left.
    pub(super) fn probe(&mut self, probed: Probed) {
        self.probed = probed;
        if probed == Probed::Up {
            self.succeed();
        }
    }

    /// Whether a failure is reported now, and with how many that were not. Otherwise it is counted.
    pub(super) fn report(&mut self, now_ms: u64) -> Option<u64> {
        if self.reported_ms.is_some_and(|before_ms| now_ms < before_ms + COMPLAINT_MS) {
            self.unreported += 1;
            return None;
        }
        self.reported_ms = Some(now_ms);
        Some(std::mem::take(&mut self.unreported))
    }

    /// Whether the standard error of an application is reported now.
    pub(super) fn says(&mut self, now_ms: u64) -> bool {
        let is_due = self.said_ms.is_none_or(|before_ms| now_ms >= before_ms + COMPLAINT_MS);
        if is_due {
            self.said_ms = Some(now_ms);
        }
        is_due
    }
}

/// The servers of an upstream and the requests that wait for them.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) rules: UpstreamRules,
    pub(super) servers: Vec<ServerHealth>,
    /// The idle links of each server, the one used last at the end.
    pub(super) idle: Vec<VecDeque<IdleLink>>,
    /// The place at which the choice among equal servers begins.
    first: usize,
    pub(super) queue: VecDeque<(u64, Seeker)>,
}

impl Pool {
    pub(super) fn new(rules: &UpstreamRules, first: usize) -> Self {
        Self {
            servers: vec![ServerHealth::default(); rules.servers.len()],
            idle: vec![VecDeque::new(); rules.servers.len()],
            first,
            queue: VecDeque::new(),
            rules: rules.clone(),
        }
    }

    /// When the next pause of a server ends.
    pub(super) fn resumes_ms(&self, now_ms: u64) -> Option<u64> {
        self.servers.iter().map(|server| server.down_until_ms).filter(|until_ms| *until_ms > now_ms).min()
    }

    /// The number of servers whose probes have failed.
    pub(super) fn probed_down(&self) -> usize {
        self.servers.iter().filter(|server| server.probed == Probed::Down).count()
    }

    /// The server with the fewest requests for its weight that has room for another one, if possible one that has not failed
    /// this request. Equal servers take turns. A server in trouble gets requests only if all are.
    pub(super) fn choose(&mut self, failed: FailedServers, now_ms: u64) -> Option<u16> {
        let count = self.servers.len();
        let is_down = |place: usize| self.servers[place].is_down(now_ms);
        let all_down = (0..count).all(is_down);
        let in_use = |place: usize| self.servers[place].links - self.idle[place].len();
        let has_room =
            |place: &usize| in_use(*place) < self.rules.connections_max && (all_down || !is_down(*place));
        // With one more request: otherwise of two idle servers the first would be chosen, whatever the weights.
        let load_with_one_more = |place: usize| {
            (in_use(place) as u64 + 1) * LOAD_OF_REQUEST / u64::from(self.rules.servers[place].weight)
        };
        let best = (0..count)
            .map(|step| (self.first + step) % count)
            .filter(has_room)
            .min_by_key(|place| (failed.contains(*place as u16), load_with_one_more(*place)))?;
        self.first = best + 1;
        Some(best as u16)
    }
}
