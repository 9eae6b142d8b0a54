//! Drives one server: the common part of `flash load`, `profile`, `compare`, `interfere` and the experiments.
//!
//! A [`Driver`] holds what stays the same for all levels of a run: the workload, the behaviour of the
//! users, the folder of results. The commands say which server gets which level when.

mod capacity;
mod level;
pub mod once;
mod out;
mod preflight;
pub mod shown;
pub mod wire;

use std::path::PathBuf;
use std::sync::Arc;

use crate::report::{self, Format};
use crate::results::{Run, Subject};
use flash_kit::Stop;
use flash_kit::{Ending, Error, Result, interrupt};
use flash_load::generator::message::{self, Message};
use flash_load::measure::Measures;
use flash_load::measure::Threshold;
use flash_load::target::Target;
use flash_load::workload::{self, Sessions, Spec, Workload};
use flash_units::{parse_duration_s, parse_size_bytes};

pub use level::{Driven, Level, Served};
pub(crate) use level::{level_name, nanoseconds};
use out::Out;
pub use out::default_folder;
use wire::Wire;

/// The longest phase, seconds: a day.
const PHASE_S_MAX: f64 = 86_400.0;
const THREADS_MAX: u32 = 64;
/// The most connections or clients: more than a machine has ports and memory for.
const CONNECTIONS_MAX: u32 = 1_000_000;

/// The options of the commands that drive servers. Their comments are their help.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    // The files that are requested: each command has its own option for them.
    #[arg(skip = Spec::Specweb99)]
    pub workload: Spec,

    #[command(flatten)]
    pub files: workload::Options,

    #[command(flatten)]
    pub users: Users,

    #[command(flatten)]
    pub message: message::Options,

    #[command(flatten)]
    pub wire: wire::Options,

    /// Seed of the random arrivals and file choices
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Workload")]
    pub seed: u64,

    /// Send load for this long before measuring
    #[arg(long = "warm-up", value_name = "TIME", value_parser = parse_duration_s, default_value = "2s",
          help_heading = "Run")]
    pub warm_up_s: f64,

    /// Send load for this long at each level [default: 30s; load: 10s, or the whole log]
    #[arg(long = "duration", value_name = "TIME", value_parser = parse_duration_s, help_heading = "Run")]
    pub duration_s: Option<f64>,

    /// Then wait at most this long for the last answers
    #[arg(long = "drain", value_name = "TIME", value_parser = parse_duration_s, default_value = "30s",
          help_heading = "Run")]
    pub drain_s: f64,

    /// Threads of the load generator
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Run")]
    pub threads: u32,

    /// Cores for the load generator, such as 1 or 2,3 [default: all except that of a started server]
    #[arg(long, value_name = "N", value_delimiter = ',', help_heading = "Run")]
    pub cores: Vec<usize>,

    /// Wait for requests and answers without polling: less CPU time, and latencies with the time that waking takes
    #[arg(long, help_heading = "Run")]
    pub no_poll: bool,

    /// Allow a server that is not on this machine
    #[arg(long, help_heading = "Run")]
    pub allow_remote: bool,

    /// Write the results to this folder [default: flash-COMMAND-DATE-TIME]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath, help_heading = "Results")]
    pub out: Option<PathBuf>,

    /// Print the table and write no results
    #[arg(long, conflicts_with = "out", help_heading = "Results")]
    pub discard: bool,

    #[command(flatten)]
    pub shown: shown::Options,

    /// Exit with 3 if a level exceeds this limit, such as 'p99<5ms' or 'errors<0.1%'
    #[arg(long, value_name = "LIMIT", help_heading = "Results")]
    pub require: Vec<Threshold>,
}

impl Options {
    /// Those of `command`, with its workload and a folder for its results.
    pub fn of_command(mut self, command: &str, workload: Spec) -> Self {
        self.workload = workload;
        if !self.discard {
            self.out.get_or_insert_with(|| default_folder(command));
        }
        self
    }

    /// A log begins again when it ends, as levels and infinite demand need it: they have rates and
    /// durations of their own.
    pub fn with_endless_log(mut self) -> Self {
        self.files.log_loop = matches!(self.workload, Spec::Log { .. });
        self
    }
}

/// The behaviour of users. Comments of options are their help.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Users")]
pub struct Users {
    /// Check every received byte against the file set
    #[arg(long, help_heading = "Workload")]
    pub verify: bool,

    /// Maximum open connections; also the number of clients of the burst that begins the search for the capacity
    #[arg(long = "connections", value_name = "N", default_value_t = 1024)]
    pub connections_max: u32,

    /// Close a connection after N requests, or never if `unlimited` [default: 5 for specweb99 over HTTP/1.1,
    /// else unlimited]
    #[arg(long, value_name = "N", value_parser = per_connection)]
    pub requests_per_connection: Option<u32>,

    /// Abort a request after this time [default: never]
    #[arg(long = "abort-after", value_name = "TIME", value_parser = parse_duration_s)]
    pub abort_after_s: Option<f64>,

    /// Retry an aborted request up to N times
    #[arg(long = "retries", value_name = "N", default_value_t = 0)]
    pub retries_max: u8,

    /// Read at most SIZE per second on each connection [default: unlimited]
    #[arg(long = "read-rate", value_name = "SIZE", value_parser = parse_size_bytes)]
    pub read_bytes_per_s: Option<u64>,

    // Users of an open loop who make several requests each: the rates of arrivals stay those of all requests.
    #[arg(skip)]
    pub sessions: Option<Sessions>,
}

/// Reads the number of requests after which a connection is closed; [`u32::MAX`] for never.
fn per_connection(text: &str) -> std::result::Result<u32, String> {
    match text {
        "unlimited" => Ok(u32::MAX),
        _ => text.parse().map_err(|_| "write a whole number, or unlimited".to_owned()),
    }
}

/// Drives servers as one set of options says.
pub struct Driver {
    pub(crate) options: Options,
    wire: Wire,
    message: Arc<Message>,
    /// The files that are asked for.
    pub(crate) workload: Workload,
    stop: Stop,
    /// None before the first preflight, and when nothing is kept.
    out: Option<Out>,
    /// The results so far; the command adds to them.
    pub(crate) run: Run,
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
        let wire = Wire::new(&options.wire)?;
        let message = Arc::new(Message::new(&options.message)?);
        let workload = Workload::open(&options.workload, &options.files)?;
        if options.users.verify && !workload.catalogue().knows_contents() {
            return Err(Error::usage(
                "cannot verify: only files of `flash fileset` have known contents; give --files DIR",
            ));
        }
        // Those of a workload are the habits of clients of HTTP/1.1.
        let of_workload = workload.requests_per_connection().filter(|_| !options.wire.http2);
        options.users.requests_per_connection = options.users.requests_per_connection.or(of_workload);
        for warning in workload.warnings() {
            eprintln!("warning: {warning}");
        }
        let machine = crate::testbed::machine();
        let _ = flash_waiting::process::raise_descriptor_limit();
        let stop = interrupt::watch()?;
        options.out.as_deref().map_or(Ok(()), Out::check)?;
        let mut run = level::describe(command, &options, &workload, machine);
        message.describe(|name, value| drop(run.settings.insert(name.to_owned(), value)));
        let driver = Self { options, wire, message, workload, stop, out: None, run, phases: Vec::new() };
        driver.on_its_cores(|| Ok(()))?;
        Ok(driver)
    }

    /// A file of the results; none when nothing is kept.
    pub fn kept(&self, name: &str) -> Option<PathBuf> {
        self.out.as_ref().map(|out| out.path(name))
    }

    /// Whether a signal ended the run.
    pub fn is_interrupted(&self) -> bool {
        self.stop.is_set()
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
        let mut results = Vec::new();
        for (subject, level) in each_level(&self.run).filter(|(_, level)| is_required(level)) {
            for requirement in &self.options.require {
                let result = requirement.check(level);
                failed |= !result.holds;
                let kept = if result.holds { "holds" } else { "FAILS" };
                let whose = if subject.is_empty() {
                    level.name.clone()
                } else {
                    format!("{subject}, {}", level.name)
                };
                results.push(format!("{whose}: {} {kept}: {}", result.text, result.actual));
            }
        }
        self.run.notes.extend(results.iter().map(|result| format!("required: {result}")));
        let format = self.options.shown.format;
        print!("{}", report::text(&self.run, format)?);
        if format != Format::Text {
            report::warnings(&self.run).iter().for_each(|warning| eprintln!("warning: {warning}"));
        }
        if let Some(out) = &self.out {
            out.save(&self.run)?;
            let page = out.report(&self.run, self.workload.catalogue())?.display().to_string();
            match format {
                Format::Text => println!("report: {page}"),
                _ => eprintln!("report: {page}"),
            }
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
    if options.wire.http2 && options.users.read_bytes_per_s.is_some() {
        return usage("users read at a rate over HTTP/1.1 only: leave out --http2 or --read-rate".to_owned());
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

/// Errors: as [`Target::parse`].
pub fn target(options: &Options, url: &str) -> Result<Target> {
    Target::parse(url, options.allow_remote)
}
