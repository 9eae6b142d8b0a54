//! Where an access log goes. `config::options` has it in the settings, and `config::resolve` looks at its path.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::file_path::FilePath;
use super::table::Holds;
use super::values::PathOrWord;

/// Where the lines of a log go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogOutput {
    /// Nowhere. As a setting it is `/dev/null`.
    #[default]
    Off,
    /// Standard output.
    Stdout,
    /// A file, or a device.
    File(FilePath),
    /// The socket of a syslog, which was there when the configuration was read.
    Syslog(FilePath),
}

impl LogOutput {
    /// The same, where a path is known to be that of a socket. Later the syslog may be gone for a while, and no file must take its
    /// place.
    pub(super) fn recognized(self) -> Self {
        match self {
            LogOutput::File(path) if is_socket(&path) => LogOutput::Syslog(path),
            other => other,
        }
    }
}

fn is_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

impl Holds<PathOrWord> for LogOutput {
    fn hold(&mut self, value: PathOrWord) {
        *self = match value {
            PathOrWord::Word => LogOutput::Stdout,
            PathOrWord::At(path) if path == Path::new("/dev/stdout") => LogOutput::Stdout,
            PathOrWord::At(path) if path == Path::new("/dev/null") => LogOutput::Off,
            PathOrWord::At(path) => LogOutput::File(path.into()),
        };
    }

    fn held(&self) -> Option<PathOrWord> {
        match self {
            LogOutput::Off => Some(PathOrWord::At("/dev/null".into())),
            LogOutput::Stdout => Some(PathOrWord::Word),
            LogOutput::File(path) | LogOutput::Syslog(path) => Some(PathOrWord::At(path.to_path_buf())),
        }
    }
}
