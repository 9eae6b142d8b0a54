//! The programs that Flash starts to answer the requests of a route (`app`, `cgi`).
//!
//! `config::file` reads them, `config::route_checks` checks them, and the supervisor starts them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The directories in which a program without a slash in its name is looked for.
pub(crate) const DIRECTORIES: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The processes of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runs {
    /// This command, for any number of requests in FastCGI.
    App(Vec<String>),
    /// The programs in this directory, one process per request (RFC 3875).
    Cgi(PathBuf),
}
