//! Thresholds for CI: `--require 'p99<5ms'`.
//!
//! Commands parse them before they touch anything and check them on each level at the end; one that
//! fails makes the exit code 3. Pure.

use std::fmt;
use std::str::FromStr;

use crate::measure::{Latency, Measures};
use crate::record::Outcome;
use flash_kit::{Error, Result};

/// A measure and what it must be.
#[derive(Clone, Debug)]
pub struct Threshold {
    text: String,
    measure: &'static Named,
    operator: Operator,
    /// In the unit of the measure: milliseconds, shares of 1, or as it stands.
    value: f64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThresholdResult {
    /// The threshold as it was written.
    pub text: String,
    pub holds: bool,
    /// The measured value with its unit, or "no data".
    pub actual: String,
}

#[derive(Debug)]
struct Named {
    name: &'static str,
    unit: Unit,
    /// None without data, and then nothing holds.
    of: fn(&Measures) -> Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Time,
    Share,
    PerSecond,
    Plain,
}

const MEASURES: [Named; 14] = [
    Named { name: "mean", unit: Unit::Time, of: |m| latency(m).map(|l| l.mean_ms) },
    Named { name: "p5", unit: Unit::Time, of: |m| latency(m).map(|l| l.p5_ms) },
    Named { name: "p50", unit: Unit::Time, of: |m| latency(m).map(|l| l.p50_ms) },
    Named { name: "p90", unit: Unit::Time, of: |m| latency(m).map(|l| l.p90_ms) },
    Named { name: "p95", unit: Unit::Time, of: |m| latency(m).map(|l| l.p95_ms) },
    Named { name: "p99", unit: Unit::Time, of: |m| latency(m).map(|l| l.p99_ms) },
    Named { name: "p99.9", unit: Unit::Time, of: |m| latency(m).map(|l| l.p999_ms) },
    Named { name: "max", unit: Unit::Time, of: |m| latency(m).map(|l| l.max_ms) },
    Named { name: "errors", unit: Unit::Share, of: |m| of_asked(m, m.counts.failures()) },
    Named { name: "queued", unit: Unit::Share, of: |m| of_asked(m, m.counts.queued) },
    Named { name: "late", unit: Unit::Share, of: |m| of_asked(m, m.counts.late) },
    Named { name: "rate", unit: Unit::PerSecond, of: |m| of_asked(m, 1).map(|_| m.answered_per_s) },
    Named { name: "mbps", unit: Unit::Plain, of: |m| of_asked(m, 1).map(|_| m.megabits_per_s) },
    Named { name: "inversion", unit: Unit::Plain, of: |m| m.inversion },
];

/// Whether a measured value and a bound are as they must be.
type Operator = fn(&f64, &f64) -> bool;

/// The longer first: `<=` begins with `<`.
const OPERATORS: [(&str, Operator); 4] = [("<=", f64::le), (">=", f64::ge), ("<", f64::lt), (">", f64::gt)];

/// The latency, unless no request had one that counts: then it is all zeros, which any bound
/// would let pass.
fn latency(measures: &Measures) -> Option<&Latency> {
    let of = |outcome: Outcome| measures.counts.failed.get(outcome.name()).copied().unwrap_or(0);
    let count = measures.counts.answered + of(Outcome::Aborted) + of(Outcome::Unanswered);
    (count > 0).then_some(&measures.latency)
}

fn of_asked(measures: &Measures, count: u64) -> Option<f64> {
    (measures.counts.asked > 0).then(|| count as f64 / measures.counts.asked as f64)
}

impl Threshold {
    /// Whether the measures keep it. A figure that was not measured does not keep it.
    pub fn check(&self, measures: &Measures) -> ThresholdResult {
        let actual = (self.measure.of)(measures);
        let holds = actual.is_some_and(|actual| (self.operator)(&actual, &self.value));
        let actual = actual.map_or_else(|| "no data".to_owned(), |actual| self.measure.unit.show(actual));
        ThresholdResult { text: self.text.clone(), holds, actual }
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Threshold {
    type Err = Error;

    /// Reads a measure, an operator, and a number with its unit, as in `p99<5ms`.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = |what: String| Error::usage(format!("--require '{text}': {what}"));
        let found = text.find(['<', '>']).and_then(|at| {
            let operator = OPERATORS.iter().find(|(sign, _)| text[at..].starts_with(sign))?;
            Some((text[..at].trim(), operator, text[at + operator.0.len()..].trim()))
        });
        let Some((name, &(_, operator), value)) = found else {
            return Err(wrong("no operator: there are < <= > >=, as in 'p99<5ms'".to_owned()));
        };
        let Some(measure) = MEASURES.iter().find(|measure| measure.name == name) else {
            let names: Vec<_> = MEASURES.iter().map(|measure| measure.name).collect();
            return Err(wrong(format!("no measure '{name}': there are {}", names.join(", "))));
        };
        let value = measure
            .unit
            .read(value)
            .ok_or_else(|| wrong(format!("'{value}' is no bound for {name}: {}", measure.unit.wanted())))?;
        Ok(Self { text: text.to_owned(), measure, operator, value })
    }
}

impl Unit {
    /// A number with this unit, not below 0.
    fn read(self, text: &str) -> Option<f64> {
        let (number, per_unit) = match self {
            // Before "s", which the others end with.
            Self::Time => [("us", 1e-3), ("ms", 1.0), ("s", 1e3)]
                .iter()
                .find_map(|&(unit, ms)| Some((text.strip_suffix(unit)?, ms)))?,
            Self::Share => (text.strip_suffix('%')?, 0.01),
            Self::PerSecond => (text.strip_suffix("/s").unwrap_or(text), 1.0),
            Self::Plain => (text, 1.0),
        };
        let value: f64 = number.trim().parse().ok()?;
        (value.is_finite() && value >= 0.0).then_some(value * per_unit)
    }

    fn wanted(self) -> &'static str {
        match self {
            Self::Time => "write a number and us, ms or s, as in 5ms",
            Self::Share => "write a number and %, as in 0.1%",
            Self::PerSecond => "write a number, as in 1000 or 1000/s",
            Self::Plain => "write a number, as in 0.3",
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Self::Time => format!("{value:.3} ms"),
            Self::Share => format!("{:.3} %", value * 100.0),
            Self::PerSecond => format!("{value:.1}/s"),
            Self::Plain => format!("{value:.3}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::answered;
    use super::super::{PhaseFacts, measures};
    use super::*;

    const MS_NS: u64 = 1_000_000;

    /// A thousand requests of 1 to 1,000 ms in 1,000 s, of which one was refused.
    fn phase() -> Measures {
        let mut records: Vec<_> = (1..=1000u64).map(|i| answered(0, i * MS_NS, 125)).collect();
        records.push(answered(0, MS_NS, 0));
        records[1000].outcome = Outcome::Refused;
        measures(&records[1..], &PhaseFacts { duration_ns: 1_000_000 * MS_NS, ..PhaseFacts::default() })
    }

    fn check(text: &str, measures: &Measures) -> (bool, String) {
        let result = text.parse::<Threshold>().unwrap().check(measures);
        assert_eq!(result.text, text);
        (result.holds, result.actual)
    }

    #[test]
    fn bounds_are_kept_or_not() {
        let phase = phase();
        // 999 latencies of 2 to 1,000 ms.
        let cases = [
            ("p50<501.001ms", true, "501.000 ms"),
            ("p50<501ms", false, "501.000 ms"),
            ("p50<=501ms", true, "501.000 ms"),
            ("p50 >= 0.501 s", true, "501.000 ms"),
            ("p50>501000us", false, "501.000 ms"),
            ("mean<=501ms", true, "501.000 ms"),
            ("p99.9<1s", false, "1000.000 ms"),
            ("max<=1s", true, "1000.000 ms"),
            ("errors<=0.1%", true, "0.100 %"),
            ("errors<0.1%", false, "0.100 %"),
            ("queued<1%", true, "0.000 %"),
            ("late<=0%", true, "0.000 %"),
            ("rate>0.9/s", true, "1.0/s"),
            ("rate<0.9", false, "1.0/s"),
            ("mbps>0.0009", true, "0.001"),
            ("inversion<0.3", true, "0.000"),
        ];
        for (text, holds, actual) in cases {
            assert_eq!(check(text, &phase), (holds, actual.to_owned()), "{text}");
        }
    }

    #[test]
    fn without_data_nothing_holds() {
        let mut refused = vec![answered(0, MS_NS, 0)];
        refused[0].outcome = Outcome::Refused;
        let refused = measures(&refused, &PhaseFacts::default());
        let nothing = measures(&[], &PhaseFacts::default());
        for text in ["p99<5ms", "max<=1s", "p50>=0ms", "inversion<1"] {
            assert_eq!(check(text, &refused), (false, "no data".to_owned()), "{text}");
            assert_eq!(check(text, &nothing), (false, "no data".to_owned()), "{text}");
        }
        for text in ["errors<100%", "rate>=0", "queued<=100%"] {
            assert_eq!(check(text, &nothing), (false, "no data".to_owned()), "{text}");
        }
        assert_eq!(check("errors>=100%", &refused), (true, "100.000 %".to_owned()));
        // Who waited in vain has a latency.
        let mut hung = vec![answered(0, 7 * MS_NS, 0)];
        hung[0].outcome = Outcome::Unanswered;
        let hung = measures(&hung, &PhaseFacts::default());
        assert_eq!(check("p99<5ms", &hung), (false, "7.000 ms".to_owned()));
    }

    #[test]
    fn what_can_not_be_read_is_explained() {
        let cases = [
            ("p99", "--require 'p99': no operator: there are < <= > >=, as in 'p99<5ms'"),
            (
                "p98<5ms",
                "--require 'p98<5ms': no measure 'p98': there are mean, p5, p50, p90, p95, p99, p99.9, max, \
                 errors, queued, late, rate, mbps, inversion",
            ),
            (
                "p99<5",
                "--require 'p99<5': '5' is no bound for p99: write a number and us, ms or s, as in 5ms",
            ),
            (
                "errors<0.1",
                "--require 'errors<0.1': '0.1' is no bound for errors: write a number and %, as in 0.1%",
            ),
        ];
        for (text, expected) in cases {
            let error = text.parse::<Threshold>().unwrap_err();
            assert_eq!((error.to_string().as_str(), error.exit_code()), (expected, 2));
        }
        for text in ["", "<", "p99<", "p99<ms", "p99<-1ms", "p99<nanms", "rate>inf", "p99=5ms", "p99<>5ms"] {
            assert!(text.parse::<Threshold>().is_err(), "{text}");
        }
    }
}
