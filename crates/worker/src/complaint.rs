//! Limits how often the same problem is reported to the operator.

/// A problem is reported at most once in this time.
const INTERVAL_MS: u64 = 60_000;

/// The last report of one kind of problem.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Complaint {
    last_ms: Option<u64>,
}

impl Complaint {
    /// Whether a report is due. If so, the next one is due an interval later.
    pub(super) fn is_due(&mut self, now_ms: u64) -> bool {
        let due = self.last_ms.is_none_or(|ms| now_ms >= ms + INTERVAL_MS);
        if due {
            self.last_ms = Some(now_ms);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_due_at_once_and_then_once_per_interval() {
        let mut complaint = Complaint::default();
        assert!(complaint.is_due(5));
        assert!(!complaint.is_due(5 + INTERVAL_MS - 1));
        assert!(complaint.is_due(5 + INTERVAL_MS));
        assert!(!complaint.is_due(5 + INTERVAL_MS));
    }
}
