//! Where an access log goes. `config::options` has it in the settings.

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
    /// A file, a device, or the socket of a syslog.
    File(FilePath),
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
            LogOutput::File(path) => Some(PathOrWord::At(path.to_path_buf())),
        }
    }
}
