//! The figures of one level of load, as results keep them and reports draw them.
//!
//! [`super::measures`] computes them. Plain data: times are milliseconds, rates per second, sizes bytes, Mb/s 10⁶ bits
//! of bodies per second, shares 0 to 1.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The measures of one level of load on one subject.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Measures {
    /// "0.80", "closed", "hot alone".
    pub name: String,
    /// The fraction of the capacity that was asked for.
    pub load_level: Option<f64>,
    /// From 1; none for all rounds together.
    pub round: Option<u32>,
    /// Requests per second that were asked for, in an open loop.
    pub asked_per_s: Option<f64>,
    /// How long requests were started.
    pub duration_s: f64,
    /// How long the last answers then took.
    pub drain_s: f64,
    pub counts: Counts,
    /// Proper answers while requests were started.
    pub answered_per_s: f64,
    /// Bits of their bodies.
    pub megabits_per_s: f64,
    /// From the intended start to the last byte.
    pub latency: Latency,
    /// From being taken up to having a new connection; of requests that opened one.
    pub connect: Option<Latency>,
    /// TLS handshakes, which are part of the time to connect; none without TLS.
    #[serde(default)]
    pub handshakes: Option<Handshakes>,
    /// From having a connection to the first byte.
    pub first_byte: Option<Latency>,
    /// From the first byte to the last.
    pub transfer: Option<Latency>,
    /// Service inversion, 0 to 1; of two answers or more.
    pub inversion: Option<f64>,
    /// The distribution of latency, in growing order.
    pub cdf: Vec<CdfPoint>,
    /// The same at bounds that all runs have.
    #[serde(default)]
    pub histogram: Vec<Bucket>,
    pub series: Vec<SizeSeries>,
    /// The static requests and the dynamic ones, if some were dynamic.
    #[serde(default)]
    pub kinds: Vec<Kind>,
    /// The ten tenths of the answers by latency, fastest first.
    pub deciles: Vec<Decile>,
    pub timeline: Timeline,
    /// The figures of overload, where they were asked for.
    #[serde(default)]
    pub overload: Option<Overload>,
    pub generator: Generator,
    /// The server's use of CPU and memory meanwhile, when its process is known.
    pub server: Option<Usage>,
    /// The share of the hot files' bytes that was in memory at the end, where that was looked at: the least of the rounds.
    #[serde(default)]
    pub in_memory_share: Option<f64>,
    /// Other work on the cores of server and generator, where these are known: that of the round with the most.
    #[serde(default)]
    pub other_work: Option<OtherWork>,
    /// The file of records, relative to `run.json`.
    pub records: Option<String>,
    /// Records that are not in the file, and why.
    pub records_lost: u64,
    pub ended_early: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Counts {
    pub asked: u64,
    pub answered: u64,
    /// The rest, by the name of their outcome; statuses as "status 404".
    pub failed: BTreeMap<String, u64>,
    /// Arrivals that found every connection in use and none left to open.
    pub queued: u64,
    /// Arrivals that the generator itself sent late by more than a millisecond.
    pub late: u64,
    /// Requests sent again, after an abort or on a connection that the server had closed.
    pub retried: u64,
    pub connections: u64,
}

impl Counts {
    pub fn failures(&self) -> u64 {
        self.failed.values().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

/// A summary of times; milliseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Latency {
    pub mean_ms: f64,
    /// The percentiles: the smallest time that at least this many of 100 do not exceed.
    pub p5_ms: f64,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
}

/// TLS handshakes, from the first byte sent until the client could send a request.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Handshakes {
    pub full: u64,
    /// Those that resumed a session.
    pub resumed: u64,
    pub full_time: Option<Latency>,
    pub resumed_time: Option<Latency>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct CdfPoint {
    /// At most this long ...
    pub latency_ms: f64,
    /// ... took this share.
    pub share: f64,
}

/// The latencies up to a bound.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Bucket {
    pub latency_max_ms: f64,
    /// Those of the bounds below included.
    pub count: u64,
}

/// A series of response sizes (blocking-induced-latency, Table 3).
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct SizeSeries {
    pub bytes_min: u64,
    pub bytes_max: u64,
    pub share: f64,
}

/// The static or the dynamic requests of a workload that has both.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Kind {
    /// "static" or "dynamic".
    pub name: String,
    pub asked: u64,
    pub answered: u64,
    /// From the intended start to the last byte; none where no latency counts.
    pub latency: Option<Latency>,
}

/// A tenth of the answers by latency.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Decile {
    pub latency_max_ms: f64,
    /// The share of each size series in it, in the order of [`Measures::series`].
    pub shares: Vec<f64>,
}

/// The course of time, by the intended start.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Timeline {
    pub step_s: f64,
    pub points: Vec<TimelinePoint>,
}

/// One step of a timeline: the requests that were meant to start in it.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct TimelinePoint {
    pub asked: u64,
    pub answered: u64,
    /// Their median latency; none without one.
    pub p50_ms: Option<f64>,
    /// Their 99th percentile.
    pub p99_ms: Option<f64>,
    pub max_ms: Option<f64>,
}

/// The figures of overload (overload-and-srpt, section 4). Response times are those of completed requests, from the
/// intended start of the first try to the last byte.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Overload {
    /// Response times of all completed requests.
    pub complete: Option<Latency>,
    pub variance_s2: Option<f64>,
    /// Response times of the requests that were completed before the last one started: those to compare under persistent
    /// overload, since the load ends then.
    pub complete_in_time: Option<Latency>,
    /// The bits of bodies that arrived while requests were started, those of answers under way then included, in Mb/s.
    #[serde(default)]
    pub received_megabits_per_s: Option<f64>,
    /// Requests that were not completed.
    pub incomplete: Incomplete,
    /// Response times by the length of the requested file, shortest first: ten tenths of the requests, of which the last is
    /// divided further.
    pub by_size: Vec<SizeBand>,
    /// The longest 1 % of the requests.
    pub largest: Option<SizeBand>,
    pub step_s: f64,
    /// Step by step, by the intended start; of all rounds together.
    pub over_time: Vec<TimePoint>,
    /// Connections that the clients had open while requests were started: the mean.
    pub open_mean: f64,
    /// The most at once, those not established yet included.
    pub open_max: u64,
    /// Step by step, the mean of all rounds.
    pub open: Vec<OpenPoint>,
}

/// Requests that were not completed, by the reason.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct Incomplete {
    /// The user gave up, after the last retry.
    pub aborted: u64,
    /// No whole answer until the generator stopped waiting, at the end of the run.
    pub timed_out: u64,
    /// The connection was reset, or ended before the answer did.
    pub reset: u64,
    /// The server did not take the connection.
    pub refused: u64,
    /// A whole response with another status than 200, such as 503 from a server that sheds load.
    pub status: u64,
    /// A limit of the generator's machine, or a wrong answer.
    pub other: u64,
}

impl Incomplete {
    pub fn total(&self) -> u64 {
        let Self { aborted, timed_out, reset, refused, status, other } = *self;
        aborted + timed_out + reset + refused + status + other
    }
}

/// The requests for files of some lengths.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct SizeBand {
    /// From this share of the requests, in the order of their lengths ...
    pub from_share: f64,
    /// ... to this one.
    pub to_share: f64,
    pub bytes_min: u64,
    pub bytes_max: u64,
    pub asked: u64,
    /// Requests that were not completed.
    pub incomplete: u64,
    /// Response times of the others.
    pub latency: Option<Latency>,
}

/// The requests that were meant to start in a step of time.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct TimePoint {
    pub asked: u64,
    /// Requests that were completed, if later.
    pub complete: u64,
    pub mean_ms: Option<f64>,
}

/// The connections that the clients had open in a step of time, on average.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct OpenPoint {
    /// Established, also without a request on them.
    pub established: f64,
    /// Not established yet.
    pub connecting: f64,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Generator {
    pub threads: u32,
    /// How much later than intended it took requests up: mean.
    #[serde(default)]
    pub late_mean_ms: f64,
    /// The same, median.
    #[serde(default)]
    pub late_p50_ms: f64,
    /// The same, 90th percentile; older results do not have this one and the next one.
    #[serde(default)]
    pub late_p90_ms: Option<f64>,
    /// The same, 95th percentile.
    #[serde(default)]
    pub late_p95_ms: Option<f64>,
    /// The same, 99th percentile.
    pub late_p99_ms: f64,
    /// The same, 99.9th percentile; older results do not have it.
    #[serde(default)]
    pub late_p999_ms: Option<f64>,
    pub late_max_ms: f64,
    /// The share of the time in which its busiest thread had something to do.
    pub busy_share: f64,
    /// Why the figures are of the generator rather than of the server, if they are.
    pub limit: Option<String>,
}

/// The CPU and memory that a process and its children used in a phase.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Usage {
    /// CPU time, user and system.
    pub cpu_s: f64,
    /// CPU time for each proper answer, microseconds.
    pub cpu_us_per_answer: f64,
    /// The most memory of its own at a sample: resident, without files (`RssAnon` and `RssShmem`).
    pub memory_max_bytes: u64,
}

/// Other work on the cores of the server or of the generator in a phase, of the two on those that had more of it.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct OtherWork {
    pub core: CoreOf,
    /// Time of processes that are neither the server's nor the generator's, as a share of the cores' time.
    pub busy_share: f64,
    /// Time that a hypervisor gave to other machines (steal), as a share of the cores' time.
    pub stolen_share: f64,
}

/// The owner of a core.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CoreOf {
    Server,
    Generator,
}

impl CoreOf {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Server => "the server's core",
            Self::Generator => "the generator's cores",
        }
    }
}

impl OtherWork {
    /// The one of two that had more.
    pub fn worse(self, other: Self) -> Self {
        let most = |one: &Self| one.busy_share.max(one.stolen_share);
        if most(&other) > most(&self) { other } else { self }
    }
}
