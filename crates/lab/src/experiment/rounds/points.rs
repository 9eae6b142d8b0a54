//! Measures the points of a scene, with the load that each asks for.
//!
//! [`Rounds`](super::Rounds) calls it for each server, when that is warm.

use std::path::Path;
use std::time::{Duration, Instant};

use super::{At, CONNECTIONS, Rounds, users};
use crate::drive::{Level, Served};
use crate::execute::{Executor, HotMix, ServerUnderTest, Streams};
use crate::experiment::behind;
use crate::experiment::capacities::settled_per_s;
use crate::experiment::inside::{self, Inside};
use crate::experiment::plan::{Beside, Load, Point};
use crate::testbed::States;
use flash_kit::{Error, Result};
use flash_load::measure::validity::{self, Cause};

/// How often a fraction of the capacity is measured that the server does not keep up with.
const ATTEMPTS_MAX: u32 = 3;
/// The least share of the capacity that is left after one of them: a server with a long queue answers less than it can.
const LOWERED_TO: f64 = 0.85;
/// How often the states of processes are looked at.
const LOOK: Duration = Duration::from_millis(250);

impl Rounds<'_> {
    /// One measurement. The server is asked for its counters at `control`, if it is.
    pub(super) fn point(
        &mut self,
        tested: &ServerUnderTest,
        control: Option<&Path>,
        at: At,
        number: usize,
    ) -> Result<()> {
        if let Some(why) = tested.running.ended() {
            return Err(Error::run(why));
        }
        let plan = self.plan;
        let point = &plan.scenes[at.scene].points[number];
        let (spec, workload) = self.workloads[at.scene][number].clone();
        self.executor.driver.turn_to(spec, workload);
        let flash = self.flash.clone();
        let fetch = || control.map(|control| inside::fetch(&flash, control)).transpose();
        let (before, began) = (fetch()?, Instant::now());
        let states = match tested.running.pid {
            Some(pid) if self.plan.looks_inside => Some(States::watch(pid, LOOK, &self.options.cores)?),
            _ => None,
        };
        self.load(&tested.served, at, point)?;
        if self.plan.looks_inside {
            let moments = states.map(States::finish).unwrap_or_default();
            let (after, passed_s) = (fetch()?, began.elapsed().as_secs_f64());
            let inside = Inside::of(before.as_ref().zip(after.as_ref()), moments, passed_s);
            let variant = self.plan.variants[at.variant].name.clone();
            self.inside.push(Inside { variant, point: point.name.clone(), round: at.round, ..inside });
        }
        self.find_capacity(&tested.served, at, point)
    }

    /// The load of a measurement.
    fn load(&mut self, served: &Served, at: At, point: &Point) -> Result<()> {
        let plan = self.plan;
        let level = match &point.load {
            Load::Infinite(clients) => Level::infinite(&point.name, *clients, point.duration_s),
            Load::Beside(beside) => return self.beside(served, at, point, beside),
            Load::Phases(phases) => {
                let workload = &self.executor.driver.workload;
                let rates = behind::rates(&plan.scenes[at.scene], point, phases, workload)?;
                Level::phases(&point.name, rates, workload)
            }
            Load::Fraction(fraction, of) => return self.fraction(served, at, point, (*fraction, of)),
        };
        let level = Level { round: Some(at.round), users: Some(users(point)), ..level };
        let driven = self.executor.driver.level(served, &level)?;
        self.executor.keep(at.variant, driven);
        Ok(())
    }

    /// A fraction of the capacity after a point of infinite demand. A server that does not keep up with it is measured anew, with
    /// a lower capacity, unless the machine had a part in it.
    fn fraction(
        &mut self,
        served: &Served,
        at: At,
        point: &Point,
        (fraction, of): (f64, &str),
    ) -> Result<()> {
        let variant = &self.plan.variants[at.variant];
        for attempt in 1.. {
            let capacity = self.capacities.of(variant, of)?;
            let level = Level::fraction(fraction, capacity, point.duration_s);
            let (name, users) = (point.name.clone(), users(point));
            let level = Level { name, round: Some(at.round), users: Some(users), ..level };
            let driven = self.executor.driver.level(served, &level)?;
            let causes = validity::causes(&driven.measures);
            let is_too_much =
                causes.contains(&Cause::Overloaded) && !causes.into_iter().any(Cause::is_of_machine);
            let is_last = attempt == ATTEMPTS_MAX || self.executor.driver.is_interrupted();
            if !is_too_much || is_last {
                self.executor.keep(at.variant, driven);
                break;
            }
            let lower = driven.measures.answered_per_s.max(capacity * LOWERED_TO);
            self.capacities.lower(variant, of, lower);
            let (name, round) = (&variant.name, at.round);
            self.executor.driver.note(format!(
                "{name}, round {round}: overloaded at {} of {capacity:.0} requests/s, measured anew with {lower:.0}",
                point.name
            ));
        }
        Ok(())
    }

    /// One measurement of hot requests, and of cold ones beside them.
    fn beside(&mut self, served: &Served, at: At, point: &Point, beside: &Beside) -> Result<()> {
        eprintln!("{}, round {}: {} for {} s", served.name, at.round, point.name, point.duration_s);
        let streams = Streams {
            hot_mix: HotMix::Small,
            hot_directories: beside.hot_directories,
            hot_rate_per_s: beside.hot_rate_per_s,
            beside: beside.cold.as_ref(),
            order_seed: self.seed(at),
            // The page cache was dropped before this turn.
            taken: 0,
            duration_s: point.duration_s,
            connections_max: CONNECTIONS,
            in_memory_share: Some(1.0),
            seed: self.seed(at),
        };
        let names = (point.name.as_str(), &*format!("{}, the cold ones", point.name));
        let driver = &mut self.executor.driver;
        for driven in streams.drive(driver, served, &users(point), names, Some(at.round))? {
            self.executor.keep(at.variant, driven);
        }
        Ok(())
    }

    /// Searches for the highest rate that a server sustains, if others are to be fractions of it.
    fn find_capacity(&mut self, served: &Served, at: At, point: &Point) -> Result<()> {
        if !self.plan.has_fractions_of(&point.name) {
            return Ok(());
        }
        let Executor { driver, subjects, .. } = &mut self.executor;
        driver.options.users = users(point);
        // A search has about five probes, so it takes about as long as the point.
        driver.options.duration_s = Some(point.duration_s / 5.0);
        let settled_per_s = subjects[at.variant].rounds.last().map(settled_per_s);
        if let Some(found) = driver.capacity(served, Some(at.round), settled_per_s)? {
            self.capacities.add(&self.plan.variants[at.variant], &point.name, found.requests_per_s);
        }
        Ok(())
    }
}
