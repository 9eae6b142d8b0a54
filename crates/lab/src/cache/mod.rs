//! How much memory a site needs: `flash cache simulate`.
//!
//! The command line calls [`run`]. It replays the requests of a log or a workload against replacement policies with several
//! sizes of memory and counts disk reads. It involves no server and no clock: only the order of the requests matters.

mod answer;
mod policies;
mod requests;
mod simulate;
mod view;

use std::fs;
use std::path::PathBuf;

use crate::report::REPORT_FILE;
use crate::results::folder::write_whole;
use flash_kit::{Error, Result, number};
use flash_load::files::layout::directories_for;
use flash_load::workload::{self, Arrivals, Catalogue, Spec, Workload};
use flash_units::parse_memory_bytes;

use policies::Name as Policy;
pub use requests::BLOCK_BYTES;
pub use simulate::Outcome;

use answer::Answer;
use requests::Requests;

const REQUESTS_MAX: u64 = 64 << 20;
/// The set that a workload draws from when none is given: the one of `bench/`.
const SET_BYTES: u64 = 3_000_000_000;
/// By default the memory doubles this many times, up to the size of all requested files.
const DOUBLINGS: u32 = 6;

/// The options of `flash cache simulate`. Their comments are their help.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    // Where the requests come from.
    #[arg(skip = Spec::Specweb99)]
    pub source: Spec,

    // The files; without any, the SPECweb99 set of 3 GB.
    #[arg(skip)]
    pub files: workload::Options,

    /// Number of random requests
    #[arg(long, value_name = "N", default_value_t = 2_000_000, help_heading = "Workload",
          value_parser = clap::value_parser!(u64).range(1..=REQUESTS_MAX))]
    pub requests: u64,

    /// Seed of the random choices
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Workload")]
    pub seed: u64,

    /// Cache sizes, such as 256MiB,512MiB,1GiB [default: doubling from 1/64 of the requested files to all of them]
    #[arg(long = "memory", value_name = "SIZES", value_delimiter = ',', value_parser = parse_memory_bytes,
          help_heading = "Caches")]
    pub memory_bytes: Vec<u64>,

    /// Policies to simulate, such as lru,flash [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Caches")]
    pub policies: Vec<Policy>,

    /// Fraction of the requests that only fills the cache and is not counted
    #[arg(long = "warm-up", value_name = "SHARE", default_value_t = 0.5, help_heading = "Caches")]
    pub warm_up_share: f64,

    /// Write report.html, with plots, and report.json to this folder
    #[arg(long, alias = "output", value_name = "DIR", value_hint = clap::ValueHint::DirPath, help_heading = "Results")]
    pub out: Option<PathBuf>,

    /// Print JSON instead of the table
    #[arg(long = "json", help_heading = "Results")]
    pub is_json: bool,
}

/// The input of a simulation and its results.
#[derive(Clone, Debug)]
struct Simulated {
    /// The requests in words.
    workload: String,
    warnings: Vec<String>,
    requests: usize,
    warm_up: usize,
    files: usize,
    set_bytes: u64,
    /// The results, by memory, then by policy.
    outcomes: Vec<Outcome>,
    answer: Answer,
}

/// Runs the simulation and returns the text to print. Warnings go to standard error; a page goes to the folder.
///
/// Errors: usage, for options that do not go together; run, for files that cannot be read or written.
pub fn run(options: &Options) -> Result<String> {
    if !(0.0..1.0).contains(&options.warm_up_share) {
        return Err(Error::usage("the warm-up must be a share from 0 to less than 1, such as 0.5"));
    }
    if options.memory_bytes.contains(&0) || options.requests == 0 || options.requests > REQUESTS_MAX {
        return Err(Error::usage(format!(
            "memory must be more than 0, and requests from 1 to {REQUESTS_MAX}"
        )));
    }
    let simulated = simulated(options)?;
    for warning in &simulated.warnings {
        eprintln!("warning: {warning}");
    }
    if let Some(folder) = &options.out {
        fs::create_dir_all(folder).map_err(|why| Error::file("make", folder, &why))?;
        let path = folder.join(REPORT_FILE);
        write_whole(&path, &view::sheet(&simulated).html())?;
        write_whole(&path.with_extension("json"), &view::json(&simulated))?;
    }
    Ok(if options.is_json { view::json(&simulated) } else { view::table(&simulated) })
}

fn simulated(options: &Options) -> Result<Simulated> {
    let mut files = options.files.clone();
    let has_files = files.manifest.is_some() || files.paths.is_some() || files.directories.is_some();
    if !has_files && !matches!(options.source, Spec::Log { .. }) {
        files.directories = Some(directories_for(SET_BYTES) as u32);
    }
    let workload = Workload::open(&options.source, &files)?;
    let requests = drawn(&workload, options)?;
    let mut warnings = workload.warnings().to_vec();
    let set_bytes = requests.asked_bytes();
    if set_bytes == 0 {
        return Err(Error::usage(format!(
            "{}: no file is longer than 0 bytes, so no memory is needed: give lengths, or a log with status 200",
            workload.describe()
        )));
    }
    if let Some(small) = options.memory_bytes.iter().find(|bytes| **bytes < BLOCK_BYTES) {
        warnings.push(format!(
            "{} of memory are less than a block of a large file, {}",
            number::binary_size(*small),
            number::binary_size(BLOCK_BYTES)
        ));
    }
    let mut memory_bytes = options.memory_bytes.clone();
    if memory_bytes.is_empty() {
        memory_bytes = (0..=DOUBLINGS).rev().map(|halvings| set_bytes.div_ceil(1 << halvings)).collect();
    }
    memory_bytes.sort_unstable();
    memory_bytes.dedup();
    let mut policies = options.policies.clone();
    if policies.is_empty() {
        policies = Policy::ALL.to_vec();
    }
    // In the order of the table, each once.
    policies.sort_unstable_by_key(|policy| Policy::ALL.iter().position(|other| other == policy));
    policies.dedup();
    let warm_up = (requests.asked.len() as f64 * options.warm_up_share) as usize;
    let of = |policy, bytes| simulate::simulate(policy, bytes, &requests, warm_up);
    let outcomes: Vec<Outcome> =
        memory_bytes.iter().flat_map(|bytes| policies.iter().map(|policy| of(*policy, *bytes))).collect();
    // The operator runs Flash; without it in the list, the first of the list is meant.
    let policy = policies.iter().copied().find(|policy| *policy == Policy::Flash).unwrap_or(policies[0]);
    let answer = Answer::of(policy, &outcomes, |bytes| of(policy, bytes));
    Ok(Simulated {
        workload: workload.describe(),
        warnings,
        requests: requests.asked.len(),
        warm_up,
        files: requests.asked_files(),
        set_bytes,
        outcomes,
        answer,
    })
}

fn drawn(workload: &Workload, options: &Options) -> Result<Requests> {
    let catalogue = workload.catalogue();
    let mut asked = Vec::new();
    let requests_max = match options.source {
        Spec::Log { .. } => REQUESTS_MAX,
        _ => options.requests,
    };
    for mut demand in workload.demands(&Arrivals::Closed, options.seed, 1) {
        while let Some(file) = demand.next_path().filter(|_| (asked.len() as u64) < requests_max) {
            asked.push(file);
        }
    }
    let merged = files_of(catalogue);
    let mut lengths = vec![0; catalogue.len() as usize];
    let mut unknown = None;
    for (path_id, file) in (0..catalogue.len()).zip(&merged) {
        let bytes = catalogue.file_bytes(path_id);
        if bytes.is_none() && !matches!(options.source, Spec::Log { .. }) {
            unknown = Some(path_id);
        }
        let length: &mut u64 = &mut lengths[*file as usize];
        *length = (*length).max(bytes.unwrap_or(0));
    }
    if let Some(path_id) = unknown {
        return Err(Error::usage(format!(
            "the length of {} is not known: write it behind each path of the list",
            catalogue.listed_path(path_id)
        )));
    }
    asked.iter_mut().for_each(|file| *file = merged[*file as usize]);
    Requests::new(lengths.into_iter(), asked).ok_or_else(|| {
        Error::run(format!("the files have more than {} blocks of {BLOCK_BYTES} bytes", u32::MAX))
    })
}

/// The file of each path: paths that differ only in their query are one file.
fn files_of(catalogue: &Catalogue) -> Vec<u32> {
    let mut firsts = std::collections::HashMap::new();
    (0..catalogue.len())
        .map(|path_id| {
            let path = catalogue.listed_path(path_id);
            match path.split_once('?') {
                None if path.is_empty() => path_id,
                None => *firsts.entry(path).or_insert(path_id),
                Some((path, _)) => *firsts.entry(path).or_insert(path_id),
            }
        })
        .collect()
}
#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
