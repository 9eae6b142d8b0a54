//! The client of a control socket: asks a running server, and finds the one that runs.

use std::fmt;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flash_waiting::local;

use super::{Answer, Request, ServerStalls, ServerStats, VERSION, place};

/// How long a server may be silent.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest answer that is taken: far more than that of a server with as many workers as it can have.
pub const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Why a server did not tell.
#[derive(Debug)]
pub enum AskError {
    /// It was not reached, or was silent.
    Unreachable {
        /// The socket.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// What it said was not understood.
    Strange {
        /// The socket.
        path: PathBuf,
        /// What was wrong with it.
        why: String,
    },
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AskError::Unreachable { path, why } => {
                let why_and_help = match why.kind() {
                    io::ErrorKind::NotFound => {
                        "no such socket; is the server running, and not with --control none?".to_owned()
                    }
                    io::ErrorKind::ConnectionRefused => {
                        "nobody listens there any more; start the server again".to_owned()
                    }
                    io::ErrorKind::PermissionDenied => {
                        "permission denied; only the user that started the server, or root, may ask"
                            .to_owned()
                    }
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        format!("it did not answer within {PATIENCE:?}; look whether it is stopped")
                    }
                    _ => why.to_string(),
                };
                write!(f, "cannot ask the server at `{}`: {why_and_help}", path.display())
            }
            AskError::Strange { path, why } => {
                write!(f, "cannot understand the server at `{}`: {why}", path.display())
            }
        }
    }
}

impl std::error::Error for AskError {}

/// Asks the server whose control socket is at `path` what it has counted.
///
/// # Errors
///
/// It cannot be reached, does not answer within seconds, or answers what this version does not know.
pub fn ask(path: &Path) -> Result<ServerStats, AskError> {
    answer(path, Request::Stats, |answer| answer.stats)
}

/// Asks it for its last stalls; errors as of [`ask`].
///
/// # Errors
///
/// See there.
pub fn ask_stalls(path: &Path) -> Result<ServerStalls, AskError> {
    answer(path, Request::Stalls, |answer| answer.stalls)
}

fn answer<T>(path: &Path, request: Request, part: impl Fn(Answer) -> Option<T>) -> Result<T, AskError> {
    let strange = |why: String| AskError::Strange { path: path.to_owned(), why };
    let text = exchange(path, request).map_err(|why| AskError::Unreachable { path: path.to_owned(), why })?;
    // Of an answer of another version the rest may mean something else.
    let any: serde_json::Value =
        serde_json::from_slice(&text).map_err(|e| strange(format!("no JSON: {e}")))?;
    if let Some(why) = any.get("error").and_then(serde_json::Value::as_str) {
        return Err(strange(format!("it refused: {why}")));
    }
    if any.get("version").and_then(serde_json::Value::as_u64) != Some(VERSION.into()) {
        return Err(strange("it is of another version of Flash; use that one's `flash stats`".to_owned()));
    }
    let answer: Answer = serde_json::from_value(any).map_err(|e| strange(e.to_string()))?;
    part(answer).ok_or_else(|| strange(format!("an answer without `{}`", request.word())))
}

fn exchange(path: &Path, request: Request) -> io::Result<Vec<u8>> {
    let mut stream = local::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    writeln!(stream, "{}", request.word())?;
    let mut text = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut text)?;
    Ok(text)
}

/// The servers of this user that listen at sockets in their default place, with their processes.
#[must_use]
pub fn find_running() -> Vec<(u32, PathBuf)> {
    place::sockets().into_iter().filter(|(_, path)| matches!(local::is_stale(path), Ok(false))).collect()
}
