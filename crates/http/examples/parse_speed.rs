//! Measures `parse_head` and `decode_path`: `cargo run --release -p flash-http --example parse_speed`.

use std::hint::black_box;
use std::time::Instant;

use flash_http::{EncodedSlash, HeadLimits, decode_path, head_end, parse_head};

const WRK: &[u8] = b"GET /a/b HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";
const BROWSER: &[u8] = b"GET /docs/guide/index.html HTTP/1.1\r\nHost: www.example.org\r\n\
User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n\
Referer: https://www.example.org/docs/\r\nConnection: keep-alive\r\n\
Upgrade-Insecure-Requests: 1\r\nSec-Fetch-Dest: document\r\nSec-Fetch-Mode: navigate\r\n\
Sec-Fetch-Site: same-origin\r\nPriority: u=0, i\r\n\r\n";

fn main() {
    let limits = HeadLimits::default();
    report("parse_head, wrk", WRK.len(), || parse_head(black_box(WRK), &limits).is_ok());
    report("parse_head, browser", BROWSER.len(), || parse_head(black_box(BROWSER), &limits).is_ok());
    report("head_end, browser", BROWSER.len(), || head_end(black_box(BROWSER), 0).is_some());
    let plain = b"/docs/guide/index.html";
    report("decode_path, plain", plain.len(), || decode_path(black_box(plain), EncodedSlash::Decode).is_ok());
    let escaped = b"/docs/a%20guide/./index.html";
    report("decode_path, escaped", escaped.len(), || {
        decode_path(black_box(escaped), EncodedSlash::Decode).is_ok()
    });
}

/// Prints the best mean of several rounds, because a disturbance only makes a round longer.
fn report(name: &str, bytes: usize, work: impl Fn() -> bool) {
    const CALLS: u32 = 400_000;
    let best_ns = (0..12)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..CALLS {
                assert!(black_box(work()));
            }
            start.elapsed().as_nanos() as f64 / f64::from(CALLS)
        })
        .fold(f64::INFINITY, f64::min);
    println!("{name:<22} {bytes:>4} B {best_ns:>8.1} ns");
}
