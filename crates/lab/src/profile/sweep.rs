//! Latency and capacity against data set size (blocking-induced-latency, Figs 8 and 15).
//!
//! A profile for each size, on one server: the workload draws from the first directories only.

use std::str::FromStr;

use crate::drive::Driver;
use flash_kit::{Ending, Error, Result};
use flash_load::files::layout::{DIRECTORIES_MAX, FILES_PER_DIRECTORY};
use flash_load::workload::Spec;

use super::{Profile, profile_subject, served};

const SIZES_MAX: usize = 32;

/// The sizes of a sweep, in directories of the SPECweb99 set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sweep(Vec<u32>);

impl FromStr for Sweep {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wanted = "write directories=100,300,600: numbers of directories, each once, in growing order";
        let list = text.strip_prefix("directories=").ok_or(wanted)?;
        let sizes: Option<Vec<u32>> = list.split(',').map(|size| size.parse().ok()).collect();
        let sizes = sizes.ok_or(wanted)?;
        let possible =
            sizes.len() <= SIZES_MAX && sizes[0] > 0 && sizes.iter().all(|size| *size <= DIRECTORIES_MAX);
        if !possible || !sizes.is_sorted_by(|a, b| a < b) {
            return Err(wanted.to_owned());
        }
        Ok(Self(sizes))
    }
}

pub(super) fn run(profile: &Profile, sweep: &Sweep) -> Result<Ending> {
    if profile.workload != Spec::Specweb99 {
        return Err(Error::usage("a sweep over directories needs --workload specweb99"));
    }
    let mut served = served(profile)?;
    let mut driver = Driver::new("profile", profile.options.clone())?;
    let there = driver.workload.catalogue().len() / FILES_PER_DIRECTORY;
    if sweep.0.iter().any(|size| *size > there) {
        return Err(Error::usage(format!("the set has {there} directories: the sweep must not go beyond")));
    }
    for &size in &sweep.0 {
        if driver.is_interrupted() {
            break;
        }
        driver.draw_from(size)?;
        served.name = format!("{size}-directories");
        let subject = profile_subject(&mut driver, profile, &served)?;
        driver.run.subjects.push(subject);
        driver.save(&[]);
    }
    driver.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_are_read() {
        assert_eq!("directories=100,300,600".parse(), Ok(Sweep(vec![100, 300, 600])));
        for wrong in [
            "",
            "100,300",
            "directories=",
            "directories=3,2",
            "directories=0,2",
            "directories=2,2",
            "files=3",
        ] {
            assert!(wrong.parse::<Sweep>().is_err(), "{wrong}");
        }
    }
}
