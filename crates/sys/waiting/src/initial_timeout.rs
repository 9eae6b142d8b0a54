//! The initial retransmission timeout of TCP (RFC 6298, section 2.1: 1 s). Linux has no setting for it, but asks a program of bpf(2) for it
//! on each connection (`BPF_SOCK_OPS_TIMEOUT_INIT` of linux/bpf.h). This module loads one. The lab's links use it.

use std::fs::{self, File};
use std::io;
use std::time::Duration;

use flash_prompt::call::check;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::time::{ClockId, clock_getres};

// Numbers of linux/bpf.h.
const PROG_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;
const PROG_TYPE_SOCK_OPS: u32 = 13;
const ATTACH_CGROUP_SOCK_OPS: u32 = 3;
const OP_TIMEOUT_INIT: i32 = 1;
const GET_NETNS_COOKIE: i32 = 122;
/// Of `struct bpf_sock_ops`.
const REPLY_OFFSET: i16 = 4;

// Instructions (Documentation/bpf/standardization/instruction-set.rst): class, size and operation in one byte.
const LOAD_32: u8 = 0x61;
const LOAD_IMMEDIATE_64: u8 = 0x18;
const STORE_REGISTER_32: u8 = 0x63;
const MOVE: u8 = 0xb7;
const MOVE_REGISTER: u8 = 0xbf;
const JUMP_NOT_EQUAL: u8 = 0x55;
const JUMP_EQUAL_REGISTER: u8 = 0x1d;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// An initial timeout, until it is dropped.
#[derive(Debug)]
pub struct InitialTimeout {
    _attached: OwnedFd,
}

impl InitialTimeout {
    /// Sets it, rounded to ticks of the kernel's clock, for new connections in two network namespaces, which [`namespace_cookie`] names.
    ///
    /// Errors: `PermissionDenied` without `CAP_BPF`, `CAP_NET_ADMIN` and `CAP_SYS_ADMIN`; those of bpf(2), above all from a kernel
    /// whose programs cannot ask for the namespace.
    pub fn set(timeout: Duration, namespaces: [u64; 2]) -> io::Result<Self> {
        let tick_ns = clock_getres(ClockId::MonotonicCoarse).tv_nsec.max(1) as u128;
        let ticks = (timeout.as_nanos() + tick_ns / 2) / tick_ns;
        let program = load(&program(i32::try_from(ticks).unwrap_or(i32::MAX).max(1), namespaces))?;
        Ok(Self { _attached: attach(program.as_fd(), all_processes()?.as_fd())? })
    }
}

/// The control group (version 2) that every process is in, or in one beneath it. One that is mounted already is opened: a further mount
/// would set its options for all.
fn all_processes() -> io::Result<OwnedFd> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let mut fields = mounts.lines().map(|line| line.split(' ').skip(1));
    if let Some(folder) =
        fields.find_map(|mut fields| fields.next().filter(|_| fields.next() == Some("cgroup2")))
    {
        return Ok(File::open(folder)?.into());
    }
    let system = fsopen("cgroup2", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(system.as_fd())?;
    Ok(fsmount(system.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

/// The number by which the kernel knows the network namespace of this thread.
///
/// Errors: those of socket(2) and getsockopt(2).
pub fn namespace_cookie() -> io::Result<u64> {
    let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
    let (mut cookie, mut length) = (0_u64, size_of::<u64>() as libc::socklen_t);
    // SAFETY: the kernel writes at most `length` bytes to the number.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    })?;
    Ok(cookie)
}

/// The instructions: asked for the initial timeout in one of the namespaces, they answer `ticks`. They leave all other answers as they are.
fn program(ticks: i32, namespaces: [u64; 2]) -> Vec<u8> {
    let step = |code: u8, registers: u8, offset: i16, value: i32| {
        let mut bytes = vec![code, registers];
        bytes.extend(offset.to_ne_bytes());
        bytes.extend(value.to_ne_bytes());
        bytes
    };
    // Two registers in a byte: the destination in the lower half. A jump counts the steps that it leaves out; a number of 64 bits has two.
    let mut all = vec![
        step(MOVE_REGISTER, 0x16, 0, 0),
        step(LOAD_32, 0x62, 0, 0),
        step(JUMP_NOT_EQUAL, 2, 7, OP_TIMEOUT_INIT),
        step(CALL, 0, 0, GET_NETNS_COOKIE),
    ];
    for (cookie, over) in namespaces.into_iter().zip([5, 2]) {
        all.push(step(LOAD_IMMEDIATE_64, 1, 0, cookie as u32 as i32));
        all.push(step(0, 0, 0, (cookie >> 32) as i32));
        all.push(step(JUMP_EQUAL_REGISTER, 0x10, over, 0));
    }
    let allow = [step(MOVE, 0, 0, 1), step(EXIT, 0, 0, 0)];
    all.extend(allow.clone());
    all.extend([step(MOVE, 1, 0, ticks), step(STORE_REGISTER_32, 0x16, REPLY_OFFSET, 0)]);
    all.extend(allow);
    all.concat()
}

fn load(program: &[u8]) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Load {
        kind: u32,
        steps: u32,
        program: u64,
        licence: u64,
        rest: [u64; 4],
    }
    let load = Load {
        kind: PROG_TYPE_SOCK_OPS,
        steps: (program.len() / 8) as u32,
        program: program.as_ptr() as u64,
        licence: c"MIT".as_ptr() as u64,
        rest: [0; 4],
    };
    call(PROG_LOAD, &load)
}

fn attach(program: BorrowedFd<'_>, group: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let words = [program.as_raw_fd() as u32, group.as_raw_fd() as u32, ATTACH_CGROUP_SOCK_OPS, 0];
    call(LINK_CREATE, &words)
}

/// bpf(2) with a command that returns a descriptor.
fn call<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads as many bytes as the attributes have, and their pointers lead to data that outlives the call.
    let made =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it, and nothing else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(made as i32) })
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use rustix::net::{AddressFamily, SocketType, connect, listen, socket};

    use super::*;
    use crate::network::Namespace;
    use crate::skipping::skip;

    /// The timeout of a connection that nobody answers, in milliseconds, which doubles if this process is late.
    fn timeout_ms() -> u64 {
        let full = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listen(&full, 0).unwrap();
        let address = full.local_addr().unwrap();
        let asking: Vec<OwnedFd> = (0..4)
            .map(|_| {
                let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
                rustix::io::ioctl_fionbio(&socket, true).unwrap();
                connect(&socket, &address).unwrap_err();
                socket
            })
            .collect();
        rto_us(asking.last().unwrap().as_fd()) / 1000
    }

    fn rto_us(socket: BorrowedFd<'_>) -> u64 {
        let mut info = [0_u8; 104];
        let mut length = info.len() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes.
        check(unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &raw mut length,
            )
        })
        .unwrap();
        // tcpi_rto of `struct tcp_info`.
        u32::from_ne_bytes(*info[8..].first_chunk().unwrap()).into()
    }

    #[test]
    fn connections_of_its_namespaces_have_the_timeout_until_it_is_dropped() {
        let Ok(namespaces) = Namespace::make().and_then(|one| Ok([one, Namespace::make()?])) else {
            return skip("no right to make a network namespace");
        };
        let [one, other] = &namespaces;
        let cookies = [one, other].map(|namespace| namespace.run(namespace_cookie).unwrap().unwrap());
        let timeout = match InitialTimeout::set(Duration::from_millis(400), cookies) {
            Ok(timeout) => timeout,
            Err(why) => return skip(&format!("no initial timeout by bpf(2): {why}")),
        };
        let is_doubled =
            |ms: u64, first_ms: u64| (0..5).any(|times| (first_ms << times).abs_diff(ms) <= 8 << times);
        for namespace in &namespaces {
            let ms = namespace.run(timeout_ms).unwrap();
            assert!(is_doubled(ms, 400), "{ms} ms");
        }
        let ms = timeout_ms();
        assert!(is_doubled(ms, 1000), "of all other connections: {ms} ms");
        drop(timeout);
        let ms = one.run(timeout_ms).unwrap();
        assert!(is_doubled(ms, 1000), "{ms} ms");
    }
}
