//! `flash upgrade`: lets a running server execute the version that was installed in its place.

use std::process::ExitCode;

use flash_server::stats;

use super::running::Running;

#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "The server executes the file that it was started from, with the same command line, and keeps its \
process ID, its listening sockets, its connections and its store. If the new version cannot start, the old one serves on. \
docs/guide.md explains it.\n\n\
Exit codes: 0 the new version serves, 1 the old one serves on, 2 usage error, or several servers run and none was named."
)]
pub(crate) struct Upgrade {
    #[command(flatten)]
    server: Running,
}

impl Upgrade {
    pub(crate) fn run(self) -> ExitCode {
        let socket = match self.server.socket("upgrade") {
            Ok(socket) => socket,
            Err(code) => return code,
        };
        match stats::upgrade(&socket) {
            Ok(text) => {
                println!("{text}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        }
    }
}
