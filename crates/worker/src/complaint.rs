//! How often the operator is told of the same trouble.

/// No more often than this.
const INTERVAL_MS: u64 = 60_000;

/// One kind of trouble.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Complaint {
    last_ms: Option<u64>,
}

impl Complaint {
    /// Whether it is time to tell; if so, the next time is an interval later.
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
    fn is_due_at_once_and_then_once_an_interval() {
        let mut complaint = Complaint::default();
        assert!(complaint.is_due(5));
        assert!(!complaint.is_due(5 + INTERVAL_MS - 1));
        assert!(complaint.is_due(5 + INTERVAL_MS));
        assert!(!complaint.is_due(5 + INTERVAL_MS));
    }
}
