//! The findings of `overload`. Pure.

use super::{REALISTIC, W1, planned, workloads};
use crate::experiment::behind::INITIAL_TIMEOUT;
use crate::experiment::data::{Data, Measure};
use crate::experiment::finding::{Bound, CLEAR, Check, Finding};
use crate::experiment::plan::Plan;
use crate::experiment::variants::{EGRESS, FAIR, SRPT};

/// A factor that the paper measured once counts as found when at least this share of it is.
const SHARE_OF_FACTOR: f64 = 0.5;
/// "FAIR frequently exceeds 200 connections, SRPT never 50" (section 4.1).
const CONNECTIONS_FACTOR: f64 = 4.0;
/// The factor of the mean in the baseline, over all workloads (section 4.2).
const BASELINE_FACTOR: f64 = 4.0;
/// The most by which the largest 1 % are worse under SRPT: in the baseline and in the realistic setup (section 4.2).
const LARGEST_FACTOR: f64 = 1.1;
const LARGEST_FACTOR_REALISTIC: f64 = 1.02;

const TRANSIENT: &str = "overload-and-srpt, 4.2, Fig 9";

pub(in crate::experiment) fn findings(data: Data<'_>, plan: &Plan) -> Vec<Finding> {
    let points: Vec<String> = workloads(plan).iter().map(|point| point.name.clone()).collect();
    let at_all = |left, right, measure, bound| data.compare_at(&points, left, right, measure, bound);
    let mut findings = vec![
        Finding::new(
            "overload/mean",
            TRANSIENT,
            "Baseline: the mean response time of SRPT is 4 to 8 times better than that of FAIR",
            at_all(FAIR, SRPT, Measure::Response, Bound::AtLeast(BASELINE_FACTOR)),
        ),
        Finding::new(
            "overload/largest",
            TRANSIENT,
            "Baseline: the largest 1 % of the requests are at most 10 % slower under SRPT",
            at_all(SRPT, FAIR, Measure::Largest, Bound::AtMost(LARGEST_FACTOR)),
        ),
        Finding::new(
            "overload/throughput",
            "overload-and-srpt, 4.1",
            "The byte throughput is the same under FAIR and SRPT",
            at_all(SRPT, FAIR, Measure::Bandwidth, Bound::Alike(CLEAR)),
        ),
        Finding::new(
            "overload/connections",
            "overload-and-srpt, 4.1",
            "W1: connections exceed 200 under FAIR, and never 50 under SRPT",
            vec![data.compare(
                (FAIR, W1),
                (SRPT, W1),
                Measure::OpenMax,
                Bound::AtLeast(CONNECTIONS_FACTOR * SHARE_OF_FACTOR),
            )],
        ),
    ];
    findings.extend(of_setups(data, plan));
    findings.extend(of_egress(data));
    for peer in plan
        .variants
        .iter()
        .filter(|variant| variant.name.contains("nginx") || variant.name.contains("apache"))
    {
        findings.push(Finding::new(
            &format!("overload/{}", peer.name),
            "overload-and-srpt, 4.1",
            "A standard server is FAIR: SRPT improves its mean response time by the same factors",
            vec![data.compare(
                (&peer.name, W1),
                (SRPT, W1),
                Measure::Response,
                Bound::AtLeast(BASELINE_FACTOR),
            )],
        ));
    }
    findings
}

/// SRPT within the server, beside that of the queueing discipline and beside FAIR.
fn of_egress(data: Data<'_>) -> Vec<Finding> {
    let at = |other, measure, bound| {
        [W1, REALISTIC.name]
            .map(|point| data.compare((EGRESS, point), (other, point), measure, bound))
            .to_vec()
    };
    vec![
        Finding::new(
            "overload/egress",
            "Flash's own bound",
            "SRPT within the server (`--egress`) is within 10 % of SRPT by the queueing discipline, or better",
            at(SRPT, Measure::Response, Bound::AtMost(1.1)),
        ),
        Finding::new(
            "overload/egress-largest",
            "Flash's own bound",
            "The largest 1 % of the requests are at most 10 % slower with `--egress` than under FAIR",
            at(FAIR, Measure::Largest, Bound::AtMost(LARGEST_FACTOR)),
        ),
    ]
}

/// Table 2: that SRPT is better in each setup, and what the users of the realistic one give up.
fn of_setups(data: Data<'_>, plan: &Plan) -> Vec<Finding> {
    let mut findings = Vec::new();
    for setup in planned(plan) {
        let is_realistic = setup.name == REALISTIC.name;
        // The realistic setup has a range over all workloads, the others a factor of one measurement.
        let share = if is_realistic { 1.0 } else { SHARE_OF_FACTOR };
        let letter = setup.name.split(':').next().unwrap_or_default().to_ascii_lowercase();
        findings.push(Finding::new(
            &format!("overload/{letter}"),
            "overload-and-srpt, 4.1, Table 2",
            &format!("{}: SRPT improves the mean response time {} times or more", setup.name, setup.factor),
            vec![data.compare(
                (FAIR, setup.name),
                (SRPT, setup.name),
                Measure::Response,
                Bound::AtLeast(setup.factor * share),
            )],
        ));
    }
    let at = REALISTIC.name;
    findings.extend([
        Finding::new(
            "overload/largest-realistic",
            "overload-and-srpt, 4.2",
            "Realistic setup: the largest 1 % of the requests are at most 2 % slower under SRPT",
            vec![data.compare(
                (SRPT, at),
                (FAIR, at),
                Measure::Largest,
                Bound::AtMost(LARGEST_FACTOR_REALISTIC),
            )],
        ),
        Finding::new(
            "overload/incomplete",
            "overload-and-srpt, 4.2",
            "Realistic setup: no more requests stay incomplete under SRPT than under FAIR",
            vec![data.difference((SRPT, at), (FAIR, at), Measure::Incomplete, Bound::AtMost(0.0))],
        ),
        Finding::new(
            "overload/f",
            "overload-and-srpt, 4.1, Table 2",
            "F: with an initial timeout of 0.5 s SRPT is still at least 4 times better",
            vec![Check::missing(&format!(
                "Linux has no setting for the initial timeout, which is {INITIAL_TIMEOUT}"
            ))],
        ),
    ]);
    findings
}
