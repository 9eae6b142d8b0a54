//! The file of records: one for each phase, so that anyone can compute what the report does not.
//!
//! Commands give a [`Writer`] to the load, reports and other programs read the file. It is the only
//! part of the lab that knows the layout, which is:
#![doc = include_str!("../../../../docs/records.md")]

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::{Outcome, Record};
use crate::workload::Catalogue;
use flash_kit::{Error, Result};

const MAGIC: [u8; 8] = *b"flashrec";
/// The form of the file; a change that old readers would misread raises it.
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 32;
pub const RECORD_BYTES: usize = 58;
/// Records that are encoded between two writes: some 60 KB.
const RECORDS_PER_WRITE: usize = 1024;

/// Writes the records of one phase, from any thread.
///
/// It never fails: after the first error it keeps the reason and counts what is lost, so that a
/// full disk does not end a run. The file then ends with its last whole record.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// None after an error.
    file: Option<File>,
    buffer: Vec<u8>,
    kept: Kept,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    pub records: u64,
    /// Records that are not.
    pub lost: u64,
    /// Why, in words that name the file.
    pub why: Option<String>,
}

impl Writer {
    /// Begins a file at `path` for a phase that started at `started`; what was there is gone.
    pub fn create(path: &Path, started: SystemTime) -> Self {
        let mut inner = Inner { file: None, buffer: Vec::new(), kept: Kept::default() };
        match File::create(path).and_then(|mut file| file.write_all(&header(started)).map(|()| file)) {
            Ok(file) => inner.file = Some(file),
            Err(why) => inner.kept.why = Some(cannot("create", path, &why)),
        }
        Self { path: path.to_owned(), inner: Mutex::new(inner) }
    }

    /// Appends records. They are in the file when it returns, or counted as lost.
    pub fn append(&self, records: &[Record]) {
        let mut inner = self.lock();
        for chunk in records.chunks(RECORDS_PER_WRITE) {
            inner.append(chunk, &self.path);
        }
    }

    /// The records kept so far, and the first error; after [`Writer::create`] it says whether there is
    /// a file at all.
    pub fn kept(&self) -> Kept {
        self.lock().kept.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A thread that panicked here left whole records or a reason.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn append(&mut self, records: &[Record], path: &Path) {
        let Some(file) = &mut self.file else {
            self.kept.lost += records.len() as u64;
            return;
        };
        self.buffer.clear();
        for record in records {
            self.buffer.extend_from_slice(&encode(record));
        }
        let (written_bytes, result) = write_some(file, &self.buffer);
        let whole = written_bytes / RECORD_BYTES;
        self.kept.records += whole as u64;
        self.kept.lost += (records.len() - whole) as u64;
        if let Err(why) = result {
            self.kept.why = Some(cannot("write", path, &why));
            // Readers do without this, and a pipe can't: nothing more can be done.
            let _ = file.set_len(HEADER_BYTES as u64 + self.kept.records * RECORD_BYTES as u64);
            self.file = None;
        }
    }
}

fn cannot(doing: &str, path: &Path, why: &io::Error) -> String {
    Error::file(doing, path, why).to_string()
}

/// Writes as much as it can; gives how many bytes that was.
fn write_some(file: &mut impl Write, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < bytes.len() {
        match file.write(&bytes[written..]) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return (written, Err(why)),
        }
    }
    (written, Ok(()))
}

fn header(started: SystemTime) -> [u8; HEADER_BYTES] {
    let started_ns = started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let mut bytes = [0; HEADER_BYTES];
    bytes[0..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&(HEADER_BYTES as u32).to_le_bytes());
    bytes[16..20].copy_from_slice(&(RECORD_BYTES as u32).to_le_bytes());
    bytes[24..32].copy_from_slice(&started_ns.to_le_bytes());
    bytes
}

fn encode(record: &Record) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    let longs = [
        record.intended_ns,
        record.begun_ns,
        record.connected_ns,
        record.first_byte_ns,
        record.last_byte_ns,
        record.body_bytes,
    ];
    for (place, long) in bytes.chunks_exact_mut(8).zip(longs) {
        place.copy_from_slice(&long.to_le_bytes());
    }
    bytes[48..52].copy_from_slice(&record.path_id.to_le_bytes());
    bytes[52..54].copy_from_slice(&record.status.to_le_bytes());
    bytes[54..58].copy_from_slice(&[record.outcome as u8, record.flags, record.tries, record.thread]);
    bytes
}

/// None when the outcome has a number that there is not.
fn decode(bytes: &[u8; RECORD_BYTES]) -> Option<Record> {
    let long = |at: usize| bytes[at..].first_chunk().copied().map_or(0, u64::from_le_bytes);
    let [outcome, flags, tries, thread] = *bytes.last_chunk()?;
    Some(Record {
        intended_ns: long(0),
        begun_ns: long(8),
        connected_ns: long(16),
        first_byte_ns: long(24),
        last_byte_ns: long(32),
        body_bytes: long(40),
        path_id: bytes[48..].first_chunk().copied().map_or(0, u32::from_le_bytes),
        status: bytes[52..].first_chunk().copied().map_or(0, u16::from_le_bytes),
        outcome: Outcome::ALL.get(usize::from(outcome))?.0,
        flags,
        tries,
        thread,
    })
}

/// Reads a file of records, one after the other. A last record that was cut short is left out.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    started_ns: u64,
    file: BufReader<File>,
    read: u64,
    over: bool,
}

impl Reader {
    /// Opens the file and reads its header.
    ///
    /// Errors: run, for a file that can't be read, is no file of records, or is of a form that this
    /// program does not know.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|why| Error::file("open", path, &why))?;
        let mut file = BufReader::with_capacity(RECORD_BYTES * RECORDS_PER_WRITE, file);
        let header = read_some(&mut file, HEADER_BYTES).map_err(|why| Error::file("read", path, &why))?;
        let wrong = |what: String| Err(Error::run(format!("{}: {what}", path.display())));
        if !header.starts_with(&MAGIC) {
            return wrong("no file of records of flash: it does not begin with 'flashrec'".to_owned());
        }
        if header.len() < HEADER_BYTES {
            return wrong(format!("cut short in its header: {} of {HEADER_BYTES} bytes", header.len()));
        }
        let word = |at: usize| header[at..].first_chunk().copied().map_or(0, u32::from_le_bytes);
        let form = (word(8), word(12) as usize, word(16) as usize);
        if form != (VERSION, HEADER_BYTES, RECORD_BYTES) {
            return wrong(format!(
                "records of form {}, {} bytes each: this program reads form {VERSION}, {RECORD_BYTES} bytes \
                 each; use the one that wrote them",
                form.0, form.2
            ));
        }
        let started_ns = header[24..].first_chunk().copied().map_or(0, u64::from_le_bytes);
        Ok(Self { path: path.to_owned(), started_ns, file, read: 0, over: false })
    }

    /// When the phase began, nanoseconds since 1970-01-01 00:00 UTC.
    pub fn started_ns(&self) -> u64 {
        self.started_ns
    }

    fn next_record(&mut self) -> Result<Option<Record>> {
        let bytes =
            read_some(&mut self.file, RECORD_BYTES).map_err(|why| Error::file("read", &self.path, &why))?;
        let Ok(bytes) = bytes.as_slice().try_into() else { return Ok(None) };
        let record = decode(bytes).ok_or_else(|| {
            Error::run(format!(
                "{}: record {} has outcome {}, which there is not: the file is damaged",
                self.path.display(),
                self.read,
                bytes[54]
            ))
        })?;
        self.read += 1;
        Ok(Some(record))
    }
}

impl Iterator for Reader {
    type Item = Result<Record>;

    /// The next record. After an error there is none.
    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let next = self.next_record().transpose();
        self.over = !matches!(next, Some(Ok(_)));
        next
    }
}

/// The next `count` bytes, or as many as there are.
fn read_some(file: &mut impl Read, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(count);
    file.take(count as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// All records of a file, at most `records_max` (64 bytes of memory each).
///
/// Errors: those of [`Reader`]; run, when there are more.
pub fn read_all(path: &Path, records_max: usize) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for record in Reader::open(path)? {
        if records.len() == records_max {
            return Err(Error::run(format!(
                "{} has more than {records_max} records: read it piece by piece",
                path.display()
            )));
        }
        records.push(record?);
    }
    Ok(records)
}

/// The numbers of the files that were asked for, for `paths.txt` beside the records.
#[derive(Clone, Debug)]
pub struct PathsSeen(Vec<bool>);

impl PathsSeen {
    /// None yet of the files of `catalogue`.
    pub fn new(catalogue: &Catalogue) -> Self {
        Self(vec![false; catalogue.path_ids_end() as usize])
    }

    /// Takes note of the files that these records are of.
    pub fn note(&mut self, records: &[Record]) {
        for record in records {
            if let Some(seen) = self.0.get_mut(record.path_id as usize) {
                *seen = true;
            }
        }
    }

    /// Writes a line for each file: its number, its path, its length in bytes or `-` if that is not
    /// known. An existing file is replaced. The catalogue is the one of [`PathsSeen::new`].
    ///
    /// Errors: run, when it can't be written.
    pub fn write(&self, path: &Path, catalogue: &Catalogue) -> Result<()> {
        let written = || -> io::Result<()> {
            let mut file = BufWriter::new(File::create(path)?);
            let mut line = Vec::new();
            let seen = (0..catalogue.path_ids_end()).zip(&self.0).filter(|(_, seen)| **seen);
            for (id, _) in seen {
                line.clear();
                write!(line, "{id} ")?;
                catalogue.write_path(id, &mut line);
                match catalogue.file_bytes(id) {
                    Some(bytes) => writeln!(line, " {bytes}")?,
                    None => writeln!(line, " -")?,
                }
                file.write_all(&line)?;
            }
            file.flush()
        };
        written().map_err(|why| Error::file("write", path, &why))
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
