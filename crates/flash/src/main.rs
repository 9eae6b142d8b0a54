//! The `flash` program: command line in, exit code out.
//!
//! It parses the whole command line before it calls another crate, so a usage error never touches the system. It must not
//! hold a rule of the server or of the lab.

mod commands;
mod lab;
mod options;
mod output;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    flash_lab::results::set_program(env!("PROGRAM_VERSION"));
    commands::Cli::parse().run()
}
