//! Sockets that are always non-blocking.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::net::{
    self, AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags, SocketType,
    ipproto, sockopt,
};

/// Makes a listening TCP socket with `SO_REUSEPORT`, one of a group that shares `address`.
/// Connections accepted from it have `TCP_NODELAY` and a bound of unsent bytes. An IPv6 socket takes IPv6 only.
///
/// Errors: those of bind(2), `EADDRINUSE` above all.
pub fn listen(address: SocketAddr, backlog: i32) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = socket(family)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    sockopt::set_socket_reuseport(&fd, true)?;
    sockopt::set_tcp_nodelay(&fd, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    bound_unsent(&fd)?;
    net::bind(&fd, &address)?;
    net::listen(&fd, backlog)?;
    Ok(fd)
}

/// Bytes that a connection holds beyond what is under way to its client. Without this bound the
/// kernel keeps megabytes for a slow client, and tells of room only when a third of them is gone.
const UNSENT_BYTES_MAX: libc::c_int = 256 * 1024;

/// Sets `TCP_NOTSENT_LOWAT` (tcp(7)); accepted connections inherit it.
fn bound_unsent(fd: &OwnedFd) -> io::Result<()> {
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX)
}

/// Sets an option that takes an int (setsockopt(2)).
fn set_option(fd: &OwnedFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: `value` is an int, as long as it is said to be, and outlives the call.
    let answer = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether nobody listens on `address` yet. [`listen`] cannot tell: a second group of the same
/// user would share it unseen.
///
/// Errors: those of bind(2), `EADDRINUSE` when somebody does.
pub fn probe(address: SocketAddr) -> io::Result<()> {
    let fd = socket(if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 })?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    net::bind(&fd, &address)?;
    Ok(net::listen(&fd, 1)?)
}

/// The address that a socket is bound to, for `listen` with port 0.
pub fn local_address(fd: impl AsFd) -> io::Result<SocketAddr> {
    Ok(net::getsockname(fd)?.try_into()?)
}

/// Accepts one queued connection, non-blocking.
///
/// Errors: `WouldBlock` when none is queued; `EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM` at the
/// system's limits; `ECONNABORTED` for a client that left.
pub fn accept(listener: impl AsFd) -> io::Result<(OwnedFd, SocketAddr)> {
    let (fd, address) = net::acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
    let address = address.and_then(|a| a.try_into().ok()).unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)));
    Ok((fd, address))
}

/// Starts to connect; the socket becomes writable when it is done (see [`take_error`]).
pub fn connect(address: SocketAddr) -> io::Result<OwnedFd> {
    connect_from(address, None, None)
}

/// Starts to connect like [`connect`], from `source` if given and with a receive buffer of about
/// `receive_buffer_bytes` if given.
///
/// A port that was used from one source address is free on another, so a client that closes tens
/// of thousands of connections a minute spreads them over several (RFC 9293 §3.3.2, TIME-WAIT). The
/// port is chosen when connecting (`IP_BIND_ADDRESS_NO_PORT`, ip(7)), which knows the peer; bind(2) would
/// take one that no other connection of that address has. With a small buffer segments are those
/// of Ethernet: the 64 KiB of loopback would not fit and come in fits and starts.
///
/// Errors: those of connect(2); `EADDRNOTAVAIL` when every port is in use.
pub fn connect_from(
    address: SocketAddr,
    source: Option<IpAddr>,
    receive_buffer_bytes: Option<usize>,
) -> io::Result<OwnedFd> {
    const SEGMENT_BYTES: libc::c_int = 1460;
    let fd = socket(if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 })?;
    sockopt::set_tcp_nodelay(&fd, true)?;
    if let Some(bytes) = receive_buffer_bytes {
        sockopt::set_socket_recv_buffer_size(&fd, bytes)?;
        set_option(&fd, libc::IPPROTO_TCP, libc::TCP_MAXSEG, SEGMENT_BYTES)?;
    }
    if let Some(source) = source {
        set_option(&fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)?;
        net::bind(&fd, &SocketAddr::new(source, 0))?;
    }
    match net::connect(&fd, &address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(fd),
        Err(e) => Err(e.into()),
    }
}

/// The pending error of a socket, cleared by reading it.
pub fn take_error(fd: impl AsFd) -> io::Result<()> {
    sockopt::socket_error(fd)?.map_err(Into::into)
}

/// Receives what is there into `buffer`; 0 is the end of input.
#[inline]
pub fn recv(fd: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(net::recv(fd, buffer, RecvFlags::DONTWAIT)?.0)
}

/// Sends as much of `bytes` as the socket takes.
#[inline]
pub fn send(fd: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(net::send(fd, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?)
}

/// Sends as much of `parts`, in order, as the socket takes.
pub fn send_parts(fd: impl AsFd, parts: &[IoSlice<'_>]) -> io::Result<usize> {
    let mut none = SendAncillaryBuffer::default();
    Ok(net::sendmsg(fd, parts, &mut none, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?)
}

/// Ends the sending side: the peer reads the end of input after what was sent.
pub fn end_sending(fd: impl AsFd) -> io::Result<()> {
    Ok(net::shutdown(fd, Shutdown::Write)?)
}

/// Ends both sides: whoever waits on another copy of this descriptor is told that the connection is over.
pub fn end(fd: impl AsFd) -> io::Result<()> {
    Ok(net::shutdown(fd, Shutdown::Both)?)
}

/// Has the close of a TCP socket that comes next end its connection at once: the client gets a reset, and the
/// kernel drops what it holds for it, instead of sending that for as long as the client takes (socket(7),
/// `SO_LINGER` of 0 seconds).
///
/// Errors: `ENOTSOCK`.
pub fn reset(socket: impl AsFd) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(socket, Some(Duration::ZERO))?)
}

/// Bytes that a TCP socket holds for its peer: sent but not acknowledged by it, and not sent yet (tcp(7),
/// `SIOCOUTQ`). The end of the sending side counts as one more.
///
/// Errors: `EINVAL` for a listening socket, `ENOTTY` for what is no socket.
pub fn unsent_bytes(socket: impl AsFd) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request writes one int, which outlives the call.
    let answer = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if answer == 0 { Ok(usize::try_from(bytes).unwrap_or(0)) } else { Err(io::Error::last_os_error()) }
}

fn socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;

    /// An accepted socket, and the client that reads nothing yet.
    fn connection() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        client.set_read_timeout(Some(Duration::from_secs(15))).expect("set");
        let (server, _) = listener.accept().expect("accepted");
        (server.into(), client)
    }

    /// Sends until there is no more room: how many bytes.
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

    /// How many bytes the client gets, and how that ends.
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
    fn a_connection_that_is_reset_keeps_nothing_for_its_client() {
        let (server, client) = connection();
        let sent = fill(&server);
        drop(server);
        assert_eq!(read_out(client), (sent, None), "the kernel goes on after a close");
        let (server, client) = connection();
        let sent = fill(&server);
        reset(&server).expect("set");
        drop(server);
        let (received, end) = read_out(client);
        assert_eq!(end, Some(io::ErrorKind::ConnectionReset));
        assert!(received < sent, "{received} of {sent}");
    }

    #[test]
    fn what_a_client_has_not_taken_is_told() {
        let (server, mut client) = connection();
        assert_eq!(unsent_bytes(&server).expect("told"), 0);
        let sent = fill(&server);
        let unsent = unsent_bytes(&server).expect("told");
        assert!(0 < unsent && unsent < sent, "{unsent} of {sent}: some are in the client's own buffer");
        client.read_exact(&mut vec![0; sent]).expect("all of it");
        let started = Instant::now();
        while unsent_bytes(&server).expect("told") > 0 {
            assert!(started.elapsed() < Duration::from_secs(15), "never acknowledged");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn only_sockets_have_something_unsent() {
        let file = std::fs::File::open("/dev/null").expect("/dev/null");
        assert!(unsent_bytes(&file).is_err() && reset(&file).is_err());
    }
}
