//! `flash completions`: what makes a shell complete Flash's command line.

use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::output;

#[derive(Debug, clap::Args)]
#[command(after_help = "For bash: flash completions bash > ~/.local/share/bash-completion/completions/flash")]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> ExitCode {
        // Into memory first: clap_complete panics when its writer fails.
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut for_people(), "flash", &mut text);
        output::print(text)
    }
}

/// The command line without what is hidden, which clap_complete would offer too.
fn for_people() -> Command {
    let whole = super::Cli::command();
    let shown = whole.get_subcommands().filter(|command| !command.is_hide_set());
    let version = whole.get_version().unwrap_or_default().to_owned();
    Command::new("flash").version(version).subcommands(shown.cloned())
}
