//! The limits of the load generator itself: requests per second, simultaneous connections, ports, and the
//! precision of its slow readers.
//!
//! `cargo run --release -p flash-load --example load_speed -- URL BODY_BYTES MODE AMOUNT [SECONDS]`,
//! best pinned to a core of its own, against `flash floor --bytes BODY_BYTES` on another. MODE is `closed`
//! (AMOUNT clients that ask without pause), `open` (AMOUNT requests/s on kept connections), `churn` (the
//! same with 5 requests a connection) or `slow` (AMOUNT clients that read 50,000 bytes/s, as for the
//! SPECweb99-style score). It must not be used to measure servers: it keeps no results.

use std::error::Error;
use std::sync::Arc;

use flash_kit::Stop;
use flash_load::generator::{self, Pace, Phase, Protocol, Setup, Stream};
use flash_load::record::{Outcome, QUEUED};
use flash_load::target::Target;
use flash_load::workload::catalogue::Listed;
use flash_load::workload::{Arrival, Catalogue, Demand};

/// Bytes a second of a slow reader: 400 kbit/s.
const SLOW_BYTES_PER_S: u64 = 50_000;
/// Of `/proc/self/stat`, proc(5): a tick is 10 ms on every Linux of today.
const TICKS_PER_S: f64 = 100.0;

/// The same file at a fixed rate.
struct Fixed {
    next: u64,
    rate_per_s: u64,
}

impl Demand for Fixed {
    fn next_due_ns(&self) -> Option<u64> {
        Some(self.next * 1_000_000_000 / self.rate_per_s)
    }

    fn take(&mut self) -> Option<Arrival> {
        let intended_ns = self.next_due_ns()?;
        self.next += 1;
        Some(Arrival { path_id: 0, intended_ns })
    }

    fn next_path(&mut self) -> Option<u32> {
        Some(0)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, body_bytes, mode, amount, rest @ ..] = &arguments[..] else {
        return Err("give URL BODY_BYTES closed|open|churn|slow AMOUNT [SECONDS]".into());
    };
    let (body_bytes, amount): (u64, u64) = (body_bytes.parse()?, amount.parse()?);
    let seconds: u64 = rest.first().map_or(Ok(5), |text| text.parse())?;
    let clients = Pace::Closed { clients: amount as u32, think_ns: 0 };
    let (pace, per_connection, slow) = match mode.as_str() {
        "closed" => (clients, None, None),
        "open" => (Pace::Open, None, None),
        "churn" => (Pace::Open, Some(5), None),
        "slow" => (clients, None, Some(SLOW_BYTES_PER_S)),
        _ => return Err("the mode is closed, open, churn or slow".into()),
    };
    let file = Listed { path: "/file".into(), file_bytes: Some(body_bytes) };
    let setup = Setup {
        protocol: Protocol::Http1,
        tls: None,
        target: Target::parse(url, false)?,
        catalogue: Arc::new(Catalogue::listed(vec![file])),
        message: Arc::default(),
        verify: false,
        connections_max: if matches!(pace, Pace::Closed { .. }) { amount as usize } else { 1000 },
        requests_per_connection: per_connection,
        abort_after_ns: None,
        retries_max: 0,
        read_bytes_per_s: slow,
    };
    let demand = Box::new(Fixed { next: 0, rate_per_s: amount.max(1) });
    let phase = Phase::new(seconds * 1_000_000_000, 5_000_000_000);
    let before_s = cpu_s()?;
    let ran = generator::run(vec![vec![Stream { setup, demand, pace }]], &phase, &Stop::default(), None)?;
    let used_s = cpu_s()? - before_s;
    report(&ran, used_s, body_bytes, slow);
    Ok(())
}

fn report(ran: &generator::Ran, used_s: f64, body_bytes: u64, slow: Option<u64>) {
    let (stream, duration_s) = (&ran.streams[0], ran.duration_ns as f64 / 1e9);
    let records = &stream.records;
    let answered = records.iter().filter(|record| record.outcome == Outcome::Answered).count();
    println!(
        "{:.0} answers/s in {duration_s:.2} s, {} of {} not answered, {} queued, {} retried, {} connections",
        answered as f64 / duration_s,
        records.len() - answered,
        records.len(),
        records.iter().filter(|record| record.flags & QUEUED != 0).count(),
        stream.retried,
        stream.connections
    );
    let run_s = (ran.duration_ns + ran.drain_ns) as f64 / 1e9;
    let per_answer_us = 1e6 / answered.max(1) as f64;
    println!(
        "generator: busy {:.3}, so {:.2} us an answer; {:.2} us of CPU an answer with polling in vain",
        ran.busy_share,
        ran.busy_share * run_s * per_answer_us,
        used_s * per_answer_us
    );
    if let Some(why) = ran.ended_early.as_ref().or(ran.local_limit.as_ref()) {
        println!("{why}");
    }
    print_times("late", records.iter().map(|record| record.begun_ns - record.intended_ns));
    print_times("latency", records.iter().map(|record| record.latency_ns()));
    if let Some(rate) = slow {
        let due_ns = body_bytes * 1_000_000_000 / rate;
        println!("a body is due after {:.3} ms", due_ns as f64 / 1e6);
        let answered = records.iter().filter(|record| record.outcome == Outcome::Answered);
        print_times("over", answered.map(|record| record.latency_ns().saturating_sub(due_ns)));
    }
}

fn print_times(name: &str, times_ns: impl Iterator<Item = u64>) {
    let mut times_ns: Vec<u64> = times_ns.collect();
    times_ns.sort_unstable();
    let at = |share: f64| {
        times_ns.get((times_ns.len() as f64 * share) as usize).map_or(0.0, |&ns| ns as f64 / 1e6)
    };
    println!(
        "{name}: p50 {:.3} ms, p99 {:.3}, p99.9 {:.3}, max {:.3}",
        at(0.5),
        at(0.99),
        at(0.999),
        at(0.999_999_999)
    );
}

/// CPU time of this process so far.
fn cpu_s() -> Result<f64, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    Ok((ticks(11) + ticks(12)) / TICKS_PER_S)
}
