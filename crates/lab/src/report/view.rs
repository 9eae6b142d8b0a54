//! The subjects of all runs under names of their own, and the level at which they are compared.
//!
//! Made once for a report; the modules that make sections read it. Pure.

use std::collections::BTreeMap;

use crate::results::{Run, Subject};
use flash_kit::chart::Line;
use flash_kit::number;
use flash_kit::section::Section;
use flash_kit::style::Style;
use flash_kit::text::distinct;
use flash_load::measure::{Latency, Measures};

/// With more subjects than this, only the largest data set of each server is drawn; tables have all.
const OVERLAY_MAX: usize = 8;
/// No chart has more lines.
const LINES_MAX: usize = 24;
/// At most this many levels of one subject are drawn beside one another.
const LEVELS_MAX: usize = 12;
/// Subjects without load levels are shown at every level while that makes no more lines than this.
const NAMED_LEVELS_MAX: usize = 8;
/// A longer name of a subject is cut.
const NAME_CHARS_MAX: usize = 40;

/// All shown subjects.
pub(super) struct View<'a> {
    pub(super) runs: &'a [Run],
    pub(super) subjects: Vec<Shown<'a>>,
    /// The name of the highest level that all of them have.
    pub(super) level: Option<&'a str>,
    drawn: Vec<usize>,
}

/// A subject with its name in this report.
pub(super) struct Shown<'a> {
    pub(super) label: String,
    /// The server's name alone.
    pub(super) name: String,
    pub(super) style: Style,
    pub(super) subject: &'a Subject,
}

/// The measures of a line or a row.
pub(super) struct Picked<'a> {
    pub(super) label: String,
    pub(super) style: Style,
    pub(super) measures: &'a Measures,
}

pub(super) type Level<'a> = (&'a Shown<'a>, &'a Measures);

/// A section with nothing in it yet.
pub(super) fn section(id: &'static str, title: &str, lead: &str) -> Section {
    Section { id, title: title.to_owned(), lead: lead.to_owned(), ..Section::default() }
}

/// A line of a chart in the colour of what it shows.
pub(super) fn line(label: &str, style: &Style, points: Vec<(f64, f64)>) -> Line {
    Line { label: label.to_owned(), style: style.clone(), points }
}

/// Whether there are latencies: with no answer, their summary is all zero.
pub(super) fn has_latency(measures: &Measures) -> bool {
    measures.latency != Latency::default()
}

impl<'a> View<'a> {
    pub(super) fn new(runs: &'a [Run]) -> Self {
        let mut subjects = labelled(runs);
        let level = compared_level(runs, &subjects).or_else(|| common_level(&subjects));
        let largest = |shown: &Shown| {
            let others = subjects.iter().filter(|other| other.name == shown.name);
            others.map(|other| other.subject.dataset_bytes).max() == Some(shown.subject.dataset_bytes)
        };
        let measured = |index: &usize| subjects[*index].subject.levels.iter().any(has_latency);
        let mut drawn: Vec<usize> = (0..subjects.len()).filter(measured).collect();
        if drawn.len() > OVERLAY_MAX {
            drawn.retain(|&index| largest(&subjects[index]));
        }
        drawn.truncate(LINES_MAX);
        for (place, &index) in drawn.iter().enumerate() {
            subjects[index].style = Style::of(place);
        }
        Self { runs, subjects, level, drawn }
    }

    pub(super) fn drawn(&self) -> impl Iterator<Item = &Shown<'a>> {
        self.drawn.iter().map(|&index| &self.subjects[index])
    }

    /// The names of the subjects, each once.
    pub(super) fn names(&self) -> Vec<&str> {
        distinct(self.subjects.iter().map(|shown| shown.name.as_str()))
    }

    pub(super) fn levels_of_all(&self) -> impl Iterator<Item = Level<'_>> {
        self.subjects
            .iter()
            .flat_map(|shown| shown.subject.levels.iter().map(move |measures| (shown, measures)))
    }

    /// The subject's measures at the common level, or at its own last one.
    pub(super) fn at_level(&self, shown: &Shown<'a>) -> Option<&'a Measures> {
        let mut known = shown.subject.levels.iter().filter(|measures| has_latency(measures));
        match self.level {
            Some(level) => known.find(|measures| measures.name == level),
            None => known.next_back(),
        }
    }

    /// Each level of each drawn subject, where levels have names rather than loads and are few.
    pub(super) fn named(&self) -> Option<Vec<Picked<'a>>> {
        let all = self.levels();
        let is_named = all.iter().all(|(_, measures)| measures.load_level.is_none());
        if !is_named || all.len() > NAMED_LEVELS_MAX {
            return None;
        }
        let is_one = self.drawn.len() == 1;
        let pick = |(index, (shown, measures)): (usize, (&Shown<'a>, &'a Measures))| {
            let label = match (is_one, all.len()) {
                (true, 1) => shown.label.clone(),
                (true, _) => number::plain(&measures.name),
                (false, _) => format!("{} {}", shown.label, number::plain(&measures.name)),
            };
            Picked { label, style: Style::of(index), measures }
        };
        Some(all.iter().copied().enumerate().map(pick).collect())
    }

    /// The compared measures: each drawn subject at the common level, or the named levels.
    pub(super) fn picked(&self) -> Vec<Picked<'a>> {
        let pick = |shown: &Shown<'a>| {
            let measures = self.at_level(shown)?;
            Some(Picked { label: shown.label.clone(), style: shown.style.clone(), measures })
        };
        self.named().unwrap_or_else(|| self.drawn().filter_map(pick).collect())
    }

    /// The lines of charts of a whole distribution: the loads of one subject, or the compared measures.
    pub(super) fn overlay(&self) -> Vec<Picked<'a>> {
        let all = self.levels();
        if self.drawn.len() != 1 || all.len() > LEVELS_MAX || self.named().is_some() {
            return self.picked();
        }
        let pick = |(index, (_, measures)): (usize, &(&Shown<'a>, &'a Measures))| {
            let style = Style::ordered(index, all.len());
            Picked { label: number::plain(&measures.name), style, measures }
        };
        all.iter().enumerate().map(pick).collect()
    }

    fn levels(&self) -> Vec<(&Shown<'a>, &'a Measures)> {
        let mut all = Vec::new();
        for shown in self.drawn() {
            let levels = shown.subject.levels.iter().filter(|measures| has_latency(measures));
            all.extend(levels.map(|measures| (shown, measures)));
        }
        all
    }

    /// The level of all of these in words, for a title; empty when they differ.
    pub(super) fn title_of(&self, picked: &[Picked]) -> String {
        let Some(first) = picked.first() else { return String::new() };
        let is_same = picked.iter().all(|other| other.measures.name == first.measures.name);
        if is_same { self.at_name(first.measures) } else { String::new() }
    }

    /// "at load 0.95", or "· " and the level's name.
    pub(super) fn at_name(&self, measures: &Measures) -> String {
        let name = number::plain(&measures.name);
        match measures.load_level {
            Some(_) => format!("at load {}", name.trim_start_matches("load ")),
            None => format!("· {name}"),
        }
    }

    pub(super) fn level_words(&self) -> String {
        match self.title_of(&self.picked()) {
            words if !words.is_empty() => words,
            _ => "at the last level of each".to_owned(),
        }
    }

    /// Whether one server was measured on several data sets.
    pub(super) fn is_sweep(&self) -> bool {
        let mut sizes: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for shown in &self.subjects {
            sizes.entry(&shown.name).or_default().extend(shown.subject.dataset_bytes);
        }
        sizes.values().any(|sizes| sizes.iter().any(|size| *size != sizes[0]))
    }
}

/// All subjects, each with a name that no other has.
fn labelled(runs: &[Run]) -> Vec<Shown<'_>> {
    let mut all: Vec<(usize, &Subject)> = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        all.extend(run.subjects.iter().map(|subject| (index, subject)));
    }
    let shown = |place: usize| Shown {
        label: label(place, &all),
        name: name_of(all[place].1),
        style: Style::of(0),
        subject: all[place].1,
    };
    (0..all.len()).map(shown).collect()
}

/// The name of the subject at `place`, with its data set, its run or its place where others share it.
fn label(place: usize, all: &[(usize, &Subject)]) -> String {
    let (run, subject) = all[place];
    let mut label = name_of(subject);
    let same: Vec<&(usize, &Subject)> = all.iter().filter(|(_, other)| other.name == subject.name).collect();
    let twins: Vec<_> =
        same.iter().filter(|(_, other)| other.dataset_bytes == subject.dataset_bytes).collect();
    if let Some(bytes) = subject.dataset_bytes.filter(|_| twins.len() < same.len()) {
        label += &format!(" · {}", number::size(bytes as f64));
    }
    match (twins.len(), twins.iter().filter(|(other, _)| *other == run).count()) {
        (1, _) => label,
        (_, 1) => format!("{label} · run {}", run + 1),
        _ => format!("{label} · {}", place + 1),
    }
}

fn name_of(subject: &Subject) -> String {
    let name = number::plain(&subject.name);
    match name.char_indices().nth(NAME_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None if name.is_empty() => "(no name)".to_owned(),
        None => name,
    }
}

/// Whether a name in a ratio is that of a phase of a server: of the phase alone, or of both.
pub(super) fn is_phase(name: &str, server: &str, level: &str) -> bool {
    let of_server = name.strip_prefix(server).and_then(|rest| rest.strip_prefix(", "));
    name == level || of_server == Some(level)
}

/// The phase that the runs compare with another one, where they do.
fn compared_level<'a>(runs: &'a [Run], subjects: &[Shown<'a>]) -> Option<&'a str> {
    let mut ratios = runs.iter().flat_map(|run| &run.ratios).filter(|ratio| ratio.level.is_none());
    ratios.find_map(|ratio| {
        let phases =
            subjects.iter().flat_map(|shown| shown.subject.levels.iter().map(move |level| (shown, level)));
        let mut phases = phases.filter(|(_, level)| has_latency(level));
        let (_, level) =
            phases.find(|(shown, level)| is_phase(&ratio.subject, &shown.subject.name, &level.name))?;
        Some(level.name.as_str())
    })
}

/// The highest level that every measured subject has; of levels without a load the last one.
fn common_level<'a>(subjects: &[Shown<'a>]) -> Option<&'a str> {
    let measured = |shown: &&Shown<'a>| shown.subject.levels.iter().any(has_latency);
    let first = subjects.iter().find(measured)?;
    let is_common = |name: &str| {
        let has = |shown: &Shown| shown.subject.levels.iter().any(|m| m.name == name && has_latency(m));
        subjects.iter().filter(measured).all(has)
    };
    let common = first.subject.levels.iter().filter(|measures| is_common(&measures.name));
    let load = |measures: &&Measures| measures.load_level.unwrap_or(f64::NEG_INFINITY);
    common.max_by(|a, b| load(a).total_cmp(&load(b))).map(|measures| measures.name.as_str())
}
