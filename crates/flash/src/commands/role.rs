//! `flash role NAME`: runs one process of a server. Only the supervisor calls it.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

#[derive(Debug, clap::Args)]
pub(crate) struct Role {
    /// Which process to be
    name: String,
    /// For the process that reads the configuration: the words of the server's own command line
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

impl Role {
    pub(crate) fn run(self) -> ExitCode {
        if self.name != flash_server::READER_ROLE {
            return flash_server::run_role(&self.name);
        }
        let server = super::Cli::parse_from([OsString::from("flash")].into_iter().chain(self.words));
        flash_server::read_configuration(|cwd| server.program(cwd))
    }
}
