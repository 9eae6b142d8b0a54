//! A few requests before a measurement, which check that the server answers and that its files are those
//! of the workload.
//!
//! A [`super::Driver`] asks for files spread over the catalogue. If all fail, the run ends
//! before it begins; if some fail, a note says so. `interfere` requires every hot file.

use std::collections::BTreeMap;

use flash_kit::{Error, Result};
use flash_load::generator::{self, Pace, Phase, Stream};
use flash_load::record::{Outcome, Record};
use flash_load::target::Target;
use flash_load::workload::{Arrival, Catalogue, Demand};

use super::out::Out;
use super::{Driver, Served, Users};

/// The number of files that are requested, and of connections at once.
const SAMPLE: u32 = 20;
/// How long all of them may take, nanoseconds.
const PATIENCE_NS: u64 = 10_000_000_000;

/// The texts for a sample of requests.
#[derive(Clone, Copy)]
struct SampleTexts {
    paths: &'static str,
    /// The question to the user when they are not answered properly.
    question: &'static str,
}

const FILES: SampleTexts =
    SampleTexts { paths: "files", question: "does it serve the files of the workload, at that URL?" };
const DYNAMIC: SampleTexts = SampleTexts {
    paths: "dynamic requests",
    question: "does it pass the requests below --dynamic-prefix to an application?",
};

struct Once(std::vec::IntoIter<u32>);

impl Demand for Once {
    fn next_due_ns(&self) -> Option<u64> {
        (!self.0.as_slice().is_empty()).then_some(0)
    }

    fn take(&mut self) -> Option<Arrival> {
        self.next_path().map(|path_id| Arrival { path_id, intended_ns: 0 })
    }

    fn next_path(&mut self) -> Option<u32> {
        self.0.next()
    }
}

impl Driver {
    /// Asks a server for a few files, then makes the folder of results.
    ///
    /// Errors: usage, when the list of paths has URLs of another server; run, when none is answered properly, or the
    /// folder can't be made.
    pub fn preflight(&mut self, served: &Served) -> Result<()> {
        if let Some(server) = self.workload.server().filter(|server| !served.target.is_server(server)) {
            let Target { host, base, .. } = &served.target;
            return Err(Error::usage(format!(
                "the list has URLs of {server}, and {} is at {host}{base}: write paths, or give that server",
                served.name
            )));
        }
        self.sample(served, 0, FILES)?;
        if let Some(first) = self.workload.catalogue().first_dynamic() {
            self.sample(served, first, DYNAMIC)?;
        }
        self.make_out()
    }

    /// Asks for a few of as many paths as there are files, beginning with number `first`.
    fn sample(&mut self, served: &Served, first: u32, texts: SampleTexts) -> Result<()> {
        let SampleTexts { paths, question } = texts;
        let files = self.workload.catalogue().len();
        let count = files.min(SAMPLE);
        let spread = |i: u32| first + (u64::from(i) * u64::from(files) / u64::from(count)) as u32;
        let wrong = self.request_each(served, (0..count).map(spread).collect(), PATIENCE_NS)?;
        if !wrong.is_empty() && wrong.len() == count as usize {
            let none = format!("none of {count} sampled {paths}");
            return Err(self.refusal(served, &none, &wrong, question));
        }
        if !wrong.is_empty() {
            self.note(format!(
                "{}: {} of {count} sampled {paths} are not answered properly ({}); {question}",
                served.name,
                wrong.len(),
                describe(&wrong, self.workload.catalogue())
            ));
        }
        Ok(())
    }

    /// Asks a server for each of these files, so that its caches hold them, then makes the folder of
    /// results.
    ///
    /// Errors: run, when one is not answered properly in time, or the folder can't be made.
    pub(crate) fn preflight_all(&mut self, served: &Served, files: Vec<u32>, patience_ns: u64) -> Result<()> {
        let count = files.len();
        let wrong = self.request_each(served, files, patience_ns)?;
        if !wrong.is_empty() {
            let files = format!("only {} of {count} files, and all are needed,", count - wrong.len());
            return Err(self.refusal(served, &files, &wrong, FILES.question));
        }
        self.make_out()
    }

    /// Asks for each file once; gives the requests without a proper answer; none when a
    /// signal ended the phase.
    fn request_each(&self, served: &Served, files: Vec<u32>, patience_ns: u64) -> Result<Vec<Record>> {
        let users = Users {
            verify: self.options.users.verify,
            // A server with a process for each connection may have fewer than are asked at once.
            requests_per_connection: Some(1),
            ..Users::default()
        };
        let setup = self.setup(served, &users, SAMPLE);
        let stream = Stream { setup, demand: Box::new(Once(files.into_iter())), pace: Pace::Open };
        let phase = Phase::new(1, patience_ns);
        let mut ran = served.reach(|| generator::run(vec![vec![stream]], &phase, &self.stop, None))?;
        if self.stop.is_set() {
            return Ok(Vec::new());
        }
        if let Some(why) = ran.local_limit {
            eprintln!("warning: {}: {why}", served.name);
        }
        let mut wrong = ran.streams.remove(0).records;
        wrong.retain(|record| record.outcome != Outcome::Answered);
        Ok(wrong)
    }

    fn refusal(&self, served: &Served, files: &str, wrong: &[Record], question: &str) -> Error {
        let Target { host, base, .. } = &served.target;
        let found = describe(wrong, self.workload.catalogue());
        let name = &served.name;
        Error::run(format!(
            "{name} at {host}{base} answers {files} properly ({found}); {}",
            advice(wrong, question)
        ))
    }

    fn make_out(&mut self) -> Result<()> {
        if let (None, Some(folder)) = (&self.out, &self.options.out) {
            self.out = Some(Out::make(folder, self.workload.catalogue())?);
        }
        Ok(())
    }
}

/// The failures in words: each kind with its count and its first file.
fn describe(wrong: &[Record], catalogue: &Catalogue) -> String {
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

/// Advice on the failures; `question` is for whole answers that are not the right ones.
fn advice<'q>(wrong: &[Record], question: &'q str) -> &'q str {
    match wrong.first().map(|record| record.outcome) {
        Some(Outcome::Refused) => "is the server running?",
        Some(Outcome::NoHandshake) => "does it speak TLS there, and the version of HTTP that is asked for?",
        Some(Outcome::Unanswered) => "does it hang?",
        Some(Outcome::WrongContent) => "was the file set made with that seed?",
        Some(Outcome::WrongLength | Outcome::Status) => question,
        Some(Outcome::Garbage) => {
            "is it an HTTP server, and one of HTTP/2 with --http2, and of TLS with https?"
        }
        _ => "every sampled file failed",
    }
}
