//! The plan that the form of an experiment becomes. Pure.

use flash_kit::number::size;
use flash_load::files::layout::DIRECTORY_BYTES;
use flash_load::fileset::PARETO_BYTES;
use flash_load::workload::PhasePlan;
use flash_load::workload::access_log::made::MadeLog;

use super::forms::{Amount, AskForm, Asked, Form, PointForm, SceneForm, SetForm, variants};
use super::plan::{Ask, Beside, Cpu, Line, Load, Phases, Plan, Point, ROUNDS, Scale, Scene, Set};
use crate::execute;

/// How long a scene warms up by default, seconds.
const WARM_UP_S: f64 = 1.0;

/// A form under way to its plan.
struct Planned<'a> {
    form: &'a Form,
    scale: &'a Scale,
    speed: f64,
}

/// The points of a scene of a form, and what they have in common.
struct Stage<'a> {
    form: &'a SceneForm,
    set: Set,
    value: f64,
}

pub(super) fn plan(form: &Form, scale: &Scale) -> Plan {
    let planned =
        Planned { form, scale, speed: form.speed.as_ref().map_or(1.0, |speed| speed.of(scale, 1.0)) };
    let mut plan = Plan {
        variants: variants(form, scale),
        rounds: ROUNDS,
        looks_inside: form.looks_inside,
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
        let is_of_logs = |scene: &&SceneForm| matches!(scene.set, Some(SetForm::Log(_)));
        if let (Some(like), false) = (self.form.scene.iter().find(is_of_logs), self.scale.logs.is_empty()) {
            let of_log = |(number, file): (usize, &std::path::PathBuf)| {
                let mut made =
                    self.scene(&Stage { form: like, set: Set::Log(file.clone()), value: f64::NAN });
                let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
                made.1.points = vec![Point { name, x: number as f64, ..made.1.points.remove(0) }];
                made
            };
            return self.scale.logs.iter().enumerate().map(of_log).collect();
        }
        let planned = self.form.scene.iter().filter(|scene| !(scene.only_full && self.scale.quick));
        let of_scene = |form: &SceneForm| {
            let values = form.each.as_ref().map_or(vec![f64::NAN], |each| each.of(self.scale).clone());
            values
                .into_iter()
                .map(|value| self.scene(&Stage { form, set: self.set(form), value }))
                .collect::<Vec<_>>()
        };
        planned.flat_map(of_scene).collect()
    }

    /// The files of a scene. Each of its points with cold requests has at least one directory of its own.
    fn set(&self, scene: &SceneForm) -> Set {
        let values =
            |point: &PointForm| point.each.as_ref().map_or(Vec::new(), |each| each.of(self.scale).clone());
        match scene.set.as_ref().or(self.form.set.as_ref()) {
            Some(SetForm::Specweb99(times)) => {
                let least = |point: &PointForm| {
                    Some(point.beside.as_ref()?.hot_directories + values(point).len() as u32)
                };
                let least = scene.point.iter().filter_map(least).max().unwrap_or(0);
                Set::Specweb99 { directories: self.scale.directories(*times).max(least) }
            }
            Some(SetForm::Directories(directories)) => Set::Specweb99 { directories: *directories },
            Some(SetForm::Log(log)) => Set::Made(MadeLog {
                name: log.name.clone(),
                dataset_bytes: (self.scale.memory_bytes as f64 * log.times_memory) as u64,
                median_bytes: log.median_bytes,
                alpha: log.alpha,
                requests_per_file: log.requests_per_file,
            }),
            Some(SetForm::Pareto) => Set::Pareto { set_bytes: PARETO_BYTES },
            None => Set::Lengths(scene.point.iter().flat_map(values).map(|length| length as u64).collect()),
        }
    }

    fn scene(&self, stage: &Stage<'_>) -> (Set, Scene) {
        let Stage { form, set, value } = stage;
        let cpu = form.cpu.as_ref().map(|cpu| (cpu.percent.of(self.scale, *value) as u32, cpu.is_needed));
        let line = form.line.map(|line| Line {
            rate_bits_per_s: (line.rate_bits_per_s as f64 * self.speed) as u64,
            round_trip_ms: line.round_trip_ms / self.speed,
            ..line
        });
        let is_each = |point: &PointForm| matches!(point.clients, Some(Amount::Each(_)));
        let scene = Scene {
            set: 0,
            is_bounded: form.is_bounded,
            cpu: cpu
                .filter(|(percent, _)| *percent < 100)
                .map(|(percent, is_needed)| Cpu { percent, is_needed }),
            warm_up_s: form.warm_up_s.as_ref().map_or(WARM_UP_S, |warm_up| warm_up.of(self.scale, *value)),
            clients: form.point.iter().any(is_each).then_some(*value as u32),
            line,
            only: form.only.clone(),
            points: form.point.iter().flat_map(|point| self.points(stage, point)).collect(),
        };
        (set.clone(), scene)
    }

    fn points(&self, stage: &Stage<'_>, form: &PointForm) -> Vec<Point> {
        let values = form.each.as_ref().map_or(vec![stage.value], |each| each.of(self.scale).clone());
        let count = values.len();
        let point = |(number, value)| self.point(stage, form, Value { value, number, count });
        values.into_iter().enumerate().map(point).collect()
    }

    fn point(&self, stage: &Stage<'_>, form: &PointForm, at: Value) -> Point {
        let value = at.value;
        let ask = self.ask(stage, form, at);
        let x = match (&form.x, ask, &form.ask) {
            (Some(x), ..) => x.of(self.scale, value),
            (None, Ask::Directories(directories), AskForm::Named(Asked::TimesMemory)) => {
                (u64::from(directories) * DIRECTORY_BYTES) as f64
            }
            _ => value,
        };
        let written = if form.load_of.is_some() && form.load.is_none() {
            format!("{value:.2}")
        } else {
            value.to_string()
        };
        let named = |text: &String| text.replace("{value}", &written);
        let name = form.name.as_ref().map_or_else(|| size(x), named);
        let name = form.renamed.get(&name).cloned().unwrap_or(name);
        let periods = form.phases.as_ref().map(named);
        let load = if let Some(periods) = periods.clone() {
            let abort = form.abort.map(|(after_s, retries)| (after_s / self.speed, retries));
            Load::Phases(Phases { periods, abort })
        } else if let Some(of) = &form.load_of {
            Load::Fraction(form.load.unwrap_or(value), named(of))
        } else if form.beside.is_some() {
            Load::Beside(self.beside(stage, form, at))
        } else {
            Load::Infinite(form.clients.as_ref().map_or(1, |clients| clients.of(self.scale, value) as u32))
        };
        let whole_s =
            || periods.and_then(|text| text.parse::<PhasePlan>().ok()).map_or(0.0, |plan| plan.duration_s());
        Point {
            name,
            x,
            ask,
            load,
            requests_per_connection: match form.requests_per_connection {
                Some(0) => u32::MAX,
                count => count.unwrap_or(1),
            },
            duration_s: form
                .duration_s
                .as_ref()
                .map_or_else(|| whole_s() / self.speed, |s| s.of(self.scale, value)),
        }
    }

    fn ask(&self, stage: &Stage<'_>, form: &PointForm, at: Value) -> Ask {
        match (&form.ask, &stage.set) {
            (AskForm::Times(times), _) => Ask::Directories(self.scale.directories(*times)),
            (AskForm::Named(Asked::TimesMemory), _) => Ask::Directories(self.scale.directories(at.value)),
            (AskForm::Named(Asked::Length), _) => Ask::File(at.number),
            (AskForm::Named(Asked::Pareto), _) => Ask::Pareto,
            (AskForm::All, Set::Specweb99 { directories }) => Ask::Directories(*directories),
            (AskForm::Named(Asked::Replay) | AskForm::All, _) => Ask::Replay,
        }
    }

    /// Hot requests beside cold ones. Each point has cold files of its own.
    fn beside(&self, stage: &Stage<'_>, form: &PointForm, at: Value) -> Beside {
        let (hot_directories, hot_rate_per_s) =
            form.beside.as_ref().map_or((0, 0.0), |beside| (beside.hot_directories, beside.hot_rate_per_s));
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
