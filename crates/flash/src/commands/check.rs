//! `flash check`: everything that `flash serve` does to its settings, and no more.

use std::net::SocketAddr;
use std::process::ExitCode;

use flash_server::config::{Settings, Sources};

use crate::options::ServeOptions;
use crate::output;

#[derive(Debug, clap::Args)]
#[command(after_help = "Exits with 0 if the settings can be used, with 1 if not.")]
pub(crate) struct Check {
    #[command(flatten)]
    options: ServeOptions,

    /// Print all settings as TOML, as every process gets them
    #[arg(long)]
    print: bool,
}

impl Check {
    pub(crate) fn run(self) -> ExitCode {
        let sources = match self.options.sources() {
            Ok(sources) => sources,
            Err(code) => return code,
        };
        match sources.load() {
            Ok(settings) if self.print => output::print(settings.to_toml()),
            Ok(settings) => output::print(format!("{}: ok\n{}\n", subject(&sources), summary(&settings))),
            Err(error) => {
                error.print();
                eprintln!("\n{}: {}", subject(&sources), counted(error.count(), "error"));
                ExitCode::FAILURE
            }
        }
    }
}

/// What was checked, as the user named it.
fn subject(sources: &Sources) -> String {
    sources.config_file().map_or_else(|| "settings".to_owned(), |file| file.display().to_string())
}

/// What would be served, in a line.
fn summary(settings: &Settings) -> String {
    let what = match &settings.sites[..] {
        [site] if site.hosts.is_empty() => format!("`{}`", site.root.display()),
        sites => counted(sites.len(), "site"),
    };
    let addresses: Vec<String> = settings.listen.iter().map(SocketAddr::to_string).collect();
    let workers = counted(settings.workers, "worker");
    format!("{what} on {} with {workers}", addresses.join(", "))
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
