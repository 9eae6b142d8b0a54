//! The places where a trace goes: files that are checked before it begins, and standard output.
//!
//! `flash trace` and `flash doctor` write with it.

use std::path::{Path, PathBuf};

use flash_kit::{Error, Result};

use crate::model::Trace;

pub(crate) fn json(trace: &Trace) -> String {
    // The data is plain, so this cannot fail.
    let mut text = serde_json::to_string(trace).unwrap_or_default();
    text.push('\n');
    text
}

/// Checks before the recording that the results can be written. An existing file keeps its content until then.
///
/// Errors: run, for a file that cannot be written; usage, for one that is asked for twice.
pub(crate) fn check_places(paths: &[Option<&Path>]) -> Result<()> {
    let mut places: Vec<PathBuf> = Vec::new();
    for path in paths.iter().flatten() {
        let opened = std::fs::OpenOptions::new().append(true).create(true).open(path);
        opened.map_err(|why| Error::file("write", path, &why))?;
        let place = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        if places.contains(&place) && path.is_file() {
            return Err(Error::usage(format!("{} is named for two results", path.display())));
        }
        places.push(place);
    }
    Ok(())
}

/// In place: who asked for it may have it open, or it is a pipe.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|why| Error::file("write", path, &why))
}

/// A reader that has seen enough is no error.
pub(crate) fn print(text: &str) -> Result<()> {
    use std::io::{ErrorKind, Write};
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(why) if why.kind() != ErrorKind::BrokenPipe => {
            Err(Error::run(format!("cannot write to standard output: {why}")))
        }
        _ => Ok(()),
    }
}
