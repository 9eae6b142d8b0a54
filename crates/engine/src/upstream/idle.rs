//! The part of [`Links`] that keeps the connections which no request uses, until one does, their server sends something
//! or they have been idle for long. The one used last is used first, so those that close by age are the ones that the
//! busiest moment of the last minute did not need.

use super::links::{LinkState, Links};
use super::pool::{IdleLink, Seeker};
use crate::machine::Machine;
use crate::rules::ServerId;
use crate::slab::Key;
use crate::transport::{Readiness, Received};

impl<S> Links<S> {
    /// Makes a link idle. One that has ended, or on which more has come than was asked for, is closed.
    pub(super) fn make_idle<M: Machine<Socket = S>>(&mut self, machine: &mut M, key: Key, now_ms: u64) {
        let Some(link) = self.links.get_mut(key) else { return };
        let server = link.server;
        let (LinkState::InUse(_, mut transport) | LinkState::Granted(_, mut transport)) =
            std::mem::replace(&mut link.state, LinkState::Requested(None))
        else {
            return self.remove(key);
        };
        if transport.receive(machine, &mut [0]) != Received::Nothing {
            return self.remove(key);
        }
        link.was_used = transport.has_sent();
        link.state = LinkState::Idle(transport);
        self.file_idle(key, server, now_ms);
    }

    /// Adds a link to the idle ones of its server. It no longer counts for a client.
    pub(super) fn file_idle(&mut self, key: Key, server: ServerId, now_ms: u64) {
        self.end_share(key);
        let pool = &mut self.pools[usize::from(server.upstream.0)];
        pool.idle[usize::from(server.server)].push_back(IdleLink { key, since_ms: now_ms });
        let ends_ms = now_ms + pool.idle_ms();
        self.idle_ends_ms = Some(self.idle_ends_ms.map_or(ends_ms, |ms| ms.min(ends_ms)));
    }

    /// Gives a request the idle link of a server that was used last. A request that needs a new one gets room for it.
    pub(super) fn grant_idle(&mut self, server: ServerId, seeker: Seeker) -> Option<Key> {
        let pool = &mut self.pools[usize::from(server.upstream.0)];
        let may_reuse = pool.may_reuse(seeker);
        let idle = &mut pool.idle[usize::from(server.server)];
        if !may_reuse {
            if pool.servers[usize::from(server.server)].links >= pool.rules.connections_max
                && let Some(oldest) = idle.pop_front()
            {
                self.remove(oldest.key);
            }
            return None;
        }
        let IdleLink { key, .. } = idle.pop_back()?;
        if let Some(link) = self.links.get_mut(key) {
            link.client = Some(seeker.sharer.client);
            link.state = match std::mem::replace(&mut link.state, LinkState::Requested(None)) {
                LinkState::Idle(transport) => LinkState::Granted(seeker.holder, transport),
                state => state,
            };
        }
        Some(key)
    }

    /// Looks at a link that was idle, directly before its request is sent. Returns whether it is of no use: it has
    /// ended, or its server has sent bytes that would be taken for the answer (RFC 9112, section 9.2).
    pub(super) fn has_ended<M: Machine<Socket = S>>(&mut self, machine: &mut M, key: Key) -> bool {
        let Some(link) = self.links.get_mut(key) else { return false };
        let LinkState::Granted(_, transport) = &mut link.state else { return false };
        // An event of it may be behind that of the client.
        transport.suspect(Readiness { readable: true, ..Readiness::default() });
        let is_quiet = transport.receive(machine, &mut [0]) == Received::Nothing;
        if !is_quiet {
            return true;
        }
        link.state = match std::mem::replace(&mut link.state, LinkState::Requested(None)) {
            LinkState::Granted(holder, transport) => LinkState::InUse(holder, transport),
            state => state,
        };
        self.counters.reused += 1;
        false
    }

    /// Closes the idle link that was used longest ago, if there are too many.
    pub(super) fn trim<M: Machine<Socket = S>>(&mut self, machine: &mut M, server: ServerId) {
        let pool = &mut self.pools[usize::from(server.upstream.0)];
        if pool.has_too_many(server.server)
            && let Some(oldest) = pool.idle[usize::from(server.server)].pop_front()
        {
            self.close(machine, oldest.key);
        }
    }

    /// Removes a link that is idle.
    pub(super) fn remove_idle(&mut self, key: Key, server: ServerId) {
        let idle = &mut self.pools[usize::from(server.upstream.0)].idle[usize::from(server.server)];
        idle.retain(|other| other.key != key);
        self.remove(key);
    }

    /// Closes links that have been idle for long, before their servers do.
    pub(crate) fn close_idle<M: Machine<Socket = S>>(&mut self, machine: &mut M, now_ms: u64) {
        if self.idle_ends_ms.is_none_or(|ms| ms > now_ms) {
            return;
        }
        let mut over = Vec::new();
        let mut next_ms = None;
        for pool in &mut self.pools {
            let (idle_ms, look_ms, keeps_links) = (pool.idle_ms(), pool.look_ms(), pool.keeps_links());
            for idle in &mut pool.idle {
                let is_over = |oldest: &IdleLink| oldest.since_ms + idle_ms <= now_ms;
                let count = idle.iter().take_while(|oldest| is_over(oldest)).count();
                over.extend(idle.drain(..count).map(|oldest| (oldest.key, keeps_links)));
                let ends_ms = idle.front().map(|oldest| (oldest.since_ms + idle_ms).max(now_ms + look_ms));
                next_ms = next_ms.into_iter().chain(ends_ms).min();
            }
        }
        self.idle_ends_ms = next_ms;
        for (key, was_kept) in over {
            if !was_kept {
                self.close(machine, key);
                continue;
            }
            if let Some(LinkState::Idle(transport)) = self.links.get_mut(key).map(|link| &mut link.state) {
                // An encrypted one that ends without this looks cut to its server. Without room for it, it does.
                transport.begin_close(machine);
            }
            self.remove(key);
        }
    }
}
