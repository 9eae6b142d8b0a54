//! The blocked calls that are kept: the longest of them, and sums by file and socket.
//!
//! The analysis hands over each when it is complete.

use std::collections::HashMap;

use crate::model::{BlockedCall, Name, ReasonTotal, Target};

/// Blocked calls of event loops, and of other threads, that are kept, at most.
const OF_LOOPS_MAX: usize = 8_192;
const OF_OTHERS_MAX: usize = 2_048;
/// Sums by target, at most.
const TARGETS_MAX: usize = 16_384;

/// A thread, what it called, and what for.
pub(super) type TargetKey = (u32, Name, Target);

#[derive(Debug, Default)]
pub(super) struct Kept {
    loops: Vec<(BlockedCall, Option<u32>)>,
    others: Vec<(BlockedCall, Option<u32>)>,
    pub(super) targets: HashMap<TargetKey, Vec<ReasonTotal>>,
    pub(super) dropped: u64,
    pub(super) targets_dropped: u64,
}

impl Kept {
    /// Takes one in, with the number of its stack.
    pub(super) fn add(&mut self, call: BlockedCall, stack: Option<u32>, in_loop: bool) {
        if let Some(target) = &call.target {
            // Which of the calls was uncertain is no matter to their sum.
            let target = Target { is_uncertain: false, ..target.clone() };
            let key = (call.tid, call.call.clone(), target);
            if self.targets.len() < TARGETS_MAX || self.targets.contains_key(&key) {
                let one = ReasonTotal::of(call.reason, call.blocked_ns, call.duration_ns);
                ReasonTotal::merge(self.targets.entry(key).or_default(), &[one]);
            } else {
                self.targets_dropped += 1;
            }
        }
        let (calls, max) =
            if in_loop { (&mut self.loops, OF_LOOPS_MAX) } else { (&mut self.others, OF_OTHERS_MAX) };
        calls.push((call, stack));
        // Sorted only when twice as many have come together.
        if calls.len() >= 2 * max {
            self.dropped += cut(calls, max);
        }
    }

    /// All that were kept, by start.
    pub(super) fn take(&mut self) -> Vec<(BlockedCall, Option<u32>)> {
        self.dropped += cut(&mut self.loops, OF_LOOPS_MAX) + cut(&mut self.others, OF_OTHERS_MAX);
        let mut all = std::mem::take(&mut self.loops);
        all.append(&mut self.others);
        all.sort_by_key(|(call, _)| call.start_ns);
        all
    }
}

/// Leaves the longest; how many went.
fn cut(calls: &mut Vec<(BlockedCall, Option<u32>)>, max: usize) -> u64 {
    let before = calls.len();
    if before > max {
        calls.sort_by_key(|(call, _)| std::cmp::Reverse(call.blocked_ns));
        calls.truncate(max);
    }
    (before - calls.len()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_stay_and_the_rest_is_counted() {
        let mut kept = Kept::default();
        let target = Some(Target { name: "/a".to_owned(), ..Target::default() });
        let calls = 5 * OF_LOOPS_MAX as u64;
        for blocked_ns in 0..calls {
            let call = BlockedCall {
                blocked_ns,
                start_ns: calls - blocked_ns,
                target: target.clone(),
                ..BlockedCall::default()
            };
            kept.add(call, None, true);
        }
        let all = kept.take();
        assert_eq!(all.len(), OF_LOOPS_MAX);
        assert_eq!(kept.dropped, calls - OF_LOOPS_MAX as u64);
        assert!(all.iter().all(|(call, _)| call.blocked_ns >= calls - OF_LOOPS_MAX as u64));
        assert!(all.windows(2).all(|two| two[0].0.start_ns <= two[1].0.start_ns));
        let sums: Vec<_> = kept.targets.values().flatten().collect();
        assert_eq!(sums[0].count, calls, "sums are of all");
    }

    #[test]
    fn targets_beyond_the_bound_are_counted() {
        let mut kept = Kept::default();
        for number in 0..TARGETS_MAX + 3 {
            let target = Some(Target { name: number.to_string(), ..Target::default() });
            kept.add(BlockedCall { target, ..BlockedCall::default() }, None, false);
        }
        assert_eq!((kept.targets.len(), kept.targets_dropped), (TARGETS_MAX, 3));
    }
}
