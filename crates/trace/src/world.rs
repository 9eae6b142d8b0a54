//! Descriptors, paths, requests and names of other processes, from /proc.
//!
//! The analysis asks by the trait [`World`]; tests answer by a table. Everything here may fail at any time:
//! the process may be gone. Nothing is kept but the table of sockets.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use flash_waiting::perf;

use flash_kit::text::printable;

use crate::event::InCall;
use crate::model::{Process, Target, TargetKind};
use crate::segment::{LINE_BYTES_MAX, request_line};
use crate::symbols::Symbols;
use flash_kit::processes::Stat;

/// Where a path begins that is relative to nothing else (open(2), `AT_FDCWD`).
pub(crate) const CURRENT_FOLDER: i32 = -100;
/// The longest path that is read (`PATH_MAX`).
const PATH_BYTES_MAX: usize = 4096;
/// The longest command line that is kept.
const COMMAND_BYTES_MAX: usize = 1024;
/// The table of sockets is read no more often.
const SOCKETS_AGE_NS: u64 = 500_000_000;
/// Descriptors of a process among which its listening sockets are looked for: they are opened early.
const DESCRIPTORS_MAX: usize = 4096;
/// Sockets in it, at most.
const SOCKETS_MAX: usize = 1 << 17;

/// Who knows what an event does not tell.
pub(crate) trait World {
    /// The time, on the clock of the events.
    fn now_ns(&mut self) -> u64;
    /// The target of a descriptor now; [`CURRENT_FOLDER`] is one.
    fn descriptor(&mut self, pid: u32, fd: i32) -> Option<Target>;
    /// The path that stands at an address of a process now.
    fn path(&mut self, pid: u32, address: u64) -> Option<String>;
    /// The first line of the HTTP request that stands at an address now.
    fn request(&mut self, pid: u32, address: u64, length: usize) -> Option<String>;
    /// The addresses of a socket that `descriptor` could only call `socket:[INODE]`, if they have been seen since.
    fn socket(&self, name: &str) -> Option<String>;
    /// The name of a process now, and its parent.
    fn process(&mut self, pid: u32) -> Option<Process>;
    fn function(&self, address: u64) -> Option<&str>;
}

#[derive(Debug)]
pub(crate) struct Machine {
    symbols: Symbols,
    sockets: HashMap<u64, String>,
    sockets_read_ns: u64,
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self { symbols: Symbols::of_kernel(), sockets: HashMap::new(), sockets_read_ns: 0 }
    }

    pub(crate) fn hides_symbols(&self) -> bool {
        self.symbols.is_empty()
    }

    fn addresses(&mut self, pid: u32, inode: u64) -> Option<String> {
        if !self.sockets.contains_key(&inode) {
            let now_ns = perf::now_ns();
            if now_ns.saturating_sub(self.sockets_read_ns) >= SOCKETS_AGE_NS {
                // Those that are closed since are remembered: an inode's number is not used again soon.
                let found = sockets(pid);
                if self.sockets.len() + found.len() > SOCKETS_MAX {
                    self.sockets.clear();
                }
                self.sockets.extend(found);
                // A long table is read less often.
                self.sockets_read_ns = perf::now_ns() + 10 * (perf::now_ns() - now_ns);
            }
        }
        self.sockets.get(&inode).cloned()
    }
}

impl World for Machine {
    fn now_ns(&mut self) -> u64 {
        perf::now_ns()
    }

    fn descriptor(&mut self, pid: u32, fd: i32) -> Option<Target> {
        let link = match fd {
            CURRENT_FOLDER => PathBuf::from(format!("/proc/{pid}/cwd")),
            _ => PathBuf::from(format!("/proc/{pid}/fd/{fd}")),
        };
        let name = fs::read_link(link).ok()?.to_string_lossy().into_owned();
        let (kind, name) = match inode(&name) {
            Some(inode) => (TargetKind::Socket, self.addresses(pid, inode).unwrap_or(name)),
            None if name.starts_with('/') => (TargetKind::File, name),
            None if name.starts_with("pipe:") => (TargetKind::Pipe, name),
            None => (TargetKind::Anonymous, name),
        };
        Some(Target { kind, name, is_uncertain: false })
    }

    fn path(&mut self, pid: u32, address: u64) -> Option<String> {
        let bytes = read(pid, address, PATH_BYTES_MAX)?;
        let end = bytes.iter().position(|byte| *byte == 0)?;
        (end > 0).then(|| printable(&bytes[..end]))
    }

    fn request(&mut self, pid: u32, address: u64, length: usize) -> Option<String> {
        let bytes = read(pid, address, length.min(LINE_BYTES_MAX))?;
        request_line(&bytes).map(|(line, _)| printable(line))
    }

    fn socket(&self, name: &str) -> Option<String> {
        self.sockets.get(&inode(name)?).cloned()
    }

    fn process(&mut self, pid: u32) -> Option<Process> {
        let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
        let mut command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.truncate(COMMAND_BYTES_MAX);
        command.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
        let parent = Stat::read(pid).map_or(0, |stat| stat.parent);
        Some(Process {
            pid,
            parent,
            name: printable(name.trim_ascii()),
            command: printable(command.trim_ascii()),
        })
    }

    fn function(&self, address: u64) -> Option<&str> {
        self.symbols.name(address)
    }
}

/// Up to `length` bytes at an address of a process: less where its memory ends.
fn read(pid: u32, address: u64, length: usize) -> Option<Vec<u8>> {
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    let mut bytes = vec![0; length];
    let got = memory.read_at(&mut bytes, address).ok()?;
    bytes.truncate(got);
    Some(bytes)
}

/// The inode in `socket:[INODE]`.
fn inode(name: &str) -> Option<u64> {
    name.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// The sockets of the network namespace of a process (proc(5)), by inode.
fn sockets(pid: u32) -> HashMap<u64, String> {
    let mut found = HashMap::new();
    for table in ["tcp", "tcp6", "unix"] {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        let parse = if table == "unix" { unix_socket } else { TcpSocket::named };
        let named = text.lines().skip(1).filter_map(parse);
        found.extend(named.take(SOCKETS_MAX.saturating_sub(found.len())));
    }
    found
}

/// The state of a listening socket in the tables of sockets.
const LISTENING: &str = "0A";

/// The addresses that a process listens at for TCP, as far as its descriptors can be read.
pub(crate) fn listeners(pid: u32) -> HashSet<SocketAddr> {
    let mut listening = HashMap::new();
    for table in ["tcp", "tcp6"] {
        let Ok(file) = File::open(format!("/proc/{pid}/net/{table}")) else { continue };
        // Those that listen come first.
        let lines = BufReader::new(file).lines().map_while(std::io::Result::ok).skip(1);
        let sockets = lines.map_while(|line| TcpSocket::parse(&line).filter(|socket| socket.is_listening));
        listening.extend(sockets.map(|socket| (socket.inode, socket.local)).take(SOCKETS_MAX));
    }
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten().take(DESCRIPTORS_MAX);
    let names = fds.filter_map(|fd| fs::read_link(fd.path()).ok());
    names.filter_map(|name| listening.get(&inode(name.to_str()?)?).copied()).collect()
}

/// Whether what is behind the descriptors of a process is kept from this one.
pub(crate) fn is_hidden(pid: u32) -> bool {
    let is_refused = |why: &std::io::Error| why.kind() == std::io::ErrorKind::PermissionDenied;
    match fs::read_dir(format!("/proc/{pid}/fd")) {
        Ok(mut fds) => fds
            .next()
            .is_some_and(|fd| fd.and_then(|fd| fs::read_link(fd.path())).is_err_and(|why| is_refused(&why))),
        Err(why) => is_refused(&why),
    }
}

struct TcpSocket {
    inode: u64,
    local: SocketAddr,
    peer: SocketAddr,
    is_listening: bool,
}

impl TcpSocket {
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        Some(Self {
            inode: fields.get(9)?.parse().ok()?,
            local: address(fields.get(1)?)?,
            peer: address(fields.get(2)?)?,
            is_listening: *fields.get(3)? == LISTENING,
        })
    }

    fn named(line: &str) -> Option<(u64, String)> {
        let Self { inode, local, peer, is_listening } = Self::parse(line)?;
        let name = if is_listening { format!("listening on {local}") } else { format!("{local} - {peer}") };
        Some((inode, name))
    }
}

/// `0100007F:1F90`: words of an address in the machine's byte order, and a port.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words = address.as_bytes().chunks(8).map(|word| {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        Some(word.to_ne_bytes())
    });
    let bytes: Vec<u8> = words.collect::<Option<Vec<_>>>()?.concat();
    let address = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(four) => IpAddr::from(four),
        Err(_) => IpAddr::from(<[u8; 16]>::try_from(bytes.as_slice()).ok()?).to_canonical(),
    };
    Some(SocketAddr::new(address, port))
}

fn unix_socket(line: &str) -> Option<(u64, String)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let name = fields.get(7).map_or_else(|| "a UNIX socket".to_owned(), |path| format!("unix:{path}"));
    Some((fields.get(6)?.parse().ok()?, name))
}

/// Whether a thread has not ended.
pub(crate) fn is_running(pid: u32, tid: u32) -> bool {
    let path = format!("/proc/{pid}/task/{tid}/stat");
    Stat::of_file(tid, Path::new(&path)).is_some_and(|stat| !stat.is_zombie)
}

/// The call that a thread is blocked in now, from /proc/PID/task/TID (proc(5), `syscall` and `stack`); none when it runs,
/// or was not in a call.
pub(crate) fn in_call(pid: u32, tid: u32) -> Option<InCall> {
    let folder = format!("/proc/{pid}/task/{tid}");
    let (call, args) = call_of(&fs::read_to_string(format!("{folder}/syscall")).ok()?)?;
    let stack = fs::read_to_string(format!("{folder}/stack")).unwrap_or_default();
    let functions = stack.lines().filter_map(|line| {
        let (_, function) = line.split_once("] ")?;
        Some(function.split(['+', '.']).next()?.to_owned())
    });
    Some(InCall { call, args, functions: functions.collect() })
}

/// `NUMBER ARGUMENT...`; `running` is none, and -1 stands for no call.
fn call_of(text: &str) -> Option<(u64, [u64; 6])> {
    let mut words = text.split_ascii_whitespace();
    let call = words.next()?.parse().ok()?;
    let mut args = [0; 6];
    for arg in &mut args {
        *arg = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    Some((call, args))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_have_addresses() {
        let line = "   0: 0100007F:1F90 0200007F:C001 01 00000000:00000000 00:00000000 00000000     0        0 4242 1";
        assert_eq!(TcpSocket::named(line), Some((4242, "127.0.0.1:8080 - 127.0.0.2:49153".to_owned())));
        let line = line.replace(" 01 ", " 0A ");
        assert_eq!(TcpSocket::named(&line), Some((4242, "listening on 127.0.0.1:8080".to_owned())));
        assert_eq!(TcpSocket::named("   0: junk"), None);
        let socket = TcpSocket::parse(&line).unwrap();
        assert_eq!(
            (socket.inode, socket.local, socket.is_listening),
            (4242, "127.0.0.1:8080".parse().unwrap(), true)
        );
        assert!(!TcpSocket::parse(&line.replace(" 0A ", " 01 ")).unwrap().is_listening);
        let shown = |text: &str| address(text).map(|address| address.to_string());
        assert_eq!(shown("0000000000000000FFFF00000100007F:0050").as_deref(), Some("127.0.0.1:80"));
        assert_eq!(shown("00000000000000000000000001000000:0050").as_deref(), Some("[::1]:80"));
    }

    #[test]
    fn what_a_thread_is_blocked_in() {
        let line = "232 0x8 0x7ffd 0x200 0xffffffffffffffff 0x0 0x1 0x7ffc 0x7fab\n";
        assert_eq!(call_of(line), Some((232, [8, 0x7ffd, 0x200, u64::MAX, 0, 1])));
        for other in ["running\n", "-1 0x7ffc 0x7fab\n", "", "7 0x1"] {
            assert_eq!(call_of(other), None, "{other}");
        }
    }

    #[test]
    fn this_process_can_be_looked_into() {
        let (mut machine, me) = (Machine::new(), std::process::id());
        let text = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n\0".to_vec();
        let at = text.as_ptr() as u64;
        assert_eq!(machine.request(me, at, text.len()).as_deref(), Some("GET /a HTTP/1.1"));
        assert_eq!(machine.request(me, at + 1, text.len() - 1), None, "no method");
        let path = b"/etc/x\0rest".to_vec();
        assert_eq!(machine.path(me, path.as_ptr() as u64).as_deref(), Some("/etc/x"));
        assert_eq!(machine.path(me, 0), None);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&listener);
        let target = machine.descriptor(me, fd).unwrap();
        assert_eq!(target.kind, TargetKind::Socket);
        assert_eq!(target.name, format!("listening on {}", listener.local_addr().unwrap()));
        assert!(listeners(me).contains(&listener.local_addr().unwrap()));
        let later = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        // As if the sockets had been read a moment ago.
        machine.sockets_read_ns = u64::MAX;
        let raw = machine.descriptor(me, std::os::fd::AsRawFd::as_raw_fd(&later)).unwrap().name;
        assert_eq!((inode(&raw).is_some(), machine.socket(&raw)), (true, None), "{raw}: too young");
        machine.sockets_read_ns = 0;
        machine.descriptor(me, std::os::fd::AsRawFd::as_raw_fd(&later)).unwrap();
        let address = format!("listening on {}", later.local_addr().unwrap());
        assert_eq!(machine.socket(&raw), Some(address));
        assert_eq!(machine.descriptor(me, CURRENT_FOLDER).unwrap().kind, TargetKind::File);
        assert_eq!(machine.descriptor(me, 9999), None);
        assert!(is_running(me, me) && !is_running(me, 1));
    }
}
