//! Measures the engine's time for one answer from memory, in each of its forms, and for one that a server of a route gives,
//! in nanoseconds and without system calls: the part of a request that Flash's own code can make faster.
//!
//! `cargo run --release -p flash-engine --example hit_speed`, with a part of a name to measure only the cases with it.

use std::hint::black_box;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use flash_engine::{
    AdmissionRules, Band, Bands, Block, BlockBytes, Blocks, BodyRules, BucketKey, Buckets, Engine,
    FieldChanges, FileKind, FilePart, FileSent, FileStat, Files, Gateway, Helpers, JobId, Key, Log,
    LogFormat, LogRules, LookUpError, Machine, Moment, NameFacts, NameMark, Net, Opened, Optimizations,
    PathRule, PathRules, Policy, ProxyRules, Readiness, RecordLayer, Redirect, Resident, Route, RoutePaths,
    Rules, ServerId, ServerRules, SharedName, SharedNames, SiteId, SiteRules, Target, Task, Timeouts,
    UplinkShare, UpstreamId, UpstreamProtocol, UpstreamRules, Want,
};
use flash_http::EncodedSlash;
use flash_http::response::{ServerField, Status};
use flash_http::types::TypeTable;

const ROUNDS: usize = 15;
const REQUESTS: u32 = 200_000;

/// One file, always in memory, and clients that always request it.
struct OneFile {
    request: Vec<u8>,
    /// Offset in the request of a number that changes each time; 0 for none.
    number_at: usize,
    number: u32,
    pending: bool,
    content: Block,
    /// The connection to the server that was asked for last.
    asked: Option<Key>,
    /// Whether the server has a request to answer.
    is_server_asked: bool,
    bucket: AtomicU64,
    shares_names: bool,
}

/// The kind of the site.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Site {
    Plain,
    /// With files that other workers have found.
    Shared,
    Routed,
    /// With rules for paths.
    Ruled,
}

/// The end of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Socket {
    Client,
    Server,
}

const STAT: FileStat = FileStat {
    kind: FileKind::Regular,
    device: 1,
    inode: 1,
    size_bytes: 1024,
    modified_ns: 1_700_000_000_000_000_000,
    changed_ns: 0,
};

const NOW: Moment = Moment { monotonic_ns: 1_000_000_000, wall_ns: 1_800_000_000_000_000_000 };

const SERVER_HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 1024\r\nETag: \"1\"\r\n\r\n";

impl Net for OneFile {
    type Socket = Socket;

    fn recv(&mut self, socket: &Socket, buffer: &mut [u8]) -> io::Result<usize> {
        if *socket == Socket::Server {
            if !std::mem::take(&mut self.is_server_asked) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            buffer[..SERVER_HEAD.len()].copy_from_slice(SERVER_HEAD);
            buffer[SERVER_HEAD.len()..][..STAT.size_bytes as usize].fill(b'x');
            return Ok(SERVER_HEAD.len() + STAT.size_bytes as usize);
        }
        if !std::mem::take(&mut self.pending) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if self.number_at > 0 {
            self.number += 1;
            for (place, byte) in self.request[self.number_at..][..8].iter_mut().enumerate() {
                *byte = b'0' + (self.number >> (3 * place) & 7) as u8;
            }
        }
        buffer[..self.request.len()].copy_from_slice(&self.request);
        Ok(self.request.len())
    }

    fn send(&mut self, socket: &Socket, bytes: &[u8]) -> io::Result<usize> {
        self.is_server_asked |= *socket == Socket::Server;
        Ok(black_box(bytes).len())
    }

    fn send_both(&mut self, socket: &Socket, first: &[u8], second: &[u8]) -> io::Result<usize> {
        self.is_server_asked |= *socket == Socket::Server;
        Ok(first.len() + second.len())
    }

    fn send_pieces(&mut self, _: &Socket, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
        Ok(pieces.iter().map(|piece| piece.len()).sum())
    }

    fn end_sending(&mut self, _: &Socket) {}

    fn reset(&mut self, _: &Socket) {}

    fn local_address(&mut self, _: &Socket) -> Option<SocketAddr> {
        None
    }

    fn unacknowledged_bytes(&mut self, _: &Socket) -> u64 {
        0
    }

    fn last_call_ns(&self) -> u64 {
        1_000_000_000
    }
}

impl Bands for OneFile {
    fn set_band(&mut self, _: &Socket, _: &SocketAddr, _: Band) {}
}

impl UplinkShare for OneFile {
    fn share_uplink(&mut self, _: bool) -> u32 {
        0
    }
}

impl Buckets for OneFile {
    fn bucket(&mut self, _: &BucketKey) -> Option<&AtomicU64> {
        Some(&self.bucket)
    }

    fn announce_requests(&mut self, _: &BucketKey, _: u32) -> u32 {
        0
    }
}

impl Gateway for OneFile {
    fn connect(&mut self, link: Key, _: ServerId) {
        self.asked = Some(link);
    }

    fn record_layer(&mut self, _: ServerId) -> Option<Box<dyn RecordLayer>> {
        None
    }
}

impl Files for OneFile {
    type File = ();

    fn open_cached(&mut self, _: SiteId, _: &[u8], want: Want) -> Result<Opened<()>, LookUpError> {
        Ok(Opened { stat: STAT, file: (want == Want::Content).then_some(()) })
    }

    fn read_resident(&mut self, (): &(), _: u64, buffer: &mut [u8]) -> io::Result<Resident> {
        Ok(Resident::Bytes(buffer.len()))
    }

    fn stat(&mut self, (): &()) -> io::Result<FileStat> {
        Ok(STAT)
    }
}

/// The content of the file.
#[derive(Debug)]
struct Content([u8; STAT.size_bytes as usize]);

impl BlockBytes for Content {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn number(&self) -> u64 {
        0
    }

    fn note_use(&self) {}
}

impl Blocks for OneFile {
    fn block(&mut self, _: &FileStat, _: u64) -> Option<Block> {
        Some(Arc::clone(&self.content))
    }
}

impl Helpers for OneFile {
    fn start_job(&mut self, _: JobId, _: &Task<()>, _: usize) -> bool {
        false
    }

    fn abandon_job(&mut self, _: JobId) {}
}

impl Log for OneFile {
    fn log_access(&mut self, _: u16, line: &[u8]) {
        black_box(line);
    }

    fn report(&mut self, message: &str) {
        panic!("{message}");
    }
}

impl SharedNames for OneFile {
    fn shared_name(&mut self, _: SiteId, _: &[u8]) -> Option<SharedName> {
        let found_ms = NOW.monotonic_ns / 1_000_000;
        let facts = NameFacts::File { plain: STAT, coded: [None; 3], index: None };
        let watched = Some(NameMark { watch: 1, shard: 0, changes: 0 });
        self.shares_names.then_some(SharedName { facts, found_ms, confirmed_ms: found_ms, watched })
    }

    fn unchanged_ms(&self, _: NameMark) -> Option<u64> {
        self.shares_names.then_some(u64::MAX)
    }

    fn are_changes_reported(&self) -> bool {
        self.shares_names
    }

    fn report_wrong_name(&mut self, _: SiteId, _: &[u8]) {}
}

impl Machine for OneFile {
    fn send_file(&mut self, _: &Socket, head: &[u8], _: &Arc<()>, part: FilePart) -> io::Result<FileSent> {
        let offered = head.len() + part.length;
        Ok(FileSent::Took { offered, sent: offered })
    }
}

fn rules(log_format: LogFormat, site: Site) -> Rules {
    let route = Route {
        paths: RoutePaths::Prefix(b"/".to_vec()),
        upstream: UpstreamId(0),
        has_own_files: true,
        body_bytes_max: 0,
        streams_bodies: false,
        files_first: false,
        compresses: false,
        streams_answers: false,
    };
    let upstream = UpstreamRules {
        protocol: UpstreamProtocol::Http,
        servers: vec![ServerRules { name: "server".into(), weight: 1, is_unix: true, is_encrypted: false }],
        connections_max: 8,
        idle_max: 8,
        queue_max: 8,
        connect_ms: 10_000,
        answer_ms: 10_000,
    };
    let (routes, upstreams) =
        if site == Site::Routed { (vec![route], vec![upstream]) } else { (vec![], vec![]) };
    let index = vec!["index.html".into()];
    let site = SiteRules {
        root: "/".into(),
        hosts: vec![],
        index,
        browse: false,
        precompressed: true,
        compress: false,
        encoded_slash: EncodedSlash::Decode,
        hsts: None,
        https_redirect: None,
        paths: if site == Site::Ruled { path_rules().into() } else { PathRules::default().into() },
        alias_of: None,
        routes,
    };
    Rules {
        sites: vec![site],
        upstreams,
        worker: 0,
        server_field: ServerField::Sent,
        types: TypeTable::new([]),
        etag_of_change: false,
        freshness_ms: 1000,
        stale_ms: 10_000,
        queue_wait_ms: 5_000,
        has_store: true,
        optimizations: Optimizations::default(),
        proxies: ProxyRules::default(),
        admission: AdmissionRules { connections_max: 1000, ..AdmissionRules::default() },
        open_files_max: 64,
        names_bytes_max: flash_engine::limits::NAMES_BYTES,
        cache_parts: 1,
        helpers_max: 16,
        timeouts: Timeouts { head_ms: 10_000, idle_ms: 60_000, job_ms: 30_000 },
        least_rate_bytes_per_s: 1024,
        bodies: BodyRules::default(),
        spool_idle_ms: 5_000,
        http2: true,
        policy: Policy::Fair,
        egress: None,
        log: LogRules::of(log_format),
    }
}

/// Security headers for all paths, caching for some, and redirects of others.
fn path_rules() -> PathRules {
    let fields = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let rule = |pattern: &str, set: &[(&str, &str)], target: Option<&str>| PathRule {
        fields: FieldChanges { set: fields(set), ..FieldChanges::default() },
        redirect: target.map(|target| Redirect { status: Status::FOUND, target: Target::new(target) }),
        ..PathRule::new(pattern)
    };
    PathRules::new(vec![
        rule("*", &[("Referrer-Policy", "no-referrer"), ("X-Frame-Options", "DENY")], None),
        rule("*.js", &[("Cache-Control", "public, max-age=31536000, immutable")], None),
        rule("/old/*", &[], Some("/new/$1")),
    ])
}

/// Nanoseconds per request: the best of several rounds.
fn measure(request: &[u8], log_format: LogFormat, site: Site) -> f64 {
    let mut engine = Engine::new(rules(log_format, site), NOW);
    let number_at = request.windows(8).position(|bytes| bytes == b"00000000").unwrap_or(0);
    let content: Block = Arc::new(Content([0; STAT.size_bytes as usize]));
    let (asked, is_server_asked) = (None, false);
    let request = request.to_vec();
    let mut machine = OneFile {
        request,
        number_at,
        number: 0,
        pending: false,
        content,
        asked,
        is_server_asked,
        bucket: AtomicU64::new(0),
        shares_names: site == Site::Shared,
    };
    let mut link = None;
    let peer = SocketAddr::from(([127, 0, 0, 1], 1));
    let connect = |engine: &mut Engine<OneFile>, machine: &mut OneFile| {
        engine.handle_accept(machine, Socket::Client, peer).unwrap_or_else(|_| panic!("no room"))
    };
    let mut keys: Vec<_> = (0..64).map(|_| connect(&mut engine, &mut machine)).collect();
    let ready = Readiness { readable: true, ..Readiness::default() };
    let best_ns = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for number in 0..REQUESTS {
                machine.pending = true;
                let key = &mut keys[number as usize % 64];
                engine.handle_ready(&mut machine, *key, ready);
                if let Some(asked) = machine.asked.take() {
                    link = Some(asked);
                    engine.handle_connected(&mut machine, asked, Socket::Server);
                    engine.handle_continued(&mut machine);
                }
                if let (Some(link), true) = (link, machine.is_server_asked) {
                    engine.handle_link_ready(&mut machine, link, ready);
                    engine.handle_continued(&mut machine);
                }
                if engine.connection(*key).is_none() {
                    *key = connect(&mut engine, &mut machine);
                }
            }
            start.elapsed().as_nanos() as f64 / f64::from(REQUESTS)
        })
        .fold(f64::INFINITY, f64::min);
    let answered = engine.counters().responses;
    assert!(answered[1] + answered[2] >= u64::from(REQUESTS), "every request must be answered: {answered:?}");
    best_ns
}

fn main() {
    let head =
        |first: &str, more: &str| format!("{first}\r\nHost: 127.0.0.1:8080\r\n{more}\r\n").into_bytes();
    let browser = "Connection: keep-alive\r\n\
        User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36\r\n\
        Accept: */*\r\nAccept-Language: en-GB,en;q=0.9\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n\
        Referer: https://www.example.org/\r\nSec-Fetch-Dest: script\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Site: same-origin\r\n";
    let varied = format!("{browser}Cookie: session=00000000\r\n");
    let since = "If-Modified-Since: Wed, 15 Nov 2023 00:00:00 GMT\r\n";
    let cases = [
        ("hit, wrk's request", head("GET /1k HTTP/1.1", ""), LogFormat::Off),
        ("hit, a browser's request", head("GET /app.js HTTP/1.1", browser), LogFormat::Off),
        ("hit, heads that all differ", head("GET /app.js HTTP/1.1", &varied), LogFormat::Off),
        ("hit, logged", head("GET /app.js HTTP/1.1", browser), LogFormat::Combined),
        ("hit, logged as JSON", head("GET /app.js HTTP/1.1", browser), LogFormat::Json),
        ("304", head("GET /1k HTTP/1.1", since), LogFormat::Off),
        ("HEAD", head("HEAD /1k HTTP/1.1", ""), LogFormat::Off),
        ("HTTP/1.0 keep-alive", head("GET /1k HTTP/1.0", "Connection: keep-alive\r\n"), LogFormat::Off),
        (
            "Connection: close, and a new connection",
            head("GET /1k HTTP/1.1", "Connection: close\r\n"),
            LogFormat::Off,
        ),
        ("a range", head("GET /1k HTTP/1.1", "Range: bytes=0-99\r\n"), LogFormat::Off),
    ];
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let show = |name: &str, request: &[u8], log_format, site| {
        if name.contains(&wanted) {
            println!("{name}: {:.0} ns", measure(request, log_format, site));
        }
    };
    for (name, request, log_format) in cases {
        show(name, &request, log_format, Site::Plain);
    }
    let new = head("GET /00000000 HTTP/1.1", "");
    show("hit, names that all differ", &new, LogFormat::Off, Site::Shared);
    let ruled = head("GET /app.js HTTP/1.1", browser);
    show("hit with header rules", &ruled, LogFormat::Off, Site::Ruled);
    let varied = head("GET /app.js HTTP/1.1", &varied);
    show("hit with header rules, heads that all differ", &varied, LogFormat::Off, Site::Ruled);
    show("a relay, a browser's request", &ruled, LogFormat::Off, Site::Routed);
}
