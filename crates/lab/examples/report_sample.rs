//! Writes reports of made-up runs, to look at: `cargo run -p flash-lab --example report_sample -- DIR`.
//!
//! The figures come from a seeded model of three servers; nothing was measured. The samples are a comparison, a
//! sweep, a load with a stall, a hot and cold test, odd runs, and the page of an experiment.

use std::path::Path;

use flash_kit::sheet::{Axis, Division, Entry, Finding, Grid, Plot, Sheet, Unit};
use flash_lab::report;
use flash_lab::results::{Capacity, FORMAT, Machine, Ratio, Run, Score, ScoreTry, Subject, folder};
use flash_load::measure::{
    CdfPoint, Counts, Decile, Generator, Latency, Measures, SizeSeries, Timeline, TimelinePoint, Usage,
};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

const LEVELS: [f64; 6] = [0.2, 0.4, 0.6, 0.8, 0.9, 0.95];
const SAMPLES: usize = 20_000;
const SERIES: [(u64, u64, f64); 4] =
    [(102, 1024, 0.2506), (2048, 6144, 0.2805), (7168, 20_480, 0.2355), (30_720, 921_600, 0.2334)];

/// A made-up server: its capacity, the median of an unloaded answer, how fast it grows with load, and how
/// much of its latency does not follow size.
#[derive(Clone, Copy)]
struct Server {
    name: &'static str,
    capacity_per_s: f64,
    base_ms: f64,
    growth: f64,
    inversion: f64,
}

const SERVERS: [Server; 3] = [
    Server { name: "flash", capacity_per_s: 41_200.0, base_ms: 0.21, growth: 0.9, inversion: 0.1 },
    Server { name: "nginx", capacity_per_s: 33_800.0, base_ms: 0.26, growth: 2.4, inversion: 0.35 },
    Server { name: "apache", capacity_per_s: 14_100.0, base_ms: 0.61, growth: 4.2, inversion: 0.6 },
];

struct Sampled {
    latency_ms: f64,
    series: usize,
}

fn sample(server: &Server, load: f64, random: &mut Xoshiro256PlusPlus) -> Sampled {
    let mut draw: f64 = random.random();
    let mut series = SERIES.len() - 1;
    for (index, (_, _, share)) in SERIES.iter().enumerate() {
        if draw < *share {
            series = index;
            break;
        }
        draw -= share;
    }
    let spread = |random: &mut Xoshiro256PlusPlus| -f64::ln(random.random::<f64>().max(1e-12));
    let size = 1.0 + 1.4 * series as f64 * series as f64;
    let queue = server.growth * load.powi(3) / (1.02 - load);
    let waits = random.random_bool((server.inversion * load * 0.25).clamp(0.0, 1.0));
    let blocked = if waits { server.growth * load * 25.0 * spread(random) } else { 0.0 };
    let own = server.base_ms * size * (0.7 + 0.3 * spread(random));
    Sampled { latency_ms: own + server.base_ms * queue * spread(random) + blocked, series }
}

/// The latencies, each times `by`.
fn summary(samples: &[Sampled], by: f64) -> Latency {
    let rank = |share: f64| ((share * SAMPLES as f64).ceil() as usize).clamp(1, SAMPLES) - 1;
    let at = |share: f64| samples[rank(share)].latency_ms * by;
    Latency {
        mean_ms: samples.iter().map(|s| s.latency_ms).sum::<f64>() / SAMPLES as f64 * by,
        p5_ms: at(0.05),
        p50_ms: at(0.5),
        p90_ms: at(0.9),
        p95_ms: at(0.95),
        p99_ms: at(0.99),
        p999_ms: at(0.999),
        max_ms: at(1.0),
    }
}

fn measures(server: &Server, name: &str, load: Option<f64>, seed: u64) -> Measures {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let fraction = load.unwrap_or(0.5);
    let mut samples: Vec<Sampled> = (0..SAMPLES).map(|_| sample(server, fraction, &mut random)).collect();
    samples.sort_by(|a, b| a.latency_ms.total_cmp(&b.latency_ms));
    let latency = summary(&samples, 1.0);
    let answered_per_s = server.capacity_per_s * fraction;
    let answered = (answered_per_s * 30.0) as u64;
    let failed = if server.name == "apache" && fraction > 0.9 {
        [("reset".to_owned(), answered / 2000)].into()
    } else {
        [].into()
    };
    Measures {
        name: name.to_owned(),
        load_level: load,
        round: None,
        asked_per_s: Some(answered_per_s),
        duration_s: 30.0,
        drain_s: 0.4,
        counts: Counts {
            asked: answered,
            answered,
            failed,
            queued: 0,
            late: 12,
            retried: 3,
            connections: answered / 5,
        },
        answered_per_s,
        megabits_per_s: answered_per_s * 14_700.0 * 8.0 / 1e6,
        latency,
        connect: Some(summary(&samples, 0.12)),
        first_byte: Some(summary(&samples, 0.6)),
        transfer: Some(summary(&samples, 0.3)),
        inversion: Some(server.inversion * fraction.sqrt() * 0.9),
        cdf: cdf(&samples),
        series: SERIES
            .iter()
            .map(|&(bytes_min, bytes_max, share)| SizeSeries { bytes_min, bytes_max, share })
            .collect(),
        kinds: Vec::new(),
        deciles: deciles(&samples),
        timeline: timeline(&latency, answered_per_s, &mut random),
        generator: Generator {
            threads: 1,
            late_mean_ms: 0.0,
            late_p50_ms: 0.001,
            late_p99_ms: 0.03,
            late_max_ms: 1.4,
            busy_share: 0.2 + 0.5 * fraction,
            limit: None,
        },
        in_memory_share: None,
        overload: None,
        server: Some(Usage {
            cpu_s: 28.0 * fraction,
            cpu_us_per_answer: 1e6 / server.capacity_per_s,
            memory_max_bytes: 180_000_000,
        }),
        records: None,
        records_lost: 0,
        ended_early: None,
    }
}

fn cdf(samples: &[Sampled]) -> Vec<CdfPoint> {
    let mut points: Vec<CdfPoint> = Vec::new();
    for (index, sample) in samples.iter().enumerate() {
        let is_last = index + 1 == samples.len();
        if is_last || points.last().is_none_or(|last| sample.latency_ms > last.latency_ms * 1.04) {
            let share = (index + 1) as f64 / samples.len() as f64;
            points.push(CdfPoint { latency_ms: sample.latency_ms, share });
        }
    }
    points
}

fn deciles(samples: &[Sampled]) -> Vec<Decile> {
    let of = |tenth: &[Sampled]| {
        let share =
            |series: usize| tenth.iter().filter(|s| s.series == series).count() as f64 / tenth.len() as f64;
        Decile {
            latency_max_ms: tenth[tenth.len() - 1].latency_ms,
            shares: (0..SERIES.len()).map(share).collect(),
        }
    };
    samples.chunks(SAMPLES / 10).map(of).collect()
}

fn timeline(latency: &Latency, per_s: f64, random: &mut Xoshiro256PlusPlus) -> Timeline {
    let mut point = |_| {
        let mut around = |time_ms: f64, by: f64| Some(time_ms * (1.0 + by * (random.random::<f64>() - 0.5)));
        let asked = around(per_s, 0.05).unwrap_or(0.0) as u64;
        let (p50_ms, p99_ms) = (around(latency.p50_ms, 0.1), around(latency.p99_ms, 0.5));
        TimelinePoint { asked, answered: asked, p50_ms, p99_ms, max_ms: around(latency.max_ms * 0.6, 0.7) }
    };
    Timeline { step_s: 1.0, points: (0..30).map(&mut point).collect() }
}

fn subject(server: &Server, seed: u64) -> Subject {
    let level = |(index, load): (usize, &f64)| {
        measures(server, &format!("{load:.2}"), Some(*load), seed + index as u64)
    };
    let megabits_per_s = server.capacity_per_s * 14_700.0 * 8.0 / 1e6;
    Subject {
        name: server.name.to_owned(),
        url: "http://127.0.0.1:8080/".to_owned(),
        version: Some(format!("{} 1.0", server.name)),
        command: Some(format!("{} --root set --port 8080", server.name)),
        dataset_bytes: Some(3_000_000_000),
        capacity: Some(Capacity {
            requests_per_s: server.capacity_per_s,
            megabits_per_s,
            rounds_requests_per_s: vec![server.capacity_per_s * 0.98, server.capacity_per_s * 1.02],
            clients: 1024,
            doubts: Vec::new(),
        }),
        levels: LEVELS.iter().enumerate().map(level).collect(),
        rounds: Vec::new(),
        score: None,
        missing: None,
    }
}

fn run(command: &str, subjects: Vec<Subject>) -> Run {
    Run {
        format: FORMAT,
        command: command.to_owned(),
        command_line: ["flash", command, "--workload", "specweb99", "--out", "result"]
            .map(str::to_owned)
            .to_vec(),
        started: "2026-01-01T00:00:00Z".to_owned(),
        machine: Machine {
            cpu: "Model of no real processor".to_owned(),
            cores: 2,
            memory_bytes: 8_000_000_000,
            kernel: "Linux 6.18".to_owned(),
            load_average: 0.12,
        },
        workload: "SPECweb99, 586 directories, 5 requests a connection".to_owned(),
        arrivals: "open loop, Poisson".to_owned(),
        settings: [
            ("seed".to_owned(), "1".to_owned()),
            ("testbed".to_owned(), "512 MiB, 100 reads/s".to_owned()),
        ]
        .into(),
        subjects,
        ratios: Vec::new(),
        notes: vec!["These figures are made up: they show the report, not a server.".to_owned()],
    }
}

fn compare() -> Run {
    let mut subjects: Vec<Subject> = SERVERS.iter().map(|server| subject(server, 1)).collect();
    let mut ratios = Vec::new();
    for other in &subjects[1..] {
        for (measure, at) in [("p99", 3), ("p99", 5), ("mean", 5)] {
            let time = |s: &Subject| {
                if measure == "p99" { s.levels[at].latency.p99_ms } else { s.levels[at].latency.mean_ms }
            };
            let ratio = time(other) / time(&subjects[0]);
            ratios.push(Ratio {
                measure: measure.to_owned(),
                level: Some(other.levels[at].name.clone()),
                subject: other.name.clone(),
                base: subjects[0].name.clone(),
                ratio,
                interval: Some([ratio * 0.85, ratio * 1.2]),
                doubt: None,
            });
        }
    }
    for (index, subject) in subjects.iter_mut().enumerate() {
        let least = 900 - 200 * index as u32;
        let one = |connections: u32| ScoreTry {
            connections,
            conforming: connections.min(least),
            slowest_bits_per_s: (395e3 - f64::from(connections) * 75e3 / f64::from(least)).max(0.0),
            errors_share: 0.0,
            passed: connections <= least,
        };
        subject.score = Some(Score {
            connections: least,
            pace_bits_per_s: 400_000,
            least_bits_per_s: 320_000,
            tries: [200, 400, 800, least, 1200].map(one).to_vec(),
        });
    }
    Run { ratios, ..run("compare", subjects) }
}

fn sweep() -> Run {
    let mut subjects = Vec::new();
    for server in &SERVERS {
        for (step, directories) in [100_u64, 200, 300, 450, 600].into_iter().enumerate() {
            let slower = 1.0 + step as f64 * server.growth * 0.25;
            let server = Server {
                base_ms: server.base_ms * slower,
                capacity_per_s: server.capacity_per_s / slower,
                ..*server
            };
            let dataset_bytes = Some(directories * 5_120_000);
            subjects.push(Subject { dataset_bytes, ..subject(&server, 7 + directories) });
        }
    }
    run("profile", subjects)
}

/// A server that stalls from 10 s to 12 s.
fn stall() -> Run {
    let mut load = measures(&SERVERS[0], "4000/s", None, 3);
    for (second, point) in load.timeline.points.iter_mut().enumerate() {
        if let 10 | 11 = second {
            let left_ms = (12 - second) as f64 * 1000.0;
            (point.p50_ms, point.p99_ms, point.max_ms) =
                (Some(left_ms - 500.0), Some(left_ms - 10.0), Some(left_ms));
        }
    }
    (load.latency.p99_ms, load.latency.p999_ms, load.latency.max_ms) = (1820.0, 1980.0, 2000.0);
    // Of 30 s, two were stalled.
    load.cdf.iter_mut().for_each(|point| point.share *= 28.0 / 30.0);
    let stalled = (1..=20)
        .map(|n| CdfPoint { latency_ms: 100.0 * f64::from(n), share: (28.0 + f64::from(n) / 10.0) / 30.0 });
    load.cdf.extend(stalled);
    load.generator.limit =
        Some("its thread was busy 97 % of the time: give it another core or --threads 2".to_owned());
    let levels = vec![load];
    run("load", vec![Subject { levels, capacity: None, ..subject(&SERVERS[0], 1) }])
}

fn interfere() -> Run {
    let (mut subjects, mut ratios) = (Vec::new(), Vec::new());
    for (server, growth) in SERVERS.iter().zip([0.6, 900.0, 40.0]) {
        let level = |name: &str, growth: f64, seed| measures(&Server { growth, ..*server }, name, None, seed);
        let levels =
            vec![level("hot alone", 0.2, 1), level("hot with cold", growth, 2), level("cold", 40.0, 3)];
        let ratio = levels[1].latency.p99_ms / levels[0].latency.p99_ms;
        ratios.push(Ratio {
            measure: "p99".to_owned(),
            level: None,
            subject: format!("{}, {}", server.name, levels[1].name),
            base: format!("{}, {}", server.name, levels[0].name),
            ratio,
            interval: Some([ratio * 0.8, ratio * 1.1]),
            doubt: None,
        });
        subjects.push(Subject { levels, capacity: None, ..subject(server, 1) });
    }
    Run { ratios, ..run("interfere", subjects) }
}

/// Names that are markup, figures that are none, a subject without any, and many of both.
fn odd() -> Run {
    let mut subjects: Vec<Subject> = (0..11_u32)
        .map(|index| {
            let server = Server { base_ms: 0.1 * f64::from(index + 1), ..SERVERS[index as usize % 3] };
            let mut subject = subject(&server, u64::from(index));
            subject.name = format!("{} variant {index} <b>&\"'", server.name);
            subject.levels.truncate(1 + index as usize % 6);
            subject
        })
        .collect();
    subjects[1].levels.clear();
    subjects[1].missing = Some("it did not answer within 10 s: <script>alert(1)</script>".to_owned());
    subjects[2].levels[0].latency.p99_ms = f64::NAN;
    subjects[3].levels[0].latency = Latency::default();
    subjects[4].levels[0].latency.max_ms = 1e300;
    run("compare", subjects)
}

/// A page of an experiment, with texts as long as those of real ones.
fn sheet() -> Sheet {
    let line = |(index, name): (usize, &str)| {
        let points =
            [10.0, 50.0, 100.0, 200.0, 500.0].map(|x: f64| (x, 60.0 + x.sqrt() * (index + 2) as f64));
        (name.to_owned(), points.to_vec())
    };
    let names = ["AMPED", "SPED", "MP", "MT", "nginx", "Apache", "lighttpd"];
    let lines: Vec<(String, Vec<(f64, f64)>)> = names.into_iter().enumerate().map(line).collect();
    let row = |at: usize| {
        let figures = lines
            .iter()
            .map(|(_, points)| Entry::Rounds(points[at].1, points[at].1 * 0.9, points[at].1 * 1.2));
        [Entry::Text(format!("{} connections", lines[0].1[at].0))].into_iter().chain(figures).collect()
    };
    let columns = ["connections".to_owned()].into_iter().chain(names.map(|name| format!("{name}, Mb/s")));
    let grid =
        Grid { title: "Bandwidth".to_owned(), columns: columns.collect(), rows: (0..5).map(row).collect() };
    let finding = |verdict: &str| Finding {
        source: "flash99, section 6.4".to_owned(),
        paper: "with few connections the architectures are alike, and the slope of MP is steeper with many"
            .to_owned(),
        ours: "at 500 connections MP has 78 % of the bandwidth of AMPED (71 to 84 %), in five rounds"
            .to_owned(),
        verdict: verdict.to_owned(),
    };
    Sheet {
        title: "Bandwidth against the number of simultaneous clients".to_owned(),
        subtitle: "flash experiment clients, after flash99, section 6.4, 2026-01-01".to_owned(),
        summary: "3 findings of the papers: 1 holds, 1 does not hold, 1 cannot be told.".to_owned(),
        warnings: vec!["nginx at 500 connections, round 2: the generator was the limit: its thread was busy 99 % of the time".to_owned(); 3],
        findings: ["holds", "does not hold", "cannot be told"].map(finding).to_vec(),
        plots: vec![Plot {
            title: "Bandwidth".to_owned(),
            x: Axis::new("simultaneous clients", Unit::Number, Division::Linear),
            y: Axis::new("bandwidth, Mb/s", Unit::Number, Division::Linear),
            lines,
            grid: Some(grid),
        }],
        grids: Vec::new(),
        facts: vec![("machine".to_owned(), "Model of no real processor, 2 cores".to_owned())],
        footer: "Made up.".to_owned(),
    }
}

fn main() -> flash_lab::Result<()> {
    let Some(folder) = std::env::args_os().nth(1) else {
        return Err(flash_lab::Error::usage("give the folder for the samples"));
    };
    let single = run("profile", vec![subject(&SERVERS[1], 5)]);
    let runs = [
        ("compare", compare()),
        ("profile", single),
        ("sweep", sweep()),
        ("load", stall()),
        ("interfere", interfere()),
        ("odd", odd()),
    ];
    let page = Path::new(&folder).join("sheet.html");
    folder::write_whole(&page, &sheet().html())?;
    println!("{}", page.display());
    for (name, run) in runs {
        let folder = Path::new(&folder).join(name);
        folder::write(&folder, &run)?;
        report::write(std::slice::from_ref(&run), &folder.join(report::REPORT_FILE))?;
        println!("{}\n{}", folder.join(report::REPORT_FILE).display(), report::table(&run));
    }
    Ok(())
}
