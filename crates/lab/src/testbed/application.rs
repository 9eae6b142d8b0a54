//! The application behind a server that the lab starts: `examples/application.rs`.
//!
//! [`super::running`] starts it before the server, in the same groups: it uses the server's memory, disk and share of CPU, so it
//! brings no file into memory for free. It has a core of its own, and its CPU time and memory do not count as the server's.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::time::Duration;

use super::peer::Wait;
use super::{free_port, prepare};
use flash_kit::{Error, Result};

/// Where cargo puts it, beside this program.
const PROGRAM: &str = "examples/application";
/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    /// The beginning of the paths that servers pass to it; [`flash_load::workload::check_prefix`] allows it.
    pub prefix: String,
    /// The only core that it may use; without one, those of the calling thread.
    pub core: Option<usize>,
}

impl Application {
    /// Whether its program is there.
    ///
    /// Errors: run, with the command that builds it.
    pub(super) fn check(&self) -> Result<()> {
        Self::program().map(drop)
    }

    fn program() -> Result<PathBuf> {
        prepare::near_this_program(PROGRAM).ok_or_else(|| {
            Error::run(format!(
                "cannot start the application for dynamic requests: there is no {PROGRAM} beside flash; build it with \
                 `cargo build --release -p flash --example application`"
            ))
        })
    }

    /// The command that starts it for a folder, and where it then listens.
    ///
    /// Errors: those of [`Application::check`]; run, when no port is free.
    pub(super) fn command(&self, root: &str) -> Result<(Vec<String>, SocketAddrV4)> {
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, free_port()?);
        let program = Self::program()?.display().to_string();
        let words =
            [program, address.to_string(), root.to_owned(), "--prefix".to_owned(), self.prefix.clone()];
        Ok((words.into(), address))
    }

    /// The condition for it to count as ready.
    pub(super) fn wait(&self) -> Wait {
        Wait { path: Some(format!("{}?bytes=1", self.prefix)), patience: PATIENCE }
    }

    /// A description, for the settings of results.
    pub(super) fn text(&self) -> String {
        let core = self.core.map(|core| format!(" on core {core}")).unwrap_or_default();
        format!("examples/application.rs below {}{core}, in the testbed of the server", self.prefix)
    }
}
