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

/// The threads that wait at one descriptor.
#[derive(Debug, Default)]
struct Group {
    threads: HashSet<u32>,
    waiting: HashSet<u32>,
    /// When the last wait ended, and how long all threads of the group had worked by then.
    last_end_ns: u64,
    last_worked_ns: u64,
    /// How long ready work was held up while a thread of the group was blocked and no other one waited.
    held_up_ns: u64,
}

/// All groups.
#[derive(Debug, Default)]
pub(super) struct Pollers {
    groups: HashMap<Key, Group>,
}

impl Pollers {
    /// The threads of a group.
    pub(super) fn threads(&self, key: Key) -> impl Iterator<Item = u32> + '_ {
        self.groups.get(&key).into_iter().flat_map(|group| &group.threads).copied()
    }

    /// A thread begins to wait: for how long no thread of its group had waited or worked. `worked_ns` is how long all of
    /// them have worked until now.
    pub(super) fn begins(&mut self, key: Key, tid: u32, (now_ns, worked_ns): (u64, u64)) -> u64 {
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&key) {
            return 0;
        }
        let group = self.groups.entry(key).or_default();
        let worked_ns = worked_ns.saturating_sub(group.last_worked_ns);
        let gap_ns = if group.waiting.is_empty() { now_ns.saturating_sub(group.last_end_ns) } else { 0 };
        group.threads.insert(tid);
        group.waiting.insert(tid);
        if group.last_end_ns == 0 { 0 } else { gap_ns.saturating_sub(worked_ns) }
    }

    /// Its wait has ended, or is not known any more.
    pub(super) fn ends(&mut self, key: Key, tid: u32, (now_ns, worked_ns): (u64, u64)) {
        if let Some(group) = self.groups.get_mut(&key) {
            group.waiting.remove(&tid);
            group.last_worked_ns = group.last_worked_ns.max(worked_ns);
            group.last_end_ns = group.last_end_ns.max(now_ns);
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

    /// The sum of [`Pollers::held_up`].
    pub(super) fn held_up_ns(&self, key: Option<Key>) -> u64 {
        key.and_then(|key| self.groups.get(&key)).map_or(0, |group| group.held_up_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waited_only_if_no_thread_of_the_group_did() {
        let (mut pollers, key) = (Pollers::default(), (1, 5));
        assert_eq!(pollers.begins(key, 10, (100, 0)), 0, "the first wait follows nothing");
        assert!(!pollers.is_shared(Some(key)));
        assert_eq!(pollers.begins(key, 11, (150, 0)), 0, "another thread waits");
        assert!(pollers.is_shared(Some(key)));
        pollers.ends(key, 10, (200, 0));
        assert_eq!(pollers.begins(key, 10, (900, 0)), 0, "the second one still waits");
        pollers.ends(key, 10, (1000, 50));
        pollers.ends(key, 11, (1100, 60));
        assert_eq!(pollers.begins(key, 10, (1500, 160)), 300, "for 100 of 400 a thread worked");
    }
}
