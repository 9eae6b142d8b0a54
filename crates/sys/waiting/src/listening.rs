//! The queues of listening sockets, and the connections of an address by state: getsockopt(2) with `TCP_INFO`, and
//! sock_diag(7). For the supervisor's statistics; no call here waits.
//!
//! The kernel walks all its connections for [`connections`], a few milliseconds for a hundred thousand. That is why it is
//! called on request, and never by a worker.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, SocketAddr};

use flash_prompt::call::check;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

/// Bytes of one answer of the kernel; it sends at most 32 KiB at once.
const ANSWER_BYTES: usize = 64 << 10;
/// Request and header of a message (linux/netlink.h), in bytes.
const HEADER_BYTES: usize = 16;
/// A request (linux/inet_diag.h, `inet_diag_req_v2`), in bytes.
const REQUEST_BYTES: usize = 56;
/// A request for a Unix socket (linux/unix_diag.h, `unix_diag_req`), and its answer without attributes, in bytes.
const UNIX_REQUEST_BYTES: usize = 24;
const UNIX_SOCKET_BYTES: usize = 16;
/// A connection (`inet_diag_msg`) up to the end of its own address, in bytes.
const CONNECTION_BYTES: usize = 24;
/// `SOCK_DIAG_BY_FAMILY` (linux/sock_diag.h).
const BY_FAMILY: u16 = 20;
/// The state of a listening socket (include/net/tcp_states.h).
const LISTEN: u32 = 10;

/// Number of states: the kernel numbers them from 1.
pub const STATES: usize = 13;

/// The accept queue of a listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptQueue {
    /// Connections that wait to be accepted.
    pub length: u32,
    /// Its maximum. The kernel takes one connection more.
    pub bound: u32,
}

/// Reads the accept queue of a listening TCP socket, which the kernel reports in fields of other names
/// (tcp_get_info in net/ipv4/tcp.c).
///
/// Errors: `EINVAL` if it does not listen, any of getsockopt(2).
pub fn accept_queue(listener: impl AsFd) -> io::Result<AcceptQueue> {
    // SAFETY: all zeros is a valid tcp_info.
    let mut info: libc::tcp_info = unsafe { zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    let fd = listener.as_fd().as_raw_fd();
    // SAFETY: the call writes at most `length` bytes to `info`, which outlives it.
    check(unsafe {
        libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut length)
    })?;
    if u32::from(info.tcpi_state) != LISTEN {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(AcceptQueue { length: info.tcpi_unacked, bound: info.tcpi_sacked })
}

/// Reads the accept queue of a listening Unix socket (unix_diag_get_exact in net/unix/diag.c).
///
/// Errors: `ENOENT` for a kernel without sock_diag(7) for Unix sockets, any of socket(2).
pub fn accept_queue_of_unix(listener: impl AsFd) -> io::Result<AcceptQueue> {
    let number = rustix::fs::fstat(listener)?.st_ino as u32;
    let socket = ask(&request_of_unix(number))?;
    let mut buffer = vec![0; ANSWER_BYTES];
    let length = receive(&socket, &mut buffer)?;
    match message(&buffer[..length]) {
        Some((Message::Other, body, _)) => queue_in(body).ok_or_else(|| io::ErrorKind::InvalidData.into()),
        Some((Message::Failed(why), ..)) => Err(why),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// A question for the queue of the Unix socket with this inode number.
fn request_of_unix(number: u32) -> Vec<u8> {
    const SHOW_QUEUES: u32 = 0x10;
    let mut bytes = header(UNIX_REQUEST_BYTES, libc::NLM_F_REQUEST as u16);
    bytes.extend([libc::AF_UNIX as u8, 0, 0, 0]);
    // Any state, and any cookie.
    for word in [u32::MAX, number, SHOW_QUEUES, u32::MAX, u32::MAX] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes
}

/// The queue among the attributes of an answer.
fn queue_in(body: &[u8]) -> Option<AcceptQueue> {
    const QUEUES: u16 = 4;
    let mut attributes = body.get(UNIX_SOCKET_BYTES..)?;
    loop {
        let (length, kind) = (attributes.get(..2)?, attributes.get(2..4)?);
        let length = usize::from(u16::from_ne_bytes(length.try_into().ok()?));
        let value = attributes.get(4..length)?;
        if u16::from_ne_bytes(kind.try_into().ok()?) == QUEUES {
            let word = |at: usize| Some(u32::from_ne_bytes(value.get(at..at + 4)?.try_into().ok()?));
            return Some(AcceptQueue { length: word(0)?, bound: word(4)? });
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

/// Sends a question to the kernel.
fn ask(request: &[u8]) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(netlink::SOCK_DIAG))?;
    // An unbound socket sends to the kernel.
    send(&socket, request, SendFlags::empty())?;
    Ok(socket)
}

/// Connections of an address by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// How many are in each state, by the number of the kernel: 1 is established, 3 waits in the SYN queue.
    pub by_state: [u64; STATES],
    /// Whether there are more, which were not counted.
    pub is_cut: bool,
}

/// Counts at most `connections_max` connections to this address of ours, in the network namespace of the calling thread;
/// to any address if it is unspecified. Includes those that no program has accepted, and those in TIME_WAIT.
///
/// Errors: `ENOENT` for a kernel without sock_diag(7) for TCP, any of socket(2).
pub fn connections(address: SocketAddr, connections_max: u64) -> io::Result<Connections> {
    let socket = ask(&request(address))?;
    let mut counted = Connections::default();
    let mut seen = 0;
    let mut buffer = vec![0; ANSWER_BYTES];
    loop {
        let length = receive(&socket, &mut buffer)?;
        let mut rest = &buffer[..length];
        while let Some((kind, body, after)) = message(rest) {
            rest = after;
            match kind {
                Message::Done => return Ok(counted),
                Message::Failed(why) => return Err(why),
                Message::Other => {
                    let Some(state) = state_at(address.ip(), body) else { continue };
                    if seen == connections_max {
                        counted.is_cut = true;
                        return Ok(counted);
                    }
                    seen += 1;
                    counted.by_state[state] += 1;
                }
            }
        }
    }
}

/// Receives the next part. The kernel makes it in the call, so there is always one.
fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    match recv(socket, &mut *buffer, RecvFlags::DONTWAIT)? {
        (_, 0) => Err(io::ErrorKind::UnexpectedEof.into()),
        // A length beyond the buffer means that the end was dropped.
        (_, length) if length > buffer.len() => Err(io::ErrorKind::InvalidData.into()),
        (_, length) => Ok(length),
    }
}

/// A question for all connections of a port, in all states except listening.
fn request(address: SocketAddr) -> Vec<u8> {
    let (family, states) = (family_of(address), !(1_u32 << LISTEN));
    let mut bytes = header(REQUEST_BYTES, (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16);
    bytes.extend([family, libc::IPPROTO_TCP as u8, 0, 0]);
    bytes.extend(states.to_ne_bytes());
    bytes.extend(address.port().to_be_bytes());
    bytes.resize(HEADER_BYTES + REQUEST_BYTES, 0);
    bytes
}

/// The header of a question of this length.
fn header(request_bytes: usize, flags: u16) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + request_bytes);
    bytes.extend(((HEADER_BYTES + request_bytes) as u32).to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes
}

fn family_of(address: SocketAddr) -> u8 {
    match address {
        SocketAddr::V4(_) => libc::AF_INET as u8,
        SocketAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

/// The kind of a message of the kernel.
enum Message {
    /// The last one.
    Done,
    /// The question was refused.
    Failed(io::Error),
    /// An answer.
    Other,
}

/// Splits off the first message: its kind, its body, and the rest.
fn message(bytes: &[u8]) -> Option<(Message, &[u8], &[u8])> {
    let header = bytes.get(..HEADER_BYTES)?;
    let length = u32::from_ne_bytes(header[..4].try_into().ok()?) as usize;
    let body = bytes.get(HEADER_BYTES..length)?;
    // Messages begin at multiples of four bytes.
    let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    let kind = match i32::from(u16::from_ne_bytes([header[4], header[5]])) {
        libc::NLMSG_DONE => Message::Done,
        libc::NLMSG_ERROR => {
            let code = body.get(..4).and_then(|code| code.try_into().ok()).map_or(0, i32::from_ne_bytes);
            Message::Failed(io::Error::from_raw_os_error(code.saturating_neg()))
        }
        _ => Message::Other,
    };
    Some((kind, body, rest))
}

/// The state of a connection that the kernel described, if it belongs to this address of ours.
fn state_at(wanted: IpAddr, body: &[u8]) -> Option<usize> {
    let body = body.get(..CONNECTION_BYTES)?;
    let state = usize::from(body[1]);
    let own = &body[8..];
    let is_ours = match wanted {
        _ if wanted.is_unspecified() => true,
        IpAddr::V4(wanted) => own[..4] == wanted.octets(),
        IpAddr::V6(wanted) => own[..16] == wanted.octets(),
    };
    (is_ours && state < STATES).then_some(state)
}

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn the_accept_queue_holds_connections_until_they_are_accepted() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("an address");
        let length = || accept_queue(&listener).expect("its queue").length;
        assert_eq!(length(), 0);
        assert!(accept_queue(&listener).expect("its queue").bound > 0);
        let clients: Vec<_> = (0..3).map(|_| TcpStream::connect(address).expect("connected")).collect();
        assert_eq!(length(), 3);
        let accepted = listener.accept().expect("accepted").0;
        assert_eq!(length(), 2);
        assert!(accept_queue(&accepted).is_err(), "it does not listen");
        drop(clients);
    }

    #[test]
    fn the_accept_queue_of_a_unix_socket_too() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).expect("a listener");
        let queue = match accept_queue_of_unix(&listener) {
            Ok(queue) => queue,
            Err(why) => return crate::skipping::skip(&format!("this kernel has no sock_diag: {why}")),
        };
        assert!(queue.length == 0 && queue.bound > 0, "{queue:?}");
        let _clients = [(); 3].map(|()| UnixStream::connect(&path).expect("connected"));
        assert_eq!(accept_queue_of_unix(&listener).expect("its queue"), AcceptQueue { length: 3, ..queue });
        let file = std::fs::File::open("/dev/null").expect("a file");
        assert!(accept_queue_of_unix(&file).is_err(), "no socket");
    }

    #[test]
    fn connections_are_counted_by_state_for_their_address_alone() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(any) else {
                crate::skipping::skip("this machine has no IPv6");
                continue;
            };
            let address = listener.local_addr().expect("an address");
            let count = |address, most| match connections(address, most) {
                Ok(counted) => Some((counted.by_state[1], counted.by_state[8], counted.is_cut)),
                Err(why) => {
                    crate::skipping::skip(&format!("this kernel has no sock_diag: {why}"));
                    None
                }
            };
            let Some(none) = count(address, 100) else { return };
            assert_eq!(none, (0, 0, false));
            let mut clients: Vec<_> =
                (0..4).map(|_| TcpStream::connect(address).expect("connected")).collect();
            assert_eq!(count(address, 100), Some((4, 0, false)));
            assert_eq!(count(address, 3), Some((3, 0, true)));
            assert_eq!(count(address, 4), Some((4, 0, false)));
            let mut unspecified = address;
            unspecified.set_ip(if address.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() });
            assert_eq!(count(unspecified, 100), Some((4, 0, false)));
            let mut other = address;
            other.set_ip(if address.is_ipv4() { [127, 0, 0, 9].into() } else { [9_u16; 8].into() });
            assert_eq!(count(other, 100), Some((0, 0, false)));
            // The client has ended, and nobody has accepted its connection: CLOSE_WAIT. Closing it would not do: a
            // process that another test starts has a copy until it executes its program.
            clients.pop().expect("a client").shutdown(Shutdown::Both).expect("shut down");
            assert_eq!(count(address, 100), Some((3, 1, false)));
        }
    }

    #[test]
    fn answers_of_another_form_are_passed_over() {
        assert!(message(&[]).is_none());
        assert!(message(&[0; 16]).is_none(), "shorter than its header");
        let mut long = 200_u32.to_ne_bytes().to_vec();
        long.resize(100, 0);
        assert!(message(&long).is_none(), "longer than it is");
        assert_eq!(state_at([127, 0, 0, 1].into(), &[1; 10]), None);
        assert_eq!(state_at([0, 0, 0, 0].into(), &[200; 72]), None, "no such state");
        for wrong in [&[0; 16][..], &[0; 20], &[0; 64], &[1; 64], &[255; 64]] {
            assert_eq!(queue_in(wrong), None, "{wrong:?}");
        }
    }
}
