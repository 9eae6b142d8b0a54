//! Other programs: started in their place, signalled, and their CPU time read. The lab's work.
//!
//! The server has its own way to start its roles (`process.rs`). Nothing here waits for what it
//! started.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::fd::OwnedFd;
use rustix::process::{
    Pid, Resource, Rlimit, getppid, getrlimit, kill_process, kill_process_group,
    set_parent_process_death_signal, setrlimit, setsid,
};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::signal::unblock_all;

pub use rustix::process::Signal;

/// Where a program is from its first instruction on; what it starts inherits all but the signal.
#[derive(Debug)]
pub struct Place {
    /// The only core that it may use.
    pub core: Option<usize>,
    /// The `cgroup.procs` files of the groups that it joins, open for writing.
    pub groups: Vec<OwnedFd>,
    /// How many descriptors it may have, as far as the system's limits allow; never fewer than this
    /// process.
    pub descriptors: u64,
    /// What it gets when the *thread* that started it ends (prctl(2), `PR_SET_PDEATHSIG`). Children
    /// of the program do not get it, so a signal that it passes on to them serves best.
    pub parent_death: Signal,
}

/// Starts a program in a session and process group of its own, at `place`.
///
/// Errors: those of `Command::spawn`; `EINVAL` for a core that is not there, those of cgroups(7) for a
/// group that can't be joined.
pub fn start(command: &mut Command, place: Place) -> io::Result<Child> {
    let cores = place.core.map(|core| only(&[core])).transpose()?;
    let parent = rustix::process::getpid();
    let prepare = move || {
        setsid()?;
        set_parent_process_death_signal(Some(place.parent_death))?;
        // A parent that died before that call sends nothing any more.
        if getppid() != Some(parent) {
            return Err(io::Error::from(rustix::io::Errno::SRCH));
        }
        if let Some(cores) = &cores {
            sched_setaffinity(None, cores)?;
        }
        for group in &place.groups {
            // 0 is who writes it.
            rustix::io::write(group, b"0")?;
        }
        allow_descriptors(place.descriptors);
        // Who starts it may watch signals itself.
        unblock_all()
    };
    // SAFETY: between fork and exec the closure makes nothing but system calls, on memory made
    // before; it takes no lock and allocates nothing (an error is a number).
    unsafe { command.pre_exec(prepare) };
    command.spawn()
}

/// Beyond the hard limit only root may go; without that the hard limit has to do.
fn allow_descriptors(wanted: u64) {
    let limit = getrlimit(Resource::Nofile);
    // None is no limit.
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

/// Keeps the calling thread, and the threads that it starts from now on, to these cores.
///
/// Errors: `EINVAL` for cores that are not there or not allowed.
pub fn pin_thread(cores: &[usize]) -> io::Result<()> {
    Ok(sched_setaffinity(None, &only(cores)?)?)
}

/// The signal of a name such as "TERM" or "SIGTERM"; only those that end programs.
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

/// Signals one process. Errors: `ESRCH` when there is none, `EPERM`.
pub fn signal(pid: u32, signal: Signal) -> io::Result<()> {
    Ok(kill_process(id(pid)?, signal)?)
}

/// Signals every process of a group. Errors: as [`signal`].
pub fn signal_group(group: u32, signal: Signal) -> io::Result<()> {
    Ok(kill_process_group(id(group)?, signal)?)
}

/// A process that may be signalled: 0, 1 and what kill(2) takes for many processes may not.
fn id(pid: u32) -> io::Result<Pid> {
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 1).and_then(Pid::from_raw);
    pid.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// CPU time of a process so far in nanoseconds, user and system, of all its threads, those that
/// ended included; not of its children (clock_getcpuclockid(3)).
///
/// Errors: `ESRCH` when there is no such process.
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
        // Gone between the calls.
        return Err(rustix::io::Errno::SRCH.into());
    }
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// The clock ticks in a second, in which /proc/PID/stat counts (sysconf(3), `_SC_CLK_TCK`).
pub fn clock_ticks_per_s() -> u64 {
    rustix::param::clock_ticks_per_second()
}

/// Major and minor number of a device (makedev(3)).
pub fn device_numbers(device: u64) -> (u32, u32) {
    (rustix::fs::major(device), rustix::fs::minor(device))
}

/// Writes all that is dirty to the disks (sync(2)). May take long.
pub fn write_back() {
    rustix::fs::sync();
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    fn place(core: Option<usize>) -> Place {
        Place { core, groups: Vec::new(), descriptors: 64, parent_death: Signal::KILL }
    }

    #[test]
    fn a_program_begins_in_its_place() {
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
        // Process group and session (proc(5)): its own, though cat's parent is the shell.
        assert_eq!((fields[2], fields[3]), (pid.to_string().as_str(), pid.to_string().as_str()), "{text}");
        assert!(text.ends_with(&format!("Cpus_allowed_list:\t{core}\n")), "{text}");
    }

    #[test]
    fn a_core_that_is_not_there_is_refused() {
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
    fn cpu_time_counts_what_was_worked() {
        let me = std::process::id();
        let before = process_cpu_ns(me).expect("a time");
        let mut sum = 0_u64;
        while process_cpu_ns(me).expect("a time") < before + 20_000_000 {
            sum = std::hint::black_box(sum.wrapping_mul(3) + 1);
        }
        // The kernel gives out smaller ids only (proc(5), pid_max).
        assert!(process_cpu_ns(1 << 22).is_err());
    }

    #[test]
    fn nobody_signals_everybody() {
        for pid in [0, 1, u32::MAX] {
            signal(pid, Signal::KILL).expect_err("not one process of ours");
            signal_group(pid, Signal::KILL).expect_err("not one group of ours");
        }
    }
}
