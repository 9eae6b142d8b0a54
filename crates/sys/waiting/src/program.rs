//! Starts other programs on a chosen core and in chosen groups, signals them, and reads their CPU time. For
//! the lab, and for the programs of routes.
//!
//! The server has its own way to start its roles (`process.rs`). Nothing here waits for the started programs.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Access, access};
use rustix::process::{
    Pid, Resource, Rlimit, getppid, getrlimit, kill_process, kill_process_group,
    set_parent_process_death_signal, setrlimit, setsid,
};
use rustix::thread::{CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_setaffinity};

use super::sandbox::limits;
use super::sandbox::paths::OwnSignals;
use super::signal::{act_as_usual, unblock_all};

pub use flash_prompt::clock::thread_cpu_ns;
pub use rustix::process::Signal;

/// The bytes of a script in which the kernel looks for its interpreter (execve(2)).
const LINE_BYTES: u64 = 256;

/// The environment of a program from its first instruction on. Its children inherit everything except the
/// signal.
#[derive(Debug)]
pub struct Placement {
    /// The only core that it can use.
    pub core: Option<usize>,
    /// The `cgroup.procs` files of the groups that it joins, open for writing.
    pub groups: Vec<OwnedFd>,
    /// How many descriptors it can have, as far as the system's limits allow; never fewer than this process.
    pub descriptors: u64,
    /// The network namespace that it begins in ([`Namespace::entrance`](crate::network::Namespace::entrance)); without
    /// one, that of the calling thread.
    pub network: Option<OwnedFd>,
    /// The signal that it gets when the *thread* that started it ends (prctl(2), `PR_SET_PDEATHSIG`). The
    /// program's children do not get it, so a signal that it passes on to them works best.
    pub parent_death: Signal,
}

/// Starts a program in its own session and process group, as its `placement` says.
///
/// Errors: any of `Command::spawn`; `EINVAL` for a core that does not exist, those of cgroups(7) for a
/// group that cannot be joined; `EPERM` for a network namespace without `CAP_SYS_ADMIN`.
pub fn start(command: &mut Command, placement: Placement) -> io::Result<Child> {
    let cores = placement.core.map(|core| only(&[core])).transpose()?;
    let parent = rustix::process::getpid();
    let prepare = move || {
        setsid()?;
        set_parent_process_death_signal(Some(placement.parent_death))?;
        // If the parent died before that call, no signal comes.
        if getppid() != Some(parent) {
            return Err(io::Error::from(rustix::io::Errno::SRCH));
        }
        if let Some(cores) = &cores {
            sched_setaffinity(None, cores)?;
        }
        if let Some(network) = &placement.network {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
        }
        for group in &placement.groups {
            // 0 stands for the process that writes it.
            rustix::io::write(group, b"0")?;
        }
        allow_descriptors(placement.descriptors);
        // The process that starts it may block signals that it watches.
        unblock_all()
    };
    // SAFETY: between fork and exec the closure makes only system calls, on memory allocated before; it takes
    // no lock and allocates nothing (an error is a number).
    unsafe { command.pre_exec(prepare) };
    command.spawn()
}

/// Makes a command begin with limits of its own: at most `memory_bytes` of private memory, no core dumps, and the number of
/// descriptors of most systems. Signals act as usual. The calling process keeps its own limits, except when it executes the
/// command in its place.
pub fn limit(command: &mut Command, memory_bytes: u64) {
    let prepare = move || {
        limits::memory(memory_bytes)?;
        limits::few_descriptors()?;
        act_as_usual()
    };
    // SAFETY: as in `start`: only system calls.
    unsafe { command.pre_exec(prepare) };
}

/// Makes a command begin without the right to signal or trace other processes than its children and theirs, if the kernel can
/// forbid that (Linux 6.12). The calling process must have `no_new_privs`.
///
/// Errors: too few descriptors.
pub fn keep_signals_to_itself(command: &mut Command) -> io::Result<()> {
    if let Some(rules) = OwnSignals::new()? {
        // SAFETY: as in `start`: only a system call.
        unsafe { command.pre_exec(move || rules.enforce()) };
    }
    Ok(())
}

/// Finds the file of a program as execvp(3) does: a name without a slash in `directories`.
///
/// Errors: `NotFound`; `PermissionDenied` if the calling thread cannot execute it; `Other` with a text if it is not a file, or a
/// script whose interpreter has one of these.
pub fn find_executable(name: &Path, directories: &str) -> io::Result<PathBuf> {
    if name.as_os_str().as_encoded_bytes().contains(&b'/') {
        return can_execute(name).map(|()| name.to_owned());
    }
    let mut found = Err(io::ErrorKind::NotFound.into());
    for path in directories.split(':').map(|folder| Path::new(folder).join(name)) {
        match can_execute(&path) {
            Ok(()) => return Ok(path),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => found = Err(e),
        }
    }
    found
}

/// Whether the calling thread can execute a file and, if it is a script, its interpreter.
fn can_execute(file: &Path) -> io::Result<()> {
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a file"));
    }
    access(file, Access::EXEC_OK)?;
    let Some(interpreter) = interpreter_of(file) else { return Ok(()) };
    access(&interpreter, Access::EXEC_OK).map_err(|e| {
        io::Error::other(format!("its interpreter `{}`: {}", interpreter.display(), io::Error::from(e)))
    })
}

/// The program that the first line of a script names (execve(2)). None for other files, and for those that cannot be read.
fn interpreter_of(file: &Path) -> Option<PathBuf> {
    let mut line = Vec::new();
    File::open(file).ok()?.take(LINE_BYTES).read_to_end(&mut line).ok()?;
    let line = line.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?.trim_ascii_start();
    let name = line.split(u8::is_ascii_whitespace).next().filter(|name| !name.is_empty())?;
    Some(OsStr::from_bytes(name).into())
}

/// Only root can exceed the hard limit; otherwise the hard limit must be enough.
fn allow_descriptors(wanted: u64) {
    let limit = getrlimit(Resource::Nofile);
    // None means no limit.
    let is_enough = |have: Option<u64>| have.is_none_or(|have| have >= wanted);
    if is_enough(limit.current) {
        return;
    }
    let hard = if is_enough(limit.maximum) { limit.maximum } else { Some(wanted) };
    if setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: hard }).is_err() {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}

fn only(cores: &[usize]) -> io::Result<CpuSet> {
    let mut set = CpuSet::new();
    for &core in cores {
        if core >= CpuSet::MAX_CPU {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        set.set(core);
    }
    Ok(set)
}

/// Restricts the calling thread, and the threads that it starts later, to these cores.
///
/// Errors: `EINVAL` for cores that do not exist or are not allowed.
pub fn pin_thread(cores: &[usize]) -> io::Result<()> {
    Ok(sched_setaffinity(None, &only(cores)?)?)
}

/// The signal with a name such as "TERM" or "SIGTERM"; only signals that end programs.
pub fn signal_named(name: &str) -> Option<Signal> {
    match name.strip_prefix("SIG").unwrap_or(name) {
        "TERM" => Some(Signal::TERM),
        "INT" => Some(Signal::INT),
        "QUIT" => Some(Signal::QUIT),
        "HUP" => Some(Signal::HUP),
        "USR1" => Some(Signal::USR1),
        "USR2" => Some(Signal::USR2),
        "WINCH" => Some(Signal::WINCH),
        "KILL" => Some(Signal::KILL),
        _ => None,
    }
}

/// Signals one process. Errors: `ESRCH` if there is none, `EPERM`.
pub fn signal(pid: u32, signal: Signal) -> io::Result<()> {
    Ok(kill_process(id(pid)?, signal)?)
}

/// Signals every process of a group. Errors: as for [`signal`].
pub fn signal_group(group: u32, signal: Signal) -> io::Result<()> {
    Ok(kill_process_group(id(group)?, signal)?)
}

/// Checks that a process id is safe to signal: not 0, not 1, and not a value that kill(2) reads as many
/// processes.
fn id(pid: u32) -> io::Result<Pid> {
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 1).and_then(Pid::from_raw);
    pid.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// The CPU time of a process so far in nanoseconds, user and system, of all its threads including ended ones,
/// but not of its children (clock_getcpuclockid(3)).
///
/// Errors: `ESRCH` if there is no such process.
pub fn process_cpu_ns(pid: u32) -> io::Result<u64> {
    let pid = id(pid)?.as_raw_nonzero().get();
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: both calls write to variables of the right type that outlive them.
    let code = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
    if code != 0 {
        return Err(io::Error::from_raw_os_error(code));
    }
    // SAFETY: as above.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        // The process ended between the calls.
        return Err(rustix::io::Errno::SRCH.into());
    }
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// The clock ticks per second that /proc/PID/stat counts in (sysconf(3), `_SC_CLK_TCK`).
pub fn clock_ticks_per_s() -> u64 {
    rustix::param::clock_ticks_per_second()
}

/// Major and minor number of a device (makedev(3)).
pub fn device_numbers(device: u64) -> (u32, u32) {
    (rustix::fs::major(device), rustix::fs::minor(device))
}

/// Writes all dirty pages to the disks (sync(2)). Can take long.
pub fn write_back() {
    rustix::fs::sync();
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    fn place(core: Option<usize>) -> Placement {
        Placement { core, groups: Vec::new(), descriptors: 64, network: None, parent_death: Signal::KILL }
    }

    #[test]
    fn a_program_begins_at_its_place() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "cat /proc/self/stat; grep Cpus_allowed_list /proc/self/status"]);
        let core = std::fs::read_to_string("/proc/self/status").expect("status");
        let core = core.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("cores");
        let core: usize = core.trim().split([',', '-']).next().expect("a core").parse().expect("a number");
        let child = start(command.stdout(Stdio::piped()), place(Some(core))).expect("started");
        let pid = child.id();
        let output = child.wait_with_output().expect("ended");
        let text = String::from_utf8(output.stdout).expect("text");
        let fields: Vec<&str> = text.rsplit_once(')').expect("stat").1.split_ascii_whitespace().collect();
        // Process group and session (proc(5)): its own, although the parent of cat is the shell.
        assert_eq!((fields[2], fields[3]), (pid.to_string().as_str(), pid.to_string().as_str()), "{text}");
        assert!(text.ends_with(&format!("Cpus_allowed_list:\t{core}\n")), "{text}");
    }

    #[test]
    fn limits_hold_the_program_only() {
        let text = |command: &mut Command| {
            let output = command.args(["-c", "ulimit -d; ulimit -c"]).output().expect("ended");
            String::from_utf8(output.stdout).expect("text")
        };
        let own = text(&mut Command::new("/bin/sh"));
        let mut command = Command::new("/bin/sh");
        limit(&mut command, 64 << 20);
        assert_eq!(text(&mut command), "65536\n0\n");
        assert_eq!(text(&mut Command::new("/bin/sh")), own, "this process has the same limits as before");
    }

    #[test]
    fn a_program_that_cannot_be_executed_is_found_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, text: &str, mode: u32| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("a file");
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode))
                .expect("permissions");
            path
        };
        for (name, text, mode) in
            [("sh", "#! /bin/sh -e\n", 0o755), ("bare", "", 0o755), ("binary", "\x7fELF", 0o755)]
        {
            let path = file(name, text, mode);
            assert_eq!(find_executable(&path, "").expect("it can"), path);
        }
        let directories = format!("/none:{}", folder.path().display());
        assert_eq!(find_executable(Path::new("sh"), &directories).expect("found"), folder.path().join("sh"));
        let why = |path: &Path| find_executable(path, &directories).expect_err("it cannot");
        assert_eq!(why(Path::new("absent")).kind(), io::ErrorKind::NotFound);
        assert_eq!(why(&file("plain", "", 0o644)).kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(why(Path::new("plain")).kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(why(folder.path()).to_string(), "not a file");
        let broken = why(&file("broken", "#!/none/perl -w\n", 0o755)).to_string();
        assert!(broken.contains("its interpreter `/none/perl`: No such file"), "{broken}");
    }

    #[test]
    fn a_missing_core_is_refused() {
        for core in [CpuSet::MAX_CPU - 1, CpuSet::MAX_CPU, usize::MAX] {
            start(&mut Command::new("/bin/true"), place(Some(core))).expect_err("no such core");
        }
    }

    #[test]
    fn a_program_ends_with_the_thread_that_started_it() {
        let started = std::thread::spawn(|| start(Command::new("sleep").arg("600"), place(None)));
        let mut child = started.join().expect("the thread").expect("started");
        let status = child.wait().expect("ended");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(Signal::KILL.as_raw()));
    }

    #[test]
    fn cpu_time_counts_work() {
        let me = std::process::id();
        let before = process_cpu_ns(me).expect("a time");
        let mut sum = 0_u64;
        while process_cpu_ns(me).expect("a time") < before + 20_000_000 {
            sum = std::hint::black_box(sum.wrapping_mul(3) + 1);
        }
        // The kernel never uses an id this large (proc(5), pid_max).
        assert!(process_cpu_ns(1 << 22).is_err());
    }

    #[test]
    fn dangerous_process_ids_are_refused() {
        for pid in [0, 1, u32::MAX] {
            signal(pid, Signal::KILL).expect_err("an id that stands for many processes");
            signal_group(pid, Signal::KILL).expect_err("an id that stands for many groups");
        }
    }
}
