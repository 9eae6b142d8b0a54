//! Which running server a command is for. Called by `flash stats`, `flash top` and `flash upgrade`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use flash_server::stats;

/// Exit code for a command line that leaves open which server is meant.
const EXIT_USAGE: u8 = 2;

#[derive(Debug, clap::Args)]
pub(crate) struct Running {
    /// Process ID of the server's supervisor [default: the only running server]
    #[arg(conflicts_with = "control")]
    pid: Option<u32>,

    /// Control socket of the server, as passed to `flash serve` or `flash backend`
    #[arg(long, value_name = "PATH", value_hint = clap::ValueHint::FilePath)]
    control: Option<PathBuf>,
}

impl Running {
    /// Its control socket, for the command of this name; prints errors on standard error.
    pub(crate) fn socket(&self, command: &str) -> Result<PathBuf, ExitCode> {
        if let Some(path) = &self.control {
            return Ok(path.clone());
        }
        if let Some(pid) = self.pid {
            return Ok(stats::socket_of(pid));
        }
        match &stats::find_running()[..] {
            [(_, path)] => Ok(path.clone()),
            [] => {
                let place = stats::socket_of(0);
                let folder = place.parent().unwrap_or(Path::new("/")).display();
                eprintln!(
                    "error: found no running server of this user: no socket in `{folder}` answers; start one \
                     with `flash serve`, or give its socket with --control"
                );
                Err(ExitCode::FAILURE)
            }
            several => {
                eprintln!("error: several servers are running; choose one:");
                for (pid, path) in several {
                    eprintln!("  flash {command} {pid}    # {}", path.display());
                }
                Err(ExitCode::from(EXIT_USAGE))
            }
        }
    }
}
