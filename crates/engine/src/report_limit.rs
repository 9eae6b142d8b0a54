//! Limits how often the same problem is reported to the operator. Used by the engine and the worker.

/// The last report of one kind of problem.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReportLimit {
    next_ms: u64,
}

impl ReportLimit {
    /// Whether a report is due. If so, the next one is due `interval_ms` later.
    pub fn is_due(&mut self, now_ms: u64, interval_ms: u64) -> bool {
        let is_due = now_ms >= self.next_ms;
        if is_due {
            self.next_ms = now_ms.saturating_add(interval_ms);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_due_at_once_and_then_once_per_interval() {
        let mut limit = ReportLimit::default();
        let due = [5, 64, 65, 65, 200].map(|now_ms| limit.is_due(now_ms, 60));
        assert_eq!(due, [true, false, true, false, true]);
    }
}
