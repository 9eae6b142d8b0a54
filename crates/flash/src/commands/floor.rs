//! `flash floor`: the minimal responder that CPU figures are compared with.

use std::net::SocketAddr;
use std::process::ExitCode;

use flash_load::floor::{self, Options};
use flash_load::tls::KeyKind;
use flash_units::parse_size_bytes;

#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "Answers every request with the same bytes and parses nothing. No server on the same event loop can answer \
with less CPU time.\n\nSIZE is a whole number of bytes, or has a unit: 64KiB or 3GB."
)]
pub(crate) struct Floor {
    /// Listen on this address; port 0 takes any free port and prints it
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,

    /// Length of the response body
    #[arg(long, value_name = "SIZE", default_value = "1KiB", value_parser = parse_size_bytes)]
    bytes: u64,

    /// Speak TLS, with a certificate of its own; its key is ecdsa (P-256) or rsa (2,048 bits) [without KEY: ecdsa]
    #[arg(long, value_name = "KEY", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "ecdsa",
          hide_possible_values = true)]
    tls: Option<KeyKind>,
}

impl Floor {
    pub(crate) fn run(self) -> ExitCode {
        let Ok(body_bytes) = usize::try_from(self.bytes) else {
            eprintln!("error: --bytes {} is more than this machine's memory can hold", self.bytes);
            return ExitCode::from(2);
        };
        crate::lab::finish(floor::run(&Options { listen: self.listen, body_bytes, tls: self.tls }))
    }
}
