//! `flash migrate`: writes Flash's configuration for that of another server.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use flash_migrate::Migration;

use crate::output;

/// The exit code if something was not carried over, and if a file cannot be read or parsed.
const EXIT_IN_PART: u8 = 1;
const EXIT_UNREADABLE: u8 = 2;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Writes the config file to standard output, and the lines that it does not carry over to standard error; they are \
comments at the head of the file too. docs/migrate.md says which directives it knows.\n\n\
Exit codes: 0 everything was carried over, 1 something was not, 2 usage error, or a file cannot be read or parsed."
)]
pub(crate) struct Migrate {
    /// Server whose configuration it is
    #[arg(value_enum)]
    server: Server,

    /// Its configuration file, such as /etc/nginx/nginx.conf
    #[arg(value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
}

/// The servers.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Server {
    Nginx,
    Apache,
    Caddy,
}

impl Migrate {
    pub(crate) fn run(self) -> ExitCode {
        let server = match self.server {
            Server::Nginx => flash_migrate::Server::Nginx,
            Server::Apache => flash_migrate::Server::Apache,
            Server::Caddy => flash_migrate::Server::Caddy,
        };
        let Migration { toml, notes } = match flash_migrate::migrate(server, &self.file) {
            Ok(migration) => migration,
            Err(failure) => {
                eprintln!("error: {failure}");
                return ExitCode::from(EXIT_UNREADABLE);
            }
        };
        for note in &notes {
            eprintln!("{note}");
        }
        match output::print(toml) {
            ExitCode::SUCCESS if !notes.is_empty() => ExitCode::from(EXIT_IN_PART),
            code => code,
        }
    }
}
