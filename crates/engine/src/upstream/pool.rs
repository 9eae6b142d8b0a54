//! The servers of an upstream, their health, and the choice of one for a request. Called by
//! [`links`](super::links), which has the connections.

use std::collections::VecDeque;

use crate::limits::{
    LINK_AGE_MAX_MS, LINK_IDLE_MS, LINK_LOOK_MS, LINK_PAUSE_MS, REPORT_MS, SERVER_DOWN_MS,
    SERVER_FAILURES_MAX,
};
use crate::report_limit::ReportLimit;
use crate::rules::{UpstreamId, UpstreamRules};
use crate::shares::{ClientShares, Sharer};
use crate::slab::{ExchangeKey, Key};

/// The load that one request is to a server of weight 1. Weights are smaller.
const LOAD_OF_REQUEST: u64 = 1 << 20;

/// The servers that have failed a request, by their places. Those beyond the first 64 are not remembered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FailedServers(u64);

impl FailedServers {
    pub(crate) fn insert(&mut self, server: u16) {
        self.0 |= 1u64.checked_shl(server.into()).unwrap_or(0);
    }

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
    /// The exchange, which is continued when the link is there.
    pub(crate) holder: ExchangeKey,
    pub(crate) sharer: Sharer,
    /// The servers that have failed this request.
    pub(crate) failed: FailedServers,
    /// Whether it must not get a link that an earlier request has used.
    pub(crate) needs_new: bool,
    /// Whether it can be repeated if its server closes a used link.
    pub(crate) may_repeat: bool,
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
    /// Reports of failures, and how many had none since the last one.
    reports: ReportLimit,
    unreported: u64,
    /// Reports of the standard error of an application.
    stderr_reports: ReportLimit,
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
        if !self.reports.is_due(now_ms, REPORT_MS) {
            self.unreported += 1;
            return None;
        }
        Some(std::mem::take(&mut self.unreported))
    }

    /// Whether the standard error of an application is reported now.
    pub(super) fn reports_stderr(&mut self, now_ms: u64) -> bool {
        self.stderr_reports.is_due(now_ms, REPORT_MS)
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
    /// The links of each client, in the making or in use, and its places in the queue.
    pub(super) links_of_clients: ClientShares,
    pub(super) queued_of_clients: ClientShares,
}

impl Pool {
    pub(super) fn new(rules: &UpstreamRules, first: usize) -> Self {
        Self {
            servers: vec![ServerHealth::default(); rules.servers.len()],
            idle: vec![VecDeque::new(); rules.servers.len()],
            first,
            queue: VecDeque::new(),
            links_of_clients: ClientShares::default(),
            queued_of_clients: ClientShares::default(),
            rules: rules.clone(),
        }
    }

    /// Whether links stay until they have been idle for long. Otherwise they wait a moment for the next request.
    pub(super) fn keeps_links(&self) -> bool {
        self.rules.idle_max > 0
    }

    /// How long a link stays idle.
    pub(super) fn idle_ms(&self) -> u64 {
        if self.keeps_links() { LINK_IDLE_MS } else { LINK_PAUSE_MS }
    }

    /// After this time idle links are looked through again. Several that end soon after each other are closed at once.
    pub(super) fn look_ms(&self) -> u64 {
        if self.keeps_links() { LINK_LOOK_MS } else { 1 }
    }

    /// Whether there are more idle links to a server than are kept.
    pub(super) fn has_too_many(&self, server: u16) -> bool {
        self.keeps_links() && self.idle[usize::from(server)].len() > self.rules.idle_max
    }

    /// Whether a request may get a link that was used. A server that keeps none is more likely to be about to close it.
    pub(super) fn may_reuse(&self, seeker: Seeker) -> bool {
        !seeker.needs_new && (seeker.may_repeat || self.keeps_links())
    }

    /// Whether a link to such a server, asked for at this time, has had its turn.
    pub(super) fn is_too_old(&self, since_ms: u64, now_ms: u64) -> bool {
        !self.keeps_links() && now_ms.saturating_sub(since_ms) >= LINK_AGE_MAX_MS
    }

    /// When the next pause of a server ends.
    pub(super) fn resumes_ms(&self, now_ms: u64) -> Option<u64> {
        self.servers.iter().map(|server| server.down_until_ms).filter(|until_ms| *until_ms > now_ms).min()
    }

    /// The number of servers whose probes have failed.
    pub(super) fn probed_down(&self) -> usize {
        self.servers.iter().filter(|server| server.probed == Probed::Down).count()
    }

    /// Whether all servers are in trouble.
    fn all_down(&self, now_ms: u64) -> bool {
        self.servers.iter().all(|server| server.is_down(now_ms))
    }

    /// The links that the server at `place` could have in addition to those in use. A server in trouble gets requests only
    /// if all servers are.
    fn free(&self, place: usize, all_down: bool, now_ms: u64) -> usize {
        if !all_down && self.servers[place].is_down(now_ms) {
            return 0;
        }
        self.rules.connections_max.saturating_sub(self.in_use(place))
    }

    fn in_use(&self, place: usize) -> usize {
        self.servers[place].links - self.idle[place].len()
    }

    /// Whether a client may have another link: it gets at most as many as it leaves free.
    fn has_share(&self, sharer: Sharer, free: usize) -> bool {
        self.links_of_clients.has_room(sharer, free, 1)
    }

    /// Whether a client may have another place in the queue: it gets at most as many as it leaves free.
    pub(super) fn may_queue(&self, sharer: Sharer) -> bool {
        self.queued_of_clients.has_room(sharer, self.rules.queue_max.saturating_sub(self.queue.len()), 1)
    }

    /// Adds a request to the queue.
    pub(super) fn enqueue(&mut self, ticket: u64, seeker: Seeker) {
        self.queued_of_clients.take(seeker.sharer.client, 1);
        self.queue.push_back((ticket, seeker));
    }

    /// Removes the requests of the queue for which `is_gone` holds.
    pub(super) fn dequeue(&mut self, is_gone: impl Fn(u64, &Seeker) -> bool) {
        let queued_of_clients = &mut self.queued_of_clients;
        self.queue.retain(|(ticket, seeker)| {
            let is_gone = is_gone(*ticket, seeker);
            if is_gone {
                queued_of_clients.give_back(seeker.sharer.client, 1);
            }
            !is_gone
        });
    }

    /// Takes the first request of the queue that can have a link, if there is one, with the server for it. Those of a client
    /// that has its share of links wait.
    pub(super) fn next_served(&mut self, now_ms: u64) -> Option<(u64, Seeker, u16)> {
        if self.queue.is_empty() {
            return None;
        }
        let free = self.free_links(now_ms);
        let at = self.queue.iter().position(|(_, seeker)| self.has_share(seeker.sharer, free))?;
        let server = self.choose(self.queue[at].1, now_ms)?;
        let (ticket, seeker) = self.queue.remove(at)?;
        self.queued_of_clients.give_back(seeker.sharer.client, 1);
        Some((ticket, seeker, server))
    }

    fn free_links(&self, now_ms: u64) -> usize {
        let all_down = self.all_down(now_ms);
        (0..self.servers.len()).map(|place| self.free(place, all_down, now_ms)).sum()
    }

    /// The server with the fewest requests for its weight that has room for another one, if possible one that has not failed
    /// this request. Equal servers take turns. None if no server has room, or if the client has its share of links.
    pub(super) fn choose(&mut self, seeker: Seeker, now_ms: u64) -> Option<u16> {
        if !self.has_share(seeker.sharer, self.free_links(now_ms)) {
            return None;
        }
        let all_down = self.all_down(now_ms);
        let has_room = |place: &usize| self.free(*place, all_down, now_ms) > 0;
        // With one more request: otherwise of two idle servers the first would be chosen, whatever the weights.
        let load_with_one_more = |place: usize| {
            (self.in_use(place) as u64 + 1) * LOAD_OF_REQUEST / u64::from(self.rules.servers[place].weight)
        };
        let count = self.servers.len();
        let best = (0..count)
            .map(|step| (self.first + step) % count)
            .filter(has_room)
            .min_by_key(|place| (seeker.failed.contains(*place as u16), load_with_one_more(*place)))?;
        self.first = best + 1;
        Some(best as u16)
    }
}
