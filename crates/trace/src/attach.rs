//! Which threads are traced, and the kernel's events for them.
//!
//! `recorder` calls it once. Events are opened for each thread on each core, those of a core share its ring,
//! and threads and processes that are started inherit them: so nobody else is recorded, and nothing that is
//! started is missed. Others pay something all the same: as long as anybody's calls are traced, the kernel has
//! every thread of the machine take the longer way into and out of each call (`syscall_regfunc`).

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use flash_waiting::perf::{Event, Ring, Tracepoint, private_tracefs};
use flash_waiting::process::raise_descriptor_limit;

use crate::decode::{Decoder, Source, offset_of};
use flash_kit::processes::{Stat, tree};
use flash_kit::{Error, Result};

/// Where tracefs is usually mounted.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// Events that are opened, at most: each is a descriptor, and over a KiB of the kernel's memory.
const EVENTS_MAX: usize = 1 << 16;
/// Descriptors that are left for other things.
const DESCRIPTORS_SPARE: u64 = 256;
/// How often the list of threads is read again, while new ones appear.
const LISTINGS_MAX: u32 = 5;
/// The least size of a ring that is tried.
const RING_BYTES_MIN: usize = 64 * 1024;
/// The rings of all cores together, at most: memory that cannot be swapped out.
pub(crate) const RINGS_BYTES_MAX: usize = 256 << 20;

/// The files in which the kernel describes its tracepoints.
struct Tracefs {
    folder: PathBuf,
    /// Keeps a private mount alive while its files are read.
    _mount: Option<OwnedFd>,
}

impl Tracefs {
    /// A mounted tracefs, or a private mount of it, which changes no path of this machine.
    fn find() -> Result<Self> {
        let mut refused = None;
        for folder in TRACEFS.map(PathBuf::from) {
            match fs::metadata(folder.join("events/raw_syscalls")) {
                Ok(_) => return Ok(Self { folder, _mount: None }),
                Err(why) if why.kind() == ErrorKind::PermissionDenied => refused = Some((folder, why)),
                Err(_) => {}
            }
        }
        if let Some((folder, why)) = refused {
            return Err(Error::run(format!(
                "cannot read {}: {why}; kernel tracing needs root, or CAP_PERFMON, CAP_SYS_PTRACE and \
                 CAP_DAC_READ_SEARCH",
                folder.display()
            )));
        }
        let mount = private_tracefs().map_err(|why| {
            Error::run(format!(
                "cannot mount tracefs privately: {why}; run this as root, or mount it with `mount -t tracefs tracefs {}` \
                 and have CAP_PERFMON, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH",
                TRACEFS[0]
            ))
        })?;
        let folder = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
        Ok(Self { folder, _mount: Some(mount) })
    }

    fn read(&self, tracepoint: &str, file: &str) -> Result<String> {
        let path = self.folder.join("events").join(tracepoint).join(file);
        fs::read_to_string(&path).map_err(|why| {
            Error::run(format!(
                "cannot read {}: {why}; the kernel must be built with CONFIG_FTRACE_SYSCALLS",
                path.display()
            ))
        })
    }
}

/// The events that are opened for each thread on each core.
fn tracepoints(from_exec: bool) -> Result<[(Tracepoint<'static>, Source); 4]> {
    let tracefs = Tracefs::find()?;
    let id = |name: &str| -> Result<u64> {
        let text = tracefs.read(name, "id")?;
        text.trim().parse().map_err(|_| Error::run(format!("{name} has no number, but {text:?}")))
    };
    let field = |name: &str, field: &str| -> Result<usize> {
        offset_of(&tracefs.read(name, "format")?, field)
            .ok_or_else(|| Error::run(format!("{name} of this kernel has no {field}")))
    };
    let plain = |id| Tracepoint { id, filter: None, stack: false, wakes: false, tasks: false, from_exec };
    let (enter, exit) = ("raw_syscalls/sys_enter", "raw_syscalls/sys_exit");
    let enter_fields = Source::Enter { id: field(enter, "id")?, args: field(enter, "args")? };
    let exit_fields = Source::Exit { id: field(exit, "id")?, ret: field(exit, "ret")? };
    let (enter, exit, switch) = (plain(id(enter)?), plain(id(exit)?), plain(id("sched/sched_switch")?));
    let stack = |filter, wakes| Tracepoint { filter: Some(filter), stack: true, wakes, ..switch };
    Ok([
        (Tracepoint { tasks: true, ..enter }, enter_fields),
        (exit, exit_fields),
        // Who waits for a disk (state D) is looked at while it does; other waits (S) are common. Stops (T, t) are
        // told from waits by their stacks.
        (stack("prev_state & 2", true), Source::Switch),
        (stack("prev_state & 13", false), Source::Switch),
    ])
}

#[derive(Clone, Debug)]
pub(crate) struct Followed {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) name: String,
}

/// The events of all that is traced, and what they record into.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) rings: Vec<(u32, Ring)>,
    pub(crate) decoder: Decoder,
    events: Vec<Event>,
    pub(crate) threads: Vec<Followed>,
    pub(crate) threads_dropped: u64,
    pub(crate) ring_bytes: usize,
}

impl Attached {
    /// Attaches to the process `pid` and all that descends from it, but not to this process. Nothing is recorded
    /// before [`Attached::enable`]; with `from_exec`, before the process executes a program.
    ///
    /// Errors: run, without the right to, for a process that is not there or of another machine's kind.
    pub(crate) fn new(pid: u32, ring_bytes: usize, from_exec: bool) -> Result<Self> {
        if Stat::read(pid).is_none() {
            return Err(Error::run(format!("there is no process {pid}")));
        }
        let tracepoints = tracepoints(from_exec)?;
        let cores = cores();
        let (rings, ring_bytes) = rings(&cores, ring_bytes, pid)?;
        let descriptors = raise_descriptor_limit().unwrap_or(1024).saturating_sub(DESCRIPTORS_SPARE);
        let mut attached = Self {
            rings,
            decoder: Decoder::default(),
            events: Vec::new(),
            threads: Vec::new(),
            threads_dropped: 0,
            ring_bytes,
        };
        let events_max = EVENTS_MAX.min(descriptors as usize);
        // Those that are not followed as well.
        let mut known = HashSet::new();
        for _ in 0..LISTINGS_MAX {
            let new: Vec<_> = threads(pid).into_iter().filter(|thread| known.insert(thread.tid)).collect();
            if new.is_empty() {
                break;
            }
            for thread in new {
                attached.follow(thread, &tracepoints, events_max)?;
            }
        }
        if attached.events.is_empty() {
            return Err(Error::run(format!("process {pid} has ended")));
        }
        Ok(attached)
    }

    fn follow(
        &mut self,
        thread: Followed,
        tracepoints: &[(Tracepoint<'_>, Source)],
        events_max: usize,
    ) -> Result<()> {
        let Followed { pid, tid, .. } = thread;
        if is_of_32_bits(pid) {
            return Err(Error::run(format!(
                "process {pid} is a program of 32 bits, whose system calls have other numbers: it can't be traced"
            )));
        }
        if self.events.len() + self.rings.len() * tracepoints.len() > events_max {
            self.threads_dropped += 1;
            return Ok(());
        }
        for (core, ring) in &self.rings {
            for (tracepoint, source) in tracepoints {
                match Event::open(*tracepoint, tid, *core, ring) {
                    Ok(event) => {
                        self.decoder.add(event.id(), *source, tid);
                        self.events.push(event);
                    }
                    // It has just ended.
                    Err(why) if why.raw_os_error() == Some(NO_SUCH_PROCESS) => return Ok(()),
                    Err(why) => return Err(refused(&why, pid)),
                }
            }
        }
        self.decoder.follow(tid);
        self.threads.push(thread);
        Ok(())
    }

    /// From now on all of it records.
    pub(crate) fn enable(&self) -> Result<()> {
        for event in &self.events {
            event.enable().map_err(|why| Error::run(format!("cannot enable an event: {why}")))?;
        }
        Ok(())
    }

    /// How many records the kernel had no room for; none where it does not tell.
    pub(crate) fn lost(&self) -> Option<u64> {
        self.events.iter().map(Event::lost).sum()
    }
}

/// `ESRCH` (errno(3)), the same on all machines.
const NO_SUCH_PROCESS: i32 = 3;

fn refused(why: &std::io::Error, pid: u32) -> Error {
    if why.kind() == ErrorKind::PermissionDenied {
        let level = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
        return Error::run(format!(
            "the kernel refuses to trace process {pid} ({why}; perf_event_paranoid is {}): run it as root, or \
             with CAP_PERFMON, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH",
            level.trim()
        ));
    }
    Error::run(format!("cannot trace process {pid}: perf_event_open: {why}"))
}

/// A ring for each core, to trace the process `pid`. Where the kernel refuses the memory, smaller ones.
fn rings(cores: &[u32], wanted_bytes: usize, pid: u32) -> Result<(Vec<(u32, Ring)>, usize)> {
    let mut bytes = ring_bytes(wanted_bytes, cores.len());
    loop {
        let made = cores.iter().map(|core| Ok((*core, Ring::new(*core, bytes)?)));
        match made.collect::<std::io::Result<Vec<_>>>() {
            Ok(rings) => return Ok((rings, bytes)),
            Err(why) if why.kind() == ErrorKind::PermissionDenied && bytes > RING_BYTES_MIN => bytes /= 2,
            Err(why) => return Err(refused(&why, pid)),
        }
    }
}

/// The size of a ring that is tried first, when one of `wanted_bytes` is asked for.
pub(crate) fn ring_bytes(wanted_bytes: usize, cores: usize) -> usize {
    let mut bytes = wanted_bytes.next_power_of_two().max(4096);
    while bytes > RING_BYTES_MIN && bytes.saturating_mul(cores) > RINGS_BYTES_MAX {
        bytes /= 2;
    }
    bytes
}

/// The cores that are online, from a list such as `0-3,5`.
fn cores() -> Vec<u32> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let ranges = text.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<u32>().ok()?..=last.parse().ok()?)
    });
    let cores: Vec<u32> = ranges.flatten().collect();
    if cores.is_empty() { vec![0] } else { cores }
}

/// The threads of a process and of all that descends from it.
fn threads(pid: u32) -> Vec<Followed> {
    let processes = tree(&Stat::all(), pid);
    let of_process = |pid: u32| {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        tasks.filter_map(move |task| {
            let tid = task.file_name().to_str()?.parse().ok()?;
            let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            Some(Followed { pid, tid, name: name.trim_end().to_owned() })
        })
    };
    let others = processes.iter().map(|stat| stat.process.pid).filter(|pid| *pid != std::process::id());
    others.flat_map(of_process).collect()
}

/// Whether the program of a process is one of 32 bits (elf(5), `EI_CLASS`).
fn is_of_32_bits(pid: u32) -> bool {
    let mut head = [0; 5];
    let exe = fs::File::open(Path::new("/proc").join(pid.to_string()).join("exe"));
    let read = exe.and_then(|mut file| std::io::Read::read_exact(&mut file, &mut head));
    const CLASS_32: u8 = 1;
    read.is_ok() && head.starts_with(b"\x7fELF") && head[4] == CLASS_32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rings_of_all_cores_share_what_there_is() {
        assert_eq!(ring_bytes(8 << 20, 2), 8 << 20);
        assert_eq!(ring_bytes((8 << 20) + 1, 1), 16 << 20, "a power of two");
        assert_eq!(ring_bytes(8 << 20, 128), 2 << 20);
        assert_eq!(ring_bytes(256 << 20, 3), 64 << 20);
        assert_eq!(ring_bytes(1, 1 << 20), 4096, "as asked for");
        assert_eq!(ring_bytes(8 << 20, 1 << 20), RING_BYTES_MIN);
    }
}
