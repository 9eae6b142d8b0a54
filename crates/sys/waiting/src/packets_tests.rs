//! Tests of the packet socket with real packets on the loopback interface.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::*;
use crate::perf::now_ns;

/// A socket also sees the packets of other tests, so these tests run one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Opens a socket that sees the loopback. If this user is not allowed to, prints the reason.
fn packets() -> Option<(Packets, MutexGuard<'static, ()>)> {
    let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    match Packets::open(None) {
        Ok(packets) => Some((packets, alone)),
        Err(why) => {
            assert_eq!(why.raw_os_error(), Some(libc::EPERM), "{why}");
            crate::skipping::skip(&format!("a packet socket needs CAP_NET_RAW: {why}"));
            None
        }
    }
}

/// The ports and the payload of a TCP packet.
fn parts(bytes: &[u8]) -> (u16, u16, Vec<u8>) {
    let ip = if bytes[0] >> 4 == 4 { usize::from(bytes[0] & 15) * 4 } else { 40 };
    let tcp = &bytes[ip..];
    let port = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
    (port(0), port(2), tcp[usize::from(tcp[12] >> 4) * 4..].to_vec())
}

/// The captured traffic of `port`: whether each packet came from the server, its payload, and its time.
fn seen(packets: &mut Packets, port: u16, wanted: usize) -> Vec<(bool, Vec<u8>, u64)> {
    let mut found = Vec::new();
    let patience = Instant::now() + Duration::from_secs(10);
    while found.len() < wanted && Instant::now() < patience {
        packets.take(|packet| {
            let (from, to, payload) = parts(packet.bytes);
            if from == port || to == port {
                assert_eq!(
                    packet.is_outgoing,
                    payload.starts_with(b"HTTP"),
                    "requests come in, answers go out"
                );
                found.push((packet.is_outgoing, payload, packet.time_ns));
            }
        });
        std::thread::sleep(Duration::from_millis(1));
    }
    found
}

#[test]
fn each_request_and_answer_is_captured_once_and_nothing_else() {
    let Some((mut packets, _alone)) = packets() else { return };
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let Ok(listener) = TcpListener::bind(address) else {
            crate::skipping::skip(&format!("in part: no {address} here"));
            continue;
        };
        let port = listener.local_addr().unwrap().port();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let before_ns = now_ns();
        let long = [b"GET /long HTTP/1.1\r\nX: ".as_slice(), &[b'x'; 5000]].concat();
        let said: [(bool, &[u8]); 7] = [
            (true, b"GET /a HTTP/1.1\r\n\r\n"),
            (false, b"HTTP/1.1 200 OK\r\n\r\n"),
            (true, b"GETS"),
            (true, b"GET"),
            (true, b"\x16\x03\x01 GET "),
            (true, b"OPTIONS * HTTP/1.1\r\n\r\n"),
            (true, &long),
        ];
        for (by_client, bytes) in said {
            let (from, to) = if by_client { (&mut client, &mut server) } else { (&mut server, &mut client) };
            from.write_all(bytes).unwrap();
            to.read_exact(&mut vec![0; bytes.len()]).unwrap();
        }
        let found = seen(&mut packets, port, 4);
        let payloads: Vec<(bool, &[u8])> =
            found.iter().map(|(is_answer, payload, _)| (*is_answer, payload.as_slice())).collect();
        assert_eq!(payloads.len(), 4, "{payloads:?}");
        assert_eq!(payloads[0], (false, said[0].1));
        assert_eq!(payloads[1], (true, said[1].1));
        assert_eq!(payloads[2], (false, said[5].1));
        assert!(long.starts_with(payloads[3].1) && payloads[3].1.len() < PACKET_BYTES_MAX as usize);
        let times: Vec<u64> = found.iter().map(|(.., time_ns)| *time_ns).collect();
        assert!(times.is_sorted() && times[0] >= before_ns && times[3] <= now_ns(), "{times:?}");
    }
    assert_eq!(packets.lost(), 0);
}

#[test]
fn other_ports_leave_the_ring_to_these() {
    let Some((mut packets, _alone)) = packets() else { return };
    let pair = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.local_addr().unwrap().port(), client, listener.accept().unwrap().0)
    };
    let mut pairs = [pair(), pair(), pair()];
    let kept = [pairs[0].0, pairs[2].0];
    packets.keep_ports(&kept).unwrap();
    for (_, client, server) in &mut pairs {
        client.write_all(b"GET /").unwrap();
        server.read_exact(&mut [0; 5]).unwrap();
        server.write_all(b"HTTP/").unwrap();
        client.read_exact(&mut [0; 5]).unwrap();
    }
    let mut found = Vec::new();
    packets.take(|packet| found.push((parts(packet.bytes), packet.is_outgoing)));
    let port = |((from, to, _), is_outgoing): &((u16, u16, _), bool)| if *is_outgoing { *from } else { *to };
    // Others on this machine may have sent packets before the ports were chosen.
    let is_ours = |port: &u16| pairs.iter().any(|(ours, ..)| ours == port);
    let ports: Vec<u16> = found.iter().map(port).filter(is_ours).collect();
    assert_eq!(ports, [kept[0], kept[0], kept[1], kept[1]]);
    let many: Vec<u16> = (1..=PORTS_MAX as u16 + 1).collect();
    packets.keep_ports(&many[..PORTS_MAX]).unwrap();
    packets.keep_ports(&many).unwrap();
    pairs[1].1.write_all(b"GET /").unwrap();
    assert_eq!(seen(&mut packets, pairs[1].0, 1).len(), 1, "too many ports: all are captured");
}

#[test]
fn packets_without_room_are_counted() {
    let Some((mut packets, _alone)) = packets() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_nodelay(true).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let (request, more) = (b"GET /a HTTP/1.1\r\n\r\n", 100);
    for _ in 0..FRAMES + more {
        client.write_all(request).unwrap();
        server.read_exact(&mut [0; 19]).unwrap();
    }
    assert!(packets.lost() >= more as u64, "{}", packets.lost());
    let mut taken = 0;
    packets.take(|packet| taken += usize::from(parts(packet.bytes).1 == port));
    assert!(taken <= FRAMES && taken > FRAMES / 2, "{taken}");
    // There is room again.
    client.write_all(request).unwrap();
    assert_eq!(seen(&mut packets, port, 1).len(), 1);
}

#[test]
fn another_namespace_is_captured_from_a_separate_thread() {
    let here = File::open("/proc/self/ns/net").unwrap();
    match Packets::open(Some(&here)) {
        Ok(_) => {}
        Err(why) => crate::skipping::skip(&format!("needs CAP_SYS_ADMIN and CAP_NET_RAW: {why}")),
    }
    let no_namespace = File::open("/proc/self/stat").unwrap();
    assert!(Packets::open(Some(&no_namespace)).is_err());
}
