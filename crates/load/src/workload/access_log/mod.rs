//! Logs: the requests that a server once had, with their times.
//!
//! [`super::Workload`] replays them, `flash fileset` makes files for them. Reads a log before a
//! run, whole, into a compact form.
//!
//! Known are the Common and the Combined Log Format, the World Cup 98 format and the JSON lines of Flash's own log, each
//! also gzipped; the contents decide which. A replay sends the GETs whose answer carried a file: status 200, 206 (for which the
//! whole file is then asked) and 304 (which says nothing of the length). A file is as long as the most
//! that one request got of it; one that was only ever answered 304 counts as empty, for no byte of
//! it was sent. Lines that are left out are counted by reason.

mod clf;
mod json;
pub mod made;
mod read;
mod replay;
mod worldcup;

use std::collections::HashMap;
use std::path::Path;

use super::catalogue::Listed;
use flash_kit::number::size;
use flash_kit::{Error, Result};

pub(crate) use replay::Replay;

/// The most requests of a log; they take 12 bytes each while it is read and sorted, then 4.
const REQUESTS_MAX: usize = 64 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// Unix seconds.
    at_s: u32,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    /// To be replayed.
    Get {
        /// As it may stand in a request.
        path: Box<str>,
        /// How much of it was sent; none when the status says nothing of it.
        file_bytes: Option<u64>,
    },
    /// Left out: no GET.
    OtherMethod,
    /// Left out: neither 200 nor 206 nor 304.
    OtherStatus,
    /// Left out: what was asked for is no path.
    NoPath,
}

/// How a replay treats a GET with that answer.
fn what_of(status: u16, file_bytes: u64, path: impl FnOnce() -> Option<Box<str>>) -> What {
    let file_bytes = match status {
        200 | 206 => Some(file_bytes),
        304 => None,
        _ => return What::OtherStatus,
    };
    path().map_or(What::NoPath, |path| What::Get { path, file_bytes })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Timed {
    /// Unix seconds.
    at_s: u32,
    /// Its number in [`AccessLog::files`].
    path_id: u32,
}

#[derive(Debug, Default)]
pub struct AccessLog {
    requests: Vec<Timed>,
    /// In the order in which they are first asked for.
    files: Vec<Listed>,
    warnings: Vec<String>,
}

impl AccessLog {
    /// Reads a log, at most this many lines or records of it.
    ///
    /// Errors: run, for a file that cannot be read or that has no request to replay.
    pub fn read(file: &Path, lines_max: Option<u64>) -> Result<Self> {
        read::read(file, lines_max.unwrap_or(u64::MAX))
    }

    /// The files that are asked for, in the order in which they first are.
    pub fn files(&self) -> &[Listed] {
        &self.files
    }

    pub fn len(&self) -> usize {
        self.requests.len()
    }

    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Warnings about lines that were left out or odd.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Keeps the first requests, as many as ask for files of `dataset_bytes` at most (the Flash paper,
    /// section 6.2, gets its data set sizes so).
    ///
    /// Errors: usage, when the first file alone is larger.
    pub fn truncate(&mut self, dataset_bytes: u64) -> Result<()> {
        let (mut files, mut sum_bytes) = (0, 0_u64);
        // A file's number is its turn, so the next new one always has the next number.
        for file in &self.files {
            sum_bytes = sum_bytes.saturating_add(file.file_bytes.unwrap_or(0));
            if sum_bytes > dataset_bytes {
                break;
            }
            files += 1;
        }
        if files == 0 {
            return Err(Error::usage(format!(
                "a data set of {} does not hold the first file of the log, {} of {}: allow more",
                size(dataset_bytes as f64),
                self.files[0].path,
                size(sum_bytes as f64)
            )));
        }
        let end = self.requests.iter().position(|request| request.path_id as usize >= files);
        self.requests.truncate(end.unwrap_or(self.requests.len()));
        self.files.truncate(files);
        Ok(())
    }

    /// Turns the numbers of files into those of another list, by path. Requests for files that the
    /// list lacks are left out and counted.
    ///
    /// Errors: usage, when it lacks all.
    pub(super) fn map<'a>(&mut self, paths: impl Iterator<Item = &'a str>, list: &Path) -> Result<()> {
        let mut ids: HashMap<&str, u32> = HashMap::new();
        for (path_id, path) in (0..).zip(paths) {
            ids.entry(path).or_insert(path_id);
        }
        let mapped: Vec<_> = self.files.iter().map(|file| ids.get(&*file.path).copied()).collect();
        let before = self.requests.len();
        self.requests.retain_mut(|request| match mapped[request.path_id as usize] {
            Some(path_id) => {
                request.path_id = path_id;
                true
            }
            None => false,
        });
        let missing = self.files.iter().zip(&mapped).find(|(_, mapped)| mapped.is_none());
        let Some((first, _)) = missing else { return Ok(()) };
        let lost = format!(
            "{} of {before} requests are for files that {} lacks, {} first",
            before - self.requests.len(),
            list.display(),
            first.path
        );
        if self.requests.is_empty() {
            return Err(Error::usage(format!("{lost}: it is the list of another set")));
        }
        self.warnings.push(format!("{lost}; they are left out"));
        Ok(())
    }

    /// Sorts by time, keeping the order of equal times, and numbers the files anew. Gives how many
    /// requests stood after a later one.
    fn sort(&mut self) -> usize {
        let (mut latest_s, mut early) = (0, 0);
        for request in &self.requests {
            early += usize::from(request.at_s < latest_s);
            latest_s = latest_s.max(request.at_s);
        }
        if early > 0 {
            self.requests.sort_by_key(|request| request.at_s);
            let mut numbers = vec![u32::MAX; self.files.len()];
            let mut next = 0;
            for request in &mut self.requests {
                let number = &mut numbers[request.path_id as usize];
                if *number == u32::MAX {
                    *number = next;
                    next += 1;
                }
                request.path_id = *number;
            }
            let mut files: Vec<_> = numbers.into_iter().zip(std::mem::take(&mut self.files)).collect();
            files.sort_unstable_by_key(|(number, _)| *number);
            self.files = files.into_iter().map(|(_, file)| file).collect();
        }
        early
    }
}

#[cfg(test)]
#[path = "access_log_tests.rs"]
mod tests;
