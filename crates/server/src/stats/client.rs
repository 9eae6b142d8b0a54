//! The client of a control socket: asks a running server, and finds the servers that run.

use std::fmt;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flash_waiting::local;

use super::{Answer, Request, ServerStalls, ServerStats, UPGRADE, VERSION, socket_path};

/// Maximum time without an answer of the server.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum time of an upgrade: the new version reads the configuration, and its processes start.
const UPGRADE_PATIENCE: Duration = Duration::from_secs(150);
/// Maximum size of an answer: far more than that of a server with the maximum number of workers.
pub const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// The reason why a server did not answer.
#[derive(Debug)]
pub enum StatsError {
    /// The server was not reached, or was silent.
    Unreachable {
        /// The socket.
        path: PathBuf,
        /// Maximum time without an answer.
        patience: Duration,
        /// The error.
        why: io::Error,
    },
    /// The server does not do what was asked.
    Refused {
        /// The socket.
        path: PathBuf,
        /// Its reason.
        why: String,
    },
    /// The answer was not understood.
    Strange {
        /// The socket.
        path: PathBuf,
        /// The error in it.
        why: String,
    },
}

impl fmt::Display for StatsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StatsError::Unreachable { path, patience, why } => {
                let why_and_help = match why.kind() {
                    io::ErrorKind::NotFound => {
                        "no such socket; check that the server runs, and without --control none".to_owned()
                    }
                    io::ErrorKind::ConnectionRefused => "the server has stopped; start it again".to_owned(),
                    io::ErrorKind::PermissionDenied => {
                        "permission denied; only the user who started the server, or root, may connect"
                            .to_owned()
                    }
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        format!("no answer within {patience:?}; check whether the server is suspended")
                    }
                    _ => why.to_string(),
                };
                write!(f, "cannot reach the server at `{}`: {why_and_help}", path.display())
            }
            StatsError::Refused { path, why } => {
                write!(f, "the server at `{}` refused: {why}", path.display())
            }
            StatsError::Strange { path, why } => {
                write!(f, "unexpected answer from the server at `{}`: {why}", path.display())
            }
        }
    }
}

impl std::error::Error for StatsError {}

/// Fetches the counters of the server whose control socket is at `path`.
///
/// # Errors
///
/// The server cannot be reached, does not answer within seconds, or gives an answer that this version does not know.
pub fn fetch(path: &Path) -> Result<ServerStats, StatsError> {
    answer(path, Request::Stats.word(), PATIENCE, |answer| answer.stats)
}

/// Fetches the last stalls of the server.
///
/// # Errors
///
/// As of [`fetch`].
pub fn fetch_stalls(path: &Path) -> Result<ServerStalls, StatsError> {
    answer(path, Request::Stalls.word(), PATIENCE, |answer| answer.stalls)
}

/// Makes the server execute the program that is now at its path. Returns a sentence with both versions.
///
/// # Errors
///
/// As of [`fetch`]; the old version serves on.
pub fn upgrade(path: &Path) -> Result<String, StatsError> {
    answer(path, UPGRADE, UPGRADE_PATIENCE, |answer| answer.upgrade)
}

fn answer<T>(
    path: &Path,
    request: &str,
    patience: Duration,
    part: impl Fn(Answer) -> Option<T>,
) -> Result<T, StatsError> {
    let strange = |why: String| StatsError::Strange { path: path.to_owned(), why };
    let unreachable = |why| StatsError::Unreachable { path: path.to_owned(), patience, why };
    let text = exchange(path, request, patience).map_err(unreachable)?;
    // In an answer of another version the other fields may have other meanings.
    let any: serde_json::Value =
        serde_json::from_slice(&text).map_err(|e| strange(format!("no JSON: {e}")))?;
    if let Some(why) = any.get("error").and_then(serde_json::Value::as_str) {
        return Err(StatsError::Refused { path: path.to_owned(), why: why.to_owned() });
    }
    if any.get("version").and_then(serde_json::Value::as_u64) != Some(VERSION.into()) {
        return Err(strange(
            "it runs another version of Flash; use `flash stats` of that version".to_owned(),
        ));
    }
    let answer: Answer = serde_json::from_value(any).map_err(|e| strange(e.to_string()))?;
    part(answer).ok_or_else(|| strange(format!("the answer has no `{request}`")))
}

fn exchange(path: &Path, request: &str, patience: Duration) -> io::Result<Vec<u8>> {
    let mut stream = local::connect(path)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    writeln!(stream, "{request}")?;
    let mut text = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut text)?;
    Ok(text)
}

/// The running servers of this user with sockets in the default place, with their process IDs.
#[must_use]
pub fn find_running() -> Vec<(u32, PathBuf)> {
    socket_path::sockets()
        .into_iter()
        .filter(|(_, path)| matches!(local::is_stale(path), Ok(false)))
        .collect()
}
