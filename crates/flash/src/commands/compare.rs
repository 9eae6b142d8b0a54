//! `flash compare`: the same profile for several servers.

use std::path::Path;
use std::process::ExitCode;

use flash_kit::Result;
use flash_lab::compare::{self, Compare as Options, RelativeTo};
use flash_lab::testbed::{Application, Place};
use flash_load::workload::Spec;

use super::drive_args::{DriveArgs, LEVELS_TEXT, MORE};
use super::server_args::ServerArgs;

#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE)]
pub(crate) struct Compare {
    /// Running server as NAME=URL, or the name of a server to start: one of the --servers file, or flash, nginx,
    /// nginx-aio, apache-event, apache-prefork, lighttpd, h2o, caddy, or with `flash backend` nginx-gate,
    /// apache-flashpache, h2o-warm or lighttpd-warm [default: all of --servers]
    #[arg(value_name = "SERVER")]
    servers: Vec<String>,

    /// Files to request: specweb99, uniform, zipf:ALPHA, single:PATH, or log:FILE in the order of the log
    #[arg(long, value_name = "WORKLOAD", default_value = "specweb99", help_heading = "Workload")]
    workload: Spec,

    /// Loads to measure, as fractions of the capacity
    #[arg(long, value_name = "LEVELS", value_delimiter = ',', default_value = LEVELS_TEXT, help_heading = "Arrivals")]
    levels: Vec<f64>,

    /// Capacity that the levels refer to: each server's `own`, the `lowest` of all, or N requests per second
    #[arg(long, value_name = "CAPACITY", value_parser = relative_to, default_value = "own", help_heading = "Arrivals")]
    relative_to: RelativeTo,

    /// Number of times to measure each server
    #[arg(long, value_name = "N", default_value_t = 5, help_heading = "Run")]
    rounds: u32,

    #[command(flatten)]
    started: ServerArgs,

    /// Share of one core that a started server can use, percent [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100), help_heading = "Testbed")]
    cpu: Option<u32>,

    /// Core of the application that answers dynamic requests of started servers [default: the last core of the load
    /// generator]
    #[arg(long, value_name = "N", help_heading = "Testbed")]
    application_core: Option<usize>,

    #[command(flatten)]
    drive: DriveArgs,
}

fn relative_to(text: &str) -> std::result::Result<RelativeTo, String> {
    match text {
        "own" => Ok(RelativeTo::Own),
        "lowest" => Ok(RelativeTo::Lowest),
        _ => text
            .parse()
            .map(RelativeTo::Given)
            .map_err(|_| "write own, lowest or a number of requests a second".to_owned()),
    }
}

impl Compare {
    pub(crate) fn run(self) -> ExitCode {
        crate::lab::finish_run(self.options().and_then(|options| compare::run(&options)))
    }

    fn options(self) -> Result<Options> {
        let mut options = self.drive.options("compare", self.workload)?.with_endless_log();
        let mut chosen = self.started.choose(&self.servers, &mut options.cores)?;
        chosen.wishes.cpu_percent = self.cpu.or(chosen.wishes.cpu_percent);
        let folder = options.files.manifest.as_deref().and_then(Path::parent);
        let root = chosen.need(chosen.wishes.root.clone().or_else(|| folder.map(Into::into)))?;
        let application = options.files.dynamic.as_ref().map(|dynamic| Application {
            prefix: dynamic.prefix().to_owned(),
            core: self.application_core.or(options.cores.last().copied()),
        });
        Ok(Options {
            place: Place { application, ..chosen.wishes.place(root.unwrap_or_default()) },
            options,
            servers: chosen.servers,
            levels: self.levels,
            relative_to: self.relative_to,
            rounds: self.rounds,
        })
    }
}
