//! One direction of a link: loss, queues, rate and delay, in the order in which a packet meets them. Pure.
//!
//! The caller reports events with `handle_*` and takes packets with [`Pipe::poll_delivery`], both with the time, which
//! never goes back. All times within the pipe follow from the times of arrival and the settings alone: a caller that comes late
//! delivers late, but the link loses no capacity by it, and no later packet is delayed for it. So the caller must report
//! the arrivals in the order in which they came.

use std::collections::VecDeque;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::counters::{BANDS, Counts, band};
use super::settings::{Order, Path, Room, Settings};

/// The most bytes that travel at once: 1 s at 1 Gbit/s, 10 s at 100 Mbit/s.
const TRAVELLING_BYTES_MAX: u64 = 128 << 20;
/// The memory of a packet besides its bytes, roughly, so that short packets are bounded too.
const PACKET_COST_BYTES: u64 = 64;

#[derive(Debug)]
struct Waiting {
    came_ns: u64,
    band: usize,
    bytes: Box<[u8]>,
}

/// A packet on its way, sent or being sent, or arrived.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Delivery {
    /// When it is to arrive.
    pub(crate) due_ns: u64,
    /// Its band, for [`Pipe::handle_refusal`].
    pub(crate) band: usize,
    pub(crate) bytes: Box<[u8]>,
}

/// One direction of a link.
#[derive(Debug)]
pub(crate) struct Pipe {
    path: Path,
    mtu_bytes: u32,
    overhead_bytes: u32,
    /// Decides which packets are lost.
    random: Xoshiro256PlusPlus,
    /// One for each band; only the first is used if packets are sent in the order of arrival.
    queues: [VecDeque<Waiting>; BANDS],
    queue_bytes: [u64; BANDS],
    /// When the packet that is being sent, if any, is sent.
    free_at_ns: u64,
    /// In the order of arrival at the receiver.
    line: VecDeque<Delivery>,
    line_cost_bytes: u64,
    pub(crate) counts: [Counts; BANDS],
}

impl Pipe {
    /// A pipe along one of the paths of these settings, with a seed of its own.
    pub(crate) fn new(path: &Path, settings: &Settings, seed: u64) -> Self {
        Self {
            path: path.clone(),
            mtu_bytes: settings.mtu_bytes,
            overhead_bytes: settings.overhead_bytes,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            queues: Default::default(),
            queue_bytes: [0; BANDS],
            free_at_ns: 0,
            line: VecDeque::new(),
            line_cost_bytes: 0,
            counts: [Counts::default(); BANDS],
        }
    }

    /// When [`Pipe::poll_delivery`] has something to do next; none while nothing waits or travels.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        let sent = self.queues.iter().any(|queue| !queue.is_empty()).then_some(self.free_at_ns);
        let arrives = self.line.front().map(|packet| packet.due_ns);
        [sent, arrives].into_iter().flatten().min()
    }

    pub(crate) fn handle_packet(&mut self, now_ns: u64, packet: &[u8]) {
        self.send_until(now_ns);
        let (band, length) = (band(packet), packet.len() as u64);
        let is_lost = self.random.random::<f64>() < self.path.loss;
        let queue = match self.path.order {
            Order::Arrival => 0,
            Order::Bands => band,
        };
        let is_full = !self.has_room(queue, length);
        let counts = &mut self.counts[band];
        counts.came_packets += 1;
        counts.came_bytes += length;
        if length > u64::from(self.mtu_bytes) {
            counts.dropped_too_long += 1;
        } else if is_lost {
            counts.dropped_lost += 1;
        } else if is_full {
            counts.dropped_queue_full += 1;
        } else {
            counts.waiting_packets += 1;
            counts.waiting_bytes += length;
            self.queue_bytes[queue] += length;
            self.queues[queue].push_back(Waiting { came_ns: now_ns, band, bytes: packet.into() });
            self.send_until(now_ns);
            // Counted after the packet could have left: one that finds the link free has not waited.
            let counts = &mut self.counts[band];
            counts.waiting_packets_max = counts.waiting_packets_max.max(counts.waiting_packets);
        }
    }

    /// The next packet that has arrived at the receiver by now, if any.
    pub(crate) fn poll_delivery(&mut self, now_ns: u64) -> Option<Delivery> {
        self.send_until(now_ns);
        self.line.front().filter(|packet| packet.due_ns <= now_ns)?;
        let delivery = self.line.pop_front()?;
        self.line_cost_bytes -= cost(&delivery.bytes);
        let counts = &mut self.counts[delivery.band];
        counts.travelling_packets -= 1;
        counts.delivered_packets += 1;
        counts.delivered_bytes += delivery.bytes.len() as u64;
        Some(delivery)
    }

    /// The receiver did not take a delivery.
    pub(crate) fn handle_refusal(&mut self, refused: &Delivery) {
        let counts = &mut self.counts[refused.band];
        counts.delivered_packets -= 1;
        counts.delivered_bytes -= refused.bytes.len() as u64;
        counts.dropped_refused += 1;
    }

    fn has_room(&self, queue: usize, length: u64) -> bool {
        match self.path.room {
            Room::Packets(packets) => (self.queues[queue].len() as u64) < packets,
            Room::Bytes(bytes) => self.queue_bytes[queue] + length <= bytes,
        }
    }

    /// Sends the waiting packets whose turn came by now. All of them had come by the time of their turn: if a packet
    /// waits after this, the link is busy until later than now.
    fn send_until(&mut self, now_ns: u64) {
        while self.free_at_ns <= now_ns {
            let Some(queue) = self.queues.iter().position(|queue| !queue.is_empty()) else { return };
            let Some(packet) = self.queues[queue].pop_front() else { return };
            self.queue_bytes[queue] -= packet.bytes.len() as u64;
            self.send(packet);
        }
    }

    /// Begins to send a packet as soon as the link is free and the packet is there.
    fn send(&mut self, packet: Waiting) {
        let Waiting { came_ns, band, bytes } = packet;
        let begin_ns = self.free_at_ns.max(came_ns);
        self.free_at_ns = begin_ns + self.sending_ns(bytes.len());
        let counts = &mut self.counts[band];
        counts.waiting_packets -= 1;
        counts.waiting_bytes -= bytes.len() as u64;
        counts.waited_ns += begin_ns - came_ns;
        let last_ns = self.line.back().map_or(0, |last| last.due_ns);
        let due_ns = (self.free_at_ns + self.path.delay_ns).max(last_ns);
        if self.line_cost_bytes + cost(&bytes) > TRAVELLING_BYTES_MAX {
            counts.dropped_no_memory += 1;
            return;
        }
        counts.travelling_packets += 1;
        self.line_cost_bytes += cost(&bytes);
        self.line.push_back(Delivery { due_ns, band, bytes });
    }

    /// How long the link is busy with a packet, in nanoseconds.
    fn sending_ns(&self, length: usize) -> u64 {
        let bits = (length as u64 + u64::from(self.overhead_bytes)) * 8;
        self.path.rate_bits_per_s.map_or(0, |rate| bits * 1_000_000_000 / rate.max(1))
    }
}

fn cost(bytes: &[u8]) -> u64 {
    bytes.len() as u64 + PACKET_COST_BYTES
}

#[cfg(test)]
#[path = "pipe_tests.rs"]
mod tests;
