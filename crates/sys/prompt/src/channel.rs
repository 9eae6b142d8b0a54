//! Message channels between the processes: `SOCK_SEQPACKET` pairs that also carry descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sockopt,
};

/// The most descriptors that one message carries.
pub const DESCRIPTORS_MAX: usize = 16;

/// Makes a connected pair. Both ends block; see [`set_nonblocking`].
/// `buffer_bytes` is room for messages under way, in each direction.
pub fn pair(buffer_bytes: usize) -> io::Result<(OwnedFd, OwnedFd)> {
    let (a, b) = net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_send_buffer_size(&a, buffer_bytes)?;
    sockopt::set_socket_send_buffer_size(&b, buffer_bytes)?;
    Ok((a, b))
}

/// Makes the calls on this end return `WouldBlock` instead of waiting.
pub fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(&fd)?;
    Ok(rustix::fs::fcntl_setfl(&fd, flags | rustix::fs::OFlags::NONBLOCK)?)
}

/// Sends one message, whole or not at all.
///
/// Errors: `WouldBlock` when the channel is full, `EMSGSIZE` when the message can never fit,
/// `EPIPE` when the other end is gone.
pub fn send(fd: impl AsFd, parts: &[IoSlice<'_>], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for one message"));
    }
    net::sendmsg(fd, parts, &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one message into `buffer` and its descriptors into `descriptors`; gives its
/// length in bytes, 0 when the other end is gone (no message of Flash is empty).
///
/// Errors: `WouldBlock` when there is none; `InvalidData` when it did not fit.
pub fn recv(fd: impl AsFd, buffer: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = net::recvmsg(fd, &mut [IoSliceMut::new(buffer)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for item in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = item {
            descriptors.extend(rights);
        }
    }
    if message.flags.contains(net::ReturnFlags::TRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message longer than the buffer for it"));
    }
    Ok(message.bytes)
}
