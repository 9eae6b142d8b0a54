//! The model job by job: a discrete-event simulation of one link under a policy, for any arrivals. Seeded and pure.
//!
//! The tests of [`super`] compare the formulas with it.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::Period;
use super::sizes::Sizes;
use flash_kit::{Error, Result};

/// The most jobs of a simulation.
const JOBS_MAX: usize = 5_000_000;
/// The most priority bands, as in `prio` of Linux (tc-prio(8)).
const BANDS_MAX: usize = 16;

/// Which jobs the link serves.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Policy {
    /// All jobs in equal shares: processor sharing.
    Fair,
    /// The job with the least service left; of several the one that arrived first.
    Srpt,
    /// In equal shares the jobs of the most urgent band that has any. A job's band follows from the service that it has
    /// left: the first below the first cutoff and so on. Cutoffs are service times in seconds, ascending. This is the
    /// approximation of SRPT by priority queues (section 2 of the paper).
    Bands(Vec<f64>),
}

/// A job before it is served.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Arrival {
    /// Seconds from the beginning.
    pub(super) at_s: f64,
    /// Seconds of service; above 0.
    pub(super) service_s: f64,
}

/// A job that was served.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Served {
    /// The job.
    pub(super) arrival: Arrival,
    /// Seconds from its arrival to its end.
    pub(super) response_s: f64,
}

/// Poisson arrivals of these sizes in these periods, one after the other, `cycles` times over.
///
/// Errors: usage, for more arrivals than a simulation can have, and for periods that are not finite.
pub(super) fn arrivals(sizes: &Sizes, periods: &[Period], cycles: u32, seed: u64) -> Result<Vec<Arrival>> {
    let expected: f64 = periods.iter().map(|p| sizes.arrivals_per_s(p.load) * p.duration_s).sum::<f64>();
    let expected = expected * f64::from(cycles);
    if !expected.is_finite() || expected > JOBS_MAX as f64 / 2.0 {
        return Err(Error::usage(format!(
            "the simulation would have about {expected:.0} jobs: {} are the most",
            JOBS_MAX / 2
        )));
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut sum = 0.0;
    let atoms = sizes.atoms().iter();
    let shares: Vec<f64> = atoms
        .map(|atom| {
            sum += atom.share;
            sum
        })
        .collect();
    let mut all = Vec::new();
    let mut begin_s = 0.0;
    for period in (0..cycles).flat_map(|_| periods) {
        let rate_per_s = sizes.arrivals_per_s(period.load);
        let mut at_s = 0.0;
        while rate_per_s > 0.0 && all.len() < JOBS_MAX {
            // 1 less a number below 1 is never 0.
            at_s -= (1.0 - random.random::<f64>()).ln() / rate_per_s;
            if at_s >= period.duration_s {
                break;
            }
            let choice = random.random::<f64>() * sum;
            let atom = sizes.atoms()[shares.partition_point(|share| *share <= choice).min(shares.len() - 1)];
            all.push(Arrival { at_s: begin_s + at_s, service_s: atom.service_s });
        }
        begin_s += period.duration_s;
    }
    Ok(all)
}

/// Serves all jobs; gives them in the order of their arrivals, which must be ascending.
///
/// Errors: usage, for arrivals that are not ascending, service times that are not above 0, too many jobs, and cutoffs that
/// are not above 0 and ascending.
pub(super) fn serve(policy: &Policy, arrivals: &[Arrival]) -> Result<Vec<Served>> {
    let is_ascending = arrivals.windows(2).all(|pair| pair[0].at_s <= pair[1].at_s);
    let is_positive = |arrival: &Arrival| arrival.at_s >= 0.0 && arrival.service_s > 0.0;
    if !is_ascending || !arrivals.iter().all(is_positive) || arrivals.len() > JOBS_MAX {
        return Err(Error::usage(format!(
            "a simulation takes at most {JOBS_MAX} arrivals in the order of their times, with service times above 0"
        )));
    }
    let ends_s = match policy {
        Policy::Srpt => Shortest::serve(arrivals),
        Policy::Fair => Bands::new(&[]).serve(arrivals),
        Policy::Bands(cutoffs_s) => {
            let ascends = cutoffs_s.windows(2).all(|pair| pair[0] < pair[1]);
            if !ascends || cutoffs_s.iter().any(|cutoff| *cutoff <= 0.0) || cutoffs_s.len() >= BANDS_MAX {
                return Err(Error::usage(format!(
                    "cutoffs {cutoffs_s:?}: at most {} ascending ones above 0 are possible",
                    BANDS_MAX - 1
                )));
            }
            Bands::new(cutoffs_s).serve(arrivals)
        }
    };
    let served = |(arrival, end_s): (&Arrival, f64)| Served {
        arrival: *arrival,
        response_s: (end_s - arrival.at_s).max(0.0),
    };
    Ok(arrivals.iter().zip(ends_s).map(served).collect())
}

/// The mean response time of these jobs, seconds; none of no jobs.
pub(super) fn mean_s<'a>(jobs: impl Iterator<Item = &'a Served>) -> Option<f64> {
    let (count, sum) = jobs.fold((0u64, 0.0), |(count, sum), job| (count + 1, sum + job.response_s));
    (count > 0).then(|| sum / count as f64)
}

/// The number of jobs in the link at each of these times, which must be ascending.
pub(super) fn numbers(jobs: &[Served], at_s: &[f64]) -> Vec<f64> {
    let mut ends: Vec<f64> = jobs.iter().map(|job| job.arrival.at_s + job.response_s).collect();
    ends.sort_by(f64::total_cmp);
    let count = |at: &f64| {
        let begun = jobs.partition_point(|job| job.arrival.at_s <= *at);
        let ended = ends.partition_point(|end| end <= at);
        begun as f64 - ended as f64
    };
    at_s.iter().map(count).collect()
}

/// A job in a queue that gives the least key first.
#[derive(Clone, Copy, Debug)]
struct Queued {
    key: f64,
    job: usize,
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Queued {}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Queued {
    /// The heap gives the greatest, which is the one with the least key, and of equal ones the earliest job.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key.total_cmp(&self.key).then(other.job.cmp(&self.job))
    }
}

/// SRPT: the keys are service times that are left.
struct Shortest;

impl Shortest {
    /// The time at which each job ends.
    fn serve(arrivals: &[Arrival]) -> Vec<f64> {
        let mut ends_s = vec![0.0; arrivals.len()];
        let mut queue = BinaryHeap::new();
        let mut now_s = 0.0;
        let mut next = 0;
        while next < arrivals.len() || !queue.is_empty() {
            let Some(Queued { key: left_s, job }) = queue.pop() else {
                now_s = arrivals[next].at_s;
                queue.push(Queued { key: arrivals[next].service_s, job: next });
                next += 1;
                continue;
            };
            match arrivals.get(next).filter(|arrival| arrival.at_s < now_s + left_s) {
                Some(arrival) => {
                    queue.push(Queued { key: left_s - (arrival.at_s - now_s), job });
                    queue.push(Queued { key: arrival.service_s, job: next });
                    now_s = arrival.at_s;
                    next += 1;
                }
                None => {
                    now_s += left_s;
                    ends_s[job] = now_s;
                }
            }
        }
        ends_s
    }
}

/// A band: the jobs in it share its service equally, so each gets what its clock counts.
#[derive(Default)]
struct Band {
    clock_s: f64,
    /// The keys are clocks at which jobs leave the band.
    queue: BinaryHeap<Queued>,
}

/// Priority bands; a single one is processor sharing.
struct Bands<'c> {
    cutoffs_s: &'c [f64],
    bands: Vec<Band>,
}

impl<'c> Bands<'c> {
    fn new(cutoffs_s: &'c [f64]) -> Self {
        Self { cutoffs_s, bands: (0..=cutoffs_s.len()).map(|_| Band::default()).collect() }
    }

    /// Puts a job with this service left into its band.
    fn enter(&mut self, job: usize, left_s: f64, band: usize) {
        // A job leaves the band at the cutoff below it, or at its end.
        let rest_s = band.checked_sub(1).map_or(0.0, |below| self.cutoffs_s[below]);
        let band = &mut self.bands[band];
        band.queue.push(Queued { key: band.clock_s + (left_s - rest_s).max(0.0), job });
    }

    fn arrive(&mut self, job: usize, service_s: f64) {
        self.enter(job, service_s, self.cutoffs_s.partition_point(|cutoff| *cutoff <= service_s));
    }

    /// The time at which each job ends.
    fn serve(mut self, arrivals: &[Arrival]) -> Vec<f64> {
        let mut ends_s = vec![0.0; arrivals.len()];
        let mut now_s = 0.0;
        let mut next = 0;
        loop {
            let active = self.bands.iter().position(|band| !band.queue.is_empty());
            let first = active.and_then(|number| Some((number, *self.bands[number].queue.peek()?)));
            let Some((number, first)) = first else {
                let Some(arrival) = arrivals.get(next) else { return ends_s };
                now_s = arrival.at_s;
                self.arrive(next, arrival.service_s);
                next += 1;
                continue;
            };
            let band = &mut self.bands[number];
            let count = band.queue.len() as f64;
            let until_s = (first.key - band.clock_s).max(0.0) * count;
            if let Some(arrival) = arrivals.get(next).filter(|arrival| arrival.at_s < now_s + until_s) {
                band.clock_s += (arrival.at_s - now_s) / count;
                now_s = arrival.at_s;
                self.arrive(next, arrival.service_s);
                next += 1;
                continue;
            }
            now_s += until_s;
            band.clock_s = first.key;
            band.queue.pop();
            match number.checked_sub(1) {
                None => ends_s[first.job] = now_s,
                Some(below) => self.enter(first.job, self.cutoffs_s[below], below),
            }
        }
    }
}
