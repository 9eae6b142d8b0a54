//! The programs that Flash starts to answer the requests of a route (`app`, `cgi`).
//!
//! `config::file` reads them, `config::route_checks` checks them, and the supervisor starts them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::route_options::Program;

/// The directories in which a program without a slash in its name is looked for.
pub(crate) const DIRECTORIES: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The processes of a [`Program`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runs {
    /// This command, for any number of requests in FastCGI.
    App(Vec<String>),
    /// The programs in this directory, one process per request (RFC 3875).
    Cgi(PathBuf),
}

impl Program {
    /// The program in messages.
    pub(crate) fn name(&self) -> String {
        match &self.runs {
            Runs::App(words) => format!("`{}`", words.join(" ")),
            Runs::Cgi(folder) => format!("the process that runs the programs in `{}`", folder.display()),
        }
    }

    /// Its process of this number, from 1, in messages.
    pub(crate) fn process_name(&self, number: u64) -> String {
        let name = self.name();
        if self.processes > 1 { format!("process {number} of {name}") } else { name }
    }
}
