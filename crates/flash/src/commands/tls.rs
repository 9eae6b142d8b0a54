//! `flash tls`: certificates for trying out.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use flash_load::tls::{Certificate, KeyKind};

use crate::output;

#[derive(Debug, clap::Args)]
pub(crate) struct Tls {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a certificate that no browser trusts, and its key, for trying out HTTPS
    SelfSigned(SelfSigned),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Writes flash.pem and flash.key, and never over an existing file.")]
pub(crate) struct SelfSigned {
    /// Name or address of the server; repeat for several
    #[arg(long, value_name = "NAME", default_value = "localhost")]
    host: Vec<String>,

    /// Kind of the key: ecdsa (P-256), or rsa (2,048 bits)
    #[arg(long, value_name = "KIND", value_enum, default_value = "ecdsa", hide_possible_values = true)]
    key: KeyKind,

    /// Directory of both files
    #[arg(value_name = "DIR", default_value = ".")]
    folder: PathBuf,
}

impl Tls {
    pub(crate) fn run(self) -> ExitCode {
        let Command::SelfSigned(command) = self.command;
        command.run()
    }
}

impl SelfSigned {
    fn run(self) -> ExitCode {
        let [certificate, key] = ["flash.pem", "flash.key"].map(|name| self.folder.join(name));
        let made = Certificate::make(self.host, self.key).map_err(|why| why.to_string()).and_then(|made| {
            write(&key, 0o600, &made.key_pem)?;
            write(&certificate, 0o644, &made.pem)
        });
        match made {
            Ok(()) => output::print(format!(
                "wrote {} and {}; try\n\n    flash serve --listen-tls 127.0.0.1:8443 --certificate {0} --certificate-key {1}\n",
                certificate.display(),
                key.display()
            )),
            Err(why) => {
                eprintln!("flash: {why}");
                ExitCode::FAILURE
            }
        }
    }
}

fn write(path: &Path, mode: u32, text: &str) -> Result<(), String> {
    let failed = |e: io::Error| format!("cannot write `{}`: {e}", path.display());
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)
}
