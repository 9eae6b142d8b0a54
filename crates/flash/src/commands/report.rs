//! `flash report`: draws the results of measurements.

use std::path::PathBuf;
use std::process::ExitCode;

use flash_lab::report::{self, Options};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The page is one file that needs nothing else. Beside it, with .json for .html, stand the figures of its \
tables. Runs of several folders are laid over one another."
)]
pub(crate) struct Report {
    /// Folders that a command of the lab wrote, with a run.json each
    #[arg(value_name = "DIR", required = true, value_hint = clap::ValueHint::DirPath)]
    dirs: Vec<PathBuf>,

    /// Write the page here [default: report.html in the first DIR]
    #[arg(long, value_name = "FILE.html", value_hint = clap::ValueHint::FilePath)]
    out: Option<PathBuf>,
}

impl Report {
    pub(crate) fn run(self) -> ExitCode {
        crate::lab::finish(report::run(&Options { folders: self.dirs, out: self.out }))
    }
}
