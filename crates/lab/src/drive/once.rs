//! `flash load`: one server at one load.

use crate::error::{Error, Result};
use crate::results::Subject;
use crate::workload::{Arrivals, PhasePlan, PhaseRate, Spec};

use super::{Driver, Ending, Level, Options, Served, level_name};

/// Clients when nothing is said about arrivals.
pub const CLIENTS: u32 = 64;
/// How long a load takes when nothing limits it, seconds.
const DURATION_S: f64 = 10.0;
/// The highest rate, requests per second.
const RATE_MAX_PER_S: f64 = 10_000_000.0;

/// How requests arrive.
#[derive(Clone, Debug)]
pub enum Arrive {
    /// Closed loop: so many clients ask, each again after thinking for so many seconds.
    Closed {
        /// How many.
        clients: u32,
        /// Seconds between an answer and the next request.
        think_s: f64,
    },
    /// Open loop at a rate.
    Open {
        /// How much.
        rate: Rate,
        /// How the starts are spread.
        spacing: Spacing,
    },
    /// Open loop in phases.
    Phases {
        /// Their lengths and rates.
        plan: PhasePlan,
        /// How the starts are spread.
        spacing: Spacing,
    },
    /// As a trace has them.
    Trace,
}

/// How much is asked for.
#[derive(Clone, Copy, Debug)]
pub enum Rate {
    /// Requests per second.
    PerSecond(f64),
    /// A fraction of the capacity.
    Level(f64),
}

/// How the starts of an open loop are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// Independent of each other.
    Poisson,
    /// Evenly.
    Fixed,
}

/// What `flash load` is asked for.
#[derive(Clone, Debug)]
pub struct Load {
    /// What all commands are asked for.
    pub options: Options,
    /// The server.
    pub url: String,
    /// Its process, to measure what it uses.
    pub pid: Option<u32>,
    /// How requests arrive.
    pub arrive: Arrive,
    /// Requests per second that level 1 stands for; found by infinite demand when it is needed and
    /// not given.
    pub capacity_per_s: Option<f64>,
}

/// Drives the server, prints a table, keeps the results.
///
/// Errors: usage, for options that make no sense; run, for a server that answers nothing properly.
pub fn run(load: Load) -> Result<Ending> {
    let Load { options, url, pid, arrive, capacity_per_s } = load;
    check(&options, &arrive, capacity_per_s)?;
    let served = Served::running("load", &options, &url, pid)?;
    let mut driver = Driver::new("load", options)?;
    driver.preflight(&served)?;
    let capacity = match capacity_per_s {
        None if needs_capacity(&arrive) => {
            driver.warm_up_fast(&served)?;
            driver.capacity(&served, None)?
        }
        _ => None,
    };
    let level_1_per_s = capacity_per_s.or(capacity.as_ref().map(|c| c.requests_per_s));
    let dataset_bytes = driver.workload().catalogue().dataset_bytes();
    let mut measured = Vec::new();
    if !driver.is_interrupted() {
        let level = level(&driver, &arrive, level_1_per_s)?;
        driver.run_mut().arrivals = describe(&arrive, &level);
        driver.warm_up(&served, &level)?;
        if !driver.is_interrupted() {
            measured.push(driver.level(&served, &level)?.measures);
        }
    }
    driver.run_mut().subjects.push(Subject {
        dataset_bytes,
        capacity,
        levels: measured,
        ..Subject::of(&url, &url)
    });
    driver.finish()
}

fn needs_capacity(arrive: &Arrive) -> bool {
    match arrive {
        Arrive::Open { rate: Rate::Level(_), .. } => true,
        Arrive::Phases { plan, .. } => plan.needs_capacity(),
        _ => false,
    }
}

/// Refuses arrivals that make no sense.
fn check(options: &Options, arrive: &Arrive, capacity_per_s: Option<f64>) -> Result<()> {
    let usage = |text: String| Err(Error::usage(text));
    let is_trace = matches!(options.workload, Spec::Trace { .. });
    for (name, rate) in [
        ("capacity", capacity_per_s),
        (
            "rate",
            match arrive {
                Arrive::Open { rate: Rate::PerSecond(rate) | Rate::Level(rate), .. } => Some(*rate),
                _ => None,
            },
        ),
    ] {
        if rate.is_some_and(|rate| !(rate > 0.0 && rate <= RATE_MAX_PER_S)) {
            return usage(format!("the {name} must be above 0 and at most {RATE_MAX_PER_S}"));
        }
    }
    match arrive {
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
        Arrive::Trace if !is_trace => {
            return usage("only a trace has its own arrival times".to_owned());
        }
        Arrive::Phases { .. } if is_trace => {
            return usage("a trace has its own arrival times: scale them by --rate or --load".to_owned());
        }
        _ => {}
    }
    Ok(())
}

/// What is asked for, with the rates in requests per second.
fn level(driver: &Driver, arrive: &Arrive, level_1_per_s: Option<f64>) -> Result<Level> {
    let workload = driver.workload();
    let duration_s = driver.options().duration_s;
    let plain =
        |name: &str, arrivals| Level { arrivals, ..Level::open(name, duration_s.unwrap_or(DURATION_S)) };
    let trace_s = || workload.trace_duration_s().unwrap_or(DURATION_S);
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
            match workload.trace_mean_rate_per_s() {
                Some(mean_per_s) => {
                    let speed = rate_per_s / mean_per_s;
                    let duration_s = duration_s.unwrap_or(trace_s() / speed);
                    Level { arrivals: Arrivals::Trace { speed }, duration_s, ..shared }
                }
                None => {
                    let phase = PhaseRate { duration_ns: super::nanoseconds(shared.duration_s), rate_per_s };
                    Level { arrivals: spaced(*spacing, vec![phase]), ..shared }
                }
            }
        }
        Arrive::Phases { plan, spacing } => {
            let phases = plan.rates(level_1_per_s)?;
            let whole_ns: u64 = phases.iter().map(|phase| phase.duration_ns).sum();
            let duration_s = whole_ns as f64 / 1e9;
            let asked: f64 = phases.iter().map(|p| p.rate_per_s * p.duration_ns as f64 / 1e9).sum();
            let shared = plain("phases", spaced(*spacing, phases));
            Level { duration_s, asked_per_s: Some(asked / duration_s), ..shared }
        }
        Arrive::Trace => {
            let duration_s = duration_s.unwrap_or_else(trace_s);
            let asked_per_s = workload.trace_rate_per_s(duration_s);
            Level { duration_s, asked_per_s, ..plain("trace", Arrivals::Trace { speed: 1.0 }) }
        }
    })
}

fn spaced(spacing: Spacing, phases: Vec<PhaseRate>) -> Arrivals {
    match spacing {
        Spacing::Poisson => Arrivals::Poisson { phases },
        Spacing::Fixed => Arrivals::Fixed { phases },
    }
}

/// How requests arrive, in words.
fn describe(arrive: &Arrive, level: &Level) -> String {
    let spaced = |spacing: &Spacing| if *spacing == Spacing::Poisson { "Poisson" } else { "evenly spaced" };
    match arrive {
        Arrive::Closed { clients, think_s } if *think_s > 0.0 => {
            format!("closed loop: {clients} clients that think for {think_s} s")
        }
        Arrive::Closed { clients, .. } => format!("closed loop: {clients} clients without pause"),
        Arrive::Open { spacing, .. } => match &level.arrivals {
            Arrivals::Trace { speed } => format!("open loop: the trace's times, {speed:.3} times as fast"),
            _ => format!("open loop: {} arrivals", spaced(spacing)),
        },
        Arrive::Phases { plan, spacing } => {
            format!("open loop: {} arrivals in phases: {plan}", spaced(spacing))
        }
        Arrive::Trace => "open loop: the trace's times".to_owned(),
    }
}
