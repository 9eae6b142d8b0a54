//! The counters in the text formats of Prometheus (exposition format 0.0.4) and OpenMetrics 1.0, for a scraper.
//!
//! Called by the supervisor's control socket for `/metrics`. Names follow the conventions of Prometheus: base units, `_total` for
//! counts, a label where a sum over it makes sense. A count never falls while the server runs.

use std::fmt::{Display, Write as _};

use flash_engine::LATENCY_BOUNDS_NS;
use flash_worker::stats::{CallTimes, bucket_of};

use super::{Counters, ServerStats, StoreStats};

/// The text format of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsFormat {
    /// Text format 0.0.4 of Prometheus.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl MetricsFormat {
    /// The media type.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            MetricsFormat::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            MetricsFormat::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// A count or an amount of a server: its name without prefix and suffix, its meaning, and where it is found.
type Row<T> = (&'static str, &'static str, fn(&T) -> u64);

const COUNTS: &[Row<Counters>] = &[
    ("requests", "Requests begun: heads read completely, or refused", |c| c.requests),
    ("responses_cut", "Responses of which only a part was sent", |c| c.responses.cut),
    ("responses_limited", "Responses to requests that were too many for a rule", |c| c.responses.limited),
    ("sent_bytes", "Bytes sent to clients", Counters::bytes_sent),
    ("stored_bytes", "Bytes of bodies sent from the store", |c| c.stored_bytes),
    ("connections_accepted", "Connections accepted", |c| c.connections.accepted),
    ("connections_evicted", "Idle connections closed to make room for new ones", |c| c.connections.evicted),
    ("heads_made", "Response heads built for a response; the others were cached", |c| c.heads_made),
    ("loads_in_vain", "Parts of files that were evicted before they could be sent", |c| c.loads_in_vain),
    ("upstream_connects", "Connections to servers of routes asked for", |c| c.upstreams.connects),
    ("upstream_refused", "Connections that a server of a route did not accept", |c| c.upstreams.refused),
    ("upstream_shortages", "Connections not made for lack of descriptors, memory, ports or a gateway", |c| {
        c.upstreams.shortages
    }),
    ("upstream_reused", "Requests that an idle connection to a server of a route took", |c| {
        c.upstreams.reused
    }),
    ("upstream_queued", "Requests that waited for a connection to a server of a route", |c| {
        c.upstreams.queued
    }),
    ("upstream_failures", "Failures of servers of routes", |c| c.upstreams.failures),
    ("tls_handshakes_failed", "TLS handshakes that failed, were late or were given up", |c| c.tls.failed),
    ("tls_plain_requests", "Plain connections to an address with TLS", |c| c.tls.plain_requests),
    ("panics", "Panics that were caught", |c| c.panics),
];

const AMOUNTS: &[Row<Counters>] = &[
    ("connections_open", "Connections of clients now", |c| c.connections.open.0),
    ("clients", "Client addresses with connections now", |c| c.connections.clients.0),
    ("queue_length", "Jobs that wait for a helper now", |c| c.queue.now.0),
    ("helpers", "Helpers now", |c| c.helpers.now.0),
    ("helpers_busy", "Helpers that have a job now", |c| c.helpers.busy.0),
    ("helpers_given_up", "Helpers that were given up and have not ended", |c| c.helpers.given_up.0),
    ("egress_waiting", "Connections that wait for their turn at the uplink now", |c| c.egress.waiting.0),
    ("upstream_connections", "Connections to servers of routes now", |c| c.upstreams.connections.0),
    ("upstream_waiting", "Requests that wait for a connection to a server of a route now", |c| {
        c.upstreams.waiting.0
    }),
    ("upstream_bodies", "Request bodies that are held now", |c| c.upstreams.bodies.0),
    ("upstream_spool_bytes", "Bytes that the spool holds room for now", |c| c.upstreams.spool_bytes.0),
    ("upstream_probed_down", "Servers of routes whose probes fail now", |c| c.upstreams.probed_down.0),
];

const STORE_COUNTS: &[Row<StoreStats>] = &[
    ("store_loads", "Blocks brought into the store", |s| s.loads),
    ("store_joined", "Blocks wanted that were in the store or being loaded", |s| s.joined),
    ("store_refused", "Blocks that got no room in the store", |s| s.refused),
    ("store_evictions", "Blocks evicted from the store", |s| s.evictions),
    ("store_names_evicted", "Shared names that made room for others", |s| s.names_evicted),
];

const STORE_AMOUNTS: &[Row<StoreStats>] = &[
    ("store_limit_bytes", "The most memory that the store may have now", |s| s.bytes_max.0),
    ("store_held_bytes", "Memory of the store in use", |s| s.held_bytes.0),
    ("store_pinned_bytes", "Memory of evicted blocks that transfers still send", |s| s.pinned_bytes.0),
    ("store_blocks", "Blocks in the store", |s| s.blocks.0),
    ("store_names", "Names that all workers share", |s| s.names.0),
    ("store_directories_watched", "Directories watched for changes", |s| s.directories_watched.0),
    ("store_subtrees_watched", "Parts of sites whose names need no checks", |s| s.subtrees_watched.0),
    ("store_subtrees_unwatched", "Parts of sites whose names are checked", |s| s.subtrees_unwatched.0),
];

/// All metrics of a server.
#[must_use]
pub fn metrics(stats: &ServerStats, format: MetricsFormat) -> String {
    let mut text = Text { out: String::with_capacity(16 << 10), format };
    text.family("build_info", Kind::Gauge, "The version of the program");
    text.sample("build_info", &[("version", &stats.program)], 1);
    text.gauge("uptime_seconds", "Age of the server", seconds_of_ms(stats.uptime_ms));
    for (name, help, of) in COUNTS {
        text.counter(name, help, of(&stats.sum));
    }
    for (name, help, of) in AMOUNTS {
        text.gauge(name, help, of(&stats.sum));
    }
    labelled(&mut text, &stats.sum);
    if let Some(store) = &stats.store {
        STORE_COUNTS.iter().for_each(|(name, help, of)| text.counter(name, help, of(store)));
        STORE_AMOUNTS.iter().for_each(|(name, help, of)| text.gauge(name, help, of(store)));
    }
    certificates(&mut text, stats);
    processes(&mut text, stats);
    network(&mut text, stats);
    latencies(&mut text, &stats.sum);
    calls(&mut text, &stats.sum);
    if format == MetricsFormat::OpenMetrics {
        text.out.push_str("# EOF\n");
    }
    text.out
}

fn labelled(text: &mut Text, sum: &Counters) {
    let by = &sum.responses;
    let classes = [("2xx", by.of_2xx), ("3xx", by.of_3xx), ("4xx", by.of_4xx), ("5xx", by.of_5xx)];
    text.counters("responses", "Responses ended, by the class of their status", "class", classes);
    let by = &sum.connections.refused_by;
    let reasons = [
        ("limit", by.limit),
        ("client", by.client),
        ("overload", by.overload),
        ("descriptors", by.descriptors),
        ("introduction", by.introduction),
    ];
    text.counters("connections_refused", "Connections refused, by the reason", "reason", reasons);
    let kinds = [("full", sum.tls.handshakes), ("resumed", sum.tls.resumed)];
    text.counters("tls_handshakes", "TLS handshakes completed", "kind", kinds);
    let caches = &sum.caches;
    let found = [
        ("known", caches.known.lookups, caches.known.hits),
        ("names", caches.names.lookups, caches.names.hits),
        ("contents", caches.contents.lookups, caches.contents.hits),
        ("blocks", caches.blocks.lookups, caches.blocks.hits),
        ("files", caches.files.lookups, caches.files.hits),
    ];
    let (all, hits) = (found.map(|(name, all, _)| (name, all)), found.map(|(name, _, hits)| (name, hits)));
    text.counters("cache_lookups", "Look-ups in each cache", "cache", all);
    text.counters("cache_hits", "Look-ups that found an entry", "cache", hits);
    let help = "Jobs for helpers, by kind: started, refused for a full queue or a long wait, or lost";
    text.family("jobs", Kind::Counter, help);
    for (kind, jobs) in &sum.jobs {
        let ways = [
            ("started", jobs.started),
            ("refused", jobs.refused),
            ("refused_wait", jobs.refused_wait),
            ("lost", jobs.lost),
        ];
        for (outcome, count) in ways {
            text.sample("jobs_total", &[("kind", kind), ("outcome", outcome)], count);
        }
    }
    let times = &sum.times;
    let states = [
        ("connection", times.connections_ms),
        ("slow_request", times.exchanges_ms),
        ("queued_job", times.jobs_queued_ms),
        ("running_job", times.jobs_running_ms),
        ("uplink", times.egress_waiting_ms),
    ];
    let states = states.map(|(state, ms)| (state, seconds_of_ms(ms)));
    let help = "Time spent in each state, summed over all that were in it; its rate is their average number";
    text.counters("state_seconds", help, "state", states);
}

fn certificates(text: &mut Text, stats: &ServerStats) {
    let help = "When a certificate expires, in seconds since 1970";
    text.family("certificate_expiry_timestamp_seconds", Kind::Gauge, help);
    for certificate in &stats.certificates {
        let name = "certificate_expiry_timestamp_seconds";
        text.sample(name, &[("file", &certificate.file)], certificate.until_s);
    }
}

fn processes(text: &mut Text, stats: &ServerStats) {
    text.family("workers", Kind::Gauge, "Workers now, by the state of their configuration");
    for state in ["starting", "serving", "draining"] {
        let count = stats.workers.iter().filter(|worker| worker.state == state).count();
        text.sample("workers", &[("state", state)], count);
    }
    let help = "Threads of workers and helpers, by the state in which the kernel has them";
    text.family("threads", Kind::Gauge, help);
    for (role, counts) in [("worker", &stats.states.workers), ("helper", &stats.states.helpers)] {
        let states = [
            ("runnable", counts.runnable),
            ("sleeping", counts.sleeping),
            ("blocked", counts.blocked),
            ("other", counts.other),
        ];
        for (state, count) in states {
            text.sample("threads", &[("role", role), ("state", state)], count);
        }
    }
}

fn network(text: &mut Text, stats: &ServerStats) {
    text.family("accept_queue_length", Kind::Gauge, "Connections in the accept queues of an address now");
    for listener in &stats.network.listeners {
        text.sample("accept_queue_length", &[("address", &listener.address)], listener.accept_queue().now);
    }
    text.family("accept_queue_limit", Kind::Gauge, "The most connections in the accept queues of an address");
    for listener in &stats.network.listeners {
        text.sample("accept_queue_limit", &[("address", &listener.address)], listener.accept_queue().bound);
    }
}

fn latencies(text: &mut Text, sum: &Counters) {
    let help = "Times from requests to the first bytes of their responses, by where these come from";
    text.family("first_byte_seconds", Kind::Histogram, help);
    for (result, latency) in &sum.latencies {
        let mut below = 0;
        for (bound_ns, count) in LATENCY_BOUNDS_NS.iter().zip(latency.0.counts) {
            below += count;
            let labels = [("result", &**result), ("le", &*seconds_of_ns(*bound_ns).to_string())];
            text.sample("first_byte_seconds_bucket", &labels, below);
        }
        let labels = [("result", &**result), ("le", "+Inf")];
        text.sample("first_byte_seconds_bucket", &labels, latency.count());
        text.sample("first_byte_seconds_sum", &[("result", result)], seconds_of_ns(latency.0.sum_ns));
        text.sample("first_byte_seconds_count", &[("result", result)], latency.count());
    }
}

fn calls(text: &mut Text, sum: &Counters) {
    let called = || sum.calls.0.iter().filter(|(_, times)| times.count() > 0);
    text.family("loop_stalls", Kind::Counter, "Calls of an event loop that took 1 ms or more");
    called().for_each(|(call, times)| text.sample("loop_stalls_total", &[("call", call)], times.stalls));
    text.family("loop_call_seconds", Kind::Histogram, "Times of the calls of an event loop that could block");
    for (call, times) in called() {
        // Every fourth power of two from 1 µs to 4.3 s.
        for bound_ns in (10..=32).step_by(2).map(|exponent| 1 << exponent) {
            let labels = [("call", &**call), ("le", &*seconds_of_ns(bound_ns).to_string())];
            text.sample("loop_call_seconds_bucket", &labels, below(times, bound_ns));
        }
        text.sample("loop_call_seconds_bucket", &[("call", call), ("le", "+Inf")], times.count());
        text.sample("loop_call_seconds_sum", &[("call", call)], seconds_of_ns(times.sum_ns));
        text.sample("loop_call_seconds_count", &[("call", call)], times.count());
    }
}

/// The number of calls that took less than this, which begins a bucket.
fn below(times: &CallTimes, bound_ns: u64) -> u64 {
    times.counts[..bucket_of(bound_ns)].iter().sum()
}

fn seconds_of_ms(ms: u64) -> f64 {
    ms as f64 / 1e3
}

fn seconds_of_ns(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

struct Text {
    out: String,
    format: MetricsFormat,
}

impl Text {
    /// Begins a metric. A counter's name has no `_total` here; its samples have.
    fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let (word, suffix) = match kind {
            // Before OpenMetrics the suffix was a part of the name.
            Kind::Counter if self.format == MetricsFormat::Prometheus => ("counter", "_total"),
            Kind::Counter => ("counter", ""),
            Kind::Gauge => ("gauge", ""),
            Kind::Histogram => ("histogram", ""),
        };
        let _ = writeln!(self.out, "# HELP flash_{name}{suffix} {help}.");
        let _ = writeln!(self.out, "# TYPE flash_{name}{suffix} {word}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.out, "flash_{name}");
        for (at, (label, text)) in labels.iter().enumerate() {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.out, "{}{label}=\"{text}\"", if at == 0 { "{" } else { "," });
        }
        let _ = writeln!(self.out, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, Kind::Counter, help);
        self.sample(&format!("{name}_total"), &[], value);
    }

    /// A counter with a sample for each value of a label.
    fn counters<V: Display>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        samples: impl IntoIterator<Item = (&'static str, V)>,
    ) {
        self.family(name, Kind::Counter, help);
        for (value, count) in samples {
            self.sample(&format!("{name}_total"), &[(label, value)], count);
        }
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, Kind::Gauge, help);
        self.sample(name, &[], value);
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
