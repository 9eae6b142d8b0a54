//! Reads configuration files and the files that they include, with bounds.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::notes::{Failure, Position};

/// The largest file, and the most files and bytes of one configuration.
const FILE_BYTES_MAX: u64 = 4 << 20;
const FILES_MAX: usize = 1_000;
const BYTES_MAX: u64 = 16 << 20;
/// How deep files may include each other: a file that includes itself comes to this.
const DEPTH_MAX: usize = 16;

/// The files of one configuration.
#[derive(Debug)]
pub(crate) struct Files {
    /// The folder of the first file.
    pub(crate) folder: PathBuf,
    /// The first file, as it is shown.
    pub(crate) first: Arc<str>,
    count: usize,
    bytes: u64,
    depth: usize,
}

impl Files {
    /// Finds the files of a configuration that begins with this file.
    pub(crate) fn new(first: &Path) -> Self {
        let absolute = std::path::absolute(first).unwrap_or_else(|_| first.to_owned());
        let folder = absolute.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned);
        let mut files = Self { folder, first: "".into(), count: 0, bytes: 0, depth: 0 };
        files.first = files.shown(&absolute);
        files
    }

    /// A path as notes show it.
    pub(crate) fn shown(&self, path: &Path) -> Arc<str> {
        path.strip_prefix(&self.folder).unwrap_or(path).display().to_string().into()
    }

    /// A relative path of the configuration, from the folder of its first file.
    pub(crate) fn absolute(&self, path: &str) -> String {
        self.folder.join(path).display().to_string()
    }

    /// Reads a file, and calls `read` with its text, in which it can be called again.
    ///
    /// # Errors
    /// The file cannot be read, is no UTF-8, or is one too many. `from` names the line that asks for it.
    pub(crate) fn with<T>(
        &mut self,
        path: &Path,
        from: &Position,
        read: impl FnOnce(&mut Self, &str, &Arc<str>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let shown = self.shown(path);
        if self.depth == DEPTH_MAX {
            let why = format!("includes {shown}, {DEPTH_MAX} files deep: do they include each other?");
            return Err(Failure::new(from, why));
        }
        let whole = Position { file: Arc::clone(&shown), line: 0 };
        self.count += 1;
        if self.count > FILES_MAX {
            return Err(Failure::new(from, format!("includes more than {FILES_MAX} files")));
        }
        let bytes = read_bounded(path).map_err(|why| Failure::new(&whole, why))?;
        self.bytes += bytes.len() as u64;
        if self.bytes > BYTES_MAX {
            return Err(Failure::new(
                from,
                format!("all files together have more than {} MiB", BYTES_MAX >> 20),
            ));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
            Failure::new(&Position { file: Arc::clone(&shown), line }, "is not UTF-8")
        })?;
        self.depth += 1;
        let result = read(self, &text, &shown);
        self.depth -= 1;
        result
    }

    /// The files that a path with `*` and `?` in its names leads to, sorted; the path itself without them.
    pub(crate) fn matching(&self, path: &str, elsewhere: &Path) -> Vec<PathBuf> {
        let path = Path::new(path);
        // A configuration may have been copied out of its folder.
        let candidates = match path.strip_prefix(elsewhere) {
            Ok(rest) => [path.to_owned(), self.folder.join(rest)],
            Err(_) => [self.folder.join(path), elsewhere.join(path)],
        };
        candidates
            .iter()
            .map(|candidate| expand(candidate))
            .find(|found| !found.is_empty())
            .unwrap_or_default()
    }
}

fn read_bounded(path: &Path) -> Result<Vec<u8>, String> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    // Opening a FIFO would wait for its writer.
    if !std::fs::metadata(path).map_err(cannot)?.is_file() {
        return Err("is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    File::open(path).map_err(cannot)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("has more than {} MiB", FILE_BYTES_MAX >> 20));
    }
    Ok(bytes)
}

fn expand(pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for part in pattern.iter() {
        let name = part.to_string_lossy();
        if !name.contains(['*', '?']) {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        }
        let mut next = Vec::new();
        for folder in &found {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            for entry in entries.take(FILES_MAX) {
                let entry = entry.file_name();
                let text = entry.to_string_lossy();
                if (!text.starts_with('.') || name.starts_with('.')) && fits(name.as_bytes(), text.as_bytes())
                {
                    next.push(folder.join(&entry));
                }
            }
        }
        next.truncate(FILES_MAX);
        next.sort();
        found = next;
    }
    found.retain(|path| path.exists());
    found
}

/// Whether a name fits a pattern of the shell.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    // The position of the last `*`, and the first byte of the name that it does not stand for yet.
    let (mut at, mut of_name, mut star) = (0, 0, None);
    while of_name < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, of_name));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[of_name] => {
                at += 1;
                of_name += 1;
            }
            _ => {
                let Some((star_at, taken)) = star else { return false };
                star = Some((star_at, taken + 1));
                (at, of_name) = (star_at + 1, taken + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_patterns_of_the_shell() {
        for (pattern, name, is_fit) in [
            ("*.conf", "a.conf", true),
            ("*.conf", "a.conf.bak", false),
            ("*", "a", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*a*b", "xaxaxb", true),
        ] {
            assert_eq!(fits(pattern.as_bytes(), name.as_bytes()), is_fit, "{pattern} {name}");
        }
    }
}
