//! Pools of threads, or of processes, that wait for the disk: how many of a pool wait at once, and whether requests
//! were waiting meanwhile.
//!
//! The analysis reports each wait for the disk of a thread that is no event loop, and each change of the number of
//! requests that wait for their answers. Which threads are a pool shows only as they wait, so times are kept by how
//! many waited, and the size of the pool is known at the end.

use std::collections::{HashMap, HashSet};

/// Pools that are followed, at most.
const POOLS_MAX: usize = 64;
/// Threads of a pool that are told apart, at most; a larger pool is never seen to be exhausted.
const MEMBERS_MAX: usize = 1_024;
/// A single thread is no pool.
pub(super) const THREADS_MIN: usize = 2;

/// Which pool a thread belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Key {
    /// The threads of this process.
    Threads(u32),
    /// The processes of one thread that this process has started.
    Processes(u32),
}

#[derive(Debug, Default)]
pub(super) struct Pool {
    /// The threads that have waited for the disk.
    pub(super) members: HashSet<u32>,
    waiting: HashSet<u32>,
    /// How long this many waited at once, and how much of that more requests than these waited for an answer.
    times: Vec<(u64, u64)>,
}

impl Pool {
    fn is_full(&self) -> bool {
        self.members.len() >= THREADS_MIN && self.waiting.len() == self.members.len()
    }

    /// How long all threads waited at once, and how much of that with requests behind them.
    pub(super) fn full_ns(&self) -> (u64, u64) {
        self.times.get(self.members.len()).copied().unwrap_or_default()
    }
}

#[derive(Debug, Default)]
pub(super) struct Pools {
    pub(super) pools: HashMap<Key, Pool>,
    /// The pool in which a thread waits for the disk now.
    waiting_in: HashMap<u32, Key>,
    /// Requests that wait for their answers now.
    requests: usize,
    since_ns: u64,
    exhausted: Exhausted,
}

/// How far exhausted pools have got, since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Exhausted {
    /// How long at least one pool was exhausted.
    pub(super) ns: u64,
    /// How often a thread of a pool ended a wait for the disk.
    pub(super) ends: u64,
    /// The threads of the pool that was exhausted last.
    pub(super) threads: u64,
}

impl Pools {
    /// Accounts for the time up to `now_ns`.
    fn account(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.since_ns);
        self.since_ns = self.since_ns.max(now_ns);
        let mut exhausted = None;
        for pool in self.pools.values_mut().filter(|pool| !pool.waiting.is_empty()) {
            let waiting = pool.waiting.len();
            if pool.times.len() <= waiting {
                pool.times.resize(waiting + 1, (0, 0));
            }
            let has_queue = self.requests > waiting;
            pool.times[waiting].0 += passed_ns;
            pool.times[waiting].1 += if has_queue { passed_ns } else { 0 };
            if has_queue && pool.is_full() {
                exhausted = Some(waiting as u64);
            }
        }
        if let Some(threads) = exhausted {
            self.exhausted.ns += passed_ns;
            self.exhausted.threads = threads;
        }
    }

    /// A thread begins to wait for the disk.
    pub(super) fn begins(&mut self, key: Key, tid: u32, now_ns: u64) {
        if self.pools.len() >= POOLS_MAX && !self.pools.contains_key(&key) {
            return;
        }
        self.account(now_ns);
        let pool = self.pools.entry(key).or_default();
        if pool.members.len() < MEMBERS_MAX || pool.members.contains(&tid) {
            pool.members.insert(tid);
            pool.waiting.insert(tid);
            self.waiting_in.insert(tid, key);
        }
    }

    /// A thread does not wait any more, if it did.
    pub(super) fn ends(&mut self, tid: u32, now_ns: u64) {
        let Some(key) = self.waiting_in.get(&tid).copied() else { return };
        self.account(now_ns);
        self.waiting_in.remove(&tid);
        self.exhausted.ends += 1;
        if let Some(pool) = self.pools.get_mut(&key) {
            pool.waiting.remove(&tid);
        }
    }

    /// This many requests wait for their answers from now on.
    pub(super) fn requests(&mut self, count: usize, now_ns: u64) {
        self.account(now_ns);
        self.requests = count;
    }

    /// How far exhausted pools have got until now.
    pub(super) fn exhausted(&mut self, now_ns: u64) -> Exhausted {
        self.account(now_ns);
        self.exhausted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_exhausted_while_all_of_it_waits_and_requests_do() {
        let (mut pools, key) = (Pools::default(), Key::Threads(1));
        pools.begins(key, 10, 0);
        pools.begins(key, 11, 100);
        pools.requests(3, 200);
        pools.ends(10, 500);
        pools.begins(key, 10, 600);
        pools.requests(2, 700);
        pools.ends(11, 900);
        pools.ends(11, 950);
        assert_eq!(pools.pools[&key].full_ns(), (700, 400), "both waited for 700, with 3 requests for 400");
        let Exhausted { ns, ends, threads } = pools.exhausted(1000);
        assert_eq!((ns, ends, threads), (400, 2, 2));
    }

    #[test]
    fn one_thread_is_no_pool() {
        let mut pools = Pools::default();
        pools.requests(9, 0);
        pools.begins(Key::Processes(1), 10, 0);
        assert_eq!(pools.exhausted(1000).ns, 0);
    }
}
