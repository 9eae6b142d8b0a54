//! `flash experiment`: repeats the experiments of the papers.

use std::process::ExitCode;

use flash_lab::experiment::{self, Options};

use crate::output;

const MORE: &str = "\
`flash experiment list` lists the experiments and how long each takes. `flash experiment judge DIR...` computes the \
findings again from the measurements that earlier runs kept. `flash experiment all --out DIR` runs every experiment, the \
shortest first, each in a folder of DIR, and writes index.html and table.md with all findings. Run again, it skips those that are whole. \
Before each it waits until other programs leave the cores alone, an hour in all at most. An experiment creates its file sets in --sets, measures every server in each \
round, and writes report.html, report.json and run.json to --out. It names the parts that this machine cannot run, and \
runs the others.

TIME is a whole number with a unit: 250ms, 10s or 2m. SIZE is a whole number of bytes, or has a unit: 64KiB or 3GB.

Exit codes: 0 done, 1 failed, 2 usage error, 130 interrupted (the results so far are kept).";

#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE)]
pub(crate) struct Experiment {
    #[command(flatten)]
    options: Options,
}

impl Experiment {
    pub(crate) fn run(self) -> ExitCode {
        let text = match self.options.name.as_str() {
            "judge" => return crate::lab::finish(experiment::judge(&self.options)),
            "all" if self.options.plan => experiment::describe_all(&self.options),
            "all" => return crate::lab::finish_run(experiment::all(&self.options)),
            "list" => experiment::list(&self.options),
            _ if self.options.plan => experiment::describe_plan(&self.options),
            _ => return crate::lab::finish_run(experiment::run(&self.options)),
        };
        match text {
            Ok(text) => output::print(text.into_bytes()),
            Err(why) => crate::lab::finish(Err(why)),
        }
    }
}
