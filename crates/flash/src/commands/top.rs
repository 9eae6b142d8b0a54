//! `flash top`: a live picture of a running server in the terminal.

use std::process::ExitCode;

use flash_server::stats::{self, TopError};

use super::running::Running;

const EXIT_USAGE: u8 = 2;

#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "The picture changes every second and shows the course of the last two minutes. q ends it. docs/stats.md \
explains the figures; `flash stats` prints all of them.\n\n\
Exit codes: 0 done, 1 failed, 2 usage error, no terminal, or several servers run and none was named."
)]
pub(crate) struct Top {
    #[command(flatten)]
    server: Running,
}

impl Top {
    pub(crate) fn run(self) -> ExitCode {
        let socket = match self.server.socket("top") {
            Ok(socket) => socket,
            Err(code) => return code,
        };
        match stats::top(&socket) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                match error {
                    TopError::NoTerminal => ExitCode::from(EXIT_USAGE),
                    TopError::Stats(_) | TopError::Terminal(_) => ExitCode::FAILURE,
                }
            }
        }
    }
}
