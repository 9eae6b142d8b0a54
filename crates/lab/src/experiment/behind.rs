//! Servers behind a link: the line of a scene as a link of this machine, and its load as rates of requests.
//!
//! [`super::rounds`] calls it for scenes that have a line.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use super::plan::{Bottleneck, Line, Phases, Point, Scene};
use crate::drive::nanoseconds;
use crate::link::{DEVICE, Link, Path, Room, Settings};
use flash_kit::{Error, Result};
use flash_load::workload::{self, PhasePlan, PhaseRate, Workload};

/// The queue of the server's device, or of each of its bands: the paper's (section 2.1).
const QUEUE_PACKETS: u32 = 100;
/// The burst of the device in the order of arrival.
const BURST_PACKETS: u32 = 2;
/// The queues of connections that are not established yet, and of those that are and wait to be accepted (section 3.2).
const CONNECTION_QUEUE: &str = "512";
/// The most of the packets that a link can deliver over 1 ms late without a warning.
const LATE_SHARE_MAX: f64 = 0.01;

/// The purpose of the link of a scene.
pub(super) struct Wanted {
    /// The program that sets the queueing discipline of bands.
    pub(super) flash: PathBuf,
    /// The server's core. The link's thread has it, too, as the interrupts of a network card would, and leaves the
    /// generator alone.
    pub(super) core: Option<usize>,
    /// Whether the server's device sends in the order of the bands, or in that of arrival.
    pub(super) has_bands: bool,
    pub(super) seed: u64,
}

/// Whether this machine can make the link of a scene, with bands and without.
///
/// Errors: as [`link`].
pub(super) fn check(scene: &Scene, flash: &std::path::Path) -> Result<()> {
    let wanted = |has_bands| Wanted { flash: flash.to_owned(), core: None, has_bands, seed: 0 };
    link(scene, &wanted(false))?;
    link(scene, &wanted(true)).map(drop)
}

/// Makes the link of a scene; none for a scene without a line.
///
/// Errors: as [`Link::start`], [`Link::set_initial_timeout`] and [`crate::link::Side::set`]; run, if the queueing discipline cannot be set.
pub(super) fn link(scene: &Scene, wanted: &Wanted) -> Result<Option<Arc<Link>>> {
    let Some(line) = scene.line else { return Ok(None) };
    let mut link = Link::start(&settings(&line, wanted))?;
    if let Some(timeout_ms) = line.initial_timeout_ms {
        link.set_initial_timeout(Duration::from_millis(timeout_ms))?;
    }
    for mut command in discipline(&line, wanted) {
        let why = match link.server.run(|| command.output())? {
            Ok(output) if output.status.success() => continue,
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim_end().to_owned(),
            Err(why) => why.to_string(),
        };
        return Err(Error::run(format!("cannot set the queue of the link's server: {why} ({command:?})")));
    }
    let server = &link.server;
    server.set("net.ipv4.tcp_max_syn_backlog", CONNECTION_QUEUE)?;
    server.set("net.core.somaxconn", CONNECTION_QUEUE)?;
    // 2: for every connection, not only once the queue is full (ip-sysctl of the kernel).
    server.set("net.ipv4.tcp_syncookies", if line.has_syn_cookies { "2" } else { "0" })?;
    Ok(Some(Arc::new(link)))
}

/// The link behind the server's device: delay and losses, and the rate if the device has none.
fn settings(line: &Line, wanted: &Wanted) -> Settings {
    let way = Path {
        delay_ns: nanoseconds(line.round_trip_ms / 2.0 / 1000.0),
        loss: line.loss,
        room: Room::Packets(QUEUE_PACKETS.into()),
        ..Path::default()
    };
    let rate_bits_per_s = (line.bottleneck == Bottleneck::Router).then_some(line.rate_bits_per_s);
    Settings {
        to_client: Path { rate_bits_per_s, ..way.clone() },
        to_server: way,
        mtu_bytes: line.packet_bytes,
        seed: wanted.seed,
        core: wanted.core,
        ..Settings::default()
    }
}

/// The commands that bound the rate of the server's device and order its queue, or the queues of its bands, which have the
/// same length.
fn discipline(line: &Line, wanted: &Wanted) -> Vec<Command> {
    let rate = format!("{}kbit", line.rate_bits_per_s / 1000);
    let burst = (BURST_PACKETS * line.packet_bytes).to_string();
    let length = QUEUE_PACKETS.to_string();
    let command = |program: &OsStr, words: &[&str]| {
        let mut command = Command::new(program);
        command.args(words);
        command
    };
    let (ip, tc) = (OsStr::new("ip"), OsStr::new("tc"));
    if line.bottleneck == Bottleneck::Router {
        return Vec::new();
    }
    let mut commands = vec![command(ip, &["link", "set", "dev", DEVICE, "txqueuelen", &length])];
    if wanted.has_bands {
        commands.push(command(wanted.flash.as_os_str(), &["qdisc", DEVICE, "--rate", &rate, "--apply"]));
        return commands;
    }
    let bound = ["root", "handle", "1:", "tbf", "rate", &rate, "burst", &burst, "latency", "1s"];
    commands.push(command(tc, &[&["qdisc", "add", "dev", DEVICE][..], &bound].concat()));
    let queue = ["qdisc", "add", "dev", DEVICE, "parent", "1:1", "handle", "2:", "pfifo", "limit", &length];
    commands.push(command(tc, &queue));
    commands
}

/// Why the figures of a turn might be those of a busy machine rather than of its link; none where the link kept its times.
///
/// Errors: as [`Link::counters`].
pub(super) fn doubt(link: &Link) -> Result<Option<String>> {
    let counters = link.counters()?;
    let late = counters.punctuality;
    let late_share = late.over_1_ms as f64 / late.packets.max(1) as f64;
    let missed = counters.to_client.missed_packets + counters.to_server.missed_packets;
    let is_late = missed > 0 || late_share > LATE_SHARE_MAX;
    Ok(is_late.then(|| {
        format!(
            "the link was late: {:.1} % of its packets by over 1 ms, and {missed} packets missed; end other programs",
            late_share * 100.0
        )
    }))
}

pub(super) fn describe(line: &Line) -> String {
    let place = match line.bottleneck {
        Bottleneck::Device => "the server's device",
        Bottleneck::Router => "a router",
    };
    format!("{} Mbit/s at {place}, a queue of {QUEUE_PACKETS} packets", line.rate_bits_per_s as f64 / 1e6)
}

/// The link whose capacity is load 1 of a scene.
pub(super) fn capacity(line: &Line) -> workload::Link {
    workload::Link { rate_bits_per_s: line.rate_bits_per_s, packet_bytes: line.packet_bytes }
}

/// The rates of a point with phases, on the line of its scene. Load 1 is what the line can do with one request per connection, also for
/// points with more: they have the same arrivals.
///
/// Errors: usage, for periods that cannot be read, and a scene without a line.
pub(super) fn rates(
    scene: &Scene,
    point: &Point,
    phases: &Phases,
    workload: &Workload,
) -> Result<Vec<PhaseRate>> {
    let line = scene
        .line
        .as_ref()
        .ok_or_else(|| Error::usage(format!("{}: loads of a line need a scene with a line", point.name)))?;
    let per_s = capacity(line).capacity_per_s(workload, 1)?;
    let rates = phases.periods.parse::<PhasePlan>()?.rates(Some(per_s))?;
    Ok(arranged(rates, point.duration_s))
}

/// The periods of a point as loads, where 1 is all that the line can do.
///
/// Errors: usage, for periods that cannot be read.
pub(super) fn loads(phases: &Phases, duration_s: f64) -> Result<Vec<PhaseRate>> {
    Ok(arranged(phases.periods.parse::<PhasePlan>()?.rates(Some(1.0))?, duration_s))
}

/// The periods stretched to this duration, from the one with the highest rate on.
fn arranged(mut rates: Vec<PhaseRate>, duration_s: f64) -> Vec<PhaseRate> {
    let whole_ns: u64 = rates.iter().map(|rate| rate.duration_ns).sum();
    let factor = nanoseconds(duration_s) as f64 / whole_ns.max(1) as f64;
    for rate in &mut rates {
        rate.duration_ns = (rate.duration_ns as f64 * factor) as u64;
    }
    let highest = rates.iter().map(|rate| rate.rate_per_s).fold(0.0, f64::max);
    let first = rates.iter().position(|rate| rate.rate_per_s == highest).unwrap_or(0);
    rates.rotate_left(first);
    rates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_begin_with_the_overload_and_last_as_long_as_the_point() {
        let plan: PhasePlan = "2*W1".parse().unwrap();
        let found = arranged(plan.rates(Some(100.0)).unwrap(), 10.0);
        let figures: Vec<(u64, f64)> = found.iter().map(|rate| (rate.duration_ns, rate.rate_per_s)).collect();
        let second = 1_000_000_000;
        let expected = [120.0, 20.0, 120.0, 20.0].map(|rate| (5 * second / 2, rate));
        assert_eq!(figures, expected);
    }

    #[test]
    fn a_line_is_a_link_with_its_settings() {
        let line = Line {
            rate_bits_per_s: 10_000_000,
            round_trip_ms: 100.0,
            loss: 0.05,
            packet_bytes: 536,
            has_syn_cookies: false,
            initial_timeout_ms: None,
            bottleneck: Bottleneck::Device,
        };
        let wanted = |has_bands| Wanted { flash: "/bin/flash".into(), core: Some(1), has_bands, seed: 7 };
        let link = settings(&line, &wanted(false));
        assert_eq!((link.to_client.delay_ns, link.to_server.delay_ns), (50_000_000, 50_000_000));
        assert_eq!((link.to_client.rate_bits_per_s, link.to_server.rate_bits_per_s), (None, None));
        assert_eq!((link.mtu_bytes, link.seed, link.core), (536, 7, Some(1)));
        assert_eq!(link.check(), Ok(()));
        let words = |has_bands| -> Vec<String> {
            let text = |command: &Command| {
                let words = [command.get_program()].into_iter().chain(command.get_args());
                words.map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
            };
            discipline(&line, &wanted(has_bands)).iter().map(text).collect()
        };
        let length = "ip link set dev flash0 txqueuelen 100";
        let rate = "tc qdisc add dev flash0 root handle 1: tbf rate 10000kbit burst 1072 latency 1s";
        let fifo = "tc qdisc add dev flash0 parent 1:1 handle 2: pfifo limit 100";
        assert_eq!(words(false), [length, rate, fifo]);
        assert_eq!(words(true), [length, "/bin/flash qdisc flash0 --rate 10000kbit --apply"]);
        let line = Line { bottleneck: Bottleneck::Router, ..line };
        let link = settings(&line, &wanted(false));
        assert_eq!(
            (link.to_client.rate_bits_per_s, link.to_server.rate_bits_per_s),
            (Some(10_000_000), None)
        );
        assert_eq!((link.to_client.room, discipline(&line, &wanted(false)).len()), (Room::Packets(100), 0));
    }
}
