//! Network namespaces (network_namespaces(7)) and TUN devices (tun(4)), for `flash link`.
//!
//! Both belong to descriptors: they are gone when the last process that holds one has ended, however it ended.
//! Addresses are set by ioctl (netdevice(7)) and not by the program `ip`: that is five calls on a structure of 40 bytes,
//! and no program that could be missing or of another version.

use std::fs::File;
use std::io;
use std::mem::zeroed;
use std::net::{Ipv4Addr, UdpSocket};
use std::thread;
use std::time::Duration;

use flash_prompt::call::check;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, open};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace of its own, with the loopback device up and nothing else. It exists as long as this value, a
/// copy, or a process in it.
#[derive(Debug)]
pub struct Namespace(OwnedFd);

impl Namespace {
    /// Makes a namespace. IPv6 is off in it, so that the kernel sends nothing of its own accord, and TCP remembers
    /// nothing of earlier connections (`tcp_no_metrics_save`).
    ///
    /// Errors: `EPERM` without `CAP_SYS_ADMIN` (unshare(2)) or `CAP_NET_ADMIN`; `ENOSPC` for too many namespaces.
    pub fn make() -> io::Result<Self> {
        // A namespace belongs to a thread. This one ends, and its namespace stays with the descriptor.
        on_a_thread(|| {
            // SAFETY: a call without pointers, which changes only this thread.
            check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
            let namespace = File::open("/proc/thread-self/ns/net")?;
            // Each is missing if the kernel lacks the feature, and then nothing is to be turned off.
            let _ = std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
            let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            let _ = std::fs::write("/proc/sys/net/ipv4/tcp_no_metrics_save", "1");
            Device::named("lo")?.bring_up()?;
            Ok(Self(namespace.into()))
        })?
    }

    /// Runs `work` on a thread in this namespace, and waits for it. Sockets that the thread makes belong to the
    /// namespace, and threads and programs that it starts begin there.
    ///
    /// Errors: `EPERM` without `CAP_SYS_ADMIN` (setns(2)); `EAGAIN` if no thread can be started.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        run_in(&self.0, work)
    }

    /// A copy of the descriptor, for a program that is to begin in this namespace
    /// ([`program::Placement`](crate::program::Placement)).
    pub fn entrance(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }

    /// The number of the descriptor in this process, for `nsenter --net=/proc/PID/fd/NUMBER`.
    pub fn descriptor(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// Runs `work` on a thread in a network namespace, because a namespace belongs to a thread.
pub(crate) fn run_in<T: Send>(namespace: impl AsFd + Sync, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    on_a_thread(|| {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(work())
    })?
}

/// Runs `work` on a thread of its own; panics if it panics.
fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, work)?;
        Ok(thread.join().unwrap_or_else(|why| std::panic::resume_unwind(why)))
    })
}

/// A network device of the namespace in which the value was made.
#[derive(Debug)]
struct Device {
    /// Any socket: ioctls on devices are for the namespace of their socket.
    socket: UdpSocket,
    name: [libc::c_char; libc::IFNAMSIZ],
}

impl Device {
    fn named(name: &str) -> io::Result<Self> {
        // Bound to no device and no peer: it receives nothing.
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        Ok(Self { socket, name: device_name(name)? })
    }

    /// A request about this device, all else zero.
    fn request(&self) -> libc::ifreq {
        // SAFETY: all zeros is a valid ifreq.
        let mut request: libc::ifreq = unsafe { zeroed() };
        request.ifr_name = self.name;
        request
    }

    fn ask(&self, what: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: the calls named in this file read and write an ifreq, which outlives the call.
        check(unsafe { libc::ioctl(self.socket.as_raw_fd(), what, std::ptr::from_mut(request)) }).map(drop)
    }

    fn bring_up(&self) -> io::Result<()> {
        let mut request = self.request();
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        self.ask(libc::SIOCSIFFLAGS as libc::Ioctl, &mut request)
    }

    fn set_address(&self, what: libc::c_ulong, address: Ipv4Addr) -> io::Result<()> {
        let mut request = self.request();
        // SAFETY: all zeros is a valid sockaddr_in, and a sockaddr_in fits in a sockaddr (both are 16 bytes).
        unsafe {
            let mut there: libc::sockaddr_in = zeroed();
            there.sin_family = libc::AF_INET as libc::sa_family_t;
            there.sin_addr.s_addr = u32::from(address).to_be();
            request.ifr_ifru.ifru_addr = std::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(there);
        }
        self.ask(what as libc::Ioctl, &mut request)
    }

    fn set_mtu(&self, mtu_bytes: u32) -> io::Result<()> {
        let mut request = self.request();
        request.ifr_ifru.ifru_mtu = i32::try_from(mtu_bytes).unwrap_or(i32::MAX);
        self.ask(libc::SIOCSIFMTU as libc::Ioctl, &mut request)
    }

    fn set_backlog(&self, packets: u32) -> io::Result<()> {
        let mut request = self.request();
        // The union has no field for it in `libc`; the kernel reads an int (`ifr_qlen`).
        request.ifr_ifru.ifru_metric = i32::try_from(packets).unwrap_or(i32::MAX);
        self.ask(libc::SIOCSIFTXQLEN as libc::Ioctl, &mut request)
    }
}

fn device_name(name: &str) -> io::Result<[libc::c_char; libc::IFNAMSIZ]> {
    let mut field = [0; libc::IFNAMSIZ];
    // The last byte stays zero.
    if name.is_empty() || name.len() >= field.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (place, byte) in field.iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    Ok(field)
}

/// The settings of a TUN device.
#[derive(Clone, Debug)]
pub struct TunSettings<'a> {
    /// Its name, at most 15 bytes.
    pub name: &'a str,
    /// Its own address.
    pub address: Ipv4Addr,
    /// The mask of the network that is reached through it.
    pub netmask: Ipv4Addr,
    /// The longest packet, in bytes with the IP header.
    pub mtu_bytes: u32,
    /// How many packets the kernel keeps for the reader. It drops those that come beyond.
    pub backlog_packets: u32,
}

/// A TUN device: it passes the packets that its namespace sends through it to [`Tun::read`], and its namespace receives
/// the packets of [`Tun::write`]. It is gone when it is dropped.
#[derive(Debug)]
pub struct Tun {
    fd: OwnedFd,
}

impl Tun {
    /// Makes a device in the namespace of the calling thread ([`Namespace::run`]). Any thread can use it.
    ///
    /// Errors: `ENOENT` if there is no /dev/net/tun, `EPERM` without `CAP_NET_ADMIN`, `EINVAL` for a name, an address or
    /// a length that the kernel does not take, `EBUSY` if there is one of this name.
    pub fn make(settings: &TunSettings<'_>) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = open("/dev/net/tun", flags, Mode::empty())?;
        let device = Device::named(settings.name)?;
        let mut request = device.request();
        // Packets without a header of the device's own, and without offloads: the kernel cuts them to the device's
        // length and computes their checksums.
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: the call reads and writes an ifreq, which outlives it.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF as libc::Ioctl, &raw mut request) })?;
        device.set_backlog(settings.backlog_packets)?;
        device.set_mtu(settings.mtu_bytes)?;
        device.set_address(libc::SIOCSIFADDR as libc::c_ulong, settings.address)?;
        device.set_address(libc::SIOCSIFNETMASK as libc::c_ulong, settings.netmask)?;
        device.bring_up()?;
        Ok(Self { fd })
    }

    /// Takes the next packet that the namespace sent; none if there is none. Never waits.
    ///
    /// Errors: any of read(2), such as `EFAULT` for a device that is gone.
    pub fn read<'b>(&self, buffer: &'b mut [u8]) -> io::Result<Option<&'b [u8]>> {
        match rustix::io::read(&self.fd, &mut *buffer) {
            Ok(length) => Ok(Some(&buffer[..length])),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(why) => Err(why.into()),
        }
    }

    /// Passes a packet to the namespace. Never waits.
    ///
    /// Errors: `EINVAL` if it is not IP, `ENOMEM` and `EAGAIN` if the kernel has no room, `EIO` if the device is down.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        Ok(rustix::io::write(&self.fd, packet).map(drop)?)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// How many packets the kernel dropped since `device` was made because its reader was late. For the namespace of the
/// calling thread.
///
/// Errors: any of reading /proc/thread-self/net/dev; `NotFound` if there is no such device.
pub fn missed_packets(device: &str) -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    let is_it = |line: &str| line.trim_start().strip_prefix(device)?.strip_prefix(':').map(str::to_owned);
    let figures = text.lines().find_map(is_it).ok_or(io::ErrorKind::NotFound)?;
    // "Receive: bytes packets errs drop fifo frame compressed multicast, transmit: bytes packets errs drop" (proc(5)).
    let dropped = figures.split_ascii_whitespace().nth(11).and_then(|figure| figure.parse().ok());
    dropped.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Whether a program listens on a TCP port in the namespace of the calling thread, not only on the loopback device.
pub fn has_listener() -> io::Result<bool> {
    let ipv4 = std::fs::read_to_string("/proc/thread-self/net/tcp")?;
    // A socket for all addresses of both families is listed only here. A kernel without IPv6 has no such file.
    let ipv6 = std::fs::read_to_string("/proc/thread-self/net/tcp6").unwrap_or_default();
    Ok(ipv4.lines().chain(ipv6.lines()).any(is_listener))
}

/// Whether a line of these files (proc(5)) is that of a listener with any other address than 127.0.0.0/8 and ::1.
fn is_listener(line: &str) -> bool {
    // "sl local_address rem_address st ..."; 0A is LISTEN (include/net/tcp_states.h).
    let mut fields = line.split_ascii_whitespace().skip(1);
    let address = fields.next().and_then(|local| local.split(':').next()).unwrap_or_default();
    // The kernel prints words of the address as numbers of this machine.
    let is_loopback = match u32::from_str_radix(address, 16) {
        Ok(ipv4) if address.len() == 8 => u32::from_be(ipv4) >> 24 == 127,
        _ => address == format!("{}{:08X}", "0".repeat(24), 1_u32.to_be()),
    };
    fields.nth(1) == Some("0A") && !is_loopback
}

/// Wakes a thread that waits in [`wait`].
#[derive(Debug)]
pub struct Waker(OwnedFd);

impl Waker {
    /// Makes one that is not set.
    pub fn make() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Sets it: the waits from now on end at once, until it is cleared.
    pub fn wake(&self) {
        // Fails only if the number in it would overflow, and then it is set.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Clears it.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

/// Waits until one of the devices has a packet, the waker is set, or the time is over, if there is one.
///
/// Errors: `ENOMEM`.
pub fn wait(tuns: [&Tun; 2], waker: &Waker, timeout: Option<Duration>) -> io::Result<()> {
    let [first, second] = tuns;
    let mut fds = [
        PollFd::new(first, PollFlags::IN),
        PollFd::new(second, PollFlags::IN),
        PollFd::new(&waker.0, PollFlags::IN),
    ];
    // A time beyond 68 years is none.
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match poll(&mut fds, timeout.as_ref()) {
        Err(rustix::io::Errno::INTR) => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

/// Marks the packets that an IPv4 socket sends from now on with a code point (DSCP, RFC 2474), 0 to 63.
///
/// Errors: any of setsockopt(2), such as `ENOPROTOOPT` for a socket that is not IPv4.
pub fn set_code_point(socket: impl AsFd, code_point: u8) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_ip_tos(socket, code_point << 2)?)
}

/// The purposes of threads that wake on time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnTime {
    /// To send load.
    Load,
    /// To stand for hardware, which no program of its core holds up: it runs before load.
    Device,
}

/// Makes the calling thread wake on time: its timers are exact to the microsecond (prctl(2), `PR_SET_TIMERSLACK`;
/// otherwise 50 µs) and, if the process has `CAP_SYS_NICE`, it runs before all ordinary threads (sched(7),
/// `SCHED_FIFO`). Returns whether it does.
pub fn wake_on_time(purpose: OnTime) -> bool {
    const SLACK_NS: libc::c_ulong = 1_000;
    let sched_priority = match purpose {
        OnTime::Load => 1,
        OnTime::Device => 2,
    };
    let parameter = libc::sched_param { sched_priority };
    // SAFETY: neither call changes anything but this thread; the second reads `parameter`, which outlives it.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, SLACK_NS);
        libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) == 0
    }
}

#[cfg(test)]
#[path = "network_tests.rs"]
mod tests;
