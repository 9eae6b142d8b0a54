//! The interface to systemd, without its library: state messages (sd_notify(3)) and sockets that it passes on
//! (sd_listen_fds(3)). Called by the supervisor. Without systemd nothing here has an effect.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

use rustix::fd::{AsFd, FromRawFd, OwnedFd};
use rustix::io::FdFlags;
use rustix::net::{self, AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use flash_prompt::clock;

/// The number of the first socket.
const FIRST: i32 = 3;
/// Maximum number of sockets. More are a mistake in a unit.
const LISTENERS_MAX: u32 = 64;

/// The state of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It serves.
    Ready,
    /// It loads its configuration again; [`State::Ready`] follows.
    Reloading,
    /// It ends.
    Stopping,
}

/// Reports the state of this service. It never waits: if the receiver has no room, the message is lost.
pub fn notify(state: State) {
    if let Some(path) = env::var_os("NOTIFY_SOCKET") {
        // A supervisor without systemd's attention works as well.
        let _ = send(&path, state);
    }
}

fn send(path: &OsStr, state: State) -> io::Result<()> {
    let text = match state {
        State::Ready => "READY=1".to_owned(),
        // The time lets systemd see that READY belongs to this reload (Type=notify-reload).
        State::Reloading => format!("RELOADING=1\nMONOTONIC_USEC={}", clock::monotonic_ns() / 1_000),
        State::Stopping => "STOPPING=1".to_owned(),
    };
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name)?,
        path => SocketAddrUnix::new(path)?,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    net::sendto(&fd, text.as_bytes(), SendFlags::NOSIGNAL, &address)?;
    Ok(())
}

/// A listening Unix socket that systemd has passed to this process.
#[derive(Debug)]
pub struct Listener {
    /// The socket.
    pub socket: OwnedFd,
    /// Whether it carries packets (`ListenSequentialPacket=`) and not a stream of bytes (`ListenStream=`).
    pub is_packets: bool,
    /// The path that it is bound to.
    pub path: Vec<u8>,
}

/// Takes the listening sockets that systemd has passed to this process; none without systemd. Called once, before
/// other descriptors are opened.
///
/// Errors: `InvalidInput`, with a message, for a socket of another type or without a path.
pub fn take_listeners() -> io::Result<Vec<Listener>> {
    let number = |name| env::var(name).ok().and_then(|text: String| text.parse::<u32>().ok());
    if number("LISTEN_PID") != Some(std::process::id()) {
        return Ok(Vec::new());
    }
    let count = number("LISTEN_FDS").unwrap_or(0);
    if count > LISTENERS_MAX {
        return Err(wrong(&format!("systemd passed {count} sockets; at most {LISTENERS_MAX} are taken")));
    }
    // SAFETY: systemd has opened these descriptors for this process (sd_listen_fds(3)), and no other code owns them.
    let sockets = (FIRST..).take(count as usize).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    sockets.map(listener).collect()
}

fn listener(socket: OwnedFd) -> io::Result<Listener> {
    let kind = sockopt::socket_type(&socket).map_err(|e| wrong(&format!("systemd passed no socket: {e}")))?;
    let path = path_of(&socket).unwrap_or_default();
    let is_packets = kind == SocketType::SEQPACKET;
    let is_right = (is_packets || kind == SocketType::STREAM) && path.starts_with(b"/");
    if !is_right || !sockopt::socket_acceptconn(&socket)? {
        return Err(wrong(
            "systemd passed a socket of another type; give its unit ListenSequentialPacket=PATH for --socket or \
             ListenStream=PATH for --warm and --fastcgi, and Accept=no",
        ));
    }
    rustix::io::fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    Ok(Listener { socket, is_packets, path })
}

fn wrong(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why.to_owned())
}

/// The path that a socket is bound to; empty if it has none.
fn path_of(socket: impl AsFd) -> io::Result<Vec<u8>> {
    let address = SocketAddrUnix::try_from(net::getsockname(socket)?)?;
    Ok(address.path_bytes().unwrap_or_default().to_vec())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn states_arrive_as_systemd_expects_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let receiver = UnixDatagram::bind(&path).expect("a socket");
        let received = || {
            let mut text = [0; 100];
            let length = receiver.recv(&mut text).expect("a message");
            String::from_utf8_lossy(&text[..length]).into_owned()
        };
        for (state, expected) in [(State::Ready, "READY=1"), (State::Stopping, "STOPPING=1")] {
            send(path.as_os_str(), state).expect("sent");
            assert_eq!(received(), expected);
        }
        send(path.as_os_str(), State::Reloading).expect("sent");
        let text = received();
        let time_us = text.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("the form");
        assert!(time_us.parse::<u64>().is_ok_and(|us| us <= clock::monotonic_ns() / 1_000), "{text}");
        std::fs::remove_file(&path).expect("removed");
        send(path.as_os_str(), State::Ready).expect_err("nobody there");
    }
}
