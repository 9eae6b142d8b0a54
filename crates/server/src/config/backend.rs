//! The settings of `flash backend`: those of a server without sites, and a few of its own.
//!
//! Filled by the binary, loaded by the supervisor at startup and on HUP.

use std::path::{Path, PathBuf};

use flash_engine::LogFormat;
use flash_prompt::mechanism::MechanismKind;
use flash_waiting::account;
use flash_waiting::sandbox::privileges;
use flash_worker::HelperKind;

use super::choices::Architecture;
use super::endpoint::EndpointOptions;
use super::error::{ConfigError, Problem};
use super::file::Draft;
use super::listen::Listen;
use super::log_output::LogOutput;
use super::memory::CacheMemory;
use super::options::{Overrides, Settings};
use super::resolve;
use super::service::{BackendSettings, Service};
use super::table::{self, Given, Origin};
use super::values::UserName;

/// The socket without an option.
pub const SOCKET_BY_DEFAULT: &str = "/run/flash/backend.sock";
/// The user when root starts the backend and names none, if this user exists: the web servers of Debian run as it.
const USER_BY_DEFAULT: &str = "www-data";
/// Time for the requests of the old configuration after a reload, in addition to their deadline.
const RELOAD_APART_MS: u64 = 5_000;

/// The options of `flash backend`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendOptions {
    /// The socket.
    pub socket: PathBuf,
    /// Names or numbers of users that can connect, in addition to root and its own user.
    pub allow: Vec<String>,
    /// How long each reply is held back, for tests, in milliseconds.
    pub delay_ms: u64,
    /// The warm endpoint.
    pub endpoint: EndpointOptions,
    /// The directories whose names are looked up at the start.
    pub names: Vec<PathBuf>,
    /// The options that `flash serve` has too. Those about sites, stores and logs have no effect.
    pub overrides: Overrides,
    /// The start of relative paths. Absolute.
    pub cwd: PathBuf,
}

impl BackendOptions {
    /// The settings.
    ///
    /// # Errors
    ///
    /// A user that does not exist, or one that this process cannot become.
    pub fn load(&self) -> Result<Settings, ConfigError> {
        let mut given = self.overrides.clone();
        table::rebase(&mut given, &self.cwd);
        if given.user.is_none() && privileges::is_root() && account::find(USER_BY_DEFAULT, None).is_ok() {
            let value = UserName { user: USER_BY_DEFAULT.to_owned(), group: None };
            given.user = Some(Given { value, origin: Origin::Default });
        }
        let failed = |problems| ConfigError::of_problems(problems, None);
        let users = self.users().map_err(failed)?;
        let settings = resolve::resolve(given, Draft::default(), Path::new("/")).map_err(failed)?;
        let (endpoint, listen) = self.endpoint.resolve(&self.cwd).map_err(failed)?;
        let has_endpoint = !(endpoint.sockets.is_empty() && listen.is_empty());
        let socket = self.cwd.join(&self.socket);
        let names = self.names.iter().map(|directory| self.cwd.join(directory).into()).collect();
        Ok(Settings {
            listen: listen.into_iter().map(Listen::Tcp).collect(),
            architecture: Architecture::Amped,
            workers: 1,
            event_mechanism: MechanismKind::Epoll,
            helpers: HelperKind::Processes,
            lowered: Vec::new(),
            cache_memory: CacheMemory::OFF,
            cache_list: None,
            spool_folder: None,
            spool_bytes_max: 0,
            reload_timeout_ms: settings.job_deadline_ms.saturating_add(RELOAD_APART_MS),
            // Only the endpoint tests in the loop whether files are in memory.
            cap_fowner: settings.cap_fowner && has_endpoint,
            log_format: LogFormat::Off,
            log_output: LogOutput::Off,
            service: Service::Backend(BackendSettings {
                socket: socket.into(),
                users,
                delay_ms: self.delay_ms,
                endpoint,
                names,
            }),
            sites: Vec::new(),
            ..settings
        })
    }

    fn users(&self) -> Result<Vec<u32>, Vec<Problem>> {
        let (mut users, mut problems) = (Vec::new(), Vec::new());
        for name in &self.allow {
            match account::find(name, None) {
                Ok(account) => users.push(account.uid),
                Err(e) => problems.push(Problem::plain(format!("cannot allow `{name}`"), e.to_string())),
            }
        }
        if problems.is_empty() { Ok(users) } else { Err(problems) }
    }
}
