//! `flash testbed`: a command with bounded memory, a slow disk, part of a core or one core.

use std::path::PathBuf;
use std::process::ExitCode;

use flash_lab::testbed;
use flash_units::parse_memory_bytes;

const MORE: &str = "\
Runs COMMAND in a control group of its own, as `flash compare` runs servers. Bounds of memory, disk and CPU need root \
and cgroups, version 1 (memory, blkio, cpu) or 2 (memory, io, cpu). A bound that this machine cannot keep is an error, and the command \
is not started. Processes that the command leaves behind are killed.

SIZE is a whole number of bytes, or has a unit: 512MB or 64MiB.

Exit codes: that of the command (128 and the signal if a signal ended it), 1 the testbed failed, 2 usage error.";

#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE)]
pub(crate) struct Testbed {
    /// Name of the testbed, for messages
    name: String,

    /// Memory limit, including the page cache [default: none]
    #[arg(long, value_name = "SIZE", value_parser = parse_memory_bytes)]
    memory: Option<u64>,

    /// Disk reads per second [default: unlimited]
    #[arg(long, value_name = "N")]
    reads: Option<u32>,

    /// Share of one core that the command can use, percent [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    cpu: Option<u32>,

    /// The only core to run on [default: all]
    #[arg(long, value_name = "N")]
    core: Option<usize>,

    /// Folder on the disk that --reads bounds
    #[arg(long, value_name = "DIR", default_value = ".", value_hint = clap::ValueHint::DirPath)]
    files: PathBuf,

    /// Command to run
    #[arg(last = true, required = true, value_name = "COMMAND",
          value_hint = clap::ValueHint::CommandWithArguments)]
    command: Vec<String>,
}

impl Testbed {
    pub(crate) fn run(self) -> ExitCode {
        let bounds = testbed::Testbed {
            root: Some(self.files),
            core: self.core,
            memory_bytes: self.memory,
            reads_per_s: self.reads,
            cpu_percent: self.cpu,
            ..testbed::Testbed::default()
        };
        crate::lab::finish_code(testbed::run_in_testbed(&self.name, &bounds, &self.command), |code| code)
    }
}
