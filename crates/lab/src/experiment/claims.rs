//! The findings of an experiment, from the checks in its specification. Pure.
//!
//! A check is `CELL / CELL BOUND`, `CELL - CELL BOUND` or `CELL BOUND`: a ratio, a difference or a figure, and `>= 2`, `<= 2` or
//! `~ 0.8` (no more than this factor apart, either way); `>= half of 9` is half of a factor of 9 on the scale of factors, 3: its root.
//! `most of CELL BOUND` is the most of all rounds, for a paper's "never". `CELL / CELL :: CELL / CELL BOUND` is the ratio of two ratios. A cell is
//! `SERVER @ POINT`; before a slash the point may be left out, and is then that of the cell behind it. `p50 of SERVER @ POINT` names
//! another measure than the finding's.
//!
//! A name with `*` stands for all servers or points that fit, one check each, and `a | b` for the first that was planned. On both sides
//! of a check it is the same one; on one side no server that the other names. `first`, `last` and `rest` (all but the first) count the
//! points that have a place on the axis; `mean` is the geometric mean over all. A finding is left out where a point that it names was
//! not planned, as in a quick run, or where it would compare a cell with itself.

use super::data::{Data, Measure};
use super::finding::{Bound, Check, Finding, Named, Pair};
use super::plan::Plan;
use super::spec::{ExperimentSpec, FindingSpec};
use crate::statistics::Sample;

const HALF: &str = " half of";
const MOST: &str = "most of ";

pub(super) fn findings(name: &str, spec: &ExperimentSpec, data: Data<'_>, plan: &Plan) -> Vec<Finding> {
    let mut findings = Vec::new();
    for finding in &spec.finding {
        let begins =
            |server: &&str| finding.each_server.iter().any(|prefix| server.starts_with(prefix.as_str()));
        let servers: Vec<&str> = match finding.each_server.as_slice() {
            [] => vec![""],
            _ => names(plan).into_iter().filter(begins).collect(),
        };
        for server in servers {
            let claim = Claim { data, plan, spec, finding, server };
            let Some(checks) = claim.checks() else { continue };
            let id = format!("{name}/{}", finding.id.replace("{server}", server));
            let source = finding.source.as_ref().unwrap_or(&spec.from);
            findings.push(Finding::new(&id, source, &finding.paper, checks));
        }
    }
    findings
}

/// A finding of a specification, for one server.
struct Claim<'a> {
    data: Data<'a>,
    plan: &'a Plan,
    spec: &'a ExperimentSpec,
    finding: &'a FindingSpec,
    server: &'a str,
}

impl<'t> Claim<'t> {
    /// Its checks; none where it cannot be asked of this plan.
    fn checks(&self) -> Option<Vec<Check>> {
        let of_text = |text: &String| self.check(&text.replace("{server}", self.server));
        Some(self.finding.checks.iter().map(of_text).collect::<Option<Vec<_>>>()?.concat())
    }

    /// The comparisons that a text stands for. Missing figures are a check too: one that cannot be told.
    fn check(&self, text: &str) -> Option<Vec<Check>> {
        let (cells, bound) = bounded(text)?;
        let told = |found: Named| match found {
            Ok((name, sample)) if cells.starts_with(MOST) => {
                Check::of(&format!("{name}, the most of all rounds"), &most(sample), bound).without_interval()
            }
            Ok((name, sample)) => Check::of(&name, &sample, bound),
            Err(missing) => missing,
        };
        Some(self.figures(cells)?.into_iter().map(told).collect())
    }

    fn figures(&self, cells: &str) -> Option<Vec<Named>> {
        let measure = self.finding.measure.or(self.spec.measure);
        if let Some((first, second)) = cells.split_once(" :: ") {
            let ratio = |text| self.pairs(text, " / ")?.into_iter().next();
            let pairs = (ratio(first)?, ratio(second)?);
            return Some(vec![self.data.ratio_of_ratios(&self.finding.name, pairs, measure?)]);
        }
        if cells.contains(" / ") {
            return self.ratios(cells, measure);
        }
        let measure = measure?;
        if cells.contains(" - ") {
            let difference = |pair| self.data.difference(pair, measure);
            return Some(self.pairs(cells, " - ")?.into_iter().map(difference).collect());
        }
        let (server, point) = term(cells);
        let figure = |point| self.data.figure((server, point), measure);
        let figures: Vec<Named> = points(self.plan, point?).into_iter().map(figure).collect();
        (!figures.is_empty()).then_some(figures)
    }

    fn ratios(&self, cells: &str, measure: Option<Measure>) -> Option<Vec<Named>> {
        let (left, right) = cells.split_once(" / ")?;
        let own = |text: &str| text.split_once(" of ").and_then(|(name, _)| Measure::named(name));
        let measure = own(left).or(measure)?;
        let measures = (measure, own(right).unwrap_or(measure));
        if let Some((right, "mean")) = right.rsplit_once(" @ ") {
            return Some(vec![self.data.mean_ratio(&points(self.plan, "*"), (left, right), measure)]);
        }
        let pairs = self.pairs(cells, " / ")?;
        if measures.0.name != measures.1.name {
            let name = self.finding.name.replace("{last}", points(self.plan, "last").first()?);
            let ratio = |pair| self.data.ratio_of_measures(&name, pair, measures);
            return Some(pairs.into_iter().map(ratio).collect());
        }
        let is_itself = !pairs.is_empty() && pairs.iter().all(|(left, right)| left == right);
        (!is_itself).then(|| pairs.into_iter().map(|pair| self.data.ratio(pair, measure)).collect())
    }

    /// The pairs of cells that two terms stand for; none where a point of them was not planned.
    fn pairs<'u>(&self, text: &'u str, between: &str) -> Option<Vec<Pair<'u>>>
    where
        't: 'u,
    {
        let (left, right) = text.split_once(between)?;
        let ((left, at), (right, of)) = (term(left), term(right));
        let (at, of) = (at.or(of)?, of.or(at)?);
        let is_same_server = left == right;
        let servers = product(left, right, |term| servers(self.plan, term));
        let places = product(at, of, |term| points(self.plan, term));
        if places.is_empty() {
            return None;
        }
        let mut pairs = Vec::new();
        for (a, b) in servers.into_iter().filter(|(a, b)| is_same_server || a != b) {
            pairs.extend(places.iter().map(|(at, of)| ((a, *at), (b, *of))));
        }
        Some(pairs)
    }
}

/// The names that two terms stand for, in pairs: each with itself where the terms are one.
fn product<'u>(
    left: &'u str,
    right: &'u str,
    names: impl Fn(&'u str) -> Vec<&'u str>,
) -> Vec<(&'u str, &'u str)> {
    let others = names(right);
    if left == right {
        return others.into_iter().map(|name| (name, name)).collect();
    }
    names(left).into_iter().flat_map(|a| others.iter().map(move |b| (a, *b)).collect::<Vec<_>>()).collect()
}

/// A cell as it is written: its server and its point.
fn term(text: &str) -> (&str, Option<&str>) {
    let (server, point) =
        text.split_once(" @ ").map_or((text, None), |(server, point)| (server, Some(point)));
    (server.split_once(" of ").map_or(server, |(_, server)| server), point)
}

/// The sample with the most of its rounds in each of them.
fn most(mut sample: Sample) -> Sample {
    let (_, most) = sample.ends();
    sample.rounds.values_mut().for_each(|value| *value = most);
    sample
}

/// A check's cells and its bound.
fn bounded(text: &str) -> Option<(&str, Bound)> {
    let (rest, number) = text.rsplit_once(' ')?;
    let number: f64 = number.parse().ok()?;
    let (rest, number) = rest.strip_suffix(HALF).map_or((rest, number), |rest| (rest, number.sqrt()));
    let (cells, sign) = rest.rsplit_once(' ')?;
    let bound = match sign {
        ">=" => Bound::AtLeast(number),
        "<=" => Bound::AtMost(number),
        "~" => Bound::Alike(number),
        _ => return None,
    };
    Some((cells, bound))
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.variants.iter().map(|variant| variant.name.as_str()).collect()
}

/// The servers that a term stands for. One that is named need not have been planned: then its figures are missing.
fn servers<'t>(plan: &'t Plan, term: &'t str) -> Vec<&'t str> {
    if let Some((first, _)) = term.split_once(" | ") {
        let planned = term.split(" | ").find(|name| names(plan).contains(name));
        return vec![planned.unwrap_or(first)];
    }
    match term.contains('*') {
        true => names(plan).into_iter().filter(|name| fits(name, term)).collect(),
        false => vec![term],
    }
}

pub(super) fn points<'t>(plan: &'t Plan, term: &str) -> Vec<&'t str> {
    let all = plan.points();
    let mut placed = all.iter().filter(|point| point.x.is_finite()).map(|point| point.name.as_str());
    match term {
        "first" => placed.next().into_iter().collect(),
        "last" => placed.next_back().into_iter().collect(),
        "rest" => placed.skip(1).collect(),
        "*" => placed.collect(),
        _ => all.iter().map(|point| point.name.as_str()).filter(|name| fits(name, term)).collect(),
    }
}

/// Whether a name is that of a term, of which one `*` stands for anything.
fn fits(name: &str, term: &str) -> bool {
    match term.split_once('*') {
        Some((begin, end)) => name.strip_prefix(begin).is_some_and(|rest| rest.ends_with(end)),
        None => name == term,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_is_that_of_all_rounds() {
        let sample = Sample { rounds: [(1, 48.0), (2, 62.0), (3, 50.0)].into(), ..Sample::default() };
        assert_eq!(most(sample).rounds, [(1, 62.0), (2, 62.0), (3, 62.0)].into());
    }

    #[test]
    fn checks_are_read() {
        assert_eq!(
            bounded("old Flash / New-Flash @ load 0.95 >= 20"),
            Some(("old Flash / New-Flash @ load 0.95", Bound::AtLeast(20.0)))
        );
        assert_eq!(
            bounded("a / b @ c: loss of 5 % >= half of 9"),
            Some(("a / b @ c: loss of 5 %", Bound::AtLeast(3.0)))
        );
        assert_eq!(bounded("a ~ 0.8"), Some(("a", Bound::Alike(0.8))));
        for wrong in ["a @ b", "a @ b > 2", "a @ b <= two", "2"] {
            assert_eq!(bounded(wrong), None, "{wrong}");
        }
        assert_eq!(term("p50 of old Flash @ C: loss of 5 %"), ("old Flash", Some("C: loss of 5 %")));
        assert!(
            fits("apache-event", "apache*") && fits("a, b", "a*b") && !fits("ab", "abb*b") && !fits("x", "y")
        );
    }
}
