//! Joins the runs of several generators that loaded a server at the same time into one.
//!
//! `flash report --join` calls it. Figures are computed anew from all records, laid over each other by the clocks of the
//! generators' machines; rates are the sums of the runs' rates.

use std::path::{Path, PathBuf};

use crate::report::{self, Format};
use crate::results::{FORMAT, Run, Subject, folder};
use flash_kit::{Error, Result};
use flash_load::generator::RECORDS_MAX;
use flash_load::measure::{self, Handshakes, Measures, PhaseFacts, SeriesBounds, ServerUse};
use flash_load::record::file::Reader;
use flash_load::record::{NEVER_NS, Record};

/// The name of the page, in the first folder.
const REPORT_FILE: &str = "joined.html";
/// Generators that ran together for less than this share of the time get a note.
const TOGETHER_SHARE_MIN: f64 = 0.95;

#[derive(Clone, Debug)]
pub struct Options {
    /// The folders of two runs of `flash load` or more.
    pub folders: Vec<PathBuf>,
    /// The page; the JSON goes beside it. Without it, `joined.html` in the first folder.
    pub out: Option<PathBuf>,
    pub format: Format,
}

/// Joins the runs, prints the figures, and writes the report.
///
/// Errors: usage, for runs that do not belong together; run, for files that cannot be read or written.
pub fn run(options: &Options) -> Result<()> {
    let [first, _, ..] = &options.folders[..] else {
        return Err(Error::usage("one run has nothing to be joined with: give the folders of two or more"));
    };
    let path = options.out.clone().unwrap_or_else(|| first.join(REPORT_FILE));
    report::check_name(&path)?;
    let runs = options.folders.iter().map(|folder| folder::read(folder)).collect::<Result<Vec<Run>>>()?;
    let sources: Vec<Source> = options.folders.iter().map(PathBuf::as_path).zip(&runs).collect();
    let joined = joined(&sources)?;
    report::write(std::slice::from_ref(&joined), &path)?;
    print!("{}", report::text(&joined, options.format)?);
    match options.format {
        Format::Text => println!("report: {}", path.display()),
        _ => eprintln!("report: {}", path.display()),
    }
    Ok(())
}

/// A folder and the run in it.
type Source<'a> = (&'a Path, &'a Run);

/// The runs as one.
fn joined(sources: &[Source<'_>]) -> Result<Run> {
    let mut subjects = Vec::new();
    for (folder, run) in sources {
        match &run.subjects[..] {
            [subject] if run.command == "load" => subjects.push(subject),
            _ => {
                return Err(Error::usage(format!(
                    "{} is a run of `flash {}`: only those of `flash load` can be joined",
                    folder.display(),
                    run.command
                )));
            }
        }
    }
    let names = |subject: &Subject| subject.levels.iter().map(|level| level.name.clone()).collect::<Vec<_>>();
    let (Some((_, first)), Some(first_subject)) = (sources.first(), subjects.first()) else {
        return Err(Error::usage("there are no runs to join"));
    };
    if let Some(at) = subjects.iter().position(|subject| names(subject) != names(first_subject)) {
        return Err(Error::usage(format!(
            "{} has other levels ({}) than {} ({}): join runs with the same options",
            sources[at].0.display(),
            names(subjects[at]).join(", "),
            sources[0].0.display(),
            names(first_subject).join(", ")
        )));
    }
    let mut notes: Vec<String> = Vec::new();
    for ((folder, run), subject) in sources.iter().zip(&subjects) {
        notes.extend(run.notes.iter().map(|note| format!("{}: {note}", folder.display())));
        if subject.url != first_subject.url {
            notes.push(format!("{} loaded {}, not {}", folder.display(), subject.url, first_subject.url));
        }
    }
    let mut levels = Vec::new();
    for at in 0..first_subject.levels.len() {
        let parts = sources.iter().zip(&subjects);
        let parts = parts.map(|((folder, run), subject)| (*folder, *run, &subject.levels[at]));
        levels.push(level(&parts.collect::<Vec<_>>(), &mut notes)?);
    }
    let mut settings = first.settings.clone();
    settings.retain(|name, value| sources.iter().all(|(_, run)| run.settings.get(name) == Some(value)));
    settings.insert("generators".to_owned(), sources.len().to_string());
    let subject = Subject { levels, ..Subject::of(&first_subject.name, &first_subject.url) };
    Ok(Run {
        format: FORMAT,
        command: "load".to_owned(),
        command_line: flash_kit::command_line(),
        started: sources.iter().map(|(_, run)| run.started.clone()).min().unwrap_or_default(),
        settings,
        subjects: vec![Subject { dataset_bytes: first_subject.dataset_bytes, ..subject }],
        notes,
        ..Run::clone(first)
    })
}

/// One phase of a generator: when it began, in nanoseconds since 1970, and how long requests started.
struct Span {
    start_ns: u64,
    end_ns: u64,
}

/// The phases of one level of all generators, as one.
fn level(parts: &[(&Path, &Run, &Measures)], notes: &mut Vec<String>) -> Result<Measures> {
    let mut readers = Vec::new();
    for (folder, _, measures) in parts {
        let file = measures.records.as_ref().ok_or_else(|| {
            Error::usage(format!("{} has no records of {}", folder.display(), measures.name))
        })?;
        readers.push(Reader::open(&folder.join(file))?);
    }
    let spans: Vec<Span> = (readers.iter().zip(parts))
        .map(|(reader, (_, _, measures))| {
            let start_ns = reader.started_ns();
            Span { start_ns, end_ns: start_ns + nanoseconds(measures.duration_s) }
        })
        .collect();
    check_overlap(parts, &spans, notes)?;
    let origin_ns = spans.iter().map(|span| span.start_ns).min().unwrap_or_default();
    let mut records: Vec<Record> = Vec::new();
    for ((reader, span), (folder, _, measures)) in readers.into_iter().zip(&spans).zip(parts) {
        let before = records.len();
        for record in reader {
            if records.len() as u64 == RECORDS_MAX {
                return Err(Error::run(format!("the runs have more than {RECORDS_MAX} requests together")));
            }
            records.push(shifted(record?, span.start_ns - origin_ns));
        }
        let (kept, asked) = ((records.len() - before) as u64, measures.counts.asked);
        if kept != asked {
            return Err(Error::run(format!(
                "{} has the records of {kept} of its {asked} requests: figures of a part would be wrong",
                folder.display()
            )));
        }
    }
    Ok(Measures { records: None, ..together(parts, &spans, origin_ns, &records) })
}

/// Refuses a run that is given twice, and runs of different times.
fn check_overlap(parts: &[(&Path, &Run, &Measures)], spans: &[Span], notes: &mut Vec<String>) -> Result<()> {
    let names = |at: usize| parts[at].0.display();
    for later in 1..spans.len() {
        if let Some(same) = (0..later).find(|&at| spans[at].start_ns == spans[later].start_ns) {
            return Err(Error::usage(format!("{} and {} are the same run", names(same), names(later))));
        }
    }
    let last = (0..spans.len()).max_by_key(|&at| spans[at].start_ns).unwrap_or_default();
    let first = (0..spans.len()).min_by_key(|&at| spans[at].end_ns).unwrap_or_default();
    let (Some(last_span), Some(first_span)) = (spans.get(last), spans.get(first)) else { return Ok(()) };
    let seconds = |from_ns: u64, to_ns: u64| to_ns.saturating_sub(from_ns) as f64 / 1e9;
    if last_span.start_ns >= first_span.end_ns {
        return Err(Error::usage(format!(
            "{} began {:.1} s after {} had ended: rates of runs at different times have no sum",
            names(last),
            seconds(first_span.end_ns, last_span.start_ns),
            names(first)
        )));
    }
    let together_s = seconds(last_span.start_ns, first_span.end_ns);
    let longest_s = spans.iter().map(|span| seconds(span.start_ns, span.end_ns)).fold(0.0, f64::max);
    if together_s < longest_s * TOGETHER_SHARE_MIN {
        notes.push(format!(
            "all generators ran together for {together_s:.1} of {longest_s:.1} s only: the sums of rates are those of this time"
        ));
    }
    Ok(())
}

/// The measures of all records.
fn together(
    parts: &[(&Path, &Run, &Measures)],
    spans: &[Span],
    origin_ns: u64,
    records: &[Record],
) -> Measures {
    let all = || parts.iter().map(|(_, _, measures)| *measures);
    let is_specweb = parts.iter().all(|(_, run, _)| run.workload.starts_with("SPECweb99"));
    let duration_ns = spans.iter().map(|span| span.end_ns - origin_ns).max().unwrap_or_default();
    let drained =
        spans.iter().zip(all()).map(|(span, one)| span.end_ns - origin_ns + nanoseconds(one.drain_s));
    let early: Vec<String> = (parts.iter())
        .filter_map(|(folder, _, one)| Some(format!("{}: {}", folder.display(), one.ended_early.as_ref()?)))
        .collect();
    // Each generator may have watched the same process, which must not count twice.
    let watched: Vec<_> = all().filter_map(|one| one.server).collect();
    let server = match watched[..] {
        [one] => {
            let cpu_ns = nanoseconds(one.cpu_s);
            Some(ServerUse { cpu_ns, memory_max_bytes: one.memory_max_bytes })
        }
        _ => None,
    };
    let first = all().next();
    let load_level = first.and_then(|first| first.load_level);
    let facts = PhaseFacts {
        name: first.map_or_else(String::new, |first| first.name.clone()),
        load_level: load_level.filter(|_| all().all(|one| one.load_level == load_level)),
        asked_per_s: all().map(|one| one.asked_per_s).sum(),
        duration_ns,
        drain_ns: drained.max().unwrap_or_default().saturating_sub(duration_ns),
        threads: all().map(|one| one.generator.threads).sum(),
        busy_share: all().map(|one| one.generator.busy_share).fold(0.0, f64::max),
        connections: all().map(|one| one.counts.connections).sum(),
        retried: all().map(|one| one.counts.retried).sum(),
        ended_early: (!early.is_empty()).then(|| early.join("; ")),
        series: if is_specweb { SeriesBounds::Specweb99 } else { SeriesBounds::Quartiles },
        server,
        ..PhaseFacts::default()
    };
    Measures {
        answered_per_s: all().map(|one| one.answered_per_s).sum(),
        megabits_per_s: all().map(|one| one.megabits_per_s).sum(),
        handshakes: handshakes(all()),
        ..measure::measures(records, &facts)
    }
}

/// The numbers of handshakes. Their times are not in the records.
fn handshakes<'a>(all: impl Iterator<Item = &'a Measures>) -> Option<Handshakes> {
    let add = |one: Handshakes, other: Handshakes| Handshakes {
        full: one.full + other.full,
        resumed: one.resumed + other.resumed,
        full_time: None,
        resumed_time: None,
    };
    let none = Handshakes { full: 0, resumed: 0, full_time: None, resumed_time: None };
    all.filter_map(|one| one.handshakes).map(|found| add(found, none)).reduce(add)
}

/// A record in the time of the first generator.
fn shifted(record: Record, offset_ns: u64) -> Record {
    let shift = |time_ns: u64| if time_ns == NEVER_NS { NEVER_NS } else { time_ns.saturating_add(offset_ns) };
    Record {
        intended_ns: shift(record.intended_ns),
        begun_ns: shift(record.begun_ns),
        connected_ns: shift(record.connected_ns),
        first_byte_ns: shift(record.first_byte_ns),
        last_byte_ns: shift(record.last_byte_ns),
        ..record
    }
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

#[cfg(test)]
#[path = "join_tests.rs"]
mod tests;
