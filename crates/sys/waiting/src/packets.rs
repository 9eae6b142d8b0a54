//! The begins of HTTP/1 requests and answers as they pass this machine's interfaces: a packet socket
//! (packet(7)) with a filter in the kernel and a ring that it writes to.
//!
//! The lab's `trace` uses it, to know when a request came and when its answer left. It decodes nothing: a
//! packet is given as its first bytes. It is passive; who is watched does not notice, and the kernel closes it
//! with its process.
//!
//! A ring instead of recvmsg(2): a packet costs a copy of a few hundred bytes and no call, and its room does
//! not depend on how large the packet was.

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::sock_filter;
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use rustix::time::{ClockId, clock_gettime};

/// What is kept of a packet, at most: the headers and a first line.
const PACKET_BYTES_MAX: u32 = 384;
/// A place in the ring: a packet with what the kernel says of it.
const FRAME_BYTES: usize = 512;
/// The ring is made of such blocks.
const BLOCK_BYTES: usize = 64 * 1024;
/// The ring: some 0.1 s of a server at 50,000 requests/s, with their answers.
const RING_BYTES: usize = 8 << 20;
const FRAMES: usize = RING_BYTES / FRAME_BYTES;
const _: () = assert!(BLOCK_BYTES.is_multiple_of(FRAME_BYTES) && RING_BYTES.is_multiple_of(BLOCK_BYTES));

// Options of packet sockets (linux/if_packet.h).
const PACKET_RX_RING: libc::c_int = 5;
const PACKET_STATISTICS: libc::c_int = 6;
const PACKET_VERSION: libc::c_int = 10;
const TPACKET_V2: libc::c_int = 1;
/// The frame is the reader's.
const STATUS_USER: u32 = 1;
const STATUS_KERNEL: u32 = 0;
/// Where the kinds of packets stand in a frame: `sockaddr_ll` follows the header.
const KIND_AT: usize = size_of::<Header>() + std::mem::offset_of!(libc::sockaddr_ll, sll_pkttype);

/// `struct tpacket2_hdr`
#[repr(C)]
struct Header {
    status: AtomicU32,
    length: u32,
    kept: u32,
    link_at: u16,
    network_at: u16,
    seconds: u32,
    nanoseconds: u32,
    vlan: [u16; 2],
    padding: [u8; 4],
}

const _: () = assert!(size_of::<Header>() == 32);

/// `struct tpacket_req`
#[repr(C)]
struct RingRequest {
    block_bytes: u32,
    blocks: u32,
    frame_bytes: u32,
    frames: u32,
}

/// `struct tpacket_stats`
#[repr(C)]
#[derive(Default)]
struct Statistics {
    packets: u32,
    dropped: u32,
}

/// A packet that begins a request or an answer.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// When it came or left, on `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// It leaves this machine, or goes from here to here and is on its way out.
    pub is_outgoing: bool,
    /// From the header of IP on; cut short.
    pub bytes: &'a [u8],
}

/// All interfaces of a network namespace, listened at.
#[derive(Debug)]
pub struct Packets {
    fd: OwnedFd,
    ring: NonNull<libc::c_void>,
    /// The frame that comes next.
    next: usize,
    lost: u64,
}

// SAFETY: the mapping belongs to the process, and only `&mut self` reads from it.
unsafe impl Send for Packets {}

impl Packets {
    /// Listens in the network namespace of this process, or in `namespace` (`/proc/PID/ns/net`).
    ///
    /// Errors: `EPERM` without `CAP_NET_RAW`, and for another namespace `CAP_SYS_ADMIN`; `ENOMEM`; `EAFNOSUPPORT`
    /// where the kernel has no packet sockets.
    pub fn open(namespace: Option<&File>) -> io::Result<Self> {
        let Some(namespace) = namespace else { return Self::open_here() };
        // A namespace is a thread's, and a socket stays in the one that it was made in.
        let there = || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            Self::open_here()
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().spawn_scoped(scope, there)?;
            thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
        })
    }

    fn open_here() -> io::Result<Self> {
        // Without a protocol nothing comes in until there is a filter.
        // SAFETY: a call without pointers; the descriptor is owned by nobody else.
        let fd = unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
            check(fd)?;
            OwnedFd::from_raw_fd(fd)
        };
        let mut filter = filter();
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        set(&fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)?;
        set(&fd, libc::SOL_PACKET, PACKET_VERSION, &TPACKET_V2)?;
        let request = RingRequest {
            block_bytes: BLOCK_BYTES as u32,
            blocks: (RING_BYTES / BLOCK_BYTES) as u32,
            frame_bytes: FRAME_BYTES as u32,
            frames: FRAMES as u32,
        };
        set(&fd, libc::SOL_PACKET, PACKET_RX_RING, &request)?;
        // SAFETY: the kernel chooses where, so nothing that is in use is replaced.
        let ring = unsafe {
            mmap(
                std::ptr::null_mut(),
                RING_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &fd,
                0,
            )?
        };
        let ring = NonNull::new(ring).ok_or(rustix::io::Errno::NOMEM)?;
        let packets = Self { fd, ring, next: 0, lost: 0 };
        packets.bind()?;
        Ok(packets)
    }

    /// From now on packets come, of all interfaces and both directions.
    fn bind(&self) -> io::Result<()> {
        // SAFETY: all zero is such an address; the kernel reads it, and it outlives the call.
        check(unsafe {
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
            let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), length)
        })
    }

    /// Gives `each` the packets that have come, in their order; no more than the ring holds at once.
    pub fn take(&mut self, mut each: impl FnMut(Packet<'_>)) {
        let nanoseconds = |clock| {
            let now = clock_gettime(clock);
            now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
        };
        let (real_ns, now_ns) = (nanoseconds(ClockId::Realtime), nanoseconds(ClockId::Monotonic));
        for _ in 0..FRAMES {
            // SAFETY: `next` is below FRAMES, so the frame lies in the mapping, which is aligned to pages.
            let frame = unsafe { self.ring.as_ptr().cast::<u8>().add(self.next * FRAME_BYTES) };
            let header = frame.cast::<Header>();
            // SAFETY: the kernel writes the status as a whole; it lies in the mapping, which outlives the reference.
            let status = unsafe { &(*header).status };
            if status.load(Ordering::Acquire) & STATUS_USER == 0 {
                return;
            }
            // SAFETY: the kernel writes nothing to the frame while it is the reader's, which it is until the
            // status is stored below; the references are gone by then. No length goes beyond the frame.
            let packet = unsafe {
                let at = usize::from((*header).network_at).min(FRAME_BYTES);
                let length = ((*header).kept as usize).min(FRAME_BYTES - at);
                let came_ns = u64::from((*header).seconds) * 1_000_000_000 + u64::from((*header).nanoseconds);
                Packet {
                    time_ns: now_ns.saturating_sub(real_ns.saturating_sub(came_ns)),
                    is_outgoing: *frame.add(KIND_AT) == libc::PACKET_OUTGOING,
                    bytes: std::slice::from_raw_parts(frame.add(at), length),
                }
            };
            each(packet);
            status.store(STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) % FRAMES;
        }
    }

    /// How many packets found no room since it was opened.
    pub fn lost(&mut self) -> u64 {
        let mut found = Statistics::default();
        let mut length = size_of::<Statistics>() as libc::socklen_t;
        // SAFETY: the kernel writes no more than `length` bytes to `found`; both outlive the call.
        let answer = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                PACKET_STATISTICS,
                (&raw mut found).cast(),
                &raw mut length,
            )
        };
        if answer == 0 {
            // The kernel begins anew with each question.
            self.lost += u64::from(found.dropped);
        }
        self.lost
    }
}

impl Drop for Packets {
    fn drop(&mut self) {
        // SAFETY: the mapping is this socket's alone, and nothing refers to it any more.
        let _ = unsafe { munmap(self.ring.as_ptr(), RING_BYTES) };
    }
}

fn set<T>(fd: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes at `value`, and what that points to; all of it outlives the call.
    check(unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), length)
    })
}

fn check(answer: libc::c_int) -> io::Result<()> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// How the payload of a request that this machine receives begins, and that of an answer that it sends.
const REQUESTS: [&[u8; 4]; 7] = [b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC"];
const ANSWER: &[u8; 4] = b"HTTP";

/// Where a test goes on.
#[derive(Clone, Copy)]
enum To {
    Next,
    /// So many instructions further.
    Skip(u8),
    Keep,
    Drop,
}

/// The filter, for the kernel's machine (linux/filter.h): TCP over IPv4 or IPv6 without extension headers, by the
/// first four bytes of the payload. A load from beyond the packet drops it. Each direction has its own: so what
/// goes from here to here, which passes twice, comes once, and what this machine asks of others does not.
fn filter() -> Vec<sock_filter> {
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
        // IPv4: the protocol, no later fragment, and the length of the header to X.
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
        // TCP: its length stands in words in the upper half of a byte. X becomes the begin of the payload.
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
    ];
    for (index, method) in REQUESTS.iter().enumerate() {
        let no = if index + 1 < REQUESTS.len() { Next } else { Drop };
        program.push(is(u32::from_be_bytes(**method), Keep, no));
    }
    let keep = program.len();
    let ends = [PACKET_BYTES_MAX, 0].map(|bytes| (BPF_RET | BPF_K, bytes, Next, Next));
    let numbered = program.into_iter().chain(ends).enumerate();
    let instruction = |(at, (code, k, yes, no)): (usize, (u32, u32, To, To))| {
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
