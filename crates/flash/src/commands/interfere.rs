//! `flash interfere`: measures whether requests for files in memory wait for the disk, or for a slow application.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use flash_kit::{Error, Result};
use flash_lab::interfere::{self, Beside, Options};
use flash_lab::testbed::{Application, Peer};
use flash_load::workload::check_prefix;

use super::server_args::ServerArgs;

const MORE: &str = "\
Each server must serve a folder made by `flash fileset specweb99`. In each round it is asked for hot files alone, then \
for the same hot files beside cold ones. With --files, the hot files are locked in memory while this runs. The page \
cache is dropped before a started server begins if --memory or --reads is given; for a running server, make sure that \
the cold files are not in memory.

With --slow-application, other requests wait for an application instead, best for longer than a phase. A started server passes the requests below the \
folder of the path to an application that the lab starts (examples/application.rs, which answers sleep?ms=N after N \
milliseconds); a running server must pass them itself.

The verdict compares the two latencies within each round: hot requests waited for the disk if the ratio, with its 95 % \
interval over the rounds, is above --p50-times or --p99-times. It cannot be told if fewer than 5 rounds are good (a \
server that is overloaded even without cold requests, failed requests, a load generator that was late or busy) or if \
the rounds differ too much.

Requests arrive at their planned times whether or not earlier ones were answered, and latency counts from the planned \
time. Give the load generator its own core.

Exit codes: 0 hot requests did not wait, 1 failed, 2 usage error, 3 hot requests waited or a --require limit was \
exceeded, 4 cannot be told, 130 interrupted (the results so far are kept).";

#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE)]
pub(crate) struct Interfere {
    /// Running server as URL or NAME=URL, or the name of a server to start: one of the --servers file, or flash,
    /// nginx, nginx-aio, apache-event, apache-prefork, lighttpd, h2o, caddy, or with `flash backend` nginx-gate,
    /// apache-flashpache, h2o-warm or lighttpd-warm
    #[arg(value_name = "SERVER", required_unless_present = "file")]
    servers: Vec<String>,

    /// Folder of the file set: started servers serve it, and its hot files are locked in memory
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath, help_heading = "Workload")]
    files: Option<PathBuf>,

    #[command(flatten)]
    options: Options,

    /// Directories that hold the cold files, from FIRST to END - 1 [default: all of --files after the hot ones]
    #[arg(long, value_name = "FIRST..END", value_parser = range, help_heading = "Workload")]
    cold_dirs: Option<Range<u32>>,

    /// Look up the names of all cold files before each server's turn: then only their contents come from the disk
    #[arg(long, help_heading = "Workload")]
    known_names: bool,

    /// Cold requests per second, each for a file not requested before
    #[arg(long, value_name = "N", default_value_t = 60.0, help_heading = "Workload")]
    cold_rate: f64,

    /// Path that an application answers late, such as /dynamic/sleep?ms=12000: requested instead of cold files
    #[arg(long, value_name = "PATH", conflicts_with_all = ["cold_dirs", "cold_rate", "known_names"],
          help_heading = "Workload")]
    slow_application: Option<String>,

    /// Number of requests that wait for the slow application at any time
    #[arg(
        long,
        value_name = "N",
        default_value_t = 500,
        requires = "slow_application",
        help_heading = "Workload"
    )]
    waiting: u32,

    /// Process ID of the one running server, to measure its CPU time and memory
    #[arg(long, value_name = "PID", help_heading = "Run")]
    pid: Option<u32>,

    #[command(flatten)]
    started: ServerArgs,

    /// Core of the slow application of a started server [default: the last core of the load generator]
    #[arg(long, value_name = "N", help_heading = "Testbed")]
    application_core: Option<usize>,
}

/// Reads `FIRST..END`.
fn range(text: &str) -> std::result::Result<Range<u32>, String> {
    let ends = text.split_once("..").and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
    ends.ok_or_else(|| "write two whole numbers, as in 20..586".to_owned())
}

/// The directories of the cold files: the given ones, or those of the file set after the hot ones.
fn cold_directories(given: Option<Range<u32>>, files: Option<&Path>, hot: u32) -> Result<Range<u32>> {
    let found = files.map(|folder| (folder, interfere::directories_in(folder)));
    match (given, found) {
        (Some(given), Some((folder, found))) if given.end > found => Err(Error::usage(format!(
            "--cold-dirs {}..{}: {} has the directories 0 to {}",
            given.start,
            given.end,
            folder.display(),
            found.saturating_sub(1)
        ))),
        (Some(given), _) => Ok(given),
        (None, Some((_, found))) if found > hot => Ok(hot..found),
        (None, Some((folder, found))) => Err(Error::usage(format!(
            "{} has {found} directories of a SPECweb99 set, and {hot} of them are hot: make a larger one with `flash fileset \
             specweb99`, or take fewer --hot-dirs",
            folder.display()
        ))),
        (None, None) => Err(Error::usage(
            "name the folder of the file set (--files DIR), or the directories of its cold files (--cold-dirs FIRST..END)",
        )),
    }
}

/// The prefix of the paths that a started server passes to the application: the folder of a path.
fn prefix(path: &str) -> Result<String> {
    let path = path.split('?').next().unwrap_or_default();
    let prefix = &path[..path.rfind('/').map_or(0, |slash| slash + 1)];
    check_prefix(prefix).map(|()| prefix.to_owned())
}

impl Interfere {
    pub(crate) fn run(self) -> ExitCode {
        crate::lab::finish_run(self.options().and_then(|options| interfere::run(&options)))
    }

    fn options(self) -> Result<Options> {
        let mut options = self.options;
        let mut chosen = self.started.choose(&self.servers, &mut options.cores)?;
        if let Some(pid) = self.pid {
            chosen.servers = match &chosen.servers[..] {
                [one] if one.url().is_some() => {
                    vec![Peer::elsewhere(&one.name, one.url().unwrap_or_default(), Some(pid))]
                }
                _ => return Err(Error::usage("--pid is for one running server: give one URL")),
            };
        }
        let is_started = chosen.is_any_started();
        let root = self.files.or_else(|| chosen.testbed.root.take());
        chosen.serve(root)?;
        let prefix = self.slow_application.as_deref().filter(|_| is_started).map(prefix).transpose()?;
        let core = self.application_core.or(options.cores.last().copied());
        let beside = match self.slow_application {
            Some(path) => Beside::Waiting { path, requests: self.waiting },
            None => Beside::Cold {
                directories: cold_directories(
                    self.cold_dirs,
                    chosen.testbed.root.as_deref(),
                    options.hot_directories,
                )?,
                rate_per_s: self.cold_rate,
                looks_up_names: self.known_names,
            },
        };
        chosen.testbed.has_http2 = options.wire.http2;
        chosen.testbed.application = prefix.map(|prefix| Application { prefix, core });
        Ok(Options { servers: chosen.servers, testbed: chosen.testbed, beside, ..options })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file set with this many directories, as `flash fileset specweb99` names them.
    fn set(directories: u32) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..directories {
            let directory = folder.path().join(format!("dir{number:05}"));
            std::fs::create_dir(&directory).unwrap();
            std::fs::write(directory.join("class0_1"), "").unwrap();
        }
        folder
    }

    #[test]
    fn cold_files_are_those_of_the_set_that_are_not_hot() {
        let (large, small) = (set(118), set(20));
        let found = |given, files: Option<&tempfile::TempDir>| {
            cold_directories(given, files.map(tempfile::TempDir::path), 20).map_err(|why| why.to_string())
        };
        assert_eq!(found(None, Some(&large)), Ok(20..118));
        assert_eq!(found(Some(50..60), Some(&large)), Ok(50..60));
        assert_eq!(found(Some(20..586), None), Ok(20..586), "of a server elsewhere");
        for (given, files, why) in [
            (Some(20..586), Some(&large), "has the directories 0 to 117"),
            (None, Some(&small), "has 20 directories of a SPECweb99 set, and 20 of them are hot"),
            (None, None, "name the folder of the file set"),
        ] {
            let refused = found(given, files).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
