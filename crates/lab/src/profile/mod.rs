//! `flash profile`: latency against load, the papers' method (blocking-induced-latency, section 2.4).
//!
//! A search finds the capacity; fractions of it are then asked for in an open loop. `score` finds how many connections
//! get a bit rate, and `sweep` makes a profile for each data set size. `compare` does the same for several servers.

mod score;
mod sweep;

use crate::drive::{Driver, Level, Options, Served, level_name};
use crate::results::Subject;
use flash_kit::{Ending, Error, Result};
use flash_load::workload::Spec;

use sweep::Sweep;

const LEVELS_MAX: usize = 100;
/// The highest level: far into overload.
const LEVEL_MAX: f64 = 100.0;
const RATE_MAX_PER_S: f64 = 10_000_000.0;
/// How long a level takes when nothing is said, seconds.
pub const LEVEL_S: f64 = 30.0;

/// The default load levels: the papers'.
pub(crate) const LEVELS_TEXT: &str = "0.2,0.4,0.6,0.8,0.9,0.95";

/// The options of `flash profile`. Their comments are their help.
#[derive(Clone, Debug, clap::Args)]
pub struct Profile {
    /// Server to load, such as http://127.0.0.1:8080
    #[arg(value_hint = clap::ValueHint::Url)]
    url: String,

    /// Files to request: specweb99, uniform, zipf:ALPHA, list:FILE (in turn), single:PATH, or log:FILE in the order of the log
    #[arg(long, value_name = "WORKLOAD", default_value = "specweb99", help_heading = "Workload")]
    workload: Spec,

    /// Loads to measure, as fractions of the capacity
    #[arg(long, value_name = "LEVELS", value_delimiter = ',', default_value = LEVELS_TEXT, help_heading = "Arrivals")]
    levels: Vec<f64>,

    /// Capacity in requests per second [default: measured]
    #[arg(long = "capacity", value_name = "N", help_heading = "Arrivals")]
    capacity_per_s: Option<f64>,

    /// Also find the most connections, up to MOST, that all receive 320 kbit/s when each reads at most 400 kbit/s
    #[arg(long, value_name = "MOST", num_args = 0..=1, require_equals = true, default_missing_value = "1000000",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000), help_heading = "Arrivals")]
    score: Option<u32>,

    /// Run one profile for each data set size, such as directories=100,300,600
    #[arg(long, value_name = "SIZES", help_heading = "Workload")]
    sweep: Option<Sweep>,

    /// Process ID of the server, to measure its CPU time and memory
    #[arg(long, value_name = "PID", help_heading = "Run")]
    pid: Option<u32>,

    #[command(flatten)]
    options: Options,
}

/// Profiles the server, prints a table, keeps the results.
///
/// Errors: usage, for options that make no sense; run, for a server that answers nothing properly.
pub fn run(mut profile: Profile) -> Result<Ending> {
    profile.options = profile.options.of_command("profile", profile.workload.clone()).with_endless_log();
    let profile = &profile;
    check_levels(&profile.levels)?;
    if let Some(given) = profile.capacity_per_s.filter(|given| !(*given > 0.0 && *given <= RATE_MAX_PER_S)) {
        return Err(Error::usage(format!(
            "a capacity of {given}: it must be above 0 and at most {RATE_MAX_PER_S} requests/s"
        )));
    }
    if let Some(sweep) = &profile.sweep {
        return sweep::run(profile, sweep);
    }
    let served = served(profile)?;
    let mut driver = Driver::new("profile", profile.options.clone())?;
    let subject = profile_subject(&mut driver, profile, &served)?;
    driver.run.subjects.push(subject);
    driver.finish()
}

fn served(profile: &Profile) -> Result<Served> {
    Served::running("server", &profile.options, &profile.url, profile.pid)
}

pub(crate) fn check_levels(levels: &[f64]) -> Result<()> {
    if levels.is_empty() || levels.len() > LEVELS_MAX {
        return Err(Error::usage(format!("{} load levels: 1 to {LEVELS_MAX} are possible", levels.len())));
    }
    if let Some(level) = levels.iter().find(|level| !(**level > 0.0 && **level <= LEVEL_MAX)) {
        return Err(Error::usage(format!("load level {level}: it must be above 0 and at most {LEVEL_MAX}")));
    }
    for (index, level) in levels.iter().enumerate() {
        if levels[..index].iter().any(|other| level_name(*other) == level_name(*level)) {
            return Err(Error::usage(format!("load level {level} is given twice: give each once")));
        }
    }
    Ok(())
}

fn profile_subject(driver: &mut Driver, profile: &Profile, served: &Served) -> Result<Subject> {
    driver.preflight(served)?;
    driver.warm_up_fast(served)?;
    driver.run.arrivals = "Poisson; load 1 is the highest rate that the server sustains".to_owned();
    let mut subject = Subject {
        dataset_bytes: driver.workload.catalogue().dataset_bytes(),
        ..Subject::of(&profile.url, &profile.url)
    };
    let level_1_per_s = match profile.capacity_per_s {
        Some(given) => given,
        None => {
            subject.capacity = driver.capacity(served, None, None)?;
            subject.capacity.as_ref().map_or(0.0, |capacity| capacity.requests_per_s)
        }
    };
    if level_1_per_s <= 0.0 && !driver.is_interrupted() {
        return Err(Error::run(format!("{} sustains no rate at all", profile.url)));
    }
    for &fraction in &profile.levels {
        if driver.is_interrupted() {
            break;
        }
        let level = Level::fraction(fraction, level_1_per_s, profile.options.duration_s.unwrap_or(LEVEL_S));
        subject.levels.push(driver.level(served, &level)?.measures);
        driver.save(std::slice::from_ref(&subject));
    }
    if let (Some(most), false) = (profile.score, driver.is_interrupted()) {
        subject.score = Some(score::find(driver, served, most)?);
    }
    Ok(subject)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_distinct_names() {
        assert!(check_levels(&[0.20, 0.40, 0.60, 0.80, 0.90, 0.95]).is_ok());
        assert!(check_levels(&[0.901, 0.904, 0.9]).is_ok());
        for wrong in [&[][..], &[0.0], &[f64::NAN], &[101.0], &[0.5, 0.6, 0.5]] {
            assert_eq!(check_levels(wrong).unwrap_err().exit_code(), 2, "{wrong:?}");
        }
        // Rounds of one level are pooled by its name.
        let names = [0.2, 0.95, 1.0, 0.901, 0.904].map(level_name);
        assert_eq!(names, ["0.20", "0.95", "1.00", "0.901", "0.904"]);
    }
}
