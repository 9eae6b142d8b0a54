//! Random schedules of clients, send rooms, jobs and evictions: each client must receive exactly the bytes
//! that it would receive from a server without any of these.

use crate::machine::client::request;
use crate::machine::files::Residency;
use crate::machine::response::{Response, parse_all};
use crate::machine::world::Told;
use crate::machine::{Client, Content, KIB, STORE, StoreSize, World};
use proptest::prelude::*;

/// A request of a client.
#[derive(Clone, Copy, Debug)]
enum Ask {
    Get(usize),
    Head(usize),
    Range(usize, u64, u64),
    Ranges(usize),
    Missing,
    WithBody(usize),
}

/// The next event. Numbers are taken modulo the number of items.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send(usize, usize),
    Room(usize, usize),
    Finish(usize),
    Evict(usize),
    EvictPage(usize, u64),
    ForgetName(usize),
    Helper(usize),
    Wait(u64),
    Turn,
}

const SIZES: [u64; 7] = [0, 1, 4_096, 70_001, 130 * KIB, 512 * KIB, 1_100 * KIB + 3];

fn content(file: usize) -> Content {
    Content::Pattern(file as u64, SIZES[file])
}

fn name(file: usize) -> String {
    format!("f{file}")
}

fn ask() -> impl Strategy<Value = Ask> {
    let file = 0..SIZES.len();
    prop_oneof![
        6 => file.clone().prop_map(Ask::Get),
        1 => file.clone().prop_map(Ask::Head),
        2 => (file.clone(), 0u64..1_200_000, 1u64..600_000).prop_map(|(f, at, n)| Ask::Range(f, at, n)),
        1 => file.clone().prop_map(Ask::Ranges),
        1 => Just(Ask::Missing),
        1 => file.prop_map(Ask::WithBody),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let any = 0usize..10_000;
    prop_oneof![
        6 => (any.clone(), prop_oneof![1usize..30, Just(5_000)]).prop_map(|(c, n)| Step::Send(c, n)),
        6 => (any.clone(), prop_oneof![1usize..300, 1_000usize..400_000]).prop_map(|(c, n)| Step::Room(c, n)),
        5 => any.clone().prop_map(Step::Finish),
        1 => any.clone().prop_map(Step::Evict),
        2 => (any.clone(), 0u64..10_000).prop_map(|(f, p)| Step::EvictPage(f, p)),
        1 => any.prop_map(Step::ForgetName),
        1 => (0usize..4).prop_map(Step::Helper),
        2 => (1u64..800).prop_map(Step::Wait),
        3 => Just(Step::Turn),
    ]
}

fn wording(ask: Ask) -> String {
    match ask {
        Ask::Get(f) => request("GET", &format!("/{}", name(f)), ""),
        Ask::Head(f) => request("HEAD", &format!("/{}", name(f)), ""),
        Ask::Range(f, at, n) => {
            request("GET", &format!("/{}", name(f)), &format!("Range: bytes={at}-{}\r\n", at + n - 1))
        }
        Ask::Ranges(f) => request("GET", &format!("/{}", name(f)), "Range: bytes=5-9,-100,600000-600500\r\n"),
        Ask::Missing => request("GET", "/missing", ""),
        Ask::WithBody(f) => request("GET", &format!("/{}", name(f)), "Content-Length: 3\r\n") + "abc",
    }
}

/// The answer without its variable parts: the date, and the boundary of parts.
fn essence(response: &Response) -> (String, Vec<u8>) {
    let mut head = response.head.clone();
    let mut body = response.body.clone();
    if let Some(date) = response.field("Date") {
        head = head.replace(date, "DATE");
    }
    let content_type = response.field("Content-Type").unwrap_or_default().to_owned();
    if let Some(boundary) = content_type.strip_prefix("multipart/byteranges; boundary=") {
        head = head.replace(boundary, "B");
        while let Some(at) = body.windows(boundary.len()).position(|w| w == boundary.as_bytes()) {
            body.splice(at..at + boundary.len(), *b"B");
        }
    }
    (head, body)
}

struct Schedule {
    world: World,
    clients: Vec<(Client, Vec<u8>)>,
}

impl Schedule {
    fn new(asks: &[Vec<Ask>], store_bytes: u64, open_files_max: usize, unknown: bool, told: Told) -> Self {
        let has_store = store_bytes > 0;
        let rules = flash_engine::Rules { has_store, open_files_max, ..crate::machine::rules() };
        let mut world = World::with_store(rules, StoreSize { bytes_max: store_bytes, ..STORE });
        world.auto = false;
        world.told = told;
        for file in 0..SIZES.len() {
            world.machine.files.add_cold(&name(file), content(file));
            if unknown && file % 2 == 1 {
                world.machine.files.inode(&name(file)).residency = Residency::Unknown;
            }
        }
        let clients = asks
            .iter()
            .map(|asks| {
                let client = world.connect();
                client.set_room(0);
                (client, asks.iter().map(|ask| wording(*ask)).collect::<String>().into_bytes())
            })
            .collect();
        Self { world, clients }
    }

    fn step(&mut self, step: Step) {
        let files = &mut self.world.machine.files;
        let count = self.clients.len();
        match step {
            Step::Send(c, n) => {
                let (client, left) = &mut self.clients[c % count];
                let n = n.min(left.len());
                client.send(left.drain(..n).collect::<Vec<u8>>());
            }
            Step::Room(c, n) => self.clients[c % count].0.add_room(n),
            Step::Finish(j) => {
                let running = &self.world.machine.helpers.running;
                if !running.is_empty() {
                    let id = running[j % running.len()].0;
                    self.world.finish(id);
                }
            }
            Step::Evict(f) => files.inode(&name(f % SIZES.len())).evict(),
            Step::EvictPage(f, page) => {
                if let Residency::Pages(pages) = &mut files.inode(&name(f % SIZES.len())).residency {
                    pages.remove(&(page % 280));
                }
            }
            Step::ForgetName(f) => files.forget_name(&name(f % SIZES.len())),
            Step::Helper(n) => self.world.machine.helpers.idle = n.max(1),
            Step::Wait(ms) => self.world.pass(ms),
            Step::Turn => self.world.turn(),
        }
    }

    /// Releases everything that was held back.
    fn finish(&mut self) -> Vec<Vec<u8>> {
        self.world.auto = true;
        self.world.machine.helpers.idle = 2;
        self.world.engine.handle_helper_ready(&mut self.world.machine);
        for (client, left) in &mut self.clients {
            client.set_room(usize::MAX);
            client.send(std::mem::take(left));
        }
        self.world.run();
        let received = self.clients.iter().map(|(client, _)| client.received()).collect();
        self.world.end();
        received
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_schedule_gives_the_same_answers(
        asks in proptest::collection::vec(proptest::collection::vec(ask(), 1..6), 1..5),
        steps in proptest::collection::vec(step(), 0..160),
        store_bytes in prop_oneof![Just(0u64), Just(100_000), Just(16 << 20)],
        open_files_max in prop_oneof![Just(2usize), Just(64)],
        unknown: bool,
        told in prop_oneof![Just(Told::Edges), Just(Told::Levels), Just(Told::LevelsOfTwoKinds)],
    ) {
        let mut schedule = Schedule::new(&asks, store_bytes, open_files_max, unknown, told);
        for step in steps {
            schedule.step(step);
        }
        let received = schedule.finish();
        for (asks, bytes) in asks.iter().zip(received) {
            let (answers, rest) = parse_all(&bytes, |n| matches!(asks.get(n), Some(Ask::Head(_))));
            prop_assert!(rest == bytes.len() && answers.len() == asks.len(), "{} answers to {asks:?}", answers.len());
            for (ask, answer) in asks.iter().zip(&answers) {
                let mut plain = World::new();
                (0..SIZES.len()).for_each(|file| plain.machine.files.add(&name(file), content(file)));
                let client = plain.connect();
                client.send(wording(*ask));
                plain.run();
                let expected = if matches!(ask, Ask::Head(_)) { client.take_head() } else { client.take_one() };
                let (expected, answer) = (essence(&expected), essence(answer));
                prop_assert_eq!(&answer.0, &expected.0, "the head of {:?}", ask);
                prop_assert!(answer.1 == expected.1, "the body of {:?}", ask);
                if let Ask::Get(file) | Ask::WithBody(file) = ask {
                    prop_assert!(answer.1 == content(*file).whole(), "the content of {:?}", ask);
                }
            }
        }
    }
}
