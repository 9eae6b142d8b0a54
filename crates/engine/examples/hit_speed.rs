//! Nanoseconds of the engine for one hit, the system calls left out: the part of a request
//! that is ours to make faster.
//!
//! `cargo run --release -p flash-engine --example hit_speed`

use std::hint::black_box;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use flash_engine::{
    Engine, FilePart, FileSent, FileStat, JobId, Kind, LogFormat, LookUpError, Moment, Opened, Optimizations,
    Readiness, Resident, Rules, SiteId, SiteRules, System, Task, Timeouts, Want,
};
use flash_http::EncodedSlash;
use flash_http::types::TypeTable;

const ROUNDS: usize = 15;
const REQUESTS: u32 = 200_000;

/// One file, always in memory, and clients that always ask for it.
struct OneFile {
    request: Vec<u8>,
    pending: bool,
}

const STAT: FileStat =
    FileStat { kind: Kind::File, device: 1, inode: 1, size_bytes: 1024, modified_ns: 0, changed_ns: 0 };

impl System for OneFile {
    type Socket = ();
    type File = ();

    fn recv(&mut self, (): &(), buffer: &mut [u8]) -> io::Result<usize> {
        if !std::mem::take(&mut self.pending) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        buffer[..self.request.len()].copy_from_slice(&self.request);
        Ok(self.request.len())
    }

    fn send(&mut self, (): &(), bytes: &[u8]) -> io::Result<usize> {
        Ok(black_box(bytes).len())
    }

    fn send_both(&mut self, (): &(), first: &[u8], second: &[u8]) -> io::Result<usize> {
        Ok(first.len() + second.len())
    }

    fn send_file(&mut self, (): &(), head: &[u8], _: &Arc<()>, part: FilePart) -> io::Result<FileSent> {
        let offered = head.len() + part.length;
        Ok(FileSent::Took { offered, sent: offered })
    }

    fn end_sending(&mut self, (): &()) {}

    fn open_cached(&mut self, _: SiteId, _: &[u8], want: Want) -> Result<Opened<()>, LookUpError> {
        Ok(Opened { stat: STAT, file: (want == Want::Content).then_some(()) })
    }

    fn read_resident(&mut self, (): &(), _: u64, buffer: &mut [u8]) -> io::Result<Resident> {
        Ok(Resident::Bytes(buffer.len()))
    }

    fn stat(&mut self, (): &()) -> io::Result<FileStat> {
        Ok(STAT)
    }

    fn start_job(&mut self, _: JobId, _: &Task<()>, _: usize) -> bool {
        false
    }

    fn abandon_job(&mut self, _: JobId) {}

    fn log_access(&mut self, line: &[u8]) {
        black_box(line);
    }

    fn report(&mut self, message: &str) {
        panic!("{message}");
    }
}

fn rules() -> Rules {
    let index = vec!["index.html".into()];
    let site = SiteRules {
        root: "/".into(),
        hosts: vec![],
        index,
        browse: false,
        precompressed: true,
        encoded_slash: EncodedSlash::Decode,
    };
    Rules {
        sites: vec![site],
        types: TypeTable::new([]),
        etag_of_change: false,
        freshness_ms: 1000,
        cache_memory_bytes: 64 << 20,
        optimizations: Optimizations::default(),
        connections_max: 1000,
        open_files_max: 64,
        cache_parts: 1,
        helpers_max: 16,
        timeouts: Timeouts { head_ms: 10_000, idle_ms: 60_000, job_ms: 30_000 },
        least_rate_bytes_per_s: 1024,
        log_format: LogFormat::Off,
    }
}

fn measure(name: &str, request: &[u8]) {
    let now = Moment { monotonic_ms: 1000, wall_ns: 1_800_000_000_000_000_000 };
    let mut engine = Engine::new(rules(), now);
    let mut sys = OneFile { request: request.to_vec(), pending: false };
    let peer = SocketAddr::from(([127, 0, 0, 1], 1));
    let keys: Vec<_> =
        (0..64).map(|_| engine.handle_accept((), peer).unwrap_or_else(|()| panic!("no room"))).collect();
    let ready = Readiness { readable: true, ..Readiness::default() };
    let best_ns = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for number in 0..REQUESTS {
                sys.pending = true;
                engine.handle_ready(&mut sys, keys[number as usize % keys.len()], ready);
            }
            start.elapsed().as_nanos() as f64 / f64::from(REQUESTS)
        })
        .fold(f64::INFINITY, f64::min);
    assert!(engine.counters().content_hits >= u64::from(REQUESTS), "these were to be hits");
    println!("{name}: {best_ns:.0} ns");
}

fn main() {
    measure("wrk's request", b"GET /1k HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n");
    measure(
        "a browser's request",
        b"GET /assets/app.js HTTP/1.1\r\nHost: www.example.org\r\nConnection: keep-alive\r\n\
          User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36\r\n\
          Accept: */*\r\nAccept-Language: en-GB,en;q=0.9\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n\
          Referer: https://www.example.org/\r\nSec-Fetch-Dest: script\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Site: same-origin\r\n\r\n",
    );
}
