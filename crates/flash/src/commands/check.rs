//! `flash check`: checks the settings as `flash serve` does, and starts nothing.

use std::process::ExitCode;

use flash_server::config::{Listen, NotUtf8, Settings, Sources};

use crate::options::ServeOptions;
use crate::output;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Takes the options of `flash serve`. Exit codes: 0 the settings are valid, 1 they are not, 2 usage error."
)]
pub(crate) struct Check {
    #[command(flatten)]
    options: ServeOptions,

    /// Print the resulting settings as a config file; defaults are comments
    #[arg(long)]
    print: bool,
}

impl Check {
    pub(crate) fn run(self) -> ExitCode {
        let sources = match self.options.sources() {
            Ok(sources) => sources,
            Err(code) => return code,
        };
        let loaded = sources.load();
        for warning in loaded.iter().flat_map(Settings::warnings) {
            eprintln!("warning: {warning}");
        }
        let certificates = loaded.as_ref().map_or(Ok(Vec::new()), flash_server::check_certificates);
        for warning in certificates.iter().flatten() {
            eprintln!("warning: {warning}");
        }
        match loaded {
            Ok(_) if certificates.is_err() && !self.print => {
                eprintln!("error: {}\n\n{}: 1 error", certificates.unwrap_err(), subject(&sources));
                ExitCode::FAILURE
            }
            Ok(settings) if self.print => match settings.to_config_file() {
                Ok(text) => output::print(text),
                Err(NotUtf8(path)) => {
                    eprintln!("error: cannot print `{path}`: a config file holds only UTF-8");
                    ExitCode::FAILURE
                }
            },
            Ok(settings) => output::print(format!("{}: ok\n{}\n", subject(&sources), summary(&settings))),
            Err(error) => {
                error.print();
                eprintln!("\n{}: {}", subject(&sources), counted(error.count(), "error"));
                ExitCode::FAILURE
            }
        }
    }
}

/// The checked settings, as the user named them.
fn subject(sources: &Sources) -> String {
    sources.config_file().map_or_else(|| "settings".to_owned(), |file| file.display().to_string())
}

/// A one-line summary of the site and its addresses.
fn summary(settings: &Settings) -> String {
    let what = match &settings.sites[..] {
        [site] if site.hosts.is_empty() => format!("`{}`", site.root.display()),
        sites => counted(sites.len(), "site"),
    };
    let addresses = settings.listen.iter().map(Listen::to_string);
    let addresses = addresses.chain(settings.tls_listen.iter().map(|address| format!("{address} (TLS)")));
    let addresses: Vec<String> = addresses.collect();
    let workers = counted(settings.workers, "worker");
    format!("{what} on {} with {workers}", addresses.join(", "))
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
