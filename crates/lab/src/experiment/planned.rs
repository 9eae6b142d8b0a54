//! The plan that the specification of an experiment becomes. Pure.

use std::path::PathBuf;

use flash_kit::number::size;
use flash_load::files::heavy_tail::Trace;
use flash_load::files::layout::DIRECTORY_BYTES;
use flash_load::fileset::PARETO_BYTES;
use flash_load::workload::PhasePlan;
use flash_load::workload::access_log::made::MadeLog;

use super::plan::{Beside, Cpu, FileChoice, Line, Load, Phases, Plan, Point, ROUNDS, Scale, Scene, Set};
use super::spec::{Amount, ExperimentSpec, FilesSpec, NamedFiles, PointSpec, SceneSpec, SetSpec, variants};
use crate::execute;

/// 5,000 files, as many as the set of the other trace has.
const NASA_BYTES: u64 = 95_000_000;

/// How long a scene warms up by default, seconds.
const WARM_UP_S: f64 = 1.0;

/// A specification under way to its plan.
struct Planned<'a> {
    spec: &'a ExperimentSpec,
    scale: &'a Scale,
    speed: f64,
}

/// The points of a scene of a specification, and what they have in common.
struct Stage<'a> {
    spec: &'a SceneSpec,
    set: Set,
    value: f64,
}

pub(super) fn plan(spec: &ExperimentSpec, scale: &Scale) -> Plan {
    let planned =
        Planned { spec, scale, speed: spec.speed.as_ref().map_or(1.0, |speed| speed.of(scale, 1.0)) };
    let mut plan = Plan {
        variants: variants(spec, scale),
        rounds: ROUNDS,
        looks_inside: spec.looks_inside,
        ..Plan::default()
    };
    for (set, scene) in planned.scenes() {
        let known = plan.sets.iter().position(|known| *known == set);
        let number = known.unwrap_or_else(|| {
            plan.sets.push(set);
            plan.sets.len() - 1
        });
        plan.scenes.push(Scene { set: number, ..scene });
    }
    let uplink = plan.scenes.iter().find_map(|scene| scene.line);
    let uplink = uplink.map(|line| format!("{}kbit", line.rate_bits_per_s * 1538 / 1500 / 1000));
    for variant in &mut plan.variants {
        for word in variant.flash.iter_mut().filter(|word| *word == "{uplink}") {
            *word = uplink.clone().unwrap_or_default();
        }
    }
    plan
}

impl Planned<'_> {
    fn scenes(&self) -> Vec<(Set, Scene)> {
        let is_of_logs = |scene: &&SceneSpec| matches!(scene.set, Some(SetSpec::Log(_)));
        if let (Some(like), false) = (self.spec.scene.iter().find(is_of_logs), self.scale.logs.is_empty()) {
            let of_log = |(number, file): (usize, &PathBuf)| {
                let mut made =
                    self.scene(&Stage { spec: like, set: Set::Log(file.clone()), value: f64::NAN });
                let is_alike = |other: &&PathBuf| other.file_name() == file.file_name();
                let is_alone = self.scale.logs.iter().filter(is_alike).count() == 1;
                let name = if is_alone { file.file_name().unwrap_or_default() } else { file.as_os_str() };
                let name = name.to_string_lossy().into_owned();
                made.1.points = vec![Point { name, x: number as f64, ..made.1.points.remove(0) }];
                made
            };
            return self.scale.logs.iter().enumerate().map(of_log).collect();
        }
        let planned = self.spec.scene.iter().filter(|scene| !(scene.only_full && self.scale.quick));
        let of_scene = |spec: &SceneSpec| {
            let values = spec.each.as_ref().map_or(vec![f64::NAN], |each| each.of(self.scale).clone());
            values
                .into_iter()
                .map(|value| self.scene(&Stage { spec, set: self.set(spec), value }))
                .collect::<Vec<_>>()
        };
        planned.flat_map(of_scene).collect()
    }

    /// The files of a scene. Each of its points with cold requests has at least one directory of its own.
    fn set(&self, scene: &SceneSpec) -> Set {
        let values =
            |point: &PointSpec| point.each.as_ref().map_or(Vec::new(), |each| each.of(self.scale).clone());
        match scene.set.as_ref().or(self.spec.set.as_ref()) {
            Some(SetSpec::Specweb99(times)) => {
                let least = |point: &PointSpec| {
                    Some(point.beside.as_ref()?.hot_directories + values(point).len() as u32)
                };
                let least = scene.point.iter().filter_map(least).max().unwrap_or(0);
                Set::Specweb99 { directories: self.scale.directories(*times).max(least) }
            }
            Some(SetSpec::Directories(directories)) => Set::Specweb99 { directories: *directories },
            Some(SetSpec::Log(log)) => Set::Made(MadeLog {
                name: log.name.clone(),
                dataset_bytes: (self.scale.memory_bytes as f64 * log.times_memory) as u64,
                median_bytes: log.median_bytes,
                alpha: log.alpha,
                requests_per_file: log.requests_per_file,
            }),
            Some(SetSpec::Pareto) => Set::Pareto { set_bytes: PARETO_BYTES, trace: Trace::WorldCup },
            Some(SetSpec::Nasa) => Set::Pareto { set_bytes: NASA_BYTES, trace: Trace::Nasa },
            None => Set::Lengths(scene.point.iter().flat_map(values).map(|length| length as u64).collect()),
        }
    }

    fn scene(&self, stage: &Stage<'_>) -> (Set, Scene) {
        let Stage { spec, set, value } = stage;
        let cpu = spec.cpu.as_ref().map(|cpu| (cpu.percent.of(self.scale, *value) as u32, cpu.is_needed));
        let line = spec.line.map(|line| Line {
            rate_bits_per_s: (line.rate_bits_per_s as f64 * self.speed) as u64,
            round_trip_ms: line.round_trip_ms / self.speed,
            ..line
        });
        let is_each = |point: &PointSpec| matches!(point.clients, Some(Amount::Each(_)));
        let scene = Scene {
            set: 0,
            is_bounded: spec.is_bounded,
            cpu: cpu
                .filter(|(percent, _)| *percent < 100)
                .map(|(percent, is_needed)| Cpu { percent, is_needed }),
            warm_up_s: spec.warm_up_s.as_ref().map_or(WARM_UP_S, |warm_up| warm_up.of(self.scale, *value)),
            clients: spec.point.iter().any(is_each).then_some(*value as u32),
            line,
            only: spec.only.clone(),
            points: spec.point.iter().flat_map(|point| self.points(stage, point)).collect(),
        };
        (set.clone(), scene)
    }

    fn points(&self, stage: &Stage<'_>, spec: &PointSpec) -> Vec<Point> {
        let values = spec.each.as_ref().map_or(vec![stage.value], |each| each.of(self.scale).clone());
        let count = values.len();
        let point = |(number, value)| self.point(stage, spec, Value { value, number, count });
        values.into_iter().enumerate().map(point).collect()
    }

    fn point(&self, stage: &Stage<'_>, spec: &PointSpec, at: Value) -> Point {
        let value = at.value;
        let files = self.files(stage, spec, at);
        let x = match (&spec.x, files, &spec.files) {
            (Some(x), ..) => x.of(self.scale, value),
            (None, FileChoice::Directories(directories), FilesSpec::Named(NamedFiles::TimesMemory)) => {
                (u64::from(directories) * DIRECTORY_BYTES) as f64
            }
            _ => value,
        };
        let written = if spec.load_of.is_some() && spec.load.is_none() {
            format!("{value:.2}")
        } else {
            value.to_string()
        };
        let named = |text: &String| text.replace("{value}", &written);
        let name = spec.name.as_ref().map_or_else(|| size(x), named);
        let name = spec.renamed.get(&name).cloned().unwrap_or(name);
        let periods = spec.phases.as_ref().map(named);
        let load = if let Some(periods) = periods.clone() {
            let abort = spec.abort.map(|(after_s, retries)| (after_s / self.speed, retries));
            Load::Phases(Phases { periods, abort })
        } else if let Some(of) = &spec.load_of {
            Load::Fraction(spec.load.unwrap_or(value), named(of))
        } else if spec.beside.is_some() {
            Load::Beside(self.beside(stage, spec, at))
        } else {
            Load::Infinite(spec.clients.as_ref().map_or(1, |clients| clients.of(self.scale, value) as u32))
        };
        let whole_s =
            || periods.and_then(|text| text.parse::<PhasePlan>().ok()).map_or(0.0, |plan| plan.duration_s());
        Point {
            name,
            x,
            files,
            load,
            requests_per_connection: match spec.requests_per_connection {
                Some(0) => u32::MAX,
                count => count.unwrap_or(1),
            },
            duration_s: spec
                .duration_s
                .as_ref()
                .map_or_else(|| whole_s() / self.speed, |s| s.of(self.scale, value)),
        }
    }

    fn files(&self, stage: &Stage<'_>, spec: &PointSpec, at: Value) -> FileChoice {
        match (&spec.files, &stage.set) {
            (FilesSpec::Times(times), _) => FileChoice::Directories(self.scale.directories(*times)),
            (FilesSpec::Named(NamedFiles::TimesMemory), _) => {
                FileChoice::Directories(self.scale.directories(at.value))
            }
            (FilesSpec::Named(NamedFiles::Length), _) => FileChoice::File(at.number),
            (FilesSpec::Named(NamedFiles::Pareto), _) => FileChoice::Pareto,
            (FilesSpec::All, Set::Specweb99 { directories }) => FileChoice::Directories(*directories),
            (FilesSpec::Named(NamedFiles::Replay) | FilesSpec::All, _) => FileChoice::Replay,
        }
    }

    /// Hot requests beside cold ones. Each point has cold files of its own.
    fn beside(&self, stage: &Stage<'_>, spec: &PointSpec, at: Value) -> Beside {
        let (hot_directories, hot_rate_per_s) =
            spec.beside.as_ref().map_or((0, 0.0), |beside| (beside.hot_directories, beside.hot_rate_per_s));
        let directories = if let Set::Specweb99 { directories } = stage.set { directories } else { 0 };
        let share = directories.saturating_sub(hot_directories) / at.count as u32;
        let first = hot_directories + at.number as u32 * share;
        let cold = execute::Beside::Cold {
            directories: first..first + share,
            rate_per_s: at.value,
            looks_up_names: false,
        };
        Beside { hot_directories, hot_rate_per_s, cold: (at.value > 0.0).then_some(cold) }
    }
}

/// A value of a point, and its place among the others.
#[derive(Clone, Copy)]
struct Value {
    value: f64,
    number: usize,
    count: usize,
}
