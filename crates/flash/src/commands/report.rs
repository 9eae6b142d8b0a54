//! `flash report`: makes an HTML report from result folders.

use std::path::PathBuf;
use std::process::ExitCode;

use flash_lab::report::{self, Options};

#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "The page is one self-contained HTML file. The figures of its tables are written beside it, as FILE.json. \
Several folders are drawn in the same charts.\n\nExit codes: 0 done, 1 failed, 2 usage error."
)]
pub(crate) struct Report {
    /// Result folders, each with a run.json
    #[arg(value_name = "DIR", required = true, value_hint = clap::ValueHint::DirPath)]
    dirs: Vec<PathBuf>,

    /// Write the page to this file [default: report.html in the first DIR]
    #[arg(long, value_name = "FILE.html", value_hint = clap::ValueHint::FilePath)]
    out: Option<PathBuf>,
}

impl Report {
    pub(crate) fn run(self) -> ExitCode {
        crate::lab::finish(report::run(&Options { folders: self.dirs, out: self.out }))
    }
}
