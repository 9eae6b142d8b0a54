//! When requests are meant to start.
//!
//! The generator asks it before every turn. Pure: time is given, never read.

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand_distr::{Distribution, Exp};

/// A row of intended starts, in nanoseconds since the row's own start.
#[derive(Debug)]
pub(crate) enum Arrivals {
    /// Independent of each other, at a mean rate, for a while.
    Poisson { random: Xoshiro256PlusPlus, gap_ns: Exp<f64>, next_ns: f64, end_ns: u64 },
    /// So many, all at the start.
    AtOnce { left: u64 },
}

impl Arrivals {
    /// Poisson arrivals at `rate_per_s` (more than 0) for `duration_ns`.
    pub(crate) fn poisson(seed: u64, rate_per_s: f64, duration_ns: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let gap_ns = Exp::new(rate_per_s / 1e9).expect("a rate above 0 makes an exponential distribution");
        let next_ns = gap_ns.sample(&mut random);
        Self::Poisson { random, gap_ns, next_ns, end_ns: duration_ns }
    }

    /// The next intended start if it is not after `elapsed_ns`; the row then goes on.
    pub(crate) fn take(&mut self, elapsed_ns: u64) -> Option<u64> {
        match self {
            Self::Poisson { random, gap_ns, next_ns, end_ns } => {
                let intended_ns = *next_ns as u64;
                if intended_ns > elapsed_ns || intended_ns >= *end_ns {
                    return None;
                }
                *next_ns += gap_ns.sample(random);
                Some(intended_ns)
            }
            Self::AtOnce { left } => {
                *left = left.checked_sub(1)?;
                Some(0)
            }
        }
    }

    /// Whether no more will come.
    #[cfg(test)]
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Self::Poisson { next_ns, end_ns, .. } => *next_ns as u64 >= *end_ns,
            Self::AtOnce { left } => *left == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut arrivals: Arrivals) -> Vec<u64> {
        std::iter::from_fn(|| arrivals.take(u64::MAX)).collect()
    }

    #[test]
    fn poisson_has_its_rate_and_its_spread() {
        let starts = all(Arrivals::poisson(1, 4000.0, 20_000_000_000));
        assert!((starts.len() as f64 - 80_000.0).abs() < 4.0 * 80_000_f64.sqrt(), "{}", starts.len());
        assert!(starts.is_sorted() && starts.iter().all(|&s| s < 20_000_000_000));
        let gaps: Vec<f64> = starts.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.03, "an exponential's deviation is its mean");
    }

    #[test]
    fn a_seed_repeats_and_time_holds_back() {
        assert_eq!(all(Arrivals::poisson(3, 100.0, 1 << 30)), all(Arrivals::poisson(3, 100.0, 1 << 30)));
        let mut arrivals = Arrivals::poisson(3, 100.0, 1 << 30);
        let first = all(Arrivals::poisson(3, 100.0, 1 << 30))[0];
        assert_eq!(arrivals.take(first - 1), None);
        assert_eq!(arrivals.take(first), Some(first));
    }

    #[test]
    fn ends() {
        let mut at_once = Arrivals::AtOnce { left: 2 };
        assert_eq!((at_once.take(0), at_once.take(0), at_once.take(9)), (Some(0), Some(0), None));
        assert!(at_once.is_over());
        let mut short = Arrivals::poisson(1, 1000.0, 1_000_000_000);
        while short.take(u64::MAX).is_some() {}
        assert!(short.is_over());
    }
}
