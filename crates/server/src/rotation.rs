//! When the file of the access log is renamed and another one begins. Called by the log writer: one asks for a successor when it is
//! time, and the successor renames the file before it opens it.

use std::fs::Metadata;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::config::Settings;

/// The limits of a log file; 0 is none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rotation {
    bytes: u64,
    period_ms: u64,
    /// Renamed files that are kept.
    pub(crate) keep: usize,
}

/// A log file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogFile {
    pub(crate) length_bytes: u64,
    /// None where the file system does not keep it.
    pub(crate) created: Option<SystemTime>,
}

impl LogFile {
    pub(crate) fn of(found: &Metadata) -> Self {
        Self { length_bytes: found.len(), created: found.created().ok() }
    }
}

impl Rotation {
    /// None without limits.
    pub(crate) fn of(settings: &Settings) -> Option<Self> {
        let &Settings { log_rotate_bytes: bytes, log_rotate_ms: period_ms, log_rotate_keep: keep, .. } =
            settings;
        (bytes > 0 || period_ms > 0).then_some(Self { bytes, period_ms, keep })
    }

    /// Whether files have a period, which needs the time of their creation.
    pub(crate) fn has_period(&self) -> bool {
        self.period_ms > 0
    }

    /// Whether the file has reached its size, or was begun in an earlier period. An empty file stays.
    pub(crate) fn is_due(&self, file: LogFile, now: SystemTime) -> bool {
        let is_full = self.bytes > 0 && file.length_bytes >= self.bytes;
        let is_old = file.created.is_some_and(|created| self.period(created) < self.period(now));
        file.length_bytes > 0 && (is_full || is_old)
    }

    fn period(&self, time: SystemTime) -> Option<u128> {
        time.duration_since(UNIX_EPOCH).ok()?.as_millis().checked_div(self.period_ms.into())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_file_is_due_when_it_is_full_or_of_an_earlier_day() {
        let at = |hours: u64| UNIX_EPOCH + Duration::from_secs(hours * 3600);
        let file = |length_bytes, hours| LogFile { length_bytes, created: Some(at(hours)) };
        let both = Rotation { bytes: 100, period_ms: 86_400_000, keep: 1 };
        for (length_bytes, created, now, expected) in
            [(0, 0, 99, false), (99, 0, 23, false), (100, 0, 1, true), (1, 23, 24, true), (1, 24, 47, false)]
        {
            let due = both.is_due(file(length_bytes, created), at(now));
            assert_eq!(due, expected, "{length_bytes} B at {created} h, {now} h");
        }
        let by_size = Rotation { period_ms: 0, ..both };
        assert!(!by_size.is_due(file(99, 0), at(999)) && by_size.is_due(file(100, 0), at(0)));
        let by_time = Rotation { bytes: 0, ..both };
        assert!(!by_time.is_due(file(1 << 40, 0), at(1)) && by_time.is_due(file(1, 0), at(24)));
        assert!(!by_time.is_due(LogFile { length_bytes: 1, created: None }, at(99)), "nobody knows");
    }
}
