//! A process and its descendants, as /proc shows them.
//!
//! The testbed and `flash trace` find the processes of a server with it. It sends no signals.

use std::collections::HashMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

/// A process. The kernel may reuse its id; the id and the start time together are unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    pub pid: u32,
    /// Clock ticks after boot.
    pub started_ticks: u64,
}

/// The exit code of a shell for a command that ended so: 128 and the signal's number where a signal ended it.
pub fn exit_code(ended: ExitStatus) -> u8 {
    let code = ended.code().or_else(|| ended.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// The fields of /proc/PID/stat that the lab needs (proc(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    pub process: Process,
    pub parent: u32,
    pub session: u32,
    /// It has ended and its parent has not waited for it yet.
    pub is_zombie: bool,
    /// It runs, or waits only for a core.
    pub is_runnable: bool,
    /// CPU time, in clock ticks, of its descendants that have ended and been waited for.
    pub ended_children_ticks: u64,
}

impl Stat {
    /// Reads that of one process; none if there is no such process.
    pub fn read(pid: u32) -> Option<Self> {
        Self::of_file(pid, Path::new(&format!("/proc/{pid}/stat")))
    }

    pub fn of_file(pid: u32, path: &Path) -> Option<Self> {
        Self::parse(pid, &String::from_utf8_lossy(&fs::read(path).ok()?))
    }

    fn parse(pid: u32, text: &str) -> Option<Self> {
        // The name in brackets can contain brackets as well. Field 3 follows it.
        let rest = text.rsplit_once(')')?.1;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            process: Process { pid, started_ticks: number(22)? },
            parent: number(4)? as u32,
            session: number(6)? as u32,
            // A process whose first thread has ended runs until its other threads have ended.
            is_runnable: *fields.first()? == "R",
            is_zombie: matches!(*fields.first()?, "Z" | "X") && number(20)? <= 1,
            ended_children_ticks: number(16)? + number(17)?,
        })
    }

    /// Every process of the machine that /proc shows.
    pub fn all() -> Vec<Self> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(Self::read).collect()
    }
}

/// The process `root` and its descendants among `all`, including those whose parent is a zombie.
pub fn tree(all: &[Stat], root: u32) -> Vec<Stat> {
    let mut children: HashMap<u32, Vec<&Stat>> = HashMap::new();
    for stat in all {
        children.entry(stat.parent).or_default().push(stat);
    }
    let mut found: Vec<Stat> = all.iter().filter(|stat| stat.process.pid == root).copied().collect();
    let mut next = 0;
    while let Some(stat) = found.get(next) {
        // Each process has one parent, so none is found twice.
        found.extend(children.remove(&stat.process.pid).into_iter().flatten());
        next += 1;
    }
    found
}

pub fn is_alive(process: Process) -> bool {
    Stat::read(process.pid).is_some_and(|stat| stat.process == process && !stat.is_zombie)
}

/// Resident memory of a process without file pages: `RssAnon` and `RssShmem` of /proc/PID/status; 0
/// if it has ended.
pub fn own_memory_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = |name| kib_of(&text, name).unwrap_or(0);
    (kib("RssAnon") + kib("RssShmem")) * 1024
}

/// Bytes that a process has had read from disks: `read_bytes` of /proc/PID/io (proc(5)); 0 if it has ended or is another user's.
pub fn read_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let mut values = text.lines().filter_map(|line| line.strip_prefix("read_bytes: "));
    values.next().and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

/// The value of a line `NAME:   1234 kB`, as /proc/meminfo and /proc/PID/status have them.
pub fn kib_of(text: &str, name: &str) -> Option<u64> {
    let mut values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    values.next()?.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(pid: u32, parent: u32) -> Stat {
        let process = Process { pid, started_ticks: 1 };
        Stat { process, parent, session: 1, is_zombie: false, is_runnable: false, ended_children_ticks: 0 }
    }

    #[test]
    fn reads_a_value_in_kib() {
        assert_eq!(kib_of("RssAnonymous: 3 kB\nRssAnon:\t     176 kB\n", "RssAnon"), Some(176));
        assert_eq!(kib_of("RssAnon:\t176\n", "RssAnon"), None);
    }

    #[test]
    fn reads_a_line_of_proc() {
        let line = "77 (a) S (b) Z 1 2 3 0 -1 4194560 9 8 7 6 500 40 30 4 20 0 1 0 12345 6 7 8\n";
        let read = Stat::parse(77, line).unwrap();
        assert_eq!(read.process, Process { pid: 77, started_ticks: 12_345 });
        assert_eq!((read.parent, read.session, read.is_zombie), (1, 3, true));
        assert_eq!(read.ended_children_ticks, 34);
        let threads = line.replace(" 20 0 1 0 ", " 20 0 2 0 ");
        assert!(!Stat::parse(77, &threads).unwrap().is_zombie, "another thread runs");
        for nonsense in ["", "77 (a", "77 (a) S 1", "77 (a) S x x x 0 -1 0 0 0 0 0 0 0 0 0 0 0 0 0 0"] {
            assert_eq!(Stat::parse(77, nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_tree_has_all_descendants_and_nothing_else() {
        let all = [stat(1, 0), stat(30, 20), stat(10, 1), stat(20, 10), stat(11, 1), stat(21, 10)];
        let pids = |root| tree(&all, root).iter().map(|stat| stat.process.pid).collect::<Vec<_>>();
        assert_eq!(pids(10), [10, 20, 21, 30]);
        assert_eq!(pids(30), [30]);
        assert!(pids(99).is_empty());
    }

    #[test]
    fn this_process_is_alive_and_no_other_with_its_id() {
        let me = Stat::read(std::process::id()).unwrap();
        assert!(is_alive(me.process));
        assert!(!is_alive(Process { started_ticks: me.process.started_ticks + 1, ..me.process }));
        assert!(Stat::all().iter().any(|stat| stat.process == me.process));
        assert!(own_memory_bytes(me.process.pid) > 4096);
    }
}
