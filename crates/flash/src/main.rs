//! The `flash` program: command line in, exit code out.
//!
//! For: parses the command line whole, then hands over to the crate that does the work; a usage
//! error never touches the system. May not hold a rule of the server or of the lab.

mod commands;
mod lab;
mod options;
mod output;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    commands::Cli::parse().run()
}
