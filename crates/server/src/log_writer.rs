//! The log writer: takes lines from the workers and writes them to the access log, so that no
//! worker ever waits for the log's disk.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use flash_prompt::OwnedFd;
use flash_prompt::channel;
use flash_prompt::epoll::{Epoll, Watch};
use flash_waiting::file;
use flash_waiting::sandbox::calls::Calls;
use flash_waiting::sandbox::paths::Rights;

use crate::config::Settings;
use crate::sandbox::{self, Role};
use flash_worker::BATCH_BYTES_MAX;
use flash_worker::control::{Notice, Order, receive_order, send_notice};

const CONTROL: u64 = u64::MAX;
/// Messages taken from one worker before the next has its turn.
const MESSAGES_PER_TURN_MAX: usize = 64;

struct LogWriter {
    out: Box<dyn Write>,
    settings: Settings,
    control: OwnedFd,
    /// Lines lost since the last one that could be written.
    lost: usize,
}

/// Writes lines until it is told to drain and every worker's channel has ended.
pub(crate) fn run(control: OwnedFd, settings: &Settings) -> io::Result<()> {
    let mut epoll = Epoll::new(64)?;
    channel::set_nonblocking(&control)?;
    epoll.add(&control, CONTROL, Watch::Input)?;
    let mut writer = LogWriter { out: open(settings)?, settings: settings.clone(), control, lost: 0 };
    let folders = folders(settings)?;
    let folders: Vec<_> = folders.iter().map(|folder| (folder, Rights::Write)).collect();
    let in_force = sandbox::close(Role::Log, settings, &folders, Calls::Log)?;
    send_notice(&writer.control, &Notice::Ready(in_force))?;
    let mut workers: Vec<Option<OwnedFd>> = Vec::new();
    let mut buffer = vec![0; BATCH_BYTES_MAX];
    let mut draining = false;
    loop {
        let ready: Vec<u64> = epoll.wait(None)?.map(|ready| ready.token).collect();
        for token in ready {
            if token == CONTROL {
                match receive_order(&writer.control) {
                    Ok(Order::Log(channel)) => {
                        channel::set_nonblocking(&channel)?;
                        epoll.add(&channel, workers.len() as u64, Watch::Input)?;
                        workers.push(Some(channel));
                    }
                    Ok(Order::Reopen) => writer.reopen(),
                    Ok(Order::Drain) => draining = true,
                    Ok(_) => {}
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    Err(e) => return Err(e),
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
    /// Writes what a worker has sent; false when it is gone.
    fn copy(&mut self, channel: &OwnedFd, buffer: &mut [u8]) -> bool {
        for _ in 0..MESSAGES_PER_TURN_MAX {
            match channel::recv(channel, buffer, &mut Vec::new()) {
                Ok(0) => return false,
                Ok(length) => self.write(&buffer[..length]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
        true
    }

    fn write(&mut self, lines: &[u8]) {
        let result = self.out.write_all(lines).and_then(|()| self.out.flush());
        let count = lines.iter().filter(|byte| **byte == b'\n').count();
        match result {
            Ok(()) if self.lost == 0 => {}
            Ok(()) => {
                self.report(&format!("the access log can be written again; {} lines were lost", self.lost));
                self.lost = 0;
            }
            Err(e) => {
                // Said once, not for every line.
                if self.lost == 0 {
                    self.report(&format!(
                        "cannot write the access log: {e}; lines are lost until it can be written"
                    ));
                }
                self.lost += count;
            }
        }
    }

    fn reopen(&mut self) {
        match open(&self.settings) {
            Ok(out) => self.out = out,
            Err(e) => self.report(&format!("{e}; the access log goes on in the old file")),
        }
    }

    fn report(&self, message: &str) {
        // A supervisor that is gone ends this process anyway.
        let _ = send_notice(&self.control, &Notice::Report(message.to_owned()));
    }
}

/// Where the log file is opened again: its folder, and that of what it is a link to.
fn folders(settings: &Settings) -> io::Result<Vec<OwnedFd>> {
    let Some(path) = &settings.log.file else { return Ok(Vec::new()) };
    let target = path.canonicalize().unwrap_or_else(|_| path.clone());
    [path.as_path(), &target].into_iter().filter_map(Path::parent).map(file::open_folder).collect()
}

fn open(settings: &Settings) -> io::Result<Box<dyn Write>> {
    match &settings.log.file {
        None => Ok(Box::new(io::stdout())),
        Some(path) => {
            let file: File = OpenOptions::new().append(true).create(true).open(path).map_err(|e| {
                io::Error::new(e.kind(), format!("cannot open the access log {}: {e}", path.display()))
            })?;
            Ok(Box::new(file))
        }
    }
}
