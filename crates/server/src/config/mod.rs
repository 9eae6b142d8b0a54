//! The configuration: from flags, environment, file and defaults to [`Settings`].
//!
//! The binary fills a [`Sources`], and the supervisor loads it at startup and on HUP; every role works with the resulting
//! [`Settings`]. It reads the config file and checks that roots exist, and must not start, open or change anything.
//!
//! The order is flag, environment, file, default. Each source fills the same [`Overrides`], whose fields are the rows of one
//! table, [`options::OPTIONS`].

mod account;
mod admission;
pub(crate) mod architecture;
mod backend;
mod choices;
mod combinations;
mod crew;
mod endpoint;
mod environment;
mod error;
mod file;
mod file_path;
mod kind;
mod listen;
mod listen_checks;
mod log_output;
mod logs;
mod memory;
pub mod options;
mod path_rules;
mod print;
mod programs;
mod redirect_circles;
mod resolve;
mod route_checks;
pub mod route_options;
mod routes;
mod rule_checks;
pub mod rule_options;
mod run_as;
mod schedule;
mod service;
mod settings;
mod suggest;
mod table;
#[cfg(test)]
mod tests;
mod text_formats;
mod unreached_rules;
mod values;
mod warnings;

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use admission::Clients;
pub use backend::{BackendOptions, SOCKET_BY_DEFAULT};
pub use choices::{
    Architecture, EncodedSlash, EtagTime, HttpsRedirect, ProxyField, RedirectStatus, SandboxMode,
    SchedulePolicy,
};
pub use endpoint::{EndpointOptions, EndpointProtocol, EndpointSettings, EndpointSocket};
pub use error::{ConfigError, ConfigErrorKind, NotUtf8, Refusal};
pub use file_path::FilePath;
pub use kind::{Bounds, Kind, TextFormat, Unit, one_of};
pub(crate) use listen::https_port;
pub use listen::{Listen, SocketMode};
pub use log_output::LogOutput;
pub use memory::CacheMemory;
pub use options::{Overrides, Settings, Site};
pub(crate) use path_rules::path_rules;
pub(crate) use programs::DIRECTORIES;
pub use programs::Runs;
pub use route_options::{Probe, Program, Route};
pub use routes::{RoutePaths, RouteTls, ServerAddress};
pub use rule_options::{HeadField, Rule};
pub use run_as::RunAs;
pub use schedule::Cutoffs;
pub use service::{BackendSettings, ControlSocket, Service};
pub use table::{DefaultValue, Given, Origin, Spec, Table};
pub use values::{Auto, Command, PathOrWord, UserName};

use error::{Problem, SourceFile};
use file::Draft;
use flash_units::size_text;

/// The largest config file in bytes. It has room for 100,000 redirects, but not for a device or a log.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Maximum time to open all roots at startup; a server waits no longer for a file system that hangs.
/// No root of a unit test hangs, and few of other tests, but the machine may be busy.
pub(crate) const ROOT_PATIENCE: Duration = Duration::from_secs(if cfg!(test) {
    60
} else if cfg!(debug_assertions) {
    5
} else {
    1
});

/// All inputs of the settings except the text of the config file: with them the settings can be loaded again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    /// The options of the command line. Their relative paths start at `cwd`.
    pub cli: Overrides,
    /// The environment; variables that do not start with `FLASH_` are ignored.
    pub env: Vec<(String, OsString)>,
    /// The start of relative paths, and the default root. Absolute.
    pub cwd: PathBuf,
}

impl Sources {
    /// The sources of this process, with the options of its command line.
    ///
    /// # Errors
    ///
    /// The current directory has no name, for example because it was removed.
    pub fn of_process(cli: Overrides) -> Result<Sources, ConfigError> {
        let cwd = std::env::current_dir().map_err(|error| {
            let problem = Problem::plain("cannot find the current directory", error::reason(&error));
            let problem = problem.helped("change to a directory that exists").of(ConfigErrorKind::Read);
            ConfigError::of_problems(vec![problem], None)
        })?;
        Ok(Self::of_process_in(cwd, cli))
    }

    /// The sources of this process, for a server that was started in this directory.
    #[must_use]
    pub fn of_process_in(cwd: PathBuf, cli: Overrides) -> Sources {
        let env = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .filter(|(name, _)| name.starts_with(environment::PREFIX))
            .collect();
        Sources { cli, env, cwd }
    }

    /// Warnings, one per line: variables of the environment with Flash's prefix that are unknown.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        environment::warnings(&self.env)
    }

    /// The config file named by a flag or the environment, if any.
    #[must_use]
    pub fn config_file(&self) -> Option<PathBuf> {
        let (env, _) = environment::read(&self.env);
        self.cli.clone().or(env).config.map(|given| given.value)
    }

    /// Reads the config file, if one is named, and makes the settings. It may be called any number of times; only the
    /// file system can change the result.
    ///
    /// # Errors
    ///
    /// All errors that can be found at once.
    pub fn load(&self) -> Result<Settings, ConfigError> {
        let (env, mut problems) = environment::read(&self.env);
        let mut upper = self.cli.clone().or(env);
        let named = upper.config.as_ref().map(|given| given.value.clone());
        table::rebase(&mut upper, &self.cwd);
        let (mut draft, source) = match (&upper.config, named) {
            (Some(path), Some(named)) => {
                let source = read_file(&path.value, named)?;
                let (mut draft, wrong) = file::read(&source.text);
                problems.extend(wrong);
                draft.rebase(path.value.parent().unwrap_or(Path::new("/")));
                (draft, Some(source))
            }
            _ => (Draft::default(), None),
        };
        if problems.iter().any(|problem| problem.kind == ConfigErrorKind::Syntax) {
            return Err(ConfigError::of_problems(problems, source));
        }
        let given = upper.or(std::mem::take(&mut draft.top.overrides));
        if given.root.is_none() && source.as_ref().is_some_and(|source| says_nothing(&source.text)) {
            // More often a mistake, such as a file that was emptied, than the wish to publish the current directory.
            let problem = Problem::plain("no directory to serve is named", "the config file has no settings");
            let help = "add a line such as `root = \"/srv/site\"`, or name the directory on the command line";
            problems.push(problem.helped(help));
        }
        let resolved = resolve::resolve(given, draft, &self.cwd).map_err(|more| problems.extend(more));
        match resolved {
            Ok(settings) if problems.is_empty() => Ok(settings),
            _ => Err(ConfigError::of_problems(problems, source)),
        }
    }
}

/// Whether a config file has no settings.
fn says_nothing(text: &str) -> bool {
    text.lines().map(str::trim).all(|line| line.is_empty() || line.starts_with('#'))
}

/// The text of the file at `path`; errors use the name that the user gave.
fn read_file(path: &Path, named: PathBuf) -> Result<SourceFile, ConfigError> {
    let failed = |why: String| {
        let title = format!("cannot read the config file `{}`", named.display());
        ConfigError::of_problems(vec![Problem::plain(title, why).of(ConfigErrorKind::Read)], None)
    };
    // A pipe could not be read again on a reload, and waiting for its writer would block the supervisor.
    let found = std::fs::metadata(path).map_err(|error| failed(error::reason(&error)))?;
    if !found.is_file() {
        return Err(failed("not a regular file".to_owned()));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| failed(error::reason(&error)))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(failed(format!("larger than {}", size_text(FILE_BYTES_MAX))));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
        failed(format!("line {line} is not UTF-8"))
    })?;
    Ok(SourceFile { path: named, text })
}
