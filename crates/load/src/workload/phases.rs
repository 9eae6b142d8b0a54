//! Schedules of load: how many requests a second, for how long, then how many.
//!
//! The commands parse a [`PhasePlan`] and turn it into rates when the capacity is known: that of a server, in requests per
//! second, or that of a link (see [`super::Link`]), whose load is then the ρ of overload-and-srpt, section 3.3.2. Pure.

use std::fmt;
use std::str::FromStr;

use flash_kit::{Error, Result};
use flash_units::parse_duration_s;

/// The most phases of a plan, repetitions counted.
const PHASES_MAX: usize = 10_000;
/// The longest phase, and the longest plan: 30 days.
const DURATION_MAX_S: f64 = 30.0 * 86_400.0;
const RATE_MAX_PER_S: f64 = 1e7;
const LEVEL_MAX: f64 = 1000.0;

const FORMS: &str = "write DURATION@LEVEL of the capacity, as in 25s@1.2,25s@0.2, or DURATION@RATE/s, as in \
                     25s@4000/s, or W1 to W9, or persistent; N*PLAN repeats a plan";

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhaseRate {
    pub duration_ns: u64,
    /// Requests per second; 0 is silence.
    pub rate_per_s: f64,
}

/// A sequence of phases: `25s@1.2,25s@0.2` in levels of the capacity, `25s@4000/s` in requests per
/// second, `W1` to `W9` and `persistent` by name, `36*W1` repeated.
#[derive(Clone, Debug, PartialEq)]
pub struct PhasePlan(Vec<Phase>);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Phase {
    duration_s: f64,
    intensity: Intensity,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Intensity {
    /// A fraction of the capacity.
    Level(f64),
    /// Requests per second.
    Rate(f64),
}

/// The workloads of overload-and-srpt: names, and seconds and level of each phase. W1 to W9 are those of transient overload
/// (Table 1): a period of low load and one of overload. The paper has the load of the persistent one in section 4.1 and shows its
/// first 70 to 100 s in Figure 5.
const NAMED: [(&str, &[(f64, f64)]); 10] = [
    ("W1", &[(25.0, 0.2), (25.0, 1.2)]),
    ("W2", &[(10.0, 0.2), (10.0, 1.2)]),
    ("W3", &[(50.0, 0.2), (50.0, 1.2)]),
    ("W4", &[(25.0, 0.4), (25.0, 1.4)]),
    ("W5", &[(10.0, 0.4), (10.0, 1.4)]),
    ("W6", &[(20.0, 0.5), (3.0, 2.0)]),
    ("W7", &[(13.3, 0.5), (2.0, 2.0)]),
    ("W8", &[(20.0, 0.735), (3.0, 2.0)]),
    ("W9", &[(13.3, 0.735), (2.0, 2.0)]),
    ("persistent", &[(100.0, 1.2)]),
];

impl PhasePlan {
    pub fn needs_capacity(&self) -> bool {
        self.0.iter().any(|phase| matches!(phase.intensity, Intensity::Level(_)))
    }

    /// The phases with the rates that their levels are of `capacity_per_s`.
    ///
    /// Errors: usage, when the capacity is needed and not known, or a rate is beyond all bounds.
    pub fn rates(&self, capacity_per_s: Option<f64>) -> Result<Vec<PhaseRate>> {
        let rate = |phase: &Phase| {
            let rate_per_s = match (phase.intensity, capacity_per_s) {
                (Intensity::Rate(rate_per_s), _) => rate_per_s,
                (Intensity::Level(level), Some(capacity_per_s)) => level * capacity_per_s,
                (Intensity::Level(level), None) => {
                    return Err(Error::usage(format!(
                        "the phases '{self}' speak of a level ({level}) of the capacity, which is not known: \
                         give rates, as in 25s@4000/s, or the capacity"
                    )));
                }
            };
            if !(0.0..=RATE_MAX_PER_S).contains(&rate_per_s) {
                return Err(Error::usage(format!(
                    "a phase has {rate_per_s} requests/s: 0 to {RATE_MAX_PER_S} are possible"
                )));
            }
            Ok(PhaseRate { duration_ns: (phase.duration_s * 1e9).round() as u64, rate_per_s })
        };
        self.0.iter().map(rate).collect()
    }

    pub fn duration_s(&self) -> f64 {
        self.0.iter().map(|phase| phase.duration_s).sum()
    }
}

impl FromStr for PhasePlan {
    type Err = Error;

    /// Errors: usage, for what is no plan or is too long.
    fn from_str(text: &str) -> Result<Self> {
        let usage = |why: String| Error::usage(format!("phases '{text}': {why}"));
        let (times, once) = match text.split_once('*') {
            Some((times, once)) => match times.parse::<usize>() {
                Ok(times) if times > 0 => (times, once),
                _ => return Err(usage(format!("'{times}' is no number of repetitions; {FORMS}"))),
            },
            None => (1, text),
        };
        let mut phases = Vec::new();
        for part in once.split(',') {
            // Upper and lower case are the same.
            match NAMED.iter().find(|(name, _)| name.eq_ignore_ascii_case(part)) {
                Some((_, levels)) => phases.extend(
                    levels
                        .iter()
                        .map(|&(duration_s, level)| Phase { duration_s, intensity: Intensity::Level(level) }),
                ),
                None => phases.push(phase(part).map_err(&usage)?),
            }
        }
        if phases.len().saturating_mul(times) > PHASES_MAX {
            return Err(usage(format!("more than {PHASES_MAX} phases")));
        }
        let plan = Self(phases.repeat(times));
        if plan.duration_s() > DURATION_MAX_S {
            return Err(usage(format!("longer than {DURATION_MAX_S} s")));
        }
        Ok(plan)
    }
}

/// One phase such as `25s@1.2` or `25s@4000/s`.
fn phase(text: &str) -> std::result::Result<Phase, String> {
    let (duration, intensity) = text.split_once('@').ok_or_else(|| format!("'{text}': {FORMS}"))?;
    let duration_s =
        parse_duration_s(duration).map_err(|why| format!("'{duration}' is no duration: {why}"))?;
    if duration_s <= 0.0 {
        return Err(format!("'{duration}' is no duration of a phase: it must be above 0"));
    }
    let (number, most) = match intensity.strip_suffix("/s") {
        Some(rate) => (rate, RATE_MAX_PER_S),
        None => (intensity, LEVEL_MAX),
    };
    match number.parse() {
        Ok(value) if (0.0..=most).contains(&value) => {
            let is_rate = number.len() < intensity.len();
            let intensity = if is_rate { Intensity::Rate(value) } else { Intensity::Level(value) };
            Ok(Phase { duration_s, intensity })
        }
        _ => Err(format!("'{intensity}' is neither a level from 0 to {LEVEL_MAX} nor a rate; {FORMS}")),
    }
}

impl fmt::Display for PhasePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 10;
        for (index, phase) in self.0.iter().take(SHOWN).enumerate() {
            let separator = if index == 0 { "" } else { "," };
            match phase.intensity {
                Intensity::Level(level) => write!(f, "{separator}{}s@{level}", phase.duration_s)?,
                Intensity::Rate(rate) => write!(f, "{separator}{}s@{rate}/s", phase.duration_s)?,
            }
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> PhasePlan {
        text.parse().unwrap_or_else(|e| panic!("{e}"))
    }

    fn rates(text: &str, capacity_per_s: Option<f64>) -> Vec<(u64, f64)> {
        let rates = plan(text).rates(capacity_per_s).unwrap_or_else(|e| panic!("{e}"));
        rates.iter().map(|phase| (phase.duration_ns, phase.rate_per_s)).collect()
    }

    #[test]
    fn levels_and_rates() {
        const S: u64 = 1_000_000_000;
        assert_eq!(rates("25s@1.2,25s@0.2", Some(1000.0)), [(25 * S, 1200.0), (25 * S, 200.0)]);
        assert_eq!(rates("25s@4000/s,250ms@0/s", None), [(25 * S, 4000.0), (S / 4, 0.0)]);
        assert_eq!(rates("2m@1/s,1h@0.5", Some(10.0)), [(120 * S, 1.0), (3600 * S, 5.0)]);
        assert_eq!(rates("2*1s@1/s,2s@3/s", None), [(S, 1.0), (2 * S, 3.0), (S, 1.0), (2 * S, 3.0)]);
        assert!(plan("1s@0.2").needs_capacity() && !plan("1s@2/s").needs_capacity());
    }

    /// The averages that Table 1 has for its workloads.
    #[test]
    fn the_named_workloads_have_their_average_loads() {
        for (name, duration_s, average) in [
            ("W1", 50.0, 0.7),
            ("W2", 20.0, 0.7),
            ("W3", 100.0, 0.7),
            ("W4", 50.0, 0.9),
            ("W5", 20.0, 0.9),
            ("W6", 23.0, 0.7),
            ("W7", 15.3, 0.7),
            ("w8", 23.0, 0.9),
            ("W9", 15.3, 0.9),
        ] {
            let phases = plan(name).rates(Some(1.0)).unwrap();
            let [low, over] = phases[..] else { panic!("{name}") };
            assert!(low.rate_per_s < over.rate_per_s, "{name}: low load comes first");
            let work = |phase: PhaseRate| phase.rate_per_s * phase.duration_ns as f64 / 1e9;
            let total_s = (low.duration_ns + over.duration_ns) as f64 / 1e9;
            assert!((total_s - duration_s).abs() < 1e-9, "{name}");
            assert!(((work(low) + work(over)) / total_s - average).abs() < 0.005, "{name}");
        }
        for (name, _) in &NAMED[..9] {
            assert_eq!(plan(name).rates(Some(1.0)).unwrap().len(), 2, "{name}");
        }
        assert_eq!(rates("2*persistent", Some(10.0)), [(100_000_000_000, 12.0); 2]);
        assert_eq!(rates("W7", Some(100.0)), [(13_300_000_000, 50.0), (2_000_000_000, 200.0)]);
        assert!((plan("36*W1").duration_s() - 1800.0).abs() < 1e-6, "30 minutes, as in section 3.3.2");
    }

    #[test]
    fn says_what_it_is() {
        assert_eq!(plan("25s@1.2,2m@4000/s").to_string(), "25s@1.2,120s@4000/s");
        assert!(plan("36*W1").to_string().ends_with("25s@0.2,25s@1.2 and 62 more"));
    }

    #[test]
    fn wrong_plans_say_what_would_be_right() {
        for (text, part) in [
            ("", "write DURATION@LEVEL"),
            ("25s", "write DURATION@LEVEL"),
            ("25s@", "neither a level"),
            ("25s@-1", "neither a level"),
            ("25s@NaN", "neither a level"),
            ("25s@1e9/s", "neither a level"),
            ("25@1", "no duration"),
            ("0s@1", "no duration"),
            ("-1s@1", "no duration"),
            ("infs@1", "no duration"),
            ("é@1", "no duration"),
            ("1s@1,", "write DURATION@LEVEL"),
            ("W10", "write DURATION@LEVEL"),
            ("0*W1", "no number of repetitions"),
            ("x*W1", "no number of repetitions"),
            ("99999999999*W1", "more than 10000 phases"),
            ("2*30h@1,700h@1", "longer than"),
        ] {
            let error = text.parse::<PhasePlan>().unwrap_err();
            assert!(error.exit_code() == 2 && error.to_string().contains(part), "{text}: {error}");
        }
        let error = plan("1s@0.2").rates(None).unwrap_err();
        assert!(error.to_string().contains("which is not known"), "{error}");
        assert!(plan("1s@1000").rates(Some(1e6)).is_err());
    }
}
