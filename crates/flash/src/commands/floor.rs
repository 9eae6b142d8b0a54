//! `flash floor`: the responder that CPU figures are compared with.

use std::net::SocketAddr;
use std::process::ExitCode;

use flash_lab::floor::{self, Options};
use flash_server::config::units::parse_size_bytes;

#[derive(Debug, clap::Args)]
#[command(after_help = "It answers every request with the same ready bytes and parses nothing: it is \
no server, but no server on the same loop can answer for less CPU.")]
pub(crate) struct Floor {
    /// Listen here; with port 0 on a free port, which is printed
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,

    /// Length of the body
    #[arg(long, value_name = "SIZE", default_value = "1KiB", value_parser = parse_size_bytes)]
    bytes: u64,
}

impl Floor {
    pub(crate) fn run(self) -> ExitCode {
        let Ok(body_bytes) = usize::try_from(self.bytes) else {
            eprintln!("error: --bytes {} is more than this machine's memory can hold", self.bytes);
            return ExitCode::from(2);
        };
        crate::lab::finish(floor::run(&Options { listen: self.listen, body_bytes }))
    }
}
