//! What the hot and cold test found, as the JSON that `bench/` reads.
//!
//! [`super::run`] calls it when a file is asked for. Pure; figures come from [`crate::measure`].

use serde_json::{Value, json};

use super::{Measured, Options};
use crate::results::{Latency, Measures};

/// The settings, and each phase.
pub(super) fn json(options: &Options, phases: &[Measured]) -> Value {
    json!({
        "url": options.url,
        "hot_directories": options.hot_directories,
        "cold_directories": [options.cold_directories.start, options.cold_directories.end],
        "hot_mix": options.hot_mix.name(),
        "hot_rate_per_s": options.hot_rate_per_s,
        "cold_rate_per_s": options.cold_rate_per_s,
        "connections_max": options.connections_max,
        "verified": options.verify_seed.is_some(),
        "seed": options.seed,
        "phases": phases.iter().map(|measured| phase(options.phase_s, measured)).collect::<Vec<_>>(),
    })
}

fn phase(phase_s: f64, measured: &Measured) -> Value {
    let late_ms = |late: fn(&Measures) -> f64| measured.levels().map(late).fold(0.0, f64::max);
    json!({
        "phase_s": phase_s,
        "drain_s": measured.hot.drain_s,
        "hot": stream(&measured.hot),
        "cold": measured.cold.as_ref().map(stream),
        "generator": {
            "late": {
                "p99_ms": late_ms(|level| level.generator.late_p99_ms),
                "max_ms": late_ms(|level| level.generator.late_max_ms),
            },
            "was_the_limit": measured.levels().any(|level| level.generator.limit.is_some()),
        },
    })
}

fn stream(level: &Measures) -> Value {
    let (counts, latency) = (&level.counts, &level.latency);
    let Latency { mean_ms, p50_ms, p99_ms, p999_ms, max_ms, .. } = latency;
    json!({
        "asked": counts.asked,
        "answered": counts.answered,
        "answered_per_s": level.answered_per_s,
        "queued": counts.queued,
        "retried": counts.retried,
        "failed": counts.failures(),
        "faults": counts.failed,
        "latency": {
            "mean_ms": mean_ms, "p50_ms": p50_ms, "p99_ms": p99_ms, "p999_ms": p999_ms, "max_ms": max_ms,
        },
    })
}
