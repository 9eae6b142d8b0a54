//! The log writer: receives lines from the workers and writes the access logs, so that no worker ever waits for the disk of a
//! log.
//!
//! It opens its files once, before it gives up root's rights and becomes a user of its own, and can open nothing later. To
//! reopen the files, the supervisor starts another one.

mod output;

use std::io;
use std::time::SystemTime;

use flash_prompt::OwnedFd;
use flash_prompt::channel;
use flash_prompt::clock;
use flash_prompt::epoll::{Epoll, Watch};
use flash_waiting::sandbox::calls::CallList;
use flash_worker::control::{Notice, Order};
use flash_worker::{BATCH_BYTES_MAX, lines_of_log};

use crate::config::Settings;
use crate::control::Control;
use crate::rotation::Rotation;
use crate::sandbox::{self, Role};
pub(crate) use output::{Output, open};

/// Messages taken from one worker before the next has its turn.
const MESSAGES_PER_TURN_MAX: usize = 64;
/// The time after which other files are wanted again.
const WANT_AGAIN_MS: u64 = 60_000;
/// The same if a syslog has gone.
const WANT_SYSLOG_AGAIN_MS: u64 = 5_000;

struct LogWriter {
    outputs: Vec<Output>,
    rotation: Option<Rotation>,
    control: Control,
    /// When another log writer was last wanted.
    wanted_ms: Option<u64>,
}

/// Writes lines until it is told to drain and every worker's channel has ended.
pub(crate) fn run(control: OwnedFd, settings: &Settings, outputs: Vec<Output>) -> io::Result<()> {
    let mut epoll = Epoll::new(64)?;
    let control = Control::watch(control, &epoll)?;
    let mut writer = LogWriter { outputs, rotation: Rotation::of(settings), control, wanted_ms: None };
    let in_force = sandbox::close(Role::Log, settings, &[], CallList::Log)?;
    writer.control.ready(in_force)?;
    writer.check_period();
    let mut workers: Vec<Option<OwnedFd>> = Vec::new();
    let mut buffer = vec![0; BATCH_BYTES_MAX];
    let mut draining = false;
    loop {
        let ready: Vec<u64> = epoll.wait(None)?.map(|ready| ready.token).collect();
        for token in ready {
            if token == Control::TOKEN {
                match writer.control.receive()? {
                    Some(Order::Log(channel)) => {
                        channel::set_nonblocking(&channel)?;
                        epoll.add(&channel, workers.len() as u64, Watch::Input)?;
                        workers.push(Some(channel));
                    }
                    Some(Order::Drain) => draining = true,
                    _ => {}
                }
            } else if let Some(place) = workers.get_mut(token as usize)
                && let Some(channel) = place
                && !writer.copy(channel, &mut buffer)
            {
                *place = None;
            }
        }
        if draining && workers.iter().all(Option::is_none) {
            return Ok(());
        }
    }
}

impl LogWriter {
    /// Reports that periods have no end where files have no beginning.
    fn check_period(&mut self) {
        let has_period = self.rotation.is_some_and(|rotation| rotation.has_period());
        if has_period && self.outputs.iter().any(Output::lacks_beginning) {
            let why = "the file system of an access log does not keep when files were created; log_rotate_age has no effect there";
            self.control.report(why.to_owned());
        }
    }

    /// Asks for a log writer that begins another file or finds another syslog, if it is time. This one goes on until that is ready.
    fn want_next(&mut self, number: usize) {
        let output = &self.outputs[number];
        let again_ms = if output.has_lost_syslog() {
            WANT_SYSLOG_AGAIN_MS
        } else if self.rotation.is_some_and(|rotation| output.is_due(rotation, SystemTime::now())) {
            WANT_AGAIN_MS
        } else {
            return;
        };
        let now_ms = clock::monotonic_ms();
        if self.wanted_ms.is_none_or(|ms| now_ms >= ms + again_ms) {
            self.wanted_ms = Some(now_ms);
            self.control.send(&Notice::WantRotation);
        }
    }

    /// Writes the lines of a worker; false if the worker is gone.
    fn copy(&mut self, channel: &OwnedFd, buffer: &mut [u8]) -> bool {
        for _ in 0..MESSAGES_PER_TURN_MAX {
            match channel::recv(channel, buffer, &mut Vec::new()) {
                Ok(0) => return false,
                Ok(length) => {
                    let Some((number, lines)) = lines_of_log(&buffer[..length]) else { return false };
                    let number = usize::from(number);
                    let Some(output) = self.outputs.get_mut(number) else { return false };
                    if let Some(report) = output.write(lines) {
                        self.control.report(report);
                    }
                    self.want_next(number);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
        true
    }
}
