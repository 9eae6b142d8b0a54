//! Mean response times of an M/G/1 queue whose load does not change. [`super::srpt`] and the experiments call it.
//!
//! - FAIR, processor sharing: `E{T(x)} = x / (1 - load)`, whatever the distribution (L. Kleinrock, *Queueing Systems*,
//!   volume 2, section 4.4).
//! - SRPT: L. Schrage and L. Miller, *The queue M/G/1 with the shortest remaining processing time discipline* (Operations
//!   Research 14, 1966). With `m(x)` the second moment of the sizes up to `x`, and `load(x)` their load:
//!   `E{T(x)} = rate (m(x) + x² P(X > x)) / (2 (1 - load(x))²) + integral from 0 to x of dt / (1 - load(t))`.
//!
//! Among requests of one size the earlier goes first, so a request waits for the equal ones that came before it and for
//! none that came after: one of the two factors `1 - load(x)` counts only the sizes below `x`. For a single size this is
//! the M/D/1 queue.

use super::sizes::Sizes;

/// The mean response time of a request under FAIR, seconds; infinite at a load of 1 or more.
pub fn fair_response_s(service_s: f64, load: f64) -> f64 {
    if load < 1.0 { service_s / (1.0 - load) } else { f64::INFINITY }
}

/// The mean number of requests in the queue under FAIR; infinite at a load of 1 or more.
pub fn fair_number(load: f64) -> f64 {
    fair_response_s(load, load)
}

/// The mean response time of each of the sizes under SRPT, seconds. It is infinite for sizes that make up a load of 1
/// together with the smaller ones; the smaller ones are served also under overload.
pub fn srpt_responses_s(sizes: &Sizes, arrivals_per_s: f64) -> Vec<f64> {
    let (mut below, mut moment, mut residence_s, mut smaller_s) = (0.0, 0.0, 0.0, 0.0);
    let mut larger_share: f64 = 1.0;
    let mut responses_s = Vec::with_capacity(sizes.atoms().len());
    for atom in sizes.atoms() {
        let load = below + arrivals_per_s * atom.share * atom.service_s;
        larger_share = (larger_share - atom.share).max(0.0);
        moment += atom.share * atom.service_s * atom.service_s;
        residence_s += (atom.service_s - smaller_s) / (1.0 - below);
        let work = arrivals_per_s * (moment + atom.service_s * atom.service_s * larger_share) / 2.0;
        let wait_s = work / ((1.0 - below) * (1.0 - load));
        responses_s.push(if load < 1.0 { wait_s + residence_s } else { f64::INFINITY });
        (below, smaller_s) = (load, atom.service_s);
    }
    responses_s
}

/// The mean response time over all sizes under SRPT, seconds; infinite at a load of 1 or more.
pub fn srpt_response_s(sizes: &Sizes, arrivals_per_s: f64) -> f64 {
    sizes.mean_of(&srpt_responses_s(sizes, arrivals_per_s))
}
