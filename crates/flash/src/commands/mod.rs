//! The subcommands, one module each.
//!
//! To add one, write a module with a struct that derives [`clap::Args`] and has `fn run(self) -> ExitCode`, a variant of
//! [`Command`] whose doc comment is its line in the help, and a line in [`Cli::run`]. Man pages and completions include it
//! automatically.

mod backend;
mod cache;
mod check;
mod compare;
mod completions;
mod doctor;
mod drive_args;
mod experiment;
mod fileset;
mod floor;
mod interfere;
mod link;
mod load;
mod man;
mod migrate;
mod qdisc;
mod report;
mod role;
mod running;
mod serve;
mod server_args;
mod stats;
mod testbed;
mod tls;
mod top;
mod trace;
mod upgrade;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use flash_server::Program;

/// A web server for file sets larger than memory
#[derive(Debug, Parser)]
#[command(name = "flash", version = env!("PROGRAM_VERSION"), arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "`flash serve` serves the current directory on http://127.0.0.1:8080/")]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a directory over HTTP
    Serve(serve::Serve),
    /// Bring files into memory for other servers, such as nginx and Apache
    Backend(backend::Backend),
    /// Check the settings without serving
    Check(check::Check),
    /// Write Flash's configuration for that of another server
    Migrate(migrate::Migrate),
    /// Make certificates for trying out HTTPS
    Tls(tls::Tls),
    /// Show the counters of a running server
    Stats(stats::Stats),
    /// Show a live picture of a running server
    Top(top::Top),
    /// Replace the program of a running server by a new version
    Upgrade(upgrade::Upgrade),
    /// Set the queueing discipline that sends the smallest responses first
    Qdisc(qdisc::Qdisc),
    /// Diagnose whether requests of a running server wait for each other
    Doctor(doctor::Doctor),
    /// Create a set of files with known contents
    Fileset(fileset::Fileset),
    /// Run a minimal server that sends one fixed response, as a lower bound
    Floor(floor::Floor),
    /// Send load to a server and measure its latency
    Load(load::Load),
    /// Measure latency at increasing load, up to the capacity
    #[command(after_long_help = drive_args::MORE)]
    Profile(flash_lab::profile::Profile),
    /// Run the same profile on several servers
    Compare(compare::Compare),
    /// Measure whether requests for files in memory wait for the disk
    Interfere(interfere::Interfere),
    /// Run a command with limited memory, a slow disk or one core
    Testbed(testbed::Testbed),
    /// Run a server and its clients with a slow, long or lossy link between them
    Link(link::Link),
    /// Repeat the experiments of the papers on this machine
    Experiment(experiment::Experiment),
    /// Simulate how much memory a site needs
    Cache(cache::Cache),
    /// Make an HTML report from measured results
    Report(report::Report),
    /// Record which system calls of a process block, and on what
    Trace(trace::Trace),
    /// Write the man pages
    Man(man::Man),
    /// Print a completion script for a shell
    Completions(completions::Completions),
    /// Run as one of the processes of a server
    #[command(hide = true)]
    Role(role::Role),
}

impl Cli {
    /// The server that this command line starts in this directory; prints errors on standard error.
    fn program(self, cwd: PathBuf) -> Result<Program, ExitCode> {
        match self.command {
            Command::Serve(command) => Ok(command.program(cwd)),
            Command::Backend(command) => command.options(cwd).map(Program::Backend),
            // Only a server starts this process.
            _ => Err(ExitCode::FAILURE),
        }
    }

    /// Runs the given command.
    pub(crate) fn run(self) -> ExitCode {
        match self.command {
            Command::Serve(command) => command.run(),
            Command::Backend(command) => command.run(),
            Command::Check(command) => command.run(),
            Command::Migrate(command) => command.run(),
            Command::Tls(command) => command.run(),
            Command::Stats(command) => command.run(),
            Command::Top(command) => command.run(),
            Command::Upgrade(command) => command.run(),
            Command::Qdisc(command) => command.run(),
            Command::Doctor(command) => command.run(),
            Command::Fileset(command) => command.run(),
            Command::Floor(command) => command.run(),
            Command::Load(command) => command.run(),
            Command::Profile(profile) => crate::lab::finish_run(flash_lab::profile::run(profile)),
            Command::Compare(command) => command.run(),
            Command::Interfere(command) => command.run(),
            Command::Testbed(command) => command.run(),
            Command::Link(command) => command.run(),
            Command::Experiment(command) => command.run(),
            Command::Cache(command) => command.run(),
            Command::Report(command) => command.run(),
            Command::Trace(command) => command.run(),
            Command::Man(command) => command.run(),
            Command::Completions(command) => command.run(),
            Command::Role(command) => command.run(),
        }
    }
}
