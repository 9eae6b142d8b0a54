//! `flash link --check`: real transfers over links of several settings, against the values that follow from the
//! settings.
//!
//! The command line calls it. It takes about a minute, and needs a machine that does little else.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path as File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use flash_kit::{Ending, Error, Result, number, text};

use super::counters::Counters;
use super::settings::{Path, Room, Settings};
use super::{Link, Side};

/// How far a figure may be from the expected one.
const DEVIATION_MAX: f64 = 0.02;
/// A transfer's time before it is measured: TCP has found its rate, and the queue is full.
const WARM_UP: Duration = Duration::from_secs(1);
/// The measured part of a transfer.
const MEASURED: Duration = Duration::from_secs(5);
/// The headers of a packet with payload: IPv4 and TCP with timestamps (RFC 9293, RFC 7323).
const HEADER_BYTES: u32 = 20 + 32;
/// Connections whose time is taken; the figure is their median.
const CONNECTIONS: usize = 21;
/// Datagrams for the loss: with a loss of 5 %, a standard deviation is 0.56 % of it.
const DATAGRAMS: u64 = 600_000;
/// Datagrams on their way at most, far fewer than a socket's buffer holds.
const UNDER_WAY_MAX: u64 = 100;

/// One comparison.
#[derive(Debug, Serialize)]
struct Row {
    what: String,
    unit: &'static str,
    expected: f64,
    measured: f64,
    /// The difference as a share of the expected figure.
    deviation: f64,
    /// The counts of the link.
    counters: Counters,
}

impl Row {
    fn new(what: String, unit: &'static str, figures: [f64; 2], link: &Link) -> Result<Self> {
        let [expected, measured] = figures;
        let deviation = (measured - expected) / expected;
        Ok(Self { what, unit, expected, measured, deviation, counters: link.counters()? })
    }

    fn holds(&self) -> bool {
        self.deviation.abs() <= DEVIATION_MAX
    }
}

/// Makes the comparisons and prints them. Writes them to the file, if there is one.
///
/// Errors: run, if no link can be made, or a transfer over it breaks off.
pub fn run(json: Option<&File>) -> Result<Ending> {
    eprintln!("checking the link on this machine, which takes a minute");
    let mut rows = Vec::new();
    for (rate, is_down) in [(10_000_000, true), (100_000_000, true), (10_000_000, false)] {
        rows.push(throughput(rate, is_down)?);
    }
    // The round trips of `flash experiment overload --quick` and of the paper.
    for rtt_ms in [20, 100] {
        rows.push(round_trip(rtt_ms)?);
    }
    rows.push(loss(0.05)?);
    print!("{}", table(&rows));
    if let Some(path) = json {
        let text = serde_json::to_string_pretty(&rows).unwrap_or_default() + "\n";
        fs::write(path, text).map_err(|why| Error::file("write", path, &why))?;
    }
    Ok(if rows.iter().all(Row::holds) { Ending::Done } else { Ending::RequirementFailed })
}

fn table(rows: &[Row]) -> String {
    let row = |row: &Row| {
        let kept = row.counters.punctuality;
        let late_ns = kept.late_ns as f64 / kept.packets.max(1) as f64;
        let figure = |value: f64| format!("{value:.3} {}", row.unit);
        vec![
            row.what.clone(),
            figure(row.expected),
            figure(row.measured),
            format!("{:+.2} %", row.deviation * 100.0),
            if row.holds() { "yes" } else { "NO" }.to_owned(),
            number::time(late_ns / 1e6),
            number::percent(kept.over_1_ms as f64 / kept.packets.max(1) as f64),
        ]
    };
    let heads =
        ["check", "expected", "measured", "deviation", "within\n2 %", "mean\nlateness", "later than\n1 ms"];
    text::columns(&heads, rows.iter().map(row).collect(), &[0])
}

/// The rate of the payload of one TCP connection over a link with a delay of 5 ms and a queue of 100 ms.
fn throughput(rate: u64, is_down: bool) -> Result<Row> {
    let mtu_bytes = Settings::default().mtu_bytes;
    let packets = rate / 10 / (u64::from(mtu_bytes) * 8);
    let path = Path {
        rate_bits_per_s: Some(rate),
        delay_ns: 5_000_000,
        room: Room::Packets(packets),
        ..Path::default()
    };
    let link = Link::start(&alike(path))?;
    let [from, to] = if is_down { [&link.server, &link.client] } else { [&link.client, &link.server] };
    let failed = |why| Error::run(format!("the transfer over the link failed: {why}"));
    let listener = bound(to)?;
    let address = listener.local_addr().map_err(failed)?;
    let is_over = AtomicBool::new(false);
    let measured = thread::scope(|scope| {
        let sending = scope.spawn(|| from.run(|| send(TcpStream::connect(address), &is_over)));
        let received = listener.accept().and_then(|(stream, _)| receive(stream));
        is_over.store(true, Ordering::Relaxed);
        let _ = sending.join();
        received
    });
    let expected = rate as f64 * f64::from(mtu_bytes - HEADER_BYTES) / f64::from(mtu_bytes) / 1e6;
    let side = if is_down { "client" } else { "server" };
    let what = format!("TCP to {side}, {} Mbit/s", rate / 1_000_000);
    Row::new(what, "Mbit/s", [expected, measured.map_err(failed)? / 1e6], &link)
}

/// Sends until the receiver closes or it is over.
fn send(stream: std::io::Result<TcpStream>, is_over: &AtomicBool) {
    let bytes = [0; 16_384];
    let Ok(mut stream) = stream else { return };
    while !is_over.load(Ordering::Relaxed) && stream.write_all(&bytes).is_ok() {}
}

/// Bits per second that arrive after the warm-up.
fn receive(mut stream: TcpStream) -> std::io::Result<f64> {
    let mut buffer = vec![0; 65_536];
    let mut receive_for = |time: Duration| {
        let (began, mut bytes) = (Instant::now(), 0);
        while began.elapsed() < time {
            match stream.read(&mut buffer)? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                length => bytes += length,
            }
        }
        Ok(bytes as f64 * 8.0 / began.elapsed().as_secs_f64())
    };
    receive_for(WARM_UP)?;
    receive_for(MEASURED)
}

/// The median time in which TCP connects.
fn round_trip(rtt_ms: u64) -> Result<Row> {
    let link = Link::start(&alike(Path { delay_ns: rtt_ms * 1_000_000 / 2, ..Path::default() }))?;
    let failed = |why| Error::run(format!("no connection over the link: {why}"));
    let listener = bound(&link.server)?;
    let address = listener.local_addr().map_err(failed)?;
    let mut times_ms = Vec::new();
    for _ in 0..CONNECTIONS {
        let connect = || {
            let began = Instant::now();
            TcpStream::connect(address).map(|_| began.elapsed().as_secs_f64() * 1000.0)
        };
        times_ms.push(link.client.run(connect)?.map_err(failed)?);
        listener.accept().map_err(failed)?;
    }
    times_ms.sort_by(f64::total_cmp);
    let what = format!("connect, {} ms each way", rtt_ms / 2);
    Row::new(what, "ms", [rtt_ms as f64, times_ms[CONNECTIONS / 2]], &link)
}

fn loss(share: f64) -> Result<Row> {
    let link = Link::start(&alike(Path { loss: share, ..Path::default() }))?;
    let failed = |why| Error::run(format!("no datagrams over the link: {why}"));
    let bind = |side: &Side| side.run(|| UdpSocket::bind((side.address, 0)))?.map_err(failed);
    let (from, to) = (bind(&link.server)?, bind(&link.client)?);
    let address = to.local_addr().map_err(failed)?;
    to.set_read_timeout(Some(Duration::from_millis(100))).map_err(failed)?;
    let (received, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let sent = thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = [0; 64];
            while !is_over.load(Ordering::Relaxed) {
                received.fetch_add(u64::from(to.recv(&mut buffer).is_ok()), Ordering::Relaxed);
            }
        });
        let sent = send_all(&link, &from, address, &received);
        is_over.store(true, Ordering::Relaxed);
        sent
    });
    sent?;
    let measured = 1.0 - received.into_inner() as f64 / DATAGRAMS as f64;
    let what = format!("datagrams lost of {}", number::count(DATAGRAMS));
    Row::new(what, "%", [share * 100.0, measured * 100.0], &link)
}

/// Sends all datagrams, and waits until each has arrived or was lost.
fn send_all(link: &Link, from: &UdpSocket, to: SocketAddr, received: &AtomicU64) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(120);
    for sent in 1..=DATAGRAMS {
        from.send_to(&[0; 32], to).map_err(|why| Error::run(format!("cannot send over the link: {why}")))?;
        if !sent.is_multiple_of(UNDER_WAY_MAX / 2) && sent < DATAGRAMS {
            continue;
        }
        let most = if sent < DATAGRAMS { UNDER_WAY_MAX } else { 0 };
        let under_way = || -> Result<u64> {
            let lost = link.carrier.counters()?.to_client.total().dropped();
            Ok(sent.saturating_sub(lost + received.load(Ordering::Relaxed)))
        };
        while under_way()? > most {
            if Instant::now() > deadline {
                return Err(Error::run("datagrams over the link neither arrived nor were counted as lost"));
            }
            thread::sleep(Duration::from_micros(50));
        }
    }
    Ok(())
}

fn alike(path: Path) -> Settings {
    Settings { to_client: path.clone(), to_server: path, ..Settings::default() }
}

fn bound(side: &Side) -> Result<TcpListener> {
    let address = side.address;
    let listener = side.run(|| TcpListener::bind((address, 0)))?;
    listener.map_err(|why| Error::run(format!("cannot listen on {address}: {why}")))
}
