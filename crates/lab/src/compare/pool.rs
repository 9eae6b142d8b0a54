//! The rounds of a comparison, put together.
//!
//! [`super::run`] calls it at the end. It reads the records back, one level of one server at a time, so
//! that no more than that is in memory.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::load::RECORDS_MAX;
use crate::measure::bootstrap::Blocks;
use crate::measure::{self, PhaseFacts};
use crate::record::Record;
use crate::record::file::read_all;
use crate::results::Subject;

/// One phase of a server.
#[derive(Debug)]
pub(crate) struct Phase {
    /// The file of its records.
    pub(crate) file: PathBuf,
    /// What else is known of it.
    pub(crate) facts: PhaseFacts,
}

/// Gives a subject its levels, each over all rounds, and what the intervals of its ratios are drawn
/// from: for each level the rounds in their order.
///
/// Errors: run, when records can't be read back or are too many.
pub(crate) fn together(subject: &mut Subject, phases: &[Phase]) -> Result<BTreeMap<String, Vec<Blocks>>> {
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
