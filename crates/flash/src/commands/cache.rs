//! `flash cache simulate`: how much memory a site needs.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ArgGroup;
use flash_lab::cache::{self, Options};
use flash_load::files::MANIFEST;
use flash_load::workload::{self, Spec};

use crate::output;

const MORE: &str = "\
Replays the requests in order to a cache of each size and policy, and counts one disk read for each file, or each 512 KiB \
of a large file, that is not in memory.

Policies: lru (close to the kernel's page cache), s3-fifo, tinylfu, gdsf, flash (the policy of Flash's store), and static \
(the best choice of files that never changes, computed from all requests).

SIZE is a whole number of bytes, or has a unit: 512MiB or 3GB.

Exit codes: 0 done, 1 failed, 2 usage error.";

#[derive(Debug, clap::Args)]
#[command(
    after_long_help = MORE,
    override_usage = "flash cache simulate [OPTIONS] <--log <FILE>|--workload <WORKLOAD>>",
    group(ArgGroup::new("source").required(true).args(["log", "workload"]))
)]
pub(crate) struct Cache {
    /// simulate: print how often caches of several sizes and policies read the disk
    #[arg(value_name = "simulate", value_parser = ["simulate"])]
    action: String,

    /// Replay this access log: Common or Combined Log Format or Flash's JSON, also gzipped. A file is as long as its
    /// longest answer; GETs with status 200, 206 and 304 count as requests for the whole file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath,
          conflicts_with_all = ["files", "directories", "paths", "requests"], help_heading = "Workload")]
    log: Option<PathBuf>,

    /// Draw random requests: specweb99, uniform or zipf:ALPHA, from a SPECweb99 set of 3 GB unless --files, --paths or
    /// --directories is given
    #[arg(long, value_name = "WORKLOAD", help_heading = "Workload")]
    workload: Option<Spec>,

    /// Folder of a file set made by `flash fileset`
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath, conflicts_with = "paths",
          help_heading = "Workload")]
    files: Option<PathBuf>,

    /// Use only the first N directories of the SPECweb99 set
    #[arg(long, value_name = "N", help_heading = "Workload")]
    directories: Option<u32>,

    /// File that lists the paths to request, one per line, each with its length
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, help_heading = "Workload")]
    paths: Option<PathBuf>,

    #[command(flatten)]
    options: Options,
}

impl Cache {
    pub(crate) fn run(self) -> ExitCode {
        let source = match (self.log, self.workload) {
            (Some(file), _) => Spec::Log { file },
            (None, workload) => workload.unwrap_or(Spec::Specweb99),
        };
        let options = Options {
            source,
            files: workload::Options {
                directories: self.directories,
                manifest: self.files.map(|folder| folder.join(MANIFEST)),
                paths: self.paths,
                ..workload::Options::default()
            },
            ..self.options
        };
        match cache::run(&options) {
            Ok(text) => output::print(text),
            Err(error) => crate::lab::finish(Err(error)),
        }
    }
}
