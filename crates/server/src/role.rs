//! The start of a role. The supervisor has made a control channel its standard input; the first message there is the
//! settings.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::process::ExitCode;

use flash_prompt::OwnedFd;
use flash_waiting::{process, signal};

use crate::config::{Service, Settings};
use crate::sandbox::{self, Role};
use crate::{architecture, backend, gateway, helper, keeper, log_writer, program, watcher};
use flash_worker::control::{Order, receive_order};

/// The exit code of a helper that needed a root that it does not have, or that is gone.
pub(crate) const STALE_ROOT: u8 = 75;

/// How much more likely than the supervisor a program of a route is killed when memory runs out.
const OOM_SCORE_SHIFT_OF_PROGRAMS: i32 = 500;

pub(crate) fn run(name: &str) -> ExitCode {
    let result = match Role::named(name) {
        Some(role) => run_role(role),
        None if name == program::ROLE => run_program(),
        None => {
            eprintln!("flash role: unknown role {name:?}; only flash itself runs this command");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The supervisor has ended, or no longer wants this process.
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => ExitCode::SUCCESS,
        Err(e) if e.kind() == io::ErrorKind::StaleNetworkFileHandle => ExitCode::from(STALE_ROOT),
        Err(e) => {
            process::print_if_possible(&format!("flash: {name} process {}: {e}\n", std::process::id()));
            ExitCode::FAILURE
        }
    }
}

/// Runs a program of a route, which is not ours to make ignore signals.
fn run_program() -> io::Result<()> {
    let (channel, settings) = begin()?;
    // When memory runs out, a program is killed before Flash's own processes.
    let _ = process::shift_oom_score(OOM_SCORE_SHIFT_OF_PROGRAMS);
    program::run(&channel, &settings)
}

fn run_role(role: Role) -> io::Result<()> {
    signal::leave_to_supervisor();
    let (channel, settings) = begin()?;
    // It only affects the kernel's choice of a victim: without /proc nothing changes.
    let _ = process::shift_oom_score(role.oom_score_shift());
    // With the rights of the supervisor: folders of logs belong to root.
    let log = if role == Role::Log { Some(log_writer::open(&settings)?) } else { None };
    let descriptors_max = sandbox::enter(role, &settings)?;
    match role {
        Role::Worker => match &settings.service {
            Service::Files => architecture::run(channel, &settings, descriptors_max),
            Service::Backend(own) => backend::run(channel, &settings, own),
        },
        Role::Helper => helper::run(&channel, &settings),
        Role::Keeper => keeper::run(channel, &settings),
        Role::Gateway => gateway::run(channel, &settings),
        Role::Watcher => watcher::run(channel, &settings),
        Role::Log => log.map_or(Ok(()), |out| log_writer::run(channel, &settings, out)),
    }
}

fn begin() -> io::Result<(OwnedFd, Settings)> {
    process::die_with_parent()?;
    let channel = io::stdin().as_fd().try_clone_to_owned()?;
    match receive_order(&channel)? {
        Order::Settings(file) => Ok((channel, read_settings(&File::from(file))?)),
        other => Err(io::Error::new(io::ErrorKind::InvalidData, format!("expected settings, not {other:?}"))),
    }
}

fn read_settings(file: &File) -> io::Result<Settings> {
    let mut text = vec![0; usize::try_from(file.metadata()?.len()).unwrap_or(0)];
    // By offset: all processes with this file share its position.
    file.read_exact_at(&mut text, 0)?;
    let invalid = |e: &dyn std::fmt::Display| io::Error::new(io::ErrorKind::InvalidData, e.to_string());
    let text = String::from_utf8(text).map_err(|e| invalid(&e))?;
    Settings::from_toml(&text).map_err(|e| invalid(&e))
}
