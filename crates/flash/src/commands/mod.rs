//! The subcommands, a module each.
//!
//! To add one: a module with a struct that derives [`clap::Args`] and has `fn run(self) -> ExitCode`;
//! a variant of [`Command`] whose doc comment is its line in the help; a line in [`Cli::run`]. Man
//! pages and completions follow by themselves.

mod check;
mod compare;
mod completions;
mod doctor;
mod drive_args;
mod experiment;
mod fileset;
mod floor;
mod interfere;
mod load;
mod man;
mod profile;
mod report;
mod role;
mod serve;
mod stats;
mod trace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A web server for file sets larger than memory
#[derive(Debug, Parser)]
#[command(name = "flash", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "To start: `flash serve` serves the current directory on http://127.0.0.1:8080/")]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a directory over HTTP
    Serve(serve::Serve),
    /// Check a config file and the other settings, without serving
    Check(check::Check),
    /// Show what a running server has counted
    Stats(stats::Stats),
    /// Say whether a running server waits for the disk in its event loop
    Doctor(doctor::Doctor),
    /// Make a file set with known contents
    Fileset(fileset::Fileset),
    /// Answer with one ready buffer: the least a server can cost
    Floor(floor::Floor),
    /// Drive a server and measure its latency
    Load(load::Load),
    /// Measure latency against load, up to the capacity
    Profile(profile::Profile),
    /// Profile several servers in turn
    Compare(compare::Compare),
    /// Measure hot requests alone and beside cold ones
    Interfere(interfere::Interfere),
    /// Repeat the papers' experiments, and say what holds here
    Experiment(experiment::Experiment),
    /// Draw the results of measurements as a page
    Report(report::Report),
    /// Record which system calls of any process block, on what, and what waits behind them
    Trace(trace::Trace),
    /// Write the man pages
    Man(man::Man),
    /// Print the completions for a shell
    Completions(completions::Completions),
    /// Be one of the processes of a running server
    #[command(hide = true)]
    Role(role::Role),
}

impl Cli {
    /// Does what the command line says.
    pub(crate) fn run(self) -> ExitCode {
        match self.command {
            Command::Serve(command) => command.run(),
            Command::Check(command) => command.run(),
            Command::Stats(command) => command.run(),
            Command::Doctor(command) => command.run(),
            Command::Fileset(command) => command.run(),
            Command::Floor(command) => command.run(),
            Command::Load(command) => command.run(),
            Command::Profile(command) => command.run(),
            Command::Compare(command) => command.run(),
            Command::Interfere(command) => command.run(),
            Command::Experiment(command) => command.run(),
            Command::Report(command) => command.run(),
            Command::Trace(command) => command.run(),
            Command::Man(command) => command.run(),
            Command::Completions(command) => command.run(),
            Command::Role(command) => command.run(),
        }
    }
}
