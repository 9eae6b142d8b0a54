//! `flash tls`: certificates for trying out.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Subcommand;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};

use crate::output;

/// How long such a certificate is valid: browsers accept no more.
const VALID_DAYS: i64 = 397;

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
        let made = make(self.host).map_err(|e| format!("cannot make a certificate: {e}")).and_then(
            |(pem, key_pem)| {
                write(&key, 0o600, &key_pem)?;
                write(&certificate, 0o644, &pem)
            },
        );
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

/// A certificate of these names and its key, in PEM.
fn make(hosts: Vec<String>) -> Result<(String, String), rcgen::Error> {
    let mut params = CertificateParams::new(hosts)?;
    let day =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| (since.as_secs() / 86_400) as i64);
    // By its text, so that the types of a library of dates stay out.
    let [from, until] = [day - 1, day - 1 + VALID_DAYS].map(|day| {
        let text = flash_tls::date(day * 86_400);
        let numbers: Vec<u16> = text.split('-').filter_map(|part| part.parse().ok()).collect();
        [0, 1, 2].map(|place| numbers.get(place).copied().unwrap_or(1))
    });
    params.not_before = date_time_ymd(i32::from(from[0]), from[1] as u8, from[2] as u8);
    params.not_after = date_time_ymd(i32::from(until[0]), until[1] as u8, until[2] as u8);
    let key = KeyPair::generate()?;
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

fn write(path: &Path, mode: u32, text: &str) -> Result<(), String> {
    let failed = |e: io::Error| format!("cannot write `{}`: {e}", path.display());
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)
}
