//! The counters for users: a table of at most 100 columns, or one line per sample.
//!
//! Called by `flash stats`. It only formats text.

use std::fmt::Write as _;

use super::amounts::{Amounts, grouped, optional, share, size, span};
use super::distributions::{calls, distribution_heading, distributions, histogram, latencies};
use super::{
    CertificateStats, Counters, NetworkStats, Queue, ServerStats, StateCounts, StoreStats, WorkerStats,
};
use flash_engine::{JobCounters, JobKind, TlsCounters};
use flash_worker::stats::{Backend, Connections, RefusedBy, Upstreams};

/// Maximum workers shown, one per line; further ones are only counted.
const WORKERS_SHOWN_MAX: usize = 64;
/// Maximum certificates shown, one per line; further ones are only counted.
const CERTIFICATES_SHOWN_MAX: usize = 16;
/// Maximum columns of the name of a certificate's file.
const FILE_COLUMNS_MAX: usize = 58;
const DAY_S: u64 = 86_400;

/// The whole table: first the sums, then each worker. With `seconds`, the counts are those of this time, and are
/// shown per second.
#[must_use]
pub fn table(stats: &ServerStats, seconds: Option<f64>) -> String {
    let amounts = Amounts { seconds };
    let mut out = title(stats, seconds);
    if let Some(backend) = &stats.sum.backend {
        backend_requests(&mut out, (&stats.sum, backend), amounts);
        calls(&mut out, &stats.sum, amounts);
        helpers(&mut out, stats, amounts);
        return out;
    }
    requests(&mut out, &stats.sum, amounts);
    certificates(&mut out, &stats.certificates);
    network(&mut out, &stats.network, amounts);
    caches(&mut out, &stats.sum, amounts);
    store(&mut out, stats, amounts);
    bands(&mut out, &stats.sum, amounts);
    latencies(&mut out, &stats.sum, amounts);
    distributions(&mut out, &stats.sum, amounts);
    calls(&mut out, &stats.sum, amounts);
    jobs(&mut out, &stats.sum, amounts);
    helpers(&mut out, stats, amounts);
    workers(&mut out, stats, amounts);
    out
}

/// One sample on a line, as for [`table`]; without `stats`, the headings.
#[must_use]
pub fn line(stats: Option<(&ServerStats, Option<f64>)>) -> String {
    let Some((stats, seconds)) = stats else {
        return format!(
            "{:>9} {:>11} {:>11} {:>6} {:>9} {:>10} {:>9} {:>6} {:>8} {:>8}\n",
            "up",
            "requests",
            "sent",
            "open",
            "contents",
            "events",
            "dispatch",
            "queue",
            "runnable",
            "blocked"
        );
    };
    let (sum, amounts) = (&stats.sum, Amounts { seconds });
    let [known, waiting] = [stats.states.workers, stats.states.helpers].map(|s| (s.runnable, s.blocked));
    format!(
        "{:>9} {:>11} {:>11} {:>6} {:>9} {:>10} {:>9} {:>6} {:>8} {:>8}\n",
        span(stats.uptime_ms),
        amounts.of(sum.requests),
        amounts.bytes(sum.bytes_sent()),
        grouped(sum.connections.open.0),
        share(sum.caches.contents.hits, sum.caches.contents.lookups),
        amounts.of(sum.dispatches.0.sum()),
        optional(sum.dispatches.0.mean()),
        grouped(sum.queue.now.0),
        known.0 + waiting.0,
        known.1 + waiting.1,
    )
}

fn title(stats: &ServerStats, seconds: Option<f64>) -> String {
    let mut out = format!("flash {}  process {}  up {}", stats.program, stats.pid, span(stats.uptime_ms));
    if let Some(architecture) = stats.settings.get("architecture").and_then(serde_json::Value::as_str) {
        let _ = write!(out, "  {architecture}");
    }
    let told = stats.workers.iter().filter(|worker| worker.counters.is_some()).count();
    let _ = match (stats.workers.len(), told) {
        (1, 1) => write!(out, "  1 worker"),
        (all, told) if all == told => write!(out, "  {all} workers"),
        (all, told) => write!(out, "  {told} of {all} workers answered"),
    };
    let _ = match seconds {
        None => writeln!(out, "\nsince the start of each worker\n"),
        Some(seconds) => writeln!(out, "\nin the last {seconds:.1} s\n"),
    };
    out
}

fn requests(out: &mut String, sum: &Counters, amounts: Amounts) {
    let of = |count| amounts.of(count);
    let answers = &sum.responses;
    let counts = [answers.of_2xx, answers.of_3xx, answers.of_4xx, answers.of_5xx, answers.cut];
    let [of_2xx, of_3xx, of_4xx, of_5xx, cut] = counts.map(of);
    let _ = writeln!(out, "requests     {:>12}", of(sum.requests));
    let _ = writeln!(
        out,
        "answers      {of_2xx:>12} 2xx   {of_3xx} 3xx   {of_4xx} 4xx   {of_5xx} 5xx   {cut} cut"
    );
    let _ = writeln!(out, "sent         {:>12}", amounts.bytes(sum.bytes_sent()));
    let Connections { open, most, accepted, refused, evicted, refused_by, .. } = &sum.connections;
    let [open, peak] = [open.0, most.0].map(grouped);
    let _ = write!(out, "connections  {open:>12} open   {peak} peak   {} accepted", of(*accepted));
    let _ = writeln!(out, "   {} refused   {} evicted", of(*refused), of(*evicted));
    if *refused > 0 {
        refused_connections(out, refused_by, amounts);
    }
    tls(out, &sum.tls, amounts);
    upstreams(out, &sum.upstreams, amounts);
    let name = if amounts.seconds.is_none() { "time in" } else { "average" };
    let times = &sum.times;
    let states = [
        times.connections_ms,
        times.exchanges_ms,
        times.jobs_queued_ms,
        times.jobs_running_ms,
        times.egress_waiting_ms,
    ];
    let [connections, slow, queue, helpers, uplink] = states.map(|ms| amounts.time(ms));
    let _ = write!(out, "{name:<13}{connections:>12} connections   {slow} slow requests");
    let _ = writeln!(out, "   {queue} queue   {helpers} helpers   {uplink} uplink");
}

fn refused_connections(out: &mut String, by: &RefusedBy, amounts: Amounts) {
    let counts = [by.limit, by.client, by.overload, by.descriptors, by.introduction];
    let [limit, client, overload, descriptors, introduction] = counts.map(|count| amounts.of(count));
    let _ = write!(out, "  refused    {limit:>12} at the limit   {client} over a client's share");
    let _ = writeln!(
        out,
        "   {overload} in overload   {descriptors} without descriptors   {introduction} without introduction"
    );
}

/// Encrypted connections. Nothing if there was none.
fn tls(out: &mut String, tls: &TlsCounters, amounts: Amounts) {
    if tls == &TlsCounters::default() {
        return;
    }
    let _ = writeln!(
        out,
        "tls          {:>12} full handshakes   {} resumed   {} failed   {} not TLS",
        amounts.of(tls.handshakes),
        amounts.of(tls.resumed),
        amounts.of(tls.failed),
        amounts.of(tls.plain_requests),
    );
}

/// The certificates, the first to expire first.
fn certificates(out: &mut String, certificates: &[CertificateStats]) {
    let mut sorted: Vec<_> = certificates.iter().collect();
    sorted.sort_by_key(|certificate| certificate.until_s);
    for CertificateStats { file, until_s, left_s } in sorted.iter().take(CERTIFICATES_SHOWN_MAX) {
        let left = match u64::try_from(*left_s) {
            Ok(left_s) => format!("{} days left", grouped(left_s / DAY_S)),
            Err(_) => "expired".to_owned(),
        };
        // The end of a path distinguishes certificates better than its beginning.
        let hidden = file.chars().count().saturating_sub(FILE_COLUMNS_MAX);
        let file: String = file.chars().skip(hidden).collect();
        let _ = writeln!(out, "certificate  {left:>12}   {}   {file}", flash_tls::date(*until_s));
    }
    let more = sorted.len().saturating_sub(CERTIFICATES_SHOWN_MAX);
    if more > 0 {
        let _ = writeln!(out, "certificates {:>12} more", grouped(more as u64));
    }
}

/// The connections to the servers of routes. Nothing if none was ever needed.
fn upstreams(out: &mut String, upstreams: &Upstreams, amounts: Amounts) {
    if upstreams == &Upstreams::default() {
        return;
    }
    let mut down = match upstreams.probed_down.0 {
        0 => String::new(),
        down => format!("   {} servers down", grouped(down)),
    };
    if upstreams.shortages > 0 {
        down.push_str(&format!("   {} without resources", amounts.of(upstreams.shortages)));
    }
    let [open, waiting] = [upstreams.connections.0, upstreams.waiting.0].map(grouped);
    let counts = [upstreams.connects, upstreams.reused, upstreams.failures];
    let [connects, reused, failures] = counts.map(|count| amounts.of(count));
    let _ = write!(out, "upstreams    {open:>12} open   {waiting} waiting requests");
    let _ = writeln!(out, "   {connects} connects   {reused} reused   {failures} failures{down}");
    if upstreams.bodies.0 > 0 || upstreams.spool_bytes.0 > 0 {
        let [bodies, bytes] = [upstreams.bodies.0, upstreams.spool_bytes.0].map(grouped);
        let _ = writeln!(out, "  bodies     {bodies:>12} held   {bytes} bytes of files");
    }
}

/// The listening sockets and the counts of TCP.
fn network(out: &mut String, network: &NetworkStats, amounts: Amounts) {
    let row = |of: &str, queues: [String; 2], states: [String; 3]| {
        let ([accept, syn], [established, closing, time_wait]) = (queues, states);
        format!("{of:<23} {accept:>20} {syn:>20} {established:>11} {closing:>10} {time_wait:>10}\n")
    };
    if !network.listeners.is_empty() {
        let states = ["established", "closing", "time wait"].map(str::to_owned);
        *out += &format!("\n{}", row("listens on", ["accept queue", "SYN queue"].map(str::to_owned), states));
    }
    for listener in &network.listeners {
        let queue = |queue: Option<Queue>| {
            queue
                .map_or("-".to_owned(), |queue| format!("{} of {}", grouped(queue.now), grouped(queue.bound)))
        };
        let queues = [queue(Some(listener.accept_queue())), queue(listener.syn_queue)];
        let count = |name: &str| listener.connections.get(name).copied().unwrap_or(0);
        let [open, time_wait] = [count("established"), count("time_wait")];
        let all: u64 = listener.connections.values().sum();
        let closing = all.saturating_sub(open + time_wait + count("syn_received"));
        let more = if listener.is_cut { "+" } else { "" };
        let states = match listener.syn_queue {
            Some(_) => [open, closing, time_wait].map(|count| format!("{}{more}", grouped(count))),
            None => ["-", "-", "-"].map(str::to_owned),
        };
        // A long address has a line of its own.
        let address = &listener.address;
        *out += &match address.len() {
            0..=23 => row(address, queues, states),
            _ => format!("{address}\n{}", row("", queues, states)),
        };
    }
    let Some(counts) = &network.namespace else { return };
    let of = |count| amounts.of(count);
    *out += "TCP of all programs in this network namespace\n";
    let [opened, reset, cookies] = [counts.passive_opens, counts.resets, counts.syn_cookies].map(of);
    let _ = writeln!(out, "  connections {opened:>12} opened   {reset} reset   {cookies} SYN cookies");
    let dropped = [counts.accept_overflows, counts.syn_queue_drops, counts.listen_drops];
    let [accept, syn, all] = dropped.map(of);
    let _ =
        writeln!(out, "  dropped     {accept:>12} accept queue full   {syn} SYN queue full   {all} in all");
    let sent = [counts.segments_sent, counts.segments_resent, counts.timeouts, counts.resets_sent];
    let [sent, again, timeouts, resets] = sent.map(of);
    let _ = write!(out, "  segments    {sent:>12} sent   {again} sent again");
    let _ = writeln!(out, "   {timeouts} timeouts   {resets} resets");
}

fn caches(out: &mut String, sum: &Counters, amounts: Amounts) {
    let caches = &sum.caches;
    let _ = writeln!(out, "\ncache          look-ups         hits    share   holds");
    let rows = [
        ("heads", caches.known.lookups, caches.known.hits, String::new()),
        ("names", caches.names.lookups, caches.names.hits, grouped(caches.names.entries.0)),
        ("contents", caches.contents.lookups, caches.contents.hits, grouped(caches.contents.entries.0)),
        ("blocks", caches.blocks.lookups, caches.blocks.hits, String::new()),
        ("files", caches.files.lookups, caches.files.hits, grouped(caches.files.entries.0)),
    ];
    for (name, lookups, hits, holds) in rows {
        let row = format!(
            "{name:<10} {:>12} {:>12} {:>8}   {holds}",
            amounts.of(lookups),
            amounts.of(hits),
            share(hits, lookups),
        );
        let _ = writeln!(out, "{}", row.trim_end());
    }
}

/// The store: its size, its share of answers, and the disk reads.
fn store(out: &mut String, stats: &ServerStats, amounts: Amounts) {
    let Some(store) = &stats.store else { return };
    let sum = &stats.sum;
    let sizes = [store.held_bytes, store.bytes_max, store.pinned_bytes];
    let [held, most, pinned] = sizes.map(|bytes| size(bytes.0 as f64));
    let blocks = grouped(store.blocks.0);
    let _ = writeln!(out, "\nstore        {held:>12} of {most} in {blocks} blocks; {pinned} pinned");
    // Keeper and workers start at different times: only counts of the same seconds can be divided.
    let of_1000 = amounts.seconds.filter(|_| sum.requests > 0).map_or(String::new(), |_| {
        let [load, read] = [JobKind::Load, JobKind::Read].map(|kind| job(sum, kind).started);
        let from_disk = store.loads + load + read;
        format!("   {:.1} loads per 1,000 requests", from_disk as f64 * 1000.0 / sum.requests as f64)
    });
    let of_requests = share(sum.caches.contents.hits, sum.requests);
    let of_bytes = share(sum.stored_bytes, sum.bytes_sent());
    let _ = writeln!(out, "  answers    {of_requests:>12} of requests   {of_bytes} of bytes{of_1000}");
    let counts = [store.loads, store.joined, store.evictions, store.refused];
    let [loaded, there, evicted, refused] = counts.map(|count| amounts.of(count));
    let _ = write!(out, "  blocks     {loaded:>12} loaded   {there} already there");
    let _ = writeln!(out, "   {evicted} evicted   {refused} refused");
    names(out, stats, store);
}

/// The shared names, and how their changes are noticed.
fn names(out: &mut String, stats: &ServerStats, store: &StoreStats) {
    let [sites, unwatched] = [store.sites_watched.0, store.subtrees_unwatched.0];
    let how = if stats.settings.get("watch") == Some(&false.into()) {
        "all checked (watch = false)".to_owned()
    } else if sites > 0 {
        let plural = if sites == 1 { "" } else { "s" };
        let directories = grouped(store.directories_watched.0);
        format!("{directories} directories of {} site{plural} watched", grouped(sites))
    } else if store.sites_unreported.0 > 0 {
        "all checked (their file systems do not report every change)".to_owned()
    } else {
        "all checked (nothing is watched yet)".to_owned()
    };
    let _ = writeln!(out, "  names      {:>12} shared   {how}", grouped(store.names.0));
    if sites > 0 && unwatched > 0 {
        let [parts, most] = [store.subtrees_watched.0 + unwatched, store.directories_max.0].map(grouped);
        let _ = write!(out, "  checked    {:>12} of {parts} parts of sites", grouped(unwatched));
        let _ = writeln!(out, "   at most {most} directories can be watched");
    }
}

/// The bands of an SRPT schedule. Nothing if the schedule is fair.
fn bands(out: &mut String, sum: &Counters, amounts: Amounts) {
    let schedule = &sum.schedule;
    if schedule.bands.0.is_empty() {
        return;
    }
    let _ = writeln!(out, "\nband    bytes left from      answers      sent");
    let from = std::iter::once(&0).chain(&schedule.cutoffs.0);
    for (number, (band, from)) in schedule.bands.0.iter().zip(from).enumerate() {
        let (answers, sent) = (amounts.of(band.answers), amounts.bytes(band.bytes));
        let _ = writeln!(out, "{number:<4} {:>18} {answers:>12} {sent:>12}", grouped(*from));
    }
    let _ = writeln!(out, "priority changes {:>19}", amounts.of(schedule.changes));
}

/// The requests of other servers.
fn backend_requests(out: &mut String, (sum, backend): (&Counters, &Backend), amounts: Amounts) {
    let of = |count| amounts.of(count);
    let Backend { names, ranges, closes, cancels, joined, .. } = *backend;
    let [names, ranges, joined, cancels, closes] = [names, ranges, joined, cancels, closes].map(of);
    let _ = write!(out, "requests     {names:>12} names   {ranges} ranges   {joined} joined");
    let _ = writeln!(out, "   {cancels} withdrawn   {closes} closes");
    let [ready, failed, late] = [backend.ready, backend.errors, backend.timed_out].map(of);
    let _ = writeln!(out, "replies      {ready:>12} ready   {failed} failed   {late} after their deadline");
    let busy = &backend.busy;
    let [quota, queue, wait, bounds] = [busy.quota, busy.queue, busy.wait, busy.bounds].map(of);
    let _ = write!(out, "busy         {quota:>12} over quota   {queue} queue full");
    let _ = writeln!(out, "   {wait} wait too long   {bounds} over other limits");
    let _ = writeln!(out, "pending      {:>12} requests", grouped(backend.pending.0));
    let Connections { open, accepted, refused, .. } = &sum.connections;
    let [accepted, refused, strange] = [*accepted, *refused, backend.malformed].map(of);
    let _ = write!(out, "connections  {:>12} open   {accepted} accepted", grouped(open.0));
    let _ = writeln!(out, "   {refused} refused   {strange} not of the protocol");
    for (name, client) in &backend.clients {
        let (open, pending) = (grouped(client.connections.0), grouped(client.pending.0));
        let _ = writeln!(out, "  {:<32} {open} open   {pending} pending", name.escape_debug().to_string());
    }
    distribution_heading(out);
    histogram(out, "wait for a reply, ms", &backend.waits_ms, amounts);
    histogram(out, "queue length at a job", &sum.queue.lengths, amounts);
    let [find, load] = [JobKind::Find, JobKind::Load].map(|kind| job(sum, kind));
    let [find, load, lost] = [find.started, load.started, find.lost + load.lost].map(of);
    let _ = writeln!(out, "\njobs       {find} names started, {load} ranges started, {lost} lost");
}

fn job(sum: &Counters, kind: JobKind) -> JobCounters {
    sum.jobs.get(kind.name()).copied().unwrap_or_default()
}

fn jobs(out: &mut String, sum: &Counters, amounts: Amounts) {
    let _ = writeln!(out, "\njobs            started      refused     too slow         lost");
    for kind in JobKind::ALL {
        let JobCounters { started, refused, refused_wait, lost } = job(sum, kind);
        let counts = [started, refused, refused_wait, lost].map(|count| amounts.of(count));
        let [started, refused, too_slow, lost] = counts;
        let name = kind.name();
        let _ = writeln!(out, "{name:<10} {started:>12} {refused:>12} {too_slow:>12} {lost:>12}");
    }
}

fn helpers(out: &mut String, stats: &ServerStats, amounts: Amounts) {
    let sum = &stats.sum;
    let now = [sum.helpers.now, sum.helpers.busy, sum.helpers.given_up, sum.queue.now];
    let [running, busy, given_up, queued] = now.map(|number| grouped(number.0));
    let _ =
        write!(out, "helpers    {running} running, {busy} busy, {given_up} given up; {queued} jobs queued");
    let _ = writeln!(out, "; {} wasted loads", amounts.of(sum.loads_in_vain));
    let threads = |counts: StateCounts| {
        let StateCounts { runnable, sleeping, blocked, other } = counts;
        let other = if other > 0 { format!(", {other} other") } else { String::new() };
        format!("{runnable} runnable, {sleeping} sleeping, {blocked} blocked{other}")
    };
    let _ = writeln!(out, "threads    of workers {}", threads(stats.states.workers));
    let _ = writeln!(out, "           of helpers {}", threads(stats.states.helpers));
    if sum.panics > 0 {
        let _ = writeln!(out, "panics     {} (bugs; see standard error)", sum.panics);
    }
}

fn workers(out: &mut String, stats: &ServerStats, amounts: Amounts) {
    let _ = writeln!(
        out,
        "\n{:>6} {:>8} {:>4} {:>9} {:>8} {:>12} {:>12} {:>6} {:>9} {:>9} {:>6}",
        "worker", "process", "gen", "state", "up", "requests", "sent", "open", "contents", "events", "queue"
    );
    for worker in stats.workers.iter().take(WORKERS_SHOWN_MAX) {
        let WorkerStats { generation, state, place, pid, uptime_ms, counters } = worker;
        let up = span(*uptime_ms);
        let _ = write!(out, "{place:>6} {pid:>8} {generation:>4} {state:>9} {up:>8}");
        let _ = match counters {
            None => writeln!(out, "   did not answer in time"),
            Some(counters) => writeln!(
                out,
                " {:>12} {:>12} {:>6} {:>9} {:>9} {:>6}",
                amounts.of(counters.requests),
                amounts.bytes(counters.bytes_sent()),
                grouped(counters.connections.open.0),
                share(counters.caches.contents.hits, counters.caches.contents.lookups),
                optional(counters.dispatches.0.mean()),
                grouped(counters.queue.now.0),
            ),
        };
    }
    if stats.workers.len() > WORKERS_SHOWN_MAX {
        let _ = writeln!(out, "and {} more", stats.workers.len() - WORKERS_SHOWN_MAX);
    }
}
