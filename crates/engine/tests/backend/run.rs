//! A run: the loop of the worker, its helpers, the threads that close files, and time.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::hash::Hasher;
use std::ops::ControlFlow;

use flash_engine::backend::protocol::{Request, decode};
use flash_engine::backend::warm;
use flash_engine::backend::{Backend, ClientFile, HELLO_MS, Residency, SHARES_MAX, UNGREETED_MAX};
use flash_engine::{FileId, FileKind, FileRange, JobId, Key, Outcome, SiteId};

use crate::client::{self, Ask, Client, GroupName, Message, Stage, name};
use crate::disk::{Ending, Handle, Ledger, Memory, Subject, Topic};
use crate::oracle::{ETIMEDOUT, Effect};
use crate::plan::{Flood, OWN_ROOT, Plan};
use crate::rng::Rng;

/// Turns after which a run counts as endless.
const TURNS_MAX: u64 = 200_000;
/// Turns in a row without waiting. Only a crowd of deadlines needs several.
const BUSY_TURNS_MAX: u64 = 200;
/// Unread replies of a client that are kept, as in the worker's session, and those in its socket.
const UNREAD_MAX: usize = 4096 + 16;
const EIO: u32 = 5;
const EBADF: u32 = 9;
const ENOMEM: u32 = 12;

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    hash: u64,
    turns: u64,
    pub(crate) ready: u64,
    pub(crate) errors: u64,
    pub(crate) late: u64,
    pub(crate) busy: u64,
    pub(crate) joined: u64,
    pub(crate) from_memory: u64,
    /// Clients that were disconnected because they read nothing.
    pub(crate) deaf: u64,
    /// Ranges of a file system whose files could not be closed.
    pub(crate) jammed: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.turns += other.turns;
        self.ready += other.ready;
        self.errors += other.errors;
        self.late += other.late;
        self.busy += other.busy;
        self.joined += other.joined;
        self.from_memory += other.from_memory;
        self.deaf += other.deaf;
        self.jammed += other.jammed;
    }
}

/// A quota in the model.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) connections: usize,
    pub(crate) waiters: usize,
    pub(crate) max: usize,
}

/// The unanswered questions about a subject.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) asks: usize,
    /// When the first of them came.
    pub(crate) since_ms: u64,
}

/// A job at a helper.
#[derive(Debug)]
pub(crate) struct Job {
    id: JobId,
    subject: Subject,
    share: SiteId,
    device: u64,
    since_ms: u64,
    is_readable: bool,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Connect,
    Act(usize),
    /// The job with this number ends.
    Job(u64),
    /// A helper has started.
    Helper,
    /// The helper that was given up with this job ends.
    Gone(u64),
    Hang(u64),
    Heal(u64),
    Drain,
}

/// A run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) plan: Plan,
    rng: Rng,
    pub(crate) backend: Backend<Handle>,
    pub(crate) ledger: Ledger,
    pub(crate) memory: Memory,
    pub(crate) now_ms: u64,
    /// The number of the present event.
    pub(crate) at: u64,
    events: BTreeMap<(u64, u64), Event>,
    pub(crate) clients: Vec<Client>,
    numbers: HashMap<Key, usize>,
    endpoint: Option<usize>,
    pub(crate) groups: BTreeMap<GroupName, Group>,
    pub(crate) waiting: HashMap<Subject, Waiting>,
    pub(crate) running: BTreeMap<u64, Job>,
    pub(crate) given_up: BTreeMap<u64, Job>,
    idle: usize,
    coming: usize,
    hung: BTreeSet<u64>,
    /// Events of helpers that hang with a file system.
    stuck: Vec<(u64, Event)>,
    /// The shares of devices, in the order in which they came.
    shares: BTreeMap<u64, SiteId>,
    /// Files of each device that could not be closed.
    unclosed: BTreeMap<u64, usize>,
    /// Files that came with CLOSE, and when.
    pub(crate) held: VecDeque<(u64, u64)>,
    /// The subjects of jobs that have ended since replies were last taken.
    pub(crate) ended: Vec<Subject>,
    /// A question withdrawn in this event.
    pub(crate) withdrawn: Option<(usize, u32)>,
    /// A question of this event that no file can answer.
    pub(crate) invalid: Option<(usize, u32)>,
    /// When the endpoint's files were last loaded, as far as the backend knows.
    loaded_ms: HashMap<Topic, u64>,
    draining: bool,
    /// Helpers work at once and never fail.
    is_over: bool,
    busy_turns: u64,
    pub(crate) tally: Tally,
    trace: DefaultHasher,
    print: bool,
}

impl Run {
    pub(crate) fn new(seed: u64, print: bool) -> Self {
        let mut rng = Rng::new(seed);
        let plan = Plan::new(&mut rng);
        if print {
            println!("{plan:?}");
        }
        let mut run = Self {
            backend: Backend::new(plan.rules()),
            plan,
            rng,
            ledger: Ledger::default(),
            memory: Memory::default(),
            now_ms: 1_000,
            at: 0,
            events: BTreeMap::new(),
            clients: Vec::new(),
            numbers: HashMap::new(),
            endpoint: None,
            groups: BTreeMap::new(),
            waiting: HashMap::new(),
            running: BTreeMap::new(),
            given_up: BTreeMap::new(),
            idle: 0,
            coming: 0,
            hung: BTreeSet::new(),
            stuck: Vec::new(),
            shares: BTreeMap::new(),
            unclosed: BTreeMap::new(),
            held: VecDeque::new(),
            ended: Vec::new(),
            withdrawn: None,
            invalid: None,
            loaded_ms: HashMap::new(),
            draining: false,
            is_over: false,
            busy_turns: 0,
            tally: Tally::default(),
            trace: DefaultHasher::new(),
            print,
        };
        run.backend.handle_turn(run.now_ms);
        run.schedule();
        run
    }

    fn schedule(&mut self) {
        let span_ms = self.plan.pause_ms * self.plan.actions / 2 + 1;
        for _ in 0..self.plan.clients {
            let in_ms = self.rng.below(span_ms);
            self.after(in_ms, Event::Connect);
        }
        if self.rng.chance(5) {
            // Connections that say nothing.
            (0..UNGREETED_MAX + 3).for_each(|_| self.after(0, Event::Connect));
        }
        if self.plan.hangs {
            for _ in 0..self.rng.between(1, 3) {
                let device = self.rng.between(1, self.plan.devices);
                let in_ms = self.rng.below(span_ms);
                self.after(in_ms, Event::Hang(device));
                let lasts_ms = self.rng.pick(&[1, self.plan.job_ms, 5 * self.plan.job_ms]);
                self.after(in_ms + lasts_ms, Event::Heal(device));
            }
        }
        if self.plan.drains {
            let in_ms = self.rng.below(2 * span_ms);
            self.after(in_ms, Event::Drain);
        }
        if self.plan.endpoint {
            self.open_endpoint();
        }
    }

    pub(crate) fn require(&self, holds: bool, property: &str, why: impl FnOnce() -> String) {
        assert!(holds, "property: {property}: {} (at {} ms)", why(), self.now_ms);
    }

    fn log(&mut self, text: fmt::Arguments<'_>) {
        let line = text.to_string();
        if self.print {
            println!("{:>8} {line}", self.now_ms);
        }
        self.trace.write_u64(self.now_ms);
        self.trace.write(line.as_bytes());
    }

    fn after(&mut self, in_ms: u64, event: Event) {
        self.at += 1;
        self.events.insert((self.now_ms + in_ms, self.at), event);
    }

    pub(crate) fn run(mut self) -> Tally {
        self.rest();
        let is_drained = self
            .clients
            .iter()
            .enumerate()
            .all(|(number, client)| Some(number) == self.endpoint || client.stage == Stage::Gone);
        self.require(is_drained || !self.draining, "progress", || "a drain does not end".to_owned());
        self.is_over = true;
        if !self.draining && self.plan.helpers_max > 1 {
            self.prove_shares();
        }
        for number in 0..self.clients.len() {
            self.end(number);
        }
        self.rest();
        self.check_rest();
        self.tally.hash = self.trace.finish();
        self.tally
    }

    /// Turns until nothing is left to happen.
    fn rest(&mut self) {
        while self.turn() {}
    }

    /// One turn of the loop. False if nothing will ever happen.
    fn turn(&mut self) -> bool {
        let event_ms = self.events.first_key_value().map(|((ms, _), _)| *ms);
        let timer_ms = self.backend.poll_next_ms();
        self.busy_turns = if timer_ms == Some(0) { self.busy_turns + 1 } else { 0 };
        self.require(self.busy_turns < BUSY_TURNS_MAX, "rest", || "the loop never waits".to_owned());
        let Some(next_ms) = event_ms.into_iter().chain(timer_ms).min() else { return false };
        self.now_ms = self.now_ms.max(next_ms);
        self.tally.turns += 1;
        self.require(self.tally.turns < TURNS_MAX, "rest", || "the run does not end".to_owned());
        self.backend.handle_turn(self.now_ms);
        while let Some(entry) = self.events.first_entry()
            && entry.key().0 <= self.now_ms
        {
            let event = entry.remove();
            self.handle(event);
        }
        self.end_turn();
        true
    }

    fn end_turn(&mut self) {
        self.at += 1;
        let mut abandoned = Vec::new();
        self.backend.handle_timeouts(|job| abandoned.push(job));
        for id in abandoned {
            self.give_up(id);
        }
        self.start_jobs();
        self.take_replies(None);
        self.start_jobs();
        while let Some(key) = self.backend.poll_ended() {
            let number = self.numbers[&key];
            let is_late =
                matches!(self.clients[number].stage, Stage::Stranger { by_ms } if by_ms <= self.now_ms);
            self.require(is_late, "bounds", || format!("client {number} is ended too early"));
            self.end(number);
        }
        for device in self.ledger.take_dropped() {
            *self.unclosed.entry(device).or_default() += usize::from(self.hung.contains(&device));
        }
        let rests = self.backend.poll_next_ms() != Some(0);
        self.check_turn(rests);
    }

    fn handle(&mut self, event: Event) {
        self.at += 1;
        match event {
            Event::Connect => self.connect(),
            Event::Act(number) => self.act(number),
            Event::Job(number) => self.end_job(number),
            Event::Helper => {
                self.coming -= 1;
                self.idle += 1;
            }
            Event::Gone(number) => self.bury(number),
            Event::Hang(device) => {
                self.log(format_args!("device {device} hangs"));
                self.hung.insert(device);
            }
            Event::Heal(device) => self.heal(device),
            Event::Drain => self.drain(),
        }
    }

    fn heal(&mut self, device: u64) {
        self.log(format_args!("device {device} works"));
        self.hung.remove(&device);
        self.unclosed.remove(&device);
        let (over, stuck) =
            std::mem::take(&mut self.stuck).into_iter().partition(|(hung, _)| *hung == device);
        self.stuck = stuck;
        for (_, event) in over {
            self.after(1, event);
        }
    }

    fn drain(&mut self) {
        self.log(format_args!("drain"));
        self.draining = true;
        for number in 0..self.clients.len() {
            if Some(number) != self.endpoint && self.backend.is_idle(self.clients[number].key) {
                self.end(number);
            }
        }
    }

    fn connect(&mut self) {
        if self.draining {
            return;
        }
        let by_ms = self.now_ms + HELLO_MS;
        let ungreeted =
            self.clients.iter().filter(|client| matches!(client.stage, Stage::Stranger { .. })).count();
        let mut client = Client::new(Key::from_u64(0), by_ms, &self.plan, &mut self.rng);
        if let (Some(flood), true) = (self.plan.flood, self.clients.len() + 1 == self.plan.clients) {
            client.flood = Some(flood);
            client.is_allowed = true;
            client.unread = (flood == Flood::Deaf).then_some(0);
        }
        let key = self.backend.handle_accept(client.user, client.is_allowed);
        self.require(key.is_some() == (ungreeted < UNGREETED_MAX), "bounds", || {
            format!("a connection beside {ungreeted} ungreeted: {key:?}")
        });
        let Some(key) = key else { return };
        let number = self.add(Client { key, ..client });
        self.log(format_args!("client {number} connects"));
        // A crowd has more connections than clients, and those say nothing.
        if number < self.plan.clients {
            self.after(0, Event::Act(number));
        }
    }

    fn add(&mut self, client: Client) -> usize {
        self.clients.push(client);
        let number = self.clients.len() - 1;
        self.numbers.insert(self.clients[number].key, number);
        number
    }

    /// The connection of a client ends, in the model and in the backend.
    fn end(&mut self, number: usize) {
        if self.clients[number].stage == Stage::Gone {
            return;
        }
        self.log(format_args!("client {number} is gone"));
        let was_welcome = self.clients[number].stage == Stage::Welcome;
        self.clients[number].stage = Stage::Gone;
        self.clients[number].greeting = None;
        let asks: Vec<u32> = self.clients[number].asks.keys().copied().collect();
        asks.into_iter().for_each(|id| drop(self.take_ask(number, id)));
        if was_welcome && let Some(group) = self.groups.get_mut(&self.clients[number].group) {
            group.connections -= 1;
            if group.connections == 0 {
                self.groups.remove(&self.clients[number].group);
            }
        }
        self.backend.handle_gone(self.clients[number].key);
    }

    /// A client does something, and decides when it does more.
    fn act(&mut self, number: usize) {
        if self.clients[number].stage == Stage::Gone || self.draining {
            return;
        }
        if Some(number) == self.endpoint {
            self.ask_endpoint(number);
        } else if let Stage::Stranger { .. } = self.clients[number].stage {
            self.introduce(number);
        } else if let Some(flood) = self.clients[number].flood.take() {
            let device = self.plan.devices;
            if flood == Flood::Files {
                self.hung.insert(device);
                self.after(3 * self.plan.job_ms, Event::Heal(device));
            }
            for message in self.clients[number].flood(flood, device, &self.ledger) {
                self.deliver(number, message);
            }
        } else {
            for _ in 0..self.rng.pick(&[1, 1, 1, 8]) {
                let client = &mut self.clients[number];
                if client.stage != Stage::Gone {
                    let message = client.next_message((&self.plan, &mut self.rng), &self.ledger);
                    self.deliver(number, message);
                }
            }
        }
        let client = &mut self.clients[number];
        client.actions = client.actions.saturating_sub(1);
        if self.rng.chance(1) && Some(number) != self.endpoint {
            self.end(number);
        } else if self.clients[number].actions > 0 {
            let in_ms = self.rng.between(0, self.plan.pause_ms);
            self.after(in_ms, Event::Act(number));
        }
    }

    fn introduce(&mut self, number: usize) {
        let waiters_max = if self.clients[number].flood.is_some() { 0 } else { self.plan.waiters_max };
        let client = &mut self.clients[number];
        let message = match self.rng.below(100) {
            0..4 => client.garbage((&self.plan, &mut self.rng), &self.ledger),
            4..6 => {
                let mut hello = client.hello(waiters_max, &self.ledger);
                hello.bytes[8] = 2;
                hello
            }
            6..8 => {
                let mut hello = client.hello(waiters_max, &self.ledger);
                hello.files[0].1 = FileKind::Regular;
                hello
            }
            _ => client.hello(waiters_max, &self.ledger),
        };
        self.deliver(number, message);
    }

    /// Handles a message as the worker does.
    fn deliver(&mut self, number: usize, message: Message) {
        let Message { bytes, mut files } = message;
        if bytes.first() != Some(&client::CANCEL) {
            // The model then knows which places are free. A reply can cross a CANCEL.
            self.take_replies(None);
        }
        if self.clients[number].stage == Stage::Gone || self.draining {
            return;
        }
        self.at += 1;
        self.log(format_args!(
            "client {number} sends {} bytes and {} files: {:?}",
            bytes.len(),
            files.len(),
            &bytes[..bytes.len().min(24)]
        ));
        let count = files.len();
        let key = self.clients[number].key;
        let mut received = files.drain(..).map(|(file, kind)| self.receive(file, kind)).collect::<Vec<_>>();
        let request = decode(&bytes, count).ok().filter(|_| count <= 1);
        let effect = match request {
            Some(request) => self.effect_of(number, request, received.first()),
            None => Effect::Ended,
        };
        let waiters_max = match request {
            Some(Request::Hello { waiters_max, .. }) => waiters_max,
            _ => 0,
        };
        let standing = match request {
            // The descriptor was lost on the way.
            Some(request @ Request::WarmRange { .. }) if self.rng.chance(1) => {
                return self.deliver_cut(number, request);
            }
            Some(request) => self.backend.handle_message(key, request, received.pop()),
            None => {
                self.backend.note_malformed();
                ControlFlow::Break(())
            }
        };
        drop(received);
        let expected = effect.standing();
        self.require(standing == expected, "answers", || {
            format!("after {request:?} client {number} is told {standing:?} instead of {expected:?}")
        });
        self.apply(number, &effect, waiters_max);
        self.take_replies(Some((number, &effect)));
        self.check_refusal(number, &effect);
        self.withdrawn = None;
        if standing == ControlFlow::Break(()) {
            self.end(number);
        }
    }

    fn deliver_cut(&mut self, number: usize, request: Request<'_>) {
        let Request::WarmRange { id, .. } = request else { return };
        let client = &self.clients[number];
        let is_known = client.asks.contains_key(&id);
        let expected = if client.stage == Stage::Welcome && !is_known {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        };
        let standing = self.backend.handle_cut_message(client.key, request);
        self.require(standing == expected, "answers", || format!("a range without its file: {standing:?}"));
        if standing == ControlFlow::Break(()) {
            self.take_replies(None);
            return self.end(number);
        }
        let topic = Topic::Range { file: OWN_ROOT, offset: 0, length_bytes: 0 };
        let effect = self.asked(number, (id, 0), topic, true);
        self.apply(number, &effect, 0);
        self.take_replies(Some((number, &effect)));
        self.check_refusal(number, &effect);
    }

    /// Notes the share of a file that has arrived.
    fn receive(&mut self, file: Handle, kind: FileKind) -> ClientFile<Handle> {
        let share = self.share_of(file.id.device);
        let unclosed = self.unclosed(share);
        self.backend.handle_backlog(share, unclosed);
        ClientFile { id: file.id, kind, file }
    }

    /// The share of a device: each of the first has its own, and all others have the last.
    pub(crate) fn share_of(&mut self, device: u64) -> SiteId {
        let share = self.backend.share_of(device);
        let (known, expected) = (self.shares.get(&device).copied(), self.shares.len().min(SHARES_MAX - 1));
        let is_right = known.map_or(usize::from(share.0) == expected, |known| known == share);
        self.require(is_right, "shares", || {
            format!("device {device} has share {share:?} and not {known:?} or {expected}")
        });
        self.shares.insert(device, share);
        share
    }

    /// How many files of a share could not be closed.
    pub(crate) fn unclosed(&self, share: SiteId) -> usize {
        let files = self.unclosed.iter().filter(|(device, _)| self.shares.get(device) == Some(&share));
        files.map(|(_, files)| files).sum()
    }

    /// Takes and judges replies, and gives them to their clients.
    fn take_replies(&mut self, fresh: Option<(usize, &Effect)>) {
        while let Some((key, reply)) = self.backend.poll_reply() {
            let number = self.numbers[&key];
            if self.clients[number].stage == Stage::Gone {
                continue;
            }
            self.log(format_args!("client {number} gets {reply:?}"));
            self.judge(number, reply, fresh);
            if let Some(unread) = &mut self.clients[number].unread {
                *unread += 1;
                if *unread > UNREAD_MAX {
                    self.tally.deaf += 1;
                    self.end(number);
                }
            }
            if self.draining && Some(number) != self.endpoint && self.backend.is_idle(key) {
                self.end(number);
            }
        }
        for subject in std::mem::take(&mut self.ended) {
            let left = self.waiting.get(&subject).map_or(0, |waiting| waiting.asks);
            self.require(left == 0 || self.plan.delay_ms > 0, "answers", || {
                format!("{left} questions about {subject:?} have not ended with their job")
            });
        }
    }

    fn open_endpoint(&mut self) {
        let file = self.ledger.open(OWN_ROOT, 0, false);
        let root = ClientFile { file, id: OWN_ROOT, kind: FileKind::Directory };
        let key = self.backend.handle_endpoint(0, root).expect("a new backend has room");
        while self.backend.poll_reply().is_some() {}
        let mut client = Client::new(key, 0, &self.plan, &mut self.rng);
        (client.user, client.stage, client.root, client.unread) = (0, Stage::Welcome, OWN_ROOT, None);
        client.group = GroupName { user: 0, number: 0, name: b"warm".to_vec() };
        self.groups.insert(client.group.clone(), Group { connections: 1, ..Group::default() });
        let number = self.add(client);
        self.endpoint = Some(number);
        self.after(0, Event::Act(number));
    }

    /// A visitor of the endpoint asks, or leaves.
    fn ask_endpoint(&mut self, number: usize) {
        let key = self.clients[number].key;
        let asked = self.clients[number].asks.keys().next().copied();
        if let (Some(id), true) = (asked, self.rng.chance(20)) {
            let standing = self.backend.handle_message(key, Request::Cancel { id }, None);
            self.require(standing == ControlFlow::Continue(()), "answers", || {
                "a visitor cannot leave".to_owned()
            });
            self.apply(number, &Effect::Withdrawn { id }, 0);
            self.take_replies(None);
            self.withdrawn = None;
            return;
        }
        self.take_replies(None);
        let path = format!("/{}", self.rng.below(self.plan.pool)).into_bytes();
        let part =
            self.rng.pick(&[FileRange::FIRST, FileRange::NOTHING, FileRange::Last { length_bytes: 5 }]);
        let topic = Topic::Warm { path: path.clone(), part };
        self.share_of(self.plan.device_of(OWN_ROOT, &path));
        let ask = warm::WarmRequest { path, part };
        let look = if self.rng.chance(20) { Residency::InMemory } else { Residency::Unknown };
        let is_known = self.backend.answers_at_once(&ask, || look);
        let loaded = self.loaded_ms.get(&topic).is_some_and(|ms| self.now_ms - ms < 1_000);
        let expected = self.plan.delay_ms == 0 && (loaded || look == Residency::InMemory);
        self.require(is_known == expected, "from memory", || {
            format!("{topic:?} is answered at once: {is_known}, {look:?}, loaded {loaded}")
        });
        self.tally.from_memory += u64::from(is_known);
        if is_known {
            return;
        }
        let id = self.clients[number].next_id;
        self.clients[number].next_id += 1;
        let effect = self.asked(number, (id, 0), topic, false);
        let standing = self.backend.handle_warm_request(key, id, ask);
        self.require(standing == ControlFlow::Continue(()), "answers", || "the endpoint is ended".to_owned());
        self.apply(number, &effect, 0);
        self.take_replies(Some((number, &effect)));
        self.check_refusal(number, &effect);
    }

    fn start_jobs(&mut self) {
        let mut started = Vec::new();
        let (mut idle, mut wanted) = (self.idle, 0);
        let most = self.plan.helpers_max;
        let others = self.running.len() + self.coming;
        self.backend.start_jobs(|id, task, startable| {
            if idle == 0 {
                let known = others + started.len();
                wanted = startable.min(most.saturating_sub(known));
                return false;
            }
            idle -= 1;
            started.push((id, Subject::of(task)));
            true
        });
        self.idle = idle;
        for _ in 0..wanted {
            self.coming += 1;
            let in_ms = if self.is_over { 1 } else { self.rng.pick(&[0, 1, 10]) };
            self.after(in_ms, Event::Helper);
        }
        for (id, (subject, is_readable)) in started {
            self.note_started(id, subject, is_readable);
        }
    }

    fn note_started(&mut self, id: JobId, subject: Subject, is_readable: bool) {
        let device = match &subject.topic {
            Topic::Name { root, path } => self.plan.device_of(*root, path),
            Topic::Range { file, .. } => file.device,
            Topic::Warm { path, .. } => self.plan.device_of(OWN_ROOT, path),
        };
        self.log(format_args!("job {} starts on device {device}: {subject:?}", id.to_u64()));
        let is_awaited = self.waiting.get(&subject).is_some_and(|waiting| waiting.asks > 0);
        self.require(is_awaited, "jobs", || format!("nobody waits for {subject:?}"));
        let is_twice = self.running.values().any(|job| job.subject == subject);
        self.require(!is_twice, "joins", || format!("two jobs for {subject:?}"));
        let share = self.share_of(device);
        let since_ms = self.now_ms;
        self.running.insert(id.to_u64(), Job { id, subject, share, device, since_ms, is_readable });
        let of_share = |job: &&Job| job.share == share;
        let at_helpers =
            self.running.values().filter(of_share).count() + self.given_up.values().filter(of_share).count();
        let is_alone = self.shares.len() < 2 || self.plan.helpers_max < 2;
        self.require(is_alone || at_helpers < self.plan.helpers_max, "shares", || {
            format!("device {device} takes {at_helpers} of {} helpers", self.plan.helpers_max)
        });
        let in_ms = if self.is_over { 1 } else { self.rng.between(0, self.plan.latency_ms) };
        self.after(in_ms, Event::Job(id.to_u64()));
    }

    /// A job ends, unless it hangs or was given up.
    fn end_job(&mut self, number: u64) {
        let Some(device) = self.running.get(&number).map(|job| job.device) else { return };
        if self.hung.contains(&device) {
            self.stuck.push((device, Event::Job(number)));
            return;
        }
        let Some(job) = self.running.remove(&number) else { return };
        let fate = if self.is_over { 100 } else { self.rng.below(100) };
        let failures = self.plan.failures;
        let (outcome, ending) = match fate {
            n if n < failures => match self.rng.below(4) {
                0 => (Outcome::Exhausted, Ending::Errno(ENOMEM)),
                1 => (Outcome::Failed(0), Ending::Errno(EIO)),
                // The answer of another task.
                2 => (Outcome::Closed, Ending::Errno(EIO)),
                _ => (Outcome::Failed(13), Ending::Errno(13)),
            },
            n if n < failures + self.plan.deaths => (Outcome::Lost, Ending::Errno(EIO)),
            _ if !job.is_readable => (Outcome::Failed(EBADF as i32), Ending::Errno(EBADF)),
            _ => (Outcome::Loaded, Ending::Loaded),
        };
        self.idle += usize::from(!matches!(outcome, Outcome::Lost));
        self.log(format_args!("job {number} ends: {ending:?}"));
        self.memory.note(&job.subject, ending, (self.at, self.now_ms));
        if ending == Ending::Loaded {
            self.loaded_ms.insert(job.subject.topic.clone(), self.now_ms);
        }
        self.backend.handle_job(job.id, &outcome);
        self.ended.push(job.subject);
        if self.rng.chance(50) {
            self.take_replies(None);
        }
    }

    fn give_up(&mut self, id: JobId) {
        let number = id.to_u64();
        self.log(format_args!("job {number} is given up"));
        let Some(job) = self.running.remove(&number) else {
            return self.require(false, "jobs", || format!("job {number} is given up and does not run"));
        };
        let is_due = self.now_ms >= job.since_ms + self.plan.job_ms;
        self.require(is_due, "jobs", || format!("job {number} is given up before its deadline"));
        self.memory.note(&job.subject, Ending::Errno(ETIMEDOUT), (self.at, self.now_ms));
        self.ended.push(job.subject.clone());
        self.given_up.insert(number, job);
        let in_ms = self.rng.pick(&[0, 1, 50]);
        self.after(in_ms, Event::Gone(number));
    }

    /// A helper that was given up has ended. One that hangs with its file system cannot be killed.
    fn bury(&mut self, number: u64) {
        let Some(device) = self.given_up.get(&number).map(|job| job.device) else { return };
        if self.hung.contains(&device) {
            self.stuck.push((device, Event::Gone(number)));
        } else if let Some(job) = self.given_up.remove(&number) {
            self.log(format_args!("the helper of job {number} has ended"));
            self.backend.handle_helper_gone(job.id);
        }
    }

    /// Whether a job for this question was given up, in the queue or at a helper: the question ends with it.
    pub(crate) fn has_overdue_job(&self, ask: &Ask) -> bool {
        let queued = self.waiting.get(&ask.subject);
        queued.is_some_and(|waiting| self.now_ms >= waiting.since_ms + self.plan.job_ms)
            || self.memory.has_ended(&ask.subject, Ending::Errno(ETIMEDOUT), (ask.at, self.now_ms))
    }

    /// One file system hangs, and a client goes on asking for it. Another client, of another file system, is
    /// served all the same.
    fn prove_shares(&mut self) {
        let (hung, fine) = (1, self.plan.devices);
        if hung == fine || self.share_of(hung) == self.share_of(fine) {
            return;
        }
        let (visitor, flooder) = (self.join(fine), self.join(hung));
        self.ask_and_wait(visitor, "/before");
        self.hung.insert(hung);
        for number in 0..2 * self.plan.helpers_max {
            let id = self.clients[flooder].next_id + number as u32;
            self.deliver(flooder, name(id, 0, &format!("/hung/{number}")));
        }
        self.end_turn();
        // Also while the helpers that were given up have not ended.
        for number in 0..4 {
            self.turn();
            self.ask_and_wait(visitor, &format!("/fine/{number}"));
        }
        self.heal(hung);
        self.rest();
    }

    /// A client that is welcome, whose root directory is on this device.
    fn join(&mut self, device: u64) -> usize {
        let client = Client::new(Key::from_u64(0), self.now_ms + HELLO_MS, &self.plan, &mut self.rng);
        let key = self.backend.handle_accept(client.user, true).expect("nobody else connects");
        let root = FileId { device, inode: 500, mount: device };
        let mut group = client.group.clone();
        group.number = 1_000 + device;
        let number = self.add(Client { key, is_allowed: true, root, group, unread: None, ..client });
        let hello = self.clients[number].hello(0, &self.ledger);
        self.deliver(number, hello);
        number
    }

    fn ask_and_wait(&mut self, number: usize, path: &str) {
        self.clients[number].next_id += 1;
        let (id, ready) = (self.clients[number].next_id, self.tally.ready);
        self.deliver(number, name(id, 0, path));
        self.end_turn();
        while self.clients[number].asks.contains_key(&id) && self.turn() {}
        self.require(self.tally.ready > ready, "shares", || {
            format!("{path} is not served while another hangs")
        });
    }
}
