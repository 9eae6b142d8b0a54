//! Captures the beginnings of HTTP/1 requests and answers on this machine's interfaces, through a packet
//! socket (packet(7)) with a filter in the kernel and a ring that the kernel writes.
//!
//! The lab's `trace` uses it to learn when a request came and when its answer left. It decodes nothing: it
//! returns the first bytes of each packet. It is passive, so the watched program does not notice it, and the
//! kernel closes it with its process.
//!
//! With a ring instead of recvmsg(2), a packet costs a copy of a few hundred bytes and no system call, and
//! its size in the ring does not depend on its length.

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::sync::atomic::{AtomicU32, Ordering};

use flash_prompt::call::check;
use flash_prompt::clock;
use flash_prompt::mapped::Mapped;
use libc::sock_filter;
use linux_raw_sys::if_packet::{
    PACKET_RX_RING, PACKET_STATISTICS, PACKET_VERSION, TP_STATUS_KERNEL, TP_STATUS_USER, tpacket_req,
    tpacket_stats, tpacket_versions, tpacket2_hdr,
};
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::mm::{MapFlags, ProtFlags};

use super::network;

/// Maximum number of bytes kept of a packet: the headers and a first line.
const PACKET_BYTES_MAX: u32 = 384;
/// Size of a place in the ring: a packet and the kernel's description of it.
const FRAME_BYTES: usize = 512;
/// The ring consists of blocks of this size.
const BLOCK_BYTES: usize = 64 * 1024;
/// Size of the ring: about 0.1 s of a server at 50,000 requests/s, with their answers.
const RING_BYTES: usize = 8 << 20;
const FRAMES: usize = RING_BYTES / FRAME_BYTES;
const _: () = assert!(BLOCK_BYTES.is_multiple_of(FRAME_BYTES) && RING_BYTES.is_multiple_of(BLOCK_BYTES));

/// Offset of the packet's kind in a frame: `sockaddr_ll` follows the header.
const KIND_AT: usize = size_of::<tpacket2_hdr>() + std::mem::offset_of!(libc::sockaddr_ll, sll_pkttype);

/// A packet that begins a request or an answer.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// When it came or left, on `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// It leaves this machine or, if it stays on this machine, is on its way out.
    pub is_outgoing: bool,
    /// The bytes from the IP header on, cut short.
    pub bytes: &'a [u8],
}

/// Captures on all interfaces of a network namespace.
#[derive(Debug)]
pub struct Packets {
    fd: OwnedFd,
    ring: Mapped,
    /// The next frame.
    next: usize,
    lost: u64,
}

impl Packets {
    /// Captures in the network namespace of this process, or in `namespace` (`/proc/PID/ns/net`).
    ///
    /// Errors: `EPERM` without `CAP_NET_RAW` or, for another namespace, `CAP_SYS_ADMIN`; `ENOMEM`;
    /// `EAFNOSUPPORT` if the kernel has no packet sockets.
    pub fn open(namespace: Option<&File>) -> io::Result<Self> {
        let Some(namespace) = namespace else { return Self::open_here() };
        // A socket stays in the namespace in which it was made.
        network::run_in(namespace, Self::open_here)?
    }

    fn open_here() -> io::Result<Self> {
        // Without a protocol, no packet arrives until there is a filter.
        // SAFETY: a call without pointers; no other code owns the descriptor.
        let fd = unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
            check(fd)?;
            OwnedFd::from_raw_fd(fd)
        };
        attach(&fd, &[])?;
        set(&fd, libc::SOL_PACKET, PACKET_VERSION, &tpacket_versions::TPACKET_V2)?;
        let request = tpacket_req {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: (RING_BYTES / BLOCK_BYTES) as u32,
            tp_frame_size: FRAME_BYTES as u32,
            tp_frame_nr: FRAMES as u32,
        };
        set(&fd, libc::SOL_PACKET, PACKET_RX_RING, &request)?;
        let ring = Mapped::new(&fd, 0, RING_BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::empty())?;
        let packets = Self { fd, ring, next: 0, lost: 0 };
        packets.bind()?;
        Ok(packets)
    }

    /// Begins to receive packets of all interfaces in both directions.
    fn bind(&self) -> io::Result<()> {
        // SAFETY: all zeros is a valid address; the kernel reads it, and it outlives the call.
        check(unsafe {
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
            let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), length)
        })
        .map(drop)
    }

    /// From now on captures only packets of servers at these ports, so that other traffic does not fill the
    /// ring. With more than [`PORTS_MAX`], or none, captures those of all ports.
    ///
    /// Errors: `ENOMEM`; the filter before it stays.
    pub fn keep_ports(&self, ports: &[u16]) -> io::Result<()> {
        attach(&self.fd, if ports.len() > PORTS_MAX { &[] } else { ports })
    }

    /// Passes the packets that have come to `each`, in order; at most as many as the ring holds.
    pub fn take(&mut self, mut each: impl FnMut(Packet<'_>)) {
        let (real_ns, now_ns) = (clock::wall_ns() as u64, clock::monotonic_ns());
        for _ in 0..FRAMES {
            // SAFETY: `next` is below FRAMES, so the frame lies in the mapping, which is aligned to pages.
            let frame = unsafe { self.ring.address().as_ptr().cast::<u8>().add(self.next * FRAME_BYTES) };
            let header = frame.cast::<tpacket2_hdr>();
            // SAFETY: the kernel writes the status atomically; it lies in the mapping, which outlives the
            // reference.
            let status = unsafe { AtomicU32::from_ptr(&raw mut (*header).tp_status) };
            if status.load(Ordering::Acquire) & TP_STATUS_USER == 0 {
                return;
            }
            // SAFETY: the kernel does not write to the frame while it belongs to the reader, until the status
            // is stored below; the references are gone by then. No length goes beyond the frame.
            let packet = unsafe {
                let at = usize::from((*header).tp_net).min(FRAME_BYTES);
                let length = ((*header).tp_snaplen as usize).min(FRAME_BYTES - at);
                let came_ns = u64::from((*header).tp_sec) * 1_000_000_000 + u64::from((*header).tp_nsec);
                Packet {
                    time_ns: now_ns.saturating_sub(real_ns.saturating_sub(came_ns)),
                    is_outgoing: *frame.add(KIND_AT) == libc::PACKET_OUTGOING,
                    bytes: std::slice::from_raw_parts(frame.add(at), length),
                }
            };
            each(packet);
            status.store(TP_STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) % FRAMES;
        }
    }

    /// How many packets were lost since it was opened because the ring was full.
    pub fn lost(&mut self) -> u64 {
        let mut found = tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length = size_of::<tpacket_stats>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes to `found`; both outlive the call.
        let answer = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                PACKET_STATISTICS as libc::c_int,
                (&raw mut found).cast(),
                &raw mut length,
            )
        };
        if answer == 0 {
            // The kernel restarts the count after each call.
            self.lost += u64::from(found.tp_drops);
        }
        self.lost
    }
}

/// Replaces the socket's filter.
fn attach(fd: &OwnedFd, ports: &[u16]) -> io::Result<()> {
    let mut filter = filter(ports);
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    set(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER as u32, &program)
}

fn set<T>(fd: &OwnedFd, level: libc::c_int, option: u32, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes at `value`, and the memory that they point to; all of it
    // outlives the call.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option as libc::c_int,
            std::ptr::from_ref(value).cast(),
            length,
        )
    })
    .map(drop)
}

/// The first bytes of a request that this machine receives, and of an answer that it sends.
const REQUESTS: [&[u8; 4]; 7] = [b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC"];
const ANSWER: &[u8; 4] = b"HTTP";
/// Maximum number of ports in the filter: its jumps reach 255 instructions.
pub const PORTS_MAX: usize = 64;

/// Where the filter continues after a test.
#[derive(Clone, Copy)]
enum To {
    Next,
    /// Skips this many instructions.
    Skip(u8),
    Keep,
    Drop,
}

/// An instruction of the filter: its code, its operand, and where it continues if it is true and if not.
type Instruction = (u32, u32, To, To);

/// Drops packets whose server's port is none of `ports`: of an outgoing packet the source, else the destination.
fn port_tests(ports: &[u16]) -> Vec<Instruction> {
    use To::{Drop, Next, Skip};
    use libc::{BPF_ABS, BPF_H, BPF_IND, BPF_JA, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_W};
    if ports.is_empty() {
        return Vec::new();
    }
    let is = |value: u32, yes: To, no: To| (BPF_JMP | BPF_JEQ | BPF_K, value, yes, no);
    let mut program = vec![
        (BPF_LD | BPF_ABS | BPF_W, (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32, Next, Next),
        is(libc::PACKET_OUTGOING as u32, Next, Skip(2)),
        (BPF_LD | BPF_IND | BPF_H, 0, Next, Next),
        (BPF_JMP | BPF_JA, 1, Next, Next),
        (BPF_LD | BPF_IND | BPF_H, 2, Next, Next),
    ];
    for (port, others) in ports.iter().zip((0..ports.len()).rev()) {
        let no = if others == 0 { Drop } else { Next };
        program.push(is(u32::from(*port), Skip(others as u8), no));
    }
    program
}

/// The filter, for the kernel's virtual machine (linux/filter.h): TCP over IPv4 or IPv6 without extension
/// headers, selected by the first four bytes of the payload. A load beyond the packet drops it. Each
/// direction has its own tests, so a packet that stays on this machine (and passes twice) is captured once,
/// and requests that this machine sends are not captured. Unless `ports` is empty, the server's port is one of
/// them.
fn filter(ports: &[u16]) -> Vec<sock_filter> {
    use To::{Drop, Keep, Next, Skip};
    use libc::{
        BPF_ABS, BPF_ADD, BPF_ALU, BPF_B, BPF_H, BPF_IMM, BPF_IND, BPF_JA, BPF_JEQ, BPF_JMP, BPF_JSET,
    };
    use libc::{BPF_K, BPF_LD, BPF_LDX, BPF_LSH, BPF_MISC, BPF_MSH, BPF_RET, BPF_RSH, BPF_TAX, BPF_W, BPF_X};
    let about = |what: libc::c_int| (libc::SKF_AD_OFF + what) as u32;
    let load = |bytes: u32, at: u32| (BPF_LD | BPF_ABS | bytes, at, Next, Next);
    let is = |value: u32, yes: To, no: To| (BPF_JMP | BPF_JEQ | BPF_K, value, yes, no);
    let compute = |how: u32, value: u32| (BPF_ALU | how | BPF_K, value, Next, Next);
    let payload = (BPF_LD | BPF_IND | BPF_W, 0, Next, Next);
    const IP6_HEADER_BYTES: u32 = 40;
    const FRAGMENT_OFFSET: u32 = 0x1fff;
    let tcp = libc::IPPROTO_TCP as u32;
    let mut program = vec![
        load(BPF_W, about(libc::SKF_AD_PROTOCOL)),
        is(libc::ETH_P_IP as u32, Next, Skip(6)),
        // IPv4: the protocol, not a later fragment, and the length of the header to X.
        load(BPF_B, 9),
        is(tcp, Next, Drop),
        load(BPF_H, 6),
        (BPF_JMP | BPF_JSET | BPF_K, FRAGMENT_OFFSET, Drop, Next),
        (BPF_LDX | BPF_MSH | BPF_B, 0, Next, Next),
        (BPF_JMP | BPF_JA, 4, Next, Next),
        // IPv6: the same.
        is(libc::ETH_P_IPV6 as u32, Next, Drop),
        load(BPF_B, 6),
        is(tcp, Next, Drop),
        (BPF_LDX | BPF_IMM | BPF_W, IP6_HEADER_BYTES, Next, Next),
    ];
    program.extend(port_tests(ports));
    program.extend([
        // TCP: the length of its header, in words, is in the upper half of a byte. X becomes the start of the
        // payload.
        (BPF_LD | BPF_IND | BPF_B, 12, Next, Next),
        compute(BPF_RSH, 4),
        compute(BPF_LSH, 2),
        (BPF_ALU | BPF_ADD | BPF_X, 0, Next, Next),
        (BPF_MISC | BPF_TAX, 0, Next, Next),
        load(BPF_W, about(libc::SKF_AD_PKTTYPE)),
        is(libc::PACKET_OUTGOING as u32, Next, Skip(2)),
        payload,
        is(u32::from_be_bytes(*ANSWER), Keep, Drop),
        is(libc::PACKET_HOST as u32, Next, Drop),
        payload,
    ]);
    for (index, method) in REQUESTS.iter().enumerate() {
        let no = if index + 1 < REQUESTS.len() { Next } else { Drop };
        program.push(is(u32::from_be_bytes(**method), Keep, no));
    }
    let keep = program.len();
    let ends = [PACKET_BYTES_MAX, 0].map(|bytes| (BPF_RET | BPF_K, bytes, Next, Next));
    let numbered = program.into_iter().chain(ends).enumerate();
    let instruction = |(at, (code, k, yes, no)): (usize, Instruction)| {
        let offset = |to: To| match to {
            Next => 0,
            Skip(over) => over,
            Keep => (keep - at - 1) as u8,
            Drop => (keep - at) as u8,
        };
        sock_filter { code: code as u16, jt: offset(yes), jf: offset(no), k }
    };
    numbered.map(instruction).collect()
}

#[cfg(test)]
#[path = "packets_tests.rs"]
mod tests;
