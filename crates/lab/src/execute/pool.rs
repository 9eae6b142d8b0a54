//! Pools the rounds of each level of a server.
//!
//! [`super::Executor::pool`] calls it at the end of a run. It reads the records back, one level of one server at a
//! time, which bounds the memory that it needs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::results::Subject;
use crate::statistics::bootstrap::Blocks;
use flash_kit::{Error, Result};
use flash_load::generator::RECORDS_MAX;
use flash_load::measure::{self, PhaseFacts};
use flash_load::record::Record;
use flash_load::record::file::read_all;

#[derive(Debug)]
pub(super) struct Phase {
    pub(super) file: PathBuf,
    pub(super) facts: PhaseFacts,
}

/// Computes the levels of a subject, each over all rounds. Returns the blocks of each level's rounds in order: the
/// intervals of ratios are drawn from them.
///
/// Errors: run, when records cannot be read back or are too many.
pub(super) fn together(subject: &mut Subject, phases: &[Phase]) -> Result<BTreeMap<String, Vec<Blocks>>> {
    let mut levels: Vec<(&str, Vec<&Phase>)> = Vec::new();
    for phase in phases {
        let name = phase.facts.name.as_str();
        match levels.iter_mut().find(|(known, _)| *known == name) {
            Some((_, rounds)) => rounds.push(phase),
            None => levels.push((name, vec![phase])),
        }
    }
    let mut blocks = BTreeMap::new();
    for (name, phases) in levels {
        let mut rounds: Vec<Vec<Record>> = Vec::new();
        let mut left = RECORDS_MAX as usize;
        for phase in &phases {
            let records = read_all(&phase.file, left)
                .map_err(|why| Error::run(format!("cannot put the rounds of {name} together: {why}")))?;
            left -= records.len();
            rounds.push(records);
        }
        let pairs: Vec<_> =
            rounds.iter().map(Vec::as_slice).zip(phases.iter().map(|phase| &phase.facts)).collect();
        subject.levels.push(measure::pooled(&pairs));
        blocks.insert(name.to_owned(), rounds.iter().map(|records| Blocks::new(records)).collect());
    }
    Ok(blocks)
}
