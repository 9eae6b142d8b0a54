//! Tests of the counters between worker, supervisor and client.

use flash_worker::stats::{BUCKETS, CallTimes, Calls, Gauge, HelperCounts, bucket_of};

use super::*;
use crate::documented;

/// Counters whose histograms use every bucket, with maximum counts.
fn full() -> Counters {
    let mut histogram = flash_engine::Histogram::default();
    (0..1 << 18).for_each(|number| histogram.add(number));
    histogram.add(u64::MAX - 1);
    for _ in 0..64 {
        histogram.merge(&histogram.clone());
    }
    assert_eq!(histogram.buckets().count(), flash_engine::BUCKETS);
    let mut engine = flash_engine::Counters {
        requests: u64::MAX,
        sends: histogram,
        dispatches: histogram,
        queue_lengths: histogram,
        ..flash_engine::Counters::default()
    };
    for job in &mut engine.jobs {
        job.started = u64::MAX;
    }
    let times = CallTimes {
        sum_ns: u64::MAX,
        max_ns: u64::MAX,
        stalls: u64::MAX,
        waited: u64::MAX,
        counts: [u64::MAX; BUCKETS],
    };
    // The maximum number of them, with the longest name.
    let calls = (0..12).map(|n| (format!("close_connect_{n:02}"), times.clone()));
    Counters::of(&engine, HelperCounts { all: usize::MAX, busy: usize::MAX }, Calls(calls.collect()))
}

fn counted(requests: u64, open: u64, events: &[u64]) -> Counters {
    let mut counters = Counters { requests, ..Counters::default() };
    counters.connections.open = Gauge(open);
    events.iter().for_each(|number| counters.dispatches.0.add(*number));
    counters
}

fn worker(pid: u32, uptime_ms: u64, counters: Option<Counters>) -> WorkerStats {
    WorkerStats { generation: 1, state: "serving".into(), place: 0, pid, uptime_ms, counters }
}

fn server(uptime_ms: u64, workers: Vec<WorkerStats>) -> ServerStats {
    let mut stats = ServerStats { program: "1.2.3".into(), pid: 7, uptime_ms, workers, ..Default::default() };
    stats.sum_up();
    stats
}

#[test]
fn an_answer_arrives_and_sums_up() {
    let workers = vec![
        worker(1, 10, Some(counted(3, 2, &[1, 2]))),
        worker(2, 10, None),
        worker(3, 10, Some(counted(4, 5, &[2, 9]))),
    ];
    let stats = server(20, workers);
    assert_eq!(stats.sum, counted(7, 7, &[1, 2, 2, 9]));
    let answer = Answer::of(stats);
    let line = answer.to_line();
    assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
    assert_eq!(serde_json::from_slice::<Answer>(&line).expect("an answer"), answer);
}

#[test]
fn changes_are_those_of_each_process() {
    let before = server(
        1_000,
        vec![
            worker(1, 900, Some(counted(100, 9, &[1]))),
            worker(2, 900, Some(counted(50, 0, &[]))),
            worker(3, 900, None),
        ],
    );
    let now = server(
        3_500,
        vec![
            worker(1, 3_400, Some(counted(130, 4, &[1, 6, 6]))),
            // A new process with a reused ID.
            worker(2, 700, Some(counted(20, 1, &[]))),
            // How many of its counts are new is unknown.
            worker(3, 3_400, Some(counted(1_000_000, 1, &[]))),
            worker(4, 100, Some(counted(5, 1, &[]))),
        ],
    );
    let (new, seconds) = now.since(&before);
    assert_eq!((new.sum.requests, new.sum.connections.open.0, seconds), (55, 6, 2.5));
    assert_eq!(new.sum.dispatches.0.percentile(0.5), Some(6));
    assert_eq!(new.sum.dispatches.0.count(), 2);
    assert_eq!(now.since(&now).0.sum.requests, 0);
}

#[test]
fn the_table_fits_a_hundred_columns() {
    let all = |counters: Option<Counters>| {
        const TEN_YEARS_MS: u64 = 3652 * 86_400_000;
        let workers = (0..70).map(|n| worker(4_194_304 + n, TEN_YEARS_MS, counters.clone()));
        let mut stats = server(TEN_YEARS_MS, workers.collect());
        stats.settings.insert("architecture".into(), "amped".into());
        stats.network = network();
        stats.certificates = certificates();
        stats
    };
    for (stats, seconds) in [
        (all(Some(full())), None),
        (all(Some(full())), Some(1_000.0)),
        (all(None), None),
        (server(0, Vec::new()), Some(1.0)),
    ] {
        let text = table(&stats, seconds) + &line(None) + &line(Some((&stats, seconds)));
        for row in text.lines() {
            assert!(row.chars().count() <= 100, "{} columns: {row}", row.chars().count());
            assert_eq!(row.trim_end(), row);
        }
    }
}

/// One with a long path, one that has expired, and more than are shown.
fn certificates() -> Vec<CertificateStats> {
    let live = |number: i64| CertificateStats {
        file: format!("/etc/letsencrypt/live/a-long-name-of-a-customer-{number}.example.org/fullchain.pem"),
        until_s: 1_800_000_000 + number,
        left_s: 86_400 * (number - 1) + 1,
    };
    (0..20).map(live).collect()
}

#[test]
fn certificates_are_shown_with_their_date() {
    let stats = ServerStats { certificates: certificates(), ..server(1_000, Vec::new()) };
    let text = table(&stats, None);
    let rows: Vec<&str> = text.lines().filter(|row| row.starts_with("certificate")).collect();
    assert_eq!(rows.len(), 17);
    assert!(rows[0].starts_with("certificate       expired   2027-01-15   "), "{}", rows[0]);
    assert!(rows[3].starts_with("certificate   2 days left   2027-01-15   "), "{}", rows[3]);
    assert!(rows[3].ends_with("-a-customer-3.example.org/fullchain.pem"), "{}", rows[3]);
    assert_eq!(rows[16], "certificates            4 more");
}

/// A busy address, and one of a kernel without sock_diag.
fn network() -> NetworkStats {
    let states =
        [("established", 3), ("syn_received", 2), ("time_wait", 1), ("fin_wait_1", 4), ("last_ack", 1)];
    let busy = ListenerStats {
        address: "0.0.0.0:8080".into(),
        accept_queues: vec![Queue { now: 7, bound: 4096 }, Queue { now: 0, bound: 4096 }],
        syn_queue: Some(Queue { now: 2, bound: 8192 }),
        connections: states.map(|(name, count)| (name.to_owned(), count)).into(),
        is_cut: false,
    };
    let unknown = ListenerStats {
        address: "[2001:db8:1111:2222:3333:4444:5555:6666]:8080".into(),
        accept_queues: vec![Queue { now: 0, bound: 4096 }],
        syn_queue: None,
        connections: Default::default(),
        is_cut: false,
    };
    let namespace = NamespaceCounts { accept_overflows: 12, segments_sent: 100, ..Default::default() };
    NetworkStats { listeners: vec![busy, unknown], namespace: Some(namespace) }
}

#[test]
fn counts_of_the_namespace_are_those_since_the_sample_before() {
    let mut before = server(1_000, Vec::new());
    before.network = network();
    let mut now = before.clone();
    now.uptime_ms = 2_000;
    let counts = now.network.namespace.as_mut().expect("counts");
    (counts.segments_sent, counts.accept_overflows) = (250, 13);
    let (new, _) = now.since(&before);
    let counts = new.network.namespace.expect("counts");
    assert_eq!((counts.segments_sent, counts.accept_overflows), (150, 1));
    assert_eq!(new.network.listeners, before.network.listeners, "queues are as they are now");
    // An answer of a server that did not report the network yet.
    let mut old = serde_json::to_value(&before).expect("JSON");
    old.as_object_mut().expect("an object").remove("network");
    let old: ServerStats = serde_json::from_value(old).expect("an answer");
    assert_eq!(now.since(&old).0.network, now.network);
}

#[test]
fn the_table_says_what_was_counted() {
    let mut counters = counted(1_234_567, 12, &[1, 1, 1, 2]);
    counters.caches.contents.lookups = 1_000;
    counters.caches.contents.hits = 995;
    let mut sends =
        CallTimes { sum_ns: 9_000_800, max_ns: 9_000_000, stalls: 1, waited: 1, ..CallTimes::default() };
    [400, 400, 9_000_000].into_iter().for_each(|ns| sends.counts[bucket_of(ns)] += 1);
    counters.calls.0.insert("send".into(), sends);
    let stats = server(192_000, vec![worker(8, 61_000, Some(counters))]);
    let text = table(&stats, None);
    for row in [
        "flash 1.2.3  process 7  up 3m12s  1 worker",
        "requests        1,234,567",
        "contents          1,000          995   99.5 %   0",
        "events per dispatch               4       1.25        1        2        2        2        2",
        "send                          3   3.00 ms    511 ns   9.00 ms   9.00 ms           1           1",
    ] {
        assert!(text.lines().any(|line| line == row), "{row:?} in\n{text}");
    }
    let mut stats = stats;
    stats.network = network();
    let text = table(&stats, None);
    for row in [
        "listens on                      accept queue            SYN queue established    closing  time wait",
        "0.0.0.0:8080                      7 of 8,192           2 of 8,192           3          5          1",
        "[2001:db8:1111:2222:3333:4444:5555:6666]:8080",
        "                                  0 of 4,096                    -           -          -          -",
        "  dropped               12 accept queue full   0 SYN queue full   0 in all",
    ] {
        assert!(text.lines().any(|line| line == row), "{row:?} in\n{text}");
    }
    let rates = table(&stats, Some(2.0));
    for row in ["in the last 2.0 s", "requests        617,284/s"] {
        assert!(rates.lines().any(|line| line == row), "{row:?} in\n{rates}");
    }
    assert!(line(Some((&stats, Some(2.0)))).contains("617,284/s"));
}

#[test]
fn the_documents_show_parts_of_the_table() {
    let mut counters = counted(24_848, 0, &[]);
    counters.caches.contents.lookups = 24_790;
    counters.caches.contents.hits = 23_655;
    counters.caches.contents.entries = Gauge(1_854);
    (counters.caches.blocks.lookups, counters.caches.blocks.hits) = (793, 182);
    counters.sends.0.add(1_000);
    counters.stored_bytes = 765;
    let mut stats = server(60_000, vec![worker(8, 60_000, Some(counters))]);
    stats.store = Some(StoreStats {
        bytes_max: Gauge(64 << 20),
        held_bytes: Gauge(65_745_715),
        blocks: Gauge(1_162),
        loads: 1_178,
        joined: 1,
        evictions: 16,
        ..StoreStats::default()
    });
    stats.network.listeners = vec![ListenerStats {
        address: "198.18.0.1:8080".into(),
        accept_queues: vec![Queue { now: 16, bound: 8_192 }],
        syn_queue: Some(Queue { now: 0, bound: 8_192 }),
        connections: [("established".to_owned(), 46)].into(),
        is_cut: false,
    }];
    stats.network.namespace =
        Some(NamespaceCounts { passive_opens: 47, segments_sent: 9_677, ..Default::default() });
    let text = table(&stats, None);
    for document in ["docs/memory.md", "docs/stats.md"] {
        for part in documented::block(document, "the_documents_show_parts_of_the_table").split("\n\n") {
            assert!(text.contains(part), "{document}: {part}\nin\n{text}");
        }
    }
}

#[test]
fn the_table_shows_how_changes_of_names_are_noticed() {
    let rows = |store: &StoreStats, watch: bool| {
        let mut stats = server(60_000, vec![worker(8, 60_000, Some(counted(1, 0, &[])))]);
        stats.settings.insert("watch".to_owned(), watch.into());
        stats.store = Some(StoreStats { names: Gauge(20_000), ..store.clone() });
        let text = table(&stats, None);
        let from = text.lines().skip_while(|line| !line.starts_with("  names "));
        from.take_while(|line| line.starts_with("  ")).map(str::to_owned).collect::<Vec<_>>()
    };
    let none = StoreStats::default();
    let unreported = StoreStats { sites_unreported: Gauge(1), subtrees_unwatched: Gauge(64), ..none.clone() };
    for (store, watch, how) in [
        (&none, false, "all checked (watch = false)"),
        (&none, true, "all checked (nothing is watched yet)"),
        (&unreported, true, "all checked (their file systems do not report every change)"),
    ] {
        assert_eq!(rows(store, watch), [format!("  names            20,000 shared   {how}")]);
    }
    let watched = StoreStats {
        directories_watched: Gauge(1_204),
        directories_max: Gauge(65_536),
        sites_watched: Gauge(2),
        subtrees_watched: Gauge(125),
        ..none
    };
    let line = "  names            20,000 shared   1,204 directories of 2 sites watched";
    assert_eq!(rows(&watched, true), [line]);
    let in_part = StoreStats { subtrees_unwatched: Gauge(3), ..watched };
    let rest = "  checked               3 of 128 parts of sites   at most 65,536 directories can be watched";
    assert_eq!(rows(&in_part, true), [line, rest]);
}

#[test]
fn the_documents_show_stalls() {
    let began_unix_ms = 1_795_270_416_723;
    let rows = [
        (0, "job", 41_000_000, Some(5), Some("/srv/mirror/iso/netinst-1.iso")),
        (55, "job", 40_800_000, Some(5), Some("/srv/mirror/iso/netinst-2.iso")),
        (109, "job", 40_500_000, Some(5), Some("/srv/mirror/iso/netinst-3.iso")),
        (171, "job", 42_600_000, Some(8), Some("/srv/mirror/index.html")),
        (266, "send", 1_180_000, None, None),
    ];
    let stall = |(after_ms, call, took_ns, switches, path): &(u64, &str, u64, Option<u64>, Option<&str>)| {
        let (call, path) = ((*call).into(), path.map(str::to_owned));
        Stall {
            number: 1,
            call,
            path,
            began_unix_ms: began_unix_ms + after_ms,
            took_ns: *took_ns,
            switches: *switches,
        }
    };
    let stalls = Stalls { count: 5, last: rows.iter().map(stall).collect() };
    let worker = WorkerStalls { pid: 3_637, stalls: Some(stalls), ..WorkerStalls::default() };
    let text =
        stalls_heading() + &stalls_table(&ServerStalls { workers: vec![worker], ..Default::default() });
    assert_eq!(documented::block("docs/stats.md", "the_documents_show_stalls"), text);
}
