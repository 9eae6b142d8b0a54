//! Pools the rounds of each level of a server.
//!
//! [`super::Executor::pool`] calls it at the end of a run. It reads the records back, one level of one server at a
//! time, which bounds the memory that it needs.

use std::path::PathBuf;

use crate::results::Subject;
use flash_kit::{Error, Result};
use flash_load::generator::RECORDS_MAX;
use flash_load::measure::{self, PhaseFacts};
use flash_load::record::Record;
use flash_load::record::file::read_all;

#[derive(Debug)]
pub(super) struct Phase {
    pub(super) file: PathBuf,
    pub(super) facts: PhaseFacts,
    /// Whether the machine has spoiled it.
    pub(super) is_spoiled: bool,
}

/// Computes the levels of a subject, each over all of its rounds that the machine has not spoiled; over all where there are no
/// others.
///
/// Errors: run, when records cannot be read back or are too many.
pub(super) fn together(subject: &mut Subject, phases: &[Phase]) -> Result<()> {
    let mut levels: Vec<(&str, Vec<&Phase>)> = Vec::new();
    for phase in phases {
        let name = phase.facts.name.as_str();
        match levels.iter_mut().find(|(known, _)| *known == name) {
            Some((_, rounds)) => rounds.push(phase),
            None => levels.push((name, vec![phase])),
        }
    }
    for (name, mut phases) in levels {
        if phases.iter().any(|phase| !phase.is_spoiled) {
            phases.retain(|phase| !phase.is_spoiled);
        }
        let mut rounds: Vec<(Vec<Record>, &PhaseFacts)> = Vec::new();
        let mut left = RECORDS_MAX as usize;
        for phase in phases {
            let records = read_all(&phase.file, left)
                .map_err(|why| Error::run(format!("cannot put the rounds of {name} together: {why}")))?;
            left -= records.len();
            rounds.push((records, &phase.facts));
        }
        let rounds: Vec<_> = rounds.iter().map(|(records, facts)| (records.as_slice(), *facts)).collect();
        subject.levels.push(measure::pooled(&rounds));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::SystemTime;

    use flash_load::record::Outcome;
    use flash_load::record::file::Writer;

    use super::*;

    /// A round of a level with this many answers.
    fn round(folder: &Path, level: &str, answers: u64, is_spoiled: bool) -> Phase {
        let record = |number: u64| Record {
            intended_ns: number * 1_000_000,
            begun_ns: number * 1_000_000,
            connected_ns: number * 1_000_000,
            first_byte_ns: number * 1_000_000 + 1_000,
            last_byte_ns: number * 1_000_000 + 2_000,
            body_bytes: 1,
            path_id: 0,
            status: 200,
            outcome: Outcome::Answered,
            flags: 0,
            tries: 1,
            thread: 0,
        };
        let file = folder.join(format!("{level}-{answers}"));
        Writer::create(&file, SystemTime::UNIX_EPOCH).append(&(0..answers).map(record).collect::<Vec<_>>());
        Phase { file, facts: PhaseFacts { name: level.to_owned(), ..PhaseFacts::default() }, is_spoiled }
    }

    #[test]
    fn rounds_that_the_machine_has_spoiled_are_left_out_unless_there_are_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let round = |level, answers, is_spoiled| round(folder.path(), level, answers, is_spoiled);
        let phases = [
            round("0.30", 3, false),
            round("0.60", 5, false),
            round("0.90", 7, true),
            round("0.30", 11, false),
            round("0.60", 13, true),
            round("0.90", 17, true),
        ];
        let mut subject = Subject::of("a", "");
        together(&mut subject, &phases).unwrap();
        let pooled = subject.levels.iter().map(|level| (level.name.as_str(), level.counts.answered));
        assert_eq!(pooled.collect::<Vec<_>>(), [("0.30", 14), ("0.60", 5), ("0.90", 24)]);
    }
}
