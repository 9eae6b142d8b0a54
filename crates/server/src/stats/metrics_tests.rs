//! The metrics of made-up statistics, by the rules of both formats.

use std::collections::HashMap;

use flash_worker::stats::{Calls, Gauge};

use super::*;

fn stats() -> ServerStats {
    let mut stats = ServerStats { program: "1.2.3".to_owned(), uptime_ms: 1_500, ..ServerStats::default() };
    stats.sum.requests = 7;
    stats.sum.connections.open = Gauge(3);
    stats.sum.responses.of_4xx = 2;
    stats.sum.times.connections_ms = 2_250;
    let mut times = CallTimes { sum_ns: 3_000_000, max_ns: 2_000_000, stalls: 1, ..CallTimes::default() };
    for ns in [500, 1 << 10, 2_000_000] {
        times.counts[bucket_of(ns)] += 1;
    }
    stats.sum.calls = Calls([("read".to_owned(), times)].into());
    stats.store = Some(StoreStats { held_bytes: Gauge(4096), ..StoreStats::default() });
    stats
}

/// The samples by name and labels.
fn samples(text: &str) -> HashMap<&str, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').map(|(name, value)| (name, value.parse().unwrap())).unwrap())
        .collect()
}

#[test]
fn figures_have_names_units_and_labels() {
    let text = metrics(&stats(), MetricsFormat::Prometheus);
    let found = samples(&text);
    let expected = [
        ("flash_build_info{version=\"1.2.3\"}", 1.0),
        ("flash_uptime_seconds", 1.5),
        ("flash_requests_total", 7.0),
        ("flash_connections_open", 3.0),
        ("flash_responses_total{class=\"4xx\"}", 2.0),
        ("flash_state_seconds_total{state=\"connection\"}", 2.25),
        ("flash_store_held_bytes", 4096.0),
        ("flash_loop_stalls_total{call=\"read\"}", 1.0),
        ("flash_loop_call_seconds_sum{call=\"read\"}", 0.003),
        ("flash_loop_call_seconds_count{call=\"read\"}", 3.0),
        ("flash_loop_call_seconds_bucket{call=\"read\",le=\"0.000001024\"}", 1.0),
        ("flash_loop_call_seconds_bucket{call=\"read\",le=\"0.000004096\"}", 2.0),
        ("flash_loop_call_seconds_bucket{call=\"read\",le=\"+Inf\"}", 3.0),
    ];
    for (name, value) in expected {
        assert_eq!(found.get(name), Some(&value), "{name} in\n{text}");
    }
}

#[test]
fn every_sample_follows_its_family_and_no_family_occurs_twice() {
    for format in [MetricsFormat::Prometheus, MetricsFormat::OpenMetrics] {
        let text = metrics(&stats(), format);
        let (mut family, mut kind, mut seen) = (String::new(), "", Vec::new());
        for line in text.lines().filter(|line| *line != "# EOF") {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                (family, kind) = rest.split_once(' ').map(|(name, kind)| (name.to_owned(), kind)).unwrap();
                assert!(!seen.contains(&family), "{family} twice");
                assert_eq!(
                    family.ends_with("_total"),
                    kind == "counter" && format == MetricsFormat::Prometheus
                );
                seen.push(family.clone());
            } else if !line.starts_with("# HELP ") {
                let name = line.split(['{', ' ']).next().unwrap();
                let suffix = name.strip_prefix(&family).unwrap_or_else(|| panic!("{name} in {family}"));
                let allowed: &[&str] = match (kind, format) {
                    ("counter", MetricsFormat::OpenMetrics) => &["_total"],
                    ("histogram", _) => &["_bucket", "_sum", "_count"],
                    _ => &[""],
                };
                assert!(allowed.contains(&suffix), "{line}");
            }
        }
        assert_eq!(text.ends_with("# EOF\n"), format == MetricsFormat::OpenMetrics);
    }
}

#[test]
fn the_alerts_and_the_dashboard_name_metrics_that_there_are() {
    let text = metrics(&stats(), MetricsFormat::Prometheus);
    let known: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let files = [
        include_str!("../../../../packaging/prometheus/alerts.yml"),
        include_str!("../../../../packaging/grafana/flash.json"),
    ];
    for file in files {
        let names = file.match_indices("flash_").map(|(at, _)| {
            let end = file[at..].find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap();
            &file[at..at + end]
        });
        let names: Vec<&str> = names.collect();
        assert!(names.len() > 5, "{names:?}");
        for name in names {
            let of_histogram = ["_bucket", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
            let family = of_histogram.unwrap_or(name);
            assert!(known.contains(&family), "no metric {name}");
        }
    }
}

#[test]
fn labels_are_escaped() {
    let mut text = Text { out: String::new(), format: MetricsFormat::Prometheus };
    text.sample("x", &[("a", "q\"b\\c\nd")], 1);
    assert_eq!(text.out, "flash_x{a=\"q\\\"b\\\\c\\nd\"} 1\n");
}
