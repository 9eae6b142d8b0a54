//! Executes another program in place of the one that runs (execve(2)). The process keeps its number, its children and the
//! descriptors that it leaves to the next program, with a document about them. For an upgrade of the supervisor.

use std::ffi::OsString;
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};

use crate::file;

/// The process and the number of its descriptor of the document: `PID:NUMBER`.
pub(crate) const VARIABLE: &str = "LEFT_BY_FLASH";
/// The first number for descriptors of the next program.
const FIRST: RawFd = 10;

/// Descriptors for the next program. Each has its number in the order of [`Bequest::add`].
#[derive(Debug, Default)]
pub struct Bequest(Vec<OwnedFd>);

impl Bequest {
    /// Adds a copy of a descriptor, and returns its number.
    ///
    /// Errors: `EMFILE`.
    pub fn add(&mut self, descriptor: impl AsFd) -> io::Result<usize> {
        self.0.push(fcntl_dupfd_cloexec(descriptor, FIRST)?);
        Ok(self.0.len() - 1)
    }

    /// Executes a program with the command line and the environment of this one. Returns only if that fails.
    pub fn execute(self, program: &OwnedFd, document: &[u8]) -> io::Error {
        self.try_to_execute(program, document).err().unwrap_or_else(|| io::ErrorKind::Other.into())
    }

    fn try_to_execute(self, program: &OwnedFd, document: &[u8]) -> io::Result<()> {
        let numbers: Vec<String> = self.0.iter().map(|own| own.as_raw_fd().to_string()).collect();
        let text = [numbers.join(" ").as_bytes(), b"\n", document].concat();
        let document = fcntl_dupfd_cloexec(file::memory_file(&text)?, FIRST)?;
        let mut words = env::args_os();
        let name = words.next().unwrap_or_else(|| OsString::from("flash"));
        let mut command = Command::new(path_of(program));
        command.arg0(name).args(words);
        command.env(VARIABLE, format!("{}:{}", std::process::id(), document.as_raw_fd()));
        let all = || self.0.iter().chain([&document]);
        all().try_for_each(|own| fcntl_setfd(own, FdFlags::empty()))?;
        Err(command.exec())
    }
}

/// The path of an open program, for this process and its children until they execute it.
pub(crate) fn path_of(program: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", program.as_raw_fd())
}

/// The document and the descriptors that the last program of this process has left, if there was one. Called once.
///
/// Errors: they are not of the form that [`Bequest::execute`] gives them.
pub fn inherit() -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let Some(document) = env::var(VARIABLE).ok().and_then(|text| number_of_document(&text)) else {
        return Ok(None);
    };
    let mut text = Vec::new();
    let mut document = fs::File::from(take(document)?);
    document.rewind()?;
    document.read_to_end(&mut text)?;
    let invalid =
        || io::Error::new(io::ErrorKind::InvalidData, "the last program has left no valid document");
    let end = text.iter().position(|byte| *byte == b'\n').ok_or_else(invalid)?;
    let numbers = str::from_utf8(&text[..end]).map_err(|_| invalid())?;
    let numbers = numbers.split_whitespace().map(|number| number.parse().map_err(|_| invalid()));
    let descriptors = numbers.map(|number| take(number?)).collect::<io::Result<_>>()?;
    Ok(Some((text.split_off(end + 1), descriptors)))
}

fn number_of_document(text: &str) -> Option<RawFd> {
    let (process, number) = text.split_once(':')?;
    if process.parse() != Ok(std::process::id()) {
        return None;
    }
    number.parse().ok()
}

fn take(number: RawFd) -> io::Result<OwnedFd> {
    if number < FIRST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // SAFETY: the last program has left this descriptor to this one, and no other code owns it: it is not of a standard
    // stream, and all others of this program are made later.
    let own = unsafe { OwnedFd::from_raw_fd(number) };
    fcntl_setfd(&own, FdFlags::CLOEXEC)?;
    Ok(own)
}

/// Opens a program, for [`Bequest::execute`] and [`Subprocess`](crate::subprocess::Subprocess).
///
/// Errors: those of open(2).
pub fn open_program(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}
