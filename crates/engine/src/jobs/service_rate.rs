//! The service_rate of a root's helpers: how fast they empty its queue, and how long one job takes. The expected wait
//! of a new job follows from it.
//!
//! Called by [`jobs`](crate::jobs), which has one service_rate per root, because a hung disk says nothing about
//! another root.

use crate::limits::{PACE_GAP_MS_MAX, PACE_JOBS};

/// The mean time of a job covers about this many jobs.
const MEAN_OF_JOBS: i64 = 16;

/// The service_rate of a root's helpers.
#[derive(Clone, Debug, Default)]
pub(super) struct ServiceRate {
    /// Time during which jobs waited, and the number of jobs finished in it. Both are halved together, so
    /// recent jobs count most and the mean does not change.
    waited_us: u64,
    finished: u64,
    /// Since when jobs have waited or, if later, when the last job finished while others waited. None while
    /// no job waits, because idle helpers have no service_rate.
    since_ms: Option<u64>,
    /// Aged mean time of a job at a helper.
    job_us: i64,
}

impl ServiceRate {
    /// A first job begins to wait.
    pub(super) fn begin_wait(&mut self, now_ms: u64) {
        self.since_ms = Some(now_ms);
    }

    /// No job waits any more.
    pub(super) fn end_wait(&mut self) {
        self.since_ms = None;
    }

    /// Records a finished job that took a helper `took_ms`, while `helpers` work for the root. It counts as
    /// progress of the queue unless the job had passed the others.
    pub(super) fn note_finished(&mut self, took_ms: u64, helpers: usize, is_progress: bool, now_ms: u64) {
        self.job_us += (took_ms.saturating_mul(1_000) as i64 - self.job_us) / MEAN_OF_JOBS;
        let (Some(since_ms), true) = (self.since_ms, is_progress) else { return };
        // A single gap says little about later jobs, even if it lasted a minute.
        self.waited_us += now_ms.saturating_sub(since_ms).min(PACE_GAP_MS_MAX) * 1_000;
        self.finished += 1;
        self.since_ms = Some(now_ms);
        if self.finished >= PACE_JOBS.max(4 * helpers as u64) {
            self.waited_us /= 2;
            self.finished /= 2;
        }
    }

    /// The expected wait, in milliseconds, of a job that is queued behind `ahead` others while `helpers` work
    /// for the root. None if no job has ever waited.
    ///
    /// It follows from the mean gap between two finished jobs. The time of a job would not do, because it
    /// depends on how many helpers share the disk. The current gap counts too, so a hung disk is noticed at
    /// once. Until each helper has finished a job, they are assumed to finish together.
    pub(super) fn wait_ms(&self, ahead: usize, helpers: usize, now_ms: u64) -> Option<u64> {
        let gap_us =
            self.since_ms.map_or(0, |since_ms| now_ms.saturating_sub(since_ms).saturating_mul(1_000));
        let waited_us = self.waited_us.saturating_add(gap_us);
        if waited_us == 0 && self.finished == 0 {
            return None;
        }
        let finished = self.finished.max(helpers as u64).max(1);
        Some(waited_us.saturating_mul(ahead as u64) / finished / 1_000)
    }

    /// The mean time of a job at a helper, in microseconds.
    pub(super) fn job_us(&self) -> u64 {
        self.job_us.max(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates `helpers` that finish `jobs` jobs of `took_ms` each, starting at `from_ms`. Returns the time
    /// at the end.
    fn work(service_rate: &mut ServiceRate, from_ms: u64, jobs: u64, (helpers, took_ms): (u64, u64)) -> u64 {
        service_rate.begin_wait(from_ms);
        let mut now_ms = from_ms;
        for done in 0..jobs {
            // All helpers begin at the same time.
            now_ms = from_ms + (done / helpers + 1) * took_ms;
            service_rate.note_finished(took_ms, helpers as usize, true, now_ms);
        }
        now_ms
    }

    #[test]
    fn the_wait_is_the_number_ahead_times_the_gap() {
        for (helpers, took_ms) in [(1, 7), (16, 112), (256, 1_792)] {
            let mut service_rate = ServiceRate::default();
            let now_ms = work(&mut service_rate, 1_000, 40 * helpers, (helpers, took_ms));
            let wait_ms = service_rate.wait_ms(1_000, helpers as usize, now_ms).expect("jobs have waited");
            assert!((6_500..7_500).contains(&wait_ms), "{wait_ms} ms with {helpers} helpers");
            assert!(service_rate.job_us().abs_diff(took_ms * 1_000) < 100_000);
        }
    }

    #[test]
    fn the_wait_is_unknown_before_a_job_has_waited() {
        let mut service_rate = ServiceRate::default();
        assert_eq!(service_rate.wait_ms(1_000, 16, 5_000), None);
        // A job that finishes while no other waits says nothing about the service_rate, because helpers were idle.
        service_rate.note_finished(5_000, 1, true, 10_000);
        assert_eq!(service_rate.wait_ms(1_000, 16, 10_000), None);
        service_rate.begin_wait(10_000);
        assert_eq!(service_rate.wait_ms(1_000, 16, 10_000), None, "no time has passed yet");
    }

    #[test]
    fn time_without_waiting_jobs_does_not_count() {
        let mut service_rate = ServiceRate::default();
        let now_ms = work(&mut service_rate, 0, 320, (16, 160));
        service_rate.end_wait();
        let before = service_rate.wait_ms(100, 16, now_ms);
        assert_eq!(service_rate.wait_ms(100, 16, now_ms + 3_600_000), before);
        // The first gap begins with the burst, not with the last job before the pause.
        service_rate.begin_wait(now_ms + 3_600_000);
        let now_ms = work(&mut service_rate, now_ms + 3_600_000, 32, (16, 160));
        let wait_ms = service_rate.wait_ms(100, 16, now_ms).expect("jobs have waited");
        assert!((900..1_100).contains(&wait_ms), "{wait_ms} ms");
    }

    #[test]
    fn the_first_round_of_many_helpers_is_not_read_as_the_pace_of_one() {
        let mut service_rate = ServiceRate::default();
        service_rate.begin_wait(0);
        service_rate.note_finished(160, 16, true, 160);
        assert_eq!(service_rate.wait_ms(100, 16, 160), Some(1_000));
    }

    #[test]
    fn a_hung_disk_is_noticed_and_forgotten_when_it_recovers() {
        let mut service_rate = ServiceRate::default();
        let now_ms = work(&mut service_rate, 0, 320, (16, 16));
        let before_ms = service_rate.wait_ms(1_000, 16, now_ms).expect("jobs have waited");
        assert!(before_ms <= 1_100, "{before_ms} ms");
        let hung_ms = service_rate.wait_ms(1_000, 16, now_ms + 60_000).expect("jobs have waited");
        assert!(hung_ms > 60_000, "{hung_ms} ms");
        service_rate.note_finished(60_000, 16, true, now_ms + 60_000);
        let now_ms = work(&mut service_rate, now_ms + 60_000, 512, (16, 16));
        let after_ms = service_rate.wait_ms(1_000, 16, now_ms).expect("jobs have waited");
        assert!(after_ms <= 1_500, "{after_ms} ms");
    }

    #[test]
    fn jobs_that_were_in_memory_do_not_hide_a_slow_disk_for_long() {
        let mut service_rate = ServiceRate::default();
        let now_ms = work(&mut service_rate, 0, 100_000, (16, 0));
        assert_eq!(service_rate.wait_ms(1_000, 16, now_ms), Some(0));
        let now_ms = work(&mut service_rate, now_ms, 128, (16, 112));
        let wait_ms = service_rate.wait_ms(1_000, 16, now_ms).expect("jobs have waited");
        assert!((4_500..7_500).contains(&wait_ms), "{wait_ms} ms");
    }

    #[test]
    fn jobs_that_pass_others_do_not_count_as_progress() {
        let mut service_rate = ServiceRate::default();
        service_rate.begin_wait(0);
        for n in 1..=1_000 {
            service_rate.note_finished(10, 1, n % 2 == 0, n * 10);
        }
        let wait_ms = service_rate.wait_ms(100, 1, 10_000).expect("jobs have waited");
        assert!((1_900..2_100).contains(&wait_ms), "{wait_ms} ms");
    }
}
