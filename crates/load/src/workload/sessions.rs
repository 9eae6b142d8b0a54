//! Partly-open users: new ones arrive whatever the server does, and each makes several requests, the next one some time after
//! the answer to the one before.
//!
//! Between the open and the closed system of overload-and-srpt, Figure 4: a slow server delays the next requests of the users
//! it has, but not the arrival of others. [`super::Workload::partly_open`] makes their requests. Pure and seeded.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1};

use super::demand::RETURNS;
use super::{Arrival, Demand, StreamId};
use flash_kit::{Error, Result};

/// The most requests of a user, on average.
const REQUESTS_MEAN_MAX: f64 = 1000.0;
/// The longest mean time between an answer and the next request.
const THINK_MEAN_MAX_S: f64 = 86_400.0;

/// The sessions of users: how many requests each makes, and how long it thinks between them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sessions {
    /// Requests of a user on average, 1 to 1,000. The number has a geometric distribution: after each answer, a user comes
    /// back with the same probability. A user whose request fails leaves.
    pub requests_mean: f64,
    /// Seconds from an answer to the user's next request, on average, up to a day. The time is exponential.
    pub think_mean_s: f64,
}

impl Sessions {
    /// Rejects what no user does.
    ///
    /// Errors: usage, for values beyond the bounds.
    pub fn check(&self) -> Result<()> {
        let Self { requests_mean, think_mean_s } = *self;
        if !(1.0..=REQUESTS_MEAN_MAX).contains(&requests_mean) {
            return Err(Error::usage(format!(
                "users who make {requests_mean} requests on average: 1 to {REQUESTS_MEAN_MAX} are possible"
            )));
        }
        if !(0.0..=THINK_MEAN_MAX_S).contains(&think_mean_s) {
            return Err(Error::usage(format!(
                "users who think for {think_mean_s} s on average: 0 to a day is possible"
            )));
        }
        Ok(())
    }
}

/// Users who arrive as `arrivals` say and then have these sessions. `thread` tells the threads of one load apart.
pub(super) fn partly_open(
    arrivals: Box<dyn Demand>,
    sessions: Sessions,
    seed: u64,
    thread: u32,
) -> Box<dyn Demand> {
    let id = StreamId { phase: thread, round: 0, stream: RETURNS };
    let random = Xoshiro256PlusPlus::seed_from_u64(id.seed(seed));
    Box::new(PartlyOpen { arrivals, sessions, random })
}

struct PartlyOpen {
    arrivals: Box<dyn Demand>,
    sessions: Sessions,
    random: Xoshiro256PlusPlus,
}

impl Demand for PartlyOpen {
    fn next_due_ns(&self) -> Option<u64> {
        self.arrivals.next_due_ns()
    }

    fn take(&mut self) -> Option<Arrival> {
        self.arrivals.take()
    }

    fn next_path(&mut self) -> Option<u32> {
        self.arrivals.next_path()
    }

    fn has_returning_users(&self) -> bool {
        self.sessions.requests_mean > 1.0
    }

    fn returns_ns(&mut self, answered_ns: u64) -> Option<u64> {
        let leaves = self.random.random::<f64>() * self.sessions.requests_mean < 1.0;
        // Drawn in any case, so that the next user's draws do not depend on this one's.
        let think: f64 = Exp1.sample(&mut self.random);
        let think_ns = (think * self.sessions.think_mean_s * 1e9) as u64;
        (!leaves).then(|| answered_ns.saturating_add(think_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Arrivals, Options, PhaseRate, Spec, Workload};

    const SESSIONS: Sessions = Sessions { requests_mean: 4.0, think_mean_s: 0.5 };

    fn poisson(rate_per_s: f64, duration_s: u64) -> Arrivals {
        Arrivals::Poisson { phases: vec![PhaseRate { duration_ns: duration_s * 1_000_000_000, rate_per_s }] }
    }

    fn workload() -> Workload {
        Workload::open(&Spec::Uniform, &Options { directories: Some(1), ..Options::default() }).unwrap()
    }

    #[test]
    fn users_make_the_mean_of_requests_and_think_between_them() {
        let mut demand = workload().partly_open(&poisson(1000.0, 20), SESSIONS, 1, 1).unwrap().remove(0);
        let (mut users, mut requests, mut thought_ns) = (0_u64, 0_u64, 0);
        while let Some(arrival) = demand.take() {
            (users, requests) = (users + 1, requests + 1);
            while let Some(back_ns) = demand.returns_ns(arrival.intended_ns) {
                assert!(demand.next_path().is_some());
                requests += 1;
                thought_ns += back_ns - arrival.intended_ns;
            }
        }
        // 5,000 users: five deviations of a Poisson count; of the mean of 4 with deviation √12; of 15,000 times.
        assert!(users.abs_diff(5000) < 354, "{users}: a quarter of 1,000 requests/s");
        let mean = requests as f64 / users as f64;
        assert!((mean - 4.0).abs() < 0.25, "{mean}");
        let think_s = thought_ns as f64 / 1e9 / (requests - users) as f64;
        assert!((think_s - 0.5).abs() < 0.025, "{think_s}");
    }

    #[test]
    fn users_of_one_request_are_an_open_loop() {
        let once = Sessions { requests_mean: 1.0, think_mean_s: 1.0 };
        let (workload, arrivals) = (workload(), poisson(100.0, 1));
        let mut demands = [
            workload.partly_open(&arrivals, once, 3, 1).unwrap().remove(0),
            workload.demands(&arrivals, 3, 1).remove(0),
        ];
        assert_eq!((demands[0].returns_ns(7), demands[1].returns_ns(7)), (None, None));
        assert!(demands.iter().all(|demand| !demand.has_returning_users()));
        let [first, second] = demands.each_mut().map(|demand| demand.take());
        assert_eq!(first, second, "with the arrivals of the same seed");
    }

    #[test]
    fn threads_and_seeds_differ_and_repeat() {
        let draws = |seed, thread: usize| {
            let mut demand =
                workload().partly_open(&poisson(1.0, 1), SESSIONS, seed, 2).unwrap().remove(thread);
            (0..50).map(|_| demand.returns_ns(0)).collect::<Vec<_>>()
        };
        assert_eq!(draws(1, 0), draws(1, 0));
        assert_ne!(draws(1, 0), draws(1, 1));
        assert_ne!(draws(1, 0), draws(2, 0));
    }

    #[test]
    fn refuses_what_no_user_does() {
        for (requests_mean, think_mean_s) in
            [(0.9, 1.0), (f64::NAN, 1.0), (1001.0, 1.0), (2.0, -1.0), (2.0, 1e9)]
        {
            let sessions = Sessions { requests_mean, think_mean_s };
            assert_eq!(sessions.check().unwrap_err().exit_code(), 2, "{sessions:?}");
        }
        for arrivals in [Arrivals::Closed, Arrivals::Log { speed: 1.0 }] {
            assert!(workload().partly_open(&arrivals, SESSIONS, 1, 1).is_err(), "{arrivals:?}");
        }
    }
}
