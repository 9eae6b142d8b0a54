//! The requests beside the hot ones: for files on the disk, or for an application that takes long.
//!
//! [`super::run`] drives servers with them and takes its texts from here. Pure.

use std::ops::Range;

use super::{RATE_MAX_PER_S, usage};
use crate::execute::Beside;
use flash_kit::Result;
use flash_load::files::layout::{DIRECTORIES_MAX, FILES_PER_DIRECTORY};

/// The most requests that wait at once.
const WAITING_MAX: u32 = 100_000;

/// The texts of results about the requests beside the hot ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct BesideTexts {
    /// Their name, which is that of their phase.
    pub(super) others: &'static str,
    /// The thing that they wait for.
    pub(super) cause: &'static str,
    /// The question to the user when they were not answered properly.
    pub(super) question: &'static str,
    /// The advice when the server refused them.
    pub(super) fewer: &'static str,
}

impl BesideTexts {
    /// The name of the phase of hot requests beside them.
    pub(super) fn hot_phase(&self) -> String {
        format!("hot with {}", self.others)
    }
}

impl Beside {
    pub(super) fn texts(&self) -> BesideTexts {
        match self {
            Self::Cold { .. } => BesideTexts {
                others: "cold",
                cause: "the disk",
                question: "does it serve the directories of --cold-dirs?",
                fewer: "take a lower --cold-rate",
            },
            Self::Waiting { .. } => BesideTexts {
                others: "slow",
                cause: "the application",
                question: "does it pass the path of --slow-application to an application that answers in time?",
                fewer: "take fewer --waiting",
            },
        }
    }

    /// Their paths and their arrivals, for the head of results.
    pub(super) fn describe(&self) -> (String, String) {
        match self {
            Self::Cold { directories: Range { start, end }, rate_per_s, .. } => (
                format!("cold files: directories {start} to {}, each file once", end - 1),
                format!("{rate_per_s} cold requests/s"),
            ),
            Self::Waiting { path, requests } => {
                (format!("slow requests: {path}"), format!("{requests} slow requests that wait at any time"))
            }
        }
    }

    /// Refuses what makes no sense beside `hot_directories`, in phases of `phase_s` seconds, `phases` of which share the cold
    /// files.
    ///
    /// Errors: usage.
    pub(super) fn check(&self, hot_directories: u32, phase_s: f64, phases: f64) -> Result<()> {
        let (Range { start, end }, rate_per_s) = match self {
            Self::Cold { directories, rate_per_s, .. } => (directories.clone(), *rate_per_s),
            Self::Waiting { path, requests } => {
                if *requests == 0 || *requests > WAITING_MAX {
                    return usage(format!("{requests} requests that wait: 1 to {WAITING_MAX} are possible"));
                }
                if !path.starts_with('/') {
                    return usage(format!("a slow application at '{path}': its path begins with a slash"));
                }
                return Ok(());
            }
        };
        if end > DIRECTORIES_MAX {
            return usage(format!("directories are numbered below {DIRECTORIES_MAX}"));
        }
        if !(rate_per_s > 0.0 && rate_per_s <= RATE_MAX_PER_S) {
            return usage(format!(
                "the cold rate is {rate_per_s}: it must be above 0 and at most {RATE_MAX_PER_S}"
            ));
        }
        if start < hot_directories || start >= end {
            return usage(format!(
                "cold directories {start}..{end}: they must begin at {hot_directories} or above, after the hot ones, and not be empty"
            ));
        }
        // A Poisson count is below its mean plus six deviations in all but one of 10^9 runs.
        let mean = rate_per_s * phase_s * phases;
        let (needed, files) =
            (mean + 6.0 * mean.sqrt() + 10.0, f64::from(end - start) * f64::from(FILES_PER_DIRECTORY));
        if needed > files {
            return usage(format!(
                "{needed:.0} cold files may be asked for, each once, but the cold directories have {files:.0}: \
                 take more directories, a lower rate, shorter phases or fewer rounds"
            ));
        }
        Ok(())
    }
}
