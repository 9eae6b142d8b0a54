//! A few requests before a measurement: does the server answer, and are its files those of the
//! workload?
//!
//! A [`super::Driver`] asks for files spread over the catalogue. What is wrong with all of them ends
//! the run before it begins; what is wrong with some is a note.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::load::{self, Pace, Phase, Setup, Stream};
use crate::record::{Outcome, Record};
use crate::workload::{Ask, Catalogue, Demand};

use super::out::Out;
use super::{Driver, Served};

/// Files that are asked for.
const SAMPLE: u32 = 20;
/// How long all of them may take, nanoseconds.
const PATIENCE_NS: u64 = 10_000_000_000;

/// Files in a row, each once.
struct Row(std::vec::IntoIter<u32>);

impl Demand for Row {
    fn next_due_ns(&self) -> Option<u64> {
        (!self.0.as_slice().is_empty()).then_some(0)
    }

    fn take(&mut self) -> Option<Ask> {
        self.next_path().map(|path_id| Ask { path_id, intended_ns: 0 })
    }

    fn next_path(&mut self) -> Option<u32> {
        self.0.next()
    }
}

impl Driver {
    /// Asks a server for a few files, then makes the folder of results.
    ///
    /// Errors: run, when none is answered properly, or the folder can't be made.
    pub fn preflight(&mut self, served: &Served) -> Result<()> {
        let catalogue = Arc::clone(self.workload.catalogue());
        let count = catalogue.len().min(SAMPLE);
        let spread = |i: u32| (u64::from(i) * u64::from(catalogue.len()) / u64::from(count)) as u32;
        let sample: Vec<u32> = (0..count).map(spread).collect();
        let setup = Setup {
            target: served.target.clone(),
            catalogue: Arc::clone(&catalogue),
            verify: self.options.users.verify,
            connections_max: SAMPLE as usize,
            requests_per_connection: None,
            abort_after_ns: None,
            retries_max: 0,
            read_bytes_per_s: None,
        };
        let stream = Stream { setup, demand: Box::new(Row(sample.into_iter())), pace: Pace::Open };
        let phase = Phase { duration_ns: 1, drain_max_ns: PATIENCE_NS };
        let mut ran = load::run(vec![vec![stream]], &phase, &self.stop, None)?;
        let records = ran.streams.remove(0).records;
        let wrong: Vec<&Record> = records.iter().filter(|r| r.outcome != Outcome::Answered).collect();
        if wrong.is_empty() || self.stop.is_set() {
            return self.make_out();
        }
        let found = describe(&wrong, &catalogue);
        if wrong.len() == records.len() {
            return Err(Error::run(format!(
                "{} at {}{} answers none of {count} sampled files properly ({found}); {}",
                served.name,
                served.target.host,
                served.target.base,
                advice(&wrong)
            )));
        }
        let note = format!(
            "{}: {} of {count} sampled files are not answered properly ({found}); does it serve the files of the workload?",
            served.name,
            wrong.len()
        );
        self.note(note);
        self.make_out()
    }

    /// Makes the folder of results, once.
    fn make_out(&mut self) -> Result<()> {
        if let (None, Some(folder)) = (&self.out, &self.options.out) {
            self.out = Some(Out::make(folder, self.workload.catalogue())?);
        }
        Ok(())
    }
}

/// What went wrong: each kind with its count and its first file.
fn describe(wrong: &[&Record], catalogue: &Catalogue) -> String {
    let mut kinds: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    for record in wrong {
        let kind = match record.outcome {
            Outcome::Status => format!("status {}", record.status),
            other => other.name().to_owned(),
        };
        kinds.entry(kind).or_insert((0, record.path_id)).0 += 1;
    }
    let say = |(kind, (count, path_id)): (&String, &(u32, u32))| {
        let mut path = Vec::new();
        catalogue.write_path(*path_id, &mut path);
        format!("{count} × {kind}, first {}", String::from_utf8_lossy(&path))
    };
    kinds.iter().map(say).collect::<Vec<_>>().join("; ")
}

/// What to do about it.
fn advice(wrong: &[&Record]) -> &'static str {
    match wrong.first().map(|record| record.outcome) {
        Some(Outcome::Refused) => "is the server running?",
        Some(Outcome::Unanswered) => "does it hang?",
        Some(Outcome::WrongContent) => "was the file set made with that seed?",
        Some(Outcome::WrongLength | Outcome::Status) => {
            "does it serve the files of the workload, at that URL?"
        }
        Some(Outcome::Garbage) => "is it an HTTP server?",
        _ => "every sampled file failed",
    }
}
