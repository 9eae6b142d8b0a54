//! The terminal of a command that redraws it: its size, and single keys. Called by `flash top`.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use rustix::io::read;
use rustix::stdio::{stdin, stdout};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use crate::signal::Signals;

/// The key that a terminal sends for Ctrl-C while it passes single keys on.
pub const CTRL_C: u8 = 3;

/// A terminal that passes single keys on and does not show them, until this is dropped.
#[derive(Debug)]
pub struct Terminal(Termios);

/// The end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The time is over.
    Passed,
    /// A key was pressed.
    Key(u8),
    /// A signal is pending, or the terminal is gone.
    Ended,
}

impl Terminal {
    /// Takes the terminal of this process; None if standard input or standard output is none.
    ///
    /// Errors: any of tcgetattr(3) and tcsetattr(3).
    pub fn take() -> io::Result<Option<Self>> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(stdin())?;
        let mut keys = before.clone();
        keys.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        tcsetattr(stdin(), OptionalActions::Now, &keys)?;
        Ok(Some(Self(before)))
    }

    /// Its columns and rows.
    pub fn size(&self) -> (usize, usize) {
        match tcgetwinsize(stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
            _ => (80, 24),
        }
    }

    /// Waits for a key or a signal, at most this long.
    pub fn wait(&self, signals: &Signals, patience: Duration) -> io::Result<Waited> {
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let (input, signals) = (stdin(), signals.as_fd());
            let mut ready = [PollFd::new(&input, PollFlags::IN), PollFd::new(&signals, PollFlags::IN)];
            match poll(&mut ready, Some(&left)) {
                Ok(0) => return Ok(Waited::Passed),
                Err(rustix::io::Errno::INTR) => continue,
                result => result?,
            };
            if !ready[1].revents().is_empty() {
                return Ok(Waited::Ended);
            }
            let mut key = [0];
            return match read(stdin(), &mut key)? {
                0 => Ok(Waited::Ended),
                _ => Ok(Waited::Key(key[0])),
            };
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.0);
    }
}
