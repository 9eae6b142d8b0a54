//! Tests of a link between two namespaces of this machine, without any assertion on time; skipped where none can be made.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::skipping::skip;

/// A link, if this machine allows one.
fn start(settings: &Settings) -> Option<Link> {
    match Link::start(settings) {
        Ok(link) => Some(link),
        Err(why) => {
            skip(&format!("no link: {why}"));
            None
        }
    }
}

/// Both directions alike.
fn alike(path: &Path) -> Settings {
    Settings { to_client: path.clone(), to_server: path.clone(), ..Settings::default() }
}

/// Bytes of which none equals the one 251 before it.
fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8 ^ (at / 251) as u8).collect()
}

/// A server that sends these bytes to its first client, and the address of it.
fn serve(link: &Link, bytes: Vec<u8>) -> (thread::JoinHandle<()>, (Ipv4Addr, u16)) {
    let listener = link.server.run(|| TcpListener::bind((SERVER, 0))).unwrap().unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        // Until the client closes.
        let _ = stream.read(&mut [0]);
    });
    (serving, (SERVER, port))
}

fn fetch(link: &Link, from: (Ipv4Addr, u16)) -> Vec<u8> {
    let read = || {
        let mut received = Vec::new();
        TcpStream::connect(from).unwrap().read_to_end(&mut received).unwrap();
        received
    };
    link.client.run(read).unwrap()
}

#[test]
fn a_transfer_over_a_bad_link_gives_the_right_bytes() {
    let path = Path {
        rate_bits_per_s: Some(50_000_000),
        delay_ns: 1_000_000,
        loss: 0.02,
        room: Room::Packets(20),
        order: Order::Arrival,
    };
    let Some(link) = start(&alike(&path)) else { return };
    let sent = content(1_000_000);
    let (serving, from) = serve(&link, sent.clone());
    assert!(link.server.has_listener().unwrap() && !link.client.has_listener().unwrap());
    let received = fetch(&link, from);
    serving.join().unwrap();
    assert!(received == sent, "{} bytes of {}", received.len(), sent.len());
    let counters = link.counters().unwrap();
    let (down, up) = (counters.to_client.total(), counters.to_server.total());
    assert!(down.delivered_bytes > 1_000_000 && down.dropped_lost > 0, "{down:?}");
    assert!(up.delivered_packets > 0 && down.dropped_refused + up.dropped_refused == 0, "{up:?}");
    assert_eq!((counters.to_client.missed_packets, counters.to_server.missed_packets), (0, 0));
    // No packet is longer than the link's: a million bytes need at least this many.
    assert!(down.delivered_packets >= 1_000_000 / 1500, "{down:?}");
}

#[test]
fn with_a_loss_of_everything_nothing_arrives() {
    let Some(link) = start(&alike(&Path { loss: 1.0, ..Path::default() })) else { return };
    let listener = link.server.run(|| TcpListener::bind((SERVER, 0))).unwrap().unwrap();
    let from = listener.local_addr().unwrap();
    let try_it = || TcpStream::connect_timeout(&from, Duration::from_millis(100));
    link.client.run(try_it).unwrap().unwrap_err();
    // The link may take the packet later.
    let patience = Instant::now() + Duration::from_secs(10);
    let mut counters = link.counters().unwrap();
    while counters.to_server.total().dropped_lost == 0 && Instant::now() < patience {
        thread::sleep(Duration::from_millis(5));
        counters = link.counters().unwrap();
    }
    let up = counters.to_server.total();
    assert!(up.dropped_lost > 0 && up.dropped_lost == up.came_packets, "{up:?}");
    assert_eq!(counters.to_client.total(), Counts::default(), "the server heard nothing");
}

#[test]
fn packets_are_counted_in_the_bands_of_their_code_points() {
    let bands = Path { order: Order::Bands, ..Path::default() };
    let Some(link) = start(&alike(&bands)) else { return };
    let [from, to] = [&link.server, &link.client]
        .map(|side| side.run(|| UdpSocket::bind((side.address, 0))).unwrap().unwrap());
    to.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // Each band's packets are as many as its number and one.
    for (band, code_point) in [0, 10, 12, 8, 1].into_iter().enumerate() {
        flash_waiting::network::set_code_point(&from, code_point).unwrap();
        for _ in 0..=band {
            from.send_to(&[code_point; 100], to.local_addr().unwrap()).unwrap();
        }
    }
    let mut received: Vec<u8> = Vec::new();
    let mut buffer = [0; 200];
    for _ in 0..15 {
        assert_eq!(to.recv(&mut buffer).unwrap(), 100);
        received.push(buffer[0]);
    }
    received.sort_unstable();
    assert_eq!(received, [0, 1, 1, 1, 1, 1, 8, 8, 8, 8, 10, 10, 12, 12, 12]);
    let counters = link.counters().unwrap();
    assert_eq!(counters.to_client.bands.map(|band| band.delivered_packets), [1, 2, 3, 4, 5]);
    // 20 bytes of IP header and 8 of UDP.
    assert_eq!(counters.to_client.bands.map(|band| band.delivered_bytes), [128, 256, 384, 512, 640]);
}

#[test]
fn the_packet_length_bounds_every_packet() {
    let Some(link) = start(&Settings { mtu_bytes: 576, ..Settings::default() }) else { return };
    let (serving, from) = serve(&link, content(100_000));
    assert_eq!(fetch(&link, from), content(100_000));
    serving.join().unwrap();
    let down = link.counters().unwrap().to_client.total();
    assert!(down.delivered_packets > 100_000 / 576 && down.dropped() == 0, "{down:?}");
    assert!(down.delivered_bytes <= down.delivered_packets * 576, "{down:?}");
}

#[test]
fn settings_of_the_kernel_are_of_one_side_alone() {
    let Some(link) = start(&Settings::default()) else { return };
    let name = "net.core.somaxconn";
    let read =
        |side: &Side| side.run(|| fs::read_to_string("/proc/sys/net/core/somaxconn")).unwrap().unwrap();
    let before = read(&link.client);
    if let Err(why) = link.server.set(name, "77") {
        return skip(&format!("no link: {why}"));
    }
    assert_eq!((read(&link.server).trim(), read(&link.client)), ("77", before));
    assert_eq!(link.server.set("net.no_such", "1").unwrap_err().exit_code(), 1);
    for wrong in ["kernel.panic", "net.core/../../kernel", "net..core", ""] {
        assert_eq!(link.server.set(wrong, "1").unwrap_err().exit_code(), 2, "{wrong}");
    }
}

#[test]
fn settings_out_of_their_bounds_are_a_wrong_use() {
    let wrong = Settings { mtu_bytes: 1, ..Settings::default() };
    assert_eq!(Link::start(&wrong).unwrap_err().exit_code(), 2);
}
