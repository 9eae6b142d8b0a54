//! Worlds with more connections than there is room for, part of some seeds.
//!
//! The first kind has clients of a few addresses that connect, begin requests, stay idle and leave, at an engine
//! with small bounds. A model, which knows only the clients, decides what must happen to each newcomer:
//!
//! - **admission share**: no client has more connections than its share, unless it is exempt.
//! - **admission limit**: there are never more connections than the limit.
//! - **admission room**: a newcomer is admitted if there is room, or if an idle connection can make room: one of its
//!   own if its client has its share, else any. Exactly one idle connection is closed for it, the one that has been
//!   idle longest to a tick of the timers; a busy connection or a newcomer in its grace never is.
//! - **admission refusal**: a refusal has the right reason, and changes nothing.
//! - **admission leaks**: clients without connections are forgotten.
//!
//! The second kind is a worker's loop with an accept queue and a cost for each action, at a multiple of its capacity:
//!
//! - **overload calm**: nobody is refused before the queue has stood for the bound.
//! - **overload shed**: newcomers are refused while the queue has stood for longer, a few in each turn, and some are
//!   admitted.
//! - **overload goodput**: answers per time are at least nine tenths of those without overload.

use flash_engine::limits::{
    ACCEPTS_IN_OVERLOAD_MAX, ACCEPTS_PER_TURN_MAX, NEWCOMER_GRACE_MS, REFUSALS_PER_TURN_MAX, TICK_MS,
};
use flash_engine::{AcceptBatch, AcceptQueue, AdmissionRules, Rules, WhyRefused};

use crate::machine::{Client, World, rules};
use crate::rng::Rng;

/// One seed in this many has such worlds.
pub(crate) const ONE_IN: u64 = 4;
const STEPS: usize = 120;

/// Fails with the property's name.
fn require(holds: bool, property: &str, what: impl FnOnce() -> String) {
    assert!(holds, "property: {property}: {}", what());
}

/// A client's connection, as its client sees it.
struct Visitor {
    client: Client,
    address: u8,
    /// Since when it has been idle, for a newcomer after its grace; None while a request is under way.
    idle_since_ms: Option<u64>,
}

struct Newcomers {
    rng: Rng,
    world: World,
    rules: AdmissionRules,
    visitors: Vec<Visitor>,
    refused: [u64; WhyRefused::ALL.len()],
}

/// The last address is exempt.
const EXEMPT: u8 = 4;

/// Runs the worlds of a seed. Returns the hash of the first one's events and calls.
pub(crate) fn run(seed: u64) -> u64 {
    overload(&mut Rng::new(seed ^ 0x6f76_6572_0001));
    let mut newcomers = Newcomers::new(Rng::new(seed ^ 0x6e65_7763_6f6d_0001));
    for _ in 0..STEPS {
        newcomers.step();
    }
    for visitor in &newcomers.visitors {
        visitor.client.reset();
    }
    let mut world = newcomers.world;
    world.run();
    let left = world.engine.counters();
    require((left.connections, left.clients) == (0, 0), "admission leaks", || {
        format!("{} connections and {} clients are left", left.connections, left.clients)
    });
    world.end();
    world.machine.trace.hash()
}

impl Newcomers {
    fn new(mut rng: Rng) -> Self {
        let admission = AdmissionRules {
            connections_max: rng.between(3, 12) as usize,
            client_connections_max: rng.between(1, 5) as usize,
            exempt: vec![format!("10.0.0.{EXEMPT}").parse().expect("a network")],
        };
        let mut world = World::with(Rules { admission: admission.clone(), ..rules() });
        world.machine.files.add("a", "x");
        world.get("/a");
        Self { rng, world, rules: admission, visitors: Vec::new(), refused: Default::default() }
    }

    fn step(&mut self) {
        match self.rng.below(10) {
            0..=4 => self.come(),
            5 | 6 => self.ask(),
            7 => self.leave(),
            _ => {
                // Idle times differ by more than the resolution of the timers.
                let ms = 3 * TICK_MS + self.rng.below(500);
                self.world.advance(ms);
            }
        }
        self.world.run();
        self.forget_closed();
        self.check();
    }

    /// Connections that the server closed at a deadline.
    fn forget_closed(&mut self) {
        self.visitors.retain(|visitor| !visitor.client.is_closed());
    }

    fn held(&self, address: u8) -> usize {
        self.visitors.iter().filter(|visitor| visitor.address == address).count()
    }

    /// The connections that may make room for a newcomer of this address, if it needs any; and the reason to refuse
    /// it otherwise.
    fn expected(&self, address: u8) -> Option<(Vec<usize>, WhyRefused)> {
        let at_share = address != EXEMPT && self.held(address) >= self.rules.client_connections_max;
        let why = match (at_share, self.visitors.len() >= self.rules.connections_max) {
            (true, _) => WhyRefused::Client,
            (false, true) => WhyRefused::Connections,
            (false, false) => return None,
        };
        let candidates = self.visitors.iter().enumerate();
        let idle = candidates.filter_map(|(at, visitor)| Some((at, visitor.idle_since_ms?, visitor.address)));
        let now_ms = self.world.elapsed_ms();
        let theirs: Vec<(usize, u64)> = idle
            .filter(|(_, since_ms, of)| *since_ms <= now_ms && (!at_share || *of == address))
            .map(|(at, since_ms, _)| (at, since_ms))
            .collect();
        let oldest_ms = theirs.iter().map(|(_, since_ms)| *since_ms).min().unwrap_or(0);
        let oldest = theirs.iter().filter(|(_, since_ms)| *since_ms <= oldest_ms + TICK_MS);
        Some((oldest.map(|(at, _)| *at).collect(), why))
    }

    fn come(&mut self) {
        let address = 1 + self.rng.below(u64::from(EXEMPT)) as u8;
        let expected = self.expected(address);
        self.world.only_address = Some([10, 0, 0, address].into());
        let before = self.world.engine.counters();
        let taken = self.world.try_connect_or_why();
        let closed: Vec<usize> =
            (0..self.visitors.len()).filter(|at| self.visitors[*at].client.is_closed()).collect();
        let evicted = self.world.engine.counters().evicted - before.evicted;
        require(closed.len() as u64 == evicted, "admission room", || {
            format!("{} connections were closed, {evicted} counted", closed.len())
        });
        match (&taken, &expected) {
            (Ok(_), None) => {
                require(closed.is_empty(), "admission room", || format!("{closed:?} were closed for nobody"));
            }
            (Ok(_), Some((idle, _))) => {
                require(closed.len() == 1 && idle.contains(&closed[0]), "admission room", || {
                    format!("{closed:?} were closed for a client of {address}, not one of {idle:?}")
                });
            }
            (Err(why), Some((idle, expected))) => {
                require(why == expected && closed.is_empty(), "admission refusal", || {
                    format!("refused for {why:?} instead of {expected:?}; {closed:?} were closed")
                });
                require(idle.is_empty(), "admission room", || {
                    format!("refused for {why:?} although {idle:?} are idle")
                });
                self.refused[*why as usize] += 1;
            }
            (Err(why), None) => {
                require(false, "admission room", || format!("refused for {why:?} although there is room"));
            }
        }
        self.forget_closed();
        if let Ok(client) = taken {
            let idle_since_ms = Some(self.world.elapsed_ms() + NEWCOMER_GRACE_MS);
            self.visitors.push(Visitor { client, address, idle_since_ms });
        }
    }

    /// A client begins a request, or completes it.
    fn ask(&mut self) {
        if self.visitors.is_empty() {
            return;
        }
        let at = self.rng.place(self.visitors.len());
        if self.visitors[at].client.received_len() > 0 {
            // The request took too long: it was answered, and the connection is being closed.
            let answer = self.visitors.swap_remove(at).client;
            require(answer.take_one().status == 408, "admission answers", || {
                "an answer to no request".into()
            });
            return answer.reset();
        }
        if self.visitors[at].idle_since_ms.take().is_some() {
            self.visitors[at].client.send("GET /a HTTP/1.1\r\n");
            self.world.run();
            return;
        }
        self.visitors[at].client.send("Host: h\r\n\r\n");
        self.world.run();
        if !self.visitors[at].client.is_closed() {
            let answer = self.visitors[at].client.take_one();
            require(answer.status == 200, "admission answers", || format!("{} for a hit", answer.status));
            self.visitors[at].idle_since_ms = Some(self.world.elapsed_ms());
        }
    }

    fn leave(&mut self) {
        if !self.visitors.is_empty() {
            let at = self.rng.place(self.visitors.len());
            self.visitors.swap_remove(at).client.reset();
        }
    }

    fn check(&self) {
        let counters = self.world.engine.counters();
        require(counters.connections <= self.rules.connections_max, "admission limit", || {
            format!("{} connections, of {}", counters.connections, self.rules.connections_max)
        });
        let addresses: Vec<u8> = (1..=EXEMPT).filter(|address| self.held(*address) > 0).collect();
        for address in addresses.iter().filter(|address| **address != EXEMPT) {
            let held = self.held(*address);
            require(held <= self.rules.client_connections_max, "admission share", || {
                format!("client {address} has {held} connections, of {}", self.rules.client_connections_max)
            });
        }
        require(counters.clients == addresses.len(), "admission leaks", || {
            format!("{} clients are known, {} have connections", counters.clients, addresses.len())
        });
    }
}

/// A worker's loop in microseconds of its work. Every connection has one request, which is answered in the turn after
/// its accept.
struct Loop {
    queue: AcceptQueue,
    waiting: u64,
    served: u64,
    refused: u64,
    now_us: u64,
    /// When the queue was last empty, as the world knows it.
    empty_us: u64,
}

/// The microseconds of an answer, with the accept and the close.
const ANSWER_US: u64 = 40;
/// The microseconds of a refusal.
const REFUSAL_US: u64 = 20;
/// The length of the kernel's queue.
const BACKLOG: u64 = 4096;

fn overload(rng: &mut Rng) {
    let bound_ms = rng.between(50, 2_000);
    let capacity_per_s = 1_000_000 / ANSWER_US;
    let percent = rng.pick(&[50, 90, 120, 300, 1_000]);
    let mut events =
        Loop { queue: AcceptQueue::new(bound_ms), waiting: 0, served: 0, refused: 0, now_us: 0, empty_us: 0 };
    let end_us = 6_000_000;
    let mut come = 0;
    while events.now_us < end_us {
        let due = events.now_us * capacity_per_s * percent / 100 / 1_000_000;
        // A burst now and then is no overload.
        let burst = if rng.below(2_000) == 0 { rng.below(1_000) } else { 0 };
        events.waiting = (events.waiting + due - come + burst).min(BACKLOG);
        come = due;
        events.turn(bound_ms, rng.chance(20));
    }
    let of_capacity = events.served * 100 / (capacity_per_s * end_us / 1_000_000);
    require(of_capacity * 10 >= percent.min(100) * 9, "overload goodput", || {
        format!("{of_capacity} % of the capacity was answered at a load of {percent} %")
    });
    require(percent < 300 || events.refused > 0, "overload shed", || {
        format!("nobody was refused at {percent} %")
    });
}

impl Loop {
    /// A turn, with many events of connections in service if `is_full`.
    fn turn(&mut self, bound_ms: u64, is_full: bool) {
        let now_ms = self.now_us / 1_000;
        if self.waiting == 0 {
            self.empty_us = self.now_us;
            self.queue.handle_turn_end(false);
            self.now_us += 100;
            return;
        }
        let AcceptBatch { admitted_max, refused_max } = self.queue.poll_batch(now_ms, is_full);
        let stood_ms = (self.now_us - self.empty_us) / 1_000;
        require(refused_max == 0 || stood_ms >= bound_ms, "overload calm", || {
            format!("newcomers are refused after {stood_ms} ms, of {bound_ms} ms")
        });
        // The queue is known to stand only since the end of a batch.
        require(refused_max > 0 || stood_ms <= bound_ms + 10, "overload shed", || {
            format!("nobody is refused after {stood_ms} ms, of {bound_ms} ms")
        });
        require(refused_max <= REFUSALS_PER_TURN_MAX, "overload shed", || {
            format!("{refused_max} are refused at once")
        });
        require(
            (ACCEPTS_IN_OVERLOAD_MAX..=ACCEPTS_PER_TURN_MAX).contains(&admitted_max),
            "overload shed",
            || format!("{admitted_max} are admitted at once"),
        );
        let admitted = self.waiting.min(admitted_max as u64);
        let refused = (self.waiting - admitted).min(refused_max as u64);
        self.waiting -= admitted + refused;
        let has_emptied = admitted + refused < (admitted_max + refused_max) as u64;
        self.queue.handle_batch(now_ms, has_emptied);
        self.queue.handle_turn_end(is_full);
        self.served += admitted;
        self.refused += refused;
        self.now_us += admitted * ANSWER_US + refused * REFUSAL_US;
        if is_full {
            // Connections in service are answered meanwhile.
            let in_service = (ACCEPTS_PER_TURN_MAX as u64).saturating_sub(admitted);
            self.served += in_service;
            self.now_us += in_service * ANSWER_US;
        }
        if has_emptied {
            self.empty_us = self.now_us;
        }
    }
}
