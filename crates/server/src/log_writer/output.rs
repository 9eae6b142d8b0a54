//! One output of the log writer: a file, standard output, or a syslog.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::SystemTime;

use flash_prompt::AsFd;
use flash_waiting::guarded::GuardedFile;

use crate::config::{LogOutput, Settings};
use crate::rotation::{LogFile, Rotation};

/// The priority of a line: facility local7, severity info (RFC 5424, section 6.2.1), as nginx has it.
const SYSLOG_HEAD: &[u8] = b"<190>flash: ";

/// An output, with what a failing disk leaves to be done.
pub(crate) struct Output {
    out: Box<dyn Write>,
    kind: Kind,
    /// Its path, for messages; empty for standard output.
    name: String,
    failing: bool,
    /// Lines lost since the last successful write.
    lost: usize,
    /// The rest of a partly written line: it is written before all others, so that no line is torn.
    rest: Vec<u8>,
}

enum Kind {
    File(LogFile),
    Stdout,
    Syslog,
}

/// Opens the access logs, with the rights of the supervisor. A file that has reached its limits is renamed before.
///
/// Errors: with the path and the reason.
pub(crate) fn open(settings: &Settings) -> io::Result<Vec<Output>> {
    let rotation = Rotation::of(settings);
    let logs = settings.logs().into_iter().map(|log| match log {
        LogOutput::File(path) => named(path, Output::file(path, rotation)),
        LogOutput::Syslog(path) => named(path, Output::syslog(path)),
        LogOutput::Stdout | LogOutput::Off => {
            // Without a buffer, so that the number of written bytes is known.
            let out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
            Ok(Output::new(Box::new(out), Kind::Stdout, String::new()))
        }
    });
    logs.collect()
}

fn named<T>(path: &Path, opened: io::Result<T>) -> io::Result<T> {
    opened
        .map_err(|e| io::Error::new(e.kind(), format!("cannot open the access log {}: {e}", path.display())))
}

impl Output {
    fn new(out: Box<dyn Write>, kind: Kind, name: String) -> Self {
        Self { out, kind, name, failing: false, lost: 0, rest: Vec::new() }
    }

    fn syslog(path: &Path) -> io::Result<Self> {
        let socket = File::from(GuardedFile::connect(path)?);
        let name = format!(" {}", path.display());
        Ok(Self::new(Box::new(Syslog { socket, message: Vec::new() }), Kind::Syslog, name))
    }

    fn file(path: &Path, rotation: Option<Rotation>) -> io::Result<Self> {
        let name = format!(" {}", path.display());
        let place = GuardedFile::find(path)?;
        let mut file = File::from(place.append()?);
        let mut found = LogFile::of(&file.metadata()?);
        if let Some(rotation) = rotation.filter(|rotation| rotation.is_due(found, SystemTime::now())) {
            place.rotate(rotation.keep)?;
            file = File::from(place.append()?);
            found = LogFile::of(&file.metadata()?);
        }
        Ok(Self::new(Box::new(file), Kind::File(found), name))
    }

    /// Whether it is a file of which nobody knows when it was begun.
    pub(super) fn lacks_beginning(&self) -> bool {
        matches!(self.kind, Kind::File(LogFile { created: None, .. }))
    }

    /// Whether it is a file that has reached its limits.
    pub(super) fn is_due(&self, rotation: Rotation, now: SystemTime) -> bool {
        matches!(self.kind, Kind::File(file) if rotation.is_due(file, now))
    }

    /// Whether it is a syslog that takes no lines.
    pub(super) fn has_lost_syslog(&self) -> bool {
        self.failing && matches!(self.kind, Kind::Syslog)
    }

    /// Writes lines. Returns a report if it begins or ceases to fail.
    pub(super) fn write(&mut self, lines: &[u8]) -> Option<String> {
        let rest = std::mem::take(&mut self.rest);
        let (done, result) = write_some(&mut self.out, &rest);
        if let Err(e) = result {
            self.rest = rest[done..].to_vec();
            return self.lose(lines, &e);
        }
        let (done, result) = write_some(&mut self.out, lines);
        if let Kind::File(file) = &mut self.kind {
            file.length_bytes += done as u64;
        }
        match result {
            Ok(()) if !self.failing => None,
            Ok(()) => {
                let Self { name, lost, .. } = self;
                let report = format!("the access log{name} is writable again; {lost} lines were lost");
                (self.failing, self.lost) = (false, 0);
                Some(report)
            }
            Err(e) => {
                let (written, left) = lines.split_at(done);
                let is_torn = written.last().is_some_and(|byte| *byte != b'\n');
                let end = left.iter().position(|byte| *byte == b'\n').map_or(left.len(), |end| end + 1);
                let (rest, lost) = left.split_at(if is_torn { end } else { 0 });
                self.rest = rest.to_vec();
                self.lose(lost, &e)
            }
        }
    }

    /// Counts lines that are lost. It is reported once, not for every line.
    fn lose(&mut self, lines: &[u8], error: &io::Error) -> Option<String> {
        self.lost += lines.iter().filter(|byte| **byte == b'\n').count();
        let is_new = !std::mem::replace(&mut self.failing, true);
        let name = &self.name;
        is_new.then(|| {
            format!("cannot write the access log{name}: {error}; log lines are lost until it is writable")
        })
    }
}

/// A syslog, which gets each line as a message of its own.
struct Syslog {
    socket: File,
    message: Vec<u8>,
}

impl Write for Syslog {
    /// Sends the first line of `bytes`.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let end = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| end + 1);
        self.message.clear();
        self.message.extend_from_slice(SYSLOG_HEAD);
        self.message.extend_from_slice(bytes[..end].strip_suffix(b"\n").unwrap_or(&bytes[..end]));
        // A socket of messages takes all of one or none.
        self.socket.write(&self.message)?;
        Ok(end)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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
    use std::os::unix::net::UnixDatagram;
    use std::rc::Rc;

    use super::*;

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
        let disk = Disk::default();
        let mut output = Output::new(Box::new(disk.clone()), Kind::Stdout, " /l".to_owned());
        let mut reports = Vec::new();
        let mut give = |room: usize, lines: &str| {
            disk.0.borrow_mut().0 = room;
            reports.extend(output.write(lines.as_bytes()));
            String::from_utf8(disk.0.borrow().1.clone()).expect("text")
        };
        assert_eq!(give(8, "one\ntwo\nthree\n"), "one\ntwo\n", "full between two lines");
        assert_eq!(give(2, "four\nfive\n"), "one\ntwo\nfo");
        assert_eq!(give(0, "six\n"), "one\ntwo\nfo");
        assert_eq!(give(1, "seven\n"), "one\ntwo\nfou");
        assert_eq!(give(100, "eight\n"), "one\ntwo\nfour\neight\n");
        let [first, second] = &reports[..] else { panic!("{reports:?}") };
        assert!(first.contains("cannot write the access log /l: "), "{first}");
        assert!(second.contains("/l is writable again; 4 lines were lost"), "{second}");
    }

    #[test]
    fn a_syslog_gets_a_message_for_each_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let syslog = UnixDatagram::bind(&path).expect("a socket");
        let mut output = Output::syslog(&path).expect("an output");
        assert_eq!(output.write(b"one\ntwo\n"), None);
        let mut message = [0; 64];
        for expected in ["<190>flash: one", "<190>flash: two"] {
            let length = syslog.recv(&mut message).expect("a message");
            assert_eq!(String::from_utf8_lossy(&message[..length]), expected);
        }
        drop(syslog);
        let report = output.write(b"three\n").expect("a report");
        assert!(report.contains("cannot write the access log") && output.has_lost_syslog(), "{report}");
    }
}
