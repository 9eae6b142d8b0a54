//! `flash compare`: the same profile for several servers.

use std::path::PathBuf;
use std::process::ExitCode;

use flash_lab::compare::{self, Compare as Options, RelativeTo};
use flash_lab::profile::LEVELS;
use flash_lab::testbed::{Peer, Peers, read_peers, ready_made, ready_made_names};
use flash_lab::workload::Spec;
use flash_lab::{Error, Result};
use flash_server::config::units::parse_size_bytes;

use super::drive_args::{DriveArgs, MORE};

#[derive(Debug, clap::Args)]
#[command(after_help = MORE)]
pub(crate) struct Compare {
    /// NAME=URL of a server that runs, or the name of one to start: from --servers, else one of flash,
    /// nginx, nginx-aio, apache-event, apache-prefork, lighttpd, h2o, caddy [default: all of --servers]
    #[arg(value_name = "SERVER")]
    servers: Vec<String>,

    /// A file that says how servers are started
    #[arg(long = "servers", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: Option<PathBuf>,

    /// What is asked for: specweb99, uniform, zipf:ALPHA, single:PATH, or the files of trace:FILE in
    /// their order
    #[arg(long, value_name = "WHAT", default_value = "specweb99", help_heading = "Workload")]
    workload: Spec,

    /// Fractions of the capacity
    #[arg(long, value_name = "LEVELS", value_delimiter = ',', default_values_t = LEVELS, help_heading = "Arrivals")]
    levels: Vec<f64>,

    /// Of which: each server's `own`, the `lowest` of all, or so many requests a second
    #[arg(long, value_name = "CAPACITY", value_parser = relative_to, default_value = "own", help_heading = "Arrivals")]
    relative_to: RelativeTo,

    /// How often each server gets its turn
    #[arg(long, value_name = "N", default_value_t = 3, help_heading = "Run")]
    rounds: u32,

    /// Servers that are started get so much memory, page cache included
    #[arg(long, value_name = "SIZE", value_parser = parse_size_bytes, help_heading = "Testbed")]
    memory: Option<u64>,

    /// Servers that are started get so many reads of the disk a second
    #[arg(long, value_name = "N", help_heading = "Testbed")]
    reads: Option<u32>,

    /// Servers that are started get this core
    #[arg(long, value_name = "N", help_heading = "Testbed")]
    server_core: Option<usize>,

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
        crate::lab::finish_run(self.options().and_then(compare::run))
    }

    fn options(self) -> Result<Options> {
        let file = self.file.as_deref().map(read_peers).transpose()?.unwrap_or_default();
        let servers = choose(&self.servers, &file)?;
        let mut options = self.drive.options("compare", self.workload).with_endless_trace();
        let mut wishes = file.wishes;
        wishes.memory_bytes = self.memory.or(wishes.memory_bytes);
        wishes.reads_per_s = self.reads.or(wishes.reads_per_s);
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
                return Err(Error::usage("servers that are started need files to serve: give --files DIR"));
            }
        };
        Ok(Options {
            options,
            servers,
            place: wishes.place(root),
            levels: self.levels,
            relative_to: self.relative_to,
            rounds: self.rounds,
        })
    }
}

/// Gives a server that is started and the generator cores of their own, where there are several and
/// nothing else is asked for.
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

/// The servers that the words of the command line name; without any, all of the file.
fn choose(words: &[String], file: &Peers) -> Result<Vec<Peer>> {
    if words.is_empty() && file.servers.is_empty() {
        return Err(Error::usage("no servers: give NAME=URL, names of ready-made ones, or --servers FILE"));
    }
    if words.is_empty() {
        return Ok(file.servers.clone());
    }
    words.iter().map(|word| server(word, file)).collect()
}

fn server(word: &str, file: &Peers) -> Result<Peer> {
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
