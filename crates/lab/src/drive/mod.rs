//! Drives one server: the common part of `flash load`, `profile`, `compare`, `interfere` and the experiments.
//!
//! A [`Driver`] holds what stays the same for all levels of a run: the workload, the behaviour of the
//! users, the folder of results. The commands say which server gets which level when.

mod capacity;
mod level;
pub mod once;
mod out;
mod preflight;

use std::path::PathBuf;

use crate::results::{Run, Subject};
use flash_kit::Stop;
use flash_kit::{Ending, Error, Result, interrupt};
use flash_load::measure::Measures;
use flash_load::measure::Threshold;
use flash_load::target::Target;
use flash_load::workload::{self, Sessions, Spec, Workload};

pub use level::{Driven, Level, Served};
pub(crate) use level::{level_name, nanoseconds};
use out::Out;
pub use out::default_folder;

/// The longest phase, seconds: a day.
const PHASE_S_MAX: f64 = 86_400.0;
/// The most threads.
const THREADS_MAX: u32 = 64;
/// The most connections or clients: more than a machine has ports and memory for.
const CONNECTIONS_MAX: u32 = 1_000_000;

#[derive(Clone, Debug)]
pub struct Options {
    /// The files that are requested.
    pub workload: Spec,
    /// The source of the list of files, and the part of a log that is used.
    pub files: workload::Options,
    pub users: Users,
    /// The length of the warm-up before the first measurement, seconds.
    pub warm_up_s: f64,
    /// How long requests are started in a phase; none means as long as the arrivals last.
    pub duration_s: Option<f64>,
    /// How long to wait for the last answers after that.
    pub drain_s: f64,
    pub threads: u32,
    /// The cores that the generator may use; all when empty.
    pub cores: Vec<usize>,
    pub seed: u64,
    /// Whether the server may be on another machine.
    pub allow_remote: bool,
    /// The folder of the results; none to keep nothing.
    pub out: Option<PathBuf>,
    /// Limits for the results.
    pub require: Vec<Threshold>,
    pub command_line: Vec<String>,
}

impl Options {
    /// A log begins again when it ends, as levels and infinite demand need it: they have rates and
    /// durations of their own.
    pub fn with_endless_log(mut self) -> Self {
        self.files.log_loop = matches!(self.workload, Spec::Log { .. });
        self
    }
}

#[derive(Clone, Debug, Default)]
pub struct Users {
    pub connections_max: u32,
    /// After how many requests a client closes its connection, [`u32::MAX`] for never; none as the
    /// workload has it.
    pub requests_per_connection: Option<u32>,
    pub abort_after_s: Option<f64>,
    /// How often it then tries again.
    pub retries_max: u8,
    /// How fast it reads, at most.
    pub read_bytes_per_s: Option<u64>,
    /// Users of an open loop who make several requests each: the rates of arrivals stay those of all requests.
    pub sessions: Option<Sessions>,
    /// Whether every byte is compared with the file set.
    pub verify: bool,
}

/// Drives servers as one set of options says.
pub struct Driver {
    options: Options,
    workload: Workload,
    stop: Stop,
    /// None before the first preflight, and when nothing is kept.
    out: Option<Out>,
    run: Run,
    /// The levels so far, by name and clients: their places are their numbers in [`flash_load::workload::StreamId`].
    phases: Vec<(String, u32)>,
}

impl Driver {
    /// Checks the options and opens the workload. Signals end the run from here on, not the process. The
    /// folder of results is made when a server passes the preflight.
    ///
    /// Errors: usage, for invalid options; run, for a list or log that cannot be read.
    pub fn new(command: &str, mut options: Options) -> Result<Self> {
        check(&options)?;
        let workload = Workload::open(&options.workload, &options.files)?;
        if options.users.verify && !workload.catalogue().knows_contents() {
            return Err(Error::usage(
                "cannot verify: only files of `flash fileset` have known contents; give --files DIR",
            ));
        }
        let per_connection = options.users.requests_per_connection;
        options.users.requests_per_connection = per_connection.or(workload.requests_per_connection());
        for warning in workload.warnings() {
            eprintln!("warning: {warning}");
        }
        let machine = crate::testbed::machine();
        let _ = flash_waiting::process::raise_descriptor_limit();
        let stop = interrupt::watch()?;
        options.out.as_deref().map_or(Ok(()), Out::check)?;
        let run = level::describe(command, &options, &workload, machine);
        let driver = Self { options, workload, stop, out: None, run, phases: Vec::new() };
        driver.on_its_cores(|| Ok(()))?;
        Ok(driver)
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The files that are asked for.
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// A file of the results; none when nothing is kept.
    pub fn kept(&self, name: &str) -> Option<PathBuf> {
        self.out.as_ref().map(|out| out.path(name))
    }

    /// Whether a signal ended the run.
    pub fn is_interrupted(&self) -> bool {
        self.stop.is_set()
    }

    /// The results so far; the command adds to them.
    pub fn run_mut(&mut self) -> &mut Run {
        &mut self.run
    }

    /// Prints a warning about the figures, and keeps it with the results.
    pub fn note(&mut self, note: String) {
        eprintln!("warning: {note}");
        self.run.notes.push(note);
    }

    /// Saves the results so far with these subjects, so that little is lost when the process is killed.
    /// A disk that is full now may have room at the end.
    pub fn save(&self, subjects: &[Subject]) {
        let Some(out) = &self.out else { return };
        let mut run = self.run.clone();
        run.subjects.extend_from_slice(subjects);
        if let Err(why) = out.save(&run) {
            eprintln!("warning: {why}");
        }
    }

    /// From now on the workload draws from this many directories, counted from the first.
    ///
    /// Errors: as [`Workload::open`].
    pub fn draw_from(&mut self, directories: u32) -> Result<()> {
        let files = workload::Options { directories: Some(directories), ..self.options.files.clone() };
        self.workload = Workload::open(&self.options.workload, &files)?;
        Ok(())
    }

    /// Asks for something else from now on. The list of paths stays that of the first workload: keep
    /// records only of those whose files are numbered as there.
    pub(crate) fn turn_to(&mut self, spec: Spec, workload: Workload) {
        (self.options.workload, self.workload) = (spec, workload);
    }

    /// Saves the results, and returns them and whether a signal ended the run: for a command that draws
    /// them itself.
    ///
    /// Errors: run, for results that can't be written.
    pub(crate) fn close(self) -> Result<(Run, bool)> {
        if let Some(out) = &self.out {
            out.save(&self.run)?;
            out.list_paths(self.workload.catalogue())?;
        }
        Ok((self.run, self.stop.is_set()))
    }

    /// Prints the table, writes the report, and checks the requirements on every level.
    ///
    /// Errors: run, for results that can't be written.
    pub fn finish(self) -> Result<Ending> {
        self.finish_with(|_| true)
    }

    /// The same, with the requirements on these levels only.
    pub(crate) fn finish_with(mut self, is_required: impl Fn(&Measures) -> bool) -> Result<Ending> {
        let mut failed = false;
        let mut verdicts = Vec::new();
        for (subject, level) in each_level(&self.run).filter(|(_, level)| is_required(level)) {
            for requirement in &self.options.require {
                let verdict = requirement.check(level);
                failed |= !verdict.holds;
                let kept = if verdict.holds { "holds" } else { "FAILS" };
                let place = if subject.is_empty() {
                    level.name.clone()
                } else {
                    format!("{subject}, {}", level.name)
                };
                verdicts.push(format!("{place}: {} {kept}: {}", verdict.text, verdict.actual));
            }
        }
        self.run.notes.extend(verdicts.iter().map(|verdict| format!("required: {verdict}")));
        print!("{}", crate::report::table(&self.run));
        if let Some(out) = &self.out {
            out.save(&self.run)?;
            out.report(&self.run, self.workload.catalogue())?;
        }
        Ok(match (self.stop.is_set(), failed) {
            (true, _) => Ending::Interrupted,
            (false, true) => Ending::RequirementFailed,
            (false, false) => Ending::Done,
        })
    }
}

/// Every level of every subject, with the subject's name where there are several.
fn each_level(run: &Run) -> impl Iterator<Item = (&str, &Measures)> {
    let several = run.subjects.len() > 1;
    run.subjects.iter().flat_map(move |subject| {
        subject.levels.iter().map(move |level| (if several { subject.name.as_str() } else { "" }, level))
    })
}

fn check(options: &Options) -> Result<()> {
    let usage = |text: String| Err(Error::usage(text));
    let seconds = [
        ("warm-up", Some(options.warm_up_s), true),
        ("duration", options.duration_s, false),
        ("drain", Some(options.drain_s), true),
        ("time after which users abort", options.users.abort_after_s, false),
    ];
    for (name, value, may_be_zero) in seconds {
        let Some(value) = value else { continue };
        if !(value <= PHASE_S_MAX && (value > 0.0 || may_be_zero && value == 0.0)) {
            return usage(format!("the {name} is {value} s: it must be above 0 and at most a day"));
        }
    }
    if options.threads == 0 || options.threads > THREADS_MAX {
        return usage(format!("{} threads: 1 to {THREADS_MAX} are possible", options.threads));
    }
    let connections = options.users.connections_max;
    if connections < options.threads || connections > CONNECTIONS_MAX {
        return usage(format!(
            "{connections} connections: at least one a thread and at most {CONNECTIONS_MAX} are possible"
        ));
    }
    if options.users.requests_per_connection == Some(0) {
        return usage("no requests per connection: give at least 1".to_owned());
    }
    if options.users.read_bytes_per_s == Some(0) {
        return usage("users that read nothing: give at least 1 byte a second".to_owned());
    }
    if let Some(sessions) = options.users.sessions {
        sessions.check()?;
    }
    if options.users.retries_max > 0 && options.users.abort_after_s.is_none() {
        return usage("users retry only what they aborted: give --abort-after too".to_owned());
    }
    Ok(())
}

/// Takes a URL for a driver.
///
/// Errors: as [`Target::parse`].
pub fn target(options: &Options, url: &str) -> Result<Target> {
    Target::parse(url, options.allow_remote)
}
