//! Tests of sockets: sends, receives and what the kernel reports about them.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::*;
use crate::epoll::{Epoll, Watch};

/// Makes an accepted socket whose client does not read yet.
fn connection() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
    client.set_read_timeout(Some(Duration::from_secs(15))).expect("set");
    let (server, _) = listener.accept().expect("accepted");
    (server.into(), client)
}

/// Sends until there is no more room. Returns the number of bytes.
fn fill(server: &OwnedFd) -> usize {
    let mut sent = 0;
    loop {
        match send(server, &[7; 64 * 1024]) {
            Ok(n) => sent += n,
            Err(e) => {
                assert_eq!(e.kind(), io::ErrorKind::WouldBlock);
                return sent;
            }
        }
    }
}

/// Reads to the end. Returns how many bytes came, and the error at the end.
fn read_out(mut client: TcpStream) -> (usize, Option<io::ErrorKind>) {
    let (mut received, mut buffer) = (0, vec![0; 64 * 1024]);
    loop {
        match client.read(&mut buffer) {
            Ok(0) => return (received, None),
            Ok(n) => received += n,
            Err(e) => return (received, Some(e.kind())),
        }
    }
}

#[test]
fn a_reset_connection_keeps_no_bytes_for_its_client() {
    let (server, client) = connection();
    let sent = fill(&server);
    drop(server);
    assert_eq!(read_out(client), (sent, None), "the kernel continues to send after a close");
    let (server, client) = connection();
    let sent = fill(&server);
    reset(&server).expect("set");
    drop(server);
    let (received, end) = read_out(client);
    assert_eq!(end, Some(io::ErrorKind::ConnectionReset));
    assert!(received < sent, "{received} of {sent}");
}

#[test]
fn a_slow_client_holds_little_and_an_edge_reports_room_for_more() {
    let listener = listen(([127, 0, 0, 1], 0).into(), 4).expect("a port");
    let address = local_address(&listener).expect("an address");
    let client = socket(AddressFamily::INET).expect("a socket");
    sockopt::set_socket_recv_buffer_size(&client, 16 * 1024).expect("set");
    let connecting = net::connect(&client, &address);
    assert!(matches!(connecting, Ok(()) | Err(rustix::io::Errno::INPROGRESS)), "{connecting:?}");
    let mut client = TcpStream::from(client);
    client.set_nonblocking(false).expect("set");
    let deadline = Instant::now() + Duration::from_secs(60);
    let server = loop {
        match accept(&listener) {
            Ok((server, _)) => break server,
            Err(e) => assert!(e.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline, "{e}"),
        }
    };
    let mut epoll = Epoll::new(4).expect("an epoll");
    epoll.add(&server, 7, Watch::Connection).expect("watched");
    for _ in 0..3 {
        let sent = fill(&server);
        // Unsent, the segment that goes beyond the bound, and in the client's buffer.
        assert!(sent <= UNSENT_BYTES_MAX as usize + 3 * 64 * 1024, "{sent} bytes");
        while epoll.wait(Some(0)).expect("a wait").any(|ready| ready.writable) {}
        client.read_exact(&mut vec![0; sent]).expect("all of it");
        let news: Vec<_> = epoll.wait(Some(60_000)).expect("a wait").collect();
        assert!(news.iter().any(|ready| ready.writable), "{news:?}");
    }
}

#[test]
fn a_client_of_a_unix_socket_has_the_unspecified_address() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("a listener");
    assert!(!is_tcp(&listener).expect("an answer"));
    let _client = std::os::unix::net::UnixStream::connect(&path).expect("connected");
    let (server, client) = accept(&listener).expect("accepted");
    assert!(client.ip().is_unspecified() && local_address(&server).is_err(), "{client}");
}

#[test]
fn a_client_by_ipv4_of_a_socket_for_both_has_its_address_of_ipv4() {
    let Ok(listener) = TcpListener::bind("[::]:0") else {
        // This machine has no IPv6.
        return;
    };
    assert!(is_tcp(&listener).expect("an answer"));
    let port = listener.local_addr().expect("an address").port();
    let Ok(client) = TcpStream::connect(("127.0.0.1", port)) else {
        // Its sockets of IPv6 take only IPv6.
        return;
    };
    let (_, address) = accept(&listener).expect("accepted");
    assert_eq!(address, client.local_addr().expect("an address"));
}

#[test]
fn unacknowledged_bytes_are_reported() {
    let (server, mut client) = connection();
    assert_eq!(unsent_bytes(&server).expect("an answer"), 0);
    let sent = fill(&server);
    let unsent = unsent_bytes(&server).expect("an answer");
    assert!(
        0 < unsent && unsent < sent,
        "{unsent} of {sent} bytes are unsent: some must be in the client's buffer"
    );
    client.read_exact(&mut vec![0; sent]).expect("all of it");
    let started = Instant::now();
    while unsent_bytes(&server).expect("an answer") > 0 {
        assert!(started.elapsed() < Duration::from_secs(15), "never acknowledged");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_capped_connection_holds_no_more_than_its_cap() {
    for bytes in [InFlightCap::BYTES_MIN, 20_000, 64 * 1024, InFlightCap::BYTES_MAX] {
        let cap = InFlightCap::new(bytes);
        assert_eq!(cap.piece_bytes + cap.buffer_bytes, bytes);
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)), 8).expect("listens");
        cap_in_flight(&listener, Some(cap)).expect("set");
        let address = local_address(&listener).expect("an address");
        // A small receive buffer, so that bytes stay in flight or unsent.
        let client = connect_from(address, None, Some(4096)).expect("connects");
        let (server, _) = loop {
            match accept(&listener) {
                Ok(accepted) => break accepted,
                Err(e) => assert_eq!(e.kind(), io::ErrorKind::WouldBlock),
            }
        };
        let data: Vec<u8> = (0..2 * bytes).map(|n| n as u8).collect();
        let (head, body) = data.split_at(300);
        let mut sent = 0;
        // Some bytes reach the client's buffer after the first refusal, so a single one proves nothing.
        for _ in 0..200 {
            let rest = (&head[sent.min(300)..], &body[sent.max(300) - 300..]);
            match send_capped(&server, cap, rest.0, rest.1) {
                Ok(bytes) => sent += bytes,
                Err(e) => assert_eq!(e.kind(), io::ErrorKind::WouldBlock),
            }
            let held = unsent_bytes(&server).expect("an answer");
            assert!(held <= bytes, "{held} bytes held with a cap of {bytes}");
        }
        assert!(sent < data.len() || bytes < 100_000, "all of {sent} bytes were accepted");
        let mut client = TcpStream::from(client);
        client.set_nonblocking(false).expect("set");
        let mut received = vec![0; sent];
        client.read_exact(&mut received).expect("all that was sent");
        assert!(received == data[..sent], "other bytes than were sent");
    }
}

#[test]
fn a_listener_loses_its_cap_at_a_reload() {
    let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)), 8).expect("listens");
    cap_in_flight(&listener, Some(InFlightCap::new(20_000))).expect("set");
    cap_in_flight(&listener, None).expect("set");
    let client = TcpStream::connect(local_address(&listener).expect("an address")).expect("connects");
    let server = loop {
        match accept(&listener) {
            Ok((server, _)) => break server,
            Err(e) => assert_eq!(e.kind(), io::ErrorKind::WouldBlock),
        }
    };
    assert!(fill(&server) > 100_000, "the buffer grows again");
    drop(client);
}

/// Reads an option that is an int.
fn option(socket: &OwnedFd, level: libc::c_int, name: libc::c_int) -> libc::c_int {
    let (mut value, mut length): (libc::c_int, libc::socklen_t) = (-1, 4);
    // SAFETY: the kernel writes at most one int, which outlives the call.
    let answer = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut length)
    };
    assert_eq!((answer, length), (0, 4), "{}", io::Error::last_os_error());
    value
}

#[test]
fn a_priority_after_a_code_point_stays() {
    let (server, _client) = connection();
    assert_eq!(option(&server, libc::SOL_SOCKET, libc::SO_PRIORITY), 0, "a new connection has none");
    set_code_point(&server, false, 0b00_1000).expect("set");
    set_priority(&server, 5).expect("set");
    assert_eq!(option(&server, libc::IPPROTO_IP, libc::IP_TOS), 0b0010_0000);
    assert_eq!(option(&server, libc::SOL_SOCKET, libc::SO_PRIORITY), 5);
    set_code_point(&server, false, 0).expect("set");
    set_priority(&server, 0).expect("set");
    assert_eq!(option(&server, libc::IPPROTO_IP, libc::IP_TOS), 0);
    assert_eq!(option(&server, libc::SOL_SOCKET, libc::SO_PRIORITY), 0);
}

#[test]
fn ipv6_connections_have_a_code_point_too() {
    let listener = match TcpListener::bind("[::1]:0") {
        Ok(listener) => listener,
        Err(_) => return crate::skipping::skip("this machine has no IPv6"),
    };
    let _client = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
    let server: OwnedFd = listener.accept().expect("accepted").0.into();
    set_code_point(&server, true, 1).expect("set");
    set_priority(&server, 3).expect("set");
    assert_eq!(option(&server, libc::IPPROTO_IPV6, libc::IPV6_TCLASS), 0b100);
    assert_eq!(option(&server, libc::SOL_SOCKET, libc::SO_PRIORITY), 3);
}

#[test]
fn only_sockets_have_unsent_bytes() {
    let file = std::fs::File::open("/dev/null").expect("/dev/null");
    assert!(unsent_bytes(&file).is_err() && reset(&file).is_err());
}
