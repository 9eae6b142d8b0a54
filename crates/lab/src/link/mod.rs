//! A link between two network namespaces, with a rate, a delay, losses, queues and priorities, for measurements of
//! overload and of wide-area networks on one machine (B. Schroeder and M. Harchol-Balter, *Web servers under overload:
//! How scheduling can help*, section 3.4).
//!
//! `flash link` and the lab's experiments start a [`Link`]. A server begins in [`Link::server`] and the load runs in
//! [`Link::client`] ([`Side::run`]). A thread of this process carries each IP packet from one TUN device to the
//! other through a `pipe`, which holds all the rules and reads no clock. The namespaces and devices are gone with
//! the last process that holds them, so nothing remains if this process is killed.
//!
//! The kernel's own `netem` and `prio` are modules that many machines lack.

mod carrier;
mod check;
mod command;
mod counters;
mod describe;
mod pipe;
mod settings;

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use flash_kit::{Error, Result};
use flash_waiting::initial_timeout::{self, InitialTimeout};
use flash_waiting::network::{self, Namespace, Tun, TunSettings};

use carrier::Carrier;
pub use check::run as check;
pub use command::{LinkOptions, run};
pub use counters::{BANDS, Counters, Counts, Direction, Punctuality};
pub use settings::{
    Both, CLIENT, Order, Path, Room, SERVER, Settings, parse_both, parse_loss, parse_rate, parse_room,
};

/// The device of each side.
pub const DEVICE: &str = "flash0";
const NETMASK: Ipv4Addr = Ipv4Addr::new(255, 255, 255, 0);
/// Packets that the kernel keeps until the link's thread takes them. They must not be dropped there, uncounted by band,
/// when a thousand connections send their first ten packets at once.
const BACKLOG_PACKETS: u32 = 20_000;

/// A link that carries packets until it is dropped.
#[derive(Debug)]
pub struct Link {
    carrier: Carrier,
    pub server: Side,
    pub client: Side,
    /// In force until it is dropped.
    _initial_timeout: Option<InitialTimeout>,
    /// None where the kernel has no such file, or lets only root open it.
    _awake: Option<File>,
}

impl Link {
    /// Makes the two sides and begins to carry packets.
    ///
    /// Errors: usage, for settings out of their bounds; run, if this process lacks `CAP_SYS_ADMIN` or `CAP_NET_ADMIN`,
    /// or this machine has no TUN devices. Nothing is left behind then.
    pub fn start(settings: &Settings) -> Result<Self> {
        settings.check().map_err(|why| Error::usage(format!("cannot make a link with {why}")))?;
        let server = Side::make("server", SERVER)?;
        let client = Side::make("client", CLIENT)?;
        client.allow_many_connections();
        let tuns = [server.tun(settings.mtu_bytes)?, client.tun(settings.mtu_bytes)?];
        let carrier = Carrier::start(settings, tuns)?;
        Ok(Self { carrier, server, client, _initial_timeout: None, _awake: keep_awake() })
    }

    /// Sets the initial retransmission timeout of TCP on both sides, which is 1 s otherwise.
    ///
    /// Errors: run, if this machine cannot set it.
    pub fn set_initial_timeout(&mut self, timeout: Duration) -> Result<()> {
        let cookie = |side: &Side| side.run(initial_timeout::namespace_cookie)?.map_err(|why| refused(&why));
        let sides = [cookie(&self.server)?, cookie(&self.client)?];
        self._initial_timeout = Some(InitialTimeout::set(timeout, sides).map_err(|why| refused(&why))?);
        Ok(())
    }

    /// The counts until now.
    ///
    /// Errors: run, if the link has broken down.
    pub fn counters(&self) -> Result<Counters> {
        let mut counters = self.carrier.counters()?;
        counters.to_client.missed_packets = self.server.missed_packets()?;
        counters.to_server.missed_packets = self.client.missed_packets()?;
        Ok(counters)
    }

    /// CPU time of its thread so far, in nanoseconds; 0 once it has broken down.
    pub(crate) fn cpu_ns(&self) -> u64 {
        self.carrier.counters().map_or(0, |counters| counters.punctuality.cpu_ns)
    }
}

fn refused(why: &io::Error) -> Error {
    let advice = "run as root, on a kernel whose BPF programs of sockets can ask for their network namespace";
    Error::run(format!("cannot set the initial timeout of the link's connections by bpf(2): {why}; {advice}"))
}

/// Keeps all cores out of idle states until the file is closed (`Documentation/power/pm_qos_interface.rst` of the kernel). A
/// core that sleeps between two packets wakes up late, above all on a virtual machine.
fn keep_awake() -> Option<File> {
    let mut file = File::options().write(true).open("/dev/cpu_dma_latency").ok()?;
    file.write_all(&0_i32.to_ne_bytes()).ok()?;
    Some(file)
}

/// One side of a link: a network namespace with its loopback device and the end of the link.
#[derive(Debug)]
pub struct Side {
    name: &'static str,
    /// [`SERVER`] or [`CLIENT`].
    pub address: Ipv4Addr,
    namespace: Namespace,
}

impl Side {
    fn make(name: &'static str, address: Ipv4Addr) -> Result<Self> {
        let namespace = Namespace::make().map_err(|why| {
            let advice = "run as root, or with CAP_SYS_ADMIN and CAP_NET_ADMIN";
            Error::run(format!("cannot make a network namespace for the link's {name}: {why}; {advice}"))
        })?;
        Ok(Self { name, address, namespace })
    }

    fn tun(&self, mtu_bytes: u32) -> Result<Tun> {
        let settings = TunSettings {
            name: DEVICE,
            address: self.address,
            netmask: NETMASK,
            mtu_bytes,
            backlog_packets: BACKLOG_PACKETS,
        };
        let made = self.namespace.run(|| Tun::make(&settings)).and_then(|made| made);
        made.map_err(|why| {
            let advice = "it needs /dev/net/tun (modprobe tun) and CAP_NET_ADMIN";
            Error::run(format!("cannot make a TUN device for the link's {}: {why}; {advice}", self.name))
        })
    }

    /// Runs `work` on a thread in this side's namespace, and waits for it. The sockets that it makes, and the threads and
    /// programs that it starts, are on this side: [`flash_load::generator::run`] within it loads the server over the
    /// link.
    ///
    /// Errors: run, if the thread cannot be started or cannot enter.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        self.namespace.run(work).map_err(|why| {
            Error::run(format!("cannot enter the namespace of the link's {}: {why}", self.name))
        })
    }

    /// The namespace for a program that is to begin on this side
    /// ([`program::Placement`](flash_waiting::program::Placement)).
    ///
    /// Errors: run, if this process has no descriptor left.
    pub fn entrance(&self) -> Result<OwnedFd> {
        self.namespace.entrance().map_err(|why| {
            Error::run(format!("cannot pass on the namespace of the link's {}: {why}", self.name))
        })
    }

    /// The path by which root enters this side while this process runs: `nsenter --net=PATH`.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.namespace.descriptor())
    }

    /// Sets a setting of the kernel for this side alone, such as `net.ipv4.tcp_syncookies`, `net.core.somaxconn` or
    /// `net.ipv4.tcp_max_syn_backlog` (sysctl(8), tcp(7)).
    ///
    /// Errors: usage, for a name that is not of the network; run, if this kernel has no such setting for a namespace, or
    /// does not take the value.
    pub fn set(&self, name: &str, value: &str) -> Result<()> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        if !name.starts_with("net.") || !name.chars().all(is_plain) || name.contains("..") {
            return Err(Error::usage(format!(
                "cannot set {name}: give a setting such as net.core.somaxconn"
            )));
        }
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        // The kernel shows each thread the settings of its namespace.
        self.run(|| fs::write(&path, value))?.map_err(|why| {
            Error::run(format!("cannot set {name} to {value} for the link's {}: {why}", self.name))
        })
    }

    /// A client that closes its connections first keeps each port for a minute. With all ports, and those that are a
    /// second old used again (`tcp_tw_reuse`), a load of thousands of connections per second finds one.
    fn allow_many_connections(&self) {
        // A container that forbids it has fewer ports, which a load that needs more reports.
        let _ = self.set("net.ipv4.ip_local_port_range", "1024 65535");
        let _ = self.set("net.ipv4.tcp_tw_reuse", "1");
    }

    /// Whether a program on this side listens on a TCP port that the other side can reach.
    ///
    /// Errors: run, if /proc cannot be read.
    pub fn has_listener(&self) -> Result<bool> {
        self.run(network::has_listener)?
            .map_err(|why| Error::run(format!("cannot read /proc/thread-self/net/tcp: {why}; mount /proc")))
    }

    fn missed_packets(&self) -> Result<u64> {
        self.run(|| network::missed_packets(DEVICE))?.map_err(|why| {
            Error::run(format!("cannot read the counters of the link's {} in /proc: {why}", self.name))
        })
    }
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
