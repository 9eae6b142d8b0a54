//! `flash report`: makes an HTML report from result folders.

use std::path::PathBuf;
use std::process::ExitCode;

use flash_lab::join;
use flash_lab::report::{self, Format, Options};

#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "The page is one self-contained HTML file. The figures of its tables are written beside it, as FILE.json. \
Several folders are drawn in the same charts, or joined into one run (--join). Join what several generators, on this or on \
other machines, recorded at the same time: latencies are those of all requests, and rates are added. Their clocks must agree.\n\nExit codes: 0 done, 1 failed, 2 usage error."
)]
pub(crate) struct Report {
    /// Result folders, each with a run.json
    #[arg(value_name = "DIR", required = true, value_hint = clap::ValueHint::DirPath)]
    dirs: Vec<PathBuf>,

    /// Join runs of `flash load` that loaded a server at the same time: one run with all their requests
    #[arg(long)]
    join: bool,

    /// Print the figures of the joined run as text, json, csv, hdr (percentiles of HdrHistogram) or prometheus
    #[arg(
        long,
        value_name = "FORMAT",
        value_enum,
        default_value = "text",
        hide_possible_values = true,
        requires = "join"
    )]
    format: Format,

    /// Write the page to this file [default: report.html in the first DIR, or joined.html]
    #[arg(long, value_name = "FILE.html", value_hint = clap::ValueHint::FilePath)]
    out: Option<PathBuf>,
}

impl Report {
    pub(crate) fn run(self) -> ExitCode {
        let Self { dirs: folders, join: is_join, format, out } = self;
        crate::lab::finish(if is_join {
            join::run(&join::Options { folders, out, format })
        } else {
            report::run(&Options { folders, out })
        })
    }
}
