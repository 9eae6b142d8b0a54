//! The settings that are more than a value: what a server does, and where it is asked about it.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::endpoint::EndpointSettings;
use super::file_path::FilePath;

/// Where the supervisor listens for clients of its statistics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ControlSocket {
    /// In the user's private folder, under the process ID; nowhere if that fails.
    #[default]
    Default,
    /// Nowhere.
    Off,
    /// At this absolute path.
    At(FilePath),
}

/// The work of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Service {
    /// It serves the files of its sites.
    #[default]
    Files,
    /// It brings files into memory for other servers (`flash backend`).
    Backend(BackendSettings),
}

impl Service {
    /// The directories of the warm endpoint.
    pub(crate) fn warm_roots(&self) -> impl Iterator<Item = &Path> {
        let endpoint = match self {
            Service::Files => None,
            Service::Backend(backend) => Some(&backend.endpoint),
        };
        endpoint.into_iter().flat_map(|endpoint| endpoint.roots.iter().map(|root| &**root))
    }
}

/// The settings that only a backend has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackendSettings {
    /// The absolute path of its socket.
    pub socket: FilePath,
    /// The users that can connect, in addition to root and its own user.
    pub users: Vec<u32>,
    /// How long each reply is held back, for tests, in milliseconds.
    pub delay_ms: u64,
    /// The warm endpoint. Its addresses are those of the server.
    pub endpoint: EndpointSettings,
    /// The directories whose names are looked up at the start.
    pub names: Vec<FilePath>,
}
