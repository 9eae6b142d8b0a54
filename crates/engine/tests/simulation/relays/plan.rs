//! The random plan of a world with routes: bounds, servers, clients and their requests.

use flash_engine::limits::{RECEIVE_BYTES, SPOOL_PIECE_BYTES_MAX};
use flash_engine::{
    AuthRule, BodyRules, PathRule, PathRules, Route, RoutePaths, Rules, ServerId, ServerRules, Timeouts,
    UpstreamId, UpstreamProtocol, UpstreamRules,
};

use super::application::Application;
use super::framing::{body_of, chunks};
use super::ledger::{Agreement, Asked, FORGED, GRANTED};
use super::script::Manners;
use super::visitor::Visitor;
use super::{Asking, Fate};
use crate::machine::world::Told;
use crate::machine::{Client, Files, rules};
use crate::rng::Rng;

/// The content of the file that is always in memory.
pub(super) const HOT: &str = "a file that is in memory";

/// ETIMEDOUT.
pub(super) const TIMED_OUT: i32 = 110;
/// ECONNREFUSED and ENETUNREACH.
const REFUSALS: [i32; 2] = [111, 101];

/// The health of the gateway's connections to an upstream.
#[derive(Clone, Copy, Debug)]
struct Reach {
    /// Percentages of attempts that are refused, come late or never end, and that fail with the gateway.
    refused: u64,
    late: u64,
    never: u64,
    lost: u64,
}

/// Waits for jobs of a body, of a request or an answer: it has at most seven pieces, each is written and read, and each job
/// waits for a helper and for its end.
const JOBS_OF_BODY: u64 = 28;
/// Waits for the look-up of a name: a script, or a file that would answer before a server.
const JOBS_OF_NAME: u64 = 2;

/// Waits for a piece of an answer that is compressed.
const JOBS_OF_PIECE: u64 = 2;

/// Longest body of a request on a stream: all requests of a connection find room in its input.
const STREAM_BODY_BYTES_MAX: u64 = 8_000;

/// Scripts of an upstream.
const SCRIPTS: usize = 4;

/// A script of an upstream, as a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScriptState {
    InMemory,
    /// Only a helper can find it.
    Cold,
    Missing,
}

/// Decisions made before the run begins.
pub(super) struct Plan {
    upstreams: Vec<UpstreamRules>,
    /// How the servers of each upstream behave.
    pub(super) manners: Vec<Manners>,
    reaches: Vec<Reach>,
    pub(super) steps: u64,
    pub(super) pace_ms: u64,
    /// Percentage of steps that are long.
    pub(super) long_steps: u64,
    pub(super) visitors: usize,
    /// Percentage of steps in which a client comes.
    pub(super) comes: u64,
    /// Percentage of clients with some trouble.
    odd_clients: u64,
    /// Percentage of clients that share one address.
    pub(super) crowd: u64,
    /// Percentage of clients that send their requests on streams.
    pub(super) streams: u64,
    /// Percentage of requests with a body.
    bodies: u64,
    body_bytes_max: usize,
    /// Whether the servers of each upstream get bodies while they come.
    streams_bodies: Vec<bool>,
    /// Whether answers of each upstream pass as they come.
    pub(super) streams_answers: Vec<bool>,
    /// Whether a file would answer before the servers of each upstream, if there were one.
    files_first: Vec<bool>,
    /// Whether a server is asked about the requests for the first upstream, unless that runs files of the site.
    asks: bool,
    /// Whether helpers compress answers.
    compresses: bool,
    /// The state of each script, if the applications of an upstream run files of the site.
    pub(super) scripts: Vec<Option<[ScriptState; SCRIPTS]>>,
    /// Slots of the file for bodies; 0 without a file.
    pub(super) spool_slots: u32,
    /// How long its room is idle before it is given back, and whether its file system can make holes.
    pub(super) spool_idle_ms: u64,
    pub(super) has_holes: bool,
    pub(super) helpers: usize,
    pub(super) disk_troubles: u64,
    pub(super) job_ms: u64,
    head_ms: u64,
    body_rules: BodyRules,
    pub(super) told: Told,
    /// Percentage of steps in which the gateway reports a probe.
    pub(super) probes: u64,
}

impl Plan {
    pub(super) fn random(rng: &mut Rng) -> Self {
        let count = rng.between(1, 2) as usize;
        let upstreams: Vec<UpstreamRules> = (0..count).map(|_| upstream(rng)).collect();
        let manners = upstreams.iter().map(|rules| Manners::random(rng, rules.answer_ms)).collect();
        let reaches = upstreams.iter().map(|_| reach(rng)).collect();
        let states = [ScriptState::InMemory, ScriptState::Cold, ScriptState::Missing];
        let scripts = upstreams.iter().map(|rules| {
            let runs_files = rules.protocol == UpstreamProtocol::FastCgi && rng.chance(60);
            runs_files.then(|| {
                let mut scripts = std::array::from_fn(|_| rng.pick(&states));
                scripts[0] = rng.pick(&states[..2]);
                scripts
            })
        });
        let scripts: Vec<Option<_>> = scripts.collect();
        let crowd = rng.pick(&[0, 50, 90]);
        let steps = rng.between(30, 120);
        // It takes no random number of its own, so that the other plans stay as they are.
        let files_first =
            scripts.iter().map(|scripts| scripts.is_none() && steps.is_multiple_of(3)).collect();
        Self {
            upstreams,
            manners,
            reaches,
            files_first,
            asks: steps % 5 == 1,
            compresses: steps.is_multiple_of(2),
            steps,
            pace_ms: rng.pick(&[2, 20, 20, 120]),
            long_steps: rng.pick(&[2, 10]),
            visitors: rng.between(3, 20) as usize,
            comes: rng.pick(&[15, 40, 90]),
            odd_clients: rng.pick(&[0, 30, 60]),
            crowd,
            streams: if crowd > 0 { rng.pick(&[0, 20, 60]) } else { 0 },
            bodies: rng.pick(&[20, 50, 80]),
            body_bytes_max: rng.pick(&[1_000, 60_000, 150_000, 400_000, 400_000]),
            streams_bodies: (0..count).map(|_| rng.chance(40)).collect(),
            streams_answers: (0..count).map(|_| rng.chance(30)).collect(),
            scripts,
            spool_slots: rng.pick(&[0, 2, 6, 1_000]),
            spool_idle_ms: rng.pick(&[20, 200, 2_000]),
            has_holes: rng.chance(70),
            helpers: rng.pick(&[1, 2]),
            disk_troubles: rng.pick(&[0, 0, 10, 40]),
            job_ms: rng.pick(&[500, 3_000]),
            head_ms: rng.pick(&[400, 3_000]),
            body_rules: body_rules(rng),
            told: rng.pick(&[Told::Edges, Told::Edges, Told::Levels, Told::LevelsOfTwoKinds]),
            probes: rng.pick(&[0, 0, 5, 30]),
        }
    }

    /// Maximum jobs that a request waits for, each of which may wait for a helper and then for its end.
    pub(super) fn jobs_max(&self) -> u64 {
        let streams_all = self.streams_bodies.iter().chain(&self.streams_answers).all(|streams| *streams);
        let looks_names_up = self.scripts.iter().any(Option::is_some) || self.files_first.contains(&true);
        let of_bodies = if streams_all { 0 } else { 2 * JOBS_OF_BODY };
        let of_pieces = if self.compresses { JOBS_OF_PIECE } else { 0 };
        of_bodies + of_pieces + if looks_names_up { JOBS_OF_NAME } else { 0 }
    }

    pub(super) fn rules(&self, rng: &mut Rng) -> Rules {
        let mut rules = rules();
        rules.upstreams = self.upstreams.clone();
        let route = |number: usize| Route {
            paths: match &self.scripts[number] {
                Some(_) => RoutePaths::Extension(format!("run{number}").into_bytes()),
                None => RoutePaths::Prefix(format!("/{number}/").into_bytes()),
            },
            files_first: self.files_first[number],
            upstream: UpstreamId(number as u16),
            has_own_files: false,
            body_bytes_max: self.body_bytes_max as u64,
            streams_bodies: self.streams_bodies[number],
            compresses: self.compresses,
            streams_answers: self.streams_answers[number],
        };
        rules.sites[0].routes = (0..self.upstreams.len()).map(route).collect();
        if self.asks_about(0) {
            let gatekeeper = UpstreamId(self.upstreams.len() as u16);
            let paths = RoutePaths::Prefix(b"/auth".to_vec());
            rules.sites[0].routes.push(Route { paths, files_first: false, upstream: gatekeeper, ..route(0) });
            rules.upstreams.push(gatekeeper_rules());
            let auth = Some(AuthRule { path: b"/auth".to_vec(), fields: [GRANTED.to_owned()].into() });
            rules.sites[0].paths = PathRules::new(vec![PathRule { auth, ..PathRule::new("/0/*") }]).into();
        }
        rules.timeouts =
            Timeouts { head_ms: self.head_ms, idle_ms: rng.pick(&[2_000, 60_000]), job_ms: self.job_ms };
        // How long a request may wait for a helper is the subject of other worlds, and so are slow readers.
        rules.queue_wait_ms = 0;
        rules.least_rate_bytes_per_s = 0;
        rules.bodies = self.body_rules;
        rules.spool_idle_ms = self.spool_idle_ms;
        rules
    }

    /// Whether a server is asked about requests for an upstream.
    fn asks_about(&self, upstream: usize) -> bool {
        self.asks && upstream == 0 && self.scripts[0].is_none()
    }

    /// Whether a server is the one that is asked.
    pub(super) fn is_gatekeeper(&self, server: ServerId) -> bool {
        usize::from(server.upstream.0) == self.upstreams.len()
    }

    pub(super) fn upstreams(&self) -> &[UpstreamRules] {
        &self.upstreams
    }

    /// The servers that are reached over TLS.
    pub(super) fn encrypted_servers(&self) -> impl Iterator<Item = ServerId> {
        (0..).map(UpstreamId).zip(&self.upstreams).flat_map(|(upstream, rules)| {
            let servers = (0..).map(move |server| ServerId { upstream, server });
            servers.zip(&rules.servers).filter(|(_, rules)| rules.is_encrypted).map(|(server, _)| server)
        })
    }

    /// The result of a request for a connection.
    pub(super) fn connect(&self, rng: &mut Rng, upstream: usize, now_ms: u64, is_over: bool) -> Asking {
        let connect_ms = self.upstreams[upstream].connect_ms;
        let Reach { refused, late, never, lost } = self.reaches[upstream];
        let soon_ms = now_ms + rng.pick(&[0, 0, 1, 30]);
        let made = Asking { since_ms: now_ms, due_ms: soon_ms, fate: Fate::Connects };
        if is_over {
            return Asking { due_ms: now_ms, ..made };
        }
        match rng.below(100) {
            n if n < refused => Asking { fate: Fate::Fails(rng.pick(&REFUSALS)), ..made },
            n if n < refused + late => {
                let fate = rng.pick(&[Fate::Connects, Fate::Fails(TIMED_OUT)]);
                Asking { due_ms: now_ms + rng.between(connect_ms, 3 * connect_ms), fate, ..made }
            }
            n if n < refused + late + never => Asking { fate: Fate::Never, ..made },
            n if n < refused + late + never + lost => Asking { fate: Fate::Lost, ..made },
            n if n + late > 99 => Asking { fate: rng.pick(&[Fate::Silent, Fate::Plain]), ..made },
            _ => made,
        }
    }

    pub(super) fn application(&self, rng: &mut Rng, end: Client, server: ServerId) -> Application {
        let upstream = usize::from(server.upstream.0);
        // The servers of an upstream differ: the first one is the worst.
        let manners =
            if server.server > 0 && rng.chance(50) { Manners::GOOD } else { self.manners[upstream] };
        Application::new(rng, end, server, self.upstreams[upstream].protocol, manners)
    }

    pub(super) fn visitor(&self, rng: &mut Rng, client: Client, now_ms: u64) -> Visitor {
        let mut visitor = Visitor::new(client, now_ms);
        if !rng.chance(self.odd_clients) {
            return visitor;
        }
        (visitor.piece_bytes, visitor.gap_ms) = match rng.below(4) {
            0 => (rng.between(20, 200) as usize, rng.below(5)),
            1 => (rng.between(1_000, 60_000) as usize, rng.below(self.head_ms * 3 / 4)),
            _ => (usize::MAX, 0),
        };
        match rng.below(5) {
            0 | 1 => {
                let reads = rng.pick(&[200, 5_000, 60_000]);
                visitor.reads_bytes = Some(reads);
                visitor.client.set_room(reads);
                if rng.chance(30) {
                    visitor.leaves_ms = now_ms + rng.below(500);
                }
            }
            2 => visitor.stalls_at = Some(rng.between(1, 60) as usize),
            // Nothing but slow: each of its few bytes comes in time.
            3 => {
                visitor.piece_bytes = visitor.piece_bytes.min(200);
                visitor.gap_ms = self.head_ms / 2;
            }
            _ => visitor.leaves_ms = now_ms + rng.below(500),
        }
        visitor
    }

    /// How many requests a client sends, one directly after the other.
    pub(super) fn requests(&self, rng: &mut Rng) -> u64 {
        rng.pick(&[1, 1, 2, 5])
    }

    /// A request with this number, and its bytes.
    pub(super) fn ask(&self, rng: &mut Rng, number: usize) -> (Asked, Vec<u8>) {
        let upstream = rng.place(self.upstreams.len());
        let has_body = rng.chance(self.bodies);
        let method = match rng.below(10) {
            0 if !has_body => "HEAD",
            1 => "PUT",
            // Bodies that can be sent again.
            2..5 if has_body => "PUT",
            _ if has_body => "POST",
            2 => "POST",
            _ => "GET",
        };
        let is_old = rng.chance(6);
        let mut asked = self.asked(upstream, method);
        let path = self.path(rng, &mut asked, number);
        let version = if is_old { 0 } else { 1 };
        let mut head = format!("{method} {path} HTTP/1.{version}\r\nHost: h\r\n{}", self.fields());
        let mut body = Vec::new();
        if has_body {
            body = self.body(rng, &mut asked, number, is_old, &mut head);
        }
        if rng.chance(4) {
            head.push_str("Connection: close\r\n");
        }
        let mut bytes = format!("{head}\r\n").into_bytes();
        bytes.extend_from_slice(&body);
        refuse_some(&mut asked, number);
        (asked, bytes)
    }

    /// A request with this number for a stream, whose frame says where the body ends.
    pub(super) fn ask_on_stream(&self, rng: &mut Rng, number: usize) -> (Asked, Vec<u8>) {
        let upstream = rng.place(self.upstreams.len());
        let has_body = rng.chance(self.bodies);
        let method = if has_body { rng.pick(&["PUT", "POST"]) } else { rng.pick(&["GET", "GET", "HEAD"]) };
        let mut asked = self.asked(upstream, method);
        let path = self.path(rng, &mut asked, number);
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: h\r\n{}", self.fields());
        let mut body = Vec::new();
        if has_body {
            body = body_of(
                number,
                rng.between(1, STREAM_BODY_BYTES_MAX.min(self.body_bytes_max as u64)) as usize,
            );
            asked.body_bytes = body.len();
            if rng.chance(60) {
                head.push_str(&format!("Content-Length: {}\r\n", body.len()));
            } else {
                head.push_str("Transfer-Encoding: chunked\r\n");
                let is_gathered = !self.streams_bodies[upstream] && self.spool_slots > 0;
                if self.upstreams[upstream].protocol == UpstreamProtocol::FastCgi && !is_gathered {
                    asked.refusal = Some(411);
                }
            }
        }
        let bytes = [head.as_bytes(), b"\r\n", &body].concat();
        refuse_some(&mut asked, number);
        (asked, bytes)
    }

    /// The fields of clients: the codings that they accept, and one that only a server may give.
    fn fields(&self) -> String {
        let accepted = if self.compresses { "Accept-Encoding: gzip\r\n" } else { "" };
        format!("{accepted}{GRANTED}: {FORGED}\r\n")
    }

    /// The path of a request with this number.
    fn path(&self, rng: &mut Rng, asked: &mut Asked, number: usize) -> String {
        let upstream = asked.upstream;
        if self.looks_names_up(upstream) {
            asked.may_lack_helper = self.disk_troubles > 0 || !self.is_disk_fast();
            asked.jobs_before += JOBS_OF_NAME;
        }
        let Some(scripts) = &self.scripts[upstream] else { return format!("/{upstream}/n{number}.php") };
        let script = rng.place(SCRIPTS);
        if scripts[script] == ScriptState::Missing {
            (asked.refusal, asked.lacks_script) = (Some(404), true);
        }
        format!("/s{script}.run{upstream}/n{number}")
    }

    /// Whether a name is looked up before a server of an upstream gets a request.
    fn looks_names_up(&self, upstream: usize) -> bool {
        self.scripts[upstream].is_some() || self.files_first[upstream]
    }

    /// Adds the scripts to the files of the site.
    pub(super) fn add_scripts(&self, files: &mut Files) {
        for (upstream, scripts) in self.scripts.iter().enumerate() {
            for (number, state) in scripts.iter().flatten().enumerate() {
                let path = format!("s{number}.run{upstream}");
                match state {
                    ScriptState::InMemory => files.add(&path, "a script"),
                    ScriptState::Cold => files.add_cold(&path, "a script"),
                    ScriptState::Missing => {}
                }
            }
        }
        files.missing_cached = false;
    }

    /// Whether every job is done long before its deadline.
    pub(super) fn is_disk_fast(&self) -> bool {
        self.spool_slots == 1_000 && self.helpers == 2 && self.job_ms == 3_000
    }

    /// The bytes of a body in its framing, whose fields are added to the head.
    fn body(
        &self,
        rng: &mut Rng,
        asked: &mut Asked,
        number: usize,
        is_old: bool,
        head: &mut String,
    ) -> Vec<u8> {
        let is_too_long = rng.chance(3);
        let most = self.body_bytes_max as u64;
        let scale = if rng.chance(60) { most } else { 1 << rng.between(1, 18) };
        let bytes = if is_too_long { most + rng.between(1, 50_000) } else { rng.between(0, most.min(scale)) };
        asked.body_bytes = bytes as usize;
        let is_long = bytes as usize > SPOOL_PIECE_BYTES_MAX - RECEIVE_BYTES;
        let fits_memory = bytes as usize <= RECEIVE_BYTES;
        asked.needs_client_only =
            fits_memory && !self.streams_bodies[asked.upstream] && !self.looks_names_up(asked.upstream);
        let is_filed = !self.streams_bodies[asked.upstream] && is_long;
        asked.may_lack_room = is_filed && !self.is_disk_fast();
        asked.jobs_before += if is_filed { JOBS_OF_BODY } else { 0 };
        if is_too_long {
            asked.refusal = Some(413);
        }
        let data = body_of(number, bytes as usize);
        let is_chunked = !is_old && rng.chance(40);
        if !is_old && rng.chance(20) {
            head.push_str("Expect: 100-continue\r\n");
        }
        if !is_chunked {
            head.push_str(&format!("Content-Length: {bytes}\r\n"));
            return data;
        }
        asked.needs_client_only &= self.spool_slots > 0;
        head.push_str("Transfer-Encoding: chunked\r\n");
        let mut framed = chunks(&data, rng.pick(&[20, 3_000, 100_000]).max(data.len() / 300));
        if rng.chance(4) {
            asked.is_malformed = true;
            asked.refusal = asked.refusal.or(Some(400));
            framed.extend_from_slice(b"zz\r\n");
        }
        framed.extend_from_slice(b"0\r\n\r\n");
        let is_gathered = !self.streams_bodies[asked.upstream] && self.spool_slots > 0;
        if self.upstreams[asked.upstream].protocol == UpstreamProtocol::FastCgi && !is_gathered {
            asked.refusal = Some(411);
        }
        framed
    }

    /// A plain GET that an application answers.
    pub(super) fn simple(&self, upstream: usize, number: usize) -> (Asked, Vec<u8>) {
        let mut asked = self.asked(upstream, "GET");
        asked.jobs_before = if self.looks_names_up(upstream) { JOBS_OF_NAME } else { 0 };
        let path = match &self.scripts[upstream] {
            Some(scripts) => {
                let script = scripts.iter().position(|state| *state != ScriptState::Missing);
                format!("/s{}.run{upstream}/n{number}", script.expect("a script"))
            }
            None => format!("/{upstream}/n{number}.php"),
        };
        (asked, format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").into_bytes())
    }

    fn asked(&self, upstream: usize, method: &str) -> Asked {
        Asked {
            upstream,
            is_safe: method != "POST",
            is_head: method == "HEAD",
            body_bytes: 0,
            streams_answers: self.streams_answers[upstream],
            // The answers of the others have no type.
            compresses: self.compresses && self.upstreams[upstream].protocol == UpstreamProtocol::FastCgi,
            is_malformed: false,
            may_lack_room: false,
            may_lack_helper: false,
            jobs_before: 0,
            lacks_script: false,
            agreement: if self.asks_about(upstream) { Agreement::Given } else { Agreement::NotNeeded },
            needs_client_only: false,
            refusal: None,
            attempts: Vec::new(),
            begun_ms: None,
        }
    }
}

/// The pace of bodies, often with one of the limits.
fn body_rules(rng: &mut Rng) -> BodyRules {
    BodyRules {
        least_rate_bytes_per_s: rng.pick(&[0, 0, 500, 5_000, 50_000]),
        grace_ms: rng.pick(&[500, 2_000]),
        total_ms: rng.pick(&[0, 300, 1_000, 4_000]),
    }
}

/// The server that is asked does not agree to each request.
fn refuse_some(asked: &mut Asked, number: usize) {
    if asked.agreement == Agreement::Given && number % 5 == 2 {
        asked.agreement = Agreement::Refused;
        asked.refusal = asked.refusal.or(Some(403));
    }
}

/// The server that is asked has room for all questions at once.
fn gatekeeper_rules() -> UpstreamRules {
    UpstreamRules {
        protocol: UpstreamProtocol::Http,
        servers: vec![ServerRules {
            name: "the gatekeeper".to_owned(),
            weight: 1,
            is_unix: false,
            is_encrypted: false,
        }],
        connections_max: 1_000,
        idle_max: 2,
        queue_max: 0,
        connect_ms: 10_000,
        answer_ms: 10_000,
    }
}

fn upstream(rng: &mut Rng) -> UpstreamRules {
    let protocol = rng.pick(&[UpstreamProtocol::Http, UpstreamProtocol::Http, UpstreamProtocol::FastCgi]);
    let is_encrypted = rng.chance(50);
    UpstreamRules {
        protocol,
        servers: (0..rng.between(1, 3))
            .map(|number| ServerRules {
                name: format!("server {number}"),
                weight: 1 + number as u32 % 2,
                is_unix: number == 2,
                is_encrypted: protocol == UpstreamProtocol::Http && is_encrypted,
            })
            .collect(),
        connections_max: rng.between(1, 4) as usize,
        idle_max: rng.pick(&[0, 1, 2, 2]),
        queue_max: rng.below(5) as usize,
        connect_ms: rng.pick(&[300, 1_000, 5_000]),
        answer_ms: rng.pick(&[400, 2_000, 10_000]),
    }
}

fn reach(rng: &mut Rng) -> Reach {
    if rng.chance(45) {
        return Reach { refused: 0, late: 0, never: 0, lost: 0 };
    }
    let mut often = |most: u64| if rng.chance(40) { rng.between(1, most) } else { 0 };
    Reach { refused: often(30), late: often(30), never: often(15), lost: often(10) }
}
