//! The live picture of a running server in the terminal of this process. Called by `flash top`.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use flash_waiting::signal::{self, Signals};
use flash_waiting::terminal::{CTRL_C, Terminal, Waited};

use super::ServerStats;
use super::client::{StatsError, fetch};
use super::picture::{Course, picture};

const EVERY: Duration = Duration::from_secs(1);
/// A screen of its own, without a cursor, and the end of both.
const BEGIN: &str = "\x1b[?1049h\x1b[?25l";
const END: &str = "\x1b[?25h\x1b[?1049l";
const FIRST_PLACE: &str = "\x1b[H";
/// Clears what an earlier picture has left on a line, and below.
const REST_OF_LINE: &str = "\x1b[K";
const REST_OF_SCREEN: &str = "\x1b[J";

/// The reason why a picture ends early.
#[derive(Debug)]
pub enum TopError {
    /// The server does not answer.
    Stats(StatsError),
    /// Standard input or standard output is no terminal.
    NoTerminal,
    /// The terminal cannot be used.
    Terminal(io::Error),
}

impl fmt::Display for TopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TopError::Stats(error) => error.fmt(f),
            TopError::NoTerminal => {
                f.write_str("`flash top` needs a terminal; for a pipe or a file use `flash stats --watch`")
            }
            TopError::Terminal(error) => write!(f, "cannot use the terminal: {error}"),
        }
    }
}

impl std::error::Error for TopError {}

impl From<StatsError> for TopError {
    fn from(error: StatsError) -> Self {
        TopError::Stats(error)
    }
}

impl From<io::Error> for TopError {
    fn from(error: io::Error) -> Self {
        TopError::Terminal(error)
    }
}

/// Draws the server whose control socket is at `socket`, every second until the user or a signal ends it.
///
/// # Errors
///
/// As [`TopError`] lists them. The terminal is as it was before.
pub fn top(socket: &Path) -> Result<(), TopError> {
    let before = fetch(socket)?;
    let signals = signal::watch()?;
    let terminal = Terminal::take()?.ok_or(TopError::NoTerminal)?;
    write(BEGIN)?;
    let drawn = draw(socket, (&terminal, &signals), before);
    write(END)?;
    drawn
}

fn draw(
    socket: &Path,
    (terminal, signals): (&Terminal, &Signals),
    mut before: ServerStats,
) -> Result<(), TopError> {
    let mut course = Course::default();
    loop {
        let lines = picture(&before, &course, terminal.size());
        let text = lines.join(&format!("{REST_OF_LINE}\r\n"));
        write(&format!("{FIRST_PLACE}{text}{REST_OF_LINE}{REST_OF_SCREEN}"))?;
        match terminal.wait(signals, EVERY)? {
            Waited::Key(b'q' | b'Q' | CTRL_C) | Waited::Ended => return Ok(()),
            Waited::Key(_) => continue,
            Waited::Passed => {}
        }
        // A server that is being upgraded does not answer for a moment.
        let now = fetch(socket).or_else(|_| {
            std::thread::sleep(EVERY);
            fetch(socket)
        })?;
        course.add(&now, &before);
        before = now;
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
