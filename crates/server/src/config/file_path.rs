//! Paths in settings, which have a text form even if they are not UTF-8.

use std::ffi::OsString;
use std::ops::Deref;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// An absolute path. In a settings text it is a string, or the list of its bytes if it is not UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "PathForm", into = "PathForm")]
pub struct FilePath(PathBuf);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum PathForm {
    Text(String),
    Bytes(Vec<u8>),
}

impl Deref for FilePath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for FilePath {
    fn as_ref(&self) -> &Path {
        self
    }
}

impl<P: Into<PathBuf>> From<P> for FilePath {
    fn from(path: P) -> Self {
        FilePath(path.into())
    }
}

impl From<PathForm> for FilePath {
    fn from(form: PathForm) -> Self {
        FilePath(match form {
            PathForm::Text(text) => text.into(),
            PathForm::Bytes(bytes) => OsString::from_vec(bytes).into(),
        })
    }
}

impl From<FilePath> for PathForm {
    fn from(path: FilePath) -> Self {
        let bytes = path.0.into_os_string().into_vec();
        String::from_utf8(bytes).map_or_else(|error| PathForm::Bytes(error.into_bytes()), PathForm::Text)
    }
}
