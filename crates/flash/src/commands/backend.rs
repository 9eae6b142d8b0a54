//! `flash backend`: brings names and ranges of files into memory for other servers.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::ExitCode;

use flash_server::config::options::OPTIONS;
use flash_server::config::{BackendOptions, EndpointOptions, Origin, Overrides, SOCKET_BY_DEFAULT};

/// Exit code for a wrong value of an option.
const EXIT_USAGE: u8 = 2;

const MORE: &str = "\
The modules for nginx and Apache connect to the socket and ask for names and ranges; docs/backend-protocol.md describes \
the messages. A process can connect if its user is the backend's own, root, or one of --allow, and if the permissions of \
the socket (0660) let it.

TIME is a number and a unit: 250ms, 1.5s, 2m or 1h.

Signals: TERM, INT and QUIT stop the backend after open requests finish, HUP restarts its processes on the same socket.

Exit codes: 0 stopped by a signal, 1 failed, 2 usage error.";

#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE)]
pub(crate) struct Backend {
    /// Listen at this socket
    #[arg(long, value_name = "PATH", value_hint = clap::ValueHint::FilePath, default_value = SOCKET_BY_DEFAULT)]
    socket: PathBuf,

    /// Let processes of this user connect, in addition to root and the backend's own user; repeatable
    #[arg(long, value_name = "USER")]
    allow: Vec<String>,

    /// Answer HTTP requests for files here: unix:PATH or an IP address with a port; repeatable. For nginx
    /// (auth_request) and h2o, see modules/endpoint
    #[arg(long, value_name = "ADDRESS")]
    warm: Vec<String>,

    /// Answer FastCGI requests for files at this socket; repeatable. For lighttpd (authorizer), see modules/endpoint
    #[arg(long, value_name = "unix:PATH")]
    fastcgi: Vec<String>,

    /// A directory whose files --warm and --fastcgi bring into memory; no other files; repeatable
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    warm_root: Vec<PathBuf>,

    /// At the start, look up all names beneath this directory, up to 1,000,000, so that later requests wait for
    /// contents only; repeatable
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    names: Vec<PathBuf>,

    /// Run as this user, who must be able to read the files [default: www-data when started by root, else the
    /// current user]
    #[arg(long, value_name = "USER[:GROUP]")]
    user: Option<OsString>,

    /// Maximum helper processes [default: 16]
    #[arg(long, value_name = "N")]
    helpers: Option<OsString>,

    /// Give up a name or a range after this time [default: 30s]
    #[arg(long, value_name = "TIME")]
    job_deadline: Option<OsString>,

    /// Refuse requests that would wait longer than this for a helper; 0s for no limit [default: 5s]
    #[arg(long, value_name = "TIME")]
    queue_wait: Option<OsString>,

    /// Time for open requests to finish after a stop signal [default: 30s]
    #[arg(long, value_name = "TIME")]
    shutdown_timeout: Option<OsString>,

    /// Let the worker keep CAP_FOWNER, with which the kernel tells it whether other users' files are in memory; only
    /// with --warm or --fastcgi: auto (if the backend has it, and seccomp forbids chmod), on or off [default: auto]
    #[arg(long, value_name = "HOW")]
    cap_fowner: Option<OsString>,

    /// Use Landlock and seccomp: auto (if the kernel supports them), required or off [default: auto]
    #[arg(long, value_name = "MODE")]
    sandbox: Option<OsString>,

    /// Listen at this socket for `flash stats`; none to turn it off [default: in the user's own folder]
    #[arg(long, value_name = "PATH", value_hint = clap::ValueHint::FilePath)]
    control: Option<OsString>,

    /// For tests: hold back every reply by this many milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0)]
    delay: u64,
}

impl Backend {
    pub(crate) fn run(self) -> ExitCode {
        let cwd = match std::env::current_dir() {
            Ok(cwd) => cwd,
            Err(e) => {
                eprintln!("error: cannot find the current directory: {e}; change to a directory that exists");
                return ExitCode::FAILURE;
            }
        };
        match self.options(cwd) {
            Ok(options) => flash_server::run_backend(options),
            Err(code) => code,
        }
    }

    /// The options of a backend that was started in this directory; prints errors on standard error.
    pub(super) fn options(self, cwd: PathBuf) -> Result<BackendOptions, ExitCode> {
        let overrides = self.overrides().map_err(|why| {
            eprintln!("error: {why}");
            ExitCode::from(EXIT_USAGE)
        })?;
        let Backend { socket, allow, delay, warm: http, fastcgi, warm_root: roots, names, .. } = self;
        let endpoint = EndpointOptions { http, fastcgi, roots };
        Ok(BackendOptions { socket, allow, delay_ms: delay, endpoint, names, overrides, cwd })
    }

    /// The options that `flash serve` has too, by their keys there.
    fn overrides(&self) -> Result<Overrides, String> {
        let given = [
            ("user", "user", &self.user),
            ("helpers", "helpers_max", &self.helpers),
            ("job-deadline", "job_deadline", &self.job_deadline),
            ("queue-wait", "queue_wait", &self.queue_wait),
            ("shutdown-timeout", "shutdown_timeout", &self.shutdown_timeout),
            ("cap-fowner", "cap_fowner", &self.cap_fowner),
            ("sandbox", "sandbox", &self.sandbox),
            ("control", "control", &self.control),
        ];
        let mut overrides = Overrides::default();
        for (flag, key, value) in given {
            let (Some(value), Some(spec)) = (value, OPTIONS.iter().find(|spec| spec.key == key)) else {
                continue;
            };
            let items: [&OsStr; 1] = [value];
            spec.set(&mut overrides, &items, Origin::Flag).map_err(|refusals| {
                let whys: Vec<String> = refusals.into_iter().map(|refusal| refusal.why.to_string()).collect();
                format!("invalid value '{}' for '--{flag}': {}", value.to_string_lossy(), whys.join("; "))
            })?;
        }
        Ok(overrides)
    }
}
