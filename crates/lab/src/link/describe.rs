//! The settings and the counts of a link in words. Pure.

use flash_kit::{number, text};

use super::counters::{Counters, Counts, Direction};
use super::settings::{Order, Path, Room, Settings};

/// The settings, a line for each direction, or one if both are alike.
pub(super) fn settings(settings: &Settings) -> String {
    let Settings { to_client, to_server, mtu_bytes, overhead_bytes, seed, core: _ } = settings;
    let mut packets = format!("packets of at most {mtu_bytes} bytes");
    if *overhead_bytes > 0 {
        packets += &format!(" and {overhead_bytes} bytes of overhead each");
    }
    if to_client.loss > 0.0 || to_server.loss > 0.0 {
        packets += &format!(", seed {seed}");
    }
    let line = |name: &str, direction: &Path| format!("{name}: {}; {packets}\n", path(direction));
    if to_client == to_server {
        return line("both directions", to_client);
    }
    line("to client", to_client) + &line("to server", to_server)
}

fn path(path: &Path) -> String {
    let rate = path.rate_bits_per_s.map_or("no limit of rate".to_owned(), |rate| rate_text(rate as f64));
    let room = match path.room {
        Room::Packets(packets) => format!("{} packets", number::count(packets)),
        Room::Bytes(bytes) => number::binary_size(bytes),
    };
    let queue = match path.order {
        Order::Arrival => format!("a queue of {room}"),
        Order::Bands => format!("five bands, each with a queue of {room}"),
    };
    let delay = number::time(path.delay_ns as f64 / 1e6);
    format!("{rate}, {delay} delay, {} loss, {queue}", number::percent(path.loss))
}

fn rate_text(bits_per_s: f64) -> String {
    let (mut value, mut unit) = (bits_per_s, "bit/s");
    for next in ["kbit/s", "Mbit/s", "Gbit/s"] {
        if value < 999.5 {
            break;
        }
        (value, unit) = (value / 1000.0, next);
    }
    format!("{} {unit}", number::figure(value))
}

/// The counts as a table, the times that were kept, and warnings of all that should not have been.
pub(super) fn counters(settings: &Settings, counters: &Counters) -> String {
    let heads = [
        "",
        "came",
        "delivered\npackets",
        "delivered\nbytes",
        "lost",
        "queue\nfull",
        "too\nlong",
        "mean\nwait",
        "most\nwaiting",
    ];
    let mut rows = Vec::new();
    let both = [
        ("to client", &counters.to_client, settings.to_client.order),
        ("to server", &counters.to_server, settings.to_server.order),
    ];
    for (name, direction, order) in both {
        rows.push(row(name.to_owned(), &direction.total()));
        if order == Order::Bands {
            let used = direction.bands.iter().enumerate().filter(|(_, band)| band.came_packets > 0);
            rows.extend(used.map(|(number, band)| row(format!("  band {number}"), band)));
        }
    }
    text::columns(&heads, rows, &[0]) + &punctuality(counters) + &warnings(counters)
}

fn row(name: String, counts: &Counts) -> Vec<String> {
    // Packets that wait still are not among those that waited.
    let left = counts.delivered_packets
        + counts.travelling_packets
        + counts.dropped_refused
        + counts.dropped_no_memory;
    let wait = match left {
        0 => number::NONE.to_owned(),
        left => number::time(counts.waited_ns as f64 / left as f64 / 1e6),
    };
    let counted = [
        counts.came_packets,
        counts.delivered_packets,
        counts.delivered_bytes,
        counts.dropped_lost,
        counts.dropped_queue_full,
        counts.dropped_too_long,
    ];
    let mut row = vec![name];
    row.extend(counted.map(number::count));
    row.extend([wait, number::count(counts.waiting_packets_max)]);
    row
}

fn punctuality(counters: &Counters) -> String {
    let kept = counters.punctuality;
    if kept.packets == 0 {
        return "no packet was delivered\n".to_owned();
    }
    let mean = number::time(kept.late_ns as f64 / kept.packets as f64 / 1e6);
    text::wrapped(&format!(
        "packets were delivered {mean} late on average, {} at most, {} by more than 1 ms",
        number::time(kept.late_max_ns as f64 / 1e6),
        number::percent(kept.over_1_ms as f64 / kept.packets as f64)
    ))
}

/// The share of packets delivered more than a millisecond late from which on the machine was too busy.
const LATE_SHARE_MAX: f64 = 0.01;

/// A line for each thing that makes a measurement over the link worthless.
fn warnings(counters: &Counters) -> String {
    let mut lines = String::new();
    let mut warn = |count: u64, what: &str| {
        if count > 0 {
            lines += &text::wrapped(&format!("warning: {} {what}", number::count(count)));
        }
    };
    let both = [&counters.to_client, &counters.to_server];
    let sum = |of: fn(&Direction) -> u64| both.into_iter().map(of).sum::<u64>();
    let missed = "packets came while the link was too busy to take them: free a core, or lower the rate";
    warn(sum(|direction| direction.missed_packets), missed);
    let memory = "packets were dropped for lack of memory: lower the rate or the delay";
    warn(sum(|direction| direction.total().dropped_no_memory), memory);
    let refused = "packets were refused by the receiving kernel";
    warn(sum(|direction| direction.total().dropped_refused), refused);
    let kept = counters.punctuality;
    if kept.over_1_ms as f64 > kept.packets as f64 * LATE_SHARE_MAX {
        warn(kept.over_1_ms, "packets were late by more than 1 ms: the machine was too busy for this link");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Punctuality;

    #[test]
    fn settings_are_said_for_each_direction() {
        let to_client = Path {
            rate_bits_per_s: Some(10_000_000),
            delay_ns: 50_000_000,
            loss: 0.03,
            room: Room::Packets(100),
            order: Order::Bands,
        };
        let to_server = Path { room: Room::Bytes(65_536), ..Path::default() };
        let both = Settings { to_client, to_server, overhead_bytes: 38, ..Settings::default() };
        let wanted = "to client: 10.0 Mbit/s, 50.0 ms delay, 3.00 % loss, five bands, each with a queue of 100 packets; \
                      packets of at most 1500 bytes and 38 bytes of overhead each, seed 1\n\
                      to server: no limit of rate, 0 ms delay, 0 % loss, a queue of 64 KiB; \
                      packets of at most 1500 bytes and 38 bytes of overhead each, seed 1\n";
        assert_eq!(settings(&both), wanted);
        assert_eq!(
            settings(&Settings::default()),
            "both directions: no limit of rate, 0 ms delay, 0 % loss, a queue of 100 packets; packets of at most 1500 \
             bytes\n"
        );
    }

    #[test]
    fn counts_are_shown_by_band_only_where_there_are_bands_and_faults_are_warned_of() {
        let mut found = Counters::default();
        found.to_client.bands[3] = Counts {
            came_packets: 1_234,
            delivered_packets: 1_000,
            delivered_bytes: 1_500_000,
            dropped_lost: 34,
            dropped_queue_full: 200,
            waited_ns: 5_000_000_000,
            waiting_packets_max: 100,
            ..Counts::default()
        };
        let plain = Settings::default();
        let text = counters(&plain, &found);
        assert!(
            text.contains("1,234") && text.contains("5.00 ms") && text.contains("no packet was delivered")
        );
        assert!(!text.contains("band") && !text.contains("warning"), "{text}");
        let bands =
            Settings { to_client: Path { order: Order::Bands, ..Path::default() }, ..Settings::default() };
        let text = counters(&bands, &found);
        assert!(text.contains("band 3") && text.matches("band").count() == 1, "{text}");
        found.to_server.missed_packets = 7;
        found.punctuality =
            Punctuality { packets: 1_000, late_ns: 50_000_000, over_1_ms: 11, ..Punctuality::default() };
        let text = counters(&plain, &found);
        assert!(text.contains("50.0 µs late on average") && text.contains("1.10 %"), "{text}");
        assert!(text.contains("warning: 7 packets") && text.contains("warning: 11 packets"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= text::COLUMNS_MAX), "{text}");
    }
}
