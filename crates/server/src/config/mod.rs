//! The configuration: from flags, environment, file and defaults to [`Settings`].
//!
//! For: the binary fills a [`Sources`] and the supervisor loads it, at start and again on HUP; every
//! role works from the [`Settings`] that come out. May not start, open or change anything: it reads
//! the config file and looks whether roots are there.
//!
//! The order is flag, environment, file, default. Each source fills the same [`Overrides`], whose
//! fields are the rows of one table, [`options::OPTIONS`].

mod account;
mod combinations;
mod environment;
mod error;
mod file;
mod optimizations;
pub mod options;
mod resolve;
mod settings;
mod suggest;
#[cfg(test)]
mod tests;
pub mod units;
mod values;

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use error::{ConfigError, ConfigErrorKind};
pub use optimizations::{Optimizations, SendBy};
pub use options::{Given, Origin, Overrides};
pub use settings::{
    Architecture, ControlSocket, EncodedSlash, EtagTime, EventMechanism, HelperKind, LogFormat, LogSettings,
    RunAs, SandboxMode, Settings, Site,
};
pub use values::{Kind, Refusal, UserName, one_of};

use error::{Problem, SourceFile};
use file::Draft;

/// The largest config file, in bytes. Some thousand sites fit; a device or a log does not.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// How long roots may take to be opened at a start, all together; a server does not wait longer for
/// a file system that hangs.
pub(crate) const ROOT_PATIENCE: Duration = Duration::from_secs(1);

/// All that settings are made of, but for the text of the config file: keeping it means being able
/// to load again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    /// What the command line says. Its relative paths start at `cwd`.
    pub cli: Overrides,
    /// The environment; variables that do not start with `FLASH_` are ignored.
    pub env: Vec<(String, OsString)>,
    /// The folder that relative paths start at, and the default for what is served. Absolute.
    pub cwd: PathBuf,
}

impl Sources {
    /// The sources of this process, with what its command line said.
    ///
    /// # Errors
    ///
    /// The current directory can't be named, because it was removed, for example.
    pub fn of_process(cli: Overrides) -> Result<Sources, ConfigError> {
        let cwd = std::env::current_dir().map_err(|error| {
            let problem = Problem::plain("cannot find the current directory", resolve::reason(&error))
                .helped("change to a directory that exists");
            ConfigError::new(ConfigErrorKind::Read, vec![problem])
        })?;
        let env = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .filter(|(name, _)| name.starts_with(environment::PREFIX))
            .collect();
        Ok(Sources { cli, env, cwd })
    }

    /// What is odd but no error, a line each: variables of the environment that look like Flash's
    /// and are none.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        environment::warnings(&self.env)
    }

    /// The config file as a flag or the environment names it, if one does.
    #[must_use]
    pub fn config_file(&self) -> Option<PathBuf> {
        let (env, _) = environment::read(&self.env);
        self.cli.clone().or(env).config.map(|given| given.value)
    }

    /// Reads the config file, if one is named, and makes settings of everything. It may be called
    /// any number of times; only the file system can change the result.
    ///
    /// # Errors
    ///
    /// Everything that is wrong, as far as it can be told at once.
    pub fn load(&self) -> Result<Settings, ConfigError> {
        let (env, mut problems) = environment::read(&self.env);
        let mut upper = self.cli.clone().or(env);
        let named = upper.config.as_ref().map(|given| given.value.clone());
        upper.rebase(&self.cwd);
        let (mut draft, source) = match (&upper.config, named) {
            (Some(path), Some(named)) => {
                let source = read_file(&path.value, named)?;
                let (draft, wrong) = file::read(&source.text);
                problems.extend(wrong);
                (rebased(draft, &path.value), Some(source))
            }
            _ => (Draft::default(), None),
        };
        if problems.iter().any(|problem| problem.kind == ConfigErrorKind::Syntax) {
            return Err(ConfigError::of_problems(problems, source));
        }
        let given = upper.or(std::mem::take(&mut draft.overrides));
        match resolve::resolve(given, draft, &self.cwd) {
            Ok(settings) if problems.is_empty() => Ok(settings),
            Ok(_) => Err(ConfigError::of_problems(problems, source)),
            Err(more) => {
                problems.extend(more);
                Err(ConfigError::of_problems(problems, source))
            }
        }
    }
}

/// The draft with its relative paths made absolute, from the folder of the file it stands in.
fn rebased(mut draft: Draft, file: &Path) -> Draft {
    let folder = file.parent().unwrap_or(Path::new("/"));
    draft.overrides.rebase(folder);
    for site in &mut draft.sites {
        site.overrides.rebase(folder);
    }
    draft
}

/// The text of the file at `path`, which errors call by the name that the user gave.
fn read_file(path: &Path, named: PathBuf) -> Result<SourceFile, ConfigError> {
    let failed = |why: String| {
        let title = format!("cannot read the config file `{}`", named.display());
        ConfigError::new(ConfigErrorKind::Read, vec![Problem::plain(title, why)])
    };
    // A pipe could not be read again on a reload, and waiting for its writer would stop the supervisor.
    let found = std::fs::metadata(path).map_err(|error| failed(resolve::reason(&error)))?;
    if !found.is_file() {
        return Err(failed("not a regular file".to_owned()));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| failed(resolve::reason(&error)))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(failed(format!("larger than {}", units::size_text(FILE_BYTES_MAX))));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
        failed(format!("line {line} is not UTF-8"))
    })?;
    Ok(SourceFile { path: named, text })
}
