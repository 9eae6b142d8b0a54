//! Tests of namespaces and TUN devices; skipped without the right to make them.

use std::net::TcpListener;
use std::time::Instant;

use super::*;
use crate::skipping::skip;

/// A namespace, if this machine allows one.
fn namespace() -> Option<Namespace> {
    match Namespace::make() {
        Ok(namespace) => Some(namespace),
        Err(why) => {
            skip(&format!("needs CAP_SYS_ADMIN and CAP_NET_ADMIN: {why}"));
            None
        }
    }
}

fn settings() -> TunSettings<'static> {
    TunSettings {
        name: "tried",
        address: Ipv4Addr::new(198, 18, 0, 1),
        netmask: Ipv4Addr::new(255, 255, 255, 0),
        mtu_bytes: 600,
        backlog_packets: 100,
    }
}

#[test]
fn a_thread_in_a_namespace_sees_no_device_or_port_of_another() {
    let Some(namespace) = namespace() else { return };
    let here = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = here.local_addr().unwrap().port();
    let there = namespace.run(|| {
        assert!(!has_listener().unwrap());
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        assert!(!has_listener().unwrap(), "not reachable from outside");
        let _open = TcpListener::bind(("0.0.0.0", 0)).unwrap();
        assert!(has_listener().unwrap());
        let devices = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        (listener, devices.lines().filter(|line| line.contains(':')).count())
    });
    assert_eq!(there.unwrap().1, 1, "only the loopback device");
}

#[test]
fn a_device_passes_packets_both_ways_and_ends_with_its_descriptor() {
    let Some(namespace) = namespace() else { return };
    let made = namespace.run(|| (Tun::make(&settings()), UdpSocket::bind("198.18.0.1:7")));
    let (tun, socket) = match made.unwrap() {
        (Ok(tun), socket) => (tun, socket.unwrap()),
        (Err(why), _) => return skip(&format!("no TUN device: {why}")),
    };
    let mut buffer = [0; 2000];
    assert_eq!(tun.read(&mut buffer).unwrap(), None);
    socket.send_to(b"hello", "198.18.0.2:9").unwrap();
    let waker = Waker::make().unwrap();
    wait([&tun, &tun], &waker, None).unwrap();
    let mut packet = tun.read(&mut buffer).unwrap().expect("a packet").to_vec();
    // IPv4 from .1 to .2 with 20 bytes of IP header and 8 of UDP.
    assert_eq!((packet[0], packet.len()), (0x45, 33));
    assert_eq!((&packet[12..20], &packet[28..]), (&[198, 18, 0, 1, 198, 18, 0, 2][..], &b"hello"[..]));
    // Back to the sender: the sums of addresses and ports, and so the checksums, stay.
    packet[12..20].copy_from_slice(&[198, 18, 0, 2, 198, 18, 0, 1]);
    packet[20..24].copy_from_slice(&[0, 9, 0, 7]);
    tun.write(&packet).unwrap();
    let (length, from) = socket.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..length], from.to_string().as_str()), (&b"hello"[..], "198.18.0.2:9"));
    assert!(tun.write(&[0; 20]).is_err(), "neither IPv4 nor IPv6");
    let count = || namespace.run(|| missed_packets("tried")).unwrap();
    assert_eq!(count().unwrap(), 0);
    drop(tun);
    // A process that another test starts has a copy until it executes its program.
    let patience = Instant::now() + Duration::from_secs(10);
    while count().is_ok() && Instant::now() < patience {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(count().unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn packets_beyond_the_backlog_are_counted_as_missed() {
    let Some(namespace) = namespace() else { return };
    let few = TunSettings { backlog_packets: 10, ..settings() };
    let made = namespace.run(|| (Tun::make(&few), UdpSocket::bind("198.18.0.1:7")));
    let (_tun, socket) = match made.unwrap() {
        (Ok(tun), socket) => (tun, socket.unwrap()),
        (Err(why), _) => return skip(&format!("no TUN device: {why}")),
    };
    for _ in 0..500 {
        // The error of a full queue, if any, is not the point.
        let _ = socket.send_to(b"hello", "198.18.0.2:9");
    }
    let missed = namespace.run(|| missed_packets("tried")).unwrap().unwrap();
    assert!(missed > 0 && missed <= 490, "{missed}");
}

#[test]
fn a_waker_ends_waits_until_it_is_cleared() {
    let Some(namespace) = namespace() else { return };
    let tun = match namespace.run(|| Tun::make(&settings())).unwrap() {
        Ok(tun) => tun,
        Err(why) => return skip(&format!("no TUN device: {why}")),
    };
    let waker = Waker::make().unwrap();
    waker.wake();
    wait([&tun, &tun], &waker, None).unwrap();
    waker.clear();
    wait([&tun, &tun], &waker, Some(Duration::from_millis(1))).unwrap();
}

#[test]
fn names_that_the_kernel_has_no_room_for_are_refused() {
    assert!(device_name("").is_err() && device_name("sixteen-letters!").is_err());
    assert!(device_name("fifteen-letters").is_ok());
}

#[test]
#[cfg(target_endian = "little")]
fn listeners_are_told_from_connections_and_the_loopback_device() {
    let rest = "00000000:00000000 00:00000000 00000000 0 0 1 1 0 100 0 0 10 0";
    let is =
        |local: &str, remote: &str, state: &str| is_listener(&format!(" 0: {local} {remote} {state} {rest}"));
    assert!(is("010012C6:1F90", "00000000:0000", "0A") && is("00000000:0050", "00000000:0000", "0A"));
    assert!(!is("0100007F:1F90", "00000000:0000", "0A"), "127.0.0.1");
    assert!(!is("010012C6:1F90", "020012C6:9C40", "01"), "a connection");
    let (any, one) = ("0".repeat(32), format!("{}01000000", "0".repeat(24)));
    assert!(is(&format!("{any}:0050"), &format!("{any}:0000"), "0A"));
    assert!(!is(&format!("{one}:0050"), &format!("{any}:0000"), "0A"), "::1");
    assert!(!is_listener("  sl  local_address rem_address   st tx_queue rx_queue") && !is_listener(""));
}
