//! Worlds with an uplink of known rate that has more to send than it can: clients that request one file after
//! the other, small and large, read fast or slowly, and leave. Part of some seeds.
//!
//! Other workers use the uplink from time to time.
//!
//! - **uplink rate**: the engine never sends more than its part of the payload rate and one burst.
//! - **uplink work**: while connections wait for it, the uplink is not idle.
//! - **uplink starvation**: no connection waits for its turn much longer than the bound of a long wait,
//!   whatever the others have left.
//! - **uplink places**: only open connections wait.
//! - **uplink answers**: each answer has every byte of its file, in order, and all clients are answered in the
//!   end.

use flash_engine::limits::{
    EGRESS_AGED_MS, EGRESS_AGED_ONE_IN, EGRESS_BURST_BYTES_MIN, EGRESS_BURST_MS,
    EGRESS_PACKET_OVERHEAD_BYTES, EGRESS_PACKET_PAYLOAD_BYTES, EGRESS_RATE_PERCENT,
};
use flash_engine::{EgressRules, Optimizations, Rules};

use crate::machine::{Client, Content, KIB, World, rules};
use crate::plan;
use crate::rng::Rng;

/// One seed in this many has such a world.
pub(crate) const ONE_IN: u64 = 4;
/// How long clients make requests.
const BUSY_MS: u64 = 2_500;
/// A head of an answer is shorter than this; it may exceed the grant of its send.
const HEAD_BYTES_MAX: u64 = 1_024;

/// A client, and the file that it waits for.
struct Visitor {
    client: Client,
    file: Option<usize>,
    /// When it makes its next request.
    next_ms: u64,
    /// How much it reads per millisecond, if it is slow.
    reads_bytes: Option<usize>,
    /// It requests large files only.
    is_large: bool,
}

struct Uplink {
    rng: Rng,
    world: World,
    /// Payload in bytes per second, if all packets are full and all workers use the uplink.
    bytes_per_s: u64,
    workers: u32,
    /// The payload, in thousandths of bytes, of its part of the rate until now.
    part_milli: u64,
    /// The burst of a worker that is alone.
    burst_bytes: u64,
    files: Vec<Content>,
    visitors: Vec<Visitor>,
    begun_ms: u64,
    sent_at_begin: u64,
    /// When the uplink was last seen without waiting connections, with the bytes sent then and the payload of its part.
    busy_since: (u64, u64, u64),
}

/// Whether a client has received a head and a body of this length.
fn has_whole_answer(client: &Client, body_bytes: u64) -> bool {
    if client.received_len() as u64 <= body_bytes {
        return false;
    }
    let received = client.received();
    let head = received.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    head.is_some_and(|at| received.len() as u64 >= at as u64 + 4 + body_bytes)
}

/// Fails with the property's name.
fn require(holds: bool, property: &str, what: impl FnOnce() -> String) {
    assert!(holds, "property: uplink {property}: {}", what());
}

/// Runs the world of a seed. Returns the hash of its events and calls.
pub(crate) fn run(seed: u64) -> u64 {
    let mut uplink = Uplink::new(Rng::new(seed ^ 0x7570_6c69_6e6b_0001));
    while uplink.elapsed_ms() < BUSY_MS {
        uplink.pass(true);
    }
    // At the end each client waits for one answer at most.
    let most_bytes: u64 =
        uplink.visitors.iter().filter_map(|visitor| visitor.file).map(|file| uplink.len(file)).sum();
    let end_ms = uplink.elapsed_ms() + most_bytes * 2_000 / uplink.bytes_per_s + 30_000;
    while uplink.visitors.iter().any(|visitor| visitor.file.is_some()) {
        uplink.pass(false);
        require(uplink.elapsed_ms() < end_ms, "answers", || "a client waits for ever".into());
    }
    let Uplink { mut world, .. } = uplink;
    world.end();
    require(world.engine.counters().egress_waiting == 0, "places", || "a closed connection waits".into());
    world.machine.trace.hash()
}

impl Uplink {
    fn new(mut rng: Rng) -> Self {
        // The part of this worker, if the others are as busy.
        let link = rng.pick(&[2_000_000, 4_000_000]);
        let workers = rng.pick(&[1, 1, 3]);
        let rules = Rules {
            egress: Some(EgressRules { bytes_per_s: link * u64::from(workers), workers }),
            policy: plan::policy(&mut rng),
            optimizations: Optimizations { send_file: rng.chance(30), ..Optimizations::default() },
            // A slow reader is not this world's subject.
            least_rate_bytes_per_s: 0,
            ..rules()
        };
        let mut world = World::with(rules);
        world.machine.others_at_uplink = workers - 1;
        let sizes = [
            rng.between(1, 3_000),
            rng.between(3_000, 40_000),
            60_000,
            200 * KIB,
            rng.between(600, 2_000) * KIB,
        ];
        let files: Vec<Content> =
            (0..).zip(sizes).map(|(seed, bytes)| Content::Pattern(seed, bytes)).collect();
        for (number, content) in files.iter().enumerate() {
            world.machine.files.add(&format!("f{number}"), content.clone());
        }
        let packet_bytes = EGRESS_PACKET_PAYLOAD_BYTES + EGRESS_PACKET_OVERHEAD_BYTES;
        let bytes_per_s = link * EGRESS_RATE_PERCENT / 100 * EGRESS_PACKET_PAYLOAD_BYTES / packet_bytes;
        let mut uplink = Self {
            world,
            bytes_per_s,
            workers,
            part_milli: 0,
            burst_bytes: (bytes_per_s * u64::from(workers) * EGRESS_BURST_MS / 1_000)
                .max(EGRESS_BURST_BYTES_MIN),
            files,
            visitors: Vec::new(),
            begun_ms: 0,
            sent_at_begin: 0,
            busy_since: (0, 0, 0),
            rng,
        };
        for number in 0..uplink.rng.between(3, 9) {
            let visitor = uplink.visitor(number == 0);
            uplink.visitors.push(visitor);
        }
        uplink.begun_ms = uplink.world.elapsed_ms();
        uplink
    }

    fn visitor(&mut self, is_large: bool) -> Visitor {
        let reads_bytes = self.rng.chance(20).then(|| self.rng.between(500, 20_000) as usize);
        let client = self.world.connect();
        if reads_bytes.is_some() {
            client.set_room(0);
        }
        let next_ms = self.elapsed_ms() + self.rng.below(20);
        Visitor { client, file: None, next_ms, reads_bytes, is_large }
    }

    fn len(&self, file: usize) -> u64 {
        self.files[file].len()
    }

    fn elapsed_ms(&self) -> u64 {
        self.world.elapsed_ms() - self.begun_ms
    }

    /// Lets a millisecond pass and everything happen that it brings.
    fn pass(&mut self, asks: bool) {
        let all = self.bytes_per_s * u64::from(self.workers);
        let before = self.world.machine.others_at_uplink;
        if self.rng.below(100) == 0 {
            self.world.machine.others_at_uplink = self.rng.below(self.workers.into()) as u32;
        }
        // It learns of a change at the end of its turn.
        let fewest = before.min(self.world.machine.others_at_uplink);
        self.part_milli += all / u64::from(fewest + 1);
        self.world.pass(1);
        for at in 0..self.visitors.len() {
            self.visit(at, asks);
        }
        self.world.run();
        self.check();
    }

    /// Lets one client read, ask or leave, as it does in a millisecond.
    fn visit(&mut self, at: usize, asks: bool) {
        let (now_ms, rng) = (self.world.elapsed_ms() - self.begun_ms, &mut self.rng);
        let visitor = &mut self.visitors[at];
        if let Some(bytes) = visitor.reads_bytes {
            visitor.client.set_room(bytes);
        }
        if let Some(file) = visitor.file {
            if has_whole_answer(&visitor.client, self.files[file].len()) {
                let response = visitor.client.take_one();
                let is_whole = response.status == 200 && response.body == self.files[file].whole();
                require(is_whole, "answers", || format!("a wrong answer for f{file}: {}", response.status));
                visitor.file = None;
                visitor.next_ms = now_ms + if visitor.is_large { 0 } else { rng.below(3) };
            } else if asks && rng.below(400) == 0 {
                visitor.client.reset();
                let is_large = visitor.is_large;
                self.visitors[at] = self.visitor(is_large);
            }
        } else if asks && now_ms >= visitor.next_ms {
            let file = if visitor.is_large { 4 } else { rng.pick(&[0, 1, 1, 2, 2, 2, 3]) };
            visitor.client.get(&format!("/f{file}"));
            visitor.file = Some(file);
        }
    }

    fn check(&mut self) {
        let (now_ms, sent) = (self.elapsed_ms(), self.world.machine.calls.sent_bytes);
        let counters = self.world.engine.counters();
        let may_bytes = self.burst_bytes + self.part_milli / 1_000 + HEAD_BYTES_MAX;
        require(sent - self.sent_at_begin <= may_bytes, "rate", || {
            format!("{sent} bytes in {now_ms} ms, of {may_bytes}")
        });
        require(counters.egress_waiting <= counters.connections, "places", || {
            format!("{} places of {} connections", counters.egress_waiting, counters.connections)
        });
        let grant_ms = self.burst_bytes * 1_000 / self.bytes_per_s + 1;
        let turns = self.visitors.len() as u64 * u64::from(EGRESS_AGED_ONE_IN);
        let most_ms = EGRESS_AGED_MS + (turns + 1) * grant_ms;
        require(counters.egress_wait_ms <= most_ms, "starvation", || {
            format!("a connection has waited {} ms, of {most_ms} ms", counters.egress_wait_ms)
        });
        if counters.egress_waiting == 0 {
            self.busy_since = (now_ms, sent, self.part_milli);
        }
        let (since_ms, sent_then, part_then) = self.busy_since;
        if now_ms >= since_ms + 100 {
            // Small answers do not fill their packets.
            let least = (self.part_milli - part_then) / 1_000 * 6 / 10;
            require(sent - sent_then >= least, "work", || {
                format!("only {} bytes in {} ms", sent - sent_then, now_ms - since_ms)
            });
            self.busy_since = (now_ms, sent, self.part_milli);
        }
    }
}
