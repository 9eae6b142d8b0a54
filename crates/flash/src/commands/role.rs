//! `flash role NAME`: runs one process of a server. Only the supervisor calls it.

use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(crate) struct Role {
    /// Which process to be
    name: String,
}

impl Role {
    pub(crate) fn run(self) -> ExitCode {
        flash_server::run_role(&self.name)
    }
}
