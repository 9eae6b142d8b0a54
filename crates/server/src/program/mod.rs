//! The process of a program that answers requests of a route in FastCGI, which the supervisor starts: with its own user,
//! without capabilities, in a session of its own. Its standard input becomes a listening socket (FastCGI
//! specification 1.0, section 2.2).
//!
//! An `app` is executed in place of Flash. For `cgi` this process stays, and starts one program per request. The limits of a
//! route hold the programs only.

mod cgi;
mod exchange;
mod records;
mod running;
mod script;

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use flash_prompt::{AsFd, OwnedFd};
use flash_waiting::sandbox::limits;
use flash_waiting::sandbox::privileges::{self, Keep};
use flash_waiting::{process, program};
use flash_worker::control::{Order, receive_order};

use crate::config::architecture;
use crate::config::{DIRECTORIES, RunAs, Runs, Settings};
use cgi::Programs;

/// The name of this role on the command line.
pub(crate) const ROLE: &str = "program";

/// The whole environment of an `app`, and of a program of `cgi` besides the variables of its request.
const ENVIRONMENT: [(&str, &str); 3] = [
    ("PATH", DIRECTORIES),
    ("LANG", "C.UTF-8"),
    // Otherwise php-cgi ends after 500 requests.
    ("PHP_FCGI_MAX_REQUESTS", "0"),
];

/// Becomes the program that the next order names.
///
/// Errors: it cannot be started; the supervisor is gone.
pub(crate) fn run(channel: &OwnedFd, settings: &Settings) -> io::Result<()> {
    let Order::Program(upstream, listener) = receive_order(channel)? else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "expected the socket of a program"));
    };
    let route = settings.routes().nth(upstream.0.into());
    let (Some(route), Some(program)) = (route, route.and_then(|route| route.program.as_ref())) else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the settings have no such program"));
    };
    process::begin_session()?;
    limits::no_core_dumps()?;
    let account = program.run_as.as_ref().map(RunAs::account);
    privileges::become_role(account.as_ref(), Keep::Nothing)?;
    let memory_bytes_max = program.memory_bytes_max;
    // The kernel forgets at a change of user that this process ends with its parent.
    match &program.runs {
        Runs::App(words) => {
            process::die_with_parent()?;
            execute(words, listener, memory_bytes_max)
        }
        Runs::Cgi(folder) => {
            // It must first end the programs.
            process::end_with_parent()?;
            let programs_max = route.connections_max.saturating_mul(architecture::processes(settings) as u64);
            let programs = Programs {
                folder: folder.clone(),
                paths: route.paths.clone(),
                authorization: program.authorization,
                silence: Duration::from_millis(route.answer_timeout_ms),
                memory_bytes_max,
            };
            cgi::run(listener, programs, programs_max)
        }
    }
}

/// Executes a command with a listening socket as its standard input. It returns only if that fails.
fn execute(words: &[String], listener: OwnedFd, memory_bytes_max: u64) -> io::Result<()> {
    let mut command = command(&words[0], memory_bytes_max)?;
    let why = command.args(&words[1..]).current_dir("/").stdin(listener).exec();
    Err(io::Error::new(why.kind(), format!("cannot execute `{}`: {why}", words[0])))
}

/// A command that has the limits of a route, and writes to the standard error of Flash.
fn command(program: impl AsRef<std::ffi::OsStr>, memory_bytes_max: u64) -> io::Result<Command> {
    let mut command = Command::new(program);
    let errors = io::stderr().as_fd().try_clone_to_owned()?;
    command.env_clear().envs(ENVIRONMENT).stdout(Stdio::from(errors));
    program::limit(&mut command, memory_bytes_max);
    // Without a user of its own it could otherwise end the workers.
    program::keep_signals_to_itself(&mut command)?;
    Ok(command)
}
