//! The plan of an experiment: which servers get which load, how often and for how long.
//!
//! Each experiment makes a plan; [`super::rounds`] carries it out and `flash experiment list` adds its times up.
//! Pure.

use flash_load::files::heavy_tail::Trace;
use flash_load::workload::access_log::made::MadeLog;
use std::path::PathBuf;

use crate::execute;
use flash_kit::text::distinct;
use serde::Deserialize;

/// How long a server takes to start, to answer its first requests and to end; seconds, about.
const TURN_S: f64 = 2.5;
/// How long the last answers of a measurement take; seconds, about.
const DRAIN_S: f64 = 0.5;
/// The default number of turns of a server: with fewer rounds there is no interval, and so no verdict.
pub(super) const ROUNDS: u32 = 5;
/// The approximate speed at which a new file set is written, bytes per second.
const WRITTEN_BYTES_PER_S: f64 = 60e6;

#[derive(Clone, Debug)]
pub(super) struct Scale {
    /// Fewer points, shorter ones.
    pub(super) quick: bool,
    /// The server's memory: file sets are as much larger or smaller than it as in the papers.
    pub(super) memory_bytes: u64,
    /// Servers beside Flash, by the names of ready-made ones.
    pub(super) peers: Vec<String>,
    /// Real logs, in place of the made-up ones.
    pub(super) logs: Vec<PathBuf>,
}

impl Scale {
    /// One of two, by whether it is to be quick.
    pub(super) fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// This multiple of the memory, in directories of a SPECweb99 set.
    pub(super) fn directories(&self, times_memory: f64) -> u32 {
        let bytes = (self.memory_bytes as f64 * times_memory) as u64;
        u32::try_from(flash_load::files::layout::directories_for(bytes)).unwrap_or(u32::MAX)
    }
}

/// The whole of an experiment.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub(super) variants: Vec<Variant>,
    pub(super) sets: Vec<Set>,
    /// In their order, in each round.
    pub(super) scenes: Vec<Scene>,
    pub(super) rounds: u32,
    /// Ask the server for its own counters, and look at the states of its processes.
    pub(super) looks_inside: bool,
}

/// A variant of a server: `flash serve`, or a ready-made server.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Variant {
    /// In tables and legends.
    pub(super) name: String,
    /// The arguments of `flash serve`; `{clients}` stands for the scene's number of clients.
    #[serde(default)]
    pub(super) flash: Vec<String>,
    /// The name of a ready-made server, in place of `flash serve`.
    pub(super) peer: Option<String>,
    /// It gets a process or thread for each client; with more clients than this it is not tried.
    pub(super) clients_max: Option<u32>,
    /// In a scene with a line: the server's device sends packets in the order of the bands that this server sets.
    #[serde(default)]
    pub(super) has_bands: bool,
}

/// The files that a scene serves.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Set {
    Specweb99 {
        directories: u32,
    },
    Lengths(Vec<u64>),
    Made(MadeLog),
    Log(PathBuf),
    /// Files whose lengths have a heavy tail, this many bytes of them.
    Pareto {
        set_bytes: u64,
        trace: Trace,
    },
}

/// The load of the servers in each of their turns.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) set: usize,
    /// Bounded memory and disk reads: the point of a scene whose files do not fit.
    pub(super) is_bounded: bool,
    /// Share of a core, percent.
    pub(super) cpu: Option<Cpu>,
    /// Asked without measuring, with the disk at its full speed.
    pub(super) warm_up_s: f64,
    pub(super) points: Vec<Point>,
    /// The value of `{clients}` in arguments.
    pub(super) clients: Option<u32>,
    /// The network between server and clients; the loopback device without.
    pub(super) line: Option<Line>,
    /// The names of the variants that it is for; empty for all.
    pub(super) only: Vec<String>,
}

/// A link between a server and its clients (overload-and-srpt, Table 2).
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Line {
    /// From the server to the clients. The other direction has no bound.
    pub(super) rate_bits_per_s: u64,
    /// There and back.
    #[serde(default)]
    pub(super) round_trip_ms: f64,
    /// The share of the packets that are lost, in each direction.
    #[serde(default)]
    pub(super) loss: f64,
    #[serde(default = "packet_bytes")]
    pub(super) packet_bytes: u32,
    /// Whether the server's kernel answers with SYN cookies alone.
    #[serde(default)]
    pub(super) has_syn_cookies: bool,
    /// The initial retransmission timeout of TCP; that of the kernel without.
    #[serde(default)]
    pub(super) initial_timeout_ms: Option<u64>,
    #[serde(default)]
    pub(super) bottleneck: Bottleneck,
}

fn packet_bytes() -> u32 {
    1500
}

/// The place where the packets of a line wait for its rate.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Bottleneck {
    #[default]
    /// The server's own device, where Linux keeps only a few packets of each connection (TCP small queues).
    Device,
    /// A router behind it: packets beyond its queue are lost.
    Router,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cpu {
    pub(super) percent: u32,
    /// Without it the scene has no point. Else it only keeps the generator from being the limit.
    pub(super) is_needed: bool,
}

/// One measurement.
#[derive(Clone, Debug)]
pub(super) struct Point {
    /// A level of the results.
    pub(super) name: String,
    /// Where it stands on the axis.
    pub(super) x: f64,
    pub(super) files: FileChoice,
    pub(super) load: Load,
    /// After this many requests a client closes its connection.
    pub(super) requests_per_connection: u32,
    pub(super) duration_s: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum FileChoice {
    /// SPECweb99's choice from this many directories, counted from the first.
    Directories(u32),
    /// The file with this number of a set of lengths.
    File(usize),
    /// The requests of a log in their order, over and over.
    Replay,
    /// Each file of a heavy-tailed set equally often.
    Pareto,
}

/// How requests arrive.
#[derive(Clone, Debug)]
pub(super) enum Load {
    /// This many clients without pause.
    Infinite(u32),
    /// Poisson arrivals, at a fraction of the rate answered at another point, by its name.
    Fraction(f64, String),
    /// Hot requests, alone or beside cold ones.
    Beside(Beside),
    /// Poisson arrivals at rates that change, in loads of the scene's line.
    Phases(Phases),
}

/// Periods of load and the patience of users.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Phases {
    /// In the form of `flash load --phases`, such as `W1`. The periods are stretched to the duration of the point, and the
    /// one with the highest load comes first, so that a measurement ends with low load and few requests under way.
    pub(super) periods: String,
    /// After how many seconds a user gives up, and how often it then tries again; for ever without.
    pub(super) abort: Option<(f64, u8)>,
}

/// Poisson arrivals for small files that stay in memory, and for files that are asked for once.
#[derive(Clone, Debug)]
pub(super) struct Beside {
    pub(super) hot_directories: u32,
    pub(super) hot_rate_per_s: f64,
    /// None for hot requests alone.
    pub(super) cold: Option<execute::Beside>,
}

impl Scene {
    pub(super) fn is_for(&self, variant: &Variant) -> bool {
        self.only.is_empty() || self.only.contains(&variant.name)
    }

    pub(super) fn names(&self) -> String {
        self.points.iter().map(|point| point.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn leaves_out(&self, variant: &Variant) -> Option<String> {
        let (clients, most) = (self.clients?, variant.clients_max?);
        (clients > most)
            .then(|| format!("{clients} clients need as many processes or threads, and {most} are the most"))
    }
}

impl Plan {
    pub(super) fn adjusted(mut self, rounds: Option<u32>, duration_s: Option<f64>) -> Self {
        self.rounds = rounds.unwrap_or(self.rounds);
        if let Some(duration_s) = duration_s {
            for scene in &mut self.scenes {
                scene.warm_up_s = scene.warm_up_s.min(duration_s);
                scene.points.iter_mut().for_each(|point| point.duration_s = duration_s);
            }
        }
        self
    }

    /// Whether loads are fractions of the capacity at this point.
    pub(super) fn has_fractions_of(&self, point: &str) -> bool {
        self.points().iter().any(|other| matches!(&other.load, Load::Fraction(_, of) if of == point))
    }

    /// How long it takes, about; without making its file sets.
    pub(super) fn run_s(&self) -> f64 {
        let turn_s = |scene: &Scene| {
            let point_s = |point: &Point| {
                let searched_s = if self.has_fractions_of(&point.name) { point.duration_s } else { 0.0 };
                point.duration_s + searched_s + DRAIN_S
            };
            let points_s: f64 = scene.points.iter().map(point_s).sum();
            let takes_part =
                |variant: &&Variant| scene.is_for(variant) && scene.leaves_out(variant).is_none();
            let turns = self.variants.iter().filter(takes_part).count();
            turns as f64 * (TURN_S + scene.warm_up_s + points_s)
        };
        f64::from(self.rounds) * self.scenes.iter().map(turn_s).sum::<f64>()
    }

    /// How large its file sets are together.
    pub(super) fn set_bytes(&self) -> u64 {
        let bytes = |set: &Set| match set {
            Set::Specweb99 { directories } => {
                u64::from(*directories) * flash_load::files::layout::DIRECTORY_BYTES
            }
            Set::Lengths(lengths) => lengths.iter().sum(),
            Set::Made(log) => log.dataset_bytes,
            Set::Pareto { set_bytes, .. } => *set_bytes,
            // As large as its log says, which nobody has read yet.
            Set::Log(_) => 0,
        };
        self.sets.iter().map(bytes).sum()
    }

    pub(super) fn making_s(&self) -> f64 {
        self.set_bytes() as f64 / WRITTEN_BYTES_PER_S
    }

    /// The settings that differ between scenes or points, by name: all their values in words.
    pub(super) fn settings(&self) -> [(&'static str, String); 2] {
        let points = self.scenes.iter().flat_map(|scene| &scene.points);
        let kept = |point: &Point| match point.requests_per_connection {
            u32::MAX => "unlimited".to_owned(),
            count => count.to_string(),
        };
        let warm_up = |scene: &Scene| format!("{} s", scene.warm_up_s);
        [
            ("requests per connection", distinct(points.map(kept)).join(", ")),
            ("warm-up", distinct(self.scenes.iter().map(warm_up)).join(", ")),
        ]
    }

    pub(super) fn points(&self) -> Vec<&Point> {
        let mut points: Vec<&Point> = Vec::new();
        for point in self.scenes.iter().flat_map(|scene| &scene.points) {
            if !points.iter().any(|known| known.name == point.name) {
                points.push(point);
            }
        }
        points
    }
}

pub(super) fn minutes(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{:.0} s", s.max(1.0)),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}
