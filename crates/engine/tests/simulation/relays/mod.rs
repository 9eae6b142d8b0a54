//! Worlds with routes to applications, part of some seeds: clients that upload, read slowly, stall and leave;
//! applications that answer in pieces, misbehave, close and are silent; a gateway that refuses, is late or never answers,
//! and whose probes fail and succeed at random. Some clients have several requests on their way at once, on streams of one
//! connection.
//!
//! Properties, each with the prefix `relay`:
//!
//! - **answers**: the answer to a request is the one that an application made for it, byte by byte. One that is not
//!   complete can be told from a complete one.
//! - **errors**: an answer of Flash itself has a reason: 404, 500, 502, 503, 504, 408, 411, 413, 400.
//! - **cuts**: a connection is closed within or before an answer only if the application failed or was silent for too
//!   long, or the client itself is the reason.
//! - **requests**, **bodies**: an application gets whole requests, one after the other, and of each body exactly the
//!   bytes that its client has sent.
//! - **scripts**: an application that runs files of the site gets a request only if its script is one of them.
//! - **authorization**: a request about which a server is asked reaches an application only if that has agreed.
//! - **grants**: it gets the field that this server gives, whatever its client has sent.
//! - **questions**: that server gets nothing of a request but its fields.
//! - **repetition**: a request reaches a second application only if that does no harm, and the first one had ended a
//!   connection on which an earlier request was answered, without a word.
//! - **freedom**: an application that has answered is free, whatever its client has read: its connection is idle or closed.
//!   Checked by **bounds** and **waiting**, which count it as idle. Only streams and answers beyond the memory of one
//!   may hold it.
//! - **bounds**: no server has more connections than its bound, in the making or not, none has more idle ones, and no
//!   more requests wait than may.
//! - **shares**: no client has more than half of the connections of an upstream. One that has its share waits or gets 503.
//! - **waiting**: only requests of connected clients wait, and only while no server has room that is not left alone, or
//!   while their client has its share.
//! - **probes**: a server whose probe has failed gets no connection while another one of its upstream is in order.
//! - **pace**: no body that waits for nothing but its client is under way for longer than its lowest rate and its total time
//!   allow.
//! - **patience**: no request waits for longer than the deadlines allow.
//! - **idle**: an idle connection on which its application ends or says something is closed, and one that nobody has used
//!   for long.
//! - **promise**: a file in memory is sent in the turn of its request.
//! - **progress**: after all troubles each server can be used fully again.
//! - **room**: in the end the file for bodies takes no room, or little if its file system cannot make holes.
//! - **leaks**: in the end no connection, request, input or timer is left.

mod application;
mod checks;
mod disk;
mod framing;
mod gatekeeper;
mod judge;
mod lanes;
mod ledger;
mod plan;
mod script;
mod visitor;

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use flash_engine::limits::{LINK_IDLE_MS, LINK_LOOK_MS, SERVER_DOWN_MS, TICK_MS};
use flash_engine::{ServerId, UpstreamId};

use crate::machine::{Client, START_MS, World};
use crate::rng::Rng;
use application::Application;
use disk::Disk;
use gatekeeper::Gatekeeper;
use judge::Judge;
use ledger::{Ledger, Troubles, require};
use plan::Plan;
use script::Manners;
use visitor::Visitor;

/// The address that many clients share.
const CROWD: [u8; 4] = [192, 0, 2, 1];

/// Most requests that a client of several streams sends at once.
const STREAMS_MAX: u64 = 4;

/// One seed in this many has such a world.
pub(crate) const ONE_IN: u64 = 2;

/// The result of a request to the gateway for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Connects,
    /// The same, and the application says nothing, if the connection is to be encrypted.
    Silent,
    /// The same, and the application speaks clear text.
    Plain,
    Fails(i32),
    /// The gateway itself ends.
    Lost,
    Never,
}

/// A connection in the making.
#[derive(Clone, Copy, Debug)]
struct Asking {
    since_ms: u64,
    due_ms: u64,
    fate: Fate,
}

struct Relays {
    rng: Rng,
    world: World,
    plan: Plan,
    ledger: Ledger,
    judge: Judge,
    visitors: Vec<Visitor>,
    applications: Vec<Application>,
    gatekeepers: Vec<Gatekeeper>,
    asking: BTreeMap<u64, Asking>,
    disk: Disk,
    /// The servers whose probes have failed.
    down: BTreeSet<ServerId>,
    /// How many failures the engine has counted, and when everyone saw that number first.
    failures: (u64, u64),
    hot: Client,
    is_over: bool,
}

/// Runs the world of a seed. Returns the hash of its events and calls.
pub(crate) fn run(seed: u64, print: bool) -> u64 {
    let mut relays = Relays::new(Rng::new(seed ^ 0x7265_6c61_7973_0001));
    relays.world.machine.trace.print = print;
    for _ in 0..relays.plan.steps {
        relays.come();
        relays.step();
    }
    relays.settle();
    relays.probe();
    relays.end()
}

impl Relays {
    fn new(mut rng: Rng) -> Self {
        let plan = Plan::random(&mut rng);
        let rules = plan.rules(&mut rng);
        let judge = Judge {
            now_ms: START_MS,
            looked_ms: START_MS,
            head_ms: rules.timeouts.head_ms,
            idle_ms: rules.timeouts.idle_ms.min(rules.timeouts.head_ms),
            bodies: rules.bodies,
            upstreams: plan.upstreams().to_vec(),
            disk_ms: plan.jobs_max() * (rules.timeouts.job_ms + 200),
            job_ms: rules.timeouts.job_ms + 200,
            is_disk_fast: plan.is_disk_fast(),
            busy: Vec::new(),
            left: Vec::new(),
            blind_ms: plan.pace_ms.max(300),
            satisfied: std::cell::RefCell::default(),
        };
        let troubles = vec![Troubles::default(); rules.upstreams.len()];
        let ledger = Ledger { troubles, ..Ledger::default() };
        let mut world = World::with(rules);
        world.machine.encrypted = plan.encrypted_servers().collect();
        world.told = plan.told;
        world.machine.files.add("hot", plan::HOT);
        plan.add_scripts(&mut world.machine.files);
        world.get("/hot");
        let hot = world.connect();
        if plan.spool_slots > 0 {
            world.give_spool(plan.spool_slots);
        }
        // From here on the helpers work as the plan says.
        world.auto = false;
        world.machine.helpers.uninterruptible = true;
        world.machine.helpers.idle = plan.helpers;
        world.machine.helpers.has_no_holes = !plan.has_holes;
        let disk = Disk::with(plan.disk_troubles);
        Self {
            rng,
            world,
            plan,
            ledger,
            judge,
            visitors: Vec::new(),
            applications: Vec::new(),
            gatekeepers: Vec::new(),
            asking: BTreeMap::new(),
            disk,
            down: BTreeSet::new(),
            failures: (0, START_MS),
            hot,
            is_over: false,
        }
    }

    fn now_ms(&self) -> u64 {
        self.world.machine.now.monotonic_ms()
    }

    /// A new client comes, sometimes.
    fn come(&mut self) {
        if self.visitors.len() >= self.plan.visitors || !self.rng.chance(self.plan.comes) {
            return;
        }
        if self.rng.chance(self.plan.streams) {
            return self.come_with_streams();
        }
        let is_of_crowd = self.rng.chance(self.plan.crowd);
        self.world.only_address = is_of_crowd.then_some(CROWD.into());
        let client = self.world.connect();
        self.world.only_address = None;
        let mut visitor = self.plan.visitor(&mut self.rng, client, self.judge.now_ms);
        visitor.is_of_crowd = is_of_crowd;
        for _ in 0..self.plan.requests(&mut self.rng) {
            let ask = self.ledger.asks.len();
            let (asked, bytes) = self.plan.ask(&mut self.rng, ask);
            visitor.push(ask, &bytes);
            self.ledger.asks.push(asked);
        }
        self.visitors.push(visitor);
    }

    /// A client of several streams comes. All of them have the address of the crowd, because their requests are on their way
    /// at once.
    fn come_with_streams(&mut self) {
        self.world.only_address = Some(CROWD.into());
        let client = self.world.connect();
        self.world.only_address = None;
        for lane in lanes::lanes(&client, self.rng.between(1, STREAMS_MAX) as u16) {
            let ask = self.ledger.asks.len();
            let (asked, bytes) = self.plan.ask_on_stream(&mut self.rng, ask);
            let mut visitor = Visitor::new(client.clone(), self.judge.now_ms);
            (visitor.is_of_crowd, visitor.lane) = (true, Some(lane));
            visitor.push(ask, &bytes);
            self.ledger.asks.push(asked);
            self.visitors.push(visitor);
        }
    }

    /// Everyone acts, then time passes.
    fn step(&mut self) {
        for _ in 0..self.rng.between(1, 3) {
            self.act();
            if self.rng.chance(60) {
                self.turn();
            }
        }
        self.rest();
        let long = self.rng.chance(self.plan.long_steps);
        let ms = if long { self.rng.below(300) } else { self.rng.below(self.plan.pace_ms) };
        self.world.advance(ms);
        self.look();
        self.check_at_rest();
    }

    fn act(&mut self) {
        let now_ms = self.now_ms();
        self.judge.now_ms = now_ms;
        self.answer_for_gateway();
        for visitor in &mut self.visitors {
            visitor.send(&mut self.ledger, now_ms);
            if let (Some(room), false) = (visitor.reads_bytes, visitor.is_over) {
                visitor.client.add_room(room);
            }
            if now_ms >= visitor.leaves_ms && !visitor.is_over && !visitor.ended {
                visitor.leave(self.rng.chance(70));
            }
        }
        for application in &mut self.applications {
            if application.is_mute() || application.lacks_record() {
                self.ledger.troubles[usize::from(application.server.upstream.0)].late_ms = now_ms;
            }
            application.act(&mut self.rng, &mut self.ledger, now_ms);
        }
        for gatekeeper in &mut self.gatekeepers {
            gatekeeper.act(&mut self.ledger);
        }
        if self.rng.chance(self.plan.probes) {
            self.report_probe();
        }
        if self.rng.chance(20) {
            self.ask_for_file();
        }
    }

    /// The gateway reports a probe of some server, often one that changes nothing.
    fn report_probe(&mut self) {
        let upstream = self.rng.place(self.judge.upstreams.len());
        let server = self.rng.place(self.judge.upstreams[upstream].servers.len()) as u16;
        let is_up = self.rng.chance(50);
        self.probed(ServerId { upstream: UpstreamId(upstream as u16), server }, is_up);
    }

    fn probed(&mut self, server: ServerId, is_up: bool) {
        // The connections asked for until now were chosen without this report.
        self.note_asked();
        if is_up {
            self.down.remove(&server);
        } else {
            self.down.insert(server);
        }
        self.world.engine.handle_probed(&mut self.world.machine, server, is_up);
        self.note_asked();
    }

    /// Runs one turn of the loop, and everyone looks at its result.
    fn turn(&mut self) {
        self.count_busy();
        self.world.links_first = self.rng.chance(50);
        self.world.turn();
        self.look();
    }

    /// Runs turns until nothing is left to do now.
    fn rest(&mut self) {
        let mut turns = 0;
        while self.tend_helpers() || self.world.is_busy() {
            self.turn();
            turns += 1;
            require(turns < 5_000, "progress", || "endless turns in which nothing happens".into());
        }
        self.count_busy();
    }

    fn count_busy(&mut self) {
        let mut left = vec![0; self.judge.upstreams.len()];
        self.judge.busy = left.clone();
        // A client can have a request after the one that is answered in this turn.
        let mut served = Vec::new();
        for visitor in &self.visitors {
            let asks: Vec<usize> = visitor.begun().map(|pending| pending.ask).collect();
            for (upstream, busy) in self.judge.busy.iter_mut().enumerate() {
                *busy += usize::from(asks.iter().any(|ask| self.ledger.asks[*ask].upstream == upstream));
            }
            served.extend(asks);
        }
        // An answer can be complete for its client before it is for its application.
        for application in &self.applications {
            let is_busy = application.ask().is_some_and(|ask| !served.contains(&ask));
            left[usize::from(application.server.upstream.0)] += usize::from(is_busy);
        }
        for (_, server) in self.world.machine.asked.iter().filter(|(_, it)| !self.plan.is_gatekeeper(*it)) {
            left[usize::from(server.upstream.0)] += 1;
        }
        self.judge.busy.iter_mut().zip(&left).for_each(|(busy, left)| *busy += left);
        self.judge.left = left;
    }

    /// Every client reads, and the bounds are checked.
    fn look(&mut self) {
        self.judge.now_ms = self.now_ms();
        for application in &mut self.applications {
            application.read(&mut self.rng, &mut self.ledger, (self.judge.looked_ms, self.judge.now_ms));
        }
        self.note_asked();
        for visitor in &mut self.visitors {
            visitor.read(&mut self.ledger, &self.judge);
        }
        self.judge.looked_ms = self.judge.now_ms;
        self.applications.retain(|application| !application.end.is_closed());
        self.gatekeepers.retain(|gatekeeper| !gatekeeper.end.is_closed());
        let failures = self.world.engine.counters().links.failures;
        if failures != self.failures.0 {
            self.failures = (failures, self.judge.now_ms);
        }
        self.check_bounds();
    }

    /// A file in memory is sent in the turn of its request, whatever the applications do.
    fn ask_for_file(&mut self) {
        if self.hot.is_ended() {
            self.hot = self.world.connect();
        }
        self.hot.get("/hot");
        self.turn();
        let answer = self.hot.take_bytes();
        require(answer.ends_with(plan::HOT.as_bytes()), "promise", || {
            format!("not the file: {}", answer.escape_ascii())
        });
    }

    /// The gateway makes connections, or fails.
    fn answer_for_gateway(&mut self) {
        let now_ms = self.now_ms();
        let asked = self.world.machine.asked.clone();
        for (key, server) in asked {
            if self.plan.is_gatekeeper(server) {
                let place = self.world.machine.asked.iter().position(|(other, _)| *other == key);
                self.gatekeepers.extend(place.map(|place| Gatekeeper::new(self.world.link_at(place))));
                continue;
            }
            let upstream = usize::from(server.upstream.0);
            let Some(asking) = self.asking.get(&key.to_u64()).copied() else { continue };
            if asking.due_ms > now_ms {
                continue;
            }
            let asked = &self.world.machine.asked;
            let Some(place) = asked.iter().position(|(other, _)| *other == key) else { continue };
            let troubles = &mut self.ledger.troubles[upstream];
            match asking.fate {
                Fate::Never => continue,
                Fate::Silent | Fate::Plain if self.world.machine.encrypted.contains(&server) => {
                    let end = self.world.link_through(place, false);
                    if asking.fate == Fate::Plain {
                        troubles.broken_ms = now_ms;
                        end.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
                    }
                    let application = self.plan.application(&mut self.rng, end, server);
                    self.applications.push(application.mute());
                }
                Fate::Connects | Fate::Silent | Fate::Plain => {
                    let end = self.world.link_at(place);
                    let application = self.plan.application(&mut self.rng, end, server);
                    self.applications.push(application);
                }
                Fate::Fails(number) => {
                    let is_late = number == plan::TIMED_OUT;
                    *(if is_late { &mut troubles.late_ms } else { &mut troubles.broken_ms }) = now_ms;
                    self.world.refuse_link_at(place, &io::Error::from_raw_os_error(number));
                }
                Fate::Lost => {
                    troubles.own_ms = now_ms;
                    self.world.refuse_link_at(place, &io::Error::other("the gateway has ended"));
                }
            }
            self.asking.remove(&key.to_u64());
        }
    }

    /// Decides what becomes of new requests for connections, and records which connections were not made in time.
    fn note_asked(&mut self) {
        let now_ms = self.now_ms();
        let has_failed = self.world.engine.counters().links.failures > 0;
        for (key, server) in self.world.machine.asked.iter().filter(|(_, it)| !self.plan.is_gatekeeper(*it)) {
            let upstream = usize::from(server.upstream.0);
            let others = self.judge.upstreams[upstream].servers.len();
            let is_new = !self.asking.contains_key(&key.to_u64());
            // Failures too leave servers alone.
            if is_new && !has_failed && self.down.contains(server) {
                let of_upstream = self.down.iter().filter(|other| other.upstream == server.upstream);
                require(of_upstream.count() == others, "probes", || {
                    format!("{server:?} is asked for a connection, and of {others} {:?} are down", self.down)
                });
            }
            let asking = self.asking.entry(key.to_u64()).or_insert_with(|| {
                // It was made since everyone looked last.
                let asking = self.plan.connect(&mut self.rng, upstream, now_ms, self.is_over);
                Asking { since_ms: self.judge.looked_ms, ..asking }
            });
            // The deadlines have the resolution of a tick.
            if now_ms + 2 * TICK_MS >= asking.since_ms + self.judge.upstreams[upstream].connect_ms {
                self.ledger.troubles[upstream].late_ms = now_ms;
            }
        }
    }
}

impl Relays {
    /// The troubles end, and every client is answered.
    fn settle(&mut self) {
        self.is_over = true;
        let now_ms = self.now_ms();
        self.plan.manners.fill(Manners::GOOD);
        // Some deadlines are long.
        self.plan.pace_ms = 120;
        self.plan.probes = 0;
        for server in self.down.clone() {
            self.probed(server, true);
        }
        for asking in self.asking.values_mut() {
            asking.due_ms = now_ms;
            asking.fate = match asking.fate {
                Fate::Never => Fate::Fails(plan::TIMED_OUT),
                Fate::Silent | Fate::Plain => Fate::Connects,
                fate => fate,
            };
        }
        for application in &mut self.applications {
            application.mend();
        }
        for visitor in &mut self.visitors {
            (visitor.piece_bytes, visitor.gap_ms, visitor.leaves_ms) = (usize::MAX, 0, u64::MAX);
            if visitor.reads_bytes.take().is_some() {
                visitor.client.set_room(usize::MAX);
            }
        }
        self.go_on_while("are not answered", |visitor| visitor.waits().is_some());
        for visitor in &mut self.visitors {
            if !visitor.is_over {
                visitor.leave(true);
            }
        }
        // Not every mechanism reports that a client has left.
        self.go_on_while("are not closed", |visitor| !visitor.client.is_closed());
        self.probe_idle();
        self.world.advance(SERVER_DOWN_MS);
        self.look();
    }

    fn go_on_while(&mut self, what: &str, holds: impl Fn(&Visitor) -> bool) {
        let mut steps = 0;
        while self.visitors.iter().any(&holds) {
            self.step();
            steps += 1;
            require(steps < 2_000, "progress", || {
                let left = self.visitors.iter().filter(|visitor| holds(visitor));
                let left = left.map(|visitor| visitor.begun().map(|pending| pending.ask).collect());
                format!("requests {:?} {what}", left.collect::<Vec<Vec<usize>>>())
            });
        }
    }

    /// An answer that no request has asked for closes an idle connection.
    fn probe_idle(&mut self) {
        self.act();
        self.rest();
        let Some(application) = self.applications.iter().find(|application| application.is_idle()) else {
            return;
        };
        let end = application.end.clone();
        end.send("HTTP/1.1 200 OK\r\nX-Attempt: 999999\r\nContent-Length: 0\r\n\r\n");
        self.rest();
        require(end.is_closed(), "idle", || "a connection with an unasked answer stays".into());
    }

    /// As many requests as the servers can take at once are answered without waiting.
    fn probe(&mut self) {
        // The applications are fast.
        (self.plan.pace_ms, self.plan.long_steps) = (5, 0);
        let queued = self.world.engine.counters().links.queued;
        for upstream in 0..self.judge.upstreams.len() {
            let rules = &self.judge.upstreams[upstream];
            for _ in 0..rules.connections_max * rules.servers.len() {
                let client = self.world.connect();
                let mut visitor = Visitor::new(client, self.judge.now_ms);
                let ask = self.ledger.asks.len();
                let (asked, bytes) = self.plan.simple(upstream, ask);
                visitor.push(ask, &bytes);
                self.ledger.asks.push(asked);
                self.visitors.push(visitor);
            }
        }
        for visitor in &mut self.visitors {
            visitor.send(&mut self.ledger, self.judge.now_ms);
        }
        self.rest();
        let now_queued = self.world.engine.counters().links.queued;
        require(now_queued == queued, "progress", || {
            let links = self.links();
            format!("{} requests wait although all servers are free: {links:?}", now_queued - queued)
        });
        let answered: u64 = self.visitors.iter().map(|visitor| visitor.satisfied).sum();
        let asked = self.visitors.iter().filter(|visitor| visitor.waits().is_some()).count() as u64;
        for _ in 0..1_000 {
            if self.visitors.iter().all(|visitor| visitor.waits().is_none()) {
                break;
            }
            self.step();
        }
        let now_answered: u64 = self.visitors.iter().map(|visitor| visitor.satisfied).sum();
        require(now_answered - answered == asked, "progress", || {
            format!("{} of {asked} requests were answered after all troubles", now_answered - answered)
        });
    }

    /// Everyone leaves, and nothing is left.
    fn end(mut self) -> u64 {
        for visitor in &mut self.visitors {
            if !visitor.is_over {
                visitor.leave(true);
            }
        }
        self.hot.reset();
        self.rest();
        self.world.advance(LINK_IDLE_MS + LINK_LOOK_MS);
        self.look();
        require(self.applications.is_empty() && self.gatekeepers.is_empty(), "idle", || {
            "connections stay idle for ever".into()
        });
        for application in &self.applications {
            application.end.reset();
        }
        self.rest();
        // Nobody waits for what a helper that hangs does.
        self.world.advance(self.plan.job_ms);
        self.rest();
        self.check_room();
        self.world.end();
        let counters = self.world.engine.counters();
        let left = (counters.exchanges, counters.input_bytes, counters.links.waiting, counters.connections);
        require(left == (0, 0, 0, 0), "leaks", || {
            format!("exchanges, input, requests in queues and connections: {left:?}")
        });
        let left = (counters.bodies, counters.spool_slots, counters.jobs_running, counters.jobs_given_up);
        require(left == (0, 0, 0, 0), "leaks", || {
            format!("bodies, slots of their file, jobs that run and that were given up: {left:?}")
        });
        require(self.world.engine.is_drained(), "leaks", || "the engine is not drained".into());
        self.world.machine.trace.hash()
    }
}
