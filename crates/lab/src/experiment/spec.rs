//! The experiments as data: `crates/lab/experiments/NAME.toml` says which servers get which load, which statements of the papers are
//! tested, and what the page shows. `variants.toml` has the servers.
//!
//! [`super::plan`] is what a specification becomes for a memory and a list of peers, [`super::claims`] judges its findings, [`super::plots`] draws
//! its plots and its table. The specifications are part of the program, and a test reads them all. Pure.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::data::Measure;
use super::plan::{Line, Scale, Variant};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExperimentSpec {
    pub(super) shows: String,
    /// The text and its figures.
    pub(super) source: String,
    /// The text and the section of findings that name none.
    pub(super) from: String,
    /// Groups and names of `variants.toml`; `peers` and `apache peers` are those of the command line.
    pub(super) servers: Pick<Vec<String>>,
    /// The files of scenes that name none.
    pub(super) set: Option<SetSpec>,
    /// The measure of findings that name none.
    pub(super) measure: Option<Measure>,
    /// How many times faster lines are than written here, and times shorter.
    pub(super) speed: Option<Amount>,
    /// Ask the server for its own counters, and look at the states of its processes.
    #[serde(default)]
    pub(super) looks_inside: bool,
    pub(super) scene: Vec<SceneSpec>,
    pub(super) finding: Vec<FindingSpec>,
    #[serde(default)]
    pub(super) plot: Vec<PlotSpec>,
    pub(super) table: Option<TableSpec>,
}

/// A value for a full run and one for a quick run, or the same for both.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Pick<T> {
    Same(T),
    Either { full: T, quick: T },
}

/// A number: always the same, that of a full and of a quick run, or each value of the scene or point in turn.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Amount {
    Same(f64),
    Either([f64; 2]),
    Each(EachValue),
}

#[derive(Debug, Deserialize)]
pub(super) enum EachValue {
    #[serde(rename = "each")]
    Each,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SceneSpec {
    pub(super) each: Option<Pick<Vec<f64>>>,
    pub(super) set: Option<SetSpec>,
    #[serde(default)]
    pub(super) is_bounded: bool,
    pub(super) cpu: Option<CpuSpec>,
    pub(super) warm_up_s: Option<Amount>,
    pub(super) line: Option<Line>,
    /// The servers that it is for; empty for all.
    #[serde(default)]
    pub(super) only: Vec<String>,
    /// Left out of quick runs.
    #[serde(default)]
    pub(super) only_full: bool,
    pub(super) point: Vec<PointSpec>,
}

/// The files of a scene. Without one, they are of the lengths that its points ask for.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SetSpec {
    /// SPECweb99's, as many times the memory.
    Specweb99(f64),
    Directories(u32),
    Log(LogSpec),
    /// Lengths as in the first trace of overload-and-srpt, and as in its second one.
    Pareto,
    Nasa,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogSpec {
    pub(super) name: String,
    pub(super) times_memory: f64,
    pub(super) median_bytes: f64,
    pub(super) alpha: f64,
    pub(super) requests_per_file: usize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CpuSpec {
    pub(super) percent: Amount,
    pub(super) is_needed: bool,
}

/// A point, or several: one for each value.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PointSpec {
    pub(super) each: Option<Pick<Vec<f64>>>,
    /// With `{value}`; without a name, its place on the axis as a size.
    pub(super) name: Option<String>,
    /// Names that would not read well, and better ones.
    #[serde(default)]
    pub(super) renamed: BTreeMap<String, String>,
    /// Its place on the axis; the value without it.
    pub(super) x: Option<Amount>,
    #[serde(default)]
    pub(super) files: FilesSpec,
    /// This many clients without pause.
    pub(super) clients: Option<Amount>,
    /// A fraction of the rate answered at this point; the value, unless `load` says it.
    pub(super) load_of: Option<String>,
    pub(super) load: Option<f64>,
    /// Periods of load; with the patience of users, seconds, and how often they try again.
    pub(super) phases: Option<String>,
    pub(super) abort: Option<(f64, u8)>,
    /// Hot requests beside as many cold ones a second as the value says.
    pub(super) beside: Option<BesideSpec>,
    /// 1 without it, and 0 for no bound.
    pub(super) requests_per_connection: Option<u32>,
    /// That of its periods without it.
    pub(super) duration_s: Option<Amount>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BesideSpec {
    pub(super) hot_directories: u32,
    pub(super) hot_rate_per_s: f64,
}

/// The files that a point asks for.
#[derive(Debug, Default, Deserialize)]
#[serde(untagged)]
pub(super) enum FilesSpec {
    /// All of the set's directories.
    #[default]
    All,
    /// As many directories as are this many times the memory.
    Times(f64),
    Named(NamedFiles),
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub(super) enum NamedFiles {
    /// As many directories as are the value's times the memory.
    #[serde(rename = "times memory")]
    TimesMemory,
    /// A file whose length is the value.
    #[serde(rename = "length")]
    Length,
    #[serde(rename = "replay")]
    Replay,
    #[serde(rename = "pareto")]
    Pareto,
}

/// A statement of a paper, and the checks that it must pass: see [`super::claims`]. `{server}` stands for each server in turn.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FindingSpec {
    /// Without the experiment's name: stays the same over versions.
    pub(super) id: String,
    pub(super) source: Option<String>,
    pub(super) paper: String,
    pub(super) measure: Option<Measure>,
    /// The name of a figure that is made of four, or of two measures.
    #[serde(default)]
    pub(super) name: String,
    /// A finding for each server whose name begins with one of these.
    #[serde(default)]
    pub(super) each_server: Vec<String>,
    pub(super) checks: Vec<String>,
}

/// A plot of a measure of every server against the points.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlotSpec {
    pub(super) title: String,
    pub(super) measure: Measure,
    /// The axis: its title, its unit and its division.
    pub(super) x: [String; 3],
    /// Only points up to here.
    pub(super) x_max: Option<f64>,
    /// The title of the other axis.
    pub(super) y: Option<String>,
    /// All that have a place on the axis without it.
    pub(super) points: Option<String>,
}

/// A table with a row for each server.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TableSpec {
    pub(super) title: String,
    pub(super) columns: Vec<ColumnSpec>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ColumnSpec {
    pub(super) head: String,
    pub(super) at: String,
    pub(super) measure: Measure,
}

pub(super) fn read<T: for<'de> Deserialize<'de>>(name: &str, text: &str) -> T {
    toml::from_str(text).unwrap_or_else(|why| panic!("the program's own {name}.toml is wrong: {why}"))
}

static VARIANTS: LazyLock<BTreeMap<String, Vec<Variant>>> =
    LazyLock::new(|| read("variants", include_str!("../../experiments/variants.toml")));

impl<T> Pick<T> {
    pub(super) fn of(&self, scale: &Scale) -> &T {
        match self {
            Self::Same(same) => same,
            Self::Either { full, quick } => scale.pick(full, quick),
        }
    }
}

impl Amount {
    pub(super) fn of(&self, scale: &Scale, value: f64) -> f64 {
        match self {
            Self::Same(same) => *same,
            Self::Either([full, quick]) => scale.pick(*full, *quick),
            Self::Each(EachValue::Each) => value,
        }
    }
}

/// The servers of an experiment.
pub(super) fn variants(spec: &ExperimentSpec, scale: &Scale) -> Vec<Variant> {
    let peer = |name: &String| Variant { name: name.clone(), peer: Some(name.clone()), ..Variant::default() };
    let of_word = |word: &String| -> Vec<Variant> {
        match word.as_str() {
            "peers" => scale.peers.iter().map(peer).collect(),
            "apache peers" => {
                scale.peers.iter().filter(|name| name.starts_with("apache")).map(peer).collect()
            }
            group if VARIANTS.contains_key(group) => VARIANTS[group].clone(),
            name => VARIANTS.values().flatten().find(|one| one.name == name).cloned().into_iter().collect(),
        }
    };
    spec.servers.of(scale).iter().flat_map(of_word).collect()
}
