//! Counts of the packets of a link, by direction and band. Pure.

use serde::Serialize;

/// Priority bands; the first is the most urgent.
pub const BANDS: usize = 5;

/// The code points (DSCP) of the bands, as Flash sets them (`docs/overload.md`): the default, AF11, AF12, CS1 and LE
/// (RFC 2597, RFC 2474, RFC 8622).
const CODE_POINTS: [u8; BANDS] = [0, 10, 12, 8, 1];

/// The band of a packet by its code point. Code points that Flash does not set belong to the first band.
pub(crate) fn band(packet: &[u8]) -> usize {
    let code_point = match packet {
        [first, second, ..] if first >> 4 == 4 => second >> 2,
        // The traffic class of IPv6 begins in the middle of the first byte (RFC 8200, section 3).
        [first, second, ..] if first >> 4 == 6 => ((first & 0xf) << 2) | (second >> 6),
        _ => 0,
    };
    CODE_POINTS.iter().position(|known| *known == code_point).unwrap_or(0)
}

/// The counts of one band of one direction, or of all its bands. Every packet that came is dropped for one of the five
/// reasons, waits, travels, or was delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub came_packets: u64,
    /// Their bytes, with IP headers.
    pub came_bytes: u64,
    /// Packets that arrived at the receiver.
    pub delivered_packets: u64,
    /// Their bytes, with IP headers.
    pub delivered_bytes: u64,
    /// Packets dropped by the configured loss.
    pub dropped_lost: u64,
    pub dropped_queue_full: u64,
    /// Packets dropped because they were longer than the packet length of the link.
    pub dropped_too_long: u64,
    /// Packets dropped because more bytes travelled than the link has memory for. Valid measurements have none.
    pub dropped_no_memory: u64,
    /// Packets that the receiver's kernel did not take. Valid measurements have none.
    pub dropped_refused: u64,
    pub waiting_packets: u64,
    pub waiting_bytes: u64,
    /// The most packets that have waited at once; in a sum of bands, the sum of their maxima.
    pub waiting_packets_max: u64,
    /// How long the packets that left the queue waited in it, together, in nanoseconds.
    pub waited_ns: u64,
    /// Packets that left the queue and travel now.
    pub travelling_packets: u64,
}

impl Counts {
    /// All packets that were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped_lost
            + self.dropped_queue_full
            + self.dropped_too_long
            + self.dropped_no_memory
            + self.dropped_refused
    }

    fn with(&self, other: &Self, each: fn(u64, u64) -> u64) -> Self {
        Self {
            came_packets: each(self.came_packets, other.came_packets),
            came_bytes: each(self.came_bytes, other.came_bytes),
            delivered_packets: each(self.delivered_packets, other.delivered_packets),
            delivered_bytes: each(self.delivered_bytes, other.delivered_bytes),
            dropped_lost: each(self.dropped_lost, other.dropped_lost),
            dropped_queue_full: each(self.dropped_queue_full, other.dropped_queue_full),
            dropped_too_long: each(self.dropped_too_long, other.dropped_too_long),
            dropped_no_memory: each(self.dropped_no_memory, other.dropped_no_memory),
            dropped_refused: each(self.dropped_refused, other.dropped_refused),
            waiting_packets: each(self.waiting_packets, other.waiting_packets),
            waiting_bytes: each(self.waiting_bytes, other.waiting_bytes),
            waiting_packets_max: each(self.waiting_packets_max, other.waiting_packets_max),
            waited_ns: each(self.waited_ns, other.waited_ns),
            travelling_packets: each(self.travelling_packets, other.travelling_packets),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Direction {
    /// The counts of each band, the most urgent first. Packets are counted by their code points also where one queue serves all;
    /// then the waiting packets are those of the band in it.
    pub bands: [Counts; BANDS],
    /// Packets that the sender's kernel dropped before the link, because the link's thread was late. Valid measurements
    /// have none.
    pub missed_packets: u64,
}

impl Direction {
    /// The sum of all bands.
    pub fn total(&self) -> Counts {
        self.bands.iter().fold(Counts::default(), |sum, band| sum.with(band, u64::saturating_add))
    }
}

/// How exactly the link kept its times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Punctuality {
    pub packets: u64,
    /// By how much they were delivered later than configured, together, in nanoseconds.
    pub late_ns: u64,
    /// Packets delivered more than a millisecond late.
    pub over_1_ms: u64,
    pub late_max_ns: u64,
    /// CPU time of the link's thread, in nanoseconds.
    pub cpu_ns: u64,
}

impl Punctuality {
    pub(crate) fn add(&mut self, late_ns: u64) {
        self.packets += 1;
        self.late_ns += late_ns;
        self.over_1_ms += u64::from(late_ns > 1_000_000);
        self.late_max_ns = self.late_max_ns.max(late_ns);
    }
}

/// The counts of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    pub to_client: Direction,
    pub to_server: Direction,
    /// How exactly the link kept its times.
    pub punctuality: Punctuality,
}
