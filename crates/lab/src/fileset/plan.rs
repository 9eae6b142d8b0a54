//! Which files a set has: their paths, lengths and origin, and the manifest that lists them.
//!
//! `flash fileset` makes a plan and carries it out. It reads the trace, if there is one, and writes
//! nothing.

use std::path::Path;

use super::layout::{self, DIRECTORIES_MAX, DIRECTORY_BYTES, FILES_PER_DIRECTORY};
use super::{Amount, Set};
use crate::error::{Error, Result};
use crate::workload::catalogue::{Catalogue, Listed};
use crate::workload::manifest_head;
use crate::workload::trace::Trace;

/// Files in a folder of a set for a trace.
const FILES_PER_FOLDER: usize = 1000;

/// A set that is to be.
pub(super) struct Plan {
    head: String,
    files: Catalogue,
    /// The path that the trace has for each file; empty for SPECweb99.
    originals: Vec<Box<str>>,
    words: String,
}

impl Plan {
    /// The set with contents by `seed`. What is odd in a trace goes to standard error.
    ///
    /// Errors: usage, for an impossible amount; those of [`Trace::read`] and [`Trace::truncate`].
    pub(super) fn new(set: &Set, seed: u64) -> Result<Self> {
        match set {
            Set::Specweb99(amount) => Self::specweb99(*amount, seed),
            Set::Trace { file, dataset_bytes } => Self::trace(file, *dataset_bytes, seed),
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
        let words = format!(
            "{directories} directories, {} files, {} bytes",
            directories * u64::from(FILES_PER_DIRECTORY),
            directories * DIRECTORY_BYTES
        );
        let files = Catalogue::specweb99(directories as u32, Some(seed));
        Ok(Self { head: manifest_head("specweb99", seed), files, originals: Vec::new(), words })
    }

    fn trace(file: &Path, dataset_bytes: Option<u64>, seed: u64) -> Result<Self> {
        let mut trace = Trace::read(file, None)?;
        for warning in trace.warnings() {
            eprintln!("warning: {warning}");
        }
        if let Some(dataset_bytes) = dataset_bytes {
            trace.truncate(dataset_bytes)?;
        }
        let listed = |(number, file): (usize, &Listed)| Listed {
            path: format!("/t/{:03}/{number:06}", number / FILES_PER_FOLDER).into_boxed_str(),
            file_bytes: Some(file.file_bytes.unwrap_or(0)),
        };
        let files: Vec<_> = trace.files().iter().enumerate().map(listed).collect();
        let bytes = files.iter().filter_map(|file| file.file_bytes).fold(0, u64::saturating_add);
        let words = format!("{} files, {bytes} bytes, for {} requests", files.len(), trace.len());
        Ok(Self {
            head: manifest_head("trace", seed),
            files: Catalogue::listed(files),
            originals: trace.files().iter().map(|file| file.path.clone()).collect(),
            words,
        })
    }

    /// How many files there are.
    pub(super) fn len(&self) -> u32 {
        self.files.len()
    }

    /// How large the set is, in words.
    pub(super) fn words(&self) -> &str {
        &self.words
    }

    /// The length of a file.
    pub(super) fn file_bytes(&self, path_id: u32) -> u64 {
        self.files.file_bytes(path_id).unwrap_or(0)
    }

    /// The path of a file under the folder of the set.
    pub(super) fn path(&self, path_id: u32) -> String {
        let mut path = Vec::new();
        self.files.write_path(path_id, &mut path);
        String::from_utf8_lossy(&path).trim_start_matches('/').to_owned()
    }

    /// The first line of the manifest.
    pub(super) fn head(&self) -> &str {
        &self.head
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
