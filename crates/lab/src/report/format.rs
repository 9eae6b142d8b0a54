//! The results of a run for other programs: JSON, CSV, percentiles of HdrHistogram, and Prometheus.
//!
//! The commands that drive servers print one of them instead of the table. Pure.

use std::fmt::Write;

use super::view::View;
use super::{summary, table};
use crate::results::Run;
use flash_kit::{Error, Result};
use flash_load::measure::{Latency, Measures};
use flash_load::record::Outcome;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// The table of [`super::table`].
    #[default]
    Text,
    /// As `run.json`.
    Json,
    /// A line for each level.
    Csv,
    /// The text form of HdrHistogram's percentiles, milliseconds.
    Hdr,
    Prometheus,
}

/// A run in a format, with a line end.
///
/// Errors: run, for figures that JSON does not have.
pub fn text(run: &Run, format: Format) -> Result<String> {
    Ok(match format {
        Format::Text => table(run),
        Format::Json => {
            let json = serde_json::to_string_pretty(run);
            json.map_err(|why| Error::run(format!("cannot write the results as JSON: {why}")))? + "\n"
        }
        Format::Csv => csv(run),
        Format::Hdr => hdr(run),
        Format::Prometheus => prometheus(run),
    })
}

/// The reasons to doubt a run, which a table has and other formats do not.
pub fn warnings(run: &Run) -> Vec<String> {
    summary::warnings(&View::new(std::slice::from_ref(run)))
}

/// Every level, with the name of its subject.
fn levels(run: &Run) -> impl Iterator<Item = (&str, &Measures)> {
    run.subjects
        .iter()
        .flat_map(|subject| subject.levels.iter().map(move |level| (subject.name.as_str(), level)))
}

/// The latencies that count.
fn latencies(measures: &Measures) -> u64 {
    let failed = |outcome: Outcome| measures.counts.failed.get(outcome.name()).copied().unwrap_or(0);
    measures.counts.answered + failed(Outcome::Aborted) + failed(Outcome::Unanswered)
}

const CSV_HEAD: &str = "subject,level,load_level,asked_per_s,answered_per_s,megabits_per_s,duration_s,asked,answered,\
                        failed,retried,connections,mean_ms,p5_ms,p50_ms,p90_ms,p95_ms,p99_ms,p999_ms,max_ms";

fn csv(run: &Run) -> String {
    let mut text = format!("{CSV_HEAD}\n");
    let maybe = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    for (subject, measures) in levels(run) {
        let Measures { name, load_level, asked_per_s, counts, .. } = measures;
        let mut cells = vec![csv_cell(subject), csv_cell(name), maybe(*load_level), maybe(*asked_per_s)];
        let rates = [measures.answered_per_s, measures.megabits_per_s, measures.duration_s];
        cells.extend(rates.map(|rate| rate.to_string()));
        let numbers = [counts.asked, counts.answered, counts.failures(), counts.retried, counts.connections];
        cells.extend(numbers.map(|number| number.to_string()));
        let Latency { mean_ms, p5_ms, p50_ms, p90_ms, p95_ms, p99_ms, p999_ms, max_ms } = measures.latency;
        let times = [mean_ms, p5_ms, p50_ms, p90_ms, p95_ms, p99_ms, p999_ms, max_ms];
        cells.extend(times.map(|time_ms| maybe((latencies(measures) > 0).then_some(time_ms))));
        text += &(cells.join(",") + "\n");
    }
    text
}

/// A cell, quoted where RFC 4180 wants it.
fn csv_cell(text: &str) -> String {
    if text.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// Percentiles as `HistogramLogProcessor` and wrk2 print them. Those of the distribution in the results, which are exact.
fn hdr(run: &Run) -> String {
    let mut text = String::new();
    let several = levels(run).count() > 1;
    for (subject, measures) in levels(run) {
        if several {
            let _ = writeln!(text, "# {subject}, {}", measures.name);
        }
        let count = latencies(measures);
        text += "       Value     Percentile TotalCount 1/(1-Percentile)\n\n";
        for point in &measures.cdf {
            let total = (point.share * count as f64).round();
            let _ = write!(text, "{:12.3} {:14.12} {total:10}", point.latency_ms, point.share);
            let _ = match point.share {
                1.0.. => writeln!(text),
                share => writeln!(text, " {:14.2}", 1.0 / (1.0 - share)),
            };
        }
        let Latency { mean_ms, max_ms, .. } = measures.latency;
        let _ = writeln!(text, "#[Mean    = {mean_ms:12.3}, Max       = {max_ms:12.3}]");
        let _ = writeln!(text, "#[Total count    = {count:12}]");
    }
    text
}

/// The text exposition format of Prometheus, version 0.0.4. Base units: seconds, bytes.
fn prometheus(run: &Run) -> String {
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, samples: &dyn Fn(&Measures) -> Samples| {
        let _ = writeln!(text, "# HELP flash_load_{name} {help}.\n# TYPE flash_load_{name} {kind}");
        for (subject, measures) in levels(run) {
            let place = format!("subject=\"{}\",level=\"{}\"", escaped(subject), escaped(&measures.name));
            for (suffix, label, value) in samples(measures) {
                let comma = if label.is_empty() { "" } else { "," };
                let _ = writeln!(text, "flash_load_{name}{suffix}{{{place}{comma}{label}}} {value}");
            }
        }
    };
    let plain = |value: f64| vec![("", String::new(), value.to_string())];
    family("latency_seconds", "histogram", "Latency from the intended start to the last byte", &histogram);
    family("requests_total", "counter", "Requests that ended, by their outcome", &|measures| {
        let failed = measures.counts.failed.iter().map(|(name, count)| (name.as_str(), *count));
        let all = std::iter::once(("answered", measures.counts.answered)).chain(failed);
        let sample =
            |(name, count): (&str, u64)| ("", format!("outcome=\"{}\"", escaped(name)), count.to_string());
        all.map(sample).collect()
    });
    family("retries_total", "counter", "Requests sent again", &|measures| {
        plain(measures.counts.retried as f64)
    });
    family("connections_total", "counter", "Connections that were established", &|measures| {
        plain(measures.counts.connections as f64)
    });
    family("duration_seconds", "gauge", "How long requests were started", &|measures| {
        plain(measures.duration_s)
    });
    family(
        "answers_per_second",
        "gauge",
        "Proper answers per second while requests were started",
        &|measures| plain(measures.answered_per_s),
    );
    family("body_bytes_per_second", "gauge", "Bytes of their bodies per second", &|measures| {
        plain(measures.megabits_per_s * 1e6 / 8.0)
    });
    text
}

/// The suffix of a name, a label, the value.
type Samples = Vec<(&'static str, String, String)>;

fn histogram(measures: &Measures) -> Samples {
    let count = latencies(measures);
    let bucket = |le: String, count: u64| ("_bucket", format!("le=\"{le}\""), count.to_string());
    let mut samples: Samples = measures
        .histogram
        .iter()
        .map(|found| bucket((found.latency_max_ms / 1e3).to_string(), found.count))
        .collect();
    samples.push(bucket("+Inf".to_owned(), count));
    let sum_s = measures.latency.mean_ms * count as f64 / 1e3;
    samples
        .extend([("_sum", String::new(), sum_s.to_string()), ("_count", String::new(), count.to_string())]);
    samples
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
