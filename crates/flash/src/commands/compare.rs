//! `flash compare`: the same profile for several servers.

use std::path::PathBuf;
use std::process::ExitCode;

use flash_kit::{Error, Result};
use flash_lab::compare::{self, Compare as Options, RelativeTo};
use flash_lab::testbed::{Application, Peer, Peers, Place, read_peers, ready_made, ready_made_names};
use flash_load::workload::Spec;
use flash_units::parse_memory_bytes;

use super::drive_args::{DriveArgs, LEVELS_TEXT, MORE};

#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE)]
pub(crate) struct Compare {
    /// Running server as NAME=URL, or the name of a server to start: one of the --servers file, or flash, nginx,
    /// nginx-aio, apache-event, apache-prefork, lighttpd, h2o, caddy, or with `flash backend` nginx-gate,
    /// apache-flashpache, h2o-warm or lighttpd-warm [default: all of --servers]
    #[arg(value_name = "SERVER")]
    servers: Vec<String>,

    /// File that describes how to start servers
    #[arg(long = "servers", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: Option<PathBuf>,

    /// Files to request: specweb99, uniform, zipf:ALPHA, single:PATH, or log:FILE in the order of the log
    #[arg(long, value_name = "WORKLOAD", default_value = "specweb99", help_heading = "Workload")]
    workload: Spec,

    /// Loads to measure, as fractions of the capacity
    #[arg(long, value_name = "LEVELS", value_delimiter = ',', default_value = LEVELS_TEXT, help_heading = "Arrivals")]
    levels: Vec<f64>,

    /// Capacity that the levels refer to: each server's `own`, the `lowest` of all, or N requests per second
    #[arg(long, value_name = "CAPACITY", value_parser = relative_to, default_value = "own", help_heading = "Arrivals")]
    relative_to: RelativeTo,

    /// Number of times to measure each server
    #[arg(long, value_name = "N", default_value_t = 5, help_heading = "Run")]
    rounds: u32,

    /// Memory limit of a started server, including its page cache [default: none]
    #[arg(long, value_name = "SIZE", value_parser = parse_memory_bytes, help_heading = "Testbed")]
    memory: Option<u64>,

    /// Disk reads per second allowed to a started server [default: unlimited]
    #[arg(long, value_name = "N", help_heading = "Testbed")]
    reads: Option<u32>,

    /// Share of one core that a started server can use, percent [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100), help_heading = "Testbed")]
    cpu: Option<u32>,

    /// Core of a started server [default: one that the load generator does not use]
    #[arg(long, value_name = "N", help_heading = "Testbed")]
    server_core: Option<usize>,

    /// Core of the application that answers dynamic requests of started servers [default: the last core of the load
    /// generator]
    #[arg(long, value_name = "N", help_heading = "Testbed")]
    application_core: Option<usize>,

    #[command(flatten)]
    drive: DriveArgs,
}

fn relative_to(text: &str) -> std::result::Result<RelativeTo, String> {
    match text {
        "own" => Ok(RelativeTo::Own),
        "lowest" => Ok(RelativeTo::Lowest),
        _ => text
            .parse()
            .map(RelativeTo::Given)
            .map_err(|_| "write own, lowest or a number of requests a second".to_owned()),
    }
}

impl Compare {
    pub(crate) fn run(self) -> ExitCode {
        crate::lab::finish_run(self.options().and_then(|options| compare::run(&options)))
    }

    fn options(self) -> Result<Options> {
        let file = self.file.as_deref().map(read_peers).transpose()?.unwrap_or_default();
        let servers = choose(&self.servers, &file)?;
        let mut options = self.drive.options("compare", self.workload)?.with_endless_log();
        let mut wishes = file.wishes;
        wishes.memory_bytes = self.memory.or(wishes.memory_bytes);
        wishes.reads_per_s = self.reads.or(wishes.reads_per_s);
        wishes.cpu_percent = self.cpu.or(wishes.cpu_percent);
        wishes.core = self.server_core.or(wishes.core);
        if options.cores.is_empty() {
            options.cores.extend(wishes.load_core);
        }
        if servers.iter().any(|server| server.url().is_none()) {
            keep_apart(&mut wishes.core, &mut options.cores);
        }
        let folder = options.files.manifest.as_deref().and_then(std::path::Path::parent);
        let root = wishes.root.clone().or_else(|| folder.map(Into::into));
        let root = match (root, servers.iter().any(|server| server.url().is_none())) {
            (Some(root), _) => root,
            (None, false) => PathBuf::new(),
            (None, true) => {
                return Err(Error::usage("started servers need files to serve: give --files DIR"));
            }
        };
        let application = options.files.dynamic.as_ref().map(|dynamic| Application {
            prefix: dynamic.prefix().to_owned(),
            core: self.application_core.or(options.cores.last().copied()),
        });
        Ok(Options {
            place: Place { application, ..wishes.place(root) },
            options,
            servers,
            levels: self.levels,
            relative_to: self.relative_to,
            rounds: self.rounds,
        })
    }
}

/// Gives a started server and the load generator separate cores, if there are several and the user chose none.
pub(super) fn keep_apart(server: &mut Option<usize>, generator: &mut Vec<usize>) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores == 1 {
        return;
    }
    let server = server.get_or_insert_with(|| (0..cores).find(|core| !generator.contains(core)).unwrap_or(0));
    if generator.is_empty() {
        generator.extend((0..cores).filter(|core| core != server));
    }
}

/// The servers named on the command line, or all servers of the file if none is named.
pub(super) fn choose(words: &[String], file: &Peers) -> Result<Vec<Peer>> {
    if words.is_empty() && file.servers.is_empty() {
        return Err(Error::usage(
            "no servers: give NAME=URL, the name of a built-in server, or --servers FILE",
        ));
    }
    if words.is_empty() {
        return Ok(file.servers.clone());
    }
    words.iter().map(|word| server(word, file)).collect()
}

fn server(word: &str, file: &Peers) -> Result<Peer> {
    if word.contains("://") && !word.split_once("://").is_some_and(|(before, _)| before.contains('=')) {
        return Ok(Peer::elsewhere("server", word, None));
    }
    if let Some((name, url)) = word.split_once('=') {
        return Ok(Peer::elsewhere(name, url, None));
    }
    let of_file = file.servers.iter().find(|peer| peer.name == word).cloned();
    of_file.or_else(|| ready_made(word)).ok_or_else(|| {
        let there: Vec<&str> =
            file.servers.iter().map(|peer| peer.name.as_str()).chain(ready_made_names()).collect();
        Error::usage(format!("no server '{word}': write NAME=URL, or one of {}", there.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_and_the_generator_are_kept_apart() {
        let apart = |mut server, mut generator| {
            keep_apart(&mut server, &mut generator);
            (server, generator)
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if cores == 1 {
            assert_eq!(apart(None, vec![]), (None, vec![]));
            return;
        }
        assert_eq!(apart(None, vec![]), (Some(0), (1..cores).collect()));
        assert_eq!(apart(None, vec![0]), (Some(1), vec![0]));
        let (server, generator) = apart(Some(1), vec![]);
        assert!(server == Some(1) && !generator.contains(&1) && generator.len() == cores - 1);
    }
}
