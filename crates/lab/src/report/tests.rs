//! Tests of the report as a whole: it is well formed, has the figures of the runs, and no figures break it.

mod sentences;

use serde_json::Value;

use super::*;
use crate::results::{Capacity, Machine, Ratio, Score, ScoreTry, Subject};
use flash_load::measure::{
    CdfPoint, Counts, Decile, Generator, Latency, Measures, SizeSeries, Timeline, TimelinePoint, Usage,
};

fn latency(p50_ms: f64) -> Latency {
    Latency {
        mean_ms: p50_ms * 2.0,
        p5_ms: p50_ms / 2.0,
        p50_ms,
        p90_ms: p50_ms * 4.0,
        p95_ms: p50_ms * 6.0,
        p99_ms: p50_ms * 10.0,
        p999_ms: p50_ms * 20.0,
        max_ms: p50_ms * 40.0,
    }
}

fn measures(name: &str, p50_ms: f64) -> Measures {
    let half = SizeSeries { bytes_min: 102, bytes_max: 1024, share: 0.5 };
    let point =
        TimelinePoint { asked: 10, answered: 10, p50_ms: Some(p50_ms), p99_ms: None, max_ms: Some(9.0) };
    Measures {
        name: name.to_owned(),
        load_level: name.parse().ok(),
        round: None,
        asked_per_s: Some(1000.0),
        duration_s: 10.0,
        drain_s: 0.1,
        counts: Counts { asked: 10_000, answered: 10_000, ..Counts::default() },
        answered_per_s: 1000.0,
        megabits_per_s: 80.0,
        latency: latency(p50_ms),
        connect: Some(latency(p50_ms / 10.0)),
        handshakes: None,
        first_byte: Some(latency(p50_ms / 2.0)),
        transfer: None,
        inversion: Some(0.25),
        cdf: vec![
            CdfPoint { latency_ms: p50_ms, share: 0.5 },
            CdfPoint { latency_ms: p50_ms * 40.0, share: 1.0 },
        ],
        histogram: Vec::new(),
        series: vec![half.clone(), SizeSeries { bytes_min: 2048, bytes_max: 921_600, ..half }],
        kinds: Vec::new(),
        deciles: vec![Decile { latency_max_ms: p50_ms, shares: vec![0.75, 0.25] }; 10],
        timeline: Timeline { step_s: 1.0, points: vec![point; 3] },
        generator: Generator {
            threads: 1,
            late_mean_ms: 0.0,
            late_p50_ms: 0.0,
            late_p90_ms: None,
            late_p95_ms: None,
            late_p99_ms: 0.01,
            late_p999_ms: None,
            late_max_ms: 0.5,
            busy_share: 0.3,
            limit: None,
        },
        in_memory_share: None,
        other_work: None,
        overload: None,
        server: Some(Usage { cpu_s: 1.0, cpu_us_per_answer: 100.0, memory_max_bytes: 1_000_000 }),
        records: None,
        records_lost: 0,
        ended_early: None,
    }
}

fn subject(name: &str, p50_ms: f64, levels: &[&str]) -> Subject {
    let slower = |(index, level): (usize, &&str)| measures(level, p50_ms * (index + 1) as f64);
    Subject {
        name: name.to_owned(),
        url: "http://127.0.0.1:1/".to_owned(),
        version: None,
        command: None,
        dataset_bytes: Some(3_000_000_000),
        capacity: Some(Capacity {
            requests_per_s: 1234.0,
            megabits_per_s: 100.0,
            rounds_requests_per_s: vec![1234.0],
            clients: 64,
            doubts: Vec::new(),
        }),
        levels: levels.iter().enumerate().map(slower).collect(),
        rounds: Vec::new(),
        score: None,
        missing: None,
    }
}

fn p99(subject: &str, ratio: f64, interval: Option<[f64; 2]>) -> Ratio {
    let text = str::to_owned;
    let (measure, level) = (text("p99"), Some(text("0.95")));
    Ratio { measure, level, subject: text(subject), base: text("flash"), ratio, interval, doubt: None }
}

pub(crate) fn run_of(subjects: Vec<Subject>) -> Run {
    Run {
        format: FORMAT,
        command: "compare".to_owned(),
        command_line: vec!["flash".to_owned(), "compare".to_owned()],
        started: "2026-01-01T00:00:00Z".to_owned(),
        machine: Machine::default(),
        workload: "specweb99".to_owned(),
        arrivals: "Poisson".to_owned(),
        settings: [("seed".to_owned(), "1".to_owned())].into(),
        subjects,
        ratios: Vec::new(),
        notes: vec!["a note".to_owned()],
    }
}

fn two() -> Run {
    let levels = ["0.20", "0.80", "0.95"];
    run_of(vec![subject("flash", 1.0, &levels), subject("nginx", 4.0, &levels)])
}

/// Everything that a run can hold.
fn full() -> Run {
    let mut run = two();
    run.subjects[0].rounds = vec![Measures { round: Some(1), ..measures("0.20", 1.0) }];
    run.subjects
        .push(Subject { dataset_bytes: Some(1_000_000_000), ..subject("nginx", 2.0, &["0.20", "0.95"]) });
    let one = ScoreTry {
        connections: 9,
        conforming: 9,
        slowest_bits_per_s: 3.3e5,
        errors_share: 0.0,
        passed: true,
    };
    run.subjects[0].score =
        Some(Score { connections: 9, pace_bits_per_s: 400_000, least_bits_per_s: 320_000, tries: vec![one] });
    run.ratios = vec![Ratio {
        measure: "p99".to_owned(),
        level: Some("0.95".to_owned()),
        subject: "nginx".to_owned(),
        base: "flash".to_owned(),
        ratio: 4.0,
        interval: Some([3.5, 4.5]),
        doubt: None,
    }];
    run
}

/// Runs that measured nothing, or nothing that is a number.
fn odd() -> Vec<Vec<Run>> {
    let mut nonsense = full();
    for subject in &mut nonsense.subjects {
        for (index, measures) in subject.levels.iter_mut().enumerate() {
            let bad = [f64::NAN, f64::INFINITY, 0.0, -1.0, 1e300][index % 5];
            measures.latency = Latency { p50_ms: bad, p99_ms: bad, max_ms: bad, ..latency(bad) };
            measures.load_level = Some(bad);
            measures.inversion = Some(bad);
            measures.cdf.push(CdfPoint { latency_ms: bad, share: bad });
            measures.deciles[0].shares = vec![bad; 9];
            measures.timeline.step_s = bad;
            measures.generator.late_max_ms = bad;
            measures.counts.failed =
                [("reset".to_owned(), u64::MAX), ("refused".to_owned(), u64::MAX)].into();
        }
        subject.capacity.as_mut().unwrap().requests_per_s = f64::NAN;
    }
    nonsense.ratios[0].ratio = f64::NAN;
    nonsense.ratios[0].interval = Some([f64::NEG_INFINITY, f64::INFINITY]);
    let many: Vec<String> = (0..12).map(|n| format!("{:.2}", f64::from(n) / 10.0)).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let crowd = (0..30).map(|n| subject(&format!("server {n}"), f64::from(n + 1), &many)).collect();
    let named = run_of(vec![subject("flash", 1.0, &["hot alone", "hot with cold"])]);
    let missing = Subject { missing: Some("it did not start".to_owned()), ..subject("gone", 1.0, &[]) };
    let partly = run_of(vec![subject("flash", 1.0, &["0.20"]), missing.clone()]);
    vec![
        vec![],
        vec![run_of(vec![])],
        vec![run_of(vec![missing])],
        vec![partly],
        vec![nonsense],
        vec![run_of(crowd)],
        vec![named],
        vec![full()],
        vec![two(), full(), two()],
    ]
}

/// The first tag that is not closed where it must be.
fn unclosed(page: &str) -> Option<String> {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>")?;
    while let Some(at) = rest.find('<') {
        let end = at + rest[at..].find('>')?;
        let tag = &rest[at + 1..end];
        let name = tag.trim_start_matches('/').split(' ').next()?;
        if !tag.starts_with('/') && name != "meta" {
            open.push(name);
        } else if tag.starts_with('/') && open.pop() != Some(name) {
            return Some(format!("{tag} near {}", &rest[..end]));
        }
        rest = &rest[end + 1..];
    }
    open.pop().map(str::to_owned)
}

#[test]
fn the_page_is_well_formed_and_shows_no_nonsense() {
    for runs in odd() {
        let page = html(&runs);
        assert_eq!(unclosed(&page), None);
        let shown = page.split("</style>").nth(1).unwrap();
        for nonsense in ["NaN", "inf ", ">inf<", "inf\"", "None", "Some("] {
            assert!(!shown.contains(nonsense), "{nonsense}: {}", &shown[..shown.len().min(2000)]);
        }
        assert!(serde_json::from_str::<Value>(&json(&runs)).is_ok());
        for run in &runs {
            let _ = table(run);
        }
    }
}

#[test]
fn unclosed_tags_are_found() {
    assert_eq!(unclosed("<!DOCTYPE html><p><b>x</b></p>"), None);
    assert!(unclosed("<!DOCTYPE html><p><b>x</p>").is_some());
    assert!(unclosed("<!DOCTYPE html><p>").is_some());
}

#[test]
fn the_page_needs_nothing_else() {
    let page = html(&[full()]);
    for outside in ["src=", "href=\"http", "@import", "url(", "<link"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn text_from_outside_is_escaped() {
    let evil = "<script>alert(1)</script>\"&\u{1b}[31m";
    let mut run = full();
    run.subjects[0].name = evil.to_owned();
    run.subjects[0].missing = Some(evil.to_owned());
    run.subjects[0].levels[0].name = evil.to_owned();
    run.subjects[0].levels[0].counts.failed = [(evil.to_owned(), 5)].into();
    run.subjects[0].url = evil.to_owned();
    (run.workload, run.command_line, run.notes) =
        (evil.to_owned(), vec![evil.to_owned()], vec![evil.to_owned()]);
    run.ratios[0].subject = evil.to_owned();
    let page = html(&[run.clone()]);
    assert!(!page.contains("<script>alert") && page.contains("&lt;script&gt;alert"));
    assert!(!page.contains('\u{1b}') && !table(&run).contains('\u{1b}'));
    assert_eq!(unclosed(&page), None);
}

#[test]
fn each_part_is_there_when_there_is_data_for_it() {
    let ids = |run: Run| -> Vec<String> {
        let report: Value = serde_json::from_str(&json(&[run])).unwrap();
        let parts = report["parts"].as_array().unwrap();
        parts.iter().map(|part| part["id"].as_str().unwrap().to_owned()).collect()
    };
    let all = [
        "sweep",
        "profile",
        "summary",
        "levels",
        "cdf",
        "deciles",
        "inversion",
        "timeline",
        "score",
        "ratios",
        "split",
        "failures",
        "server",
        "generator",
    ];
    assert_eq!(ids(full()), all);
    let mut bare = run_of(vec![subject("flash", 1.0, &["closed"])]);
    let level = &mut bare.subjects[0].levels[0];
    (level.cdf, level.deciles, level.timeline.points) = (Vec::new(), Vec::new(), Vec::new());
    (level.connect, level.first_byte, level.server) = (None, None, None);
    assert_eq!(ids(bare), ["profile", "summary", "levels", "failures", "generator"]);
}

#[test]
fn subjects_of_one_name_are_told_apart() {
    let labels = |runs: &[Run]| -> Vec<String> {
        View::new(runs).subjects.iter().map(|shown| shown.label.clone()).collect()
    };
    assert_eq!(labels(&[two()]), ["flash", "nginx"]);
    assert_eq!(labels(&[full()]), ["flash", "nginx · 3.00 GB", "nginx · 1.00 GB"]);
    assert_eq!(labels(&[two(), two()]), ["flash · run 1", "nginx · run 1", "flash · run 2", "nginx · run 2"]);
    let twins = run_of(vec![subject("a", 1.0, &["0.20"]), subject("a", 2.0, &["0.20"])]);
    assert_eq!(labels(&[twins]), ["a · 1", "a · 2"]);
}

#[test]
fn the_sentence_and_the_number_of_warnings_come_before_the_plot() {
    let mut run = two();
    let level = &mut run.subjects[1].levels[2];
    level.generator.limit = Some("it was late".to_owned());
    level.generator.late_p99_ms = 5.0;
    level.ended_early = Some("interrupted".to_owned());
    level.counts.failed = [("reset".to_owned(), 500)].into();
    let page = html(&[run.clone()]);
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}"));
    assert!(at("class=\"answer\">At 1,000 requests/s") < at("<summary>3 warnings"));
    for warning in ["generator: it was late", "ended early: interrupted", "failures: 5.00 % of the requests"]
    {
        assert!(at(&format!("<li>nginx at load 0.95: {warning}")) < at("<figure"), "{warning}");
    }
    assert!(at("<figure") < at("<table") && at("<table") < at("<h2>Setup"));
    assert!(table(&run).contains("warning: nginx at load 0.95: generator: it was late"));
    assert!(table(&run).contains("nginx at load 0.95: failed: 500 reset"));
}

#[test]
fn the_json_has_the_figures_of_the_tables() {
    let report: Value = serde_json::from_str(&json(&[two()])).unwrap();
    assert_eq!(report["level"], "0.95");
    let table = &report["parts"][2]["tables"][0];
    assert_eq!(table["columns"][10], "p99, ms");
    // Two subjects at each of three levels; the last row is nginx at 0.95.
    assert_eq!(table["rows"].as_array().unwrap().len(), 6);
    let row = &table["rows"][5];
    assert_eq!((&row[0], &row[1], &row[10]), (&"0.95".into(), &"nginx".into(), &120.0.into()));
    assert!(html(&[two()]).contains("<td class=\"n\">120</td>"));
}

#[test]
fn the_terminal_has_a_line_for_each_level_within_its_width() {
    let mut run = two();
    let text = table(&run);
    let row: Vec<&str> = text.lines().nth(7).unwrap().split_whitespace().collect();
    let wanted = [
        "0.95", "nginx", "1,000", "1,000", "80.0", "24.0", "12.0", "48.0", "120", "240", "480", "0.250", "0",
    ];
    assert_eq!(row, wanted);
    run.subjects[0].name = "a long name ".repeat(10);
    run.subjects[0].missing = Some("why ".repeat(60));
    for line in table(&run).lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn a_ratio_in_doubt_says_so_on_the_page_and_on_the_terminal() {
    let mut run = two();
    run.ratios = vec![p99("nginx", 4.0, Some([3.0, 5.0]))];
    let why = "overloaded in 2 of 10 rounds";
    assert!(!html(&[run.clone()]).contains("cannot be told"), "no column without a doubt");
    (run.ratios[0].interval, run.ratios[0].doubt) = (None, Some(why.to_owned()));
    assert!(html(&[run.clone()]).contains(why));
    assert!(table(&run).contains(&format!("cannot be told: {why}")));
    let why = "round 1: failures: 2.00 % of the requests";
    run.subjects[1].capacity.as_mut().unwrap().doubts = vec![why.to_owned()];
    let page = html(&[run.clone()]);
    assert!(page.contains(&format!("nginx: capacity in doubt: {why}")) && page.contains("1 of 1 rounds"));
    assert!(table(&run).contains("100 Mb/s (in doubt)"), "{}", table(&run));
}

#[test]
fn a_folder_becomes_a_page_and_its_figures() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("results");
    folder::write(&folder, &full()).unwrap();
    let options = Options { folders: vec![folder.clone(), folder.clone()], out: None };
    run(&options).unwrap();
    let page = std::fs::read_to_string(folder.join(REPORT_FILE)).unwrap();
    assert_eq!(page, html(&[full(), full()]));
    let figures = std::fs::read_to_string(folder.join("report.json")).unwrap();
    assert_eq!(figures, json(&[full(), full()]));
    let out = folder.join("other.html");
    run(&Options { out: Some(out.clone()), folders: vec![folder.clone()] }).unwrap();
    assert!(out.exists() && out.with_extension("json").exists());
    for out in ["x.json", "x", "run.json"] {
        let options = Options { out: Some(folder.join(out)), folders: vec![folder.clone()] };
        assert_eq!(run(&options).unwrap_err().exit_code(), 2, "{out}");
    }
    assert_eq!(run(&Options { folders: Vec::new(), out: None }).unwrap_err().exit_code(), 2);
}

#[test]
fn a_folder_that_holds_no_results_is_said_to() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("results");
    let read = || folder::read(&folder).unwrap_err();
    assert!(read().exit_code() == 2 && read().to_string().contains("holds no run.json"), "{}", read());
    std::fs::create_dir_all(&folder).unwrap();
    let put = |text: &str| std::fs::write(folder.join(folder::RUN_FILE), text).unwrap();
    put("{\"format\": 99, \"else\": 1}");
    assert!(read().exit_code() == 1 && read().to_string().contains("has format 99"), "{}", read());
    let whole = serde_json::to_string(&two()).unwrap();
    for text in ["", "[]", "{\"format\": 1}", &whole[..whole.len() / 2]] {
        put(text);
        assert!(read().exit_code() == 1 && read().to_string().contains("damaged"), "{}", read());
    }
    put(&whole);
    assert_eq!(folder::read(&folder).unwrap().subjects.len(), 2);
}
