//! `flash serve`: the server.

use std::process::ExitCode;

use crate::options::ServeOptions;

const MORE: &str = "\
TIME is a number and a unit, such as 250ms, 5s, 2m or 1h; SIZE is a number of bytes or has a unit,
such as 64KiB, 1MiB or 3GB. A flag overrides the environment, which overrides the config file.
Signals: TERM, INT and QUIT stop when open requests are done, HUP reads the settings again, USR1
reopens the log file.";

#[derive(Debug, clap::Args)]
#[command(after_help = MORE)]
pub(crate) struct Serve {
    #[command(flatten)]
    options: ServeOptions,
}

impl Serve {
    pub(crate) fn run(self) -> ExitCode {
        match self.options.sources() {
            Ok(sources) => flash_server::serve(sources),
            Err(code) => code,
        }
    }
}
