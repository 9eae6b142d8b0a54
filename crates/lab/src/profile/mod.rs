//! `flash profile`: latency against load, the papers' method (blocking-induced-latency, section 2.4).
//!
//! Infinite demand finds the capacity; fractions of it are then asked for in an open loop. `score`
//! and `sweep` are what else it can do. `compare` does the same for several servers.

mod score;
mod sweep;

use crate::drive::{Driver, Ending, Level, Options, Served, target};
use crate::error::{Error, Result};
use crate::results::Subject;

pub use sweep::Sweep;

/// The papers' load levels.
pub const LEVELS: [f64; 6] = [0.20, 0.40, 0.60, 0.80, 0.90, 0.95];
/// The most levels.
const LEVELS_MAX: usize = 100;
/// The highest level: far into overload.
const LEVEL_MAX: f64 = 100.0;
/// How long a level takes when nothing is said, seconds.
pub const LEVEL_S: f64 = 30.0;

/// What `flash profile` is asked for.
#[derive(Clone, Debug)]
pub struct Profile {
    /// What all commands are asked for.
    pub options: Options,
    /// The server.
    pub url: String,
    /// Its process, to measure what it uses.
    pub pid: Option<u32>,
    /// Fractions of the capacity.
    pub levels: Vec<f64>,
    /// The capacity, requests per second; found when not given.
    pub capacity_per_s: Option<f64>,
    /// Find the score as well, up to so many connections.
    pub score: Option<u32>,
    /// One profile for each of several data set sizes.
    pub sweep: Option<Sweep>,
}

/// Profiles the server, prints a table, keeps the results.
///
/// Errors: usage, for options that make no sense; run, for a server that answers nothing properly.
pub fn run(profile: &Profile) -> Result<Ending> {
    check_levels(&profile.levels)?;
    if let Some(sweep) = &profile.sweep {
        return sweep::run(profile, sweep);
    }
    let served = served(profile)?;
    let mut driver = Driver::new("profile", profile.options.clone())?;
    let subject = profile_subject(&mut driver, profile, &served)?;
    driver.run_mut().subjects.push(subject);
    driver.finish()
}

fn served(profile: &Profile) -> Result<Served> {
    let target = target(&profile.options, &profile.url)?;
    Ok(Served { name: "server".to_owned(), target, pid: profile.pid })
}

/// Refuses levels that make no sense.
pub(crate) fn check_levels(levels: &[f64]) -> Result<()> {
    if levels.is_empty() || levels.len() > LEVELS_MAX {
        return Err(Error::usage(format!("{} load levels: 1 to {LEVELS_MAX} are possible", levels.len())));
    }
    if let Some(level) = levels.iter().find(|level| !(**level > 0.0 && **level <= LEVEL_MAX)) {
        return Err(Error::usage(format!("load level {level}: it must be above 0 and at most {LEVEL_MAX}")));
    }
    Ok(())
}

/// One profile. Ends early, with what there is, when a signal came.
fn profile_subject(driver: &mut Driver, profile: &Profile, served: &Served) -> Result<Subject> {
    driver.preflight(served)?;
    driver.warm_up_fast(served)?;
    driver.run_mut().arrivals = "capacity by infinite demand, levels by Poisson arrivals".to_owned();
    let mut subject = Subject {
        dataset_bytes: driver.workload().catalogue().dataset_bytes(),
        ..Subject::of(&profile.url, &profile.url)
    };
    let level_1_per_s = match profile.capacity_per_s {
        Some(given) => given,
        None => {
            let capacity = driver.capacity(served, None)?;
            let found = capacity.requests_per_s;
            subject.capacity = Some(capacity);
            found
        }
    };
    if level_1_per_s <= 0.0 && !driver.is_interrupted() {
        return Err(Error::run(format!("{} answers nothing properly under infinite demand", profile.url)));
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
