//! The result of a report in one sentence: the winner and the factor, as far as the intervals allow.
//!
//! The page and the JSON call it. A level that does not count (overload, failures, the generator) wins nothing, and a
//! factor whose interval holds 1 is not given. Pure.

use super::levels::is_of_own_capacity;
use super::view::{Picked, Shown, View, has_latency, is_phase};
use crate::results::{Ratio, Subject};
use flash_kit::number::{self, figure, percent, time};
use flash_kit::text::capital;
use flash_load::measure::Measures;
use flash_load::measure::validity::{self, Cause, Doubt};

const MEASURE: &str = "p99";
const GENERATOR_LIMIT: &str = "the generator was the limit";
/// The sentence compares no more servers; the table has all.
const OTHERS_MAX: usize = 4;
/// Rates that differ by less are one rate.
const RATES_APART_MAX: f64 = 0.01;

pub(super) fn sentence(view: &View) -> Option<String> {
    let phases = phases(view);
    let verdicts: Vec<String> = view.drawn().filter_map(|shown| verdict(view, shown)).collect();
    if !verdicts.is_empty() {
        return Some(verdicts.join(". ") + ".");
    }
    if !phases.is_empty() {
        return Some(growths(&phases));
    }
    let picked = candidates(view);
    match &picked[..] {
        [] => None,
        [only] => Some(alone(view, only)),
        _ if view.named().is_some() => Some(each(&picked)),
        _ => Some(contest(view, picked)),
    }
}

/// The compared measures; of a sweep only those of the largest data set, because others are not comparable.
fn candidates<'a>(view: &'a View) -> Vec<Picked<'a>> {
    let picked = view.picked();
    if !view.is_sweep() || view.named().is_some() {
        return picked;
    }
    let largest = view.drawn().filter_map(|shown| shown.subject.dataset_bytes).max();
    let is_largest = |picked: &Picked| {
        let own = view.drawn().find(|shown| shown.label == picked.label);
        own.is_some_and(|shown| shown.subject.dataset_bytes == largest)
    };
    picked.into_iter().filter(is_largest).collect()
}

/// One server: its latency, and how much of it comes with load.
fn alone(view: &View, only: &Picked) -> String {
    let Picked { label, measures, .. } = only;
    let latency = &measures.latency;
    let mut text = format!(
        "{} {label}'s p99 is {}, its median {}",
        capital(&place(view, std::slice::from_ref(only))),
        time(latency.p99_ms),
        time(latency.p50_ms)
    );
    let levels = view.drawn().flat_map(|shown| &shown.subject.levels);
    let loaded = levels.filter(|m| has_latency(m) && m.load_level.is_some_and(f64::is_finite));
    let lowest = loaded.min_by(|a, b| a.load_level.unwrap_or(0.0).total_cmp(&b.load_level.unwrap_or(0.0)));
    if let Some(lowest) = lowest.filter(|lowest| lowest.name != measures.name) {
        let name = number::plain(&lowest.name);
        text += &format!("; at load {name} its p99 is {}", time(lowest.latency.p99_ms));
    }
    match doubt(measures) {
        Some(doubt) => format!("{text}. This does not count: {doubt}."),
        None => text + ".",
    }
}

/// The verdict of `flash interfere` on a server, in the words that it printed.
fn verdict(view: &View, shown: &Shown) -> Option<String> {
    let name = format!("verdict on {}", shown.subject.name);
    let is_own = |subject: &Subject| std::ptr::eq(subject, shown.subject);
    let run = view.runs.iter().find(|run| run.subjects.iter().any(is_own))?;
    let words = run.settings.get(&name)?;
    Some(format!("{}: {}", shown.label, number::plain(words)))
}

/// Two phases of one server that its run compares.
struct Phases<'a> {
    server: String,
    before: &'a Measures,
    after: &'a Measures,
    times: Times,
}

/// The compared phases of each server, the least latency first.
fn phases<'a>(view: &'a View) -> Vec<Phases<'a>> {
    let mut found = Vec::new();
    for shown in view.drawn() {
        let of = |name: &str| {
            let mut levels = shown.subject.levels.iter().filter(|measures| has_latency(measures));
            levels.find(|level| is_phase(name, &shown.subject.name, &level.name))
        };
        let ratios = view.runs.iter().flat_map(|run| &run.ratios);
        let compared = ratios.filter(|ratio| ratio.measure == MEASURE && ratio.level.is_none());
        let pair = compared.filter_map(|ratio| Some((ratio, of(&ratio.base)?, of(&ratio.subject)?))).next();
        if let Some((ratio, before, after)) = pair {
            let times = Times { factor: ratio.ratio, interval: ratio.interval };
            found.push(Phases { server: shown.label.clone(), before, after, times });
        }
    }
    found.sort_by(|a, b| a.after.latency.p99_ms.total_cmp(&b.after.latency.p99_ms));
    found
}

/// How much more latency the second phase has than the first, for each server.
fn growths(phases: &[Phases]) -> String {
    let one = |phases: &Phases| {
        let Phases { server, before, after, times } = phases;
        let ends = format!("{} to {}", time(before.latency.p99_ms), time(after.latency.p99_ms));
        // That cold requests overload a server is a result, unless it was overloaded without them.
        let limit = is_generators(after).then(|| GENERATOR_LIMIT.to_owned());
        let words = match (doubt(before).or(limit), doubt(after)) {
            (Some(doubt), _) => format!("cannot be told, {doubt}"),
            (None, Some(doubt)) => format!("{}, {doubt}", times.text()),
            (None, None) => times.text(),
        };
        format!("on {server} {ends}: {words}")
    };
    let words: Vec<String> = phases.iter().take(OTHERS_MAX + 1).map(one).collect();
    let (before, after) = (number::plain(&phases[0].before.name), number::plain(&phases[0].after.name));
    let has_intervals = phases.iter().any(|phases| phases.times.interval.is_some());
    let sentence = format!("The p99 from {before} to {after}: {}", words.join("; "));
    ended(&sentence, phases.len(), OTHERS_MAX + 1, has_intervals)
}

/// The levels of one server that nothing compares.
fn each(picked: &[Picked]) -> String {
    let words = picked.iter().take(OTHERS_MAX + 1);
    let words = words.map(|picked| format!("{} {}", picked.label, time(picked.measures.latency.p99_ms)));
    format!("The p99 of each level: {}.", words.collect::<Vec<_>>().join(", "))
}

/// Several servers at one level: the winner, then the others from the best on.
fn contest(view: &View, mut picked: Vec<Picked>) -> String {
    if view.title_of(&picked).is_empty() {
        return "No winner can be told: there is no level that all servers have.".to_owned();
    }
    picked.sort_by(|a, b| a.measures.latency.p99_ms.total_cmp(&b.measures.latency.p99_ms));
    let at = capital(&place(view, &picked));
    let Some(first) = picked.iter().position(|picked| doubt(picked.measures).is_none()) else {
        let doubts = picked.iter().take(OTHERS_MAX).filter_map(|one| {
            let doubt = doubt(one.measures)?;
            Some(format!("{}: {doubt}", one.label))
        });
        return format!("{at} no winner can be told: {}.", doubts.collect::<Vec<_>>().join("; "));
    };
    let winner = picked.remove(first);
    let own = format!("{at} {}'s p99 is {}", winner.label, time(winner.measures.latency.p99_ms));
    let other = |other: &Picked| {
        let p99 = time(other.measures.latency.p99_ms);
        let times = times(view, &winner, other).text();
        match doubt(other.measures) {
            // An overloaded server's latency grows with the length of the run: the factor is at least this.
            Some(doubt) if is_slower(&winner, other) => format!("{}'s {p99}: {times}, {doubt}", other.label),
            Some(doubt) => format!("{}'s {p99}: {doubt}", other.label),
            None => format!("{}'s {p99}: {times}", other.label),
        }
    };
    let words: Vec<String> = picked.iter().take(OTHERS_MAX).map(other).collect();
    let has_interval = |other: &Picked| times(view, &winner, other).interval.is_some();
    ended(&format!("{own}, {}", words.join("; ")), picked.len(), OTHERS_MAX, picked.iter().any(has_interval))
}

/// The end of a sentence: how many servers it leaves out, and what its ranges are.
fn ended(sentence: &str, count: usize, count_max: usize, has_intervals: bool) -> String {
    let more = match count.saturating_sub(count_max) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let note = match has_intervals {
        true => "Ranges are 95 % intervals.",
        false => "There is no interval: a rerun may differ.",
    };
    format!("{sentence}{more}. {note}")
}

/// "at 3,600 requests/s", where all were asked the same; else "at load 0.95", or the level's name.
fn place(view: &View, picked: &[Picked]) -> String {
    let rates: Vec<f64> = picked.iter().filter_map(|picked| picked.measures.asked_per_s).collect();
    let (least, most) =
        rates.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), rate| (low.min(*rate), high.max(*rate)));
    if rates.len() == picked.len() && most.is_finite() && most - least <= most * RATES_APART_MAX {
        return format!("at {} requests/s", figure(most));
    }
    let words = view.title_of(picked);
    match words.trim_start_matches("· ") {
        "" => "at its last level".to_owned(),
        load if is_of_own_capacity(view) && load.starts_with("at load") => {
            format!("{load} of each server's own capacity,")
        }
        level if level.starts_with("at ") => level.to_owned(),
        level => format!("at {level}"),
    }
}

/// How many times as much, and the bounds of that.
struct Times {
    factor: f64,
    interval: Option<[f64; 2]>,
}

impl Times {
    fn text(&self) -> String {
        let Some([low, high]) = self.interval.filter(|ends| ends.iter().all(|end| end.is_finite())) else {
            return match self.factor.is_finite() {
                true => format!("{} times", figure(self.factor)),
                false => "no factor can be told".to_owned(),
            };
        };
        let ends = format!("{} to {}", figure(low), figure(high));
        if low <= 1.0 && high >= 1.0 {
            return format!("no difference can be told ({ends} times)");
        }
        format!("{} times ({ends})", figure(self.factor))
    }
}

/// The other's p99 over the winner's. Runs have ratios to their first subject only, so that of two others has the
/// widest interval that their two allow.
fn times(view: &View, winner: &Picked, other: &Picked) -> Times {
    let plain =
        Times { factor: other.measures.latency.p99_ms / winner.measures.latency.p99_ms, interval: None };
    let name = |picked: &Picked| {
        let own = view.drawn().find(|shown| shown.label == picked.label);
        own.map(|shown| shown.subject.name.clone()).unwrap_or_default()
    };
    let (winner_name, other_name) = (name(winner), name(other));
    // Ratios name servers only: where two subjects have one name, it is not known whose they are.
    let is_unique = |name: &str| view.subjects.iter().filter(|shown| shown.subject.name == name).count() == 1;
    if !is_unique(&winner_name) || !is_unique(&other_name) {
        return plain;
    }
    let level = Some(other.measures.name.as_str());
    let all = view.runs.iter().flat_map(|run| &run.ratios);
    let known: Vec<&Ratio> = all.filter(|r| r.measure == MEASURE && r.level.as_deref() == level).collect();
    let to_base =
        |name: &str, base: &str| known.iter().find(|r| r.subject == name && r.base == base).copied();
    if let Some(direct) = to_base(&other_name, &winner_name) {
        return Times { factor: direct.ratio, interval: direct.interval };
    }
    if let Some(inverse) = to_base(&winner_name, &other_name) {
        let interval = inverse.interval.map(|[low, high]| [1.0 / high, 1.0 / low]);
        return Times { factor: 1.0 / inverse.ratio, interval };
    }
    let two = known.iter().filter(|r| r.subject == other_name);
    let two = two.filter_map(|r| Some((*r, to_base(&winner_name, &r.base)?))).next();
    let Some((other, winner)) = two else { return plain };
    let interval = other.interval.zip(winner.interval);
    let interval = interval.map(|([low, high], [least, most])| [low / most, high / least]);
    Times { factor: other.ratio / winner.ratio, interval }
}

/// Why the latencies of a level are not a result by themselves.
fn doubt(measures: &Measures) -> Option<String> {
    let words = |doubt: Doubt| match doubt {
        Doubt::Overloaded { achieved_share } => {
            format!("overloaded, with {} of the requests answered in time", percent(achieved_share))
        }
        Doubt::Failures { share } => format!("{} of the requests failed", percent(share)),
        Doubt::Generator(_) => GENERATOR_LIMIT.to_owned(),
        Doubt::OtherWork(_) => "other work had its core or the generator's".to_owned(),
        Doubt::NotInMemory { in_memory_share } => {
            format!("only {} of its hot files' bytes were in memory", percent(in_memory_share))
        }
        Doubt::EndedEarly(why) => format!("it ended early ({why})"),
    };
    // Without a generator that keeps up, nothing else is known about the server.
    let mut doubts = validity::doubts(measures);
    doubts.sort_by_key(|doubt| doubt.cause() != Cause::Generator);
    doubts.into_iter().next().map(words)
}

fn is_generators(measures: &Measures) -> bool {
    validity::causes(measures).contains(&Cause::Generator)
}

/// Slower than the winner for its own reasons, not for the generator's.
fn is_slower(winner: &Picked, other: &Picked) -> bool {
    !is_generators(other.measures) && other.measures.latency.p99_ms > winner.measures.latency.p99_ms
}
