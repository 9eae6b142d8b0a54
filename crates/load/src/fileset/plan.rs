//! Which files a set has: their paths, lengths and origin, and the manifest that lists them.
//!
//! `flash fileset` makes a plan and carries it out. It reads the log, if there is one, and writes
//! nothing.

use std::path::Path;

use super::{Amount, Set};
use crate::files::heavy_tail::Trace;
use crate::files::layout::{self, DIRECTORIES_MAX, DIRECTORY_BYTES, FILES_PER_DIRECTORY};
use crate::workload::access_log::AccessLog;
use crate::workload::catalogue::{Catalogue, Listed};
use crate::workload::manifest_head;
use flash_kit::number::size;
use flash_kit::{Error, Result};

/// Files in a folder of a set for a log.
const FILES_PER_FOLDER: usize = 1000;

/// The most files with a heavy tail: the names have room for these.
const PARETO_FILES_MAX: f64 = 999_999.0;

/// A set that is to be.
pub(super) struct Plan {
    pub(super) head: String,
    files: Catalogue,
    /// The path that the log has for each file; empty for other sets.
    originals: Vec<Box<str>>,
    pub(super) summary: String,
}

impl Plan {
    /// The set with contents by `seed`. Odd lines of a log are reported on standard error.
    ///
    /// Errors: usage, for an impossible amount; those of [`AccessLog::read`] and [`AccessLog::truncate`].
    pub(super) fn new(set: &Set, seed: u64) -> Result<Self> {
        match set {
            Set::Specweb99(amount) => Self::specweb99(*amount, seed),
            Set::Pareto { set_bytes, trace } => Self::pareto(*set_bytes, *trace, seed),
            Set::Log { file, dataset_bytes } => Self::log(file, *dataset_bytes, seed),
        }
    }

    fn specweb99(amount: Amount, seed: u64) -> Result<Self> {
        let directories = match amount {
            Amount::Bytes(set_bytes) => layout::directories_for(set_bytes),
            Amount::Directories(directories) => u64::from(directories),
        };
        if directories == 0 || directories > u64::from(DIRECTORIES_MAX) {
            return Err(Error::usage(format!(
                "cannot make {directories} directories: 1 to {DIRECTORIES_MAX} are possible"
            )));
        }
        let summary = format!(
            "{directories} directories, {} files, {}",
            directories * u64::from(FILES_PER_DIRECTORY),
            size((directories * DIRECTORY_BYTES) as f64)
        );
        let files = Catalogue::specweb99(directories as u32, Some(seed));
        Ok(Self { head: manifest_head("specweb99", seed), files, originals: Vec::new(), summary })
    }

    fn pareto(set_bytes: u64, trace: Trace, seed: u64) -> Result<Self> {
        let lengths = trace.lengths();
        let count = (set_bytes as f64 / lengths.mean_bytes()).round();
        if !(1.0..=PARETO_FILES_MAX).contains(&count) {
            return Err(Error::usage(format!(
                "cannot make {count} files with a heavy tail, of {:.0} bytes on average: 1 to {PARETO_FILES_MAX} are possible",
                lengths.mean_bytes()
            )));
        }
        let listed = |(number, file_bytes): (usize, u64)| Listed {
            path: numbered('p', number),
            file_bytes: Some(file_bytes),
        };
        let files: Vec<_> = lengths.lengths_bytes(count as u32).into_iter().enumerate().map(listed).collect();
        let bytes: u64 = files.iter().filter_map(|file| file.file_bytes).sum();
        let summary = format!("{} files with a heavy tail, {}", files.len(), size(bytes as f64));
        let files = Catalogue::listed(files);
        Ok(Self { head: manifest_head("pareto", seed), files, originals: Vec::new(), summary })
    }

    fn log(file: &Path, dataset_bytes: Option<u64>, seed: u64) -> Result<Self> {
        let mut log = AccessLog::read(file, None)?;
        for warning in log.warnings() {
            eprintln!("warning: {warning}");
        }
        if let Some(dataset_bytes) = dataset_bytes {
            log.truncate(dataset_bytes)?;
        }
        let listed = |(number, file): (usize, &Listed)| Listed {
            path: numbered('t', number),
            file_bytes: Some(file.file_bytes.unwrap_or(0)),
        };
        let files: Vec<_> = log.files().iter().enumerate().map(listed).collect();
        let bytes = files.iter().filter_map(|file| file.file_bytes).fold(0, u64::saturating_add);
        let summary = format!("{} files, {}, for {} requests", files.len(), size(bytes as f64), log.len());
        Ok(Self {
            head: manifest_head("log", seed),
            files: Catalogue::listed(files),
            originals: log.files().iter().map(|file| file.path.clone()).collect(),
            summary,
        })
    }

    pub(super) fn len(&self) -> u32 {
        self.files.len()
    }

    pub(super) fn file_bytes(&self, path_id: u32) -> u64 {
        self.files.file_bytes(path_id).unwrap_or(0)
    }

    /// The path of a file under the folder of the set.
    pub(super) fn path(&self, path_id: u32) -> String {
        let mut path = Vec::new();
        self.files.write_path(path_id, &mut path);
        String::from_utf8_lossy(&path).trim_start_matches('/').to_owned()
    }

    /// The manifest. A larger set of the same kind begins with it.
    pub(super) fn manifest(&self) -> String {
        let mut text = self.head.clone() + "\n";
        for path_id in 0..self.len() {
            text += &format!("{} {}", self.path(path_id), self.file_bytes(path_id));
            if let Some(original) = self.originals.get(path_id as usize) {
                text.push(' ');
                text += original;
            }
            text.push('\n');
        }
        text
    }
}

/// The path of a file of a set that numbers its files.
fn numbered(folder: char, number: usize) -> Box<str> {
    format!("/{folder}/{:03}/{number:06}", number / FILES_PER_FOLDER).into_boxed_str()
}
