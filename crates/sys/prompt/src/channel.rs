//! Message channels between processes: pairs of `SOCK_SEQPACKET` sockets, which also carry descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::time::Duration;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sockopt,
};

/// Maximum number of descriptors in one message.
pub const DESCRIPTORS_MAX: usize = 16;

/// Makes a connected pair. Both ends block; see [`set_nonblocking`]. `buffer_bytes` is the buffer size in
/// each direction.
pub fn pair(buffer_bytes: usize) -> io::Result<(OwnedFd, OwnedFd)> {
    let (a, b) = net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_send_buffer_size(&a, buffer_bytes)?;
    sockopt::set_socket_send_buffer_size(&b, buffer_bytes)?;
    Ok((a, b))
}

/// Makes calls on this end return `WouldBlock` instead of blocking.
pub fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(&fd)?;
    Ok(rustix::fs::fcntl_setfl(&fd, flags | rustix::fs::OFlags::NONBLOCK)?)
}

/// Makes receiving on this end return `WouldBlock` when nothing has come for this long (socket(7), `SO_RCVTIMEO`).
pub fn set_receive_timeout(fd: impl AsFd, timeout: Duration) -> io::Result<()> {
    Ok(sockopt::set_socket_timeout(fd, sockopt::Timeout::Recv, Some(timeout))?)
}

/// Sends one message completely or not at all.
///
/// Errors: `WouldBlock` if the channel is full, `EMSGSIZE` if the message can never fit, `EPIPE` if the other
/// end has closed.
pub fn send(fd: impl AsFd, parts: &[IoSlice<'_>], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for one message"));
    }
    net::sendmsg(fd, parts, &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Accepts one queued connection of a listener of this kind of socket, as a non-blocking socket. Returns it
/// with the user of the process that connected (`SO_PEERCRED`, unix(7)).
///
/// Errors: `WouldBlock` if none is queued; `EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM` at the system's limits.
pub fn accept(listener: impl AsFd) -> io::Result<(OwnedFd, u32)> {
    let fd = net::accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
    let user = sockopt::socket_peercred(&fd)?.uid.as_raw();
    Ok((fd, user))
}

/// Makes later sends by the other end fail as if this end had closed. Messages under way can still be
/// received, followed by the end.
pub fn end_receiving(fd: impl AsFd) -> io::Result<()> {
    Ok(net::shutdown(fd, net::Shutdown::Read)?)
}

/// Makes the other end receive the end after the messages under way, as if this end had closed. This end can still
/// receive.
pub fn end_sending(fd: impl AsFd) -> io::Result<()> {
    Ok(net::shutdown(fd, net::Shutdown::Write)?)
}

/// A message that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its length in bytes; 0 means that the other end has closed (no message of Flash is empty).
    pub bytes: usize,
    /// Whether all of its descriptors were received. The kernel drops them if this process can have no more
    /// (`MSG_CTRUNC`, recvmsg(2)).
    pub is_complete: bool,
}

/// Receives one message into `buffer` and its descriptors into `descriptors`. Returns its length in bytes; 0
/// means that the other end has closed (no message of Flash is empty).
///
/// Errors: `WouldBlock` if there is no message; `InvalidData` if it did not fit.
pub fn recv(fd: impl AsFd, buffer: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
    recv_reported(fd, buffer, descriptors).map(|received| received.bytes)
}

/// Like [`recv`] for a message without descriptors, and never waits, not even on an end that blocks.
pub fn take(fd: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    recv_with(fd, buffer, &mut Vec::new(), RecvFlags::DONTWAIT).map(|received| received.bytes)
}

/// Like [`recv`], and reports whether descriptors were lost.
pub fn recv_reported(
    fd: impl AsFd,
    buffer: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<Received> {
    recv_with(fd, buffer, descriptors, RecvFlags::empty())
}

fn recv_with(
    fd: impl AsFd,
    buffer: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
    flags: RecvFlags,
) -> io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message =
        net::recvmsg(fd, &mut [IoSliceMut::new(buffer)], &mut control, flags | RecvFlags::CMSG_CLOEXEC)?;
    for item in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = item {
            descriptors.extend(rights);
        }
    }
    if message.flags.contains(net::ReturnFlags::TRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the message is longer than its buffer"));
    }
    Ok(Received { bytes: message.bytes, is_complete: !message.flags.contains(net::ReturnFlags::CTRUNC) })
}
