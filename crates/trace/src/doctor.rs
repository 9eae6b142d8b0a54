//! `flash doctor`: watches a server for some seconds and reports whether its event loop or its thread pool makes
//! requests wait.
//!
//! The command line calls it. The words come from `diagnosis_text`, the figures from `diagnosis`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::diagnosis;
pub use crate::diagnosis::Verdict;
use crate::model::{Shares, Trace, VERSION};
use crate::recorder::{RecordOptions, Subject, record};
use crate::{diagnosis_text, output, page};
use flash_kit::{Error, Result};

/// A larger file was not written by `flash trace`: its lists are bounded.
const TRACE_BYTES_MAX: u64 = 256 << 20;
/// No time or count in a trace is larger: an hour of all threads that are followed.
const TIME_NS_MAX: u64 = 1 << 57;

#[derive(Clone, Debug)]
pub struct Options {
    /// Where the trace comes from.
    pub source: Source,
    /// Print the diagnosis as JSON, not as words.
    pub json: bool,
    /// Write the page there.
    pub html: Option<PathBuf>,
    /// Keep the trace there, as `flash trace --json` does.
    pub trace: Option<PathBuf>,
}

/// Where a trace comes from.
#[derive(Clone, Debug)]
pub enum Source {
    Record(RecordOptions),
    File(PathBuf),
}

/// The version is read first, since other fields can mean something else in another version.
#[derive(Deserialize)]
struct Head {
    version: u32,
}

/// Watches, writes what is to be kept, and prints the verdict.
///
/// Errors: those of `record`; usage, for a file that is no trace; run, for one that can't be read or written.
pub fn run(options: &Options) -> Result<Verdict> {
    output::check_places(&[options.trace.as_deref(), options.html.as_deref()])?;
    let trace = match &options.source {
        Source::Record(how) => {
            if let (Subject::Process(pid), Some(seconds)) = (&how.subject, how.duration_s) {
                eprintln!(
                    "watching process {pid} and its children for {seconds} s; press Ctrl-C to stop early"
                );
            }
            record(how)?
        }
        Source::File(path) => read(path)?,
    };
    if let Some(path) = &options.trace {
        output::write(path, &output::json(&trace))?;
    }
    if let Some(path) = &options.html {
        output::write(path, &page::html(&trace))?;
    }
    let found = diagnosis::diagnose(&trace);
    if options.json {
        // The data is plain, so this cannot fail.
        output::print(&(serde_json::to_string_pretty(&found).unwrap_or_default() + "\n"))?;
    } else {
        output::print(&diagnosis_text::text(&found))?;
    }
    Ok(found.verdict)
}

/// Reads a trace that was kept.
///
/// Errors: usage, for what is no trace or of another version; run, for what cannot be read.
fn read(path: &Path) -> Result<Trace> {
    let file = File::open(path).map_err(|why| Error::file("open", path, &why))?;
    let mut bytes = Vec::new();
    file.take(TRACE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|why| Error::file("read", path, &why))?;
    if bytes.len() as u64 > TRACE_BYTES_MAX {
        return Err(Error::usage(format!(
            "{} is larger than {TRACE_BYTES_MAX} bytes: `flash trace --json` did not write it",
            path.display()
        )));
    }
    let other = |why: serde_json::Error| {
        Error::usage(format!(
            "{} is not a kernel trace: {why}; `flash trace --json FILE` writes one",
            path.display()
        ))
    };
    let head: Head = serde_json::from_slice(&bytes).map_err(other)?;
    if head.version != VERSION {
        return Err(Error::usage(format!(
            "{} has version {}, this program reads {VERSION}: use the program that wrote it",
            path.display(),
            head.version
        )));
    }
    let trace: Trace = serde_json::from_slice(&bytes).map_err(other)?;
    match nonsense(&trace) {
        None => Ok(trace),
        Some(what) => {
            Err(Error::usage(format!("{} was not written by `flash trace --json`: {what}", path.display())))
        }
    }
}

/// The reason why a file is refused: times that overflow sums or make pictures endless, and names of calls with control
/// characters, cannot come from a recording.
fn nonsense(trace: &Trace) -> Option<&'static str> {
    let is_time = |ns: u64| ns <= TIME_NS_MAX;
    let shares = |time: &Shares| time.each().into_iter().all(|(_, ns)| is_time(ns));
    let times = [
        is_time(trace.duration_ns),
        trace
            .threads
            .iter()
            .all(|of| shares(&of.time) && is_time(of.held_up.ns) && is_time(of.held_up.times)),
        trace.calls.iter().all(|of| is_time(of.duration_ns) && is_time(of.blocked_ns) && is_time(of.count)),
        trace.calls.iter().all(|of| is_time(of.on_cpu_ns) && is_time(of.runnable_ns) && is_time(of.blocked)),
        trace
            .blocked
            .iter()
            .all(|of| is_time(of.start_ns) && is_time(of.duration_ns) && is_time(of.blocked_ns)),
        trace.targets.iter().all(|of| is_time(of.blocked_ns) && is_time(of.blocked)),
        trace
            .timelines
            .iter()
            .flat_map(|of| &of.segments)
            .all(|of| is_time(of.start_ns) && is_time(of.duration_ns)),
        trace.requests.costliest.iter().all(|of| is_time(of.start_ns) && is_time(of.waited_ns)),
        trace.requests.totals.iter().all(|of| is_time(of.held_up_ns) && is_time(of.waited_ns)),
    ];
    if times.contains(&false) {
        return Some("a time or a count in it is too large");
    }
    let is_name =
        |name: &str| name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b' '));
    let calls = trace.calls.iter().map(|of| &of.call).chain(trace.blocked.iter().map(|of| &of.call));
    let calls = calls.chain(trace.targets.iter().map(|of| &of.call));
    let all =
        calls.chain(trace.threads.iter().filter_map(|of| of.wait_call.as_ref())).all(|name| is_name(name));
    if all { None } else { Some("a system call in it has a name that none has") }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::waiting_server;
    use super::super::model::Name;
    use super::*;

    #[test]
    fn a_trace_that_no_trace_can_be_is_refused() {
        assert_eq!(nonsense(&waiting_server()), None);
        let mut endless = waiting_server();
        endless.timelines[0].segments[0].start_ns = u64::MAX;
        assert!(nonsense(&endless).is_some());
        let mut hostile = waiting_server();
        hostile.calls[0].call = Name::Borrowed("read\u{1b}[2J");
        assert!(nonsense(&hostile).is_some());
    }

    #[test]
    fn a_result_may_replace_what_it_is_made_from_and_nothing_is_lost_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        let text = super::output::json(&waiting_server());
        std::fs::write(&path, &text).unwrap();
        let again =
            Options { source: Source::File(path.clone()), json: true, html: None, trace: Some(path.clone()) };
        run(&again).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        let twice = Options { html: Some(path.clone()), ..again };
        assert!(run(&twice).unwrap_err().to_string().contains("two results"));
        let none = Options { source: Source::File(folder.path().join("none")), html: None, ..twice };
        assert!(run(&none).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
}
