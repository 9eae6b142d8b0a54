//! The interface to systemd, without its library: state messages (sd_notify(3)) and sockets that it passes on
//! (sd_listen_fds(3)). Called by the supervisor. Without systemd nothing here has an effect.

use std::ffi::OsStr;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fmt, io, iter};

use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::FdFlags;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use flash_prompt::{channel, clock};

/// The number of the first socket.
const FIRST: i32 = 3;
/// The prefix of the names of kept files, which no socket unit has.
const KEPT: &str = "flash-kept-";
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
    /// Its event loops turn (`WatchdogSec=`).
    Alive,
}

/// The time within which systemd wants [`State::Alive`] again and again, if it does (sd_watchdog_enabled(3)).
pub fn watchdog() -> Option<Duration> {
    let number = |name| env::var(name).ok().and_then(|text: String| text.parse::<u64>().ok());
    let is_other = number("WATCHDOG_PID").is_some_and(|pid| pid != std::process::id().into());
    number("WATCHDOG_USEC").filter(|us| *us > 0 && !is_other).map(Duration::from_micros)
}

/// Reports the state of this service in words, for `systemctl status`. As [`notify`].
pub fn describe(text: &str) {
    if let Some(path) = env::var_os("NOTIFY_SOCKET") {
        let _ = send_text(&path, &format!("STATUS={}", text.replace('\n', " ")));
    }
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
        State::Alive => "WATCHDOG=1".to_owned(),
    };
    send_text(path, &text)
}

fn send_text(path: &OsStr, text: &str) -> io::Result<()> {
    send_with(path, text, &[])
}

fn send_with(path: &OsStr, text: &str, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name)?,
        path => SocketAddrUnix::new(path)?,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    net::connect(&fd, &address)?;
    channel::send(&fd, &[IoSlice::new(text.as_bytes())], files)
}

/// Gives systemd a file for the next start of this service (`FileDescriptorStoreMax=`), unless systemd has it already. As [`notify`].
pub fn keep(name: &str, file: impl AsFd) {
    if let Some(path) = env::var_os("NOTIFY_SOCKET") {
        let _ = send_with(&path, &format!("FDSTORE=1\nFDPOLL=0\nFDNAME={KEPT}{name}"), &[file.as_fd()]);
    }
}

/// Makes systemd drop a file that it keeps. As [`notify`].
pub fn forget(name: &str) {
    if let Some(path) = env::var_os("NOTIFY_SOCKET") {
        let _ = send_text(&path, &format!("FDSTOREREMOVE=1\nFDNAME={KEPT}{name}"));
    }
}

/// A file that systemd has kept for this service.
#[derive(Debug)]
pub struct KeptFile {
    /// The name that [`keep`] had.
    pub name: String,
    /// The file.
    pub file: OwnedFd,
}

/// The descriptors that systemd has passed to this process.
#[derive(Debug, Default)]
pub struct Passed {
    /// Those of its sockets.
    pub listeners: Vec<Listener>,
    /// Those that an earlier process of this service has left.
    pub kept: Vec<KeptFile>,
}

/// A listening socket that systemd has passed to this process.
#[derive(Debug)]
pub struct Listener {
    /// The socket. Calls on it do not block.
    pub socket: OwnedFd,
    /// The name that its unit gives it (`FileDescriptorName=`), by default that of the unit; empty if there is none.
    pub name: String,
    /// Whether it carries packets (`ListenSequentialPacket=`) and not a stream of bytes (`ListenStream=`).
    pub is_packets: bool,
    /// The address that it is bound to.
    pub address: BoundAddress,
}

/// The address that a socket is bound to: of TCP, or a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BoundAddress {
    /// One of TCP.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Path(PathBuf),
}

impl fmt::Display for BoundAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BoundAddress::Tcp(address) => address.fmt(f),
            BoundAddress::Path(path) => path.display().fmt(f),
        }
    }
}

/// The variables by which systemd passes sockets on. They are of this process alone.
pub(crate) const VARIABLES: [&str; 3] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];

/// Takes the descriptors that systemd has passed to this process; none without systemd. Called once, before
/// other descriptors are opened.
///
/// Errors: `InvalidInput`, with a message, for a socket of another type or without a place.
pub fn take() -> io::Result<Passed> {
    let number = |name| env::var(name).ok().and_then(|text: String| text.parse::<u32>().ok());
    if number("LISTEN_PID") != Some(std::process::id()) {
        return Ok(Passed::default());
    }
    let count = number("LISTEN_FDS").unwrap_or(0);
    if count > LISTENERS_MAX {
        return Err(wrong(&format!("systemd passed {count} sockets; at most {LISTENERS_MAX} are taken")));
    }
    let names = env::var_os("LISTEN_FDNAMES").unwrap_or_default();
    let names = names.to_string_lossy();
    // SAFETY: systemd has opened these descriptors for this process (sd_listen_fds(3)), and no other code owns them.
    let sockets = (FIRST..).take(count as usize).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    let mut passed = Passed::default();
    for (file, name) in sockets.zip(names.split(':').chain(iter::repeat(""))) {
        if let Some(name) = name.strip_prefix(KEPT) {
            rustix::io::fcntl_setfd(&file, FdFlags::CLOEXEC)?;
            passed.kept.push(KeptFile { name: name.to_owned(), file });
        } else {
            passed.listeners.push(listener(file, name)?);
        }
    }
    Ok(passed)
}

/// Checks a socket of systemd with this name, and makes calls on it return at once. Its flags are also those of systemd's copy,
/// which only polls it.
///
/// Errors: as of [`take`].
pub fn listener(socket: OwnedFd, name: &str) -> io::Result<Listener> {
    let kind = sockopt::socket_type(&socket).map_err(|e| {
        wrong(&format!("systemd passed something that is no socket: {e}; see its socket unit"))
    })?;
    let is_packets = kind == SocketType::SEQPACKET;
    let address = address_of(&socket).filter(|address| match address {
        BoundAddress::Tcp(_) => kind == SocketType::STREAM,
        BoundAddress::Path(_) => is_packets || kind == SocketType::STREAM,
    });
    let (Some(address), true) = (address, sockopt::socket_acceptconn(&socket)?) else {
        return Err(wrong(&format!(
            "systemd passed a socket of another type{}; give its unit ListenStream= with an address or a path (or \
             ListenSequentialPacket=PATH for --socket of `flash backend`), and Accept=no",
            if name.is_empty() { String::new() } else { format!(" (`{name}`)") }
        )));
    };
    rustix::io::fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    rustix::fs::fcntl_setfl(&socket, rustix::fs::fcntl_getfl(&socket)? | OFlags::NONBLOCK)?;
    if matches!(address, BoundAddress::Tcp(_)) {
        // Accepted connections inherit it.
        sockopt::set_tcp_nodelay(&socket, true)?;
    }
    Ok(Listener { socket, name: name.to_owned(), is_packets, address })
}

fn wrong(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why.to_owned())
}

/// The place that a socket is bound to; none for an abstract name, which has no permissions, and for other families.
pub fn address_of(socket: impl AsFd) -> Option<BoundAddress> {
    let address = net::getsockname(socket).ok()?;
    if let Ok(address) = SocketAddr::try_from(address.clone()) {
        return Some(BoundAddress::Tcp(address));
    }
    let address = SocketAddrUnix::try_from(address).ok()?;
    let path = Path::new(OsStr::from_bytes(address.path_bytes()?));
    path.is_absolute().then(|| BoundAddress::Path(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

    use super::*;

    #[test]
    fn sockets_are_checked_before_they_are_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let local = UnixListener::bind(&path).expect("a socket");
        let taken = listener(local.into(), "http").expect("taken");
        assert_eq!(
            (taken.name.as_str(), taken.is_packets, taken.address),
            ("http", false, BoundAddress::Path(path))
        );
        let flags = rustix::fs::fcntl_getfl(&taken.socket).expect("its flags");
        assert!(flags.contains(OFlags::NONBLOCK));
        assert!(rustix::io::fcntl_getfd(&taken.socket).expect("its flags").contains(FdFlags::CLOEXEC));
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let address = tcp.local_addr().expect("an address");
        assert_eq!(listener(tcp.into(), "").expect("taken").address, BoundAddress::Tcp(address));
        let client = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let client = TcpStream::connect(client.local_addr().expect("an address")).expect("connected");
        let datagrams = UnixDatagram::bind(folder.path().join("datagrams")).expect("a socket");
        let (pair, _) = UnixStream::pair().expect("a pair");
        let udp = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        for (wrong, name) in [
            (OwnedFd::from(client), "a connection"),
            (datagrams.into(), "datagrams"),
            (pair.into(), "a pair"),
            (udp.into(), "udp"),
        ] {
            let why = listener(wrong, name).expect_err(name).to_string();
            assert!(why.contains(&format!("another type (`{name}`); give its unit ListenStream=")), "{why}");
        }
        let file = tempfile::tempfile().expect("a file");
        let why = listener(file.into(), "file").expect_err("a file").to_string();
        assert!(why.contains("no socket"), "{why}");
    }

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
        for (state, expected) in
            [(State::Ready, "READY=1"), (State::Stopping, "STOPPING=1"), (State::Alive, "WATCHDOG=1")]
        {
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

    #[test]
    fn a_file_arrives_with_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let receiver = UnixDatagram::bind(&path).expect("a socket");
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(b"kept").expect("written");
        send_with(path.as_os_str(), "FDSTORE=1\nFDNAME=a", &[file.as_fd()]).expect("sent");
        let (mut text, mut files) = ([0; 100], Vec::new());
        let length = channel::recv(&receiver, &mut text, &mut files).expect("a message");
        assert_eq!(&text[..length], b"FDSTORE=1\nFDNAME=a");
        let [received] = &files[..] else { panic!("{} files", files.len()) };
        assert_eq!(rustix::fs::fstat(received).expect("its length").st_size, 4);
    }
}
