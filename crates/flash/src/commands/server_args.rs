//! The servers that `flash compare` and `flash interfere` measure, and the testbed of those that they start.
//!
//! Both flatten [`ServerArgs`]. Must not measure anything.

use std::path::PathBuf;

use flash_kit::{Error, Result};
use flash_lab::testbed::{Peer, Peers, Testbed, keep_apart, read_peers, ready_made, ready_made_names};
use flash_load::tls::{Certificate, KeyKind};
use flash_units::parse_memory_bytes;

/// The names in the certificate of started servers.
const HOSTS: [&str; 2] = ["localhost", "127.0.0.1"];

#[derive(Debug, clap::Args)]
pub(super) struct ServerArgs {
    /// File that describes how to start servers
    #[arg(long = "servers", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: Option<PathBuf>,

    /// Memory limit of a started server, including its page cache [default: none]
    #[arg(long, value_name = "SIZE", value_parser = parse_memory_bytes, help_heading = "Testbed")]
    memory: Option<u64>,

    /// Disk reads per second allowed to a started server [default: unlimited]
    #[arg(long, value_name = "N", help_heading = "Testbed")]
    reads: Option<u32>,

    /// Start servers with TLS, all with one certificate that is made for the run; its key is ecdsa (P-256) or rsa (2,048
    /// bits) [default: no TLS; without KEY: ecdsa]
    #[arg(long, value_name = "KEY", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "ecdsa",
          hide_possible_values = true, help_heading = "Wire")]
    tls: Option<KeyKind>,

    /// Core of a started server [default: one that the load generator does not use]
    #[arg(long, value_name = "N", help_heading = "Testbed")]
    server_core: Option<usize>,
}

/// The servers to measure, and what those that are started may use.
pub(super) struct Servers {
    pub(super) servers: Vec<Peer>,
    pub(super) testbed: Testbed,
}

impl ServerArgs {
    /// The servers of these names; all of the file's if none is named. `cores` are those of the load generator: without
    /// any it gets some here, apart from that of a started server.
    pub(super) fn choose(self, names: &[String], cores: &mut Vec<usize>) -> Result<Servers> {
        let file = self.file.as_deref().map(read_peers).transpose()?.unwrap_or_default();
        let servers = chosen(names, &file)?;
        let Peers { mut testbed, load_core, .. } = file;
        testbed.memory_bytes = self.memory.or(testbed.memory_bytes);
        testbed.reads_per_s = self.reads.or(testbed.reads_per_s);
        let hosts = || HOSTS.map(str::to_owned).to_vec();
        testbed.certificate = self.tls.map(|kind| Certificate::make(hosts(), kind)).transpose()?;
        testbed.core = self.server_core.or(testbed.core);
        if cores.is_empty() {
            cores.extend(load_core);
        }
        let mut servers = Servers { servers, testbed };
        if servers.is_any_started() {
            keep_apart(&mut servers.testbed.core, cores);
        }
        Ok(servers)
    }
}

impl Servers {
    /// Whether one of them is started here.
    pub(super) fn is_any_started(&self) -> bool {
        self.servers.iter().any(|server| server.url().is_none())
    }

    /// Has them serve this folder.
    ///
    /// Errors: usage, for started servers without one.
    pub(super) fn serve(&mut self, root: Option<PathBuf>) -> Result<()> {
        self.testbed.root = root;
        if self.testbed.root.is_none() && self.is_any_started() {
            return Err(Error::usage("started servers need files to serve: give --files DIR"));
        }
        Ok(())
    }
}

/// The servers named on the command line, or all servers of the file if none is named.
fn chosen(names: &[String], file: &Peers) -> Result<Vec<Peer>> {
    if names.is_empty() && file.servers.is_empty() {
        return Err(Error::usage(
            "no servers: give NAME=URL, the name of a built-in server, or --servers FILE",
        ));
    }
    if names.is_empty() {
        return Ok(file.servers.clone());
    }
    names.iter().map(|name| server(name, file)).collect()
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
