//! Threads that share one epoll instance, as those of Go and Tokio do: which threads wait at it, and since when none did.
//!
//! The analysis reports each wait for events. While one thread of a group is blocked, another one may wait for
//! events in its place; only work that became ready while no thread waited was delayed.

use std::collections::{HashMap, HashSet};

/// Groups that are followed, at most.
const GROUPS_MAX: usize = 16_384;

/// Runtimes that share an epoll instance replace a blocked thread after a while: Go's after 10 ms at most (`sysmon`),
/// and some more until the new thread has a core. Only work that was held up for longer counts.
pub(super) const REPLACED_NS: u64 = 20_000_000;

/// A process and its descriptor that events are waited for at; of poll(2) and select(2) the thread instead.
pub(super) type Key = (u32, u64);

/// A moment, and how long the threads of a group have worked until then.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moment {
    pub(super) at_ns: u64,
    pub(super) worked_ns: u64,
}

/// The threads that wait at one descriptor.
#[derive(Debug, Default)]
struct Group {
    threads: HashSet<u32>,
    waiting: HashSet<u32>,
    last_end: Moment,
    /// How long ready work was held up while a thread of the group was blocked and no other one waited.
    held_up_ns: u64,
}

#[derive(Debug, Default)]
pub(super) struct Pollers {
    groups: HashMap<Key, Group>,
}

impl Pollers {
    pub(super) fn threads(&self, key: Key) -> impl Iterator<Item = u32> + '_ {
        self.groups.get(&key).into_iter().flat_map(|group| &group.threads).copied()
    }

    /// A thread begins to wait: for how long no thread of its group had waited or worked.
    pub(super) fn begins(&mut self, key: Key, tid: u32, now: Moment) -> u64 {
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&key) {
            return 0;
        }
        let group = self.groups.entry(key).or_default();
        let last = group.last_end;
        let worked_ns = now.worked_ns.saturating_sub(last.worked_ns);
        let gap_ns = if group.waiting.is_empty() { now.at_ns.saturating_sub(last.at_ns) } else { 0 };
        group.threads.insert(tid);
        group.waiting.insert(tid);
        if last.at_ns == 0 { 0 } else { gap_ns.saturating_sub(worked_ns) }
    }

    /// Its wait has ended, or is not known any more.
    pub(super) fn ends(&mut self, key: Key, tid: u32, now: Moment) {
        if let Some(group) = self.groups.get_mut(&key) {
            group.waiting.remove(&tid);
            let last = &mut group.last_end;
            last.worked_ns = last.worked_ns.max(now.worked_ns);
            last.at_ns = last.at_ns.max(now.at_ns);
        }
    }

    /// Whether several threads wait at this descriptor.
    pub(super) fn is_shared(&self, key: Option<Key>) -> bool {
        key.and_then(|key| self.groups.get(&key)).is_some_and(|group| group.threads.len() > 1)
    }

    /// Ready work was held up for this long, while no thread of the group waited.
    pub(super) fn held_up(&mut self, key: Key, ns: u64) {
        if let Some(group) = self.groups.get_mut(&key) {
            group.held_up_ns += ns;
        }
    }

    pub(super) fn held_up_ns(&self, key: Option<Key>) -> u64 {
        key.and_then(|key| self.groups.get(&key)).map_or(0, |group| group.held_up_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(at_ns: u64, worked_ns: u64) -> Moment {
        Moment { at_ns, worked_ns }
    }

    #[test]
    fn nobody_waited_only_if_no_thread_of_the_group_did() {
        let (mut pollers, key) = (Pollers::default(), (1, 5));
        assert_eq!(pollers.begins(key, 10, at(100, 0)), 0, "the first wait follows nothing");
        assert!(!pollers.is_shared(Some(key)));
        assert_eq!(pollers.begins(key, 11, at(150, 0)), 0, "another thread waits");
        assert!(pollers.is_shared(Some(key)));
        pollers.ends(key, 10, at(200, 0));
        assert_eq!(pollers.begins(key, 10, at(900, 0)), 0, "the second one still waits");
        pollers.ends(key, 10, at(1000, 50));
        pollers.ends(key, 11, at(1100, 60));
        assert_eq!(pollers.begins(key, 10, at(1500, 160)), 300, "for 100 of 400 a thread worked");
    }
}
