//! Plans and findings of the experiments, on hand-made figures.

use std::collections::BTreeSet;

use super::finding::Verdict;
use super::plan::{Kind, Load};
use super::*;
use crate::measure::{self, PhaseFacts};
use crate::results::{FORMAT, Machine, Measures, Run, Subject};

fn options(name: &str) -> Options {
    Options {
        name: name.to_owned(),
        quick: false,
        out: "out".into(),
        files: None,
        sets: "sets".into(),
        traces: Vec::new(),
        peers: PEERS.map(str::to_owned).to_vec(),
        rounds: None,
        duration_s: None,
        memory_bytes: MEMORY_BYTES,
        reads_per_s: READS_PER_S,
        core: None,
        cores: Vec::new(),
        seed: 1,
        command_line: Vec::new(),
    }
}

fn plan_of(name: &str, quick: bool) -> Plan {
    plan(find(name).unwrap(), &Options { quick, ..options(name) })
}

#[test]
fn settings_are_those_of_the_plan() {
    let of = |name| plan_of(name, true).settings().map(|(_, words)| words);
    assert_eq!(of("clients"), ["unlimited", "1.5 s"]);
    assert_eq!(of("hot-cold"), ["1", "1 s"]);
}

#[test]
fn every_plan_can_be_carried_out() {
    for experiment in &EXPERIMENTS {
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
        assert!(quick < full && quick < 900.0 && full < 5400.0, "{}: {full} s, {quick} s", experiment.name);
    }
}

#[test]
fn times_and_counts_follow_from_the_plan() {
    let plan = plan_of("breakdown", true);
    // 8 servers in 3 rounds, 2 points of a second.
    assert_eq!((plan.variants.len(), plan.points().len()), (8, 2));
    let twice = Plan { rounds: plan.rounds * 2, ..plan.clone() };
    assert!((twice.run_s() - 2.0 * plan.run_s()).abs() < 1e-9);
    let longer = plan.clone().adjusted(Some(3), Some(11.0));
    assert!((longer.run_s() - plan.run_s() - 3.0 * 8.0 * 2.0 * 10.0).abs() < 1e-9);
    assert_eq!(plan_of("clients", false).points().len(), 12);
    let few = Options { peers: Vec::new(), ..options("single-file") };
    assert_eq!(super::plan(find("single-file").unwrap(), &few).variants.len(), 4);
    let is_amped = |variant: &plan::Variant| variant.kind == Kind::Flash(Vec::new());
    assert!(plan_of("single-file", true).variants.iter().any(is_amped));
    let text = list(&options("")).unwrap();
    for name in names() {
        assert!(text.contains(name), "{text}");
    }
    assert!(describe_plan(&options("trace")).unwrap().contains("Owlnet; CS"));
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let wrong = [
        Options { name: "tracer".to_owned(), ..options("") },
        Options { rounds: Some(0), ..options("trace") },
        Options { duration_s: Some(f64::NAN), ..options("trace") },
        Options { memory_bytes: 1000, ..options("trace") },
        Options { reads_per_s: 0, ..options("trace") },
        Options { traces: vec!["x".into()], ..options("clients") },
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
        let three =
            rounds.flat_map(|(point, (rate, ms))| (1..=3).map(move |n| round(&point.name, n, rate, ms)));
        Subject { rounds: three.collect(), ..Subject::of(&variant.name, "") }
    };
    let run = Run { subjects: plan.variants.iter().map(subject).collect(), ..run_of_nothing() };
    let found = (find(name).unwrap().findings)(Data { run: &run, inside: &[] }, &plan);
    found.into_iter().map(|finding| (finding.id, finding.verdict, finding.ours)).collect()
}

fn verdict(findings: &[(String, Verdict, String)], id: &str) -> Verdict {
    findings.iter().find(|(known, ..)| known == id).unwrap_or_else(|| panic!("no {id}")).1
}

#[test]
fn ids_are_their_own_and_begin_with_the_experiment() {
    let mut ids = BTreeSet::new();
    for experiment in &EXPERIMENTS {
        let findings = findings_of(experiment.name, |_, _| None);
        assert!(!findings.is_empty());
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
    for id in ["in-memory", "minor", "below", "gain", "capacity"] {
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
fn logs_are_judged_only_as_what_they_are() {
    let rate = |server: &str, point: &plan::Point| match (server, point.name.as_str()) {
        ("AMPED", _) => 100.0,
        ("SPED", "Owlnet") => 95.0,
        ("SPED", _) => 20.0,
        ("apache-event", _) => 10.0,
        _ => 60.0,
    };
    let papers = findings_of("trace", |server, point| Some((rate(server, point), 1.0)));
    assert!(
        papers.len() == 5 && papers.iter().all(|(_, verdict, _)| *verdict == Verdict::Holds),
        "{papers:?}"
    );
    let real = Options { traces: vec!["a/access.log".into()], ..options("trace") };
    let plan = super::plan(find("trace").unwrap(), &real);
    assert_eq!(plan.points()[0].name, "access.log");
    let nothing = run_of_nothing();
    let findings = (find("trace").unwrap().findings)(Data { run: &nothing, inside: &[] }, &plan);
    assert_eq!(findings.len(), 2, "what is said of Owlnet and CS is said of them alone");
}

fn run_of_nothing() -> Run {
    Run {
        format: FORMAT,
        command: String::new(),
        command_line: Vec::new(),
        started: String::new(),
        machine: Machine::default(),
        workload: String::new(),
        arrivals: String::new(),
        settings: std::collections::BTreeMap::new(),
        subjects: Vec::new(),
        ratios: Vec::new(),
        notes: Vec::new(),
    }
}
