//! `flash testbed`: any command in the testbed that `compare` gives to servers.
//!
//! For measurements whose load or witness is another program. A bound that this machine cannot keep is an error before
//! the command starts.

use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::thread;

use flash_waiting::program::{self, Signal};

use super::groups::Groups;
use super::prepare::LOOK;
use super::running::DESCRIPTORS;
use super::{Testbed, prepare};
use flash_kit::processes::exit_code;
use flash_kit::{Error, Result, Stop, interrupt};

/// Runs a command, a program and its arguments, to its end in a testbed whose reads are those of the disk that holds its root, and ends the processes that it left in the testbed. Returns its exit code: 128 and the
/// signal's number where a signal ended it.
///
/// Errors: usage, for no command or no bound; run, for a bound that this machine cannot keep, a program that cannot be
/// started, and a testbed that cannot be removed.
pub fn run(name: &str, testbed: &Testbed, command: &[String]) -> Result<u8> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(Error::usage("no command: give one after --"));
    };
    let Testbed { core, memory_bytes, reads_per_s, cpu_percent, .. } = testbed;
    if core.is_none() && memory_bytes.is_none() && reads_per_s.is_none() && cpu_percent.is_none() {
        return Err(Error::usage("no bound: give --memory, --reads, --cpu or --core"));
    }
    let stop = interrupt::watch()?;
    let root = testbed.checked_root()?;
    let mut groups = Groups::make(testbed, Path::new(&root))?;
    let apart = program::Placement {
        core: testbed.core,
        groups: groups.entrances()?.into_iter().map(Into::into).collect(),
        descriptors: DESCRIPTORS,
        network: None,
        parent_death: Signal::TERM,
    };
    let mut command = Command::new(program);
    command.args(arguments);
    groups.throttle(true)?;
    let (mut child, _keeper) = prepare::start_kept(command, apart).map_err(|why| {
        let core = testbed.core.map(|core| format!(" on core {core}")).unwrap_or_default();
        Error::run(format!("{name}: cannot start {program}{core}: {why}"))
    })?;
    let ended = wait_for(&mut child, &stop, Signal::TERM)
        .map_err(|why| Error::run(format!("{name}: cannot wait for {program}: {why}")))?;
    // Processes in the middle of held-back reads would end slowly.
    groups.throttle(false)?;
    let killed = groups.killed_for_memory();
    if killed > 0 {
        eprintln!("warning: {name}: the kernel killed {killed} of its processes: too little memory");
    }
    end_the_rest(name, &groups);
    groups.remove()?;
    Ok(exit_code(ended))
}

/// Waits for the end of a child. It gets this signal once if this process is to stop.
pub(crate) fn wait_for(child: &mut Child, stop: &Stop, signal: Signal) -> std::io::Result<ExitStatus> {
    let mut has_signalled = false;
    loop {
        if let Some(ended) = child.try_wait()? {
            return Ok(ended);
        }
        if stop.is_set() && !has_signalled {
            has_signalled = true;
            let _ = program::signal(child.id(), signal);
        }
        thread::sleep(LOOK);
    }
}

/// Kills the processes that the command left behind: the testbed cannot be removed under them.
fn end_the_rest(name: &str, groups: &Groups) {
    let left = groups.pids();
    if !left.is_empty() {
        eprintln!("warning: {name}: the command has ended and left {} processes: killing them", left.len());
    }
    for pid in left {
        let _ = program::signal(pid, Signal::KILL);
    }
}
