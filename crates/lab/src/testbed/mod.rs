//! Servers that the lab starts and ends, the testbed that they run in, and their CPU time and memory.
//!
//! `compare` starts [`Peer`]s one after the other, `profile` and `load` watch the process of a server
//! that the user started. It ends only processes that it started. It measures no answer.

mod application;
mod command;
mod cores;
mod disk;
mod groups;
mod hot;
mod machine;
mod peer;
mod prepare;
mod readiness;
mod running;
mod sampler;
mod states;
mod template;
mod watch;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use flash_waiting::program;

pub use application::Application;
pub use command::run as run_in_testbed;
pub(crate) use command::wait_for;
pub(crate) use cores::CoreWatch;
pub(crate) use disk::Disk;
pub(crate) use hot::Locked;
pub use machine::machine;
pub use peer::{Peer, Peers, read_peers, ready_made, ready_made_names};
pub(crate) use prepare::flash_program;
pub use running::Running;
pub use states::{Moment, States};
pub use watch::Watch;

use flash_kit::number::binary_size;
use flash_kit::{Error, Result};
use flash_load::tls::Certificate;
use groups::Groups;

/// Where a server runs: the testbed of a `peers.toml`, or the options of the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Testbed {
    /// The folder that it serves.
    pub root: Option<PathBuf>,
    /// The only core that it may use; without one, those of the calling thread.
    pub core: Option<usize>,
    /// Memory that it may use, page cache included.
    pub memory_bytes: Option<u64>,
    /// Reads that the disk of `root` is held to for it, once [`Running::throttle`] says so.
    pub reads_per_s: Option<u32>,
    /// The share of one core that it may use, percent, from 1, once [`Running::throttle`] says so.
    pub cpu_percent: Option<u32>,
    pub application: Option<Application>,
    /// The certificate of servers that speak TLS; they listen in clear without one.
    pub certificate: Option<Certificate>,
    /// Whether they speak HTTP/2, in clear too.
    pub has_http2: bool,
}

impl Testbed {
    /// One without bounds.
    pub fn of(root: PathBuf) -> Self {
        Self { root: Some(root), ..Self::default() }
    }

    /// Whether this machine allows it, without starting anything: for an error before hours of work.
    ///
    /// Errors: usage, for a root that is not there; run, when memory, disk or CPU can't be bounded, or the application
    /// is not built.
    pub fn check(&self) -> Result<()> {
        self.application.as_ref().map_or(Ok(()), Application::check)?;
        let root = self.checked_root()?;
        Groups::make(self, Path::new(&root))?.remove()
    }

    /// Names each bound of it, with its value in words, for the settings of results.
    pub(crate) fn describe(&self, name: &mut dyn FnMut(&str, String)) {
        let Self { core, memory_bytes, reads_per_s, cpu_percent, .. } = *self;
        if let Some(core) = core {
            name("server's core", core.to_string());
        }
        if let Some(bytes) = memory_bytes {
            name("server's memory", format!("{}, page cache included", binary_size(bytes)));
        }
        if let Some(reads) = reads_per_s {
            name("server's disk", format!("{reads} reads/s, after the warm-up"));
        }
        if let Some(percent) = cpu_percent {
            name("server's CPU", format!("{percent} % of a core, after the warm-up"));
        }
        if let Some(application) = &self.application {
            name("application", application.text());
        }
        if let Some(certificate) = &self.certificate {
            name("server's certificate", format!("{}, made for this run", certificate.kind.text()));
        }
    }

    /// The root as an absolute path that can stand in any configuration.
    fn checked_root(&self) -> Result<String> {
        let root =
            self.root.as_deref().ok_or_else(|| Error::usage("no folder to serve: give --files DIR"))?;
        let root = fs::canonicalize(root)
            .map_err(|why| Error::usage(format!("cannot serve {}: {why}; give a folder", root.display())))?;
        let is_plain = |c: char| !c.is_control() && !"\"'\\${}".contains(c);
        match root.to_str().filter(|text| text.chars().all(is_plain)) {
            Some(text) => Ok(text.to_owned()),
            None => Err(Error::usage(format!(
                "cannot serve {}: quotes, backslashes, dollars, braces and what is not UTF-8 would not stand in every \
                 server's configuration; choose another folder",
                root.display()
            ))),
        }
    }
}

/// The first port for a server and the last: below those that systems give to clients, which the load
/// takes many of.
const PORTS: std::ops::Range<u16> = 18_100..32_000;
/// Ports between the first ones of two labs whose process ids follow each other.
const PORTS_APART: u32 = 50;
/// Ports given so far: none comes twice, so nothing of an earlier server is in the way of the next.
static PORTS_GIVEN: AtomicU32 = AtomicU32::new(0);

/// A port of the loopback that nobody listens on.
///
/// Errors: run, when all are taken.
fn free_port() -> Result<u16> {
    let first = std::process::id().wrapping_mul(PORTS_APART);
    for _ in PORTS {
        let number = first.wrapping_add(PORTS_GIVEN.fetch_add(1, Ordering::Relaxed));
        let port = PORTS.start + (number % PORTS.len() as u32) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err(Error::run(format!(
        "no port of 127.0.0.1 from {} to {} is free: end what listens there",
        PORTS.start,
        PORTS.end - 1
    )))
}

/// Gives a started server and the load generator separate cores, if there are several and the user chose none.
pub fn keep_apart(server: &mut Option<usize>, generator: &mut Vec<usize>) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores == 1 {
        return;
    }
    let server = server.get_or_insert_with(|| (0..cores).find(|core| !generator.contains(core)).unwrap_or(0));
    if generator.is_empty() {
        generator.extend((0..cores).filter(|core| core != server));
    }
}

/// Writes back dirty pages and drops all clean ones that are not locked: all files have to be read from
/// the disk again.
///
/// Errors: run, for all but root.
pub fn drop_page_cache() -> Result<()> {
    program::write_back();
    // 3: page cache, dentries and inodes (proc(5)).
    fs::write("/proc/sys/vm/drop_caches", "3").map_err(|why| {
        Error::run(format!(
            "cannot drop the page cache: writing /proc/sys/vm/drop_caches failed: {why}; run as root"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_and_none_comes_twice() {
        // A process that another test starts has a copy of the socket that looked, until it executes its program.
        let listen =
            || (0..10).find_map(|_| TcpListener::bind(("127.0.0.1", free_port().unwrap())).ok()).unwrap();
        let listeners: Vec<TcpListener> = (0..20).map(|_| listen()).collect();
        let ports: std::collections::BTreeSet<u16> =
            listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
        assert!(ports.len() == 20 && ports.iter().all(|port| PORTS.contains(port)), "{ports:?}");
        // The next one is taken meanwhile by somebody else: it is passed over.
        let next = free_port().unwrap() + 1;
        let taken = TcpListener::bind(("127.0.0.1", next));
        assert!(taken.is_err() || free_port().unwrap() != next);
    }

    #[test]
    fn roots_that_no_configuration_could_hold_are_refused() {
        let checked = |root: &str| Testbed::of(root.into()).checked_root();
        assert_eq!(checked("/proc/../proc").unwrap(), "/proc");
        assert_eq!(checked("/not/there").unwrap_err().exit_code(), 2);
        let folder = tempfile::Builder::new().prefix("$x").tempdir().unwrap();
        let refused = Testbed::of(folder.path().to_owned()).check().unwrap_err();
        assert_eq!(refused.exit_code(), 2);
    }

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
