//! `flash serve`: the server.

use std::path::PathBuf;
use std::process::ExitCode;

use flash_server::Program;

use crate::options::ServeOptions;

const MORE: &str = "\
TIME is a number and a unit: 250ms, 1.5s, 2m, 1h or 1d. SIZE is a number of bytes, or has a unit: 64KiB, 512M \
(512MiB) or 3GB.

Every option can also be set by an environment variable: --cache-memory by FLASH_CACHE_MEMORY, DIR by FLASH_ROOT. An \
option overrides the environment, which overrides the config file.

Signals: TERM, INT and QUIT stop the server after open requests finish, HUP reloads the settings, USR1 reopens the log \
file, and USR2 upgrades the program as `flash upgrade` does.

Exit codes: 0 stopped by a signal, 1 failed, 2 usage error.";

#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE)]
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

    /// The server that was started in this directory.
    pub(super) fn program(self, cwd: PathBuf) -> Program {
        Program::Serve(self.options.sources_in(cwd))
    }
}
