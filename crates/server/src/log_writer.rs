//! The log writer: receives lines from the workers and writes the access log, so that no worker ever waits for the log's
//! disk.
//!
//! It opens its file once, before it gives up root's rights and becomes a user of its own, and can open nothing later. To
//! reopen the file, the supervisor starts another one.

use std::fs::File;
use std::io::{self, Write};
use std::time::SystemTime;

use flash_prompt::epoll::{Epoll, Watch};
use flash_prompt::{AsFd, OwnedFd};
use flash_prompt::{channel, clock};
use flash_waiting::guarded::GuardedFile;
use flash_waiting::sandbox::calls::CallList;

use crate::config::Settings;
use crate::control::Control;
use crate::rotation::{LogFile, Rotation};
use crate::sandbox::{self, Role};
use flash_worker::BATCH_BYTES_MAX;
use flash_worker::control::{Notice, Order};

/// Messages taken from one worker before the next has its turn.
const MESSAGES_PER_TURN_MAX: usize = 64;
/// The time after which another file is wanted again.
const WANT_AGAIN_MS: u64 = 60_000;

struct LogWriter {
    out: Box<dyn Write>,
    control: Control,
    /// The limits of the file, and the file.
    rotation: Option<(Rotation, LogFile)>,
    /// When another log writer was last wanted.
    wanted_ms: Option<u64>,
    failing: bool,
    /// Lines lost since the last successful write.
    lost: usize,
    /// The rest of a partly written line: it is written before all others, so that no line is torn.
    rest: Vec<u8>,
}

/// Opens the access log, with the rights of the supervisor. A file that has reached its limits is renamed before.
///
/// Errors: with the path and the reason.
pub(crate) fn open(settings: &Settings) -> io::Result<File> {
    // Without a buffer, so that the number of written bytes is known.
    let Some(path) = &settings.log_file else {
        return Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?));
    };
    let open = || {
        let place = GuardedFile::find(path)?;
        let file = File::from(place.append()?);
        let Some(rotation) = Rotation::of(settings) else { return Ok(file) };
        if !rotation.is_due(LogFile::of(&file.metadata()?), SystemTime::now()) {
            return Ok(file);
        }
        place.rotate(rotation.keep)?;
        place.append().map(File::from)
    };
    open().map_err(|e: io::Error| {
        io::Error::new(e.kind(), format!("cannot open the access log {}: {e}", path.display()))
    })
}

/// Writes lines until it is told to drain and every worker's channel has ended.
pub(crate) fn run(control: OwnedFd, settings: &Settings, out: File) -> io::Result<()> {
    let mut epoll = Epoll::new(64)?;
    let rotation = Rotation::of(settings).filter(|_| settings.log_file.is_some());
    let rotation =
        rotation.map(|own| Ok::<_, io::Error>((own, LogFile::of(&out.metadata()?)))).transpose()?;
    let mut writer = LogWriter::new(Box::new(out), Control::watch(control, &epoll)?, rotation);
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
    fn new(out: Box<dyn Write>, control: Control, rotation: Option<(Rotation, LogFile)>) -> Self {
        Self { out, control, rotation, wanted_ms: None, failing: false, lost: 0, rest: Vec::new() }
    }

    /// Reports that periods have no end where files have no beginning.
    fn check_period(&mut self) {
        if let Some((rotation, LogFile { created: None, .. })) = self.rotation
            && rotation.has_period()
        {
            let why = "the file system of the access log does not keep when files were created; log_rotate_age has no effect";
            self.control.report(why.to_owned());
        }
    }

    /// Asks for a log writer that begins another file, if it is time. This one goes on until that is ready.
    fn want_next(&mut self, written: usize) {
        let Some((rotation, file)) = &mut self.rotation else { return };
        file.length_bytes += written as u64;
        if !rotation.is_due(*file, SystemTime::now()) {
            return;
        }
        let now_ms = clock::monotonic_ms();
        if self.wanted_ms.is_none_or(|ms| now_ms >= ms + WANT_AGAIN_MS) {
            self.wanted_ms = Some(now_ms);
            self.control.send(&Notice::WantRotation);
        }
    }

    /// Writes the lines of a worker; false if the worker is gone.
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
        let rest = std::mem::take(&mut self.rest);
        let (done, result) = write_some(&mut self.out, &rest);
        if let Err(e) = result {
            self.rest = rest[done..].to_vec();
            return self.lose(lines, &e);
        }
        let (done, result) = write_some(&mut self.out, lines);
        self.want_next(done);
        match result {
            Ok(()) if !self.failing => {}
            Ok(()) => {
                self.control
                    .report(format!("the access log is writable again; {} lines were lost", self.lost));
                (self.failing, self.lost) = (false, 0);
            }
            Err(e) => {
                let (written, left) = lines.split_at(done);
                let is_torn = written.last().is_some_and(|byte| *byte != b'\n');
                let end = left.iter().position(|byte| *byte == b'\n').map_or(left.len(), |end| end + 1);
                let (rest, lost) = left.split_at(if is_torn { end } else { 0 });
                self.rest = rest.to_vec();
                self.lose(lost, &e);
            }
        }
    }

    fn lose(&mut self, lines: &[u8], error: &io::Error) {
        // Reported once, not for every line.
        if !std::mem::replace(&mut self.failing, true) {
            self.control.report(format!(
                "cannot write the access log: {error}; log lines are lost until it is writable"
            ));
        }
        self.lost += lines.iter().filter(|byte| **byte == b'\n').count();
    }
}

/// Writes as much as possible; returns the number of bytes, and the error that ended it.
fn write_some(out: &mut dyn Write, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut done = 0;
    while done < bytes.len() {
        match out.write(&bytes[done..]) {
            Ok(0) => return (done, Err(io::ErrorKind::WriteZero.into())),
            Ok(written) => done += written,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return (done, Err(e)),
        }
    }
    (done, Ok(()))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;
    use flash_worker::control::{CHANNEL_BYTES, receive_notice};

    /// A disk with this many free bytes, and its contents.
    #[derive(Clone, Default)]
    struct Disk(Rc<RefCell<(usize, Vec<u8>)>>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (room, content) = &mut *self.0.borrow_mut();
            let length = bytes.len().min(*room);
            if length == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            *room -= length;
            content.extend_from_slice(&bytes[..length]);
            Ok(length)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_that_was_torn_is_finished_first() {
        let (ours, theirs) = channel::pair(CHANNEL_BYTES).expect("a pair");
        let (disk, epoll) = (Disk::default(), Epoll::new(1).expect("an epoll"));
        let mut writer =
            LogWriter::new(Box::new(disk.clone()), Control::watch(ours, &epoll).expect("watched"), None);
        let mut give = |room: usize, lines: &str| {
            disk.0.borrow_mut().0 = room;
            writer.write(lines.as_bytes());
            String::from_utf8(disk.0.borrow().1.clone()).expect("text")
        };
        assert_eq!(give(8, "one\ntwo\nthree\n"), "one\ntwo\n", "full between two lines");
        assert_eq!(give(2, "four\nfive\n"), "one\ntwo\nfo");
        assert_eq!(give(0, "six\n"), "one\ntwo\nfo");
        assert_eq!(give(1, "seven\n"), "one\ntwo\nfou");
        assert_eq!(give(100, "eight\n"), "one\ntwo\nfour\neight\n");
        let Ok(Notice::Report(first)) = receive_notice(&theirs) else { panic!("no report") };
        let Ok(Notice::Report(second)) = receive_notice(&theirs) else { panic!("one report only") };
        assert!(first.contains("cannot write the access log"), "{first}");
        assert!(second.contains("writable again; 4 lines were lost"), "{second}");
    }
}
