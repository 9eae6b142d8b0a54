//! A workload, made from its name and the files that it is to draw from.
//!
//! The commands open one and give its demands to the load. Reads lists and logs, asks no server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Demand;
use super::access_log::{AccessLog, Replay};
use super::catalogue::{Catalogue, Listed};
use super::choice::Choice;
use super::demand::{Arrivals, Chance, OneThread, Source, stream};
use super::dynamic;
use super::list::{Generated, List, escaped};
use super::sessions::{Sessions, partly_open};
use super::spec::Spec;
use crate::files::MANIFEST;
use crate::files::layout::{DIRECTORIES_MAX, FILES_PER_DIRECTORY};
use flash_kit::number::size;
use flash_kit::{Error, Result};

/// Requests on a connection where SPECweb99 is meant (blocking-induced-latency, section 2.3).
const SPECWEB99_REQUESTS_PER_CONNECTION: u32 = 5;

/// Which files a workload draws from, and how a log is cut. All may be left out, except files
/// to draw from. The comments of options are their help.
#[derive(Clone, Debug, Default, clap::Args)]
// Another struct of the same command has this name, too.
#[group(skip)]
#[command(next_help_heading = "Workload")]
pub struct Options {
    /// Folder of a file set made by `flash fileset`
    #[arg(long = "files", value_name = "DIR", value_hint = clap::ValueHint::DirPath, value_parser = manifest_in)]
    pub manifest: Option<PathBuf>,

    /// Use only the first N directories of the SPECweb99 set
    #[arg(long, value_name = "N")]
    pub directories: Option<u32>,

    /// File that lists the paths to request, one per line, optionally after its method and before its length
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, conflicts_with = "manifest")]
    pub paths: Option<PathBuf>,

    /// Use only the start of a log, until its distinct files add up to SIZE
    #[arg(long = "data-set", value_name = "SIZE", value_parser = flash_units::parse_memory_bytes)]
    pub dataset_bytes: Option<u64>,

    /// Repeat the log when it ends
    #[arg(long)]
    pub log_loop: bool,

    // The older name of --log-loop.
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "",
          value_parser = |_: &str| Err::<String, _>("it is named --log-loop"))]
    pub trace_loop: Option<String>,

    /// Share of the requests that an application answers, such as 30%: each for a file, below --dynamic-prefix
    #[arg(long, value_name = "SHARE", value_parser = dynamic::parse_share)]
    pub dynamic: Option<f64>,

    /// Path prefix of dynamic requests
    #[arg(long, value_name = "PREFIX", default_value = dynamic::PREFIX, value_parser = dynamic::checked_prefix)]
    pub dynamic_prefix: String,

    // The seed of the contents; a manifest of `flash fileset` knows it.
    #[arg(skip)]
    pub content_seed: Option<u64>,

    // Read at most this many lines or records of a log.
    #[arg(skip)]
    pub log_lines_max: Option<u64>,
}

fn manifest_in(folder: &str) -> std::result::Result<PathBuf, String> {
    match folder {
        "" => Err("give a folder".to_owned()),
        _ => Ok(Path::new(folder).join(MANIFEST)),
    }
}

/// A set of files, and a way to choose among them.
#[derive(Clone, Debug)]
pub struct Workload {
    catalogue: Arc<Catalogue>,
    source: Source,
    dynamic: Option<Chance>,
    requests_per_connection: Option<u32>,
    /// The server that the URLs of a list name.
    server: Option<Box<str>>,
    description: String,
    warnings: Vec<String>,
}

impl Workload {
    /// Makes a workload; reads what the options name.
    ///
    /// Errors: usage, for options that do not go together or lists that are none; run, for files that
    /// cannot be read.
    pub fn open(spec: &Spec, options: &Options) -> Result<Self> {
        if !matches!(spec, Spec::Log { .. })
            && (options.dataset_bytes.is_some() || options.log_loop || options.log_lines_max.is_some())
        {
            return Err(Error::usage("only a log can be cut to a data set size or looped: use log:FILE"));
        }
        if matches!(spec, Spec::Log { .. }) && options.dynamic.is_some() {
            return Err(Error::usage("a log has all its requests: leave --dynamic out"));
        }
        let set = match spec {
            Spec::List { file } => Set::listed_in(file, options)?,
            _ => Set::open(options)?,
        };
        let server = set.as_ref().and_then(|set| set.server.clone());
        let workload = Self { server, ..Self::open_static(spec, options, set)? };
        Ok(match options.dynamic {
            Some(share) => workload.with_dynamic(share, &options.dynamic_prefix),
            None => workload,
        })
    }

    fn with_dynamic(self, share: f64, prefix: &str) -> Self {
        let catalogue = Catalogue::clone(&self.catalogue).with_dynamic(prefix);
        let chance = Chance { share, first: catalogue.len() };
        let percent = (share * 1e4).round() / 1e2;
        let description =
            format!("{}; {percent} % of the requests dynamic, below {prefix}", self.description);
        Self { catalogue: Arc::new(catalogue), dynamic: Some(chance), description, ..self }
    }

    fn open_static(spec: &Spec, options: &Options, set: Option<Set>) -> Result<Self> {
        match spec {
            Spec::Log { file } => Self::open_log(file, options, set),
            Spec::Single { path } => Self::open_single(path, set),
            Spec::Specweb99 => Self::open_specweb99(set),
            Spec::Pareto => Self::open_pareto(set),
            Spec::List { .. } => Self::open_drawn(set, "each in turn", Choice::in_turn),
            Spec::Uniform => Self::open_drawn(set, "each file equally often", Choice::uniform),
            Spec::Zipf { alpha } => {
                let how = format!("files by Zipf's law with alpha {alpha}, in the order of the list");
                Self::open_drawn(set, &how, |files| Choice::zipf(files, *alpha))
            }
        }
    }

    fn open_specweb99(set: Option<Set>) -> Result<Self> {
        let needs = || {
            Error::usage(
                "the workload specweb99 needs a number of directories or the manifest of `flash fileset specweb99`",
            )
        };
        let set = set.filter(|set| set.directories.is_some()).ok_or_else(needs)?;
        let directories = set.directories.unwrap_or_default();
        let source = Source::Drawn(Choice::specweb99(directories).ok_or_else(needs)?);
        let description = format!("SPECweb99, {}", set.summary);
        let requests_per_connection = Some(SPECWEB99_REQUESTS_PER_CONNECTION);
        Ok(Self { requests_per_connection, ..Self::new(set.catalogue, source, description) })
    }

    fn open_pareto(set: Option<Set>) -> Result<Self> {
        let set = set.filter(|set| set.is_pareto).ok_or_else(|| {
            Error::usage("the workload pareto needs the manifest of `flash fileset pareto`: give --files DIR")
        })?;
        Self::open_drawn(Some(set), "lengths with a heavy tail", Choice::deck)
    }

    fn open_drawn(set: Option<Set>, how: &str, choice: impl Fn(u32) -> Option<Choice>) -> Result<Self> {
        let needs = || {
            Error::usage(
                "there are no files to draw from: give a manifest, a list of paths or a number of directories",
            )
        };
        let set = set.ok_or_else(needs)?;
        let source = Source::Drawn(choice(set.catalogue.len()).ok_or_else(needs)?);
        let description = format!("{how}, {}", set.summary);
        Ok(Self::new(set.catalogue, source, description))
    }

    fn open_single(path: &str, set: Option<Set>) -> Result<Self> {
        let path = escaped(path.as_bytes());
        let description = format!("the one path {path}");
        let found = set.and_then(|set| {
            let mut written = Vec::new();
            let path_id = (0..set.catalogue.len()).find(|&path_id| {
                written.clear();
                set.catalogue.write_path(path_id, &mut written);
                written == path.as_bytes()
            })?;
            Some((path_id, set.catalogue.file_bytes(path_id), set.catalogue.content_seed()))
        });
        let (first, file_bytes, seed) = found.unwrap_or_default();
        let catalogue = Catalogue::listed(vec![Listed { path, file_bytes }]).with_contents(seed, first);
        Ok(Self::new(catalogue, Source::Drawn(Choice::Uniform(1)), description))
    }

    fn open_log(file: &Path, options: &Options, set: Option<Set>) -> Result<Self> {
        let mut log = AccessLog::read(file, options.log_lines_max)?;
        if let Some(dataset_bytes) = options.dataset_bytes {
            log.truncate(dataset_bytes)?;
        }
        let catalogue = match set {
            Some(set) => {
                set.map(&mut log)?;
                set.catalogue
            }
            None => Catalogue::listed(log.files().to_vec()),
        };
        let replay = Replay::new(&log);
        let description = format!(
            "log {}: {} requests in {} s, {} files in the catalogue{}{}",
            file.file_name().unwrap_or_default().to_string_lossy(),
            replay.len(),
            replay.duration_ns() / 1_000_000_000,
            catalogue.len(),
            size_text(&catalogue),
            if options.log_loop { ", looped" } else { "" },
        );
        let source = Source::Log { replay: Arc::new(replay), is_loop: options.log_loop };
        let warnings = log.warnings().to_vec();
        Ok(Self { warnings, ..Self::new(catalogue, source, description) })
    }

    fn new(catalogue: Catalogue, source: Source, description: String) -> Self {
        let catalogue = Arc::new(catalogue);
        let (dynamic, requests_per_connection, server, warnings) = (None, None, None, Vec::new());
        Self { catalogue, source, dynamic, requests_per_connection, server, description, warnings }
    }

    pub fn catalogue(&self) -> &Arc<Catalogue> {
        &self.catalogue
    }

    /// The server that the URLs of a list name: scheme and authority.
    pub fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    pub fn describe(&self) -> String {
        self.description.clone()
    }

    /// Warnings about lines that were left out or odd.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    pub fn requests_per_connection(&self) -> Option<u32> {
        self.requests_per_connection
    }

    fn log(&self) -> Option<&Replay> {
        match &self.source {
            Source::Log { replay, .. } => Some(replay),
            Source::Drawn(_) => None,
        }
    }

    /// The requests per second of a log at its own speed; none for other workloads.
    pub fn log_mean_rate_per_s(&self) -> Option<f64> {
        self.log().map(Replay::mean_rate_per_s)
    }

    /// The same over its first seconds, over as many of them as it has unless it is looped.
    pub fn log_rate_per_s(&self, duration_s: f64) -> Option<f64> {
        match &self.source {
            Source::Log { replay, is_loop: false } => Some(replay.rate_per_s(duration_s)),
            _ => self.log_mean_rate_per_s(),
        }
    }

    /// The mean of `value` over the lengths of the requested files, bytes, each as often as it is requested; none where a
    /// length is not known, as with dynamic requests.
    pub fn mean_of(&self, value: impl Fn(u64) -> f64) -> Option<f64> {
        if self.dynamic.is_some() {
            return None;
        }
        let of_file = |path_id| self.catalogue.file_bytes(path_id).map(&value);
        match &self.source {
            Source::Drawn(choice) => choice.mean(of_file),
            Source::Log { replay, .. } => replay.mean(of_file),
        }
    }

    /// How long a log takes at its own speed, once; none for other workloads.
    pub fn log_duration_s(&self) -> Option<f64> {
        self.log().map(|replay| replay.duration_ns() as f64 / 1e9)
    }

    /// The request sequence of each thread; together they are the whole. A seed repeats them for the same
    /// number of threads.
    pub fn demands(&self, arrivals: &Arrivals, seed: u64, threads: u32) -> Vec<Box<dyn Demand>> {
        let row = |thread| -> Box<dyn Demand> {
            let stream = stream(&self.source, arrivals, seed, OneThread { number: thread, of: threads });
            match self.dynamic {
                Some(chance) => Box::new(stream.with_dynamic(chance, seed, thread)),
                None => Box::new(stream),
            }
        };
        (0..threads).map(row).collect()
    }

    /// The same of partly-open users, whose arrivals are a part of the requests: as many requests start as `arrivals` say, on
    /// average.
    ///
    /// Errors: usage, for users who make less than one request, or arrivals of a closed loop or of a log, whose requests are
    /// all given.
    pub fn partly_open(
        &self,
        arrivals: &Arrivals,
        sessions: Sessions,
        seed: u64,
        threads: u32,
    ) -> Result<Vec<Box<dyn Demand>>> {
        sessions.check()?;
        let users = arrivals.thinned(sessions.requests_mean).ok_or_else(|| {
            Error::usage(
                "users come back only in an open loop of drawn files: leave --session out, or give a rate",
            )
        })?;
        if self.log_duration_s().is_some() {
            return Err(Error::usage("a log has all requests of its users: leave --session out"));
        }
        let demands = (0..).zip(self.demands(&users, seed, threads));
        Ok(demands.map(|(thread, users)| partly_open(users, sessions, seed, thread)).collect())
    }
}

fn size_text(catalogue: &Catalogue) -> String {
    catalogue.dataset_bytes().map(|bytes| format!(", {}", size(bytes as f64))).unwrap_or_default()
}

/// The files that the options name.
struct Set {
    catalogue: Catalogue,
    /// The files are those of SPECweb99 with this many directories.
    directories: Option<u32>,
    /// The files are those of `flash fileset pareto`.
    is_pareto: bool,
    /// The list that they are from, with the names that a log has for them.
    list: Option<(PathBuf, Vec<Option<Box<str>>>)>,
    /// The server that the URLs of the list name.
    server: Option<Box<str>>,
    summary: String,
}

impl Set {
    /// The lines of a list, which is the whole set.
    fn listed_in(file: &Path, options: &Options) -> Result<Option<Self>> {
        if options.manifest.is_some() || options.paths.is_some() || options.directories.is_some() {
            return Err(Error::usage(
                "list:FILE has all paths: leave --files, --paths and --directories out",
            ));
        }
        let options = Options { paths: Some(file.to_owned()), content_seed: None, ..options.clone() };
        Self::open(&options)
    }

    fn open(options: &Options) -> Result<Option<Self>> {
        let (path, list) = match (&options.manifest, &options.paths) {
            (Some(_), Some(_)) => {
                return Err(Error::usage("both a manifest and a list of paths are given: give one"));
            }
            (Some(path), None) | (None, Some(path)) => (path, List::read(path)?),
            (None, None) => return Self::of_directories(options.directories, None, options.content_seed),
        };
        let seed = content_seed(options.content_seed, list.generated.as_ref(), path)?;
        let is_of = |kind: &str| list.generated.as_ref().is_some_and(|made| made.kind == kind);
        if is_of("specweb99") {
            let listed = list.files.len() as u32 / FILES_PER_DIRECTORY;
            return Self::of_directories(options.directories, Some(listed), seed);
        }
        if options.directories.is_some() {
            return Err(Error::usage(format!(
                "a number of directories is given, but {} is no manifest of `flash fileset specweb99`",
                path.display()
            )));
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_pareto = is_of("pareto");
        let summary = format!("{} files of {name}", list.files.len());
        let catalogue = Catalogue::listed(list.files).with_contents(seed, 0).with_methods(list.methods);
        let summary = summary + &size_text(&catalogue);
        let server = list.server;
        let list = Some((path.clone(), list.originals));
        Ok(Some(Self { catalogue, directories: None, is_pareto, list, server, summary }))
    }

    /// The layout of the requested directories, or of those that exist.
    fn of_directories(asked: Option<u32>, made: Option<u32>, seed: Option<u64>) -> Result<Option<Self>> {
        let Some(directories) = asked.or(made) else { return Ok(None) };
        let most = made.unwrap_or(DIRECTORIES_MAX);
        if directories == 0 || directories > most {
            return Err(Error::usage(format!(
                "the set cannot have {directories} directories: 1 to {most} are possible"
            )));
        }
        let catalogue = Catalogue::specweb99(directories, seed);
        let summary =
            format!("{directories} directories of {FILES_PER_DIRECTORY} files{}", size_text(&catalogue));
        let (list, server) = (None, None);
        Ok(Some(Self { catalogue, directories: Some(directories), is_pareto: false, list, server, summary }))
    }

    /// Gives the requests of a log the numbers of this set's files.
    fn map(&self, log: &mut AccessLog) -> Result<()> {
        let Some((path, originals)) = &self.list else {
            return Err(Error::usage(
                "a log needs no directories, and its files are none of SPECweb99's: give the manifest of \
                 `flash fileset log:FILE`, a list of paths, or neither",
            ));
        };
        let mut paths = Vec::with_capacity(self.catalogue.len() as usize);
        for path_id in 0..self.catalogue.len() {
            let original = originals.get(path_id as usize).and_then(Option::as_deref);
            paths.push(original.unwrap_or(self.catalogue.listed_path(path_id)));
        }
        log.map(paths.into_iter(), path)
    }
}

/// The seed of the contents of a list's files, when they have one.
fn content_seed(asked: Option<u64>, made: Option<&Generated>, path: &Path) -> Result<Option<u64>> {
    match (asked, made) {
        (Some(seed), Some(made)) if seed != made.seed => Err(Error::usage(format!(
            "the contents are to have seed {seed}, but {} says {}",
            path.display(),
            made.seed
        ))),
        (Some(_), None) => Err(Error::usage(format!(
            "the contents of the files of {} are not known: only manifests of `flash fileset` have a seed",
            path.display()
        ))),
        (_, made) => Ok(made.map(|made| made.seed)),
    }
}

#[cfg(test)]
#[path = "open_tests.rs"]
mod tests;
