//! `flash load`: one server at one load.

use crate::results::Subject;
use flash_kit::number::figure;
use flash_kit::{Ending, Error, Result};
use flash_load::workload::{Arrivals, Link, PhasePlan, PhaseRate, Spec};

use super::{Driver, Level, Options, Served, level_name};

/// The number of clients by default.
pub const CLIENTS: u32 = 64;
/// How long a load takes when nothing limits it, seconds.
const DURATION_S: f64 = 10.0;
const RATE_MAX_PER_S: f64 = 10_000_000.0;

#[derive(Clone, Debug)]
pub enum Arrive {
    /// Closed loop: each client asks again after its answer and a pause.
    Closed {
        clients: u32,
        /// Seconds between an answer and the next request.
        think_s: f64,
    },
    Open {
        rate: Rate,
        spacing: Spacing,
    },
    Phases {
        plan: PhasePlan,
        spacing: Spacing,
    },
    Log,
}

#[derive(Clone, Copy, Debug)]
pub enum Rate {
    PerSecond(f64),
    /// A fraction of the capacity.
    Level(f64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Spacing {
    /// Independent of each other.
    Poisson,
    /// Evenly.
    Fixed,
}

#[derive(Clone, Debug)]
pub struct Load {
    pub options: Options,
    pub url: String,
    /// Its process id, to measure its CPU time and memory.
    pub pid: Option<u32>,
    pub arrive: Arrive,
    pub capacity: LoadOne,
}

/// The rate of requests that levels are fractions of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadOne {
    /// The capacity of the server, which is searched for when it is needed.
    Searched,
    PerSecond(f64),
    /// The requests that fill a link, whatever the server does.
    Link(Link),
}

/// Drives the server, prints a table, keeps the results.
///
/// Errors: usage, for invalid options; run, for a server that answers nothing properly.
pub fn run(load: Load) -> Result<Ending> {
    let Load { options, url, pid, arrive, capacity: load_1 } = load;
    check(&options, &arrive, load_1)?;
    let served = Served::running("load", &options, &url, pid)?;
    let mut driver = Driver::new("load", options)?;
    let of_link = match load_1 {
        LoadOne::Link(link) => Some(link_capacity(&mut driver, link)?),
        LoadOne::Searched | LoadOne::PerSecond(_) => None,
    };
    driver.preflight(&served)?;
    let (capacity, level_1_per_s) = match load_1 {
        LoadOne::Searched if needs_capacity(&arrive) => {
            driver.warm_up_fast(&served)?;
            let found = driver.capacity(&served, None, None)?;
            let per_s = found.as_ref().map(|capacity| capacity.requests_per_s);
            (found, per_s)
        }
        LoadOne::Searched => (None, None),
        LoadOne::PerSecond(per_s) => (None, Some(per_s)),
        LoadOne::Link(_) => (None, of_link),
    };
    let dataset_bytes = driver.workload.catalogue().dataset_bytes();
    let mut measured = Vec::new();
    if !driver.is_interrupted() {
        let level = level(&driver, &arrive, level_1_per_s)?;
        let level = Level { overload: level.overload || matches!(load_1, LoadOne::Link(_)), ..level };
        driver.run.arrivals = describe(&arrive, &level);
        driver.warm_up(&served, &level)?;
        if !driver.is_interrupted() {
            measured.push(driver.level(&served, &level)?.measures);
        }
    }
    driver.run.subjects.push(Subject {
        dataset_bytes,
        capacity,
        levels: measured,
        ..Subject::of(&url, &url)
    });
    driver.finish()
}

fn link_capacity(driver: &mut Driver, link: Link) -> Result<f64> {
    let per_connection = driver.options.users.requests_per_connection.unwrap_or(u32::MAX);
    let per_s = link.capacity_per_s(&driver.workload, per_connection)?;
    let text = format!(
        "{} Mbit/s in packets of {} bytes: load 1 is {} requests/s",
        link.rate_bits_per_s as f64 / 1e6,
        link.packet_bytes,
        figure(per_s)
    );
    driver.run.settings.insert("link".to_owned(), text);
    Ok(per_s)
}

fn needs_capacity(arrive: &Arrive) -> bool {
    match arrive {
        Arrive::Open { rate: Rate::Level(_), .. } => true,
        Arrive::Phases { plan, .. } => plan.needs_capacity(),
        _ => false,
    }
}

fn check(options: &Options, arrive: &Arrive, load_1: LoadOne) -> Result<()> {
    let usage = |text: String| Err(Error::usage(text));
    let is_log = matches!(options.workload, Spec::Log { .. });
    let is_possible = |rate: f64| rate > 0.0 && rate <= RATE_MAX_PER_S;
    let bound = format!("must be above 0 and at most {RATE_MAX_PER_S}");
    if let LoadOne::PerSecond(per_s) = load_1
        && !is_possible(per_s)
    {
        return usage(format!("the capacity {bound}"));
    }
    match arrive {
        Arrive::Open { rate: Rate::PerSecond(rate) | Rate::Level(rate), .. } if !is_possible(*rate) => {
            return usage(format!("the rate {bound}"));
        }
        Arrive::Closed { .. } if options.users.sessions.is_some() => {
            return usage(
                "users come back only in an open loop: give --rate, --load or --phases too".to_owned(),
            );
        }
        Arrive::Closed { clients, think_s } => {
            if *clients == 0 || *clients > options.users.connections_max {
                let most = options.users.connections_max;
                return usage(format!(
                    "{clients} clients: 1 to {most} are possible, as many as --connections"
                ));
            }
            if !(0.0..=super::PHASE_S_MAX).contains(think_s) {
                return usage(format!("clients that think for {think_s} s: 0 to a day is possible"));
            }
        }
        Arrive::Phases { .. } if options.duration_s.is_some() => {
            return usage("phases have their own durations: leave --duration out".to_owned());
        }
        Arrive::Log if !is_log => {
            return usage("only a log has its own arrival times".to_owned());
        }
        Arrive::Phases { spacing: Spacing::Fixed, .. } if is_log => {
            return usage(
                "the requests of a log have its own gaps, which phases scale: leave --arrivals out"
                    .to_owned(),
            );
        }
        _ => {}
    }
    Ok(())
}

fn level(driver: &Driver, arrive: &Arrive, level_1_per_s: Option<f64>) -> Result<Level> {
    let workload = &driver.workload;
    let duration_s = driver.options.duration_s;
    let plain =
        |name: &str, arrivals| Level { arrivals, ..Level::open(name, duration_s.unwrap_or(DURATION_S)) };
    let log_s = || workload.log_duration_s().unwrap_or(DURATION_S);
    Ok(match arrive {
        Arrive::Closed { clients, think_s } => {
            Level { clients: Some((*clients, *think_s)), ..plain("closed loop", Arrivals::Closed) }
        }
        Arrive::Open { rate, spacing } => {
            let (rate_per_s, load_level) = match rate {
                Rate::PerSecond(rate_per_s) => (*rate_per_s, None),
                Rate::Level(fraction) => (fraction * level_1_per_s.unwrap_or_default(), Some(*fraction)),
            };
            if rate_per_s <= 0.0 {
                return Err(Error::run("the capacity is 0: the server answered nothing properly"));
            }
            let name = load_level.map_or("open loop".to_owned(), level_name);
            let shared =
                Level { load_level, asked_per_s: Some(rate_per_s), ..plain(&name, Arrivals::Closed) };
            match workload.log_mean_rate_per_s() {
                Some(mean_per_s) => {
                    let speed = rate_per_s / mean_per_s;
                    let duration_s = duration_s.unwrap_or(log_s() / speed);
                    Level { arrivals: Arrivals::Log { speed }, duration_s, ..shared }
                }
                None => {
                    let phase = PhaseRate { duration_ns: super::nanoseconds(shared.duration_s), rate_per_s };
                    let phases = vec![phase];
                    let arrivals = match spacing {
                        Spacing::Poisson => Arrivals::Poisson { phases },
                        Spacing::Fixed => Arrivals::Fixed { phases },
                    };
                    Level { arrivals, ..shared }
                }
            }
        }
        Arrive::Phases { plan, spacing } => {
            let level = Level::phases("phases", plan.rates(level_1_per_s)?, workload);
            match (level.arrivals, spacing) {
                (Arrivals::Poisson { phases }, Spacing::Fixed) => {
                    Level { arrivals: Arrivals::Fixed { phases }, ..level }
                }
                (arrivals, _) => Level { arrivals, ..level },
            }
        }
        Arrive::Log => {
            let duration_s = duration_s.unwrap_or_else(log_s);
            let asked_per_s = workload.log_rate_per_s(duration_s);
            Level { duration_s, asked_per_s, ..plain("log", Arrivals::Log { speed: 1.0 }) }
        }
    })
}

fn describe(arrive: &Arrive, level: &Level) -> String {
    let spaced = |spacing: &Spacing| if *spacing == Spacing::Poisson { "Poisson" } else { "evenly spaced" };
    match arrive {
        Arrive::Closed { clients, think_s } if *think_s > 0.0 => {
            format!("closed loop: {clients} clients that think for {think_s} s")
        }
        Arrive::Closed { clients, .. } => format!("closed loop: {clients} clients without pause"),
        Arrive::Open { spacing, .. } => match &level.arrivals {
            Arrivals::Log { speed } => format!("open loop: the log's times, {speed:.3} times as fast"),
            _ => format!("open loop: {} arrivals", spaced(spacing)),
        },
        Arrive::Phases { plan, spacing } => match &level.arrivals {
            Arrivals::LogPhases { .. } => format!("open loop: the log's gaps, scaled to phases: {plan}"),
            _ => format!("open loop: {} arrivals in phases: {plan}", spaced(spacing)),
        },
        Arrive::Log => "open loop: the log's times".to_owned(),
    }
}
