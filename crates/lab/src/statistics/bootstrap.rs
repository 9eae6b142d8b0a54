//! Confidence intervals for ratios of two servers, by bootstrap.
//!
//! `compare` and `interfere` give it the [`Blocks`] of each phase and the pooled measures. Pure; seeded.
//!
//! A two-stage cluster bootstrap: rounds are drawn with replacement, then within each the blocks of
//! one second with replacement, because latencies within a second depend on one another (one
//! stall makes many of them long) and those of one round on how the machine was meanwhile. Rounds of
//! servers that took turns are drawn together, so what a noisy machine does to all of them in a
//! round cancels out. Fewer than [`ROUNDS_MIN`] rounds give no interval: they say too little of how rounds
//! differ.

use std::collections::BTreeMap;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::interval::{self, ROUNDS_MIN};
use crate::results::{Ratio, Subject};
use flash_load::measure::Latency;
use flash_load::measure::{times, validity};
use flash_load::record::Record;

/// How often is drawn.
const RESAMPLES: usize = 1000;
/// The 95 % between the first and the last 2.5 %.
const OUTSIDE_PER_MILLE: u64 = 25;
/// A block is at least as long as this.
const BLOCK_NS: u64 = 1_000_000_000;
/// A longer round has longer blocks, so that drawing stays quick.
const BLOCKS_MAX: u64 = 120;
/// Fewer blocks than this, with something in them, tell nothing of chance.
const BLOCKS_MIN: usize = 10;
/// A percentile that fewer requests are beyond is a matter of those few.
const BEYOND_MIN: u64 = 5;

/// Latencies are counted in 128 buckets for each doubling: a value is off by 0.8 % at most, and
/// by much less where many are in a bucket.
const BUCKET_BITS: u32 = 7;
/// Latencies from 2⁴² ns on (73 minutes) count as so much.
const LATENCY_BITS: u32 = 42;
const BUCKETS: usize = ((LATENCY_BITS - BUCKET_BITS + 1) << BUCKET_BITS) as usize;

/// A measure that is compared at each level: its name, its per mille (none for the mean), and its exact
/// value.
type Measure = (&'static str, Option<u64>, fn(&Latency) -> f64);

const MEASURES: [Measure; 6] = [
    ("mean", None, |l| l.mean_ms),
    ("p50", Some(500), |l| l.p50_ms),
    ("p90", Some(900), |l| l.p90_ms),
    ("p95", Some(950), |l| l.p95_ms),
    ("p99", Some(990), |l| l.p99_ms),
    ("p99.9", Some(999), |l| l.p999_ms),
];

/// The latencies of one phase, block by block; small, so the records can go.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks(Vec<Block>);

#[derive(Clone, Debug, Default)]
struct Block {
    counts: Vec<(u16, u32)>,
    total: u64,
    sum_ns: f64,
}

impl Blocks {
    /// Sorts the latencies that count into blocks by their intended start.
    pub(crate) fn new(records: &[Record]) -> Self {
        let counting = || records.iter().filter(|record| record.counts());
        let length_ns = counting().map(|record| record.intended_ns).max().unwrap_or(0).saturating_add(1);
        let block_ns = length_ns.div_ceil(BLOCKS_MAX).max(BLOCK_NS);
        let mut blocks = vec![Block::default(); length_ns.div_ceil(block_ns) as usize];
        let mut keys = Vec::with_capacity(records.len());
        for record in counting() {
            let number = (record.intended_ns / block_ns) as usize;
            blocks[number].total += 1;
            blocks[number].sum_ns += record.latency_ns() as f64;
            keys.push((number as u16, bucket(record.latency_ns())));
        }
        keys.sort_unstable();
        for run in keys.chunk_by(|a, b| a == b) {
            let (number, bucket) = run[0];
            blocks[usize::from(number)].counts.push((bucket, run.len() as u32));
        }
        Self(blocks)
    }
}

/// The number of the bucket that a latency counts in.
fn bucket(latency_ns: u64) -> u16 {
    let ns = latency_ns.min((1 << LATENCY_BITS) - 1);
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(BUCKET_BITS + 1);
    // Without a shift the number itself; then 128 numbers for each doubling.
    ((u64::from(shift) << BUCKET_BITS) + (ns >> shift)) as u16
}

/// The value so far into a bucket, from 0 to 1. Without going into buckets, a ratio of two servers
/// that differ by less than a bucket's width would have no width itself.
fn value_ns(bucket: usize, into: f64) -> f64 {
    let shift = (bucket >> BUCKET_BITS).saturating_sub(1);
    let lowest = (bucket - (shift << BUCKET_BITS)) << shift;
    lowest as f64 + ((1u64 << shift) - 1) as f64 * into
}

/// A server as it is compared: with all requests of its rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pooled<'a> {
    pub(crate) subject: &'a Subject,
    pub(crate) rounds: &'a BTreeMap<String, Vec<Blocks>>,
}

impl<'a> Pooled<'a> {
    fn rounds_of(&self, level: &str) -> &'a [Blocks] {
        self.rounds.get(level).map_or(&[], Vec::as_slice)
    }
}

/// Compares each subject with the first: the capacity, then each level that both have.
///
/// The ratios are of exact figures; one that would be of or by nothing is left out. An interval is
/// missing where there was too little to draw from. The subjects must have been measured on the
/// same data set.
pub(crate) fn ratios(samples: &[Pooled<'_>], seed: u64) -> Vec<Ratio> {
    let Some((base, others)) = samples.split_first() else {
        return Vec::new();
    };
    let mut ratios = Vec::new();
    for sample in others {
        ratios.extend(capacity(base.subject, sample.subject));
        for level in &base.subject.levels {
            let Some(own) = sample.subject.levels.iter().find(|own| own.name == level.name) else {
                continue;
            };
            let (base_rounds, rounds) = (base.rounds_of(&level.name), sample.rounds_of(&level.name));
            let doubt = doubt([base.subject, sample.subject], &level.name);
            let is_enough = base_rounds.len().min(rounds.len()) >= ROUNDS_MIN;
            let draws = if is_enough { RESAMPLES } else { 0 };
            let intervals = intervals(base_rounds, rounds, draws, seed);
            for ((measure, _, exact), interval) in MEASURES.into_iter().zip(intervals) {
                let mut made =
                    ratio(measure, base.subject, sample.subject, exact(&level.latency), exact(&own.latency));
                if let Some(made) = &mut made {
                    made.level = Some(level.name.clone());
                    made.interval = interval.filter(|_| doubt.is_none());
                    made.doubt.clone_from(&doubt);
                }
                ratios.extend(made);
            }
        }
    }
    ratios
}

/// Why ratios have no interval, where servers had too few rounds for one: a line for all of them.
pub(crate) fn too_few_rounds(samples: &[Pooled<'_>]) -> Option<String> {
    let rounds = || samples.iter().flat_map(|sample| sample.rounds.values().map(Vec::len));
    let (fewest, most) = (rounds().min()?, rounds().max()?);
    let which = if most < ROUNDS_MIN { "no interval" } else { "no interval for some ratios" };
    let unit = if fewest == 1 { "round" } else { "rounds" };
    (fewest < ROUNDS_MIN).then(|| format!("{which}: {fewest} {unit} where {ROUNDS_MIN} are needed"))
}

/// Why the rounds of a level say nothing about one of these subjects. A ratio of all rounds with some in doubt is in doubt:
/// one overloaded round makes most of the requests of a high percentile.
fn doubt(subjects: [&Subject; 2], level: &str) -> Option<String> {
    let rounds = subjects.into_iter().flat_map(|subject| {
        let rounds: Vec<_> = subject.rounds.iter().filter(|round| round.name == level).collect();
        // A subject of a single round may have it as a level alone.
        let levels = subject.levels.iter().filter(|one| rounds.is_empty() && one.name == level).collect();
        [rounds.clone(), levels].concat()
    });
    let causes: Vec<_> = rounds.map(validity::causes).collect();
    validity::summary(&causes, causes.len())
}

/// None where one of the two is 0: nothing was measured there.
fn ratio(measure: &str, base: &Subject, subject: &Subject, base_value: f64, value: f64) -> Option<Ratio> {
    (base_value > 0.0 && value > 0.0).then(|| Ratio {
        measure: measure.to_owned(),
        level: None,
        subject: subject.name.clone(),
        base: base.name.clone(),
        ratio: value / base_value,
        interval: None,
        doubt: None,
    })
}

fn capacity(base: &Subject, subject: &Subject) -> Option<Ratio> {
    let (of_base, own) = (base.capacity.as_ref()?, subject.capacity.as_ref()?);
    let mut made = ratio("capacity", base, subject, of_base.requests_per_s, own.requests_per_s)?;
    let (base_rounds, rounds) = (&of_base.rounds_requests_per_s, &own.rounds_requests_per_s);
    // Servers that took turns have as many rounds, and each round is compared with its own.
    if base_rounds.len() == rounds.len() {
        let ratios: Vec<f64> = rounds.iter().zip(base_rounds).map(|(own, base)| own / base).collect();
        made.interval = interval::of_ratios(&ratios);
    }
    let doubted = of_base.doubts.len() + own.doubts.len();
    if doubted > 0 {
        made.interval = None;
        made.doubt =
            Some(format!("capacity in doubt in {doubted} of {} rounds", base_rounds.len() + rounds.len()));
    }
    Some(made)
}

/// Draws rounds of two servers; the same ones when they took turns.
fn draw_rounds(random: &mut Xoshiro256PlusPlus, base: usize, other: usize) -> (Vec<usize>, Vec<usize>) {
    let mut draw =
        |count: usize| -> Vec<usize> { (0..count).map(|_| random.random_range(0..count)).collect() };
    let of_base = draw(base);
    let of_other = if base == other { of_base.clone() } else { draw(other) };
    (of_base, of_other)
}

fn intervals(base: &[Blocks], other: &[Blocks], resamples: usize, seed: u64) -> [Option<[f64; 2]>; 6] {
    let mut found = [None; MEASURES.len()];
    let filled = |rounds: &[Blocks]| rounds.iter().flat_map(|round| &round.0).filter(|b| b.total > 0).count();
    if filled(base).min(filled(other)) < BLOCKS_MIN {
        return found;
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut pool = Pool::default();
    let mut ratios = vec![Vec::with_capacity(resamples); MEASURES.len()];
    for _ in 0..resamples {
        let (base_drawn, drawn) = draw_rounds(&mut random, base.len(), other.len());
        let base_values = pool.resample(&mut random, base, &base_drawn);
        let values = pool.resample(&mut random, other, &drawn);
        for ((ratios, value), base_value) in ratios.iter_mut().zip(values).zip(base_values) {
            ratios.push(value / base_value);
        }
    }
    let total = |rounds: &[Blocks]| rounds.iter().flat_map(|round| &round.0).map(|b| b.total).sum::<u64>();
    let fewest = total(base).min(total(other));
    for ((found, ratios), (_, per_mille, _)) in found.iter_mut().zip(ratios).zip(MEASURES) {
        let beyond = per_mille.map_or(fewest, |per_mille| fewest - times::rank(fewest, per_mille));
        if beyond >= BEYOND_MIN {
            *found = interval(ratios);
        }
    }
    found
}

/// The middle 95 %; none if some were of or by nothing.
fn interval(mut ratios: Vec<f64>) -> Option<[f64; 2]> {
    if ratios.is_empty() || ratios.iter().any(|ratio| !ratio.is_finite() || *ratio <= 0.0) {
        return None;
    }
    ratios.sort_unstable_by(f64::total_cmp);
    let at = |per_mille| ratios[times::rank(ratios.len() as u64, per_mille) as usize - 1];
    Some([at(OUTSIDE_PER_MILLE), at(1000 - OUTSIDE_PER_MILLE)])
}

/// One resample; kept for its room.
#[derive(Default)]
struct Pool {
    /// How often each block of a round was drawn.
    times: Vec<u64>,
    /// Their counts by bucket.
    counts: Vec<u64>,
}

impl Pool {
    /// Draws blocks of the drawn rounds, as many as each has, and computes each of [`MEASURES`] in
    /// nanoseconds; NaN when nothing was drawn.
    fn resample(
        &mut self,
        random: &mut Xoshiro256PlusPlus,
        rounds: &[Blocks],
        drawn: &[usize],
    ) -> [f64; MEASURES.len()] {
        self.counts.clear();
        self.counts.resize(BUCKETS, 0);
        let (mut total, mut sum_ns) = (0, 0.0);
        for &round in drawn {
            let blocks = &rounds[round].0;
            self.times.clear();
            self.times.resize(blocks.len(), 0);
            for _ in 0..blocks.len() {
                self.times[random.random_range(0..blocks.len())] += 1;
            }
            for (block, &times) in blocks.iter().zip(&self.times).filter(|(_, times)| **times > 0) {
                total += block.total * times;
                sum_ns += block.sum_ns * times as f64;
                for &(bucket, count) in &block.counts {
                    self.counts[usize::from(bucket)] += u64::from(count) * times;
                }
            }
        }
        let mut values = [f64::NAN; MEASURES.len()];
        let (mut bucket, mut up_to) = (0, self.counts[0]);
        for (value, (_, per_mille, _)) in values.iter_mut().zip(MEASURES) {
            match per_mille {
                _ if total == 0 => {}
                None => *value = sum_ns / total as f64,
                // They grow, so one pass finds them all.
                Some(per_mille) => {
                    let rank = times::rank(total, per_mille);
                    while up_to < rank {
                        bucket += 1;
                        up_to += self.counts[bucket];
                    }
                    let count = self.counts[bucket] as f64;
                    *value = value_ns(bucket, 1.0 - ((up_to - rank) as f64 + 0.5) / count);
                }
            }
        }
        values
    }
}

#[cfg(test)]
#[path = "bootstrap_tests.rs"]
mod tests;
