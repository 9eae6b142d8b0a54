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
