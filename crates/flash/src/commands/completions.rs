//! `flash completions`: prints the completion script of a shell.

use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::output;

#[derive(Debug, clap::Args)]
#[command(after_help = "For bash: flash completions bash > ~/.local/share/bash-completion/completions/flash")]
pub(crate) struct Completions {
    /// Shell to complete for
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> ExitCode {
        // Writes to memory first: clap_complete panics when its writer fails.
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut for_people(), "flash", &mut text);
        output::print(text)
    }
}

/// The command line without hidden commands, which clap_complete would offer.
fn for_people() -> Command {
    let whole = super::Cli::command();
    let shown = whole.get_subcommands().filter(|command| !command.is_hide_set());
    let version = whole.get_version().unwrap_or_default().to_owned();
    Command::new("flash").version(version).subcommands(shown.cloned())
}
