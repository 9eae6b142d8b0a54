//! Plans and findings of the experiments, on hand-made figures.

use std::collections::BTreeSet;

use clap::Parser;

use super::data::Measure;
use super::finding::Verdict;
use super::plan::{Load, Point};
use super::*;
use crate::results::{FORMAT, Run, Subject};
use crate::statistics::Limit;
use flash_load::measure::{self, Decile, Latency, Measures, Overload, PhaseFacts, SizeBand};
use flash_load::workload::{self, Spec, Workload};

#[derive(clap::Parser)]
pub(super) struct CommandLine {
    #[command(flatten)]
    pub(super) options: Options,
}

pub(super) fn options(name: &str) -> Options {
    CommandLine::parse_from(["experiment", name, "--out=out", "--sets=sets"]).options
}

fn plan_of(name: &str, quick: bool) -> Plan {
    plan(find(name).unwrap(), &Options { quick, ..options(name) })
}

#[test]
fn the_default_memory_is_that_of_the_plans() {
    assert_eq!(options("clients").memory_bytes, MEMORY_BYTES);
}

#[test]
fn settings_are_those_of_the_plan() {
    let of = |name| plan_of(name, true).settings().map(|(_, words)| words);
    assert_eq!(of("clients"), ["unlimited", "1.5 s"]);
    assert_eq!(of("hot-cold"), ["1", "1 s"]);
}

#[test]
fn every_plan_can_be_carried_out() {
    for experiment in EXPERIMENTS.iter() {
        for quick in [false, true] {
            let plan = plan_of(experiment.name, quick);
            assert!(plan.rounds as usize >= finding::ROUNDS_MIN, "{}", experiment.name);
            let names: BTreeSet<&str> = plan.variants.iter().map(|variant| variant.name.as_str()).collect();
            assert_eq!(names.len(), plan.variants.len(), "{}: each has its own name", experiment.name);
            for scene in &plan.scenes {
                assert!(scene.set < plan.sets.len() && !scene.points.is_empty());
                for (at, point) in scene.points.iter().enumerate() {
                    if let Load::Fraction(_, of) = &point.load {
                        assert!(
                            scene.points[..at].iter().any(|earlier| earlier.name == *of),
                            "{}",
                            point.name
                        );
                    }
                }
            }
            let points: usize = plan.scenes.iter().map(|scene| scene.points.len()).sum();
            assert_eq!(points, plan.points().len(), "{}: each point has its own name", experiment.name);
        }
        let [full, quick] = [false, true].map(|quick| plan_of(experiment.name, quick).run_s());
        assert!(quick < full && quick < 1200.0 && full < 5400.0, "{}: {full} s, {quick} s", experiment.name);
    }
}

#[test]
fn times_and_counts_follow_from_the_plan() {
    let plan = plan_of("breakdown", true);
    // 8 servers, 2 points of a second.
    assert_eq!((plan.variants.len(), plan.points().len()), (8, 2));
    let twice = Plan { rounds: plan.rounds * 2, ..plan.clone() };
    assert!((twice.run_s() - 2.0 * plan.run_s()).abs() < 1e-9);
    let longer = plan.clone().adjusted(Some(plan.rounds), Some(11.0));
    assert!((longer.run_s() - plan.run_s() - 5.0 * 8.0 * 2.0 * 10.0).abs() < 1e-9);
    assert_eq!(plan_of("clients", false).points().len(), 8);
    let few = Options { peers: Vec::new(), ..options("single-file") };
    assert_eq!(super::plan(find("single-file").unwrap(), &few).variants.len(), 4);
    assert!(plan_of("single-file", true).variants.iter().any(|variant| variant.name == "AMPED"));
    let text = list(&options("")).unwrap();
    for name in names() {
        assert!(text.contains(name), "{text}");
    }
    assert!(describe_plan(&options("site-logs")).unwrap().contains("Owlnet; CS"));
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let wrong = [
        Options { name: "site".to_owned(), ..options("") },
        Options { rounds: Some(0), ..options("site-logs") },
        Options { duration_s: Some(f64::NAN), ..options("site-logs") },
        Options { memory_bytes: 1000, ..options("site-logs") },
        Options { reads_per_s: 0, ..options("site-logs") },
        Options { logs: vec!["x".into()], ..options("clients") },
        Options { peers: vec!["zeus".to_owned()], ..options("single-file") },
    ];
    for case in wrong {
        assert_eq!(run(&case).unwrap_err().exit_code(), 2, "{case:?}");
    }
}

/// A round of a server at a point, of which only these figures matter.
fn round(point: &str, number: u32, rate: f64, latency_ms: f64) -> Measures {
    let facts = PhaseFacts { name: point.to_owned(), round: Some(number), ..PhaseFacts::default() };
    let mut measures = measure::measures(&[], &facts);
    (measures.answered_per_s, measures.megabits_per_s) = (rate, rate);
    measures.counts.answered = 1;
    let latency = &mut measures.latency;
    for time in [&mut latency.mean_ms, &mut latency.p50_ms, &mut latency.p90_ms, &mut latency.p95_ms] {
        *time = latency_ms;
    }
    measures.inversion = Some(latency_ms / 1000.0);
    let complete = Some(Latency { mean_ms: latency_ms, ..Latency::default() });
    let largest = Some(SizeBand { latency: complete, ..SizeBand::default() });
    // A connection for each three milliseconds.
    measures.overload = Some(Overload {
        complete,
        complete_in_time: complete,
        largest,
        open_max: latency_ms as u64 / 3,
        received_megabits_per_s: Some(rate),
        ..Overload::default()
    });
    let shares = vec![latency_ms / 1000.0, 1.0 - latency_ms / 1000.0];
    measures.deciles = vec![Decile { latency_max_ms: latency_ms, shares }];
    measures.counts.asked = 1;
    measures
}

/// The findings of an experiment, of whose servers each has at each point what `of` says: a rate and a latency.
fn findings_of(
    name: &str,
    of: impl Fn(&str, &plan::Point) -> Option<(f64, f64)>,
) -> Vec<(String, Verdict, String)> {
    let plan = plan_of(name, false);
    let subject = |variant: &plan::Variant| {
        let rounds = plan.points().into_iter().filter_map(|point| Some((point, of(&variant.name, point)?)));
        let five =
            rounds.flat_map(|(point, (rate, ms))| (1..=5).map(move |n| round(&point.name, n, rate, ms)));
        Subject { rounds: five.collect(), ..Subject::of(&variant.name, "") }
    };
    let run = Run { subjects: plan.variants.iter().map(subject).collect(), ..run_of_nothing() };
    let found = find(name).unwrap().findings(Data { run: &run, inside: &[] }, &plan);
    found.into_iter().map(|finding| (finding.id, finding.verdict, finding.ours)).collect()
}

fn verdict(findings: &[(String, Verdict, String)], id: &str) -> Verdict {
    findings.iter().find(|(known, ..)| known == id).unwrap_or_else(|| panic!("no {id}")).1
}

#[test]
fn ids_are_their_own_and_begin_with_the_experiment() {
    let mut ids = BTreeSet::new();
    for experiment in EXPERIMENTS.iter() {
        let findings = findings_of(experiment.name, |_, _| None);
        // The default servers have one of each kind that a finding can be for.
        let of_each =
            experiment.spec.finding.iter().map(|finding| finding.each_server.len().max(1)).sum::<usize>();
        assert_eq!(
            findings.len(),
            of_each,
            "{}: a full run leaves none out, and all checks can be read",
            experiment.name
        );
        for (id, verdict, ours) in findings {
            assert!(id.starts_with(&format!("{}/", experiment.name)), "{id}");
            assert_eq!(verdict, Verdict::CannotBeTold, "{id}: nothing was measured");
            assert!(ours.contains("part missing"), "{id}: {ours}");
            assert!(ids.insert(id));
        }
    }
}

#[test]
fn the_papers_figures_make_its_findings_hold() {
    use Verdict::{DoesNotHold, Holds};
    let papers = findings_of("dataset-size", |server, point| {
        let is_cached = point.x < MEMORY_BYTES as f64;
        let rate = match (server, is_cached) {
            ("MP", true) => 120.0,
            (_, true) => 180.0,
            ("SPED", false) => 8.4,
            ("nginx", false) => 10.0,
            ("MP", false) => 30.0,
            (_, false) => 31.2,
        };
        Some((rate, 1.0))
    });
    for (id, verdict, ours) in &papers {
        assert_eq!(*verdict, Holds, "{id}: {ours}");
    }
    let (_, _, ours) = papers.iter().find(|(id, ..)| id == "dataset-size/sped-disk").unwrap();
    assert!(ours.starts_with("SPED 8.40 against AMPED 31.2 Mb/s at 1.54 GB: 0.269"), "{ours}");
    let flat = findings_of("dataset-size", |_, _| Some((100.0, 1.0)));
    assert_eq!(verdict(&flat, "dataset-size/all-drop"), DoesNotHold);
    assert_eq!(verdict(&flat, "dataset-size/mt"), Holds);
}

#[test]
fn table_5_of_the_paper_holds_and_its_reverse_does_not() {
    use Verdict::{DoesNotHold, Holds};
    let latency = |server: &str, x: f64| match server {
        "old Flash" if x > 0.9 => 181.0,
        "fd pass" if x > 0.9 => 50.0,
        "no mmap" if x > 0.9 => 93.5,
        "New-Flash" if x > 0.9 => 2.9,
        _ => 2.0,
    };
    let papers = findings_of("new-flash", |server, point| {
        let rate = if server == "old Flash" { 336.0 } else { 450.0 };
        Some((rate, latency(server, point.x)))
    });
    for id in
        ["capacity", "median", "mean", "p90", "fd-pass", "no-mmap", "sendfile", "level", "tail", "inversion"]
    {
        assert_eq!(verdict(&papers, &format!("new-flash/{id}")), Holds, "{papers:?}");
    }
    let reverse =
        findings_of("new-flash", |server, _| Some((1.0, if server == "New-Flash" { 100.0 } else { 1.0 })));
    for id in ["median", "mean", "p90", "sendfile", "inversion"] {
        assert_eq!(verdict(&reverse, &format!("new-flash/{id}")), DoesNotHold, "{reverse:?}");
    }
}

#[test]
fn a_gate_is_judged_by_what_flashpache_gained() {
    use Verdict::{CannotBeTold, DoesNotHold, Holds};
    let papers = findings_of("flashpache", |server, point| {
        let is_gated = server.ends_with("gate") || server.ends_with("flashpache");
        let is_high = point.x > 0.9;
        Some(match (is_gated, is_high) {
            (true, high) => (272.9, if high { 5.7 } else { 3.0 }),
            (false, true) => (241.1, 414.7),
            (false, false) => (241.1, 6.6),
        })
    });
    for server in ["apache", "nginx"] {
        for id in ["capacity", "median", "mean", "p90", "inversion", "level"] {
            assert_eq!(verdict(&papers, &format!("flashpache/{server}-{id}")), Holds, "{papers:?}");
        }
    }
    let alike = findings_of("flashpache", |server, _| (server != "nginx-gate").then_some((100.0, 5.0)));
    for id in ["median", "mean", "p90", "inversion"] {
        assert_eq!(verdict(&alike, &format!("flashpache/apache-{id}")), DoesNotHold, "{alike:?}");
        assert_eq!(verdict(&alike, &format!("flashpache/nginx-{id}")), CannotBeTold, "{alike:?}");
    }
    // A quick one has one level, so nothing is said of how latency grows with load.
    let plan = plan_of("flashpache", true);
    let findings = find("flashpache").unwrap().findings(Data { run: &run_of_nothing(), inside: &[] }, &plan);
    assert!(findings.iter().all(|finding| !finding.id.ends_with("level")), "{findings:?}");
}

#[test]
fn service_inversion_is_judged_by_its_growth_and_by_the_tenths() {
    use Verdict::{DoesNotHold, Holds};
    // Table 4, as thousandths; the shares of the smallest files are the same figures.
    let papers = |name| {
        findings_of(name, |server, point| {
            let ms = match (server, point.x > 0.9, point.x < 0.3) {
                ("New-Flash" | "apache-flashpache", ..) => 50.0,
                (_, true, _) => 580.0,
                ("old Flash", _, true) => 250.0,
                (_, _, true) => 140.0,
                _ => 30_000.0,
            };
            Some((100.0, ms))
        })
    };
    let (flash, apache) = (papers("new-flash"), papers("flashpache"));
    for id in ["inversion-grows", "median-grows", "small-last", "large-last"] {
        assert_eq!(verdict(&flash, &format!("new-flash/{id}")), Holds, "{flash:?}");
    }
    for id in ["inversion-grows", "small-last", "large-last"] {
        assert_eq!(verdict(&apache, &format!("flashpache/apache-{id}")), Holds, "{apache:?}");
    }
    let level = findings_of("new-flash", |_, _| Some((100.0, 100.0)));
    for id in ["inversion-grows", "median-grows", "small-last"] {
        assert_eq!(verdict(&level, &format!("new-flash/{id}")), DoesNotHold, "{level:?}");
    }
}

#[test]
fn caches_clients_and_processors_are_judged_as_in_the_papers() {
    use Verdict::{CannotBeTold, DoesNotHold, Holds};
    let small = |point: &plan::Point| if point.x < 2_000.0 { 1.0 } else { 0.5 };
    let papers = findings_of("breakdown", |server, point| {
        let lost = match server {
            "all caches" => 0.0,
            "heads and contents only" => 0.3,
            "no caches" => 0.5,
            _ => 0.1,
        };
        Some((3000.0 * (1.0 - lost * small(point)), 1.0))
    });
    assert!(papers.iter().all(|(_, verdict, _)| *verdict == Holds), "{papers:?}");

    let clients = findings_of("clients", |server, point| {
        let rate = match (server, point.x as u32) {
            (_, ..50) => 50.0,
            ("MP", 1_001..) => return None,
            ("MP", 500..) => 40.0,
            ("MT", 500..) => 80.0,
            _ => 100.0,
        };
        Some((rate, 1.0))
    });
    assert!(clients.iter().all(|(_, verdict, _)| *verdict == Holds), "{clients:?}");

    let speeds = findings_of("cpu-speed", |server, point| {
        let is_cached = point.name.starts_with("in memory");
        let rate = if is_cached { point.x } else { 5.0 + f64::from(u8::from(server == "New-Flash")) };
        let latency = match (server, is_cached) {
            (_, true) => 1.0,
            ("New-Flash", false) => 300.0 / point.x,
            (_, false) => 200.0,
        };
        Some((rate, latency))
    });
    for id in ["in-memory", "minor", "below", "gain", "capacity", "median-of-old"] {
        assert_eq!(verdict(&speeds, &format!("cpu-speed/{id}")), Holds, "{speeds:?}");
    }

    let alike = findings_of("single-file", |server, _| {
        (server != "MT").then_some((if server.starts_with("apache") { 50.0 } else { 100.0 }, 1.0))
    });
    assert_eq!(verdict(&alike, "single-file/alike"), CannotBeTold, "MT is missing");
    assert_eq!(verdict(&alike, "single-file/apache"), Holds);
    let unlike =
        findings_of("single-file", |server, _| Some((if server == "MP" { 50.0 } else { 100.0 }, 1.0)));
    assert_eq!(verdict(&unlike, "single-file/alike-10k"), DoesNotHold);
}

#[test]
fn overload_is_judged_by_the_gain_and_the_largest() {
    use Verdict::{DoesNotHold, Holds};
    let judged = |gain: f64| {
        findings_of("overload", move |server, _| {
            let is_early = matches!(server, "Flash SRPT" | "Flash --egress");
            Some((100.0, if is_early { 1000.0 / gain } else { 1000.0 }))
        })
    };
    let papers = judged(8.0);
    let is_other = |id: &str| id == "overload/largest-theory";
    assert!(papers.iter().all(|(id, verdict, _)| *verdict == Holds || is_other(id)), "{papers:?}");
    assert_eq!(verdict(&papers, "overload/largest-theory"), DoesNotHold, "the largest differ as much");
    let (_, _, ours) = papers.iter().find(|(id, ..)| id == "overload/connections").unwrap();
    assert!(ours.ends_with("the most of all rounds: 41.0 of 5 rounds, the bound is at most 50.0"), "{ours}");
    let slight = judged(1.6);
    for (id, expected) in [
        ("mean", DoesNotHold),
        ("largest", Holds),
        ("j", Holds),
        ("b", Holds),
        ("h", DoesNotHold),
        ("connections", DoesNotHold),
        ("persistent", DoesNotHold),
        ("nginx", DoesNotHold),
        ("egress", Holds),
    ] {
        assert_eq!(verdict(&slight, &format!("overload/{id}")), expected, "{id}: {slight:?}");
    }
    assert_eq!(verdict(&judged(0.8), "overload/largest"), DoesNotHold);
}

#[test]
fn a_scene_of_overload_is_for_its_servers_and_lasts_as_long_as_its_periods() {
    let plan = plan_of("overload", true);
    let names = |scene: &plan::Scene| {
        let all = plan.variants.iter().filter(|variant| scene.is_for(variant));
        all.map(|variant| variant.name.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(
        names(&plan.scenes[0]),
        ["Flash FAIR", "Flash SRPT", "Flash --egress", "nginx", "apache-event"]
    );
    assert_eq!(names(&plan.scenes[1]), ["Flash FAIR", "Flash SRPT"]);
    let durations: Vec<f64> =
        plan.points().iter().map(|point| (point.duration_s * 10.0).round() / 10.0).collect();
    // W1 to W9 and the realistic setup, five times faster than in the paper.
    assert_eq!(durations, [10.0, 4.0, 20.0, 10.0, 4.0, 4.6, 3.1, 4.6, 3.1, 10.0]);
    let line = plan.scenes[2].line.unwrap();
    assert_eq!((line.rate_bits_per_s, line.round_trip_ms, line.loss), (50_000_000, 20.0, 0.05));
    let full: Vec<String> = plan_of("overload", false).points().iter().map(|p| p.name.clone()).collect();
    assert_eq!(full.len(), 9 + 10 + 5 + 1 + 5, "{full:?}");
    // The theory is on the page also where nothing was measured.
    let plots = find("overload").unwrap().plots(Data { run: &run_of_nothing(), inside: &[] }, &plan);
    let theory = plots[0].lines.iter().find(|(name, _)| name == "SRPT, theory").unwrap();
    assert!(theory.1.len() == 9 && theory.1.iter().all(|(_, ms)| *ms > 1.0 && *ms < 100.0), "{theory:?}");
}

#[test]
fn caps_are_judged_by_the_mean() {
    use Verdict::{DoesNotHold, Holds};
    let papers = findings_of("cwnd", |server, point| {
        let is_persistent = point.x > 1.0;
        let is_penalized = !point.name.contains("own device") && ["no cap", "512 KiB"].contains(&server);
        let ms = if is_penalized { 33.0 } else { 10.0 };
        Some((100.0, ms + f64::from(u8::from(is_persistent))))
    });
    assert!(papers.iter().all(|(_, verdict, _)| *verdict == Holds), "{papers:?}");
    let alike = findings_of("cwnd", |_, _| Some((100.0, 10.0)));
    assert_eq!(verdict(&alike, "cwnd/gain"), DoesNotHold, "{alike:?}");
}

#[test]
fn logs_are_judged_only_as_what_they_are() {
    let rate = |server: &str, point: &plan::Point| match (server, point.name.as_str()) {
        ("AMPED", _) => 100.0,
        ("SPED", "Owlnet") => 95.0,
        ("SPED", _) => 20.0,
        ("apache-event", _) => 10.0,
        _ => 60.0,
    };
    let papers = findings_of("site-logs", |server, point| Some((rate(server, point), 1.0)));
    assert!(
        papers.len() == 5 && papers.iter().all(|(_, verdict, _)| *verdict == Verdict::Holds),
        "{papers:?}"
    );
    let two = Options { logs: vec!["a/access.log".into(), "b/access.log".into()], ..options("site-logs") };
    let names = super::plan(find("site-logs").unwrap(), &two);
    let names: Vec<&str> = names.points().iter().map(|point| point.name.as_str()).collect();
    assert_eq!(names, ["a/access.log", "b/access.log"]);
    let real = Options { logs: vec!["a/access.log".into()], ..options("site-logs") };
    let plan = super::plan(find("site-logs").unwrap(), &real);
    assert_eq!(plan.points()[0].name, "access.log");
    let nothing = run_of_nothing();
    let findings = find("site-logs").unwrap().findings(Data { run: &nothing, inside: &[] }, &plan);
    assert_eq!(findings.len(), 2, "what is said of Owlnet and CS is said of them alone");
}

fn run_of_nothing() -> Run {
    Run { format: FORMAT, ..Run::default() }
}

#[test]
fn what_the_server_counted_holds_beside_failed_requests() {
    let mut measures = round("a", 1, 1_000.0, 2.0);
    (measures.counts.asked, measures.counts.answered, measures.overload) = (1_000, 900, None);
    measures.counts.failed.insert("unanswered".to_owned(), 100);
    let subject = Subject { rounds: vec![measures], ..Subject::of("server", "") };
    let run = Run { subjects: vec![subject], ..run_of_nothing() };
    let name = inside::FIGURES[0];
    let figures = [(name.to_owned(), 3.0)].into();
    let (variant, point) = ("server".to_owned(), "a".to_owned());
    let inside =
        [inside::Inside { variant, point, round: 1, figures, dispatches: Vec::new(), moments: Vec::new() }];
    let data = Data { run: &run, inside: &inside };
    let sample = |measure| data.sample("server", "a", Measure::named(measure).unwrap()).unwrap();
    assert_eq!(sample("rate").doubted.len(), 1, "the generator's figure is in doubt");
    assert_eq!(sample(name).rounds, [(1, 3.0)].into());
}

#[test]
fn the_times_of_an_overloaded_round_are_the_least_that_they_would_be() {
    let limited = |unanswered: u64, refused: u64| {
        let mut measures = Measures { drain_s: 0.5, ..round("a", 1, 400.0, 800.0) };
        (measures.counts.asked, measures.overload) = (1_000, None);
        (measures.asked_per_s, measures.duration_s) = (Some(1_000.0), 1.0);
        measures.counts.failed =
            [("unanswered".to_owned(), unanswered), ("status 503".to_owned(), refused)].into();
        let run = Run {
            subjects: vec![Subject { rounds: vec![measures], ..Subject::of("server", "") }],
            ..run_of_nothing()
        };
        let sample = |measure| {
            let data = Data { run: &run, inside: &[] };
            data.sample("server", "a", Measure::named(measure).unwrap()).unwrap()
        };
        assert!(sample("inversion").rounds.is_empty() && sample("rate").rounds.is_empty());
        let median = sample("p50");
        (median.rounds.get(&1).copied(), median.limits.get(&1).copied())
    };
    assert_eq!(limited(0, 0), (Some(800.0), Some(Limit::Least)));
    assert_eq!(
        limited(300, 1),
        (Some(500.0), Some(Limit::Least)),
        "as long as the unanswered were waited for"
    );
    assert_eq!(limited(0, 2), (None, None), "a refusal takes no time");
}

#[test]
fn points_of_a_line_have_the_same_arrivals() {
    let plan = plan_of("cwnd", false);
    let scene = &plan.scenes[0];
    let files = workload::Options { directories: Some(20), ..workload::Options::default() };
    let workload = Workload::open(&Spec::Specweb99, &files).unwrap();
    let rates = |point: &Point| {
        let Load::Phases(phases) = &point.load else { panic!("{point:?}") };
        let rates = behind::rates(scene, point, phases, &workload).unwrap();
        rates.iter().map(|rate| (rate.duration_ns, rate.rate_per_s)).collect::<Vec<_>>()
    };
    let [one, persistent] = scene.points.as_slice() else { panic!("{:?}", scene.points) };
    assert_ne!(one.requests_per_connection, persistent.requests_per_connection);
    assert_eq!(rates(one), rates(persistent));
}
