//! `flash compare`: the same profile for several servers.

use std::path::Path;
use std::process::ExitCode;

use flash_kit::Result;
use flash_lab::compare::{self, Compare as Options};
use flash_lab::testbed::Application;
use flash_load::workload::Spec;

use super::drive_args::MORE;
use super::server_args::ServerArgs;

#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE)]
pub(crate) struct Compare {
    /// Running server as NAME=URL, or the name of a server to start: one of the --servers file, or flash, nginx,
    /// nginx-aio, apache-event, apache-prefork, lighttpd, h2o, caddy, or with `flash backend` nginx-gate,
    /// apache-flashpache, h2o-warm or lighttpd-warm [default: all of --servers]
    #[arg(value_name = "SERVER")]
    servers: Vec<String>,

    /// Files to request: specweb99, uniform, zipf:ALPHA, list:FILE (in turn), single:PATH, or log:FILE in the order of the log
    #[arg(long, value_name = "WORKLOAD", default_value = "specweb99", help_heading = "Workload")]
    workload: Spec,

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
    options: Options,
}

impl Compare {
    pub(crate) fn run(self) -> ExitCode {
        crate::lab::finish_run(self.options().and_then(|options| compare::run(&options)))
    }

    fn options(self) -> Result<Options> {
        let mut options = self.options.options.of_command("compare", self.workload).with_endless_log();
        let mut chosen = self.started.choose(&self.servers, &mut options.cores)?;
        chosen.testbed.cpu_percent = self.cpu.or(chosen.testbed.cpu_percent);
        let folder = options.files.manifest.as_deref().and_then(Path::parent);
        let root = chosen.testbed.root.take().or_else(|| folder.map(Into::into));
        chosen.serve(root)?;
        chosen.testbed.has_http2 = options.wire.http2;
        chosen.testbed.application = options.files.dynamic.map(|_| Application {
            prefix: options.files.dynamic_prefix.clone(),
            core: self.application_core.or(options.cores.last().copied()),
        });
        Ok(Options { servers: chosen.servers, testbed: chosen.testbed, options, ..self.options })
    }
}
