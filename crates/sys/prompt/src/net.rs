//! Sockets, all of them non-blocking.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use super::call::check;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::net::{
    self, AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags, SocketType,
    ipproto, sockopt,
};

/// Makes a listening TCP socket with `SO_REUSEPORT`, one of a group that shares `address`. Connections
/// accepted from it have `TCP_NODELAY` and a bound of unsent bytes. An IPv6 socket accepts only IPv6.
///
/// Errors: any of bind(2), usually `EADDRINUSE`.
pub fn listen(address: SocketAddr, backlog: i32) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = socket(family)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    sockopt::set_socket_reuseport(&fd, true)?;
    sockopt::set_tcp_nodelay(&fd, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    bound_unsent(&fd, UNSENT_BYTES_MAX)?;
    net::bind(&fd, &address)?;
    net::listen(&fd, backlog)?;
    Ok(fd)
}

/// Maximum number of bytes that a connection holds beyond those in flight to its client, up to one segment of
/// the kernel (64 KiB) more. Without this bound, the kernel keeps megabytes for a slow client and reports room
/// only when a third of them is sent. With four times as much, 6,000 slow clients can bring the kernel into
/// memory pressure (`tcp_mem`, tcp(7)), in which every connection waits for memory.
///
/// A fast client loses nothing. Its bytes are in flight, which only its window and the congestion window
/// bound, and the half that is left when the kernel reports room covers the time until the next send.
pub const UNSENT_BYTES_MAX: u32 = 64 * 1024;

/// Bounds the bytes that the connections of a listener hold beyond those in flight: `TCP_NOTSENT_LOWAT`
/// (tcp(7)). Accepted connections inherit it.
pub fn bound_unsent(fd: impl AsFd, bytes_max: u32) -> io::Result<()> {
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes_max.cast_signed())
}

/// Bounds the rate at which each connection of a listener sends, in bytes per second; None lifts the bound. `SO_MAX_PACING_RATE`:
/// the kernel spaces the packets, except the first ten, with any congestion control and queueing discipline. Connections that are
/// accepted from now on inherit it.
///
/// Errors: any of setsockopt(2).
pub fn pace(fd: impl AsFd, bytes_per_s: Option<u64>) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, bytes_per_s.unwrap_or(u64::MAX))
}

/// Sets an option that takes a number, such as an int (setsockopt(2)).
fn set_option<T: Copy>(fd: impl AsFd, level: libc::c_int, name: libc::c_int, value: T) -> io::Result<()> {
    // SAFETY: `value` has the stated length and outlives the call.
    check(unsafe {
        let length = size_of_val(&value) as libc::socklen_t;
        libc::setsockopt(fd.as_fd().as_raw_fd(), level, name, (&raw const value).cast(), length)
    })
    .map(drop)
}

/// Checks that no other process listens on `address`. [`listen`] cannot find out, because a second group of
/// the same user would share the address without an error.
///
/// Errors: any of bind(2); `EADDRINUSE` if another process listens.
pub fn probe(address: SocketAddr) -> io::Result<()> {
    let fd = socket(if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 })?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    net::bind(&fd, &address)?;
    Ok(net::listen(&fd, 1)?)
}

/// The address that a socket is bound to. Needed after `listen` with port 0.
pub fn local_address(fd: impl AsFd) -> io::Result<SocketAddr> {
    Ok(net::getsockname(fd)?.try_into()?)
}

/// Whether a socket is one of TCP, not a Unix socket.
pub fn is_tcp(fd: impl AsFd) -> io::Result<bool> {
    Ok(net::getsockname(fd)?.address_family() != AddressFamily::UNIX)
}

/// The address of a client of a Unix socket, which has none: the unspecified one.
const NO_ADDRESS: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));

/// Accepts one queued connection as a non-blocking socket. A client by IPv4 has an address of IPv4 also at a socket of IPv6, and the
/// client of a Unix socket the unspecified one.
///
/// Errors: `WouldBlock` if none is queued; `EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM` at the system's limits;
/// `ECONNABORTED` if the client has left.
pub fn accept(listener: impl AsFd) -> io::Result<(OwnedFd, SocketAddr)> {
    let (fd, address) = net::acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
    // The kernel tells it for every connection.
    let address = address.ok_or(io::ErrorKind::ConnectionAborted)?;
    if address.address_family() == AddressFamily::UNIX {
        return Ok((fd, NO_ADDRESS));
    }
    Ok(match SocketAddr::try_from(address)? {
        SocketAddr::V6(client) if client.ip().to_ipv4_mapped().is_some() => {
            (fd, SocketAddr::new(client.ip().to_canonical(), client.port()))
        }
        client => (fd, client),
    })
}

/// Starts to connect. The socket becomes writable when the attempt is over (see [`take_error`]).
pub fn connect(address: SocketAddr) -> io::Result<OwnedFd> {
    connect_from(address, None, None)
}

/// Like [`connect`], but from `source` and with a receive buffer of about `receive_buffer_bytes`, if given.
///
/// A port used with one source address is still free with another, so a client that closes tens of thousands
/// of connections a minute spreads them over several addresses (RFC 9293 §3.3.2, TIME-WAIT). The port is
/// chosen at connect time (`IP_BIND_ADDRESS_NO_PORT`, ip(7)), when the peer is known; bind(2) would need a
/// port that no other connection of that address uses. With a small buffer, segments have the size of
/// Ethernet frames: the 64 KiB segments of loopback would not fit and would arrive in bursts.
///
/// Errors: any of connect(2); `EADDRNOTAVAIL` if every port is in use.
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

/// Whether a message could not be sent because the user has too many descriptors in messages (unix(7), `ETOOMANYREFS`). That
/// counts those of all its processes, and ends as they are received.
#[must_use]
pub fn has_too_many_in_transit(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ETOOMANYREFS)
}

/// The number of an error (errno(3)), for another process; `EIO` if it has none.
#[must_use]
pub fn error_number(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::TimedOut => libc::ETIMEDOUT,
        io::ErrorKind::WouldBlock => libc::EAGAIN,
        io::ErrorKind::ConnectionRefused => libc::ECONNREFUSED,
        _ => libc::EIO,
    })
}

/// Whether an error is a limit that this process or machine has reached: descriptors, memory or ports. It says nothing
/// about the peer.
#[must_use]
pub fn is_shortage(error: &io::Error) -> bool {
    let shortages = [
        libc::EMFILE,
        libc::ENFILE,
        libc::ENOBUFS,
        libc::ENOMEM,
        // More descriptors watched by epoll than the user may have.
        libc::ENOSPC,
        libc::EADDRNOTAVAIL,
        libc::ETOOMANYREFS,
    ];
    error.raw_os_error().is_some_and(|number| shortages.contains(&number))
}

/// Returns and clears the pending error of a socket.
pub fn take_error(fd: impl AsFd) -> io::Result<()> {
    sockopt::socket_error(fd)?.map_err(Into::into)
}

/// Receives the bytes that have arrived into `buffer`; 0 is the end of input.
#[inline]
pub fn recv(fd: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(net::recv(fd, buffer, RecvFlags::DONTWAIT)?.0)
}

/// Sends as many of `bytes` as the socket accepts.
#[inline]
pub fn send(fd: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(net::send(fd, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?)
}

/// Sends as much of `parts`, in order, as the socket accepts.
pub fn send_parts(fd: impl AsFd, parts: &[IoSlice<'_>]) -> io::Result<usize> {
    let mut none = SendAncillaryBuffer::default();
    Ok(net::sendmsg(fd, parts, &mut none, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?)
}

/// Closes the sending side: the peer reads the end of input after the sent bytes. This also wakes a thread that waits on
/// another copy of this descriptor, edge-triggered.
pub fn end_sending(fd: impl AsFd) -> io::Result<()> {
    Ok(net::shutdown(fd, Shutdown::Write)?)
}

/// Makes the following close of a TCP socket end its connection at once: the client gets a reset, and the
/// kernel drops the unsent bytes instead of sending them for as long as the client reads (socket(7),
/// `SO_LINGER` of 0 seconds).
///
/// Errors: `ENOTSOCK`.
pub fn reset(socket: impl AsFd) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(socket, Some(Duration::ZERO))?)
}

/// The cap on what a connection holds in the kernel: the bytes in flight to its client and those behind them.
///
/// No socket option bounds the congestion window (it takes a route or a BPF program, and privileges), and
/// `TCP_WINDOW_CLAMP` bounds only what this side receives. The send buffer (socket(7), `SO_SNDBUF`) does
/// bound sent and unsent bytes together, but only whenever the kernel begins a new segment buffer: it fills
/// the last one up to 64 KiB first. So the cap needs both: a small send buffer, and sends of small pieces that
/// each end a segment buffer (`MSG_EOR`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlightCap {
    /// The length of each piece in bytes.
    piece_bytes: usize,
    /// The send buffer in bytes, as the kernel counts.
    buffer_bytes: usize,
}

impl InFlightCap {
    /// The smallest cap, in bytes: the rest of the buffer behind one piece is then above the kernel's minimum
    /// (`SOCK_MIN_SNDBUF`, about 4.6 KB), which the kernel would silently use instead.
    pub const BYTES_MIN: usize = 12 * 1024;
    /// The largest cap, in bytes: the buffer is then below the usual `net.core.wmem_max`, to which the kernel
    /// would silently lower it.
    pub const BYTES_MAX: usize = 512 * 1024;
    /// The payload of an Ethernet packet: pieces of whole packets cost no packet more.
    const PACKET_BYTES: usize = 1448;
    /// Four pieces fit in the cap: fewer would leave much of it unused, more would cost more calls.
    const PIECES: usize = 4;

    /// The cap of this many bytes, which is brought within the bounds.
    ///
    /// A piece is accepted only while the connection holds less than the buffer, so it never holds more than
    /// the buffer and one piece: the cap.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let bytes = bytes.clamp(Self::BYTES_MIN, Self::BYTES_MAX);
        let packets = (bytes / Self::PIECES / Self::PACKET_BYTES).max(1);
        let piece_bytes = packets * Self::PACKET_BYTES;
        Self { piece_bytes, buffer_bytes: bytes - piece_bytes }
    }
}

/// Gives the connections of a listener a send buffer for this cap, or the kernel's own choice. Connections
/// inherit it when they are accepted.
///
/// Errors: any of setsockopt(2), and `InvalidInput` if the system allows no buffer of this size.
pub fn cap_in_flight(listener: impl AsFd, cap: Option<InFlightCap>) -> io::Result<()> {
    /// Whether buffer sizes were set by hand (socket(7)); the C library has no name for it.
    const SO_BUF_LOCK: libc::c_int = 72;
    let fd = listener.as_fd();
    if let Some(cap) = cap {
        // The kernel doubles the number (socket(7)).
        sockopt::set_socket_send_buffer_size(fd, cap.buffer_bytes / 2)?;
        let is_bytes = sockopt::socket_send_buffer_size(fd)?;
        if is_bytes > cap.buffer_bytes {
            let why = format!("the smallest send buffer is {is_bytes} bytes, above {}", cap.buffer_bytes);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        return Ok(());
    }
    // A listener that a reload keeps may have had a cap. Linux before 5.15 cannot unlock it, and answers
    // ENOPROTOOPT; new listeners are not affected.
    let _ = set_option(fd, libc::SOL_SOCKET, SO_BUF_LOCK, 0);
    Ok(())
}

/// Sends `first`, then `second`, in the pieces of a cap, until the connection takes no more.
///
/// Errors: as [`send`], if nothing was sent.
pub fn send_capped(fd: impl AsFd, cap: InFlightCap, first: &[u8], second: &[u8]) -> io::Result<usize> {
    let mut none = SendAncillaryBuffer::default();
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT | SendFlags::EOR;
    let (mut sent, all) = (0, first.len() + second.len());
    while sent < all {
        let of_first = &first[sent.min(first.len())..];
        let of_first = &of_first[..of_first.len().min(cap.piece_bytes)];
        let from = (sent + of_first.len()).saturating_sub(first.len());
        let of_second = &second[from..];
        let of_second = &of_second[..of_second.len().min(cap.piece_bytes - of_first.len())];
        let piece = [IoSlice::new(of_first), IoSlice::new(of_second)];
        match net::sendmsg(&fd, &piece, &mut none, flags) {
            Ok(bytes) => sent += bytes,
            Err(_) if sent > 0 => break,
            Err(e) => return Err(e.into()),
        }
    }
    Ok(sent)
}

/// Sets the priority of all packets that a socket sends from now on (socket(7), `SO_PRIORITY`). Queueing
/// disciplines interpret it. Numbers from 0 to 6 need no privilege.
///
/// Errors: `EPERM` for a higher number without `CAP_NET_ADMIN`.
pub fn set_priority(socket: impl AsFd, priority: u8) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_PRIORITY, i32::from(priority))
}

/// Sets the code point (RFC 2474) of all packets that a TCP socket sends from now on: `IP_TOS` (ip(7)), or
/// `IPV6_TCLASS` (ipv6(7)). For IPv4 the kernel also changes the priority, so [`set_priority`] must follow.
///
/// Errors: `ENOPROTOOPT` if the socket is not of this family.
pub fn set_code_point(socket: impl AsFd, is_ipv6: bool, code_point: u8) -> io::Result<()> {
    // The two bits below the code point are for congestion notification; TCP sets them itself.
    let value = libc::c_int::from(code_point) << 2;
    if is_ipv6 {
        set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, value)
    } else {
        set_option(socket, libc::IPPROTO_IP, libc::IP_TOS, value)
    }
}

/// Bytes that a TCP socket holds for its peer, unsent or not acknowledged (tcp(7), `SIOCOUTQ`). The end of
/// the sending side counts as one more.
///
/// Errors: `EINVAL` for a listening socket, `ENOTTY` for a descriptor that is not a socket.
pub fn unsent_bytes(socket: impl AsFd) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request writes one int, which outlives the call.
    check(unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

fn socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?)
}

#[cfg(test)]
#[path = "net_tests.rs"]
mod tests;
